/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct tcq_linear, and how one call is divided: forward.c checks
 * and cuts the vectors into panels; a panel runs as one pass, in which every
 * thread computes ranges of outputs in float32 (small.c, wide.c, ordered.c) and
 * stores them (finish.c).
 */
#ifndef TCQ_LINEAR_LINEAR_H
#define TCQ_LINEAR_LINEAR_H

#include "kernel/kernel.h"
#include "linear/profile.h"
#include "tcq.h"

struct tcq_linear {
    struct tcq_context *context;
    struct tcq_tensor tensor;
    struct tcq_linear_options options;
    struct tcq_kernels kernels;
    int16_t *table; /* y of all 2^L states; for SCATTER_TABLE only */
    size_t table_nbytes;
    size_t scratch_nbytes;
    char wide_name[64];
    void *on_device; /* the device's own, where the context has one */
    size_t device_nbytes;
};

/* The operation for m vectors; AUTO with the reason in *error if there is none. */
enum tcq_operation tcq_linear_select(const struct tcq_linear *linear, uint64_t m,
                                     struct tcq_error *error);
/* Refuses options that fit this geometry for no m. */
enum tcq_status tcq_linear_check_options(const struct tcq_linear *linear,
                                         struct tcq_error *error);
/* Vectors that one pass of the operation takes. */
uint32_t tcq_linear_panel(const struct tcq_linear *linear, enum tcq_operation operation);

/* Memory handed out piece by piece; with a NULL base it only counts. */
struct tcq_carve {
    char *base;
    size_t used;
};
void *tcq_carve(struct tcq_carve *carve, size_t nbytes);

enum { TCQ_PASS_LAYERS_MAX = 2 }; /* gate and up */

/* One layer's part of a pass. */
struct tcq_pass_layer {
    const struct tcq_linear *linear;
    void *prepared; /* x as the small kernel reads it */
    float *sums;    /* [m][sums_stride] by output: the float32 results */
    size_t sums_stride;
};

/* One panel of m vectors through one layer, or through gate and up. */
struct tcq_pass {
    struct tcq_context *context;
    enum tcq_operation operation;
    uint32_t m;
    uint64_t in, out;
    uint32_t layer_count;
    struct tcq_pass_layer layers[TCQ_PASS_LAYERS_MAX];
    struct tcq_vectors x, y; /* of the panel; y is mid of gate and up */
    const float *bias;
    enum tcq_swiglu tail;

    const float *x_f32; /* the panel in float32 */
    size_t x_f32_stride;
    float *x_store; /* where conversions go; NULL: x is float32 already */
    /* axis 0, small: partial sums [splits][m][out] */
    float *partials;
    uint64_t splits, split_rows;
    uint64_t item_rows, item_blocks, block_groups;
    /* wide */
    const uint16_t *x_bf16;
    size_t x_bf16_stride;
    uint16_t *x_bf16_store;
    char *thread_scratch; /* thread t at + t*thread_nbytes */
    size_t thread_nbytes;
};

/* Lay the scratch of a pass out in *carve. */
void tcq_pass_layout(struct tcq_pass *pass, struct tcq_carve *carve);

void tcq_pass_run_small(struct tcq_pass *pass);
void tcq_pass_run_ordered(struct tcq_pass *pass); /* the reference operations */
void tcq_pass_run_wide(struct tcq_pass *pass);
void tcq_pass_run_wide_int16(struct tcq_pass *pass); /* needs a finite x */
bool tcq_pass_x_finite(const struct tcq_pass *pass);

/* x of the panel, inputs in.begin..in.end-1, to float32. */
void tcq_pass_convert_x(const struct tcq_pass *pass, struct tcq_range in);
/* Store outputs [outputs) from sums of each layer, sums[l][i*stride + o - origin]. */
void tcq_pass_finish(const struct tcq_pass *pass, struct tcq_range outputs,
                     const float *const sums[TCQ_PASS_LAYERS_MAX], size_t stride,
                     uint64_t origin);

/* Work shared by items of `size` of `count` things: item i is [i*size, ...). */
struct tcq_range tcq_range_item(uint64_t item, uint64_t size, uint64_t count);

#endif
