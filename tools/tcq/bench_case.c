/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory, layers and checks of tcq bench.
 */
#include "bench_gpu.h"

#include <math.h>
#include <stdlib.h>

#include "base/context.h"
#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "kernel/kernel.h"

const char *const bench_op_names[BENCH_OP_COUNT] = {
    "auto",    "reference",        "small",         "wide",    "wide-int16", "reduce",
    "scatter", "scatter-balanced", "scatter-table", "split-k", "tiled",      "gate-up",
    "expand"};

enum { CHECKED_OUTPUTS = 8 };

static uint64_t mix(uint64_t z) /* splitmix64 */
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Random words; the two highest exponent bits of each half are 01, so that as
 * bf16 it is between 2^-63 and 2^1 in magnitude. */
static void fill_item(void *argument, size_t thread, size_t item)
{
    struct bench *bench = argument;
    (void)thread;
    uint64_t *words = (uint64_t *)(void *)bench->arena;
    size_t count = bench->arena_nbytes / 8, part = count / 64;
    for (size_t i = item * part; i < (item + 1) * part; i++)
        words[i] = (mix((i + 1) * 0x9e3779b97f4a7c15u) & 0xbfffbfffbfffbfffu) |
                   0x2000200020002000u;
}

int bench_create(struct bench *bench, const struct cli_args *args, size_t arena_nbytes,
                 uint64_t size_max, uint32_t m_max, uint64_t expanded_max)
{
    arena_nbytes = arena_nbytes / 65536 * 65536; /* whole parts for fill_item and the probes */
    *bench = (struct bench){.arena_nbytes = arena_nbytes, .scale_count = size_max};
    struct tcq_error error;
    struct tcq_context_options plain = {.limit_cpu = true};
    if (cli_context(args, &bench->context) != TCQ_OK)
        return CLI_FAILED;
    bench->threads = plain.threads = tcq_context_threads(bench->context);
    if (tcq_context_create(&plain, &bench->scalar_context, &error) != TCQ_OK)
        return cli_fail(NULL, &error);
    bench->probe = bench_probe_select(tcq_context_cpu_flags(bench->context));
    bench->arena = tcq_alloc(bench->arena_nbytes, 1);
    bench->scales = tcq_alloc(size_max, sizeof *bench->scales);
    bench->x = tcq_alloc(size_max * m_max, sizeof *bench->x);
    bench->y = tcq_alloc(size_max * m_max, sizeof(float));
    bench->expanded = tcq_alloc(expanded_max, sizeof *bench->expanded);
    if (!bench->arena || !bench->scales || !bench->x || !bench->y || !bench->expanded)
        return cli_out_of_memory();
    tcq_context_run(bench->context, fill_item, bench, 64);
    for (uint64_t i = 0; i < size_max; i++)
        bench->scales[i] = tcq_f16_from_f32(0.015625f + 0.00390625f * (float)(i % 7));
    for (uint64_t i = 0; i < size_max * m_max; i++)
        bench->x[i] = tcq_bf16_from_f32((float)((double)(mix(i + 1) >> 11) * 0x1p-52 - 1.0));
    bench->call_x = bench->x;
    bench->call_y = bench->y;
    bench->call_expanded = bench->expanded;
    return args->cuda ? bench_gpu_open(bench, size_max * m_max, expanded_max) : CLI_CONTINUE;
}

void bench_destroy(struct bench *bench)
{
    bench_gpu_close(bench);
    tcq_free(bench->arena);
    tcq_free(bench->scales);
    tcq_free(bench->x);
    tcq_free(bench->y);
    tcq_free(bench->expanded);
    tcq_context_destroy(bench->context);
    tcq_context_destroy(bench->scalar_context);
}

static struct tcq_linear_options options_of(const struct bench_case *which)
{
    static const enum tcq_operation forced[BENCH_OP_COUNT] = {
        [BENCH_SMALL] = TCQ_OPERATION_SMALL,
        [BENCH_WIDE] = TCQ_OPERATION_WIDE,
        [BENCH_WIDE_INT16] = TCQ_OPERATION_WIDE_INT16,
        [BENCH_REDUCE] = TCQ_OPERATION_REDUCE,
        [BENCH_SCATTER] = TCQ_OPERATION_SCATTER,
        [BENCH_SCATTER_BALANCED] = TCQ_OPERATION_SCATTER_BALANCED,
        [BENCH_SCATTER_TABLE] = TCQ_OPERATION_SCATTER_TABLE,
        [BENCH_SPLIT_K] = TCQ_OPERATION_SPLIT_K,
        [BENCH_TILED] = TCQ_OPERATION_TILED,
    };
    struct tcq_linear_options options = {.operation = forced[which->op],
                                         .activations = which->activations};
    bool reference = which->op == BENCH_REFERENCE ||
                     (which->op >= BENCH_REDUCE && which->op <= BENCH_TILED);
    options.numerics = reference ? TCQ_NUMERICS_REFERENCE : TCQ_NUMERICS_FAST;
    return options;
}

void bench_layers_destroy(struct bench_layers *layers)
{
    for (size_t i = 0; i < layers->count; i++)
        tcq_linear_destroy(layers->copies[i]);
    layers->count = 0;
}

enum tcq_status bench_layers_create(struct bench_layers *layers, const struct bench *bench,
                                    struct tcq_context *context, const struct bench_case *which,
                                    struct tcq_error *error)
{
    *layers = (struct bench_layers){0};
    size_t words = tcq_geometry_words(&which->geometry), all = bench->arena_nbytes / 4;
    size_t copies = all / words;
    if (copies < 2)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "a layer of %zu bytes: expected at most half of %zu", words * 4,
                             bench->arena_nbytes);
    copies = copies > BENCH_COPIES_MAX ? BENCH_COPIES_MAX : copies;
    struct tcq_linear_options options = options_of(which);
    for (size_t i = 0; i < copies; i++) {
        /* spread over the whole arena: few small layers would fit a cache */
        size_t at = (all - words) / copies * i / 16 * 16;
        struct tcq_tensor tensor = {which->geometry, bench->arena + at, bench->scales};
        enum tcq_status status =
            tcq_linear_create(context, &tensor, &options, &layers->copies[i], error);
        if (status != TCQ_OK) {
            bench_layers_destroy(layers);
            return status;
        }
        layers->count = i + 1;
    }
    return TCQ_OK;
}

static struct tcq_vectors x_of(const struct bench *bench, const struct bench_case *which)
{
    return (struct tcq_vectors){bench->call_x, TCQ_DTYPE_BF16,
                                (size_t)tcq_geometry_in(&which->geometry)};
}

enum tcq_status bench_layers_run(struct bench_layers *layers, const struct bench *bench,
                                 const struct bench_case *which, struct tcq_error *error)
{
    const struct tcq_linear *layer = layers->copies[layers->next % layers->count];
    const struct tcq_linear *other = layers->copies[(layers->next + 1) % layers->count];
    size_t out = (size_t)tcq_geometry_out(&which->geometry);
    struct tcq_vectors x = x_of(bench, which), y = {bench->call_y, TCQ_DTYPE_BF16, out};
    layers->next += which->op == BENCH_GATE_UP ? 2 : 1;
    if (which->op == BENCH_GATE_UP)
        return tcq_gate_up_forward(layer, other, which->m, &y, &x, TCQ_SWIGLU_FUSED, error);
    if (which->op == BENCH_EXPAND)
        return tcq_linear_expand(layer, bench->call_expanded, TCQ_DTYPE_BF16, x.stride, error);
    return tcq_linear_forward(layer, which->m, &y, &x, NULL, error);
}

/* The value of one output in float64, and by how much it may differ. */
struct expected {
    double value, slack;
};

static struct expected expect(const struct bench *bench, const struct bench_case *which,
                              const struct tcq_linear *layer, const uint32_t *words, bool bf16, uint32_t i, uint64_t o)
{
    const struct tcq_geometry *g = &which->geometry;
    uint64_t in = tcq_geometry_in(g);
    double sum = 0, magnitude = 0, largest = 0;
    for (uint64_t j = 0; j < in; j++) {
        uint64_t row = g->axis ? o : j, col = g->axis ? j : o;
        const uint32_t *block = words + tcq_geometry_block_offset(g, row, col / g->T);
        uint32_t state = tcq_block_state(block, g->k, g->L, g->T, (uint32_t)(col % g->T));
        double scale = (double)tcq_f16_to_f32(bench->scales[row]);
        double w = tcq_code_integer(state) / TCQ_CODE_DIVISOR * scale;
        if (bf16)
            w = (double)tcq_bf16_to_f32(
                tcq_bf16_from_f32(tcq_code_value(state) * (float)scale));
        double x = (double)tcq_bf16_to_f32(bench->x[i * in + j]);
        sum += w * x;
        magnitude += fabs(w * x);
        largest = fmax(largest, fabs(x));
    }
    double slack = ((double)in + 3) * 0x1p-24 * magnitude;
    if (which->activations == TCQ_ACTIVATIONS_INT8)
        /* half a step of at most largest/127 an input, errors adding like a random
         * walk: eight times its deviation with weights of RMS 1 * scale 2^-5 */
        slack += 8 * largest / 254 / 1.7 * sqrt((double)in) * 0x1p-5;
    if (tcq_linear_operation(layer, which->m) == TCQ_OPERATION_WIDE_INT16)
        slack += 8 * largest / 32766 / 1.7 * sqrt((double)in) * 0x1p-5; /* likewise */
    return (struct expected){sum, slack};
}

bool bench_layers_check(struct bench_layers *layers, const struct bench *bench,
                        const struct bench_case *which)
{
    if (which->op == BENCH_GATE_UP || which->op == BENCH_EXPAND)
        return true; /* made of the same kernels; tests/unit checks their joints */
    uint64_t out = tcq_geometry_out(&which->geometry);
    struct tcq_vectors x = x_of(bench, which), y = {bench->call_y, TCQ_DTYPE_F32, (size_t)out};
    struct tcq_error error;
    size_t nbytes = which->m * (size_t)out * sizeof(float);
    if (tcq_linear_forward(layers->copies[0], which->m, &y, &x, NULL, &error) != TCQ_OK ||
        (bench->gpu && bench_gpu_fetch(bench, nbytes, &error) != TCQ_OK)) {
        cli_fail(NULL, &error);
        return false;
    }
    enum tcq_operation op = tcq_linear_operation(layers->copies[0], which->m);
    bool bf16 = op == TCQ_OPERATION_WIDE || op == TCQ_OPERATION_TILED ||
                op == TCQ_OPERATION_SPLIT_K;
    for (uint64_t n = 0; n < CHECKED_OUTPUTS; n++) {
        uint32_t i = (uint32_t)(mix(n + 1) % which->m);
        uint64_t o = n == 0 ? out - 1 : mix(n + 100) % out;
        struct expected e = expect(bench, which, layers->copies[0], bench->arena, bf16, i, o);
        double got = (double)((const float *)(const void *)bench->y)[i * out + o];
        if (!(fabs(got - e.value) <= e.slack)) {
            cli_message("%s: output %d of vector %u is %.9g, float64 gives %.9g, bound %.3g",
                        tcq_linear_kernel(layers->copies[0], which->m), (int)o, i, got, e.value,
                        e.slack);
            return false;
        }
    }
    return true;
}
