/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expand against the plain decoder, byte for byte, and the dense bf16 product
 * against float64.
 */
#include "check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "tcq.h"

/* ---- expand ------------------------------------------------------------- */

struct expand_call {
    const struct tcq_expand_kernel *kernel;
    void *dst;
    enum tcq_dtype dtype;
    size_t stride;
    const struct tcq_tensor *tensor;
    struct tcq_range rows, blocks;
};

static void call_expand(void *argument)
{
    const struct expand_call *c = argument;
    c->kernel->run(c->dst, c->dtype, c->stride, c->tensor, c->rows, c->blocks);
}

static void expand_case(struct check *check, struct tcq_geometry g, enum tcq_dtype dtype)
{
    if (check->variant->serves && !check->variant->serves(&g))
        return;
    struct random r = check_case(check, "k %u L %u T %u %s %d x %d to %s", g.k, g.L, g.T,
                                 g.layout ? "interleaved" : "row-major", (int)g.rows, (int)g.cols,
                                 tcq_dtype_name(dtype));
    enum guard_side side = random_u64(&r) & 1 ? GUARD_END : GUARD_BEGIN;
    struct guarded words = guarded_make(tcq_geometry_words(&g) * 4, 4, side);
    struct guarded scales = guarded_make((size_t)g.rows * 2, 2, side);
    for (size_t i = 0; i < words.nbytes / 4; i++)
        ((uint32_t *)words.data)[i] = (uint32_t)(random_u64(&r) >> 32);
    for (uint64_t i = 0; i < g.rows; i++) /* any finite binary16 */
        ((uint16_t *)scales.data)[i] = (uint16_t)(random_u64(&r) & 0xbbffu);
    struct tcq_tensor tensor = {g, words.data, scales.data};

    uint64_t all = g.cols / g.T, row = random_below(&r, (uint32_t)g.rows);
    uint64_t block = random_below(&r, (uint32_t)all);
    struct tcq_range rows = {row, row + 1 + random_below(&r, (uint32_t)(g.rows - row))};
    struct tcq_range blocks = {block, block + 1 + random_below(&r, (uint32_t)(all - block))};
    if (random_u64(&r) & 1)
        rows = (struct tcq_range){0, g.rows}, blocks = (struct tcq_range){0, all};
    size_t size = tcq_dtype_nbytes(dtype), count = (size_t)(rows.end - rows.begin);
    size_t length = (size_t)(blocks.end - blocks.begin) * g.T, stride = length + random_below(&r, 4);
    struct guarded dst = guarded_make(((count - 1) * stride + length) * size, size, side);
    struct expand_call call = {check->variant->kernel.expand, dst.data, dtype, stride, &tensor,
                               rows, blocks};
    bool returned = guard_call(call_expand, &call);
    if (check_that(check, returned, "touched memory outside its arrays")) {
        bool whole = guarded_margins_whole(&dst), same = true;
        char *expected = malloc((size_t)g.T * size);
        for (size_t i = 0; i < count; i++) {
            const char *got = (const char *)dst.data + i * stride * size;
            for (uint64_t b = blocks.begin; b < blocks.end; b++) {
                tcq_decode_block(expected, dtype, &tensor, rows.begin + i, b);
                size_t at = (size_t)(b - blocks.begin) * g.T * size;
                same &= memcmp(expected, got + at, g.T * size) == 0;
            }
            if (i + 1 < count)
                whole &= guarded_is_pattern(got + length * size, (stride - length) * size);
        }
        free(expected);
        check_that(check, same, "bytes differ from the decoder's");
        check_that(check, whole, "wrote outside its array");
    }
    guarded_free(&words);
    guarded_free(&scales);
    guarded_free(&dst);
}

void check_expand(struct check *check)
{
    static const uint32_t lengths[] = {64, 128, 256};
    struct random r = {check->seed ^ 2};
    for (uint32_t k = TCQ_K_MIN; k <= TCQ_K_MAX; k++)
        for (uint32_t L = TCQ_L_MIN; L <= TCQ_L_MAX; L++)
            for (int t = 0; t < 3; t++)
                for (int again = 0; again < (check->full ? 10 : 4); again++) {
                    struct tcq_geometry g = {k, L, lengths[t], random_u64(&r) & 1, 0, 0, 0};
                    g.rows = 1 + random_below(&r, 17);
                    g.cols = (1 + random_below(&r, 5)) * (uint64_t)g.T;
                    expand_case(check, g, again & 1 ? TCQ_DTYPE_BF16 : TCQ_DTYPE_F32);
                }
    for (uint64_t rows = 1; rows <= (check->full ? 300 : 140); rows++) {
        struct tcq_geometry g = {3, 12, 256, 0, TCQ_LAYOUT_INTERLEAVED, rows, 512 + 512 * (rows & 1)};
        expand_case(check, g, rows & 2 ? TCQ_DTYPE_BF16 : TCQ_DTYPE_F32);
    }
}

/* ---- gemm --------------------------------------------------------------- */

struct gemm {
    const struct tcq_gemm_kernel *kernel;
    size_t m, n, depth, a_stride, b_stride, c_stride;
    uint32_t b_axis;
    struct guarded a, b, c, scratch;
};

static uint16_t draw_bf16(struct random *r, int values, size_t i)
{
    if (values == 1) /* denormal in bf16 */
        return (uint16_t)(random_u64(r) & 0x807fu);
    if (values == 2)
        return tcq_bf16_from_f32((float)(i % 251));
    return tcq_bf16_from_f32(random_normal(r));
}

static double b_at(const struct gemm *g, size_t j, size_t l)
{
    size_t at = g->b_axis ? j * g->b_stride + l : l * g->b_stride + j;
    return (double)tcq_bf16_to_f32(((const uint16_t *)g->b.data)[at]);
}

/* The first output outside its bound, or NULL.  Products of denormals may count
 * as zero: the CPU's own bf16 instructions do that. */
static const float *gemm_wrong(const struct gemm *g, const float *before)
{
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++) {
            const float *got = (const float *)g->c.data + i * g->c_stride + j;
            double sum = (double)before[i * g->n + j], magnitude = fabs(sum), lost = 0;
            for (size_t l = 0; l < g->depth; l++) {
                double a = (double)tcq_bf16_to_f32(((const uint16_t *)g->a.data)[i * g->a_stride + l]);
                double b = b_at(g, j, l);
                sum += a * b;
                magnitude += fabs(a * b);
                lost += 0x1p-126 * (1 + fabs(a) + fabs(b));
            }
            double bound = (double)(g->depth + 1) * 0x1p-24 * magnitude + lost;
            if (!(fabs((double)*got - sum) <= bound))
                return got;
        }
    return NULL;
}

static void call_gemm(void *argument)
{
    const struct gemm *g = argument;
    g->kernel->run(g->c.data, g->c_stride, g->a.data, g->a_stride, g->b.data, g->b_stride, g->b_axis,
                g->m, g->n, g->depth, g->scratch.data);
}

static void gemm_case(struct check *check, size_t m, size_t n, size_t depth, uint32_t b_axis,
                      int values)
{
    const struct tcq_gemm_kernel *kernel = check->variant->kernel.gemm;
    struct random r = check_case(check, "m %zu n %zu depth %zu b_axis %u values %d", m, n, depth,
                                 b_axis, values);
    struct gemm g = {.kernel = kernel, .m = m, .n = n, .depth = depth, .b_axis = b_axis};
    enum guard_side side = random_u64(&r) & 1 ? GUARD_END : GUARD_BEGIN;
    size_t b_rows = b_axis ? n : depth, b_cols = b_axis ? depth : n;
    g.a_stride = depth + random_below(&r, 4);
    g.b_stride = b_cols + random_below(&r, 4);
    g.c_stride = n + random_below(&r, 4);
    g.a = guarded_make(((m - 1) * g.a_stride + depth) * 2, 2, side);
    g.b = guarded_make(((b_rows - 1) * g.b_stride + b_cols) * 2, 2, side);
    g.c = guarded_make(((m - 1) * g.c_stride + n) * 4, 4, side);
    g.scratch = guarded_make(kernel->scratch_nbytes(m, n, depth), 64, side);
    for (size_t i = 0; i < m; i++)
        for (size_t l = 0; l < depth; l++)
            ((uint16_t *)g.a.data)[i * g.a_stride + l] = draw_bf16(&r, values, l);
    for (size_t i = 0; i < b_rows; i++)
        for (size_t j = 0; j < b_cols; j++)
            ((uint16_t *)g.b.data)[i * g.b_stride + j] = draw_bf16(&r, values, j);
    float *before = malloc(m * n * sizeof *before);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            before[i * n + j] = values ? 0 : random_normal(&r);
            ((float *)g.c.data)[i * g.c_stride + j] = before[i * n + j];
        }
    bool returned = guard_call(call_gemm, &g);
    if (check_that(check, returned, "touched memory outside its arrays")) {
        const float *wrong = gemm_wrong(&g, before);
        check_that(check, !wrong, "c[%d] = %.9g is out of its bound",
                   wrong ? (int)(wrong - (const float *)g.c.data) : 0,
                   wrong ? (double)*wrong : 0.0);
        bool whole = guarded_margins_whole(&g.c) && guarded_margins_whole(&g.scratch);
        for (size_t i = 0; i + 1 < m; i++)
            whole &= guarded_is_pattern((float *)g.c.data + i * g.c_stride + n,
                                        (g.c_stride - n) * 4);
        check_that(check, whole, "wrote outside its arrays");
    }
    free(before);
    guarded_free(&g.a);
    guarded_free(&g.b);
    guarded_free(&g.c);
    guarded_free(&g.scratch);
}

void check_gemm(struct check *check)
{
    struct random r = {check->seed ^ 3};
    size_t small = check->full ? 20 : 9;
    for (uint32_t b_axis = 0; b_axis < 2; b_axis++) {
        for (size_t m = 1; m <= small; m++)
            for (size_t n = 1; n <= small; n++)
                gemm_case(check, m, n, 1 + random_below(&r, 70), b_axis, 0);
        for (size_t depth = 1; depth <= (check->full ? 130 : 66); depth++)
            gemm_case(check, 1 + random_below(&r, 40), 1 + random_below(&r, 80), depth, b_axis,
                      (int)(depth % 3));
        for (int i = 0; i < (check->full ? 60 : 12); i++)
            gemm_case(check, 1 + random_below(&r, 70), 1 + random_below(&r, 300),
                      1 + random_below(&r, 1100), b_axis, 0);
    }
}
