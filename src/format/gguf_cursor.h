/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the parts of a GGUF file in sequence: numbers, metadata entries and
 * tensor infos, each checked against what the file has left.  Private to the
 * parser; gguf.c puts the parts together.
 */
#ifndef TCQ_FORMAT_GGUF_CURSOR_H
#define TCQ_FORMAT_GGUF_CURSOR_H

#include "format/gguf.h"

/* The least bytes that a metadata entry (key of one byte, type, one byte) and a
 * tensor info (name of one byte, rank, one size, type, offset) can take: they
 * bound what a count may ask to allocate. */
#define TCQ_GGUF_ENTRY_NBYTES_MIN (8u + 1u + 4u + 1u)
#define TCQ_GGUF_TENSOR_NBYTES_MIN (8u + 1u + 4u + 8u + 4u + 8u)

struct tcq_gguf_cursor {
    const uint8_t *data;
    size_t nbytes;
    size_t at; /* never beyond nbytes */
    const char *label;
    struct tcq_error *error;
};

/* what names the part in the message of a truncated file. */
enum tcq_status tcq_gguf_take_u32(struct tcq_gguf_cursor *cursor, const char *what, uint32_t *out);
enum tcq_status tcq_gguf_take_u64(struct tcq_gguf_cursor *cursor, const char *what, uint64_t *out);
enum tcq_status tcq_gguf_take_entry(struct tcq_gguf_cursor *cursor, struct tcq_gguf_entry *out);
/* Sets all but data; whether the offset is inside the file is not known yet. */
enum tcq_status tcq_gguf_take_tensor(struct tcq_gguf_cursor *cursor, struct tcq_gguf_tensor *out);

/* "label: tensor 'name': what". */
enum tcq_status tcq_gguf_tensor_error(const struct tcq_gguf_cursor *cursor,
                                      const struct tcq_gguf_tensor *tensor, enum tcq_status status,
                                      const char *what);

#endif
