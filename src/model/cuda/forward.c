/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches on the GPU.  The forward pass of one token is captured in a graph once:
 * its token and position are read from device memory, so that the graph serves
 * every position, and one launch is all that a token takes.
 */
#include <math.h>
#include <stddef.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/cuda/gpu.h"

/* The parts of a call. */
struct call {
    struct tcq_session *session;
    struct gpu_session *s;
    const struct gpu_model *gpu;
    const struct tcq_settings *settings;
    uint32_t m;
    bool on_graph;          /* token and position are in s->state */
    struct tcq_error *error;
};

static struct call call_of(struct tcq_session *session, size_t m, struct tcq_error *error)
{
    struct gpu_session *s = session->on_device;
    return (struct call){session, s,    s->model, &session->model->settings, (uint32_t)m,
                         false,   error};
}

static enum tcq_status started(cudaError_t code, const struct call *c)
{
    return gpu_status(code, "starting work on the GPU", c->error);
}

/* ---- one layer ----------------------------------------------------------------------------- */

static enum tcq_status multiply(const struct call *c, const struct gpu_product *product, float *y,
                                const float *x, uint32_t m)
{
    enum tcq_status status = TCQ_OK;
    for (uint32_t i = 0; i < product->count && !status; i++) {
        const struct gpu_weight *w = &product->parts[i];
        if (w->form == GPU_PACKED) {
            const struct tcq_cuda_product p = {
                .tensor = &w->packed,
                .numerics = c->session->model->numerics,
                .m = m,
                .x = {(void *)(uintptr_t)x, TCQ_DTYPE_F32, product->in},
                .y = {y, TCQ_DTYPE_F32, product->out}};
            status = tcq_cuda_multiply(c->gpu->cuda, &p, c->gpu->stream, c->error);
        } else {
            status = started(gpu_dense_launch(y, product->out, w, x, product->in, m,
                                              c->gpu->stream), c);
        }
        y += w->out;
    }
    return status;
}

/* h = norm(x) of m vectors, after x += t + bias where there is a t. */
static enum tcq_status add_and_norm(const struct call *c, const float *t, const float *bias,
                                    const float *weight)
{
    const struct gpu_norm p = {.x = c->s->x,
                               .t = t,
                               .bias = bias,
                               .weight = weight,
                               .h = c->s->h,
                               .n = c->settings->hidden,
                               .m = c->m,
                               .epsilon = (float)c->settings->norm_epsilon};
    return started(gpu_norm_launch(&p, c->gpu->stream), c);
}

/* Splits of the positions, so that a few vectors fill the GPU as well. */
static uint32_t splits_of(const struct call *c)
{
    uint32_t wanted = 2 * tcq_cuda_multiprocessors(c->gpu->cuda);
    uint32_t blocks = gpu_tiles(c->m, c->settings->heads / c->settings->kv_heads) *
                      c->settings->kv_heads;
    return blocks >= wanted ? 1 : (wanted + blocks - 1) / blocks;
}

static enum tcq_status attend(const struct call *c, uint32_t layer)
{
    const struct tcq_settings *t = c->settings;
    const struct gpu_block *l = &c->gpu->layers[layer];
    struct gpu_session *s = c->s;
    size_t stride = s->sizes.head / sizeof(uint16_t), at = (size_t)layer * t->kv_heads * stride;
    const struct gpu_attention p = {
        .cache = {s->keys + at, s->values + at, stride, s->padded},
        .qkv = s->qkv,
        .stride = l->qkv.out,
        .out = s->a,
        .bias = l->qkv.bias,
        .q_norm = l->q_norm,
        .k_norm = l->k_norm,
        .cosines = s->cosines,
        .sines = s->sines,
        .epsilon = (float)t->norm_epsilon,
        .scale = (float)(1 / sqrt((double)t->head_dim)),
        .heads = t->heads,
        .kv_heads = t->kv_heads,
        .head_dim = t->head_dim,
        .m = c->m,
        .window = t->windowed[layer] ? t->window : 0,
        .d_position = c->on_graph ? &s->state->position : NULL,
        .position = c->session->position,
        .splits = splits_of(c),
        .partial = s->partial,
        .tickets = s->tickets,
    };
    enum tcq_status status = started(gpu_rope_launch(&p, c->gpu->stream), c);
    return status ? status : started(gpu_attend_launch(&p, c->gpu->stream), c);
}

/* The layer's output is t + its bias, still to be added to x. */
static enum tcq_status run_layer(const struct call *c, uint32_t layer)
{
    const struct gpu_block *l = &c->gpu->layers[layer];
    struct gpu_session *s = c->s;
    enum tcq_status status = multiply(c, &l->qkv, s->qkv, s->h, c->m);
    if (!status)
        status = attend(c, layer);
    if (!status)
        status = multiply(c, &l->o, s->t, s->a, c->m);
    if (!status)
        status = add_and_norm(c, s->t, l->o.bias, l->mlp_norm);
    if (!status)
        status = multiply(c, &l->gate_up, s->gate_up, s->h, c->m);
    if (!status)
        status = started(gpu_swiglu_launch(s->mid, s->gate_up, l->gate_up.bias,
                                           c->settings->intermediate, c->m, c->gpu->stream), c);
    return status ? status : multiply(c, &l->down, s->t, s->mid, c->m);
}

/* Shows x after a layer, with the sum made, to whoever watches. */
static enum tcq_status show_layer(const struct call *c, uint32_t layer)
{
    struct tcq_session *session = c->session;
    size_t hidden = c->settings->hidden, nbytes = c->m * hidden * sizeof(float);
    if (!c->s->watched)
        c->s->watched = tcq_alloc(session->batch, hidden * sizeof(float));
    if (!c->s->watched)
        return tcq_error_memory(c->error, session->batch * hidden * sizeof(float), "hidden states");
    enum tcq_status status = add_and_norm(c, c->s->t, c->gpu->layers[layer].down.bias, NULL);
    if (!status)
        status = tcq_cuda_wait(c->gpu->cuda, c->gpu->stream, c->error);
    if (!status)
        status = tcq_cuda_download(c->gpu->cuda, c->s->watched, c->s->x, nbytes, c->error);
    if (!status)
        session->watch(session->watch_user, layer, c->m, c->s->watched);
    return status;
}

/* All layers for the tokens that lie at d_tokens; h is what the head multiplies. */
static enum tcq_status run_layers(const struct call *c, const uint32_t *d_tokens)
{
    const struct gpu_model *gpu = c->gpu;
    const float *t = NULL, *bias = NULL;
    enum tcq_status status =
        started(gpu_embed_launch(c->s->x, &gpu->embedding.parts[0], d_tokens, c->m, gpu->stream), c);
    for (uint32_t i = 0; i < c->settings->layers && !status; i++) {
        status = add_and_norm(c, t, bias, gpu->layers[i].attention_norm);
        if (!status)
            status = run_layer(c, i);
        bool watched = c->session->watch != NULL;
        if (!status && watched)
            status = show_layer(c, i);
        t = watched ? NULL : c->s->t;
        bias = watched ? NULL : gpu->layers[i].down.bias;
    }
    return status ? status : add_and_norm(c, t, bias, gpu->final_norm);
}

/* ---- one token -------------------------------------------------------------------------------- */

/* Logits of row `row` of the batch, and the choice on its way to host_state. */
static enum tcq_status choose_row(const struct call *c, size_t row)
{
    struct gpu_session *s = c->s;
    const struct tcq_sampling *sampling = &c->session->sampling;
    enum tcq_status status =
        multiply(c, c->gpu->head, s->logits, s->h + row * c->settings->hidden, 1);
    if (!status)
        status = started(gpu_argmax_launch(s->state, s->logits, c->settings->vocab,
                                           c->gpu->stream), c);
    if (!status && sampling->temperature > 0)
        status = started(gpu_sample_launch(s->state, s->sampler, s->logits, c->settings->vocab,
                                           sampling->rules, c->gpu->stream), c);
    if (!status)
        status = started(cudaMemcpyAsync(&s->host_state->chosen, &s->state->chosen,
                                         2 * sizeof(uint32_t), cudaMemcpyDeviceToHost,
                                         c->gpu->stream), c);
    return status;
}

/* Everything between a token in host_state and the choice in host_state. */
static enum tcq_status run_token(const struct call *c)
{
    struct gpu_session *s = c->s;
    enum tcq_status status = started(cudaMemcpyAsync(s->state, s->host_state,
                                                     offsetof(struct gpu_state, chosen),
                                                     cudaMemcpyHostToDevice, c->gpu->stream), c);
    if (!status)
        status = run_layers(c, &s->state->token);
    return status ? status : choose_row(c, 0);
}

/* The linear layers alone. */
static enum tcq_status run_linear(const struct call *c)
{
    struct gpu_session *s = c->s;
    enum tcq_status status = TCQ_OK;
    for (uint32_t i = 0; i < c->settings->layers && !status; i++) {
        const struct gpu_block *l = &c->gpu->layers[i];
        status = multiply(c, &l->qkv, s->qkv, s->h, c->m);
        if (!status)
            status = multiply(c, &l->o, s->t, s->a, c->m);
        if (!status)
            status = multiply(c, &l->gate_up, s->gate_up, s->h, c->m);
        if (!status)
            status = multiply(c, &l->down, s->t, s->mid, c->m);
    }
    return status ? status : multiply(c, c->gpu->head, s->logits, s->h, 1);
}

/* `run` as a graph. */
static enum tcq_status capture(const struct call *c, enum tcq_status (*run)(const struct call *),
                               cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    enum tcq_status status = gpu_status(
        cudaStreamBeginCapture(c->gpu->stream, cudaStreamCaptureModeThreadLocal),
        "beginning a graph", c->error);
    if (status)
        return status;
    status = run(c);
    cudaError_t code = cudaStreamEndCapture(c->gpu->stream, &graph);
    if (!status)
        status = gpu_status(code, "ending a graph", c->error);
    if (!status)
        status = gpu_status(cudaGraphInstantiate(out, graph, 0), "instantiating a graph", c->error);
    if (graph)
        cudaGraphDestroy(graph);
    return status;
}

/* The first time as it is, which loads what is not loaded yet; then by a graph. */
static enum tcq_status run_captured(const struct call *c,
                                    enum tcq_status (*run)(const struct call *),
                                    cudaGraphExec_t *graph, bool *warm)
{
    enum tcq_status status = TCQ_OK;
    if (!*warm || c->s->no_graph) {
        *warm = true;
        return run(c);
    }
    if (!*graph)
        status = capture(c, run, graph);
    return status ? status : started(cudaGraphLaunch(*graph, c->gpu->stream), c);
}

/* ---- the table's functions ----------------------------------------------------------------------- */

enum tcq_status gpu_wait(struct tcq_session *session, struct tcq_error *error)
{
    struct gpu_session *s = session->on_device;
    s->pending = false;
    return tcq_cuda_wait(s->model->cuda, s->model->stream, error);
}

enum tcq_status gpu_batch(struct tcq_session *session, const uint32_t *tokens, size_t m,
                          struct tcq_error *error)
{
    struct call c = call_of(session, m, error);
    struct gpu_session *s = c.s;
    enum tcq_status status = TCQ_OK;
    s->m = m;
    s->chosen = m == 1 && !session->watch;
    if (!s->chosen) { /* small copies from ordinary memory are taken before this returns */
        status = started(cudaMemcpyAsync(s->tokens, tokens, m * sizeof *tokens,
                                         cudaMemcpyHostToDevice, c.gpu->stream), &c);
        return status ? status : run_layers(&c, s->tokens);
    }
    if (s->pending) /* host_state may still be read */
        status = gpu_wait(session, error);
    if (status)
        return status;
    s->host_state->token = tokens[0];
    s->host_state->position = session->position;
    s->host_state->sampling = session->sampling;
    s->pending = c.on_graph = true;
    uint32_t choice = session->sampling.temperature > 0 ? 1 + session->sampling.rules : 0;
    return run_captured(&c, run_token, &s->decode[choice], &s->decode_warm[choice]);
}

enum tcq_status gpu_logits(struct tcq_session *session, size_t first, size_t count, float *logits,
                           struct tcq_error *error)
{
    struct call c = call_of(session, count, error);
    struct gpu_session *s = c.s;
    size_t vocab = c.settings->vocab, most = session->batch;
    enum tcq_status status = TCQ_OK;
    most = most < GPU_LOGITS_ROWS ? most : GPU_LOGITS_ROWS;
    for (size_t done = 0; done < count && !status;) {
        size_t rows = count - done < most ? count - done : most;
        if (!s->chosen)
            status = multiply(&c, c.gpu->head, s->logits,
                              s->h + (first + done) * c.settings->hidden, (uint32_t)rows);
        if (!status)
            status = started(cudaMemcpyAsync(logits + done * vocab, s->logits,
                                             rows * vocab * sizeof *logits,
                                             cudaMemcpyDeviceToHost, c.gpu->stream), &c);
        done += rows;
    }
    return status ? status : gpu_wait(session, error);
}

enum tcq_status gpu_choose(struct tcq_session *session, uint32_t *token, struct tcq_error *error)
{
    struct call c = call_of(session, 1, error);
    enum tcq_status status = TCQ_OK;
    if (!c.s->chosen) /* as in gpu_batch, the copy is made before this returns */
        status = started(cudaMemcpyAsync(&c.s->state->sampling, &session->sampling,
                                         sizeof session->sampling, cudaMemcpyHostToDevice,
                                         c.gpu->stream), &c);
    if (!status && !c.s->chosen)
        status = choose_row(&c, c.s->m - 1);
    if (!status)
        status = gpu_wait(session, error);
    if (status)
        return status;
    if (c.s->host_state->not_a_number)
        return tcq_error_set(error, TCQ_ERROR_VALUE, "the logit of token %u is not a number",
                             c.s->host_state->chosen);
    *token = c.s->host_state->chosen;
    return TCQ_OK;
}

enum tcq_status gpu_linear(struct tcq_session *session, size_t m, struct tcq_error *error)
{
    struct call c = call_of(session, m, error);
    enum tcq_status status = m == 1 ? run_captured(&c, run_linear, &c.s->linear_decode,
                                                   &c.s->linear_warm)
                                    : run_linear(&c);
    c.s->chosen = false; /* the logits are no longer those of a token */
    return status ? status : gpu_wait(session, error);
}
