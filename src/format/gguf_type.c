/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of GGUF's tensor types.  Block sizes are written as the sum of a
 * block's fields (scales, minima, high bits, low bits), so that each line can
 * be checked against the type's layout.
 */
#include "format/gguf_type.h"

#define RETIRED 0, 0

static const struct tcq_gguf_type_info type_table[] = {
    {0, "F32", 1, 4},
    {1, "F16", 1, 2},
    {2, "Q4_0", 32, 2 + 16},
    {3, "Q4_1", 32, 2 + 2 + 16},
    {4, "Q4_2", RETIRED},
    {5, "Q4_3", RETIRED},
    {6, "Q5_0", 32, 2 + 4 + 16},
    {7, "Q5_1", 32, 2 + 2 + 4 + 16},
    {8, "Q8_0", 32, 2 + 32},
    {9, "Q8_1", 32, 2 + 2 + 32},
    {10, "Q2_K", 256, 16 + 64 + 2 + 2},
    {11, "Q3_K", 256, 32 + 64 + 12 + 2},
    {12, "Q4_K", 256, 2 + 2 + 12 + 128},
    {13, "Q5_K", 256, 2 + 2 + 12 + 32 + 128},
    {14, "Q6_K", 256, 128 + 64 + 16 + 2},
    {15, "Q8_K", 256, 4 + 256 + 32},
    {16, "IQ2_XXS", 256, 2 + 64},
    {17, "IQ2_XS", 256, 2 + 64 + 8},
    {18, "IQ3_XXS", 256, 2 + 64 + 32},
    {19, "IQ1_S", 256, 2 + 32 + 16},
    {20, "IQ4_NL", 32, 2 + 16},
    {21, "IQ3_S", 256, 2 + 64 + 8 + 32 + 4},
    {22, "IQ2_S", 256, 2 + 64 + 8 + 8},
    {23, "IQ4_XS", 256, 2 + 2 + 4 + 128},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 32 + 16 + 8},
    {30, "BF16", 1, 2},
    {31, "Q4_0_4_4", RETIRED},
    {32, "Q4_0_4_8", RETIRED},
    {33, "Q4_0_8_8", RETIRED},
    {34, "TQ1_0", 256, 48 + 4 + 2},
    {35, "TQ2_0", 256, 64 + 2},
    {36, "IQ4_NL_4_4", RETIRED},
    {37, "IQ4_NL_4_8", RETIRED},
    {38, "IQ4_NL_8_8", RETIRED},
    {39, "MXFP4", 32, 1 + 16},
    {40, "NVFP4", 64, 4 + 32},
    {41, "Q1_0", 128, 2 + 16},
};

const struct tcq_gguf_type_info *tcq_gguf_type_find(uint32_t number)
{
    if (number >= sizeof type_table / sizeof type_table[0]) {
        return NULL;
    }
    return &type_table[number];
}

enum tcq_dtype tcq_gguf_type_dtype(const struct tcq_gguf_type_info *type)
{
    switch (type->number) {
    case TCQ_GGUF_F32:
        return TCQ_DTYPE_F32;
    case TCQ_GGUF_F16:
        return TCQ_DTYPE_F16;
    case TCQ_GGUF_BF16:
        return TCQ_DTYPE_BF16;
    case TCQ_GGUF_F64:
        return TCQ_DTYPE_F64;
    case TCQ_GGUF_I8:
        return TCQ_DTYPE_I8;
    case TCQ_GGUF_I16:
        return TCQ_DTYPE_I16;
    case TCQ_GGUF_I32:
        return TCQ_DTYPE_I32;
    case TCQ_GGUF_I64:
        return TCQ_DTYPE_I64;
    default:
        return TCQ_DTYPE_COUNT;
    }
}
