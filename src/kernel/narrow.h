/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen lanes made of PARTS registers, for instruction sets whose registers hold
 * fewer.  Included by them after the primitives of one register.
 */
#ifndef TCQ_KERNEL_NARROW_H
#define TCQ_KERNEL_NARROW_H

#include "kernel/lanes.h"

typedef struct {
    vec part[PARTS];
} v16;

#define EACH_PART(expression)            \
    v16 result;                          \
    TCQ_UNROLL                           \
    for (unsigned p = 0; p < PARTS; p++) \
        result.part[p] = expression;     \
    return result

TCQ_INLINE v16 v16_set1(float a)
{
    EACH_PART(vec_set1(a));
}

TCQ_INLINE v16 v16_load(const float *from)
{
    EACH_PART(vec_load(from + p * (STEP / PARTS)));
}

TCQ_INLINE v16 v16_keep(v16 a)
{
    EACH_PART(vec_keep(a.part[p]));
}

TCQ_INLINE v16 v16_load_bf16(const uint16_t *from)
{
    EACH_PART(vec_load_bf16(from + p * (STEP / PARTS)));
}

TCQ_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    EACH_PART(vec_fma(a.part[p], b.part[p], c.part[p]));
}

/* sum + a * b, b one register for all parts. */
TCQ_INLINE v16 v16_scale_add(v16 sum, v16 a, vec b)
{
    EACH_PART(vec_fma(a.part[p], b, sum.part[p]));
}

TCQ_INLINE v16 v16_mul(v16 a, v16 b)
{
    EACH_PART(vec_mul(a.part[p], b.part[p]));
}

TCQ_INLINE v16 decode_step(unsigned k, bool L16, const struct decoder *d, const uint8_t *block,
                           unsigned step, unsigned steps, bool wrapped)
{
    EACH_PART(decode_part(k, L16, d, p, block, step, steps, wrapped));
}
#undef EACH_PART

TCQ_INLINE void v16_store(float *to, v16 a)
{
    TCQ_UNROLL
    for (unsigned p = 0; p < PARTS; p++)
        vec_store(to + p * (STEP / PARTS), a.part[p]);
}

/* Lane r: the lanes of v[r * stride] added by halves. */
TCQ_INLINE v16 v16_sum16(const float *v, size_t stride)
{
    float sums[STEP];
    for (size_t r = 0; r < STEP; r++)
        sums[r] = parts_sum(v16_load(v + r * stride).part);
    return v16_load(sums);
}

/* dst[l][j] = src[j][l], sixteen by sixteen. */
TCQ_INLINE void transpose_bf16(float *dst, size_t dst_stride, const uint16_t *src,
                               size_t src_stride)
{
    for (size_t j = 0; j < STEP; j++) {
        float row[STEP];
        v16_store(row, v16_load_bf16(src + j * src_stride));
        for (size_t l = 0; l < STEP; l++)
            dst[l * dst_stride + j] = row[l];
    }
}

#endif
