/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's numbers, from GGUF metadata ("llama.block_count", ...).
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "format/gguf_model.h"

#define KEY_NBYTES 96u
/* Sizes beyond this belong to no model; products of two fit 64 bits. */
#define SIZE_MAX_SANE 0x7fffffffu

/* Where values come from and errors go to. */
struct reader {
    const struct tcq_gguf *gguf;
    const char *prefix;
    struct tcq_error *error;
};

static const struct tcq_gguf_value *find(const struct reader *reader, const char *name,
                                         char key[KEY_NBYTES])
{
    snprintf(key, KEY_NBYTES, "%s.%s", reader->prefix, name);
    return tcq_gguf_find(reader->gguf, key);
}

static enum tcq_status refuse(const struct reader *reader, const char *key, const char *expected)
{
    return tcq_error_set(reader->error, TCQ_ERROR_FORMAT, "%s: metadata '%s': %s expected",
                         tcq_gguf_label(reader->gguf), key, expected);
}

static bool value_integer(const struct tcq_gguf_value *value, uint64_t *out)
{
    switch (value->type) {
    case TCQ_GGUF_VALUE_U8:
    case TCQ_GGUF_VALUE_U16:
    case TCQ_GGUF_VALUE_U32:
    case TCQ_GGUF_VALUE_U64:
        *out = value->as.u;
        return true;
    case TCQ_GGUF_VALUE_I8:
    case TCQ_GGUF_VALUE_I16:
    case TCQ_GGUF_VALUE_I32:
    case TCQ_GGUF_VALUE_I64:
        *out = (uint64_t)value->as.i;
        return value->as.i >= 0;
    default:
        return false;
    }
}

/* Some writers give one value a layer; they are read if all are the same. */
static enum tcq_status array_integer(const struct reader *reader, const char *key,
                                     const struct tcq_gguf_array *array, uint64_t *out)
{
    uint64_t first = 0, other;
    bool numbers = array->type != TCQ_GGUF_VALUE_STRING && array->type != TCQ_GGUF_VALUE_ARRAY;
    for (uint64_t i = 0; i < array->count; i++) {
        struct tcq_gguf_value value = {.type = array->type};
        if (numbers)
            value = tcq_gguf_array_number(array, i);
        if (!value_integer(&value, &other))
            return refuse(reader, key, "an integer");
        if (i > 0 && other != first)
            return tcq_error_set(reader->error, TCQ_ERROR_UNSUPPORTED,
                                 "%s: metadata '%s' differs between layers (%" PRIu64
                                 " and %" PRIu64 "), which is not read",
                                 tcq_gguf_label(reader->gguf), key, first, other);
        first = other;
    }
    *out = first;
    return array->count > 0 ? TCQ_OK : refuse(reader, key, "an integer");
}

/* An integer of 1..SIZE_MAX_SANE; `fallback` where the key is missing, and
 * if that is 0 an error. */
static enum tcq_status read_size(const struct reader *reader, const char *name, uint32_t fallback,
                                 uint32_t *out)
{
    char key[KEY_NBYTES];
    const struct tcq_gguf_value *value = find(reader, name, key);
    uint64_t number = fallback;
    if (value == NULL && fallback == 0)
        return tcq_error_set(reader->error, TCQ_ERROR_FORMAT, "%s: metadata '%s' is missing",
                             tcq_gguf_label(reader->gguf), key);
    if (value != NULL && value->type == TCQ_GGUF_VALUE_ARRAY) {
        enum tcq_status status = array_integer(reader, key, &value->as.array, &number);
        if (status != TCQ_OK)
            return status;
    } else if (value != NULL && !value_integer(value, &number)) {
        return refuse(reader, key, "an integer");
    }
    if (number == 0 || number > SIZE_MAX_SANE)
        return tcq_error_set(reader->error, TCQ_ERROR_FORMAT,
                             "%s: metadata '%s' is %" PRIu64 " (1 to %u expected)",
                             tcq_gguf_label(reader->gguf), key, number, SIZE_MAX_SANE);
    *out = (uint32_t)number;
    return TCQ_OK;
}

/* A positive finite number; `fallback` as above. */
static enum tcq_status read_real(const struct reader *reader, const char *name, double fallback,
                                 double *out)
{
    char key[KEY_NBYTES];
    const struct tcq_gguf_value *value = find(reader, name, key);
    double number = fallback;
    if (value == NULL && !(fallback > 0))
        return tcq_error_set(reader->error, TCQ_ERROR_FORMAT, "%s: metadata '%s' is missing",
                             tcq_gguf_label(reader->gguf), key);
    if (value != NULL) {
        bool real = value->type == TCQ_GGUF_VALUE_F32 || value->type == TCQ_GGUF_VALUE_F64;
        number = real ? value->as.f : 0;
    }
    if (!isfinite(number) || number <= 0)
        return refuse(reader, key, "a positive float");
    *out = number;
    return TCQ_OK;
}

/* Files in parts, and GGUF files that are no models. */
static enum tcq_status check_kind(const struct reader *reader)
{
    const struct tcq_gguf_value *parts = tcq_gguf_find(reader->gguf, "split.count");
    const struct tcq_gguf_value *type = tcq_gguf_find(reader->gguf, "general.type");
    uint64_t count = 0;
    if (parts != NULL && value_integer(parts, &count) && count > 1)
        return tcq_error_set(reader->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: one of %" PRIu64 " parts of a split GGUF model: merge them first "
                             "(llama-gguf-split --merge)",
                             tcq_gguf_label(reader->gguf), count);
    if (type != NULL && type->type == TCQ_GGUF_VALUE_STRING &&
        !tcq_gguf_text_equal(type->as.text, "model")) {
        struct tcq_gguf_text name = tcq_gguf_printable(type->as.text);
        return tcq_error_set(reader->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: a GGUF file of type '%.*s' ('model' expected)",
                             tcq_gguf_label(reader->gguf), tcq_gguf_shown(name), name.bytes);
    }
    return TCQ_OK;
}

/* Rotary embedding over a part of each head, or of another size than the
 * values', is in no model of these families. */
static enum tcq_status read_heads(const struct reader *reader, struct tcq_gguf_settings *out)
{
    uint32_t value_dim, rotary_dim;
    enum tcq_status status = read_size(reader, "attention.head_count", 0, &out->head_count);
    if (status == TCQ_OK)
        status = read_size(reader, "attention.head_count_kv", out->head_count, &out->kv_head_count);
    if (status == TCQ_OK)
        status = read_size(reader, "attention.key_length",
                           out->hidden / out->head_count > 0 ? out->hidden / out->head_count : 1,
                           &out->head_dim);
    if (status == TCQ_OK)
        status = read_size(reader, "attention.value_length", out->head_dim, &value_dim);
    if (status == TCQ_OK)
        status = read_size(reader, "rope.dimension_count", out->head_dim, &rotary_dim);
    if (status != TCQ_OK)
        return status;
    if (value_dim != out->head_dim || rotary_dim != out->head_dim || out->head_dim % 2 != 0)
        return tcq_error_set(reader->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: heads of %u keys, %u values and %u rotary dimensions (equal "
                             "and even expected)",
                             tcq_gguf_label(reader->gguf), out->head_dim, value_dim, rotary_dim);
    if (out->head_count % out->kv_head_count != 0)
        return tcq_error_set(reader->error, TCQ_ERROR_FORMAT,
                             "%s: %u attention heads are no multiple of %u key-value heads",
                             tcq_gguf_label(reader->gguf), out->head_count, out->kv_head_count);
    return TCQ_OK;
}

static enum tcq_status read_scaling(const struct reader *reader, struct tcq_gguf_settings *out)
{
    char key[KEY_NBYTES];
    const struct tcq_gguf_value *type = find(reader, "rope.scaling.type", key);
    if (type == NULL)
        return TCQ_OK;
    if (type->type != TCQ_GGUF_VALUE_STRING)
        return refuse(reader, key, "a string");
    struct tcq_gguf_text name = tcq_gguf_printable(type->as.text);
    if (tcq_gguf_text_equal(name, "none"))
        return TCQ_OK;
    if (tcq_gguf_text_equal(name, "linear"))
        out->scaling = TCQ_GGUF_SCALING_LINEAR;
    else if (tcq_gguf_text_equal(name, "yarn"))
        out->scaling = TCQ_GGUF_SCALING_YARN;
    else
        return tcq_error_set(reader->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: rope scaling '%.*s' (none, linear or yarn expected)",
                             tcq_gguf_label(reader->gguf), tcq_gguf_shown(name), name.bytes);
    enum tcq_status status = read_real(reader, "rope.scaling.factor", 0, &out->scaling_factor);
    if (status == TCQ_OK && find(reader, "rope.scaling.original_context_length", key) != NULL)
        status =
            read_size(reader, "rope.scaling.original_context_length", 0, &out->scaling_context);
    return status;
}

/* The embedding is the vocabulary's size that counts: writers pad it. */
static enum tcq_status read_vocab(const struct reader *reader, struct tcq_gguf_settings *out)
{
    const struct tcq_gguf_tensor *embedding =
        tcq_gguf_tensor_find(reader->gguf, "token_embd.weight");
    if (embedding == NULL || embedding->rank != 2 || embedding->shape[0] > SIZE_MAX_SANE)
        return tcq_error_set(reader->error, TCQ_ERROR_FORMAT,
                             "%s: no tensor 'token_embd.weight' with two dimensions",
                             tcq_gguf_label(reader->gguf));
    out->vocab = (uint32_t)embedding->shape[0];
    return TCQ_OK;
}

enum tcq_status tcq_gguf_settings_read(const struct tcq_gguf *gguf, struct tcq_gguf_settings *out,
                                       struct tcq_error *error)
{
    struct reader reader = {.gguf = gguf, .error = error};
    struct tcq_gguf_settings settings = {0};
    enum tcq_status status = check_kind(&reader);
    if (status == TCQ_OK)
        status = tcq_gguf_family_find(gguf, &settings.family, error);
    if (status != TCQ_OK)
        return status;
    reader.prefix = settings.family->architecture;
    status = read_size(&reader, "block_count", 0, &settings.layer_count);
    if (status == TCQ_OK)
        status = read_size(&reader, "embedding_length", 0, &settings.hidden);
    if (status == TCQ_OK)
        status = read_size(&reader, "feed_forward_length", 0, &settings.intermediate);
    if (status == TCQ_OK)
        status = read_size(&reader, "context_length", 0, &settings.context);
    if (status == TCQ_OK)
        status = read_heads(&reader, &settings);
    if (status == TCQ_OK)
        status = read_real(&reader, "attention.layer_norm_rms_epsilon", 0, &settings.norm_epsilon);
    if (status == TCQ_OK) /* 10000 is the rotary embedding's customary base */
        status = read_real(&reader, "rope.freq_base", 10000.0, &settings.rope_theta);
    if (status == TCQ_OK)
        status = read_scaling(&reader, &settings);
    if (status == TCQ_OK)
        status = read_vocab(&reader, &settings);
    if (status == TCQ_OK)
        *out = settings;
    return status;
}
