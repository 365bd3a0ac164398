/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One head of one vector, held by a warp: bias, norm and rotary embedding on the way
 * from the product, and keys and values on the way into the cache.
 */
#ifndef TCQ_MODEL_CUDA_ROPE_CUH
#define TCQ_MODEL_CUDA_ROPE_CUH

#include <cuda_fp16.h>

#include "model/cuda/kernels.h"
#include "model/cuda/launch.cuh"

/* Components i and i + head_dim/2, which turn together, for i = lane + 32*j. */
template <int PAIRS> struct gpu_head {
    float a[PAIRS], b[PAIRS];
};

/* What turns a head, and is known before its product is. */
template <int PAIRS> struct gpu_turn {
    float c[PAIRS], s[PAIRS], weight_a[PAIRS], weight_b[PAIRS], bias_a[PAIRS], bias_b[PAIRS];
};

/* Heads are counted as they lie in qkv: of q, of k, of v. */
template <int PAIRS>
__device__ __forceinline__ gpu_turn<PAIRS> load_turn(const gpu_attention &p, uint32_t head,
                                                     uint32_t position)
{
    const uint32_t dim = p.head_dim, half = dim / 2, lane = threadIdx.x % 32;
    const float *cosines = p.cosines + (size_t)position * half;
    const float *sines = p.sines + (size_t)position * half;
    const float *bias = p.bias ? p.bias + (size_t)head * dim : nullptr;
    const float *weight = head < p.heads                ? p.q_norm
                          : head < p.heads + p.kv_heads ? p.k_norm
                                                        : nullptr;
    gpu_turn<PAIRS> t;
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        const uint32_t i = lane + 32 * j;
        const bool in = i < half;
        t.c[j] = in ? cosines[i] : 0.0f;
        t.s[j] = in ? sines[i] : 0.0f;
        t.weight_a[j] = in && weight ? weight[i] : 0.0f;
        t.weight_b[j] = in && weight ? weight[i + half] : 0.0f;
        t.bias_a[j] = in && bias ? bias[i] : 0.0f;
        t.bias_b[j] = in && bias ? bias[i + half] : 0.0f;
    }
    return t;
}

template <int PAIRS>
__device__ __forceinline__ gpu_head<PAIRS> turn_head(const gpu_attention &p,
                                                     const gpu_turn<PAIRS> &t, const float *from,
                                                     uint32_t head)
{
    const uint32_t half = p.head_dim / 2, lane = threadIdx.x % 32;
    const bool is_value = head >= p.heads + p.kv_heads;
    const bool normed = !is_value && (head < p.heads ? p.q_norm : p.k_norm) != nullptr;
    gpu_head<PAIRS> h;
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        const uint32_t i = lane + 32 * j;
        h.a[j] = t.bias_a[j] + (i < half ? from[i] : 0.0f);
        h.b[j] = t.bias_b[j] + (i < half ? from[i + half] : 0.0f);
        sum = fmaf(h.a[j], h.a[j], sum);
        sum = fmaf(h.b[j], h.b[j], sum);
    }
    const float factor = normed ? 1.0f / sqrtf(warp_sum(sum) / (float)p.head_dim + p.epsilon) : 1.0f;
#pragma unroll
    for (int j = 0; j < PAIRS && !is_value; j++) {
        const float a = normed ? h.a[j] * factor * t.weight_a[j] : h.a[j];
        const float b = normed ? h.b[j] * factor * t.weight_b[j] : h.b[j];
        h.a[j] = a * t.c[j] - b * t.s[j];
        h.b[j] = b * t.c[j] + a * t.s[j];
    }
    return h;
}

__device__ __forceinline__ uint16_t half_bits(float v)
{
    return __half_as_ushort(__float2half_rn(v));
}

template <int PAIRS>
__device__ __forceinline__ void store_head(const gpu_head<PAIRS> &h, const gpu_attention &p,
                                           uint32_t head, uint32_t position)
{
    const uint32_t half = p.head_dim / 2, lane = threadIdx.x % 32;
    const bool is_value = head >= p.heads + p.kv_heads;
    const uint32_t kv = is_value ? head - p.heads - p.kv_heads : head - p.heads;
    uint16_t *to = is_value ? p.cache.values + kv * p.cache.head_stride +
                                  (size_t)(position / GPU_TILE) * p.cache.padded * GPU_TILE +
                                  position % GPU_TILE
                            : p.cache.keys + kv * p.cache.head_stride +
                                  (size_t)position * p.cache.padded;
    const size_t step = is_value ? GPU_TILE : 1;
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        const uint32_t i = lane + 32 * j;
        if (i < half) {
            to[i * step] = half_bits(h.a[j]);
            to[(i + half) * step] = half_bits(h.b[j]);
        }
    }
}

#endif
