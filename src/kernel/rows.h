/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every axis-1 kernel ends with.  Included after an instruction set's
 * primitives.
 */
#ifndef TCQ_KERNEL_ROWS_H
#define TCQ_KERNEL_ROWS_H

#include "kernel/exact.h"
#include "kernel/kernel.h"

/* y of up to sixteen rows: the lanes of every sum, [16][m][16] at state, added and
 * multiplied by scale/d. */
static inline void finish_rows(const struct tcq_product *p, const float *state, uint64_t row,
                               unsigned rows)
{
    float factors[STEP] = {0}, sums[STEP];
    for (unsigned r = 0; r < rows; r++)
        factors[r] = tcq_exact_factor(p->tensor, row + r);
    for (size_t i = 0; i < p->m; i++) {
        v16_store(sums, v16_mul(v16_sum16(state + i * STEP, p->m * STEP), v16_load(factors)));
        memcpy(p->y + i * p->y_stride + row, sums, rows * sizeof(float));
    }
}

#endif
