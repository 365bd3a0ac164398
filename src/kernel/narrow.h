/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Primitives made of others, for instruction sets without a better way.  Included
 * after an instruction set's own.
 */
#ifndef TCQ_KERNEL_NARROW_H
#define TCQ_KERNEL_NARROW_H

#include "kernel/lanes.h"

/* Lane r: the lanes of v[r * stride] added by halves. */
TCQ_INLINE v16 v16_sum16(const float *v, size_t stride)
{
    float sums[STEP];
    for (size_t r = 0; r < STEP; r++)
        sums[r] = v16_sum(v16_load(v + r * stride));
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
