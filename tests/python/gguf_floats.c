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
#include "format/gguf_dequantize.h"
#include "format/gguf_model.h"

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

static enum tcq_status print_model(const struct tcq_mapping *map, const char *path,
                                   struct tcq_error *error)
{
    struct tcq_gguf_model *model;
    enum tcq_status status = tcq_gguf_model_create(map->data, map->nbytes, path, &model, error);
    if (status != TCQ_OK)
        return status;
    for (size_t i = 0; i < tcq_gguf_model_count(model) && status == TCQ_OK; i++)
        status = print_model_tensor(model, tcq_gguf_model_get(model, i), error);
    tcq_gguf_model_destroy(model);
    return status;
}

static enum tcq_status print_floats(const char *mode, const char *path, struct tcq_error *error)
{
    struct tcq_mapping map;
    enum tcq_status status = tcq_mapping_open(path, &map, error);
    if (status != TCQ_OK)
        return status;
    status =
        strcmp(mode, "raw") == 0 ? print_raw(&map, path, error) : print_model(&map, path, error);
    tcq_mapping_close(&map);
    return status;
}

/* Through the public interface. */
static enum tcq_status print_json(const char *mode, const char *path, struct tcq_error *error)
{
    struct tcq_source *source;
    char *tokenizer = NULL, *tokenizer_config = NULL;
    enum tcq_status status = tcq_source_open(path, &source, error);
    if (status != TCQ_OK)
        return status;
    if (strcmp(mode, "config") == 0)
        printf("%s\n", tcq_source_config(source));
    else
        status = tcq_source_tokenizer(source, &tokenizer, &tokenizer_config, error);
    if (tokenizer != NULL)
        printf("%s\n", strcmp(mode, "tokenizer") == 0 ? tokenizer : tokenizer_config);
    free(tokenizer);
    free(tokenizer_config);
    tcq_source_close(source);
    return status;
}

int main(int argc, char **argv)
{
    struct tcq_error error = {0};
    if (argc != 3) {
        fprintf(stderr, "usage: gguf_floats raw|model|config|tokenizer|tokenizer_config FILE\n");
        return 2;
    }
    bool floats = strcmp(argv[1], "raw") == 0 || strcmp(argv[1], "model") == 0;
    enum tcq_status status =
        floats ? print_floats(argv[1], argv[2], &error) : print_json(argv[1], argv[2], &error);
    if (status != TCQ_OK)
        fprintf(stderr, "%s\n", error.message);
    return status == TCQ_OK ? 0 : 1;
}
