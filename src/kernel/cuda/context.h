/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the back end's plain C half share: the context (cuda.c) as the
 * products (product.c) see it.
 */
#ifndef TCQ_KERNEL_CUDA_CONTEXT_H
#define TCQ_KERNEL_CUDA_CONTEXT_H

#include "base/error.h"
#include "kernel/cuda/blas.h"
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/launch.h"

enum {
    INPUT_LENGTH_MAX = 131072,       /* of a vector, for the fast kernels */
    TILES_MAX = 65536,               /* of 256 outputs, likewise */
    SMALL_M_MAX = 64,                /* beyond it expanding is faster */
    BLAS_WORKSPACE_NBYTES = 32 << 20 /* what NVIDIA recommends for Hopper */
};

struct tcq_cuda {
    int device;
    uint32_t multiprocessors;
    bool small;  /* enough shared memory for the fast kernels */
    bool hopper; /* compute capability 9.0 or newer, and code for it */
    bool fused;  /* code of compute capability 9.0 itself, for products with many vectors */
    char name[256];
    void *inputs;
    float *partial;
    void *workspace;
    size_t workspace_nbytes, nbytes;
    void *blas_workspace;
    struct blas *blas; /* NULL: why is in no_blas */
    struct tcq_error no_blas;
};

static inline enum tcq_status device_error(struct tcq_error *error, cudaError_t code,
                                           const char *what)
{
    if (code == cudaSuccess)
        return TCQ_OK;
    return tcq_error_set(error, TCQ_ERROR_DEVICE, "%s: %s", what, cudaGetErrorString(code));
}

/* product.c: whether the fast kernels can do a geometry, and what they are told. */
bool small_fits(const struct tcq_geometry *g);
struct fast_args fast_args_of(const struct tcq_cuda *cuda, const struct tcq_cuda_product *p);

/* fused.c: whether its kernels do what tcq_cuda_select has chosen; and one product, or two
 * with the same x, which starts nothing where the driver has no tensor copies
 * (cudaErrorNotSupported). */
bool fused_takes(const struct tcq_cuda *cuda, const struct tcq_cuda_product *p,
                 enum tcq_operation operation);
cudaError_t fused_run(const struct tcq_cuda *cuda, const struct tcq_cuda_product *p,
                      const struct tcq_cuda_product *also, cudaStream_t stream);

/* Contexts of this process: products of two may meet on a GPU. */
int tcq_cuda_contexts(void);

static inline struct reference_tensor reference_tensor_of(const struct tcq_tensor *t)
{
    const struct tcq_geometry *g = &t->geometry;
    return (struct reference_tensor){
        t->words, t->scales, g->rows, g->cols,
        g->k,     g->L,      g->T,    g->layout == TCQ_LAYOUT_INTERLEAVED};
}

#endif
