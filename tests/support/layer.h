/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A random packed layer with its weights in float64, for tests of products.
 * Any words are a valid block, so words and scales are simply drawn.
 */
#ifndef TESTS_SUPPORT_LAYER_H
#define TESTS_SUPPORT_LAYER_H

#include <stdlib.h>

#include "base/half.h"
#include "support/random.h"
#include "tcq.h"

struct layer {
    struct tcq_tensor tensor;
    uint32_t *words;
    uint16_t *scales;
};

/* Scales around 2^-6 with either sign on occasion: large enough for sums, small
 * enough that y/d*scale looks like a model's weight. */
static inline struct layer layer_random(struct random *r, struct tcq_geometry geometry)
{
    struct layer layer = {.tensor.geometry = geometry};
    size_t count = tcq_geometry_words(&geometry);
    layer.words = malloc(count * sizeof *layer.words);
    layer.scales = malloc((size_t)geometry.rows * sizeof *layer.scales);
    for (size_t i = 0; i < count; i++)
        layer.words[i] = (uint32_t)random_u64(r);
    for (uint64_t i = 0; i < geometry.rows; i++)
        layer.scales[i] = tcq_f16_from_f32(0.015625f * (1.0f + 0.25f * random_normal(r)));
    layer.tensor.words = layer.words;
    layer.tensor.scales = layer.scales;
    return layer;
}

static inline void layer_free(struct layer *layer)
{
    free(layer->words);
    free(layer->scales);
}

/* The integer y of stored weight (row, col), by the definition. */
static inline int32_t layer_y(const struct tcq_tensor *tensor, uint64_t row, uint64_t col)
{
    const struct tcq_geometry *g = &tensor->geometry;
    const uint32_t *words = tensor->words + tcq_geometry_block_offset(g, row, col / g->T);
    return tcq_code_integer(tcq_block_state(words, g->k, g->L, g->T, (uint32_t)(col % g->T)));
}

static inline float layer_scale(const struct tcq_tensor *tensor, uint64_t row)
{
    return tcq_f16_to_f32(tensor->scales[row]);
}

/* W[out][in] as a double, axis undone. */
static inline double layer_weight(const struct tcq_tensor *tensor, uint64_t out, uint64_t in)
{
    uint64_t row = tensor->geometry.axis ? out : in, col = tensor->geometry.axis ? in : out;
    return layer_y(tensor, row, col) / TCQ_CODE_DIVISOR * (double)layer_scale(tensor, row);
}

#endif
