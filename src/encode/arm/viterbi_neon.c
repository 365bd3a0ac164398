/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Viterbi solver with NEON (AArch64): 4 states a vector.
 */
#include <arm_neon.h>
#include <stdint.h>

#define VF_LANES_LOG2 2
#define VF_BLOCKS_WIDE 2
#define VF_CHOOSE_K_MIN (TCQ_K_MAX + 1) /* never */
#define vf_choose(...) 0.0f

typedef float32x4_t vf;

#define vf_load vld1q_f32
#define vf_store vst1q_f32
#define vf_set1 vdupq_n_f32
#define vf_add vaddq_f32
#define vf_max vmaxq_f32
#define vf_fma(a, b, c) vfmaq_f32(c, a, b)

/* Two metrics repeated, or one: a replicating load. */
static inline __attribute__((always_inline)) vf vf_spread(uint32_t k, const float *metrics)
{
    if (k == 1) {
        float32x2_t two = vld1_f32(metrics);
        return vcombine_f32(two, two);
    }
    return vld1q_dup_f32(metrics);
}

/* Lane (group | b << 1) back to lane (group << 1 | b). */
static inline __attribute__((always_inline)) vf vf_unspread(uint32_t k, vf v)
{
    if (k == 1)
        return vzip1q_f32(v, vextq_f32(v, v, 2));
    return v;
}

#include "encode/viterbi_vector.h"

const struct tcq_viterbi tcq_viterbi_neon = {
    .isa = "neon",
    .cpu_flags = TCQ_CPU_NEON,
    .lanes_log2 = VF_LANES_LOG2,
    .blocks = blocks_at_once,
    .work_nbytes = work_nbytes,
    .solve = solve,
};
