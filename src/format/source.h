/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct tcq_source: files mapped and parsed, their tensors in
 * one list sorted by name.
 */
#ifndef TCQ_FORMAT_SOURCE_H
#define TCQ_FORMAT_SOURCE_H

#include <pthread.h>

#include "base/file.h"
#include "format/safetensors.h"
#include "tcq.h"

struct tcq_source_file {
    char *name; /* without folders */
    struct tcq_mapping mapping;
    struct tcq_safetensors safetensors;
};

/* A copy of a tensor that lies unaligned in its file (tcq_source_aligned). */
struct tcq_source_copy {
    const void *original;
    void *aligned;
    struct tcq_source_copy *next;
};

/* The copies change behind a const source, so they have their own lock. */
struct tcq_source_copies {
    pthread_mutex_t lock;
    struct tcq_source_copy *first;
};

struct tcq_gguf_model;

struct tcq_source {
    enum tcq_source_kind kind;
    struct tcq_source_file *files;
    size_t file_count;
    struct tcq_source_tensor *tensors; /* sorted by name */
    size_t count;
    char *config;
    struct tcq_source_copies *copies;
    struct tcq_gguf_model *gguf; /* of TCQ_SOURCE_GGUF */
};

/* Maps and parses the file as files[file_count], which must have room.  A GGUF
 * file is only mapped and sets kind; in a folder it is refused. */
enum tcq_status tcq_source_add_file(struct tcq_source *source, const char *path,
                                    struct tcq_error *error);

/* Fills files from a model folder, and config if it has a config.json; checks
 * its index against its shards. */
enum tcq_status tcq_source_open_folder(struct tcq_source *source, const char *folder,
                                       struct tcq_error *error);

/* Lists the tensors of files[0], which is mapped. */
enum tcq_status tcq_source_open_gguf(struct tcq_source *source, struct tcq_error *error);
enum tcq_status tcq_source_read_gguf(const struct tcq_source *source, float *dst,
                                     const struct tcq_source_tensor *tensor, uint64_t row_first,
                                     uint64_t row_count, struct tcq_error *error);

/* The tensor's bytes at an address that `alignment` divides: where they are, or
 * a copy that lives until the source is closed.  NULL if memory is short. */
const void *tcq_source_aligned(const struct tcq_source *source,
                               const struct tcq_source_tensor *tensor, size_t alignment);

#endif
