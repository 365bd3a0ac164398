/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a safetensors file is going to hold: its declarations, and the header
 * that says them.
 */
#include "format/writer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/json.h"
#include "format/safetensors.h"

/* With the largest header, offsets in the file still fit an off_t. */
#define DATA_NBYTES_MAX ((uint64_t)INT64_MAX - TCQ_SAFETENSORS_HEADER_NBYTES_MAX - 8)

static enum tcq_status check_size(enum tcq_dtype dtype, uint32_t rank, const uint64_t *shape,
                                  uint64_t *nbytes, struct tcq_error *error)
{
    if (tcq_dtype_nbytes(dtype) == 0)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "dtype %d is unknown", (int)dtype);
    if (rank > TCQ_RANK_MAX || (rank && !shape))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "%u dimensions: at most %u, with a shape",
                             rank, TCQ_RANK_MAX);
    uint64_t size = tcq_dtype_nbytes(dtype);
    bool fits = true;
    for (uint32_t i = 0; i < rank; i++)
        fits = fits && shape[i] <= INT64_MAX && !__builtin_mul_overflow(size, shape[i], &size);
    if (!fits || size > INT64_MAX)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "its size in bytes overflows");
    *nbytes = size;
    return TCQ_OK;
}

static enum tcq_status check_name(const struct tcq_writer *writer, const char *name,
                                  struct tcq_error *error)
{
    if (!name || !*name)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "writer: a tensor without a name");
    if (!strcmp(name, "__metadata__"))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "tensor '%s': the name is reserved", name);
    if (json_object_get(writer->names, name))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "tensor '%.100s' is declared twice", name);
    return tcq_json_check_text(name, "a tensor's name", error);
}

static enum tcq_status add_entry(struct tcq_writer *writer, const struct tcq_writer_entry *entry,
                                 struct tcq_error *error)
{
    if (writer->count == writer->capacity) {
        size_t capacity = writer->capacity ? 2 * writer->capacity : 64;
        struct tcq_writer_entry *entries =
            tcq_realloc(writer->entries, writer->count, capacity, sizeof *entries);
        if (!entries)
            return tcq_error_memory(error, capacity * sizeof *entries, "the list of tensors");
        writer->entries = entries;
        writer->capacity = capacity;
    }
    if (json_object_set_new(writer->names, entry->name, json_true()) != 0)
        return tcq_error_memory(error, strlen(entry->name), "a name");
    writer->entries[writer->count++] = *entry;
    return TCQ_OK;
}

enum tcq_status tcq_writer_declare(struct tcq_writer *writer, const char *name,
                                   enum tcq_dtype dtype, uint32_t rank, const uint64_t *shape,
                                   struct tcq_error *error)
{
    if (!writer || writer->begun)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "writer: declare after begin");
    struct tcq_writer_entry entry = {.dtype = dtype, .rank = rank};
    enum tcq_status status = check_name(writer, name, error);
    if (status != TCQ_OK)
        return status;
    status = check_size(dtype, rank, shape, &entry.nbytes, error);
    /* Both are below 2^63, so their sum is right. */
    if (status == TCQ_OK && writer->data_nbytes + entry.nbytes > DATA_NBYTES_MAX)
        status = tcq_error_set(error, TCQ_ERROR_ARGUMENT, "the file's size overflows");
    if (status != TCQ_OK)
        return tcq_error_prefix(error, status, "tensor '%.100s'", name);
    if (rank)
        memcpy(entry.shape, shape, rank * sizeof *shape);
    entry.name = tcq_strdup(name);
    status = entry.name ? add_entry(writer, &entry, error)
                        : tcq_error_memory(error, strlen(name), "a name");
    if (status != TCQ_OK)
        tcq_free(entry.name);
    else
        writer->data_nbytes += entry.nbytes;
    return status;
}

enum tcq_status tcq_writer_metadata(struct tcq_writer *writer, const char *key, const char *value,
                                    struct tcq_error *error)
{
    if (!writer || writer->begun || !key || !value)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "writer: metadata after begin, or without key or value");
    enum tcq_status status = tcq_json_check_text(key, "a key of the metadata", error);
    if (status == TCQ_OK)
        status = tcq_json_check_text(value, "a value of the metadata", error);
    if (status == TCQ_OK && json_object_set_new(writer->metadata, key, json_string(value)) != 0)
        status = tcq_error_memory(error, strlen(value), "the metadata");
    return status;
}

/* ---- the header -------------------------------------------------------- */

/* Larger elements come first in the data, so that all lie aligned; among equal
 * sizes the order is that of the declarations. */
static void place_entries(struct tcq_writer *writer)
{
    uint64_t offset = 0;
    for (size_t size = TCQ_WRITER_ALIGNMENT; size; size /= 2)
        for (size_t i = 0; i < writer->count; i++)
            if (tcq_dtype_nbytes(writer->entries[i].dtype) == size) {
                writer->entries[i].offset = offset;
                offset += writer->entries[i].nbytes;
            }
}

static json_t *entry_json(const struct tcq_writer_entry *entry)
{
    json_t *shape = json_array();
    bool ok = shape != NULL;
    for (uint32_t i = 0; i < entry->rank && ok; i++)
        ok = json_array_append_new(shape, json_integer((json_int_t)entry->shape[i])) == 0;
    if (!ok) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tcq_dtype_name(entry->dtype), "shape", shape,
                     "data_offsets", (json_int_t)entry->offset,
                     (json_int_t)(entry->offset + entry->nbytes));
}

/* The whole header, in the order of the offsets. */
static json_t *header_json(const struct tcq_writer *writer)
{
    json_t *root = json_object();
    bool ok = root != NULL;
    if (ok && json_object_size(writer->metadata))
        ok = json_object_set(root, "__metadata__", writer->metadata) == 0;
    for (size_t size = TCQ_WRITER_ALIGNMENT; size && ok; size /= 2)
        for (size_t i = 0; i < writer->count && ok; i++)
            if (tcq_dtype_nbytes(writer->entries[i].dtype) == size)
                ok = json_object_set_new(root, writer->entries[i].name,
                                         entry_json(&writer->entries[i])) == 0;
    if (!ok) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* header: 8 zero bytes for the length, the JSON, spaces up to the alignment. */
enum tcq_status tcq_writer_make_header(struct tcq_writer *writer, struct tcq_error *error)
{
    place_entries(writer);
    json_t *root = header_json(writer);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text)
        return tcq_error_memory(error, writer->count * sizeof *writer->entries, "the header");
    size_t text_nbytes = strlen(text);
    size_t padded = (text_nbytes + TCQ_WRITER_ALIGNMENT - 1) & ~(size_t)(TCQ_WRITER_ALIGNMENT - 1);
    enum tcq_status status = TCQ_OK;
    if (padded > TCQ_SAFETENSORS_HEADER_NBYTES_MAX)
        status = tcq_error_set(error, TCQ_ERROR_ARGUMENT, "%s: header of %zu bytes: at most %d",
                               writer->path, padded, TCQ_SAFETENSORS_HEADER_NBYTES_MAX);
    else if (!(writer->header = tcq_alloc(TCQ_SAFETENSORS_LENGTH_NBYTES + padded, 1)))
        status = tcq_error_memory(error, padded, "the header");
    if (status == TCQ_OK) {
        writer->header_nbytes = TCQ_SAFETENSORS_LENGTH_NBYTES + padded;
        memset(writer->header + TCQ_SAFETENSORS_LENGTH_NBYTES, ' ', padded);
        memcpy(writer->header + TCQ_SAFETENSORS_LENGTH_NBYTES, text, text_nbytes);
    }
    free(text);
    return status;
}
