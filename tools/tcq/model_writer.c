/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharded safetensors output over tcq_writer.
 */
#include "model_writer.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

static char *shard_name(const struct model_writer *w, size_t shard)
{
    char *name = NULL;
    if (w->shard_count == 1)
        return strdup(w->single_name);
    if (asprintf(&name, "model-%05zu-of-%05zu.safetensors", shard + 1, w->shard_count) < 0)
        return NULL;
    return name;
}

static char *shard_path(const struct model_writer *w, size_t shard)
{
    char *name = shard_name(w, shard), *path = NULL;
    if (!name || asprintf(&path, "%s/%s", w->folder, name) < 0)
        path = NULL;
    free(name);
    return path;
}

uint64_t model_tensor_nbytes(const struct model_tensor *tensor)
{
    uint64_t nbytes = tcq_dtype_nbytes(tensor->dtype);
    for (uint32_t i = 0; i < tensor->rank; i++)
        nbytes *= tensor->shape[i];
    return nbytes;
}

static enum tcq_status declare_all(struct model_writer *w, size_t shard, struct tcq_error *error)
{
    /* Loaders of PyTorch models ask for this key. */
    enum tcq_status status = tcq_writer_metadata(w->writer, "format", "pt", error);
    for (size_t i = 0; status == TCQ_OK && i < w->count; i++) {
        const struct model_tensor *t = &w->tensors[i];
        if (t->shard == shard)
            status = tcq_writer_declare(w->writer, t->name, t->dtype, t->rank, t->shape, error);
    }
    return status;
}

static enum tcq_status open_shard(struct model_writer *w, size_t shard, bool resume, size_t *done,
                                  struct tcq_error *error)
{
    char *path = shard_path(w, shard);
    if (!path)
        return tcq_error_set(error, TCQ_ERROR_MEMORY, "out of memory");
    w->open_shard = shard;
    enum tcq_status status = tcq_writer_create(path, w->overwrite, &w->writer, error);
    free(path);
    if (status == TCQ_OK)
        status = declare_all(w, shard, error);
    if (status == TCQ_OK)
        status = tcq_writer_begin(w->writer, resume, done, error);
    return status;
}

/* The first tensor of a shard that is not there under its final name. */
static bool first_unfinished(const struct model_writer *w, size_t *out, struct tcq_error *error)
{
    size_t i = 0;
    while (i < w->count) {
        char *path = shard_path(w, w->tensors[i].shard);
        if (!path) {
            tcq_error_set(error, TCQ_ERROR_MEMORY, "out of memory");
            return false;
        }
        bool whole = tcq_path_exists(path);
        free(path);
        if (!whole)
            break;
        for (size_t shard = w->tensors[i].shard; i < w->count && w->tensors[i].shard == shard;)
            i++;
    }
    *out = i;
    return true;
}

enum tcq_status model_writer_open(struct model_writer *writer, const char *folder,
                                  const char *single_name, bool overwrite,
                                  const struct model_tensor *tensors, size_t count, bool resume,
                                  size_t *done, struct tcq_error *error)
{
    *writer = (struct model_writer){
        .tensors = tensors,
        .count = count,
        .shard_count = count ? tensors[count - 1].shard + 1 : 1,
        .folder = folder,
        .single_name = single_name ? single_name : "model.safetensors",
        .overwrite = overwrite,
    };
    size_t first = 0, within = 0;
    if (resume && !first_unfinished(writer, &first, error))
        return TCQ_ERROR_MEMORY;
    enum tcq_status status = TCQ_OK;
    if (first < count || count == 0)
        status = open_shard(writer, count ? tensors[first].shard : 0, resume, &within, error);
    if (done)
        *done = first + within;
    return status;
}

static enum tcq_status finish_shard(struct model_writer *w, struct tcq_error *error)
{
    if (!w->writer)
        return TCQ_OK;
    enum tcq_status status = tcq_writer_finish(w->writer, error);
    tcq_writer_destroy(w->writer, status != TCQ_OK);
    w->writer = NULL;
    return status;
}

enum tcq_status model_writer_write(struct model_writer *writer, size_t i, const void *data,
                                   size_t nbytes, struct tcq_error *error)
{
    enum tcq_status status = TCQ_OK;
    if (writer->writer && writer->tensors[i].shard != writer->open_shard)
        status = finish_shard(writer, error);
    if (status == TCQ_OK && !writer->writer)
        status = open_shard(writer, writer->tensors[i].shard, false, NULL, error);
    if (status != TCQ_OK)
        return status;
    return tcq_writer_write(writer->writer, data, nbytes, error);
}

static enum tcq_status write_index(const struct model_writer *w, struct tcq_error *error)
{
    json_t *map = json_object();
    uint64_t total = 0;
    for (size_t i = 0; map && i < w->count; i++) {
        char *name = shard_name(w, w->tensors[i].shard);
        json_object_set_new(map, w->tensors[i].name, name ? json_string(name) : NULL);
        free(name);
        total += model_tensor_nbytes(&w->tensors[i]);
    }
    bool whole = map && json_object_size(map) == w->count;
    json_t *index =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *path = NULL;
    if (!index || !whole || asprintf(&path, "%s/model.safetensors.index.json", w->folder) < 0) {
        json_decref(index);
        return tcq_error_set(error, TCQ_ERROR_MEMORY, "out of memory");
    }
    enum tcq_status status = TCQ_OK;
    FILE *file = fopen(path, "w");
    bool ok = file && json_dumpf(index, file, JSON_INDENT(2)) == 0 && fputc('\n', file) != EOF &&
              fflush(file) == 0 && fsync(fileno(file)) == 0;
    if (!ok)
        status = tcq_error_set(error, TCQ_ERROR_IO, "%s: %s", path, strerror(errno));
    if (file && fclose(file) != 0 && ok)
        status = tcq_error_set(error, TCQ_ERROR_IO, "%s: %s", path, strerror(errno));
    free(path);
    json_decref(index);
    return status;
}

enum tcq_status model_writer_finish(struct model_writer *writer, struct tcq_error *error)
{
    enum tcq_status status = finish_shard(writer, error);
    if (status == TCQ_OK && writer->shard_count > 1)
        status = write_index(writer, error);
    return status;
}

void model_writer_close(struct model_writer *writer, bool keep_partial)
{
    tcq_writer_destroy(writer->writer, keep_partial);
    writer->writer = NULL;
}
