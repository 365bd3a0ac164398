/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expand, the text that every instruction set shares (see reduce_simd.h); the
 * including file asks for NATURAL_LANES.  Defines `expand_run`.
 *
 * value = q + fma(-q, d, y) * r with r = float32(1/d), q = y * r equals the float64
 * quotient y/d rounded to float32 for every y in [-510, 510].
 */
#include "kernel/kernel.h"

/* One block whose y lie in the order of the windows: the last position first. */
TCQ_INLINE void expand_block(bool bf16, void *dst, const float *y, unsigned T, float row_scale)
{
    const v16 d = v16_set1((float)TCQ_CODE_DIVISOR), r = v16_set1((float)(1.0 / TCQ_CODE_DIVISOR));
    const v16 scale = v16_set1(row_scale), minus = v16_set1(-1.0f);
    for (unsigned t = 0; t < T; t += STEP) {
        v16 integers = v16_reverse(v16_load(y + T - STEP - t));
        v16 q = v16_mul(integers, r);
        v16 value = v16_fma(v16_fma(v16_mul(q, minus), d, integers), r, q);
        v16 weight = v16_mul(value, scale);
        if (bf16)
            v16_store_bf16((uint16_t *)dst + t, weight);
        else
            v16_store((float *)dst + t, weight);
    }
}

static void expand_run(void *dst, enum tcq_dtype dtype, size_t dst_stride,
                       const struct tcq_tensor *tensor, struct tcq_range rows,
                       struct tcq_range blocks)
{
    const struct tcq_geometry *g = &tensor->geometry;
    const struct decoder decoder = decoder_make(g->k, g->L);
    _Alignas(64) float y[TCQ_T_MAX];
    for (uint64_t row = rows.begin; row < rows.end; row++) {
        float scale = tcq_f16_to_f32(tensor->scales[row]);
        size_t at = (size_t)(row - rows.begin) * dst_stride;
        for (uint64_t block = blocks.begin; block < blocks.end; block++, at += g->T) {
            struct block_run run = {
                .block =
                    (const uint8_t *)(tensor->words + tcq_geometry_block_offset(g, row, block)),
                .blocks = 1,
                .steps = g->T / STEP,
                .count = g->T / STEP,
                .ahead_nbytes = 4 * tcq_geometry_block_words(g),
            };
            decode_blocks(y, 0, g, &decoder, &run);
            if (dtype == TCQ_DTYPE_BF16)
                expand_block(true, (uint16_t *)dst + at, y, g->T, scale);
            else
                expand_block(false, (float *)dst + at, y, g->T, scale);
        }
    }
}
