/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring: a case, the machine's limits and the same layer in bf16 take turns,
 * since the speed of a shared machine drifts; shares and ratios are medians over
 * the rounds of quotients within one round.
 */
#include "bench_gpu.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/context.h"
#include "base/memory.h"
#include "kernel/kernel.h"

enum {
    ROUNDS_MIN = 3,
    ROUNDS_MAX = 11,
    DENSE_ROWS = 256,     /* rows that a thread takes at a time */
    DENSE_DEPTH = 1024,   /* of the tiled product */
    LIMIT_PARTS = 4,      /* the arena is read a quarter at a time */
    SCALAR_MACS = 24000000 /* work of the comparison with plain C, per thread */
};
static const double budget_s = 0.5; /* of the rounds of one case, after the first three */
static const double limit_s = 0.002; /* of one measurement of the arithmetic */

/* One thread is measured by its own processor's time: what else runs on the
 * machine then counts only as far as it takes memory bandwidth and caches. */
static double bench_seconds(const struct bench *bench)
{
    if (bench->threads > 1)
        return cli_seconds();
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- limits ------------------------------------------------------------- */

struct limit_job {
    struct bench *bench;
    const char *data;
    size_t part_nbytes;
    uint64_t rounds;
    volatile uint64_t sink;
};

static void read_item(void *argument, size_t thread, size_t item)
{
    struct limit_job *job = argument;
    (void)thread;
    job->sink = job->bench->probe->read(job->data + item * job->part_nbytes, job->part_nbytes);
}

static void fma_item(void *argument, size_t thread, size_t item)
{
    struct limit_job *job = argument;
    (void)thread, (void)item;
    job->sink = (uint64_t)job->bench->probe->fma(job->rounds);
}

static void dot_item(void *argument, size_t thread, size_t item)
{
    struct limit_job *job = argument;
    (void)thread, (void)item;
    job->sink = (uint64_t)job->bench->probe->dot(job->rounds);
}

static double timed(struct bench *bench, tcq_task_fn task, struct limit_job *job)
{
    double start = bench_seconds(bench);
    tcq_context_run(bench->context, task, job, bench->threads);
    return bench_seconds(bench) - start;
}

/* Rounds that take one thread about limit_s: starting the threads must not count. */
static uint64_t calibrate(struct bench *bench, tcq_task_fn task)
{
    struct limit_job job = {.bench = bench, .rounds = 20000};
    double best = limit_s;
    for (int i = 0; i < 3; i++) {
        double start = bench_seconds(bench);
        task(&job, 0, 0);
        double took = bench_seconds(bench) - start;
        best = took < best ? took : best;
    }
    return (uint64_t)((double)job.rounds * limit_s / best);
}

/* 10^9 multiply-adds a second over all threads. */
static double arithmetic_rate(struct bench *bench, tcq_task_fn task, uint32_t macs_a_round,
                              uint64_t *rounds)
{
    if (*rounds == 0)
        *rounds = calibrate(bench, task);
    struct limit_job job = {.bench = bench, .rounds = *rounds};
    double took = timed(bench, task, &job);
    return (double)job.rounds * macs_a_round * bench->threads / took * 1e-9;
}

struct bench_limits bench_limits_measure(struct bench *bench)
{
    size_t part = bench->arena_nbytes / LIMIT_PARTS;
    struct limit_job job = {.bench = bench};
    job.data = (const char *)bench->arena + bench->turn++ % LIMIT_PARTS * part;
    job.part_nbytes = part / bench->threads / 1024 * 1024;
    struct bench_limits limits;
    limits.memory_gb =
        (double)(job.part_nbytes * bench->threads) / timed(bench, read_item, &job) * 1e-9;
    limits.fma_gmac = arithmetic_rate(bench, fma_item, bench->probe->fma_round,
                                       &bench->fma_rounds);
    limits.int8_gmac = arithmetic_rate(bench, dot_item, bench->probe->dot_round,
                                       &bench->dot_rounds);
    return limits;
}

/* ---- the same layer in bf16 ---------------------------------------------- */

struct dense_job {
    struct bench *bench;
    const struct tcq_gemm_kernel *gemm; /* NULL: rows at a time */
    const uint16_t *w;
    uint64_t out, in;
    uint32_t m;
    char *scratch;
    size_t scratch_nbytes;
};

static void dense_item(void *argument, size_t thread, size_t item)
{
    struct dense_job *job = argument;
    uint64_t begin = item * DENSE_ROWS, left = job->out - begin;
    uint64_t end = left < DENSE_ROWS ? job->out : begin + DENSE_ROWS;
    float *y = (float *)(void *)job->bench->y;
    if (!job->gemm) {
        job->bench->probe->bf16(y, job->out, job->w, job->bench->x, job->m, begin, end, job->in);
        return;
    }
    for (uint32_t i = 0; i < job->m; i++)
        memset(y + i * job->out + begin, 0, (end - begin) * sizeof *y);
    for (uint64_t at = 0; at < job->in; at += DENSE_DEPTH) {
        uint64_t depth = job->in - at < DENSE_DEPTH ? job->in - at : DENSE_DEPTH;
        job->gemm->run(y + begin, job->out, job->bench->x + at, job->in,
                       job->w + begin * job->in + at, job->in, 1, job->m, end - begin, depth,
                       job->scratch + thread * job->scratch_nbytes);
    }
}

/* The next copy of out x in bf16 weights in the arena. */
static const uint16_t *dense_weights(struct bench *bench, uint64_t out, uint64_t in)
{
    size_t nbytes = (size_t)(out * in) * 2, copies = bench->arena_nbytes / nbytes;
    if (copies == 0)
        return NULL;
    return (const uint16_t *)(void *)bench->arena + bench->turn++ % copies * (nbytes / 2);
}

static double dense_once(struct bench *bench, uint64_t out, uint64_t in, uint32_t m, bool tiled)
{
    struct tcq_kernels kernels;
    tcq_kernels_select(&kernels, tcq_context_cpu_flags(bench->context), NULL);
    struct dense_job job = {bench, tiled ? kernels.gemm : NULL, dense_weights(bench, out, in),
                            out,   in,                          m,
                            NULL,  0};
    if (!job.w)
        return 0;
    if (tiled) {
        size_t need = kernels.gemm->scratch_nbytes(m, DENSE_ROWS, DENSE_DEPTH);
        job.scratch_nbytes = (need + 63) / 64 * 64;
        job.scratch = tcq_alloc(bench->threads, job.scratch_nbytes);
        if (!job.scratch)
            return 0;
    }
    double start = bench_seconds(bench);
    tcq_context_run(bench->context, dense_item, &job, (out + DENSE_ROWS - 1) / DENSE_ROWS);
    double took = bench_seconds(bench) - start;
    tcq_free(job.scratch);
    return took;
}

/* Which of the two products is the faster one, tried once for each size. */
static bool dense_tiled_wins(struct bench *bench, uint64_t out, uint64_t in, uint32_t m)
{
    if (m < 8)
        return false;
    double rows = dense_once(bench, out, in, m, false);
    return dense_once(bench, out, in, m, true) < rows;
}

/* ---- cases --------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

/* Seconds a weight of the same case in plain C, on fewer rows: it is bound by
 * arithmetic, so that the size does not matter. */
static double scalar_time(struct bench *bench, const struct bench_case *which)
{
    struct bench_case small = *which;
    uint64_t m = which->m ? which->m : 1;
    uint64_t rows = (uint64_t)SCALAR_MACS * bench->threads / (which->geometry.cols * m);
    rows = rows < 16 ? 16 : rows;
    small.geometry.rows = rows < which->geometry.rows ? rows : which->geometry.rows;
    struct bench_layers layers;
    struct tcq_error error;
    if (bench_layers_create(&layers, bench, bench->scalar_context, &small, &error) != TCQ_OK)
        return 0;
    double best = 0;
    for (int i = 0; i < 2; i++) {
        double start = bench_seconds(bench);
        bench_layers_run(&layers, bench, &small, &error);
        double took = bench_seconds(bench) - start;
        best = i == 0 || took < best ? took : best;
    }
    bench_layers_destroy(&layers);
    return best / (double)(small.geometry.rows * small.geometry.cols);
}

/* Per round: the case's time and the limits beside it. */
struct rounds {
    uint32_t count;
    double took[ROUNDS_MAX], memory[ROUNDS_MAX], fma[ROUNDS_MAX], int8[ROUNDS_MAX];
    double share_memory[ROUNDS_MAX], share_fma[ROUNDS_MAX], share_int8[ROUNDS_MAX];
    double ratio_bf16[ROUNDS_MAX];
};

/* Work of one call. */
struct bench_work bench_work_of(const struct bench_case *which)
{
    const struct tcq_geometry *g = &which->geometry;
    double layers = which->op == BENCH_GATE_UP ? 2 : 1;
    struct bench_work w;
    w.weights = layers * (double)g->rows * (double)g->cols;
    w.macs = w.weights * which->m;
    w.nbytes = layers * ((double)tcq_geometry_words(g) * 4 + (double)g->rows * 2);
    return w;
}

static enum tcq_status one_round(struct bench *bench, struct bench_layers *layers,
                                 const struct bench_case *which, struct rounds *r, int dense,
                                 struct tcq_error *error)
{
    const struct tcq_geometry *g = &which->geometry;
    struct bench_work work = bench_work_of(which);
    struct bench_limits limits = bench_limits_measure(bench);
    double start = bench_seconds(bench);
    enum tcq_status status = bench_layers_run(layers, bench, which, error);
    double took = bench_seconds(bench) - start;
    if (status != TCQ_OK)
        return status;
    uint32_t n = r->count++;
    r->took[n] = took;
    r->memory[n] = limits.memory_gb;
    r->fma[n] = limits.fma_gmac;
    r->int8[n] = limits.int8_gmac;
    r->share_memory[n] = work.nbytes / took * 1e-9 / limits.memory_gb;
    r->share_fma[n] = work.macs / took * 1e-9 / limits.fma_gmac;
    r->share_int8[n] = work.macs / took * 1e-9 / limits.int8_gmac;
    r->ratio_bf16[n] = 0;
    if (dense >= 0) {
        double factor = which->op == BENCH_GATE_UP ? 2 : 1;
        r->ratio_bf16[n] = factor / took * dense_once(bench, tcq_geometry_out(g),
                                                      tcq_geometry_in(g), which->m, dense);
    }
    return TCQ_OK;
}

static void summarize(struct rounds *r, const struct bench_case *which, struct bench_result *out)
{
    struct bench_work work = bench_work_of(which);
    double took = median(r->took, r->count);
    out->us = took * 1e6;
    out->gweights = work.weights / took * 1e-9;
    out->gmac = work.macs / took * 1e-9;
    out->gbytes = work.nbytes / took * 1e-9;
    out->limits.memory_gb = median(r->memory, r->count);
    out->limits.fma_gmac = median(r->fma, r->count);
    out->limits.int8_gmac = median(r->int8, r->count);
    out->share_memory = median(r->share_memory, r->count);
    out->share_fma = median(r->share_fma, r->count);
    out->share_int8 = median(r->share_int8, r->count);
    out->ratio_bf16 = median(r->ratio_bf16, r->count);
    out->rounds = r->count;
}

static enum tcq_status run_rounds(struct bench *bench, struct bench_layers *layers,
                                  const struct bench_case *which, bool ratios,
                                  struct bench_result *out, struct tcq_error *error)
{
    const struct tcq_geometry *g = &which->geometry;
    int dense = -1; /* not measured */
    bool whole = tcq_geometry_in(g) % 64 == 0; /* what the bf16 rows need */
    if (ratios && which->m && whole)
        dense = dense_tiled_wins(bench, tcq_geometry_out(g), tcq_geometry_in(g), which->m);
    struct rounds r = {0};
    enum tcq_status status = bench_layers_run(layers, bench, which, error); /* warms the threads */
    double start = cli_seconds();
    while (status == TCQ_OK && r.count < ROUNDS_MAX &&
           (r.count < ROUNDS_MIN || cli_seconds() - start < budget_s))
        status = one_round(bench, layers, which, &r, dense, error);
    if (status == TCQ_OK)
        summarize(&r, which, out);
    return status;
}

int bench_measure(struct bench *bench, const struct bench_case *which, bool ratios,
                  struct bench_result *out, bool *skipped)
{
    struct bench_layers layers;
    struct tcq_error error;
    *out = (struct bench_result){0};
    *skipped = false;
    enum tcq_status status = bench_layers_create(&layers, bench, bench->context, which, &error);
    if (status == TCQ_OK && which->m &&
        tcq_linear_operation(layers.copies[0], which->m) == TCQ_OPERATION_AUTO) {
        status = TCQ_ERROR_UNSUPPORTED;
        bench_layers_run(&layers, bench, which, &error); /* for its words */
    }
    if (status == TCQ_ERROR_UNSUPPORTED) {
        bench_layers_destroy(&layers);
        *skipped = true;
        cli_message("not run: %s", error.message);
        return CLI_CONTINUE;
    }
    if (status != TCQ_OK)
        return cli_fail(NULL, &error);
    int code = bench_layers_check(&layers, bench, which) ? CLI_CONTINUE : CLI_MISMATCH;
    if (code == CLI_CONTINUE) {
        out->operation = tcq_linear_operation(layers.copies[0], which->m);
        snprintf(out->kernel, sizeof out->kernel, "%s",
                 which->m ? tcq_linear_kernel(layers.copies[0], which->m) : "expand");
        status = bench->gpu ? bench_gpu_rounds(bench, &layers, which, ratios, out, &error)
                            : run_rounds(bench, &layers, which, ratios, out, &error);
        if (status != TCQ_OK)
            code = cli_fail(NULL, &error);
    }
    bench_layers_destroy(&layers);
    double scalar = ratios && !bench->gpu && code == CLI_CONTINUE ? scalar_time(bench, which) : 0;
    out->ratio_scalar = scalar * out->gweights * 1e9;
    return code;
}
