/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading a tokenizer.json of the kind "BPE".  Every part that would change
 * the tokens and is not implemented is refused by its name.
 */
#include <string.h>

#include "base/error.h"
#include "model/json.h"
#include "model/tokenizer.h"

#define MARK TCQ_SPACE_MARK

static enum tcq_status unsupported(struct tcq_error *error, const char *part, const char *what)
{
    return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "%s '%s' is not implemented", part, what);
}

static enum tcq_status malformed(struct tcq_error *error, const char *part)
{
    return tcq_error_set(error, TCQ_ERROR_FORMAT, "%s is missing or of the wrong type", part);
}

struct pattern {
    const char *text;
    size_t nbytes;
    bool literal;
};

/* {"Regex": "..."} or {"String": "..."}; text is NULL for anything else. */
static struct pattern read_pattern(const json_t *step)
{
    const json_t *object = json_object_get(step, "pattern");
    const json_t *regex = json_object_get(object, "Regex");
    const json_t *text = regex ? regex : json_object_get(object, "String");
    return (struct pattern){json_string_value(text), json_string_length(text), !regex};
}

/* ------------------------------------------------------------------------ */
/* Normalizer                                                                */
/* ------------------------------------------------------------------------ */

/* Marks are kept as spaces, in the vocabulary too: so not spaces become marks,
 * but marks that the text itself holds become spaces. */
static enum tcq_status marks_to_spaces(struct tcq_tokenizer *tokenizer, struct tcq_error *error)
{
    return tcq_tokenizer_normalize(tokenizer, TCQ_NORMALIZE_REPLACE, MARK, strlen(MARK), true, " ",
                                   error);
}

static enum tcq_status read_normalizer(struct tcq_tokenizer *tokenizer, const json_t *step,
                                       int depth, struct tcq_error *error)
{
    static const struct {
        const char *type;
        enum tcq_normalize_kind kind;
    } forms[] = {{"NFC", TCQ_NORMALIZE_NFC},
                 {"NFD", TCQ_NORMALIZE_NFD},
                 {"NFKC", TCQ_NORMALIZE_NFKC},
                 {"NFKD", TCQ_NORMALIZE_NFKD}};
    if (!step || json_is_null(step))
        return TCQ_OK;
    const char *type = tcq_json_string(step, "type", "");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(type, forms[i].type) == 0)
            return tcq_tokenizer_normalize(tokenizer, forms[i].kind, NULL, 0, false, NULL, error);
    if (strcmp(type, "Prepend") == 0) {
        const char *prefix = tcq_json_string(step, "prepend", MARK);
        return tcq_tokenizer_normalize(tokenizer, TCQ_NORMALIZE_PREPEND, NULL, 0, false,
                                       tokenizer->marks && strcmp(prefix, MARK) == 0 ? " " : prefix,
                                       error);
    }
    if (strcmp(type, "Replace") == 0) {
        const char *content = tcq_json_string(step, "content", NULL);
        struct pattern pattern = read_pattern(step);
        if (!pattern.text || !content)
            return malformed(error, "normalizer Replace: pattern or content");
        if (tokenizer->marks && strcmp(pattern.text, " ") == 0 && strcmp(content, MARK) == 0)
            return marks_to_spaces(tokenizer, error);
        return tcq_tokenizer_normalize(tokenizer, TCQ_NORMALIZE_REPLACE, pattern.text,
                                       pattern.nbytes, pattern.literal, content, error);
    }
    if (strcmp(type, "Sequence") != 0 || depth > 0)
        return unsupported(error, "normalizer", type);
    size_t i;
    const json_t *inner;
    json_array_foreach(json_object_get(step, "normalizers"), i, inner) {
        enum tcq_status status = read_normalizer(tokenizer, inner, depth + 1, error);
        if (status)
            return status;
    }
    return TCQ_OK;
}

/* ------------------------------------------------------------------------ */
/* Pre-tokenizer                                                             */
/* ------------------------------------------------------------------------ */

static enum tcq_status read_split(struct tcq_tokenizer *tokenizer, const json_t *step,
                                  struct tcq_error *error)
{
    const char *behavior = tcq_json_string(step, "behavior", "");
    struct pattern pattern = read_pattern(step);
    bool invert = false;
    enum tcq_status status = tcq_json_bool(step, "invert", &invert, error);
    if (status || !pattern.text)
        return status ? status : malformed(error, "pre-tokenizer Split: pattern");
    enum tcq_split_kind kind = TCQ_SPLIT_ISOLATED;
    if (strcmp(behavior, "Removed") == 0)
        kind = invert ? TCQ_SPLIT_MATCHES : TCQ_SPLIT_REMOVED;
    else if (strcmp(behavior, "Isolated") != 0)
        return unsupported(error, "pre-tokenizer Split: behavior", behavior);
    return tcq_tokenizer_split(tokenizer, kind, pattern.text, pattern.nbytes, pattern.literal, NULL,
                               error);
}

static enum tcq_status read_byte_level(struct tcq_tokenizer *tokenizer, const json_t *step,
                                       struct tcq_error *error)
{
    bool prefix = true, regex = true;
    enum tcq_status status = tcq_json_bool(step, "add_prefix_space", &prefix, error);
    if (!status)
        status = tcq_json_bool(step, "use_regex", &regex, error);
    if (!status && prefix)
        status = tcq_tokenizer_split(tokenizer, TCQ_SPLIT_PREFIX_SPACE, NULL, 0, false, NULL, error);
    if (!status && regex)
        status = tcq_tokenizer_split(tokenizer, TCQ_SPLIT_ISOLATED, tcq_pattern_gpt2,
                                     strlen(tcq_pattern_gpt2), false, NULL, error);
    tokenizer->bpe.byte_level = true;
    return status;
}

/* Spaces are marked, with one more before the text's beginning. */
static enum tcq_status read_metaspace(struct tcq_tokenizer *tokenizer, const json_t *step,
                                      struct tcq_error *error)
{
    static const char words[] = " [^ ]*|[^ ]+";
    const char *mark = tcq_json_string(step, "replacement", MARK);
    const char *scheme = tcq_json_string(step, "prepend_scheme", "always");
    bool split = true;
    enum tcq_status status = tcq_json_bool(step, "split", &split, error);
    if (status)
        return status;
    if (strcmp(mark, MARK) != 0)
        return unsupported(error, "pre-tokenizer Metaspace: replacement", mark);
    bool never = strcmp(scheme, "never") == 0, first = strcmp(scheme, "first") == 0;
    if (!never && !first && strcmp(scheme, "always") != 0)
        return unsupported(error, "pre-tokenizer Metaspace: prepend_scheme", scheme);
    /* The replacement may as well come before the cut, and then is a normaliser. */
    status = marks_to_spaces(tokenizer, error);
    if (!status && !never) {
        status = tcq_tokenizer_split(tokenizer, TCQ_SPLIT_PREFIX_MARK, NULL, 0, false, " ", error);
        if (!status)
            tokenizer->pretokenizer.split[tokenizer->pretokenizer.split_count - 1].first_only = first;
    }
    if (!status && split)
        status = tcq_tokenizer_split(tokenizer, TCQ_SPLIT_ISOLATED, words, strlen(words), false,
                                     NULL, error);
    return status;
}

static enum tcq_status read_pretokenizer(struct tcq_tokenizer *tokenizer, const json_t *step,
                                         int depth, struct tcq_error *error)
{
    if (!step || json_is_null(step))
        return TCQ_OK;
    const char *type = tcq_json_string(step, "type", "");
    if (strcmp(type, "Split") == 0)
        return read_split(tokenizer, step, error);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(tokenizer, step, error);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(tokenizer, step, error);
    if (strcmp(type, "Digits") == 0) {
        bool individual = false;
        enum tcq_status status = tcq_json_bool(step, "individual_digits", &individual, error);
        return status ? status
                      : tcq_tokenizer_split(tokenizer, TCQ_SPLIT_ISOLATED,
                                            individual ? "\\p{N}" : "\\p{N}+", individual ? 5 : 6,
                                            false, NULL, error);
    }
    if (strcmp(type, "Sequence") != 0 || depth > 0)
        return unsupported(error, "pre-tokenizer", type);
    size_t i;
    const json_t *inner;
    json_array_foreach(json_object_get(step, "pretokenizers"), i, inner) {
        enum tcq_status status = read_pretokenizer(tokenizer, inner, depth + 1, error);
        if (status)
            return status;
    }
    return TCQ_OK;
}

/* ------------------------------------------------------------------------ */
/* Vocabulary and merges                                                     */
/* ------------------------------------------------------------------------ */

static enum tcq_status read_vocabulary(struct tcq_tokenizer *tokenizer, json_t *model,
                                       struct tcq_error *error)
{
    json_t *vocabulary = json_object_get(model, "vocab");
    if (!json_is_object(vocabulary))
        return malformed(error, "model.vocab");
    for (void *i = json_object_iter(vocabulary); i; i = json_object_iter_next(vocabulary, i)) {
        const json_t *value = json_object_iter_value(i);
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id >= (json_int_t)TCQ_VOCABULARY_MAX)
            return tcq_error_set(error, TCQ_ERROR_FORMAT,
                                 "model.vocab: id of '%.60s': expected an integer below %u",
                                 json_object_iter_key(i), TCQ_VOCABULARY_MAX);
        enum tcq_status status =
            tcq_tokenizer_set_written(tokenizer, (uint32_t)id, json_object_iter_key(i),
                                      json_object_iter_key_len(i), true, error);
        if (status)
            return status;
    }
    return tcq_vocabulary_index(&tokenizer->bpe.vocabulary, error);
}

static enum tcq_status read_merges(struct tcq_tokenizer *tokenizer, const json_t *model,
                                   struct tcq_error *error)
{
    const json_t *merges = json_object_get(model, "merges"), *merge;
    if (!json_is_array(merges))
        return malformed(error, "model.merges");
    enum tcq_status status = tcq_bpe_merges_create(&tokenizer->bpe, json_array_size(merges), error);
    size_t i;
    if (status)
        return status;
    json_array_foreach(merges, i, merge) {
        const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        if (json_is_string(merge))
            status = tcq_tokenizer_merge_line(tokenizer, (uint32_t)i, json_string_value(merge),
                                              json_string_length(merge), error);
        else if (json_is_string(a) && json_is_string(b) && json_array_size(merge) == 2)
            status = tcq_tokenizer_merge_written(tokenizer, (uint32_t)i, json_string_value(a),
                                                 json_string_length(a), json_string_value(b),
                                                 json_string_length(b), error);
        else
            status = malformed(error, "an entry of model.merges");
        if (status)
            return status;
    }
    return TCQ_OK;
}

static enum tcq_status read_model(struct tcq_tokenizer *tokenizer, json_t *model,
                                  struct tcq_error *error)
{
    /* Older files leave the type out. */
    const char *type = tcq_json_string(model, "type", "BPE");
    if (!json_is_object(model))
        return malformed(error, "model");
    if (strcmp(type, "BPE") != 0)
        return unsupported(error, "model type", type);
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++)
        if (tcq_json_string(model, affixes[i], "")[0])
            return unsupported(error, "model member", affixes[i]);
    if (json_number_value(json_object_get(model, "dropout")) > 0)
        return unsupported(error, "model member", "dropout");
    enum tcq_status status =
        tcq_json_bool(model, "byte_fallback", &tokenizer->byte_fallback, error);
    if (!status)
        status = tcq_json_bool(model, "fuse_unk", &tokenizer->bpe.fuse_unknown, error);
    if (!status)
        status = tcq_json_bool(model, "ignore_merges", &tokenizer->bpe.ignore_merges, error);
    if (!status)
        status = read_vocabulary(tokenizer, model, error);
    if (!status)
        status = read_merges(tokenizer, model, error);
    return status;
}

/* ------------------------------------------------------------------------ */
/* Added tokens, post-processor, decoder                                     */
/* ------------------------------------------------------------------------ */

static enum tcq_status read_added(struct tcq_tokenizer *tokenizer, const json_t *root,
                                  struct tcq_error *error)
{
    const json_t *list = json_object_get(root, "added_tokens"), *entry;
    size_t i;
    json_array_foreach(list, i, entry) {
        const json_t *content = json_object_get(entry, "content");
        uint32_t id = TCQ_NO_TOKEN;
        struct tcq_added_token added = {.normalized = true};
        enum tcq_status status = tcq_json_u32(entry, "id", &id, error);
        const struct {
            const char *key;
            bool *flag;
        } flags[] = {{"special", &added.special},
                     {"normalized", &added.normalized},
                     {"single_word", &added.single_word},
                     {"lstrip", &added.left},
                     {"rstrip", &added.right}};
        for (size_t f = 0; f < sizeof flags / sizeof *flags && !status; f++)
            status = tcq_json_bool(entry, flags[f].key, flags[f].flag, error);
        if (status)
            return status;
        if (!json_is_string(content))
            return malformed(error, "an added token's content");
        /* The vocabulary may have it already, in the byte alphabet; its text here is plain. */
        added.id = id;
        if (id < tokenizer->bpe.vocabulary.count)
            tokenizer->bpe.vocabulary.tokens[id].present = false;
        status = tcq_vocabulary_set(&tokenizer->bpe.vocabulary, id, json_string_value(content),
                                    json_string_length(content), false, error);
        if (!status)
            status = tcq_tokenizer_add(tokenizer, added, error);
        if (status)
            return status;
    }
    return TCQ_OK;
}

/* "single" of a TemplateProcessing: special tokens before and after the text. */
static enum tcq_status read_template(struct tcq_tokenizer *tokenizer, const json_t *step,
                                     struct tcq_error *error)
{
    const json_t *tokens = json_object_get(step, "special_tokens"), *item;
    bool after = false;
    size_t i;
    json_array_foreach(json_object_get(step, "single"), i, item) {
        const json_t *special = json_object_get(item, "SpecialToken");
        if (!special) {
            after = after || json_object_get(item, "Sequence");
            continue;
        }
        const json_t *entry = json_object_get(tokens, tcq_json_string(special, "id", ""));
        const json_t *id = json_array_get(json_object_get(entry, "ids"), 0);
        size_t *count = after ? &tokenizer->after_count : &tokenizer->before_count;
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 ||
            value >= (json_int_t)tokenizer->bpe.vocabulary.count || *count == TCQ_WRAP_TOKENS_MAX)
            return malformed(error, "post_processor: a special token's id");
        (after ? tokenizer->after : tokenizer->before)[(*count)++] = (uint32_t)value;
    }
    return TCQ_OK;
}

static enum tcq_status read_post_processor(struct tcq_tokenizer *tokenizer, const json_t *step,
                                           int depth, struct tcq_error *error)
{
    if (!step || json_is_null(step))
        return TCQ_OK;
    const char *type = tcq_json_string(step, "type", "");
    if (strcmp(type, "ByteLevel") == 0)
        return TCQ_OK; /* trims offsets only */
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(tokenizer, step, error);
    if (strcmp(type, "Sequence") != 0 || depth > 0)
        return unsupported(error, "post-processor", type);
    size_t i;
    const json_t *inner;
    json_array_foreach(json_object_get(step, "processors"), i, inner) {
        enum tcq_status status = read_post_processor(tokenizer, inner, depth + 1, error);
        if (status)
            return status;
    }
    return TCQ_OK;
}

/* Does a decoder, or a part of it, have this type? */
static bool decoder_has(const json_t *decoder, const char *type)
{
    if (strcmp(tcq_json_string(decoder, "type", ""), type) == 0)
        return true;
    size_t i;
    const json_t *inner;
    json_array_foreach(json_object_get(decoder, "decoders"), i, inner)
        if (strcmp(tcq_json_string(inner, "type", ""), type) == 0)
            return true;
    return false;
}

enum tcq_status tcq_tokenizer_from_json(struct tcq_tokenizer *tokenizer, const json_t *root,
                                        struct tcq_error *error)
{
    const json_t *decoder = json_object_get(root, "decoder");
    json_t *model = json_object_get(root, "model");
    tokenizer->bpe.byte_level = decoder_has(decoder, "ByteLevel");
    tokenizer->marks = !tokenizer->bpe.byte_level &&
                       (decoder_has(decoder, "Replace") || decoder_has(decoder, "Metaspace"));
    tokenizer->strip_first_space = decoder_has(decoder, "Strip") || decoder_has(decoder, "Metaspace");
    if (!tokenizer->bpe.byte_level && !tokenizer->marks)
        return unsupported(error, "decoder", tcq_json_string(decoder, "type", "(none)"));
    enum tcq_status status =
        read_normalizer(tokenizer, json_object_get(root, "normalizer"), 0, error);
    if (!status)
        status = read_pretokenizer(tokenizer, json_object_get(root, "pre_tokenizer"), 0, error);
    if (!status)
        status = read_model(tokenizer, model, error);
    const char *unknown = tcq_json_string(model, "unk_token", NULL);
    if (!status && unknown)
        tokenizer->bpe.unknown =
            tcq_vocabulary_find(&tokenizer->bpe.vocabulary, unknown, strlen(unknown));
    if (!status)
        status = read_added(tokenizer, root, error);
    if (!status)
        status = read_post_processor(tokenizer, json_object_get(root, "post_processor"), 0, error);
    return status;
}
