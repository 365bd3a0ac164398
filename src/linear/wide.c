/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pass for many vectors: each thread expands a tile of weights to bf16, in its
 * own scratch, and multiplies the panel of x by it.  No more of the dense matrix
 * ever exists than one tile a thread.
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
        uint64_t left = pass->in - at, end = left < profile->wide_depth ? pass->in
                                                                        : at + profile->wide_depth;
        struct tcq_range deep = {at, end}, rows = g->axis ? outputs : deep;
        struct tcq_range cols = g->axis ? deep : outputs;
        struct tcq_range blocks = {cols.begin / g->T, cols.end / g->T};
        stride = (size_t)(cols.end - cols.begin);
        linear->kernels.expand->run(tile->weights, TCQ_DTYPE_BF16, stride, &linear->tensor, rows,
                                    blocks);
        linear->kernels.gemm->run(sums, profile->wide_n, pass->x_bf16 + at, pass->x_bf16_stride,
                                  tile->weights, stride, g->axis, pass->m, n,
                                  (size_t)(end - at), tile->gemm_scratch);
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
