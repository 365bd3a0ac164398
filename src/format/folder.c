/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model folders: config.json, and model.safetensors or the shards that
 * model.safetensors.index.json names.  The index must tell the truth: every
 * tensor it names is in the shard it says, and no shard holds another.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/json.h"
#include "format/source.h"

static const char model_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";
static const char config_name[] = "config.json";

/* Without allocation, so that short memory is not taken for a missing file. */
static bool folder_has(const char *folder, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n >= 0 && (size_t)n < sizeof path && tcq_path_exists(path);
}

static enum tcq_status map_in_folder(const char *folder, const char *name, struct tcq_mapping *out,
                                     struct tcq_error *error)
{
    char *path = tcq_path_join(folder, name);
    if (!path)
        return tcq_error_memory(error, strlen(folder), "a path");
    enum tcq_status status = tcq_mapping_open(path, out, error);
    tcq_free(path);
    return status;
}

static enum tcq_status read_config(struct tcq_source *source, const char *folder,
                                   struct tcq_error *error)
{
    struct tcq_mapping map;
    if (!folder_has(folder, config_name))
        return TCQ_OK;
    enum tcq_status status = map_in_folder(folder, config_name, &map, error);
    if (status != TCQ_OK)
        return status;
    if (map.nbytes && memchr(map.data, '\0', map.nbytes))
        status = tcq_error_set(error, TCQ_ERROR_FORMAT, "%s: not a text file", config_name);
    else if (!(source->config = tcq_alloc(map.nbytes + 1, 1)))
        status = tcq_error_memory(error, map.nbytes + 1, config_name);
    else if (map.nbytes)
        memcpy(source->config, map.data, map.nbytes);
    tcq_mapping_close(&map);
    return status;
}

static enum tcq_status check_shard_name(const char *tensor, const json_t *value,
                                        struct tcq_error *error)
{
    const char *name = json_string_value(value);
    if (!name)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "tensor '%.100s': shard is not a string",
                             tensor);
    if (!*name || *name == '.' || strpbrk(name, "/\\") || strstr(name, ".."))
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "tensor '%.100s': '%.100s' is not the name of a file in this folder",
                             tensor, name);
    return TCQ_OK;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The shards' names, sorted and each once; *names is the caller's to free. */
static enum tcq_status list_shards(json_t *map, const char ***names, size_t *count,
                                   struct tcq_error *error)
{
    size_t total = json_object_size(map), used = 0;
    const char **list = tcq_alloc(total, sizeof *list);
    if (!list)
        return tcq_error_memory(error, total * sizeof *list, "the list of shards");
    for (void *i = json_object_iter(map); i; i = json_object_iter_next(map, i)) {
        const json_t *value = json_object_iter_value(i);
        enum tcq_status status = check_shard_name(json_object_iter_key(i), value, error);
        if (status != TCQ_OK) {
            tcq_free(list);
            return status;
        }
        list[used++] = json_string_value(value);
    }
    qsort(list, used, sizeof *list, compare_strings);
    size_t kept = 0;
    for (size_t i = 0; i < used; i++)
        if (!kept || strcmp(list[kept - 1], list[i]))
            list[kept++] = list[i];
    *names = list;
    *count = kept;
    return TCQ_OK;
}

static enum tcq_status add_from_folder(struct tcq_source *source, const char *folder,
                                       const char *name, struct tcq_error *error)
{
    char *path = tcq_path_join(folder, name);
    if (!path)
        return tcq_error_memory(error, strlen(folder), "a path");
    enum tcq_status status = tcq_source_add_file(source, path, error);
    tcq_free(path);
    return status;
}

static enum tcq_status open_shards(struct tcq_source *source, const char *folder, json_t *map,
                                   struct tcq_error *error)
{
    const char **names = NULL;
    size_t count = 0;
    enum tcq_status status = list_shards(map, &names, &count, error);
    if (status != TCQ_OK)
        return status;
    source->files = tcq_alloc(count, sizeof *source->files);
    if (!source->files)
        status = tcq_error_memory(error, count * sizeof *source->files, "the list of shards");
    for (size_t i = 0; i < count && status == TCQ_OK; i++)
        status = folder_has(folder, names[i])
                     ? add_from_folder(source, folder, names[i], error)
                     : tcq_error_set(error, TCQ_ERROR_IO, "shard %.100s is missing", names[i]);
    tcq_free(names);
    return status;
}

static const struct tcq_source_file *find_shard(const struct tcq_source *source, const char *name)
{
    for (size_t f = 0; f < source->file_count; f++)
        if (!strcmp(source->files[f].name, name))
            return &source->files[f];
    return NULL;
}

static bool holds(const struct tcq_source_file *file, const char *tensor)
{
    return json_object_get(file->safetensors.header, tensor) && strcmp(tensor, "__metadata__") != 0;
}

/* The file other than `shard` that holds the tensor, if any. */
static const char *held_elsewhere(const struct tcq_source *source, const char *tensor,
                                  const struct tcq_source_file *shard)
{
    for (size_t f = 0; f < source->file_count; f++)
        if (&source->files[f] != shard && holds(&source->files[f], tensor))
            return source->files[f].name;
    return NULL;
}

/* Every tensor of the index is in its shard. */
static enum tcq_status check_named(const struct tcq_source *source, json_t *map,
                                   struct tcq_error *error)
{
    for (void *i = json_object_iter(map); i; i = json_object_iter_next(map, i)) {
        const char *tensor = json_object_iter_key(i);
        const char *name = json_string_value(json_object_iter_value(i));
        const struct tcq_source_file *shard = find_shard(source, name);
        if (holds(shard, tensor))
            continue;
        const char *other = held_elsewhere(source, tensor, shard);
        if (other)
            return tcq_error_set(error, TCQ_ERROR_FORMAT, "tensor '%.100s' is in %s, not in %s",
                                 tensor, other, name);
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "tensor '%.100s' is missing from %s", tensor,
                             name);
    }
    return TCQ_OK;
}

/* Every tensor of a shard is in the index, and under that shard. */
static enum tcq_status check_held(const struct tcq_source *source, const json_t *map,
                                  struct tcq_error *error)
{
    for (size_t f = 0; f < source->file_count; f++) {
        const struct tcq_source_file *file = &source->files[f];
        for (size_t i = 0; i < file->safetensors.count; i++) {
            const char *tensor = file->safetensors.tensors[i].name;
            const char *shard = json_string_value(json_object_get(map, tensor));
            if (!shard)
                return tcq_error_set(error, TCQ_ERROR_FORMAT, "tensor '%.100s' of %s is not listed",
                                     tensor, file->name);
            if (strcmp(shard, file->name))
                return tcq_error_set(error, TCQ_ERROR_FORMAT,
                                     "tensor '%.100s' is in both %s and %s", tensor, shard,
                                     file->name);
        }
    }
    return TCQ_OK;
}

static enum tcq_status use_index(struct tcq_source *source, const char *folder, json_t *index,
                                 struct tcq_error *error)
{
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map))
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "no weight_map");
    enum tcq_status status = open_shards(source, folder, map, error);
    if (status == TCQ_OK)
        status = check_named(source, map, error);
    if (status == TCQ_OK)
        status = check_held(source, map, error);
    return status;
}

static enum tcq_status open_indexed(struct tcq_source *source, const char *folder,
                                    struct tcq_error *error)
{
    struct tcq_mapping map;
    enum tcq_status status = map_in_folder(folder, index_name, &map, error);
    if (status != TCQ_OK)
        return status;
    json_t *index = NULL;
    status = tcq_json_parse((const char *)map.data, map.nbytes, 0, &index, error);
    if (status == TCQ_OK)
        status = use_index(source, folder, index, error);
    json_decref(index);
    tcq_mapping_close(&map);
    return status == TCQ_OK ? status : tcq_error_prefix(error, status, "%s", index_name);
}

static bool holds_suffix(const char *folder, const char *suffix)
{
    DIR *dir = opendir(folder);
    bool found = false;
    size_t suffix_len = strlen(suffix);
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        size_t len = strlen(entry->d_name);
        found = len > suffix_len && !strcmp(entry->d_name + len - suffix_len, suffix);
    }
    if (dir)
        closedir(dir);
    return found;
}

static enum tcq_status refuse_folder(const char *folder, struct tcq_error *error)
{
    const char *hint = "";
    if (holds_suffix(folder, ".safetensors.partial"))
        hint = "; an unfinished .partial is: the run that wrote it was interrupted";
    else if (holds_suffix(folder, ".gguf"))
        hint = "; a .gguf file is: name the file itself";
    else if (holds_suffix(folder, ".safetensors"))
        hint = "; another .safetensors file is: name the file itself";
    else if (holds_suffix(folder, ".bin"))
        hint = "; a PyTorch .bin may be: convert it to safetensors";
    return tcq_error_set(error, TCQ_ERROR_IO, "%s: neither %s nor %s is in this folder%s", folder,
                         model_name, index_name, hint);
}

enum tcq_status tcq_source_open_folder(struct tcq_source *source, const char *folder,
                                       struct tcq_error *error)
{
    enum tcq_status status = read_config(source, folder, error);
    if (status != TCQ_OK)
        return status;
    if (folder_has(folder, index_name))
        return open_indexed(source, folder, error);
    if (!folder_has(folder, model_name))
        return refuse_folder(folder, error);
    source->files = tcq_alloc(1, sizeof *source->files);
    if (!source->files)
        return tcq_error_memory(error, sizeof *source->files, "a file");
    return add_from_folder(source, folder, model_name, error);
}
