/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Viterbi solver in plain C: the definition that every other form must
 * reproduce.  It keeps one sum a state and remembers one choice a group and
 * position, and does nothing to be fast except computing emissions once a
 * value, of which there are fewer than states.
 */
#include <math.h>
#include <string.h>

#include "encode/viterbi.h"

enum { ANY_GROUP = -1 };

/* The parts of one workspace. */
struct work {
    float *sums;      /* [2^L], g of the position before */
    float *best;      /* [2^(L-k)], greatest g of a group's predecessors */
    float *rotated;   /* [T] */
    uint8_t *choices; /* [T][2^(L-k)], the predecessor m of a group's states */
};

static size_t rounded(size_t nbytes)
{
    return (nbytes + 63) & ~(size_t)63;
}

static size_t carve(struct work *w, void *memory, uint32_t k, uint32_t L, uint32_t T)
{
    char *base = memory;
    size_t states = (size_t)1 << L, groups = states >> k;
    size_t best = rounded(states * sizeof(float));
    size_t rotated = best + rounded(groups * sizeof(float));
    size_t choices = rotated + rounded(T * sizeof(float));
    if (w)
        *w = (struct work){(float *)base, (float *)(base + best), (float *)(base + rotated),
                           (uint8_t *)(base + choices)};
    return choices + rounded(T * groups);
}

static size_t work_nbytes(uint32_t k, uint32_t L, uint32_t T)
{
    return carve(NULL, NULL, k, L, T);
}

/* e(s) = fma(2x, value(s), -(value(s)^2)) for every value that a state may emit. */
static void emissions_fill(float *emissions, const float *levels, float x)
{
    for (int i = 0; i < TCQ_TRELLIS_LEVELS; i++)
        emissions[i] = fmaf(2.0f * x, levels[i], -(levels[i] * levels[i]));
}

/* The greatest g among the predecessors of each group; of equals the last.
 * In two rounds, so that neither needs a branch that cannot be foreseen. */
static void predecessors_choose(float *restrict best, uint8_t *restrict choices,
                                const float *restrict sums, uint32_t groups, uint32_t count)
{
    memcpy(best, sums, groups * sizeof *best);
    for (uint32_t m = 1; m < count; m++)
        for (uint32_t j = 0; j < groups; j++) {
            float sum = sums[(size_t)m * groups + j];
            best[j] = best[j] > sum ? best[j] : sum;
        }
    memset(choices, 0, groups);
    for (uint32_t m = 1; m < count; m++)
        for (uint32_t j = 0; j < groups; j++) {
            uint32_t equal = sums[(size_t)m * groups + j] == best[j];
            uint32_t choice = m & (0u - equal);
            choices[j] = (uint8_t)(choices[j] > choice ? choices[j] : choice);
        }
}

/* The best path through x that starts in group `first` and ends in group
 * `first` (or anywhere to anywhere). */
static void solve_pass(uint16_t *states, const float *x, uint32_t T, int32_t first,
                       const struct tcq_trellis *trellis, const struct work *w)
{
    const uint32_t k = trellis->k, count = 1u << k, groups = 1u << (trellis->L - k);
    float emissions[TCQ_TRELLIS_LEVELS];
    for (uint32_t t = 0; t < T; t++) {
        uint8_t *choices = w->choices + (size_t)t * groups;
        if (t == 0)
            for (uint32_t j = 0; j < groups; j++)
                w->best[j] =
                    first == ANY_GROUP || j == (uint32_t)first ? 0.0f : TCQ_VITERBI_FORBIDDEN;
        else
            predecessors_choose(w->best, choices, w->sums, groups, count);
        emissions_fill(emissions, trellis->levels, x[t]);
        for (uint32_t n = 0; n < count * groups; n++)
            w->sums[n] = w->best[n >> k] + emissions[trellis->level[n]];
    }
    uint32_t last = first == ANY_GROUP ? 0 : (uint32_t)first;
    for (uint32_t n = last; n < count * groups; n += first == ANY_GROUP ? 1 : groups)
        if (w->sums[n] >= w->sums[last])
            last = n;
    for (uint32_t t = T; t-- > 0;) {
        states[t] = (uint16_t)last;
        uint32_t group = last >> k;
        if (t > 0)
            last = group + w->choices[(size_t)t * groups + group] * groups;
    }
}

static uint32_t blocks_at_once(uint32_t L)
{
    (void)L;
    return 1;
}

static void solve(uint16_t *states, const float *x, uint32_t T, uint32_t blocks,
                  const struct tcq_trellis *trellis, void *memory)
{
    struct work w;
    carve(&w, memory, trellis->k, trellis->L, T);
    uint32_t half = T / 2;
    for (uint32_t b = 0; b < blocks; b++, states += T, x += T) {
        memcpy(w.rotated, x + half, (T - half) * sizeof *x);
        memcpy(w.rotated + T - half, x, half * sizeof *x);
        solve_pass(states, w.rotated, T, ANY_GROUP, trellis, &w);
        solve_pass(states, x, T, states[T - half] >> trellis->k, trellis, &w);
    }
}

const struct tcq_viterbi tcq_viterbi_scalar = {
    .isa = "scalar",
    .blocks = blocks_at_once,
    .work_nbytes = work_nbytes,
    .solve = solve,
};
