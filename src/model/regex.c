/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCRE2 behind three functions.
 */
#include "model/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/bytes.h"

/* JIT code keeps its backtracking here; beyond it a match is an error. */
enum { JIT_STACK_NBYTES = 1 << 20 };

/* Unicode's White_Space, the members of a class. */
#define WHITE_SPACE                                                                            \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
    "\\x{3000}"

struct tcq_regex {
    pcre2_code *code;
    bool jit;
};

struct tcq_regex_match {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* Copy `pattern` with \s and \S spelled out. */
static enum tcq_status spell_out(struct tcq_bytes *out, const char *pattern, size_t nbytes,
                                 struct tcq_error *error)
{
    bool in_class = false, ok = true;
    for (size_t i = 0; i < nbytes && ok; i++) {
        char c = pattern[i], next = i + 1 < nbytes ? pattern[i + 1] : 0;
        if (c == '\\' && (next == 's' || (next == 'S' && !in_class))) {
            ok = tcq_bytes_append_text(out, in_class      ? WHITE_SPACE
                                            : next == 's' ? "[" WHITE_SPACE "]"
                                                          : "[^" WHITE_SPACE "]");
            i++;
        } else if (c == '\\' && next) {
            ok = tcq_bytes_append(out, pattern + i, 2);
            i++;
        } else {
            if (in_class && c == '&' && next == '&')
                return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                                     "pattern: '&&' in a class at offset %zu", i);
            in_class = c == '[' ? true : c == ']' ? false : in_class;
            ok = tcq_bytes_append(out, &c, 1);
        }
    }
    return ok ? TCQ_OK : tcq_error_memory(error, nbytes, "a pattern");
}

enum tcq_status tcq_regex_compile(const char *pattern, size_t nbytes, bool literal,
                                  struct tcq_regex **out, struct tcq_error *error)
{
    struct tcq_bytes text = {0};
    enum tcq_status status = TCQ_OK;
    if (literal && !tcq_bytes_append(&text, pattern, nbytes))
        status = tcq_error_memory(error, nbytes, "a pattern");
    else if (!literal)
        status = spell_out(&text, pattern, nbytes, error);
    struct tcq_regex *regex = tcq_alloc(1, sizeof *regex);
    if (!status && !regex)
        status = tcq_error_memory(error, sizeof *regex, "a pattern");
    if (!status) {
        int code = 0;
        PCRE2_SIZE offset = 0;
        uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
        regex->code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.count,
                                    literal ? PCRE2_UTF | PCRE2_LITERAL : options, &code, &offset,
                                    NULL);
        PCRE2_UCHAR words[120] = {0};
        if (!regex->code) {
            pcre2_get_error_message(code, words, sizeof words);
            status = tcq_error_set(error, TCQ_ERROR_FORMAT, "pattern: %s at offset %zu",
                                   (const char *)words, (size_t)offset);
        } else {
            regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
        }
    }
    tcq_bytes_free(&text);
    if (status)
        tcq_regex_destroy(regex);
    else
        *out = regex;
    return status;
}

void tcq_regex_destroy(struct tcq_regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    tcq_free(regex);
}

enum tcq_status tcq_regex_match_create(struct tcq_regex_match **out, struct tcq_error *error)
{
    struct tcq_regex_match *match = tcq_alloc(1, sizeof *match);
    if (match) {
        match->data = pcre2_match_data_create(1, NULL);
        match->context = pcre2_match_context_create(NULL);
        match->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_NBYTES, NULL);
    }
    if (!match || !match->data || !match->context) {
        tcq_regex_match_destroy(match);
        return tcq_error_memory(error, sizeof *match, "a search");
    }
    if (match->stack)
        pcre2_jit_stack_assign(match->context, NULL, match->stack);
    *out = match;
    return TCQ_OK;
}

void tcq_regex_match_destroy(struct tcq_regex_match *match)
{
    if (!match)
        return;
    pcre2_match_data_free(match->data);
    pcre2_match_context_free(match->context);
    pcre2_jit_stack_free(match->stack);
    tcq_free(match);
}

enum tcq_status tcq_regex_find(const struct tcq_regex *regex, struct tcq_regex_match *match,
                               const char *text, size_t nbytes, size_t *at, size_t *end,
                               bool *found, struct tcq_error *error)
{
    int code = pcre2_match(regex->code, (PCRE2_SPTR)text, nbytes, *at, PCRE2_NO_UTF_CHECK,
                           match->data, match->context);
    *found = false;
    if (code == PCRE2_ERROR_NOMATCH)
        return TCQ_OK;
    if (code < 0) {
        PCRE2_UCHAR words[120] = {0};
        pcre2_get_error_message(code, words, sizeof words);
        return tcq_error_set(error, TCQ_ERROR_VALUE, "text at byte %zu: the pattern fails: %s", *at,
                             (const char *)words);
    }
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(match->data);
    *found = span[1] >= span[0]; /* \K may make it otherwise */
    *at = span[0];
    *end = span[1];
    return TCQ_OK;
}
