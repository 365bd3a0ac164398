/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CPU can do, as flags of enum tcq_cpu_flag.  On x86 a feature counts
 * only if the operating system saves its registers (XCR0), which cpuid alone
 * does not tell.
 */
#include "tcq.h"

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool all(uint32_t word, uint32_t bits)
{
    return (word & bits) == bits;
}

uint32_t tcq_cpu_detect(void)
{
    uint32_t a, b, c, d, flags = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !all(c, bit_OSXSAVE))
        return 0;
    const uint64_t ymm = 0x6, zmm = 0xe6; /* XCR0: SSE, AVX; opmask, upper halves, zmm16..31 */
    uint64_t xcr0 = read_xcr0();
    if ((xcr0 & ymm) != ymm || !all(c, bit_AVX | bit_FMA | bit_F16C))
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !all(b, bit_AVX2))
        return 0;
    flags |= TCQ_CPU_AVX2;
    if ((xcr0 & zmm) != zmm || !all(b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL |
                                           bit_AVX512CD))
        return flags;
    flags |= TCQ_CPU_AVX512;
    if (all(c, bit_AVX512VBMI | bit_AVX512VBMI2))
        flags |= TCQ_CPU_AVX512_VBMI;
    if (all(c, bit_AVX512VNNI))
        flags |= TCQ_CPU_AVX512_VNNI;
    if (all(b, bit_AVX512IFMA))
        flags |= TCQ_CPU_AVX512_IFMA;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && all(a, 1u << 5)) /* AVX512_BF16 */
        flags |= TCQ_CPU_AVX512_BF16;
    return flags;
}

#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

uint32_t tcq_cpu_detect(void)
{
    unsigned long caps = getauxval(AT_HWCAP);
    uint32_t flags = 0;
    if (caps & HWCAP_ASIMD)
        flags |= TCQ_CPU_NEON;
    if (caps & HWCAP_ASIMDDP)
        flags |= TCQ_CPU_NEON_DOTPROD;
    return flags;
}

#else

uint32_t tcq_cpu_detect(void)
{
    return 0;
}

#endif
