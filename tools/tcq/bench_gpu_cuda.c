/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases of tcq bench on an NVIDIA GPU.  Many calls make one CUDA graph, each on
 * weights that the L2 cache does not hold; the GPU's events time its launches.
 */
#include "bench_gpu.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "kernel/cuda/blas.h"
#include "linear/cuda/gpu.h"

enum {
    ROUNDS = 5,
    CALLS_MIN = 4, /* of a graph */
    CALLS_MAX = 200,
    BLAS_WORKSPACE_NBYTES = 32 << 20
};
#define GRAPH_MS 8.0 /* that one launch of a graph aims at */

struct bench_gpu {
    struct tcq_cuda *cuda;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *arena, *x, *y, *expanded, *workspace;
    struct blas *blas; /* NULL: there is none */
};

/* ---- memory ---------------------------------------------------------------------- */

static enum tcq_status set_up(struct bench *bench, struct bench_gpu *gpu, size_t count,
                              size_t expanded, struct tcq_error *error)
{
    const struct {
        void **to;
        size_t nbytes;
    } parts[] = {{&gpu->arena, bench->arena_nbytes},
                 {&gpu->x, count * sizeof *bench->x},
                 {&gpu->y, count * sizeof(float)},
                 {&gpu->expanded, expanded * sizeof(uint16_t)},
                 {&gpu->workspace, BLAS_WORKSPACE_NBYTES}};
    enum tcq_status status = TCQ_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !status; i++)
        if (parts[i].nbytes)
            status = tcq_cuda_alloc(gpu->cuda, parts[i].nbytes, parts[i].to, error);
    if (!status)
        status = tcq_cuda_upload(gpu->cuda, gpu->arena, bench->arena, bench->arena_nbytes, error);
    if (!status)
        status = tcq_cuda_upload(gpu->cuda, gpu->x, bench->x, count * sizeof *bench->x, error);
    if (!status)
        status = gpu_status(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking),
                            "creating a stream", error);
    if (!status)
        status = gpu_status(cudaEventCreate(&gpu->begin), "creating an event", error);
    if (!status)
        status = gpu_status(cudaEventCreate(&gpu->end), "creating an event", error);
    return status;
}

int bench_gpu_open(struct bench *bench, size_t count, size_t expanded)
{
    struct tcq_error error = {0};
    struct bench_gpu *gpu = tcq_alloc(1, sizeof *gpu);
    if (!gpu)
        return cli_out_of_memory();
    bench->gpu = gpu;
    gpu->cuda = ((struct gpu_device *)tcq_context_device(bench->context))->cuda;
    if (set_up(bench, gpu, count, expanded, &error) ||
        tcq_context_set_stream(bench->context, gpu->stream))
        return cli_fail(NULL, &error);
    if (blas_open(&gpu->blas, gpu->workspace, BLAS_WORKSPACE_NBYTES, &error))
        cli_message("no comparison with bf16: %s", error.message);
    bench->call_x = gpu->x;
    bench->call_y = gpu->y;
    bench->call_expanded = gpu->expanded;
    return CLI_CONTINUE;
}

void bench_gpu_close(struct bench *bench)
{
    struct bench_gpu *gpu = bench->gpu;
    if (!gpu)
        return;
    blas_close(gpu->blas);
    void *memory[] = {gpu->arena, gpu->x, gpu->y, gpu->expanded, gpu->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        tcq_cuda_free(gpu->cuda, memory[i]);
    if (gpu->begin)
        cudaEventDestroy(gpu->begin);
    if (gpu->end)
        cudaEventDestroy(gpu->end);
    if (gpu->stream)
        cudaStreamDestroy(gpu->stream);
    tcq_free(gpu);
    bench->gpu = NULL;
}

const char *bench_gpu_name(const struct bench *bench)
{
    return tcq_cuda_name(bench->gpu->cuda);
}

enum tcq_status bench_gpu_fetch(const struct bench *bench, size_t nbytes, struct tcq_error *error)
{
    enum tcq_status status = tcq_cuda_wait(bench->gpu->cuda, bench->gpu->stream, error);
    return status ? status
                  : tcq_cuda_download(bench->gpu->cuda, bench->y, bench->gpu->y, nbytes, error);
}

/* ---- what is timed ------------------------------------------------------------------- */

/* One call, number `turn` of many. */
struct timed {
    struct bench *bench;
    struct bench_layers *layers;
    const struct bench_case *which;
    enum tcq_status (*run)(const struct timed *timed, size_t turn, struct tcq_error *error);
};

static enum tcq_status run_layer(const struct timed *t, size_t turn, struct tcq_error *error)
{
    (void)turn;
    return bench_layers_run(t->layers, t->bench, t->which, error);
}

/* One half of the arena to the other, a quarter at a time. */
static enum tcq_status run_copy(const struct timed *t, size_t turn, struct tcq_error *error)
{
    size_t quarter = t->bench->arena_nbytes / 4;
    char *arena = t->bench->gpu->arena, *from = arena + turn % 2 * quarter;
    return gpu_status(cudaMemcpyAsync(from + 2 * quarter, from, quarter, cudaMemcpyDeviceToDevice,
                                      t->bench->gpu->stream),
                      "copying on the GPU", error);
}

/* The same layer in bf16: its weights are the arena's bits. */
static enum tcq_status run_dense(const struct timed *t, size_t turn, struct tcq_error *error)
{
    const struct bench_gpu *gpu = t->bench->gpu;
    uint64_t out = tcq_geometry_out(&t->which->geometry), in = tcq_geometry_in(&t->which->geometry);
    size_t nbytes = (size_t)(out * in) * 2, copies = t->bench->arena_nbytes / nbytes;
    const struct blas_product p = {.m = t->which->m,
                                   .outputs = out,
                                   .depth = in,
                                   .w = (const char *)gpu->arena + turn % copies * nbytes,
                                   .x = gpu->x,
                                   .w_stride = in,
                                   .x_stride = in,
                                   .c_stride = out,
                                   .c = gpu->y,
                                   .c_type = TCQ_DTYPE_BF16};
    return blas_multiply(gpu->blas, &p, gpu->stream, error);
}

/* ---- timing ---------------------------------------------------------------------------- */

static enum tcq_status launch_ms(const struct bench_gpu *gpu, cudaGraphExec_t exec, double *out,
                                 struct tcq_error *error)
{
    float ms = 0;
    cudaError_t code = cudaEventRecord(gpu->begin, gpu->stream);
    if (code == cudaSuccess)
        code = cudaGraphLaunch(exec, gpu->stream);
    if (code == cudaSuccess)
        code = cudaEventRecord(gpu->end, gpu->stream);
    if (code == cudaSuccess)
        code = cudaEventSynchronize(gpu->end);
    if (code == cudaSuccess)
        code = cudaEventElapsedTime(&ms, gpu->begin, gpu->end);
    *out = (double)ms;
    return gpu_status(code, "timing on the GPU", error);
}

static enum tcq_status capture(const struct timed *t, size_t calls, cudaGraphExec_t *exec,
                               struct tcq_error *error)
{
    cudaStream_t stream = t->bench->gpu->stream;
    cudaGraph_t graph = NULL;
    enum tcq_status status =
        gpu_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                   "beginning a graph", error);
    if (status)
        return status;
    for (size_t i = 0; i < calls && !status; i++)
        status = t->run(t, i, error);
    cudaError_t code = cudaStreamEndCapture(stream, &graph);
    if (!status)
        status = gpu_status(code, "ending a graph", error);
    if (!status)
        status = gpu_status(cudaGraphInstantiate(exec, graph, 0), "instantiating a graph", error);
    if (graph)
        cudaGraphDestroy(graph);
    return status;
}

/* A few graph launches of `calls` calls; seconds a call, one a launch. */
static enum tcq_status time_calls(const struct timed *t, size_t calls, double *seconds,
                                  size_t count, struct tcq_error *error)
{
    cudaGraphExec_t exec = NULL;
    double ms = 0;
    enum tcq_status status = capture(t, calls, &exec, error);
    for (size_t i = 0; i < count + 1 && !status; i++) { /* the first one warms up */
        status = launch_ms(t->bench->gpu, exec, &ms, error);
        if (i > 0)
            seconds[i - 1] = ms * 1e-3 / (double)calls;
    }
    if (exec)
        cudaGraphExecDestroy(exec);
    return status;
}

static int compare_doubles(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

/* The median of ROUNDS launches of as many calls as take GRAPH_MS. */
static enum tcq_status time_median(const struct timed *t, double *out, struct tcq_error *error)
{
    double seconds[ROUNDS], once = 0;
    enum tcq_status status = t->run(t, 0, error); /* loads what is not loaded yet */
    if (!status)
        status = time_calls(t, CALLS_MIN, &once, 1, error);
    if (status)
        return status;
    double wanted = GRAPH_MS * 1e-3 / once;
    size_t calls = wanted < CALLS_MIN ? CALLS_MIN : wanted > CALLS_MAX ? CALLS_MAX : (size_t)wanted;
    status = time_calls(t, calls, seconds, ROUNDS, error);
    qsort(seconds, ROUNDS, sizeof *seconds, compare_doubles);
    *out = seconds[ROUNDS / 2];
    return status;
}

struct bench_limits bench_gpu_limits(struct bench *bench)
{
    const struct timed copy = {.bench = bench, .run = run_copy};
    double seconds = 0;
    if (time_median(&copy, &seconds, NULL))
        return (struct bench_limits){0};
    return (struct bench_limits){.memory_gb =
                                     2e-9 * (double)(bench->arena_nbytes / 4) / seconds};
}

enum tcq_status bench_gpu_rounds(struct bench *bench, struct bench_layers *layers,
                                 const struct bench_case *which, bool ratios,
                                 struct bench_result *out, struct tcq_error *error)
{
    const struct timed layer = {bench, layers, which, run_layer};
    const struct timed dense = {bench, layers, which, run_dense};
    const struct bench_work work = bench_work_of(which);
    double seconds = 0, bf16 = 0;
    size_t dense_nbytes = (size_t)(which->geometry.rows * which->geometry.cols) * 2;
    enum tcq_status status = time_median(&layer, &seconds, error);
    if (!status && ratios && which->m && bench->gpu->blas && dense_nbytes <= bench->arena_nbytes)
        status = time_median(&dense, &bf16, error);
    if (status)
        return status;
    out->limits = bench_gpu_limits(bench);
    out->us = seconds * 1e6;
    out->gweights = work.weights / seconds * 1e-9;
    out->gmac = work.macs / seconds * 1e-9;
    out->gbytes = work.nbytes / seconds * 1e-9;
    out->share_memory = out->limits.memory_gb > 0 ? out->gbytes / out->limits.memory_gb : 0;
    out->ratio_bf16 = bf16 * (which->op == BENCH_GATE_UP ? 2 : 1) / seconds;
    out->rounds = ROUNDS;
    return TCQ_OK;
}
