/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Perplexity of a text, and the distance between two models along it.  Both run
 * over the same chunk of a window before either goes on, so that the logits of
 * one chunk are all that is held.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/model.h"
#include "model/tokenizer.h"

enum { DEFAULT_WINDOW = 512, CHUNK = 64 };

/* One of the two models. */
struct side {
    const struct tcq_model *model;
    struct tcq_session *session;
    float *logits; /* [CHUNK][vocab] */
};

/* What one position comes to. */
struct score {
    double nll, nll_against, kl;
    bool same_top, valid;
};

struct evaluation {
    struct side sides[2]; /* the model; what it is compared with */
    size_t side_count;
    uint32_t vocab, hidden;
    struct tcq_evaluation *out;
    /* The chunk at hand. */
    uint32_t next[CHUNK]; /* the token after each position, or TCQ_NO_TOKEN */
    struct score scores[CHUNK];
    float *hidden_against; /* [layers][CHUNK][hidden] */
    double nll, nll_against, kl;
    size_t same_top, kl_capacity, positions;
    double *layer_sums;
};

/* ------------------------------------------------------------------------ */
/* One position                                                              */
/* ------------------------------------------------------------------------ */

/* ln of the sum of exp(logits). */
static double log_sum(const float *logits, uint32_t vocab, uint32_t *top)
{
    *top = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[*top])
            *top = i;
    double most = (double)logits[*top], sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

static void score_task(void *argument, size_t thread, size_t i)
{
    struct evaluation *e = argument;
    struct score *score = &e->scores[i];
    uint32_t next = e->next[i], top, top_against;
    (void)thread;
    *score = (struct score){.valid = true};
    if (next == TCQ_NO_TOKEN)
        return;
    const float *q = e->sides[0].logits + i * e->vocab;
    double q_sum = log_sum(q, e->vocab, &top);
    score->nll = q_sum - (double)q[next];
    if (e->side_count == 2) {
        const float *p = e->sides[1].logits + i * e->vocab;
        double p_sum = log_sum(p, e->vocab, &top_against);
        score->nll_against = p_sum - (double)p[next];
        score->same_top = top == top_against;
        for (uint32_t t = 0; t < e->vocab; t++) {
            double log_p = (double)p[t] - p_sum, log_q = (double)q[t] - q_sum;
            score->kl += exp(log_p) * (log_p - log_q);
        }
        /* Rounding can leave equal distributions a hair below zero. */
        score->kl = score->kl < 0 ? 0 : score->kl;
    }
    score->valid = isfinite(score->nll) && isfinite(score->nll_against) && isfinite(score->kl);
}

/* ------------------------------------------------------------------------ */
/* Layers                                                                    */
/* ------------------------------------------------------------------------ */

static void keep_hidden(void *user, uint32_t layer, size_t count, const float *hidden)
{
    struct evaluation *e = user;
    memcpy(e->hidden_against + (size_t)layer * CHUNK * e->hidden, hidden,
           count * e->hidden * sizeof *hidden);
}

static void compare_hidden(void *user, uint32_t layer, size_t count, const float *hidden)
{
    struct evaluation *e = user;
    const float *against = e->hidden_against + (size_t)layer * CHUNK * e->hidden;
    for (size_t i = 0; i < count; i++) {
        double difference = 0, size = 0;
        for (size_t j = i * e->hidden; j < (i + 1) * e->hidden; j++) {
            double d = (double)hidden[j] - (double)against[j];
            difference += d * d;
            size += (double)against[j] * (double)against[j];
        }
        e->layer_sums[layer] += size > 0 ? sqrt(difference / size) : 0;
    }
}

/* ------------------------------------------------------------------------ */
/* Windows                                                                   */
/* ------------------------------------------------------------------------ */

static enum tcq_status add_kl(struct evaluation *e, double kl, struct tcq_error *error)
{
    void *array = e->out->kl;
    if (!tcq_array_reserve(&array, &e->kl_capacity, e->out->scored + 1, sizeof *e->out->kl))
        return tcq_error_memory(error, e->out->scored * sizeof *e->out->kl, "an evaluation");
    e->out->kl = array;
    e->out->kl[e->out->scored] = (float)kl;
    return TCQ_OK;
}

static enum tcq_status run_chunk(struct evaluation *e, const uint32_t *tokens, size_t count,
                                 struct tcq_error *error)
{
    for (size_t s = e->side_count; s-- > 0;) {
        enum tcq_status status = tcq_session_forward(e->sides[s].session, tokens, count,
                                                     TCQ_LOGITS_ALL, e->sides[s].logits, error);
        if (status)
            return status;
    }
    tcq_context_run(e->sides[0].model->context, score_task, e, count);
    for (size_t i = 0; i < count; i++) {
        const struct score *score = &e->scores[i];
        if (e->next[i] == TCQ_NO_TOKEN)
            continue;
        if (!score->valid)
            return tcq_error_set(error, TCQ_ERROR_VALUE,
                                 "the logits after token %zu of the text are not numbers",
                                 e->out->scored);
        enum tcq_status status = e->side_count == 2 ? add_kl(e, score->kl, error) : TCQ_OK;
        if (status)
            return status;
        e->nll += score->nll;
        e->nll_against += score->nll_against;
        e->kl += score->kl;
        e->same_top += score->same_top;
        e->out->scored++;
    }
    e->positions += count;
    return TCQ_OK;
}

/* One window: `begin` (or TCQ_NO_TOKEN) and count tokens. */
static enum tcq_status run_window(struct evaluation *e, uint32_t begin, const uint32_t *tokens,
                                  size_t count, struct tcq_error *error)
{
    size_t lead = begin != TCQ_NO_TOKEN, total = count + lead;
    uint32_t chunk[CHUNK];
    for (size_t s = 0; s < e->side_count; s++)
        tcq_session_rewind(e->sides[s].session, 0);
    for (size_t done = 0; done < total; done += CHUNK) {
        size_t m = total - done < CHUNK ? total - done : CHUNK;
        for (size_t i = 0; i < m; i++) {
            size_t at = done + i;
            chunk[i] = at < lead ? begin : tokens[at - lead];
            e->next[i] = at + 1 < total ? tokens[at + 1 - lead] : TCQ_NO_TOKEN;
        }
        enum tcq_status status = run_chunk(e, chunk, m, error);
        if (status)
            return status;
    }
    e->out->windows++;
    return TCQ_OK;
}

static enum tcq_status open_side(struct evaluation *e, size_t s, uint32_t window,
                                 struct tcq_error *error)
{
    struct side *side = &e->sides[s];
    struct tcq_session_options options = {.context = window, .batch = CHUNK};
    side->logits = tcq_alloc((size_t)CHUNK * e->vocab, sizeof *side->logits);
    if (!side->logits)
        return tcq_error_memory(error, (size_t)CHUNK * e->vocab * sizeof(float), "logits");
    enum tcq_status status = tcq_session_create(side->model, &options, &side->session, error);
    if (!status && e->side_count == 2)
        tcq_session_watch(side->session, s == 0 ? compare_hidden : keep_hidden, e);
    return status;
}

static enum tcq_status check_pair(const struct tcq_model *model, const struct tcq_model *against,
                                  struct tcq_error *error)
{
    const struct tcq_settings *a = &model->settings, *b = &against->settings;
    if (a->vocab == b->vocab && a->hidden == b->hidden && a->layers == b->layers)
        return TCQ_OK;
    return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                         "cannot compare %u layers of %u with a vocabulary of %u and %u layers of "
                         "%u with one of %u",
                         a->layers, a->hidden, a->vocab, b->layers, b->hidden, b->vocab);
}

static enum tcq_status prepare(struct evaluation *e, uint32_t window, struct tcq_error *error)
{
    uint32_t layers = e->sides[0].model->settings.layers;
    e->vocab = e->sides[0].model->settings.vocab;
    e->hidden = e->sides[0].model->settings.hidden;
    e->layer_sums = tcq_alloc(layers, sizeof *e->layer_sums);
    if (!e->layer_sums)
        return tcq_error_memory(error, layers * sizeof *e->layer_sums, "an evaluation");
    if (e->side_count == 2) {
        e->hidden_against = tcq_alloc((size_t)layers * CHUNK * e->hidden, sizeof(float));
        if (!e->hidden_against)
            return tcq_error_memory(error, (size_t)layers * CHUNK * e->hidden * sizeof(float),
                                    "hidden states");
    }
    enum tcq_status status = TCQ_OK;
    for (size_t s = 0; s < e->side_count && !status; s++)
        status = open_side(e, s, window, error);
    return status;
}

static int ascending(const void *left, const void *right)
{
    const float *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

/* Sums to means. */
static enum tcq_status finish(struct evaluation *e, struct tcq_error *error)
{
    struct tcq_evaluation *out = e->out;
    double scored = (double)out->scored;
    out->perplexity = exp(e->nll / scored);
    if (e->side_count < 2)
        return TCQ_OK;
    float *sorted = tcq_alloc(out->scored, sizeof *sorted);
    if (!sorted)
        return tcq_error_memory(error, out->scored * sizeof *sorted, "an evaluation");
    memcpy(sorted, out->kl, out->scored * sizeof *sorted);
    qsort(sorted, out->scored, sizeof *sorted, ascending);
    /* The least value that 99 % of the positions do not exceed. */
    out->kl_p99 = (double)sorted[(out->scored * 99 + 99) / 100 - 1];
    out->kl_max = (double)sorted[out->scored - 1];
    tcq_free(sorted);
    out->compared = true;
    out->perplexity_against = exp(e->nll_against / scored);
    out->kl_mean = e->kl / scored;
    out->top1 = (double)e->same_top / scored;
    out->layers = e->sides[0].model->settings.layers;
    for (uint32_t i = 0; i < out->layers; i++)
        e->layer_sums[i] /= (double)e->positions;
    out->layer_error = e->layer_sums;
    e->layer_sums = NULL;
    return TCQ_OK;
}

void tcq_evaluation_free(struct tcq_evaluation *evaluation)
{
    if (!evaluation)
        return;
    tcq_free(evaluation->kl);
    tcq_free(evaluation->layer_error);
    *evaluation = (struct tcq_evaluation){0};
}

static enum tcq_status run_windows(struct evaluation *e, uint32_t window, const uint32_t *tokens,
                                   size_t count, const struct tcq_evaluate_options *options,
                                   struct tcq_error *error)
{
    const struct tcq_tokenizer *tokenizer = e->sides[0].model->tokenizer;
    uint32_t begin = tokenizer && tokenizer->before_count ? tokenizer->before[0] : TCQ_NO_TOKEN;
    size_t step = window - (begin != TCQ_NO_TOKEN);
    enum tcq_status status = TCQ_OK;
    for (size_t done = 0; done < count && !status; done += step) {
        size_t n = count - done < step ? count - done : step;
        if (n < 2)
            break;
        status = run_window(e, begin, tokens + done, n, error);
        if (!status && options->progress && !options->progress(options->progress_user, done + n, count))
            status = tcq_error_set(error, TCQ_ERROR_CANCELLED, "cancelled");
    }
    return status;
}

enum tcq_status tcq_evaluate(const struct tcq_model *model, const struct tcq_model *against,
                             const uint32_t *tokens, size_t count,
                             const struct tcq_evaluate_options *options,
                             struct tcq_evaluation *out, struct tcq_error *error)
{
    static const struct tcq_evaluate_options defaults = {0};
    if (!model || !tokens || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "evaluate: a null pointer");
    if (!options)
        options = &defaults;
    uint32_t window = options->context ? options->context : DEFAULT_WINDOW;
    if (window > model->settings.positions && !options->context)
        window = model->settings.positions;
    if (count < 2 || window < 3)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "%zu tokens in windows of %u: at least 2, and windows of 3, expected",
                             count, window);
    struct tcq_evaluation result = {0};
    struct evaluation e = {.sides = {{.model = model}, {.model = against}},
                           .side_count = against ? 2 : 1, .out = &result};
    enum tcq_status status = against ? check_pair(model, against, error) : TCQ_OK;
    if (!status)
        status = prepare(&e, window, error);
    if (!status)
        status = run_windows(&e, window, tokens, count, options, error);
    if (!status)
        status = finish(&e, error);
    for (size_t s = 0; s < 2; s++) {
        tcq_session_destroy(e.sides[s].session);
        tcq_free(e.sides[s].logits);
    }
    tcq_free(e.hidden_against);
    tcq_free(e.layer_sums);
    if (status)
        tcq_evaluation_free(&result);
    else
        *out = result;
    return status;
}
