/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache and buffers of a session on the GPU: one allocation, made at creation.
 */
#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/cuda/gpu.h"

enum { ALIGNMENT = 256 };

/* ---- sizes ---------------------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static size_t logits_rows(uint32_t batch)
{
    return batch < GPU_LOGITS_ROWS ? batch : GPU_LOGITS_ROWS;
}

/* Where everything lies behind `base`; returns how much it takes.  With base NULL
 * the pointers mean nothing. */
static size_t carve(struct gpu_session *s, const struct tcq_settings *t, uint32_t context,
                    uint32_t batch, char *base)
{
    size_t n = batch, half = t->head_dim / 2, q = (size_t)t->heads * t->head_dim;
    size_t qkv = q + 2 * (size_t)t->kv_heads * t->head_dim;
    const struct {
        void *to;
        size_t nbytes;
    } parts[] = {
        {&s->keys, s->sizes.cache / 2},
        {&s->values, s->sizes.cache / 2},
        {&s->cosines, context * half * 4},
        {&s->sines, context * half * 4},
        {&s->tokens, n * 4},
        {&s->x, n * t->hidden * 4},
        {&s->h, n * t->hidden * 4},
        {&s->t, n * t->hidden * 4},
        {&s->qkv, n * qkv * 4},
        {&s->a, n * q * 4},
        {&s->gate_up, n * 2 * t->intermediate * 4},
        {&s->mid, n * t->intermediate * 4},
        {&s->logits, logits_rows(batch) * t->vocab * 4},
        {&s->partial, gpu_partial_count(s->sizes.splits_blocks, s->padded) * 4},
        {&s->tickets, (size_t)s->sizes.splits_blocks * 4},
        {&s->sampler, gpu_sampler_nbytes(t->vocab)},
        {&s->state, sizeof *s->state},
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (base)
            *(void **)parts[i].to = base + used;
        used += round_up(parts[i].nbytes, ALIGNMENT);
    }
    return used;
}

struct gpu_sizes gpu_session_sizes(const struct tcq_settings *t, uint32_t context, uint32_t batch,
                                   uint32_t multiprocessors)
{
    struct gpu_session s = {.padded = gpu_padded(t->head_dim)};
    size_t heads = (size_t)t->layers * t->kv_heads;
    s.sizes.head = round_up(context, GPU_TILE) * s.padded * sizeof(uint16_t);
    s.sizes.cache = 2 * heads * s.sizes.head;
    /* See gpu_splits: fewer than twice the multiprocessors, rounded up once. */
    s.sizes.splits_blocks = 4 * multiprocessors;
    size_t all = carve(&s, t, context, batch, NULL);
    s.sizes.work = all - 2 * round_up(s.sizes.cache / 2, ALIGNMENT);
    return s.sizes;
}

/* ---- creating ---------------------------------------------------------------------------- */

static enum tcq_status fill_tables(struct gpu_session *s, const struct tcq_session *session,
                                   struct tcq_error *error)
{
    size_t count = (size_t)session->context * (session->model->settings.head_dim / 2);
    float *tables = tcq_alloc(2 * count, sizeof *tables);
    if (!tables)
        return tcq_error_memory(error, 2 * count * sizeof *tables, "a table of angles");
    tcq_session_angles(session->model, 0, session->context, tables, tables + count);
    enum tcq_status status =
        tcq_cuda_upload(s->model->cuda, s->cosines, tables, count * sizeof *tables, error);
    if (!status)
        status = tcq_cuda_upload(s->model->cuda, s->sines, tables + count, count * sizeof *tables,
                                 error);
    tcq_free(tables);
    return status;
}

static enum tcq_status allocate(struct tcq_session *session, struct gpu_session *s,
                                struct tcq_error *error)
{
    const struct tcq_settings *t = &session->model->settings;
    char what[64];
    size_t available = 0, all = 0, needed = carve(s, t, session->context, session->batch, NULL);
    snprintf(what, sizeof what, "a context of %u positions needs", session->context);
    enum tcq_status status =
        gpu_status(cudaMemGetInfo(&available, &all), "asking for the GPU's memory", error);
    if (!status)
        status = tcq_memory_check(needed, available, what, "GPU memory", error);
    if (!status)
        status = tcq_cuda_alloc(s->model->cuda, needed, &s->memory, error);
    if (status)
        return status;
    carve(s, t, session->context, session->batch, s->memory);
    status = gpu_status(cudaMemset(s->memory, 0, needed), "clearing GPU memory", error);
    if (!status)
        status = gpu_status(cudaMallocHost((void **)&s->host_state, sizeof *s->host_state),
                            "allocating pinned memory", error);
    if (!status)
        status = fill_tables(s, session, error);
    session->cache_nbytes = s->sizes.cache;
    session->work_nbytes += s->sizes.work;
    /* What was done on the default stream, before anything is on the model's own. */
    return status ? status : tcq_cuda_wait(s->model->cuda, NULL, error);
}

enum tcq_status gpu_session_open(struct tcq_session *session, struct tcq_error *error)
{
    if (session->cache_f32)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "a float32 cache is for the CPU");
    struct gpu_session *s = tcq_alloc(1, sizeof *s);
    if (!s)
        return tcq_error_memory(error, sizeof *s, "a session on the GPU");
    session->on_device = s;
    s->model = session->model->on_device;
    s->padded = gpu_padded(session->model->settings.head_dim);
    s->sizes = gpu_session_sizes(&session->model->settings, session->context, session->batch,
                                 tcq_cuda_multiprocessors(s->model->cuda));
    return allocate(session, s, error); /* the session's own end frees what is half made */
}

void gpu_session_close(struct tcq_session *session)
{
    struct gpu_session *s = session->on_device;
    cudaStreamSynchronize(s->model->stream);
    for (size_t i = 0; i < GPU_CHOICES; i++)
        if (s->decode[i])
            cudaGraphExecDestroy(s->decode[i]);
    if (s->linear_decode)
        cudaGraphExecDestroy(s->linear_decode);
    if (s->host_state)
        cudaFreeHost(s->host_state);
    tcq_cuda_free(s->model->cuda, s->memory);
    tcq_free(s->watched);
    tcq_free(s);
    session->on_device = NULL;
}
