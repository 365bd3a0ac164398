/* SPDX-License-Identifier: Apache-2.0 */
/*
 * binary16 and bfloat16 in plain C, round to nearest even, NaN kept NaN.
 * Inline: the reference kernels and the file readers use them an element at a
 * time.  Whole arrays go through tcq_convert_from_f32 / tcq_convert_to_f32.
 *
 * A GPU has an instruction for each, which differs in the bits of NaNs alone.
 */
#ifndef TCQ_BASE_HALF_H
#define TCQ_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/host_device.h"

TCQ_HOST_DEVICE static inline uint32_t tcq_float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

TCQ_HOST_DEVICE static inline float tcq_float_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

TCQ_HOST_DEVICE static inline float tcq_bf16_to_f32(uint16_t h)
{
    return tcq_float_from_bits((uint32_t)h << 16);
}

TCQ_HOST_DEVICE static inline uint16_t tcq_bf16_from_f32(float x)
{
#ifdef __CUDA_ARCH__
    uint32_t pair; /* of x and 0: one of x alone goes through a slower unit */
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
    return (uint16_t)pair;
#else
    uint32_t u = tcq_float_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) /* NaN: keep sign and payload, make it quiet */
        return (uint16_t)((u >> 16) | 0x0040u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
}

TCQ_HOST_DEVICE static inline float tcq_f16_to_f32(uint16_t h)
{
#ifdef __CUDA_ARCH__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
#else
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, exact */
        float magnitude = (float)mantissa * 0x1p-24f;
        return tcq_float_from_bits(tcq_float_bits(magnitude) | sign);
    }
    uint32_t biased = exponent == 31 ? 255u : exponent + 112u;
    return tcq_float_from_bits(sign | (biased << 23) | (mantissa << 13));
#endif
}

TCQ_HOST_DEVICE static inline uint16_t tcq_f16_from_f32(float x)
{
#ifdef __CUDA_ARCH__
    uint32_t pair; /* as above */
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
    return (uint16_t)pair;
#else
    uint32_t u = tcq_float_bits(x);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x1ffu));
    if (a >= 0x477ff000u) /* 65520 and up round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) { /* below 2^-14: a subnormal, whose unit is 2^-24 */
        /* Adding 0.5 leaves the value in units of 2^-24 in the low mantissa bits,
         * rounded to nearest even by the addition itself. */
        float shifted = tcq_float_from_bits(a) + 0.5f;
        return (uint16_t)(sign | (tcq_float_bits(shifted) - 0x3f000000u));
    }
    a += 0xc8000fffu + ((a >> 13) & 1u); /* rebias by -112, round to nearest even */
    return (uint16_t)(sign | (a >> 13));
#endif
}

#endif
