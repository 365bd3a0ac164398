/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tcq that was built without CUDA.
 */
#include "base/error.h"
#include "gpu.h"

enum tcq_status gpu_open(enum tcq_scale_rule scale, struct gpu **out, struct tcq_error *error)
{
    (void)scale, (void)out;
    return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                         "this program was built without the CUDA back end");
}

void gpu_close(struct gpu *gpu)
{
    (void)gpu;
}

const char *gpu_name(const struct gpu *gpu)
{
    (void)gpu;
    return "none";
}

enum tcq_status gpu_encode_rows(struct gpu *gpu, const struct tcq_geometry *geometry,
                                uint32_t *words, uint16_t *scales, const float *src, uint64_t rows,
                                tcq_progress_fn progress, void *user, struct tcq_error *error)
{
    (void)gpu, (void)geometry, (void)words, (void)scales, (void)src, (void)rows;
    (void)progress, (void)user;
    return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "this program was built without the CUDA back end");
}
