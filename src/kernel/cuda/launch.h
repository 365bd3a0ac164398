/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The argument and the launchers of the fast kernels, seen by host code.
 */
#ifndef TCQ_KERNEL_CUDA_LAUNCH_H
#define TCQ_KERNEL_CUDA_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

enum fast_type { FAST_F32, FAST_F16, FAST_BF16 };

/* At most this many columns of the B operand: vectors, or pairs of columns a
 * vector where one binary16 does not hold an input. */
#define FAST_COLUMNS_MAX 32u

struct fast_args {
    const uint32_t *words;
    const uint16_t *scales;
    const void *x;
    void *y;
    void *inputs;      /* fast_inputs_nbytes(): x as the kernels read it */
    float *partial;    /* [blocks][2][256][columns] */
    uint32_t *tickets; /* [tiles] and [blocks][2][16], zero between launches */
    size_t x_stride, y_stride;
    size_t row_stride;   /* words from one stored row to the next */
    size_t pair_stride;  /* words from group 2i to group 2i+2 */
    size_t group_stride; /* words from group 2i to group 2i+1 */
    uint32_t rows, cols; /* of the stored matrix */
    uint32_t block_length; /* T */
    uint32_t columns;    /* of the B operand, 1..FAST_COLUMNS_MAX */
    uint32_t pieces;     /* columns a vector, 1 or 2 */
    uint32_t x_type, y_type;
    uint32_t x_aligned;  /* 16-byte loads of x are possible */
    uint32_t scales_aligned; /* likewise of scales */
    uint32_t words_aligned; /* every row of words starts at 16 bytes */
};

/* Bytes of `inputs` for a vector length rounded up to a multiple of 256. */
static inline size_t fast_inputs_nbytes(size_t length, uint32_t columns)
{
    return 256 + (length + 255) / 256 * 512 * columns;
}

/* Round x into `inputs`; then multiply, on `blocks` blocks, one a multiprocessor. */
cudaError_t fast_inputs_launch(const struct fast_args *args, uint32_t axis, cudaStream_t stream);
cudaError_t fast_axis1_launch(const struct fast_args *args, uint32_t k, uint32_t blocks,
                              cudaStream_t stream);
cudaError_t fast_axis0_launch(const struct fast_args *args, uint32_t k, uint32_t blocks,
                              cudaStream_t stream);

#endif
