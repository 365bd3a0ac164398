/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inputs of the fast kernels: x, on axis 0 times the rows' scales, times one
 * power of two a vector, rounded to binary16 and laid out as lanes read it.  Where
 * a vector takes two columns, the second holds what the rounding of the first left.
 *
 * Several blocks share a vector: each finds its largest magnitude by itself, which
 * costs less than waiting for the others, and rounds one slice.
 */
#include "kernel/cuda/fast.cuh"

namespace {

constexpr int kInputThreads = 512;

__device__ __forceinline__ void load8(float (&v)[8], const fast_args &p, uint32_t vector,
                                      uint32_t index, uint32_t length, bool scaled)
{
    const size_t at = (size_t)vector * p.x_stride + index;
    uint16_t h[8], s[8];
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
    if (!scaled)
        return;
    if (p.scales_aligned && index + 8 <= length) {
        *(uint4 *)s = *(const uint4 *)(p.scales + index);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            s[i] = index + i < length ? p.scales[index + i] : (uint16_t)0;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] *= __half2float(__ushort_as_half(s[i]));
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

/* Eight inputs from `index` of one column to where the lanes look for them. */
__device__ __forceinline__ void store8(const fast_args &p, const __half (&h)[8], uint32_t column,
                                       uint32_t index, uint32_t axis)
{
    uint8_t *fragments = fragments_of(p);
    if (axis == 1) { /* lane t, inputs 64t + 8*pair of a group: 16 bytes of a pair of products */
        const uint32_t group = index / kGroup, t = index / 64 % 4, pair = index / 8 % 8;
        ((uint4 *)fragments)[((group * 8 + pair) * p.columns + column) * 4 + t] = *(const uint4 *)h;
        return;
    }
    /* Row t + 4*quarter of 16 is element `quarter` of lane t. */
    const uint32_t rows16 = index / 16, quarter = index / 8 % 2 * 2;
    __half2 *to = (__half2 *)fragments + (rows16 * p.columns + column) * 8 + quarter / 2;
#pragma unroll
    for (int t = 0; t < 4; t++)
        to[2 * t] = __halves2half2(h[t], h[t + 4]);
}

template <typename combine>
__device__ __forceinline__ float reduce_block(float v, float *shared, combine both)
{
#pragma unroll
    for (int d = 16; d; d >>= 1)
        v = both(v, __shfl_xor_sync(~0u, v, d));
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < kInputThreads / 32 ? shared[threadIdx.x % 32] : 0.0f;
#pragma unroll
    for (int d = 16; d; d >>= 1)
        v = both(v, __shfl_xor_sync(~0u, v, d));
    __syncthreads();
    return v;
}

__global__ void __launch_bounds__(kInputThreads, 2) inputs(const __grid_constant__ fast_args p,
                                                        const uint32_t axis)
{
    __shared__ float shared[32];
    const uint32_t vector = blockIdx.x / FAST_INPUT_SLICES, slice = blockIdx.x % FAST_INPUT_SLICES;
    const uint32_t length = axis ? p.cols : p.rows, groups = (length + kGroup - 1) / kGroup;
    const uint32_t begin = groups * slice / FAST_INPUT_SLICES * kGroup;
    const uint32_t end = groups * (slice + 1) / FAST_INPUT_SLICES * kGroup;
    let_next_start();
    wait_for_inputs();
    float largest = 0.0f, v[8];
#pragma unroll 4
    for (uint32_t i = threadIdx.x * 8; i < length; i += kInputThreads * 8) {
        load8(v, p, vector, i, length, axis == 0);
#pragma unroll
        for (int j = 0; j < 8; j++)
            largest = fmaxf(largest, fabsf(v[j]));
    }
    float scale, inverse;
    range_scale(reduce_block(largest, shared, [](float a, float b) { return fmaxf(a, b); }), &scale,
                &inverse);
    float sum[2] = {0.0f, 0.0f};
    for (uint32_t i = begin + threadIdx.x * 8; i < end; i += kInputThreads * 8) {
        load8(v, p, vector, i, length, axis == 0);
        __half h[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            v[j] *= scale;
            h[j] = __float2half_rn(v[j]);
            sum[0] += __half2float(h[j]);
        }
        store8(p, h, vector * p.pieces, i, axis);
        if (p.pieces == 1)
            continue;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            h[j] = __float2half_rn(v[j] - __half2float(h[j]));
            sum[1] += __half2float(h[j]);
        }
        store8(p, h, vector * 2 + 1, i, axis);
    }
    for (uint32_t i = 0; i < p.pieces; i++) {
        const float total = reduce_block(sum[i], shared, [](float a, float b) { return a + b; });
        column_meta *meta = (column_meta *)p.inputs + vector * p.pieces + i;
        if (threadIdx.x == 0) {
            meta->inverse = inverse; /* the same from every slice */
            meta->offset[slice] = kOffset * total;
        }
    }
}

} /* namespace */

cudaError_t fast_inputs_launch(const struct fast_args *args, uint32_t axis, cudaStream_t stream)
{
    return launch_overlapped(inputs, args->columns / args->pieces * FAST_INPUT_SLICES, kInputThreads, 0, stream, *args,
                             axis);
}
