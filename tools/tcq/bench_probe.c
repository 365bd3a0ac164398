/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes in plain C and for AArch64, and the choice; bench_probe_x86.c has the
 * others.
 */
#include "bench_probe.h"

#include <string.h>

#include "base/half.h"
#include "bench_probe_x86.h"
#include "tcq.h"

enum { LANES = 64 };

static uint64_t read_scalar(const void *data, size_t nbytes)
{
    const uint64_t *words = data;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < nbytes / 8; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] += words[i + (size_t)j];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/* A product and a sum each: plain C has no fma on every processor. */
static float fma_scalar(uint64_t rounds)
{
    float acc[LANES];
    for (int j = 0; j < LANES; j++)
        acc[j] = (float)j;
    for (uint64_t i = 0; i < rounds; i++)
        for (int j = 0; j < LANES; j++)
            acc[j] = acc[j] * 0.75f + 0.25f;
    float sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += acc[j];
    return sum;
}

static int32_t dot_scalar(uint64_t rounds)
{
    int32_t acc[LANES] = {0}, sum = 0;
    int16_t a[LANES], b[LANES];
    for (int j = 0; j < LANES; j++)
        a[j] = (int16_t)j, b[j] = (int16_t)(rounds & 7);
    for (uint64_t i = 0; i < rounds; i++)
        for (int j = 0; j < LANES; j++) {
            acc[j] += a[j] * b[j];
            a[j] ^= (int16_t)1;
        }
    for (int j = 0; j < LANES; j++)
        sum ^= acc[j];
    return sum;
}

static void bf16_scalar(float *y, size_t y_stride, const uint16_t *w, const uint16_t *x,
                        uint32_t m, uint64_t row_begin, uint64_t row_end, size_t depth)
{
    for (uint64_t r = row_begin; r < row_end; r++)
        for (uint32_t i = 0; i < m; i++) {
            const uint16_t *wr = w + r * depth, *xi = x + i * depth;
            float acc[16] = {0}, sum = 0;
            for (size_t l = 0; l < depth; l += 16)
                for (size_t j = 0; j < 16; j++)
                    acc[j] += tcq_bf16_to_f32(wr[l + j]) * tcq_bf16_to_f32(xi[l + j]);
            for (int j = 0; j < 16; j++)
                sum += acc[j];
            y[i * y_stride + r] = sum;
        }
}

static const struct bench_probe scalar = {"scalar",   read_scalar, fma_scalar, LANES,
                                          dot_scalar, LANES,       bf16_scalar};

#if defined(__aarch64__)
#include <arm_neon.h>

static float fma_neon(uint64_t rounds)
{
    float32x4_t acc[16], a = vdupq_n_f32(0.75f), b = vdupq_n_f32(0.25f);
    for (int j = 0; j < 16; j++)
        acc[j] = vdupq_n_f32((float)j);
    for (uint64_t i = 0; i < rounds; i++)
        for (int j = 0; j < 16; j++)
            acc[j] = vfmaq_f32(b, acc[j], a);
    float sum = 0;
    for (int j = 0; j < 16; j++)
        sum += vaddvq_f32(acc[j]);
    return sum;
}

static void bf16_neon(float *y, size_t y_stride, const uint16_t *w, const uint16_t *x, uint32_t m,
                      uint64_t row_begin, uint64_t row_end, size_t depth)
{
    for (uint64_t r = row_begin; r < row_end; r++)
        for (uint32_t i = 0; i < m; i++) {
            const uint16_t *wr = w + r * depth, *xi = x + i * depth;
            float32x4_t acc[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
            for (size_t l = 0; l < depth; l += 16)
                for (int j = 0; j < 4; j++) {
                    uint32x4_t a = vshll_n_u16(vld1_u16(wr + l + 4 * j), 16);
                    uint32x4_t b = vshll_n_u16(vld1_u16(xi + l + 4 * j), 16);
                    acc[j] = vfmaq_f32(acc[j], vreinterpretq_f32_u32(a), vreinterpretq_f32_u32(b));
                }
            y[i * y_stride + r] = vaddvq_f32(
                vaddq_f32(vaddq_f32(acc[0], acc[1]), vaddq_f32(acc[2], acc[3])));
        }
}

static const struct bench_probe neon = {"neon",     read_scalar, fma_neon, 64,
                                        dot_scalar, LANES,       bf16_neon};
#endif

const struct bench_probe *bench_probe_select(uint32_t cpu_flags)
{
#if defined(__x86_64__)
    const struct bench_probe *x86 = bench_probe_x86(cpu_flags);
    if (x86)
        return x86;
#elif defined(__aarch64__)
    if (cpu_flags & TCQ_CPU_NEON)
        return &neon;
#endif
    (void)cpu_flags;
    return &scalar;
}
