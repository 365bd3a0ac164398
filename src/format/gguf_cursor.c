/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cursor of the GGUF parser.  It never passes the end of the file, and
 * every length is compared with what is left before it is used.
 */
#include "format/gguf_cursor.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

/* Arrays of arrays have no use in known files; the depth bounds recursion. */
#define ARRAY_DEPTH_MAX 4
/* The format's own limit on the length of a key. */
#define KEY_NBYTES_MAX 65535u
/* The format allows 64 bytes; some writers go further. */
#define TENSOR_NAME_NBYTES_MAX 256u

int tcq_gguf_shown(struct tcq_gguf_text text)
{
    return tcq_text_shown(text.bytes, text.nbytes);
}

struct tcq_gguf_text tcq_gguf_printable(struct tcq_gguf_text text)
{
    static const char words[] = "(not printable)";
    if (tcq_text_is_printable(text.bytes, text.nbytes))
        return text;
    return (struct tcq_gguf_text){words, sizeof words - 1};
}

/* ------------------------------------------------------------------------ */
/* The cursor                                                                */
/* ------------------------------------------------------------------------ */

static uint64_t load_le(const uint8_t *bytes, size_t nbytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < nbytes; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static enum tcq_status take(struct tcq_gguf_cursor *cursor, uint64_t nbytes, const char *what,
                            const uint8_t **out)
{
    size_t left = cursor->nbytes - cursor->at;
    if (nbytes > left)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: truncated: %s at byte %zu needs %" PRIu64
                             " bytes, but the file ends at %zu",
                             cursor->label, what, cursor->at, nbytes, cursor->nbytes);
    *out = cursor->data + cursor->at;
    cursor->at += (size_t)nbytes;
    return TCQ_OK;
}

enum tcq_status tcq_gguf_take_u32(struct tcq_gguf_cursor *cursor, const char *what, uint32_t *out)
{
    const uint8_t *bytes = NULL;
    enum tcq_status status = take(cursor, 4, what, &bytes);
    if (status == TCQ_OK)
        *out = (uint32_t)load_le(bytes, 4);
    return status;
}

enum tcq_status tcq_gguf_take_u64(struct tcq_gguf_cursor *cursor, const char *what, uint64_t *out)
{
    const uint8_t *bytes = NULL;
    enum tcq_status status = take(cursor, 8, what, &bytes);
    if (status == TCQ_OK)
        *out = load_le(bytes, 8);
    return status;
}

static enum tcq_status take_text(struct tcq_gguf_cursor *cursor, const char *what,
                                 struct tcq_gguf_text *out)
{
    uint64_t nbytes;
    const uint8_t *bytes = NULL;
    enum tcq_status status = tcq_gguf_take_u64(cursor, what, &nbytes);
    if (status == TCQ_OK)
        status = take(cursor, nbytes, what, &bytes);
    if (status == TCQ_OK) {
        out->bytes = (const char *)bytes;
        out->nbytes = (size_t)nbytes;
    }
    return status;
}

/* Keys and tensor names end up in messages and JSON, so they must be text. */
static enum tcq_status take_name(struct tcq_gguf_cursor *cursor, const char *what,
                                 size_t nbytes_max, struct tcq_gguf_text *out)
{
    size_t start = cursor->at;
    struct tcq_gguf_text text;
    enum tcq_status status = take_text(cursor, what, &text);
    if (status != TCQ_OK)
        return status;
    if (text.nbytes == 0 || text.nbytes > nbytes_max)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: %s at byte %zu is %zu bytes long (1 to %zu expected)",
                             cursor->label, what, start, text.nbytes, nbytes_max);
    if (!tcq_text_is_printable(text.bytes, text.nbytes))
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: %s at byte %zu is not printable UTF-8", cursor->label, what,
                             start);
    *out = text;
    return TCQ_OK;
}

/* ------------------------------------------------------------------------ */
/* Metadata                                                                  */
/* ------------------------------------------------------------------------ */

/* Bytes of a number or bool; 0 for strings, arrays and unknown types. */
static size_t number_nbytes(uint32_t type)
{
    static const uint8_t sizes[TCQ_GGUF_VALUE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < TCQ_GGUF_VALUE_COUNT ? sizes[type] : 0;
}

static struct tcq_gguf_value number_load(enum tcq_gguf_value_type type, const uint8_t *bytes)
{
    struct tcq_gguf_value value = {.type = type};
    size_t nbytes = number_nbytes(type);
    uint64_t raw = load_le(bytes, nbytes);
    uint32_t raw32 = (uint32_t)raw;
    uint64_t sign = nbytes != 0 ? (uint64_t)1 << (8 * nbytes - 1) : 0;
    float narrow;
    switch (type) {
    case TCQ_GGUF_VALUE_F32:
        memcpy(&narrow, &raw32, sizeof narrow);
        value.as.f = (double)narrow;
        break;
    case TCQ_GGUF_VALUE_F64:
        memcpy(&value.as.f, &raw, sizeof value.as.f);
        break;
    case TCQ_GGUF_VALUE_I8:
    case TCQ_GGUF_VALUE_I16:
    case TCQ_GGUF_VALUE_I32:
    case TCQ_GGUF_VALUE_I64:
        /* Flipping the sign bit and subtracting it extends it to 64 bits. */
        value.as.i = (int64_t)((raw ^ sign) - sign);
        break;
    default:
        value.as.u = raw;
        break;
    }
    return value;
}

static enum tcq_status take_array(struct tcq_gguf_cursor *cursor, int depth,
                                  struct tcq_gguf_array *out);

/* Pass over count strings or arrays, whose sizes only a walk can tell. */
static enum tcq_status skip_elements(struct tcq_gguf_cursor *cursor, int depth,
                                     enum tcq_gguf_value_type type, uint64_t count)
{
    enum tcq_status status = TCQ_OK;
    for (uint64_t i = 0; i < count && status == TCQ_OK; i++) {
        struct tcq_gguf_text text;
        struct tcq_gguf_array array;
        status = type == TCQ_GGUF_VALUE_STRING ? take_text(cursor, "a string of an array", &text)
                                               : take_array(cursor, depth + 1, &array);
    }
    return status;
}

static enum tcq_status check_bools(struct tcq_gguf_cursor *cursor, const uint8_t *bytes,
                                   uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (bytes[i] > 1)
            return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                                 "%s: a bool before byte %zu is %u (0 or 1 expected)",
                                 cursor->label, cursor->at, bytes[i]);
    }
    return TCQ_OK;
}

static enum tcq_status take_array(struct tcq_gguf_cursor *cursor, int depth,
                                  struct tcq_gguf_array *out)
{
    uint32_t type;
    uint64_t count;
    enum tcq_status status = tcq_gguf_take_u32(cursor, "an array's type", &type);
    if (status == TCQ_OK)
        status = tcq_gguf_take_u64(cursor, "an array's length", &count);
    if (status != TCQ_OK)
        return status;
    if (type >= TCQ_GGUF_VALUE_COUNT || depth > ARRAY_DEPTH_MAX)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: array before byte %zu: value type %" PRIu32
                             " at depth %d (types 0 to 12, depth up to %d expected)",
                             cursor->label, cursor->at, type, depth, ARRAY_DEPTH_MAX);
    const uint8_t *data = cursor->data + cursor->at;
    size_t start = cursor->at;
    size_t element_nbytes = number_nbytes(type);
    if (element_nbytes == 0) {
        status = skip_elements(cursor, depth, (enum tcq_gguf_value_type)type, count);
    } else {
        /* A length whose bytes would not fit 64 bits cannot fit the file. */
        uint64_t nbytes = count > UINT64_MAX / element_nbytes ? UINT64_MAX : count * element_nbytes;
        status = take(cursor, nbytes, "an array", &data);
        if (status == TCQ_OK && type == TCQ_GGUF_VALUE_BOOL)
            status = check_bools(cursor, data, count);
    }
    if (status == TCQ_OK) {
        *out = (struct tcq_gguf_array){(enum tcq_gguf_value_type)type, count, data,
                                       cursor->at - start};
    }
    return status;
}

static enum tcq_status take_value(struct tcq_gguf_cursor *cursor, uint32_t type,
                                  struct tcq_gguf_value *out)
{
    const uint8_t *bytes = NULL;
    enum tcq_status status;
    out->type = (enum tcq_gguf_value_type)type;
    if (type == TCQ_GGUF_VALUE_STRING)
        return take_text(cursor, "a string value", &out->as.text);
    if (type == TCQ_GGUF_VALUE_ARRAY)
        return take_array(cursor, 1, &out->as.array);
    status = take(cursor, number_nbytes(type), "a metadata value", &bytes);
    if (status == TCQ_OK && type == TCQ_GGUF_VALUE_BOOL)
        status = check_bools(cursor, bytes, 1);
    if (status == TCQ_OK)
        *out = number_load((enum tcq_gguf_value_type)type, bytes);
    return status;
}

enum tcq_status tcq_gguf_take_entry(struct tcq_gguf_cursor *cursor, struct tcq_gguf_entry *out)
{
    uint32_t type;
    enum tcq_status status = take_name(cursor, "a metadata key", KEY_NBYTES_MAX, &out->key);
    if (status == TCQ_OK)
        status = tcq_gguf_take_u32(cursor, "a metadata type", &type);
    if (status != TCQ_OK)
        return status;
    if (type >= TCQ_GGUF_VALUE_COUNT)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: metadata '%.*s': value type %" PRIu32 " (0 to 12 expected)",
                             cursor->label, tcq_gguf_shown(out->key), out->key.bytes, type);
    return take_value(cursor, type, &out->value);
}

/* ------------------------------------------------------------------------ */
/* Tensor infos                                                              */
/* ------------------------------------------------------------------------ */

enum tcq_status tcq_gguf_tensor_error(const struct tcq_gguf_cursor *cursor,
                                      const struct tcq_gguf_tensor *tensor, enum tcq_status status,
                                      const char *what)
{
    return tcq_error_set(cursor->error, status, "%s: tensor '%.*s': %s", cursor->label,
                         tcq_gguf_shown(tensor->name), tensor->name.bytes, what);
}

static enum tcq_status take_shape(struct tcq_gguf_cursor *cursor, struct tcq_gguf_tensor *tensor)
{
    uint32_t rank;
    enum tcq_status status = tcq_gguf_take_u32(cursor, "a tensor's rank", &rank);
    if (status != TCQ_OK)
        return status;
    if (rank == 0 || rank > TCQ_GGUF_RANK_MAX)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: tensor '%.*s': %" PRIu32 " dimensions (1 to %u expected)",
                             cursor->label, tcq_gguf_shown(tensor->name), tensor->name.bytes, rank,
                             TCQ_GGUF_RANK_MAX);
    tensor->rank = rank;
    tensor->count = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t size;
        status = tcq_gguf_take_u64(cursor, "a tensor's shape", &size);
        if (status != TCQ_OK)
            return status;
        if (size == 0)
            return tcq_gguf_tensor_error(cursor, tensor, TCQ_ERROR_FORMAT, "a dimension is zero");
        if (size > INT64_MAX / tensor->count)
            return tcq_gguf_tensor_error(cursor, tensor, TCQ_ERROR_FORMAT,
                                         "its shape has more than 2^63 elements");
        tensor->count *= size;
        tensor->shape[rank - 1 - i] = size;
    }
    return TCQ_OK;
}

static enum tcq_status check_type(const struct tcq_gguf_cursor *cursor, uint32_t number,
                                  struct tcq_gguf_tensor *tensor)
{
    const struct tcq_gguf_type_info *type = tcq_gguf_type_find(number);
    if (type == NULL || type->block_count == 0)
        return tcq_error_set(cursor->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: tensor '%.*s': %s type %" PRIu32 "%s%s", cursor->label,
                             tcq_gguf_shown(tensor->name), tensor->name.bytes,
                             type == NULL ? "unknown" : "retired", number, type == NULL ? "" : " ",
                             type == NULL ? "" : type->name);
    uint64_t row = tensor->shape[tensor->rank - 1];
    if (row % type->block_count != 0)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: tensor '%.*s': rows of %" PRIu64
                             " elements are no multiple of the %u of a %s block",
                             cursor->label, tcq_gguf_shown(tensor->name), tensor->name.bytes, row,
                             type->block_count, type->name);
    uint64_t blocks = tensor->count / type->block_count;
    if (blocks > INT64_MAX / type->block_nbytes)
        return tcq_gguf_tensor_error(cursor, tensor, TCQ_ERROR_FORMAT,
                                     "its size exceeds 2^63 bytes");
    tensor->type = type;
    tensor->nbytes = blocks * type->block_nbytes;
    return TCQ_OK;
}

enum tcq_status tcq_gguf_take_tensor(struct tcq_gguf_cursor *cursor, struct tcq_gguf_tensor *out)
{
    uint32_t type;
    enum tcq_status status =
        take_name(cursor, "a tensor's name", TENSOR_NAME_NBYTES_MAX, &out->name);
    if (status == TCQ_OK)
        status = take_shape(cursor, out);
    if (status == TCQ_OK)
        status = tcq_gguf_take_u32(cursor, "a tensor's type", &type);
    if (status == TCQ_OK)
        status = check_type(cursor, type, out);
    if (status == TCQ_OK)
        status = tcq_gguf_take_u64(cursor, "a tensor's offset", &out->offset);
    return status;
}

/* ------------------------------------------------------------------------ */
/* Elements of arrays                                                        */
/* ------------------------------------------------------------------------ */

struct tcq_gguf_value tcq_gguf_array_number(const struct tcq_gguf_array *array, uint64_t i)
{
    return number_load(array->type, array->data + (size_t)i * number_nbytes(array->type));
}

bool tcq_gguf_array_next_text(const struct tcq_gguf_array *array, size_t *at,
                              struct tcq_gguf_text *out)
{
    if (*at >= array->nbytes)
        return false;
    /* The parser has walked the array: lengths are known to fit. */
    out->nbytes = (size_t)load_le(array->data + *at, 8);
    out->bytes = (const char *)array->data + *at + 8;
    *at += 8 + out->nbytes;
    return true;
}
