/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct tcq_writer: writer_header.c gathers the declarations and
 * makes the header of them, writer.c writes the file.
 */
#ifndef TCQ_FORMAT_WRITER_H
#define TCQ_FORMAT_WRITER_H

#include <jansson.h>

#include "tcq.h"

/* The header is padded so that the data, and with it every tensor of elements
 * up to this size, starts on a multiple of it. */
enum { TCQ_WRITER_ALIGNMENT = 8 };

struct tcq_writer_entry {
    char *name;
    enum tcq_dtype dtype;
    uint32_t rank;
    uint64_t shape[TCQ_RANK_MAX];
    uint64_t nbytes;
    uint64_t offset; /* in the data section */
};

struct tcq_writer {
    char *path, *partial, *done;
    bool overwrite, begun, finished;
    struct tcq_writer_entry *entries;
    size_t count, capacity;
    json_t *names, *metadata; /* names: a set, to find duplicates */
    char *header;             /* with its length in front, padded */
    size_t header_nbytes;
    uint64_t data_nbytes;
    int fd, done_fd;
    size_t current;   /* the tensor being written */
    uint64_t written; /* bytes of it */
};

/* Places the tensors and makes header, header_nbytes. */
enum tcq_status tcq_writer_make_header(struct tcq_writer *writer, struct tcq_error *error);

#endif
