/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading a tokenizer from a GGUF file.  Byte-level ones go through the
 * tokenizer.json that the format layer makes; SentencePiece's BPE ("llama", with
 * scores in place of merges) is read here.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/gguf_tokenizer.h"
#include "model/tokenizer.h"

/* Token types as numbered in GGUF files. */
enum { TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4 };

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
        return tcq_tokenizer_set_written(tokenizer, id, text.bytes, text.nbytes, true, error);
    enum tcq_status status = tcq_vocabulary_set(&tokenizer->bpe.vocabulary, id, text.bytes,
                                                text.nbytes, false, error);
    struct tcq_added_token added = {.id = id, .special = type != TYPE_USER_DEFINED};
    return status ? status : tcq_tokenizer_add(tokenizer, added, error);
}

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
        if (tokenizer->bpe.sentencepiece)
            tokenizer->bpe.vocabulary.tokens[id].score =
                (float)tcq_gguf_array_number(scores, id).as.f;
    }
    return tcq_vocabulary_index(&tokenizer->bpe.vocabulary, error);
}

static enum tcq_status read_sentencepiece(struct tcq_tokenizer *tokenizer,
                                          const struct tcq_gguf *gguf, struct tcq_error *error)
{
    bool prefix = find_bool(gguf, "tokenizer.ggml.add_space_prefix", true);
    tokenizer->bpe.sentencepiece = true;
    tokenizer->marks = tokenizer->byte_fallback = true;
    tokenizer->strip_first_space = prefix;
    enum tcq_status status =
        tcq_tokenizer_normalize(tokenizer, TCQ_NORMALIZE_REPLACE, TCQ_SPACE_MARK,
                                strlen(TCQ_SPACE_MARK), true, " ", error);
    if (!status && prefix)
        status = tcq_tokenizer_normalize(tokenizer, TCQ_NORMALIZE_PREPEND, NULL, 0, false, " ", error);
    return status ? status : read_tokens(tokenizer, gguf, error);
}

/* Begin, end and end-of-turn tokens. */
static void read_special_ids(struct tcq_tokenizer *tokenizer, const struct tcq_gguf *gguf)
{
    uint32_t count = tokenizer->bpe.vocabulary.count;
    uint32_t begin = find_id(gguf, "tokenizer.ggml.bos_token_id");
    uint32_t end = find_id(gguf, "tokenizer.ggml.eos_token_id");
    uint32_t unknown = find_id(gguf, "tokenizer.ggml.unknown_token_id");
    if (begin < count && find_bool(gguf, "tokenizer.ggml.add_bos_token", true))
        tokenizer->before[tokenizer->before_count++] = begin;
    if (end < count && find_bool(gguf, "tokenizer.ggml.add_eos_token", false))
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
    bool sentencepiece = kind && kind->type == TCQ_GGUF_VALUE_STRING &&
                         tcq_gguf_text_equal(kind->as.text, "llama");
    enum tcq_status status = sentencepiece ? read_sentencepiece(tokenizer, gguf, error)
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
