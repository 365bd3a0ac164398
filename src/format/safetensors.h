/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors container: an 8-byte little-endian header length, a JSON
 * header, then the tensors' bytes without gaps.  This parser works on bytes in
 * memory and trusts none of them.
 */
#ifndef TCQ_FORMAT_SAFETENSORS_H
#define TCQ_FORMAT_SAFETENSORS_H

#include <jansson.h>

#include "tcq.h"

enum {
    TCQ_SAFETENSORS_LENGTH_NBYTES = 8,
    /* The limit of the format's own library; a header takes about 100 bytes a tensor. */
    TCQ_SAFETENSORS_HEADER_NBYTES_MAX = 100000000
};

struct tcq_safetensors {
    struct tcq_source_tensor *tensors; /* in the order of their offsets */
    size_t count;
    json_t *header; /* names, and types that this library does not know, live in it */
};

/* Checks everything.  `file` is the name for messages and for the tensors'
 * `file`; it and `data` must outlive the result.  Errors: FORMAT; MEMORY;
 * UNSUPPORTED (a rank above TCQ_RANK_MAX). */
enum tcq_status tcq_safetensors_parse(const void *data, size_t nbytes, const char *file,
                                      struct tcq_safetensors *out, struct tcq_error *error);
void tcq_safetensors_release(struct tcq_safetensors *safetensors);

/* A string of __metadata__, or NULL. */
const char *tcq_safetensors_metadata(const struct tcq_safetensors *safetensors, const char *key);

#endif
