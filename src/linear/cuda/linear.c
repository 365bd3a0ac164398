/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers on the GPU: a copy of the tensor, and the products of kernel/cuda on the
 * stream that the caller has named.
 */
#include "base/error.h"
#include "base/memory.h"
#include "linear/cuda/gpu.h"

enum { ALIGNMENT = 256 };

/* A layer's copy: words, then scales. */
struct gpu_layer {
    void *memory;
    struct tcq_tensor tensor;
};

static struct gpu_device *device_of(const struct tcq_linear *linear)
{
    return tcq_context_device(linear->context);
}

static const struct tcq_tensor *tensor_of(const struct tcq_linear *linear)
{
    return &((const struct gpu_layer *)linear->on_device)->tensor;
}

enum tcq_status gpu_status(cudaError_t code, const char *what, struct tcq_error *error)
{
    if (code == cudaSuccess)
        return TCQ_OK;
    enum tcq_status status =
        code == cudaErrorMemoryAllocation ? TCQ_ERROR_MEMORY : TCQ_ERROR_DEVICE;
    return tcq_error_set(error, status, "%s: %s", what, cudaGetErrorString(code));
}

/* ---- set-up ------------------------------------------------------------------------- */

static void set_stream(void *device, void *stream)
{
    ((struct gpu_device *)device)->stream = stream;
}

static enum tcq_status upload(struct gpu_layer *layer, const struct tcq_linear *linear,
                              size_t *nbytes, struct tcq_error *error)
{
    struct tcq_cuda *cuda = device_of(linear)->cuda;
    const struct tcq_tensor *t = &linear->tensor;
    size_t words = tcq_geometry_words(&t->geometry) * sizeof *t->words;
    size_t at = (words + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t scales = (size_t)t->geometry.rows * sizeof *t->scales;
    enum tcq_status status = tcq_cuda_alloc(cuda, at + scales, &layer->memory, error);
    if (!status)
        status = tcq_cuda_upload(cuda, layer->memory, t->words, words, error);
    if (!status)
        status = tcq_cuda_upload(cuda, (char *)layer->memory + at, t->scales, scales, error);
    layer->tensor = (struct tcq_tensor){
        t->geometry, layer->memory, status ? NULL : (const void *)((char *)layer->memory + at)};
    *nbytes = at + scales;
    return status;
}

static enum tcq_operation select(const struct tcq_linear *linear, uint64_t m,
                                 struct tcq_error *error)
{
    const struct tcq_cuda_product p = {.tensor = &linear->tensor,
                                       .numerics = linear->options.numerics,
                                       .operation = linear->options.operation,
                                       .m = m > UINT32_MAX ? UINT32_MAX : (uint32_t)m};
    if (m > 0)
        return tcq_cuda_select(&p, error);
    tcq_error_set(error, TCQ_ERROR_ARGUMENT, "m = 0 vectors: expected at least 1");
    return TCQ_OPERATION_AUTO;
}

static enum tcq_status create(struct tcq_linear *linear, struct tcq_error *error)
{
    if (linear->options.activations == TCQ_ACTIVATIONS_INT8)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "int8 activations are for the CPU");
    struct tcq_error why = {0};
    if (select(linear, 1, &why) == TCQ_OPERATION_AUTO)
        return tcq_error_set(error, why.status, "%s", why.message);
    struct gpu_layer *layer = tcq_alloc(1, sizeof *layer);
    if (!layer)
        return tcq_error_memory(error, sizeof *layer, "a layer on the GPU");
    linear->on_device = layer;
    return upload(layer, linear, &linear->device_nbytes, error);
}

static void destroy(struct tcq_linear *linear)
{
    struct gpu_layer *layer = linear->on_device;
    tcq_cuda_free(device_of(linear)->cuda, layer->memory);
    tcq_free(layer);
}

static const char *kernel(enum tcq_operation operation)
{
    static const char *const names[TCQ_OPERATION_COUNT] = {
        [TCQ_OPERATION_AUTO] = "none",
        [TCQ_OPERATION_REDUCE] = "reference_reduce_cuda",
        [TCQ_OPERATION_SCATTER] = "reference_scatter_cuda",
        [TCQ_OPERATION_SCATTER_BALANCED] = "reference_scatter_balanced_cuda",
        [TCQ_OPERATION_SCATTER_TABLE] = "reference_scatter_table_cuda",
        [TCQ_OPERATION_SPLIT_K] = "reference_split_k_cuda",
        [TCQ_OPERATION_TILED] = "reference_tiled_cuda",
        [TCQ_OPERATION_SMALL] = "small_cuda",
        [TCQ_OPERATION_WIDE] = "wide_cuda",
        [TCQ_OPERATION_WIDE_INT16] = "none",
    };
    return names[operation];
}

/* ---- products --------------------------------------------------------------------------- */

static struct tcq_cuda_product product_of(const struct tcq_linear *linear, uint32_t m,
                                          const struct tcq_vectors *y, const struct tcq_vectors *x)
{
    return (struct tcq_cuda_product){.tensor = tensor_of(linear),
                                     .numerics = linear->options.numerics,
                                     .operation = linear->options.operation,
                                     .splits = linear->options.splits,
                                     .m = m,
                                     .x = *x,
                                     .y = *y};
}

static struct tcq_vectors advance(const struct tcq_vectors *v, uint64_t m)
{
    return (struct tcq_vectors){
        (char *)v->data + (size_t)m * v->stride * tcq_dtype_nbytes(v->dtype), v->dtype, v->stride};
}

/* With a bias: float32 sums first, in y where y is float32. */
static enum tcq_status forward_biased(const struct tcq_linear *linear,
                                      const struct tcq_cuda_product *whole, const float *bias,
                                      struct tcq_error *error)
{
    struct gpu_device *device = device_of(linear);
    uint64_t out = tcq_geometry_out(&linear->tensor.geometry), most = GPU_SUMS / out;
    bool in_place = whole->y.dtype == TCQ_DTYPE_F32;
    enum { ROWS_MAX = 65535 }; /* of a grid */
    if (in_place || most > ROWS_MAX)
        most = ROWS_MAX;
    if (most == 0)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "%llu outputs with a bias and 16-bit outputs: at most %d on the GPU",
                             (unsigned long long)out, GPU_SUMS);
    enum tcq_status status = TCQ_OK;
    for (uint32_t first = 0; first < whole->m && !status;) {
        struct tcq_cuda_product p = *whole;
        p.m = whole->m - first < most ? whole->m - first : (uint32_t)most;
        p.x = advance(&whole->x, first);
        struct tcq_vectors y = advance(&whole->y, first);
        p.y = in_place ? y : (struct tcq_vectors){device->sums, TCQ_DTYPE_F32, out};
        status = tcq_cuda_multiply(device->cuda, &p, device->stream, error);
        if (!status)
            status = gpu_status(gpu_bias_launch(&y, p.y.data, p.y.stride, bias, out, p.m,
                                                device->stream),
                                "adding a bias on the GPU", error);
        first += p.m;
    }
    return status;
}

static enum tcq_status check_count(uint64_t m, struct tcq_error *error)
{
    return m <= UINT32_MAX ? TCQ_OK
                           : tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                                           "%llu vectors: at most 2^32 - 1 on the GPU",
                                           (unsigned long long)m);
}

static enum tcq_status forward(const struct tcq_linear *linear, uint64_t m,
                               const struct tcq_vectors *y, const struct tcq_vectors *x,
                               const float *bias, struct tcq_error *error)
{
    enum tcq_status status = check_count(m, error);
    if (status)
        return status;
    const struct tcq_cuda_product p = product_of(linear, (uint32_t)m, y, x);
    struct gpu_device *device = device_of(linear);
    return bias ? forward_biased(linear, &p, bias, error)
                : tcq_cuda_multiply(device->cuda, &p, device->stream, error);
}

static enum tcq_status gate_up(const struct tcq_linear *gate, const struct tcq_linear *up,
                               uint64_t m, const struct tcq_vectors *mid,
                               const struct tcq_vectors *x, enum tcq_swiglu tail,
                               struct tcq_error *error)
{
    enum tcq_status status = check_count(m, error);
    if (status)
        return status;
    const struct tcq_cuda_product p = product_of(gate, (uint32_t)m, mid, x);
    struct gpu_device *device = device_of(gate);
    return tcq_cuda_gate_up(device->cuda, &p, tensor_of(up), tail, device->stream, error);
}

static enum tcq_status expand(const struct tcq_linear *linear, void *dst, enum tcq_dtype dtype,
                              size_t dst_stride, struct tcq_error *error)
{
    const struct tcq_tensor *t = tensor_of(linear);
    struct gpu_device *device = device_of(linear);
    if (t->geometry.axis)
        return tcq_cuda_expand(device->cuda, dst, dtype, dst_stride, t, 0, t->geometry.rows,
                               device->stream, error);
    return gpu_status(gpu_transposed_launch(dst, dtype, dst_stride, t, device->stream),
                      "starting expand on the GPU", error);
}

const struct tcq_linear_device gpu_linear_device = {
    .set_stream = set_stream,
    .create = create,
    .destroy = destroy,
    .select = select,
    .kernel = kernel,
    .forward = forward,
    .gate_up = gate_up,
    .expand = expand,
};
