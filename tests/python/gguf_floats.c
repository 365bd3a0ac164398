/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test program: prints every tensor of a GGUF file as a line
 * "NAME SIZE...\n" followed by its float32 values in binary.
 *     gguf_floats raw FILE     names and rows as in the file
 *     gguf_floats model FILE   names and rows as in the Hugging Face model
 * or the JSON made from the file's metadata:
 *     gguf_floats config|tokenizer|tokenizer_config FILE
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "format/gguf_config.h"
#include "format/gguf_dequantize.h"
#include "format/gguf_model.h"
#include "format/gguf_tokenizer.h"

static void print_head(const char *name, int length, const struct tcq_gguf_tensor *tensor)
{
    printf("%.*s", length, name);
    for (uint32_t i = 0; i < tensor->rank; i++)
        printf(" %" PRIu64, tensor->shape[i]);
    printf("\n");
}

static enum tcq_status print_raw(const struct tcq_mapping *map, const char *path,
                                 struct tcq_error *error)
{
    struct tcq_gguf *gguf;
    enum tcq_status status = tcq_gguf_parse(map->data, map->nbytes, path, &gguf, error);
    if (status != TCQ_OK)
        return status;
    for (size_t i = 0; i < tcq_gguf_tensor_count(gguf) && status == TCQ_OK; i++) {
        const struct tcq_gguf_tensor *tensor = tcq_gguf_tensor_get(gguf, i);
        float *values = malloc(tensor->count * sizeof *values);
        status = tcq_gguf_dequantize(values, tensor->data, tensor->type, tensor->count, error);
        print_head(tensor->name.bytes, (int)tensor->name.nbytes, tensor);
        fwrite(values, sizeof *values, tensor->count, stdout);
        free(values);
    }
    tcq_gguf_destroy(gguf);
    return status;
}

/* Two rows a call, so that ranges are exercised too. */
static enum tcq_status print_model_tensor(const struct tcq_gguf_model *model,
                                          const struct tcq_gguf_model_tensor *tensor,
                                          struct tcq_error *error)
{
    const struct tcq_gguf_tensor *stored = tensor->stored;
    uint64_t cols = stored->shape[stored->rank - 1], rows = stored->count / cols;
    float *values = malloc(2 * cols * sizeof *values);
    enum tcq_status status = TCQ_OK;
    print_head(tensor->name.hf, (int)strlen(tensor->name.hf), stored);
    for (uint64_t row = 0; row < rows && status == TCQ_OK; row += 2) {
        uint64_t count = rows - row < 2 ? 1 : 2;
        status = tcq_gguf_model_read(model, values, tensor, row, count, error);
        fwrite(values, sizeof *values, count * cols, stdout);
    }
    free(values);
    return status;
}

static enum tcq_status print_json(const struct tcq_gguf_model *model, const char *mode,
                                  struct tcq_error *error)
{
    json_t *config = NULL, *tokenizer = NULL, *tokenizer_config = NULL;
    enum tcq_status status =
        strcmp(mode, "config") == 0
            ? tcq_gguf_config_make(model, &config, error)
            : tcq_gguf_tokenizer_make(model, &tokenizer, &tokenizer_config, error);
    if (status == TCQ_OK) {
        json_t *wanted = strcmp(mode, "tokenizer_config") == 0 ? tokenizer_config
                         : strcmp(mode, "tokenizer") == 0      ? tokenizer
                                                               : config;
        char *text = tcq_gguf_json_text(wanted);
        printf("%s\n", text);
        tcq_free(text);
    }
    json_decref(config);
    json_decref(tokenizer);
    json_decref(tokenizer_config);
    return status;
}

static enum tcq_status print_model(const struct tcq_mapping *map, const char *mode,
                                   const char *path, struct tcq_error *error)
{
    struct tcq_gguf_model *model;
    enum tcq_status status = tcq_gguf_model_create(map->data, map->nbytes, path, &model, error);
    if (status != TCQ_OK)
        return status;
    if (strcmp(mode, "model") != 0)
        status = print_json(model, mode, error);
    else
        for (size_t i = 0; i < tcq_gguf_model_count(model) && status == TCQ_OK; i++)
            status = print_model_tensor(model, tcq_gguf_model_get(model, i), error);
    tcq_gguf_model_destroy(model);
    return status;
}

int main(int argc, char **argv)
{
    struct tcq_error error = {0};
    struct tcq_mapping map;
    if (argc != 3) {
        fprintf(stderr, "usage: gguf_floats raw|model|config|tokenizer|tokenizer_config FILE\n");
        return 2;
    }
    enum tcq_status status = tcq_mapping_open(argv[2], &map, &error);
    if (status == TCQ_OK) {
        status = strcmp(argv[1], "raw") == 0 ? print_raw(&map, argv[2], &error)
                                             : print_model(&map, argv[1], argv[2], &error);
        tcq_mapping_close(&map);
    }
    if (status != TCQ_OK)
        fprintf(stderr, "%s\n", error.message);
    return status == TCQ_OK ? 0 : 1;
}
