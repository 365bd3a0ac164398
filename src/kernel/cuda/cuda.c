/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA back end: the context and its memory, and expand.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "format/geometry.h"
#include "kernel/cuda/context.h"

static atomic_int contexts;

int tcq_cuda_contexts(void)
{
    return atomic_load(&contexts);
}

/* ---- context and memory ------------------------------------------------------ */

static enum tcq_status device_open(struct tcq_cuda *cuda, struct tcq_error *error)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    int driver = 0;
    if (code == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
        driver == 0)
        return tcq_error_set(error, TCQ_ERROR_DEVICE,
                             "no NVIDIA driver is installed, which a GPU needs");
    if (code != cudaSuccess)
        return device_error(error, code, "no usable NVIDIA GPU");
    if (cuda->device < 0 || cuda->device >= count)
        return tcq_error_set(error, TCQ_ERROR_DEVICE, "GPU %d: there are %d", cuda->device, count);
    struct cudaDeviceProp p;
    code = cudaGetDeviceProperties(&p, cuda->device);
    if (code == cudaSuccess)
        code = cudaSetDevice(cuda->device);
    if (code != cudaSuccess)
        return device_error(error, code, "opening the GPU");
    if (p.major < 8)
        return tcq_error_set(error, TCQ_ERROR_DEVICE,
                             "%s has compute capability %d.%d, 8.0 or newer is needed", p.name,
                             p.major, p.minor);
    memcpy(cuda->name, p.name,
           sizeof cuda->name < sizeof p.name ? sizeof cuda->name : sizeof p.name);
    cuda->name[sizeof cuda->name - 1] = '\0';
    cuda->multiprocessors = (uint32_t)p.multiProcessorCount;
    cuda->small = p.sharedMemPerBlockOptin >= FAST_SHARED_NBYTES;
    cuda->hopper = p.major >= 9 && fast_has_hopper_code();
    cuda->fused = cuda->hopper && p.major == 9 && p.minor == 0 && wide_has_code();
    return TCQ_OK;
}

static enum tcq_status take(struct tcq_cuda *cuda, void **out, size_t nbytes, int byte,
                            struct tcq_error *error)
{
    enum tcq_status status = tcq_cuda_alloc(cuda, nbytes, out, error);
    if (status != TCQ_OK)
        return status;
    cuda->nbytes += nbytes;
    return device_error(error, cudaMemset(*out, byte, nbytes), "clearing GPU memory");
}

static enum tcq_status memory_open(struct tcq_cuda *cuda, struct tcq_error *error)
{
    enum tcq_status status =
        take(cuda, &cuda->inputs, fast_inputs_nbytes(INPUT_LENGTH_MAX, FAST_COLUMNS_MAX), 0, error);
    void *memory = NULL;
    if (status == TCQ_OK)
        status = take(cuda, &memory, fast_partial_nbytes(cuda->multiprocessors), FAST_PARTIAL_EMPTY,
                      error);
    cuda->partial = memory;
    if (status == TCQ_OK)
        status = take(cuda, &cuda->blas_workspace, BLAS_WORKSPACE_NBYTES, 0, error);
    return status == TCQ_OK ? take(cuda, &cuda->workspace, cuda->workspace_nbytes, 0, error)
                            : status;
}

enum tcq_status tcq_cuda_create(const struct tcq_cuda_options *options, struct tcq_cuda **out,
                                struct tcq_error *error)
{
    if (!out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "cuda: out is NULL");
    struct tcq_cuda *cuda = tcq_alloc(1, sizeof *cuda);
    if (!cuda)
        return tcq_error_memory(error, sizeof *cuda, "a CUDA context");
    atomic_fetch_add(&contexts, 1);
    cuda->device = options ? options->device : 0;
    cuda->workspace_nbytes =
        options && options->workspace_nbytes ? options->workspace_nbytes : (size_t)256 << 20;
    enum tcq_status status = device_open(cuda, error);
    if (status == TCQ_OK)
        status = memory_open(cuda, error);
    if (status != TCQ_OK) {
        tcq_cuda_destroy(cuda);
        return status;
    }
    /* Now rather than in the first wide product, which may be under capture. */
    blas_open(&cuda->blas, cuda->blas_workspace, BLAS_WORKSPACE_NBYTES, &cuda->no_blas);
    *out = cuda;
    return TCQ_OK;
}

void tcq_cuda_destroy(struct tcq_cuda *cuda)
{
    if (!cuda)
        return;
    atomic_fetch_sub(&contexts, 1);
    blas_close(cuda->blas);
    void *memory[] = {cuda->inputs, cuda->partial, cuda->blas_workspace, cuda->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        tcq_cuda_free(cuda, memory[i]);
    tcq_free(cuda);
}

const char *tcq_cuda_name(const struct tcq_cuda *cuda)
{
    return cuda->name;
}

uint32_t tcq_cuda_multiprocessors(const struct tcq_cuda *cuda)
{
    return cuda->multiprocessors;
}

size_t tcq_cuda_nbytes(const struct tcq_cuda *cuda)
{
    return cuda->nbytes;
}

enum tcq_status tcq_cuda_alloc(struct tcq_cuda *cuda, size_t nbytes, void **d_out,
                               struct tcq_error *error)
{
    (void)cuda;
    cudaError_t code = cudaMalloc(d_out, nbytes);
    if (code != cudaErrorMemoryAllocation)
        return device_error(error, code, "allocating GPU memory");
    cudaGetLastError(); /* not sticky: later calls would report it again */
    size_t left = 0, all = 0;
    cudaMemGetInfo(&left, &all);
    return tcq_error_set(error, TCQ_ERROR_MEMORY,
                         "out of GPU memory: %zu bytes wanted, %zu of %zu are free", nbytes, left,
                         all);
}

void tcq_cuda_free(struct tcq_cuda *cuda, void *d_memory)
{
    (void)cuda;
    if (d_memory)
        cudaFree(d_memory);
}

enum tcq_status tcq_cuda_upload(struct tcq_cuda *cuda, void *d_dst, const void *src, size_t nbytes,
                                struct tcq_error *error)
{
    (void)cuda;
    return device_error(error, cudaMemcpy(d_dst, src, nbytes, cudaMemcpyHostToDevice),
                        "copying to the GPU");
}

enum tcq_status tcq_cuda_download(struct tcq_cuda *cuda, void *dst, const void *d_src,
                                  size_t nbytes, struct tcq_error *error)
{
    (void)cuda;
    return device_error(error, cudaMemcpy(dst, d_src, nbytes, cudaMemcpyDeviceToHost),
                        "copying from the GPU");
}

enum tcq_status tcq_cuda_wait(struct tcq_cuda *cuda, void *stream, struct tcq_error *error)
{
    (void)cuda;
    return device_error(error, cudaStreamSynchronize(stream), "running on the GPU");
}

/* ---- expand --------------------------------------------------------------------------- */

enum tcq_status tcq_cuda_expand(struct tcq_cuda *cuda, void *d_dst, enum tcq_dtype dtype,
                                size_t dst_stride, const struct tcq_tensor *tensor,
                                uint64_t row_begin, uint64_t row_end, void *stream,
                                struct tcq_error *error)
{
    if (!cuda || !d_dst || !tensor)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "expand on the GPU: a pointer is NULL");
    enum tcq_status status = tcq_geometry_check(&tensor->geometry, error);
    if (status != TCQ_OK)
        return status;
    if ((dtype != TCQ_DTYPE_BF16 && dtype != TCQ_DTYPE_F32) || row_begin >= row_end ||
        row_end > tensor->geometry.rows || dst_stride < tensor->geometry.cols)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "expand on the GPU: rows %llu to %llu of %llu as %s, stride %zu",
                             (unsigned long long)row_begin, (unsigned long long)row_end,
                             (unsigned long long)tensor->geometry.rows, tcq_dtype_name(dtype),
                             dst_stride);
    const struct reference_tensor w = reference_tensor_of(tensor);
    return device_error(
        error,
        dtype == TCQ_DTYPE_BF16
            ? expand_launch(d_dst, dst_stride, &w, row_begin, row_end, stream)
            : reference_expand_launch(d_dst, dtype, dst_stride, &w, row_begin, row_end, stream),
        "starting expand on the GPU");
}
