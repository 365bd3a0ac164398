/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole blocks to float32 y in the order of their windows, for any k and L: the
 * text that every instruction set shares (see reduce_simd.h).
 */
#include "format/geometry.h"

/* `count` steps from `first`, even, on of some blocks, each a constant distance behind the
 * one before. */
struct block_run {
    const uint8_t *block;
    size_t stride_nbytes;
    unsigned blocks, steps; /* steps: of a whole block */
    unsigned first, count;
    size_t ahead_nbytes; /* where to prefetch from */
};

TCQ_INLINE void decode_run(unsigned k, bool L16, unsigned steps, unsigned first, unsigned count,
                           float *y, size_t y_stride, const struct block_run *run,
                           const struct decoder *decoder)
{
    const struct decoder d = *decoder;
    const bool last = first + count == steps;
    const unsigned plain = count - (last ? wrapped_steps(k) : 0);
    const uint8_t *block = run->block;
    for (unsigned i = 0; i < run->blocks; i++, block += run->stride_nbytes, y += y_stride) {
        const uint8_t *from = block + 2 * k * first;
        prefetch_bytes(from + run->ahead_nbytes, 2 * k * count);
        float *to = y;
        TCQ_UNROLL_2
        for (unsigned pair = 0; pair < plain / 2; pair++, from += 4 * k, to += 2 * STEP) {
            v16_store(to, decode_step(k, L16, &d, from, 0, steps, false));
            v16_store(to + STEP, decode_step(k, L16, &d, from, 1, steps, false));
        }
        if (plain & 1) {
            v16_store(to, decode_step(k, L16, &d, from, 0, steps, false));
            to += STEP;
        }
        TCQ_UNROLL
        for (unsigned left = wrapped_steps(k); last && left > 0; left--, to += STEP)
            v16_store(to, decode_step(k, L16, &d, block, steps - left, steps, true));
    }
}

/* Whole and half blocks of 256 are worth code of their own. */
#define DECODE_RUN(k)                                                                              \
    static __attribute__((noinline)) void decode_run_k##k(                                         \
        bool L16, float *y, size_t y_stride, const struct block_run *run, const struct decoder *d) \
    {                                                                                              \
        bool constant = k >= 2 && k <= 4 && !L16 && run->steps == 16;                              \
        if (constant && run->count == 16)                                                          \
            decode_run(k, false, 16, 0, 16, y, y_stride, run, d);                                  \
        else if (constant && run->count == 8 && run->first == 0)                                   \
            decode_run(k, false, 16, 0, 8, y, y_stride, run, d);                                   \
        else if (constant && run->count == 8 && run->first == 8)                                   \
            decode_run(k, false, 16, 8, 8, y, y_stride, run, d);                                   \
        else if (L16)                                                                              \
            decode_run(k, true, run->steps, run->first, run->count, y, y_stride, run, d);          \
        else                                                                                       \
            decode_run(k, false, run->steps, run->first, run->count, y, y_stride, run, d);         \
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
