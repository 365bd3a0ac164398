/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX-512 (VBMI, VNNI) primitives of the kernels: sixteen windows of a block to
 * their hashes in four instructions, and one more to the byte sums y.
 * docs/kernels.md counts them.  Included by the files of this folder only.
 */
#ifndef TCQ_KERNEL_X86_AVX512_H
#define TCQ_KERNEL_X86_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "code/code.h"
#include "kernel/lanes.h"

/*
 * z = a*w + b mod 2^32 for w < 2^15 from one dword D = w << 16 | 3130:
 *     vpmullw  D * (0, 519)                  -> (519 w mod 2^16) << 16
 *     vpdpwssd + 3130 * 24481 + w * 25297
 * since a = 519 * 2^16 + 25297 and b = 3130 * 24481.  The constant rides in the
 * half that the window leaves free, so b costs no addition.
 */
enum { LOW_WORD = 3130, LOW_FACTOR = 24481, HIGH_FACTOR = 25297, HIGH_MULTIPLIER = 519 };
_Static_assert(LOW_WORD *LOW_FACTOR == TCQ_CODE_ADDEND, "b");
_Static_assert((HIGH_MULTIPLIER << 16) + HIGH_FACTOR == TCQ_CODE_MULTIPLIER, "a");

struct decoder {
    __m512i control; /* of vpmultishiftqb: the window of each lane to bits 16.. */
    __m512i mask;    /* (2^L - 1) << 16 */
};

TCQ_INLINE struct decoder decoder_make(unsigned k, unsigned L)
{
    uint8_t control[64];
    for (unsigned lane = 0; lane < STEP; lane++) {
        unsigned shift = lane_shift(k, lane);
        for (unsigned byte = 0; byte < 4; byte++)
            control[lane * 4 + byte] = (uint8_t)(byte < 2 ? 0 : shift + (byte - 2) * 8);
    }
    return (struct decoder){_mm512_loadu_si512(control),
                            _mm512_set1_epi32((int)(((1u << L) - 1) << 16))};
}

/* The 64-bit sources of one step of a block, every lane's window within one. */
TCQ_INLINE __m512i step_source(unsigned k, const uint8_t *block, unsigned step)
{
    const uint8_t *p = block + 2 * k * step;
    if (k <= 3)
        return _mm512_set1_epi64((long long)load64(p));
    if (paired_steps(k)) /* the odd step of a group starts 4 bytes behind the even one */
        return _mm512_broadcast_i32x4(
            _mm_loadu_si128((const void *)(block + step / 2 * 16 + (step & 1) * 4)));
    return _mm512_mask_set1_epi64(_mm512_set1_epi64((long long)load64(p)), 0xf0,
                                  (long long)load64(p + k));
}

/* The same for a step whose windows wrap round the block's end. */
TCQ_INLINE __m512i wrapped_source(unsigned k, const uint8_t *block, unsigned step, unsigned steps)
{
    const unsigned left = 2 * k * (steps - step); /* bytes: a constant to the compiler */
    const uint8_t *p = block + 2 * k * step;
    if (k <= 3)
        return _mm512_set1_epi64((long long)wrapped64(block, p, left));
    if (paired_steps(k)) {
        __m128i last = _mm_loadu_si128((const void *)(p + left - 16));
        __m128i first = _mm_loadu_si128((const void *)block);
        return _mm512_broadcast_i32x4(_mm_alignr_epi8(first, last, 4));
    }
    return _mm512_mask_set1_epi64(_mm512_set1_epi64((long long)load64(p)), 0xf0,
                                  (long long)wrapped64(block, p + k, left - k));
}

/* The hash z of each window; its four bytes sum to y + 510.  L16: L is 16, whose
 * windows leave no room for the sign that vpdpwssd sees. */
TCQ_INLINE __m512i hash_windows(bool L16, const struct decoder *d, __m512i source)
{
    __m512i u = _mm512_multishift_epi64_epi8(d->control, source);
    if (L16) {
        __m512i product =
            _mm512_mullo_epi32(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(TCQ_CODE_MULTIPLIER));
        return _mm512_add_epi32(product, _mm512_set1_epi32(TCQ_CODE_ADDEND));
    }
    __m512i D = _mm512_ternarylogic_epi32(u, d->mask, _mm512_set1_epi32(LOW_WORD), 0xea);
    __m512i high = _mm512_mullo_epi16(D, _mm512_set1_epi32(HIGH_MULTIPLIER << 16));
    return _mm512_dpwssd_epi32(high, D, _mm512_set1_epi32(HIGH_FACTOR << 16 | LOW_FACTOR));
}

TCQ_INLINE __m512i hash_step(unsigned k, bool L16, const struct decoder *d, const uint8_t *block,
                             unsigned step, unsigned steps, bool wrapped)
{
    return hash_windows(
        L16, d, wrapped ? wrapped_source(k, block, step, steps) : step_source(k, block, step));
}

TCQ_INLINE __m512i sum_bytes(__m512i z)
{
    return _mm512_dpbusd_epi32(_mm512_set1_epi32(-TCQ_CODE_OFFSET), z, _mm512_set1_epi8(1));
}

/*
 * sum + a . b, of int16 pairs and of unsigned with signed bytes.  As instructions,
 * since gcc 12 copies the sum at every use of the intrinsics, to memory when there
 * are many.
 */
TCQ_INLINE __m512i add_dot_words(__m512i sum, __m512i a, __m512i b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

TCQ_INLINE __m512i add_dot_bytes(__m512i sum, __m512i a, __m512i b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
    return sum;
}

/* Sixteen float32: one register holds them all. */
typedef __m512 vec, v16;
enum { PARTS = 1 };
#define v16_load vec_load
#define v16_keep vec_keep
#define v16_store vec_store
#define v16_set1 vec_set1
#define v16_fma vec_fma
#define v16_mul vec_mul
#define v16_scale_add(sum, a, b) vec_fma(a, b, sum)

TCQ_INLINE vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

/* a in a register for all its uses: gcc loads it again for each. */
TCQ_INLINE vec vec_keep(vec a)
{
    __asm__("" : "+v"(a));
    return a;
}

TCQ_INLINE void vec_store(float *p, vec a)
{
    _mm512_storeu_ps(p, a);
}

TCQ_INLINE vec vec_set1(float a)
{
    return _mm512_set1_ps(a);
}

TCQ_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

TCQ_INLINE vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

/* Lanes added by halves: 8, 4, 2, 1. */
TCQ_INLINE float v16_sum(v16 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* Lane r: the lanes of v[r * stride] added in the same order.  Each round halves
 * the number of vectors: pairs are joined so that the lanes to add face each other. */
TCQ_INLINE v16 v16_sum16(const float *v, size_t stride)
{
    __m512 a[16];
    TCQ_UNROLL
    for (size_t i = 0; i < 8; i++) { /* a[i]: row i in the low half, row i+8 in the high */
        __m512 p = _mm512_loadu_ps(v + i * stride), q = _mm512_loadu_ps(v + (i + 8) * stride);
        a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(p, q, 0x44), _mm512_shuffle_f32x4(p, q, 0xee));
    }
    TCQ_UNROLL
    for (size_t i = 0; i < 4; i++) /* quarters: rows i, i+4, i+8, i+12 */
        a[i] = _mm512_add_ps(
            _mm512_permutex2var_ps(
                a[i], _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
                a[i + 4]),
            _mm512_permutex2var_ps(
                a[i], _mm512_setr_epi32(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31),
                a[i + 4]));
    TCQ_UNROLL
    for (size_t i = 0; i < 2; i++) /* pairs of lanes: rows i, i+2, i+4, ... */
        a[i] = _mm512_add_ps(_mm512_shuffle_ps(a[i], a[i + 2], 0x44),
                             _mm512_shuffle_ps(a[i], a[i + 2], 0xee));
    __m512 even = _mm512_shuffle_ps(a[0], a[1], 0x88), odd = _mm512_shuffle_ps(a[0], a[1], 0xdd);
    /* rows 0, 2, 1, 3 in each quarter */
    return _mm512_permute_ps(_mm512_add_ps(even, odd), 0xd8);
}

TCQ_INLINE v16 v16_reverse(v16 a)
{
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), a);
}

TCQ_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* Finite numbers, to nearest even. */
TCQ_INLINE void v16_store_bf16(uint16_t *p, v16 a)
{
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(u, 16)));
}

/* dst[l][j] = src[j][l], sixteen by sixteen. */
TCQ_INLINE void transpose_bf16(float *dst, size_t dst_stride, const uint16_t *src,
                               size_t src_stride)
{
    __m512 a[16], b[16];
    TCQ_UNROLL
    for (size_t i = 0; i < 16; i++)
        a[i] = v16_load_bf16(src + i * src_stride);
    TCQ_UNROLL
    for (size_t i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    TCQ_UNROLL
    for (size_t i = 0; i < 16; i += 4) /* a[i + c]: columns c, c+4, c+8, c+12 of rows i..i+3 */
        for (size_t c = 0; c < 4; c++) {
            __m512d p = _mm512_castps_pd(b[i + c / 2]), q = _mm512_castps_pd(b[i + 2 + c / 2]);
            a[i + c] =
                _mm512_castpd_ps(c & 1 ? _mm512_unpackhi_pd(p, q) : _mm512_unpacklo_pd(p, q));
        }
    TCQ_UNROLL
    for (size_t c = 0; c < 4; c++) {
        __m512 p = _mm512_shuffle_f32x4(a[c], a[c + 4], 0x88); /* columns c, c+8 */
        __m512 q = _mm512_shuffle_f32x4(a[c], a[c + 4], 0xdd); /* c+4, c+12 */
        __m512 r = _mm512_shuffle_f32x4(a[c + 8], a[c + 12], 0x88);
        __m512 s = _mm512_shuffle_f32x4(a[c + 8], a[c + 12], 0xdd);
        v16_store(dst + c * dst_stride, _mm512_shuffle_f32x4(p, r, 0x88));
        v16_store(dst + (c + 4) * dst_stride, _mm512_shuffle_f32x4(q, s, 0x88));
        v16_store(dst + (c + 8) * dst_stride, _mm512_shuffle_f32x4(p, r, 0xdd));
        v16_store(dst + (c + 12) * dst_stride, _mm512_shuffle_f32x4(q, s, 0xdd));
    }
}

/* The y of one step. */
TCQ_INLINE v16 decode_step(unsigned k, bool L16, const struct decoder *d, const uint8_t *block,
                           unsigned step, unsigned steps, bool wrapped)
{
    return _mm512_cvtepi32_ps(sum_bytes(hash_step(k, L16, d, block, step, steps, wrapped)));
}

#endif
