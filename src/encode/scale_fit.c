/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scale that balances what outliers lose against the error of all others.
 */
#include "encode/scale_fit.h"

#include <math.h>
#include <stdbool.h>

#include "code/code.h"

double tcq_expected_error(uint32_t k, uint32_t L)
{
    /* Measured, to about 1 %: `tcq-expected-mse` of the tests prints this table. */
    static const float table[TCQ_K_MAX][TCQ_L_MAX - TCQ_L_MIN + 1] = {
        {0.310903f, 0.303251f, 0.295085f, 0.290583f, 0.285024f, 0.280855f, 0.278387f, 0.276223f,
         0.274276f},
        {0.087049f, 0.081998f, 0.078242f, 0.075702f, 0.074658f, 0.071926f, 0.070646f, 0.069714f,
         0.068721f},
        {0.026133f, 0.024158f, 0.021687f, 0.020899f, 0.019822f, 0.019322f, 0.018576f, 0.018209f,
         0.017847f},
        {0.008043f, 0.007158f, 0.006273f, 0.005964f, 0.005507f, 0.005271f, 0.005098f, 0.004923f,
         0.004807f},
        {0.003439f, 0.002794f, 0.002246f, 0.002033f, 0.001756f, 0.001700f, 0.001636f, 0.001527f,
         0.001438f},
        {0.001800f, 0.001503f, 0.001094f, 0.000986f, 0.000772f, 0.000727f, 0.000728f, 0.000645f,
         0.000568f},
    };
    if (k < TCQ_K_MIN || k > TCQ_K_MAX || L < TCQ_L_MIN || L > TCQ_L_MAX)
        return 0;
    return (double)table[k - TCQ_K_MIN][L - TCQ_L_MIN];
}

void tcq_scale_fit_init(struct tcq_scale_fit *fit, uint32_t k, uint32_t L)
{
    int32_t lowest = 0, highest = 0;
    for (uint32_t state = 0; state < 1u << L; state++) {
        int32_t y = tcq_code_y(state);
        lowest = y < lowest ? y : lowest;
        highest = y > highest ? y : highest;
    }
    *fit = (struct tcq_scale_fit){lowest / TCQ_CODE_DIVISOR, highest / TCQ_CODE_DIVISOR,
                                  tcq_expected_error(k, L)};
}

/* Sum of squares of what lies beyond the reach of `scale`. */
static double overshoot(const struct tcq_scale_fit *fit, const float *weights, size_t count,
                        double scale)
{
    double low = fit->lowest * scale, high = fit->highest * scale, sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        double beyond = tcq_scale_fit_beyond((double)weights[i], low, high);
        sum += beyond * beyond;
    }
    return sum;
}

double tcq_scale_fit_step(int i)
{
    return exp2((double)i / TCQ_SCALE_FIT_STEPS);
}

double tcq_scale_fit_factor(const struct tcq_scale_fit *fit, const float *weights, size_t count,
                            double scale)
{
    double best = 1.0, least = HUGE_VAL;
    for (int i = 0; i < TCQ_SCALE_FIT_FACTORS; i++) {
        double factor = tcq_scale_fit_step(i), s = factor * scale;
        double beyond = overshoot(fit, weights, count, s);
        double error = tcq_scale_fit_cost(fit, count, s, beyond);
        if (error < least) {
            least = error;
            best = factor;
        }
        if (beyond == 0.0)
            break; /* all within reach: larger scales only cost */
    }
    return best;
}
