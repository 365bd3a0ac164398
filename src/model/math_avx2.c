/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX2, FMA and F16C: 16 lanes as two registers.
 */
#include <immintrin.h>
#include <stdint.h>

typedef struct {
    __m256 a, b;
} v16;

static inline v16 v_set(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline v16 v_zero(void)
{
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
static inline v16 v_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline __m128i load8(const uint16_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
static inline v16 v_load_f16(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(load8(p)), _mm256_cvtph_ps(load8(p + 8))};
}
static inline __m256 widen_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline v16 v_load_bf16(const uint16_t *p)
{
    return (v16){widen_bf16(load8(p)), widen_bf16(load8(p + 8))};
}
static inline void v_store_f16(uint16_t *p, v16 v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}
static inline void v_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
static inline v16 v_add(v16 x, v16 y)
{
    return (v16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
static inline v16 v_mul(v16 x, v16 y)
{
    return (v16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
static inline v16 v_div(v16 x, v16 y)
{
    return (v16){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
/* The second where either is NaN. */
static inline v16 v_max(v16 x, v16 y)
{
    return (v16){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
static inline v16 v_min(v16 x, v16 y)
{
    return (v16){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
static inline v16 v_round(v16 v)
{
    return (v16){_mm256_round_ps(v.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                 _mm256_round_ps(v.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
static inline __m256 scale8(__m256 v, __m256 n)
{
    __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23)));
}
static inline v16 v_scale(v16 v, v16 n)
{
    return (v16){scale8(v.a, n.a), scale8(v.b, n.b)};
}
static inline float v_sum(v16 v)
{
    __m256 eight = _mm256_add_ps(v.a, v.b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* 16 registers: 2 x 2 sums take eight, as do four queries. */
#define TILE_ROWS 2
#define TILE_VECTORS 2
#define TILE_QUERIES 4
#define MATH_NAME tcq_math_avx2
#define MATH_ISA "avx2"
#include "model/math_template.h"
