/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs a matrix of 64 x 512 weights at 3 bits each, and says what that costs.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tcq.h"

enum { ROWS = 64, COLS = 512 };

static float source[ROWS * COLS], decoded[ROWS * COLS];

int main(void)
{
    /* A weight matrix [out, in] coded along its input: one scale an output. */
    struct tcq_geometry geometry = {
        .k = 3, .L = 12, .T = 256, .axis = 1, .rows = ROWS, .cols = COLS};
    for (int i = 0; i < ROWS * COLS; i++) /* a sum of uniform numbers is near to normal */
        for (int j = 0; j < 4; j++)
            source[i] += (float)rand() / (float)RAND_MAX - 0.5f;

    struct tcq_error error = {0};
    struct tcq_context *context = NULL;
    struct tcq_encoder *encoder = NULL;
    uint32_t *words = calloc(tcq_geometry_words(&geometry), sizeof *words);
    uint16_t *scales = calloc(ROWS, sizeof *scales);
    struct tcq_tensor tensor = {geometry, words, scales};
    const struct tcq_encoder_options options = {.k = 3, .L = 12, .T = 256};
    if (!words || !scales || tcq_context_create(NULL, &context, &error) ||
        tcq_encoder_create(context, &options, &encoder, &error) ||
        tcq_encode_rows(encoder, words, scales, source, ROWS, COLS, COLS, NULL, NULL, &error) ||
        tcq_decode_tensor(decoded, TCQ_DTYPE_F32, &tensor, context)) {
        fprintf(stderr, "pack_matrix: %s\n", error.message);
        return 1;
    }

    double squared_error = 0, squared = 0;
    for (int i = 0; i < ROWS * COLS; i++) {
        double e = (double)decoded[i] - (double)source[i];
        squared_error += e * e;
        squared += (double)source[i] * (double)source[i];
    }
    printf("%d x %d weights in %zu bytes, %.3f bits each, relative error %.4f\n", ROWS, COLS,
           4 * tcq_geometry_words(&geometry) + 2 * (size_t)ROWS,
           tcq_geometry_bits_per_weight(&geometry), squared_error / squared);
    tcq_encoder_destroy(encoder);
    tcq_context_destroy(context);
    free(words);
    free(scales);
    return 0;
}
