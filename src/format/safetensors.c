/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading safetensors: every length, offset, shape and type is checked against
 * the bytes that are there before a tensor is handed out.
 */
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/json.h"

static const char metadata_key[] = "__metadata__";

static uint64_t read_u64(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static enum tcq_status find_header(const uint8_t *data, size_t nbytes, size_t *header_nbytes,
                                   struct tcq_error *error)
{
    if (nbytes < TCQ_SAFETENSORS_LENGTH_NBYTES)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "%zu bytes: expected at least the 8 of the header length", nbytes);
    uint64_t length = read_u64(data);
    if (length > nbytes - TCQ_SAFETENSORS_LENGTH_NBYTES)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "header length %" PRIu64 " past end (%zu bytes in the file)", length,
                             nbytes);
    if (length > TCQ_SAFETENSORS_HEADER_NBYTES_MAX)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "header length %" PRIu64 ": at most %d",
                             length, TCQ_SAFETENSORS_HEADER_NBYTES_MAX);
    if (length == 0)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "header length 0: expected at least 2; what an interrupted run of "
                             "tcq leaves looks like this");
    if (data[TCQ_SAFETENSORS_LENGTH_NBYTES] != '{')
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "header of %" PRIu64 " bytes does not start with '{'", length);
    *header_nbytes = (size_t)length;
    return TCQ_OK;
}

static enum tcq_status parse_shape(const json_t *json, struct tcq_source_tensor *tensor,
                                   struct tcq_error *error)
{
    if (!json_is_array(json))
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "shape is missing or not an array");
    size_t rank = json_array_size(json);
    if (rank > TCQ_RANK_MAX)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "%zu dimensions: at most %u", rank,
                             TCQ_RANK_MAX);
    tensor->rank = (uint32_t)rank;
    tensor->count = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dimension = json_array_get(json, i);
        if (!json_is_integer(dimension) || json_integer_value(dimension) < 0)
            return tcq_error_set(error, TCQ_ERROR_FORMAT,
                                 "dimension %zu of the shape is not a whole number >= 0", i);
        tensor->shape[i] = (uint64_t)json_integer_value(dimension);
        if (__builtin_mul_overflow(tensor->count, tensor->shape[i], &tensor->count))
            return tcq_error_set(error, TCQ_ERROR_FORMAT, "the shape's element count overflows");
    }
    return TCQ_OK;
}

static enum tcq_status parse_offsets(const json_t *json, const uint8_t *data, size_t nbytes,
                                     struct tcq_source_tensor *tensor, struct tcq_error *error)
{
    const json_t *first = json_array_get(json, 0), *second = json_array_get(json, 1);
    if (json_array_size(json) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "data_offsets is not a pair of integers");
    int64_t begin = json_integer_value(first), end = json_integer_value(second);
    if (begin < 0)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "offset %" PRId64 " is negative", begin);
    if (begin > end)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "offsets %" PRId64 " and %" PRId64 " are reversed", begin, end);
    if ((uint64_t)end > nbytes)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "offset %" PRId64 " past end (%zu)", end,
                             nbytes);
    tensor->data = data + begin;
    tensor->nbytes = (uint64_t)(end - begin);
    return TCQ_OK;
}

/* A type that this library does not know keeps its name and its bytes, so that
 * the file can be listed; reading values is refused later. */
static enum tcq_status parse_type(const json_t *json, struct tcq_source_tensor *tensor,
                                  struct tcq_error *error)
{
    const char *name = json_string_value(json);
    if (!name)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "dtype is missing or not a string");
    tensor->type = name;
    tensor->dtype = TCQ_DTYPE_COUNT;
    for (int d = 0; d < TCQ_DTYPE_COUNT; d++)
        if (!strcmp(name, tcq_dtype_name((enum tcq_dtype)d)))
            tensor->dtype = (enum tcq_dtype)d;
    return TCQ_OK;
}

static enum tcq_status parse_entry(const json_t *json, const uint8_t *data, size_t nbytes,
                                   struct tcq_source_tensor *tensor, struct tcq_error *error)
{
    if (!json_is_object(json))
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "its entry is not an object");
    enum tcq_status status = parse_type(json_object_get(json, "dtype"), tensor, error);
    if (status == TCQ_OK)
        status = parse_shape(json_object_get(json, "shape"), tensor, error);
    if (status == TCQ_OK)
        status = parse_offsets(json_object_get(json, "data_offsets"), data, nbytes, tensor, error);
    if (status != TCQ_OK || tensor->dtype == TCQ_DTYPE_COUNT)
        return status;
    uint64_t expected;
    if (__builtin_mul_overflow(tensor->count, tcq_dtype_nbytes(tensor->dtype), &expected))
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "the shape's size in bytes overflows");
    if (expected != tensor->nbytes)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "%" PRIu64 " elements of %s are %" PRIu64
                             " bytes, its offsets span %" PRIu64,
                             tensor->count, tensor->type, expected, tensor->nbytes);
    return TCQ_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct tcq_source_tensor *x = a, *y = b;
    const uint8_t *p = x->data, *q = y->data;
    if (p != q)
        return p < q ? -1 : 1;
    return x->nbytes < y->nbytes ? -1 : x->nbytes > y->nbytes;
}

/* Sorted by offset, tensors must follow one another and fill the data. */
static enum tcq_status check_cover(const struct tcq_safetensors *st, const uint8_t *data,
                                   size_t nbytes, struct tcq_error *error)
{
    const uint8_t *position = data;
    for (size_t i = 0; i < st->count; i++) {
        const struct tcq_source_tensor *tensor = &st->tensors[i];
        const uint8_t *begin = tensor->data;
        if (begin < position)
            return tcq_error_set(error, TCQ_ERROR_FORMAT,
                                 "tensor '%.100s': offset %zu overlaps '%.100s', which ends at %zu",
                                 tensor->name, (size_t)(begin - data), st->tensors[i - 1].name,
                                 (size_t)(position - data));
        if (begin > position)
            return tcq_error_set(error, TCQ_ERROR_FORMAT,
                                 "tensor '%.100s': offset %zu leaves a gap after %zu", tensor->name,
                                 (size_t)(begin - data), (size_t)(position - data));
        position = begin + tensor->nbytes;
    }
    if (position != data + nbytes)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "the tensors end at %zu, the data at %zu: the header and the file's "
                             "length disagree",
                             (size_t)(position - data), nbytes);
    return TCQ_OK;
}

static enum tcq_status check_metadata(const json_t *metadata, struct tcq_error *error)
{
    if (!json_is_object(metadata))
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "__metadata__ is not an object");
    void *iter = json_object_iter((json_t *)(uintptr_t)metadata);
    for (; iter; iter = json_object_iter_next((json_t *)(uintptr_t)metadata, iter))
        if (!json_is_string(json_object_iter_value(iter)))
            return tcq_error_set(error, TCQ_ERROR_FORMAT, "__metadata__: '%.100s' is not a string",
                                 json_object_iter_key(iter));
    return TCQ_OK;
}

static enum tcq_status parse_entries(struct tcq_safetensors *st, const uint8_t *data, size_t nbytes,
                                     const char *file, struct tcq_error *error)
{
    size_t entries = json_object_size(st->header);
    st->tensors = tcq_alloc(entries, sizeof *st->tensors);
    if (!st->tensors)
        return tcq_error_memory(error, entries * sizeof *st->tensors, "the list of tensors");
    void *iter = json_object_iter(st->header);
    for (; iter; iter = json_object_iter_next(st->header, iter)) {
        const char *name = json_object_iter_key(iter);
        const json_t *value = json_object_iter_value(iter);
        enum tcq_status status;
        if (!strcmp(name, metadata_key)) {
            if ((status = check_metadata(value, error)) != TCQ_OK)
                return status;
            continue;
        }
        struct tcq_source_tensor *tensor = &st->tensors[st->count++];
        tensor->name = name;
        tensor->file = file;
        status = parse_entry(value, data, nbytes, tensor, error);
        if (status != TCQ_OK)
            return tcq_error_prefix(error, status, "tensor '%.100s'", name);
    }
    qsort(st->tensors, st->count, sizeof *st->tensors, compare_offsets);
    return check_cover(st, data, nbytes, error);
}

enum tcq_status tcq_safetensors_parse(const void *data, size_t nbytes, const char *file,
                                      struct tcq_safetensors *out, struct tcq_error *error)
{
    struct tcq_safetensors st = {0};
    size_t header_nbytes = 0;
    const uint8_t *bytes = data;
    enum tcq_status status = find_header(bytes, nbytes, &header_nbytes, error);
    if (status == TCQ_OK) {
        const uint8_t *header = bytes + TCQ_SAFETENSORS_LENGTH_NBYTES;
        status = tcq_json_parse((const char *)header, header_nbytes, 0, &st.header, error);
        if (status != TCQ_OK)
            tcq_error_prefix(error, status, "header");
        else
            status =
                parse_entries(&st, header + header_nbytes,
                              nbytes - header_nbytes - TCQ_SAFETENSORS_LENGTH_NBYTES, file, error);
    }
    if (status != TCQ_OK) {
        tcq_safetensors_release(&st);
        return tcq_error_prefix(error, status, "%s", file);
    }
    *out = st;
    return TCQ_OK;
}

void tcq_safetensors_release(struct tcq_safetensors *st)
{
    tcq_free(st->tensors);
    json_decref(st->header);
    *st = (struct tcq_safetensors){0};
}

const char *tcq_safetensors_metadata(const struct tcq_safetensors *st, const char *key)
{
    return json_string_value(json_object_get(json_object_get(st->header, metadata_key), key));
}
