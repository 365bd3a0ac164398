/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of gate/up after two products: the gate's sums, in place, become mid.  Both
 * are of the activation type, to which the tail rounds them first in any case.
 */
#include "kernel/cuda/fast.cuh"
#include "kernel/cuda/launch.h"
#include "kernel/reference/arithmetic.h"

namespace {

constexpr int kThreads = 256;

/* 16 bytes of one type. */
template <tcq_dtype dtype> struct chunk {
    static constexpr int count = dtype == TCQ_DTYPE_F32 ? 4 : 8;
    uint4 words;

    __device__ __forceinline__ float get(int i) const
    {
        const uint32_t *w = (const uint32_t *)&words;
        if (dtype == TCQ_DTYPE_F32)
            return __uint_as_float(w[i]);
        const uint16_t h = (uint16_t)(w[i / 2] >> (i % 2 * 16));
        return dtype == TCQ_DTYPE_BF16 ? tcq_bf16_to_f32(h) : tcq_f16_to_f32(h);
    }
    __device__ __forceinline__ void set(int i, float v)
    {
        uint32_t *w = (uint32_t *)&words;
        if (dtype == TCQ_DTYPE_F32) {
            w[i] = __float_as_uint(v);
            return;
        }
        const uint32_t h = dtype == TCQ_DTYPE_BF16 ? tcq_bf16_from_f32(v) : tcq_f16_from_f32(v);
        w[i / 2] = i % 2 ? w[i / 2] | h << 16 : h;
    }
};

/* `count` elements at once, 16 bytes of them or one. */
template <tcq_dtype dtype, tcq_swiglu tail, bool whole>
__global__ void __launch_bounds__(kThreads) swiglu(const __grid_constant__ swiglu_args p)
{
    constexpr int count = whole ? chunk<dtype>::count : 1;
    const uint32_t vector = blockIdx.x / p.blocks_per_vector;
    const uint64_t at = (blockIdx.x % p.blocks_per_vector) * (uint64_t)kThreads + threadIdx.x;
    const uint64_t element = at * count;
    let_next_start();
    wait_for_inputs();
    if (element >= p.rows)
        return;
    constexpr size_t nbytes = dtype == TCQ_DTYPE_F32 ? 4 : 2;
    char *y = (char *)p.y + (vector * p.y_stride + element) * nbytes;
    const char *up = (const char *)p.up + (vector * p.up_stride + element) * nbytes;
    chunk<dtype> g = {}, u = {}, mid = {};
    if constexpr (whole) {
        g.words = *(const uint4 *)y;
        u.words = *(const uint4 *)up;
    } else if constexpr (nbytes == 4) {
        g.words.x = *(const uint32_t *)y;
        u.words.x = *(const uint32_t *)up;
    } else {
        g.words.x = *(const uint16_t *)y;
        u.words.x = *(const uint16_t *)up;
    }
#pragma unroll
    for (int i = 0; i < count; i++)
        mid.set(i, tcq_swiglu_tail(dtype, tail, g.get(i), u.get(i)));
    if constexpr (whole)
        *(uint4 *)y = mid.words;
    else if constexpr (nbytes == 4)
        *(uint32_t *)y = mid.words.x;
    else
        *(uint16_t *)y = (uint16_t)mid.words.x;
}

template <tcq_dtype dtype, tcq_swiglu tail>
cudaError_t launch(const swiglu_args &p, cudaStream_t stream)
{
    constexpr int count = chunk<dtype>::count;
    const bool whole = p.rows % count == 0 && p.y_stride % count == 0 && p.up_stride % count == 0 &&
                       (uintptr_t)p.y % 16 == 0 && (uintptr_t)p.up % 16 == 0;
    swiglu_args a = p;
    const uint64_t items = whole ? p.rows / count : p.rows;
    a.blocks_per_vector = (uint32_t)((items + kThreads - 1) / kThreads);
    const uint32_t blocks = a.blocks_per_vector * p.m;
    return whole ? launch_overlapped(swiglu<dtype, tail, true>, blocks, 1, kThreads, 0, stream, a)
                 : launch_overlapped(swiglu<dtype, tail, false>, blocks, 1, kThreads, 0, stream, a);
}

template <tcq_dtype dtype> cudaError_t launch(const swiglu_args &p, cudaStream_t stream)
{
    return p.tail == TCQ_SWIGLU_SPLIT ? launch<dtype, TCQ_SWIGLU_SPLIT>(p, stream)
                                      : launch<dtype, TCQ_SWIGLU_FUSED>(p, stream);
}

} /* namespace */

cudaError_t swiglu_launch(const struct swiglu_args *args, enum tcq_dtype dtype, cudaStream_t stream)
{
    return dtype == TCQ_DTYPE_F32    ? launch<TCQ_DTYPE_F32>(*args, stream)
           : dtype == TCQ_DTYPE_BF16 ? launch<TCQ_DTYPE_BF16>(*args, stream)
                                     : launch<TCQ_DTYPE_F16>(*args, stream);
}
