/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element by element: norms with the sum before them, SwiGLU, biases and rotary
 * embedding on the way into the cache, and the likeliest token.
 */
#include "kernel/reference/arithmetic.h"
#include "model/cuda/kernels.h"
#include "model/cuda/rope.cuh"

namespace {

constexpr uint32_t kNormThreads = 512, kThreads = 256;

/* ---- norms ---------------------------------------------------------------------- */

/* A thread's elements stay in registers, all of them asked for before the first is
 * used: with one block a vector the time is that of a few trips to memory. */
constexpr int kNormKept = 8;

struct norm_rows {
    float *x, *h;
    const float *t, *bias, *weight;
};

/* Elements first + j * kNormThreads of a row; returns the sum of their squares. */
__device__ __forceinline__ float add_kept(float (&v)[kNormKept], const norm_rows &r, uint32_t first,
                                          uint32_t n)
{
    float t[kNormKept], bias[kNormKept], sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kNormKept; j++) {
        const uint32_t i = first + j * kNormThreads;
        v[j] = i < n ? r.x[i] : 0.0f;
        t[j] = r.t && i < n ? r.t[i] : 0.0f;
        bias[j] = r.bias && i < n ? r.bias[i] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kNormKept; j++) {
        const uint32_t i = first + j * kNormThreads;
        v[j] += t[j] + bias[j];
        if (r.t && i < n)
            r.x[i] = v[j];
        sum = fmaf(v[j], v[j], sum);
    }
    return sum;
}

__global__ void __launch_bounds__(kNormThreads) norm(const __grid_constant__ gpu_norm p)
{
    __shared__ float sums[kNormThreads / 32];
    const uint32_t lane = threadIdx.x % 32, kept = kNormKept * kNormThreads;
    const size_t at = (size_t)blockIdx.x * p.n;
    const norm_rows r = {p.x + at, p.h + at, p.t ? p.t + at : nullptr, p.bias, p.weight};
    float v[kNormKept], weight[kNormKept], more[kNormKept];
    let_next_start();
#pragma unroll
    for (int j = 0; j < kNormKept; j++) {
        const uint32_t i = threadIdx.x + j * kNormThreads;
        weight[j] = r.weight && i < p.n ? r.weight[i] : 0.0f;
    }
    wait_for_others();
    float sum = add_kept(v, r, threadIdx.x, p.n);
    for (uint32_t i = kept; i < p.n; i += kept)
        sum += add_kept(more, r, i + threadIdx.x, p.n);
    if (!r.weight)
        return;
    sum = warp_sum(sum);
    if (lane == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = warp_sum(lane < kNormThreads / 32 ? sums[lane] : 0.0f);
    const float factor = 1.0f / sqrtf(sum / (float)p.n + p.epsilon);
#pragma unroll
    for (int j = 0; j < kNormKept; j++)
        if (threadIdx.x + j * kNormThreads < p.n)
            r.h[threadIdx.x + j * kNormThreads] = v[j] * factor * weight[j];
    for (uint32_t i = kept + threadIdx.x; i < p.n; i += kNormThreads)
        r.h[i] = r.x[i] * factor * r.weight[i];
}

/* ---- SwiGLU ----------------------------------------------------------------------- */

__global__ void swiglu(float *mid, const float *gate_up, const float *bias, uint32_t n)
{
    const uint32_t i = blockIdx.x * kThreads + threadIdx.x, vector = blockIdx.y;
    start_overlapped();
    if (i >= n)
        return;
    const float *from = gate_up + (size_t)vector * 2 * n;
    float gate = from[i], up = from[n + i];
    if (bias) {
        gate += bias[i];
        up += bias[n + i];
    }
    mid[(size_t)vector * n + i] = tcq_swiglu_tail(TCQ_DTYPE_F32, TCQ_SWIGLU_FUSED, gate, up);
}

/* ---- rotary embedding and the cache ------------------------------------------------- */

constexpr uint32_t kRopeWarps = 4;
constexpr int kPairs = GPU_HEAD_MAX / 2 / 32;

/* A warp takes one head of one vector. */
__global__ void __launch_bounds__(kRopeWarps * 32) rope(const __grid_constant__ gpu_attention p)
{
    const uint32_t lane = threadIdx.x % 32, head = blockIdx.x * kRopeWarps + threadIdx.x / 32;
    const uint32_t half = p.head_dim / 2;
    let_next_start();
    if (head >= p.heads + 2 * p.kv_heads) {
        wait_for_others();
        return;
    }
    const uint32_t position = (p.d_position ? *p.d_position : p.position) + blockIdx.y;
    float *at = p.qkv + blockIdx.y * p.stride + (size_t)head * p.head_dim;
    const gpu_turn<kPairs> turn = load_turn<kPairs>(p, head, position);
    wait_for_others();
    const gpu_head<kPairs> h = turn_head<kPairs>(p, turn, at, head);
    if (head >= p.heads) {
        store_head<kPairs>(h, p, head, position);
        return;
    }
#pragma unroll
    for (int j = 0; j < kPairs; j++) {
        const uint32_t i = lane + 32 * j;
        if (i < half) {
            at[i] = h.a[j];
            at[i + half] = h.b[j];
        }
    }
}

/* ---- the likeliest token ------------------------------------------------------------- */

/* Larger for a larger logit, then for a smaller index; a NaN is the largest. */
__device__ __forceinline__ unsigned long long rank_of(float logit, uint32_t index)
{
    const uint32_t order = logit != logit ? ~0u : tcq_sampling_key(logit);
    return (unsigned long long)order << 32 | (0xffffffffu - index);
}

__global__ void __launch_bounds__(kThreads) argmax(gpu_state *state, const float *logits,
                                                   uint32_t count)
{
    __shared__ unsigned long long ranks[kThreads / 32];
    unsigned long long best = 0;
    start_overlapped();
    for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
        const unsigned long long rank = rank_of(logits[i], i);
        best = rank > best ? rank : best;
    }
#pragma unroll
    for (int d = 16; d; d >>= 1) {
        const unsigned long long other = __shfl_xor_sync(~0u, best, d);
        best = other > best ? other : best;
    }
    if (threadIdx.x % 32 == 0)
        ranks[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x)
        return;
    for (uint32_t i = 1; i < kThreads / 32; i++)
        best = ranks[i] > best ? ranks[i] : best;
    atomicMax(&state->best, best);
    __threadfence();
    if (atomicInc(&state->ticket, gridDim.x - 1) != gridDim.x - 1)
        return;
    __threadfence();
    best = atomicExch(&state->best, 0ull);
    state->chosen = 0xffffffffu - (uint32_t)best;
    state->not_a_number = (uint32_t)(best >> 32) == 0xffffffffu;
    state->highest = tcq_sampling_logit((uint32_t)(best >> 32));
}

} /* namespace */

cudaError_t gpu_norm_launch(const struct gpu_norm *args, cudaStream_t stream)
{
    return launch(norm, dim3(args->m), kNormThreads, stream, *args);
}

cudaError_t gpu_swiglu_launch(float *mid, const float *gate_up, const float *bias, uint32_t n,
                              uint32_t m, cudaStream_t stream)
{
    return launch(swiglu, dim3((n + kThreads - 1) / kThreads, m), kThreads, stream, mid, gate_up,
                  bias, n);
}

cudaError_t gpu_rope_launch(const struct gpu_attention *args, cudaStream_t stream)
{
    if (gpu_turns_itself(args))
        return cudaSuccess;
    const uint32_t heads = args->heads + 2 * args->kv_heads;
    return launch(rope, dim3((heads + kRopeWarps - 1) / kRopeWarps, args->m), kRopeWarps * 32,
                  stream, *args);
}

cudaError_t gpu_argmax_launch(struct gpu_state *state, const float *logits, uint32_t count,
                              cudaStream_t stream)
{
    const uint32_t each = 8 * kThreads, blocks = (count + each - 1) / each;
    return launch(argmax, dim3(blocks), kThreads, stream, state, logits, count);
}
