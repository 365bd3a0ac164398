/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes for many vectors.  wide: each thread expands a tile of weights to bf16, in
 * its own scratch, and multiplies the panel of x by it.  No more of the dense matrix
 * ever exists than one tile a thread.  wide-int16: x is put on its grid once, then
 * kernels decode integer weights as they multiply.
 */
#include "base/context.h"
#include "base/half.h"
#include "format/geometry.h"
#include "linear/linear.h"

#include <string.h>

static void convert_vector(void *argument, size_t thread, size_t i)
{
    struct tcq_pass *pass = argument;
    (void)thread;
    enum { CHUNK = 512 };
    size_t element = tcq_dtype_nbytes(pass->x.dtype);
    const char *from = (const char *)pass->x.data + i * pass->x.stride * element;
    uint16_t *to = pass->x_bf16_store + i * pass->x_bf16_stride;
    for (uint64_t at = 0; at < pass->in; at += CHUNK) {
        float chunk[CHUNK];
        uint64_t count = pass->in - at < CHUNK ? pass->in - at : CHUNK;
        tcq_convert_to_f32(chunk, from + at * element, pass->x.dtype, count);
        tcq_convert_from_f32(to + at, TCQ_DTYPE_BF16, chunk, count);
    }
}

/* One thread's memory. */
struct tile {
    uint16_t *weights; /* axis 1: [n][depth]; axis 0: [depth][n] */
    float *sums;       /* [layers][m][n] */
    void *gemm_scratch;
};

static struct tile tile_of(const struct tcq_pass *pass, size_t thread)
{
    const struct tcq_profile *profile = &tcq_profile_cpu;
    struct tcq_carve carve = {pass->thread_scratch + thread * pass->thread_nbytes, 0};
    struct tile tile;
    tile.weights = tcq_carve(&carve, (size_t)profile->wide_n * profile->wide_depth * 2);
    tile.sums = tcq_carve(&carve, (size_t)pass->layer_count * pass->m * profile->wide_n * 4);
    tile.gemm_scratch = tcq_carve(&carve, 0);
    return tile;
}

/* sums[m][wide_n] = x times the weights of outputs `outputs`. */
static void multiply(const struct tcq_pass *pass, const struct tcq_linear *linear,
                     struct tcq_range outputs, const struct tile *tile, float *sums)
{
    const struct tcq_profile *profile = &tcq_profile_cpu;
    const struct tcq_geometry *g = &linear->tensor.geometry;
    size_t n = (size_t)(outputs.end - outputs.begin), stride;
    memset(sums, 0, (size_t)pass->m * profile->wide_n * sizeof *sums);
    for (uint64_t at = 0; at < pass->in; at += profile->wide_depth) {
        uint64_t left = pass->in - at,
                 end = left < profile->wide_depth ? pass->in : at + profile->wide_depth;
        struct tcq_range deep = {at, end}, rows = g->axis ? outputs : deep;
        struct tcq_range cols = g->axis ? deep : outputs;
        struct tcq_range blocks = {cols.begin / g->T, cols.end / g->T};
        stride = (size_t)(cols.end - cols.begin);
        linear->kernels.expand->run(tile->weights, TCQ_DTYPE_BF16, stride, &linear->tensor, rows,
                                    blocks);
        linear->kernels.gemm->run(sums, profile->wide_n, pass->x_bf16 + at, pass->x_bf16_stride,
                                  tile->weights, stride, g->axis, pass->m, n, (size_t)(end - at),
                                  tile->gemm_scratch);
    }
}

static void wide_item(void *argument, size_t thread, size_t item)
{
    struct tcq_pass *pass = argument;
    const struct tcq_profile *profile = &tcq_profile_cpu;
    struct tcq_range outputs = tcq_range_item(item, profile->wide_n, pass->out);
    struct tile tile = tile_of(pass, thread);
    const float *sums[TCQ_PASS_LAYERS_MAX] = {0};
    for (uint32_t l = 0; l < pass->layer_count; l++) {
        float *to = tile.sums + (size_t)l * pass->m * profile->wide_n;
        multiply(pass, pass->layers[l].linear, outputs, &tile, to);
        sums[l] = to;
    }
    tcq_pass_finish(pass, outputs, sums, profile->wide_n, outputs.begin);
}

void tcq_pass_run_wide(struct tcq_pass *pass)
{
    if (pass->x_bf16_store)
        tcq_context_run(pass->context, convert_vector, pass, pass->m);
    uint64_t n = tcq_profile_cpu.wide_n;
    tcq_context_run(pass->context, wide_item, pass, (pass->out + n - 1) / n);
}

/* ---- x on a 16-bit grid ---------------------------------------------------- */

/* Whether the exponent bits are all set in any of count elements. */
static bool any_special_16(const uint16_t *x, size_t count, uint16_t exponent)
{
    unsigned found = 0;
    for (size_t i = 0; i < count; i++)
        found |= (x[i] & exponent) == exponent;
    return found;
}

static bool any_special_32(const uint32_t *x, size_t count)
{
    unsigned found = 0;
    for (size_t i = 0; i < count; i++)
        found |= (x[i] & 0x7f800000u) == 0x7f800000u;
    return found;
}

bool tcq_pass_x_finite(const struct tcq_pass *pass)
{
    size_t nbytes = tcq_dtype_nbytes(pass->x.dtype), in = (size_t)pass->in;
    for (size_t i = 0; i < pass->m; i++) {
        const void *x = (const char *)pass->x.data + i * pass->x.stride * nbytes;
        uint16_t exponent = pass->x.dtype == TCQ_DTYPE_BF16 ? 0x7f80 : 0x7c00;
        if (nbytes == 4 ? any_special_32(x, in) : any_special_16(x, in, exponent))
            return false;
    }
    return true;
}

static void prepare_item(void *argument, size_t thread, size_t item)
{
    struct tcq_pass *pass = argument;
    struct tcq_range in = tcq_range_item(item, TCQ_INPUT_UNIT, pass->in);
    size_t element = tcq_dtype_nbytes(pass->x.dtype);
    float *chunk = (void *)(pass->thread_scratch + thread * pass->thread_nbytes);
    for (size_t i = 0; i < pass->m; i++)
        tcq_convert_to_f32(chunk + i * TCQ_INPUT_UNIT,
                           (const char *)pass->x.data + (i * pass->x.stride + in.begin) * element,
                           pass->x.dtype, in.end - in.begin);
    for (uint32_t l = 0; l < pass->layer_count; l++) {
        const struct tcq_linear *linear = pass->layers[l].linear;
        linear->kernels.wide->prepare(pass->layers[l].prepared, &linear->tensor, pass->m, chunk,
                                      TCQ_INPUT_UNIT, in);
    }
}

static void int16_item(void *argument, size_t thread, size_t item)
{
    struct tcq_pass *pass = argument;
    size_t n = tcq_profile_cpu.wide_n;
    struct tcq_range outputs = tcq_range_item(item, n, pass->out);
    struct tcq_carve carve = {pass->thread_scratch + thread * pass->thread_nbytes, 0};
    float *to = tcq_carve(&carve, pass->layer_count * pass->m * n * sizeof(float));
    void *scratch = tcq_carve(&carve, 0);
    const float *sums[TCQ_PASS_LAYERS_MAX] = {0};
    for (uint32_t l = 0; l < pass->layer_count; l++, to += pass->m * n) {
        const struct tcq_linear *linear = pass->layers[l].linear;
        const struct tcq_geometry *g = &linear->tensor.geometry;
        struct tcq_product product = {&linear->tensor, pass->m, pass->layers[l].prepared, to, n};
        struct tcq_range rows = g->axis ? outputs : (struct tcq_range){0, g->rows};
        struct tcq_range cols = g->axis ? (struct tcq_range){0, g->cols} : outputs;
        linear->kernels.wide->run(&product, rows,
                                  (struct tcq_range){cols.begin / g->T, cols.end / g->T}, scratch);
        sums[l] = to;
    }
    tcq_pass_finish(pass, outputs, sums, n, outputs.begin);
}

void tcq_pass_run_wide_int16(struct tcq_pass *pass)
{
    uint64_t n = tcq_profile_cpu.wide_n;
    tcq_context_run(pass->context, prepare_item, pass,
                    (pass->in + TCQ_INPUT_UNIT - 1) / TCQ_INPUT_UNIT);
    tcq_context_run(pass->context, int16_item, pass, (pass->out + n - 1) / n);
}
