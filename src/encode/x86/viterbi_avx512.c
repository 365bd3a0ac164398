/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Viterbi solver with AVX-512: 16 states a vector.
 */
#include "encode/x86/viterbi_choose.h"

#define VF_LANES_LOG2 4
#define VF_BLOCKS_WIDE 4

typedef __m512 vf;

#define vf_load _mm512_loadu_ps
#define vf_store _mm512_storeu_ps
#define vf_set1 _mm512_set1_ps
#define vf_add _mm512_add_ps
#define vf_max _mm512_max_ps
#define vf_fma _mm512_fmadd_ps

/* 16 / 2^k metrics, repeated; each is one load that needs no vector port. */
static inline __attribute__((always_inline)) vf vf_spread(uint32_t k, const float *metrics)
{
    switch (k) {
    case 1:
        return _mm512_broadcast_f32x8(_mm256_loadu_ps(metrics));
    case 2:
        return _mm512_broadcast_f32x4(_mm_loadu_ps(metrics));
    case 3:
        return _mm512_castpd_ps(_mm512_broadcastsd_pd(_mm_load_sd((const void *)metrics)));
    default:
        return _mm512_set1_ps(*metrics);
    }
}

/* Lane (group | b << (4-k)) back to lane (group << k | b). */
static inline __attribute__((always_inline)) vf vf_unspread(uint32_t k, vf v)
{
    switch (k) {
    case 1:
        return _mm512_permutexvar_ps(
            _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), v);
    case 2:
        return _mm512_permutexvar_ps(
            _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
    case 3:
        return _mm512_permutexvar_ps(
            _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), v);
    default:
        return v;
    }
}

#include "encode/viterbi_vector.h"

const struct tcq_viterbi tcq_viterbi_avx512 = {
    .isa = "avx512",
    .cpu_flags = TCQ_CPU_AVX2 | TCQ_CPU_AVX512,
    .lanes_log2 = VF_LANES_LOG2,
    .blocks = blocks_at_once,
    .work_nbytes = work_nbytes,
    .solve = solve,
};
