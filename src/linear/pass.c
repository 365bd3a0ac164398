/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every pass needs: its scratch, x in float32, and storing the results.
 */
#include "base/context.h"
#include "base/half.h"
#include "base/memory.h"
#include "format/geometry.h"
#include "kernel/reference/arithmetic.h"
#include "linear/linear.h"

enum { STORE_CHUNK = 256 };

void *tcq_carve(struct tcq_carve *carve, size_t nbytes)
{
    size_t at = carve->used;
    carve->used += (nbytes + TCQ_ALIGNMENT - 1) / TCQ_ALIGNMENT * TCQ_ALIGNMENT;
    return carve->base ? carve->base + at : NULL;
}

struct tcq_range tcq_range_item(uint64_t item, uint64_t size, uint64_t count)
{
    uint64_t begin = item * size;
    return (struct tcq_range){begin, count - begin < size ? count : begin + size};
}

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* How the outputs are divided.  The splits of axis 0 follow from the geometry
 * alone: they are part of the order of additions. */
static void divide(struct tcq_pass *pass)
{
    const struct tcq_profile *profile = &tcq_profile_cpu;
    const struct tcq_geometry *g = &pass->layers[0].linear->tensor.geometry;
    uint64_t items = (uint64_t)tcq_context_threads(pass->context) * profile->items_per_thread;
    pass->item_rows = ceil_div(ceil_div(pass->out, items), 8) * 8;
    if (pass->item_rows > profile->item_rows_max)
        pass->item_rows = profile->item_rows_max;
    pass->splits = 1;
    pass->split_rows = g->rows;
    if (g->axis == 0 && pass->operation == TCQ_OPERATION_SMALL) {
        uint64_t splits = ceil_div(g->rows, profile->scatter_split_rows);
        pass->split_rows = ceil_div(ceil_div(g->rows, splits), TCQ_INPUT_UNIT) * TCQ_INPUT_UNIT;
        pass->splits = ceil_div(g->rows, pass->split_rows);
    }
    if (pass->m <= profile->scatter_long_m) /* few vectors: long pieces of rows read faster */
        items = (uint64_t)tcq_context_threads(pass->context) * profile->scatter_items;
    uint64_t blocks = g->cols / g->T, groups = ceil_div(items, pass->splits);
    pass->item_blocks = ceil_div(blocks, groups);
    /* pairs of blocks lie side by side in the interleaved layout */
    if (g->layout == TCQ_LAYOUT_INTERLEAVED)
        pass->item_blocks += pass->item_blocks & 1;
    pass->block_groups = ceil_div(blocks, pass->item_blocks);
}

/* Prepared x, and a thread's chunk of x in float32 or sums. */
static void layout_wide_int16(struct tcq_pass *pass, struct tcq_carve *carve)
{
    size_t m = pass->m, n = tcq_profile_cpu.wide_n, kernel = 0;
    for (uint32_t l = 0; l < pass->layer_count; l++) {
        const struct tcq_linear *linear = pass->layers[l].linear;
        const struct tcq_wide_kernel *wide = linear->kernels.wide;
        const struct tcq_geometry *g = &linear->tensor.geometry;
        pass->layers[l].prepared = tcq_carve(carve, wide->prepared_nbytes(g, pass->m));
        size_t need = wide->scratch_nbytes(g, pass->m, n);
        kernel = need > kernel ? need : kernel;
    }
    struct tcq_carve chunk = {0}, sums = {0};
    tcq_carve(&chunk, m * TCQ_INPUT_UNIT * sizeof(float));
    tcq_carve(&sums, pass->layer_count * m * n * sizeof(float));
    tcq_carve(&sums, kernel);
    pass->thread_nbytes = chunk.used > sums.used ? chunk.used : sums.used;
    pass->thread_scratch =
        tcq_carve(carve, tcq_context_threads(pass->context) * pass->thread_nbytes);
}

static void layout_wide(struct tcq_pass *pass, struct tcq_carve *carve)
{
    const struct tcq_profile *profile = &tcq_profile_cpu;
    size_t threads = tcq_context_threads(pass->context), in = (size_t)pass->in;
    pass->x_bf16_store = NULL;
    if (pass->x.dtype == TCQ_DTYPE_BF16) {
        pass->x_bf16 = pass->x.data;
        pass->x_bf16_stride = pass->x.stride;
    } else {
        pass->x_bf16 = pass->x_bf16_store = tcq_carve(carve, pass->m * in * sizeof(uint16_t));
        pass->x_bf16_stride = in;
    }
    size_t m = pass->m, n = profile->wide_n, depth = profile->wide_depth, gemm = 0;
    for (uint32_t l = 0; l < pass->layer_count; l++) {
        size_t need = pass->layers[l].linear->kernels.gemm->scratch_nbytes(m, n, depth);
        gemm = need > gemm ? need : gemm;
    }
    struct tcq_carve one = {0};
    tcq_carve(&one, n * depth * sizeof(uint16_t));
    tcq_carve(&one, pass->layer_count * m * n * sizeof(float));
    tcq_carve(&one, gemm);
    pass->thread_nbytes = one.used;
    pass->thread_scratch = tcq_carve(carve, threads * one.used);
}

void tcq_pass_layout(struct tcq_pass *pass, struct tcq_carve *carve)
{
    divide(pass);
    size_t m = pass->m, in = (size_t)pass->in, out = (size_t)pass->out;
    bool fast = pass->layers[0].linear->options.numerics == TCQ_NUMERICS_FAST;
    if (pass->operation == TCQ_OPERATION_WIDE_INT16) {
        layout_wide_int16(pass, carve);
        return;
    }
    if (pass->operation == TCQ_OPERATION_WIDE && fast) {
        layout_wide(pass, carve);
        return;
    }
    pass->x_store = NULL;
    if (pass->x.dtype == TCQ_DTYPE_F32) {
        pass->x_f32 = pass->x.data;
        pass->x_f32_stride = pass->x.stride;
    } else {
        pass->x_f32 = pass->x_store = tcq_carve(carve, m * in * sizeof(float));
        pass->x_f32_stride = in;
    }
    for (uint32_t l = 0; l < pass->layer_count; l++) {
        struct tcq_pass_layer *layer = &pass->layers[l];
        const struct tcq_linear *linear = layer->linear;
        const struct tcq_geometry *g = &linear->tensor.geometry;
        layer->sums = tcq_carve(carve, m * out * sizeof(float));
        layer->sums_stride = out;
        if (pass->operation != TCQ_OPERATION_SMALL)
            continue;
        const struct tcq_small_kernel *kernel =
            linear->kernels.small[g->axis][linear->options.activations];
        layer->prepared = tcq_carve(carve, kernel->prepared_nbytes(g, pass->m));
    }
    if (pass->splits > 1)
        pass->partials = tcq_carve(carve, pass->splits * m * out * sizeof(float));
}

/* Element `index` of vector i. */
static char *vector_at(const struct tcq_vectors *v, uint32_t i, uint64_t index)
{
    return (char *)v->data + (i * v->stride + index) * tcq_dtype_nbytes(v->dtype);
}

void tcq_pass_convert_x(const struct tcq_pass *pass, struct tcq_range in)
{
    if (!pass->x_store)
        return;
    for (uint32_t i = 0; i < pass->m; i++)
        tcq_convert_to_f32(pass->x_store + i * pass->x_f32_stride + in.begin,
                           vector_at(&pass->x, i, in.begin), pass->x.dtype, in.end - in.begin);
}

static void store(const struct tcq_pass *pass, uint32_t i, struct tcq_range outputs,
                  const float *sums)
{
    if (!pass->bias) {
        tcq_convert_from_f32(vector_at(&pass->y, i, outputs.begin), pass->y.dtype, sums,
                             outputs.end - outputs.begin);
        return;
    }
    for (uint64_t o = outputs.begin; o < outputs.end; o += STORE_CHUNK) {
        float chunk[STORE_CHUNK];
        uint64_t count = outputs.end - o < STORE_CHUNK ? outputs.end - o : STORE_CHUNK;
        for (uint64_t j = 0; j < count; j++)
            chunk[j] = sums[o - outputs.begin + j] + pass->bias[o + j];
        tcq_convert_from_f32(vector_at(&pass->y, i, o), pass->y.dtype, chunk, count);
    }
}

static void store_mid(const struct tcq_pass *pass, uint32_t i, struct tcq_range outputs,
                      const float *gate, const float *up)
{
    for (uint64_t o = outputs.begin; o < outputs.end; o += STORE_CHUNK) {
        float chunk[STORE_CHUNK];
        uint64_t count = outputs.end - o < STORE_CHUNK ? outputs.end - o : STORE_CHUNK;
        size_t at = o - outputs.begin;
        for (uint64_t j = 0; j < count; j++)
            chunk[j] = tcq_swiglu_tail(pass->y.dtype, pass->tail, gate[at + j], up[at + j]);
        tcq_convert_from_f32(vector_at(&pass->y, i, o), pass->y.dtype, chunk, count);
    }
}

void tcq_pass_finish(const struct tcq_pass *pass, struct tcq_range outputs,
                     const float *const sums[TCQ_PASS_LAYERS_MAX], size_t stride, uint64_t origin)
{
    for (uint32_t i = 0; i < pass->m; i++) {
        size_t at = i * stride + (size_t)(outputs.begin - origin);
        if (pass->layer_count == 1)
            store(pass, i, outputs, sums[0] + at);
        else
            store_mid(pass, i, outputs, sums[0] + at, sums[1] + at);
    }
}
