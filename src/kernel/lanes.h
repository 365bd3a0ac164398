/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the SIMD kernels of every instruction set share: a block's windows are
 * taken sixteen a step, and which window goes to which lane.  Included by the
 * primitives of each instruction set only.
 */
#ifndef TCQ_KERNEL_LANES_H
#define TCQ_KERNEL_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TCQ_INLINE static inline __attribute__((always_inline))

/* Before a loop over registers: unrolled whole, its arrays become registers. */
#if defined(__clang__)
#define TCQ_UNROLL _Pragma("unroll")
#define TCQ_UNROLL_2 _Pragma("unroll 2")
#else
#define TCQ_UNROLL _Pragma("GCC unroll 16")
#define TCQ_UNROLL_2 _Pragma("GCC unroll 2")
#endif

enum { STEP = 16 }; /* windows decoded at once */

/* A file that needs the windows of a step in ascending order sets this to 1. */
#ifndef NATURAL_LANES
#define NATURAL_LANES 0
#endif

/* Whether steps go by pairs: below. */
TCQ_INLINE bool paired_steps(unsigned k)
{
    return k == 4 && !NATURAL_LANES;
}

/*
 * Where lane `lane` of step `step` lies among the block's windows in ascending
 * bit order; the position in the block is T-1 less that.  For k = 4 sixteen
 * windows span 72 bits, so a step takes eight from each half of a 128-bit group
 * and the next step the other eight: that needs one source a step, not two.
 */
TCQ_INLINE unsigned lane_window(unsigned k, unsigned step, unsigned lane)
{
    if (!paired_steps(k))
        return step * STEP + lane;
    unsigned pair = lane / 2;
    return step / 2 * 32 + (pair & 1) * 16 + (step & 1) * 8 + (pair / 2) * 2 + (lane & 1);
}

/* The bit offset of a lane's window in its 64-bit source: all sixteen windows in
 * one source (k <= 3), in each half of 128 bits by turns of two lanes (paired), or
 * eight in each of two sources k bytes apart. */
TCQ_INLINE unsigned lane_shift(unsigned k, unsigned lane)
{
    if (k <= 3)
        return lane * k;
    return paired_steps(k) ? (lane / 4 * 2 + (lane & 1)) * k : (lane & 7) * k;
}

/* How many steps at a block's end have sources that reach past it. */
TCQ_INLINE unsigned wrapped_steps(unsigned k)
{
    return k == 1 ? 3 : 1;
}

TCQ_INLINE uint64_t load64(const uint8_t *p)
{
    uint64_t q;
    memcpy(&q, p, sizeof q);
    return q;
}

/* Eight bytes from p on, where only `left` (2 to 6) remain before the block's end:
 * they go on at its start. */
TCQ_INLINE uint64_t wrapped64(const uint8_t *block, const uint8_t *p, unsigned left)
{
    return load64(p + left - 8) >> (64 - 8 * left) | load64(block) << 8 * left;
}

/* The lines of some bytes that a later call will read.  Prefetching never faults. */
TCQ_INLINE void prefetch_bytes(const uint8_t *p, size_t nbytes)
{
    for (size_t at = 0; at < nbytes; at += 64)
        __builtin_prefetch(p + at);
    __builtin_prefetch(p + nbytes - 1);
}

#endif
