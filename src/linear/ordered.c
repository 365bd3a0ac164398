/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pass by the reference operations: x in float32, then ranges of outputs.
 */
#include "base/context.h"
#include "kernel/reference/reference.h"
#include "linear/linear.h"

static void convert_item(void *argument, size_t thread, size_t item)
{
    struct tcq_pass *pass = argument;
    (void)thread;
    tcq_pass_convert_x(pass, tcq_range_item(item, tcq_profile_cpu.prepare_inputs, pass->in));
}

static void run_axis0(const struct tcq_pass *pass, const struct tcq_reference_product *product,
                      struct tcq_range blocks)
{
    const struct tcq_linear *linear = pass->layers[0].linear;
    uint32_t splits = linear->options.splits ? linear->options.splits : TCQ_REFERENCE_SPLITS;
    enum tcq_scatter_form form = TCQ_SCATTER_GENERIC;
    if (pass->operation == TCQ_OPERATION_SPLIT_K) {
        tcq_reference_split_k(product, blocks.begin, blocks.end);
        return;
    }
    if (pass->operation == TCQ_OPERATION_WIDE) {
        tcq_reference_wide(product, blocks.begin, blocks.end);
        return;
    }
    if (pass->operation == TCQ_OPERATION_SCATTER_BALANCED)
        form = TCQ_SCATTER_BALANCED;
    if (pass->operation == TCQ_OPERATION_SCATTER_TABLE)
        form = TCQ_SCATTER_BALANCED_TABLE;
    tcq_reference_scatter(product, splits, form, linear->table, blocks.begin, blocks.end);
}

static struct tcq_reference_product product_of(const struct tcq_pass *pass, uint32_t l)
{
    const struct tcq_pass_layer *layer = &pass->layers[l];
    return (struct tcq_reference_product){&layer->linear->tensor, pass->m,
                                          pass->x_f32,            pass->x_f32_stride,
                                          layer->sums,            layer->sums_stride};
}

static void finish(const struct tcq_pass *pass, struct tcq_range outputs)
{
    const float *const sums[] = {pass->layers[0].sums, pass->layers[1].sums};
    tcq_pass_finish(pass, outputs, sums, pass->layers[0].sums_stride, 0);
}

static void axis0_item(void *argument, size_t thread, size_t item)
{
    struct tcq_pass *pass = argument;
    (void)thread;
    const struct tcq_geometry *g = &pass->layers[0].linear->tensor.geometry;
    struct tcq_range blocks = tcq_range_item(item, pass->item_blocks, g->cols / g->T);
    struct tcq_reference_product product = product_of(pass, 0);
    run_axis0(pass, &product, blocks);
    finish(pass, (struct tcq_range){blocks.begin * g->T, blocks.end * g->T});
}

static void axis1_item(void *argument, size_t thread, size_t item)
{
    struct tcq_pass *pass = argument;
    (void)thread;
    struct tcq_range rows = tcq_range_item(item, pass->item_rows, pass->out);
    for (uint32_t l = 0; l < pass->layer_count; l++) {
        struct tcq_reference_product product = product_of(pass, l);
        if (pass->operation == TCQ_OPERATION_REDUCE)
            tcq_reference_reduce(&product, rows.begin, rows.end);
        else /* tiled, and wide in the same order */
            tcq_reference_tiled(&product, rows.begin, rows.end);
    }
    finish(pass, rows);
}

void tcq_pass_run_ordered(struct tcq_pass *pass)
{
    uint64_t unit = tcq_profile_cpu.prepare_inputs;
    if (pass->x_store)
        tcq_context_run(pass->context, convert_item, pass, (pass->in + unit - 1) / unit);
    if (pass->layers[0].linear->tensor.geometry.axis)
        tcq_context_run(pass->context, axis1_item, pass,
                        (pass->out + pass->item_rows - 1) / pass->item_rows);
    else
        tcq_context_run(pass->context, axis0_item, pass, pass->block_groups);
}
