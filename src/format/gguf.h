/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF files, versions 2 and 3: header, metadata and the table of tensors.
 *
 * The parser works on bytes in memory and trusts none of them: every count,
 * length and offset is compared with what the file has left before anything is
 * allocated, so a handle costs at most a small multiple of the file's size.
 * Texts are views into those bytes (not terminated) and live as long as they
 * do.  What the names mean is the business of gguf_names.h and above.
 */
#ifndef TCQ_FORMAT_GGUF_H
#define TCQ_FORMAT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/gguf_type.h"
#include "tcq.h"

#define TCQ_GGUF_RANK_MAX 4u

/* Bytes inside the file: valid UTF-8 for keys and tensor names, anything for
 * string values. */
struct tcq_gguf_text {
    const char *bytes;
    size_t nbytes;
};

/* The value types of metadata, as numbered in files. */
enum tcq_gguf_value_type {
    TCQ_GGUF_VALUE_U8 = 0,
    TCQ_GGUF_VALUE_I8,
    TCQ_GGUF_VALUE_U16,
    TCQ_GGUF_VALUE_I16,
    TCQ_GGUF_VALUE_U32,
    TCQ_GGUF_VALUE_I32,
    TCQ_GGUF_VALUE_F32,
    TCQ_GGUF_VALUE_BOOL,
    TCQ_GGUF_VALUE_STRING,
    TCQ_GGUF_VALUE_ARRAY,
    TCQ_GGUF_VALUE_U64,
    TCQ_GGUF_VALUE_I64,
    TCQ_GGUF_VALUE_F64,
    TCQ_GGUF_VALUE_COUNT
};

/* count values of one type, laid out as in the file. */
struct tcq_gguf_array {
    enum tcq_gguf_value_type type;
    uint64_t count;
    const uint8_t *data;
    size_t nbytes;
};

/* Numbers are widened: u for U8..U64 and BOOL, i for I8..I64, f for F32, F64. */
struct tcq_gguf_value {
    enum tcq_gguf_value_type type;
    union {
        uint64_t u;
        int64_t i;
        double f;
        struct tcq_gguf_text text;
        struct tcq_gguf_array array;
    } as;
};

struct tcq_gguf_entry {
    struct tcq_gguf_text key;
    struct tcq_gguf_value value;
};

struct tcq_gguf_tensor {
    struct tcq_gguf_text name;
    const struct tcq_gguf_type_info *type;
    uint32_t rank;
    uint64_t shape[TCQ_GGUF_RANK_MAX]; /* row-major: the reverse of the file's order */
    uint64_t count;
    uint64_t nbytes;
    uint64_t offset; /* from the start of the data section */
    const uint8_t *data;
};

struct tcq_gguf;

/* Parse nbytes at data, which must stay alive and unchanged until destroy.
 * label (copied) names the file in messages.  Errors: FORMAT, UNSUPPORTED (a
 * version, byte order or type that is not read; a Git LFS pointer), MEMORY. */
enum tcq_status tcq_gguf_parse(const uint8_t *data, size_t nbytes, const char *label,
                               struct tcq_gguf **out, struct tcq_error *error);
void tcq_gguf_destroy(struct tcq_gguf *gguf);

const char *tcq_gguf_label(const struct tcq_gguf *gguf);
uint32_t tcq_gguf_version(const struct tcq_gguf *gguf);
uint32_t tcq_gguf_alignment(const struct tcq_gguf *gguf);

/* Metadata and tensors in the file's order; NULL past the end. */
size_t tcq_gguf_entry_count(const struct tcq_gguf *gguf);
const struct tcq_gguf_entry *tcq_gguf_entry_get(const struct tcq_gguf *gguf, size_t i);
size_t tcq_gguf_tensor_count(const struct tcq_gguf *gguf);
const struct tcq_gguf_tensor *tcq_gguf_tensor_get(const struct tcq_gguf *gguf, size_t i);

/* By name; NULL where there is none. */
const struct tcq_gguf_value *tcq_gguf_find(const struct tcq_gguf *gguf, const char *key);
const struct tcq_gguf_tensor *tcq_gguf_tensor_find(const struct tcq_gguf *gguf, const char *name);

bool tcq_gguf_text_equal(struct tcq_gguf_text text, const char *other);
/* How much of a text to show in a message with "%.*s". */
int tcq_gguf_shown(struct tcq_gguf_text text);
/* A string value fit for a message: itself, or words in its place if it is not
 * printable UTF-8. */
struct tcq_gguf_text tcq_gguf_printable(struct tcq_gguf_text text);

/* Element i < count of an array of numbers or bools, widened; for strings and
 * arrays, which have no fixed size, use the walk below. */
struct tcq_gguf_value tcq_gguf_array_number(const struct tcq_gguf_array *array, uint64_t i);

/* A walk over an array of strings: start with *at = 0; false at the end. */
bool tcq_gguf_array_next_text(const struct tcq_gguf_array *array, size_t *at,
                              struct tcq_gguf_text *out);

#endif
