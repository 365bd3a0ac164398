/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A larger scale for rows with outliers.  The code reaches about three times
 * the scale, so with s = RMS/RMS(table) a weight of ten times the RMS loses two
 * thirds of itself, and some models hang on a few such weights.
 */
#ifndef TCQ_ENCODE_SCALE_FIT_H
#define TCQ_ENCODE_SCALE_FIT_H

#include <stddef.h>
#include <stdint.h>

/* What choosing needs to know of a trellis. */
struct tcq_scale_fit {
    double lowest, highest; /* values that the code reaches */
    double error;           /* mean squared error of a normal weight at scale 1 */
};

void tcq_scale_fit_init(struct tcq_scale_fit *fit, uint32_t k, uint32_t L);

/* The factor >= 1 by which to enlarge `scale` (RMS/RMS(table)), of a grid of
 * 8 steps an octave.  The same for every caller: sums run in order, in float64. */
double tcq_scale_fit_factor(const struct tcq_scale_fit *fit, const float *weights, size_t count,
                            double scale);

/* The relative mean squared error of independent normal weights at k bits with
 * 2^L states, tail-biting blocks of 256; 0 outside 1..6 and 8..16. */
double tcq_expected_error(uint32_t k, uint32_t L);

#endif
