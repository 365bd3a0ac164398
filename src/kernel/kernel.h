/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast operations on packed weights.  Every operation has one variant or
 * more (plain C always; kernels.def lists them all), each a small struct of
 * function pointers; tcq_kernels_select() picks one of each for a set of CPU
 * features.  The reference operations (kernel/reference/) stand beside them as
 * plain functions in the orders that docs/numerics.md fixes.
 *
 * Kernels allocate nothing, touch nothing outside the arrays that they are given
 * and have no state.  The caller (src/linear) shares the work among threads by
 * ranges: in which range an output is computed never changes its bytes.
 */
#ifndef TCQ_KERNEL_KERNEL_H
#define TCQ_KERNEL_KERNEL_H

#include "tcq.h"

enum {
    TCQ_SMALL_M_MAX = 32,
    /* Ranges of inputs, and of stored rows on axis 0, begin at multiples of this:
     * one int8 activation scale covers T of them, and T divides it. */
    TCQ_INPUT_UNIT = 256
};

/* Items [begin, end). */
struct tcq_range {
    uint64_t begin, end;
};

/* One product of m vectors with one packed tensor. */
struct tcq_product {
    const struct tcq_tensor *tensor;
    uint32_t m;      /* 1..TCQ_SMALL_M_MAX */
    const void *x;   /* written by the same kernel's `prepare` */
    float *y;        /* vector i at y + i*y_stride, indexed by output */
    size_t y_stride; /* in elements */
};

/*
 * Small batches, weight contract `exact`: the integer y of a state is multiplied
 * as it is; scale/d goes on each output (axis 1) or into x (axis 0).
 *  - One vector's result has the same bytes whatever m (1..32), its place among
 *    the m, and the ranges.
 *  - Its error against float64 is at most terms * 2^-24 * sum |w x| (plus, with
 *    int8 activations, what rounding x to its grid costs).
 */
struct tcq_small_kernel {
    const char *name; /* "reduce_avx512": operation and instruction set */

    /* Bytes that `prepare` writes for m vectors. */
    size_t (*prepared_nbytes)(const struct tcq_geometry *geometry, uint32_t m);

    /* Lay m float32 vectors (vector i at x + i*x_stride) out as `run` reads them:
     * the part that inputs in.begin..in.end-1 contribute to dst, which is aligned
     * to 64 and the same for every range.  in.begin is a multiple of
     * TCQ_INPUT_UNIT, in.end too unless it is the number of inputs. */
    void (*prepare)(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                    size_t x_stride, struct tcq_range in);

    /* Axis 1 (reduce): y of the rows in `rows`, over all columns; `blocks` is
     * 0..cols/T.  Axis 0 (scatter): for every column c of the blocks of T columns
     * in `blocks`, y[c] = the sum over the stored rows in `rows`, which begins at
     * a multiple of TCQ_INPUT_UNIT.  y is overwritten, not added to. */
    void (*run)(const struct tcq_product *product, struct tcq_range rows, struct tcq_range blocks);
};

/* Packed to dense: stored rows `rows` and blocks `blocks`, contract `bf16` (BF16)
 * or value*scale (F32).  dst is where the first weight goes; row stride in
 * elements. */
struct tcq_expand_kernel {
    const char *name;
    void (*run)(void *dst, enum tcq_dtype dtype, size_t dst_stride, const struct tcq_tensor *tensor,
                struct tcq_range rows, struct tcq_range blocks);
};

/* A dense bf16 product for expanded tiles: c[i*c_stride + j] += sum over l < depth
 * of a[i*a_stride + l] * B(j, l), in float32; i < m, j < n.
 * b_axis 1: B(j, l) = b[j*b_stride + l]; b_axis 0: B(j, l) = b[l*b_stride + j].
 * Any m, n, depth >= 1. */
struct tcq_gemm_kernel {
    const char *name;
    /* Scratch that `run` needs beside its arrays, aligned to 64. */
    size_t (*scratch_nbytes)(size_t m, size_t n, size_t depth);
    void (*run)(float *c, size_t c_stride, const uint16_t *a, size_t a_stride, const uint16_t *b,
                size_t b_stride, uint32_t b_axis, size_t m, size_t n, size_t depth, void *scratch);
};

/*
 * Many vectors on the integers y: x is rounded to a grid of 16 bits, one step a
 * vector and T inputs (step = max|x| / 16383; on axis 0 of x times the row's
 * scale/d), so each term errs by at most step/2 * |w|.  Sums over T inputs are
 * exact integers and the weights are not rounded at all.  x must be finite.
 */
struct tcq_wide_kernel {
    const char *name;

    /* Bytes that `prepare` writes for m vectors, m >= 1. */
    size_t (*prepared_nbytes)(const struct tcq_geometry *geometry, uint32_t m);

    /* As in a small kernel, but x begins at input in.begin. */
    void (*prepare)(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                    size_t x_stride, struct tcq_range in);

    /* Scratch that `run` of so many outputs needs, aligned to 64. */
    size_t (*scratch_nbytes)(const struct tcq_geometry *geometry, uint32_t m, uint64_t outputs);

    /* As in a small kernel, but y begins at the first output of the range. */
    void (*run)(const struct tcq_product *product, struct tcq_range rows, struct tcq_range blocks,
                void *scratch);
};

/* One variant of each operation. */
struct tcq_kernels {
    const struct tcq_small_kernel *small[2][2]; /* [axis][enum tcq_activations] */
    const struct tcq_expand_kernel *expand;
    const struct tcq_gemm_kernel *gemm;
    const struct tcq_wide_kernel *wide; /* NULL: expand, then gemm */
};

/* The best variant of each operation that needs no feature beyond cpu_flags: the
 * last such line of kernels.def.  A variant that does not serve a geometry is
 * passed over for it: geometry may be NULL (any). */
void tcq_kernels_select(struct tcq_kernels *out, uint32_t cpu_flags,
                        const struct tcq_geometry *geometry);

/* Every compiled variant, for tests, benchmarks and reports. */
enum tcq_kernel_operation {
    TCQ_KERNEL_REDUCE = 0,
    TCQ_KERNEL_REDUCE_INT8,
    TCQ_KERNEL_SCATTER,
    TCQ_KERNEL_SCATTER_INT8,
    TCQ_KERNEL_EXPAND,
    TCQ_KERNEL_GEMM,
    TCQ_KERNEL_WIDE,
    TCQ_KERNEL_OPERATION_COUNT
};

struct tcq_kernel_variant {
    const char *operation; /* "reduce", "reduce_int8", ... */
    const char *isa;       /* "scalar", "avx2", "avx512", "neon" */
    enum tcq_kernel_operation op;
    uint32_t needs;                                      /* enum tcq_cpu_flag */
    bool (*serves)(const struct tcq_geometry *geometry); /* NULL: every geometry */
    union {
        const struct tcq_small_kernel *small;
        const struct tcq_expand_kernel *expand;
        const struct tcq_gemm_kernel *gemm;
        const struct tcq_wide_kernel *wide;
    } kernel;
};

/* The variants in the order of kernels.def. */
const struct tcq_kernel_variant *tcq_kernels_all(size_t *count);

#endif
