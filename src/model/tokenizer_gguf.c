/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading a tokenizer from a GGUF file.  Byte-level ones go through the
 * tokenizer.json that the format layer makes; SentencePiece's models (BPE, called
 * "llama", and unigram, "t5"), which have scores in place of merges, are read here.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/gguf_tokenizer.h"
#include "model/tokenizer.h"

/* Token types as numbered in GGUF files. */
enum { TYPE_UNKNOWN = 2, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED };

static enum tcq_status missing(struct tcq_error *error, const char *key)
{
    return tcq_error_set(error, TCQ_ERROR_FORMAT, "metadata '%s' is missing or of the wrong type",
                         key);
}

static const struct tcq_gguf_array *find_array(const struct tcq_gguf *gguf, const char *key)
{
    const struct tcq_gguf_value *value = tcq_gguf_find(gguf, key);
    return value && value->type == TCQ_GGUF_VALUE_ARRAY ? &value->as.array : NULL;
}

static uint32_t find_id(const struct tcq_gguf *gguf, const char *key)
{
    const struct tcq_gguf_value *value = tcq_gguf_find(gguf, key);
    if (!value)
        return TCQ_NO_TOKEN;
    uint64_t id = value->type == TCQ_GGUF_VALUE_U32 || value->type == TCQ_GGUF_VALUE_U64 ||
                          value->type == TCQ_GGUF_VALUE_U16 || value->type == TCQ_GGUF_VALUE_U8
                      ? value->as.u
                      : value->type == TCQ_GGUF_VALUE_I32 && value->as.i >= 0
                            ? (uint64_t)value->as.i
                            : TCQ_NO_TOKEN;
    return id < TCQ_NO_TOKEN ? (uint32_t)id : TCQ_NO_TOKEN;
}

static bool find_bool(const struct tcq_gguf *gguf, const char *key, bool fallback)
{
    const struct tcq_gguf_value *value = tcq_gguf_find(gguf, key);
    return value && value->type == TCQ_GGUF_VALUE_BOOL ? value->as.u != 0 : fallback;
}

static int64_t number_at(const struct tcq_gguf_array *array, uint64_t i, int64_t fallback)
{
    if (!array || i >= array->count)
        return fallback;
    struct tcq_gguf_value value = tcq_gguf_array_number(array, i);
    return value.type == TCQ_GGUF_VALUE_I32 ? value.as.i
           : value.type == TCQ_GGUF_VALUE_U32 ? (int64_t)value.as.u
                                              : fallback;
}

/* One token: special and user-defined ones are cut out of texts as they are. */
static enum tcq_status read_token(struct tcq_tokenizer *tokenizer, uint32_t id,
                                  struct tcq_gguf_text text, int64_t type, struct tcq_error *error)
{
    if (type != TYPE_CONTROL && type != TYPE_USER_DEFINED && type != TYPE_UNKNOWN)
        return tcq_tokenizer_set_written(tokenizer, id, text.bytes, text.nbytes,
                                         type != TYPE_UNUSED, error);
    enum tcq_status status = tcq_vocabulary_set(&tokenizer->bpe.vocabulary, id, text.bytes,
                                                text.nbytes, false, error);
    struct tcq_added_token added = {.id = id, .special = type != TYPE_USER_DEFINED};
    return status ? status : tcq_tokenizer_add(tokenizer, added, error);
}

static void set_score(struct tcq_bpe *bpe, uint32_t id, float score)
{
    struct tcq_token *token = &bpe->vocabulary.tokens[id];
    token->score = score;
    if (!token->searchable)
        return;
    if (bpe->longest == 0 || score < bpe->least_score)
        bpe->least_score = score;
    if (token->nbytes > bpe->longest)
        bpe->longest = token->nbytes;
}

/* The search looks up every length at every character, so a long token would cost its square;
 * SentencePiece's own are 16 characters long. */
enum { PIECE_NBYTES_MAX = 256 };

static enum tcq_status read_tokens(struct tcq_tokenizer *tokenizer, const struct tcq_gguf *gguf,
                                   struct tcq_error *error)
{
    const struct tcq_gguf_array *tokens = find_array(gguf, "tokenizer.ggml.tokens");
    const struct tcq_gguf_array *types = find_array(gguf, "tokenizer.ggml.token_type");
    const struct tcq_gguf_array *scores = find_array(gguf, "tokenizer.ggml.scores");
    if (!tokens || tokens->type != TCQ_GGUF_VALUE_STRING || tokens->count >= TCQ_VOCABULARY_MAX)
        return missing(error, "tokenizer.ggml.tokens");
    if (tokenizer->bpe.sentencepiece &&
        (!scores || scores->type != TCQ_GGUF_VALUE_F32 || scores->count != tokens->count))
        return missing(error, "tokenizer.ggml.scores");
    size_t at = 0;
    struct tcq_gguf_text text;
    for (uint32_t id = 0; tcq_gguf_array_next_text(tokens, &at, &text); id++) {
        enum tcq_status status =
            read_token(tokenizer, id, text, number_at(types, id, 1), error);
        if (status)
            return status;
        if (tokenizer->bpe.unigram && text.nbytes > PIECE_NBYTES_MAX)
            return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                                 "tokenizer.ggml.tokens: token %u has %llu bytes: at most %d", id,
                                 (unsigned long long)text.nbytes, PIECE_NBYTES_MAX);
        if (tokenizer->bpe.sentencepiece)
            set_score(&tokenizer->bpe, id, (float)tcq_gguf_array_number(scores, id).as.f);
    }
    return tcq_vocabulary_index(&tokenizer->bpe.vocabulary, error);
}

static enum tcq_status read_charsmap(struct tcq_tokenizer *tokenizer, const struct tcq_gguf *gguf,
                                     struct tcq_error *error)
{
    const struct tcq_gguf_array *map = find_array(gguf, "tokenizer.ggml.precompiled_charsmap");
    if (!map || map->count == 0)
        return TCQ_OK;
    if (map->type != TCQ_GGUF_VALUE_U8 && map->type != TCQ_GGUF_VALUE_I8)
        return missing(error, "tokenizer.ggml.precompiled_charsmap");
    enum tcq_status status =
        tcq_tokenizer_normalize(tokenizer, TCQ_NORMALIZE_CHARSMAP, NULL, 0, false, NULL, error);
    struct tcq_pretokenizer *steps = &tokenizer->pretokenizer;
    return status ? status
                  : tcq_charsmap_create(map->data, map->nbytes,
                                        &steps->normalize[steps->normalize_count - 1].charsmap,
                                        error);
}

/* What SentencePiece does to a text, in its order: begin with a space, map
 * characters, drop spaces that are too many, read its mark for a space as one.
 * Where it drops spaces, the one at the beginning is not for an empty rest. */
static enum tcq_status read_steps(struct tcq_tokenizer *tokenizer, const struct tcq_gguf *gguf,
                                  bool prefix, bool fewer_spaces, struct tcq_error *error)
{
    const struct {
        bool wanted, literal;
        enum tcq_normalize_kind kind;
        const char *pattern, *text;
    } steps[] = {{prefix && !fewer_spaces, false, TCQ_NORMALIZE_PREPEND, NULL, " "},
                 {true, false, TCQ_NORMALIZE_CHARSMAP, NULL, NULL},
                 {fewer_spaces, false, TCQ_NORMALIZE_REPLACE, "\\A +", ""},
                 {fewer_spaces, false, TCQ_NORMALIZE_REPLACE, " {2,}", " "},
                 {true, true, TCQ_NORMALIZE_REPLACE, TCQ_SPACE_MARK, " "},
                 {fewer_spaces, false, TCQ_NORMALIZE_REPLACE, " +\\z", ""},
                 {prefix && fewer_spaces, false, TCQ_NORMALIZE_PREPEND, NULL, " "}};
    enum tcq_status status = TCQ_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !status; i++) {
        const char *pattern = steps[i].pattern;
        if (steps[i].kind == TCQ_NORMALIZE_CHARSMAP)
            status = read_charsmap(tokenizer, gguf, error);
        else if (steps[i].wanted)
            status = tcq_tokenizer_normalize(tokenizer, steps[i].kind, pattern,
                                             pattern ? strlen(pattern) : 0, steps[i].literal,
                                             steps[i].text, error);
    }
    return status;
}

static enum tcq_status read_sentencepiece(struct tcq_tokenizer *tokenizer,
                                          const struct tcq_gguf *gguf, bool unigram,
                                          struct tcq_error *error)
{
    bool prefix = find_bool(gguf, "tokenizer.ggml.add_space_prefix", true);
    bool fewer = find_bool(gguf, "tokenizer.ggml.remove_extra_whitespaces", false);
    tokenizer->bpe.sentencepiece = true;
    tokenizer->bpe.unigram = unigram;
    tokenizer->bpe.fuse_unknown = true;
    tokenizer->marks = tokenizer->byte_fallback = true;
    tokenizer->strip_first_space = prefix || fewer;
    enum tcq_status status = read_steps(tokenizer, gguf, prefix, fewer, error);
    return status ? status : read_tokens(tokenizer, gguf, error);
}

/* Begin and end tokens; where the file does not say, a text begins with one in
 * models for chat, and ends with one in T5. */
static void read_special_ids(struct tcq_tokenizer *tokenizer, const struct tcq_gguf *gguf)
{
    uint32_t count = tokenizer->bpe.vocabulary.count;
    bool unigram = tokenizer->bpe.unigram;
    uint32_t begin = find_id(gguf, "tokenizer.ggml.bos_token_id");
    uint32_t end = find_id(gguf, "tokenizer.ggml.eos_token_id");
    uint32_t unknown = find_id(gguf, "tokenizer.ggml.unknown_token_id");
    if (begin < count && find_bool(gguf, "tokenizer.ggml.add_bos_token", !unigram))
        tokenizer->before[tokenizer->before_count++] = begin;
    if (end < count && find_bool(gguf, "tokenizer.ggml.add_eos_token", unigram))
        tokenizer->after[tokenizer->after_count++] = end;
    tokenizer->bpe.unknown = unknown < count ? unknown : TCQ_NO_TOKEN;
    tcq_tokenizer_add_end(tokenizer, end);
}

static enum tcq_status read_byte_level(struct tcq_tokenizer *tokenizer,
                                       const struct tcq_gguf_model *model, struct tcq_error *error)
{
    json_t *made = NULL, *config = NULL;
    enum tcq_status status = tcq_gguf_tokenizer_make(model, &made, &config, error);
    if (status)
        return status;
    status = tcq_tokenizer_from_json(tokenizer, made, error);
    json_decref(made);
    json_decref(config);
    return status;
}

static enum tcq_status read_model(struct tcq_tokenizer *tokenizer,
                                  const struct tcq_gguf_model *model, struct tcq_error *error)
{
    const struct tcq_gguf *gguf = tcq_gguf_model_file(model);
    const struct tcq_gguf_value *kind = tcq_gguf_find(gguf, "tokenizer.ggml.model");
    bool named = kind && kind->type == TCQ_GGUF_VALUE_STRING;
    bool unigram = named && tcq_gguf_text_equal(kind->as.text, "t5");
    bool sentencepiece = unigram || (named && tcq_gguf_text_equal(kind->as.text, "llama"));
    enum tcq_status status = sentencepiece ? read_sentencepiece(tokenizer, gguf, unigram, error)
                                           : read_byte_level(tokenizer, model, error);
    if (!status && sentencepiece)
        read_special_ids(tokenizer, gguf);
    json_t *config = NULL;
    if (!status)
        status = tcq_gguf_tokenizer_config_make(model, &config, error);
    if (!status)
        status = tcq_tokenizer_read_config(tokenizer, config, error);
    json_decref(config);
    if (!status)
        tcq_tokenizer_add_end(tokenizer, find_id(gguf, "tokenizer.ggml.eot_token_id"));
    return status;
}

enum tcq_status tcq_tokenizer_from_gguf(struct tcq_tokenizer *tokenizer, const uint8_t *data,
                                        size_t nbytes, const char *label, struct tcq_error *error)
{
    struct tcq_gguf_model *model = NULL;
    enum tcq_status status = tcq_gguf_model_create(data, nbytes, label, &model, error);
    if (!status)
        status = read_model(tokenizer, model, error);
    tcq_gguf_model_destroy(model);
    return status;
}
