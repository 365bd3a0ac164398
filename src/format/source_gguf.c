/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GGUF file as a source: its model's tensors under Hugging Face's names.
 */
#include "base/error.h"
#include "base/memory.h"
#include "format/gguf_config.h"
#include "format/gguf_model.h"
#include "format/source.h"

static void describe(struct tcq_source_tensor *out, const struct tcq_gguf_model_tensor *tensor,
                     const char *file)
{
    const struct tcq_gguf_tensor *stored = tensor->stored;
    *out = (struct tcq_source_tensor){
        .name = tensor->name.hf,
        .type = stored->type->name,
        .dtype = tcq_gguf_model_dtype(tensor),
        .rank = stored->rank,
        .count = stored->count,
        .nbytes = stored->nbytes,
        .file = file,
        .data = stored->data,
    };
    for (uint32_t i = 0; i < stored->rank; i++)
        out->shape[i] = stored->shape[i];
}

static enum tcq_status make_config(struct tcq_source *source, struct tcq_error *error)
{
    json_t *config = NULL;
    enum tcq_status status = tcq_gguf_config_make(source->gguf, &config, error);
    if (status != TCQ_OK)
        return status;
    source->config = tcq_gguf_json_text(config);
    json_decref(config);
    return source->config ? TCQ_OK : tcq_error_memory(error, 1, "a config");
}

enum tcq_status tcq_source_open_gguf(struct tcq_source *source, struct tcq_error *error)
{
    const struct tcq_source_file *file = &source->files[0];
    enum tcq_status status = tcq_gguf_model_create(file->mapping.data, file->mapping.nbytes,
                                                   file->name, &source->gguf, error);
    if (status != TCQ_OK)
        return status;
    source->kind = TCQ_SOURCE_GGUF;
    source->count = tcq_gguf_model_count(source->gguf);
    source->tensors = tcq_alloc(source->count, sizeof *source->tensors);
    if (!source->tensors)
        return tcq_error_memory(error, source->count * sizeof *source->tensors,
                                "the list of tensors");
    for (size_t i = 0; i < source->count; i++)
        describe(&source->tensors[i], tcq_gguf_model_get(source->gguf, i), file->name);
    return make_config(source, error);
}

enum tcq_status tcq_source_read_gguf(const struct tcq_source *source, float *dst,
                                     const struct tcq_source_tensor *tensor, uint64_t row_first,
                                     uint64_t row_count, struct tcq_error *error)
{
    const struct tcq_source_tensor *listed = tcq_source_find(source, tensor->name);
    if (!listed)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "tensor '%.100s' is not of this source",
                             tensor->name);
    size_t i = (size_t)(listed - source->tensors); /* the model's order is the list's */
    return tcq_gguf_model_read(source->gguf, dst, tcq_gguf_model_get(source->gguf, i), row_first,
                               row_count, error);
}
