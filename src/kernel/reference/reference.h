/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference operations: plain C, written to be read, each in the one order
 * of additions that docs/numerics.md fixes, so that any other implementation
 * can reproduce its bytes.
 *
 * Common to all: vector i of x starts at x + i*x_stride (x is float32: bf16 and
 * fp16 inputs convert exactly), vector i of y at y + i*y_stride.  y receives the
 * float32 sums before the one rounding to the output's type; bias is none of
 * their business.  The tensor has passed tcq_tensor_check.  A call computes a
 * range of outputs, so that threads can share the work: which range an output is
 * computed in does not change its bytes.
 */
#ifndef TCQ_KERNEL_REFERENCE_REFERENCE_H
#define TCQ_KERNEL_REFERENCE_REFERENCE_H

#include "tcq.h"

enum {
    TCQ_REFERENCE_LANES = 32,
    TCQ_REFERENCE_M_MAX = 4,    /* of reduce, gate/up and scatter */
    TCQ_REFERENCE_SPLITS = 128, /* of scatter, unless asked otherwise */
    TCQ_SPLIT_K_IN_MIN = 128,
    TCQ_SPLIT_K_M_MAX = 32
};

struct tcq_reference_product {
    const struct tcq_tensor *tensor;
    uint32_t m;
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
};

/*
 * Axis 1, any m, contract `f32`; outputs [row_begin, row_end).
 * The columns are runs of 32; lane l of 32 takes runs l, l+32, ...  Two fma
 * chains a lane and vector, from +0: even and odd positions, ascending.  Lane
 * result = even + odd; then v[l] += v[l ^ d] for d = 16, 8, 4, 2, 1.
 */
void tcq_reference_reduce(const struct tcq_reference_product *product, uint64_t row_begin,
                          uint64_t row_end);

/* How scatter finds the weights of a block.  All give the same bytes. */
enum tcq_scatter_form {
    TCQ_SCATTER_GENERIC = 0,   /* word by word: any k, L, T, layout */
    TCQ_SCATTER_BALANCED,      /* eight positions a lane: k 3, T 256, L <= 12 */
    TCQ_SCATTER_BALANCED_TABLE /* the same; y from an int16 table of all states */
};

/*
 * Axis 0, any m, contract `f32`; outputs of blocks [block_begin, block_end) of
 * T columns.  The rows are cut into `splits` runs of ceil(rows/splits); in each,
 * acc = fma(weight, x, acc) from +0 in ascending row order; total = +0, then
 * total += acc of each split in ascending order.
 * table[2^L] of y is read by the table form only.
 */
void tcq_reference_scatter(const struct tcq_reference_product *product, uint32_t splits,
                           enum tcq_scatter_form form, const int16_t *table, uint64_t block_begin,
                           uint64_t block_end);

/*
 * Axis 0, contract `bf16`, m up to TCQ_SPLIT_K_M_MAX, in >= TCQ_SPLIT_K_IN_MIN;
 * outputs of blocks [block_begin, block_end).  Splits of `partition` rows, the
 * last one also takes the tail; k ascending by fma from +0 in each; total = +0,
 * then += each split's sum in ascending order.
 */
void tcq_reference_split_k(const struct tcq_reference_product *product, uint64_t block_begin,
                           uint64_t block_end);

/* The number of splits and their size for m vectors. */
struct tcq_split_k {
    uint32_t splits;
    uint64_t partition;
};
struct tcq_split_k tcq_split_k_plan(uint64_t m, uint64_t in, uint64_t out);

/*
 * Axis 1, contract `bf16`, any m; outputs [row_begin, row_end).  One float32
 * accumulator an output, k ascending, acc = fma(weight, x, acc) from +0.
 */
void tcq_reference_tiled(const struct tcq_reference_product *product, uint64_t row_begin,
                         uint64_t row_end);

/* The same order on axis 0: outputs of blocks [block_begin, block_end).  Together
 * with tiled this is the product on expanded weights for many vectors. */
void tcq_reference_wide(const struct tcq_reference_product *product, uint64_t block_begin,
                        uint64_t block_end);

/* Stored rows [row_begin, row_end), dense: contract `bf16` (BF16) or value*scale
 * (F32).  dst is where row_begin goes; stride in elements. */
void tcq_reference_expand(void *dst, enum tcq_dtype dtype, size_t dst_stride,
                          const struct tcq_tensor *tensor, uint64_t row_begin, uint64_t row_end);
/* One block of T weights of it. */
void tcq_reference_expand_block(void *dst, enum tcq_dtype dtype, const struct tcq_tensor *tensor,
                                uint64_t row, uint64_t block);

#endif
