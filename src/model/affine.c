/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLX's affine modules: their three tensors, checked, and rows of them.
 */
#include "model/affine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "format/source.h"
#include "model/json.h"

enum { NAME_NBYTES = 256 };

/* MLX's bits and group size of a module: its own entry, or the defaults. */
static enum tcq_status read_settings(struct tcq_affine *affine, const json_t *quantization,
                                     const char *module, struct tcq_error *error)
{
    const json_t *entry = json_object_get(quantization, module);
    const char *mode = tcq_json_string(quantization, "mode", "affine");
    affine->bits = 4;
    affine->group = 64;
    enum tcq_status status = tcq_json_u32(quantization, "bits", &affine->bits, error);
    if (!status)
        status = tcq_json_u32(quantization, "group_size", &affine->group, error);
    if (!status && json_is_object(entry)) {
        mode = tcq_json_string(entry, "mode", mode);
        status = tcq_json_u32(entry, "bits", &affine->bits, error);
        if (!status)
            status = tcq_json_u32(entry, "group_size", &affine->group, error);
    }
    if (status)
        return status;
    if (strcmp(mode, "affine") != 0)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "module '%s': mode '%.40s' is not implemented", module, mode);
    uint32_t bits = affine->bits, group = affine->group;
    bool known = bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
    if (!known || (group != 32 && group != 64 && group != 128))
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "module '%s': affine with %u bits and groups of %u is not implemented",
                             module, bits, group);
    return TCQ_OK;
}

static const struct tcq_source_tensor *find(const struct tcq_source *source, const char *module,
                                            const char *suffix)
{
    char name[NAME_NBYTES];
    int n = snprintf(name, sizeof name, "%s%s", module, suffix);
    return n > 0 && n < NAME_NBYTES ? tcq_source_find(source, name) : NULL;
}

/* Rows and inputs by the words; at least one of each. */
static enum tcq_status read_shape(struct tcq_affine *affine, const char *module,
                                  const struct tcq_source_tensor *words, struct tcq_error *error)
{
    uint64_t nbits = words->rank == 2 ? words->shape[1] * 32 : 0;
    bool fits = words->dtype == TCQ_DTYPE_U32 && words->rank == 2 && words->count &&
                words->shape[0] <= UINT32_MAX && words->shape[1] < UINT32_MAX / 32 &&
                nbits % affine->bits == 0 && nbits / affine->bits % affine->group == 0;
    if (!fits)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "tensor '%s': %s [%" PRIu64 ", %" PRIu64
                             "] holds no rows of %u bits in groups of %u (of module '%s')",
                             words->name, words->type, words->rank ? words->shape[0] : 1,
                             words->rank > 1 ? words->shape[1] : 1, affine->bits, affine->group,
                             module);
    affine->rows = (uint32_t)words->shape[0];
    affine->in = (uint32_t)(nbits / affine->bits);
    return TCQ_OK;
}

/* Scales or biases: one a group. */
static enum tcq_status check_groups(const struct tcq_affine *affine,
                                    const struct tcq_source_tensor *tensor, struct tcq_error *error)
{
    uint32_t groups = affine->in / affine->group;
    if (tensor->dtype != TCQ_DTYPE_F16 && tensor->dtype != TCQ_DTYPE_BF16)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "tensor '%s' is of type %s: expected F16 or BF16", tensor->name,
                             tensor->type);
    if (tensor->rank == 2 && tensor->shape[0] == affine->rows && tensor->shape[1] == groups)
        return TCQ_OK;
    return tcq_error_set(error, TCQ_ERROR_FORMAT,
                         "tensor '%s' is [%" PRIu64 ", %" PRIu64 "]: expected [%u, %u]",
                         tensor->name, tensor->rank ? tensor->shape[0] : 1,
                         tensor->rank > 1 ? tensor->shape[1] : 1, affine->rows, groups);
}

enum tcq_status tcq_affine_open(struct tcq_affine *affine, const struct tcq_source *source,
                                const json_t *quantization, const char *module,
                                struct tcq_error *error)
{
    static const char *const suffixes[] = {".weight", ".scales", ".biases"};
    const struct tcq_source_tensor *tensors[3];
    *affine = (struct tcq_affine){0};
    for (size_t i = 0; i < 3; i++) {
        tensors[i] = find(source, module, suffixes[i]);
        if (!tensors[i])
            return tcq_error_set(error, TCQ_ERROR_FORMAT, "tensor '%s%s' is missing", module,
                                 suffixes[i]);
        affine->nbytes += tensors[i]->nbytes;
    }
    enum tcq_status status = read_settings(affine, quantization, module, error);
    if (!status)
        status = read_shape(affine, module, tensors[0], error);
    for (size_t i = 1; i < 3 && !status; i++)
        status = check_groups(affine, tensors[i], error);
    if (!status && tensors[1]->dtype != tensors[2]->dtype)
        status = tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                               "module '%s': scales of %s and biases of %s", module,
                               tensors[1]->type, tensors[2]->type);
    if (status)
        return status;
    affine->dtype = tensors[1]->dtype;
    affine->words = tcq_source_aligned(source, tensors[0], 4);
    affine->scales = tcq_source_aligned(source, tensors[1], 2);
    affine->biases = tcq_source_aligned(source, tensors[2], 2);
    if (!affine->words || !affine->scales || !affine->biases)
        return tcq_error_memory(error, affine->nbytes, "an unaligned tensor");
    return TCQ_OK;
}

static float affine_value(const uint16_t *values, size_t i, enum tcq_dtype dtype)
{
    return dtype == TCQ_DTYPE_F16 ? tcq_f16_to_f32(values[i]) : tcq_bf16_to_f32(values[i]);
}

void tcq_affine_row(float *dst, const struct tcq_affine *affine, uint32_t in, uint32_t row)
{
    uint32_t bits = affine->bits, mask = (1u << bits) - 1, groups = in / affine->group;
    const uint32_t *words = affine->words + (size_t)row * (in * (uint64_t)bits / 32);
    for (uint32_t g = 0; g < groups; g++) {
        size_t at = (size_t)row * groups + g;
        float scale = affine_value(affine->scales, at, affine->dtype);
        float bias = affine_value(affine->biases, at, affine->dtype);
        /* A group of 32 or more starts on a word, whatever its bits. */
        const uint32_t *w = words + (size_t)g * affine->group * bits / 32;
        uint64_t held = 0;
        uint32_t have = 0;
        for (uint32_t i = 0; i < affine->group; i++) {
            if (have < bits) {
                held |= (uint64_t)*w++ << have;
                have += 32;
            }
            dst[(size_t)g * affine->group + i] = scale * (float)(held & mask) + bias;
            held >>= bits;
            have -= bits;
        }
    }
}
