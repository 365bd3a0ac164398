/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear modules: loading from a source with every size checked, and products.
 */
#include "model/weight.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/device.h"
#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "format/source.h"
#include "model/json.h"

/* Rows of weights that one task takes: enough to be worth handing out, few
 * enough that threads end together. */
enum { TASK_ROWS = 32, NAME_NBYTES = 256, DECODED_ROWS = 4 };

/* ------------------------------------------------------------------------ */
/* Loading                                                                   */
/* ------------------------------------------------------------------------ */

static enum tcq_status find_tensor(const struct tcq_weight_loader *loader, const char *module,
                                   const char *suffix, const struct tcq_source_tensor **out,
                                   struct tcq_error *error)
{
    char name[NAME_NBYTES];
    snprintf(name, sizeof name, "%s%s", module, suffix);
    *out = tcq_source_find(loader->source, name);
    if (!*out)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "tensor '%s' is missing", name);
    return TCQ_OK;
}

static enum tcq_status check_shape(const struct tcq_source_tensor *tensor, uint64_t rows,
                                   uint64_t cols, struct tcq_error *error)
{
    if (tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == cols)
        return TCQ_OK;
    return tcq_error_set(error, TCQ_ERROR_FORMAT,
                         "tensor '%s' is [%" PRIu64 ", %" PRIu64 "]%s: expected [%" PRIu64
                         ", %" PRIu64 "] by config.json",
                         tensor->name, tensor->rank ? tensor->shape[0] : 1,
                         tensor->rank > 1 ? tensor->shape[1] : 1,
                         tensor->rank > 2 ? " and more" : "", rows, cols);
}

static enum tcq_status load_dense(struct tcq_weight *weight, const struct tcq_weight_loader *loader,
                                  const struct tcq_source_tensor *tensor, struct tcq_error *error)
{
    enum tcq_status status = check_shape(tensor, weight->out, weight->in, error);
    if (status)
        return status;
    weight->kind = TCQ_WEIGHT_DENSE;
    weight->dtype = tensor->dtype;
    weight->stored_nbytes = tensor->nbytes;
    if (tensor->dtype == TCQ_DTYPE_F32 || tensor->dtype == TCQ_DTYPE_F16 ||
        tensor->dtype == TCQ_DTYPE_BF16) {
        weight->dense =
            tcq_source_aligned(loader->source, tensor, tcq_dtype_nbytes(tensor->dtype));
        return weight->dense ? TCQ_OK
                             : tcq_error_memory(error, tensor->nbytes, "an unaligned tensor");
    }
    weight->kind = TCQ_WEIGHT_ROWS;
    weight->dtype = TCQ_DTYPE_F32;
    weight->source = loader->source;
    weight->rows = tensor;
    return tcq_source_read_f32(loader->source, NULL, tensor, 0, 0, error); /* of a known type? */
}

static enum tcq_status load_packed(struct tcq_weight *weight,
                                   const struct tcq_weight_loader *loader, const char *module,
                                   struct tcq_error *error)
{
    enum tcq_status status = tcq_source_packed(loader->source, loader->config, module,
                                               &weight->packed, error);
    if (status)
        return status;
    const struct tcq_geometry *g = &weight->packed.geometry;
    if (tcq_geometry_out(g) != weight->out || tcq_geometry_in(g) != weight->in)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "module '%s' packs [%" PRIu64 ", %" PRIu64
                             "]: expected [%u, %u] by config.json",
                             module, tcq_geometry_out(g), tcq_geometry_in(g), weight->out,
                             weight->in);
    weight->kind = TCQ_WEIGHT_PACKED;
    weight->stored_nbytes = tcq_geometry_words(g) * 4 + (size_t)g->rows * 2;
    if (tcq_context_table(loader->context))
        return TCQ_OK; /* the device multiplies by it */
    status = tcq_linear_create(loader->context, &weight->packed, &loader->linear, &weight->linear,
                               error);
    if (status)
        return tcq_error_prefix(error, status, "module '%s'", module);
    weight->owned_nbytes = tcq_linear_nbytes(weight->linear);
    return TCQ_OK;
}

static enum tcq_status load_affine(struct tcq_weight *weight,
                                   const struct tcq_weight_loader *loader, const char *module,
                                   struct tcq_error *error)
{
    struct tcq_affine *affine = &weight->affine;
    enum tcq_status status =
        tcq_affine_open(affine, loader->source, loader->quantization, module, error);
    if (status)
        return status;
    if (affine->rows != weight->out || affine->in != weight->in)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "module '%s' is [%u, %u] at %u bits: expected [%u, %u] by config.json",
                             module, affine->rows, affine->in, affine->bits, weight->out,
                             weight->in);
    weight->kind = TCQ_WEIGHT_AFFINE;
    weight->stored_nbytes = affine->nbytes;
    return TCQ_OK;
}

enum tcq_status tcq_weight_load_vector(float **vector, const struct tcq_weight_loader *loader,
                                       const char *name, uint32_t count, struct tcq_error *error)
{
    const struct tcq_source_tensor *tensor;
    enum tcq_status status = find_tensor(loader, name, "", &tensor, error);
    if (status)
        return status;
    if (tensor->rank != 1 || tensor->count != count)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "tensor '%s' has %" PRIu64
                             " elements: expected a vector of %u by config.json",
                             name, tensor->count, count);
    float *values = tcq_alloc(count, sizeof *values);
    if (!values)
        return tcq_error_memory(error, count * sizeof *values, name);
    status = tcq_source_read_f32(loader->source, values, tensor, 0, 1, error);
    if (status)
        tcq_free(values);
    else
        *vector = values;
    return status;
}

enum tcq_status tcq_weight_load(struct tcq_weight *weight, const struct tcq_weight_loader *loader,
                                const char *module, uint32_t out, uint32_t in, bool bias,
                                struct tcq_error *error)
{
    struct tcq_module_config config;
    const struct tcq_source_tensor *tensor;
    *weight = (struct tcq_weight){.out = out, .in = in};
    enum tcq_status status = find_tensor(loader, module, ".weight", &tensor, error);
    if (status)
        return status;
    if (loader->config && tcq_config_find(loader->config, module, &config))
        status = load_packed(weight, loader, module, error);
    else if (tensor->dtype == TCQ_DTYPE_U32)
        status = load_affine(weight, loader, module, error);
    else
        status = load_dense(weight, loader, tensor, error);
    char name[NAME_NBYTES];
    snprintf(name, sizeof name, "%s.bias", module);
    if (!status && bias)
        status = tcq_weight_load_vector(&weight->bias, loader, name, out, error);
    else if (!status && tcq_source_find(loader->source, name))
        status = tcq_error_set(error, TCQ_ERROR_FORMAT,
                               "tensor '%s' is there, but config.json has no bias for it", name);
    if (status)
        tcq_weight_free(weight);
    return status;
}

void tcq_weight_free(struct tcq_weight *weight)
{
    tcq_linear_destroy(weight->linear);
    tcq_free(weight->bias);
    *weight = (struct tcq_weight){0};
}

/* ------------------------------------------------------------------------ */
/* Products                                                                  */
/* ------------------------------------------------------------------------ */

struct product {
    const struct tcq_weight *weight;
    const struct tcq_math *math;
    size_t m;
    float *y;
    const float *x;
    float *scratch;
};

/* Rows that are decoded as they are needed.  Reading them cannot fail: type and
 * range were looked at when the module was loaded. */
static void decoded_rows(const struct product *p, float *scratch, size_t begin, size_t end)
{
    const struct tcq_weight *w = p->weight;
    for (size_t r = begin; r < end; r += DECODED_ROWS) {
        size_t count = end - r < DECODED_ROWS ? end - r : DECODED_ROWS;
        tcq_weight_read(w, scratch, (uint32_t)r, (uint32_t)count, NULL);
        p->math->product(p->y + r, w->out, scratch, TCQ_DTYPE_F32, w->in, count, p->x, w->in, p->m,
                         NULL);
    }
}

static void product_task(void *argument, size_t thread, size_t item)
{
    const struct product *p = argument;
    const struct tcq_weight *w = p->weight;
    size_t begin = item * TASK_ROWS, end = begin + TASK_ROWS < w->out ? begin + TASK_ROWS : w->out;
    float *scratch = p->scratch + thread * tcq_weight_scratch(w);
    if (w->kind == TCQ_WEIGHT_AFFINE || w->kind == TCQ_WEIGHT_ROWS) {
        decoded_rows(p, scratch, begin, end);
    } else {
        size_t row_nbytes = w->in * tcq_dtype_nbytes(w->dtype);
        p->math->product(p->y + begin, w->out, (const char *)w->dense + begin * row_nbytes,
                         w->dtype, w->in, end - begin, p->x, w->in, p->m, scratch);
    }
    for (size_t i = 0; w->bias && i < p->m; i++)
        for (size_t r = begin; r < end; r++)
            p->y[i * w->out + r] += w->bias[r];
}

size_t tcq_weight_scratch(const struct tcq_weight *weight)
{
    return weight->kind == TCQ_WEIGHT_PACKED ? 0 : 4 * tcq_round_lanes(weight->in);
}

enum tcq_status tcq_weight_forward(const struct tcq_weight *weight, struct tcq_context *context,
                                   const struct tcq_math *math, uint64_t m, float *y,
                                   const float *x, float *scratch, struct tcq_error *error)
{
    if (weight->kind == TCQ_WEIGHT_PACKED) {
        struct tcq_vectors ys = {y, TCQ_DTYPE_F32, weight->out};
        struct tcq_vectors xs = {(void *)(uintptr_t)x, TCQ_DTYPE_F32, weight->in};
        return tcq_linear_forward(weight->linear, m, &ys, &xs, weight->bias, error);
    }
    struct product product = {weight, math, (size_t)m, y, x, scratch};
    tcq_context_run(context, product_task, &product, (weight->out + TASK_ROWS - 1) / TASK_ROWS);
    return TCQ_OK;
}

enum tcq_status tcq_weight_read(const struct tcq_weight *weight, float *dst, uint32_t row_first,
                                uint32_t row_count, struct tcq_error *error)
{
    size_t in = weight->in;
    if (weight->kind == TCQ_WEIGHT_ROWS)
        return tcq_source_read_f32(weight->source, dst, weight->rows, row_first, row_count, error);
    for (uint32_t i = 0; i < row_count && weight->kind == TCQ_WEIGHT_AFFINE; i++)
        tcq_affine_row(dst + i * in, &weight->affine, weight->in, row_first + i);
    if (weight->kind == TCQ_WEIGHT_AFFINE)
        return TCQ_OK;
    size_t row_nbytes = in * tcq_dtype_nbytes(weight->dtype);
    return tcq_convert_to_f32(dst, (const char *)weight->dense + row_first * row_nbytes,
                              weight->dtype, row_count * in);
}

enum tcq_status tcq_weight_row(const struct tcq_weight *weight, float *dst, uint32_t row,
                               struct tcq_error *error)
{
    enum tcq_status status = weight->kind == TCQ_WEIGHT_PACKED
                                 ? tcq_decode_row(dst, TCQ_DTYPE_F32, &weight->packed, row)
                                 : tcq_weight_read(weight, dst, row, 1, NULL);
    return status ? tcq_error_set(error, status, "the embedding of token %u: %s", row,
                                  tcq_status_string(status))
                  : TCQ_OK;
}
