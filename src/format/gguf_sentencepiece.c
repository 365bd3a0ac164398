/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece's BPE, which has a score for every token, as tokenizer.json,
 * which has a list of merges: every way to cut a token into two is a merge, and
 * the token with the highest score comes first.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "format/gguf_config.h"
#include "format/gguf_maker.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */

/* SentencePiece's own limit is 16 characters, or as many spaces; this bounds
 * what a hostile file can cost. */
enum { TOKEN_NBYTES_MAX = 256 };

struct merge {
    struct tcq_gguf_text token;
    uint32_t order; /* the highest score is 0 */
    uint32_t left;  /* bytes of its left part */
};

struct merges {
    struct merge *list;
    size_t count, capacity;
};

/* Unsigned order of scores, whatever their bits: the highest first. */
static uint32_t score_order(float score)
{
    uint32_t bits = tcq_float_bits(score);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

/* Between equals the longer left part first: merging from the left makes it. */
static int compare_merges(const void *left, const void *right)
{
    const struct merge *a = left, *b = right;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    if (a->left != b->left)
        return a->left > b->left ? -1 : 1;
    return a->token.bytes < b->token.bytes ? -1 : a->token.bytes > b->token.bytes;
}

static bool append(struct merges *merges, struct merge merge)
{
    if (merges->count == merges->capacity) {
        size_t capacity = merges->capacity ? 2 * merges->capacity : 1024;
        void *list = tcq_realloc(merges->list, merges->count, capacity, sizeof *merges->list);
        if (list == NULL)
            return false;
        merges->list = list;
        merges->capacity = capacity;
    }
    merges->list[merges->count++] = merge;
    return true;
}

/* Can merging make this text, or is it one character? */
static bool is_part(const struct tcq_gguf_maker *maker, const char *bytes, size_t nbytes)
{
    const json_t *id = json_object_getn(maker->vocab, bytes, nbytes);
    return id != NULL && tcq_gguf_array_number(maker->types, (uint64_t)json_integer_value(id)).as.i ==
                             TCQ_GGUF_TOKEN_NORMAL;
}

/* Every cut between two characters. */
static enum tcq_status cut_token(const struct tcq_gguf_maker *maker, struct merges *merges,
                                 uint64_t id, struct tcq_gguf_text token, float score)
{
    if (token.nbytes > TOKEN_NBYTES_MAX)
        return tcq_error_set(maker->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: the tokenizer is not carried over: token %" PRIu64
                             " has %zu bytes (at most %d expected)",
                             tcq_gguf_label(maker->file), id, token.nbytes, TOKEN_NBYTES_MAX);
    for (size_t left = 1; left < token.nbytes; left++)
        if (((uint8_t)token.bytes[left] & 0xc0) != 0x80 && is_part(maker, token.bytes, left) &&
            is_part(maker, token.bytes + left, token.nbytes - left) &&
            !append(merges, (struct merge){token, score_order(score), (uint32_t)left}))
            return tcq_gguf_maker_memory(maker);
    return TCQ_OK;
}

static enum tcq_status find_merges(const struct tcq_gguf_maker *maker, struct merges *merges)
{
    const struct tcq_gguf_array *scores = NULL;
    struct tcq_gguf_text text;
    size_t at = 0;
    enum tcq_status status =
        tcq_gguf_maker_array(maker, "tokenizer.ggml.scores", TCQ_GGUF_VALUE_F32, &scores);
    if (status == TCQ_OK && scores->count != maker->tokens->count)
        status = tcq_error_set(maker->error, TCQ_ERROR_FORMAT,
                               "%s: %" PRIu64 " scores for %" PRIu64 " tokens",
                               tcq_gguf_label(maker->file), scores->count, maker->tokens->count);
    for (uint64_t id = 0; status == TCQ_OK && tcq_gguf_array_next_text(maker->tokens, &at, &text);
         id++)
        if (tcq_gguf_array_number(maker->types, id).as.i == TCQ_GGUF_TOKEN_NORMAL)
            status = cut_token(maker, merges, id, text,
                               (float)tcq_gguf_array_number(scores, id).as.f);
    if (status == TCQ_OK && merges->count)
        qsort(merges->list, merges->count, sizeof *merges->list, compare_merges);
    return status;
}

/* Pairs, not lines: a token may hold a space. */
static json_t *write_merges(const struct merges *merges)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < merges->count; i++) {
        const struct merge *m = &merges->list[i];
        json_t *pair = json_pack("[s%, s%]", m->token.bytes, (size_t)m->left,
                                 m->token.bytes + m->left, m->token.nbytes - m->left);
        if (json_array_append_new(list, pair) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static bool has_bytes(const struct tcq_gguf_maker *maker)
{
    for (uint64_t id = 0; id < maker->types->count; id++)
        if (tcq_gguf_array_number(maker->types, id).as.i == TCQ_GGUF_TOKEN_BYTE)
            return true;
    return false;
}

static json_t *normalizer(bool prefix)
{
    json_t *marks = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ",
                              "content", SPACE_MARK);
    if (!prefix)
        return marks;
    return json_pack("{s:s, s:[{s:s, s:s}, o]}", "type", "Sequence", "normalizers", "type",
                     "Prepend", "prepend", SPACE_MARK, marks);
}

/* The last step drops the space that the prefix became. */
static json_t *decoder(bool prefix)
{
    json_t *steps = json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern",
                              "String", SPACE_MARK, "content", " ", "type", "ByteFallback", "type",
                              "Fuse");
    if (prefix && json_array_append_new(steps, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip",
                                                         "content", " ", "start", 1, "stop", 0))) {
        json_decref(steps);
        steps = NULL;
    }
    return json_pack("{s:s, s:o}", "type", "Sequence", "decoders", steps);
}

static json_t *unknown_token(const struct tcq_gguf_maker *maker)
{
    uint32_t id = 0;
    struct tcq_gguf_text text;
    if (!tcq_gguf_token_id(maker->model, "unknown", &id) ||
        !tcq_gguf_token_text(maker->model, id, &text))
        return json_null();
    return json_stringn(text.bytes, text.nbytes);
}

static enum tcq_status assemble(const struct tcq_gguf_maker *maker, const struct merges *merges,
                                json_t **out)
{
    bool prefix = tcq_gguf_maker_flag(maker, "tokenizer.ggml.add_space_prefix", true);
    json_t *bpe = json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:O, s:o}", "type", "BPE",
                            "dropout", "unk_token", unknown_token(maker),
                            "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 1,
                            "byte_fallback", (int)has_bytes(maker), "ignore_merges", 0, "vocab",
                            maker->vocab, "merges", write_merges(merges));
    json_t *tokenizer =
        json_pack("{s:s, s:n, s:n, s:o, s:o, s:n, s:o, s:o, s:o}", "version", "1.0", "truncation",
                  "padding", "added_tokens", tcq_gguf_maker_added(maker), "normalizer",
                  normalizer(prefix), "pre_tokenizer", "post_processor",
                  tcq_gguf_maker_template(maker), "decoder", decoder(prefix), "model", bpe);
    if (tokenizer == NULL)
        return tcq_gguf_maker_memory(maker);
    *out = tokenizer;
    return TCQ_OK;
}

enum tcq_status tcq_gguf_sentencepiece_make(struct tcq_gguf_maker *maker, json_t **out)
{
    struct merges merges = {0};
    maker->begins_text = true;
    enum tcq_status status = tcq_gguf_maker_tokens(maker);
    if (status == TCQ_OK)
        status = tcq_gguf_maker_vocab(maker);
    if (status == TCQ_OK)
        status = find_merges(maker, &merges);
    if (status == TCQ_OK)
        status = assemble(maker, &merges, out);
    tcq_free(merges.list);
    return status;
}
