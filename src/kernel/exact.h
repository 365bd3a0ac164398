/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the variants of the weight contract `exact` have in common: the factor
 * that the integers lack, and the grid of int8 activations.
 */
#ifndef TCQ_KERNEL_EXACT_H
#define TCQ_KERNEL_EXACT_H

#include "base/half.h"
#include "code/code.h"
#include "tcq.h"

/* scale / d of a stored row, divided in float64 and rounded once. */
static inline float tcq_exact_factor(const struct tcq_tensor *tensor, uint64_t row)
{
    return (float)((double)tcq_f16_to_f32(tensor->scales[row]) / TCQ_CODE_DIVISOR);
}

/*
 * int8 activations: up to T neighbouring inputs of one vector share a step =
 * max|x| / 127, and q = x / step rounded to nearest even, so |q| <= 127.  On
 * axis 0, x already carries the row's scale / d.  A group with a NaN or an
 * infinity gets a NaN step, which every output that uses the group inherits.
 * Sums of y * q over a group are exact: 510 * 127 * 256 < 2^24.
 * Returns the step; a group of zeros has step 0.
 */
float tcq_quantize_int8(int8_t *q, const float *x, size_t count);

#endif
