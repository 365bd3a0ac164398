/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The argument and the launchers of the fast kernels, seen by host code.
 */
#ifndef TCQ_KERNEL_CUDA_LAUNCH_H
#define TCQ_KERNEL_CUDA_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "base/host_device.h"
#include "encode/scale_fit.h"
#include "tcq.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fast_type { FAST_F32, FAST_F16, FAST_BF16 };

/* Columns of the B operand, which one pass over the weights serves: vectors, or pairs of
 * columns a vector where one binary16 does not hold an input.  On axis 0 the sums of more
 * than 32 find no room in registers. */
#define FAST_COLUMNS_MAX 64u
#define FAST_COLUMNS_MAX_AXIS0 32u

/* Blocks that share the preparation of one vector: a cluster. */
#define FAST_INPUT_SLICES 8u
#define FAST_INPUT_META_NBYTES ((1u + FAST_INPUT_SLICES) * 4u * FAST_COLUMNS_MAX)

/* Shared memory that a block may need: what compute capability 9.0 has. */
#define FAST_SHARED_NBYTES (227u * 1024u)

/* What `partial` holds where no sum waits, in every byte. */
#define FAST_PARTIAL_EMPTY 0xff

struct fast_args {
    const uint32_t *words;
    const uint16_t *scales;
    const void *x;
    void *y;
    void *inputs;   /* fast_inputs_nbytes(): x as the kernels read it */
    float *partial; /* fast_partial_nbytes(), empty between launches */
    size_t x_stride, y_stride;
    size_t row_stride;                /* words from one stored row to the next */
    size_t pair_stride;               /* words from group 2i to group 2i+2 */
    size_t group_stride;              /* words from group 2i to group 2i+1 */
    uint32_t rows, cols;              /* of the stored matrix */
    uint32_t block_length;            /* T */
    uint32_t run_length, runs_longer; /* work of a block; the launcher fills them in */
    uint32_t columns;                 /* of the B operand, 1..FAST_COLUMNS_MAX */
    uint32_t pieces;                  /* columns a vector, 1 or 2 */
    uint32_t together;                /* another launch may meet this one: see launch_overlapped */
    uint32_t k;
    uint32_t hopper; /* clusters and tensor copies may be used */
    uint32_t x_type, y_type;
    uint32_t x_aligned;      /* 16-byte loads of x are possible */
    uint32_t scales_aligned; /* likewise of scales */
    uint32_t words_aligned;  /* every row of words starts at 16 bytes */
};

/* Columns that there is room for: 8, 16, 32 or 64, as wide as the kernels' tiles. */
TCQ_HOST_DEVICE static inline uint32_t fast_column_pitch(uint32_t columns)
{
    return columns <= 8 ? 8 : columns <= 16 ? 16 : columns <= 32 ? 32 : FAST_COLUMNS_MAX;
}
/* Bytes of `inputs` for a vector length rounded up to a multiple of 256. */
static inline size_t fast_inputs_nbytes(size_t length, uint32_t columns)
{
    return FAST_INPUT_META_NBYTES + (length + 255) / 256 * 512 * fast_column_pitch(columns);
}
/* Bytes of `partial`: of each block the sums of two tiles of 256 outputs. */
static inline size_t fast_partial_nbytes(uint32_t blocks)
{
    return (size_t)blocks * 2 * 256 * FAST_COLUMNS_MAX * sizeof(float);
}

/* Whether the kernels that the driver has loaded were compiled for 9.0 or newer; on an
 * older form of theirs, translated for a newer GPU, copies would never end. */
bool fast_has_hopper_code(void);

/* Round x into `inputs`; then multiply, on `blocks` blocks, one a multiprocessor. */
cudaError_t fast_inputs_launch(const struct fast_args *args, uint32_t axis, cudaStream_t stream);
cudaError_t fast_axis1_launch(const struct fast_args *args, uint32_t blocks, cudaStream_t stream);
cudaError_t fast_axis0_launch(const struct fast_args *args, uint32_t blocks, cudaStream_t stream);

/* ---- many vectors ---------------------------------------------------------- */

/* Columns of a tile: WIDE_COLUMNS_FEW where that is enough, or twice as many. */
#define WIDE_COLUMNS_FEW 64u
TCQ_HOST_DEVICE static inline uint32_t wide_tile_columns(uint32_t columns)
{
    return columns <= WIDE_COLUMNS_FEW ? WIDE_COLUMNS_FEW : 2 * WIDE_COLUMNS_FEW;
}
/* `inputs` for them: of each column two numbers, then of each tile its columns' inputs, in
 * steps of 16. */
TCQ_HOST_DEVICE static inline size_t wide_meta_nbytes(uint32_t columns)
{
    return (size_t)(columns + 127) / 128 * 1024;
}
static inline size_t wide_inputs_nbytes(size_t length, uint32_t columns)
{
    const uint32_t tile = wide_tile_columns(columns);
    return wide_meta_nbytes(columns) +
           (columns + tile - 1) / tile * ((length + 255) / 256 * 512 * tile);
}
/* Whether there is code for this GPU; asked on compute capability 9.0 alone. */
bool wide_has_code(void);
cudaError_t wide_inputs_launch(const struct fast_args *args, uint32_t axis, cudaStream_t stream);
/* cudaErrorNotSupported where packed rows do not start at 16 bytes. */
cudaError_t wide_launch(const struct fast_args *args, uint32_t axis, uint32_t blocks,
                        cudaStream_t stream);

/* gate/up after its products: y [m][rows], the gate's sums, becomes mid; up likewise of
 * `dtype`. */
struct swiglu_args {
    void *y;
    const void *up;
    size_t y_stride, up_stride;
    uint64_t rows;
    uint32_t m;
    enum tcq_swiglu tail;
    uint32_t blocks_per_vector; /* the launcher fills it in */
};
cudaError_t swiglu_launch(const struct swiglu_args *args, enum tcq_dtype dtype,
                          cudaStream_t stream);

/* ---- encoder ----------------------------------------------------------------- */

struct encode_args {
    uint32_t *words;
    uint16_t *scales;
    const float *src;
    size_t src_stride;
    uint32_t rows, cols, k, T;
};
struct encode_scale_rule {
    double table_rms;
    bool fitted; /* the rest is used */
    struct tcq_scale_fit fit;
    double factors[TCQ_SCALE_FIT_FACTORS];
};
/* *bad_row becomes the lowest row without a scale. */
cudaError_t encode_scales_launch(const struct encode_args *args,
                                 const struct encode_scale_rule *rule, uint32_t *bad_row,
                                 cudaStream_t stream);
/* L = 12. */
cudaError_t encode_launch(const struct encode_args *args, cudaStream_t stream);

/* Any L, with a piece of memory for each of as many thread blocks as the GPU runs. */
struct encode_general_plan {
    uint32_t blocks, threads;
    size_t shared_nbytes, each_nbytes;
};
cudaError_t encode_general_plan_make(struct encode_general_plan *out, uint32_t k, uint32_t L,
                                     uint32_t T);
cudaError_t encode_general_launch(const struct encode_args *args, uint32_t L, void *work,
                                  cudaStream_t stream);

/* ---- reference operations ------------------------------------------------ */

struct reference_tensor {
    const uint32_t *words;
    const uint16_t *scales;
    uint64_t rows, cols;
    uint32_t k, L, T, interleaved;
};

struct reference_args {
    struct reference_tensor w, up; /* up: of gate/up only */
    const void *x;
    void *y;
    float *partial; /* scatter, split-K: [m][splits][outputs] */
    size_t x_stride, y_stride;
    enum tcq_dtype x_type, y_type;
    enum tcq_swiglu tail;
    uint32_t m, splits;
};

enum reference_form { REFERENCE_GENERIC, REFERENCE_BALANCED, REFERENCE_BALANCED_TABLE };

cudaError_t reference_reduce_launch(const struct reference_args *args, cudaStream_t stream);
cudaError_t reference_gate_up_launch(const struct reference_args *args, cudaStream_t stream);
cudaError_t reference_scatter_launch(const struct reference_args *args, enum reference_form form,
                                     cudaStream_t stream);
/* Products on bf16 weights, k ascending: tiled (axis 1) and wide (axis 0) with one
 * split and no partial; split-K with `partition` rows a split. */
cudaError_t reference_product_launch(const struct reference_args *args, uint32_t axis,
                                     uint64_t partition, cudaStream_t stream);
cudaError_t reference_expand_launch(void *dst, enum tcq_dtype dtype, size_t dst_stride,
                                    const struct reference_tensor *w, uint64_t row_begin,
                                    uint64_t row_end, cudaStream_t stream);

/* BF16: the same bytes, faster where L is 12, k 2..4 and dst_stride a multiple of 8. */
cudaError_t expand_launch(void *dst, size_t dst_stride, const struct reference_tensor *w,
                          uint64_t row_begin, uint64_t row_end, cudaStream_t stream);
/* m vectors of `length` elements from one activation type to another. */
cudaError_t wide_convert_launch(void *dst, enum tcq_dtype dst_type, size_t dst_stride,
                                const void *src, enum tcq_dtype src_type, size_t src_stride,
                                uint64_t length, uint32_t m, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
