/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast operations on packed weights, as one struct of function pointers a
 * set of CPU features.  The reference operations (kernel/reference/) stand
 * beside them as plain functions in the orders that docs/numerics.md fixes.
 *
 * Weight contract `exact`: the integer y of a state is multiplied as it is;
 * scale/d goes on each output (axis 1) or into x (axis 0).  A kernel's result
 * for one vector has the same bytes whatever the number of vectors (1..32), the
 * range of rows it was called for, and the number of threads.
 */
#ifndef TCQ_KERNEL_KERNEL_H
#define TCQ_KERNEL_KERNEL_H

#include "tcq.h"

enum { TCQ_SMALL_M_MAX = 32 };

/* One product of m vectors with one packed tensor. */
struct tcq_product {
    const struct tcq_tensor *tensor;
    uint32_t m;         /* 1..TCQ_SMALL_M_MAX */
    const void *x;      /* prepared by the kernel's own `prepare` */
    float *y;           /* [m][y_stride] float32 */
    size_t y_stride;    /* in elements */
};

struct tcq_kernels {
    const char *isa; /* "scalar", "avx2", "avx512", "neon" */

    /* Bytes that `prepare` writes for m vectors; aligned to 64. */
    size_t (*prepared_nbytes)(const struct tcq_geometry *geometry, uint32_t m);
    /* Lay m float32 vectors (stride x_stride elements) out as this kernel reads
     * them; on axis 0 with the rows' scale/d folded in. */
    void (*prepare)(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                    size_t x_stride);

    /* Axis 1: y[i][row] for row in [row_begin, row_end), every vector i. */
    void (*reduce)(const struct tcq_product *product, uint64_t row_begin, uint64_t row_end);

    /* Axis 0: partial sums over the stored rows of split `split` of
     * scatter_splits(): partial[i*cols + c].  The caller adds the partials of
     * all splits in ascending order. */
    uint32_t (*scatter_splits)(const struct tcq_geometry *geometry);
    void (*scatter)(float *partial, const struct tcq_product *product, uint32_t split);

    /* Rows [row_begin, row_end) of the stored matrix, dense, contract `bf16`
     * (BF16) or value*scale (F32); dst is the row row_begin, stride in elements. */
    void (*expand)(void *dst, enum tcq_dtype dtype, size_t dst_stride,
                   const struct tcq_tensor *tensor, uint64_t row_begin, uint64_t row_end);

    /* c[i][j] += sum over l < depth of a[i][l] * b[j][l]; bf16 a [m, depth], b [n, depth],
     * float32 c: the product that follows an expanded tile. */
    void (*gemm_bf16)(float *c, size_t c_stride, const uint16_t *a, size_t a_stride,
                      const uint16_t *b, size_t b_stride, size_t m, size_t n, size_t depth);
};

/* The table for a set of tcq_cpu_flag; plain C always exists. */
const struct tcq_kernels *tcq_kernels_select(uint32_t cpu_flags);

#endif
