/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every axis-0 kernel needs of a tensor's columns.  Included after an
 * instruction set's primitives.
 */
#ifndef TCQ_KERNEL_COLUMNS_H
#define TCQ_KERNEL_COLUMNS_H

#include "format/geometry.h"
#include "kernel/kernel.h"
#include "kernel/lanes.h"

/* From one row's words of a block to the next row's. */
static inline size_t row_distance_nbytes(const struct tcq_geometry *g)
{
    size_t words = g->layout == TCQ_LAYOUT_INTERLEAVED
                       ? TCQ_INTERLEAVE_BLOCKS * tcq_geometry_block_words(g)
                       : tcq_geometry_row_words(g);
    return words * sizeof(uint32_t);
}

/* One block's sums from the order of windows to that of columns; y may be sums. */
static inline void put_columns(float *y, const float *sums, const struct tcq_geometry *g)
{
    float from[TCQ_T_MAX];
    memcpy(from, sums, g->T * sizeof(float));
    for (unsigned j = 0; j < g->T; j++)
        y[g->T - 1 - lane_window(g->k, j / STEP, j % STEP)] = from[j];
}

/* Where y itself holds the sums meanwhile, in the order of windows: before and
 * after. */
static inline void begin_columns(const struct tcq_product *p, struct tcq_range blocks)
{
    const size_t T = p->tensor->geometry.T;
    for (uint32_t i = 0; i < p->m; i++)
        memset(p->y + i * p->y_stride + blocks.begin * T, 0,
               (blocks.end - blocks.begin) * T * sizeof(float));
}

static inline void finish_columns(const struct tcq_product *p, struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    for (uint32_t i = 0; i < p->m; i++)
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            float *y = p->y + i * p->y_stride + block * g->T;
            put_columns(y, y, g);
        }
}

#endif
