/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wide kernels: against float64 within what their grid of x may cost, the same
 * bytes for every range, between guard pages.
 */
#include "check/check.h"

#include <stdlib.h>
#include <string.h>

#include "kernel/exact.h"
#include "support/layer.h"

struct wide_case {
    const struct tcq_wide_kernel *kernel;
    struct tcq_tensor tensor;
    uint32_t m;
    uint64_t in, out;
    struct guarded words, scales, x, prepared, y, scratch;
    struct tcq_range rows, blocks, inputs;
    uint64_t first_out, out_count;
};

static void call_prepare(void *argument)
{
    struct wide_case *c = argument;
    c->kernel->prepare(c->prepared.data, &c->tensor, c->m,
                       (const float *)c->x.data + c->inputs.begin, (size_t)c->in, c->inputs);
}

static void call_run(void *argument)
{
    struct wide_case *c = argument;
    struct tcq_product product = {&c->tensor, c->m, c->prepared.data, c->y.data,
                                  (size_t)c->out_count};
    c->kernel->run(&product, c->rows, c->blocks, c->scratch.data);
}

/* Outputs [begin, end) into guarded y and from there to `to` ([m][out]). */
static void run_range(struct check *check, struct wide_case *c, uint64_t begin, uint64_t end,
                      float *to)
{
    const struct tcq_geometry *g = &c->tensor.geometry;
    c->first_out = begin, c->out_count = end - begin;
    c->rows = g->axis ? (struct tcq_range){begin, end} : (struct tcq_range){0, g->rows};
    c->blocks = g->axis ? (struct tcq_range){0, g->cols / g->T}
                        : (struct tcq_range){begin / g->T, end / g->T};
    enum guard_side side = begin ? GUARD_BEGIN : GUARD_END;
    c->y = guarded_make(c->m * (size_t)c->out_count * 4, 4, side);
    c->scratch = guarded_make(c->kernel->scratch_nbytes(g, c->m, c->out_count), 64, side);
    if (check_that(check, guard_call(call_run, c), "run touched memory out of bounds"))
        check_that(check,
                   guarded_margins_whole(&c->y) && guarded_margins_whole(&c->scratch) &&
                       guarded_margins_whole(&c->prepared),
                   "run wrote beside its arrays");
    for (uint32_t i = 0; i < c->m; i++)
        memcpy(to + i * c->out + begin, (float *)c->y.data + i * c->out_count,
               (size_t)c->out_count * 4);
    guarded_free(&c->y);
    guarded_free(&c->scratch);
}

/* Output o of vector i in float64, and its bound: half a step of the grid for every
 * weight, and the float32 sum of the groups. */
static bool within_bound(const struct wide_case *c, uint32_t i, uint64_t o, float got)
{
    const struct tcq_geometry *g = &c->tensor.geometry;
    const float *x = (const float *)c->x.data + i * c->in;
    double sum = 0, slack = 0;
    for (uint64_t first = 0; first < c->in; first += g->T) {
        double largest = 0, weights = 0;
        for (uint64_t j = first; j < c->in && j < first + g->T; j++) {
            double factor = g->axis ? 1 : (double)layer_scale(&c->tensor, j) / TCQ_CODE_DIVISOR;
            double w = layer_weight(&c->tensor, o, j), term = w * (double)x[j];
            largest = fmax(largest, fabs((double)x[j] * factor));
            weights += fabs(w / factor);
            sum += term;
            slack += fabs(term) * 0x1p-20;
        }
        slack += 0.5001 * largest / 16383 * weights;
    }
    return fabs((double)got - sum) <= slack;
}

static void check_one(struct check *check, struct tcq_geometry g, uint32_t m, bool zeros)
{
    struct random r = check_case(check, "k %u L %u T %u axis %u %d x %d m %u layout %d", g.k, g.L,
                                 g.T, g.axis, (int)g.rows, (int)g.cols, m, (int)g.layout);
    enum guard_side side = random_u64(&r) & 1 ? GUARD_END : GUARD_BEGIN;
    struct layer layer = layer_random(&r, g);
    struct wide_case c = {.kernel = check->variant->kernel.wide, .tensor = layer.tensor, .m = m};
    c.in = tcq_geometry_in(&g), c.out = tcq_geometry_out(&g);
    c.words = guarded_make(tcq_geometry_words(&g) * 4, 4, side);
    c.scales = guarded_make((size_t)g.rows * 2, 2, side);
    memcpy(c.words.data, layer.words, c.words.nbytes);
    memcpy(c.scales.data, layer.scales, c.scales.nbytes);
    c.tensor.words = c.words.data, c.tensor.scales = c.scales.data;
    c.x = guarded_make(m * (size_t)c.in * 4, 4, side);
    for (size_t j = 0; j < m * c.in; j++)
        ((float *)c.x.data)[j] = zeros ? 0.0f : random_normal(&r);
    c.prepared = guarded_make(c.kernel->prepared_nbytes(&g, m), 64, side);
    uint64_t cut = c.in > TCQ_INPUT_UNIT ? TCQ_INPUT_UNIT : c.in;
    for (int part = 0; part < 2; part++) {
        c.inputs = part ? (struct tcq_range){cut, c.in} : (struct tcq_range){0, cut};
        check_that(check, guard_call(call_prepare, &c), "prepare touched memory out of bounds");
    }
    float *whole = calloc(m * c.out, 4), *parts = calloc(m * c.out, 4);
    uint64_t middle = g.axis ? c.out / 3 : c.out / g.T / 2 * g.T;
    run_range(check, &c, 0, c.out, whole);
    if (middle && g.layout == TCQ_LAYOUT_ROW_MAJOR) {
        run_range(check, &c, 0, middle, parts);
        run_range(check, &c, middle, c.out, parts);
        check_that(check, memcmp(whole, parts, m * c.out * 4) == 0, "ranges change bytes");
    }
    for (uint32_t i = 0; i < m; i += check->full ? 1 : 7)
        for (uint64_t o = 0; o < c.out; o++)
            if (!check_that(check, within_bound(&c, i, o, whole[i * c.out + o]),
                            "y[%u][%d] = %g is out of bounds", i, (int)o,
                            (double)whole[i * c.out + o]))
                break;
    free(whole), free(parts);
    guarded_free(&c.words), guarded_free(&c.scales);
    guarded_free(&c.x), guarded_free(&c.prepared);
    layer_free(&layer);
}

void check_wide(struct check *check)
{
    static const uint32_t Ls[] = {12, 8, 16}, ms[] = {1, 33, 64, 70};
    for (uint32_t k = TCQ_K_MIN; k <= TCQ_K_MAX; k++)
        for (uint32_t n = 0; n < 6; n++) {
            uint32_t T = 64u << n % 3, L = Ls[(k + n) % 3], axis = n / 3;
            for (uint32_t i = 0; i < 4; i++) {
                if (!check->full && (k + n + i) % 4)
                    continue;
                uint64_t rows = axis ? 1 + (k * 7 + n * 13 + i * 11) % 50 : 300 - 37 * i;
                struct tcq_geometry g = {k, L, T, axis, 0, rows, (1 + (k + i) % 3) * T};
                check_one(check, g, ms[i], false);
            }
        }
    check_one(check, (struct tcq_geometry){3, 12, 256, 0, 1, 77, 512}, 40, false);
    check_one(check, (struct tcq_geometry){3, 12, 256, 1, 0, 25, 512}, 40, true);
}
