/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of what the command reads and writes.
 */
#ifndef TCQ_MODEL_CONFIG_H
#define TCQ_MODEL_CONFIG_H

#include "plan.h"

/* The quantization of source's config.json (of a safetensors file: of the one
 * beside it, which may speak of other files, too); *out is NULL without one.
 * Prints; CLI_CONTINUE or an exit code. */
int model_config_open(const struct tcq_source *source, const char *path, struct tcq_config **out);
bool model_config_has_words(const struct tcq_source *source, const char *module);
/* Refuses a source whose modules are packed already. */
int model_config_refuse_packed(const struct tcq_source *source, const char *path);
/* config.json with a section for every module of the plan, malloc'ed into *out.
 * Prints; CLI_CONTINUE or an exit code. */
int model_config_packed(char **out, const struct tcq_source *source, const char *path,
                        const struct plan *plan);

#endif
