/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's tensors: translated, checked for shape and completeness, sorted,
 * and read row by row.
 */
#include "format/gguf_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/gguf_dequantize.h"

struct tcq_gguf_model {
    struct tcq_gguf *file;
    struct tcq_gguf_settings settings;
    struct tcq_gguf_model_tensor *tensors;
    size_t count;
};

static enum tcq_status tensor_error(const struct tcq_gguf_model *model,
                                    const struct tcq_gguf_tensor *tensor, enum tcq_status status,
                                    struct tcq_error *error)
{
    return tcq_error_prefix(error, status, "%s: tensor '%.*s'", tcq_gguf_label(model->file),
                            tcq_gguf_shown(tensor->name), tensor->name.bytes);
}

static uint64_t expected_size(const struct tcq_gguf_settings *settings, enum tcq_gguf_size size)
{
    const uint64_t sizes[TCQ_GGUF_SIZE_COUNT] = {
        [TCQ_GGUF_SIZE_HIDDEN] = settings->hidden,
        [TCQ_GGUF_SIZE_INTERMEDIATE] = settings->intermediate,
        [TCQ_GGUF_SIZE_QUERY] = (uint64_t)settings->head_count * settings->head_dim,
        [TCQ_GGUF_SIZE_KEY] = (uint64_t)settings->kv_head_count * settings->head_dim,
        [TCQ_GGUF_SIZE_HEAD] = settings->head_dim,
        [TCQ_GGUF_SIZE_VOCAB] = settings->vocab,
    };
    return sizes[size];
}

static enum tcq_status check_shape(const struct tcq_gguf_model *model,
                                   const struct tcq_gguf_tensor *tensor,
                                   const struct tcq_gguf_name *name, struct tcq_error *error)
{
    uint64_t rows = expected_size(&model->settings, name->rows);
    uint64_t cols = expected_size(&model->settings, name->cols);
    uint32_t rank = name->cols == TCQ_GGUF_SIZE_ANY ? 1 : 2;
    if (name->role == TCQ_GGUF_ROLE_DERIVED)
        return TCQ_OK;
    if (tensor->rank == rank && tensor->shape[0] == rows && (rank == 1 || tensor->shape[1] == cols))
        return TCQ_OK;
    if (rank == 1)
        tcq_error_set(error, TCQ_ERROR_FORMAT,
                      "%" PRIu32 " dimensions, the first %" PRIu64 " ([%" PRIu64 "] expected)",
                      tensor->rank, tensor->shape[0], rows);
    else
        tcq_error_set(error, TCQ_ERROR_FORMAT,
                      "%" PRIu32 " dimensions, the first %" PRIu64 " ([%" PRIu64 ", %" PRIu64
                      "] expected)",
                      tensor->rank, tensor->shape[0], rows, cols);
    return tensor_error(model, tensor, TCQ_ERROR_FORMAT, error);
}

static enum tcq_status add_tensor(struct tcq_gguf_model *model,
                                  const struct tcq_gguf_tensor *tensor, struct tcq_error *error)
{
    struct tcq_gguf_model_tensor *out = &model->tensors[model->count];
    enum tcq_status status =
        tcq_gguf_name_translate(model->file, model->settings.family, tensor, &out->name, error);
    if (status != TCQ_OK)
        return status;
    if (out->name.layer != UINT32_MAX && out->name.layer >= model->settings.layer_count) {
        tcq_error_set(error, TCQ_ERROR_FORMAT, "the model has only %" PRIu32 " blocks",
                      model->settings.layer_count);
        return tensor_error(model, tensor, TCQ_ERROR_FORMAT, error);
    }
    status = check_shape(model, tensor, &out->name, error);
    if (status == TCQ_OK && out->name.role != TCQ_GGUF_ROLE_DERIVED) {
        out->stored = tensor;
        model->count++;
    }
    return status;
}

static enum tcq_status check_layer(const struct tcq_gguf_model *model, uint32_t layer,
                                   struct tcq_error *error)
{
    char name[TCQ_GGUF_HF_NAME_NBYTES];
    for (size_t i = 0; tcq_gguf_name_required(model->settings.family, layer, i, name); i++)
        if (tcq_gguf_tensor_find(model->file, name) == NULL)
            return tcq_error_set(error, TCQ_ERROR_FORMAT, "%s: tensor '%s' is missing",
                                 tcq_gguf_label(model->file), name);
    return TCQ_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct tcq_gguf_model_tensor *left = a, *right = b;
    return strcmp(left->name.hf, right->name.hf);
}

static enum tcq_status fill(struct tcq_gguf_model *model, struct tcq_error *error)
{
    size_t stored = tcq_gguf_tensor_count(model->file);
    enum tcq_status status = tcq_gguf_settings_read(model->file, &model->settings, error);
    if (status != TCQ_OK)
        return status;
    model->tensors = tcq_alloc(stored, sizeof *model->tensors);
    if (model->tensors == NULL)
        return tcq_error_memory(error, stored * sizeof *model->tensors, "a model's tensors");
    for (size_t i = 0; i < stored && status == TCQ_OK; i++)
        status = add_tensor(model, tcq_gguf_tensor_get(model->file, i), error);
    if (status == TCQ_OK)
        status = check_layer(model, UINT32_MAX, error);
    for (uint32_t i = 0; i < model->settings.layer_count && status == TCQ_OK; i++)
        status = check_layer(model, i, error);
    qsort(model->tensors, model->count, sizeof *model->tensors, compare_names);
    return status;
}

enum tcq_status tcq_gguf_model_create(const uint8_t *data, size_t nbytes, const char *label,
                                      struct tcq_gguf_model **out, struct tcq_error *error)
{
    struct tcq_gguf_model *model = tcq_alloc(1, sizeof *model);
    if (model == NULL)
        return tcq_error_memory(error, sizeof *model, "a model");
    enum tcq_status status = tcq_gguf_parse(data, nbytes, label, &model->file, error);
    if (status == TCQ_OK)
        status = fill(model, error);
    if (status == TCQ_OK)
        *out = model;
    else
        tcq_gguf_model_destroy(model);
    return status;
}

void tcq_gguf_model_destroy(struct tcq_gguf_model *model)
{
    if (model == NULL)
        return;
    tcq_gguf_destroy(model->file);
    tcq_free(model->tensors);
    tcq_free(model);
}

const struct tcq_gguf *tcq_gguf_model_file(const struct tcq_gguf_model *model)
{
    return model->file;
}

const struct tcq_gguf_settings *tcq_gguf_model_settings(const struct tcq_gguf_model *model)
{
    return &model->settings;
}

size_t tcq_gguf_model_count(const struct tcq_gguf_model *model)
{
    return model->count;
}

const struct tcq_gguf_model_tensor *tcq_gguf_model_get(const struct tcq_gguf_model *model, size_t i)
{
    return i < model->count ? &model->tensors[i] : NULL;
}

enum tcq_dtype tcq_gguf_model_dtype(const struct tcq_gguf_model_tensor *tensor)
{
    if (tensor->name.role == TCQ_GGUF_ROLE_ROTARY)
        return TCQ_DTYPE_COUNT;
    return tcq_gguf_type_dtype(tensor->stored->type);
}

/* Element `row` of a reordered vector (a bias): its block is converted whole. */
static enum tcq_status read_element(float *dst, const struct tcq_gguf_tensor *stored, uint64_t row,
                                    struct tcq_error *error)
{
    float block[256]; /* the largest block of any type */
    uint64_t first = row - row % stored->type->block_count;
    const uint8_t *src =
        stored->data + first / stored->type->block_count * stored->type->block_nbytes;
    enum tcq_status status =
        tcq_gguf_dequantize(block, src, stored->type, stored->type->block_count, error);
    if (status == TCQ_OK)
        *dst = block[row - first];
    return status;
}

static enum tcq_status read_rotary(float *dst, const struct tcq_gguf_tensor *stored,
                                   uint64_t head_dim, uint64_t first, uint64_t count,
                                   struct tcq_error *error)
{
    bool vector = stored->rank == 1;
    uint64_t cols = vector ? 1 : stored->shape[1];
    uint64_t row_nbytes = stored->nbytes / stored->shape[0];
    enum tcq_status status = TCQ_OK;
    for (uint64_t i = 0; i < count && status == TCQ_OK; i++) {
        uint64_t row = tcq_gguf_rotary_row(first + i, head_dim);
        status = vector ? read_element(dst + i, stored, row, error)
                        : tcq_gguf_dequantize(dst + i * cols, stored->data + row * row_nbytes,
                                              stored->type, cols, error);
    }
    return status;
}

enum tcq_status tcq_gguf_model_read(const struct tcq_gguf_model *model, float *dst,
                                    const struct tcq_gguf_model_tensor *tensor, uint64_t row_first,
                                    uint64_t row_count, struct tcq_error *error)
{
    const struct tcq_gguf_tensor *stored = tensor->stored;
    uint64_t cols = stored->shape[stored->rank - 1];
    uint64_t rows = stored->count / cols;
    enum tcq_status status;
    if (!tcq_gguf_type_is_float(stored->type)) {
        status = tcq_gguf_dequantize(dst, stored->data, stored->type, 0, error);
    } else if (row_first > rows || row_count > rows - row_first) {
        status =
            tcq_error_set(error, TCQ_ERROR_ARGUMENT, "rows %" PRIu64 " to %" PRIu64 " of %" PRIu64,
                          row_first, row_first + row_count, rows);
    } else if (tensor->name.role == TCQ_GGUF_ROLE_ROTARY) {
        bool vector = stored->rank == 1; /* one row of the API, many of the permutation */
        status = read_rotary(dst, stored, model->settings.head_dim, vector ? 0 : row_first,
                             vector ? row_count * cols : row_count, error);
    } else {
        status = tcq_gguf_dequantize(dst, stored->data + row_first * (stored->nbytes / rows),
                                     stored->type, row_count * cols, error);
    }
    return status == TCQ_OK ? TCQ_OK : tensor_error(model, stored, status, error);
}
