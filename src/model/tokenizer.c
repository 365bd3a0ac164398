/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding: added tokens are cut out of the raw text, then out of the
 * normalized text; what remains between them is cut into words and encoded.
 */
#include "model/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/utf8.h"

const char tcq_pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ------------------------------------------------------------------------ */
/* Building                                                                  */
/* ------------------------------------------------------------------------ */

enum tcq_status tcq_tokenizer_add(struct tcq_tokenizer *tokenizer, struct tcq_added_token token,
                                  struct tcq_error *error)
{
    void *array = tokenizer->added;
    if (!tcq_array_reserve(&array, &tokenizer->added_capacity, tokenizer->added_count + 1,
                           sizeof *tokenizer->added))
        return tcq_error_memory(error, sizeof *tokenizer->added, "an added token");
    tokenizer->added = array;
    tokenizer->added[tokenizer->added_count++] = token;
    return TCQ_OK;
}

void tcq_tokenizer_add_end(struct tcq_tokenizer *tokenizer, uint32_t id)
{
    if (id >= tokenizer->bpe.vocabulary.count || tokenizer->end_count == TCQ_END_TOKENS_MAX ||
        tcq_tokenizer_is_end(tokenizer, id))
        return;
    tokenizer->end[tokenizer->end_count++] = id;
}

/* What both kinds of step share: a pattern and a text, copied. */
static enum tcq_status make_step(struct tcq_regex **regex, char **copy, const char *pattern,
                                 size_t pattern_nbytes, bool literal, const char *text,
                                 struct tcq_error *error)
{
    if (pattern) {
        enum tcq_status status = tcq_regex_compile(pattern, pattern_nbytes, literal, regex, error);
        if (status)
            return status;
    }
    if (text && !(*copy = tcq_strdup(text)))
        return tcq_error_memory(error, strlen(text), "a tokenizer's step");
    return TCQ_OK;
}

enum tcq_status tcq_tokenizer_split(struct tcq_tokenizer *tokenizer, enum tcq_split_kind kind,
                                    const char *pattern, size_t pattern_nbytes, bool literal,
                                    const char *text, struct tcq_error *error)
{
    struct tcq_pretokenizer *p = &tokenizer->pretokenizer;
    if (p->split_count == TCQ_STEPS_MAX)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "pre-tokenizer: more than %d steps",
                             TCQ_STEPS_MAX);
    struct tcq_split_step *step = &p->split[p->split_count++];
    step->kind = kind;
    return make_step(&step->regex, &step->text, pattern, pattern_nbytes, literal, text, error);
}

enum tcq_status tcq_tokenizer_normalize(struct tcq_tokenizer *tokenizer,
                                        enum tcq_normalize_kind kind, const char *pattern,
                                        size_t pattern_nbytes, bool literal, const char *text,
                                        struct tcq_error *error)
{
    struct tcq_pretokenizer *p = &tokenizer->pretokenizer;
    if (p->normalize_count == TCQ_STEPS_MAX)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "normalizer: more than %d steps",
                             TCQ_STEPS_MAX);
    struct tcq_normalize_step *step = &p->normalize[p->normalize_count++];
    step->kind = kind;
    return make_step(&step->regex, &step->text, pattern, pattern_nbytes, literal, text, error);
}

/* Longest first, then by id, so that the order is the same everywhere. */
static int compare_added(const void *left, const void *right)
{
    const struct tcq_added_token *a = left, *b = right;
    if (a->text.count != b->text.count)
        return a->text.count > b->text.count ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* A token that is looked for in normalized text is normalized itself. */
static enum tcq_status set_added_texts(struct tcq_tokenizer *tokenizer, struct tcq_error *error)
{
    struct tcq_regex_match *match = NULL;
    enum tcq_status status = tcq_regex_match_create(&match, error);
    for (size_t i = 0; i < tokenizer->added_count && !status; i++) {
        struct tcq_added_token *added = &tokenizer->added[i];
        size_t nbytes;
        const char *bytes = tcq_tokenizer_bytes(tokenizer, added->id, &nbytes);
        if (!tcq_bytes_append(&added->text, bytes, nbytes))
            status = tcq_error_memory(error, nbytes, "an added token");
        else if (added->normalized)
            status = tcq_normalize(&tokenizer->pretokenizer, match, &added->text, error);
    }
    tcq_regex_match_destroy(match);
    return status;
}

enum tcq_status tcq_tokenizer_finish(struct tcq_tokenizer *tokenizer, struct tcq_error *error)
{
    if (tokenizer->bpe.vocabulary.count == 0)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "a tokenizer without tokens");
    enum tcq_status status = set_added_texts(tokenizer, error);
    if (status)
        return status;
    if (tokenizer->added_count)
        qsort(tokenizer->added, tokenizer->added_count, sizeof *tokenizer->added, compare_added);
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].text.count)
            tokenizer->added_first[(uint8_t)tokenizer->added[i].text.data[0]] = 1;
    /* Chat models end their turn with one of these, whatever the files call the
     * end of a text. */
    static const char *const turn_ends[] = {"<|im_end|>", "<|eot_id|>", "<|end_of_text|>",
                                            "<|endoftext|>"};
    for (size_t i = 0; i < sizeof turn_ends / sizeof *turn_ends; i++)
        tcq_tokenizer_add_end(tokenizer, tcq_tokenizer_find(tokenizer, turn_ends[i]));
    return TCQ_OK;
}

/* ------------------------------------------------------------------------ */
/* Looking up                                                                */
/* ------------------------------------------------------------------------ */

void tcq_tokenizer_destroy(struct tcq_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    tcq_bpe_free(&tokenizer->bpe);
    tcq_pretokenizer_free(&tokenizer->pretokenizer);
    for (size_t i = 0; i < tokenizer->added_count; i++)
        tcq_bytes_free(&tokenizer->added[i].text);
    tcq_free(tokenizer->added);
    tcq_free(tokenizer->chat_template);
    tcq_free(tokenizer);
}

uint32_t tcq_tokenizer_count(const struct tcq_tokenizer *tokenizer)
{
    return tokenizer->bpe.vocabulary.count;
}

const char *tcq_tokenizer_bytes(const struct tcq_tokenizer *tokenizer, uint32_t id, size_t *nbytes)
{
    const struct tcq_vocabulary *vocabulary = &tokenizer->bpe.vocabulary;
    if (id >= vocabulary->count || !vocabulary->tokens[id].present) {
        *nbytes = 0;
        return "";
    }
    *nbytes = vocabulary->tokens[id].nbytes;
    return tcq_vocabulary_bytes(vocabulary, id);
}

static const struct tcq_added_token *find_added(const struct tcq_tokenizer *tokenizer, uint32_t id)
{
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id == id)
            return &tokenizer->added[i];
    return NULL;
}

bool tcq_tokenizer_is_special(const struct tcq_tokenizer *tokenizer, uint32_t id)
{
    const struct tcq_added_token *added = find_added(tokenizer, id);
    return added && added->special;
}

bool tcq_tokenizer_is_end(const struct tcq_tokenizer *tokenizer, uint32_t id)
{
    for (size_t i = 0; i < tokenizer->end_count; i++)
        if (tokenizer->end[i] == id)
            return true;
    return false;
}

uint32_t tcq_tokenizer_find(const struct tcq_tokenizer *tokenizer, const char *text)
{
    size_t nbytes = strlen(text);
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        size_t length;
        const char *bytes = tcq_tokenizer_bytes(tokenizer, tokenizer->added[i].id, &length);
        if (length == nbytes && memcmp(bytes, text, nbytes) == 0)
            return tokenizer->added[i].id;
    }
    return tcq_vocabulary_find(&tokenizer->bpe.vocabulary, text, nbytes);
}

const char *tcq_tokenizer_chat_template(const struct tcq_tokenizer *tokenizer)
{
    return tokenizer->chat_template;
}

/* ------------------------------------------------------------------------ */
/* Encoding                                                                  */
/* ------------------------------------------------------------------------ */

/* What one call of tcq_tokenizer_encode needs. */
struct encoding {
    const struct tcq_tokenizer *tokenizer;
    struct tcq_regex_match *match;
    struct tcq_bpe_work work;
    struct tcq_unigram_work unigram_work;
    struct tcq_spans spans;
    struct tcq_ids ids;
    bool special; /* recognise special tokens */
    struct tcq_error *error;
};

static bool is_word_character(const uint8_t *p, size_t nbytes)
{
    uint32_t code = 0;
    if (nbytes == 0 || tcq_utf8_decode(p, nbytes, &code) == 0)
        return false;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ND) ||
           category == UTF8PROC_CATEGORY_PC;
}

static size_t previous_character(const char *text, size_t at)
{
    do
        at--;
    while (at > 0 && ((uint8_t)text[at] & 0xc0) == 0x80);
    return at;
}

static bool is_white_space(const char *text, size_t nbytes, size_t *length)
{
    uint32_t c = 0;
    *length = nbytes ? tcq_utf8_decode((const uint8_t *)text, nbytes, &c) : 0;
    return *length && ((c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
                       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
                       c == 0x202f || c == 0x205f || c == 0x3000);
}

/* The added token that starts at `at`, if any. */
static const struct tcq_added_token *added_at(const struct encoding *e, const char *text,
                                              size_t nbytes, size_t at, bool normalized)
{
    const struct tcq_tokenizer *tokenizer = e->tokenizer;
    if (!tokenizer->added_first[(uint8_t)text[at]])
        return NULL;
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const struct tcq_added_token *added = &tokenizer->added[i];
        size_t length = added->text.count;
        if (added->normalized != normalized || (added->special && !e->special) || length == 0 ||
            length > nbytes - at || memcmp(text + at, added->text.data, length) != 0)
            continue;
        if (added->single_word) {
            size_t before = at ? previous_character(text, at) : 0;
            if ((at && is_word_character((const uint8_t *)text + before, at - before)) ||
                is_word_character((const uint8_t *)text + at + length, nbytes - at - length))
                continue;
        }
        return added;
    }
    return NULL;
}

typedef enum tcq_status (*section_fn)(struct encoding *e, const char *text, size_t nbytes,
                                      bool first);

/* Cut text at added tokens; what lies between goes to `section`. */
static enum tcq_status cut_added(struct encoding *e, const char *text, size_t nbytes, bool first,
                                 bool normalized, section_fn section)
{
    size_t done = 0;
    for (size_t at = 0; at < nbytes;) {
        const struct tcq_added_token *added = added_at(e, text, nbytes, at, normalized);
        if (!added) {
            at++;
            continue;
        }
        size_t begin = at, end = at + added->text.count, n;
        while (added->left && begin > done &&
               is_white_space(text + previous_character(text, begin),
                              begin - previous_character(text, begin), &n))
            begin = previous_character(text, begin);
        while (added->right && is_white_space(text + end, nbytes - end, &n))
            end += n;
        if (begin > done) {
            enum tcq_status status = section(e, text + done, begin - done, first && done == 0);
            if (status)
                return status;
        }
        if (!tcq_ids_append(&e->ids, added->id))
            return tcq_error_memory(e->error, sizeof *e->ids.data, "tokens");
        done = at = end;
    }
    return done < nbytes ? section(e, text + done, nbytes - done, first && done == 0) : TCQ_OK;
}

/* Normalized text without added tokens. */
static enum tcq_status encode_words(struct encoding *e, const char *text, size_t nbytes, bool first)
{
    const struct tcq_bpe *bpe = &e->tokenizer->bpe;
    struct tcq_bytes copy = {0};
    if (!tcq_bytes_append(&copy, text, nbytes))
        return tcq_error_memory(e->error, nbytes, "text");
    enum tcq_status status = tcq_pretokenize(&e->tokenizer->pretokenizer, e->match, &copy, first,
                                             &e->spans, e->error);
    for (size_t i = 0; i < e->spans.count && !status; i++) {
        struct tcq_span span = e->spans.data[i];
        const char *word = copy.data + span.begin;
        size_t word_nbytes = span.end - span.begin;
        status = bpe->unigram ? tcq_unigram_encode(bpe, &e->unigram_work, &e->ids, word,
                                                   word_nbytes, e->error)
                              : tcq_bpe_encode(bpe, &e->work, &e->ids, word, word_nbytes, e->error);
    }
    tcq_bytes_free(&copy);
    return status;
}

/* Raw text without tokens that are looked for there. */
static enum tcq_status encode_section(struct encoding *e, const char *text, size_t nbytes,
                                      bool first)
{
    struct tcq_bytes copy = {0};
    if (!tcq_bytes_append(&copy, text, nbytes))
        return tcq_error_memory(e->error, nbytes, "text");
    enum tcq_status status =
        tcq_normalize(&e->tokenizer->pretokenizer, e->match, &copy, e->error);
    if (!status)
        status = cut_added(e, copy.data, copy.count, first, true, encode_words);
    tcq_bytes_free(&copy);
    return status;
}

static enum tcq_status append_ids(struct encoding *e, const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!tcq_ids_append(&e->ids, ids[i]))
            return tcq_error_memory(e->error, sizeof *e->ids.data, "tokens");
    return TCQ_OK;
}

static enum tcq_status check_utf8(const char *text, size_t nbytes, struct tcq_error *error)
{
    for (size_t at = 0; at < nbytes;) {
        uint32_t code;
        size_t length = tcq_utf8_decode((const uint8_t *)text + at, nbytes - at, &code);
        if (length == 0)
            return tcq_error_set(error, TCQ_ERROR_VALUE, "text: byte %zu (0x%02x) is not UTF-8", at,
                                 (uint8_t)text[at]);
        at += length;
    }
    return TCQ_OK;
}

enum tcq_status tcq_tokenizer_encode(const struct tcq_tokenizer *tokenizer, const char *text,
                                     size_t nbytes, unsigned flags, uint32_t **ids, size_t *count,
                                     struct tcq_error *error)
{
    if (!tokenizer || (!text && nbytes) || !ids || !count)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "tokenizer: a null pointer");
    struct encoding e = {.tokenizer = tokenizer, .special = flags & TCQ_ENCODE_SPECIAL,
                         .error = error};
    bool first = !(flags & TCQ_ENCODE_CONTINUE);
    enum tcq_status status = check_utf8(text, nbytes, error);
    if (!status)
        status = tcq_regex_match_create(&e.match, error);
    if (!status && (flags & TCQ_ENCODE_WRAP))
        status = append_ids(&e, tokenizer->before, tokenizer->before_count);
    if (!status)
        status = cut_added(&e, text, nbytes, first, false, encode_section);
    if (!status && (flags & TCQ_ENCODE_WRAP))
        status = append_ids(&e, tokenizer->after, tokenizer->after_count);
    tcq_regex_match_destroy(e.match);
    tcq_bpe_work_free(&e.work);
    tcq_unigram_work_free(&e.unigram_work);
    tcq_spans_free(&e.spans);
    if (status) {
        tcq_ids_free(&e.ids);
        return status;
    }
    *ids = e.ids.data;
    *count = e.ids.count;
    return TCQ_OK;
}
