/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of normalisers and pre-tokenizers.  Unicode's normal forms come
 * from utf8proc.
 */
#include "model/pretokenize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/utf8.h"

void tcq_pretokenizer_free(struct tcq_pretokenizer *pretokenizer)
{
    for (size_t i = 0; i < TCQ_STEPS_MAX; i++) {
        tcq_regex_destroy(pretokenizer->normalize[i].regex);
        tcq_free(pretokenizer->normalize[i].text);
        tcq_charsmap_destroy(pretokenizer->normalize[i].charsmap);
        tcq_regex_destroy(pretokenizer->split[i].regex);
        tcq_free(pretokenizer->split[i].text);
    }
    *pretokenizer = (struct tcq_pretokenizer){0};
}

void tcq_spans_free(struct tcq_spans *spans)
{
    tcq_free(spans->data);
    *spans = (struct tcq_spans){0};
}

static bool spans_append(struct tcq_spans *spans, size_t begin, size_t end)
{
    if (begin == end)
        return true;
    void *array = spans->data;
    if (!tcq_array_reserve(&array, &spans->capacity, spans->count + 1, sizeof *spans->data))
        return false;
    spans->data = array;
    spans->data[spans->count++] = (struct tcq_span){begin, end};
    return true;
}

/* ------------------------------------------------------------------------ */
/* Normalisers                                                               */
/* ------------------------------------------------------------------------ */

static bool is_ascii(const struct tcq_bytes *text)
{
    for (size_t i = 0; i < text->count; i++)
        if ((uint8_t)text->data[i] >= 0x80)
            return false;
    return true;
}

static enum tcq_status normal_form(struct tcq_bytes *text, enum tcq_normalize_kind kind,
                                   struct tcq_error *error)
{
    static const int options[] = {
        [TCQ_NORMALIZE_NFC] = UTF8PROC_COMPOSE,
        [TCQ_NORMALIZE_NFD] = UTF8PROC_DECOMPOSE,
        [TCQ_NORMALIZE_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [TCQ_NORMALIZE_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    if (is_ascii(text)) /* every form of ASCII is itself */
        return TCQ_OK;
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t nbytes =
        utf8proc_map((const utf8proc_uint8_t *)text->data, (utf8proc_ssize_t)text->count, &mapped,
                     (utf8proc_option_t)(UTF8PROC_STABLE | options[kind]));
    if (nbytes < 0)
        return tcq_error_set(error, nbytes == UTF8PROC_ERROR_NOMEM ? TCQ_ERROR_MEMORY : TCQ_ERROR_VALUE,
                             "normalizing %zu bytes: %s", text->count, utf8proc_errmsg(nbytes));
    text->count = 0;
    bool ok = tcq_bytes_append(text, mapped, (size_t)nbytes);
    free(mapped);
    return ok ? TCQ_OK : tcq_error_memory(error, (size_t)nbytes, "normalized text");
}

static enum tcq_status replace(const struct tcq_normalize_step *step,
                               struct tcq_regex_match *match, struct tcq_bytes *text,
                               struct tcq_error *error)
{
    struct tcq_bytes out = {0};
    size_t done = 0;
    enum tcq_status status = TCQ_OK;
    bool ok = true;
    while (ok && done < text->count) {
        size_t at = done, end = 0;
        bool found;
        status = tcq_regex_find(step->regex, match, text->data, text->count, &at, &end, &found,
                                error);
        if (status || !found || end == at)
            break;
        ok = tcq_bytes_append(&out, text->data + done, at - done) &&
             tcq_bytes_append_text(&out, step->text);
        done = end;
    }
    ok = ok && tcq_bytes_append(&out, text->data + done, text->count - done);
    if (!status && !ok)
        status = tcq_error_memory(error, text->count, "normalized text");
    if (status) {
        tcq_bytes_free(&out);
        return status;
    }
    tcq_bytes_free(text);
    *text = out;
    return TCQ_OK;
}

static bool prepend(struct tcq_bytes *text, const char *prefix)
{
    size_t length = strlen(prefix), count = text->count;
    if (!tcq_bytes_append(text, prefix, length))
        return false;
    memmove(text->data + length, text->data, count);
    memcpy(text->data, prefix, length);
    return true;
}

enum tcq_status tcq_normalize(const struct tcq_pretokenizer *pretokenizer,
                              struct tcq_regex_match *match, struct tcq_bytes *text,
                              struct tcq_error *error)
{
    enum tcq_status status = TCQ_OK;
    for (size_t i = 0; i < pretokenizer->normalize_count && !status; i++) {
        const struct tcq_normalize_step *step = &pretokenizer->normalize[i];
        if (text->count == 0)
            return TCQ_OK;
        if (step->kind == TCQ_NORMALIZE_REPLACE)
            status = replace(step, match, text, error);
        else if (step->kind == TCQ_NORMALIZE_CHARSMAP)
            status = tcq_charsmap_apply(step->charsmap, text, error);
        else if (step->kind != TCQ_NORMALIZE_PREPEND)
            status = normal_form(text, step->kind, error);
        else if (!prepend(text, step->text))
            status = tcq_error_memory(error, text->count, "normalized text");
    }
    return status;
}

/* ------------------------------------------------------------------------ */
/* Pre-tokenizers                                                            */
/* ------------------------------------------------------------------------ */

/* Cut one word.  The pattern sees the word alone, as if it were the whole text. */
static enum tcq_status split_span(const struct tcq_split_step *step, struct tcq_regex_match *match,
                                  const char *text, struct tcq_span span, struct tcq_spans *out,
                                  struct tcq_error *error)
{
    const char *word = text + span.begin;
    size_t nbytes = span.end - span.begin, done = 0, from = 0;
    bool gaps = step->kind != TCQ_SPLIT_MATCHES, matches = step->kind != TCQ_SPLIT_REMOVED;
    while (from < nbytes) {
        size_t at = from, end = 0;
        bool found;
        enum tcq_status status =
            tcq_regex_find(step->regex, match, word, nbytes, &at, &end, &found, error);
        if (status)
            return status;
        if (!found)
            break;
        if (end == at) { /* an empty match cuts nothing: look further on */
            from = at < nbytes ? at + tcq_utf8_length((uint8_t)word[at]) : nbytes;
            continue;
        }
        if ((gaps && !spans_append(out, span.begin + done, span.begin + at)) ||
            (matches && !spans_append(out, span.begin + at, span.begin + end)))
            return tcq_error_memory(error, sizeof *out->data, "words");
        done = from = end;
    }
    if (gaps && !spans_append(out, span.begin + done, span.end))
        return tcq_error_memory(error, sizeof *out->data, "words");
    return TCQ_OK;
}

/* Put the prefix before words, in a new text that holds the words only. */
static enum tcq_status prefix_words(const struct tcq_split_step *step, struct tcq_bytes *text,
                                    bool first, struct tcq_spans *spans, struct tcq_error *error)
{
    const char *prefix = step->kind == TCQ_SPLIT_PREFIX_SPACE ? " " : step->text;
    size_t length = strlen(prefix);
    struct tcq_bytes out = {0};
    for (size_t i = 0; i < spans->count; i++) {
        struct tcq_span *span = &spans->data[i];
        const char *word = text->data + span->begin;
        size_t nbytes = span->end - span->begin, begin = out.count;
        bool has = nbytes >= length && memcmp(word, prefix, length) == 0;
        bool wanted = !has && (!step->first_only || (first && i == 0));
        if ((wanted && !tcq_bytes_append(&out, prefix, length)) ||
            !tcq_bytes_append(&out, word, nbytes)) {
            tcq_bytes_free(&out);
            return tcq_error_memory(error, text->count, "words");
        }
        *span = (struct tcq_span){begin, out.count};
    }
    tcq_bytes_free(text);
    *text = out;
    return TCQ_OK;
}

enum tcq_status tcq_pretokenize(const struct tcq_pretokenizer *pretokenizer,
                                struct tcq_regex_match *match, struct tcq_bytes *text, bool first,
                                struct tcq_spans *spans, struct tcq_error *error)
{
    struct tcq_spans next = {0};
    enum tcq_status status = TCQ_OK;
    spans->count = 0;
    if (!spans_append(spans, 0, text->count))
        return tcq_error_memory(error, sizeof *spans->data, "words");
    for (size_t i = 0; i < pretokenizer->split_count && !status; i++) {
        const struct tcq_split_step *step = &pretokenizer->split[i];
        if (step->kind == TCQ_SPLIT_PREFIX_SPACE || step->kind == TCQ_SPLIT_PREFIX_MARK) {
            status = prefix_words(step, text, first, spans, error);
            continue;
        }
        next.count = 0;
        for (size_t j = 0; j < spans->count && !status; j++)
            status = split_span(step, match, text->data, spans->data[j], &next, error);
        struct tcq_spans swap = *spans;
        *spans = next;
        next = swap;
    }
    tcq_spans_free(&next);
    return status;
}
