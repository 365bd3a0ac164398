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

#include "base/host_device.h"

/* What choosing needs to know of a trellis. */
struct tcq_scale_fit {
    double lowest, highest; /* values that the code reaches */
    double error;           /* mean squared error of a normal weight at scale 1 */
};

/* Factors tried: 2^(i/STEPS), up to 16. */
enum { TCQ_SCALE_FIT_STEPS = 8, TCQ_SCALE_FIT_FACTORS = 4 * TCQ_SCALE_FIT_STEPS + 1 };

/* A weight beyond the code's reach costs more than what is cut off: its
 * neighbours have to give way to the few paths that lead out there.  */
#define TCQ_SCALE_FIT_OVERSHOOT_COST 8.0

/* By how much weight w lies outside low..high. */
TCQ_HOST_DEVICE static inline double tcq_scale_fit_beyond(double w, double low, double high)
{
    return w > high ? w - high : w < low ? low - w : 0.0;
}

/* What a scale costs whose sum of squares beyond its reach is `beyond`. */
TCQ_HOST_DEVICE static inline double tcq_scale_fit_cost(const struct tcq_scale_fit *fit,
                                                        uint64_t count, double scale,
                                                        double beyond)
{
    return (double)count * fit->error * scale * scale + TCQ_SCALE_FIT_OVERSHOOT_COST * beyond;
}

void tcq_scale_fit_init(struct tcq_scale_fit *fit, uint32_t k, uint32_t L);

/* Factor number i. */
double tcq_scale_fit_step(int i);

/* The factor >= 1 by which to enlarge `scale` (RMS/RMS(table)), of a grid of
 * 8 steps an octave.  The same for every caller: sums run in order, in float64. */
double tcq_scale_fit_factor(const struct tcq_scale_fit *fit, const float *weights, size_t count,
                            double scale);

/* The relative mean squared error of independent normal weights at k bits with
 * 2^L states, tail-biting blocks of 256; 0 outside 1..6 and 8..16. */
double tcq_expected_error(uint32_t k, uint32_t L);

#endif
