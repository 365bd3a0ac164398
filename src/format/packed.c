/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A packed module of a source: its two tensors checked against each other and
 * against what config.json says, each refusal in its own words.
 */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/geometry.h"
#include "format/source.h"

/* Words of one row of the interleaved layout: a pair of blocks of 24. */
enum { INTERLEAVED_WORDS = 48, INTERLEAVED_COLS = 512 };

static const struct tcq_source_tensor *find(const struct tcq_source *source, const char *module,
                                            const char *suffix, bool *memory_short)
{
    size_t module_len = strlen(module), suffix_len = strlen(suffix);
    char *name = tcq_alloc(module_len + suffix_len + 1, 1);
    *memory_short |= !name;
    if (!name)
        return NULL;
    memcpy(name, module, module_len);
    memcpy(name + module_len, suffix, suffix_len + 1);
    const struct tcq_source_tensor *tensor = tcq_source_find(source, name);
    tcq_free(name);
    return tensor;
}

static enum tcq_status check_type(const struct tcq_source_tensor *tensor, const char *suffix,
                                  enum tcq_dtype dtype, struct tcq_error *error)
{
    if (!tensor)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "%s is missing", suffix);
    if (tensor->dtype != dtype)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "%s is %.40s: expected %s", suffix,
                             tensor->type, tcq_dtype_name(dtype));
    return TCQ_OK;
}

/* rows and cols of row-major words [rows, cols*k/32]. */
static enum tcq_status read_row_major(const uint64_t *shape, struct tcq_geometry *g,
                                      struct tcq_error *error)
{
    uint64_t bits;
    g->layout = TCQ_LAYOUT_ROW_MAJOR;
    g->rows = shape[0];
    if (__builtin_mul_overflow(shape[1], 32u, &bits))
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY, "%" PRIu64 " words a row overflow",
                             shape[1]);
    if (bits % g->k)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                             "%" PRIu64 " words a row are no whole number of weights of %u bits",
                             shape[1], g->k);
    g->cols = bits / g->k;
    return TCQ_OK;
}

/* A 3-D weight is [cols/512, rows, 48], or nothing that we know. */
static enum tcq_status read_interleaved(const uint64_t *shape, struct tcq_geometry *g,
                                        struct tcq_error *error)
{
    g->layout = TCQ_LAYOUT_INTERLEAVED;
    g->rows = shape[1];
    if (shape[2] != INTERLEAVED_WORDS)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                             ".weight of shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64
                             "]: expected [rows, words], or [cols/512, rows, 48] interleaved",
                             shape[0], shape[1], shape[2]);
    if (__builtin_mul_overflow(shape[0], (uint64_t)INTERLEAVED_COLS, &g->cols))
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY, "%" PRIu64 " pairs of blocks overflow",
                             shape[0]);
    return TCQ_OK;
}

static enum tcq_status read_geometry(const struct tcq_source_tensor *weight,
                                     const struct tcq_module_config *config, struct tcq_geometry *g,
                                     struct tcq_error *error)
{
    *g =
        (struct tcq_geometry){.k = config->k, .L = config->L, .T = config->T, .axis = config->axis};
    enum tcq_status status;
    if (weight->rank == 2)
        status = read_row_major(weight->shape, g, error);
    else if (weight->rank == 3)
        status = read_interleaved(weight->shape, g, error);
    else
        status =
            tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                          ".weight has %u dimensions: expected 2, or 3 interleaved", weight->rank);
    return status == TCQ_OK ? tcq_geometry_check(g, error) : status;
}

static enum tcq_status check_scales(const struct tcq_source_tensor *scales,
                                    const struct tcq_geometry *g, struct tcq_error *error)
{
    enum tcq_status status = check_type(scales, ".scales", TCQ_DTYPE_F16, error);
    if (status != TCQ_OK)
        return status;
    if (scales->rank != 1 || scales->count != g->rows)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             ".scales has %" PRIu64
                             " elements in %u dimensions: expected the %" PRIu64 " rows in one",
                             scales->count, scales->rank, g->rows);
    return TCQ_OK;
}

static enum tcq_status read_packed(const struct tcq_source *source, const char *module,
                                   const struct tcq_module_config *config, struct tcq_tensor *out,
                                   struct tcq_error *error)
{
    bool memory_short = false;
    const struct tcq_source_tensor *weight = find(source, module, ".weight", &memory_short);
    const struct tcq_source_tensor *scales = find(source, module, ".scales", &memory_short);
    const struct tcq_source_tensor *biases = find(source, module, ".biases", &memory_short);
    if (memory_short)
        return tcq_error_memory(error, strlen(module), "a name");
    enum tcq_status status = check_type(weight, ".weight", TCQ_DTYPE_U32, error);
    if (status == TCQ_OK)
        status = read_geometry(weight, config, &out->geometry, error);
    if (status == TCQ_OK)
        status = check_scales(scales, &out->geometry, error);
    if (status == TCQ_OK && biases)
        status = tcq_error_set(error, TCQ_ERROR_FORMAT, "has .biases: a packed module has none");
    if (status != TCQ_OK)
        return status;
    out->words = tcq_source_aligned(source, weight, sizeof *out->words);
    out->scales = tcq_source_aligned(source, scales, sizeof *out->scales);
    if (!out->words || !out->scales)
        return tcq_error_memory(error, (size_t)weight->nbytes, "an aligned copy of the words");
    return tcq_tensor_check(out, error);
}

enum tcq_status tcq_source_packed(const struct tcq_source *source, const struct tcq_config *config,
                                  const char *module, struct tcq_tensor *out,
                                  struct tcq_error *error)
{
    struct tcq_module_config settings;
    struct tcq_tensor tensor = {0};
    if (!source || !config || !module || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "packed module: a pointer is NULL");
    if (!tcq_config_find(config, module, &settings))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "module '%.100s' is not packed, as config.json says", module);
    enum tcq_status status = read_packed(source, module, &settings, &tensor, error);
    if (status != TCQ_OK)
        return tcq_error_prefix(error, status, "module '%.100s'", module);
    *out = tensor;
    return TCQ_OK;
}
