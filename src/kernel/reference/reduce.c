/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference reduce: axis 1, a group of 32 lanes a row, each weight decoded once
 * for up to four vectors.  Gate/up is this order for both matrices, followed by
 * tcq_swiglu_tail.
 */
#include "format/block.h"
#include "kernel/reference/arithmetic.h"
#include "kernel/reference/reference.h"

enum { RUN = 32 }; /* consecutive positions that one lane takes at a time */

/* The 32 weights of run `run` of a row, contract f32. */
static void decode_run(float weights[RUN], const struct tcq_tensor *tensor, uint64_t row,
                       uint64_t run)
{
    const struct tcq_geometry *g = &tensor->geometry;
    uint64_t runs_per_block = g->T / RUN, block = run / runs_per_block;
    uint32_t first = (uint32_t)(run % runs_per_block) * RUN;
    const uint32_t *words = tensor->words + tcq_geometry_block_offset(g, row, block);
    float scale = tcq_f16_to_f32(tensor->scales[row]);
    for (uint32_t j = 0; j < RUN; j++)
        weights[j] = tcq_weight_f32(
            tcq_code_y(tcq_block_window(words, g->k, g->L, g->T, first + j)), scale);
}

/* v[l] += v[l ^ d]: the sum that every lane ends up with. */
static float lanes_sum(float v[TCQ_REFERENCE_LANES])
{
    for (int d = TCQ_REFERENCE_LANES / 2; d; d /= 2)
        for (int l = 0; l < d; l++)
            v[l] += v[l + d];
    return v[0];
}

/* y of one row for `count` <= 4 vectors from `first` on. */
static void reduce_row(const struct tcq_reference_product *p, uint64_t row, uint32_t first,
                       uint32_t count)
{
    float lanes[TCQ_REFERENCE_M_MAX][TCQ_REFERENCE_LANES];
    uint64_t runs = p->tensor->geometry.cols / RUN;
    for (uint32_t lane = 0; lane < TCQ_REFERENCE_LANES; lane++) {
        float even[TCQ_REFERENCE_M_MAX] = {0}, odd[TCQ_REFERENCE_M_MAX] = {0};
        for (uint64_t run = lane; run < runs; run += TCQ_REFERENCE_LANES) {
            float weights[RUN];
            decode_run(weights, p->tensor, row, run);
            for (uint32_t i = 0; i < count; i++) {
                const float *x = p->x + (first + i) * p->x_stride + run * RUN;
                for (int j = 0; j < RUN; j += 2) {
                    even[i] = fmaf(weights[j], x[j], even[i]);
                    odd[i] = fmaf(weights[j + 1], x[j + 1], odd[i]);
                }
            }
        }
        for (uint32_t i = 0; i < count; i++)
            lanes[i][lane] = even[i] + odd[i];
    }
    for (uint32_t i = 0; i < count; i++)
        p->y[(first + i) * p->y_stride + row] = lanes_sum(lanes[i]);
}

void tcq_reference_reduce(const struct tcq_reference_product *p, uint64_t row_begin,
                          uint64_t row_end)
{
    for (uint64_t row = row_begin; row < row_end; row++)
        for (uint32_t first = 0; first < p->m; first += TCQ_REFERENCE_M_MAX) {
            uint32_t left = p->m - first;
            reduce_row(p, row, first, left < TCQ_REFERENCE_M_MAX ? left : TCQ_REFERENCE_M_MAX);
        }
}
