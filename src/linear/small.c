/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pass by the small-batch kernels: prepare x, then ranges of outputs.  On
 * axis 0 the stored rows are cut into splits whose partial sums are added in
 * ascending order.
 */
#include "base/context.h"
#include "linear/linear.h"

static const struct tcq_small_kernel *kernel_of(const struct tcq_linear *linear)
{
    return linear->kernels.small[linear->tensor.geometry.axis][linear->options.activations];
}

static void prepare_item(void *argument, size_t thread, size_t item)
{
    struct tcq_pass *pass = argument;
    (void)thread;
    struct tcq_range in = tcq_range_item(item, tcq_profile_cpu.prepare_inputs, pass->in);
    tcq_pass_convert_x(pass, in);
    for (uint32_t l = 0; l < pass->layer_count; l++) {
        const struct tcq_linear *linear = pass->layers[l].linear;
        kernel_of(linear)->prepare(pass->layers[l].prepared, &linear->tensor, pass->m,
                                   pass->x_f32, pass->x_f32_stride, in);
    }
}

static void run_layer(const struct tcq_pass *pass, uint32_t l, float *y, struct tcq_range rows,
                      struct tcq_range blocks)
{
    const struct tcq_pass_layer *layer = &pass->layers[l];
    struct tcq_product product = {&layer->linear->tensor, pass->m, layer->prepared, y,
                                  layer->sums_stride};
    kernel_of(layer->linear)->run(&product, rows, blocks);
}

static void finish(const struct tcq_pass *pass, struct tcq_range outputs)
{
    const float *const sums[] = {pass->layers[0].sums, pass->layers[1].sums};
    tcq_pass_finish(pass, outputs, sums, pass->layers[0].sums_stride, 0);
}

static void reduce_item(void *argument, size_t thread, size_t item)
{
    struct tcq_pass *pass = argument;
    (void)thread;
    struct tcq_range rows = tcq_range_item(item, pass->item_rows, pass->out);
    for (uint32_t l = 0; l < pass->layer_count; l++) {
        const struct tcq_geometry *g = &pass->layers[l].linear->tensor.geometry;
        run_layer(pass, l, pass->layers[l].sums, rows, (struct tcq_range){0, g->cols / g->T});
    }
    finish(pass, rows);
}

static struct tcq_range columns_of(const struct tcq_pass *pass, struct tcq_range blocks)
{
    uint32_t T = pass->layers[0].linear->tensor.geometry.T;
    return (struct tcq_range){blocks.begin * T, blocks.end * T};
}

static void scatter_item(void *argument, size_t thread, size_t item)
{
    struct tcq_pass *pass = argument;
    (void)thread;
    const struct tcq_geometry *g = &pass->layers[0].linear->tensor.geometry;
    uint64_t split = item / pass->block_groups, group = item % pass->block_groups;
    struct tcq_range rows = tcq_range_item(split, pass->split_rows, g->rows);
    struct tcq_range blocks = tcq_range_item(group, pass->item_blocks, g->cols / g->T);
    bool whole = pass->splits == 1;
    run_layer(pass, 0,
              whole ? pass->layers[0].sums : pass->partials + split * pass->m * pass->out, rows,
              blocks);
    if (whole)
        finish(pass, columns_of(pass, blocks));
}

static void add_partials_item(void *argument, size_t thread, size_t group)
{
    struct tcq_pass *pass = argument;
    (void)thread;
    const struct tcq_geometry *g = &pass->layers[0].linear->tensor.geometry;
    struct tcq_range blocks = tcq_range_item(group, pass->item_blocks, g->cols / g->T);
    struct tcq_range columns = columns_of(pass, blocks);
    size_t out = (size_t)pass->out;
    for (uint32_t i = 0; i < pass->m; i++) {
        float *sums = pass->layers[0].sums + i * out;
        for (uint64_t c = columns.begin; c < columns.end; c++)
            sums[c] = pass->partials[i * out + c];
        for (uint64_t split = 1; split < pass->splits; split++) {
            const float *partial = pass->partials + (split * pass->m + i) * out;
            for (uint64_t c = columns.begin; c < columns.end; c++)
                sums[c] += partial[c];
        }
    }
    finish(pass, columns);
}

void tcq_pass_run_small(struct tcq_pass *pass)
{
    uint64_t unit = tcq_profile_cpu.prepare_inputs;
    tcq_context_run(pass->context, prepare_item, pass, (pass->in + unit - 1) / unit);
    if (pass->layers[0].linear->tensor.geometry.axis) {
        uint64_t items = (pass->out + pass->item_rows - 1) / pass->item_rows;
        tcq_context_run(pass->context, reduce_item, pass, items);
        return;
    }
    tcq_context_run(pass->context, scatter_item, pass, pass->splits * pass->block_groups);
    if (pass->splits > 1)
        tcq_context_run(pass->context, add_partials_item, pass, pass->block_groups);
}
