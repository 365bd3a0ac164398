/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference operations on the GPU: a warp is the lane group, and every sum
 * runs in the order that kernel/reference/reference.h gives, so that the bytes
 * are those of plain C.  Compiled without contraction; each fma is written out.
 */
#include <stdint.h>

#include <cuda_runtime.h>

#include "format/block.h"
#include "kernel/cuda/launch.h"
#include "kernel/reference/arithmetic.h"

namespace {

constexpr int kVectors = 4; /* of reduce and scatter, decoded for once */

__device__ __forceinline__ float load(const void *x, tcq_dtype dtype, size_t at)
{
    if (dtype == TCQ_DTYPE_F32)
        return ((const float *)x)[at];
    const uint16_t h = ((const uint16_t *)x)[at];
    return dtype == TCQ_DTYPE_BF16 ? tcq_bf16_to_f32(h) : tcq_f16_to_f32(h);
}

__device__ __forceinline__ void store(void *y, tcq_dtype dtype, size_t at, float v)
{
    if (dtype == TCQ_DTYPE_F32)
        ((float *)y)[at] = v;
    else
        ((uint16_t *)y)[at] = dtype == TCQ_DTYPE_BF16 ? tcq_bf16_from_f32(v) : tcq_f16_from_f32(v);
}

/* Words of block `block` of row `row`. */
__device__ __forceinline__ const uint32_t *block_of(const reference_tensor &w, uint64_t row,
                                                    uint64_t block)
{
    const uint32_t count = w.T * w.k / 32;
    if (w.interleaved)
        return w.words + (block >> 1) * w.rows * 48 + row * 48 + (block & 1) * 24;
    return w.words + (row * (w.cols / w.T) + block) * count;
}

/* ---- reduce and gate/up --------------------------------------------------- */

/* This lane's sums of one row for `count` vectors. */
__device__ __forceinline__ void reduce_row(float (&sum)[kVectors], const reference_args &p,
                                           const reference_tensor &w, uint64_t row, uint32_t first,
                                           uint32_t count)
{
    const float scale = tcq_f16_to_f32(w.scales[row]);
    float even[kVectors] = {}, odd[kVectors] = {};
    for (uint64_t run = threadIdx.x; run < w.cols / 32; run += 32) {
        const uint32_t *words = block_of(w, row, run / (w.T / 32));
        const uint32_t t0 = (uint32_t)(run % (w.T / 32)) * 32;
        for (uint32_t j = 0; j < 32; j += 2) {
            const float a = tcq_weight_f32(tcq_code_y(tcq_block_window(words, w.k, w.L, w.T, t0 + j)), scale);
            const float b = tcq_weight_f32(tcq_code_y(tcq_block_window(words, w.k, w.L, w.T, t0 + j + 1)), scale);
#pragma unroll
            for (int i = 0; i < kVectors; i++)
                if (i < count) {
                    const size_t at = (first + i) * p.x_stride + run * 32 + j;
                    even[i] = fmaf(a, load(p.x, p.x_type, at), even[i]);
                    odd[i] = fmaf(b, load(p.x, p.x_type, at + 1), odd[i]);
                }
        }
    }
#pragma unroll
    for (int i = 0; i < kVectors; i++) {
        sum[i] = even[i] + odd[i];
        for (int d = 16; d; d /= 2)
            sum[i] += __shfl_xor_sync(~0u, sum[i], d);
    }
}

__global__ void reduce(const __grid_constant__ reference_args p)
{
    const uint64_t row = blockIdx.x * (uint64_t)blockDim.y + threadIdx.y;
    const uint32_t first = blockIdx.y * kVectors, count = min(p.m - first, (uint32_t)kVectors);
    if (row >= p.w.rows)
        return;
    float sum[kVectors];
    reduce_row(sum, p, p.w, row, first, count);
    if (threadIdx.x < count)
        store(p.y, p.y_type, (first + threadIdx.x) * p.y_stride + row,
              threadIdx.x == 0   ? sum[0]
              : threadIdx.x == 1 ? sum[1]
              : threadIdx.x == 2 ? sum[2]
                                 : sum[3]);
}

__global__ void gate_up(const __grid_constant__ reference_args p)
{
    const uint64_t row = blockIdx.x * (uint64_t)blockDim.y + threadIdx.y;
    const uint32_t first = blockIdx.y * kVectors, count = min(p.m - first, (uint32_t)kVectors);
    if (row >= p.w.rows)
        return;
    float gate[kVectors], up[kVectors];
    reduce_row(gate, p, p.w, row, first, count);
    reduce_row(up, p, p.up, row, first, count);
    if (threadIdx.x == 0)
        for (uint32_t i = 0; i < count; i++)
            store(p.y, p.y_type, (first + i) * p.y_stride + row,
                  tcq_swiglu_tail(p.y_type, p.tail, gate[i], up[i]));
}

/* ---- scatter ---------------------------------------------------------------- */

/* Outputs of one lane, eight or fewer at known positions, over one split. */
template <int positions, typename decode>
__device__ __forceinline__ void scatter_rows(const reference_args &p, uint32_t split,
                                             const uint64_t (&cols)[positions],
                                             const bool (&valid)[positions], decode states)
{
    const uint64_t per_split = (p.w.rows + p.splits - 1) / p.splits;
    const uint64_t begin = split * per_split;
    const uint64_t end = begin + per_split < p.w.rows ? begin + per_split : p.w.rows;
    for (uint32_t first = 0; first < p.m; first += kVectors) {
        float acc[kVectors][positions] = {};
        for (uint64_t row = begin; row < end; row++) {
            int32_t y[positions];
            states(row, y);
            const float scale = tcq_f16_to_f32(p.w.scales[row]);
            float x[kVectors];
#pragma unroll
            for (int i = 0; i < kVectors; i++)
                x[i] = first + i < p.m ? load(p.x, p.x_type, (first + i) * p.x_stride + row) : 0.0f;
#pragma unroll
            for (int n = 0; n < positions; n++) {
                const float weight = tcq_weight_f32(y[n], scale);
#pragma unroll
                for (int i = 0; i < kVectors; i++)
                    acc[i][n] = fmaf(weight, x[i], acc[i][n]);
            }
        }
#pragma unroll
        for (int i = 0; i < kVectors; i++)
#pragma unroll
            for (int n = 0; n < positions; n++)
                if (first + i < p.m && valid[n])
                    p.partial[((first + i) * (uint64_t)p.splits + split) * p.w.cols + cols[n]] = acc[i][n];
    }
}

/* One packed word a lane: the positions whose symbols start in it, eight at a
 * time; the word above comes from the next lane's place. */
__global__ void scatter_generic(const __grid_constant__ reference_args p)
{
    const reference_tensor &w = p.w;
    const uint32_t words = w.T * w.k / 32;
    const uint64_t lane = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    const uint64_t block = lane / words;
    const uint32_t word = (uint32_t)(lane % words), next = word + 1 == words ? 0 : word + 1;
    if (block >= w.cols / w.T)
        return;
    const uint32_t begin = 32 * word, mask = (1u << w.L) - 1;
    for (uint32_t bit0 = (begin + w.k - 1) / w.k * w.k; bit0 < begin + 32; bit0 += 8 * w.k) {
        uint64_t cols[8];
        bool valid[8];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            valid[n] = bit0 + n * w.k < begin + 32;
            cols[n] = block * w.T + w.T - 1 - (bit0 / w.k + n);
        }
        scatter_rows(p, blockIdx.y, cols, valid, [&](uint64_t row, int32_t(&y)[8]) {
            const uint32_t *at = block_of(w, row, block);
            const uint64_t window = (uint64_t)at[next] << 32 | at[word];
#pragma unroll
            for (int n = 0; n < 8; n++)
                y[n] = tcq_code_y((uint32_t)(window >> (bit0 - begin + n * w.k & 63)) & mask);
        });
    }
}

/* Eight positions a lane, so that no lane of a block of 256 at 3 bits idles; y
 * by arithmetic or from a table of int16 in shared memory. */
template <bool with_table> __global__ void scatter_balanced(const __grid_constant__ reference_args p)
{
    extern __shared__ int16_t table[];
    const reference_tensor &w = p.w;
    const uint32_t mask = (1u << w.L) - 1;
    if (with_table) {
        for (uint32_t s = threadIdx.x; s <= mask; s += blockDim.x)
            table[s] = (int16_t)tcq_code_y(s);
        __syncthreads();
    }
    const uint64_t block = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32, bit = lane * 24, word = bit >> 5;
    const uint32_t next = word + 1 == 24 ? 0 : word + 1;
    if (block >= w.cols / w.T)
        return;
    uint64_t cols[8];
    bool valid[8];
#pragma unroll
    for (int n = 0; n < 8; n++) {
        cols[n] = block * 256 + 255 - lane * 8 - n;
        valid[n] = true;
    }
    scatter_rows(p, blockIdx.y, cols, valid, [&](uint64_t row, int32_t(&y)[8]) {
        const uint32_t *at = block_of(w, row, block);
        const uint64_t window = ((uint64_t)at[next] << 32 | at[word]) >> (bit & 31);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const uint32_t state = (uint32_t)(window >> n * 3) & mask;
            y[n] = with_table ? table[state] : tcq_code_y(state);
        }
    });
}

/* total = +0, then the parts in ascending order. */
__global__ void add_partials(const __grid_constant__ reference_args p, uint32_t splits, uint64_t count)
{
    const uint64_t out = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    if (out >= count)
        return;
    float total = 0.0f;
    for (uint32_t s = 0; s < splits; s++)
        total += p.partial[(blockIdx.y * (uint64_t)splits + s) * count + out];
    store(p.y, p.y_type, blockIdx.y * p.y_stride + out, total);
}

/* ---- tiled, split-K, wide ---------------------------------------------------- */

constexpr int kTile = 32;

/* 32 outputs by up to 32 vectors; weights are rebuilt in shared memory, 32 k at a
 * time, and every sum runs over k in ascending order. */
template <int axis> __global__ void __launch_bounds__(256)
    product(const __grid_constant__ reference_args p, uint64_t partition)
{
    __shared__ float weights[kTile][kTile + 1], x[kTile][kTile + 1];
    const reference_tensor &w = p.w;
    const uint64_t inputs = axis ? w.cols : w.rows, outputs = axis ? w.rows : w.cols;
    const uint64_t out0 = blockIdx.x * (uint64_t)kTile, begin = blockIdx.z * partition;
    const uint64_t end = blockIdx.z + 1 == gridDim.z ? inputs : begin + partition;
    const uint32_t first = blockIdx.y * kTile, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float acc[kTile / 8] = {};
    for (uint64_t k0 = begin; k0 < end; k0 += kTile) {
        for (uint32_t i = warp; i < kTile; i += 8) {
            /* Lanes run along the coded dimension. */
            const uint64_t row = axis ? out0 + i : k0 + i, col = axis ? k0 + lane : out0 + lane;
            float weight = 0.0f;
            if (row < w.rows && col < w.cols) {
                const int32_t y = tcq_code_y(tcq_block_window(block_of(w, row, col / w.T), w.k, w.L,
                                                              w.T, (uint32_t)(col % w.T)));
                weight = tcq_bf16_to_f32(tcq_weight_bf16(y, tcq_f16_to_f32(w.scales[row])));
            }
            weights[axis ? lane : i][axis ? i : lane] = weight; /* [k][out] */
            x[i][lane] = first + i < p.m && k0 + lane < inputs
                             ? load(p.x, p.x_type, (first + i) * p.x_stride + k0 + lane)
                             : 0.0f;
        }
        __syncthreads();
        const uint32_t depth = end - k0 < kTile ? (uint32_t)(end - k0) : kTile;
        for (uint32_t k = 0; k < depth; k++)
#pragma unroll
            for (int i = 0; i < kTile / 8; i++)
                acc[i] = fmaf(weights[k][lane], x[warp + 8 * i][k], acc[i]);
        __syncthreads();
    }
    if (out0 + lane >= outputs)
        return;
#pragma unroll
    for (int i = 0; i < kTile / 8; i++) {
        const uint32_t vector = first + warp + 8 * i;
        if (vector >= p.m)
            continue;
        if (p.partial)
            p.partial[(vector * (uint64_t)gridDim.z + blockIdx.z) * outputs + out0 + lane] = acc[i];
        else
            store(p.y, p.y_type, vector * p.y_stride + out0 + lane, acc[i]);
    }
}

/* ---- expand -------------------------------------------------------------------- */

/* Four neighbouring weights a thread: one window of up to 64 bits. */
__global__ void expand(void *dst, tcq_dtype dtype, size_t dst_stride, reference_tensor w,
                       uint64_t row_begin, uint64_t row_end)
{
    const uint64_t col = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) * 4;
    if (col >= w.cols)
        return;
    const uint32_t t = (uint32_t)(col % w.T), count = w.T * w.k / 32, mask = (1u << w.L) - 1;
    const uint32_t bit = (w.T - 4 - t) * w.k, word = bit >> 5, next = word + 1 == count ? 0 : word + 1;
    for (uint64_t row = row_begin + blockIdx.y; row < row_end; row += gridDim.y) {
        const uint32_t *words = block_of(w, row, col / w.T);
        const uint64_t window = ((uint64_t)words[next] << 32 | words[word]) >> (bit & 31);
        const float scale = tcq_f16_to_f32(w.scales[row]);
        const uint64_t at = (row - row_begin) * dst_stride + col;
        uint16_t h[4];
        float f[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t y = tcq_code_y((uint32_t)(window >> (3 - i) * w.k) & mask);
            f[i] = tcq_value_refined(y) * scale;
            h[i] = tcq_bf16_from_f32(f[i]);
        }
        if (dtype == TCQ_DTYPE_BF16 && dst_stride % 4 == 0) {
            *(uint2 *)((uint16_t *)dst + at) = make_uint2(h[0] | (uint32_t)h[1] << 16, h[2] | (uint32_t)h[3] << 16);
            continue;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (dtype == TCQ_DTYPE_BF16)
                ((uint16_t *)dst)[at + i] = h[i];
            else
                ((float *)dst)[at + i] = f[i];
        }
    }
}

__global__ void convert(void *dst, tcq_dtype dst_type, size_t dst_stride, const void *src,
                        tcq_dtype src_type, size_t src_stride, uint64_t length)
{
    const uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    if (i < length)
        store(dst, dst_type, blockIdx.y * dst_stride + i,
              load(src, src_type, blockIdx.y * src_stride + i));
}

uint32_t blocks_for(uint64_t count, uint32_t each) { return (uint32_t)((count + each - 1) / each); }

cudaError_t add(const reference_args &p, uint32_t splits, uint64_t outputs, cudaStream_t stream)
{
    add_partials<<<dim3(blocks_for(outputs, 256), p.m), 256, 0, stream>>>(p, splits, outputs);
    return cudaGetLastError();
}

} /* namespace */

cudaError_t reference_reduce_launch(const struct reference_args *p, cudaStream_t stream)
{
    reduce<<<dim3(blocks_for(p->w.rows, 4), blocks_for(p->m, kVectors)), dim3(32, 4), 0, stream>>>(*p);
    return cudaGetLastError();
}

cudaError_t reference_gate_up_launch(const struct reference_args *p, cudaStream_t stream)
{
    gate_up<<<dim3(blocks_for(p->w.rows, 4), blocks_for(p->m, kVectors)), dim3(32, 4), 0, stream>>>(*p);
    return cudaGetLastError();
}

cudaError_t reference_scatter_launch(const struct reference_args *p, enum reference_form form,
                                     cudaStream_t stream)
{
    const uint64_t blocks = p->w.cols / p->w.T;
    if (form == REFERENCE_GENERIC)
        scatter_generic<<<dim3(blocks_for(blocks * (p->w.T * p->w.k / 32), 128), p->splits), 128, 0,
                          stream>>>(*p);
    else if (form == REFERENCE_BALANCED)
        scatter_balanced<false><<<dim3(blocks_for(blocks, 4), p->splits), 128, 0, stream>>>(*p);
    else
        scatter_balanced<true><<<dim3(blocks_for(blocks, 4), p->splits), 128, 2u << p->w.L, stream>>>(*p);
    const cudaError_t status = cudaGetLastError();
    return status == cudaSuccess ? add(*p, p->splits, p->w.cols, stream) : status;
}

cudaError_t reference_product_launch(const struct reference_args *p, uint32_t axis,
                                     uint64_t partition, cudaStream_t stream)
{
    const uint64_t outputs = axis ? p->w.rows : p->w.cols, inputs = axis ? p->w.cols : p->w.rows;
    const dim3 grid(blocks_for(outputs, kTile), blocks_for(p->m, kTile), p->splits);
    if (axis)
        product<1><<<grid, 256, 0, stream>>>(*p, partition ? partition : inputs);
    else
        product<0><<<grid, 256, 0, stream>>>(*p, partition ? partition : inputs);
    const cudaError_t status = cudaGetLastError();
    return status == cudaSuccess && p->partial ? add(*p, p->splits, outputs, stream) : status;
}

cudaError_t reference_expand_launch(void *dst, enum tcq_dtype dtype, size_t dst_stride,
                                    const struct reference_tensor *w, uint64_t row_begin,
                                    uint64_t row_end, cudaStream_t stream)
{
    const uint64_t rows = row_end - row_begin;
    expand<<<dim3(blocks_for(w->cols, 4 * 128), rows < 65535 ? (uint32_t)rows : 65535u), 128, 0,
             stream>>>(dst, dtype, dst_stride, *w, row_begin, row_end);
    return cudaGetLastError();
}

cudaError_t wide_convert_launch(void *dst, enum tcq_dtype dst_type, size_t dst_stride,
                                const void *src, enum tcq_dtype src_type, size_t src_stride,
                                uint64_t length, uint32_t m, cudaStream_t stream)
{
    convert<<<dim3(blocks_for(length, 256), m), 256, 0, stream>>>(dst, dst_type, dst_stride, src,
                                                                   src_type, src_stride, length);
    return cudaGetLastError();
}
