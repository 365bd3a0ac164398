/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder on the GPU for any number of states; the same bytes as src/encode.
 * encode.cu is the fast form for 4096 of them, and the names are explained there.
 *
 * Values are computed where they are needed, metrics lie in shared memory where they fit
 * and else in global memory, and choices always there.  A grid that fits the GPU takes
 * the blocks of T weights in turns, each thread block with its own piece of memory.
 */
#include <cuda_runtime.h>

#include "format/geometry.h"
#include "kernel/cuda/launch.h"
#include "kernel/reference/arithmetic.h"

namespace {

constexpr float kForbidden = -1e30f;
constexpr uint32_t kThreadsMax = 512;
constexpr size_t kWorkMax = (size_t)256 << 20;

/* Groups whose choices share a byte. */
template <int K> constexpr uint32_t kPerByte = K == 1 ? 8 : K == 2 ? 4 : K == 3 ? 2 : 1;

struct general_job {
    uint32_t *words;
    const uint16_t *scales;
    const float *src;
    uint8_t *work;
    size_t src_stride, work_each;
    uint32_t L, T, blocks_per_row, blocks;
    bool in_shared; /* the metrics */
};

template <int K> struct solver {
    float *metrics;   /* [2][groups], of two boundaries in turns */
    uint8_t *choices; /* [T][pitch] */
    uint32_t groups, pitch;

    __device__ float *metrics_at(uint32_t t) const
    {
        return metrics + (t & 1) * groups;
    }

    __device__ uint32_t choice(uint32_t t, uint32_t j) const
    {
        const uint32_t byte = choices[t * (size_t)pitch + j / kPerByte<K>];
        return byte >> (j % kPerByte<K> * K) & ((1 << K) - 1);
    }
};

/* tcq_value_refined(tcq_code_y(state)), without a conversion: 2^23 and a small integer
 * are a float32 whose low bits are that integer. */
__device__ __forceinline__ float value_of(uint32_t state)
{
    const uint32_t z = state * TCQ_CODE_MULTIPLIER + TCQ_CODE_ADDEND;
    const uint32_t sum = __dp4a(z, 0x01010101u, 0x4b000000u);
    const float y = __uint_as_float(sum) - (0x1p23f + TCQ_CODE_OFFSET);
    const float q = y * TCQ_RECIPROCAL_F32;
    return fmaf(fmaf(-q, TCQ_DIVISOR_F32, y), TCQ_RECIPROCAL_F32, q);
}

template <int K>
__device__ void step(const solver<K> &s, uint32_t t, float x2)
{
    const float *from = s.metrics_at(t);
    float *to = s.metrics_at(t + 1);
    for (uint32_t q = threadIdx.x; q < s.pitch; q += blockDim.x) {
        uint32_t byte = 0;
        for (uint32_t r = 0; r < kPerByte<K>; r++) {
            const uint32_t j = q * kPerByte<K> + r;
            float best = 0.0f;
            uint32_t at = 0;
#pragma unroll 4
            for (uint32_t m = 0; m < 1u << K; m++) {
                const uint32_t state = j + m * s.groups;
                const float value = value_of(state);
                const float sum = from[state >> K] + fmaf(x2, value, -(value * value));
                if (m == 0 || sum >= best) { /* of equals the later one */
                    best = sum;
                    at = m;
                }
            }
            to[j] = best;
            byte |= at << (r * K);
        }
        s.choices[t * (size_t)s.pitch + q] = (uint8_t)byte;
    }
    __syncthreads();
}

/* From group `first`, or from anywhere where that is negative. */
template <int K>
__device__ void pass(const solver<K> &s, const float *x2, uint32_t T, int first)
{
    for (uint32_t j = threadIdx.x; j < s.groups; j += blockDim.x)
        s.metrics[j] = first < 0 || (int)j == first ? 0.0f : kForbidden;
    __syncthreads();
    for (uint32_t t = 0; t < T; t++)
        step(s, t, x2[t]);
}

/* The last state of the best path; of equals the largest. */
template <int K> __device__ uint32_t best_last(const solver<K> &s, uint32_t T)
{
    __shared__ uint64_t best_of_warp[kThreadsMax / 32];
    uint64_t best = 0;
    for (uint32_t j = threadIdx.x; j < s.groups; j += blockDim.x) {
        const uint32_t bits = __float_as_uint(s.metrics_at(T)[j] + 0.0f); /* -0 becomes +0 */
        const uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        const uint64_t candidate = (uint64_t)key << 32 | (j + s.choice(T - 1, j) * s.groups);
        best = candidate > best ? candidate : best;
    }
    for (int d = 16; d; d >>= 1) {
        const uint64_t other = __shfl_xor_sync(~0u, best, d);
        best = other > best ? other : best;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        best_of_warp[threadIdx.x / 32] = best;
    __syncthreads();
    for (uint32_t i = 0; i < blockDim.x / 32; i++)
        best = best_of_warp[i] > best ? best_of_warp[i] : best;
    return (uint32_t)best;
}

template <int K>
__device__ void store_words(uint32_t *words, const uint16_t *states, uint32_t T)
{
    for (uint32_t i = threadIdx.x; i < T * K / 32; i += blockDim.x) {
        uint64_t bits = 0; /* symbols from the one that holds bit 32i */
        const uint32_t symbol = 32 * i / K, skip = 32 * i % K;
        for (uint32_t n = 0; n * K < 32 + skip && symbol + n < T; n++)
            bits |= (uint64_t)(states[T - 1 - symbol - n] & ((1 << K) - 1)) << (n * K);
        words[i] = (uint32_t)(bits >> skip);
    }
}

template <int K>
__global__ void __launch_bounds__(kThreadsMax) viterbi_general(const __grid_constant__ general_job p)
{
    extern __shared__ __align__(16) float shared_metrics[];
    __shared__ float x2[2 * TCQ_T_MAX]; /* twice over, so that a rotation is an offset */
    __shared__ uint16_t states[TCQ_T_MAX];
    __shared__ uint32_t first;
    const uint32_t T = p.T, half = T / 2, groups = 1u << (p.L - K);
    uint8_t *work = p.work + blockIdx.x * p.work_each;
    float *metrics = p.in_shared ? shared_metrics : (float *)work;
    const solver<K> s = {metrics,
                         p.in_shared ? work : work + 2 * groups * sizeof(float),
                         groups,
                         groups / kPerByte<K>};
    for (uint32_t block = blockIdx.x; block < p.blocks; block += gridDim.x) {
        const uint32_t row = block / p.blocks_per_row, column = block % p.blocks_per_row;
        const float *src = p.src + row * p.src_stride + (size_t)column * T;
        const float scale = tcq_f16_to_f32(p.scales[row]);
        for (uint32_t t = threadIdx.x; t < T; t += blockDim.x)
            x2[t] = x2[t + T] = 2.0f * __fdiv_rn(src[t], scale);
        __syncthreads();
        pass(s, x2 + half, T, -1);
        uint32_t group = best_last(s, T) % groups;
        if (threadIdx.x == 0) {
            for (uint32_t t = T; t-- > T - half;)
                group = (group + s.choice(t, group) * groups) >> K;
            first = group;
        }
        __syncthreads();
        group = first;
        pass(s, x2, T, (int)group);
        if (threadIdx.x == 0)
            for (uint32_t t = T; t-- > 0;) {
                const uint32_t state = group + s.choice(t, group) * groups;
                states[t] = (uint16_t)state;
                group = state >> K;
            }
        __syncthreads();
        store_words<K>(p.words + (size_t)block * (T * K / 32), states, T);
        __syncthreads();
    }
}

template <int K> cudaError_t plan(struct encode_general_plan *out, uint32_t L, uint32_t T)
{
    const uint32_t groups = 1u << (L - K), pitch = groups / kPerByte<K>;
    const size_t metrics = 2 * groups * sizeof(float);
    int device = 0, multiprocessors = 0, most = 0, resident = 0;
    cudaFuncAttributes attributes;
    cudaError_t code = cudaGetDevice(&device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (code == cudaSuccess)
        code = cudaFuncGetAttributes(&attributes, viterbi_general<K>);
    if (code != cudaSuccess)
        return code;
    const bool in_shared = metrics + attributes.sharedSizeBytes <= (size_t)most;
    out->shared_nbytes = in_shared ? metrics : 0;
    out->threads = pitch < 32 ? 32 : pitch < kThreadsMax ? pitch : kThreadsMax;
    out->each_nbytes = ((in_shared ? 0 : metrics) + (size_t)T * pitch + 255) & ~(size_t)255;
    code = cudaFuncSetAttribute(viterbi_general<K>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)out->shared_nbytes);
    if (code == cudaSuccess)
        code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &resident, viterbi_general<K>, (int)out->threads, out->shared_nbytes);
    const size_t fit = kWorkMax / out->each_nbytes, wanted = (size_t)multiprocessors * resident;
    out->blocks = (uint32_t)(wanted < fit ? wanted : fit);
    return code;
}

template <int K>
cudaError_t launch(const general_job &p, const struct encode_general_plan &plan,
                   cudaStream_t stream)
{
    const uint32_t blocks = p.blocks < plan.blocks ? p.blocks : plan.blocks;
    viterbi_general<K><<<blocks, plan.threads, plan.shared_nbytes, stream>>>(p);
    return cudaGetLastError();
}

} /* namespace */

cudaError_t encode_general_plan_make(struct encode_general_plan *out, uint32_t k, uint32_t L,
                                     uint32_t T)
{
    switch (k) {
    case 1: return plan<1>(out, L, T);
    case 2: return plan<2>(out, L, T);
    case 3: return plan<3>(out, L, T);
    case 4: return plan<4>(out, L, T);
    case 5: return plan<5>(out, L, T);
    case 6: return plan<6>(out, L, T);
    default: return cudaErrorInvalidValue;
    }
}

cudaError_t encode_general_launch(const struct encode_args *args, uint32_t L, void *work,
                                  cudaStream_t stream)
{
    struct encode_general_plan plan;
    const cudaError_t code = encode_general_plan_make(&plan, args->k, L, args->T);
    if (code != cudaSuccess)
        return code;
    const general_job p = {args->words,
                           args->scales,
                           args->src,
                           (uint8_t *)work,
                           args->src_stride,
                           plan.each_nbytes,
                           L,
                           args->T,
                           args->cols / args->T,
                           args->rows * (args->cols / args->T),
                           plan.shared_nbytes > 0};
    switch (args->k) {
    case 1: return launch<1>(p, plan, stream);
    case 2: return launch<2>(p, plan, stream);
    case 3: return launch<3>(p, plan, stream);
    case 4: return launch<4>(p, plan, stream);
    case 5: return launch<5>(p, plan, stream);
    case 6: return launch<6>(p, plan, stream);
    default: return cudaErrorInvalidValue;
    }
}
