/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the reference numerics that C and CUDA share as one text:
 * weight contracts, rounding to an activation type, and the SwiGLU tails.
 * docs/numerics.md says what each is for.
 */
#ifndef TCQ_KERNEL_REFERENCE_ARITHMETIC_H
#define TCQ_KERNEL_REFERENCE_ARITHMETIC_H

#include "base/half.h"
#include "code/code.h"
#include "kernel/reference/exp.h"
#include "tcq.h"

/* The code's divisor d and its reciprocal, rounded to float32. */
#define TCQ_DIVISOR_F32 147.800537109375f
#define TCQ_RECIPROCAL_F32 (1.0f / 147.800537109375f)

/* Contract `f32`: neither refined nor rounded. */
TCQ_HOST_DEVICE static inline float tcq_weight_f32(int32_t y, float scale)
{
    return ((float)y * TCQ_RECIPROCAL_F32) * scale;
}

/* The precise value y / d without a division: one residual step equals it for
 * every y in [-510, 510]. */
TCQ_HOST_DEVICE static inline float tcq_value_refined(int32_t y)
{
    float q = (float)y * TCQ_RECIPROCAL_F32;
    float residual = fmaf(-q, TCQ_DIVISOR_F32, (float)y);
    return fmaf(residual, TCQ_RECIPROCAL_F32, q);
}

/* Contract `bf16`, as bits. */
TCQ_HOST_DEVICE static inline uint16_t tcq_weight_bf16(int32_t y, float scale)
{
    return tcq_bf16_from_f32(tcq_value_refined(y) * scale);
}

/* x rounded to an activation type (F32, F16 or BF16), as a float32 again. */
TCQ_HOST_DEVICE static inline float tcq_round_to(enum tcq_dtype dtype, float x)
{
    if (dtype == TCQ_DTYPE_BF16)
        return tcq_bf16_to_f32(tcq_bf16_from_f32(x));
    if (dtype == TCQ_DTYPE_F16)
        return tcq_f16_to_f32(tcq_f16_from_f32(x));
    return x;
}

/* Tail `fused`: the sigmoid as 1/(1+exp(-g)). */
TCQ_HOST_DEVICE static inline float tcq_sigmoid_fused(float g)
{
    return 1.0f / (1.0f + tcq_exp(-g));
}

/* Tail `split`: from exp(|g|), as separate projections and a SwiGLU do it. */
TCQ_HOST_DEVICE static inline float tcq_sigmoid_split(float g)
{
    float small = 1.0f / (1.0f + tcq_exp(fabsf(g)));
    return g < 0.0f ? small : 1.0f - small;
}

/* mid from the float32 sums of gate and up, rounded to `dtype` at every step
 * that stores an activation. */
TCQ_HOST_DEVICE static inline float tcq_swiglu_tail(enum tcq_dtype dtype, enum tcq_swiglu tail,
                                                    float gate, float up)
{
    float g = tcq_round_to(dtype, gate), u = tcq_round_to(dtype, up);
    float sigmoid = tail == TCQ_SWIGLU_SPLIT ? tcq_sigmoid_split(g) : tcq_sigmoid_fused(g);
    float s = tcq_round_to(dtype, g * tcq_round_to(dtype, sigmoid));
    return tcq_round_to(dtype, s * u);
}

#endif
