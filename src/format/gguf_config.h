/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of a GGUF model, made from its metadata and its tensors.
 *
 * Llama 3's rotary scaling is not in GGUF's metadata: only the frequency
 * factors that follow from it are, in the tensor rope_freqs.weight.  It is
 * recognized by computing these factors again.
 */
#ifndef TCQ_FORMAT_GGUF_CONFIG_H
#define TCQ_FORMAT_GGUF_CONFIG_H

#include <jansson.h>

#include "format/gguf_model.h"

/* *out is a new object.  Errors: UNSUPPORTED for frequency factors that no
 * known scaling explains; MEMORY. */
enum tcq_status tcq_gguf_config_make(const struct tcq_gguf_model *model, json_t **out,
                                     struct tcq_error *error);

/* A token id of the metadata ("bos", "eos", "unknown", "padding"); false if
 * it is missing or names no token, as -1 does in some files. */
bool tcq_gguf_token_id(const struct tcq_gguf_model *model, const char *which, uint32_t *out);

/* The text of a JSON value, indented, numbers as short as they were given; in
 * memory for tcq_free, or NULL. */
char *tcq_gguf_json_text(const json_t *json);

#endif
