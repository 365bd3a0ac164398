/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct tcq_source: one list of tensors over a safetensors file, a model
 * folder or a GGUF file.
 */
#include "format/source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/gguf_model.h"
#include "format/sniff.h"

static void close_file(struct tcq_source_file *file)
{
    tcq_safetensors_release(&file->safetensors);
    tcq_mapping_close(&file->mapping);
    tcq_free(file->name);
}

static enum tcq_status parse_file(struct tcq_source *source, struct tcq_source_file *file,
                                  struct tcq_error *error)
{
    const struct tcq_mapping *map = &file->mapping;
    if (tcq_sniff_is_gguf(map->data, map->nbytes) && source->kind == TCQ_SOURCE_FOLDER)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "%s: a GGUF file under the name of a safetensors file", file->name);
    if (tcq_sniff_is_gguf(map->data, map->nbytes)) {
        source->kind = TCQ_SOURCE_GGUF;
        return TCQ_OK;
    }
    const char *foreign = tcq_sniff_foreign(map->data, map->nbytes);
    if (foreign)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "%s: this is %s", file->name, foreign);
    return tcq_safetensors_parse(map->data, map->nbytes, file->name, &file->safetensors, error);
}

enum tcq_status tcq_source_add_file(struct tcq_source *source, const char *path,
                                    struct tcq_error *error)
{
    struct tcq_source_file file = {.name = tcq_strdup(tcq_path_name(path))};
    enum tcq_status status = file.name ? tcq_mapping_open(path, &file.mapping, error)
                                       : tcq_error_memory(error, strlen(path), "a file name");
    if (status == TCQ_OK)
        status = parse_file(source, &file, error);
    if (status != TCQ_OK)
        close_file(&file);
    else
        source->files[source->file_count++] = file;
    return status;
}

static int compare_names(const void *a, const void *b)
{
    const struct tcq_source_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* One list over all files, sorted.  Names are unique: in a file by its JSON, over
 * shards by the index. */
static enum tcq_status list_tensors(struct tcq_source *source, struct tcq_error *error)
{
    size_t count = 0;
    for (size_t f = 0; f < source->file_count; f++)
        count += source->files[f].safetensors.count;
    source->tensors = tcq_alloc(count, sizeof *source->tensors);
    if (!source->tensors)
        return tcq_error_memory(error, count * sizeof *source->tensors, "the list of tensors");
    for (size_t f = 0; f < source->file_count; f++) {
        const struct tcq_safetensors *st = &source->files[f].safetensors;
        if (st->count)
            memcpy(source->tensors + source->count, st->tensors, st->count * sizeof *st->tensors);
        source->count += st->count;
    }
    qsort(source->tensors, count, sizeof *source->tensors, compare_names);
    return TCQ_OK;
}

static enum tcq_status open_file(struct tcq_source *source, const char *path,
                                 struct tcq_error *error)
{
    source->files = tcq_alloc(1, sizeof *source->files);
    if (!source->files)
        return tcq_error_memory(error, sizeof *source->files, "a file");
    return tcq_source_add_file(source, path, error);
}

static enum tcq_status open_any(struct tcq_source *source, const char *path,
                                struct tcq_error *error)
{
    source->copies = tcq_alloc(1, sizeof *source->copies);
    if (!source->copies)
        return tcq_error_memory(error, sizeof *source->copies, "a source");
    pthread_mutex_init(&source->copies->lock, NULL);
    enum tcq_status status;
    if (tcq_path_is_folder(path)) {
        source->kind = TCQ_SOURCE_FOLDER;
        status = tcq_source_open_folder(source, path, error);
    } else {
        status = open_file(source, path, error);
    }
    if (status != TCQ_OK)
        return status;
    return source->kind == TCQ_SOURCE_GGUF ? tcq_source_open_gguf(source, error)
                                           : list_tensors(source, error);
}

enum tcq_status tcq_source_open(const char *path, struct tcq_source **out, struct tcq_error *error)
{
    if (!path || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "source: path or out is NULL");
    struct tcq_source *source = tcq_alloc(1, sizeof *source);
    if (!source)
        return tcq_error_memory(error, sizeof *source, "a source");
    enum tcq_status status = open_any(source, path, error);
    if (status != TCQ_OK)
        tcq_source_close(source);
    else
        *out = source;
    return status;
}

static void free_copies(struct tcq_source_copies *copies)
{
    if (!copies)
        return;
    for (struct tcq_source_copy *copy = copies->first, *next; copy; copy = next) {
        next = copy->next;
        tcq_free(copy->aligned);
        tcq_free(copy);
    }
    pthread_mutex_destroy(&copies->lock);
    tcq_free(copies);
}

void tcq_source_close(struct tcq_source *source)
{
    if (!source)
        return;
    tcq_gguf_model_destroy(source->gguf);
    for (size_t f = 0; f < source->file_count; f++)
        close_file(&source->files[f]);
    free_copies(source->copies);
    tcq_free(source->files);
    tcq_free(source->tensors);
    tcq_free(source->config);
    tcq_free(source);
}

enum tcq_source_kind tcq_source_get_kind(const struct tcq_source *source)
{
    return source->kind;
}

size_t tcq_source_count(const struct tcq_source *source)
{
    return source->count;
}

const struct tcq_source_tensor *tcq_source_get(const struct tcq_source *source, size_t i)
{
    return i < source->count ? &source->tensors[i] : NULL;
}

const struct tcq_source_tensor *tcq_source_find(const struct tcq_source *source, const char *name)
{
    struct tcq_source_tensor key = {.name = name};
    return bsearch(&key, source->tensors, source->count, sizeof key, compare_names);
}

const char *tcq_source_config(const struct tcq_source *source)
{
    return source->config;
}

const char *tcq_source_metadata(const struct tcq_source *source, const char *key)
{
    const char *value = NULL;
    for (size_t f = 0; f < source->file_count && !value; f++)
        value = tcq_safetensors_metadata(&source->files[f].safetensors, key);
    return value;
}

static struct tcq_source_copy *make_copy(const struct tcq_source_tensor *tensor)
{
    struct tcq_source_copy *copy = tcq_alloc(1, sizeof *copy);
    void *aligned = tcq_alloc((size_t)tensor->nbytes, 1);
    if (!copy || !aligned) {
        tcq_free(copy);
        tcq_free(aligned);
        return NULL;
    }
    memcpy(aligned, tensor->data, (size_t)tensor->nbytes);
    *copy = (struct tcq_source_copy){tensor->data, aligned, NULL};
    return copy;
}

const void *tcq_source_aligned(const struct tcq_source *source,
                               const struct tcq_source_tensor *tensor, size_t alignment)
{
    if ((uintptr_t)tensor->data % alignment == 0)
        return tensor->data;
    struct tcq_source_copies *copies = source->copies;
    pthread_mutex_lock(&copies->lock);
    struct tcq_source_copy *copy = copies->first;
    while (copy && copy->original != tensor->data)
        copy = copy->next;
    if (!copy && (copy = make_copy(tensor))) {
        copy->next = copies->first;
        copies->first = copy;
    }
    pthread_mutex_unlock(&copies->lock);
    return copy ? copy->aligned : NULL;
}

/* Rows of the innermost dimension; a scalar or a vector is one row. */
static void count_rows(const struct tcq_source_tensor *tensor, uint64_t *rows, uint64_t *length)
{
    *length = tensor->rank ? tensor->shape[tensor->rank - 1] : 1;
    *rows = 1;
    for (uint32_t i = 0; i + 1 < tensor->rank; i++)
        *rows *= tensor->shape[i];
}

enum tcq_status tcq_source_read_f32(const struct tcq_source *source, float *dst,
                                    const struct tcq_source_tensor *tensor, uint64_t row_first,
                                    uint64_t row_count, struct tcq_error *error)
{
    if (!source || !tensor || (!dst && row_count))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "source: a pointer is NULL");
    uint64_t rows, length;
    count_rows(tensor, &rows, &length);
    if (row_first > rows || row_count > rows - row_first)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "tensor '%.100s': rows %" PRIu64 " to %" PRIu64 " of %" PRIu64,
                             tensor->name, row_first, row_first + row_count, rows);
    if (source->kind == TCQ_SOURCE_GGUF)
        return tcq_source_read_gguf(source, dst, tensor, row_first, row_count, error);
    size_t row_nbytes = (size_t)length * tcq_dtype_nbytes(tensor->dtype);
    const uint8_t *data = tensor->data;
    if (tcq_convert_to_f32(dst, data + row_first * row_nbytes, tensor->dtype,
                           (size_t)(row_count * length)) == TCQ_OK)
        return TCQ_OK;
    return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                         "tensor '%.100s': type %.40s cannot be read as numbers: expected F32, "
                         "F16, BF16 or F64",
                         tensor->name, tensor->type);
}
