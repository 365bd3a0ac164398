/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: creation, what they say of themselves, and their dense weights.
 */
#include "linear/linear.h"

#include <stdio.h>

#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"
#include "code/code.h"
#include "format/geometry.h"
#include "kernel/reference/reference.h"
#include "linear/device.h"

enum { EXPAND_ROWS = 64 }; /* stored rows that one item of expand takes */

/* The scratch of the largest pass: of two such layers where they may be gate and up,
 * x not float32. */
static size_t pass_scratch(const struct tcq_linear *linear, enum tcq_operation operation)
{
    const struct tcq_geometry *g = &linear->tensor.geometry;
    struct tcq_pass pass = {.context = linear->context, .operation = operation};
    pass.m = tcq_linear_panel(linear, operation);
    pass.in = tcq_geometry_in(g);
    pass.out = tcq_geometry_out(g);
    pass.layer_count = g->axis && !linear->options.alone ? 2 : 1;
    pass.x.dtype = TCQ_DTYPE_F16;
    for (uint32_t l = 0; l < pass.layer_count; l++)
        pass.layers[l].linear = linear;
    struct tcq_carve carve = {0}, other = {0};
    tcq_pass_layout(&pass, &carve);
    if (operation == TCQ_OPERATION_WIDE_INT16) { /* where x is not finite */
        pass.operation = TCQ_OPERATION_WIDE;
        tcq_pass_layout(&pass, &other);
    }
    return carve.used > other.used ? carve.used : other.used;
}

static size_t expand_scratch(const struct tcq_linear *linear)
{
    size_t tile = EXPAND_ROWS * TCQ_T_MAX * sizeof(float);
    return linear->tensor.geometry.axis ? 0 : tile * tcq_context_threads(linear->context);
}

static size_t layer_scratch(const struct tcq_linear *linear)
{
    static const uint64_t ms[] = {1, TCQ_SMALL_M_MAX, UINT32_MAX};
    size_t most = expand_scratch(linear);
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
        enum tcq_operation operation = tcq_linear_select(linear, ms[i], NULL);
        size_t need = operation == TCQ_OPERATION_AUTO ? 0 : pass_scratch(linear, operation);
        most = need > most ? need : most;
    }
    return most;
}

static enum tcq_status make_table(struct tcq_linear *linear, struct tcq_error *error)
{
    if (linear->options.operation != TCQ_OPERATION_SCATTER_TABLE)
        return TCQ_OK;
    size_t count = (size_t)1 << linear->tensor.geometry.L;
    linear->table_nbytes = count * sizeof *linear->table;
    linear->table = tcq_alloc(count, sizeof *linear->table);
    if (!linear->table)
        return tcq_error_memory(error, linear->table_nbytes, "a table of the code");
    for (uint32_t state = 0; state < count; state++)
        linear->table[state] = (int16_t)tcq_code_y(state);
    return TCQ_OK;
}

static enum tcq_status set_up(struct tcq_linear *linear, struct tcq_error *error)
{
    const struct tcq_linear_device *device = tcq_linear_device_of(linear);
    if (device)
        return device->create(linear, error);
    enum tcq_status status = tcq_linear_check_options(linear, error);
    if (status != TCQ_OK)
        return status;
    /* The reference numerics are plain C throughout. */
    bool fast = linear->options.numerics == TCQ_NUMERICS_FAST;
    tcq_kernels_select(&linear->kernels, fast ? tcq_context_cpu_flags(linear->context) : 0,
                       &linear->tensor.geometry);
    if (linear->options.operation == TCQ_OPERATION_WIDE_INT16 && !linear->kernels.wide)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "operation wide-int16 needs AVX-512 with VBMI and VNNI");
    snprintf(linear->wide_name, sizeof linear->wide_name, "%s+%s", linear->kernels.expand->name,
             linear->kernels.gemm->name);
    status = make_table(linear, error);
    if (status != TCQ_OK)
        return status;
    linear->scratch_nbytes = layer_scratch(linear);
    return tcq_context_reserve(linear->context, linear->scratch_nbytes, error);
}

enum tcq_status tcq_context_set_stream(struct tcq_context *context, void *stream)
{
    const struct tcq_device_table *table = context ? tcq_context_table(context) : NULL;
    if (!table)
        return TCQ_ERROR_ARGUMENT;
    table->linear->set_stream(tcq_context_device(context), stream);
    return TCQ_OK;
}

enum tcq_status tcq_linear_create(struct tcq_context *context, const struct tcq_tensor *tensor,
                                  const struct tcq_linear_options *options, struct tcq_linear **out,
                                  struct tcq_error *error)
{
    if (!context || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "linear: %s is NULL",
                             context ? "out" : "context");
    enum tcq_status status = tcq_tensor_check(tensor, error);
    if (status != TCQ_OK)
        return status;
    struct tcq_linear *linear = tcq_alloc(1, sizeof *linear);
    if (!linear)
        return tcq_error_memory(error, sizeof *linear, "a layer");
    linear->context = context;
    linear->tensor = *tensor;
    if (options)
        linear->options = *options;
    status = set_up(linear, error);
    if (status != TCQ_OK) {
        tcq_linear_destroy(linear);
        return status;
    }
    *out = linear;
    return TCQ_OK;
}

void tcq_linear_destroy(struct tcq_linear *linear)
{
    if (!linear)
        return;
    if (linear->on_device)
        tcq_linear_device_of(linear)->destroy(linear);
    tcq_free(linear->table);
    tcq_free(linear);
}

size_t tcq_linear_nbytes(const struct tcq_linear *linear)
{
    return sizeof *linear + linear->table_nbytes + linear->device_nbytes;
}

size_t tcq_linear_scratch_nbytes(const struct tcq_linear *linear)
{
    return linear->scratch_nbytes;
}

enum tcq_operation tcq_linear_operation(const struct tcq_linear *linear, uint64_t m)
{
    return tcq_linear_select(linear, m, NULL);
}

const char *tcq_linear_kernel(const struct tcq_linear *linear, uint64_t m)
{
    enum tcq_operation operation = tcq_linear_select(linear, m, NULL);
    if (tcq_linear_device_of(linear))
        return tcq_linear_device_of(linear)->kernel(operation);
    switch (operation) {
    case TCQ_OPERATION_AUTO:
        return "none";
    case TCQ_OPERATION_REDUCE:
        return "reference_reduce";
    case TCQ_OPERATION_SCATTER:
        return "reference_scatter";
    case TCQ_OPERATION_SCATTER_BALANCED:
        return "reference_scatter_balanced";
    case TCQ_OPERATION_SCATTER_TABLE:
        return "reference_scatter_table";
    case TCQ_OPERATION_SPLIT_K:
        return "reference_split_k";
    case TCQ_OPERATION_TILED:
        return "reference_tiled";
    case TCQ_OPERATION_SMALL:
        return linear->kernels.small[linear->tensor.geometry.axis][linear->options.activations]
            ->name;
    case TCQ_OPERATION_WIDE_INT16:
        return linear->kernels.wide->name;
    default:
        return linear->options.numerics == TCQ_NUMERICS_FAST ? linear->wide_name : "reference_wide";
    }
}

/* ---- dense weights ------------------------------------------------------ */

struct expand_job {
    const struct tcq_linear *linear;
    char *dst;
    enum tcq_dtype dtype;
    size_t stride;
    char *scratch;
};

static void expand_axis1_item(void *argument, size_t thread, size_t item)
{
    const struct expand_job *job = argument;
    (void)thread;
    const struct tcq_geometry *g = &job->linear->tensor.geometry;
    struct tcq_range rows = tcq_range_item(item, EXPAND_ROWS, g->rows);
    char *dst = job->dst + rows.begin * job->stride * tcq_dtype_nbytes(job->dtype);
    job->linear->kernels.expand->run(dst, job->dtype, job->stride, &job->linear->tensor, rows,
                                     (struct tcq_range){0, g->cols / g->T});
}

/* dst[c][r] = tile[r][c] */
static void transpose(const struct expand_job *job, const char *tile, struct tcq_range rows,
                      uint64_t col_begin, uint32_t T)
{
    uint64_t count = rows.end - rows.begin;
    for (uint32_t c = 0; c < T; c++) {
        size_t at = (size_t)(col_begin + c) * job->stride + (size_t)rows.begin;
        if (job->dtype == TCQ_DTYPE_BF16)
            for (uint64_t r = 0; r < count; r++)
                ((uint16_t *)(void *)job->dst)[at + r] =
                    ((const uint16_t *)(const void *)tile)[r * T + c];
        else
            for (uint64_t r = 0; r < count; r++)
                ((float *)(void *)job->dst)[at + r] =
                    ((const float *)(const void *)tile)[r * T + c];
    }
}

static void expand_axis0_item(void *argument, size_t thread, size_t item)
{
    const struct expand_job *job = argument;
    const struct tcq_geometry *g = &job->linear->tensor.geometry;
    struct tcq_range rows = tcq_range_item(item, EXPAND_ROWS, g->rows);
    char *tile = job->scratch + thread * EXPAND_ROWS * TCQ_T_MAX * sizeof(float);
    for (uint64_t block = 0; block < g->cols / g->T; block++) {
        job->linear->kernels.expand->run(tile, job->dtype, g->T, &job->linear->tensor, rows,
                                         (struct tcq_range){block, block + 1});
        transpose(job, tile, rows, block * g->T, g->T);
    }
}

enum tcq_status tcq_linear_expand(const struct tcq_linear *linear, void *dst, enum tcq_dtype dtype,
                                  size_t dst_stride, struct tcq_error *error)
{
    if (!linear || !dst)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "expand: %s is NULL",
                             linear ? "dst" : "linear");
    if (dtype != TCQ_DTYPE_BF16 && dtype != TCQ_DTYPE_F32)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "expand to %s: expected BF16 or F32",
                             tcq_dtype_name(dtype));
    const struct tcq_geometry *g = &linear->tensor.geometry;
    if (dst_stride < tcq_geometry_in(g))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "expand: row stride %zu: expected at least %zu", dst_stride,
                             (size_t)tcq_geometry_in(g));
    if ((uintptr_t)dst % tcq_dtype_nbytes(dtype))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "expand: dst is not aligned to %zu",
                             tcq_dtype_nbytes(dtype));
    if (tcq_linear_device_of(linear))
        return tcq_linear_device_of(linear)->expand(linear, dst, dtype, dst_stride, error);
    struct expand_job job = {linear, dst, dtype, dst_stride, NULL};
    job.scratch = tcq_context_acquire(linear->context);
    tcq_context_run(linear->context, g->axis ? expand_axis1_item : expand_axis0_item, &job,
                    (g->rows + EXPAND_ROWS - 1) / EXPAND_ROWS);
    tcq_context_release(linear->context);
    return TCQ_OK;
}
