/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source and its config.json joined into a list of weights.
 */
#include "model_view.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/json.h"
#include "model_config.h"
#include "part.h"

enum { AXIS0_ROWS = 16 }; /* stored rows decoded together: 16 floats are a cache line */

/* ---- Opening ---- */

static char *own(struct model_view *view, const char *module, const char *suffix)
{
    char *name = NULL;
    if (asprintf(&name, "%s%s", module, suffix) < 0)
        return NULL;
    view->owned[view->owned_count++] = name;
    return name;
}

static bool add_packed(struct model_view *view, const char *module)
{
    struct model_item *item = &view->items[view->count++];
    struct tcq_error error = {0};
    item->module = module;
    item->name = own(view, module, ".weight");
    if (!item->name)
        return false;
    item->stored = tcq_source_find(view->source, item->name);
    enum tcq_status status =
        tcq_source_packed(view->source, view->config, module, &item->tensor, &error);
    if (status != TCQ_OK) {
        item->problem = strdup(error.message);
        view->problems++;
        item->nbytes = item->stored ? item->stored->nbytes : 0;
        return item->problem != NULL;
    }
    const struct tcq_geometry *g = &item->tensor.geometry;
    item->packed = true;
    item->rank = 2;
    item->shape[0] = tcq_geometry_out(g);
    item->shape[1] = tcq_geometry_in(g);
    item->count = g->rows * g->cols;
    item->nbytes = tcq_geometry_words(g) * 4 + g->rows * 2;
    return true;
}

/* Tensor `name` without `suffix`, where it ends with that; the caller frees. */
static char *module_of(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n > s && strcmp(name + n - s, suffix) == 0 ? strndup(name, n - s) : NULL;
}

/* Whether the tensor is part of a module in MLX's affine form, and `is_words` that
 * part which stands for it.  Words that fit no such module are shown as they are. */
static bool find_affine(const struct model_view *view, const char *name,
                        struct tcq_affine *affine, bool *is_words)
{
    static const char *const suffixes[] = {".weight", ".scales", ".biases"};
    const json_t *quantization = json_object_get(view->settings, "quantization");
    bool found = false;
    for (size_t i = 0; i < 3 && quantization && !found; i++) {
        char *module = module_of(name, suffixes[i]);
        *is_words = i == 0;
        found = module &&
                tcq_affine_open(affine, view->source, quantization, module, NULL) == TCQ_OK;
        free(module);
    }
    return found;
}

static void add_affine(struct model_view *view, const struct tcq_source_tensor *words,
                       const struct tcq_affine *affine)
{
    struct model_item *item = &view->items[view->count++];
    item->name = words->name;
    item->stored = words;
    item->grouped = true;
    item->affine = *affine;
    item->rank = 2;
    item->shape[0] = affine->rows;
    item->shape[1] = affine->in;
    item->count = (uint64_t)affine->rows * affine->in;
    item->nbytes = affine->nbytes;
}

static void add_plain(struct model_view *view, const struct tcq_source_tensor *tensor)
{
    struct model_item *item = &view->items[view->count++];
    item->name = tensor->name;
    item->stored = tensor;
    item->rank = tensor->rank;
    memcpy(item->shape, tensor->shape, sizeof item->shape);
    item->count = tensor->count;
    item->nbytes = tensor->nbytes;
}

/* Whether the tensor is part of a packed module: its words or scales. */
static bool belongs_to_packed(const struct model_view *view, const char *name)
{
    static const char *const suffixes[] = {".weight", ".scales"};
    struct tcq_module_config config;
    size_t n = strlen(name);
    for (size_t i = 0; view->config && i < 2; i++) {
        size_t s = strlen(suffixes[i]);
        if (n <= s || strcmp(name + n - s, suffixes[i]) != 0)
            continue;
        char *module = strndup(name, n - s);
        bool packed = module && tcq_config_find(view->config, module, &config);
        free(module);
        return packed;
    }
    return false;
}

static int compare_items(const void *a, const void *b)
{
    return strcmp(((const struct model_item *)a)->name, ((const struct model_item *)b)->name);
}

static int list_items(struct model_view *view)
{
    size_t modules = view->config ? tcq_config_module_count(view->config) : 0;
    size_t tensors = tcq_source_count(view->source);
    view->items = calloc(modules + tensors + 1, sizeof *view->items);
    view->owned = calloc(modules + 1, sizeof *view->owned);
    if (!view->items || !view->owned)
        return cli_out_of_memory();
    bool is_file = tcq_source_get_kind(view->source) == TCQ_SOURCE_SAFETENSORS;
    struct tcq_module_config config;
    for (size_t i = 0; i < modules; i++) {
        const char *module = tcq_config_module_name(view->config, i);
        if (is_file && !model_config_has_words(view->source, module))
            continue; /* a config.json beside a file speaks of other files, too */
        if (tcq_config_find(view->config, module, &config) && !add_packed(view, module))
            return cli_out_of_memory();
    }
    for (size_t i = 0; i < tensors; i++) {
        const struct tcq_source_tensor *tensor = tcq_source_get(view->source, i);
        struct tcq_affine affine;
        bool is_words = false;
        if (belongs_to_packed(view, tensor->name))
            continue;
        if (!find_affine(view, tensor->name, &affine, &is_words))
            add_plain(view, tensor);
        else if (is_words)
            add_affine(view, tensor, &affine);
    }
    qsort(view->items, view->count, sizeof *view->items, compare_items);
    return CLI_CONTINUE;
}

int model_view_open(struct model_view *view, const char *path)
{
    *view = (struct model_view){.path = path};
    struct tcq_error error = {0};
    int code = part_refuse(path);
    if (code != CLI_CONTINUE)
        return code;
    if (tcq_source_open(path, &view->source, &error) != TCQ_OK)
        return cli_fail(path, &error);
    code = model_config_open(view->source, path, &view->config);
    const char *text = tcq_source_config(view->source);
    if (code == CLI_CONTINUE && text && view->config &&
        tcq_json_parse(text, strlen(text), JSON_DECODE_INT_AS_REAL, &view->settings, &error))
        code = cli_fail(path, &error);
    if (code == CLI_CONTINUE)
        code = list_items(view);
    if (code != CLI_CONTINUE)
        model_view_close(view);
    return code;
}

void model_view_close(struct model_view *view)
{
    for (size_t i = 0; i < view->count; i++)
        free(view->items[i].problem);
    for (size_t i = 0; i < view->owned_count; i++)
        free(view->owned[i]);
    free(view->items);
    free(view->owned);
    tcq_config_destroy(view->config);
    json_decref(view->settings);
    tcq_source_close(view->source);
    *view = (struct model_view){0};
}

const struct model_item *model_view_find(const struct model_view *view, const char *name)
{
    struct model_item key = {.name = name};
    return bsearch(&key, view->items, view->count, sizeof key, compare_items);
}

/* ---- Items ---- */

uint64_t model_item_cols(const struct model_item *item)
{
    return item->rank ? item->shape[item->rank - 1] : 1;
}

uint64_t model_item_rows(const struct model_item *item)
{
    uint64_t cols = model_item_cols(item);
    return cols ? item->count / cols : 0;
}

uint64_t model_item_step(const struct model_item *item, uint64_t weights)
{
    if (item->packed && item->tensor.geometry.axis == 0)
        return item->tensor.geometry.T;
    uint64_t cols = model_item_cols(item);
    return cols && cols < weights ? weights / cols : 1;
}

bool model_item_is_float(const struct model_view *view, const struct model_item *item)
{
    return item->packed || item->grouped ||
           tcq_source_read_f32(view->source, NULL, item->stored, 0, 0, NULL) == TCQ_OK;
}

/* Rows of W out of the stored transpose: element t of block b of stored row r
 * is W[b*T + t][r]. */
static enum tcq_status read_axis0(float *dst, const struct tcq_tensor *tensor, uint64_t row_first,
                                  uint64_t row_count)
{
    const struct tcq_geometry *g = &tensor->geometry;
    float tile[AXIS0_ROWS][256];
    for (uint64_t done = 0; done < row_count; done += g->T) {
        uint64_t block = (row_first + done) / g->T;
        uint64_t rows = row_count - done < g->T ? row_count - done : g->T;
        for (uint64_t r0 = 0; r0 < g->rows; r0 += AXIS0_ROWS) {
            uint64_t n = g->rows - r0 < AXIS0_ROWS ? g->rows - r0 : AXIS0_ROWS;
            for (uint64_t r = 0; r < n; r++) {
                enum tcq_status status =
                    tcq_decode_block(tile[r], TCQ_DTYPE_F32, tensor, r0 + r, block);
                if (status != TCQ_OK)
                    return status;
            }
            for (uint64_t t = 0; t < rows; t++)
                for (uint64_t r = 0; r < n; r++)
                    dst[(done + t) * g->rows + r0 + r] = tile[r][t];
        }
    }
    return TCQ_OK;
}

static enum tcq_status read_axis1(float *dst, const struct tcq_tensor *tensor, uint64_t row_first,
                                  uint64_t row_count)
{
    enum tcq_status status = TCQ_OK;
    for (uint64_t r = 0; status == TCQ_OK && r < row_count; r++)
        status =
            tcq_decode_row(dst + r * tensor->geometry.cols, TCQ_DTYPE_F32, tensor, row_first + r);
    return status;
}

enum tcq_status model_item_read(const struct model_view *view, float *dst,
                                const struct model_item *item, uint64_t row_first,
                                uint64_t row_count, struct tcq_error *error)
{
    for (uint64_t r = 0; item->grouped && r < row_count; r++)
        tcq_affine_row(dst + r * item->affine.in, &item->affine, item->affine.in,
                       (uint32_t)(row_first + r));
    if (item->grouped)
        return TCQ_OK;
    if (!item->packed)
        return tcq_source_read_f32(view->source, dst, item->stored, row_first, row_count, error);
    enum tcq_status status = item->tensor.geometry.axis
                                 ? read_axis1(dst, &item->tensor, row_first, row_count)
                                 : read_axis0(dst, &item->tensor, row_first, row_count);
    if (status != TCQ_OK)
        tcq_error_set(error, status, "tensor '%s': cannot be decoded", item->name);
    return status;
}

void model_item_shape_text(const struct model_item *item, char *out, size_t nbytes)
{
    size_t used = 0;
    snprintf(out, nbytes, "%s", item->rank ? "" : item->problem ? "?" : "scalar");
    for (uint32_t i = 0; i < item->rank && used < nbytes; i++)
        used += (size_t)snprintf(out + used, nbytes - used, "%s%llu", i ? "x" : "",
                                 (unsigned long long)item->shape[i]);
}
