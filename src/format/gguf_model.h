/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GGUF file seen as a Hugging Face model: its sizes from the metadata, its
 * tensors under Hugging Face's names, checked against those sizes, and read in
 * the model's row order.
 *
 * gguf_config.h makes config.json from it, gguf_tokenizer.h the tokenizer.
 */
#ifndef TCQ_FORMAT_GGUF_MODEL_H
#define TCQ_FORMAT_GGUF_MODEL_H

#include "format/gguf.h"
#include "format/gguf_names.h"

enum tcq_gguf_scaling { TCQ_GGUF_SCALING_NONE = 0, TCQ_GGUF_SCALING_LINEAR, TCQ_GGUF_SCALING_YARN };

/* Numbers of the model, each within the range that gguf_settings.c gives. */
struct tcq_gguf_settings {
    const struct tcq_gguf_family *family;
    uint32_t layer_count;
    uint32_t hidden;
    uint32_t intermediate;
    uint32_t head_count;
    uint32_t kv_head_count;
    uint32_t head_dim;
    uint32_t context;
    uint32_t vocab; /* rows of the embedding */
    double norm_epsilon;
    double rope_theta;
    enum tcq_gguf_scaling scaling;
    double scaling_factor;
    uint32_t scaling_context; /* before scaling; 0 if not given */
};

/* Errors: FORMAT (a value missing, of the wrong type or out of range),
 * UNSUPPORTED (family, split files, a scaling or layout that is not read). */
enum tcq_status tcq_gguf_settings_read(const struct tcq_gguf *gguf, struct tcq_gguf_settings *out,
                                       struct tcq_error *error);

struct tcq_gguf_model;

/* One tensor of the model. */
struct tcq_gguf_model_tensor {
    struct tcq_gguf_name name;
    const struct tcq_gguf_tensor *stored;
};

/* data as for tcq_gguf_parse.  Errors: those of parsing, settings and names;
 * FORMAT for a missing tensor or one of the wrong shape. */
enum tcq_status tcq_gguf_model_create(const uint8_t *data, size_t nbytes, const char *label,
                                      struct tcq_gguf_model **out, struct tcq_error *error);
void tcq_gguf_model_destroy(struct tcq_gguf_model *model);

const struct tcq_gguf *tcq_gguf_model_file(const struct tcq_gguf_model *model);
const struct tcq_gguf_settings *tcq_gguf_model_settings(const struct tcq_gguf_model *model);

/* In the order of the names' bytes; derived tensors are left out. */
size_t tcq_gguf_model_count(const struct tcq_gguf_model *model);
const struct tcq_gguf_model_tensor *tcq_gguf_model_get(const struct tcq_gguf_model *model,
                                                       size_t i);

/* The dtype under which the stored bytes can be used as they are, or
 * TCQ_DTYPE_COUNT: for block types, and for rows that are in another order. */
enum tcq_dtype tcq_gguf_model_dtype(const struct tcq_gguf_model_tensor *tensor);

/* Rows row_first.. of a tensor (a vector is one row) as float32, in the model's
 * order.  Errors: UNSUPPORTED for the type, even with row_count 0; ARGUMENT for
 * a row out of range.  Messages carry the tensor's name. */
enum tcq_status tcq_gguf_model_read(const struct tcq_gguf_model *model, float *dst,
                                    const struct tcq_gguf_model_tensor *tensor, uint64_t row_first,
                                    uint64_t row_count, struct tcq_error *error);

#endif
