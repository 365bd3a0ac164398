/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products on the GPU: the choice of an operation, its launches, and gate/up.
 */
#include "format/geometry.h"
#include "kernel/cuda/context.h"
#include "kernel/reference/reference.h"

/* ---- selection ----------------------------------------------------------------- */

bool small_fits(const struct tcq_geometry *g)
{
    return g->L == 12 && g->k >= 2 && g->k <= 4 && tcq_geometry_in(g) <= INPUT_LENGTH_MAX &&
           tcq_geometry_out(g) <= (uint64_t)TILES_MAX * 256;
}

static bool balanced_fits(const struct tcq_geometry *g)
{
    return g->k == 3 && g->T == 256 && g->L <= 12;
}

static enum tcq_operation select_reference(const struct tcq_geometry *g, uint32_t m)
{
    if (m <= TCQ_REFERENCE_M_MAX && g->axis == 1)
        return TCQ_OPERATION_REDUCE;
    if (m <= TCQ_REFERENCE_M_MAX)
        return balanced_fits(g) ? TCQ_OPERATION_SCATTER_BALANCED : TCQ_OPERATION_SCATTER;
    if (g->axis == 1 && m <= 32)
        return TCQ_OPERATION_TILED;
    if (g->axis == 0 && m <= 8 && g->rows >= TCQ_SPLIT_K_IN_MIN)
        return TCQ_OPERATION_SPLIT_K;
    return TCQ_OPERATION_WIDE;
}

/* Why an operation that was asked for does not fit, or NULL. */
static const char *misfit(enum tcq_operation operation, const struct tcq_geometry *g, uint32_t m)
{
    switch (operation) {
    case TCQ_OPERATION_REDUCE:
    case TCQ_OPERATION_TILED:
        return g->axis == 1 ? NULL : "it needs axis 1";
    case TCQ_OPERATION_SCATTER:
        return g->axis == 0 ? NULL : "it needs axis 0";
    case TCQ_OPERATION_SCATTER_BALANCED:
    case TCQ_OPERATION_SCATTER_TABLE:
        return g->axis == 0 && balanced_fits(g) ? NULL : "it needs axis 0, k 3, T 256, L <= 12";
    case TCQ_OPERATION_SPLIT_K:
        return g->axis == 0 && g->rows >= TCQ_SPLIT_K_IN_MIN && m <= TCQ_SPLIT_K_M_MAX
                   ? NULL
                   : "it needs axis 0, at least 128 inputs and at most 32 vectors";
    case TCQ_OPERATION_SMALL:
        return small_fits(g) && m <= SMALL_M_MAX ? NULL
                                                 : "it needs k 2..4, L 12, at most 131072 "
                                                   "inputs and at most 64 vectors";
    case TCQ_OPERATION_WIDE:
        return NULL;
    default:
        return "there is no such operation";
    }
}

enum tcq_operation tcq_cuda_select(const struct tcq_cuda_product *p, struct tcq_error *error)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    if (p->operation == TCQ_OPERATION_AUTO) {
        if (p->numerics == TCQ_NUMERICS_REFERENCE)
            return select_reference(g, p->m);
        return small_fits(g) && p->m <= SMALL_M_MAX ? TCQ_OPERATION_SMALL : TCQ_OPERATION_WIDE;
    }
    const char *why = misfit(p->operation, g, p->m);
    if (!why)
        return p->operation;
    tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "operation %s on the GPU: %s",
                  tcq_operation_name(p->operation), why);
    return TCQ_OPERATION_AUTO;
}

/* ---- operations ------------------------------------------------------------------ */

static enum fast_type fast_type_of(enum tcq_dtype dtype)
{
    return dtype == TCQ_DTYPE_F32 ? FAST_F32 : dtype == TCQ_DTYPE_F16 ? FAST_F16 : FAST_BF16;
}

static bool aligned(const void *pointer, size_t nbytes)
{
    return (uintptr_t)pointer % nbytes == 0;
}

/* On axis 0 the products x * scale are rounded to binary16 once more; below this
 * many inputs that would show beside the bound of a float32 sum, n * 2^-24. */
enum { ROUNDED_INPUTS_MIN = 4096 };

struct fast_args fast_args_of(const struct tcq_cuda *cuda, const struct tcq_cuda_product *p)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    bool interleaved = g->layout == TCQ_LAYOUT_INTERLEAVED;
    bool two = p->x.dtype == TCQ_DTYPE_F32 || (g->axis == 0 && g->rows < ROUNDED_INPUTS_MIN);
    struct fast_args a = {
        .words = p->tensor->words,
        .scales = p->tensor->scales,
        .x = p->x.data,
        .y = p->y.data,
        .inputs = cuda->inputs,
        .partial = cuda->partial,
        .x_stride = p->x.stride,
        .y_stride = p->y.stride,
        .row_stride = interleaved ? 48 : tcq_geometry_row_words(g),
        .pair_stride = interleaved ? (size_t)g->rows * 48 : 16 * g->k,
        .group_stride = 8 * g->k,
        .rows = (uint32_t)g->rows,
        .cols = (uint32_t)g->cols,
        .block_length = g->T,
        .pieces = two ? 2 : 1,
        .k = g->k,
        .together = tcq_cuda_contexts() > 1,
        .hopper = cuda->hopper,
        .x_type = fast_type_of(p->x.dtype),
        .y_type = fast_type_of(p->y.dtype),
        .x_aligned = aligned(p->x.data, 16) && p->x.stride % 8 == 0,
        .scales_aligned = aligned(p->tensor->scales, 16),
    };
    a.words_aligned = aligned(a.words, 16) && a.row_stride % 4 == 0;
    return a;
}

static cudaError_t run_small(struct tcq_cuda *cuda, const struct tcq_cuda_product *p,
                             cudaStream_t stream)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    struct fast_args a = fast_args_of(cuda, p);
    const uint32_t most = (g->axis ? FAST_COLUMNS_MAX : FAST_COLUMNS_MAX_AXIS0) / a.pieces;
    cudaError_t code = cudaSuccess;
    for (uint32_t first = 0; first < p->m && code == cudaSuccess; first += most) {
        const uint32_t count = p->m - first < most ? p->m - first : most;
        a.columns = count * a.pieces;
        a.x = (const char *)p->x.data + first * p->x.stride * tcq_dtype_nbytes(p->x.dtype);
        a.y = (char *)p->y.data + first * p->y.stride * tcq_dtype_nbytes(p->y.dtype);
        code = fast_inputs_launch(&a, g->axis, stream);
        if (code == cudaSuccess)
            code = g->axis ? fast_axis1_launch(&a, cuda->multiprocessors, stream)
                           : fast_axis0_launch(&a, cuda->multiprocessors, stream);
    }
    return code;
}

static struct reference_args reference_args_of(const struct tcq_cuda_product *p)
{
    return (struct reference_args){.w = reference_tensor_of(p->tensor),
                                   .x = p->x.data,
                                   .y = p->y.data,
                                   .x_stride = p->x.stride,
                                   .y_stride = p->y.stride,
                                   .x_type = p->x.dtype,
                                   .y_type = p->y.dtype,
                                   .m = p->m,
                                   .splits = 1};
}

/* Partial sums of `splits` splits, as many vectors at a time as the workspace
 * holds; a vector's bytes do not depend on its company. */
static enum tcq_status run_split(struct tcq_cuda *cuda, const struct tcq_cuda_product *p,
                                 enum tcq_operation operation, cudaStream_t stream,
                                 struct tcq_error *error)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    struct reference_args a = reference_args_of(p);
    struct tcq_split_k plan = tcq_split_k_plan(p->m, g->rows, g->cols);
    bool scatter = operation != TCQ_OPERATION_SPLIT_K;
    a.splits = !scatter ? plan.splits : p->splits ? p->splits : TCQ_REFERENCE_SPLITS;
    const size_t each = (size_t)a.splits * g->cols * sizeof(float);
    const uint32_t most = (uint32_t)(cuda->workspace_nbytes / each);
    if (most == 0)
        return tcq_error_set(error, TCQ_ERROR_MEMORY,
                             "the GPU workspace holds %zu bytes, %zu are needed",
                             cuda->workspace_nbytes, each);
    a.partial = cuda->workspace;
    cudaError_t code = cudaSuccess;
    for (uint32_t first = 0; first < p->m && code == cudaSuccess; first += a.m) {
        a.m = p->m - first < most ? p->m - first : most;
        a.x = (const char *)p->x.data + first * p->x.stride * tcq_dtype_nbytes(p->x.dtype);
        a.y = (char *)p->y.data + first * p->y.stride * tcq_dtype_nbytes(p->y.dtype);
        enum reference_form form = operation == TCQ_OPERATION_SCATTER_BALANCED ? REFERENCE_BALANCED
                                   : operation == TCQ_OPERATION_SCATTER_TABLE
                                       ? REFERENCE_BALANCED_TABLE
                                       : REFERENCE_GENERIC;
        code = scatter ? reference_scatter_launch(&a, form, stream)
                       : reference_product_launch(&a, 0, plan.partition, stream);
    }
    return device_error(error, code, "starting a product on the GPU");
}

/* How run_wide divides the workspace. */
struct wide_plan {
    size_t x_nbytes, c_nbytes; /* x as bf16, float32 sums; 0: the caller's are used */
    uint64_t rows;             /* stored rows expanded at a time; 0: no room */
};

static struct wide_plan wide_plan_of(const struct tcq_cuda *cuda, const struct tcq_cuda_product *p)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    const size_t row_nbytes = g->cols * 2;
    struct wide_plan plan = {0};
    if (p->x.dtype != TCQ_DTYPE_BF16)
        plan.x_nbytes = (p->m * tcq_geometry_in(g) * 2 + 255) & ~(size_t)255;
    /* On axis 0 pieces of the inputs are added up, in float32. */
    const bool whole = g->axis || plan.x_nbytes + g->rows * row_nbytes <= cuda->workspace_nbytes;
    if (p->y.dtype == TCQ_DTYPE_F16 || (p->y.dtype == TCQ_DTYPE_BF16 && !whole))
        plan.c_nbytes = (p->m * tcq_geometry_out(g) * 4 + 255) & ~(size_t)255;
    const size_t used = plan.x_nbytes + plan.c_nbytes;
    plan.rows = used < cuda->workspace_nbytes ? (cuda->workspace_nbytes - used) / row_nbytes : 0;
    plan.rows = plan.rows > g->rows ? g->rows : plan.rows > 256 ? plan.rows / 256 * 256 : plan.rows;
    return plan;
}

static enum tcq_status wide_pieces(struct tcq_cuda *cuda, const struct tcq_cuda_product *p,
                                   const struct wide_plan *plan, struct blas_product product,
                                   cudaStream_t stream, struct tcq_error *error)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    const struct reference_tensor w = reference_tensor_of(p->tensor);
    void *dense = (char *)cuda->workspace + plan->x_nbytes + plan->c_nbytes;
    const char *x = product.x;
    char *c = product.c;
    for (uint64_t row = 0; row < g->rows; row += plan->rows) {
        const uint64_t count = g->rows - row < plan->rows ? g->rows - row : plan->rows;
        cudaError_t code = expand_launch(dense, g->cols, &w, row, row + count, stream);
        if (code != cudaSuccess)
            return device_error(error, code, "starting expand on the GPU");
        product.w = dense;
        if (g->axis) {
            product.outputs = count;
            product.c = c + row * tcq_dtype_nbytes(product.c_type);
        } else {
            product.depth = count;
            product.x = x + row * 2;
            product.beta = row ? 1.0f : 0.0f;
        }
        enum tcq_status status = blas_multiply(cuda->blas, &product, stream, error);
        if (status != TCQ_OK)
            return status;
    }
    return TCQ_OK;
}

/* Dense bf16 weights, as much of them at a time as the workspace holds, and a
 * bf16 product. */
static enum tcq_status run_wide(struct tcq_cuda *cuda, const struct tcq_cuda_product *p,
                                cudaStream_t stream, struct tcq_error *error)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    const uint64_t in = tcq_geometry_in(g), out = tcq_geometry_out(g);
    const struct wide_plan plan = wide_plan_of(cuda, p);
    if (!cuda->blas)
        return tcq_error_set(error, cuda->no_blas.status, "%s", cuda->no_blas.message);
    if (plan.rows == 0)
        return tcq_error_set(error, TCQ_ERROR_MEMORY,
                             "the GPU workspace of %zu bytes is too small for %u vectors",
                             cuda->workspace_nbytes, p->m);
    char *base = cuda->workspace;
    struct blas_product product = {
        .m = p->m,
        .outputs = out,
        .depth = in,
        .x = plan.x_nbytes ? base : p->x.data,
        .w_stride = g->cols,
        .x_stride = plan.x_nbytes ? in : p->x.stride,
        .transposed = g->axis == 0,
        .c = plan.c_nbytes ? base + plan.x_nbytes : p->y.data,
        .c_stride = plan.c_nbytes ? out : p->y.stride,
        .c_type = plan.c_nbytes ? TCQ_DTYPE_F32 : p->y.dtype,
    };
    cudaError_t code = cudaSuccess;
    if (plan.x_nbytes)
        code = wide_convert_launch(base, TCQ_DTYPE_BF16, in, p->x.data, p->x.dtype, p->x.stride, in,
                                   p->m, stream);
    if (code != cudaSuccess)
        return device_error(error, code, "starting a product on the GPU");
    enum tcq_status status = wide_pieces(cuda, p, &plan, product, stream, error);
    if (status == TCQ_OK && plan.c_nbytes)
        status = device_error(error,
                              wide_convert_launch(p->y.data, p->y.dtype, p->y.stride, product.c,
                                                  TCQ_DTYPE_F32, out, out, p->m, stream),
                              "starting a product on the GPU");
    return status;
}

static bool is_activation(enum tcq_dtype dtype)
{
    return dtype == TCQ_DTYPE_F32 || dtype == TCQ_DTYPE_F16 || dtype == TCQ_DTYPE_BF16;
}

static enum tcq_status check_product(const struct tcq_cuda *cuda, const struct tcq_cuda_product *p,
                                     struct tcq_error *error)
{
    if (!cuda || !p || !p->tensor || !p->tensor->words || !p->tensor->scales || !p->x.data ||
        !p->y.data)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "a product on the GPU: a pointer is NULL");
    const struct tcq_geometry *g = &p->tensor->geometry;
    enum tcq_status status = tcq_geometry_check(g, error);
    if (status != TCQ_OK)
        return status;
    if (p->m == 0 || !is_activation(p->x.dtype) || !is_activation(p->y.dtype))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "a product on the GPU: %u vectors of %s to %s; expected 1 or more of "
                             "F32, F16 or BF16",
                             p->m, tcq_dtype_name(p->x.dtype), tcq_dtype_name(p->y.dtype));
    if (p->x.stride < tcq_geometry_in(g) || p->y.stride < tcq_geometry_out(g))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "a product on the GPU: strides %zu and %zu are below the vectors' "
                             "lengths",
                             p->x.stride, p->y.stride);
    if (g->rows > UINT32_MAX / 2 || g->cols > UINT32_MAX / 2)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "a matrix with 2^31 rows or columns");
    return TCQ_OK;
}

enum tcq_status tcq_cuda_multiply(struct tcq_cuda *cuda, const struct tcq_cuda_product *p,
                                  void *stream, struct tcq_error *error)
{
    enum tcq_status status = check_product(cuda, p, error);
    if (status != TCQ_OK)
        return status;
    struct reference_args a = reference_args_of(p);
    enum tcq_operation operation = tcq_cuda_select(p, error);
    if (operation == TCQ_OPERATION_SMALL && !cuda->small) {
        if (p->operation != TCQ_OPERATION_AUTO)
            return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                                 "operation small needs %u KiB of shared memory a block, which %s "
                                 "has not",
                                 FAST_SHARED_NBYTES / 1024, cuda->name);
        operation = TCQ_OPERATION_WIDE;
    }
    if (fused_takes(cuda, p, operation)) {
        const cudaError_t code = fused_run(cuda, p, NULL, stream);
        if (code != cudaErrorNotSupported)
            return device_error(error, code, "starting a product on the GPU");
    }
    switch (operation) {
    case TCQ_OPERATION_SMALL:
        return device_error(error, run_small(cuda, p, stream), "starting a product on the GPU");
    case TCQ_OPERATION_REDUCE:
        return device_error(error, reference_reduce_launch(&a, stream),
                            "starting a product on the GPU");
    case TCQ_OPERATION_SCATTER:
    case TCQ_OPERATION_SCATTER_BALANCED:
    case TCQ_OPERATION_SCATTER_TABLE:
    case TCQ_OPERATION_SPLIT_K:
        return run_split(cuda, p, operation, stream, error);
    case TCQ_OPERATION_TILED:
        return device_error(error, reference_product_launch(&a, 1, 0, stream),
                            "starting a product on the GPU");
    case TCQ_OPERATION_WIDE:
        if (p->numerics == TCQ_NUMERICS_REFERENCE)
            return device_error(error,
                                reference_product_launch(&a, p->tensor->geometry.axis, 0, stream),
                                "starting a product on the GPU");
        return run_wide(cuda, p, stream, error);
    default:
        return TCQ_ERROR_UNSUPPORTED; /* the selection has said why */
    }
}

/* ---- gate/up ----------------------------------------------------------------------- */

/* Can two products of a step have their x prepared once? */
static bool share_inputs(const struct tcq_cuda *cuda, const struct tcq_cuda_product *gate,
                         const struct tcq_cuda_product *up)
{
    return cuda->small && gate->tensor->geometry.k == up->tensor->geometry.k &&
           gate->m * fast_args_of(cuda, gate).pieces <= FAST_COLUMNS_MAX &&
           tcq_cuda_select(gate, NULL) == TCQ_OPERATION_SMALL &&
           tcq_cuda_select(up, NULL) == TCQ_OPERATION_SMALL;
}

static enum tcq_status both_products(struct tcq_cuda *cuda, const struct tcq_cuda_product *gate,
                                     const struct tcq_cuda_product *up, cudaStream_t stream,
                                     struct tcq_error *error)
{
    if (gate->tensor->geometry.k == up->tensor->geometry.k &&
        fused_takes(cuda, gate, tcq_cuda_select(gate, NULL)) &&
        fused_takes(cuda, up, tcq_cuda_select(up, NULL))) {
        const cudaError_t code = fused_run(cuda, gate, up, stream);
        if (code != cudaErrorNotSupported)
            return device_error(error, code, "starting gate/up on the GPU");
    }
    if (!share_inputs(cuda, gate, up)) {
        enum tcq_status status = tcq_cuda_multiply(cuda, gate, stream, error);
        return status == TCQ_OK ? tcq_cuda_multiply(cuda, up, stream, error) : status;
    }
    struct fast_args a = fast_args_of(cuda, gate), b = fast_args_of(cuda, up);
    a.columns = b.columns = gate->m * a.pieces;
    cudaError_t code = fast_inputs_launch(&a, 1, stream);
    if (code == cudaSuccess)
        code = fast_axis1_launch(&a, cuda->multiprocessors, stream);
    if (code == cudaSuccess)
        code = fast_axis1_launch(&b, cuda->multiprocessors, stream);
    return device_error(error, code, "starting gate/up on the GPU");
}

/* The operation of all vectors, which those of the last step alone might not have. */
static enum tcq_operation operation_of(const struct tcq_cuda_product *whole,
                                       const struct tcq_tensor *tensor)
{
    struct tcq_cuda_product p = *whole;
    p.tensor = tensor;
    const enum tcq_operation operation =
        whole->operation ? whole->operation : tcq_cuda_select(&p, NULL);
    /* AUTO's SMALL has a stand-in where a GPU cannot do it; it is there for any fewer. */
    return operation == TCQ_OPERATION_SMALL ? whole->operation : operation;
}

/* Vectors of a step: the sums of up take a quarter of the workspace at most. */
static uint32_t step_of(const struct tcq_cuda *cuda, uint32_t m, size_t vector_nbytes)
{
    const size_t most = cuda->workspace_nbytes / 4 / vector_nbytes;
    return most < m ? (uint32_t)most : m;
}

/* Sums of gate in mid's place, of up at the workspace's end, which the products then do
 * without; then the tail. */
static enum tcq_status gate_up_in_steps(struct tcq_cuda *cuda, const struct tcq_cuda_product *whole,
                                        const struct tcq_tensor *up_tensor, enum tcq_swiglu tail,
                                        cudaStream_t stream, struct tcq_error *error)
{
    const uint64_t out = whole->tensor->geometry.rows, stride = (out + 7) & ~(uint64_t)7;
    const size_t x_nbytes = whole->x.stride * tcq_dtype_nbytes(whole->x.dtype);
    const size_t y_nbytes = whole->y.stride * tcq_dtype_nbytes(whole->y.dtype);
    const size_t up_nbytes = stride * tcq_dtype_nbytes(whole->y.dtype);
    const size_t workspace_nbytes = cuda->workspace_nbytes;
    const uint32_t step = step_of(cuda, whole->m, up_nbytes);
    enum tcq_status status = TCQ_OK;
    if (step == 0)
        return tcq_error_set(error, TCQ_ERROR_MEMORY,
                             "gate/up on the GPU: %llu outputs, and a workspace of %zu bytes",
                             (unsigned long long)out, workspace_nbytes);
    cuda->workspace_nbytes = (workspace_nbytes - step * up_nbytes) & ~(size_t)255;
    void *sums = (char *)cuda->workspace + cuda->workspace_nbytes;
    for (uint32_t first = 0; first < whole->m && status == TCQ_OK; first += step) {
        struct tcq_cuda_product gate = *whole;
        gate.m = whole->m - first < step ? whole->m - first : step;
        gate.x.data = (char *)whole->x.data + first * x_nbytes;
        gate.y.data = (char *)whole->y.data + first * y_nbytes;
        struct tcq_cuda_product up = gate;
        gate.operation = operation_of(whole, whole->tensor);
        up.operation = operation_of(whole, up_tensor);
        up.tensor = up_tensor;
        up.y = (struct tcq_vectors){sums, whole->y.dtype, stride};
        const struct swiglu_args a = {.y = gate.y.data,
                                      .up = sums,
                                      .y_stride = gate.y.stride,
                                      .up_stride = stride,
                                      .rows = out,
                                      .m = gate.m,
                                      .tail = tail};
        status = both_products(cuda, &gate, &up, stream, error);
        if (status == TCQ_OK)
            status = device_error(error, swiglu_launch(&a, whole->y.dtype, stream),
                                  "starting gate/up on the GPU");
    }
    cuda->workspace_nbytes = workspace_nbytes;
    return status;
}

enum tcq_status tcq_cuda_gate_up(struct tcq_cuda *cuda, const struct tcq_cuda_product *gate,
                                 const struct tcq_tensor *up, enum tcq_swiglu tail, void *stream,
                                 struct tcq_error *error)
{
    enum tcq_status status = check_product(cuda, gate, error);
    if (status != TCQ_OK)
        return status;
    const struct tcq_geometry *g = &gate->tensor->geometry;
    if (!up || !up->words || !up->scales)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "gate/up on the GPU: up is NULL");
    status = tcq_geometry_check(&up->geometry, error);
    if (status != TCQ_OK)
        return status;
    if (g->axis != 1 || up->geometry.axis != 1 || g->rows != up->geometry.rows ||
        g->cols != up->geometry.cols)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                             "gate/up on the GPU: both need axis 1 and the same sizes");
    if (tcq_cuda_select(gate, error) != TCQ_OPERATION_REDUCE)
        return gate_up_in_steps(cuda, gate, up, tail, stream, error);
    struct reference_args a = reference_args_of(gate);
    a.up = reference_tensor_of(up);
    a.tail = tail;
    return device_error(error, reference_gate_up_launch(&a, stream), "starting gate/up on the GPU");
}
