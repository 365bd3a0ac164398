/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drawing the next token on the GPU: the steps of model/sampler.c with the arithmetic of
 * model/sampling.h, so that the token is the same.
 *
 * A rule (top_k, top_p) takes three launches, one a digit of the keys: every block counts
 * and adds up its tokens by digit, and the last to finish finds the digit at which the
 * target is reached.  The last launch adds up what is kept, block by block, and its last
 * block draws.  All sums are of integers: their order does not matter.
 */
#include "model/cuda/kernels.h"
#include "model/cuda/launch.cuh"

namespace {

constexpr uint32_t kThreads = 256, kEach = 4, kTokens = kThreads * kEach; /* of a block */
constexpr uint32_t kBins = TCQ_SAMPLING_BINS, kBinsEach = kBins / kThreads;
/* A weight as two numbers whose sums over a block fit 32 bits: 2^10 tokens. */
constexpr uint32_t kLowBits = 22;
static_assert(kTokens == GPU_SAMPLING_TOKENS, "");

struct amount {
    uint64_t count, mass;
    __device__ uint64_t by(bool by_mass) const
    {
        return by_mass ? mass : count;
    }
};

__device__ __forceinline__ amount operator+(amount a, amount b)
{
    return {a.count + b.count, a.mass + b.mass};
}

/* What lies in the threads before this one, and *total. */
__device__ amount sum_before(amount own, amount *total)
{
    __shared__ amount warps[kThreads / 32];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    amount sum = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const amount other = {__shfl_up_sync(~0u, sum.count, d), __shfl_up_sync(~0u, sum.mass, d)};
        if (lane >= d)
            sum = sum + other;
    }
    __syncthreads(); /* readers of the last call are done */
    if (lane == 31)
        warps[warp] = sum;
    __syncthreads();
    amount before = {sum.count - own.count, sum.mass - own.mass};
    *total = {0, 0};
    for (uint32_t i = 0; i < kThreads / 32; i++) {
        if (i < warp)
            before = before + warps[i];
        *total = *total + warps[i];
    }
    return before;
}

/* Is this the last block of the launch to come here?  It sees what the others wrote. */
__device__ bool is_last(uint32_t *ticket)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return last;
}

/* ---- rules ---------------------------------------------------------------------------- */

/* Bins of a launch, from the highest digit down, a thread a few. */
__device__ __forceinline__ uint32_t bin_of(uint32_t i)
{
    return kBins - 1 - (threadIdx.x * kBinsEach + i);
}

/* One digit further: the bin in which the target is reached.  No target yet: top_p of all. */
__device__ gpu_progress narrow(const gpu_bins &bins, gpu_progress p, bool by_mass, int level,
                               const tcq_sampling &s)
{
    __shared__ gpu_progress next;
    amount own[kBinsEach], sum = {0, 0}, total;
#pragma unroll
    for (uint32_t i = 0; i < kBinsEach; i++) {
        own[i] = {__ldcg(&bins.count[bin_of(i)]), __ldcg(&bins.mass[bin_of(i)])};
        sum = sum + own[i];
    }
    amount before = sum_before(sum, &total);
    if (p.target == 0)
        p.target = tcq_sampling_target(&s, total.mass);
    if (before.by(by_mass) < p.target && p.target <= (before + sum).by(by_mass)) {
        uint32_t i = 0;
        for (; i + 1 < kBinsEach && (before + own[i]).by(by_mass) < p.target; i++)
            before = before + own[i];
        next.prefix = p.prefix << tcq_sampling_bits(level) | bin_of(i);
        next.target = p.target - before.by(by_mass);
        next.above = p.above + before.mass;
    }
    __syncthreads();
    return next;
}

/* After the last digit: the key at the edge, and how many that have it are kept. */
__device__ uint64_t equals_of(const gpu_progress &p, bool by_mass, const tcq_sampling &s,
                              float highest, uint64_t *mass)
{
    const uint64_t each = tcq_sampling_mass(&s, tcq_sampling_logit(p.prefix), highest);
    const uint64_t equals = by_mass ? (p.target + each - 1) / each : p.target;
    *mass = p.above + equals * each;
    return equals;
}

/* The last block of a launch: `rule` decides.  After top_k the first digit's bins serve
 * top_p as well. */
__device__ void decide(gpu_sampler *g, const tcq_sampling &s, float highest, int launch,
                       uint32_t rule, int level)
{
    const bool by_mass = rule == TCQ_SAMPLING_TOP_P;
    gpu_progress p = level ? g->progress : gpu_progress{0, by_mass ? 0 : s.top_k, 0};
    p = narrow(g->bins[launch], p, by_mass, level, s);
    uint64_t equals = 0, mass = 0;
    const uint32_t edge = p.prefix;
    if (level == 2) {
        equals = equals_of(p, by_mass, s, highest, &mass);
        if (!by_mass && s.rules & TCQ_SAMPLING_TOP_P)
            p = narrow(g->bins[0], {0, tcq_sampling_target(&s, mass), 0}, true, 0, s);
    }
    if (threadIdx.x)
        return;
    g->progress = p;
    if (level == 2) {
        g->edge = edge;
        g->equals = equals;
    }
}

/* Tokens by one digit of their keys, of those whose higher digits are known. */
template <int level>
__global__ void __launch_bounds__(kThreads)
    digits(gpu_state *state, gpu_sampler *g, const float *logits, uint32_t vocab, int launch,
           uint32_t rule)
{
    __shared__ uint32_t count[kBins], low[kBins], high[kBins];
    for (uint32_t i = threadIdx.x; i < kBins; i += kThreads)
        count[i] = low[i] = high[i] = 0;
    __syncthreads();
    start_overlapped();
    const tcq_sampling s = state->sampling; /* all is asked for before any is used */
    const float highest = state->highest;
    const uint32_t prefix = level ? g->progress.prefix : 0;
    const uint32_t first = blockIdx.x * kTokens + threadIdx.x;
    float own[kEach];
#pragma unroll
    for (uint32_t i = 0; i < kEach; i++)
        own[i] = first + i * kThreads < vocab ? logits[first + i * kThreads] : 0.0f;
    if (!isfinite(highest))
        return;
    const bool weigh = s.rules & TCQ_SAMPLING_TOP_P;
#pragma unroll
    for (uint32_t i = 0; i < kEach; i++) {
        const float logit = own[i];
        const uint32_t key = tcq_sampling_key(logit) >> tcq_sampling_shift(level);
        if (first + i * kThreads >= vocab || (level && key >> tcq_sampling_bits(level) != prefix))
            continue;
        const uint32_t bin = key & ((1u << tcq_sampling_bits(level)) - 1);
        atomicAdd(&count[bin], 1u);
        const uint64_t mass = weigh ? tcq_sampling_mass(&s, logit, highest) : 0;
        if (mass) {
            atomicAdd(&low[bin], (uint32_t)mass & ((1u << kLowBits) - 1));
            atomicAdd(&high[bin], (uint32_t)(mass >> kLowBits));
        }
    }
    __syncthreads();
    gpu_bins &bins = g->bins[launch];
    for (uint32_t i = threadIdx.x; i < kBins; i += kThreads) {
        if (count[i])
            atomicAdd(&bins.count[i], count[i]);
        const uint64_t mass = ((uint64_t)high[i] << kLowBits) + low[i];
        if (mass)
            atomicAdd(&bins.mass[i], (unsigned long long)mass);
    }
    if (is_last(&g->tickets[launch]))
        decide(g, s, highest, launch, rule, level);
}

/* ---- drawing -------------------------------------------------------------------------- */

/* What is kept of a thread's tokens, given how many with the edge's key come before it. */
__device__ __forceinline__ uint64_t kept_mass(const float *logits, uint32_t first, uint32_t vocab,
                                              const tcq_sampling &s, float highest, uint32_t edge,
                                              uint64_t equals, uint64_t *left, uint32_t *id)
{
    uint64_t sum = 0;
    for (uint32_t i = first; i < first + kEach && i < vocab; i++) {
        const uint32_t key = tcq_sampling_key(logits[i]);
        if (key < edge || (key == edge && equals == 0))
            continue;
        equals -= key == edge;
        const uint64_t mass = tcq_sampling_mass(&s, logits[i], highest);
        if (left && *left < mass) {
            *id = i;
            return sum;
        }
        if (left)
            *left -= mass;
        sum += mass;
    }
    return sum;
}

/* The last block: which block's tokens hold the draw, then which token. */
__device__ void draw(gpu_state *state, const gpu_sampler *g, const float *logits, uint32_t vocab,
                     const tcq_sampling &s, float highest, uint32_t edge, uint64_t equals)
{
    __shared__ uint64_t found_left, found_equals;
    __shared__ uint32_t found_block;
    const uint64_t each = edge ? tcq_sampling_mass(&s, tcq_sampling_logit(edge), highest) : 0;
    const uint32_t blocks = gridDim.x, share = (blocks + kThreads - 1) / kThreads;
    const uint32_t begin = threadIdx.x * share;
    amount own = {0, 0}, total, unused;
    /* counts first: how many of the edge's key there are before a thread's blocks */
    for (uint32_t b = begin; b < begin + share && b < blocks; b++)
        own.count += __ldcg(&g->kept[b].ties);
    uint64_t ties = sum_before(own, &unused).count;
    const auto mass_of = [&](uint32_t b, uint64_t ties_before) {
        const uint64_t n = __ldcg(&g->kept[b].ties);
        const uint64_t room = ties_before < equals ? equals - ties_before : 0;
        return __ldcg(&g->kept[b].mass) + (n < room ? n : room) * each;
    };
    uint64_t at = ties;
    for (uint32_t b = begin; b < begin + share && b < blocks; b++) {
        own.mass += mass_of(b, at);
        at += __ldcg(&g->kept[b].ties);
    }
    const uint64_t before = sum_before(own, &total).mass;
    uint64_t left = tcq_sampling_draw(&s, total.mass);
    if (before <= left && left < before + own.mass) {
        left -= before;
        uint32_t b = begin;
        for (uint64_t mass; left >= (mass = mass_of(b, ties)); b++) {
            left -= mass;
            ties += __ldcg(&g->kept[b].ties);
        }
        found_block = b;
        found_left = left;
        found_equals = ties < equals ? equals - ties : 0;
    }
    __syncthreads();
    const uint32_t first = found_block * kTokens + threadIdx.x * kEach;
    equals = found_equals;
    left = found_left;
    own = {0, 0};
    for (uint32_t i = first; i < first + kEach && i < vocab; i++)
        own.count += tcq_sampling_key(logits[i]) == edge;
    ties = sum_before(own, &unused).count;
    equals -= ties < equals ? ties : equals;
    own.mass = kept_mass(logits, first, vocab, s, highest, edge, equals, nullptr, nullptr);
    const uint64_t thread_before = sum_before(own, &total).mass;
    if (thread_before <= left && left < thread_before + own.mass) {
        left -= thread_before;
        uint32_t id = 0;
        kept_mass(logits, first, vocab, s, highest, edge, equals, &left, &id);
        state->chosen = id;
    }
}

__global__ void __launch_bounds__(kThreads)
    draw_token(gpu_state *state, gpu_sampler *g, const float *logits, uint32_t vocab)
{
    start_overlapped();
    const tcq_sampling s = state->sampling; /* as above */
    const float highest = state->highest;
    const uint32_t last_edge = g->edge, first = blockIdx.x * kTokens + threadIdx.x * kEach;
    const uint64_t last_equals = g->equals;
    float logit[kEach];
#pragma unroll
    for (uint32_t i = 0; i < kEach; i++)
        logit[i] = first + i < vocab ? logits[first + i] : 0.0f;
    if (!isfinite(highest))
        return;
    const uint32_t edge = s.rules ? last_edge : 0; /* no token has the key 0 */
    const uint64_t equals = s.rules ? last_equals : 0;
    amount own = {0, 0}, all;
#pragma unroll
    for (uint32_t i = 0; i < kEach; i++) {
        const uint32_t key = first + i < vocab ? tcq_sampling_key(logit[i]) : 0;
        own.count += key == edge;
        own.mass += key > edge ? tcq_sampling_mass(&s, logit[i], highest) : 0;
    }
    sum_before(own, &all);
    if (threadIdx.x == 0) {
        g->kept[blockIdx.x].ties = all.count;
        g->kept[blockIdx.x].mass = all.mass;
    }
    /* For the next token. */
    const uint32_t bins = s.rules ? GPU_SAMPLING_LAUNCHES * kBins : 0;
    for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < bins; i += gridDim.x * kThreads) {
        g->bins[i / kBins].count[i % kBins] = 0;
        g->bins[i / kBins].mass[i % kBins] = 0;
    }
    if (is_last(&g->tickets[GPU_SAMPLING_LAUNCHES]))
        draw(state, g, logits, vocab, s, highest, edge, equals);
}

} /* namespace */

cudaError_t gpu_sample_launch(struct gpu_state *state, struct gpu_sampler *sampler,
                              const float *logits, uint32_t vocab, uint32_t rules,
                              cudaStream_t stream)
{
    const dim3 blocks((vocab + kTokens - 1) / kTokens);
    cudaError_t code = cudaSuccess;
    int launched = 0;
    for (uint32_t rule = TCQ_SAMPLING_TOP_K; rule <= TCQ_SAMPLING_TOP_P; rule++) {
        if (!(rules & rule))
            continue;
        if (code == cudaSuccess && launched == 0)
            code = launch(digits<0>, blocks, kThreads, stream, state, sampler, logits, vocab,
                          launched++, rule);
        if (code == cudaSuccess)
            code = launch(digits<1>, blocks, kThreads, stream, state, sampler, logits, vocab,
                          launched++, rule);
        if (code == cudaSuccess)
            code = launch(digits<2>, blocks, kThreads, stream, state, sampler, logits, vocab,
                          launched++, rule);
    }
    return code == cudaSuccess ? launch(draw_token, blocks, kThreads, stream, state, sampler,
                                        logits, vocab)
                               : code;
}
