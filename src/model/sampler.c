/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing the next token.  Candidates are sorted by logit and then by id, so
 * that equal logits give the same choice everywhere.
 */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/session.h"

struct candidate {
    float logit;
    uint32_t id;
    double weight;
};

struct tcq_sampler {
    struct tcq_sampler_options options;
    uint32_t vocab;
    uint64_t state;
    struct candidate *candidates;
};

enum tcq_status tcq_sampler_create(const struct tcq_sampler_options *options, uint32_t vocab,
                                   struct tcq_sampler **out, struct tcq_error *error)
{
    if (!options || !out || vocab == 0)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "sampler: a null pointer or no vocabulary");
    const struct {
        const char *name;
        float value, most;
    } numbers[] = {{"temperature", options->temperature, 1000},
                   {"top-p", options->top_p, 1},
                   {"min-p", options->min_p, 1}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value >= 0 && numbers[i].value <= numbers[i].most))
            return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "%s %g: expected 0..%g",
                                 numbers[i].name, (double)numbers[i].value,
                                 (double)numbers[i].most);
    struct tcq_sampler *sampler = tcq_alloc(1, sizeof *sampler);
    if (sampler)
        sampler->candidates = tcq_alloc(vocab, sizeof *sampler->candidates);
    if (!sampler || !sampler->candidates) {
        tcq_sampler_destroy(sampler);
        return tcq_error_memory(error, vocab * sizeof(struct candidate), "a sampler");
    }
    sampler->options = *options;
    sampler->vocab = vocab;
    sampler->state = options->seed;
    *out = sampler;
    return TCQ_OK;
}

void tcq_sampler_destroy(struct tcq_sampler *sampler)
{
    if (!sampler)
        return;
    tcq_free(sampler->candidates);
    tcq_free(sampler);
}

bool tcq_sampler_is_greedy(const struct tcq_sampler *sampler)
{
    return sampler->options.temperature <= 0;
}

/* splitmix64 (Steele, Lea, Flood 2014): every seed is as good as any other. */
static double next_uniform(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static int likelier_first(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

/* heap[at] goes down until nothing below it is less likely: heap[0] is then the least
 * likely of `count`. */
static void sink(struct candidate *heap, size_t count, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && likelier_first(&heap[child], &heap[child + 1]) < 0)
            child++;
        if (likelier_first(&heap[at], &heap[child]) > 0)
            return;
        struct candidate swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* The k likeliest of a vocabulary, in any order.  Most logits cost one comparison:
 * of equals the earlier one stays. */
static void likeliest(struct candidate *heap, size_t k, const float *logits, uint32_t vocab)
{
    for (uint32_t id = 0; id < k; id++)
        heap[id] = (struct candidate){logits[id], id, 0};
    for (size_t i = k / 2; i-- > 0;)
        sink(heap, k, i);
    for (uint32_t id = (uint32_t)k; id < vocab; id++)
        if (logits[id] > heap[0].logit) {
            heap[0] = (struct candidate){logits[id], id, 0};
            sink(heap, k, 0);
        }
}

/* Candidates that any rule can keep, sorted; how many.  min_p is a bound on the
 * logits themselves, so it is applied before sorting. */
static size_t collect(struct tcq_sampler *s, const float *logits, float highest)
{
    const struct tcq_sampler_options *o = &s->options;
    /* Without min_p: candidates below e^-30 of the likeliest together weigh less
     * than 1e-8 for any vocabulary here, below what one draw can tell apart. */
    double least = o->min_p > 0 ? log((double)o->min_p) : -30;
    size_t count = 0, found = s->vocab;
    if (o->top_k && o->top_k < s->vocab) {
        found = o->top_k;
        likeliest(s->candidates, found, logits, s->vocab);
    }
    for (size_t i = 0; i < found; i++) {
        uint32_t id = found < s->vocab ? s->candidates[i].id : (uint32_t)i;
        double relative = ((double)logits[id] - (double)highest) / (double)o->temperature;
        if (relative >= least)
            s->candidates[count++] = (struct candidate){logits[id], id, exp(relative)};
    }
    qsort(s->candidates, count, sizeof *s->candidates, likelier_first);
    return count;
}

enum tcq_status tcq_sampler_next(struct tcq_sampler *sampler, const float *logits, uint32_t *token,
                                 struct tcq_error *error)
{
    uint32_t best = 0;
    for (uint32_t id = 0; id < sampler->vocab; id++) {
        if (isnan(logits[id]))
            return tcq_error_set(error, TCQ_ERROR_VALUE, "the logit of token %u is not a number",
                                 id);
        best = logits[id] > logits[best] ? id : best;
    }
    if (sampler->options.temperature <= 0 || !isfinite(logits[best])) {
        *token = best;
        return TCQ_OK;
    }
    size_t count = collect(sampler, logits, logits[best]);
    double total = 0, kept = 0;
    for (size_t i = 0; i < count; i++)
        total += sampler->candidates[i].weight;
    float top_p = sampler->options.top_p;
    size_t end = top_p > 0 && top_p < 1 ? 0 : count;
    for (size_t i = 0; i < end; i++)
        kept += sampler->candidates[i].weight;
    while (end < count && kept < (double)top_p * total)
        kept += sampler->candidates[end++].weight;
    double draw = next_uniform(&sampler->state) * kept;
    size_t i = 0;
    while (i + 1 < end && draw >= sampler->candidates[i].weight)
        draw -= sampler->candidates[i++].weight;
    *token = sampler->candidates[i].id;
    return TCQ_OK;
}
