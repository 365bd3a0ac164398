/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks on text that comes out of files, before it reaches messages or JSON.
 */
#ifndef TCQ_BASE_TEXT_H
#define TCQ_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Valid UTF-8: no overlong forms, no surrogates. */
bool tcq_text_is_utf8(const char *bytes, size_t nbytes);

/* The same without control characters. */
bool tcq_text_is_printable(const char *bytes, size_t nbytes);

/* The length to show in a message with "%.*s": at most 96 bytes, not ending
 * inside a character. */
int tcq_text_shown(const char *bytes, size_t nbytes);

#endif
