/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole blocks to float32 y in the order of their windows, for any k and L: the
 * text that every instruction set shares (see reduce_simd.h).
 */
#include "format/geometry.h"

/* Some blocks, each a constant distance behind the one before. */
struct block_run {
    const uint8_t *block;
    size_t stride_nbytes;
    unsigned count, steps;
    size_t ahead_nbytes; /* where to prefetch from */
};

TCQ_INLINE void decode_run(unsigned k, bool L16, unsigned steps, float *y, size_t y_stride,
                           const struct block_run *run, const struct decoder *decoder)
{
    const struct decoder d = *decoder;
    const unsigned plain = steps - wrapped_steps(k);
    const uint8_t *block = run->block;
    for (unsigned i = 0; i < run->count; i++, block += run->stride_nbytes, y += y_stride) {
        prefetch_block(block + run->ahead_nbytes, 2 * k * steps);
        TCQ_UNROLL_5
        for (unsigned step = 0; step < plain; step++)
            v16_store(y + step * STEP, decode_step(k, L16, &d, block, step, steps, false));
        for (unsigned step = plain; step < steps; step++)
            v16_store(y + step * STEP, decode_step(k, L16, &d, block, step, steps, true));
    }
}

#define DECODE_RUN(k)                                                                              \
    static __attribute__((noinline)) void decode_run_k##k(                                         \
        bool L16, float *y, size_t y_stride, const struct block_run *run, const struct decoder *d) \
    {                                                                                              \
        if (L16)                                                                                   \
            decode_run(k, true, run->steps, y, y_stride, run, d);                                  \
        else if (k >= 2 && k <= 4 && run->steps == 16) /* worth its own code */                    \
            decode_run(k, false, 16, y, y_stride, run, d);                                         \
        else                                                                                       \
            decode_run(k, false, run->steps, y, y_stride, run, d);                                 \
    }
DECODE_RUN(1)
DECODE_RUN(2)
DECODE_RUN(3)
DECODE_RUN(4)
DECODE_RUN(5)
DECODE_RUN(6)
#undef DECODE_RUN

/* Block i of the run to y + i*y_stride. */
static void decode_blocks(float *y, size_t y_stride, const struct tcq_geometry *g,
                          const struct decoder *d, const struct block_run *run)
{
    static void (*const by_k[])(bool, float *, size_t, const struct block_run *,
                                const struct decoder *) = {
        decode_run_k1, decode_run_k2, decode_run_k3, decode_run_k4, decode_run_k5, decode_run_k6,
    };
    by_k[g->k - 1](g->L == 16, y, y_stride, run, d);
}
