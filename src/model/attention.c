/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary embedding, the cache, and attention over it.  A task is a few
 * neighbouring positions of one key-value head: the query heads that share it
 * share every load of a key or a value.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "model/session.h"

/* Vectors (positions times query heads of a group) that a task aims at. */
enum { TASK_VECTORS = 16 };

static uint32_t group_of(const struct tcq_settings *s)
{
    return s->heads / s->kv_heads;
}

static uint32_t task_positions(const struct tcq_settings *s)
{
    uint32_t positions = TASK_VECTORS / group_of(s);
    return positions ? positions : 1;
}

/* ------------------------------------------------------------------------ */
/* Rotary embedding and the cache                                            */
/* ------------------------------------------------------------------------ */

/* Component i and component i + head_dim/2 turn together. */
static void rotate(float *head, const float *cosines, const float *sines, size_t half)
{
    for (size_t i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cosines[i] - b * sines[i];
        head[i + half] = b * cosines[i] + a * sines[i];
    }
}

static void store_key(const struct tcq_session *s, char *keys, size_t position, const float *k)
{
    size_t dim = s->model->settings.head_dim;
    size_t at = position / TCQ_LANES * dim * TCQ_LANES + position % TCQ_LANES;
    for (size_t d = 0; d < dim; d++)
        if (s->cache_f32)
            ((float *)(void *)keys)[at + d * TCQ_LANES] = k[d];
        else
            ((uint16_t *)(void *)keys)[at + d * TCQ_LANES] = tcq_f16_from_f32(k[d]);
}

static void store_value(const struct tcq_session *s, char *values, size_t position, const float *v)
{
    size_t dim = s->model->settings.head_dim, at = position * tcq_round_lanes(dim);
    if (s->cache_f32)
        memcpy((float *)(void *)values + at, v, dim * sizeof *v);
    else
        for (size_t d = 0; d < dim; d++)
            ((uint16_t *)(void *)values)[at + d] = tcq_f16_from_f32(v[d]);
}

static size_t cache_index(const struct tcq_session *s, uint32_t kv_head)
{
    return (size_t)s->layer * s->model->settings.kv_heads + kv_head;
}

/* One position of the batch: every head. */
static void store_task(void *argument, size_t thread, size_t item)
{
    struct tcq_session *s = argument;
    const struct tcq_settings *settings = &s->model->settings;
    const struct tcq_layer *layer = &s->model->layers[s->layer];
    size_t dim = settings->head_dim, half = dim / 2;
    const float *cosines = s->cosines + item * half, *sines = s->sines + item * half;
    float epsilon = (float)settings->norm_epsilon;
    (void)thread;
    for (uint32_t head = 0; head < settings->heads; head++) {
        float *q = s->q + (item * settings->heads + head) * dim;
        if (layer->q_norm)
            s->model->math->norm(q, q, layer->q_norm, dim, epsilon);
        rotate(q, cosines, sines, half);
    }
    for (uint32_t head = 0; head < settings->kv_heads; head++) {
        float *k = s->k + (item * settings->kv_heads + head) * dim;
        size_t at = cache_index(s, head);
        if (layer->k_norm)
            s->model->math->norm(k, k, layer->k_norm, dim, epsilon);
        rotate(k, cosines, sines, half);
        store_key(s, s->keys + at * s->head_nbytes_k, s->position + item, k);
        store_value(s, s->values + at * s->head_nbytes_v, s->position + item,
                    s->v + (item * settings->kv_heads + head) * dim);
    }
}

void tcq_session_store(struct tcq_session *session)
{
    const struct tcq_settings *s = &session->model->settings;
    tcq_session_run(session, store_task, session->m,
                    8.0 * (double)session->m * (s->heads + 2 * s->kv_heads) * s->head_dim);
}

/* ------------------------------------------------------------------------ */
/* Attention                                                                 */
/* ------------------------------------------------------------------------ */

/* A task's memory: queries in a row, scores, and outputs. */
size_t tcq_session_attention_count(const struct tcq_settings *settings, uint32_t context)
{
    size_t vectors = (size_t)task_positions(settings) * group_of(settings);
    size_t padded = tcq_round_lanes(settings->head_dim);
    return vectors * (tcq_round_lanes(context) + 2 * padded);
}

/* Positions [first, end) that the query at `position` sees. */
static size_t first_seen(const struct tcq_session *s, size_t position)
{
    const struct tcq_settings *settings = &s->model->settings;
    bool all = !settings->windowed[s->layer] || position + 1 <= settings->window;
    return all ? 0 : position + 1 - settings->window;
}

/* The vectors of one query position (a group of heads): softmax and values. */
static void finish_position(const struct tcq_session *s, const struct tcq_cache_view *cache,
                            float *scores, size_t stride, float *mixed, size_t i, uint32_t kv_head)
{
    const struct tcq_settings *settings = &s->model->settings;
    size_t group = group_of(settings), dim = settings->head_dim, padded = tcq_round_lanes(dim);
    size_t position = s->position + i, first = first_seen(s, position), end = position + 1;
    float scale = (float)(1 / sqrt((double)dim)), sums[TCQ_HEADS_MAX];
    for (size_t g = 0; g < group; g++)
        sums[g] = s->model->math->softmax(scores + g * stride + first, end - first, scale);
    s->model->math->mix(mixed, scores, stride, group, cache, first, end);
    for (size_t g = 0; g < group; g++) {
        float *out = s->q + (i * settings->heads + kv_head * group + g) * dim;
        float by = 1 / sums[g];
        for (size_t d = 0; d < dim; d++)
            out[d] = mixed[g * padded + d] * by;
    }
}

static void attend_task(void *argument, size_t thread, size_t item)
{
    struct tcq_session *s = argument;
    const struct tcq_settings *settings = &s->model->settings;
    size_t group = group_of(settings), dim = settings->head_dim, padded = tcq_round_lanes(dim);
    size_t step = task_positions(settings), stride = tcq_round_lanes(s->context);
    uint32_t kv_head = (uint32_t)(item % settings->kv_heads);
    size_t begin = item / settings->kv_heads * step;
    size_t end = begin + step < s->m ? begin + step : s->m;
    float *scores = s->attention + thread * s->attention_count;
    float *queries = scores + step * group * stride, *mixed = queries + step * group * padded;
    struct tcq_cache_view cache = {s->keys + cache_index(s, kv_head) * s->head_nbytes_k,
                                   s->values + cache_index(s, kv_head) * s->head_nbytes_v,
                                   s->cache_f32, dim};
    size_t n = (end - begin) * group;
    for (size_t j = 0; j < n; j++)
        memcpy(queries + j * dim,
               s->q + ((begin + j / group) * settings->heads + kv_head * group + j % group) * dim,
               dim * sizeof *queries);
    size_t first_tile = first_seen(s, s->position + begin) / TCQ_LANES;
    s->model->math->scores(scores, stride, queries, dim, n, &cache, first_tile,
                           (s->position + end - 1) / TCQ_LANES + 1);
    for (size_t i = begin; i < end; i++)
        finish_position(s, &cache, scores + (i - begin) * group * stride, stride, mixed, i, kv_head);
}

void tcq_session_attend(struct tcq_session *session)
{
    const struct tcq_settings *s = &session->model->settings;
    size_t blocks = (session->m + task_positions(s) - 1) / task_positions(s);
    tcq_session_run(session, attend_task, blocks * s->kv_heads,
                    4.0 * (double)session->m * s->heads * s->head_dim *
                        ((double)session->position + (double)session->m));
}
