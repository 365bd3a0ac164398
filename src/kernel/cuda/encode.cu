/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder on the GPU for 4096 states: tail-biting Viterbi with a thread block a
 * block of T weights; the same bytes as src/encode.
 *
 * Names as in encode/viterbi.h: a group j holds what its 2^K states share, their
 * predecessors j + m*G, G = 2^(12-K).  A thread owns G/threads groups and keeps
 * value and -(value^2) of their predecessors, 16 states and more, in registers.
 * Per position: load the metrics of the predecessors' groups, which lie side by
 * side in shared memory, add emissions, keep the greatest and which it was.
 */
#include <stdint.h>

#include <cuda_runtime.h>

#include "base/half.h"
#include "code/code.h"
#include "kernel/cuda/launch.h"

namespace {

constexpr int kStates = 4096; /* L = 12 */
constexpr float kForbidden = -1e30f;

template <int K> struct shape {
    static constexpr int groups = kStates >> K, count = 1 << K;
    static constexpr int threads = groups < 256 ? groups : 256;
    static constexpr int owned = groups / threads; /* groups a thread: owned * K <= 8 bits */
    static constexpr int sets = groups >> K;       /* of predecessors */
    /* Metrics of one set lie together; the gap spreads the stores over banks. */
    static constexpr int pitch = count + (K >= 3 ? 4 : 0);
    static constexpr int metrics = sets * pitch;
    static constexpr int shared_nbytes(int T)
    {
        return 2 * metrics * 4 + 2 * T * 4 + T * 2 + 64 * 8 + T * threads;
    }
};

template <int K> struct trellis {
    float value[shape<K>::owned][shape<K>::count], minus_square[shape<K>::owned][shape<K>::count];
};

/* Metrics of group j of a boundary. */
template <int K> __device__ __forceinline__ int metric_at(int j)
{
    return (j & (shape<K>::sets - 1)) * shape<K>::pitch + j / shape<K>::sets;
}

template <int K> __device__ __forceinline__ void load_set(float (&b)[1 << K], const float *set)
{
    if constexpr (K == 1) {
        *(float2 *)b = *(const float2 *)set;
    } else {
#pragma unroll
        for (int m = 0; m < 1 << K; m += 4)
            *(float4 *)(b + m) = *(const float4 *)(set + m);
    }
}

/* One position: metrics `from` to metrics `to`; choices of the thread's groups
 * in one byte if wanted. */
template <int K, bool choose>
__device__ __forceinline__ uint32_t step(float *to, const float *from, const trellis<K> &code,
                                         float x2)
{
    using s = shape<K>;
    uint32_t choices = 0;
#pragma unroll
    for (int i = 0; i < s::owned; i++) {
        const int j = threadIdx.x + i * s::threads;
        float b[s::count];
        load_set<K>(b, from + (j >> K) * s::pitch);
#pragma unroll
        for (int m = 0; m < s::count; m++)
            b[m] += fmaf(x2, code.value[i][m], code.minus_square[i][m]);
        if (choose) {
            uint32_t at[s::count];
#pragma unroll
            for (int m = 0; m < s::count; m++)
                at[m] = m;
            /* A knockout in which of equals the later one goes on. */
#pragma unroll
            for (int d = 1; d < s::count; d *= 2)
#pragma unroll
                for (int m = 0; m < s::count; m += 2 * d) {
                    const bool later = b[m + d] >= b[m];
                    b[m] = fmaxf(b[m], b[m + d]);
                    at[m] = later ? at[m + d] : at[m];
                }
            choices |= at[0] << (i * K);
        } else {
#pragma unroll
            for (int d = 1; d < s::count; d *= 2)
#pragma unroll
                for (int m = 0; m < s::count; m += 2 * d)
                    b[m] = fmaxf(b[m], b[m + d]);
        }
        to[metric_at<K>(j)] = b[0];
    }
    return choices;
}

struct job {
    uint32_t *words;
    const uint16_t *scales;
    const float *src;
    size_t src_stride;
    uint32_t T, blocks_per_row;
};

template <int K> struct memory {
    float *metrics[2];
    float *x2;       /* [2T], twice over, so that a rotation is an offset */
    uint64_t *best;  /* [64] */
    uint16_t *states;
    uint8_t *choices; /* [T][threads] */

    __device__ __forceinline__ memory(uint8_t *at, int T)
    {
        metrics[0] = (float *)at;
        metrics[1] = metrics[0] + shape<K>::metrics;
        x2 = metrics[1] + shape<K>::metrics;
        best = (uint64_t *)(x2 + 2 * T);
        states = (uint16_t *)(best + 64);
        choices = (uint8_t *)(states + T);
    }
};

/* Positions [begin, end) of a pass. */
template <int K, bool choose>
__device__ __forceinline__ void forward(const memory<K> &w, const trellis<K> &code,
                                        const float *x2, int begin, int end)
{
    for (int t = begin; t < end; t++) {
        const uint32_t c = step<K, choose>(w.metrics[t + 1 & 1], w.metrics[t & 1], code, x2[t]);
        if (choose)
            w.choices[t * shape<K>::threads + threadIdx.x] = (uint8_t)c;
        __syncthreads();
    }
}

template <int K> __device__ __forceinline__ uint32_t choice(const memory<K> &w, int t, uint32_t j)
{
    using s = shape<K>;
    return w.choices[t * s::threads + j % s::threads] >> (j / s::threads * K) & (s::count - 1);
}

template <int K>
__device__ __forceinline__ void pass_begin(const memory<K> &w, int first)
{
    using s = shape<K>;
    for (int j = threadIdx.x; j < s::groups; j += s::threads)
        w.metrics[0][metric_at<K>(j)] = first < 0 || j == first ? 0.0f : kForbidden;
    __syncthreads();
}

/* The last state of the best path of all; of equals the largest state.  An
 * order-preserving integer of the metric above the state makes it one maximum. */
template <int K> __device__ __forceinline__ uint32_t best_last(const memory<K> &w, int T)
{
    using s = shape<K>;
    uint64_t best = 0;
#pragma unroll
    for (int i = 0; i < s::owned; i++) {
        const uint32_t j = threadIdx.x + i * s::threads;
        const float metric = w.metrics[T & 1][metric_at<K>((int)j)] + 0.0f; /* -0 becomes +0 */
        const uint32_t bits = __float_as_uint(metric);
        const uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        const uint64_t candidate = (uint64_t)key << 32 | (j + choice(w, T - 1, j) * s::groups);
        best = candidate > best ? candidate : best;
    }
    for (int d = 16; d; d >>= 1) {
        const uint64_t other = __shfl_xor_sync(~0u, best, d);
        best = other > best ? other : best;
    }
    if (threadIdx.x % 32 == 0)
        w.best[threadIdx.x / 32] = best;
    __syncthreads();
    for (int i = 0; i < s::threads / 32; i++)
        best = w.best[i] > best ? w.best[i] : best;
    return (uint32_t)best;
}

template <int K>
__global__ void __launch_bounds__(shape<K>::threads, 768 / shape<K>::threads > 8 ? 8 : 768 / shape<K>::threads)
    viterbi(const __grid_constant__ job p)
{
    using s = shape<K>;
    extern __shared__ __align__(16) uint8_t shared[];
    const int T = (int)p.T, half = T / 2;
    const memory<K> w(shared, T);
    const uint32_t row = blockIdx.x / p.blocks_per_row, block = blockIdx.x % p.blocks_per_row;
    const float *src = p.src + row * p.src_stride + (size_t)block * p.T;
    const float scale = tcq_f16_to_f32(p.scales[row]);
    for (int t = threadIdx.x; t < T; t += s::threads)
        w.x2[t] = w.x2[t + T] = 2.0f * __fdiv_rn(src[t], scale);
    trellis<K> code;
#pragma unroll
    for (int i = 0; i < s::owned; i++)
#pragma unroll
        for (int m = 0; m < s::count; m++) {
            const uint32_t state = threadIdx.x + i * s::threads + m * s::groups;
            code.value[i][m] = tcq_code_precise(state);
            code.minus_square[i][m] = -(code.value[i][m] * code.value[i][m]);
        }

    /* The block rotated by half: where is the best free path at the block's own
     * beginning?  That is position T - half here. */
    pass_begin(w, -1);
    forward<K, false>(w, code, w.x2 + half, 0, T - half);
    forward<K, true>(w, code, w.x2 + half, T - half, T);
    uint32_t group = best_last(w, T) % s::groups;
    for (int t = T; t-- > T - half;)
        group = (group + choice(w, t, group) * s::groups) >> K;
    __syncthreads();
    const uint32_t first = group;
    /* The block itself, from and to that group. */
    pass_begin(w, (int)first);
    forward<K, true>(w, code, w.x2, 0, T);
    if (threadIdx.x == 0)
        for (int t = T; t-- > 0;) {
            const uint32_t state = group + choice(w, t, group) * s::groups;
            w.states[t] = (uint16_t)state;
            group = state >> K;
        }
    __syncthreads();
    for (int i = threadIdx.x; i < T * K / 32; i += s::threads) {
        uint64_t bits = 0; /* symbols from the one that holds bit 32i */
        const int symbol = 32 * i / K, skip = 32 * i % K;
        for (int n = 0; n * K < 32 + skip; n++)
            if (symbol + n < T)
                bits |= (uint64_t)(w.states[T - 1 - symbol - n] & (s::count - 1)) << (n * K);
        p.words[(size_t)blockIdx.x * (p.T * K / 32) + i] = (uint32_t)(bits >> skip);
    }
}

template <int K> cudaError_t launch(const job &p, uint32_t blocks, cudaStream_t stream)
{
    const int nbytes = shape<K>::shared_nbytes((int)p.T);
    const cudaError_t status =
        cudaFuncSetAttribute(viterbi<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, nbytes);
    if (status != cudaSuccess)
        return status;
    viterbi<K><<<blocks, shape<K>::threads, nbytes, stream>>>(p);
    return cudaGetLastError();
}

} /* namespace */

cudaError_t encode_launch(const struct encode_args *args, cudaStream_t stream)
{
    const job p = {args->words, args->scales,     args->src,
                   args->src_stride, args->T, args->cols / args->T};
    const uint32_t blocks = args->rows * p.blocks_per_row;
    switch (args->k) {
    case 1: return launch<1>(p, blocks, stream);
    case 2: return launch<2>(p, blocks, stream);
    case 3: return launch<3>(p, blocks, stream);
    case 4: return launch<4>(p, blocks, stream);
    case 5: return launch<5>(p, blocks, stream);
    case 6: return launch<6>(p, blocks, stream);
    default: return cudaErrorInvalidValue;
    }
}
