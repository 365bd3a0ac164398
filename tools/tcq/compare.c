/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing tensors in chunks of rows on all threads.
 */
#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"

enum { CHUNK_WEIGHTS = 1 << 18 };

struct work {
    const struct model_view *view, *source;
    const struct model_item *item, *source_item;
    uint64_t rows, cols, step;
    float *buffers;            /* 2 * step * cols a thread */
    struct comparison *parts;  /* one a chunk, added in order afterwards */
    enum tcq_status *statuses; /* likewise */
};

/* What the source's values become in the type that they are kept in. */
static void round_as_kept(float *values, const struct model_item *item, size_t count)
{
    enum tcq_dtype dtype = item->stored->dtype;
    uint16_t half[256];
    if (dtype != TCQ_DTYPE_F16 && dtype != TCQ_DTYPE_BF16)
        return;
    for (size_t i = 0; i < count; i += 256) {
        size_t n = count - i < 256 ? count - i : 256;
        tcq_convert_from_f32(half, dtype, values + i, n);
        tcq_convert_to_f32(values + i, half, dtype, n);
    }
}

static void add_errors(struct comparison *part, const float *ours, const float *theirs,
                       size_t count, uint64_t first)
{
    for (size_t i = 0; i < count; i++) {
        double error = (double)ours[i] - (double)theirs[i];
        bool same = ours[i] == theirs[i] || (isnan(ours[i]) && isnan(theirs[i]));
        part->different += !same;
        if (same)
            error = 0;
        part->squared_error += error * error;
        part->squared_source += (double)theirs[i] * (double)theirs[i];
        if (!(fabs(error) <= part->largest_error)) { /* NaN is the largest */
            part->largest_error = isnan(error) ? INFINITY : fabs(error);
            part->largest_at = first + i;
        }
    }
}

static void compare_chunk(void *argument, size_t thread, size_t chunk)
{
    struct work *w = argument;
    uint64_t first = chunk * w->step;
    uint64_t rows = w->rows - first < w->step ? w->rows - first : w->step;
    float *ours = w->buffers + 2 * thread * w->step * w->cols;
    float *theirs = ours + w->step * w->cols;
    enum tcq_status status = model_item_read(w->view, ours, w->item, first, rows, NULL);
    if (status == TCQ_OK)
        status = model_item_read(w->source, theirs, w->source_item, first, rows, NULL);
    w->statuses[chunk] = status;
    if (status != TCQ_OK)
        return;
    if (!w->item->packed)
        round_as_kept(theirs, w->item, (size_t)(rows * w->cols));
    add_errors(&w->parts[chunk], ours, theirs, (size_t)(rows * w->cols), first * w->cols);
}

static enum tcq_status sum_parts(struct comparison *out, const struct work *w, size_t chunks,
                                 struct tcq_error *error)
{
    *out = (struct comparison){0};
    for (size_t i = 0; i < chunks; i++) {
        const struct comparison *part = &w->parts[i];
        if (w->statuses[i] != TCQ_OK)
            return tcq_error_set(error, w->statuses[i], "tensor '%s': cannot be read",
                                 w->item->name);
        out->squared_error += part->squared_error;
        out->squared_source += part->squared_source;
        out->different += part->different;
        if (part->largest_error > out->largest_error) {
            out->largest_error = part->largest_error;
            out->largest_at = part->largest_at;
        }
    }
    return TCQ_OK;
}

/* Integers are the same bytes or not. */
static enum tcq_status compare_bytes(struct comparison *out, const struct model_item *item,
                                     const struct model_item *source_item)
{
    bool same = !source_item->packed &&
                strcmp(item->stored->type, source_item->stored->type) == 0 &&
                item->nbytes == source_item->nbytes &&
                memcmp(item->stored->data, source_item->stored->data, (size_t)item->nbytes) == 0;
    *out = (struct comparison){.different = same ? 0 : item->count};
    return TCQ_OK;
}

enum tcq_status compare_items(struct comparison *out, struct tcq_context *context,
                              const struct model_view *view, const struct model_item *item,
                              const struct model_view *source, const struct model_item *source_item,
                              struct tcq_error *error)
{
    if (!model_item_is_float(view, item) || !model_item_is_float(source, source_item))
        return compare_bytes(out, item, source_item);
    uint64_t step = model_item_step(item, CHUNK_WEIGHTS);
    uint64_t other = model_item_step(source_item, CHUNK_WEIGHTS);
    if (source_item->packed && source_item->tensor.geometry.axis == 0)
        step = step > other ? step : other; /* blocks of 64, 128, 256 divide one another */
    struct work w = {.view = view,
                     .source = source,
                     .item = item,
                     .source_item = source_item,
                     .rows = model_item_rows(item),
                     .cols = model_item_cols(item),
                     .step = step};
    if (source_item->packed && step % other)
        w.step = step / other * other;
    size_t chunks = (size_t)((w.rows + w.step - 1) / w.step);
    uint32_t threads = tcq_context_threads(context);
    w.buffers = tcq_alloc((size_t)(2 * threads * w.step * w.cols), sizeof *w.buffers);
    w.parts = tcq_alloc(chunks, sizeof *w.parts);
    w.statuses = tcq_alloc(chunks, sizeof *w.statuses);
    enum tcq_status status;
    if (w.buffers && w.parts && w.statuses) {
        tcq_context_run(context, compare_chunk, &w, chunks);
        status = sum_parts(out, &w, chunks, error);
    } else {
        status = tcq_error_memory(error, (size_t)(2 * threads * w.step * w.cols) * sizeof(float),
                                  item->name);
    }
    tcq_free(w.buffers);
    tcq_free(w.parts);
    tcq_free(w.statuses);
    return status;
}

double comparison_relative(const struct comparison *comparison)
{
    if (comparison->squared_error == 0)
        return 0;
    return comparison->squared_error / comparison->squared_source;
}

double expected_relative_error(uint32_t k, uint32_t L)
{
    /* Measured, to about 1 %: `tcq-expected-mse` of the tests prints this table. */
    static const float table[TCQ_K_MAX][TCQ_L_MAX - TCQ_L_MIN + 1] = {
        {0.310903f, 0.303251f, 0.295085f, 0.290583f, 0.285024f, 0.280855f, 0.278387f, 0.276223f,
         0.274276f},
        {0.087049f, 0.081998f, 0.078242f, 0.075702f, 0.074658f, 0.071926f, 0.070646f, 0.069714f,
         0.068721f},
        {0.026133f, 0.024158f, 0.021687f, 0.020899f, 0.019822f, 0.019322f, 0.018576f, 0.018209f,
         0.017847f},
        {0.008043f, 0.007158f, 0.006273f, 0.005964f, 0.005507f, 0.005271f, 0.005098f, 0.004923f,
         0.004807f},
        {0.003439f, 0.002794f, 0.002246f, 0.002033f, 0.001756f, 0.001700f, 0.001636f, 0.001527f,
         0.001438f},
        {0.001800f, 0.001503f, 0.001094f, 0.000986f, 0.000772f, 0.000727f, 0.000728f, 0.000645f,
         0.000568f},
    };
    if (k < TCQ_K_MIN || k > TCQ_K_MAX || L < TCQ_L_MIN || L > TCQ_L_MAX)
        return 0;
    return (double)table[k - TCQ_K_MIN][L - TCQ_L_MIN];
}
