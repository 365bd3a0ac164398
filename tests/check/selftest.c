/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A harness that cannot fail proves nothing: kernels broken on purpose, one fault
 * each, must all be reported.
 */
#include "check/check.h"

#include <stdio.h>
#include <string.h>

extern const struct tcq_small_kernel tcq_reduce_scalar, tcq_scatter_scalar;
extern const struct tcq_expand_kernel tcq_expand_scalar;
extern const struct tcq_gemm_kernel tcq_gemm_scalar;

static float *last_output(const struct tcq_product *p, struct tcq_range rows,
                          struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    uint64_t end = g->axis ? rows.end : blocks.end * g->T;
    return p->y + (p->m - 1) * p->y_stride + end - 1;
}

static void good(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks)
{
    (p->tensor->geometry.axis ? tcq_reduce_scalar : tcq_scatter_scalar).run(p, rows, blocks);
}

/* One output off by a thousandth. */
static void inexact(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks)
{
    good(p, rows, blocks);
    *last_output(p, rows, blocks) *= 1.001f;
}

/* A last bit that depends on the batch, within any error bound. */
static void batch_variant(const struct tcq_product *p, struct tcq_range rows,
                          struct tcq_range blocks)
{
    good(p, rows, blocks);
    float *y = last_output(p, rows, blocks);
    if (p->m == 1)
        *y = nextafterf(*y, INFINITY);
}

/* The last output of a range left as it was. */
static void short_range(const struct tcq_product *p, struct tcq_range rows,
                        struct tcq_range blocks)
{
    float *y = last_output(p, rows, blocks), before = *y;
    good(p, rows, blocks);
    *y = before;
}

/* One element beyond the last vector. */
static void write_beyond(const struct tcq_product *p, struct tcq_range rows,
                         struct tcq_range blocks)
{
    good(p, rows, blocks);
    last_output(p, rows, blocks)[1] = 0.0f;
}

static void write_before(const struct tcq_product *p, struct tcq_range rows,
                         struct tcq_range blocks)
{
    good(p, rows, blocks);
    p->y[-1] = 0.0f;
}

static volatile uint32_t sink;

static void read_beyond(const struct tcq_product *p, struct tcq_range rows,
                        struct tcq_range blocks)
{
    sink = p->tensor->words[tcq_geometry_words(&p->tensor->geometry)];
    good(p, rows, blocks);
}

static void read_before(const struct tcq_product *p, struct tcq_range rows,
                        struct tcq_range blocks)
{
    sink = p->tensor->words[-1];
    good(p, rows, blocks);
}

static void bad_expand(void *dst, enum tcq_dtype dtype, size_t stride,
                       const struct tcq_tensor *tensor, struct tcq_range rows,
                       struct tcq_range blocks)
{
    tcq_expand_scalar.run(dst, dtype, stride, tensor, rows, blocks);
    ((uint8_t *)dst)[1] ^= 1;
}

static void bad_gemm(float *c, size_t c_stride, const uint16_t *a, size_t a_stride,
                     const uint16_t *b, size_t b_stride, uint32_t b_axis, size_t m, size_t n,
                     size_t depth, void *scratch)
{
    /* forgets the last of an odd depth */
    tcq_gemm_scalar.run(c, c_stride, a, a_stride, b, b_stride, b_axis, m, n,
                        depth > 1 ? depth & ~(size_t)1 : depth, scratch);
}

static bool unnoticed(const char *fault, struct tcq_kernel_variant variant,
                      void (*run)(struct check *), uint64_t seed)
{
    struct check check = {.seed = seed, .variant = &variant};
    printf("planted: %s (%s)\n", fault, variant.operation);
    run(&check);
    bool missed = check.failures == 0 || check.checks == 0;
    printf("%s\n", missed ? "NOT NOTICED" : "noticed");
    return missed;
}

int check_self_test(uint64_t seed)
{
    static const struct {
        const char *fault;
        void (*run)(const struct tcq_product *, struct tcq_range, struct tcq_range);
    } faults[] = {
        {"one output off by 1/1000", inexact},
        {"bytes depend on the batch", batch_variant},
        {"the last output of a range is not computed", short_range},
        {"writes one element too far", write_beyond},
        {"writes one element too early", write_before},
        {"reads one word too far", read_beyond},
        {"reads one word too early", read_before},
    };
    int missed = 0;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int axis = 0; axis < 2; axis++) {
            struct tcq_small_kernel kernel = axis ? tcq_reduce_scalar : tcq_scatter_scalar;
            kernel.run = faults[i].run;
            struct tcq_kernel_variant variant = {
                axis ? "reduce" : "scatter", "planted",
                axis ? TCQ_KERNEL_REDUCE : TCQ_KERNEL_SCATTER, 0, NULL, {.small = &kernel}};
            missed += unnoticed(faults[i].fault, variant, check_small, seed);
        }
    struct tcq_expand_kernel expand = {"expand", bad_expand};
    struct tcq_kernel_variant e = {"expand", "planted", TCQ_KERNEL_EXPAND, 0, NULL,
                                   {.expand = &expand}};
    missed += unnoticed("one bit of a weight", e, check_expand, seed);
    struct tcq_gemm_kernel gemm = tcq_gemm_scalar;
    gemm.run = bad_gemm;
    struct tcq_kernel_variant v = {"gemm", "planted", TCQ_KERNEL_GEMM, 0, NULL, {.gemm = &gemm}};
    missed += unnoticed("the last of an odd depth is forgotten", v, check_gemm, seed);
    return missed;
}
