/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scale of a row: RMS(row) / RMS(table), as binary16.
 */
#ifndef TCQ_ENCODE_SCALE_H
#define TCQ_ENCODE_SCALE_H

#include <stddef.h>
#include <stdint.h>

#include "tcq.h"

struct tcq_scale_fit;

/* *scale for `count` weights of row number `row` (for the message).  The sum
 * of squares runs in float64 from the first weight to the last.  An all-zero
 * row takes 1, a scale that binary16 would round to zero takes 2^-24.  fit (may
 * be NULL) enlarges it for outliers.
 * Errors: VALUE, a non-finite weight or a scale above 65504. */
enum tcq_status tcq_scale_compute(uint16_t *scale, const float *weights, size_t count,
                                  double table_rms, const struct tcq_scale_fit *fit, uint64_t row,
                                  struct tcq_error *error);

#endif
