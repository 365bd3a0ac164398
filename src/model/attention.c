/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary embedding, the cache, and attention over it.  A task is a few
 * neighbouring positions of one key-value head: the query heads that share it
 * share every load of a key or a value.
 */
#include <math.h>
#include <string.h>

#include "model/session.h"

/* Vectors (positions times query heads of a group) that a task aims at, and most of
 * them where that makes whole tiles; fewer where their scores, for every position of
 * the context, would outgrow SCORES_NBYTES. */
enum {
    TASK_VECTORS = 16,
    TASK_VECTORS_MAX = 24,
    TILE_VECTORS = 8,
    SCORES_NBYTES = 2 << 20,
    NARROW_COUNT = 256
};

static uint32_t group_of(const struct tcq_settings *s)
{
    return s->heads / s->kv_heads;
}

static uint32_t task_positions(const struct tcq_settings *s, uint32_t context)
{
    size_t vector_nbytes = tcq_round_lanes(context) * sizeof(float);
    uint32_t group = group_of(s), positions = TASK_VECTORS / group;
    for (uint32_t more = positions + 1; more * group <= TASK_VECTORS_MAX; more++)
        if (positions * group % TILE_VECTORS && more * group % TILE_VECTORS == 0)
            positions = more;
    while (positions > 1 && positions * group * vector_nbytes > SCORES_NBYTES)
        positions--;
    return positions ? positions : 1;
}

/* ------------------------------------------------------------------------ */
/* Rotary embedding and the cache                                            */
/* ------------------------------------------------------------------------ */

static void store_key(const struct tcq_session *s, char *keys, size_t position, const float *k)
{
    size_t dim = s->model->settings.head_dim;
    size_t at = position / TCQ_LANES * dim * TCQ_LANES + position % TCQ_LANES;
    for (size_t d = 0; d < dim && s->cache_f32; d++)
        ((float *)(void *)keys)[at + d * TCQ_LANES] = k[d];
    for (size_t begin = 0; begin < dim && !s->cache_f32; begin += NARROW_COUNT) {
        uint16_t part[NARROW_COUNT];
        size_t n = dim - begin < NARROW_COUNT ? dim - begin : NARROW_COUNT;
        s->model->math->narrow(part, k + begin, n);
        for (size_t d = 0; d < n; d++)
            ((uint16_t *)(void *)keys)[at + (begin + d) * TCQ_LANES] = part[d];
    }
}

static void store_value(const struct tcq_session *s, char *values, size_t position, const float *v)
{
    size_t dim = s->model->settings.head_dim, at = position * tcq_round_lanes(dim);
    if (s->cache_f32)
        memcpy((float *)(void *)values + at, v, dim * sizeof *v);
    else
        s->model->math->narrow((uint16_t *)(void *)values + at, v, dim);
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
        s->model->math->rotate(q, cosines, sines, half);
    }
    for (uint32_t head = 0; head < settings->kv_heads; head++) {
        float *k = s->k + (item * settings->kv_heads + head) * dim;
        size_t at = cache_index(s, head);
        if (layer->k_norm)
            s->model->math->norm(k, k, layer->k_norm, dim, epsilon);
        s->model->math->rotate(k, cosines, sines, half);
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
    size_t vectors = (size_t)task_positions(settings, context) * group_of(settings);
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

/* What a task works on: n vectors, those of positions [begin, end) of the batch. */
struct attend {
    const struct tcq_session *s;
    struct tcq_cache_view cache;
    size_t begin, end, group, dim, padded, stride;
    float *scores, *queries, *mixed; /* [n][stride], [n][dim], [n][padded] */
};

static void add_values(const struct attend *a, size_t vector, size_t n, size_t first, size_t end)
{
    if (first < end)
        a->s->model->math->mix(a->mixed + vector * a->padded, a->scores + vector * a->stride,
                               a->stride, n, &a->cache, first, end);
}

/* Every vector adds the values in the order of their positions: those that some see
 * before the first that all see, those that all see, and the rest.  Only the second
 * part is long, and it is read once for all. */
static void mix_values(const struct attend *a)
{
    size_t position = a->s->position, n = (a->end - a->begin) * a->group;
    size_t all_first = first_seen(a->s, position + a->end - 1), all_end = position + a->begin + 1;
    if (all_end < all_first)
        all_end = all_first; /* a narrow window: there is nothing that all see */
    memset(a->mixed, 0, n * a->padded * sizeof *a->mixed);
    for (size_t i = a->begin; i < a->end; i++)
        add_values(a, (i - a->begin) * a->group, a->group, first_seen(a->s, position + i),
                   all_first < position + i + 1 ? all_first : position + i + 1);
    add_values(a, 0, n, all_first, all_end);
    for (size_t i = a->begin; i < a->end; i++)
        add_values(a, (i - a->begin) * a->group, a->group, all_end, position + i + 1);
}

/* Vector i's scores to weights that are not divided by their sum, which is returned. */
static float weigh(const struct attend *a, size_t i)
{
    size_t position = a->s->position + a->begin + i / a->group, first = first_seen(a->s, position);
    return a->s->model->math->softmax(a->scores + i * a->stride + first, position + 1 - first,
                                      (float)(1 / sqrt((double)a->dim)));
}

/* q: the group's heads of the first position, those of the next `row` further on;
 * they are replaced by what attention gives. */
static void attend(const struct attend *a, float *q, size_t row)
{
    const struct tcq_math *math = a->s->model->math;
    size_t position = a->s->position, n = (a->end - a->begin) * a->group;
    float sums[TCQ_HEADS_MAX];
    for (size_t i = 0; i < n; i++)
        memcpy(a->queries + i * a->dim, q + i / a->group * row + i % a->group * a->dim,
               a->dim * sizeof *q);
    math->scores(a->scores, a->stride, a->queries, a->dim, n, &a->cache,
                 first_seen(a->s, position + a->begin) / TCQ_LANES,
                 (position + a->end - 1) / TCQ_LANES + 1);
    for (size_t i = 0; i < n; i++)
        sums[i] = weigh(a, i);
    mix_values(a);
    for (size_t i = 0; i < n; i++) {
        float *out = q + i / a->group * row + i % a->group * a->dim;
        float by = 1 / sums[i];
        for (size_t d = 0; d < a->dim; d++)
            out[d] = a->mixed[i * a->padded + d] * by;
    }
}

static void attend_task(void *argument, size_t thread, size_t item)
{
    struct tcq_session *s = argument;
    const struct tcq_settings *settings = &s->model->settings;
    size_t step = task_positions(settings, s->context);
    uint32_t kv_head = (uint32_t)(item % settings->kv_heads);
    struct attend a = {
        .s = s,
        .cache = {s->keys + cache_index(s, kv_head) * s->head_nbytes_k,
                  s->values + cache_index(s, kv_head) * s->head_nbytes_v, s->cache_f32,
                  settings->head_dim},
        .begin = item / settings->kv_heads * step,
        .group = group_of(settings),
        .dim = settings->head_dim,
        .padded = tcq_round_lanes(settings->head_dim),
        .stride = tcq_round_lanes(s->context),
        .scores = s->attention + thread * s->attention_count,
    };
    a.end = a.begin + step < s->m ? a.begin + step : s->m;
    a.queries = a.scores + step * a.group * a.stride;
    a.mixed = a.queries + step * a.group * a.padded;
    attend(&a, s->q + ((size_t)a.begin * settings->heads + kv_head * a.group) * a.dim,
           settings->heads * a.dim);
}

void tcq_session_attend(struct tcq_session *session)
{
    const struct tcq_settings *s = &session->model->settings;
    size_t step = task_positions(s, session->context), blocks = (session->m + step - 1) / step;
    tcq_session_run(session, attend_task, blocks * s->kv_heads,
                    4.0 * (double)session->m * s->heads * s->head_dim *
                        ((double)session->position + (double)session->m));
}
