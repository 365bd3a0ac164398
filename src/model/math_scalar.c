/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain C: 16 lanes as an array, which compilers turn into whatever the
 * baseline has.  No fused multiply-add, which would be a function call there.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

typedef struct {
    float lane[16];
} v16;

#define LANES(expression)                                                                        \
    v16 out;                                                                                     \
    for (int i = 0; i < 16; i++)                                                                 \
        out.lane[i] = (expression);                                                              \
    return out

static inline v16 v_set(float x)
{
    LANES(x);
}
static inline v16 v_zero(void)
{
    LANES(0);
}
static inline v16 v_load(const float *p)
{
    LANES(p[i]);
}
static inline v16 v_load_f16(const uint16_t *p)
{
    LANES(tcq_f16_to_f32(p[i]));
}
static inline v16 v_load_bf16(const uint16_t *p)
{
    LANES(tcq_bf16_to_f32(p[i]));
}
static inline void v_store_f16(uint16_t *p, v16 v)
{
    for (int i = 0; i < 16; i++)
        p[i] = tcq_f16_from_f32(v.lane[i]);
}
static inline void v_store(float *p, v16 v)
{
    memcpy(p, v.lane, sizeof v.lane);
}
static inline v16 v_add(v16 a, v16 b)
{
    LANES(a.lane[i] + b.lane[i]);
}
static inline v16 v_mul(v16 a, v16 b)
{
    LANES(a.lane[i] * b.lane[i]);
}
static inline v16 v_div(v16 a, v16 b)
{
    LANES(a.lane[i] / b.lane[i]);
}
static inline v16 v_fma(v16 a, v16 b, v16 c)
{
    LANES(a.lane[i] * b.lane[i] + c.lane[i]);
}
/* b where either is NaN. */
static inline v16 v_max(v16 a, v16 b)
{
    LANES(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}
static inline v16 v_min(v16 a, v16 b)
{
    LANES(a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
}
/* To the nearest integer, for |v| < 2^22: adding 1.5 * 2^23 leaves no fraction. */
static inline v16 v_round(v16 v)
{
    LANES((v.lane[i] + 12582912.0f) - 12582912.0f);
}
/* v * 2^n for integers n in -126..127. */
static inline v16 v_scale(v16 v, v16 n)
{
    LANES(v.lane[i] * tcq_float_from_bits((uint32_t)((int32_t)n.lane[i] + 127) << 23));
}
static inline float v_sum(v16 v)
{
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            v.lane[i] += v.lane[i + half];
    return v.lane[0];
}

#define TILE_ROWS 2
#define TILE_VECTORS 2
#define TILE_QUERIES 2
#define MATH_NAME tcq_math_scalar
#define MATH_ISA "scalar"
#include "model/math_template.h"

const struct tcq_math *tcq_math_select(uint32_t cpu_flags)
{
#if defined(__x86_64__)
    if (cpu_flags & TCQ_CPU_AVX512)
        return &tcq_math_avx512;
    if (cpu_flags & TCQ_CPU_AVX2)
        return &tcq_math_avx2;
#endif
    (void)cpu_flags;
    return &tcq_math_scalar;
}
