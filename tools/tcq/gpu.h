/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding on an NVIDIA GPU for `--device cuda`: gpu_cuda.c, or gpu_none.c in a
 * tcq that was built without CUDA and says so.
 */
#ifndef TCQ_GPU_H
#define TCQ_GPU_H

#include "tcq.h"

struct gpu;

enum tcq_status gpu_open(enum tcq_scale_rule scale, struct gpu **out, struct tcq_error *error);
void gpu_close(struct gpu *gpu);
const char *gpu_name(const struct gpu *gpu);
/* tcq_encode_rows for any geometry, of one L in a run. */
enum tcq_status gpu_encode_rows(struct gpu *gpu, const struct tcq_geometry *geometry,
                                uint32_t *words, uint16_t *scales, const float *src, uint64_t rows,
                                tcq_progress_fn progress, void *user, struct tcq_error *error);

#endif
