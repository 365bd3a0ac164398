/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The element types of GGUF tensors: their numbers, names and block sizes.
 *
 * Every type that GGUF has ever numbered is known by name, so that a file is
 * listed and refused in words.  Which of them turn into float32 is decided in
 * gguf_dequantize.h.
 */
#ifndef TCQ_FORMAT_GGUF_TYPE_H
#define TCQ_FORMAT_GGUF_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tcq.h"

/* The numbers in files, fixed by GGUF; only the types that code here names. */
enum tcq_gguf_type {
    TCQ_GGUF_F32 = 0,
    TCQ_GGUF_F16 = 1,
    TCQ_GGUF_Q4_0 = 2,
    TCQ_GGUF_Q4_1 = 3,
    TCQ_GGUF_Q5_0 = 6,
    TCQ_GGUF_Q5_1 = 7,
    TCQ_GGUF_Q8_0 = 8,
    TCQ_GGUF_Q4_K = 12,
    TCQ_GGUF_Q5_K = 13,
    TCQ_GGUF_Q6_K = 14,
    TCQ_GGUF_I8 = 24,
    TCQ_GGUF_I16 = 25,
    TCQ_GGUF_I32 = 26,
    TCQ_GGUF_I64 = 27,
    TCQ_GGUF_F64 = 28,
    TCQ_GGUF_BF16 = 30
};

struct tcq_gguf_type_info {
    uint32_t number;
    const char *name;
    uint16_t block_count;  /* elements of one block; 0: retired, size no longer defined */
    uint16_t block_nbytes; /* bytes of one block */
};

/* What is known of a type number; NULL for a number never assigned. */
const struct tcq_gguf_type_info *tcq_gguf_type_find(uint32_t number);

/* The same type outside GGUF; TCQ_DTYPE_COUNT for a block type. */
enum tcq_dtype tcq_gguf_type_dtype(const struct tcq_gguf_type_info *type);

#endif
