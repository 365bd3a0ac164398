/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Viterbi solver with AVX2 and FMA: 8 states a vector.
 */
#include "encode/x86/viterbi_choose.h"

#define VF_LANES_LOG2 3
#define VF_BLOCKS_WIDE 2

typedef __m256 vf;

#define vf_load _mm256_loadu_ps
#define vf_store _mm256_storeu_ps
#define vf_set1 _mm256_set1_ps
#define vf_add _mm256_add_ps
#define vf_max _mm256_max_ps
#define vf_fma _mm256_fmadd_ps

/* 8 / 2^k metrics, repeated; each is one load that needs no vector port. */
static inline __attribute__((always_inline)) vf vf_spread(uint32_t k, const float *metrics)
{
    switch (k) {
    case 1:
        return _mm256_broadcast_ps((const void *)metrics);
    case 2:
        return _mm256_castpd_ps(_mm256_broadcast_sd((const void *)metrics));
    default:
        return _mm256_broadcast_ss(metrics);
    }
}

/* Lane (group | b << (3-k)) back to lane (group << k | b). */
static inline __attribute__((always_inline)) vf vf_unspread(uint32_t k, vf v)
{
    switch (k) {
    case 1:
        return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    case 2:
        return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    default:
        return v;
    }
}

#include "encode/viterbi_vector.h"

const struct tcq_viterbi tcq_viterbi_avx2 = {
    .isa = "avx2",
    .cpu_flags = TCQ_CPU_AVX2,
    .lanes_log2 = VF_LANES_LOG2,
    .blocks = blocks_at_once,
    .work_nbytes = work_nbytes,
    .solve = solve,
};
