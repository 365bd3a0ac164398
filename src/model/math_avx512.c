/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX-512: 16 lanes are one register.
 */
#include <immintrin.h>
#include <stdint.h>

typedef __m512 v16;

static inline v16 v_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline v16 v_zero(void)
{
    return _mm512_setzero_ps();
}
static inline v16 v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline __m256i load16(const uint16_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
static inline v16 v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(load16(p));
}
static inline v16 v_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load16(p)), 16));
}
static inline void v_store_f16(uint16_t *p, v16 v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline void v_store(float *p, v16 v)
{
    _mm512_storeu_ps(p, v);
}
static inline v16 v_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
static inline v16 v_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
static inline v16 v_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}
static inline v16 v_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* b where either is NaN. */
static inline v16 v_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
static inline v16 v_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}
static inline v16 v_round(v16 v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline v16 v_scale(v16 v, v16 n)
{
    return _mm512_scalef_ps(v, n);
}
/* Halves added to halves: the order of the other instruction sets. */
static inline float v_sum(v16 v)
{
    __m256 low = _mm512_castps512_ps256(v);
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    __m256 eight = _mm256_add_ps(low, high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* 32 registers: 4 x 4 sums, four vectors and a row. */
#define TILE_ROWS 4
#define TILE_VECTORS 4
#define TILE_QUERIES 8
#define MATH_NAME tcq_math_avx512
#define MATH_ISA "avx512"
#include "model/math_template.h"
