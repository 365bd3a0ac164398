/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole block to float32 y in the order of its windows, for any k and L: the
 * text that every instruction set shares (see reduce_simd.h).
 */
#include "format/geometry.h"

TCQ_INLINE void decode_steps(unsigned k, bool L16, float *y, unsigned steps,
                             const struct decoder *d, const uint8_t *block)
{
    const unsigned plain = steps - wrapped_steps(k);
    for (unsigned step = 0; step < plain; step++)
        v16_store(y + step * STEP, decode_step(k, L16, d, block, step, steps, false));
    for (unsigned step = plain; step < steps; step++)
        v16_store(y + step * STEP, decode_step(k, L16, d, block, step, steps, true));
}

#define DECODE_BLOCK(k)                                                                    \
    static __attribute__((noinline)) void decode_block_k##k(                               \
        bool L16, float *y, unsigned steps, const struct decoder *d, const uint8_t *block) \
    {                                                                                      \
        if (L16)                                                                           \
            decode_steps(k, true, y, steps, d, block);                                     \
        else                                                                               \
            decode_steps(k, false, y, steps, d, block);                                    \
    }
DECODE_BLOCK(1)
DECODE_BLOCK(2)
DECODE_BLOCK(3)
DECODE_BLOCK(4)
DECODE_BLOCK(5)
DECODE_BLOCK(6)
#undef DECODE_BLOCK

static void decode_block(float *y, const struct tcq_geometry *g, const struct decoder *d,
                         const uint8_t *block)
{
    static void (*const by_k[])(bool, float *, unsigned, const struct decoder *,
                                const uint8_t *) = {
        decode_block_k1, decode_block_k2, decode_block_k3,
        decode_block_k4, decode_block_k5, decode_block_k6,
    };
    by_k[g->k - 1](g->L == 16, y, g->T / STEP, d, block);
}
