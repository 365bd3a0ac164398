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
    struct clip_reach reach; /* of a packed item */
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

/* What shows only row by row: errors beside the row's RMS, weights out of reach. */
static void add_row(const struct work *w, struct comparison *part, const float *ours,
                    const float *theirs, uint64_t row)
{
    double energy = 0, largest = 0;
    for (uint64_t i = 0; i < w->cols; i++) {
        energy += (double)theirs[i] * (double)theirs[i];
        largest = fmax(largest, fabs((double)ours[i] - (double)theirs[i]));
    }
    if (energy > 0)
        part->largest_in_rms =
            fmax(part->largest_in_rms, largest / sqrt(energy / (double)w->cols));
    const struct tcq_tensor *tensor = &w->item->tensor;
    bool inner = tensor->geometry.axis == 0; /* a scale a column */
    clip_add(&part->clip, &w->reach, theirs, tensor->scales + (inner ? 0 : row), inner,
             (size_t)w->cols);
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
    if (!w->item->packed && !w->item->grouped)
        round_as_kept(theirs, w->item, (size_t)(rows * w->cols));
    add_errors(&w->parts[chunk], ours, theirs, (size_t)(rows * w->cols), first * w->cols);
    for (uint64_t r = 0; w->item->packed && r < rows; r++)
        add_row(w, &w->parts[chunk], ours + r * w->cols, theirs + r * w->cols, first + r);
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
        out->largest_in_rms = fmax(out->largest_in_rms, part->largest_in_rms);
        clip_join(&out->clip, &part->clip);
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
    bool same = !source_item->packed && !source_item->grouped &&
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
    if (item->packed)
        w.reach = clip_reach_of(item->tensor.geometry.L);
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
