/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model and its sessions on the GPU: weights.c copies the weights, session.c
 * owns cache and buffers, forward.c runs batches, and device.c is the table by
 * which the layers above find all of it.
 */
#ifndef TCQ_MODEL_CUDA_GPU_H
#define TCQ_MODEL_CUDA_GPU_H

#include "linear/cuda/gpu.h"
#include "model/cuda/kernels.h"
#include "model/device.h"

/* ---- a model -------------------------------------------------------------------- */

/* Modules that multiply the same x; their outputs follow one another.  Where the
 * geometries allow it their packed rows do, too, and are one part. */
struct gpu_product {
    uint32_t count;
    struct gpu_weight parts[3];
    uint32_t in, out;  /* of all parts */
    const float *bias; /* [out], or NULL */
};

struct gpu_block {
    const float *attention_norm, *mlp_norm, *q_norm, *k_norm;
    struct gpu_product qkv, o, gate_up, down;
};

struct gpu_model {
    struct tcq_cuda *cuda;
    cudaStream_t stream; /* of all sessions: they share the context's workspace */
    void *memory;        /* all weights */
    struct gpu_block *layers;
    struct gpu_product embedding, separate_head;
    const struct gpu_product *head;
    const float *final_norm;
};

enum tcq_status gpu_model_load(struct tcq_model *model, struct tcq_error *error);
void gpu_model_unload(struct tcq_model *model);

/* ---- a session -------------------------------------------------------------------- */

/* Sizes of a session's device memory, in bytes, from what is known before it exists. */
struct gpu_sizes {
    size_t head;             /* keys, or values, of one head of one layer */
    size_t cache;            /* all of them */
    size_t work;             /* buffers of a batch, tables, partial results */
    uint32_t splits_blocks;  /* blocks of attention times splits that partial results exist of */
};
struct gpu_sizes gpu_session_sizes(const struct tcq_settings *settings, uint32_t context,
                                   uint32_t batch, uint32_t multiprocessors);

/* Ways of choosing: the likeliest; by any of the rules of sampling.h. */
enum { GPU_CHOICES = 1 + 4 };

struct gpu_session {
    const struct gpu_model *model;
    void *memory;
    uint16_t *keys, *values; /* [layer][kv head][...], as struct gpu_cache has it */
    struct gpu_sizes sizes;
    uint32_t padded;         /* components of a head */
    float *cosines, *sines;  /* [context][head_dim/2] */
    uint32_t *tokens;        /* [batch] */
    float *x, *h, *t;        /* [batch][hidden] */
    float *qkv, *a;          /* [batch][heads of q, k, v], [batch][heads of q] */
    float *gate_up, *mid;    /* [batch][2*intermediate], [batch][intermediate] */
    float *logits;           /* [GPU_LOGITS_ROWS][vocab] */
    float *partial;
    uint32_t *tickets;
    struct gpu_sampler *sampler;
    struct gpu_state *state;
    struct gpu_state *host_state; /* pinned: what a graph reads and writes */
    float *watched;               /* [batch][hidden], host memory; NULL: nobody watched yet */
    /* One token, for each way of choosing the next; NULL: not captured yet. */
    cudaGraphExec_t decode[GPU_CHOICES], linear_decode;
    bool decode_warm[GPU_CHOICES], linear_warm; /* ran once without a graph */
    bool no_graph;           /* for tests: never capture */
    bool pending;            /* host_state may still be in use */
    bool chosen;             /* host_state has, or will have, the choice after the last batch */
    size_t m;                /* of the last batch */
};

/* Rows of logits at once; `eval` asks for those of every position. */
enum { GPU_LOGITS_ROWS = 64 };

enum tcq_status gpu_session_open(struct tcq_session *session, struct tcq_error *error);
void gpu_session_close(struct tcq_session *session);

enum tcq_status gpu_batch(struct tcq_session *session, const uint32_t *tokens, size_t m,
                          struct tcq_error *error);
enum tcq_status gpu_logits(struct tcq_session *session, size_t first, size_t count, float *logits,
                           struct tcq_error *error);
enum tcq_status gpu_choose(struct tcq_session *session, uint32_t *token, struct tcq_error *error);
enum tcq_status gpu_wait(struct tcq_session *session, struct tcq_error *error);
enum tcq_status gpu_linear(struct tcq_session *session, size_t m, struct tcq_error *error);

#endif
