/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with many vectors that need no dense weights (wide.cu): when they are taken,
 * and in how many steps.
 */
#include "format/geometry.h"
#include "kernel/cuda/context.h"

/* Columns of a step: the inputs of more do not stay in the L2 cache.  Between which numbers
 * of vectors it is faster than the kernels for few, and than expanding first; an H200 has
 * told. */
enum {
    FUSED_COLUMNS_MAX = 512,
    FUSED_M_MIN_AXIS1 = 65,
    FUSED_M_MAX_AXIS1 = 384,
    FUSED_M_MIN_AXIS0 = 33,
    FUSED_M_MAX_AXIS0 = 256
};

/* The columns that the workspace has room for; 0: none, or the kernels do not fit. */
static uint32_t fused_columns(const struct tcq_cuda *cuda, const struct tcq_cuda_product *p)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    uint32_t columns = FUSED_COLUMNS_MAX;
    if (!cuda->fused || p->numerics == TCQ_NUMERICS_REFERENCE || !small_fits(g) ||
        p->m > (g->axis ? FUSED_M_MAX_AXIS1 : FUSED_M_MAX_AXIS0) ||
        !fast_args_of(cuda, p).words_aligned)
        return 0;
    while (columns && wide_inputs_nbytes(tcq_geometry_in(g), columns) > cuda->workspace_nbytes)
        columns -= WIDE_COLUMNS_FEW;
    return columns;
}

bool fused_takes(const struct tcq_cuda *cuda, const struct tcq_cuda_product *p,
                 enum tcq_operation operation)
{
    const uint32_t from = p->tensor->geometry.axis ? FUSED_M_MIN_AXIS1 : FUSED_M_MIN_AXIS0;
    if (operation == TCQ_OPERATION_SMALL && (p->operation != TCQ_OPERATION_AUTO || p->m < from))
        return false;
    return (operation == TCQ_OPERATION_SMALL || operation == TCQ_OPERATION_WIDE) &&
           fused_columns(cuda, p) > 0;
}

cudaError_t fused_run(const struct tcq_cuda *cuda, const struct tcq_cuda_product *p,
                      const struct tcq_cuda_product *also, cudaStream_t stream)
{
    const uint32_t axis = p->tensor->geometry.axis;
    struct fast_args a = fast_args_of(cuda, p), b = fast_args_of(cuda, also ? also : p);
    const uint32_t most = fused_columns(cuda, p) / a.pieces, steps = (p->m + most - 1) / most;
    const uint32_t each = (p->m + steps - 1) / steps;
    const size_t y_nbytes = p->y.stride * tcq_dtype_nbytes(p->y.dtype);
    cudaError_t code = cudaSuccess;
    a.inputs = b.inputs = cuda->workspace;
    for (uint32_t first = 0; first < p->m && code == cudaSuccess; first += each) {
        const uint32_t count = p->m - first < each ? p->m - first : each;
        a.columns = b.columns = count * a.pieces;
        a.x = (const char *)p->x.data + first * p->x.stride * tcq_dtype_nbytes(p->x.dtype);
        a.y = (char *)p->y.data + first * y_nbytes;
        code = wide_inputs_launch(&a, axis, stream);
        if (code == cudaSuccess)
            code = wide_launch(&a, axis, cuda->multiprocessors, stream);
        if (code == cudaSuccess && also) {
            b.y = (char *)also->y.data + first * also->y.stride * tcq_dtype_nbytes(also->y.dtype);
            code = wide_launch(&b, axis, cuda->multiprocessors, stream);
        }
    }
    return code;
}
