/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table by which libtcq finds the CUDA back end.
 */
#include "base/device.h"

#include "base/error.h"
#include "base/memory.h"
#include "model/cuda/gpu.h"

static void device_close(void *handle)
{
    struct gpu_device *device = handle;
    if (device->cuda)
        tcq_cuda_free(device->cuda, device->sums);
    tcq_cuda_destroy(device->cuda);
    tcq_free(device);
}

static enum tcq_status device_open(void **out, struct tcq_error *error)
{
    struct gpu_device *device = tcq_alloc(1, sizeof *device);
    if (!device)
        return tcq_error_memory(error, sizeof *device, "a GPU");
    void *sums = NULL;
    enum tcq_status status = tcq_cuda_create(NULL, &device->cuda, error);
    if (!status)
        status = tcq_cuda_alloc(device->cuda, GPU_SUMS * sizeof(float), &sums, error);
    device->sums = sums;
    if (status)
        device_close(device);
    else
        *out = device;
    return status;
}

static enum tcq_status available(void *device, size_t *nbytes, struct tcq_error *error)
{
    size_t all = 0;
    (void)device;
    return gpu_status(cudaMemGetInfo(nbytes, &all), "asking for the GPU's memory", error);
}

/* 32 vectors are what the products on integer weights take.  Expanding weights to
 * bf16 for all tokens at once is faster from about 64 tokens on, twice as fast at
 * 128 (docs/kernels-cuda.md); up to there a few milliseconds buy logits near the CPU's. */
enum { EXACT_BATCH = 32, EXACT_TOKENS = 128 };

const struct tcq_device_table *tcq_device_cuda(void)
{
    static const struct tcq_model_device model = {
        .exact_batch = EXACT_BATCH,
        .exact_tokens = EXACT_TOKENS,
        .available = available,
        .load = gpu_model_load,
        .unload = gpu_model_unload,
        .open = gpu_session_open,
        .close = gpu_session_close,
        .batch = gpu_batch,
        .logits = gpu_logits,
        .choose = gpu_choose,
        .wait = gpu_wait,
        .linear = gpu_linear,
    };
    static const struct tcq_device_table table = {.open = device_open,
                                                  .close = device_close,
                                                  .linear = &gpu_linear_device,
                                                  .model = &model};
    return &table;
}
