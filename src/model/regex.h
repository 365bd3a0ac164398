/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of tokenizers, through PCRE2 in UTF and UCP mode.  They are written
 * for Oniguruma, whose \s is Unicode's White_Space; PCRE2's also takes U+180E,
 * so \s and \S are spelled out before compiling.
 */
#ifndef TCQ_MODEL_REGEX_H
#define TCQ_MODEL_REGEX_H

#include "tcq.h"

struct tcq_regex;

/* literal: the pattern is plain text.  Errors: FORMAT with PCRE2's words and
 * the offset; UNSUPPORTED for class intersections (&&), MEMORY. */
enum tcq_status tcq_regex_compile(const char *pattern, size_t nbytes, bool literal,
                                  struct tcq_regex **out, struct tcq_error *error);
void tcq_regex_destroy(struct tcq_regex *regex);

/* The state of a search; one a thread. */
struct tcq_regex_match;
enum tcq_status tcq_regex_match_create(struct tcq_regex_match **out, struct tcq_error *error);
void tcq_regex_match_destroy(struct tcq_regex_match *match);

/* The first match of valid UTF-8 `text` at or after *at: *at and *end are set
 * and *found is true.  Errors: VALUE where the pattern needs more steps or
 * memory than PCRE2's limits allow. */
enum tcq_status tcq_regex_find(const struct tcq_regex *regex, struct tcq_regex_match *match,
                               const char *text, size_t nbytes, size_t *at, size_t *end,
                               bool *found, struct tcq_error *error);

#endif
