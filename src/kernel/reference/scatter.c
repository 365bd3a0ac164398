/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference scatter: axis 0, every stored row adds its weights times its x to a
 * block of T outputs.  The forms differ in how a group of lanes walks the packed
 * words; what is added to what, and in which order, they share.
 */
#include <string.h>

#include "format/geometry.h"
#include "kernel/reference/arithmetic.h"
#include "kernel/reference/reference.h"

/* The states of one block by one of the forms: states[t]. */

/* Generic: one packed word a lane.  A lane owns the positions whose symbols
 * start in its word; the bits beyond come from the next word, round the end. */
static void states_generic(uint16_t *states, const uint32_t *words, const struct tcq_geometry *g)
{
    uint32_t count = g->T * g->k / 32, mask = (1u << g->L) - 1;
    for (uint32_t lane = 0; lane < count; lane++) {
        uint64_t next = words[lane + 1 == count ? 0 : lane + 1];
        uint64_t window = next << 32 | words[lane];
        uint32_t begin = 32 * lane, first = (begin + g->k - 1) / g->k * g->k;
        for (uint32_t bit = first; bit < begin + 32; bit += g->k)
            states[g->T - 1 - bit / g->k] = (uint16_t)((uint32_t)(window >> (bit - begin)) & mask);
    }
}

/* Balanced (k = 3, T = 256): 24 words hardly divide among 32 lanes, 256 positions
 * do: eight a lane, whose 21 + L <= 33 bits lie in two words. */
static void states_balanced(uint16_t *states, const uint32_t *words, const struct tcq_geometry *g)
{
    enum { LANES = TCQ_REFERENCE_LANES, POSITIONS = 8, K = 3, WORDS = 24 };
    uint32_t mask = (1u << g->L) - 1;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t bit = lane * POSITIONS * K, word = bit >> 5;
        uint64_t next = words[word + 1 == WORDS ? 0 : word + 1];
        uint64_t window = (next << 32 | words[word]) >> (bit & 31);
        for (uint32_t i = 0; i < POSITIONS; i++)
            states[g->T - 1 - lane * POSITIONS - i] = (uint16_t)((uint32_t)(window >> i * K) & mask);
    }
}

static void decode_block(float *weights, const struct tcq_tensor *tensor, uint64_t row,
                         uint64_t block, enum tcq_scatter_form form, const int16_t *table)
{
    const struct tcq_geometry *g = &tensor->geometry;
    const uint32_t *words = tensor->words + tcq_geometry_block_offset(g, row, block);
    float scale = tcq_f16_to_f32(tensor->scales[row]);
    uint16_t states[TCQ_T_MAX];
    if (form == TCQ_SCATTER_GENERIC)
        states_generic(states, words, g);
    else
        states_balanced(states, words, g);
    for (uint32_t t = 0; t < g->T; t++)
        weights[t] = tcq_weight_f32(
            form == TCQ_SCATTER_BALANCED_TABLE ? table[states[t]] : tcq_code_y(states[t]), scale);
}

/* Outputs of one block for `count` <= 4 vectors from `first` on. */
static void scatter_block(const struct tcq_reference_product *p, uint32_t splits,
                          enum tcq_scatter_form form, const int16_t *table, uint64_t block,
                          uint32_t first, uint32_t count)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    float total[TCQ_REFERENCE_M_MAX][TCQ_T_MAX] = {{0}};
    uint64_t rows_per_split = (g->rows + splits - 1) / splits;
    for (uint64_t begin = 0; begin < g->rows; begin += rows_per_split) {
        uint64_t end = g->rows - begin < rows_per_split ? g->rows : begin + rows_per_split;
        float acc[TCQ_REFERENCE_M_MAX][TCQ_T_MAX] = {{0}};
        for (uint64_t row = begin; row < end; row++) {
            float weights[TCQ_T_MAX];
            decode_block(weights, p->tensor, row, block, form, table);
            for (uint32_t i = 0; i < count; i++) {
                float x = p->x[(first + i) * p->x_stride + row];
                for (uint32_t t = 0; t < g->T; t++)
                    acc[i][t] = fmaf(weights[t], x, acc[i][t]);
            }
        }
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t t = 0; t < g->T; t++)
                total[i][t] += acc[i][t];
    }
    for (uint32_t i = 0; i < count; i++)
        memcpy(p->y + (first + i) * p->y_stride + block * g->T, total[i], g->T * sizeof(float));
}

void tcq_reference_scatter(const struct tcq_reference_product *p, uint32_t splits,
                           enum tcq_scatter_form form, const int16_t *table, uint64_t block_begin,
                           uint64_t block_end)
{
    for (uint64_t block = block_begin; block < block_end; block++)
        for (uint32_t first = 0; first < p->m; first += TCQ_REFERENCE_M_MAX) {
            uint32_t left = p->m - first;
            scatter_block(p, splits, form, table, block, first,
                          left < TCQ_REFERENCE_M_MAX ? left : TCQ_REFERENCE_M_MAX);
        }
}
