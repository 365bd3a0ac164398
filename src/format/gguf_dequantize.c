/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dequantization of GGUF's block types: one function a type turns one block
 * into floats; a table joins types and functions.
 *
 * In a small block (32 weights) byte i holds weight i in its low and weight
 * i + 16 in its high nibble.  In a K block (256 weights) a group of 64 shares 32
 * bytes the same way: the low nibbles are its first 32 weights.
 */
#include "format/gguf_dequantize.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"

#define SMALL 32
#define LARGE 256

static uint16_t load_u16(const uint8_t *src)
{
    return (uint16_t)(src[0] | src[1] << 8);
}

static uint32_t load_u32(const uint8_t *src)
{
    return (uint32_t)load_u16(src) | (uint32_t)load_u16(src + 2) << 16;
}

static float load_half(const uint8_t *src)
{
    return tcq_f16_to_f32(load_u16(src));
}

/* half d, int8 q[32]: q * d */
static void q8_0_block(float *dst, const uint8_t *src)
{
    float d = load_half(src);
    for (int i = 0; i < SMALL; i++)
        dst[i] = (float)(int8_t)src[2 + i] * d;
}

/* half d, nibbles[16]: d * (q - 8) */
static void q4_0_block(float *dst, const uint8_t *src)
{
    float d = load_half(src);
    for (int i = 0; i < SMALL / 2; i++) {
        int q = src[2 + i];
        dst[i] = d * (float)((q & 15) - 8);
        dst[i + SMALL / 2] = d * (float)((q >> 4) - 8);
    }
}

/* half d, half m, nibbles[16]: d * q + m */
static void q4_1_block(float *dst, const uint8_t *src)
{
    float d = load_half(src), m = load_half(src + 2);
    for (int i = 0; i < SMALL / 2; i++) {
        int q = src[4 + i];
        dst[i] = d * (float)(q & 15) + m;
        dst[i + SMALL / 2] = d * (float)(q >> 4) + m;
    }
}

/* half d, u32 fifth bits (bit i is weight i's), nibbles[16]: d * (q - 16) */
static void q5_0_block(float *dst, const uint8_t *src)
{
    float d = load_half(src);
    uint32_t high = load_u32(src + 2);
    for (int i = 0; i < SMALL / 2; i++) {
        int q = src[6 + i];
        int first = (q & 15) | (int)(high >> i & 1) << 4;
        int second = q >> 4 | (int)(high >> (i + SMALL / 2) & 1) << 4;
        dst[i] = d * (float)(first - 16);
        dst[i + SMALL / 2] = d * (float)(second - 16);
    }
}

/* half d, half m, u32 fifth bits, nibbles[16]: d * q + m */
static void q5_1_block(float *dst, const uint8_t *src)
{
    float d = load_half(src), m = load_half(src + 2);
    uint32_t high = load_u32(src + 4);
    for (int i = 0; i < SMALL / 2; i++) {
        int q = src[8 + i];
        int first = (q & 15) | (int)(high >> i & 1) << 4;
        int second = q >> 4 | (int)(high >> (i + SMALL / 2) & 1) << 4;
        dst[i] = d * (float)first + m;
        dst[i + SMALL / 2] = d * (float)second + m;
    }
}

/* The 6-bit scale and minimum of group j of 32 weights, from 12 bytes: groups
 * 0..3 have them in the low six bits of bytes j and j + 4; groups 4..7 have
 * their low four bits in the nibbles of byte j + 4 and their upper two in the
 * top of bytes j - 4 and j. */
static void k_scale_min(const uint8_t *scales, int j, float *scale, float *minimum)
{
    if (j < 4) {
        *scale = (float)(scales[j] & 63);
        *minimum = (float)(scales[j + 4] & 63);
    } else {
        *scale = (float)((scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4);
        *minimum = (float)(scales[j + 4] >> 4 | (scales[j] >> 6) << 4);
    }
}

/* half d, half dmin, scales[12], nibbles[128]: (d * scale) * q - dmin * minimum */
static void q4_k_block(float *dst, const uint8_t *src)
{
    float d = load_half(src), dmin = load_half(src + 2);
    for (int j = 0; j < LARGE / 32; j++) {
        const uint8_t *low = src + 16 + j / 2 * 32;
        float scale, minimum;
        k_scale_min(src + 4, j, &scale, &minimum);
        scale = d * scale;
        minimum = dmin * minimum;
        for (int i = 0; i < 32; i++) {
            int q = low[i] >> (j % 2 * 4) & 15;
            dst[j * 32 + i] = scale * (float)q - minimum;
        }
    }
}

/* half d, half dmin, scales[12], fifth bits[32] (bit j of byte i is weight i
 * of group j), nibbles[128] */
static void q5_k_block(float *dst, const uint8_t *src)
{
    float d = load_half(src), dmin = load_half(src + 2);
    const uint8_t *high = src + 16;
    for (int j = 0; j < LARGE / 32; j++) {
        const uint8_t *low = src + 48 + j / 2 * 32;
        float scale, minimum;
        k_scale_min(src + 4, j, &scale, &minimum);
        scale = d * scale;
        minimum = dmin * minimum;
        for (int i = 0; i < 32; i++) {
            int q = (low[i] >> (j % 2 * 4) & 15) | (high[i] >> j & 1) << 4;
            dst[j * 32 + i] = scale * (float)q - minimum;
        }
    }
}

/* low nibbles[128], upper two bits[64], int8 scales[16], half d:
 * (d * scale) * (q - 32).  Each half of 128 weights has 64 low and 32 high
 * bytes; its group g of 32 takes nibble g / 2 of low bytes g % 2 * 32 + i and
 * the bits 2g of high byte i.  A scale serves 16 weights. */
static void q6_k_block(float *dst, const uint8_t *src)
{
    const uint8_t *scales = src + 192;
    float d = load_half(src + 208);
    for (int group = 0; group < LARGE / 32; group++) {
        int half = group / 4, g = group % 4;
        const uint8_t *low = src + half * 64 + g % 2 * 32;
        const uint8_t *high = src + 128 + half * 32;
        for (int i = 0; i < 32; i++) {
            float scale = d * (float)(int8_t)scales[group * 2 + i / 16];
            int q = (low[i] >> (g / 2 * 4) & 15) | (high[i] >> (2 * g) & 3) << 4;
            dst[group * 32 + i] = scale * (float)(q - 32);
        }
    }
}

typedef void (*block_function)(float *dst, const uint8_t *src);

static block_function find_function(uint32_t type)
{
    static const block_function functions[] = {
        [TCQ_GGUF_Q8_0] = q8_0_block, [TCQ_GGUF_Q4_0] = q4_0_block, [TCQ_GGUF_Q4_1] = q4_1_block,
        [TCQ_GGUF_Q5_0] = q5_0_block, [TCQ_GGUF_Q5_1] = q5_1_block, [TCQ_GGUF_Q4_K] = q4_k_block,
        [TCQ_GGUF_Q5_K] = q5_k_block, [TCQ_GGUF_Q6_K] = q6_k_block,
    };
    return type < sizeof functions / sizeof *functions ? functions[type] : NULL;
}

/* The types without blocks that are read, or TCQ_DTYPE_COUNT. */
static enum tcq_dtype plain_float(const struct tcq_gguf_type_info *type)
{
    enum tcq_dtype dtype = tcq_gguf_type_dtype(type);
    bool plain = dtype == TCQ_DTYPE_F32 || dtype == TCQ_DTYPE_F16 || dtype == TCQ_DTYPE_BF16;
    return plain ? dtype : TCQ_DTYPE_COUNT;
}

bool tcq_gguf_type_is_float(const struct tcq_gguf_type_info *type)
{
    return plain_float(type) != TCQ_DTYPE_COUNT || find_function(type->number) != NULL;
}

enum tcq_status tcq_gguf_dequantize(float *dst, const uint8_t *src,
                                    const struct tcq_gguf_type_info *type, uint64_t count,
                                    struct tcq_error *error)
{
    block_function convert = find_function(type->number);
    enum tcq_dtype plain = plain_float(type);
    if (plain != TCQ_DTYPE_COUNT)
        return tcq_convert_to_f32(dst, src, plain, (size_t)count);
    if (convert == NULL)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "type %s is not read (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, "
                             "Q4_K, Q5_K and Q6_K are)",
                             type->name);
    if (count % type->block_count != 0)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "%" PRIu64 " elements are no multiple of the %u of a %s block", count,
                             type->block_count, type->name);
    for (uint64_t i = 0; i < count; i += type->block_count) {
        convert(dst, src);
        dst += type->block_count;
        src += type->block_nbytes;
    }
    return TCQ_OK;
}
