/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON through jansson, with its errors turned into ours.  Duplicate keys and
 * embedded NUL characters are always refused: names here are C strings, and of
 * two values under one name neither can be trusted.
 */
#ifndef TCQ_FORMAT_JSON_H
#define TCQ_FORMAT_JSON_H

#include <jansson.h>

#include "tcq.h"

/* A JSON object from text.  `flags` are jansson's, beside those above.
 * Errors: FORMAT with line and column; MEMORY. */
enum tcq_status tcq_json_parse(const char *text, size_t nbytes, size_t flags, json_t **out,
                               struct tcq_error *error);

/* ARGUMENT with "`what` is not UTF-8" if jansson cannot make a string of text. */
enum tcq_status tcq_json_check_text(const char *text, const char *what, struct tcq_error *error);

#endif
