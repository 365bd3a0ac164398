/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: memory for one text, and the forward pass over a batch of its
 * positions.
 */
#include "model/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernel/kernel.h"
#include "model/device.h"

enum {
    DEFAULT_CONTEXT = 4096,
    DEFAULT_BATCH = 512,
    LEAST_BATCH = 32,
    /* Working memory that a batch of more than LEAST_BATCH may take: with the linear
     * layers' scratch, the tokenizer and the program it stays below 64 MiB. */
    WORK_NBYTES = 20 << 20
};

/* Float32 operations below which waking the other threads costs more than they
 * save: a wake takes a few microseconds, in which one thread does about 20,000. */
#define ALONE_WORK 30000.0

void tcq_session_run(struct tcq_session *session, void (*task)(void *, size_t, size_t),
                     size_t count, double work)
{
    if (work >= ALONE_WORK) {
        tcq_context_run(session->model->context, task, session, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        task(session, 0, i);
}

/* ------------------------------------------------------------------------ */
/* Creating                                                                  */
/* ------------------------------------------------------------------------ */

/* Elements that attention and the MLP have in turns, for one position of a batch. */
static size_t shared_count(const struct tcq_settings *s, bool fused)
{
    size_t attention = (size_t)s->head_dim * (s->heads + 2 * s->kv_heads);
    size_t mlp = (size_t)s->intermediate * (fused ? 1 : 2);
    return attention > mlp ? attention : mlp;
}

uint32_t tcq_session_batch(const struct tcq_settings *s, bool fused)
{
    size_t count = 2 * (size_t)s->hidden + shared_count(s, fused) + s->head_dim;
    size_t fits = WORK_NBYTES / (count * sizeof(float)) / LEAST_BATCH * LEAST_BATCH;
    return (uint32_t)(fits < LEAST_BATCH     ? LEAST_BATCH
                      : fits > DEFAULT_BATCH ? DEFAULT_BATCH
                                             : fits);
}

static bool all_fused(const struct tcq_model *model)
{
    for (uint32_t i = 0; i < model->settings.layers; i++)
        if (!tcq_layer_is_fused(&model->layers[i]))
            return false;
    return true;
}

static enum tcq_status allocate_cache(struct tcq_session *session, struct tcq_error *error)
{
    const struct tcq_settings *s = &session->model->settings;
    size_t size = session->cache_f32 ? 4 : 2, positions = tcq_round_lanes(session->context);
    size_t heads = (size_t)s->layers * s->kv_heads;
    session->head_nbytes_k = positions * s->head_dim * size;
    session->head_nbytes_v = positions * tcq_round_lanes(s->head_dim) * size;
    session->cache_nbytes = heads * (session->head_nbytes_k + session->head_nbytes_v);
    char what[64];
    snprintf(what, sizeof what, "a context of %u positions needs", session->context);
    enum tcq_status status = tcq_memory_check(session->cache_nbytes, tcq_memory_available(), what,
                                              "memory", error);
    if (status)
        return status;
    session->keys = tcq_alloc(heads, session->head_nbytes_k);
    session->values = tcq_alloc(heads, session->head_nbytes_v);
    return session->keys && session->values
               ? TCQ_OK
               : tcq_error_memory(error, session->cache_nbytes, "the cache");
}

static enum tcq_status allocate_work(struct tcq_session *session, struct tcq_error *error)
{
    const struct tcq_settings *s = &session->model->settings;
    size_t batch = session->batch, threads = tcq_context_threads(session->model->context);
    size_t q = (size_t)s->heads * s->head_dim, kv = (size_t)s->kv_heads * s->head_dim;
    bool fused = all_fused(session->model);
    session->attention_count = tcq_session_attention_count(s, session->context);
    const struct {
        float **buffer;
        size_t rows, count;
    } buffers[] = {
        {&session->x, batch, s->hidden},
        {&session->h, batch, s->hidden},
        {&session->shared, batch, shared_count(s, fused)},
        {&session->cosines, batch, s->head_dim / 2},
        {&session->sines, batch, s->head_dim / 2},
        {&session->scratch, threads, session->model->scratch},
        {&session->attention, threads, session->attention_count},
    };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        *buffers[i].buffer = tcq_alloc(buffers[i].rows, buffers[i].count * sizeof(float));
        if (!*buffers[i].buffer)
            return tcq_error_memory(error, buffers[i].rows * buffers[i].count * sizeof(float),
                                    "a batch");
        session->work_nbytes += buffers[i].rows * buffers[i].count * sizeof(float);
    }
    session->q = session->gate = session->shared;
    session->k = session->q + batch * q;
    session->v = session->k + batch * kv;
    session->up = fused ? NULL : session->gate + batch * s->intermediate;
    return TCQ_OK;
}

enum tcq_status tcq_session_create(const struct tcq_model *model,
                                   const struct tcq_session_options *options,
                                   struct tcq_session **out, struct tcq_error *error)
{
    static const struct tcq_session_options defaults = {0};
    if (!model || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "session: a null pointer");
    if (!options)
        options = &defaults;
    uint32_t most = model->settings.positions;
    if (options->context > most)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "a context of %u positions: the model was made for %u",
                             options->context, most);
    struct tcq_session *session = tcq_alloc(1, sizeof *session);
    if (!session)
        return tcq_error_memory(error, sizeof *session, "a session");
    session->model = model;
    session->cache_f32 = options->cache_f32;
    session->context = options->context       ? options->context
                       : most < DEFAULT_CONTEXT ? most
                                                : DEFAULT_CONTEXT;
    session->batch = options->batch  ? options->batch
                     : model->device ? DEFAULT_BATCH
                                     : tcq_session_batch(&model->settings, all_fused(model));
    if (session->batch > session->context)
        session->batch = session->context;
    session->own_batch = !options->batch;
    size_t logits = model->device ? 0 : model->settings.vocab; /* a device chooses by itself */
    session->logits = tcq_alloc(logits, sizeof *session->logits);
    session->work_nbytes = logits * sizeof *session->logits;
    enum tcq_status status =
        session->logits ? TCQ_OK : tcq_error_memory(error, logits * sizeof(float), "logits");
    if (!status)
        status = model->device ? model->device->open(session, error)
                               : allocate_cache(session, error);
    if (!status && !model->device)
        status = allocate_work(session, error);
    if (status)
        tcq_session_destroy(session);
    else
        *out = session;
    return status;
}

void tcq_session_destroy(struct tcq_session *session)
{
    if (!session)
        return;
    if (session->on_device)
        session->model->device->close(session);
    void *buffers[] = {session->keys,    session->values, session->x,     session->h,
                       session->shared,  session->cosines, session->sines, session->scratch,
                       session->attention, session->logits};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        tcq_free(buffers[i]);
    tcq_free(session);
}

uint32_t tcq_session_context(const struct tcq_session *session)
{
    return session->context;
}

size_t tcq_session_cache_nbytes(const struct tcq_session *session)
{
    return session->cache_nbytes;
}

size_t tcq_session_work_nbytes(const struct tcq_session *session)
{
    return session->work_nbytes;
}

uint32_t tcq_session_position(const struct tcq_session *session)
{
    return session->position;
}

enum tcq_status tcq_session_rewind(struct tcq_session *session, uint32_t position)
{
    if (!session || position > session->position)
        return tcq_error_set(NULL, TCQ_ERROR_ARGUMENT, "rewind");
    session->position = position;
    return TCQ_OK;
}

void tcq_session_watch(struct tcq_session *session, tcq_layer_fn watch, void *user)
{
    session->watch = watch;
    session->watch_user = user;
}

/* ------------------------------------------------------------------------ */
/* Forward                                                                   */
/* ------------------------------------------------------------------------ */

static enum tcq_status multiply(struct tcq_session *s, const struct tcq_weight *weight, float *y,
                                const float *x, struct tcq_error *error)
{
    return tcq_weight_forward(weight, s->model->context, s->model->math, s->m, y, x, s->scratch,
                              error);
}

/* h = norm(x) with the weights of attention, or of the MLP after x += h. */
static void attention_norm_task(void *argument, size_t thread, size_t i)
{
    struct tcq_session *s = argument;
    size_t hidden = s->model->settings.hidden;
    (void)thread;
    s->model->math->norm(s->h + i * hidden, s->x + i * hidden,
                         s->model->layers[s->layer].attention_norm, hidden,
                         (float)s->model->settings.norm_epsilon);
}

static void add_task(void *argument, size_t thread, size_t i)
{
    struct tcq_session *s = argument;
    size_t hidden = s->model->settings.hidden;
    float *x = s->x + i * hidden;
    const float *h = s->h + i * hidden;
    (void)thread;
    for (size_t j = 0; j < hidden; j++)
        x[j] += h[j];
}

static void mlp_norm_task(void *argument, size_t thread, size_t i)
{
    struct tcq_session *s = argument;
    size_t hidden = s->model->settings.hidden;
    add_task(s, thread, i);
    s->model->math->norm(s->h + i * hidden, s->x + i * hidden, s->model->layers[s->layer].mlp_norm,
                         hidden, (float)s->model->settings.norm_epsilon);
}

static void swiglu_task(void *argument, size_t thread, size_t i)
{
    struct tcq_session *s = argument;
    size_t n = s->model->settings.intermediate;
    (void)thread;
    s->model->math->swiglu(s->gate + i * n, s->gate + i * n, s->up + i * n, n);
}

/* gate = silu(gate h) * (up h): in one pass where both are packed. */
static enum tcq_status gate_and_up(struct tcq_session *s, struct tcq_error *error)
{
    const struct tcq_layer *layer = &s->model->layers[s->layer];
    const struct tcq_settings *settings = &s->model->settings;
    if (tcq_layer_is_fused(layer)) {
        struct tcq_vectors mid = {s->gate, TCQ_DTYPE_F32, settings->intermediate};
        struct tcq_vectors x = {s->h, TCQ_DTYPE_F32, settings->hidden};
        return tcq_gate_up_forward(layer->gate.linear, layer->up.linear, s->m, &mid, &x,
                                   TCQ_SWIGLU_FUSED, error);
    }
    enum tcq_status status = multiply(s, &layer->gate, s->gate, s->h, error);
    if (!status)
        status = multiply(s, &layer->up, s->up, s->h, error);
    if (!status)
        tcq_session_run(s, swiglu_task, s->m, 20.0 * (double)s->m * settings->intermediate);
    return status;
}

static enum tcq_status run_layer(struct tcq_session *s, struct tcq_error *error)
{
    const struct tcq_layer *layer = &s->model->layers[s->layer];
    double row_work = 4.0 * (double)s->m * s->model->settings.hidden;
    tcq_session_run(s, attention_norm_task, s->m, row_work);
    enum tcq_status status = multiply(s, &layer->q, s->q, s->h, error);
    if (!status)
        status = multiply(s, &layer->k, s->k, s->h, error);
    if (!status)
        status = multiply(s, &layer->v, s->v, s->h, error);
    if (status)
        return status;
    tcq_session_store(s);
    tcq_session_attend(s);
    status = multiply(s, &layer->o, s->h, s->q, error);
    if (status)
        return status;
    tcq_session_run(s, mlp_norm_task, s->m, row_work);
    status = gate_and_up(s, error);
    if (!status)
        status = multiply(s, &layer->down, s->h, s->gate, error);
    if (!status)
        tcq_session_run(s, add_task, s->m, row_work);
    if (!status && s->watch)
        s->watch(s->watch_user, s->layer, s->m, s->x);
    return status;
}

/* Rounded as float32 arithmetic has them. */
void tcq_session_angles(const struct tcq_model *model, uint32_t position, size_t count,
                        float *cosines, float *sines)
{
    size_t half = model->settings.head_dim / 2;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < half; j++) {
            float angle = (float)(position + i) * model->frequencies[j];
            cosines[i * half + j] = cosf(angle);
            sines[i * half + j] = sinf(angle);
        }
}

/* Logits of `count` positions from row `first` of x.  As many as the small kernels
 * would take, if few enough that they may be asked for with a prompt cut into pieces,
 * go in steps of what the head's scratch has room for: the bytes stay the same. */
static enum tcq_status give_logits(struct tcq_session *s, size_t first, size_t count, float *logits,
                                   struct tcq_error *error)
{
    if (s->model->device)
        return s->model->device->logits(s, first, count, logits, error);
    size_t hidden = s->model->settings.hidden, vocab = s->model->settings.vocab;
    const struct tcq_weight *head = tcq_model_head(s->model);
    size_t step = head->linear && count <= TCQ_SMALL_M_MAX ? TCQ_HEAD_SMALL_M : count;
    enum tcq_status status = TCQ_OK;
    for (size_t i = 0; i < count; i++)
        s->model->math->norm(s->h + i * hidden, s->x + (first + i) * hidden, s->model->final_norm,
                             hidden, (float)s->model->settings.norm_epsilon);
    for (size_t i = 0; i < count && !status; i += step)
        status = tcq_weight_forward(head, s->model->context, s->model->math,
                                    count - i < step ? count - i : step, logits + i * vocab,
                                    s->h + i * hidden, s->scratch, error);
    return status;
}

/* The batch tokens[0..m) at s->position. */
static enum tcq_status run_batch(struct tcq_session *s, const uint32_t *tokens, size_t m,
                                 struct tcq_error *error)
{
    size_t hidden = s->model->settings.hidden;
    enum tcq_status status = TCQ_OK;
    s->m = m;
    if (s->model->device)
        return s->model->device->batch(s, tokens, m, error);
    for (size_t i = 0; i < m && !status; i++)
        status = tcq_weight_row(&s->model->embedding, s->x + i * hidden, tokens[i], error);
    tcq_session_angles(s->model, s->position, m, s->cosines, s->sines);
    for (s->layer = 0; s->layer < s->model->settings.layers && !status; s->layer++)
        status = run_layer(s, error);
    return status;
}

static enum tcq_status check_forward(const struct tcq_session *s, const uint32_t *tokens,
                                     size_t count, struct tcq_error *error)
{
    if (count == 0)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "no tokens");
    if (count > s->context - s->position)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "%zu tokens after %u: the context has %u positions", count,
                             s->position, s->context);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] >= s->model->settings.vocab)
            return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                                 "token %zu is %u: the vocabulary has %u", i, tokens[i],
                                 s->model->settings.vocab);
    return TCQ_OK;
}

/* Positions of the next batch of a call of `count` tokens, `left` of them to go. */
static size_t next_batch(const struct tcq_session *session, size_t count, size_t left)
{
    const struct tcq_model_device *device = session->model->device;
    size_t m = session->batch;
    if (device && session->own_batch && count <= device->exact_tokens && m > device->exact_batch)
        m = device->exact_batch;
    return left < m ? left : m;
}

static enum tcq_status forward(struct tcq_session *session, const uint32_t *tokens, size_t count,
                               enum tcq_logits which, float *logits, struct tcq_error *error)
{
    if (!session || !tokens || (!logits && which != TCQ_LOGITS_NONE))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "session: a null pointer");
    if (which != TCQ_LOGITS_LAST && which != TCQ_LOGITS_ALL && which != TCQ_LOGITS_NONE)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "session: logits of kind %d", (int)which);
    enum tcq_status status = check_forward(session, tokens, count, error);
    uint32_t start = session->position;
    for (size_t done = 0; done < count && !status;) {
        size_t m = next_batch(session, count, count - done);
        bool last = done + m == count;
        status = run_batch(session, tokens + done, m, error);
        if (!status && which == TCQ_LOGITS_ALL)
            status = give_logits(session, 0, m, logits + done * session->model->settings.vocab,
                                 error);
        else if (!status && which == TCQ_LOGITS_LAST && last)
            status = give_logits(session, m - 1, 1, logits, error);
        done += m;
        session->position = start + (uint32_t)done;
    }
    if (status)
        session->position = start;
    return status;
}

enum tcq_status tcq_session_forward(struct tcq_session *session, const uint32_t *tokens,
                                    size_t count, enum tcq_logits which, float *logits,
                                    struct tcq_error *error)
{
    enum tcq_status status = forward(session, tokens, count, which, logits, error);
    if (!status && session->model->device && which == TCQ_LOGITS_NONE)
        status = session->model->device->wait(session, error);
    return status;
}

enum tcq_status tcq_session_next(struct tcq_session *session, struct tcq_sampler *sampler,
                                 const uint32_t *tokens, size_t count, uint32_t *token,
                                 struct tcq_error *error)
{
    if (!session || !sampler || !token)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "session: a null pointer");
    uint32_t vocab = session->model->settings.vocab;
    if (tcq_sampler_vocab(sampler) != vocab)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "session: a sampler for %u tokens, the model has %u",
                             tcq_sampler_vocab(sampler), vocab);
    const struct tcq_model_device *device = session->model->device;
    if (device)
        session->sampling = tcq_sampler_sampling(sampler);
    enum tcq_status status = forward(session, tokens, count,
                                     device ? TCQ_LOGITS_NONE : TCQ_LOGITS_LAST, session->logits,
                                     error);
    if (!status && !device)
        status = tcq_sampler_next(sampler, session->logits, token, error);
    if (!status && device)
        status = device->choose(session, token, error);
    if (!status && device)
        tcq_sampler_advance(sampler);
    session->sampling = (struct tcq_sampling){0};
    return status;
}

enum tcq_status tcq_session_linear(struct tcq_session *session, size_t m, struct tcq_error *error)
{
    if (!session->model->device || m == 0 || m > session->batch)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "linear layers: %zu vectors", m);
    return session->model->device->linear(session, m, error);
}
