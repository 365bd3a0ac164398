/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of a GGUF tensor to float32.
 *
 * Served: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K.  The
 * results are those of the reference conversion to the bit: each product and
 * sum is one float32 operation, in the order that gguf_dequantize.c gives.
 */
#ifndef TCQ_FORMAT_GGUF_DEQUANTIZE_H
#define TCQ_FORMAT_GGUF_DEQUANTIZE_H

#include "format/gguf_type.h"
#include "tcq.h"

/* True if tcq_gguf_dequantize serves the type. */
bool tcq_gguf_type_is_float(const struct tcq_gguf_type_info *type);

/* Convert count elements, whole blocks, from src (of any alignment) to dst.
 * Errors: UNSUPPORTED, with the type's name; ARGUMENT if count is no multiple
 * of the block. */
enum tcq_status tcq_gguf_dequantize(float *dst, const uint8_t *src,
                                    const struct tcq_gguf_type_info *type, uint64_t count,
                                    struct tcq_error *error);

#endif
