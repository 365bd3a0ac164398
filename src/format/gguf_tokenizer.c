/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF's tokenizer metadata to tokenizer.json: byte-level BPE, and what every
 * kind shares.
 */
#include "format/gguf_tokenizer.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/gguf_config.h"
#include "format/gguf_maker.h"

/* How text is cut into words before BPE, by tokenizer.ggml.pre. */
enum cut { CUT_GPT2, CUT_DIGITS, CUT_PATTERN };

struct pre_tokenizer {
    const char *name;
    enum cut cut;
    const char *pattern;
    bool composes;    /* Unicode normalization form C */
    bool whole_words; /* a word that is a token is taken as it is, merges or not */
    bool begins_text; /* where the file does not say: a text begins with bos */
};

/* The patterns are the published ones of the models named. */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3_PATTERN CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST
#define QWEN2_PATTERN CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" REST
#define TEKKEN_PATTERN                                                                           \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|" \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|" \
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct pre_tokenizer pre_tokenizers[] = {
    {"gpt-2", CUT_GPT2, NULL, false, false, false},
    {"smollm", CUT_DIGITS, NULL, false, false, false},
    {"starcoder", CUT_DIGITS, NULL, false, false, false},
    {"refact", CUT_DIGITS, NULL, false, false, false},
    {"llama-bpe", CUT_PATTERN, LLAMA3_PATTERN, false, true, true},
    {"llama3", CUT_PATTERN, LLAMA3_PATTERN, false, true, true},
    {"llama-v3", CUT_PATTERN, LLAMA3_PATTERN, false, true, true},
    {"qwen2", CUT_PATTERN, QWEN2_PATTERN, true, false, false},
    {"deepseek-r1-qwen", CUT_PATTERN, QWEN2_PATTERN, false, false, true},
    {"tekken", CUT_PATTERN, TEKKEN_PATTERN, false, true, true},
};

enum tcq_status tcq_gguf_maker_memory(const struct tcq_gguf_maker *maker)
{
    return tcq_error_set(maker->error, TCQ_ERROR_MEMORY, "%s: out of memory for the tokenizer",
                         tcq_gguf_label(maker->file));
}

/* ------------------------------------------------------------------------ */
/* What the file has                                                         */
/* ------------------------------------------------------------------------ */

enum tcq_status tcq_gguf_maker_array(const struct tcq_gguf_maker *maker, const char *key,
                                     enum tcq_gguf_value_type type,
                                     const struct tcq_gguf_array **out)
{
    const struct tcq_gguf_value *value = tcq_gguf_find(maker->file, key);
    if (value == NULL || value->type != TCQ_GGUF_VALUE_ARRAY || value->as.array.type != type)
        return tcq_error_set(maker->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: the tokenizer is not carried over: metadata '%s' is missing or "
                             "of another type",
                             tcq_gguf_label(maker->file), key);
    *out = &value->as.array;
    return TCQ_OK;
}

/* A string of the metadata for a message; "none" where there is none. */
static struct tcq_gguf_text find_text(const struct tcq_gguf *file, const char *key)
{
    const struct tcq_gguf_value *value = tcq_gguf_find(file, key);
    if (value == NULL || value->type != TCQ_GGUF_VALUE_STRING)
        return (struct tcq_gguf_text){"none", 4};
    return tcq_gguf_printable(value->as.text);
}

static enum tcq_status find_pre_tokenizer(const struct tcq_gguf_maker *maker,
                                          const struct pre_tokenizer **out)
{
    struct tcq_gguf_text kind = find_text(maker->file, "tokenizer.ggml.model");
    struct tcq_gguf_text pre = find_text(maker->file, "tokenizer.ggml.pre");
    if (!tcq_gguf_text_equal(kind, "gpt2"))
        return tcq_error_set(maker->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: the tokenizer is not carried over: its kind is '%.*s' ('gpt2', "
                             "byte-level BPE, or 'llama', SentencePiece's, expected)",
                             tcq_gguf_label(maker->file), tcq_gguf_shown(kind), kind.bytes);
    for (size_t i = 0; i < sizeof pre_tokenizers / sizeof *pre_tokenizers; i++) {
        if (tcq_gguf_text_equal(pre, pre_tokenizers[i].name)) {
            *out = &pre_tokenizers[i];
            return TCQ_OK;
        }
    }
    return tcq_error_set(maker->error, TCQ_ERROR_UNSUPPORTED,
                         "%s: the tokenizer is not carried over: pre-tokenizer '%.*s' (gpt-2, "
                         "smollm, starcoder, refact, llama-bpe, qwen2, deepseek-r1-qwen or tekken "
                         "expected)",
                         tcq_gguf_label(maker->file), tcq_gguf_shown(pre), pre.bytes);
}

enum tcq_status tcq_gguf_maker_tokens(struct tcq_gguf_maker *maker)
{
    enum tcq_status status = tcq_gguf_maker_array(maker, "tokenizer.ggml.tokens",
                                                  TCQ_GGUF_VALUE_STRING, &maker->tokens);
    if (status == TCQ_OK)
        status = tcq_gguf_maker_array(maker, "tokenizer.ggml.token_type", TCQ_GGUF_VALUE_I32,
                                      &maker->types);
    if (status != TCQ_OK)
        return status;
    uint32_t vocab = tcq_gguf_model_settings(maker->model)->vocab;
    if (maker->tokens->count > vocab || maker->types->count != maker->tokens->count)
        return tcq_error_set(maker->error, TCQ_ERROR_FORMAT,
                             "%s: %" PRIu64 " tokens and %" PRIu64
                             " token types for an embedding of %" PRIu32 " rows",
                             tcq_gguf_label(maker->file), maker->tokens->count, maker->types->count,
                             vocab);
    return TCQ_OK;
}

bool tcq_gguf_token_text(const struct tcq_gguf_model *model, uint32_t id, struct tcq_gguf_text *out)
{
    const struct tcq_gguf_value *value =
        tcq_gguf_find(tcq_gguf_model_file(model), "tokenizer.ggml.tokens");
    size_t at = 0;
    if (value == NULL || value->type != TCQ_GGUF_VALUE_ARRAY ||
        value->as.array.type != TCQ_GGUF_VALUE_STRING)
        return false;
    for (uint64_t i = 0; i <= id; i++)
        if (!tcq_gguf_array_next_text(&value->as.array, &at, out))
            return false;
    return tcq_text_is_utf8(out->bytes, out->nbytes);
}

/* ------------------------------------------------------------------------ */
/* Vocabulary, merges, added tokens                                          */
/* ------------------------------------------------------------------------ */

static enum tcq_status add_token(struct tcq_gguf_maker *maker, uint64_t id, struct tcq_gguf_text text)
{
    const json_t *other = json_object_getn(maker->vocab, text.bytes, text.nbytes);
    if (!tcq_text_is_utf8(text.bytes, text.nbytes) || memchr(text.bytes, 0, text.nbytes) != NULL)
        return tcq_error_set(maker->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: the tokenizer is not carried over: token %" PRIu64
                             " is not UTF-8 text",
                             tcq_gguf_label(maker->file), id);
    if (other != NULL)
        return tcq_error_set(maker->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: the tokenizer is not carried over: tokens %" JSON_INTEGER_FORMAT
                             " and %" PRIu64 " are the same text",
                             tcq_gguf_label(maker->file), json_integer_value(other), id);
    if (json_object_setn_new(maker->vocab, text.bytes, text.nbytes, json_integer((json_int_t)id)) !=
        0)
        return tcq_gguf_maker_memory(maker);
    return TCQ_OK;
}

/* All tokens but those that only pad the embedding to a round size. */
enum tcq_status tcq_gguf_maker_vocab(struct tcq_gguf_maker *maker)
{
    struct tcq_gguf_text text;
    size_t at = 0;
    maker->vocab = json_object();
    enum tcq_status status = maker->vocab ? TCQ_OK : tcq_gguf_maker_memory(maker);
    for (uint64_t id = 0; status == TCQ_OK && tcq_gguf_array_next_text(maker->tokens, &at, &text);
         id++)
        if (tcq_gguf_array_number(maker->types, id).as.i != TCQ_GGUF_TOKEN_UNUSED)
            status = add_token(maker, id, text);
    return status;
}

static json_t *added_token(uint64_t id, struct tcq_gguf_text text, bool special)
{
    return json_pack("{s:I, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content",
                     text.bytes, text.nbytes, "single_word", 0, "lstrip", 0, "rstrip", 0,
                     "normalized", 0, "special", (int)special);
}

/* Tokens that are found in a text before it is cut into words. */
json_t *tcq_gguf_maker_added(const struct tcq_gguf_maker *maker)
{
    json_t *list = json_array();
    struct tcq_gguf_text text;
    size_t at = 0;
    for (uint64_t id = 0; list && tcq_gguf_array_next_text(maker->tokens, &at, &text); id++) {
        int64_t type = tcq_gguf_array_number(maker->types, id).as.i;
        if (type != TCQ_GGUF_TOKEN_UNKNOWN && type != TCQ_GGUF_TOKEN_CONTROL &&
            type != TCQ_GGUF_TOKEN_USER_DEFINED)
            continue;
        bool special = type != TCQ_GGUF_TOKEN_USER_DEFINED;
        if (json_array_append_new(list, added_token(id, text, special)) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static bool in_vocab(const struct tcq_gguf_maker *maker, const char *bytes, size_t nbytes)
{
    return json_object_getn(maker->vocab, bytes, nbytes) != NULL;
}

/* "left right": both, and both joined, are tokens.  `joined` holds nbytes. */
static bool merge_is_valid(const struct tcq_gguf_maker *maker, struct tcq_gguf_text merge, char *joined)
{
    const char *space = merge.nbytes > 1 ? memchr(merge.bytes + 1, ' ', merge.nbytes - 1) : NULL;
    if (space == NULL)
        return false;
    size_t left = (size_t)(space - merge.bytes), right = merge.nbytes - left - 1;
    memcpy(joined, merge.bytes, left);
    memcpy(joined + left, space + 1, right);
    return in_vocab(maker, merge.bytes, left) && in_vocab(maker, space + 1, right) &&
           in_vocab(maker, joined, left + right);
}

static enum tcq_status fill_merges(const struct tcq_gguf_maker *maker,
                                   const struct tcq_gguf_array *merges, json_t *list, char *joined)
{
    struct tcq_gguf_text text;
    size_t at = 0;
    for (uint64_t i = 0; tcq_gguf_array_next_text(merges, &at, &text); i++) {
        if (!merge_is_valid(maker, text, joined))
            return tcq_error_set(maker->error, TCQ_ERROR_UNSUPPORTED,
                                 "%s: the tokenizer is not carried over: merge %" PRIu64
                                 " does not join two tokens to a third",
                                 tcq_gguf_label(maker->file), i);
        if (json_array_append_new(list, json_stringn(text.bytes, text.nbytes)) != 0)
            return tcq_gguf_maker_memory(maker);
    }
    return TCQ_OK;
}

static size_t longest(const struct tcq_gguf_array *texts)
{
    struct tcq_gguf_text text;
    size_t at = 0, most = 0;
    while (tcq_gguf_array_next_text(texts, &at, &text))
        most = text.nbytes > most ? text.nbytes : most;
    return most;
}

/* ------------------------------------------------------------------------ */
/* The stages of tokenizer.json                                              */
/* ------------------------------------------------------------------------ */

static json_t *byte_level(bool prefix_space, bool trim, bool cuts)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space",
                     (int)prefix_space, "trim_offsets", (int)trim, "use_regex", (int)cuts);
}

bool tcq_gguf_maker_flag(const struct tcq_gguf_maker *maker, const char *key, bool fallback)
{
    const struct tcq_gguf_value *value = tcq_gguf_find(maker->file, key);
    return value != NULL && value->type == TCQ_GGUF_VALUE_BOOL ? value->as.u != 0 : fallback;
}

static json_t *pre_tokenizer(const struct tcq_gguf_maker *maker, const struct pre_tokenizer *pre)
{
    bool prefix = tcq_gguf_maker_flag(maker, "tokenizer.ggml.add_space_prefix", false);
    json_t *bytes = byte_level(prefix, true, pre->cut != CUT_PATTERN);
    json_t *first = NULL;
    if (pre->cut == CUT_GPT2)
        return bytes;
    if (pre->cut == CUT_DIGITS)
        first = json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1);
    else
        first = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                          pre->pattern, "behavior", "Isolated", "invert", 0);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", first, bytes);
}

/* bos before and eos after each text, as far as asked for and known. */
struct ends {
    bool has_bos, has_eos;
    uint32_t bos, eos;
    struct tcq_gguf_text bos_text, eos_text;
};

static struct ends find_ends(const struct tcq_gguf_maker *maker)
{
    struct ends ends = {0};
    ends.has_bos = tcq_gguf_maker_flag(maker, "tokenizer.ggml.add_bos_token", maker->begins_text) &&
                   tcq_gguf_token_id(maker->model, "bos", &ends.bos) &&
                   tcq_gguf_token_text(maker->model, ends.bos, &ends.bos_text);
    ends.has_eos = tcq_gguf_maker_flag(maker, "tokenizer.ggml.add_eos_token", false) &&
                   tcq_gguf_token_id(maker->model, "eos", &ends.eos) &&
                   tcq_gguf_token_text(maker->model, ends.eos, &ends.eos_text);
    return ends;
}

static int append_special(json_t *list, struct tcq_gguf_text text, int sequence)
{
    return json_array_append_new(list, json_pack("{s:{s:s%, s:i}}", "SpecialToken", "id",
                                                 text.bytes, text.nbytes, "type_id", sequence));
}

/* Sequences 0 ("A") to last ("B" is 1), each between its ends. */
static json_t *template_list(const struct ends *ends, int last)
{
    json_t *list = json_array();
    int failed = list == NULL;
    for (int i = 0; i <= last && !failed; i++) {
        if (ends->has_bos)
            failed |= append_special(list, ends->bos_text, i);
        failed |= json_array_append_new(
            list, json_pack("{s:{s:s, s:i}}", "Sequence", "id", i ? "B" : "A", "type_id", i));
        if (ends->has_eos)
            failed |= append_special(list, ends->eos_text, i);
    }
    if (failed)
        json_decref(list);
    return failed ? NULL : list;
}

static int add_special(json_t *map, uint32_t id, struct tcq_gguf_text text)
{
    json_t *token = json_pack("{s:s%, s:[i], s:[s%]}", "id", text.bytes, text.nbytes, "ids",
                              (int)id, "tokens", text.bytes, text.nbytes);
    return json_object_setn_new(map, text.bytes, text.nbytes, token);
}

json_t *tcq_gguf_maker_template(const struct tcq_gguf_maker *maker)
{
    struct ends ends = find_ends(maker);
    if (!ends.has_bos && !ends.has_eos)
        return json_null();
    json_t *map = json_object();
    int failed = map == NULL;
    if (!failed && ends.has_bos)
        failed |= add_special(map, ends.bos, ends.bos_text);
    if (!failed && ends.has_eos)
        failed |= add_special(map, ends.eos, ends.eos_text);
    if (failed) {
        json_decref(map);
        map = NULL;
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single",
                     template_list(&ends, 0), "pair", template_list(&ends, 1), "special_tokens",
                     map);
}

static json_t *post_processor(const struct tcq_gguf_maker *maker)
{
    json_t *bytes = byte_level(true, false, true), *template = tcq_gguf_maker_template(maker);
    return json_is_null(template) ? bytes
                                  : json_pack("{s:s, s:[o, o]}", "type", "Sequence", "processors",
                                              bytes, template);
}

/* json_pack takes every reference given to it, whether it fails or not. */
static enum tcq_status assemble(const struct tcq_gguf_maker *maker,
                                const struct pre_tokenizer *pre, json_t *merges, json_t **out)
{
    json_t *bpe = json_pack(
        "{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:O, s:O}", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
        "ignore_merges", (int)pre->whole_words, "vocab", maker->vocab, "merges", merges);
    json_t *normalizer = pre->composes ? json_pack("{s:s}", "type", "NFC") : json_null();
    json_t *tokenizer =
        json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation",
                  "padding", "added_tokens", tcq_gguf_maker_added(maker), "normalizer", normalizer,
                  "pre_tokenizer", pre_tokenizer(maker, pre), "post_processor",
                  post_processor(maker), "decoder", byte_level(true, true, true), "model", bpe);
    if (tokenizer == NULL)
        return tcq_gguf_maker_memory(maker);
    *out = tokenizer;
    return TCQ_OK;
}

static enum tcq_status make_byte_level(struct tcq_gguf_maker *maker, json_t **out)
{
    const struct pre_tokenizer *pre = NULL;
    const struct tcq_gguf_array *lines = NULL;
    enum tcq_status status = find_pre_tokenizer(maker, &pre);
    if (status == TCQ_OK)
        status = tcq_gguf_maker_array(maker, "tokenizer.ggml.merges", TCQ_GGUF_VALUE_STRING, &lines);
    if (status == TCQ_OK)
        status = tcq_gguf_maker_tokens(maker);
    if (status != TCQ_OK)
        return status;
    maker->begins_text = pre->begins_text;
    json_t *merges = json_array();
    char *joined = tcq_alloc(longest(lines) + 1, 1);
    status = merges && joined ? tcq_gguf_maker_vocab(maker) : tcq_gguf_maker_memory(maker);
    if (status == TCQ_OK)
        status = fill_merges(maker, lines, merges, joined);
    if (status == TCQ_OK)
        status = assemble(maker, pre, merges, out);
    json_decref(merges);
    tcq_free(joined);
    return status;
}

static enum tcq_status make_tokenizer(struct tcq_gguf_maker *maker, json_t **out)
{
    struct tcq_gguf_text kind = find_text(maker->file, "tokenizer.ggml.model");
    enum tcq_status status = tcq_gguf_text_equal(kind, "llama")
                                 ? tcq_gguf_sentencepiece_make(maker, out)
                                 : make_byte_level(maker, out);
    json_decref(maker->vocab);
    return status;
}

/* A tokenizer.json that the file holds as text. */
static enum tcq_status load_whole(const struct tcq_gguf_maker *maker, struct tcq_gguf_text text,
                                  json_t **out)
{
    json_error_t reason;
    json_t *tokenizer = json_loadb(text.bytes, text.nbytes, 0, &reason);
    if (!json_is_object(tokenizer)) {
        json_decref(tokenizer);
        return tcq_error_set(maker->error, TCQ_ERROR_FORMAT,
                             "%s: metadata 'tokenizer.huggingface.json' is no JSON object",
                             tcq_gguf_label(maker->file));
    }
    *out = tokenizer;
    return TCQ_OK;
}

enum tcq_status tcq_gguf_tokenizer_make(const struct tcq_gguf_model *model, json_t **tokenizer,
                                        json_t **tokenizer_config, struct tcq_error *error)
{
    struct tcq_gguf_maker maker = {.model = model, .file = tcq_gguf_model_file(model), .error = error};
    const struct tcq_gguf_value *whole = tcq_gguf_find(maker.file, "tokenizer.huggingface.json");
    json_t *made = NULL;
    enum tcq_status status = whole != NULL && whole->type == TCQ_GGUF_VALUE_STRING
                                 ? load_whole(&maker, whole->as.text, &made)
                                 : make_tokenizer(&maker, &made);
    if (status == TCQ_OK)
        status = tcq_gguf_tokenizer_config_make(model, tokenizer_config, error);
    if (status == TCQ_OK)
        *tokenizer = made;
    else
        json_decref(made);
    return status;
}
