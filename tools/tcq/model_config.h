/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of what the command reads and writes.
 */
#ifndef TCQ_MODEL_CONFIG_H
#define TCQ_MODEL_CONFIG_H

#include "plan.h"

/* The quantization of source's config.json; *out is NULL if it has no config.json.
 * Prints; CLI_CONTINUE or an exit code. */
int model_config_open(const struct tcq_source *source, const char *path, struct tcq_config **out);
/* Refuses a source whose modules are packed already. */
int model_config_refuse_packed(const struct tcq_source *source, const char *path);
/* config.json with a section for every module of the plan, malloc'ed into *out.
 * Prints; CLI_CONTINUE or an exit code. */
int model_config_packed(char **out, const struct tcq_source *source, const struct plan *plan);

#endif
