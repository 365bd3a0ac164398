/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a tokenizer: which files there are, and what the ones beside
 * tokenizer.json say about end tokens and the chat template.
 */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/json.h"
#include "model/tokenizer.h"

static enum tcq_status set_template(struct tcq_tokenizer *tokenizer, const char *text,
                                    size_t nbytes, struct tcq_error *error)
{
    char *copy = tcq_alloc(nbytes + 1, 1);
    if (!copy)
        return tcq_error_memory(error, nbytes, "the chat template");
    memcpy(copy, text, nbytes);
    tcq_free(tokenizer->chat_template);
    tokenizer->chat_template = copy;
    return TCQ_OK;
}

/* A token given as "text" or as {"content": "text"}. */
static void add_end_token(struct tcq_tokenizer *tokenizer, const json_t *value)
{
    const char *text = json_is_object(value) ? tcq_json_string(value, "content", NULL)
                                             : json_string_value(value);
    if (text)
        tcq_tokenizer_add_end(tokenizer, tcq_tokenizer_find(tokenizer, text));
}

enum tcq_status tcq_tokenizer_read_config(struct tcq_tokenizer *tokenizer, const json_t *root,
                                          struct tcq_error *error)
{
    add_end_token(tokenizer, json_object_get(root, "eos_token"));
    const json_t *form = json_object_get(root, "chat_template"), *entry;
    size_t i;
    json_array_foreach(form, i, entry)
        if (strcmp(tcq_json_string(entry, "name", ""), "default") == 0) {
            form = json_object_get(entry, "template");
            break;
        }
    if (!json_is_string(form))
        return TCQ_OK;
    return set_template(tokenizer, json_string_value(form), json_string_length(form), error);
}

static void add_end_id(struct tcq_tokenizer *tokenizer, const json_t *id)
{
    double value = json_number_value(id);
    if (json_is_number(id) && value >= 0 && value <= (double)UINT32_MAX)
        tcq_tokenizer_add_end(tokenizer, (uint32_t)value);
}

/* "eos_token_id": one id or a list of them. */
static enum tcq_status read_end_ids(struct tcq_tokenizer *tokenizer, const json_t *root,
                                    struct tcq_error *error)
{
    const json_t *ids = json_object_get(root, "eos_token_id"), *id;
    size_t i;
    (void)error;
    add_end_id(tokenizer, ids);
    json_array_foreach(ids, i, id)
        add_end_id(tokenizer, id);
    return TCQ_OK;
}

typedef enum tcq_status (*member_fn)(struct tcq_tokenizer *tokenizer, const json_t *root,
                                     struct tcq_error *error);

/* A JSON object from a file; messages begin with the file's name. */
static enum tcq_status parse_file(const char *path, size_t flags, json_t **out,
                                  struct tcq_error *error)
{
    struct tcq_mapping mapping;
    enum tcq_status status = tcq_mapping_open(path, &mapping, error);
    if (status)
        return status;
    status = tcq_json_parse((const char *)mapping.data, mapping.nbytes, flags, out, error);
    tcq_mapping_close(&mapping);
    return status ? tcq_error_prefix(error, status, "%s", tcq_path_name(path)) : TCQ_OK;
}

/* Read folder/name, if it exists, as JSON. */
static enum tcq_status read_beside(struct tcq_tokenizer *tokenizer, const char *folder,
                                   const char *name, member_fn read, struct tcq_error *error)
{
    char *path = tcq_path_join(folder, name);
    if (!path)
        return tcq_error_memory(error, strlen(folder) + strlen(name), "a path");
    enum tcq_status status = TCQ_OK;
    json_t *root = NULL;
    if (tcq_path_exists(path)) {
        /* "model_max_length" is often 10^30, which is no 64-bit integer */
        status = parse_file(path, JSON_DECODE_INT_AS_REAL, &root, error);
        if (!status)
            status = read(tokenizer, root, error);
        json_decref(root);
    }
    tcq_free(path);
    return status;
}

static enum tcq_status read_template_file(struct tcq_tokenizer *tokenizer, const char *folder,
                                          struct tcq_error *error)
{
    char *path = tcq_path_join(folder, "chat_template.jinja");
    if (!path)
        return tcq_error_memory(error, strlen(folder), "a path");
    enum tcq_status status = TCQ_OK;
    struct tcq_mapping mapping = {0};
    if (tcq_path_exists(path)) {
        status = tcq_mapping_open(path, &mapping, error);
        if (!status)
            status = set_template(tokenizer, mapping.data ? (const char *)mapping.data : "",
                                  mapping.nbytes, error);
        tcq_mapping_close(&mapping);
    }
    tcq_free(path);
    return status;
}

static enum tcq_status open_file(struct tcq_tokenizer *tokenizer, const char *path,
                                 struct tcq_error *error)
{
    struct tcq_mapping mapping;
    enum tcq_status status = tcq_mapping_open(path, &mapping, error);
    if (status)
        return status;
    if (mapping.nbytes >= 4 && memcmp(mapping.data, "GGUF", 4) == 0) {
        status = tcq_tokenizer_from_gguf(tokenizer, mapping.data, mapping.nbytes,
                                         tcq_path_name(path), error);
        tcq_mapping_close(&mapping);
        return status;
    }
    tcq_mapping_close(&mapping);
    json_t *root = NULL;
    status = parse_file(path, 0, &root, error);
    if (status)
        return status;
    status = tcq_tokenizer_from_json(tokenizer, root, error);
    json_decref(root);
    return status ? tcq_error_prefix(error, status, "%s", tcq_path_name(path)) : TCQ_OK;
}

static enum tcq_status open_folder(struct tcq_tokenizer *tokenizer, const char *folder,
                                   struct tcq_error *error)
{
    char *path = tcq_path_join(folder, "tokenizer.json");
    if (!path)
        return tcq_error_memory(error, strlen(folder), "a path");
    enum tcq_status status =
        tcq_path_exists(path)
            ? open_file(tokenizer, path, error)
            : tcq_error_set(error, TCQ_ERROR_IO, "%s: no tokenizer.json in this folder", folder);
    tcq_free(path);
    if (!status)
        status = read_beside(tokenizer, folder, "generation_config.json", read_end_ids, error);
    if (!status)
        status = read_beside(tokenizer, folder, "config.json", read_end_ids, error);
    if (!status)
        status = read_beside(tokenizer, folder, "tokenizer_config.json", tcq_tokenizer_read_config,
                             error);
    if (!status)
        status = read_template_file(tokenizer, folder, error);
    return status;
}

enum tcq_status tcq_tokenizer_open(const char *path, struct tcq_tokenizer **out,
                                   struct tcq_error *error)
{
    if (!path || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "tokenizer: a null pointer");
    struct tcq_tokenizer *tokenizer = tcq_alloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return tcq_error_memory(error, sizeof *tokenizer, "a tokenizer");
    tokenizer->bpe.unknown = TCQ_NO_TOKEN;
    for (size_t i = 0; i < 256; i++)
        tokenizer->bpe.bytes[i] = TCQ_NO_TOKEN;
    enum tcq_status status = tcq_path_is_folder(path) ? open_folder(tokenizer, path, error)
                                                      : open_file(tokenizer, path, error);
    if (!status)
        status = tcq_tokenizer_finish(tokenizer, error);
    tcq_memory_return(); /* a tokenizer.json of 9 MB is a tree of 80 MB while it is read */
    if (status)
        tcq_tokenizer_destroy(tokenizer);
    else
        *out = tokenizer;
    return status;
}
