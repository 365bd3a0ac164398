/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of sampling, one text for the CPU and for CUDA, so that both choose
 * the same token from the same logits.
 *
 * Tokens are ranked by a key of 32 bits that orders as their logits do, and of equals
 * the smaller id comes first.  Their weights are integers, multiples of one unit, whose
 * sums do not depend on the order of additions.  top_k or top_p keeps every key above
 * one, and the first few ids of that one.  The token is drawn from what is kept in the
 * order of the ids.
 */
#ifndef TCQ_MODEL_SAMPLING_H
#define TCQ_MODEL_SAMPLING_H

#include <stdint.h>

#include "base/half.h"

/* One choice. */
struct tcq_sampling {
    float temperature; /* 0: the likeliest, and nothing else counts */
    float top_p, min_p;
    float unit;        /* 1 in units of a weight, a power of two */
    uint32_t top_k;
    uint32_t rules;    /* TCQ_SAMPLING_... */
    uint64_t random;   /* uniform in 64 bits */
};
enum { TCQ_SAMPLING_TOP_K = 1, TCQ_SAMPLING_TOP_P = 2 }; /* rules that cut something off */

/* Keys are looked through by three digits, the highest first. */
enum { TCQ_SAMPLING_BINS = 2048 };
TCQ_HOST_DEVICE static inline uint32_t tcq_sampling_shift(int level)
{
    return level == 0 ? 21 : level == 1 ? 10 : 0;
}
TCQ_HOST_DEVICE static inline uint32_t tcq_sampling_bits(int level)
{
    return level == 2 ? 10 : 11;
}

/* Any number but NaN; -0 is 0.  No number has the key 0. */
TCQ_HOST_DEVICE static inline uint32_t tcq_sampling_key(float logit)
{
    uint32_t bits = tcq_float_bits(logit + 0.0f);
    return bits ^ ((0u - (bits >> 31)) | 0x80000000u);
}
TCQ_HOST_DEVICE static inline float tcq_sampling_logit(uint32_t key)
{
    return tcq_float_from_bits(key >> 31 ? key ^ 0x80000000u : ~key);
}

/* Sums of `vocab` weights stay below 2^64, and of 1024 halves of weights below 2^32. */
static inline float tcq_sampling_unit(uint32_t vocab)
{
    int bits = 43;
    while (vocab > (UINT64_MAX >> 1) >> bits)
        bits--;
    return tcq_float_from_bits((uint32_t)(127 + bits) << 23);
}

/*
 * exp((logit - highest) / temperature), or 0 where that is under 2^-43 or min_p.
 * 2^-x = 2^-n 2^-f, n = floor(x); 2^-f = 1 + f c(f), c the Chebyshev fit of degree 5 on
 * 0..1, with an error of 1.1e-8.  x is four roundings from exact, and the weight so
 * within 1e-5 of itself.  No fused multiply-add: a call each where a CPU's baseline
 * has none.
 */
TCQ_HOST_DEVICE static inline float tcq_sampling_weight(const struct tcq_sampling *s, float logit,
                                                        float highest)
{
    const float most = 43.0f;
    float x = (highest - logit) / s->temperature * 0x1.715476p+0f;
    float in = x < most ? x : most; /* NaN, of inf - inf, too */
    int n = (int)in;
    float f = in - (float)n;
    float c = 0x1.e2025cp-14f;
    c = c * f - 0x1.529848p-10f;
    c = c * f + 0x1.3a79c4p-7f;
    c = c * f - 0x1.c6a652p-5f;
    c = c * f + 0x1.ebfba8p-3f;
    c = c * f - 0x1.62e430p-1f;
    float weight = (1.0f + f * c) * tcq_float_from_bits((uint32_t)(127 - n) << 23);
    return x < most && weight >= s->min_p ? weight : 0.0f;
}

TCQ_HOST_DEVICE static inline uint64_t tcq_sampling_units(const struct tcq_sampling *s, float weight)
{
    return (uint64_t)(int64_t)(weight * s->unit);
}
TCQ_HOST_DEVICE static inline uint64_t tcq_sampling_mass(const struct tcq_sampling *s, float logit,
                                                         float highest)
{
    return tcq_sampling_units(s, tcq_sampling_weight(s, logit, highest));
}

/* What the likeliest must reach together: top_p of `total`, at least one unit. */
TCQ_HOST_DEVICE static inline uint64_t tcq_sampling_target(const struct tcq_sampling *s,
                                                           uint64_t total)
{
    uint64_t target = (uint64_t)((double)total * (double)s->top_p);
    return target ? target : 1;
}

/* Below `total`: the upper half of random * total. */
TCQ_HOST_DEVICE static inline uint64_t tcq_sampling_draw(const struct tcq_sampling *s,
                                                         uint64_t total)
{
    uint64_t a = s->random >> 32, b = s->random & 0xffffffffu;
    uint64_t c = total >> 32, d = total & 0xffffffffu;
    uint64_t middle = a * d + (b * d >> 32), other = b * c + (middle & 0xffffffffu);
    return a * c + (middle >> 32) + (other >> 32);
}

#endif
