/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes for AVX2 and AVX-512.  Sixteen independent accumulators hide the four
 * cycles of a multiply-add on two ports; the int8 rate is that of vpdpbusd, with
 * AVX2 that of vpmaddubsw, vpmaddwd and vpaddd together.
 */
#include "bench_probe_x86.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "tcq.h"

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define AVX512_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512bf16")))

enum { ACCUMULATORS = 16 };

/* ---- AVX2 --------------------------------------------------------------- */

AVX2 static uint64_t read_avx2(const void *data, size_t nbytes)
{
    const char *at = data;
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};
    for (size_t i = 0; i < nbytes; i += 256) {
        _mm_prefetch(at + i + 2048, _MM_HINT_T0);
        _mm_prefetch(at + i + 2048 + 64, _MM_HINT_T0);
        _mm_prefetch(at + i + 2048 + 128, _MM_HINT_T0);
        _mm_prefetch(at + i + 2048 + 192, _MM_HINT_T0);
        for (size_t j = 0; j < 8; j++)
            sum[j & 3] = _mm256_xor_si256(
                sum[j & 3], _mm256_load_si256((const __m256i *)(const void *)(at + i + 32 * j)));
    }
    __m256i all = _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]),
                                   _mm256_xor_si256(sum[2], sum[3]));
    return (uint64_t)_mm256_extract_epi64(all, 0) ^ (uint64_t)_mm256_extract_epi64(all, 3);
}

AVX2 static float sum_avx2(__m256 v)
{
    float lanes[8], sum = 0;
    _mm256_storeu_ps(lanes, v);
    for (int j = 0; j < 8; j++)
        sum += lanes[j];
    return sum;
}

AVX2 static float fma_avx2(uint64_t rounds)
{
    enum { COUNT = 12 }; /* of sixteen registers, two hold the factors */
    __m256 acc[COUNT], a = _mm256_set1_ps(0.75f), b = _mm256_set1_ps(0.25f);
    for (int j = 0; j < COUNT; j++)
        acc[j] = _mm256_set1_ps((float)j);
    for (uint64_t i = 0; i < rounds; i++) {
        _Pragma("GCC unroll 12") for (int j = 0; j < COUNT; j++)
            acc[j] = _mm256_fmadd_ps(acc[j], a, b);
    }
    for (int j = 1; j < COUNT; j++)
        acc[0] = _mm256_add_ps(acc[0], acc[j]);
    return sum_avx2(acc[0]);
}

AVX2 static int32_t dot_avx2(uint64_t rounds)
{
    enum { COUNT = 8 };
    __m256i acc[COUNT], a = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    __m256i b = _mm256_set1_epi8((char)(rounds & 7));
    for (int j = 0; j < COUNT; j++)
        acc[j] = _mm256_set1_epi32(j);
    for (uint64_t i = 0; i < rounds; i++) {
        _Pragma("GCC unroll 8") for (int j = 0; j < COUNT; j++)
        {
            /* the running sum as an operand keeps the product inside the loop */
            __m256i pairs = _mm256_maddubs_epi16(a, _mm256_xor_si256(b, acc[j]));
            acc[j] = _mm256_add_epi32(acc[j], _mm256_madd_epi16(pairs, ones));
        }
    }
    for (int j = 1; j < COUNT; j++)
        acc[0] = _mm256_xor_si256(acc[0], acc[j]);
    return _mm256_extract_epi32(acc[0], 0);
}

AVX2 static __m256 widen_avx2(const uint16_t *at)
{
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)at);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* Two rows by four vectors at a time. */
AVX2 static void bf16_avx2(float *y, size_t y_stride, const uint16_t *w, const uint16_t *x,
                           uint32_t m, uint64_t row_begin, uint64_t row_end, size_t depth)
{
    for (uint64_t r = row_begin; r < row_end; r += 2) {
        const uint16_t *w0 = w + r * depth, *w1 = r + 1 < row_end ? w0 + depth : w0;
        for (uint32_t i = 0; i < m; i += 4) {
            const uint16_t *xi[4];
            __m256 acc[2][4];
            for (uint32_t v = 0; v < 4; v++) {
                xi[v] = x + (i + v < m ? i + v : i) * depth;
                acc[0][v] = acc[1][v] = _mm256_setzero_ps();
            }
            uint32_t count = m - i < 4 ? m - i : 4;
            for (size_t l = 0; l < depth; l += 8) {
                __m256 a = widen_avx2(w0 + l), b = widen_avx2(w1 + l);
                for (uint32_t v = 0; v < count; v++) {
                    __m256 xv = widen_avx2(xi[v] + l);
                    acc[0][v] = _mm256_fmadd_ps(a, xv, acc[0][v]);
                    acc[1][v] = _mm256_fmadd_ps(b, xv, acc[1][v]);
                }
            }
            for (uint32_t v = 0; v < count; v++) {
                y[(i + v) * y_stride + r] = sum_avx2(acc[0][v]);
                if (r + 1 < row_end)
                    y[(i + v) * y_stride + r + 1] = sum_avx2(acc[1][v]);
            }
        }
    }
}

/* ---- AVX-512 ------------------------------------------------------------ */

AVX512 static uint64_t read_avx512(const void *data, size_t nbytes)
{
    const char *at = data;
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};
    for (size_t i = 0; i < nbytes; i += 256) {
        _Pragma("GCC unroll 4") for (size_t j = 0; j < 4; j++)
        {
            _mm_prefetch(at + i + 4096 + 64 * j, _MM_HINT_T0);
            sum[j] = _mm512_xor_si512(sum[j], _mm512_load_si512(at + i + 64 * j));
        }
    }
    return (uint64_t)_mm512_reduce_or_epi64(_mm512_xor_si512(
        _mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3])));
}

AVX512 static float fma_avx512(uint64_t rounds)
{
    __m512 acc[ACCUMULATORS], a = _mm512_set1_ps(0.75f), b = _mm512_set1_ps(0.25f);
    for (int j = 0; j < ACCUMULATORS; j++)
        acc[j] = _mm512_set1_ps((float)j);
    for (uint64_t i = 0; i < rounds; i++) {
        _Pragma("GCC unroll 16") for (int j = 0; j < ACCUMULATORS; j++)
            acc[j] = _mm512_fmadd_ps(acc[j], a, b);
    }
    for (int j = 1; j < ACCUMULATORS; j++)
        acc[0] = _mm512_add_ps(acc[0], acc[j]);
    return _mm512_reduce_add_ps(acc[0]);
}

AVX512_VNNI static int32_t dot_vnni(uint64_t rounds)
{
    __m512i acc[ACCUMULATORS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8((char)(rounds & 7));
    for (int j = 0; j < ACCUMULATORS; j++)
        acc[j] = _mm512_set1_epi32(j);
    for (uint64_t i = 0; i < rounds; i++) {
        _Pragma("GCC unroll 16") for (int j = 0; j < ACCUMULATORS; j++)
            acc[j] = _mm512_dpbusd_epi32(acc[j], a, b);
    }
    for (int j = 1; j < ACCUMULATORS; j++)
        acc[0] = _mm512_xor_si512(acc[0], acc[j]);
    return _mm512_reduce_or_epi32(acc[0]);
}

AVX512 static __m512 widen_avx512(const uint16_t *at)
{
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Four rows by up to four vectors: each load serves four products. */
#define BF16_ROWS(ISA, name, STEP, LOAD, TYPE, ACCUMULATE)                                         \
    ISA static void name(float *y, size_t y_stride, const uint16_t *w, const uint16_t *x,          \
                         uint32_t m, uint64_t row_begin, uint64_t row_end, size_t depth)           \
    {                                                                                              \
        for (uint64_t r = row_begin; r < row_end; r += 4)                                          \
            for (uint32_t i = 0; i < m; i += 4) {                                                  \
                const uint16_t *wr[4], *xi[4];                                                     \
                __m512 acc[4][4];                                                                  \
                for (uint32_t j = 0; j < 4; j++) {                                                 \
                    wr[j] = w + (r + j < row_end ? r + j : r) * depth;                             \
                    xi[j] = x + (i + j < m ? i + j : i) * depth;                                   \
                    for (uint32_t v = 0; v < 4; v++)                                               \
                        acc[j][v] = _mm512_setzero_ps();                                           \
                }                                                                                  \
                if (m - i == 1) {                                                                  \
                    for (size_t l = 0; l < depth; l += STEP) {                                     \
                        TYPE xv = LOAD(xi[0] + l);                                                 \
                        _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++)                        \
                        {                                                                          \
                            _mm_prefetch((const char *)(wr[j] + l + 512), _MM_HINT_T0);            \
                            acc[j][0] = ACCUMULATE(acc[j][0], LOAD(wr[j] + l), xv);                \
                        }                                                                          \
                    }                                                                              \
                } else {                                                                           \
                    for (size_t l = 0; l < depth; l += STEP) {                                     \
                        TYPE xv[4];                                                                \
                        _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) xv[v] =                \
                            LOAD(xi[v] + l);                                                       \
                        _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++)                        \
                        {                                                                          \
                            TYPE wv = LOAD(wr[j] + l);                                             \
                            _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) acc[j][v] =        \
                                ACCUMULATE(acc[j][v], wv, xv[v]);                                  \
                        }                                                                          \
                    }                                                                              \
                }                                                                                  \
                for (uint32_t j = 0; j < 4 && r + j < row_end; j++)                                \
                    for (uint32_t v = 0; v < 4 && i + v < m; v++)                                  \
                        y[(i + v) * y_stride + r + j] = _mm512_reduce_add_ps(acc[j][v]);           \
            }                                                                                      \
    }

#define FMA_512(acc, a, b) _mm512_fmadd_ps(a, b, acc)
BF16_ROWS(AVX512, bf16_avx512, 16, widen_avx512, __m512, FMA_512)
#define LOAD_BF16(at) ((__m512bh)_mm512_loadu_si512(at))
BF16_ROWS(AVX512_BF16, bf16_avx512_bf16, 32, LOAD_BF16, __m512bh, _mm512_dpbf16_ps)

static const struct bench_probe avx2 = {"avx2", read_avx2, fma_avx2, 12 * 8, dot_avx2, 8 * 32,
                                        bf16_avx2};
static const struct bench_probe avx512 = {"avx512",          read_avx512, fma_avx512,
                                          ACCUMULATORS * 16, dot_avx2,    8 * 32,
                                          bf16_avx512};
static const struct bench_probe avx512_vnni = {
    "avx512",        read_avx512, fma_avx512, ACCUMULATORS * 16, dot_vnni, ACCUMULATORS * 64,
    bf16_avx512};
static const struct bench_probe avx512_bf16 = {
    "avx512",        read_avx512, fma_avx512, ACCUMULATORS * 16, dot_vnni, ACCUMULATORS * 64,
    bf16_avx512_bf16};

const struct bench_probe *bench_probe_x86(uint32_t cpu_flags)
{
    uint32_t vnni = TCQ_CPU_AVX512 | TCQ_CPU_AVX512_VNNI, bf16 = vnni | TCQ_CPU_AVX512_BF16;
    if ((cpu_flags & bf16) == bf16)
        return &avx512_bf16;
    if ((cpu_flags & vnni) == vnni)
        return &avx512_vnni;
    if (cpu_flags & TCQ_CPU_AVX512)
        return &avx512;
    return cpu_flags & TCQ_CPU_AVX2 ? &avx2 : NULL;
}
#endif
