/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX2 and FMA primitives of the kernels.  Windows come in ascending order, eight
 * to a register: bytes are shuffled so that each lane holds its window, which is
 * shifted down and masked.  Included by the files of this folder only.
 */
#ifndef TCQ_KERNEL_X86_AVX2_H
#define TCQ_KERNEL_X86_AVX2_H

#include <immintrin.h>

#define NATURAL_LANES 1
#include "code/code.h"
#include "kernel/lanes.h"

typedef __m256 vec; /* a part of sixteen lanes */
enum { PARTS = 2 };

struct decoder {
    __m256i bytes[2]; /* of vpshufb: the four bytes in which a lane's window begins */
    __m256i shift[2]; /* and where in their first byte */
    __m256i mask;
};

TCQ_INLINE struct decoder decoder_make(unsigned k, unsigned L)
{
    struct decoder d;
    for (unsigned half = 0; half < 2; half++) {
        uint8_t bytes[32];
        uint32_t shift[8];
        for (unsigned lane = 0; lane < 8; lane++) {
            unsigned bit = lane_shift(k, half * 8 + lane);
            shift[lane] = bit & 7;
            for (unsigned byte = 0; byte < 4; byte++) /* past the source: zero */
                bytes[lane * 4 + byte] = (uint8_t)(bit / 8 + byte < 8 ? bit / 8 + byte : 0x80);
        }
        d.bytes[half] = _mm256_loadu_si256((const void *)bytes);
        d.shift[half] = _mm256_loadu_si256((const void *)shift);
    }
    d.mask = _mm256_set1_epi32((1 << L) - 1);
    return d;
}

/* Eight bytes in which the eight windows of one half of a step lie. */
TCQ_INLINE __m256i half_source(unsigned k, const uint8_t *block, unsigned step, unsigned steps,
                               unsigned half, bool wrapped)
{
    const unsigned skip = k > 3 ? k * half : 0;
    const unsigned left = 2 * k * (steps - step) - skip; /* a constant where wrapped is set */
    const uint8_t *p = block + 2 * k * step + skip;
    if (wrapped && left < 8)
        return _mm256_set1_epi64x((long long)wrapped64(block, p, left));
    return _mm256_broadcastq_epi64(_mm_loadl_epi64((const void *)p));
}

/*
 * Bytes are added in pairs twice.  The sum s <= 1020 is put under the exponent of
 * 2^23, so that subtracting 2^23 + 510 leaves y: cheaper where only two of three
 * ports convert, but all of them do logic.
 */
TCQ_INLINE vec decode_part(unsigned k, bool L16, const struct decoder *d, unsigned half,
                           const uint8_t *block, unsigned step, unsigned steps, bool wrapped)
{
    (void)L16; /* no difference here */
    __m256i source = half_source(k, block, step, steps, half, wrapped);
    __m256i u = _mm256_srlv_epi32(_mm256_shuffle_epi8(source, d->bytes[half]), d->shift[half]);
    __m256i product =
        _mm256_mullo_epi32(_mm256_and_si256(u, d->mask), _mm256_set1_epi32(TCQ_CODE_MULTIPLIER));
    __m256i z = _mm256_add_epi32(product, _mm256_set1_epi32(TCQ_CODE_ADDEND));
    __m256i pairs = _mm256_maddubs_epi16(z, _mm256_set1_epi8(1));
    __m256i sum = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m256 above = _mm256_castsi256_ps(_mm256_or_si256(sum, _mm256_set1_epi32(0x4b000000)));
    return _mm256_sub_ps(above, _mm256_set1_ps(8388608.0f + TCQ_CODE_OFFSET));
}

TCQ_INLINE vec vec_set1(float a)
{
    return _mm256_set1_ps(a);
}

TCQ_INLINE vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

/* a in a register for all its uses: gcc loads it again for each. */
TCQ_INLINE vec vec_keep(vec a)
{
    __asm__("" : "+x"(a));
    return a;
}

TCQ_INLINE void vec_store(float *p, vec a)
{
    _mm256_storeu_ps(p, a);
}

TCQ_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

TCQ_INLINE vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

TCQ_INLINE vec vec_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* Lanes added by halves: 8, 4, 2, 1. */
TCQ_INLINE float parts_sum(const vec part[PARTS])
{
    __m256 a = _mm256_add_ps(part[0], part[1]);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#include "kernel/narrow.h"

TCQ_INLINE v16 v16_reverse(v16 a)
{
    __m256i order = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return (v16){
        {_mm256_permutevar8x32_ps(a.part[1], order), _mm256_permutevar8x32_ps(a.part[0], order)}};
}

/* Finite numbers, to nearest even. */
TCQ_INLINE void v16_store_bf16(uint16_t *p, v16 a)
{
    __m256i u[2];
    TCQ_UNROLL
    for (unsigned half = 0; half < 2; half++) {
        u[half] = _mm256_castps_si256(a.part[half]);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u[half], 16), _mm256_set1_epi32(1));
        odd = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
        u[half] = _mm256_srli_epi32(_mm256_add_epi32(u[half], odd), 16);
    }
    __m256i packed = _mm256_packus_epi32(u[0], u[1]); /* quarters 0 2 1 3 */
    _mm256_storeu_si256((void *)p, _mm256_permute4x64_epi64(packed, 0xd8));
}

#endif
