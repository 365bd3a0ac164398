/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights that no trellis packs: products in float32 and rows for embeddings.
 * Elements are widened where they are used; nothing is expanded in memory.  Every
 * sum has an order that depends on sizes alone, and on whether m exceeds
 * kVectorsMax.
 */
#include "base/half.h"
#include "format/block.h"
#include "kernel/reference/arithmetic.h"
#include "model/cuda/kernels.h"
#include "model/cuda/launch.cuh"

namespace {

constexpr uint32_t kVectorsMax = 8; /* of the matrix-vector form */
constexpr uint32_t kThreads = 128, kWarps = kThreads / 32;

/* ---- eight neighbouring weights ---------------------------------------------- */

template <int FORM>
__device__ __forceinline__ void load16(float (&w)[8], const uint16_t *from)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        w[i] = FORM == GPU_F16 ? tcq_f16_to_f32(from[i]) : tcq_bf16_to_f32(from[i]);
}

/* w*scale + bias of MLX: eight weights take `bits` bytes and lie in one group. */
__device__ __forceinline__ void load_affine(float (&w)[8], const gpu_weight &p, uint32_t row,
                                            uint32_t col)
{
    const uint32_t row_words = p.in / 32 * p.bits + p.in % 32 * p.bits / 32, bit = col * p.bits;
    const uint32_t *words = (const uint32_t *)p.data + (size_t)row * row_words;
    const uint32_t first = bit >> 5, shift = bit & 31, last = (bit + 8 * p.bits - 1) >> 5;
    uint64_t held = words[first] | (uint64_t)(first < last ? words[first + 1] : 0u) << 32;
    held >>= shift;
    if (first + 1 < last) /* three words: shift is 8, 16 or 24 */
        held |= (uint64_t)words[last] << (64 - shift);
    const size_t at = (size_t)row * (p.in / p.group) + col / p.group;
    const float scale = p.bf16_scales ? tcq_bf16_to_f32(p.scales[at]) : tcq_f16_to_f32(p.scales[at]);
    const float bias = p.bf16_scales ? tcq_bf16_to_f32(p.biases[at]) : tcq_f16_to_f32(p.biases[at]);
    const uint32_t mask = (1u << p.bits) - 1;
#pragma unroll
    for (int i = 0; i < 8; i++)
        w[i] = scale * (float)((uint32_t)(held >> (i * p.bits)) & mask) + bias;
}

/* `wide`: every row starts at 16 bytes, and a multiple of 8 columns. */
template <int FORM>
__device__ __forceinline__ void load8(float (&w)[8], const gpu_weight &p, uint32_t row,
                                      uint32_t col, bool wide)
{
    const size_t at = (size_t)row * p.in + col;
    if (FORM == GPU_AFFINE) {
        load_affine(w, p, row, col);
    } else if (wide && FORM == GPU_F32) {
        const float4 *from = (const float4 *)((const float *)p.data + at);
        const float4 a = __ldg(from), b = __ldg(from + 1);
        w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w;
        w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
    } else if (wide) {
        const uint4 v = __ldg((const uint4 *)((const uint16_t *)p.data + at));
        uint16_t h[8];
        *(uint4 *)h = v;
        load16<FORM>(w, h);
    } else {
        for (int i = 0; i < 8; i++) {
            const bool in = col + i < p.in;
            if (FORM == GPU_F32) {
                w[i] = in ? ((const float *)p.data)[at + i] : 0.0f;
            } else {
                const uint16_t h = in ? ((const uint16_t *)p.data)[at + i] : (uint16_t)0;
                w[i] = FORM == GPU_F16 ? tcq_f16_to_f32(h) : tcq_bf16_to_f32(h);
            }
        }
    }
}

__device__ __forceinline__ void load_x8(float (&v)[8], const float *x, uint32_t col, uint32_t in,
                                        bool wide)
{
    if (wide) {
        const float4 a = *(const float4 *)(x + col), b = *(const float4 *)(x + col + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
        for (int i = 0; i < 8; i++)
            v[i] = col + i < in ? x[col + i] : 0.0f;
    }
}

/* ---- few vectors: a warp takes ROWS rows ------------------------------------------ */

template <int FORM, int VECTORS>
__global__ void __launch_bounds__(kThreads) few(const __grid_constant__ gpu_weight p, float *y,
                                                size_t y_stride, const float *x, size_t x_stride,
                                                uint32_t m, bool wide)
{
    constexpr int ROWS = VECTORS > 4 ? 2 : 4;
    const uint32_t row = (blockIdx.x * kWarps + threadIdx.x / 32) * ROWS, lane = threadIdx.x % 32;
    start_overlapped();
    if (row >= p.out)
        return;
    float sum[ROWS][VECTORS] = {};
    for (uint32_t col = lane * 8; col < p.in; col += 256) {
        float w[ROWS][8];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            load8<FORM>(w[r], p, min(row + r, p.out - 1), col, wide);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            float v[8];
            load_x8(v, x + min((uint32_t)i, m - 1) * x_stride, col, p.in, wide);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sum[r][i] = fmaf(w[r][j], v[j], sum[r][i]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const float all = warp_sum(sum[r][i]);
            if (lane == 0 && row + r < p.out && i < m)
                y[i * y_stride + row + r] = all;
        }
}

/* ---- many vectors: tiles of 64 outputs x 64 vectors ---------------------------------- */

constexpr uint32_t kTile = 64, kDepth = 32, kTileThreads = 256, kRow = kTile + 4;

template <int FORM>
__global__ void __launch_bounds__(kTileThreads)
    many(const __grid_constant__ gpu_weight p, float *y, size_t y_stride, const float *x,
         size_t x_stride, uint32_t m, bool wide)
{
    __shared__ float ws[kDepth * kRow], xs[kDepth * kRow];
    const uint32_t row0 = blockIdx.x * kTile, first = blockIdx.y * kTile;
    const uint32_t line = threadIdx.x / 4, at = threadIdx.x % 4 * 8;
    const uint32_t tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float sum[4][4] = {};
    start_overlapped();
    for (uint32_t c = 0; c < p.in; c += kDepth) {
        float w[8] = {}, v[8] = {};
        if (c + at < p.in) {
            load8<FORM>(w, p, min(row0 + line, p.out - 1), c + at, wide);
            load_x8(v, x + min(first + line, m - 1) * x_stride, c + at, p.in, wide);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            ws[(at + i) * kRow + line] = w[i];
            xs[(at + i) * kRow + line] = v[i];
        }
        __syncthreads();
#pragma unroll 8
        for (uint32_t k = 0; k < kDepth; k++) {
            const float4 a = *(const float4 *)(xs + k * kRow + ty * 4);
            const float4 b = *(const float4 *)(ws + k * kRow + tx * 4);
            const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fmaf(bs[j], as[i], sum[i][j]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (first + ty * 4 + i < m && row0 + tx * 4 + j < p.out)
                y[(first + ty * 4 + i) * y_stride + row0 + tx * 4 + j] = sum[i][j];
}

template <int FORM>
cudaError_t dense(float *y, size_t y_stride, const gpu_weight &w, const float *x, size_t x_stride,
                  uint32_t m, cudaStream_t stream)
{
    const bool wide = w.in % 8 == 0 && x_stride % 4 == 0 && (uintptr_t)x % 16 == 0;
    if (m > kVectorsMax)
        return launch(many<FORM>, dim3((w.out + kTile - 1) / kTile, (m + kTile - 1) / kTile),
                      kTileThreads, stream, w, y, y_stride, x, x_stride, m, wide);
    auto kernel = m == 1 ? few<FORM, 1> : m <= 4 ? few<FORM, 4> : few<FORM, 8>;
    const uint32_t rows = kWarps * (m > 4 ? 2 : 4);
    return launch(kernel, dim3((w.out + rows - 1) / rows), kThreads, stream, w, y, y_stride, x,
                  x_stride, m, wide);
}

/* ---- rows ----------------------------------------------------------------------------- */

/* Position c of stored row `row`, axis 1: value * scale, as tcq_decode_row has it. */
__device__ float packed_weight(const tcq_tensor &w, uint32_t row, uint32_t c)
{
    const tcq_geometry &g = w.geometry;
    const uint32_t block_words = g.T * g.k / 32;
    const uint32_t *words = w.words + ((size_t)row * (g.cols / g.T) + c / g.T) * block_words;
    const uint32_t state = tcq_block_window(words, g.k, g.L, g.T, c % g.T);
    return tcq_value_refined(tcq_code_y(state)) * tcq_f16_to_f32(w.scales[row]);
}

template <int FORM>
__global__ void embed(const __grid_constant__ gpu_weight p, float *x, const uint32_t *tokens)
{
    start_overlapped();
    const uint32_t row = tokens[blockIdx.x];
    float *to = x + (size_t)blockIdx.x * p.in;
    for (uint32_t c = threadIdx.x * 8; c < p.in; c += blockDim.x * 8) {
        float w[8];
        if (FORM == GPU_PACKED)
            for (uint32_t i = 0; i < 8; i++)
                w[i] = packed_weight(p.packed, row, min(c + i, p.in - 1));
        else
            load8<FORM>(w, p, row, c, false);
        for (uint32_t i = 0; i < 8 && c + i < p.in; i++)
            to[c + i] = w[i];
    }
}

} /* namespace */

cudaError_t gpu_dense_launch(float *y, size_t y_stride, const struct gpu_weight *weight,
                             const float *x, size_t x_stride, uint32_t m, cudaStream_t stream)
{
    switch (weight->form) {
    case GPU_F32:
        return dense<GPU_F32>(y, y_stride, *weight, x, x_stride, m, stream);
    case GPU_F16:
        return dense<GPU_F16>(y, y_stride, *weight, x, x_stride, m, stream);
    case GPU_BF16:
        return dense<GPU_BF16>(y, y_stride, *weight, x, x_stride, m, stream);
    case GPU_AFFINE:
        return dense<GPU_AFFINE>(y, y_stride, *weight, x, x_stride, m, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t gpu_embed_launch(float *x, const struct gpu_weight *weight, const uint32_t *tokens,
                             uint32_t m, cudaStream_t stream)
{
    void (*const kernels[])(gpu_weight, float *, const uint32_t *) = {
        embed<GPU_F32>, embed<GPU_F16>, embed<GPU_BF16>, embed<GPU_AFFINE>, embed<GPU_PACKED>};
    return launch(kernels[weight->form], dim3(m), 256, stream, *weight, x, tokens);
}
