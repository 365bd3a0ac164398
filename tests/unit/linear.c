/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq_linear: against float64 for every type, stride, m and numerics; the same
 * bytes for every thread count, batch, layout, form and run; refusals with their
 * reasons and untouched outputs; several threads on one layer.
 */
#include "support/layer.h"
#include "support/test.h"

#include <pthread.h>

#include "base/memory.h"
#include "kernel/reference/arithmetic.h"

static struct tcq_context *context_of(uint32_t threads)
{
    struct tcq_context *context;
    assert_int_equal(
        tcq_context_create(&(struct tcq_context_options){.threads = threads}, &context, NULL),
        TCQ_OK);
    return context;
}

static struct tcq_linear *linear_of(struct tcq_context *context, const struct tcq_tensor *tensor,
                                    const struct tcq_linear_options *options)
{
    struct tcq_linear *linear = NULL;
    struct tcq_error error = {0};
    if (tcq_linear_create(context, tensor, options, &linear, &error) != TCQ_OK)
        fail_msg("%s", error.message);
    return linear;
}

/* m vectors of `length` with odd strides and a margin that must survive. */
struct block {
    struct tcq_vectors v;
    size_t nbytes;
};

static struct block block_make(enum tcq_dtype dtype, uint64_t m, uint64_t length)
{
    struct block b = {{NULL, dtype, (size_t)length + 3}, 0};
    b.nbytes = m * b.v.stride * tcq_dtype_nbytes(dtype);
    b.v.data = malloc(b.nbytes);
    memset(b.v.data, 0xa5, b.nbytes);
    return b;
}

static float block_get(const struct block *b, uint64_t i, uint64_t j)
{
    float value;
    size_t size = tcq_dtype_nbytes(b->v.dtype);
    tcq_convert_to_f32(&value, (char *)b->v.data + (i * b->v.stride + j) * size, b->v.dtype, 1);
    return value;
}

static void block_set(struct block *b, uint64_t i, uint64_t j, float value)
{
    size_t size = tcq_dtype_nbytes(b->v.dtype);
    tcq_convert_from_f32((char *)b->v.data + (i * b->v.stride + j) * size, b->v.dtype, &value, 1);
}

static struct block x_random(struct random *r, enum tcq_dtype dtype, uint64_t m, uint64_t in)
{
    struct block x = block_make(dtype, m, in);
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < in; j++)
            block_set(&x, i, j, random_normal(r));
    return x;
}

static void assert_margins(const struct block *b, uint64_t m, uint64_t length)
{
    size_t size = tcq_dtype_nbytes(b->v.dtype);
    for (uint64_t i = 0; i < m; i++)
        for (size_t byte = length * size; byte < b->v.stride * size; byte++)
            assert_int_equal(((uint8_t *)b->v.data)[i * b->v.stride * size + byte], 0xa5);
}

/* Relative rounding step of the stored type. */
static double half_step(enum tcq_dtype dtype)
{
    return dtype == TCQ_DTYPE_BF16 ? 0x1p-8 : dtype == TCQ_DTYPE_F16 ? 0x1p-11 : 0x1p-24;
}

/* What rounding x[i] to the grid of wide-int16 may cost an output of weights w: half
 * a step, max|x|/16383 over T inputs (on axis 0 of x times scale/d), a weight. */
static double grid_slack(const struct tcq_tensor *t, const struct block *x, uint64_t i,
                         const double *w)
{
    const struct tcq_geometry *g = &t->geometry;
    uint64_t in = tcq_geometry_in(g);
    double slack = 0;
    for (uint64_t first = 0; first < in; first += g->T) {
        double largest = 0, weights = 0;
        for (uint64_t j = first; j < in && j < first + g->T; j++) {
            double factor = g->axis ? 1 : (double)layer_scale(t, j) / TCQ_CODE_DIVISOR;
            largest = fmax(largest, fabs((double)block_get(x, i, j) * factor));
            weights += fabs(w[j] / factor);
        }
        slack += 0.5001 * largest / 16383 * weights;
    }
    return slack;
}

/* y within the bound of docs/numerics.md; weights_bf16: contract bf16. */
static void assert_close(const struct tcq_tensor *t, uint64_t m, const struct block *y,
                         const struct block *x, const float *bias, bool weights_bf16, bool x_bf16,
                         bool x_grid)
{
    uint64_t in = tcq_geometry_in(&t->geometry), out = tcq_geometry_out(&t->geometry);
    double *w = malloc(in * sizeof *w);
    for (uint64_t o = 0; o < out; o++) {
        for (uint64_t j = 0; j < in; j++) {
            w[j] = layer_weight(t, o, j);
            if (weights_bf16) {
                uint64_t row = t->geometry.axis ? o : j, col = t->geometry.axis ? j : o;
                w[j] = tcq_bf16_to_f32(tcq_weight_bf16(layer_y(t, row, col), layer_scale(t, row)));
            }
        }
        for (uint64_t i = 0; i < m; i++) {
            double sum = bias ? (double)bias[o] : 0, magnitude = fabs(sum), got;
            for (uint64_t j = 0; j < in; j++) {
                float v = block_get(x, i, j);
                double term = w[j] * (double)(x_bf16 ? tcq_round_to(TCQ_DTYPE_BF16, v) : v);
                sum += term;
                magnitude += fabs(term);
            }
            got = (double)block_get(y, i, o);
            double bound = (double)in * 0x1p-24 * magnitude + half_step(y->v.dtype) * fabs(sum) +
                           (y->v.dtype == TCQ_DTYPE_F16 ? 0x1p-25 : 0);
            bound += x_grid ? grid_slack(t, x, i, w) : 0;
            if (!(fabs(got - sum) <= bound))
                fail_msg("y[%d][%d] = %.9g, float64 %.9g, bound %.3g", (int)i, (int)o, got, sum,
                         bound);
        }
    }
    free(w);
}

static const struct tcq_geometry shapes[] = {
    {3, 12, 256, 1, 0, 40, 768},  {2, 12, 128, 1, 0, 17, 384}, {4, 12, 64, 1, 0, 9, 192},
    {3, 12, 256, 0, 0, 300, 512}, {3, 12, 256, 0, 1, 77, 512}, {2, 12, 128, 0, 0, 64, 384},
    {6, 16, 64, 0, 0, 130, 64},   {1, 8, 64, 1, 0, 3, 64},     {5, 14, 256, 1, 0, 8, 256},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void forward_is_within_its_bound(void **state)
{
    (void)state;
    static const uint64_t ms[] = {1, 3, 5, 9, 33, 40};
    static const enum tcq_dtype types[] = {TCQ_DTYPE_F32, TCQ_DTYPE_BF16, TCQ_DTYPE_F16};
    struct random r = random_start("forward", 21);
    struct tcq_context *context = context_of(2);
    for (int s = 0; s < SHAPES; s++) {
        struct layer layer = layer_random(&r, shapes[s]);
        uint64_t in = tcq_geometry_in(&shapes[s]), out = tcq_geometry_out(&shapes[s]);
        float *bias = malloc(out * sizeof *bias);
        for (uint64_t o = 0; o < out; o++)
            bias[o] = random_normal(&r);
        for (int n = TCQ_NUMERICS_FAST; n <= TCQ_NUMERICS_REFERENCE; n++) {
            struct tcq_linear_options options = {.numerics = (enum tcq_numerics)n};
            struct tcq_linear *linear = linear_of(context, &layer.tensor, &options);
            for (size_t i = 0; i < 6; i++) {
                enum tcq_dtype xt = types[i % 3], yt = types[(i + (size_t)s) % 3];
                struct block x = x_random(&r, xt, ms[i], in), y = block_make(yt, ms[i], out);
                const float *b = i % 2 ? bias : NULL;
                assert_int_equal(tcq_linear_forward(linear, ms[i], &y.v, &x.v, b, NULL), TCQ_OK);
                enum tcq_operation op = tcq_linear_operation(linear, ms[i]);
                bool bf16 = op == TCQ_OPERATION_WIDE || op == TCQ_OPERATION_TILED ||
                            op == TCQ_OPERATION_SPLIT_K;
                assert_close(&layer.tensor, ms[i], &y, &x, b, bf16,
                             op == TCQ_OPERATION_WIDE && n == TCQ_NUMERICS_FAST,
                             op == TCQ_OPERATION_WIDE_INT16);
                assert_margins(&y, ms[i], out);
                free(x.v.data), free(y.v.data);
            }
            tcq_linear_destroy(linear);
        }
        free(bias);
        layer_free(&layer);
    }
    tcq_context_destroy(context);
}

static void wide_works_in_tiles(void **state)
{
    (void)state;
    struct random r = random_start("wide tiles", 22);
    static const struct tcq_geometry large[] = {{3, 12, 256, 1, 0, 300, 1280},
                                                {3, 12, 256, 0, 1, 1100, 512}};
    struct tcq_context *context = context_of(2);
    struct tcq_linear_options options = {.operation = TCQ_OPERATION_WIDE};
    for (int s = 0; s < 2; s++) {
        struct layer layer = layer_random(&r, large[s]);
        uint64_t in = tcq_geometry_in(&large[s]), out = tcq_geometry_out(&large[s]), m = 3;
        struct tcq_linear *linear = linear_of(context, &layer.tensor, &options);
        struct block x = x_random(&r, TCQ_DTYPE_F32, m, in), y = block_make(TCQ_DTYPE_F32, m, out);
        assert_int_equal(tcq_linear_forward(linear, m, &y.v, &x.v, NULL, NULL), TCQ_OK);
        assert_close(&layer.tensor, m, &y, &x, NULL, true, true, false);
        free(x.v.data), free(y.v.data);
        tcq_linear_destroy(linear);
        layer_free(&layer);
    }
    tcq_context_destroy(context);
}

/* y of one run, as bytes to compare. */
static struct block run(struct tcq_context *context, const struct tcq_tensor *tensor,
                        const struct tcq_linear_options *options, uint64_t m, const struct block *x)
{
    struct tcq_linear *linear = linear_of(context, tensor, options);
    struct block y = block_make(TCQ_DTYPE_F32, m, tcq_geometry_out(&tensor->geometry));
    assert_int_equal(tcq_linear_forward(linear, m, &y.v, &x->v, NULL, NULL), TCQ_OK);
    tcq_linear_destroy(linear);
    return y;
}

static void same_bytes_for_every_thread_count(void **state)
{
    (void)state;
    struct random r = random_start("threads", 23);
    static const struct tcq_geometry large[] = {
        {3, 12, 256, 1, 0, 530, 512}, {3, 12, 256, 0, 0, 9000, 512}, {2, 12, 64, 0, 0, 300, 640}};
    static const uint64_t ms[] = {1, 4, 7, 32, 45};
    struct tcq_context *contexts[9];
    for (uint32_t threads = 1; threads <= 8; threads++)
        contexts[threads] = context_of(threads);
    for (int s = 0; s < 3; s++) {
        struct layer layer = layer_random(&r, large[s]);
        struct block x = x_random(&r, TCQ_DTYPE_BF16, 45, tcq_geometry_in(&large[s]));
        for (int variant = 0; variant < 3; variant++) {
            struct tcq_linear_options options = {0};
            options.numerics = variant == 1 ? TCQ_NUMERICS_REFERENCE : TCQ_NUMERICS_FAST;
            options.activations = variant == 2 ? TCQ_ACTIVATIONS_INT8 : TCQ_ACTIVATIONS_FLOAT;
            for (int i = 0; i < 5; i++) {
                if (variant == 1 && s == 1 && i > 1)
                    continue; /* slow, and the smaller shapes cover it */
                struct block first = {{0}, 0};
                /* the large shape, whose rows are split, takes only some counts */
                for (uint32_t threads = 1; threads <= 8; threads += s == 1 && threads > 1 ? 3 : 1) {
                    struct block y = run(contexts[threads], &layer.tensor, &options, ms[i], &x);
                    if (threads == 1) {
                        first = y;
                    } else {
                        assert_memory_equal(first.v.data, y.v.data, y.nbytes);
                        free(y.v.data);
                    }
                }
                free(first.v.data);
            }
        }
        free(x.v.data);
        layer_free(&layer);
    }
    for (uint32_t threads = 1; threads <= 8; threads++)
        tcq_context_destroy(contexts[threads]);
}

static void a_vector_does_not_feel_its_batch(void **state)
{
    (void)state;
    struct random r = random_start("batch", 24);
    struct tcq_context *context = context_of(2);
    for (int s = 0; s < SHAPES; s++) {
        struct layer layer = layer_random(&r, shapes[s]);
        uint64_t in = tcq_geometry_in(&shapes[s]), out = tcq_geometry_out(&shapes[s]);
        struct block x = x_random(&r, TCQ_DTYPE_F32, 32, in);
        for (int a = TCQ_ACTIVATIONS_FLOAT; a <= TCQ_ACTIVATIONS_INT8; a++) {
            struct tcq_linear_options options = {.activations = (enum tcq_activations)a};
            struct block all = run(context, &layer.tensor, &options, 32, &x);
            for (uint64_t m = 1; m < 32; m++) {
                uint64_t first = random_below(&r, (uint32_t)(33 - m));
                struct block part = x;
                part.v.data = (float *)x.v.data + first * x.v.stride;
                struct block y = run(context, &layer.tensor, &options, m, &part);
                for (uint64_t i = 0; i < m; i++)
                    assert_memory_equal((float *)y.v.data + i * y.v.stride,
                                        (float *)all.v.data + (first + i) * all.v.stride,
                                        out * sizeof(float));
                free(y.v.data);
            }
            free(all.v.data);
        }
        free(x.v.data);
        layer_free(&layer);
    }
    tcq_context_destroy(context);
}

static void layouts_forms_and_runs_agree(void **state)
{
    (void)state;
    struct random r = random_start("layouts", 25);
    struct tcq_context *context = context_of(2);
    struct layer layer = layer_random(&r, (struct tcq_geometry){3, 12, 256, 0, 0, 333, 1024});
    struct tcq_tensor woven = layer.tensor;
    uint32_t *words = malloc(tcq_geometry_words(&layer.tensor.geometry) * 4);
    assert_int_equal(tcq_words_interleave(words, layer.words, &layer.tensor.geometry), TCQ_OK);
    woven.words = words;
    woven.geometry.layout = TCQ_LAYOUT_INTERLEAVED;
    struct block x = x_random(&r, TCQ_DTYPE_BF16, 40, 333);
    static const struct {
        struct tcq_linear_options options;
        uint64_t m;
        int group; /* the same bytes within a group */
    } cases[] = {
        {{.numerics = 1, .operation = TCQ_OPERATION_SCATTER}, 4, 0},
        {{.numerics = 1, .operation = TCQ_OPERATION_SCATTER_BALANCED}, 4, 0},
        {{.numerics = 1, .operation = TCQ_OPERATION_SCATTER_TABLE}, 4, 0},
        {{.numerics = 1}, 4, 0},
        {{.numerics = 1}, 8, 1},
        {{.numerics = 1, .operation = TCQ_OPERATION_SPLIT_K}, 8, 1},
        {{.numerics = 1}, 40, 2},
        {{.numerics = 0}, 5, 3},
        {{.numerics = 0, .operation = TCQ_OPERATION_SMALL}, 5, 3},
        {{.numerics = 0, .activations = 1}, 5, 4},
        {{.numerics = 0}, 40, 5},
    };
    struct block first = {{0}, 0};
    int group = -1;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int i = 0; i < 4; i++) {
            struct block y =
                run(context, i & 1 ? &woven : &layer.tensor, &cases[c].options, cases[c].m, &x);
            if (cases[c].group != group) {
                free(first.v.data);
                first = y;
                group = cases[c].group;
                continue;
            }
            assert_memory_equal(first.v.data, y.v.data, y.nbytes);
            free(y.v.data);
        }
    free(first.v.data), free(x.v.data), free(words);
    layer_free(&layer);
    tcq_context_destroy(context);
}

/* The step of a group is its largest |x| / 127, so an input is off by at most
 * half of that. */
static void int8_activations_keep_their_bound(void **state)
{
    (void)state;
    struct random r = random_start("int8", 26);
    struct tcq_context *context = context_of(2);
    struct tcq_linear_options options = {.activations = TCQ_ACTIVATIONS_INT8};
    for (int s = 0; s < SHAPES; s++) {
        const struct tcq_geometry *g = &shapes[s];
        struct layer layer = layer_random(&r, *g);
        uint64_t in = tcq_geometry_in(g), out = tcq_geometry_out(g), m = 6;
        struct block x = x_random(&r, TCQ_DTYPE_F32, m, in);
        struct block y = run(context, &layer.tensor, &options, m, &x);
        for (uint64_t i = 0; i < m; i++)
            for (uint64_t o = 0; o < out; o++) {
                double sum = 0, bound = 0;
                for (uint64_t first = 0; first < in; first += g->T) {
                    uint64_t end = in - first < g->T ? in : first + g->T;
                    double largest = 0, integers = 0, weights = 0;
                    for (uint64_t j = first; j < end; j++) {
                        double v = (double)block_get(&x, i, j),
                               w = layer_weight(&layer.tensor, o, j);
                        uint64_t row = g->axis ? o : j;
                        double factor = (double)layer_scale(&layer.tensor, row) / TCQ_CODE_DIVISOR;
                        double scaled = g->axis ? fabs(v) : fabs(v * factor);
                        largest = scaled > largest ? scaled : largest;
                        integers += fabs(w / factor);
                        weights += fabs(w);
                        sum += v * w;
                    }
                    bound += largest / 254 * (g->axis ? weights : integers);
                }
                assert_true(fabs((double)block_get(&y, i, o) - sum) <= bound * (1 + 1e-4) + 1e-12);
            }
        free(x.v.data), free(y.v.data);
        layer_free(&layer);
    }
    tcq_context_destroy(context);
}

static void non_finite_inputs_propagate(void **state)
{
    (void)state;
    struct random r = random_start("non-finite", 27);
    struct tcq_context *context = context_of(1);
    for (int s = 0; s < SHAPES; s++) {
        struct layer layer = layer_random(&r, shapes[s]);
        uint64_t in = tcq_geometry_in(&shapes[s]), out = tcq_geometry_out(&shapes[s]);
        for (int variant = 0; variant < 3; variant++) {
            struct tcq_linear_options options = {.numerics = variant == 1,
                                                 .activations = variant == 2};
            struct block x = x_random(&r, TCQ_DTYPE_F32, 3, in);
            block_set(&x, 0, in / 2, NAN);
            block_set(&x, 1, in - 1, -INFINITY);
            struct block y = run(context, &layer.tensor, &options, 3, &x);
            for (uint64_t o = 0; o < out; o++) {
                assert_true(isnan(block_get(&y, 0, o)));
                assert_true(!isfinite(block_get(&y, 1, o)));
                assert_true(isfinite(block_get(&y, 2, o)));
            }
            free(x.v.data), free(y.v.data);
        }
        layer_free(&layer);
    }
    tcq_context_destroy(context);
}

static void gate_up_is_two_layers_and_a_tail(void **state)
{
    (void)state;
    struct random r = random_start("gate/up", 28);
    struct tcq_context *context = context_of(2);
    static const uint64_t ms[] = {1, 4, 8, 33, 70};
    static const enum tcq_dtype types[] = {TCQ_DTYPE_BF16, TCQ_DTYPE_F32, TCQ_DTYPE_F16};
    for (uint32_t pair = 0; pair < 3; pair++) {
        struct layer g = layer_random(&r, (struct tcq_geometry){2 + pair, 12, 256, 1, 0, 300, 512});
        struct layer u =
            layer_random(&r, (struct tcq_geometry){pair == 1 ? 3 : 4, 12, pair == 2 ? 128 : 256, 1,
                                                   0, 300, 512});
        for (int n = 0; n < 3; n++)
            for (int i = 0; i < 5; i++) {
                uint64_t m = ms[i];
                struct tcq_linear_options options = {.numerics = n == 1, .activations = n == 2};
                struct tcq_linear *gate = linear_of(context, &g.tensor, &options);
                struct tcq_linear *up = linear_of(context, &u.tensor, &options);
                struct block x = x_random(&r, TCQ_DTYPE_BF16, m, 512);
                struct block yg = run(context, &g.tensor, &options, m, &x);
                struct block yu = run(context, &u.tensor, &options, m, &x);
                enum tcq_dtype type = types[(i + n) % 3];
                struct block mid = block_make(type, m, 300);
                for (int tail = TCQ_SWIGLU_FUSED; tail <= TCQ_SWIGLU_SPLIT; tail++) {
                    assert_int_equal(
                        tcq_gate_up_forward(gate, up, m, &mid.v, &x.v, (enum tcq_swiglu)tail, NULL),
                        TCQ_OK);
                    for (uint64_t v = 0; v < m; v++)
                        for (uint64_t o = 0; o < 300; o++) {
                            float expected =
                                tcq_swiglu_tail(type, (enum tcq_swiglu)tail, block_get(&yg, v, o),
                                                block_get(&yu, v, o));
                            float got = block_get(&mid, v, o);
                            assert_memory_equal(&got, &expected, sizeof got);
                        }
                    assert_margins(&mid, m, 300);
                }
                free(x.v.data), free(yg.v.data), free(yu.v.data), free(mid.v.data);
                tcq_linear_destroy(gate);
                tcq_linear_destroy(up);
            }
        layer_free(&g);
        layer_free(&u);
    }
    tcq_context_destroy(context);
}

static void expand_is_the_dense_matrix(void **state)
{
    (void)state;
    struct random r = random_start("expand", 29);
    struct tcq_context *context = context_of(2);
    for (int s = 0; s < SHAPES; s++) {
        struct layer layer = layer_random(&r, shapes[s]);
        uint64_t in = tcq_geometry_in(&shapes[s]), out = tcq_geometry_out(&shapes[s]);
        struct tcq_linear *linear = linear_of(context, &layer.tensor, NULL);
        struct block f32 = block_make(TCQ_DTYPE_F32, out, in),
                     b16 = block_make(TCQ_DTYPE_BF16, out, in);
        assert_int_equal(tcq_linear_expand(linear, f32.v.data, TCQ_DTYPE_F32, f32.v.stride, NULL),
                         TCQ_OK);
        assert_int_equal(tcq_linear_expand(linear, b16.v.data, TCQ_DTYPE_BF16, b16.v.stride, NULL),
                         TCQ_OK);
        for (uint64_t o = 0; o < out; o++)
            for (uint64_t j = 0; j < in; j++) {
                uint64_t row = shapes[s].axis ? o : j, col = shapes[s].axis ? j : o;
                float expected = (float)(layer_y(&layer.tensor, row, col) / TCQ_CODE_DIVISOR) *
                                 layer_scale(&layer.tensor, row);
                float got = block_get(&f32, o, j), rounded = block_get(&b16, o, j);
                assert_memory_equal(&got, &expected, sizeof got);
                expected = tcq_round_to(TCQ_DTYPE_BF16, expected);
                assert_memory_equal(&rounded, &expected, sizeof got);
            }
        assert_margins(&f32, out, in);
        assert_margins(&b16, out, in);
        free(f32.v.data), free(b16.v.data);
        tcq_linear_destroy(linear);
        layer_free(&layer);
    }
    tcq_context_destroy(context);
}

struct worker {
    const struct tcq_linear *linear;
    const struct block *x;
    struct block y;
    uint64_t m;
    pthread_t thread;
};

static void *work(void *argument)
{
    struct worker *w = argument;
    for (int i = 0; i < 5; i++)
        if (tcq_linear_forward(w->linear, w->m, &w->y.v, &w->x->v, NULL, NULL) != TCQ_OK)
            return w;
    return NULL;
}

static void several_threads_share_a_layer(void **state)
{
    (void)state;
    enum { WORKERS = 4 };
    struct random r = random_start("sharing", 30);
    for (int s = 0; s < 6; s += 3) {
        struct layer layer = layer_random(&r, shapes[s]);
        uint64_t in = tcq_geometry_in(&shapes[s]), out = tcq_geometry_out(&shapes[s]);
        struct tcq_context *context = context_of(2);
        struct tcq_linear *linear = linear_of(context, &layer.tensor, NULL);
        struct block x = x_random(&r, TCQ_DTYPE_BF16, 40, in);
        struct worker workers[WORKERS];
        for (int i = 0; i < WORKERS; i++) {
            uint64_t m = i % 2 ? 3 : 40;
            workers[i] = (struct worker){linear, &x, block_make(TCQ_DTYPE_F32, m, out), m, 0};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        }
        struct tcq_linear *another = linear_of(context, &layer.tensor, NULL); /* meanwhile */
        for (int i = 0; i < WORKERS; i++) {
            void *failed;
            pthread_join(workers[i].thread, &failed);
            assert_null(failed);
            struct block alone = run(context, &layer.tensor, NULL, workers[i].m, &x);
            assert_memory_equal(alone.v.data, workers[i].y.v.data, alone.nbytes);
            free(alone.v.data), free(workers[i].y.v.data);
        }
        tcq_linear_destroy(another);
        tcq_linear_destroy(linear);
        tcq_context_destroy(context);
        free(x.v.data);
        layer_free(&layer);
    }
}

static void refuses(struct tcq_context *context, const struct tcq_tensor *tensor,
                    struct tcq_linear_options options, enum tcq_status status, const char *words)
{
    struct tcq_linear *linear = NULL;
    struct tcq_error error;
    assert_int_equal(tcq_linear_create(context, tensor, &options, &linear, &error), status);
    assert_null(linear);
    if (!strstr(error.message, words))
        fail_msg("'%s' does not say '%s'", error.message, words);
}

static void creation_refuses_with_reasons(void **state)
{
    (void)state;
    struct random r = {31};
    struct tcq_context *context = context_of(1);
    struct layer gate = layer_random(&r, (struct tcq_geometry){3, 12, 256, 1, 0, 8, 256});
    struct layer down = layer_random(&r, (struct tcq_geometry){2, 12, 256, 0, 0, 100, 256});
    const struct tcq_tensor *g = &gate.tensor, *d = &down.tensor;
    enum tcq_status no = TCQ_ERROR_UNSUPPORTED;
#define OPTIONS(...) ((struct tcq_linear_options){__VA_ARGS__})
    refuses(context, g, OPTIONS(.operation = TCQ_OPERATION_REDUCE), no, "reference numerics");
    refuses(context, g, OPTIONS(.numerics = 1, .operation = TCQ_OPERATION_SMALL), no,
            "fast numerics");
    refuses(context, g, OPTIONS(.numerics = 1, .operation = TCQ_OPERATION_SCATTER), no, "axis 0");
    refuses(context, d, OPTIONS(.numerics = 1, .operation = TCQ_OPERATION_TILED), no, "axis 1");
    refuses(context, d, OPTIONS(.numerics = 1, .operation = TCQ_OPERATION_SPLIT_K), no,
            "at least 128 inputs, given 100");
    refuses(context, d, OPTIONS(.numerics = 1, .operation = TCQ_OPERATION_SCATTER_TABLE), no,
            "k = 3");
    refuses(context, g, OPTIONS(.numerics = 1, .activations = 1), no, "fast numerics");
    refuses(context, g, OPTIONS(.operation = TCQ_OPERATION_WIDE, .activations = 1), no, "small");
    refuses(context, g, OPTIONS(.operation = TCQ_OPERATION_COUNT), TCQ_ERROR_ARGUMENT, "unknown");
    refuses(context, g, OPTIONS(.numerics = 2), TCQ_ERROR_ARGUMENT, "numerics");
    refuses(context, g, OPTIONS(.activations = 2), TCQ_ERROR_ARGUMENT, "activations");
    refuses(NULL, g, OPTIONS(0), TCQ_ERROR_ARGUMENT, "context is NULL");
    refuses(context, NULL, OPTIONS(0), TCQ_ERROR_ARGUMENT, "tensor is NULL");
    struct tcq_tensor bad = gate.tensor;
    bad.geometry.k = 7;
    refuses(context, &bad, OPTIONS(0), TCQ_ERROR_GEOMETRY, "k = 7");
    assert_int_equal(tcq_linear_create(context, g, NULL, NULL, NULL), TCQ_ERROR_ARGUMENT);
    layer_free(&gate);
    layer_free(&down);
    tcq_context_destroy(context);
}

/* One call that must fail with y untouched. */
static void rejects(const struct tcq_linear *linear, uint64_t m, struct tcq_vectors *y,
                    struct tcq_vectors *x, const float *bias, const char *words)
{
    struct tcq_error error;
    uint8_t before[64], *bytes = y && y->data ? y->data : NULL;
    if (bytes)
        memcpy(before, bytes, sizeof before);
    enum tcq_status status = tcq_linear_forward(linear, m, y, x, bias, &error);
    assert_int_not_equal(status, TCQ_OK);
    assert_int_equal(error.status, status);
    if (!strstr(error.message, words))
        fail_msg("'%s' does not say '%s'", error.message, words);
    if (bytes)
        assert_memory_equal(before, bytes, sizeof before);
}

static void forward_rejects_bad_arguments(void **state)
{
    (void)state;
    struct random r = {32};
    struct tcq_context *context = context_of(1);
    struct layer layer = layer_random(&r, (struct tcq_geometry){3, 12, 256, 1, 0, 64, 256});
    struct tcq_linear *linear = linear_of(context, &layer.tensor, NULL);
    struct block x = x_random(&r, TCQ_DTYPE_F32, 40, 256), y = block_make(TCQ_DTYPE_F32, 40, 64);
    struct tcq_vectors v;
    rejects(NULL, 1, &y.v, &x.v, NULL, "linear is NULL");
    rejects(linear, 0, &y.v, &x.v, NULL, "m = 0");
    rejects(linear, 1, NULL, &x.v, NULL, "y is NULL");
    rejects(linear, 1, &y.v, NULL, NULL, "x is NULL");
    v = x.v, v.dtype = TCQ_DTYPE_F64;
    rejects(linear, 1, &y.v, &v, NULL, "F64");
    v = x.v, v.stride = 255;
    rejects(linear, 1, &y.v, &v, NULL, "stride 255");
    v = y.v, v.stride = 63;
    rejects(linear, 1, &v, &x.v, NULL, "stride 63");
    v = x.v, v.data = (char *)x.v.data + 2;
    rejects(linear, 1, &y.v, &v, NULL, "aligned");
    rejects(linear, 1, &x.v, &x.v, NULL, "overlap");
    v = x.v, v.data = (float *)y.v.data + 63;
    rejects(linear, 1, &y.v, &v, NULL, "overlap");
    rejects(linear, 1, &y.v, &x.v, (float *)y.v.data, "overlap");
    rejects(linear, UINT64_MAX / 8, &y.v, &x.v, NULL, "overflow");
    rejects(linear, 1, &y.v, &x.v, (float *)(void *)((char *)x.v.data + 1), "aligned");
    assert_string_equal(tcq_linear_kernel(linear, 0), "none");

    struct tcq_linear_options options = {.numerics = 1, .operation = TCQ_OPERATION_REDUCE};
    struct tcq_linear *reduce = linear_of(context, &layer.tensor, &options);
    rejects(reduce, 5, &y.v, &x.v, NULL, "serves 1..4 vectors, given 5");
    assert_int_equal(tcq_linear_operation(reduce, 5), TCQ_OPERATION_AUTO);
    assert_int_equal(tcq_gate_up_forward(linear, reduce, 1, &y.v, &x.v, 0, NULL),
                     TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_gate_up_forward(linear, NULL, 1, &y.v, &x.v, 0, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_gate_up_forward(linear, linear, 1, &y.v, &x.v, 2, NULL),
                     TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_linear_expand(linear, y.v.data, TCQ_DTYPE_F16, 256, NULL),
                     TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_linear_expand(linear, y.v.data, TCQ_DTYPE_F32, 255, NULL),
                     TCQ_ERROR_ARGUMENT);
    tcq_linear_destroy(reduce);
    tcq_linear_destroy(linear);
    tcq_linear_destroy(NULL);
    free(x.v.data), free(y.v.data);
    layer_free(&layer);
    tcq_context_destroy(context);
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    struct random r = {33};
    struct layer layer = layer_random(&r, (struct tcq_geometry){3, 12, 256, 0, 0, 64, 256});
    struct tcq_linear_options options = {.numerics = 1, .operation = TCQ_OPERATION_SCATTER_TABLE};
    for (long after = 0;; after++) {
        struct tcq_context *context = context_of(1);
        struct tcq_linear *linear = NULL;
        tcq_alloc_fail_after(after);
        enum tcq_status status = tcq_linear_create(context, &layer.tensor, &options, &linear, NULL);
        tcq_alloc_fail_after(-1);
        assert_int_equal(status, after < 3 ? TCQ_ERROR_MEMORY : TCQ_OK);
        if (status == TCQ_OK) {
            /* calls allocate nothing */
            struct block x = x_random(&r, TCQ_DTYPE_F16, 2, 64);
            struct block y = block_make(TCQ_DTYPE_F16, 2, 256);
            tcq_alloc_fail_after(0);
            assert_int_equal(tcq_linear_forward(linear, 2, &y.v, &x.v, NULL, NULL), TCQ_OK);
            tcq_alloc_fail_after(-1);
            assert_true(tcq_linear_nbytes(linear) >= 4096 * sizeof(int16_t));
            assert_true(tcq_linear_scratch_nbytes(linear) > 0);
            free(x.v.data), free(y.v.data);
            tcq_linear_destroy(linear);
        }
        tcq_context_destroy(context);
        if (status == TCQ_OK)
            break;
    }
    layer_free(&layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_within_its_bound),
        cmocka_unit_test(wide_works_in_tiles),
        cmocka_unit_test(same_bytes_for_every_thread_count),
        cmocka_unit_test(a_vector_does_not_feel_its_batch),
        cmocka_unit_test(layouts_forms_and_runs_agree),
        cmocka_unit_test(int8_activations_keep_their_bound),
        cmocka_unit_test(non_finite_inputs_propagate),
        cmocka_unit_test(gate_up_is_two_layers_and_a_tail),
        cmocka_unit_test(expand_is_the_dense_matrix),
        cmocka_unit_test(several_threads_share_a_layer),
        cmocka_unit_test(creation_refuses_with_reasons),
        cmocka_unit_test(forward_rejects_bad_arguments),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
