/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF: parse; list everything; dequantize the first and last block of each
 * tensor; then as a model: config.json, tokenizer, and rows.
 */
#include "fuzz.h"

#include "base/memory.h"
#include "format/gguf_config.h"
#include "format/gguf_dequantize.h"
#include "format/gguf_model.h"
#include "format/gguf_tokenizer.h"

static volatile uint64_t sink; /* keeps reads from being optimised away */

static void walk_array(const struct tcq_gguf_array *array)
{
    struct tcq_gguf_text text;
    size_t at = 0;
    if (array->type == TCQ_GGUF_VALUE_STRING) {
        while (tcq_gguf_array_next_text(array, &at, &text))
            for (size_t i = 0; i < text.nbytes; i++)
                sink += (uint8_t)text.bytes[i];
        FUZZ_CHECK(at == array->nbytes);
    } else if (array->type != TCQ_GGUF_VALUE_ARRAY) {
        for (uint64_t i = 0; i < array->count; i++)
            sink += tcq_gguf_array_number(array, i).as.u;
    }
}

static void walk_entries(const struct tcq_gguf *gguf)
{
    for (size_t i = 0; i < tcq_gguf_entry_count(gguf); i++) {
        const struct tcq_gguf_entry *entry = tcq_gguf_entry_get(gguf, i);
        if (entry->value.type == TCQ_GGUF_VALUE_ARRAY)
            walk_array(&entry->value.as.array);
    }
}

static void walk_tensors(const struct tcq_gguf *gguf)
{
    float block[256];
    for (size_t i = 0; i < tcq_gguf_tensor_count(gguf); i++) {
        const struct tcq_gguf_tensor *tensor = tcq_gguf_tensor_get(gguf, i);
        const struct tcq_gguf_type_info *type = tensor->type;
        sink += tensor->data[0] + tensor->data[tensor->nbytes - 1];
        FUZZ_CHECK(tensor->nbytes / type->block_nbytes == tensor->count / type->block_count);
        if (!tcq_gguf_type_is_float(type))
            continue;
        const uint8_t *last = tensor->data + tensor->nbytes - type->block_nbytes;
        FUZZ_CHECK(!tcq_gguf_dequantize(block, tensor->data, type, type->block_count, NULL));
        FUZZ_CHECK(!tcq_gguf_dequantize(block, last, type, type->block_count, NULL));
    }
}

static void read_rows(const struct tcq_gguf_model *model,
                      const struct tcq_gguf_model_tensor *tensor)
{
    const struct tcq_gguf_tensor *stored = tensor->stored;
    uint64_t cols = stored->shape[stored->rank - 1], rows = stored->count / cols;
    struct tcq_error error = {0};
    float *row = malloc((size_t)cols * sizeof *row); /* bounded by the file's size */
    if (row == NULL)
        return;
    for (uint64_t i = 0; i < rows && i < 64; i++) {
        enum tcq_status status = tcq_gguf_model_read(model, row, tensor, rows - 1 - i, 1, &error);
        fuzz_check_status(status, &error);
        if (status != TCQ_OK)
            break;
    }
    free(row);
}

static void walk_model(const struct tcq_gguf_model *model)
{
    json_t *config = NULL, *tokenizer = NULL, *tokenizer_config = NULL;
    struct tcq_error error = {0}, other = {0};
    fuzz_check_status(tcq_gguf_config_make(model, &config, &error), &error);
    fuzz_check_status(tcq_gguf_tokenizer_make(model, &tokenizer, &tokenizer_config, &other),
                      &other);
    tcq_free(tcq_gguf_json_text(config));
    tcq_free(tcq_gguf_json_text(tokenizer));
    json_decref(config);
    json_decref(tokenizer);
    json_decref(tokenizer_config);
    for (size_t i = 0; i < tcq_gguf_model_count(model); i++)
        read_rows(model, tcq_gguf_model_get(model, i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    struct tcq_gguf *gguf = NULL;
    struct tcq_gguf_model *model = NULL;
    struct tcq_error error = {0};
    enum tcq_status status = tcq_gguf_parse(data, nbytes, "fuzz", &gguf, &error);
    fuzz_check_status(status, &error);
    if (status != TCQ_OK)
        return 0;
    walk_entries(gguf);
    walk_tensors(gguf);
    tcq_gguf_destroy(gguf);
    status = tcq_gguf_model_create(data, nbytes, "fuzz", &model, &error);
    fuzz_check_status(status, &error);
    if (status == TCQ_OK)
        walk_model(model);
    tcq_gguf_model_destroy(model);
    return 0;
}
