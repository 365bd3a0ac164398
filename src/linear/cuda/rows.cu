/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bias on the way to the output type, and dense weights of axis 0.
 */
#include "format/block.h"
#include "kernel/reference/arithmetic.h"
#include "linear/cuda/gpu.h"

namespace {

constexpr uint32_t kThreads = 256, kTile = 32;

__global__ void add_bias(const __grid_constant__ tcq_vectors y, const float *sums,
                         size_t sums_stride, const float *bias, uint64_t out)
{
    const uint64_t o = (uint64_t)blockIdx.x * kThreads + threadIdx.x;
    if (o >= out)
        return;
    const float v = sums[blockIdx.y * sums_stride + o] + bias[o];
    const size_t at = blockIdx.y * y.stride + o;
    if (y.dtype == TCQ_DTYPE_F32)
        ((float *)y.data)[at] = v;
    else
        ((uint16_t *)y.data)[at] =
            y.dtype == TCQ_DTYPE_BF16 ? tcq_bf16_from_f32(v) : tcq_f16_from_f32(v);
}

/* Blocks of 32 x 32 weights, turned in shared memory. */
__global__ void transposed(void *dst, tcq_dtype dtype, size_t dst_stride,
                           const __grid_constant__ tcq_tensor w)
{
    __shared__ float tile[kTile][kTile + 1];
    const tcq_geometry &g = w.geometry;
    const uint64_t col = (uint64_t)blockIdx.x * kTile + threadIdx.x;
    const uint64_t row0 = (uint64_t)blockIdx.y * kTile;
    const uint32_t block_words = g.T * g.k / 32, t = (uint32_t)(col % g.T);
    const uint64_t block = col / g.T;
    for (uint32_t r = threadIdx.y; r < kTile && row0 + r < g.rows; r += blockDim.y) {
        const uint64_t row = row0 + r;
        const uint32_t *words =
            g.layout == TCQ_LAYOUT_INTERLEAVED
                ? w.words + (block >> 1) * g.rows * 48 + row * 48 + (block & 1) * 24
                : w.words + (row * (g.cols / g.T) + block) * block_words;
        const int32_t y = tcq_code_y(tcq_block_window(words, g.k, g.L, g.T, t));
        tile[r][threadIdx.x] = tcq_value_refined(y) * tcq_f16_to_f32(w.scales[row]);
    }
    __syncthreads();
    for (uint32_t c = threadIdx.y; c < kTile; c += blockDim.y) {
        if (row0 + threadIdx.x >= g.rows)
            continue;
        const size_t at = ((uint64_t)blockIdx.x * kTile + c) * dst_stride + row0 + threadIdx.x;
        const float v = tile[threadIdx.x][c];
        if (dtype == TCQ_DTYPE_F32)
            ((float *)dst)[at] = v;
        else
            ((uint16_t *)dst)[at] = tcq_bf16_from_f32(v);
    }
}

} /* namespace */

cudaError_t gpu_bias_launch(const struct tcq_vectors *y, const float *sums, size_t sums_stride,
                            const float *bias, uint64_t out, uint32_t m, cudaStream_t stream)
{
    const dim3 grid((uint32_t)((out + kThreads - 1) / kThreads), m);
    add_bias<<<grid, kThreads, 0, stream>>>(*y, sums, sums_stride, bias, out);
    return cudaGetLastError();
}

cudaError_t gpu_transposed_launch(void *dst, enum tcq_dtype dtype, size_t dst_stride,
                                  const struct tcq_tensor *tensor, cudaStream_t stream)
{
    const tcq_geometry &g = tensor->geometry; /* cols is a multiple of 64 */
    const dim3 grid((uint32_t)(g.cols / kTile), (uint32_t)((g.rows + kTile - 1) / kTile));
    transposed<<<grid, dim3(kTile, 8), 0, stream>>>(dst, dtype, dst_stride, *tensor);
    return cudaGetLastError();
}
