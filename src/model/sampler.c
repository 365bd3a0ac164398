/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing the next token.  The arithmetic and the order of tokens are in sampling.h;
 * model/cuda/sample.cu takes the same steps on a GPU.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/sampling.h"
#include "model/session.h"

/* How many tokens have each value of one digit of their keys, and their weights. */
struct bins {
    uint64_t count[TCQ_SAMPLING_BINS], mass[TCQ_SAMPLING_BINS];
};

struct tcq_sampler {
    struct tcq_sampling sampling;
    uint32_t vocab;
    uint64_t state;
    struct bins bins;
    /* What is left, in the order of the ids; room for a vocabulary. */
    uint32_t count, *ids;
    float *logits, *weights;
};

static struct tcq_sampling sampling_of(const struct tcq_sampler_options *o, uint32_t vocab)
{
    uint32_t rules = o->top_k && o->top_k < vocab ? TCQ_SAMPLING_TOP_K : 0;
    rules |= o->top_p > 0 && o->top_p < 1 ? TCQ_SAMPLING_TOP_P : 0;
    return (struct tcq_sampling){.temperature = o->temperature,
                                 .top_p = o->top_p,
                                 .min_p = o->min_p,
                                 .unit = tcq_sampling_unit(vocab),
                                 .top_k = o->top_k,
                                 .rules = rules};
}

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
    if (sampler) {
        sampler->ids = tcq_alloc(vocab, sizeof *sampler->ids);
        sampler->logits = tcq_alloc(vocab, sizeof *sampler->logits);
        sampler->weights = tcq_alloc(vocab, sizeof *sampler->weights);
    }
    if (!sampler || !sampler->ids || !sampler->logits || !sampler->weights) {
        tcq_sampler_destroy(sampler);
        return tcq_error_memory(error, 3 * sizeof(float) * vocab, "a sampler");
    }
    sampler->sampling = sampling_of(options, vocab);
    sampler->vocab = vocab;
    sampler->state = options->seed;
    *out = sampler;
    return TCQ_OK;
}

void tcq_sampler_destroy(struct tcq_sampler *sampler)
{
    if (!sampler)
        return;
    tcq_free(sampler->ids);
    tcq_free(sampler->logits);
    tcq_free(sampler->weights);
    tcq_free(sampler);
}

uint32_t tcq_sampler_vocab(const struct tcq_sampler *sampler)
{
    return sampler->vocab;
}

/* splitmix64 (Steele, Lea, Flood 2014): every seed is as good as any other. */
static uint64_t random_after(uint64_t state)
{
    uint64_t z = state + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct tcq_sampling tcq_sampler_sampling(const struct tcq_sampler *sampler)
{
    struct tcq_sampling sampling = sampler->sampling;
    sampling.random = random_after(sampler->state);
    return sampling;
}

void tcq_sampler_advance(struct tcq_sampler *sampler)
{
    sampler->state += 0x9e3779b97f4a7c15u;
}

/* ---- a choice ----------------------------------------------------------------------- */

static void take_all(struct tcq_sampler *s, const float *logits)
{
    memcpy(s->logits, logits, s->vocab * sizeof *logits);
    for (uint32_t id = 0; id < s->vocab; id++)
        s->ids[id] = id;
    s->count = s->vocab;
}

static void weigh(struct tcq_sampler *s, float highest)
{
    const struct tcq_sampling sampling = s->sampling;
    for (uint32_t i = 0; i < s->count; i++)
        s->weights[i] = tcq_sampling_weight(&sampling, s->logits[i], highest);
}

static uint64_t mass_of(const struct tcq_sampler *s)
{
    uint64_t mass = 0;
    for (uint32_t i = 0; i < s->count; i++)
        mass += tcq_sampling_units(&s->sampling, s->weights[i]);
    return mass;
}

/* The bins of one digit of the keys whose higher digits are `prefix`. */
static void bins_fill(struct tcq_sampler *s, bool by_mass, int level, uint32_t prefix)
{
    const uint32_t shift = tcq_sampling_shift(level), bits = tcq_sampling_bits(level);
    struct bins *bins = &s->bins;
    memset(bins, 0, sizeof *bins);
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t digits = tcq_sampling_key(s->logits[i]) >> shift;
        if (level > 0 && digits >> bits != prefix)
            continue;
        digits &= (1u << bits) - 1;
        bins->count[digits]++;
        if (by_mass)
            bins->mass[digits] += tcq_sampling_units(&s->sampling, s->weights[i]);
    }
}

/* Keeps what has `least` or more as its digits down to a level, of those with just
 * that the first `equals`. */
static void shrink(struct tcq_sampler *s, int level, uint32_t least, uint64_t equals)
{
    const uint32_t shift = tcq_sampling_shift(level);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t digits = tcq_sampling_key(s->logits[i]) >> shift;
        if (digits < least || (digits == least && equals == 0))
            continue;
        equals -= digits == least;
        s->logits[kept] = s->logits[i];
        s->weights[kept] = s->weights[i];
        s->ids[kept++] = s->ids[i];
    }
    s->count = kept;
}

/* Keeps the fewest of the likeliest that are `target` tokens, or together weigh as much,
 * where there is as much.  Digit by digit: in which bin is the target reached? */
static void keep_likeliest(struct tcq_sampler *s, bool by_mass, uint64_t target)
{
    const struct bins *bins = &s->bins;
    const uint64_t *value = by_mass ? bins->mass : bins->count;
    uint32_t least = 0;
    for (int level = 0; level < 3; level++) {
        uint32_t bits = tcq_sampling_bits(level), bin = 1u << bits;
        bins_fill(s, by_mass, level, least);
        while (value[--bin] < target)
            target -= value[bin];
        least = least << bits | bin;
        uint64_t equals = bins->count[bin];
        if (level == 2) { /* of one logit: all weigh the same */
            uint64_t each = by_mass ? value[bin] / equals : 1;
            equals = (target + each - 1) / each;
        }
        shrink(s, level, least, equals);
    }
}

static uint32_t draw(struct tcq_sampler *s, const float *logits, float highest)
{
    const struct tcq_sampling sampling = tcq_sampler_sampling(s);
    take_all(s, logits);
    if (sampling.rules & TCQ_SAMPLING_TOP_K)
        keep_likeliest(s, false, sampling.top_k);
    weigh(s, highest);
    uint64_t mass = mass_of(s);
    if (sampling.rules & TCQ_SAMPLING_TOP_P) {
        keep_likeliest(s, true, tcq_sampling_target(&sampling, mass));
        mass = mass_of(s);
    }
    uint64_t left = tcq_sampling_draw(&sampling, mass), weight;
    uint32_t i = 0; /* all together weigh more than the draw */
    while (left >= (weight = tcq_sampling_units(&sampling, s->weights[i]))) {
        left -= weight;
        i++;
    }
    return s->ids[i];
}

enum tcq_status tcq_sampler_next(struct tcq_sampler *sampler, const float *logits, uint32_t *token,
                                 struct tcq_error *error)
{
    if (!sampler || !logits || !token)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "sampler: a null pointer");
    uint32_t best = 0;
    float highest = -INFINITY;
    for (uint32_t id = 0; id < sampler->vocab; id++) {
        if (logits[id] <= highest)
            continue;
        if (isnan(logits[id]))
            return tcq_error_set(error, TCQ_ERROR_VALUE, "the logit of token %u is not a number",
                                 id);
        best = id;
        highest = logits[id];
    }
    bool drawn = sampler->sampling.temperature > 0 && isfinite(highest);
    *token = drawn ? draw(sampler, logits, highest) : best;
    tcq_sampler_advance(sampler);
    return TCQ_OK;
}
