/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crafting GGUF files byte by byte, valid or not, and a small valid model.
 */
#ifndef TESTS_SUPPORT_GGUF_BYTES_H
#define TESTS_SUPPORT_GGUF_BYTES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/gguf.h"

/* A growing byte string; the caller frees data. */
struct bytes {
    uint8_t *data;
    size_t nbytes;
};

static inline void put(struct bytes *b, const void *src, size_t nbytes)
{
    b->data = realloc(b->data, b->nbytes + nbytes + 1);
    if (nbytes)
        memcpy(b->data + b->nbytes, src, nbytes);
    b->nbytes += nbytes;
}

/* The low nbytes of value, little-endian. */
static inline void put_integer(struct bytes *b, uint64_t value, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));
        put(b, &byte, 1);
    }
}

static inline void put_text(struct bytes *b, const char *text)
{
    put_integer(b, strlen(text), 8);
    put(b, text, strlen(text));
}

static inline void put_header(struct bytes *b, uint32_t version, uint64_t tensors, uint64_t entries)
{
    put(b, "GGUF", 4);
    put_integer(b, version, 4);
    put_integer(b, tensors, 8);
    put_integer(b, entries, 8);
}

static inline void put_key(struct bytes *b, const char *key, uint32_t type)
{
    put_text(b, key);
    put_integer(b, type, 4);
}

static inline void put_u32_entry(struct bytes *b, const char *key, uint32_t value)
{
    put_key(b, key, TCQ_GGUF_VALUE_U32);
    put_integer(b, value, 4);
}

static inline void put_f32_entry(struct bytes *b, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, key, TCQ_GGUF_VALUE_F32);
    put_integer(b, bits, 4);
}

static inline void put_text_entry(struct bytes *b, const char *key, const char *value)
{
    put_key(b, key, TCQ_GGUF_VALUE_STRING);
    put_text(b, value);
}

static inline void put_array_entry(struct bytes *b, const char *key, uint32_t type, uint64_t count)
{
    put_key(b, key, TCQ_GGUF_VALUE_ARRAY);
    put_integer(b, type, 4);
    put_integer(b, count, 8);
}

/* rows 0 makes a vector of cols elements. */
static inline void put_tensor(struct bytes *b, const char *name, uint32_t type, uint64_t rows,
                              uint64_t cols, uint64_t offset)
{
    put_text(b, name);
    put_integer(b, rows ? 2 : 1, 4);
    put_integer(b, cols, 8);
    if (rows)
        put_integer(b, rows, 8);
    put_integer(b, type, 4);
    put_integer(b, offset, 8);
}

static inline void put_padding(struct bytes *b, size_t alignment)
{
    while (b->nbytes % alignment)
        put_integer(b, 0, 1);
}

#endif
