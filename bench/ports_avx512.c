/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the instructions of the AVX-512 kernels take, each in ten independent
 * chains, as a multiple of fma: 1 means that it runs on as many ports.  The figures
 * of docs/kernels.md.  A program of its own:
 *     cc -O2 -march=native bench/ports_avx512.c -o ports && ./ports
 */
#include <stdio.h>
#include <time.h>

enum { LOOPS = 300000, REPEATS = 15 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define TEN(one) \
    one("0") one("1") one("2") one("3") one("4") one("5") one("6") one("7") one("8") one("9")

#define MEASURE(name, one)                                                                     \
    static double name(void)                                                                   \
    {                                                                                          \
        double best = 1e9;                                                                     \
        for (int r = 0; r < REPEATS; r++) {                                                    \
            __asm__ volatile("vpxord %%zmm30, %%zmm30, %%zmm30\n"                              \
                             "vpxord %%zmm31, %%zmm31, %%zmm31\n" ::                           \
                                 : "memory");                                                  \
            double start = seconds();                                                          \
            for (long i = 0; i < LOOPS; i++)                                                   \
                __asm__ volatile(TEN(one)::                                                    \
                                     : "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", \
                                       "zmm7", "zmm8", "zmm9", "zmm30", "zmm31", "k1");        \
            double took = seconds() - start;                                                   \
            best = took < best ? took : best;                                                  \
        }                                                                                      \
        return best;                                                                           \
    }

#define FMA(d) "vfmadd231ps %%zmm30, %%zmm31, %%zmm" d "\n"
#define MULTISHIFT(d) "vpmultishiftqb %%zmm30, %%zmm31, %%zmm" d "\n"
#define TERNLOG(d) "vpternlogd $0xea, %%zmm30, %%zmm31, %%zmm" d "\n"
#define MULLW(d) "vpmullw %%zmm30, %%zmm31, %%zmm" d "\n"
#define MULLD(d) "vpmulld %%zmm30, %%zmm31, %%zmm" d "\n"
#define DPWSSD(d) "vpdpwssd %%zmm30, %%zmm31, %%zmm" d "\n"
#define DPBUSD(d) "vpdpbusd %%zmm30, %%zmm31, %%zmm" d "\n"
#define MADD52(d) "vpmadd52huq %%zmm30, %%zmm31, %%zmm" d "\n"
#define CONVERT(d) "vcvtdq2ps %%zmm30, %%zmm" d "\n"
#define SHIFT(d) "vpsrld $3, %%zmm31, %%zmm" d "\n"
/* sixteen from one line of a table; the mask is spent each time */
#define GATHER(d)               \
    "kxnorw %%k1, %%k1, %%k1\n" \
    "vpgatherdd (%%rsp, %%zmm30, 4), %%zmm" d "%{%%k1%}\n"
#define DPBF16(d) "vdpbf16ps %%zmm30, %%zmm31, %%zmm" d "\n"
MEASURE(multiply_add, FMA)
MEASURE(multishift, MULTISHIFT)
MEASURE(ternlog, TERNLOG)
MEASURE(mullw, MULLW)
MEASURE(mulld, MULLD)
MEASURE(dpwssd, DPWSSD)
MEASURE(dpbusd, DPBUSD)
MEASURE(madd52, MADD52)
MEASURE(convert, CONVERT)
MEASURE(shift, SHIFT)
MEASURE(dpbf16, DPBF16)
MEASURE(gather, GATHER)

int main(void)
{
    static const struct {
        const char *name;
        double (*measure)(void);
    } rows[] = {
        {"vpmultishiftqb", multishift},
        {"vpternlogd", ternlog},
        {"vpmullw", mullw},
        {"vpmulld", mulld},
        {"vpdpwssd", dpwssd},
        {"vpdpbusd", dpbusd},
        {"vpmadd52huq", madd52},
        {"vcvtdq2ps", convert},
        {"vpsrld", shift},
        {"vdpbf16ps", dpbf16},
        {"vpgatherdd", gather},
    };
    multiply_add(); /* the clock's ramp */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double unit = multiply_add(), took = rows[i].measure(), again = multiply_add();
        printf("%-15s %.2f\n", rows[i].name, took / (unit < again ? unit : again));
    }
    return 0;
}
