/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One CUDA context and an encoder for every k and T that a run meets.
 */
#include "base/error.h"
#include "base/memory.h"
#include "gpu.h"
#include "kernel/cuda/cuda.h"

struct gpu {
    struct tcq_cuda *cuda;
    enum tcq_scale_rule scale;
    struct tcq_cuda_encoder *encoders[TCQ_K_MAX][3];
};

enum tcq_status gpu_open(enum tcq_scale_rule scale, struct gpu **out, struct tcq_error *error)
{
    /* Only the encoder is used: no room for dense weights. */
    const struct tcq_cuda_options options = {.workspace_nbytes = 1 << 20};
    struct gpu *gpu = tcq_alloc(1, sizeof *gpu);
    if (!gpu)
        return tcq_error_memory(error, sizeof *gpu, "a GPU");
    enum tcq_status status = tcq_cuda_create(&options, &gpu->cuda, error);
    if (status != TCQ_OK) {
        tcq_free(gpu);
        return status;
    }
    gpu->scale = scale;
    *out = gpu;
    return TCQ_OK;
}

void gpu_close(struct gpu *gpu)
{
    if (!gpu)
        return;
    for (size_t k = 0; k < TCQ_K_MAX; k++)
        for (size_t t = 0; t < 3; t++)
            tcq_cuda_encoder_destroy(gpu->encoders[k][t]);
    tcq_cuda_destroy(gpu->cuda);
    tcq_free(gpu);
}

const char *gpu_name(const struct gpu *gpu)
{
    return tcq_cuda_name(gpu->cuda);
}

enum tcq_status gpu_encode_rows(struct gpu *gpu, const struct tcq_geometry *g, uint32_t *words,
                                uint16_t *scales, const float *src, uint64_t rows,
                                tcq_progress_fn progress, void *user, struct tcq_error *error)
{
    struct tcq_cuda_encoder **encoder = &gpu->encoders[g->k - 1][g->T == 64    ? 0
                                                                 : g->T == 128 ? 1
                                                                               : 2];
    const struct tcq_encoder_options options = {
        .k = g->k, .L = g->L, .T = g->T, .scale = gpu->scale};
    enum tcq_status status =
        *encoder ? TCQ_OK : tcq_cuda_encoder_create(gpu->cuda, &options, encoder, error);
    return status == TCQ_OK ? tcq_cuda_encode_rows(*encoder, words, scales, src, rows, g->cols,
                                                   (size_t)g->cols, progress, user, error)
                            : status;
}
