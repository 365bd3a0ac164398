/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NEON primitives of the kernels: as in x86/avx2.h, four windows to a register.
 * Included by the files of this folder only.
 */
#ifndef TCQ_KERNEL_ARM_NEON_H
#define TCQ_KERNEL_ARM_NEON_H

#include <arm_neon.h>

#define NATURAL_LANES 1
#include "code/code.h"
#include "kernel/lanes.h"

typedef float32x4_t vec; /* a part of sixteen lanes */
enum { PARTS = 4 };

struct decoder {
    uint8x16_t bytes[4]; /* of tbl: the four bytes in which a lane's window begins */
    int32x4_t shift[4];  /* minus where in their first byte */
    uint32x4_t mask;
};

TCQ_INLINE struct decoder decoder_make(unsigned k, unsigned L)
{
    struct decoder d;
    for (unsigned part = 0; part < 4; part++) {
        uint8_t bytes[16];
        int32_t shift[4];
        for (unsigned lane = 0; lane < 4; lane++) {
            unsigned bit = lane_shift(k, part * 4 + lane);
            shift[lane] = -(int32_t)(bit & 7);
            for (unsigned byte = 0; byte < 4; byte++) /* past the source: zero */
                bytes[lane * 4 + byte] = (uint8_t)(bit / 8 + byte < 8 ? bit / 8 + byte : 0xff);
        }
        d.bytes[part] = vld1q_u8(bytes);
        d.shift[part] = vld1q_s32(shift);
    }
    d.mask = vdupq_n_u32((1u << L) - 1);
    return d;
}

/* Eight bytes in which the eight windows of one half of a step lie. */
TCQ_INLINE uint8x16_t half_source(unsigned k, const uint8_t *block, unsigned step, unsigned steps,
                                  unsigned half, bool wrapped)
{
    const unsigned skip = k > 3 ? k * half : 0;
    const unsigned left = 2 * k * (steps - step) - skip; /* a constant where wrapped is set */
    const uint8_t *p = block + 2 * k * step + skip;
    uint64_t q = wrapped && left < 8 ? wrapped64(block, p, left) : load64(p);
    return vreinterpretq_u8_u64(vdupq_n_u64(q));
}

TCQ_INLINE vec decode_part(unsigned k, bool L16, const struct decoder *d, unsigned part,
                           const uint8_t *block, unsigned step, unsigned steps, bool wrapped)
{
    (void)L16; /* no difference here */
    uint8x16_t source = half_source(k, block, step, steps, part / 2, wrapped);
    uint32x4_t u = vreinterpretq_u32_u8(vqtbl1q_u8(source, d->bytes[part]));
    uint32x4_t window = vandq_u32(vshlq_u32(u, d->shift[part]), d->mask);
    uint32x4_t z =
        vmlaq_u32(vdupq_n_u32(TCQ_CODE_ADDEND), window, vdupq_n_u32(TCQ_CODE_MULTIPLIER));
    uint32x4_t sum = vpaddlq_u16(vpaddlq_u8(vreinterpretq_u8_u32(z)));
    int32x4_t y = vsubq_s32(vreinterpretq_s32_u32(sum), vdupq_n_s32(TCQ_CODE_OFFSET));
    return vcvtq_f32_s32(y);
}

TCQ_INLINE vec vec_set1(float a)
{
    return vdupq_n_f32(a);
}

TCQ_INLINE vec vec_load(const float *p)
{
    return vld1q_f32(p);
}

/* a in a register for all its uses: gcc loads it again for each. */
TCQ_INLINE vec vec_keep(vec a)
{
    __asm__("" : "+w"(a));
    return a;
}

TCQ_INLINE void vec_store(float *p, vec a)
{
    vst1q_f32(p, a);
}

TCQ_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

TCQ_INLINE vec vec_mul(vec a, vec b)
{
    return vmulq_f32(a, b);
}

TCQ_INLINE vec vec_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

/* Lanes added by halves: 8, 4, 2, 1. */
TCQ_INLINE float parts_sum(const vec part[PARTS])
{
    float32x4_t a = vaddq_f32(vaddq_f32(part[0], part[2]), vaddq_f32(part[1], part[3]));
    float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}

#include "kernel/narrow.h"

TCQ_INLINE v16 v16_reverse(v16 a)
{
    v16 b;
    TCQ_UNROLL
    for (unsigned part = 0; part < 4; part++) {
        float32x4_t pairs = vrev64q_f32(a.part[3 - part]);
        b.part[part] = vextq_f32(pairs, pairs, 2);
    }
    return b;
}

/* Finite numbers, to nearest even. */
TCQ_INLINE void v16_store_bf16(uint16_t *p, v16 a)
{
    TCQ_UNROLL
    for (unsigned part = 0; part < 4; part++) {
        uint32x4_t u = vreinterpretq_u32_f32(a.part[part]);
        uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
        u = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
        vst1_u16(p + 4 * part, vshrn_n_u32(u, 16));
    }
}

#endif
