/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inputs of the fast kernels: x, on axis 0 times the rows' scales, times one
 * power of two a vector, rounded to binary16 and laid out as lanes read it.  Where
 * a vector takes two columns, the second holds what the rounding of the first left.
 *
 * Eight blocks share a vector, a slice each, a warp 256 inputs at a time.  Where the
 * GPU has clusters they are one, and tell each other the largest magnitude of their
 * slices; elsewhere each looks through the whole vector.
 */
#include <cooperative_groups.h>

#include "kernel/cuda/fast.cuh"

namespace
{

namespace cg = cooperative_groups;

constexpr int kInputThreads = 512;
constexpr int kFewWarps = 12; /* up to which a thread has one piece */
#if __CUDA_ARCH__ >= 900
constexpr int kFewBlocks =
    5; /* that so few registers leave room for; no other GPU has one beside */
#else
constexpr int kFewBlocks = 1;
#endif
constexpr int kInputPieces = 4; /* of 8 inputs, a thread: enough for 131072 inputs */

__device__ __forceinline__ void load8(float (&v)[8], const fast_args &p, uint32_t vector,
                                      uint32_t index, uint32_t length, bool scaled)
{
    const size_t at = (size_t)vector * p.x_stride + index;
    uint16_t h[8], s[8];
    if (scaled) {
        if (p.scales_aligned && index + 8 <= length) {
            *(uint4 *)s = *(const uint4 *)(p.scales + index);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                s[i] = index + i < length ? p.scales[index + i] : (uint16_t)0;
        }
    }
    if (p.x_type == FAST_F32) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = index + i < length ? ((const float *)p.x)[at + i] : 0.0f;
    } else {
        if (p.x_aligned && index + 8 <= length) {
            *(uint4 *)h = *(const uint4 *)((const uint16_t *)p.x + at);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                h[i] = index + i < length ? ((const uint16_t *)p.x)[at + i] : (uint16_t)0;
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = p.x_type == FAST_BF16 ? __uint_as_float((uint32_t)h[i] << 16)
                                         : __half2float(__ushort_as_half(h[i]));
    }
    if (scaled) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] *= __half2float(__ushort_as_half(s[i]));
    }
}

__device__ __forceinline__ float largest8(const float (&v)[8], float largest)
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        largest = fmaxf(largest, fabsf(v[j]));
    return largest;
}

/* The power of two that brings a largest magnitude into [2^14, 2^15), and its
 * inverse.  Zero and non-finite magnitudes are left alone. */
__device__ __forceinline__ void range_scale(float largest, float *scale, float *inverse)
{
    const int biased = (int)(__float_as_uint(largest) >> 23); /* largest >= 0 */
    int e = largest == 0.0f || biased == 255 ? 0 : 14 - (biased - 127);
    e = e > 126 ? 126 : e;
    *scale = __uint_as_float((uint32_t)(e + 127) << 23);
    *inverse = __uint_as_float((uint32_t)(127 - e) << 23);
}

/* Of four words a thread of lanes l, l + 8, l + 16 and l + 24 the first of each to the
 * first of these, and so on. */
__device__ __forceinline__ uint4 exchange(const uint32_t (&w)[4])
{
    const bool high = threadIdx.x & 16, odd = threadIdx.x & 8;
    const uint32_t keep0 = high ? w[2] : w[0], keep1 = high ? w[3] : w[1];
    const uint32_t got0 = __shfl_xor_sync(~0u, high ? w[0] : w[2], 16);
    const uint32_t got1 = __shfl_xor_sync(~0u, high ? w[1] : w[3], 16);
    const uint32_t mine = odd ? keep1 : keep0, other = odd ? got1 : got0;
    const uint32_t mine_of = __shfl_xor_sync(~0u, odd ? keep0 : keep1, 8);
    const uint32_t other_of = __shfl_xor_sync(~0u, odd ? got0 : got1, 8);
    const uint2 same = odd ? make_uint2(mine_of, mine) : make_uint2(mine, mine_of);
    const uint2 far = odd ? make_uint2(other_of, other) : make_uint2(other, other_of);
    return high ? make_uint4(far.x, far.y, same.x, same.y)
                : make_uint4(same.x, same.y, far.x, far.y);
}

/* Eight inputs from `index` of one column to where the products look for them: rows of
 * the B operand (fast_wgmma.cuh) in the order in which lanes have weights.  On axis 1, for
 * a warp of consecutive inputs, lane t's row 2t + i of a step is input 64t + 4*step + i, and
 * 8 + 2t + i the one two later.  On axis 0 eight rows of a unit are axis0_row(t, i). */
__device__ __forceinline__ void store8(uint8_t *inputs, const __half (&h)[8], uint32_t column,
                                       uint32_t pitch, uint32_t index, uint32_t axis, uint32_t k)
{
    uint32_t at = column / 8 * 256 + column % 8 * 16;
    uint4 row;
    if (axis == 1) {
        const uint32_t *pairs = (const uint32_t *)h;
        const uint32_t w[4] = {pairs[0], pairs[1], pairs[2], pairs[3]};
        const uint32_t step = index / 8 % 8 * 2 + (index / 64 % 4) / 2, half = index / 64 % 2;
        row = exchange(w);
        at += (index / kGroup * 16 + step) * (32 * pitch) + half * 128;
    } else {
        uint32_t pair[4];
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const __half2 v = k == 3 ? __halves2half2(h[axis0_row<3>(t, 0)], h[axis0_row<3>(t, 1)])
                                     : __halves2half2(h[axis0_row<2>(t, 0)], h[axis0_row<2>(t, 1)]);
            pair[t] = *(const uint32_t *)&v;
        }
        row = make_uint4(pair[0], pair[1], pair[2], pair[3]);
        at += index / 16 * (32 * pitch) + index / 8 % 2 * 128;
    }
    *(uint4 *)(inputs + at) = row;
}

/* All threads get the result; `shared` has room for a value a warp. */
template <typename combine>
__device__ __forceinline__ float reduce_block(float v, float *shared, combine both)
{
#pragma unroll
    for (int d = 16; d; d >>= 1)
        v = both(v, __shfl_xor_sync(~0u, v, d));
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : 0.0f;
#pragma unroll
    for (int d = 16; d; d >>= 1)
        v = both(v, __shfl_xor_sync(~0u, v, d));
    __syncthreads();
    return v;
}

[[maybe_unused]] __device__ __forceinline__ void cluster_arrive()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
#endif
}
[[maybe_unused]] __device__ __forceinline__ void cluster_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ float larger(float a, float b)
{
    return fmaxf(a, b);
}
__device__ __forceinline__ float add(float a, float b)
{
    return a + b;
}

/* Rounds v, which is scaled, for `pieces` columns; adds to their sums. */
__device__ __forceinline__ void round8(const fast_args &p, float (&v)[8], float (&sum)[2],
                                       uint8_t *fragments, uint32_t column, uint32_t pitch,
                                       uint32_t index, uint32_t axis)
{
    alignas(16) __half h[8];
    for (uint32_t piece = 0; piece < p.pieces; piece++) {
        float part = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            h[j] = __float2half_rn(v[j]);
            v[j] -= __half2float(h[j]);
            part += __half2float(h[j]);
        }
        sum[piece] += part;
        store8(fragments, h, column + piece, pitch, index, axis, p.k);
    }
}

/* With one piece a thread few registers, so that a block fits beside one that multiplies. */
template <int kPieces, bool kClusters>
__global__ void __launch_bounds__(kPieces == 1 ? 32 * kFewWarps : kInputThreads,
                                  kPieces == 1 ? kFewBlocks : 1)
    inputs(const __grid_constant__ fast_args p, const uint32_t axis)
{
    __shared__ float shared[32];
    const uint32_t vector = blockIdx.x / FAST_INPUT_SLICES, slice = blockIdx.x % FAST_INPUT_SLICES;
    const uint32_t length = axis ? p.cols : p.rows, groups = (length + kGroup - 1) / kGroup;
    const uint32_t begin = groups * slice / FAST_INPUT_SLICES * kGroup;
    const uint32_t end = groups * (slice + 1) / FAST_INPUT_SLICES * kGroup;
    let_next_start();
    if constexpr (kClusters)
        cluster_arrive();
    wait_for_inputs();
    float v[kPieces][8], largest = 0.0f;
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
        const uint32_t index = begin + (i * blockDim.x + threadIdx.x) * 8;
        if (index < end) {
            load8(v[i], p, vector, index, length, axis == 0);
            largest = largest8(v[i], largest);
        }
    }
    if constexpr (kClusters) {
#if __CUDA_ARCH__ >= 900
        __shared__ float of_slice[FAST_INPUT_SLICES];
        largest = reduce_block(largest, shared, larger);
        cluster_wait(); /* all have started */
        if (threadIdx.x < FAST_INPUT_SLICES)
            *cg::this_cluster().map_shared_rank(of_slice + slice, threadIdx.x) = largest;
        cluster_arrive();
        cluster_wait();
#pragma unroll
        for (int i = 0; i < (int)FAST_INPUT_SLICES; i++)
            largest = fmaxf(largest, of_slice[i]);
#endif
    } else {
#pragma unroll 2
        for (uint32_t i = threadIdx.x * 8; i < length; i += blockDim.x * 8) {
            float w[8];
            load8(w, p, vector, i, length, axis == 0);
            largest = largest8(w, largest);
        }
        largest = reduce_block(largest, shared, larger);
    }
    float scale, inverse, sum[2] = {0.0f, 0.0f};
    range_scale(largest, &scale, &inverse);
    const uint32_t column = vector * p.pieces;
    const uint32_t pitch = fast_column_pitch(p.columns);
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
        const uint32_t index = begin + (i * blockDim.x + threadIdx.x) * 8;
        if (index >= end)
            continue;
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[i][j] *= scale;
        round8(p, v[i], sum, inputs_of(p), column, pitch, index, axis);
    }
    for (uint32_t i = 0; i < p.pieces; i++) {
        const float total = reduce_block(sum[i], shared, add);
        column_meta *meta = (column_meta *)p.inputs + column + i;
        if (threadIdx.x == 0) {
            meta->inverse = inverse; /* the same from every slice */
            meta->offset[slice] = kOffset * total;
        }
    }
}

/* Many vectors (wide.cu), a block each. */
constexpr int kWidePieces = 3; /* of 8 inputs, that a thread keeps: enough for 24576 inputs */

__global__ void __launch_bounds__(1024)
    wide_inputs(const __grid_constant__ fast_args p, const uint32_t axis)
{
    __shared__ float shared[32];
    const uint32_t length = axis ? p.cols : p.rows, groups = (length + kGroup - 1) / kGroup;
    const uint32_t end = groups * kGroup, stride = blockDim.x * 8, first = threadIdx.x * 8;
    let_next_start();
    wait_for_inputs();
    float v[kWidePieces][8], largest = 0.0f;
#pragma unroll
    for (int i = 0; i < kWidePieces; i++)
        if (first + i * stride < end) {
            load8(v[i], p, blockIdx.x, first + i * stride, length, axis == 0);
            largest = largest8(v[i], largest);
        }
    for (uint32_t index = first + kWidePieces * stride; index < end; index += stride) {
        float w[8];
        load8(w, p, blockIdx.x, index, length, axis == 0);
        largest = largest8(w, largest);
    }
    largest = reduce_block(largest, shared, larger);
    float scale, inverse, sum[2] = {0.0f, 0.0f};
    range_scale(largest, &scale, &inverse);
    const uint32_t pitch = wide_tile_columns(p.columns), column = blockIdx.x * p.pieces;
    uint8_t *to = (uint8_t *)p.inputs + wide_meta_nbytes(p.columns) +
                  (size_t)(column / pitch) * groups * (2 * kGroup * pitch);
    const auto round = [&](float(&w)[8], uint32_t index) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[j] *= scale;
        round8(p, w, sum, to, column % pitch, pitch, index, axis);
    };
#pragma unroll
    for (int i = 0; i < kWidePieces; i++)
        if (first + i * stride < end)
            round(v[i], first + i * stride);
    for (uint32_t index = first + kWidePieces * stride; index < end; index += stride) {
        float w[8];
        load8(w, p, blockIdx.x, index, length, axis == 0);
        round(w, index);
    }
    for (uint32_t i = 0; i < p.pieces; i++) {
        const float total = reduce_block(sum[i], shared, add);
        if (threadIdx.x == 0)
            ((column_sum *)p.inputs)[column + i] = {inverse, kOffset * total};
    }
}

} /* namespace */

cudaError_t fast_inputs_launch(const struct fast_args *args, uint32_t axis, cudaStream_t stream)
{
    const uint32_t groups = ((axis ? args->cols : args->rows) + kGroup - 1) / kGroup;
    const uint32_t most = (groups + FAST_INPUT_SLICES - 1) / FAST_INPUT_SLICES; /* a slice */
    const bool few = most <= kFewWarps, clusters = args->hopper;
    const uint32_t warps = few ? most : kInputThreads / 32;
    if (most > warps * kInputPieces)
        return cudaErrorInvalidValue;
    auto *kernel = clusters ? (few ? inputs<1, true> : inputs<kInputPieces, true>)
                            : (few ? inputs<1, false> : inputs<kInputPieces, false>);
    return launch_overlapped(kernel, args->columns / args->pieces * FAST_INPUT_SLICES,
                             clusters ? FAST_INPUT_SLICES : 1, (int)(32 * warps), 0, stream, *args,
                             axis);
}

cudaError_t wide_inputs_launch(const struct fast_args *args, uint32_t axis, cudaStream_t stream)
{
    const uint32_t groups = ((axis ? args->cols : args->rows) + kGroup - 1) / kGroup;
    return launch_overlapped(wide_inputs, args->columns / args->pieces, 1,
                             (int)(32 * (groups < 32 ? groups : 32)), 0, stream, *args, axis);
}
