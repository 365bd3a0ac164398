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
    /* A bound on logits, less the highest, in units of the temperature: min_p's, or where
     * candidates together weigh less than 1e-8 for any vocabulary here (e^-30 each),
     * below what one draw can tell apart. */
    double least;
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
    sampler->least = options->min_p > 0 ? log((double)options->min_p) : -30;
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

uint32_t tcq_sampler_vocab(const struct tcq_sampler *sampler)
{
    return sampler->vocab;
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

static double weight_of(const struct tcq_sampler *s, float logit, float highest)
{
    return exp(((double)logit - (double)highest) / (double)s->options.temperature);
}

static bool is_kept(const struct tcq_sampler *s, float logit, float highest)
{
    double relative = ((double)logit - (double)highest) / (double)s->options.temperature;
    return relative >= s->least;
}

/* Up to `limit` candidates above that bound, the likeliest, sorted; how many. */
static size_t collect(struct tcq_sampler *s, const float *logits, float highest, size_t limit)
{
    size_t count = 0;
    if (limit < s->vocab)
        likeliest(s->candidates, limit, logits, s->vocab);
    for (size_t i = 0; i < limit; i++) {
        uint32_t id = limit < s->vocab ? s->candidates[i].id : (uint32_t)i;
        if (is_kept(s, logits[id], highest))
            s->candidates[count++] = (struct candidate){
                logits[id], id, weight_of(s, logits[id], highest)};
    }
    qsort(s->candidates, count, sizeof *s->candidates, likelier_first);
    return count;
}

static double sum_weights(const struct candidate *candidates, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += candidates[i].weight;
    return sum;
}

/* Candidates that the rules keep, sorted; how many.  top_p rarely needs more than a
 * few: a vocabulary is sorted only where it does. */
static size_t choose(struct tcq_sampler *s, const float *logits, float highest)
{
    enum { FEW = 1024 };
    const struct tcq_sampler_options *o = &s->options;
    bool by_mass = o->top_p > 0 && o->top_p < 1;
    size_t limit = o->top_k && o->top_k < s->vocab  ? o->top_k
                   : by_mass && FEW < s->vocab      ? FEW
                                                    : s->vocab;
    size_t count = collect(s, logits, highest, limit), end = 0;
    if (!by_mass)
        return count;
    double total = 0, kept = 0;
    bool few = limit < s->vocab && limit != o->top_k;
    for (uint32_t id = 0; few && id < s->vocab; id++)
        total += is_kept(s, logits[id], highest) ? weight_of(s, logits[id], highest) : 0;
    if (few && sum_weights(s->candidates, count) < (double)o->top_p * total)
        count = collect(s, logits, highest, s->vocab);
    if (!few)
        total = sum_weights(s->candidates, count);
    while (end < count && kept < (double)o->top_p * total)
        kept += s->candidates[end++].weight;
    return end;
}

enum tcq_status tcq_sampler_next(struct tcq_sampler *sampler, const float *logits, uint32_t *token,
                                 struct tcq_error *error)
{
    if (!sampler || !logits || !token)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "sampler: a null pointer");
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
    size_t end = choose(sampler, logits, logits[best]);
    double kept = sum_weights(sampler->candidates, end);
    double draw = next_uniform(&sampler->state) * kept;
    size_t i = 0;
    while (i + 1 < end && draw >= sampler->candidates[i].weight)
        draw -= sampler->candidates[i++].weight;
    *token = sampler->candidates[i].id;
    return TCQ_OK;
}
