/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing the states of a block into words and back.
 */
#include "format/block.h"

#include <string.h>

#include "format/geometry.h"

static enum tcq_status check_arguments(const uint32_t *words, const uint16_t *states, uint32_t k,
                                       uint32_t L, uint32_t T)
{
    if (!words || !states)
        return TCQ_ERROR_ARGUMENT;
    return tcq_geometry_check_code(k, L, T, NULL);
}

/* A state keeps all but its oldest k bits in the next one; after the last
 * position the first follows. */
static bool is_closed_path(const uint16_t *states, uint32_t k, uint32_t L, uint32_t T)
{
    uint32_t kept = L - k;
    for (uint32_t t = 0; t < T; t++) {
        uint32_t state = states[t], next = states[t + 1 == T ? 0 : t + 1];
        if (state >> L || next >> k != (state & ((1u << kept) - 1)))
            return false;
    }
    return true;
}

enum tcq_status tcq_block_pack(uint32_t *words, const uint16_t *states, uint32_t k, uint32_t L,
                               uint32_t T)
{
    enum tcq_status status = check_arguments(words, states, k, L, T);
    if (status != TCQ_OK)
        return status;
    if (!is_closed_path(states, k, L, T))
        return TCQ_ERROR_VALUE;
    memset(words, 0, T * k / 8);
    for (uint32_t t = 0; t < T; t++) {
        uint32_t bit = (T - 1 - t) * k, word = bit >> 5, offset = bit & 31;
        uint64_t symbol = (uint64_t)(states[t] & ((1u << k) - 1)) << offset;
        words[word] |= (uint32_t)symbol;
        if (symbol >> 32)
            words[word + 1] |= (uint32_t)(symbol >> 32);
    }
    return TCQ_OK;
}

enum tcq_status tcq_block_unpack(uint16_t *states, const uint32_t *words, uint32_t k, uint32_t L,
                                 uint32_t T)
{
    enum tcq_status status = check_arguments(words, states, k, L, T);
    if (status != TCQ_OK)
        return status;
    for (uint32_t t = 0; t < T; t++)
        states[t] = (uint16_t)tcq_block_window(words, k, L, T, t);
    return TCQ_OK;
}

uint32_t tcq_block_state(const uint32_t *words, uint32_t k, uint32_t L, uint32_t T, uint32_t t)
{
    return tcq_block_window(words, k, L, T, t);
}
