/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of a transformer on the GPU beside packed products, as host code
 * sees them.  All pointers are device memory; every call only enqueues work on
 * its stream and may be captured in a graph.  Activations are float32.
 */
#ifndef TCQ_MODEL_CUDA_KERNELS_H
#define TCQ_MODEL_CUDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "model/sampling.h"
#include "tcq.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights ---------------------------------------------------------------- */

enum gpu_form { GPU_F32, GPU_F16, GPU_BF16, GPU_AFFINE, GPU_PACKED };

/* One matrix [out, in], as the files have it. */
struct gpu_weight {
    enum gpu_form form;
    uint32_t out, in;
    const void *data;                /* elements, or the words of AFFINE */
    const uint16_t *scales, *biases; /* of AFFINE, [out, in/group], binary16 or bf16 */
    uint32_t bits, group, bf16_scales;
    struct tcq_tensor packed;        /* of PACKED */
};

/* y[i] = W x[i] for i < m, W not packed. */
cudaError_t gpu_dense_launch(float *y, size_t y_stride, const struct gpu_weight *weight,
                             const float *x, size_t x_stride, uint32_t m, cudaStream_t stream);
/* x[i] = row tokens[i] of any weight (packed: axis 1). */
cudaError_t gpu_embed_launch(float *x, const struct gpu_weight *weight, const uint32_t *tokens,
                             uint32_t m, cudaStream_t stream);

/* ---- element by element --------------------------------------------------------- */

struct gpu_norm {
    float *x;           /* [m][n]; x += t + bias first, where there is a t */
    const float *t;     /* [m][n] or NULL */
    const float *bias;  /* [n] or NULL */
    const float *weight; /* [n]; NULL: the sum alone */
    float *h;           /* [m][n]: x / sqrt(mean(x^2) + epsilon) * weight */
    uint32_t n, m;
    float epsilon;
};
cudaError_t gpu_norm_launch(const struct gpu_norm *args, cudaStream_t stream);

/* mid = silu(gate + its bias) * (up + its bias); gate_up is [m][2n]. */
cudaError_t gpu_swiglu_launch(float *mid, const float *gate_up, const float *bias, uint32_t n,
                              uint32_t m, cudaStream_t stream);

/* ---- choosing ---------------------------------------------------------------------- */

/* What the device knows of a token in progress. */
struct gpu_state {
    uint32_t token, position;     /* fed */
    struct tcq_sampling sampling; /* likewise, where the next token is drawn */
    uint32_t chosen;              /* the next one */
    uint32_t not_a_number;        /* a logit is none */
    unsigned long long best;      /* of the argmax: zero between launches */
    uint32_t ticket;
    float highest;                /* the largest logit, or NaN */
};
/* state->chosen: the largest logit's index, the smallest of several; state->highest. */
cudaError_t gpu_argmax_launch(struct gpu_state *state, const float *logits, uint32_t count,
                              cudaStream_t stream);

/* Working memory of drawing, gpu_sampler_nbytes() of it; zero at first. */
enum { GPU_SAMPLING_TOKENS = 1024, GPU_SAMPLING_LAUNCHES = 5 };
struct gpu_bins { /* of one digit: how many tokens have it, and their weights */
    uint32_t count[TCQ_SAMPLING_BINS];
    unsigned long long mass[TCQ_SAMPLING_BINS];
};
struct gpu_progress { /* of a rule */
    uint32_t prefix;  /* digits of the key at its edge */
    uint64_t target;  /* tokens, or their weights, still to reach below the ones above */
    uint64_t above;   /* weights of those */
};
struct gpu_kept { /* of a block's tokens: how many have the edge's key, weights above it */
    uint64_t ties, mass;
};
struct gpu_sampler {
    struct gpu_bins bins[GPU_SAMPLING_LAUNCHES]; /* zero between tokens */
    struct gpu_progress progress;
    uint32_t tickets[GPU_SAMPLING_LAUNCHES + 1]; /* zero between launches */
    uint32_t edge;   /* keys above it are kept, */
    uint64_t equals; /* and as many with it */
    struct gpu_kept kept[];
};
static inline size_t gpu_sampler_nbytes(uint32_t vocab)
{
    return sizeof(struct gpu_sampler) +
           (vocab / GPU_SAMPLING_TOKENS + 1) * sizeof(struct gpu_kept);
}
/* state->chosen, of gpu_argmax_launch before, becomes what state->sampling draws; `rules`
 * are its rules. */
cudaError_t gpu_sample_launch(struct gpu_state *state, struct gpu_sampler *sampler,
                              const float *logits, uint32_t vocab, uint32_t rules,
                              cudaStream_t stream);

/* ---- attention ------------------------------------------------------------------- */

/* One layer's cache, binary16.  Heads are padded to `padded` components, positions
 * to whole tiles of GPU_TILE; the padding is zero. */
enum { GPU_TILE = 32, GPU_HEAD_MAX = 256, GPU_ROWS = 16 };
struct gpu_cache {
    uint16_t *keys;   /* [kv head][position][padded] */
    uint16_t *values; /* [kv head][tile][padded][GPU_TILE] */
    size_t head_stride; /* elements from one head to the next, of both */
    uint32_t padded;
};

struct gpu_attention {
    struct gpu_cache cache;
    float *qkv;          /* [m][stride]: heads of q, then of k, then of v */
    size_t stride;
    float *out;          /* [m][heads*head_dim] */
    const float *bias;   /* of a row of qkv, or NULL */
    const float *q_norm, *k_norm;  /* [head_dim], or NULL */
    const float *cosines, *sines;  /* [position][head_dim/2] */
    float epsilon, scale;
    uint32_t heads, kv_heads, head_dim;
    uint32_t m, window;  /* window 0: everything is seen */
    const uint32_t *d_position; /* of vector 0; NULL: it is `position` */
    uint32_t position;
    uint32_t splits;     /* of the positions, where vectors alone do not fill the GPU */
    float *partial;      /* gpu_partial_count() floats; splits > 1 only */
    uint32_t *tickets;   /* one a tile of vectors and head, zero between launches */
};
static inline uint32_t gpu_padded(uint32_t head_dim)
{
    return head_dim <= 32 ? 32 : head_dim <= 64 ? 64 : head_dim <= 96 ? 96 : head_dim <= 128 ? 128 : 256;
}
static inline uint32_t gpu_tiles(uint32_t m, uint32_t group)
{
    return (uint32_t)(((uint64_t)m * group + GPU_ROWS - 1) / GPU_ROWS);
}
/* Blocks times their splits that partial results are kept of. */
static inline size_t gpu_partial_count(size_t blocks, uint32_t padded)
{
    return blocks * GPU_ROWS * (padded + 2);
}

/* A token whose query heads of one key-value head fit one block: attention then does
 * what comes before it, too. */
static inline bool gpu_turns_itself(const struct gpu_attention *p)
{
    return p->m == 1 && p->heads / p->kv_heads <= GPU_ROWS;
}

/* Nothing where attention does it; else biases, norms of heads and rotary embedding of qkv; k and v into the cache. */
cudaError_t gpu_rope_launch(const struct gpu_attention *args, cudaStream_t stream);
cudaError_t gpu_attend_launch(const struct gpu_attention *args, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
