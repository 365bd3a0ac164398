/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of single variants on one thread, for work on a kernel.  Figures to
 * quote come from `tcq bench`.
 */
#include "check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROWS = 1024, COLS = 5120, REPEATS = 9 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void bench_small(const struct tcq_kernel_variant *v, struct tcq_tensor *tensor,
                        const float *x, float *y, uint32_t m)
{
    struct tcq_geometry *g = &tensor->geometry;
    const struct tcq_small_kernel *kernel = v->kernel.small;
    void *prepared = aligned_alloc(64, (kernel->prepared_nbytes(g, m) + 63) / 64 * 64);
    kernel->prepare(prepared, tensor, m, x, COLS, (struct tcq_range){0, tcq_geometry_in(g)});
    struct tcq_product product = {tensor, m, prepared, y, COLS};
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        double start = now_s();
        kernel->run(&product, (struct tcq_range){0, g->rows},
                    (struct tcq_range){0, g->cols / g->T});
        double took = now_s() - start;
        best = took < best ? took : best;
    }
    double weights = (double)g->rows * (double)g->cols;
    printf("  %-22s k %u m %2u  %8.1f us  %7.2f Gw/s  %7.2f GMAC/s\n", kernel->name, g->k, m,
           best * 1e6, weights / best * 1e-9, weights / best * 1e-9 * m);
    free(prepared);
}

static void bench_expand(const struct tcq_kernel_variant *v, const struct tcq_tensor *tensor)
{
    uint16_t *dst = malloc((size_t)ROWS * COLS * 2);
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        double start = now_s();
        v->kernel.expand->run(dst, TCQ_DTYPE_BF16, COLS, tensor, (struct tcq_range){0, ROWS},
                              (struct tcq_range){0, COLS / tensor->geometry.T});
        double took = now_s() - start;
        best = took < best ? took : best;
    }
    printf("  %-22s k %u        %8.1f us  %7.2f Gw/s\n", v->kernel.expand->name,
           tensor->geometry.k, best * 1e6, (double)ROWS * COLS / best * 1e-9);
    free(dst);
}

static void bench_gemm(const struct tcq_kernel_variant *v, uint32_t b_axis)
{
    enum { M = 512, N = 256, DEPTH = 1024 };
    uint16_t *a = calloc(M * DEPTH, 2), *b = calloc(N * DEPTH, 2);
    float *c = calloc(M * N, 4);
    size_t scratch_nbytes = v->kernel.gemm->scratch_nbytes(M, N, DEPTH);
    void *scratch = aligned_alloc(64, (scratch_nbytes + 64) / 64 * 64);
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        double start = now_s();
        v->kernel.gemm->run(c, N, a, DEPTH, b, b_axis ? DEPTH : N, b_axis, M, N, DEPTH, scratch);
        double took = now_s() - start;
        best = took < best ? took : best;
    }
    printf("  %-22s axis %u %d x %d x %d  %8.1f us  %7.2f GMAC/s\n", v->kernel.gemm->name, b_axis,
           M, N, DEPTH, best * 1e6, (double)M * N * DEPTH / best * 1e-9);
    free(a), free(b), free(c), free(scratch);
}

void bench_variant(const struct tcq_kernel_variant *v)
{
    if (v->op == TCQ_KERNEL_GEMM) {
        bench_gemm(v, 0);
        bench_gemm(v, 1);
        return;
    }
    if (v->op == TCQ_KERNEL_WIDE) /* tcq bench --op wide-int16 */
        return;
    struct random r = {1};
    uint32_t *words = malloc((size_t)ROWS * COLS);
    uint16_t *scales = malloc(ROWS * 2);
    float *x = malloc(TCQ_SMALL_M_MAX * COLS * 4), *y = malloc(TCQ_SMALL_M_MAX * COLS * 4);
    for (size_t i = 0; i < (size_t)ROWS * COLS / 4; i++)
        words[i] = (uint32_t)random_u64(&r);
    for (int i = 0; i < ROWS; i++)
        scales[i] = 0x2400;
    for (int i = 0; i < TCQ_SMALL_M_MAX * COLS; i++)
        x[i] = random_normal(&r);
    uint32_t axis = v->op == TCQ_KERNEL_REDUCE || v->op == TCQ_KERNEL_REDUCE_INT8;
    static const uint32_t ms[] = {1, 4, 8, 32};
    for (uint32_t k = 2; k <= 4; k++) {
        struct tcq_tensor tensor = {{k, 12, 256, axis, 0, ROWS, COLS}, words, scales};
        for (int i = 0; v->op != TCQ_KERNEL_EXPAND && i < 4; i++)
            bench_small(v, &tensor, x, y, ms[i]);
        if (v->op == TCQ_KERNEL_EXPAND)
            bench_expand(v, &tensor);
    }
    free(words), free(scales), free(x), free(y);
}
