/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a session: the cache, and buffers for one batch.
 */
#ifndef TCQ_MODEL_SESSION_H
#define TCQ_MODEL_SESSION_H

#include "model/model.h"
#include "model/sampling.h"

struct tcq_session {
    const struct tcq_model *model;
    uint32_t context;   /* positions, a multiple of 16 in the cache */
    uint32_t batch;
    bool own_batch;     /* the library has chosen it, and may take less at once */
    uint32_t position;  /* filled */
    bool cache_f32;
    char *keys, *values; /* [layer][kv head], each one as in struct tcq_cache_view */
    size_t head_nbytes_k, head_nbytes_v;
    size_t cache_nbytes, work_nbytes;

    /* One batch of m positions. */
    size_t m;
    float *x;           /* [batch][hidden]: the residual stream */
    float *h;           /* [batch][hidden]: x normalized, then what a sub-layer adds to x */
    float *shared;      /* attention's buffers, and after it those of the MLP: */
    float *q, *k, *v;   /* [batch][heads*head_dim], [batch][kv_heads*head_dim] */
    float *gate, *up;   /* [batch][intermediate]; up where the two are no single pass */
    float *cosines, *sines; /* [batch][head_dim/2] */
    float *scratch;     /* [threads][model->scratch] */
    float *attention;   /* [threads][attention_count] */
    size_t attention_count;
    uint32_t layer;     /* that tasks work on */
    tcq_layer_fn watch;
    void *watch_user;
    float *logits;      /* [vocab], of tcq_session_next on the CPU */
    struct tcq_sampling sampling; /* how a device chooses the next token */
    void *on_device;    /* the device's own; the buffers of a batch are then not used */
};

/* Positions of a batch where nobody says how many, whatever the context; fused: of a
 * model whose gate and up are one pass everywhere. */
uint32_t tcq_session_batch(const struct tcq_settings *settings, bool fused);

/* Cosine and sine of every angle of `count` positions, [count][head_dim/2]. */
void tcq_session_angles(const struct tcq_model *model, uint32_t position, size_t count,
                        float *cosines, float *sines);
/* The number of logits it chooses among. */
uint32_t tcq_sampler_vocab(const struct tcq_sampler *sampler);
/* What its next choice is made with, and that it is made. */
struct tcq_sampling tcq_sampler_sampling(const struct tcq_sampler *sampler);
void tcq_sampler_advance(struct tcq_sampler *sampler);
/* For measurements: every linear layer once for m vectors, on the model's device. */
enum tcq_status tcq_session_linear(struct tcq_session *session, size_t m, struct tcq_error *error);

/* Attention of layer session->layer for the batch: q and the cache to q. */
void tcq_session_attend(struct tcq_session *session);
/* Elements of working memory a thread that it needs. */
size_t tcq_session_attention_count(const struct tcq_settings *settings, uint32_t context);
/* Turn q and k by their positions, and put k and v into the cache. */
void tcq_session_store(struct tcq_session *session);

/* Runs count items; on the calling thread where `work` (about one float32
 * operation each) is too little to wake others for. */
void tcq_session_run(struct tcq_session *session, void (*task)(void *, size_t, size_t),
                     size_t count, double work);

#endif
