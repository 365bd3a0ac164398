/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Viterbi solver over vectors of float32: the text that every instruction
 * set shares.  The including file defines, before it includes this one,
 *   VF_LANES_LOG2             and the type vf of 2^VF_LANES_LOG2 float32
 *   vf_load, vf_store         from and to memory, not necessarily aligned
 *   vf_set1, vf_add, vf_max
 *   vf_fma(a, b, c)           a*b + c, rounded once
 *   vf_spread(k, p)           the metrics of a vector of states, see below
 *   vf_unspread(k, v)         lanes back in the order of the states
 *   VF_BLOCKS_WIDE            blocks at once where L > 12: 2 or 4
 *   VF_CHOOSE_K_MIN           and vf_choose, the backward choice from that k on
 * and, after it, a struct tcq_viterbi of blocks_at_once, work_nbytes and solve.
 *
 * Forward, nothing is kept but the metrics of the groups at each boundary: one
 * float a group, a fraction 2^-k of the states, no choices.  Backward, the
 * choice of the few groups on the path is made again from those metrics with
 * the same operations, so that it is the same choice.  A step is then a
 * multiply-add, an addition and a maximum a vector of states, and no more.
 *
 * The lanes of a vector are 2^VF_LANES_LOG2 consecutive states.  If k is at
 * least VF_LANES_LOG2 they are of one group, and its metric is broadcast.
 * Otherwise they are of 2^(VF_LANES_LOG2-k) neighbouring groups, ordered so
 * that the low bits of the lane number say which: loading those few metrics
 * and repeating them fills the vector, and a load does that for nothing.  The
 * tables are in that order; only the maximum of 2^k vectors is permuted back.
 */
#ifndef TCQ_ENCODE_VITERBI_VECTOR_H
#define TCQ_ENCODE_VITERBI_VECTOR_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "encode/viterbi.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NEVER_INLINE static __attribute__((noinline))

enum {
    LANES = 1 << VF_LANES_LOG2,
    COUNT_MAX = 1 << TCQ_K_MAX,
    /* Metrics are stored at every 2^interval_log2-th boundary, at most the 4th. */
    INTERVAL_LOG2_MAX = 2,
    /* Stored metrics should leave room for tables and a second block in an L2
     * cache of 1 MiB and more. */
    STORED_NBYTES_GOAL = 512 * 1024
};

/* Sizes that follow from k, L and T. */
struct shape {
    uint32_t k, L, T;
    uint32_t groups;
    uint32_t interval_log2;
    size_t row; /* floats from one boundary's metrics to the next */
};

/* One block being solved. */
struct track {
    float *rows;     /* metrics at the boundaries that are stored */
    float *spare;    /* [2], the latest metrics at even and odd boundaries that are not */
    float *twice;    /* [2*T], 2x of the block, then once more */
    const float *x2; /* 2x of position 0 of this pass */
    uint32_t stored_from;
};

/* ---- memory ---------------------------------------------------------------- */

/* Floats of whole cache lines. */
static size_t rounded(size_t floats)
{
    return (floats + 15) & ~(size_t)15;
}

static struct shape shape_of(uint32_t k, uint32_t L, uint32_t T)
{
    struct shape s = {.k = k, .L = L, .T = T, .groups = 1u << (L - k)};
    s.row = rounded(s.groups);
    /* Choosing again across n boundaries that are not stored costs 2^(k*n)
     * emissions: worth it for small k only. */
    while (s.interval_log2 < INTERVAL_LOG2_MAX && k << (s.interval_log2 + 1) <= 6 &&
           (size_t)T * s.groups * sizeof(float) >> s.interval_log2 > STORED_NBYTES_GOAL)
        s.interval_log2++;
    return s;
}

static size_t stored_floats(const struct shape *s)
{
    return ((s->T >> s->interval_log2) + 1) * s->row;
}

static size_t track_floats(const struct shape *s)
{
    return stored_floats(s) + 2 * s->row + rounded((size_t)2 * s->T);
}

/* The tables of a wide trellis (128 KiB at L = 14) come from L2, which cannot
 * feed one or two blocks; the metrics of four narrow ones would not fit there. */
static uint32_t blocks_at_once(uint32_t L)
{
    return L > 12 ? VF_BLOCKS_WIDE : 2;
}

static size_t work_nbytes(uint32_t k, uint32_t L, uint32_t T)
{
    struct shape s = shape_of(k, L, T);
    return blocks_at_once(L) * track_floats(&s) * sizeof(float);
}

static void tracks_layout(struct track *tracks, float *memory, const struct shape *s)
{
    for (uint32_t b = 0; b < blocks_at_once(s->L); b++, memory += track_floats(s)) {
        tracks[b].rows = memory;
        tracks[b].spare = memory + stored_floats(s);
        tracks[b].twice = tracks[b].spare + 2 * s->row;
    }
}

static bool is_stored(const struct shape *s, const struct track *track, uint32_t boundary)
{
    return boundary >= track->stored_from && !(boundary & ((1u << s->interval_log2) - 1));
}

static float *metrics_at(const struct shape *s, const struct track *track, uint32_t boundary)
{
    if (is_stored(s, track, boundary))
        return track->rows + (boundary >> s->interval_log2) * s->row;
    return track->spare + (boundary & 1) * s->row;
}

/* ---- forward --------------------------------------------------------------- */

/* The sums of one vector of states: what their group brings, and what they emit. */
ALWAYS_INLINE vf sums(uint32_t k, const float *metrics, vf x2, vf value, vf minus_square)
{
    return vf_add(vf_spread(k, metrics), vf_fma(x2, value, minus_square));
}

/* One block's part in a step. */
struct stride {
    const float *from;
    float *to;
    vf x2, best;
};

/* The same for 1, 2 or 4 blocks, without a loop that a compiler might leave. */
#define EACH_BLOCK(blocks, DO) \
    do {                       \
        DO(0);                 \
        if ((blocks) > 1)      \
            DO(1);             \
        if ((blocks) > 2) {    \
            DO(2);             \
            DO(3);             \
        }                      \
    } while (0)

/* From one boundary's metrics to the next's.  The tables are loaded once for
 * all blocks. */
ALWAYS_INLINE void step(const uint32_t k, const uint32_t blocks, uint32_t L, const float *table,
                        struct stride *b)
{
    const uint32_t count = 1u << k, groups = 1u << (L - k);
    for (uint32_t j = 0; j < groups; j += LANES) {
#pragma GCC unroll 8
        for (uint32_t m = 0; m < count; m += 2, table += 4 * LANES) {
            vf v0 = vf_load(table), n0 = vf_load(table + LANES);
            vf v1 = vf_load(table + 2 * LANES), n1 = vf_load(table + 3 * LANES);
            uint32_t q0 = (j + m * groups) >> k, q1 = (j + (m + 1) * groups) >> k;
            /* In pairs: the chain of maxima is half as long. */
#define TAKE_BEST(i)                                                \
    do {                                                            \
        vf pair = vf_max(sums(k, b[i].from + q0, b[i].x2, v0, n0),  \
                         sums(k, b[i].from + q1, b[i].x2, v1, n1)); \
        b[i].best = m ? vf_max(b[i].best, pair) : pair;             \
    } while (0)
            EACH_BLOCK(blocks, TAKE_BEST);
        }
#define STORE_BEST(i) vf_store(b[i].to + j, vf_unspread(k, b[i].best))
        EACH_BLOCK(blocks, STORE_BEST);
    }
}

/* Fewer groups than lanes: vectors hold whole sets of predecessors, and lanes
 * of the same group are joined at the end. */
ALWAYS_INLINE void step_narrow(const uint32_t k, uint32_t L, const float *table,
                               const struct stride *b)
{
    const uint32_t groups = 1u << (L - k);
    float lanes[LANES];
    vf best = vf_set1(-INFINITY);
    for (uint32_t state = 0; state < 1u << L; state += LANES, table += 2 * LANES)
        best = vf_max(
            best, sums(k, b->from + (state >> k), b->x2, vf_load(table), vf_load(table + LANES)));
    vf_store(lanes, best);
    for (uint32_t j = 0; j < groups; j++) {
        float most = lanes[j];
        for (uint32_t lane = j + groups; lane < LANES; lane += groups)
            most = lanes[lane] > most ? lanes[lane] : most;
        b->to[j] = most;
    }
}

ALWAYS_INLINE struct stride stride_at(const struct shape *s, const struct track *track, uint32_t i)
{
    vf x2 = vf_set1(track->x2[i]); /* best: any value, it is replaced before it is used */
    return (struct stride){metrics_at(s, track, i), metrics_at(s, track, i + 1), x2, x2};
}

/* A whole pass over 1, 2 or 4 blocks. */
ALWAYS_INLINE void forward(const uint32_t k, const uint32_t blocks, const struct shape *s,
                           const float *table, const struct track *tracks)
{
    for (uint32_t i = 0; i < s->T; i++) {
        struct stride b[TCQ_VITERBI_BLOCKS_MAX];
#define STRIDE_AT(n) b[n] = stride_at(s, &tracks[n], i)
        EACH_BLOCK(blocks, STRIDE_AT);
        if (k >= VF_LANES_LOG2 && s->groups < LANES) {
#define STEP_NARROW(n) step_narrow(k, s->L, table, &b[n])
            EACH_BLOCK(blocks, STEP_NARROW);
        } else {
            step(k, blocks, s->L, table, b);
        }
    }
}

/* ---- backward -------------------------------------------------------------- */

/* The greatest sum that leads to group j, and the predecessor m that has it;
 * the metric of m's group is metrics[m * step].  Without branches: which
 * predecessor wins cannot be foreseen. */
ALWAYS_INLINE float choose(const uint32_t k, const float *table, const float *metrics, size_t step,
                           float x2, uint32_t j, uint32_t *choice)
{
    const uint32_t count = 1u << k;
    const float *values = table + (size_t)j * 2 * count, *minus_squares = values + count;
    if (k >= VF_CHOOSE_K_MIN)
        return vf_choose(k, values, minus_squares, metrics, step, x2, choice);
    float sum[COUNT_MAX], best = -INFINITY;
    for (uint32_t m = 0; m < count; m++) {
        sum[m] = metrics[m * step] + fmaf(x2, values[m], minus_squares[m]);
        best = sum[m] > best ? sum[m] : best;
    }
    uint64_t equal = 0;
    for (uint32_t m = 0; m < count; m++)
        equal |= (uint64_t)(sum[m] == best) << m;
    *choice = 63 - (uint32_t)__builtin_clzll(equal);
    return best;
}

static float metric(const struct shape *s, const float *table, const struct track *track,
                    uint32_t boundary, uint32_t j);

/* The metric of group j at `boundary` from those at the boundary before, and
 * the state between the two. */
ALWAYS_INLINE float look_back(const uint32_t k, const struct shape *s, const float *table,
                              const struct track *track, uint32_t boundary, uint32_t j,
                              uint32_t *state)
{
    const uint32_t count = 1u << k, groups = s->groups, before = boundary - 1;
    float few[COUNT_MAX];
    const float *metrics = few;
    size_t step = 1;
    uint32_t m;
    if (is_stored(s, track, before) && groups >= count) { /* (j + m*groups) >> k is linear in m */
        metrics = metrics_at(s, track, before) + (j >> k);
        step = groups >> k;
    } else {
        for (m = 0; m < count; m++)
            few[m] = metric(s, table, track, before, (j + m * groups) >> k);
    }
    float best = choose(k, table, metrics, step, track->x2[before], j, &m);
    *state = j + m * groups;
    return best;
}

/* The metric of group j at a boundary, made again where it was not stored. */
static float metric(const struct shape *s, const float *table, const struct track *track,
                    uint32_t boundary, uint32_t j)
{
    if (is_stored(s, track, boundary))
        return metrics_at(s, track, boundary)[j];
    uint32_t unused;
    return look_back(s->k, s, table, track, boundary, j, &unused);
}

/* Follows the paths that are in `groups` at boundary T back to boundary `end`;
 * groups becomes where they are there.  states (may be NULL) is [blocks][T]. */
ALWAYS_INLINE void backward(const uint32_t k, const struct shape *s, const float *table,
                            const struct track *tracks, uint32_t blocks, uint32_t end,
                            uint32_t *groups, uint16_t *states)
{
    for (uint32_t i = s->T; i > end; i--)
        for (uint32_t b = 0; b < blocks; b++) {
            uint32_t state;
            look_back(k, s, table, &tracks[b], i, groups[b], &state);
            groups[b] = state >> k;
            if (states)
                states[b * s->T + i - 1] = (uint16_t)state;
        }
}

/* The group at boundary T of the best path of all: the one that leads back to
 * the largest state. */
ALWAYS_INLINE uint32_t best_group(const uint32_t k, const struct shape *s, const float *table,
                                  const struct track *track)
{
    const float *row = metrics_at(s, track, s->T);
    float most = row[0];
    for (uint32_t j = 1; j < s->groups; j++)
        most = row[j] > most ? row[j] : most;
    uint32_t largest = 0, best = 0;
    for (uint32_t j = 0; j < s->groups; j++) {
        if (row[j] < most)
            continue;
        uint32_t state;
        look_back(k, s, table, track, s->T, j, &state);
        if (state >= largest) {
            largest = state;
            best = j;
        }
    }
    return best;
}

/* ---- one k ------------------------------------------------------------------ */

/* The functions above for one k, so that their loops have fixed lengths. */
struct functions {
    void (*forward)(const struct shape *, const float *, const struct track *, uint32_t blocks);
    void (*backward)(const struct shape *, const float *, const struct track *, uint32_t blocks,
                     uint32_t end, uint32_t *groups, uint16_t *states);
    uint32_t (*best_group)(const struct shape *, const float *, const struct track *);
};

#define FUNCTIONS_OF(K)                                                                       \
    NEVER_INLINE void forward_##K(const struct shape *s, const float *table,                  \
                                  const struct track *tracks, uint32_t blocks)                \
    {                                                                                         \
        if (blocks == 4)                                                                      \
            forward(K, 4, s, table, tracks);                                                  \
        else if (blocks >= 2)                                                                 \
            forward(K, 2, s, table, tracks);                                                  \
        if (blocks & 1)                                                                       \
            forward(K, 1, s, table, tracks + (blocks - 1));                                   \
    }                                                                                         \
    NEVER_INLINE void backward_##K(const struct shape *s, const float *table,                 \
                                   const struct track *tracks, uint32_t blocks, uint32_t end, \
                                   uint32_t *groups, uint16_t *states)                        \
    {                                                                                         \
        backward(K, s, table, tracks, blocks, end, groups, states);                           \
    }                                                                                         \
    NEVER_INLINE uint32_t best_group_##K(const struct shape *s, const float *table,           \
                                         const struct track *track)                           \
    {                                                                                         \
        return best_group(K, s, table, track);                                                \
    }

FUNCTIONS_OF(1)
FUNCTIONS_OF(2)
FUNCTIONS_OF(3)
FUNCTIONS_OF(4)
FUNCTIONS_OF(5)
FUNCTIONS_OF(6)

#define FUNCTIONS_ENTRY(K) [K] = {forward_##K, backward_##K, best_group_##K}

static const struct functions functions_of[TCQ_K_MAX + 1] = {
    FUNCTIONS_ENTRY(1), FUNCTIONS_ENTRY(2), FUNCTIONS_ENTRY(3),
    FUNCTIONS_ENTRY(4), FUNCTIONS_ENTRY(5), FUNCTIONS_ENTRY(6),
};

/* ---- two passes ------------------------------------------------------------- */

/* Begins a pass whose position 0 is position `shift` of the block and whose
 * paths start in `group` (or anywhere, if that is s->groups). */
static void pass_begin(struct track *track, const struct shape *s, uint32_t shift, uint32_t group,
                       uint32_t stored_from)
{
    track->x2 = track->twice + shift;
    track->stored_from = stored_from;
    float *metrics = metrics_at(s, track, 0);
    for (uint32_t j = 0; j < s->groups; j++)
        metrics[j] = group == s->groups || j == group ? 0.0f : TCQ_VITERBI_FORBIDDEN;
}

/* The first pass: in which group is the best free path through the block,
 * rotated by T/2, at the block's own beginning? */
static void find_groups(uint32_t *groups, struct track *tracks, const struct shape *s,
                        uint32_t blocks, const struct tcq_trellis *trellis)
{
    const struct functions *f = &functions_of[s->k];
    uint32_t half = s->T / 2, beginning = s->T - half;
    uint32_t stored_from = beginning >> s->interval_log2 << s->interval_log2;
    for (uint32_t b = 0; b < blocks; b++)
        pass_begin(&tracks[b], s, half, s->groups, stored_from);
    f->forward(s, trellis->forward, tracks, blocks);
    for (uint32_t b = 0; b < blocks; b++)
        groups[b] = f->best_group(s, trellis->backward, &tracks[b]);
    f->backward(s, trellis->backward, tracks, blocks, beginning, groups, NULL);
}

static void solve(uint16_t *states, const float *x, uint32_t T, uint32_t blocks,
                  const struct tcq_trellis *trellis, void *memory)
{
    const struct shape s = shape_of(trellis->k, trellis->L, T);
    const struct functions *f = &functions_of[s.k];
    uint32_t groups[TCQ_VITERBI_BLOCKS_MAX];
    struct track tracks[TCQ_VITERBI_BLOCKS_MAX];
    tracks_layout(tracks, memory, &s);
    for (uint32_t b = 0; b < blocks; b++)
        for (uint32_t t = 0; t < T; t++)
            tracks[b].twice[t] = tracks[b].twice[t + T] = 2.0f * x[b * T + t];
    find_groups(groups, tracks, &s, blocks, trellis);
    for (uint32_t b = 0; b < blocks; b++)
        pass_begin(&tracks[b], &s, 0, groups[b], 0);
    f->forward(&s, trellis->forward, tracks, blocks);
    f->backward(&s, trellis->backward, tracks, blocks, 0, groups, states);
}

#endif
