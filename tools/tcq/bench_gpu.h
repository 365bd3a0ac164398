/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq bench --device cuda: the same cases, timed by the GPU's own clock in CUDA
 * graphs, beside a copy and cuBLAS.  bench_gpu_cuda.c, or bench_gpu_none.c in a tcq
 * that was built without CUDA.
 */
#ifndef TCQ_BENCH_GPU_H
#define TCQ_BENCH_GPU_H

#include "bench.h"

/* Copies of the arena, x and room for y on the GPU: bench->gpu and its call_x,
 * call_y and call_expanded.  count: elements of x; expanded: of what expand writes. */
int bench_gpu_open(struct bench *bench, size_t count, size_t expanded);
void bench_gpu_close(struct bench *bench);
const char *bench_gpu_name(const struct bench *bench);
/* The first nbytes that a call wrote to call_y, in bench->y. */
enum tcq_status bench_gpu_fetch(const struct bench *bench, size_t nbytes, struct tcq_error *error);

/* Only memory_gb: bytes that a copy reads and writes, a second. */
struct bench_limits bench_gpu_limits(struct bench *bench);
/* Times one case in turns with the limit and, if asked for, the same layer in bf16. */
enum tcq_status bench_gpu_rounds(struct bench *bench, struct bench_layers *layers,
                                 const struct bench_case *which, bool ratios,
                                 struct bench_result *out, struct tcq_error *error);

#endif
