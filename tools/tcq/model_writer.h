/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a model written one after another into one or several
 * safetensors files under Hugging Face's names, with the index of several.
 */
#ifndef TCQ_MODEL_WRITER_H
#define TCQ_MODEL_WRITER_H

#include "tcq.h"

/* One tensor to come; shards count from 0 and never go down along the list. */
struct model_tensor {
    const char *name;
    enum tcq_dtype dtype;
    uint32_t rank;
    uint64_t shape[TCQ_RANK_MAX];
    size_t shard;
};

struct model_writer {
    const struct model_tensor *tensors; /* the caller's */
    size_t count, shard_count;
    const char *folder;      /* the caller's */
    const char *single_name; /* the file's name if there is one shard */
    bool overwrite;
    struct tcq_writer *writer; /* of the file being written, or NULL */
    size_t open_shard;
};

/* With resume, *done is how many leading tensors are complete already: whole
 * files and the finished part of a partial one.  The first shard that is not
 * whole is then open.  single_name NULL means "model.safetensors". */
enum tcq_status model_writer_open(struct model_writer *writer, const char *folder,
                                  const char *single_name, bool overwrite,
                                  const struct model_tensor *tensors, size_t count, bool resume,
                                  size_t *done, struct tcq_error *error);
/* Appends bytes to tensor i; tensors are written in order, each whole. */
enum tcq_status model_writer_write(struct model_writer *writer, size_t i, const void *data,
                                   size_t nbytes, struct tcq_error *error);
/* Finishes the last file and, if there are several, writes their index. */
enum tcq_status model_writer_finish(struct model_writer *writer, struct tcq_error *error);
/* Frees; an unfinished file stays as .partial if keep_partial. */
void model_writer_close(struct model_writer *writer, bool keep_partial);

uint64_t model_tensor_nbytes(const struct model_tensor *tensor);

#endif
