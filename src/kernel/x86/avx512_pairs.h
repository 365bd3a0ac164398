/* SPDX-License-Identifier: Apache-2.0 */
/*
 * y as int16, two to a dword, as vpdpwssd multiplies them: neighbours of one row
 * or the same column of two rows.
 */
#ifndef TCQ_KERNEL_X86_AVX512_PAIRS_H
#define TCQ_KERNEL_X86_AVX512_PAIRS_H

#include "format/geometry.h"
#include "kernel/x86/avx512.h"

/* vpackssdw puts, within each 128 bits, four lanes of an even step before four of
 * the odd one: which window int16 number j of a block is. */
TCQ_INLINE unsigned packed_window(unsigned k, unsigned j)
{
    unsigned at = j % (2 * STEP), step = j / (2 * STEP) * 2 + (at / 4 & 1);
    return lane_window(k, step, at / 8 * 4 + (at & 3));
}

TCQ_INLINE __m512i y_step(unsigned k, bool L16, const struct decoder *d, const uint8_t *block,
                          unsigned step, unsigned steps)
{
    return sum_bytes(step + wrapped_steps(k) >= steps
                         ? hash_step(k, L16, d, block, step, steps, true)
                         : hash_step(k, L16, d, block, step, steps, false));
}

/* Blocks of some rows; ahead_nbytes says where to prefetch from. */
struct pairs_run {
    const uint8_t *block;
    size_t row_nbytes, ahead_nbytes;
    unsigned rows, steps;
};

/* y[r][j], j in the order of vpackssdw, TCQ_T_MAX int16 a row. */
TCQ_INLINE void decode_packed(unsigned k, bool L16, int16_t *y, const struct pairs_run *run,
                              const struct decoder *decoder)
{
    const struct decoder d = *decoder;
    const uint8_t *block = run->block;
    for (unsigned r = 0; r < run->rows; r++, block += run->row_nbytes, y += TCQ_T_MAX) {
        prefetch_bytes(block + run->ahead_nbytes, 2 * k * run->steps);
        for (unsigned step = 0; step < run->steps; step += 2)
            _mm512_storeu_si512(
                y + step * STEP,
                _mm512_packs_epi32(y_step(k, L16, &d, block, step, run->steps),
                                   y_step(k, L16, &d, block, step + 1, run->steps)));
    }
}

/* y[r][j]: steps [first, first + count) of rows 2r and 2r+1 as the halves of a
 * dword; y_stride dwords a pair.  A missing last row repeats the one before: its x
 * is zero. */
TCQ_INLINE void decode_stacked(unsigned k, bool L16, int32_t *y, size_t y_stride,
                               const struct pairs_run *run, const struct decoder *decoder,
                               unsigned first, unsigned count)
{
    const struct decoder d = *decoder;
    const uint8_t *block = run->block;
    for (unsigned r = 0; r < run->rows; r += 2, block += 2 * run->row_nbytes, y += y_stride) {
        const uint8_t *next = block + (r + 1 < run->rows ? run->row_nbytes : 0);
        if (first == 0) {
            prefetch_bytes(block + run->ahead_nbytes, 2 * k * run->steps);
            prefetch_bytes(next + run->ahead_nbytes, 2 * k * run->steps);
        }
        for (unsigned s = 0; s < count; s++) {
            __m512i low = y_step(k, L16, &d, block, first + s, run->steps);
            __m512i high = y_step(k, L16, &d, next, first + s, run->steps);
            _mm512_storeu_si512(y + s * STEP, _mm512_mask_blend_epi16(0xaaaaaaaa, low,
                                                                      _mm512_slli_epi32(high, 16)));
        }
    }
}

#define DECODE(k)                                                                   \
    static __attribute__((noinline, unused)) void decode_packed_k##k(               \
        bool L16, int16_t *y, const struct pairs_run *run, const struct decoder *d) \
    {                                                                               \
        if (L16)                                                                    \
            decode_packed(k, true, y, run, d);                                      \
        else                                                                        \
            decode_packed(k, false, y, run, d);                                     \
    }                                                                               \
    static __attribute__((noinline, unused)) void decode_stacked_k##k(              \
        bool L16, int32_t *y, size_t y_stride, const struct pairs_run *run,         \
        const struct decoder *d, unsigned first, unsigned count)                    \
    {                                                                               \
        if (L16)                                                                    \
            decode_stacked(k, true, y, y_stride, run, d, first, count);             \
        else                                                                        \
            decode_stacked(k, false, y, y_stride, run, d, first, count);            \
    }
DECODE(1)
DECODE(2)
DECODE(3)
DECODE(4)
DECODE(5)
DECODE(6)
#undef DECODE

typedef void (*decode_packed_fn)(bool, int16_t *, const struct pairs_run *, const struct decoder *);
typedef void (*decode_stacked_fn)(bool, int32_t *, size_t, const struct pairs_run *,
                                  const struct decoder *, unsigned, unsigned);

TCQ_INLINE decode_packed_fn decode_packed_find(unsigned k)
{
    static const decode_packed_fn by_k[] = {decode_packed_k1, decode_packed_k2, decode_packed_k3,
                                            decode_packed_k4, decode_packed_k5, decode_packed_k6};
    return by_k[k - 1];
}

TCQ_INLINE decode_stacked_fn decode_stacked_find(unsigned k)
{
    static const decode_stacked_fn by_k[] = {decode_stacked_k1, decode_stacked_k2,
                                             decode_stacked_k3, decode_stacked_k4,
                                             decode_stacked_k5, decode_stacked_k6};
    return by_k[k - 1];
}

#endif
