/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One linear module of a model, in whichever form the files have it: packed by
 * a trellis, MLX's affine groups, dense, or rows of GGUF's blocks.
 */
#ifndef TCQ_MODEL_WEIGHT_H
#define TCQ_MODEL_WEIGHT_H

#include <jansson.h>

#include "model/affine.h"
#include "model/math.h"
#include "tcq.h"

enum tcq_weight_kind {
    TCQ_WEIGHT_DENSE = 0,
    TCQ_WEIGHT_PACKED,
    TCQ_WEIGHT_AFFINE,
    TCQ_WEIGHT_ROWS /* what the source reads as float32 rows: GGUF's blocks */
};

struct tcq_weight {
    enum tcq_weight_kind kind;
    uint32_t out, in;
    const void *dense;       /* [out, in] */
    enum tcq_dtype dtype;    /* of dense */
    struct tcq_tensor packed;
    struct tcq_linear *linear;
    struct tcq_affine affine;
    const struct tcq_source *source; /* of ROWS */
    const struct tcq_source_tensor *rows;
    float *bias;             /* [out], or NULL */
    size_t stored_nbytes;    /* in the files, mapped */
    size_t owned_nbytes;     /* allocated beside that */
};

/* Where modules come from. */
struct tcq_weight_loader {
    struct tcq_context *context;
    const struct tcq_source *source;
    const struct tcq_config *config; /* trellis modules */
    const json_t *quantization;      /* of config.json, or NULL: MLX's settings */
    struct tcq_linear_options linear;
};

/* Load `module` (its .weight, and .bias where asked for), which must be
 * [out, in].  Errors: FORMAT for a missing tensor or another shape. */
enum tcq_status tcq_weight_load(struct tcq_weight *weight, const struct tcq_weight_loader *loader,
                                const char *module, uint32_t out, uint32_t in, bool bias,
                                struct tcq_error *error);
/* A vector of float32, [count], freed with tcq_free. */
enum tcq_status tcq_weight_load_vector(float **vector, const struct tcq_weight_loader *loader,
                                       const char *name, uint32_t count, struct tcq_error *error);
void tcq_weight_free(struct tcq_weight *weight);

/* y[i] = W x[i] + bias for i < m; float32, rows `out` and `in` long. */
enum tcq_status tcq_weight_forward(const struct tcq_weight *weight, struct tcq_context *context,
                                   const struct tcq_math *math, uint64_t m, float *y,
                                   const float *x, float *scratch, struct tcq_error *error);
/* Elements of scratch, for each thread of the context, that forward needs. */
size_t tcq_weight_scratch(const struct tcq_weight *weight);

/* Row `row` as float32: an embedding. */
enum tcq_status tcq_weight_row(const struct tcq_weight *weight, float *dst, uint32_t row,
                               struct tcq_error *error);

/* Rows as float32 of a weight that is not packed. */
enum tcq_status tcq_weight_read(const struct tcq_weight *weight, float *dst, uint32_t row_first,
                                uint32_t row_count, struct tcq_error *error);

#endif
