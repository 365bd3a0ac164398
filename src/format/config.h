/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reading and writing a config.json share.
 */
#ifndef TCQ_FORMAT_CONFIG_H
#define TCQ_FORMAT_CONFIG_H

#include <jansson.h>

#include "tcq.h"

/* The object under `quantization` or `quantization_config`, NULL where there is
 * neither.  Errors: FORMAT if they differ or are no objects. */
enum tcq_status tcq_config_section(const json_t *root, const json_t **out, struct tcq_error *error);

/* k, L, T and axis of one module.  Errors: GEOMETRY. */
enum tcq_status tcq_module_config_check(const struct tcq_module_config *config,
                                        struct tcq_error *error);

/* Is it one of the keys that hold the defaults, and thus no module? */
bool tcq_config_is_default_key(const char *key);

/* The text of a config.json that tcq_config_parse accepts, as it is but for
 * `quantization` and `quantization_config`.  malloc'ed; NULL: out of memory. */
char *tcq_config_without_sections(const char *source);

#endif
