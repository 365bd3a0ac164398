/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row scales: range checks and rounding, in one place for every encoder.
 */
#include "encode/scale.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "base/half.h"
#include "encode/scale_fit.h"

static const float f16_max = 65504.0f;
static const uint16_t f16_one = 0x3c00, f16_smallest = 0x0001; /* 1 and 2^-24 */

static enum tcq_status refuse_weight(const float *weights, size_t count, uint64_t row,
                                     struct tcq_error *error)
{
    size_t column = 0;
    while (column + 1 < count && isfinite(weights[column]))
        column++;
    const char *what = isnan(weights[column]) ? "NaN" : weights[column] > 0 ? "inf" : "-inf";
    return tcq_error_set(error, TCQ_ERROR_VALUE,
                         "row %" PRIu64 ", column %zu: the weight is %s, expected a finite number",
                         row, column, what);
}

enum tcq_status tcq_scale_compute(uint16_t *scale, const float *weights, size_t count,
                                  double table_rms, const struct tcq_scale_fit *fit, uint64_t row,
                                  struct tcq_error *error)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += (double)weights[i] * (double)weights[i];
    if (!isfinite(sum)) /* finite float32 squares cannot overflow float64 */
        return refuse_weight(weights, count, row, error);
    if (sum == 0.0) {
        *scale = f16_one;
        return TCQ_OK;
    }
    double rms = sqrt(sum / (double)count) / table_rms;
    if (fit)
        rms *= tcq_scale_fit_factor(fit, weights, count, rms);
    float exact = (float)rms;
    if (exact > f16_max)
        return tcq_error_set(error, TCQ_ERROR_VALUE,
                             "row %" PRIu64 ": its scale is %g, more than binary16 holds (65504)",
                             row, (double)exact);
    uint16_t rounded = tcq_f16_from_f32(exact);
    *scale = rounded ? rounded : f16_smallest;
    return TCQ_OK;
}
