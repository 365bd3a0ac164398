/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp in float32, within 1 ulp: one text for C and CUDA, since library exps
 * differ between systems and the reference numerics must not.  Every fused
 * multiply-add is written out; there is no other product followed by a sum.
 */
#ifndef TCQ_KERNEL_REFERENCE_EXP_H
#define TCQ_KERNEL_REFERENCE_EXP_H

#include <math.h>

#include "base/half.h"

/* 2^n for -126 <= n <= 127. */
TCQ_HOST_DEVICE static inline float tcq_exp2_integer(int n)
{
    return tcq_float_from_bits((uint32_t)(n + 127) << 23);
}

/*
 * exp(x) = 2^n exp(r) with n = rint(x / ln 2), |r| <= ln(2)/2.
 * exp(r) = 1 + r + r^2 q(r); q is the Chebyshev fit of degree 5 on
 * |r| <= 0.34658, whose own error is below 0.004 ulp.
 */
TCQ_HOST_DEVICE static inline float tcq_exp(float x)
{
    const float infinity = tcq_float_from_bits(0x7f800000u);
    if (x != x)
        return x;
    if (x > 0x1.62e42ep+6f) /* 88.72283: the largest float whose exp is finite */
        return infinity;
    if (x < -0x1.9fe368p+6f) /* -103.97207: below, exp is under half of 2^-149 */
        return 0.0f;
    const float shift = 0x1.8p+23f; /* adding it rounds to an integer, in the low bits */
    float n = fmaf(x, 0x1.715476p+0f, shift) - shift;
    float r = fmaf(n, -0x1.62e400p-1f, x); /* ln 2 in two parts; the first product is exact */
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float q = 0x1.a15170p-13f;
    q = fmaf(q, r, 0x1.6d431cp-10f);
    q = fmaf(q, r, 0x1.1110c6p-7f);
    q = fmaf(q, r, 0x1.5554eap-5f);
    q = fmaf(q, r, 0x1.555556p-3f);
    q = fmaf(q, r, 0.5f);
    float p = fmaf(r * r, q, r) + 1.0f;
    /* Two steps, so that neither factor leaves the normal range: n is in -150..128. */
    int whole = (int)n, half = whole / 2;
    return p * tcq_exp2_integer(half) * tcq_exp2_integer(whole - half);
}

#endif
