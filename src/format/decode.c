/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding blocks, rows and tensors in plain C, from the precise values.
 */
#include "base/context.h"
#include "base/half.h"
#include "code/code.h"
#include "format/block.h"
#include "format/geometry.h"

static void decode_block_f32(float *dst, const struct tcq_tensor *tensor, uint64_t row,
                             uint64_t block)
{
    const struct tcq_geometry *g = &tensor->geometry;
    const uint32_t *words = tensor->words + tcq_geometry_block_offset(g, row, block);
    float scale = tcq_f16_to_f32(tensor->scales[row]);
    for (uint32_t t = 0; t < g->T; t++)
        dst[t] = tcq_code_precise(tcq_block_window(words, g->k, g->L, g->T, t)) * scale;
}

static bool decodes_to(enum tcq_dtype dtype)
{
    return dtype == TCQ_DTYPE_F32 || dtype == TCQ_DTYPE_F16 || dtype == TCQ_DTYPE_BF16;
}

enum tcq_status tcq_decode_block(void *dst, enum tcq_dtype dtype, const struct tcq_tensor *tensor,
                                 uint64_t row, uint64_t block)
{
    if (!dst || !tensor || !decodes_to(dtype) || row >= tensor->geometry.rows ||
        block >= tensor->geometry.cols / tensor->geometry.T)
        return TCQ_ERROR_ARGUMENT;
    float weights[TCQ_T_MAX];
    decode_block_f32(weights, tensor, row, block);
    return tcq_convert_from_f32(dst, dtype, weights, tensor->geometry.T);
}

enum tcq_status tcq_decode_row(void *dst, enum tcq_dtype dtype, const struct tcq_tensor *tensor,
                               uint64_t row)
{
    if (!dst || !tensor || !decodes_to(dtype) || row >= tensor->geometry.rows)
        return TCQ_ERROR_ARGUMENT;
    size_t block_nbytes = tensor->geometry.T * tcq_dtype_nbytes(dtype);
    for (uint64_t block = 0; block < tensor->geometry.cols / tensor->geometry.T; block++)
        tcq_decode_block((char *)dst + block * block_nbytes, dtype, tensor, row, block);
    return TCQ_OK;
}

struct decode_job {
    char *dst;
    enum tcq_dtype dtype;
    const struct tcq_tensor *tensor;
    size_t row_nbytes;
};

static void decode_item(void *argument, size_t thread, size_t row)
{
    const struct decode_job *job = argument;
    (void)thread;
    tcq_decode_row(job->dst + row * job->row_nbytes, job->dtype, job->tensor, row);
}

enum tcq_status tcq_decode_tensor(void *dst, enum tcq_dtype dtype, const struct tcq_tensor *tensor,
                                  struct tcq_context *context)
{
    if (!dst || !tensor || !context || !decodes_to(dtype))
        return TCQ_ERROR_ARGUMENT;
    struct decode_job job = {dst, dtype, tensor, 0};
    job.row_nbytes = (size_t)tensor->geometry.cols * tcq_dtype_nbytes(dtype);
    tcq_context_run(context, decode_item, &job, (size_t)tensor->geometry.rows);
    return TCQ_OK;
}
