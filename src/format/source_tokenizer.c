/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer that a GGUF source carries, as texts for files.
 */
#include "base/error.h"
#include "base/memory.h"
#include "format/gguf_config.h"
#include "format/gguf_tokenizer.h"
#include "format/source.h"

enum tcq_status tcq_source_tokenizer(const struct tcq_source *source, char **tokenizer,
                                     char **tokenizer_config, struct tcq_error *error)
{
    json_t *made = NULL, *made_config = NULL;
    if (!source || !tokenizer || !tokenizer_config || source->kind != TCQ_SOURCE_GGUF)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "tokenizer: a GGUF source and two outputs expected");
    enum tcq_status status = tcq_gguf_tokenizer_make(source->gguf, &made, &made_config, error);
    if (status != TCQ_OK)
        return status;
    char *text = tcq_gguf_json_text(made);
    char *config_text = tcq_gguf_json_text(made_config);
    json_decref(made);
    json_decref(made_config);
    if (!text || !config_text) {
        tcq_free(text);
        tcq_free(config_text);
        return tcq_error_memory(error, 1, "the text of a tokenizer");
    }
    *tokenizer = text;
    *tokenizer_config = config_text;
    return TCQ_OK;
}
