/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading members of JSON objects with messages that name the member.
 */
#ifndef TCQ_MODEL_JSON_H
#define TCQ_MODEL_JSON_H

#include <jansson.h>

#include "format/json.h"

/* Members; absent and null are the same, and a whole real is an integer.  The given default stays where there
 * is none; a member of another type or range is FORMAT. */
enum tcq_status tcq_json_u32(const json_t *object, const char *key, uint32_t *value,
                             struct tcq_error *error);
enum tcq_status tcq_json_double(const json_t *object, const char *key, double *value,
                                struct tcq_error *error);
enum tcq_status tcq_json_bool(const json_t *object, const char *key, bool *value,
                              struct tcq_error *error);
/* The string of a member, or fallback for anything that is none. */
const char *tcq_json_string(const json_t *object, const char *key, const char *fallback);

#endif
