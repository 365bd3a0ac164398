/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules in MLX's affine form: w = q * scale + bias for groups of columns; q are
 * `bits` wide, packed from the low end of little-endian words without gaps.
 */
#ifndef TCQ_MODEL_AFFINE_H
#define TCQ_MODEL_AFFINE_H

#include <jansson.h>

#include "tcq.h"

struct tcq_affine {
    const uint32_t *words;    /* [rows, in*bits/32] */
    const uint16_t *scales;   /* [rows, in/group], of type dtype */
    const uint16_t *biases;
    enum tcq_dtype dtype;     /* F16 or BF16 */
    uint32_t bits, group;
    uint32_t rows, in;
    size_t nbytes;            /* of the three */
};

/* Finds a module's .weight, .scales and .biases and checks them against each other
 * and what `quantization` of config.json says (NULL: 4 bits in groups of 64).
 * Errors: FORMAT, UNSUPPORTED (other bits, groups or modes), MEMORY. */
enum tcq_status tcq_affine_open(struct tcq_affine *affine, const struct tcq_source *source,
                                const json_t *quantization, const char *module,
                                struct tcq_error *error);

/* One row as float32, [in]. */
void tcq_affine_row(float *dst, const struct tcq_affine *affine, uint32_t in, uint32_t row);

#endif
