/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits of one block, inline: every reader of packed words goes through here.
 */
#ifndef TCQ_FORMAT_BLOCK_H
#define TCQ_FORMAT_BLOCK_H

#include <stdint.h>

#include "base/host_device.h"

/*
 * The state at position t of a block.  Time runs backwards: the symbol of
 * position t starts at bit (T-1-t)*k, and the L bits from there upwards,
 * wrapping round the block's end, are the state.
 */
TCQ_HOST_DEVICE static inline uint32_t tcq_block_window(const uint32_t *words, uint32_t k,
                                                        uint32_t L, uint32_t T, uint32_t t)
{
    uint32_t bit = (T - 1 - t) * k, word = bit >> 5, offset = bit & 31, count = T * k / 32;
    uint64_t low = words[word], high = words[word + 1 == count ? 0 : word + 1];
    return (uint32_t)((high << 32 | low) >> offset) & ((1u << L) - 1);
}

#endif
