/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data types: sizes, names, and conversions of whole arrays to and from float32.
 */
#include "tcq.h"

#include <string.h>

#include "base/half.h"

static const struct {
    const char *name;
    size_t nbytes;
} dtypes[TCQ_DTYPE_COUNT] = {
    [TCQ_DTYPE_F32] = {"F32", 4}, [TCQ_DTYPE_F16] = {"F16", 2}, [TCQ_DTYPE_BF16] = {"BF16", 2},
    [TCQ_DTYPE_F64] = {"F64", 8}, [TCQ_DTYPE_U8] = {"U8", 1},   [TCQ_DTYPE_I8] = {"I8", 1},
    [TCQ_DTYPE_U16] = {"U16", 2}, [TCQ_DTYPE_I16] = {"I16", 2}, [TCQ_DTYPE_U32] = {"U32", 4},
    [TCQ_DTYPE_I32] = {"I32", 4}, [TCQ_DTYPE_U64] = {"U64", 8}, [TCQ_DTYPE_I64] = {"I64", 8},
    [TCQ_DTYPE_BOOL] = {"BOOL", 1},
};

size_t tcq_dtype_nbytes(enum tcq_dtype dtype)
{
    return (unsigned)dtype < TCQ_DTYPE_COUNT ? dtypes[dtype].nbytes : 0;
}

const char *tcq_dtype_name(enum tcq_dtype dtype)
{
    return (unsigned)dtype < TCQ_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

enum tcq_status tcq_convert_from_f32(void *dst, enum tcq_dtype dtype, const float *src,
                                     size_t count)
{
    if ((!dst || !src) && count)
        return TCQ_ERROR_ARGUMENT;
    uint16_t *half = dst;
    switch (dtype) {
    case TCQ_DTYPE_F32:
        if (count)
            memmove(dst, src, count * sizeof *src);
        return TCQ_OK;
    case TCQ_DTYPE_F16:
        for (size_t i = 0; i < count; i++)
            half[i] = tcq_f16_from_f32(src[i]);
        return TCQ_OK;
    case TCQ_DTYPE_BF16:
        for (size_t i = 0; i < count; i++)
            half[i] = tcq_bf16_from_f32(src[i]);
        return TCQ_OK;
    default:
        return TCQ_ERROR_ARGUMENT;
    }
}

/* Files give no alignment, so elements are copied out before use. */
#define LOAD(type, index)                                                                          \
    __extension__({                                                                                \
        type value_;                                                                               \
        memcpy(&value_, (const char *)src + (index) * sizeof value_, sizeof value_);              \
        value_;                                                                                    \
    })

enum tcq_status tcq_convert_to_f32(float *dst, const void *src, enum tcq_dtype dtype, size_t count)
{
    if ((!dst || !src) && count)
        return TCQ_ERROR_ARGUMENT;
    switch (dtype) {
    case TCQ_DTYPE_F32:
        if (count)
            memmove(dst, src, count * sizeof *dst);
        return TCQ_OK;
    case TCQ_DTYPE_F16:
        for (size_t i = 0; i < count; i++)
            dst[i] = tcq_f16_to_f32(LOAD(uint16_t, i));
        return TCQ_OK;
    case TCQ_DTYPE_BF16:
        for (size_t i = 0; i < count; i++)
            dst[i] = tcq_bf16_to_f32(LOAD(uint16_t, i));
        return TCQ_OK;
    case TCQ_DTYPE_F64:
        for (size_t i = 0; i < count; i++)
            dst[i] = (float)LOAD(double, i);
        return TCQ_OK;
    default:
        return TCQ_ERROR_ARGUMENT;
    }
}
