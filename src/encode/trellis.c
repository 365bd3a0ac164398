/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of a trellis, in the order in which a solver reads them, and the
 * choice of a solver.
 */
#include "base/error.h"
#include "base/memory.h"
#include "code/code.h"
#include "encode/viterbi.h"

const struct tcq_viterbi *const tcq_viterbi_all[] = {
#if defined(__x86_64__)
    &tcq_viterbi_avx512,
    &tcq_viterbi_avx2,
#elif defined(__aarch64__)
    &tcq_viterbi_neon,
#endif
    &tcq_viterbi_scalar,
    NULL,
};

const struct tcq_viterbi *tcq_viterbi_select(uint32_t cpu_flags)
{
    const struct tcq_viterbi *const *solver = tcq_viterbi_all;
    while ((*solver)->cpu_flags & ~cpu_flags)
        solver++;
    return *solver;
}

/* The state of one lane of the vector that starts at state `base`.  Where a
 * vector spans several groups (k < lanes_log2), the low bits of the lane say
 * which group and the high bits which of its states, so that the groups'
 * metrics reach all lanes by one broadcasting load of the few neighbours. */
static uint32_t lane_state(uint32_t base, uint32_t lane, uint32_t k, uint32_t lanes_log2)
{
    if (k >= lanes_log2)
        return base + lane;
    uint32_t group_bits = lanes_log2 - k, group = lane & ((1u << group_bits) - 1);
    return base + (group << k) + (lane >> group_bits);
}

static void forward_fill(float *table, uint32_t k, uint32_t L, uint32_t lanes_log2)
{
    uint32_t lanes = 1u << lanes_log2, groups = 1u << (L - k);
    uint32_t width = groups < lanes ? lanes : groups; /* narrow: in the order of the states */
    for (uint32_t j = 0; j < width; j += lanes)
        for (uint32_t base = j; base < 1u << L; base += width, table += 2 * lanes)
            for (uint32_t lane = 0; lane < lanes; lane++) {
                float value = tcq_code_precise(lane_state(base, lane, k, lanes_log2));
                table[lane] = value;
                table[lanes + lane] = -(value * value);
            }
}

static void backward_fill(float *table, uint32_t k, uint32_t L)
{
    uint32_t count = 1u << k, groups = 1u << (L - k);
    for (uint32_t j = 0; j < groups; j++, table += 2 * count)
        for (uint32_t m = 0; m < count; m++) {
            float value = tcq_code_precise(j + m * groups);
            table[m] = value;
            table[count + m] = -(value * value);
        }
}

static enum tcq_status levels_init(struct tcq_trellis *trellis, size_t *nbytes,
                                   struct tcq_error *error)
{
    size_t states = (size_t)1 << trellis->L, held = TCQ_TRELLIS_LEVELS * sizeof *trellis->levels;
    held += states * sizeof *trellis->level;
    trellis->levels = tcq_alloc(TCQ_TRELLIS_LEVELS, sizeof *trellis->levels);
    trellis->level = tcq_alloc(states, sizeof *trellis->level);
    if (!trellis->levels || !trellis->level) {
        tcq_trellis_free(trellis);
        return tcq_error_memory(error, held, "a trellis");
    }
    for (int32_t i = 0; i < TCQ_TRELLIS_LEVELS; i++)
        trellis->levels[i] = (float)((double)(i - TCQ_CODE_OFFSET) / TCQ_CODE_DIVISOR);
    for (uint32_t s = 0; s < states; s++)
        trellis->level[s] = (uint16_t)(tcq_code_y(s) + TCQ_CODE_OFFSET);
    *nbytes += held;
    return TCQ_OK;
}

enum tcq_status tcq_trellis_init(struct tcq_trellis *trellis, const struct tcq_viterbi *solver,
                                 uint32_t k, uint32_t L, size_t *nbytes, struct tcq_error *error)
{
    size_t states = (size_t)1 << L, pair = 2 * sizeof(float);
    *trellis = (struct tcq_trellis){.k = k, .L = L};
    if (solver->lanes_log2 == 0)
        return levels_init(trellis, nbytes, error);
    trellis->forward = tcq_alloc(states, pair);
    trellis->backward = tcq_alloc(states, pair);
    if (!trellis->forward || !trellis->backward) {
        tcq_trellis_free(trellis);
        return tcq_error_memory(error, 2 * states * pair, "a trellis");
    }
    forward_fill(trellis->forward, k, L, solver->lanes_log2);
    backward_fill(trellis->backward, k, L);
    *nbytes += 2 * states * pair;
    return TCQ_OK;
}

void tcq_trellis_free(struct tcq_trellis *trellis)
{
    tcq_free(trellis->levels);
    tcq_free(trellis->level);
    tcq_free(trellis->forward);
    tcq_free(trellis->backward);
    *trellis = (struct tcq_trellis){0};
}
