/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU of a context, and two operations that layers need beside those of
 * kernel/cuda.
 */
#ifndef TCQ_LINEAR_CUDA_GPU_H
#define TCQ_LINEAR_CUDA_GPU_H

#include <cuda_runtime_api.h>

#include "kernel/cuda/cuda.h"
#include "linear/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What tcq_context_device gives. */
struct gpu_device {
    struct tcq_cuda *cuda;
    cudaStream_t stream; /* of layers; the caller's */
    float *sums;         /* GPU_SUMS float32: outputs before a bias is added to them */
};
/* A vector of the longest layer that is known, several times. */
enum { GPU_SUMS = 1 << 21 };

extern const struct tcq_linear_device gpu_linear_device;

/* TCQ_OK, or CUDA's words after `what`. */
enum tcq_status gpu_status(cudaError_t code, const char *what, struct tcq_error *error);

/* y[i][o] = sums[i][o] + bias[o], rounded to y's type; sums may be y. */
cudaError_t gpu_bias_launch(const struct tcq_vectors *y, const float *sums, size_t sums_stride,
                            const float *bias, uint64_t out, uint32_t m, cudaStream_t stream);
/* The transpose of a stored matrix, dst [cols][dst_stride], by contract `bf16` or
 * as float32 value * scale. */
cudaError_t gpu_transposed_launch(void *dst, enum tcq_dtype dtype, size_t dst_stride,
                                  const struct tcq_tensor *tensor, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
