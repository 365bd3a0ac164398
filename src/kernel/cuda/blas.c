/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLAS by dlopen.  Its few functions are declared here with plain types: their
 * binary interface has been the same since version 11.
 */
#include "kernel/cuda/blas.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Values of cuBLAS's and CUDA's enumerations. */
enum { OP_N = 0, OP_T = 1, TYPE_R_32F = 0, TYPE_R_16BF = 14, COMPUTE_32F = 68, ALGO_DEFAULT = -1 };

struct blas {
    void *library, *handle, *workspace;
    size_t workspace_nbytes;
    int (*destroy)(void *);
    int (*set_stream)(void *, cudaStream_t);
    int (*set_workspace)(void *, void *, size_t);
    int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *,
                int, int, const void *, void *, int, int, int, int);
};

static void *symbol(const struct blas *blas, const char *name, bool *missing)
{
    void *address = dlsym(blas->library, name);
    *missing |= !address;
    return address;
}

/* ISO C has no cast from data to function pointers; POSIX's way is a copy. */
#define BIND(blas, function, name)                       \
    do {                                                 \
        void *address_ = symbol(blas, name, &missing);   \
        memcpy(&(function), &address_, sizeof address_); \
    } while (0)

static enum tcq_status bind(struct blas *blas, struct tcq_error *error)
{
    bool missing = false;
    int (*create)(void **);
    BIND(blas, create, "cublasCreate_v2");
    BIND(blas, blas->destroy, "cublasDestroy_v2");
    BIND(blas, blas->set_stream, "cublasSetStream_v2");
    BIND(blas, blas->set_workspace, "cublasSetWorkspace_v2");
    BIND(blas, blas->gemm, "cublasGemmEx");
    if (missing)
        return tcq_error_set(error, TCQ_ERROR_DEVICE, "cuBLAS lacks a function that is needed");
    int status = create(&blas->handle);
    return status ? tcq_error_set(error, TCQ_ERROR_DEVICE, "cublasCreate: status %d", status)
                  : TCQ_OK;
}

enum tcq_status blas_open(struct blas **out, void *d_workspace, size_t workspace_nbytes,
                          struct tcq_error *error)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
                                        "libcublas.so"};
    struct blas *blas = tcq_alloc(1, sizeof *blas);
    if (!blas)
        return tcq_error_memory(error, sizeof *blas, "cuBLAS");
    for (size_t i = 0; i < sizeof names / sizeof *names && !blas->library; i++)
        blas->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    enum tcq_status status =
        blas->library
            ? bind(blas, error)
            : tcq_error_set(
                  error, TCQ_ERROR_DEVICE,
                  "more than 32 vectors need cuBLAS: libcublas.so.13, .12, .11 not found");
    blas->workspace = d_workspace;
    blas->workspace_nbytes = workspace_nbytes;
    if (status != TCQ_OK) {
        blas_close(blas);
        return status;
    }
    *out = blas;
    return TCQ_OK;
}

void blas_close(struct blas *blas)
{
    if (!blas)
        return;
    if (blas->handle)
        blas->destroy(blas->handle);
    if (blas->library)
        dlclose(blas->library);
    tcq_free(blas);
}

enum tcq_status blas_multiply(struct blas *blas, const struct blas_product *p, cudaStream_t stream,
                              struct tcq_error *error)
{
    const float one = 1.0f;
    int status = blas->set_stream(blas->handle, stream);
    if (!status) /* set_stream goes back to a workspace of cuBLAS's own */
        status = blas->set_workspace(blas->handle, blas->workspace, blas->workspace_nbytes);
    if (!status)
        status = blas->gemm(blas->handle, p->transposed ? OP_N : OP_T, OP_N, (int)p->outputs,
                            (int)p->m, (int)p->depth, &one, p->w, TYPE_R_16BF, (int)p->w_stride,
                            p->x, TYPE_R_16BF, (int)p->x_stride, &p->beta, p->c,
                            p->c_type == TCQ_DTYPE_F32 ? TYPE_R_32F : TYPE_R_16BF, (int)p->c_stride,
                            COMPUTE_32F, ALGO_DEFAULT);
    return status ? tcq_error_set(error, TCQ_ERROR_DEVICE, "cublasGemmEx: status %d", status)
                  : TCQ_OK;
}
