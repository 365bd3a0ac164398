/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scales that reach for outliers: never smaller, larger where it pays, and then
 * of less error in what is decoded.
 */
#include "encode/scale_fit.h"

#include "support/test.h"
#include "tcq.h"

enum { K = 4, L = 10, T = 256, ROWS = 4, COLS = 512 };

static void fill(float *weights, struct random *random, float outlier)
{
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++)
        weights[i] = 0.02f * random_normal(random);
    for (size_t r = 0; r < ROWS; r++)
        weights[r * COLS + 17 * r + 5] *= outlier;
}

static void test_factor(void **state)
{
    (void)state;
    struct random random = random_start("scale_fit", 11);
    struct tcq_scale_fit fit;
    float weights[COLS];
    tcq_scale_fit_init(&fit, K, 12);
    assert_true(fit.highest > 3.07 && fit.highest < 3.08); /* 454 / 147.8 */
    assert_true(fit.lowest < -3.03 && fit.lowest > -3.04); /* -448 / 147.8 */
    for (size_t i = 0; i < COLS; i++)
        weights[i] = fmaxf(-3.0f, fminf(3.0f, random_normal(&random)));
    /* all within reach: nothing to gain */
    assert_true(tcq_scale_fit_factor(&fit, weights, COLS, 1.0) == 1.0);
    double before = 1.0;
    for (float outlier = 4.0f; outlier < 40.0f; outlier *= 2.0f) {
        weights[100] = outlier;
        double factor = tcq_scale_fit_factor(&fit, weights, COLS, 1.0);
        assert_true(factor >= before);                      /* further out, larger */
        assert_true(factor * fit.highest <= outlier * 1.1); /* but not beyond it */
        before = factor;
    }
    assert_true(before > 2.0);
    weights[100] = -30.0f;
    assert_true(tcq_scale_fit_factor(&fit, weights, COLS, 1.0) > 2.0);
}

static double encode_error(struct tcq_context *context, enum tcq_scale_rule rule,
                           const float *weights)
{
    static uint32_t words[ROWS * COLS * K / 32];
    static uint16_t scales[ROWS];
    static float decoded[ROWS * COLS];
    const struct tcq_encoder_options options = {.k = K, .L = L, .T = T, .scale = rule};
    const struct tcq_tensor tensor = {
        {.k = K, .L = L, .T = T, .axis = 1, .rows = ROWS, .cols = COLS}, words, scales};
    struct tcq_encoder *encoder = NULL;
    assert_int_equal(tcq_encoder_create(context, &options, &encoder, NULL), TCQ_OK);
    assert_int_equal(
        tcq_encode_rows(encoder, words, scales, weights, ROWS, COLS, COLS, NULL, NULL, NULL),
        TCQ_OK);
    tcq_encoder_destroy(encoder);
    assert_int_equal(tcq_decode_tensor(decoded, TCQ_DTYPE_F32, &tensor, context), TCQ_OK);
    double sum = 0;
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++)
        sum += pow((double)decoded[i] - (double)weights[i], 2);
    return sum;
}

static void test_error(void **state)
{
    (void)state;
    static float weights[ROWS * COLS];
    struct random random = random_start("scale_fit error", 12);
    struct tcq_context *context = NULL;
    assert_int_equal(tcq_context_create(NULL, &context, NULL), TCQ_OK);
    fill(weights, &random, 30.0f);
    double rms = encode_error(context, TCQ_SCALE_RMS, weights);
    double fit = encode_error(context, TCQ_SCALE_FIT, weights);
    print_message("squared error with outliers: rms %.5f, fit %.5f\n", rms, fit);
    assert_true(fit < 0.5 * rms);
    tcq_context_destroy(context);
}

static void test_unknown_rule(void **state)
{
    (void)state;
    struct tcq_context *context = NULL;
    struct tcq_encoder *encoder = NULL;
    assert_int_equal(tcq_context_create(NULL, &context, NULL), TCQ_OK);
    const struct tcq_encoder_options options = {.k = 3, .scale = (enum tcq_scale_rule)7};
    assert_int_equal(tcq_encoder_create(context, &options, &encoder, NULL), TCQ_ERROR_ARGUMENT);
    assert_null(encoder);
    tcq_context_destroy(context);
}

static void test_table(void **state)
{
    (void)state;
    for (uint32_t k = TCQ_K_MIN; k <= TCQ_K_MAX; k++)
        for (uint32_t l = TCQ_L_MIN; l <= TCQ_L_MAX; l++) {
            double bound = pow(4.0, -(double)k); /* what no code can beat */
            assert_true(tcq_expected_error(k, l) > bound);
            assert_true(k == TCQ_K_MIN || tcq_expected_error(k, l) < tcq_expected_error(k - 1, l));
        }
    assert_true(tcq_expected_error(0, 12) == 0.0 && tcq_expected_error(3, 17) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factor),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_unknown_rule),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
