/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLAS, opened at run time where there is one, so that neither the build nor the
 * start of a program needs it.
 */
#ifndef TCQ_KERNEL_CUDA_BLAS_H
#define TCQ_KERNEL_CUDA_BLAS_H

#include <cuda_runtime_api.h>

#include "tcq.h"

struct blas;

/* Errors: DEVICE where there is no cuBLAS, with the names tried; MEMORY. */
enum tcq_status blas_open(struct blas **out, void *d_workspace, size_t workspace_nbytes,
                          struct tcq_error *error);
void blas_close(struct blas *blas);

/* c[i][o] = beta*c[i][o] + sum over l < depth of w(o, l) * x[i][l]; bf16 x and w,
 * float32 or bf16 c.  w(o, l) lies at w[o*w_stride + l], or, transposed, at
 * w[l*w_stride + o]. */
struct blas_product {
    uint32_t m;
    uint64_t outputs, depth;
    const void *w, *x;
    size_t w_stride, x_stride, c_stride;
    bool transposed;
    void *c;
    enum tcq_dtype c_type;
    float beta;
};
enum tcq_status blas_multiply(struct blas *blas, const struct blas_product *product,
                              cudaStream_t stream, struct tcq_error *error);

#endif
