/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder: scales row by row, then every block of the matrix by itself, so
 * that neither threads nor the number of blocks solved at once show in the
 * result.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/context.h"
#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "encode/scale.h"
#include "encode/scale_fit.h"
#include "encode/viterbi.h"
#include "format/geometry.h"

/* Blocks handed to a thread at a time: enough to hide the hand-over (a block
 * takes 70 us and more), few enough to keep the threads even. */
enum { BLOCKS_PER_ITEM = 4 };

/* What one thread works in. */
struct workspace {
    void *solver;
    float x[TCQ_VITERBI_BLOCKS_MAX * TCQ_T_MAX];
    uint16_t states[TCQ_VITERBI_BLOCKS_MAX * TCQ_T_MAX];
};

struct tcq_encoder {
    struct tcq_context *context;
    const struct tcq_viterbi *viterbi;
    struct tcq_trellis trellis;
    uint32_t T, threads, blocks; /* blocks: solved at once */
    double table_rms;
    enum tcq_scale_rule scale_rule;
    struct tcq_scale_fit fit;
    struct workspace *workspaces; /* [threads] */
    size_t nbytes;
};

static enum tcq_status workspaces_create(struct tcq_encoder *encoder, struct tcq_error *error)
{
    const struct tcq_trellis *trellis = &encoder->trellis;
    size_t solver_nbytes = encoder->viterbi->work_nbytes(trellis->k, trellis->L, encoder->T);
    encoder->workspaces = tcq_alloc(encoder->threads, sizeof *encoder->workspaces);
    if (!encoder->workspaces)
        return tcq_error_memory(error, encoder->threads * sizeof *encoder->workspaces,
                                "an encoder's threads");
    for (uint32_t i = 0; i < encoder->threads; i++) {
        encoder->workspaces[i].solver = tcq_alloc(solver_nbytes, 1);
        if (!encoder->workspaces[i].solver)
            return tcq_error_memory(error, solver_nbytes, "an encoder's workspace");
    }
    encoder->nbytes += encoder->threads * (sizeof *encoder->workspaces + solver_nbytes);
    return TCQ_OK;
}

static enum tcq_status encoder_init(struct tcq_encoder *encoder, uint32_t k, uint32_t L,
                                    struct tcq_error *error)
{
    encoder->threads = tcq_context_threads(encoder->context);
    encoder->viterbi = tcq_viterbi_select(tcq_context_cpu_flags(encoder->context));
    encoder->blocks = encoder->viterbi->blocks(L);
    encoder->table_rms = tcq_code_rms(L);
    encoder->nbytes = sizeof *encoder;
    enum tcq_status status =
        tcq_trellis_init(&encoder->trellis, encoder->viterbi, k, L, &encoder->nbytes, error);
    return status == TCQ_OK ? workspaces_create(encoder, error) : status;
}

enum tcq_status tcq_encoder_create(struct tcq_context *context,
                                   const struct tcq_encoder_options *options,
                                   struct tcq_encoder **out, struct tcq_error *error)
{
    if (!context || !options || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "encoder: %s is NULL",
                             !context   ? "context"
                             : !options ? "options"
                                        : "out");
    uint32_t L = options->L ? options->L : 12, T = options->T ? options->T : TCQ_T_MAX;
    enum tcq_status status = tcq_geometry_check_code(options->k, L, T, error);
    if (status != TCQ_OK)
        return status;
    if (options->scale != TCQ_SCALE_RMS && options->scale != TCQ_SCALE_FIT)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "encoder: scale rule %d is unknown",
                             (int)options->scale);
    struct tcq_encoder *encoder = tcq_alloc(1, sizeof *encoder);
    if (!encoder)
        return tcq_error_memory(error, sizeof *encoder, "an encoder");
    encoder->context = context;
    encoder->T = T;
    encoder->scale_rule = options->scale;
    tcq_scale_fit_init(&encoder->fit, options->k, L);
    status = encoder_init(encoder, options->k, L, error);
    if (status != TCQ_OK) {
        tcq_encoder_destroy(encoder);
        return status;
    }
    *out = encoder;
    return TCQ_OK;
}

void tcq_encoder_destroy(struct tcq_encoder *encoder)
{
    if (!encoder)
        return;
    for (uint32_t i = 0; encoder->workspaces && i < encoder->threads; i++)
        tcq_free(encoder->workspaces[i].solver);
    tcq_free(encoder->workspaces);
    tcq_trellis_free(&encoder->trellis);
    tcq_free(encoder);
}

size_t tcq_encoder_nbytes(const struct tcq_encoder *encoder)
{
    return encoder->nbytes;
}

const char *tcq_encoder_isa(const struct tcq_encoder *encoder)
{
    return encoder->viterbi->isa;
}

/* One call of tcq_encode_rows. */
struct job {
    const struct tcq_encoder *encoder;
    uint32_t *words;
    uint16_t *scales;
    const float *src;
    size_t rows, cols, src_stride;
    size_t blocks_per_row, blocks;
    _Atomic size_t bad_row;    /* the lowest row without a scale; `rows` if none */
    _Atomic bool stopped;      /* cancelled */
    _Atomic bool open;         /* a path did not close: a fault of this library */
    _Atomic uint64_t done;     /* blocks */
    pthread_mutex_t reporting; /* held during a progress call */
    tcq_progress_fn progress;
    void *progress_user;
};

static enum tcq_status row_scale(const struct job *job, uint16_t *scale, size_t row,
                                 struct tcq_error *error)
{
    const struct tcq_encoder *encoder = job->encoder;
    const float *weights = job->src + row * job->src_stride;
    return tcq_scale_compute(scale, weights, job->cols, encoder->table_rms,
                             encoder->scale_rule == TCQ_SCALE_FIT ? &encoder->fit : NULL, row,
                             error);
}

static void scale_item(void *argument, size_t thread, size_t row)
{
    struct job *job = argument;
    (void)thread;
    if (row_scale(job, &job->scales[row], row, NULL) == TCQ_OK)
        return;
    size_t lowest = atomic_load(&job->bad_row);
    while (row < lowest && !atomic_compare_exchange_weak(&job->bad_row, &lowest, row))
        ;
}

/* Reports if nobody else is doing so: a call that is left out is made up for
 * by the next. */
static void report(struct job *job)
{
    if (!job->progress || pthread_mutex_trylock(&job->reporting) != 0)
        return;
    if (!atomic_load(&job->stopped) &&
        !job->progress(job->progress_user, atomic_load(&job->done), job->blocks))
        atomic_store(&job->stopped, true);
    pthread_mutex_unlock(&job->reporting);
}

/* Targets of one block: weights over the scale. */
static void block_load(float *x, const struct job *job, size_t block)
{
    size_t row = block / job->blocks_per_row, column = block % job->blocks_per_row;
    uint32_t T = job->encoder->T;
    const float *weights = job->src + row * job->src_stride + column * T;
    float scale = tcq_f16_to_f32(job->scales[row]);
    for (uint32_t t = 0; t < T; t++)
        x[t] = weights[t] / scale;
}

static void blocks_solve(struct job *job, struct workspace *w, size_t first, uint32_t count)
{
    const struct tcq_encoder *encoder = job->encoder;
    const struct tcq_trellis *trellis = &encoder->trellis;
    uint32_t T = encoder->T;
    for (uint32_t b = 0; b < count; b++)
        block_load(w->x + b * T, job, first + b);
    encoder->viterbi->solve(w->states, w->x, T, count, trellis, w->solver);
    size_t block_words = (size_t)T * trellis->k / 32;
    for (uint32_t b = 0; b < count; b++)
        if (tcq_block_pack(job->words + (first + b) * block_words, w->states + b * T, trellis->k,
                           trellis->L, T) != TCQ_OK)
            atomic_store(&job->open, true);
}

static void block_item(void *argument, size_t thread, size_t item)
{
    struct job *job = argument;
    size_t first = item * BLOCKS_PER_ITEM, left = job->blocks - first;
    size_t end = left < BLOCKS_PER_ITEM ? job->blocks : first + BLOCKS_PER_ITEM;
    while (first < end && !atomic_load_explicit(&job->stopped, memory_order_relaxed)) {
        uint32_t count = job->encoder->blocks;
        if (count > end - first)
            count = (uint32_t)(end - first);
        blocks_solve(job, &job->encoder->workspaces[thread], first, count);
        atomic_fetch_add(&job->done, count);
        first += count;
    }
    report(job);
}

static enum tcq_status encode(struct job *job, struct tcq_error *error)
{
    struct tcq_context *context = job->encoder->context;
    tcq_context_run(context, scale_item, job, job->rows);
    size_t bad = atomic_load(&job->bad_row);
    if (bad < job->rows) {
        uint16_t unused;
        return row_scale(job, &unused, bad, error);
    }
    tcq_context_run(context, block_item, job,
                    (job->blocks + BLOCKS_PER_ITEM - 1) / BLOCKS_PER_ITEM);
    if (!atomic_load(&job->stopped))
        report(job); /* the last item's call may have been left out */
    if (atomic_load(&job->stopped))
        return tcq_error_set(error, TCQ_ERROR_CANCELLED,
                             "encoding stopped on request after %" PRIu64 " of %zu blocks",
                             atomic_load(&job->done), job->blocks);
    if (atomic_load(&job->open))
        return tcq_error_set(error, TCQ_ERROR_VALUE, "the best path of a block is not tail-biting");
    return TCQ_OK;
}

static enum tcq_status arguments_check(const struct tcq_encoder *encoder, const void *words,
                                       const void *scales, const void *src, uint64_t rows,
                                       uint64_t cols, size_t src_stride, struct tcq_error *error)
{
    if (!encoder || !words || !scales || !src)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "encode: %s is NULL",
                             !encoder  ? "encoder"
                             : !words  ? "words"
                             : !scales ? "scales"
                                       : "src");
    struct tcq_geometry geometry = {.k = encoder->trellis.k,
                                    .L = encoder->trellis.L,
                                    .T = encoder->T,
                                    .rows = rows,
                                    .cols = cols};
    enum tcq_status status = tcq_geometry_check(&geometry, error);
    if (status == TCQ_OK && src_stride < cols)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "src_stride %zu: expected at least cols (%" PRIu64 ")", src_stride,
                             cols);
    return status;
}

enum tcq_status tcq_encode_rows(struct tcq_encoder *encoder, uint32_t *words, uint16_t *scales,
                                const float *src, uint64_t rows, uint64_t cols, size_t src_stride,
                                tcq_progress_fn progress, void *progress_user,
                                struct tcq_error *error)
{
    enum tcq_status status =
        arguments_check(encoder, words, scales, src, rows, cols, src_stride, error);
    if (status != TCQ_OK)
        return status;
    struct job job = {.encoder = encoder,
                      .words = words,
                      .scales = scales,
                      .src = src,
                      .rows = (size_t)rows,
                      .cols = (size_t)cols,
                      .src_stride = src_stride,
                      .blocks_per_row = (size_t)cols / encoder->T,
                      .bad_row = (size_t)rows,
                      .progress = progress,
                      .progress_user = progress_user};
    job.blocks = job.rows * job.blocks_per_row;
    pthread_mutex_init(&job.reporting, NULL);
    status = encode(&job, error);
    pthread_mutex_destroy(&job.reporting);
    return status;
}
