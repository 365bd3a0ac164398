/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference products on bf16 weights: tiled (axis 1), split-K and wide (axis 0),
 * and expand.  Every sum runs over k in ascending order; split-K alone cuts it.
 */
#include <string.h>

#include "format/block.h"
#include "format/geometry.h"
#include "kernel/reference/arithmetic.h"
#include "kernel/reference/reference.h"

enum { GROUP = 8 }; /* vectors that share one decoded block */

static void decode_block(float *weights, const struct tcq_tensor *tensor, uint64_t row,
                         uint64_t block)
{
    const struct tcq_geometry *g = &tensor->geometry;
    const uint32_t *words = tensor->words + tcq_geometry_block_offset(g, row, block);
    float scale = tcq_f16_to_f32(tensor->scales[row]);
    for (uint32_t t = 0; t < g->T; t++)
        weights[t] = tcq_bf16_to_f32(
            tcq_weight_bf16(tcq_code_y(tcq_block_window(words, g->k, g->L, g->T, t)), scale));
}

static uint32_t group_size(const struct tcq_reference_product *p, uint32_t first)
{
    return p->m - first < GROUP ? p->m - first : GROUP;
}

static void tiled_row(const struct tcq_reference_product *p, uint64_t row, uint32_t first,
                      uint32_t count)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    float acc[GROUP] = {0};
    for (uint64_t block = 0; block < g->cols / g->T; block++) {
        float weights[TCQ_T_MAX];
        decode_block(weights, p->tensor, row, block);
        for (uint32_t i = 0; i < count; i++) {
            const float *x = p->x + (first + i) * p->x_stride + block * g->T;
            for (uint32_t t = 0; t < g->T; t++)
                acc[i] = fmaf(weights[t], x[t], acc[i]);
        }
    }
    for (uint32_t i = 0; i < count; i++)
        p->y[(first + i) * p->y_stride + row] = acc[i];
}

void tcq_reference_tiled(const struct tcq_reference_product *p, uint64_t row_begin,
                         uint64_t row_end)
{
    for (uint64_t row = row_begin; row < row_end; row++)
        for (uint32_t first = 0; first < p->m; first += GROUP)
            tiled_row(p, row, first, group_size(p, first));
}

/* acc[i][t] += sum over rows [begin, end), ascending. */
static void add_rows(float acc[GROUP][TCQ_T_MAX], const struct tcq_reference_product *p,
                     uint64_t block, uint32_t first, uint32_t count, uint64_t begin, uint64_t end)
{
    uint32_t T = p->tensor->geometry.T;
    for (uint64_t row = begin; row < end; row++) {
        float weights[TCQ_T_MAX];
        decode_block(weights, p->tensor, row, block);
        for (uint32_t i = 0; i < count; i++) {
            float x = p->x[(first + i) * p->x_stride + row];
            for (uint32_t t = 0; t < T; t++)
                acc[i][t] = fmaf(weights[t], x, acc[i][t]);
        }
    }
}

static void store_block(const struct tcq_reference_product *p, uint64_t block, uint32_t first,
                        uint32_t count, float total[GROUP][TCQ_T_MAX])
{
    uint32_t T = p->tensor->geometry.T;
    for (uint32_t i = 0; i < count; i++)
        memcpy(p->y + (first + i) * p->y_stride + block * T, total[i], T * sizeof(float));
}

struct tcq_split_k tcq_split_k_plan(uint64_t m, uint64_t in, uint64_t out)
{
    uint64_t tiles_m = (m + 31) / 32, tiles_n = (out + 31) / 32, tiles_k = in / 16;
    uint64_t ratio = tiles_k / (tiles_m * tiles_n);
    uint32_t splits = 2; /* the least power of two that is not below the ratio, in 2..32 */
    while (splits < ratio && splits < 32)
        splits *= 2;
    return (struct tcq_split_k){splits, tiles_k / splits * 16};
}

static void split_k_block(const struct tcq_reference_product *p, struct tcq_split_k plan,
                          uint64_t block, uint32_t first, uint32_t count)
{
    uint64_t rows = p->tensor->geometry.rows;
    float total[GROUP][TCQ_T_MAX] = {{0}};
    for (uint32_t split = 0; split < plan.splits; split++) {
        uint64_t begin = split * plan.partition;
        uint64_t end = split + 1 == plan.splits ? rows : begin + plan.partition;
        float acc[GROUP][TCQ_T_MAX] = {{0}};
        add_rows(acc, p, block, first, count, begin, end);
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t t = 0; t < p->tensor->geometry.T; t++)
                total[i][t] += acc[i][t];
    }
    store_block(p, block, first, count, total);
}

void tcq_reference_split_k(const struct tcq_reference_product *p, uint64_t block_begin,
                           uint64_t block_end)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    struct tcq_split_k plan = tcq_split_k_plan(p->m, g->rows, g->cols);
    for (uint64_t block = block_begin; block < block_end; block++)
        for (uint32_t first = 0; first < p->m; first += GROUP)
            split_k_block(p, plan, block, first, group_size(p, first));
}

void tcq_reference_wide(const struct tcq_reference_product *p, uint64_t block_begin,
                        uint64_t block_end)
{
    for (uint64_t block = block_begin; block < block_end; block++)
        for (uint32_t first = 0; first < p->m; first += GROUP) {
            uint32_t count = group_size(p, first);
            float acc[GROUP][TCQ_T_MAX] = {{0}};
            add_rows(acc, p, block, first, count, 0, p->tensor->geometry.rows);
            store_block(p, block, first, count, acc);
        }
}

/* Four adjacent weights share one window of up to 64 bits that starts at the
 * last of them; the earlier ones occupy its higher bits. */
void tcq_reference_expand_block(void *dst, enum tcq_dtype dtype, const struct tcq_tensor *tensor,
                                uint64_t row, uint64_t block)
{
    const struct tcq_geometry *g = &tensor->geometry;
    const uint32_t *words = tensor->words + tcq_geometry_block_offset(g, row, block);
    float scale = tcq_f16_to_f32(tensor->scales[row]);
    uint32_t count = g->T * g->k / 32, mask = (1u << g->L) - 1;
    for (uint32_t t = 0; t < g->T; t += 4) {
        uint32_t bit = (g->T - 4 - t) * g->k, word = bit >> 5;
        uint64_t next = words[word + 1 == count ? 0 : word + 1];
        uint64_t window = (next << 32 | words[word]) >> (bit & 31);
        for (uint32_t i = 0; i < 4; i++) {
            int32_t y = tcq_code_y((uint32_t)(window >> (3 - i) * g->k) & mask);
            if (dtype == TCQ_DTYPE_BF16)
                ((uint16_t *)dst)[t + i] = tcq_weight_bf16(y, scale);
            else
                ((float *)dst)[t + i] = tcq_value_refined(y) * scale;
        }
    }
}

void tcq_reference_expand(void *dst, enum tcq_dtype dtype, size_t dst_stride,
                          const struct tcq_tensor *tensor, uint64_t row_begin, uint64_t row_end)
{
    const struct tcq_geometry *g = &tensor->geometry;
    size_t element = dtype == TCQ_DTYPE_BF16 ? 2 : 4;
    for (uint64_t row = row_begin; row < row_end; row++) {
        char *out = (char *)dst + (row - row_begin) * dst_stride * element;
        for (uint64_t block = 0; block < g->cols / g->T; block++)
            tcq_reference_expand_block(out + block * g->T * element, dtype, tensor, row, block);
    }
}
