/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small-batch kernels against float64: every k, L, T and layout, rows and columns
 * round the tiles, m 1..32, values of every kind; the same bytes whatever the
 * batch and the ranges; nothing touched beyond the arrays.
 */
#include "check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/exact.h"
#include "support/layer.h"

enum values { RANDOM, ZEROS, LARGE, DENORMAL, NON_FINITE, MOD_251, VALUES_COUNT };

static const char *const value_names[] = {"random",  "zeros",      "large",
                                          "denormal", "non-finite", "i mod 251"};

/* One layer, its vectors and their products in float64. */
struct fixture {
    struct check *check;
    const struct tcq_small_kernel *kernel;
    struct tcq_tensor tensor;
    struct guarded words, scales, x;
    size_t x_stride;
    uint32_t m;
    uint64_t in, out;
    struct tcq_range rows; /* axis 0: the stored rows that are summed over */
    bool int8;
    double *y, *slack; /* [m][out] */
    float *first;      /* [m][out]: the bytes that every run must repeat */
    bool *seen;        /* [m] */
};

static float draw_x(struct random *r, enum values values, uint64_t vector, uint64_t i)
{
    switch (values) {
    case ZEROS:
        return i & 1 ? 0.0f : -0.0f;
    case LARGE: /* sums stay below 2^128: 2^90 * 2^18 (weights) * 2^12 (terms) */
        return random_u64(r) & 1 ? 0x1p90f : -0x1p90f;
    case DENORMAL:
        return 0x1p-140f * random_normal(r);
    case NON_FINITE:
        if (vector == 0 && i == 0)
            return NAN;
        if (vector == 1 && i == 0)
            return -INFINITY;
        return random_normal(r);
    case MOD_251:
        return (float)(i % 251);
    default:
        return random_normal(r);
    }
}

static uint16_t draw_scale(struct random *r, enum values values)
{
    uint64_t bits = random_u64(r);
    if (values == LARGE) /* the extremes of binary16, subnormal too */
        return (uint16_t)((bits & 1 ? 0x7bffu : 0x0001u) | (bits & 2 ? 0x8000u : 0));
    if (values == ZEROS && bits & 1)
        return 0;
    return tcq_f16_from_f32(0.015625f * random_normal(r));
}

static void draw(struct fixture *f, struct random *r, enum values values)
{
    uint32_t *words = f->words.data;
    uint16_t *scales = f->scales.data;
    for (size_t i = 0; i < f->words.nbytes / 4; i++)
        words[i] = values == MOD_251 ? (uint32_t)(i % 251) * 0x01010101u
                                     : (uint32_t)(random_u64(r) >> 32);
    for (uint64_t i = 0; i < f->tensor.geometry.rows; i++)
        scales[i] = draw_scale(r, values);
    for (uint32_t v = 0; v < f->m; v++)
        for (uint64_t i = 0; i < f->in; i++)
            ((float *)f->x.data)[v * f->x_stride + i] = draw_x(r, values, v, i);
}

static const float *x_of(const struct fixture *f, uint32_t v)
{
    return (const float *)f->x.data + v * f->x_stride;
}

static double factor(const struct fixture *f, uint64_t row)
{
    return (double)layer_scale(&f->tensor, row) / TCQ_CODE_DIVISOR;
}

/* x of vector v as it enters the product, with scale/d on axis 0; with int8
 * activations rounded to their grid. */
static void effective_x(const struct fixture *f, uint32_t v, double *to)
{
    const struct tcq_geometry *g = &f->tensor.geometry;
    const float *x = x_of(f, v);
    for (uint64_t first = 0; first < f->in; first += g->T) {
        uint64_t count = f->in - first < g->T ? f->in - first : g->T;
        float scaled[256];
        int8_t q[256];
        for (uint64_t j = 0; j < count; j++) {
            to[first + j] = (double)x[first + j] * (g->axis ? 1.0 : factor(f, first + j));
            scaled[j] = g->axis ? x[first + j]
                                : x[first + j] * tcq_exact_factor(&f->tensor, first + j);
        }
        if (!f->int8)
            continue;
        float step = tcq_quantize_int8(q, scaled, count);
        for (uint64_t j = 0; j < count; j++)
            to[first + j] = (double)q[j] * (double)step;
    }
}

/* y and its bound: (terms + 3) * 2^-24 * sum |w x|, three more roundings for
 * scale/d and its product; plus what underflow loses of each term. */
static void oracle(struct fixture *f)
{
    const struct tcq_geometry *g = &f->tensor.geometry;
    uint64_t begin = g->axis ? 0 : f->rows.begin, end = g->axis ? f->in : f->rows.end;
    int16_t *w = malloc(g->rows * g->cols * sizeof *w);
    double *x = malloc(f->in * sizeof *x);
    for (uint64_t r = 0; r < g->rows; r++)
        for (uint64_t c = 0; c < g->cols; c++)
            w[r * g->cols + c] = (int16_t)layer_y(&f->tensor, r, c);
    for (uint32_t v = 0; v < f->m; v++) {
        effective_x(f, v, x);
        for (uint64_t o = 0; o < f->out; o++) {
            double sum = 0, magnitude = 0;
            for (uint64_t i = begin; i < end; i++) {
                double term = x[i] * (double)(g->axis ? w[o * g->cols + i] : w[i * g->cols + o]);
                sum += term;
                magnitude += fabs(term);
            }
            double times = g->axis ? factor(f, o) : 1.0, terms = (double)(end - begin);
            f->y[v * f->out + o] = sum * times;
            f->slack[v * f->out + o] = (terms + 3) * 0x1p-24 * magnitude * fabs(times) +
                                       terms * 510 * 0x1p-149 * (1 + fabs(times));
        }
    }
    free(w);
    free(x);
}

static struct fixture fixture_make(struct check *check, struct random *r, struct tcq_geometry g,
                                   uint32_t m, enum values values, struct tcq_range rows)
{
    struct fixture f = {.check = check, .kernel = check->variant->kernel.small, .m = m};
    f.tensor.geometry = g;
    f.in = tcq_geometry_in(&g);
    f.out = tcq_geometry_out(&g);
    f.rows = rows;
    f.int8 = check->variant->op == TCQ_KERNEL_REDUCE_INT8 ||
             check->variant->op == TCQ_KERNEL_SCATTER_INT8;
    f.x_stride = (size_t)f.in + random_below(r, 4);
    enum guard_side side = random_u64(r) & 1 ? GUARD_END : GUARD_BEGIN;
    f.words = guarded_make(tcq_geometry_words(&g) * 4, 4, side);
    f.scales = guarded_make((size_t)g.rows * 2, 2, side);
    f.x = guarded_make(((m - 1) * f.x_stride + (size_t)f.in) * sizeof(float), 4, side);
    f.tensor.words = f.words.data;
    f.tensor.scales = f.scales.data;
    f.y = malloc(m * f.out * sizeof *f.y);
    f.slack = malloc(m * f.out * sizeof *f.slack);
    f.first = malloc(m * f.out * sizeof *f.first);
    f.seen = calloc(m, sizeof *f.seen);
    draw(&f, r, values);
    oracle(&f);
    return f;
}

static void fixture_free(struct fixture *f)
{
    guarded_free(&f->words);
    guarded_free(&f->scales);
    guarded_free(&f->x);
    free(f->y);
    free(f->slack);
    free(f->first);
    free(f->seen);
}

/* Calls of prepare and run, with the inputs and the outputs (axis 1: rows,
 * axis 0: blocks) in two parts, the second one first. */
struct call {
    const struct fixture *f;
    uint32_t v0; /* the first of the vectors */
    struct tcq_product product;
    void *prepared;
    uint64_t input_cut, output_cut;
};

static void make_call(void *argument)
{
    const struct call *c = argument;
    const struct fixture *f = c->f;
    const struct tcq_geometry *g = &f->tensor.geometry;
    uint64_t blocks = g->cols / g->T;
    struct tcq_range in[] = {{c->input_cut, f->in}, {0, c->input_cut}};
    struct tcq_range out[] = {{c->output_cut, g->axis ? g->rows : blocks}, {0, c->output_cut}};
    for (int i = 0; i < 2; i++)
        if (in[i].begin < in[i].end)
            f->kernel->prepare(c->prepared, &f->tensor, c->product.m, x_of(f, c->v0), f->x_stride,
                               in[i]);
    for (int i = 0; i < 2; i++)
        if (out[i].begin < out[i].end)
            f->kernel->run(&c->product, g->axis ? out[i] : f->rows,
                           g->axis ? (struct tcq_range){0, blocks} : out[i]);
}

static bool close_enough(double got, double wanted, double slack)
{
    if (isnan(wanted))
        return isnan(got);
    if (isinf(wanted))
        return !isfinite(got); /* infinity times a weight of zero is NaN on the way */
    return fabs(got - wanted) <= slack;
}

static void compare(struct fixture *f, const float *y, size_t y_stride, uint32_t v0, uint32_t m)
{
    for (uint32_t v = 0; v < m; v++) {
        const float *got = y + v * y_stride;
        const double *wanted = f->y + (v0 + v) * f->out, *slack = f->slack + (v0 + v) * f->out;
        uint64_t bad = 0;
        while (bad < f->out && close_enough((double)got[bad], wanted[bad], slack[bad]))
            bad++;
        check_that(f->check, bad == f->out, "m %u: y[%u][%d] = %.9g, float64 %.9g, bound %.3g", m,
                   v, (int)bad, bad < f->out ? (double)got[bad] : 0.0,
                   bad < f->out ? wanted[bad] : 0.0, bad < f->out ? slack[bad] : 0.0);
        float *first = f->first + (v0 + v) * f->out;
        if (f->seen[v0 + v])
            check_that(f->check, memcmp(first, got, f->out * sizeof *got) == 0,
                       "m %u: vector %u has other bytes than in another batch or range", m,
                       v0 + v);
        else
            memcpy(first, got, f->out * sizeof *got);
        f->seen[v0 + v] = true;
    }
}

static void run_batch(struct fixture *f, struct random *r, uint32_t v0, uint32_t m, bool cut)
{
    enum guard_side side = random_u64(r) & 1 ? GUARD_END : GUARD_BEGIN;
    size_t y_stride = (size_t)f->out + random_below(r, 4);
    struct guarded prepared =
        guarded_make(f->kernel->prepared_nbytes(&f->tensor.geometry, m), 64, side);
    struct guarded y =
        guarded_make(((m - 1) * y_stride + (size_t)f->out) * sizeof(float), 4, side);
    struct call call = {f, v0, {&f->tensor, m, prepared.data, y.data, y_stride}, prepared.data, 0, 0};
    if (cut) {
        const struct tcq_geometry *g = &f->tensor.geometry;
        uint64_t units = (f->in + TCQ_INPUT_UNIT - 1) / TCQ_INPUT_UNIT;
        call.input_cut = random_below(r, (uint32_t)units) * TCQ_INPUT_UNIT;
        call.output_cut = random_below(r, (uint32_t)(g->axis ? g->rows : g->cols / g->T) + 1);
    }
    bool returned = guard_call(make_call, &call);
    if (check_that(f->check, returned, "m %u: touched memory outside its arrays", m)) {
        bool whole = guarded_margins_whole(&y) && guarded_margins_whole(&prepared) &&
                     guarded_margins_whole(&f->words) && guarded_margins_whole(&f->scales) &&
                     guarded_margins_whole(&f->x);
        for (uint32_t v = 0; v + 1 < m; v++)
            whole &= guarded_is_pattern((float *)y.data + v * y_stride + f->out,
                                        (y_stride - (size_t)f->out) * sizeof(float));
        check_that(f->check, whole, "m %u: wrote outside its arrays", m);
        compare(f, y.data, y_stride, v0, m);
    }
    guarded_free(&prepared);
    guarded_free(&y);
}

static const char *describe(const struct tcq_geometry *g)
{
    static char text[128];
    snprintf(text, sizeof text, "k %u L %u T %u axis %u %s %d x %d", g->k, g->L, g->T, g->axis,
             g->layout ? "interleaved" : "row-major", (int)g->rows, (int)g->cols);
    return text;
}

/* A case: one fixture, several batches. */
static void run_case(struct check *check, struct tcq_geometry g, uint32_t m, enum values values,
                     bool every_m)
{
    if (check->variant->serves && !check->variant->serves(&g))
        return;
    struct random r = check_case(check, "%s m %u %s", describe(&g), m, value_names[values]);
    struct tcq_range rows = {0, g.rows};
    if (g.axis == 0 && g.rows > TCQ_INPUT_UNIT && random_u64(&r) & 1) { /* one split of several */
        rows.begin = TCQ_INPUT_UNIT;
        if (g.rows > 2 * TCQ_INPUT_UNIT && random_u64(&r) & 1)
            rows.end = 2 * TCQ_INPUT_UNIT;
    }
    struct fixture f = fixture_make(check, &r, g, m, values, rows);
    run_batch(&f, &r, 0, m, false);
    run_batch(&f, &r, 0, m, true);
    run_batch(&f, &r, random_below(&r, m), 1, false);
    if (every_m)
        for (uint32_t part = 2; part < m; part++)
            run_batch(&f, &r, random_below(&r, m - part + 1), part, part & 1);
    fixture_free(&f);
}

static struct tcq_geometry shape(uint32_t k, uint32_t L, uint32_t T, uint32_t axis, uint64_t rows,
                                 uint64_t blocks)
{
    return (struct tcq_geometry){k, L, T, axis, TCQ_LAYOUT_ROW_MAJOR, rows, blocks * T};
}

static const uint32_t block_lengths[] = {64, 128, 256};

/* Every code at random sizes. */
static void sweep_codes(struct check *check, uint32_t axis)
{
    struct random r = {check->seed ^ 1};
    for (uint32_t k = TCQ_K_MIN; k <= TCQ_K_MAX; k++)
        for (uint32_t L = TCQ_L_MIN; L <= TCQ_L_MAX; L++)
            for (int t = 0; t < 3; t++)
                for (int again = 0; again < (check->full ? 6 : 1); again++) {
                    uint64_t rows = 1 + random_below(&r, check->full ? 33 : 17);
                    if (axis == 0 && random_u64(&r) % 4 == 0)
                        rows = 250 + random_below(&r, check->full ? 600 : 300);
                    uint64_t blocks = 1 + random_below(&r, 1024 / block_lengths[t]);
                    uint32_t m = 1 + random_below(&r, again & 1 ? 32 : 6);
                    run_case(check, shape(k, L, block_lengths[t], axis, rows, blocks), m, RANDOM,
                             false);
                }
}

/* Rows and columns round every tile size, for the codes that must be fast. */
static void sweep_sizes(struct check *check, uint32_t axis)
{
    for (uint32_t k = 2; k <= 4; k++)
        for (int t = 0; t < 3; t++)
            for (uint64_t rows = 1; rows <= (check->full ? 33 : 17); rows++)
                for (uint64_t blocks = 1; blocks <= (check->full ? 9 : 5); blocks++) {
                    if (!check->full && (rows + blocks + k) % 3)
                        continue;
                    uint32_t m = (uint32_t)(1 + (rows + blocks) % 5);
                    run_case(check, shape(k, 12, block_lengths[t], axis, rows, blocks), m, RANDOM,
                             false);
                }
}

/* Every m, with parts of the batch at random places. */
static void sweep_batches(struct check *check, uint32_t axis)
{
    for (uint32_t k = 1; k <= 6; k += check->full ? 1 : 2)
        for (int t = 0; t < 3; t++) {
            uint64_t rows = axis ? 9 : 300;
            run_case(check, shape(k, 12, block_lengths[t], axis, rows, 3), TCQ_SMALL_M_MAX, RANDOM,
                     true);
        }
}

static void sweep_values(struct check *check, uint32_t axis)
{
    for (int values = ZEROS; values < VALUES_COUNT; values++)
        for (uint32_t k = 1; k <= 6; k++)
            for (int t = 0; t < 3; t++)
                run_case(check, shape(k, 12, block_lengths[t], axis, axis ? 5 : 261, 2),
                         2 + k % 3, (enum values)values, false);
}

static void sweep_interleaved(struct check *check)
{
    for (uint64_t rows = 1; rows <= 520; rows += rows < 20 ? 1 : 83)
        for (uint64_t pairs = 1; pairs <= (check->full ? 4 : 2); pairs++)
            for (int values = RANDOM; values < VALUES_COUNT; values += check->full ? 1 : 5) {
                struct tcq_geometry g = shape(3, 12, 256, 0, rows, 2 * pairs);
                g.layout = TCQ_LAYOUT_INTERLEAVED;
                run_case(check, g, (uint32_t)(1 + rows % 7), (enum values)values, false);
            }
}

void check_small(struct check *check)
{
    enum tcq_kernel_operation op = check->variant->op;
    uint32_t axis = op == TCQ_KERNEL_REDUCE || op == TCQ_KERNEL_REDUCE_INT8;
    sweep_codes(check, axis);
    sweep_sizes(check, axis);
    sweep_batches(check, axis);
    sweep_values(check, axis);
    if (axis == 0)
        sweep_interleaved(check);
}
