/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward choice among 8 predecessors or more, on AVX2: shared by both
 * x86 solvers, since with AVX-512 too there are rarely more than 8.
 */
#ifndef TCQ_ENCODE_X86_VITERBI_CHOOSE_H
#define TCQ_ENCODE_X86_VITERBI_CHOOSE_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum { VF_CHOOSE_K_MIN = 3 };

/* See choose() in encode/viterbi_vector.h; k >= VF_CHOOSE_K_MIN.  The metrics
 * come by single loads: a gather is no faster here and much slower elsewhere. */
static inline __attribute__((always_inline)) float vf_choose(const uint32_t k, const float *values,
                                                             const float *minus_squares,
                                                             const float *metrics, size_t step,
                                                             float x2, uint32_t *choice)
{
    const uint32_t vectors = (1u << k) / 8;
    __m256 sums[8], most = _mm256_set1_ps(-__builtin_inff()), x = _mm256_set1_ps(x2);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < vectors; i++, metrics += 8 * step) {
        __m256 metric = _mm256_setr_ps(metrics[0], metrics[step], metrics[2 * step],
                                       metrics[3 * step], metrics[4 * step], metrics[5 * step],
                                       metrics[6 * step], metrics[7 * step]);
        __m256 emission = _mm256_fmadd_ps(x, _mm256_loadu_ps(values + 8 * i),
                                          _mm256_loadu_ps(minus_squares + 8 * i));
        sums[i] = _mm256_add_ps(metric, emission);
        most = _mm256_max_ps(most, sums[i]);
    }
    most = _mm256_max_ps(most, _mm256_permute2f128_ps(most, most, 1));
    most = _mm256_max_ps(most, _mm256_permute_ps(most, 0x4e));
    most = _mm256_max_ps(most, _mm256_permute_ps(most, 0xb1));
    uint64_t equal = 0;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < vectors; i++) {
        int mask = _mm256_movemask_ps(_mm256_cmp_ps(sums[i], most, _CMP_EQ_OQ));
        equal |= (uint64_t)(uint32_t)mask << (8 * i);
    }
    *choice = 63 - (uint32_t)__builtin_clzll(equal);
    return _mm256_cvtss_f32(most);
}

#endif
