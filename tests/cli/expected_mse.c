/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the relative mean squared error of independent normal weights for
 * every k and L (blocks of 256, one scale a row of 1024) and prints it as the
 * table of tcq_expected_error() in src/encode/scale_fit.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"
#include "tcq.h"

/* 2^18 weights give the mean to sqrt(2 / 2^18) = 0.3 %; the largest trellises
 * have to do with a quarter of that. */
enum { COLS = 1024, ROWS = 256, ROWS_LARGE = 64, LARGE_L = 14 };

static double measure(struct tcq_context *context, uint32_t k, uint32_t L, const float *weights)
{
    uint64_t rows = L >= LARGE_L ? ROWS_LARGE : ROWS;
    struct tcq_geometry geometry = {
        .k = k, .L = L, .T = 256, .axis = 1, .rows = rows, .cols = COLS};
    struct tcq_encoder_options options = {.k = k, .L = L, .T = 256};
    struct tcq_encoder *encoder = NULL;
    uint32_t *words = malloc(tcq_geometry_words(&geometry) * sizeof *words);
    uint16_t *scales = malloc(rows * sizeof *scales);
    float *decoded = malloc(rows * COLS * sizeof *decoded);
    struct tcq_tensor tensor = {geometry, words, scales};
    double error = NAN, energy = 0;
    if (words && scales && decoded &&
        tcq_encoder_create(context, &options, &encoder, NULL) == TCQ_OK &&
        tcq_encode_rows(encoder, words, scales, weights, rows, COLS, COLS, NULL, NULL, NULL) ==
            TCQ_OK &&
        tcq_decode_tensor(decoded, TCQ_DTYPE_F32, &tensor, context) == TCQ_OK) {
        error = 0;
        for (size_t i = 0; i < rows * COLS; i++) {
            double e = (double)decoded[i] - (double)weights[i];
            error += e * e;
            energy += (double)weights[i] * (double)weights[i];
        }
    }
    tcq_encoder_destroy(encoder);
    free(words);
    free(scales);
    free(decoded);
    return error / energy;
}

int main(void)
{
    struct tcq_context *context = NULL;
    float *weights = malloc(sizeof *weights * ROWS * COLS);
    if (!weights || tcq_context_create(NULL, &context, NULL) != TCQ_OK)
        return 1;
    struct random random = {2026};
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++)
        weights[i] = random_normal(&random);
    for (uint32_t k = TCQ_K_MIN; k <= TCQ_K_MAX; k++) {
        printf("        {");
        for (uint32_t L = TCQ_L_MIN; L <= TCQ_L_MAX; L++) {
            printf("%s%.6ff", L == TCQ_L_MIN ? "" : ", ", measure(context, k, L, weights));
            fflush(stdout);
        }
        puts("},");
    }
    tcq_context_destroy(context);
    free(weights);
    return 0;
}
