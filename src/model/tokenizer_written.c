/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How tokenizer files write bytes: GPT-2's alphabet of printable characters for
 * byte-level models; space marks and "<0x0A>" for SentencePiece's.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer.h"
#include "model/utf8.h"

/* Bytes that are printable in Latin-1 stand for themselves; the other 68, in
 * order (0..32, 127..160 and 173), are U+0100, U+0101, ... */
static bool is_printable(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
           (byte >= 0xae && byte <= 0xff);
}

/* The byte of a character, or -1. */
static int alphabet_byte(uint32_t code)
{
    if (code < 0x100)
        return is_printable(code) ? (int)code : -1;
    uint32_t rank = code - 0x100;
    return rank <= 32 ? (int)rank : rank <= 66 ? (int)(rank - 33 + 127) : rank == 67 ? 173 : -1;
}

bool tcq_byte_alphabet_decode(struct tcq_bytes *out, const char *text, size_t nbytes,
                              bool *no_memory)
{
    size_t before = out->count;
    for (size_t at = 0; at < nbytes;) {
        uint32_t code = 0;
        size_t length = tcq_utf8_decode((const uint8_t *)text + at, nbytes - at, &code);
        int byte = length ? alphabet_byte(code) : -1;
        char c = (char)byte;
        if (byte < 0 || !tcq_bytes_append(out, &c, 1)) {
            *no_memory = byte >= 0;
            out->count = before;
            return false;
        }
        at += length;
    }
    return true;
}

/* Append text with space marks as spaces; false when memory runs out. */
static bool unmark(const struct tcq_tokenizer *tokenizer, struct tcq_bytes *out, const char *text,
                   size_t nbytes)
{
    static const size_t length = sizeof TCQ_SPACE_MARK - 1;
    bool ok = true;
    for (size_t at = 0; at < nbytes && ok;) {
        bool mark = tokenizer->marks && nbytes - at >= length &&
                    memcmp(text + at, TCQ_SPACE_MARK, length) == 0;
        ok = tcq_bytes_append(out, mark ? " " : text + at, 1);
        at += mark ? length : 1;
    }
    return ok;
}

/* "<0x0A>" is the byte 10. */
static int byte_token(const char *text, size_t nbytes)
{
    unsigned byte = 0;
    if (nbytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    for (size_t i = 3; i < 5; i++) {
        char c = text[i];
        if (c >= '0' && c <= '9')
            byte = byte * 16 + (unsigned)(c - '0');
        else if (c >= 'A' && c <= 'F')
            byte = byte * 16 + (unsigned)(c - 'A') + 10;
        else
            return -1;
    }
    return (int)byte;
}

enum tcq_status tcq_tokenizer_set_written(struct tcq_tokenizer *tokenizer, uint32_t id,
                                          const char *text, size_t nbytes, bool plain,
                                          struct tcq_error *error)
{
    struct tcq_vocabulary *vocabulary = &tokenizer->bpe.vocabulary;
    struct tcq_bytes bytes = {0};
    if (!tokenizer->bpe.byte_level) {
        int byte = byte_token(text, nbytes);
        if (byte >= 0 && tokenizer->byte_fallback) {
            char c = (char)byte;
            enum tcq_status status = tcq_vocabulary_set(vocabulary, id, &c, 1, false, error);
            tokenizer->bpe.bytes[byte] = status ? TCQ_NO_TOKEN : id;
            return status;
        }
        if (!unmark(tokenizer, &bytes, text, nbytes))
            return tcq_error_memory(error, nbytes, "a token");
        enum tcq_status status =
            tcq_vocabulary_set(vocabulary, id, bytes.data, bytes.count, plain, error);
        tcq_bytes_free(&bytes);
        return status;
    }
    bool no_memory = false;
    bool translated = tcq_byte_alphabet_decode(&bytes, text, nbytes, &no_memory);
    enum tcq_status status =
        no_memory ? tcq_error_memory(error, nbytes, "a token")
        : translated
            ? tcq_vocabulary_set(vocabulary, id, bytes.data, bytes.count, plain, error)
            : tcq_vocabulary_set(vocabulary, id, text, nbytes, false, error);
    if (!status && translated && plain && bytes.count == 1)
        tokenizer->bpe.bytes[(uint8_t)bytes.data[0]] = id;
    tcq_bytes_free(&bytes);
    return status;
}

/* One side of a merge to the bytes that the vocabulary has. */
static bool translate(const struct tcq_tokenizer *tokenizer, struct tcq_bytes *out,
                      const char *text, size_t nbytes, bool *no_memory)
{
    if (tokenizer->bpe.byte_level)
        return tcq_byte_alphabet_decode(out, text, nbytes, no_memory);
    *no_memory = !unmark(tokenizer, out, text, nbytes);
    return !*no_memory;
}

enum tcq_status tcq_tokenizer_merge_written(struct tcq_tokenizer *tokenizer, uint32_t rank,
                                            const char *left, size_t left_nbytes,
                                            const char *right, size_t right_nbytes,
                                            struct tcq_error *error)
{
    struct tcq_bytes a = {0}, b = {0};
    bool no_memory = false;
    enum tcq_status status;
    if (translate(tokenizer, &a, left, left_nbytes, &no_memory) &&
        translate(tokenizer, &b, right, right_nbytes, &no_memory))
        status = tcq_bpe_merges_add(&tokenizer->bpe, rank, a.data, a.count, b.data, b.count, error);
    else
        status = no_memory ? tcq_error_memory(error, left_nbytes + right_nbytes, "a merge")
                           : tcq_error_set(error, TCQ_ERROR_FORMAT,
                                           "merge %u: not in the byte alphabet", rank);
    tcq_bytes_free(&a);
    tcq_bytes_free(&b);
    return status;
}

enum tcq_status tcq_tokenizer_merge_line(struct tcq_tokenizer *tokenizer, uint32_t rank,
                                         const char *line, size_t nbytes, struct tcq_error *error)
{
    /* Tokens hold no space in either alphabet, so the only one is the separator. */
    const char *space = nbytes > 1 ? memchr(line + 1, ' ', nbytes - 1) : NULL;
    if (!space)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "merge %u: expected two tokens", rank);
    size_t left = (size_t)(space - line);
    return tcq_tokenizer_merge_written(tokenizer, rank, line, left, space + 1, nbytes - left - 1,
                                       error);
}
