/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding on the GPU, and from host memory to host memory.  There rows go through
 * in pieces on two streams, so that one piece is copied while the other is solved;
 * the copies pass through page-locked memory, without which they would not overlap.
 */
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/memory.h"
#include "code/code.h"
#include "encode/scale.h"
#include "encode/scale_fit.h"
#include "format/geometry.h"
#include "kernel/cuda/context.h"

/* ---- device memory to device memory -------------------------------------------------- */

/* With the defaults put in. */
static enum tcq_status options_check(struct tcq_encoder_options *out,
                                     const struct tcq_encoder_options *options,
                                     struct tcq_error *error)
{
    *out = *options;
    out->L = options->L ? options->L : 12;
    out->T = options->T ? options->T : TCQ_T_MAX;
    if (options->scale != TCQ_SCALE_RMS && options->scale != TCQ_SCALE_FIT)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "encode on the GPU: scale rule %d is unknown",
                             (int)options->scale);
    return tcq_geometry_check_code(out->k, out->L, out->T, error);
}

enum tcq_status tcq_cuda_encode_work_nbytes(struct tcq_cuda *cuda,
                                            const struct tcq_encoder_options *options,
                                            size_t *nbytes, struct tcq_error *error)
{
    struct tcq_encoder_options o;
    struct encode_general_plan plan = {0};
    if (!cuda || !options || !nbytes)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "encode on the GPU: a pointer is NULL");
    enum tcq_status status = options_check(&o, options, error);
    if (status == TCQ_OK && o.L != 12)
        status = device_error(error, encode_general_plan_make(&plan, o.k, o.L, o.T),
                              "encoding on the GPU");
    *nbytes = plan.blocks * plan.each_nbytes;
    return status;
}

static struct encode_scale_rule scale_rule_of(const struct tcq_encoder_options *o)
{
    struct encode_scale_rule rule = {.table_rms = tcq_code_rms(o->L),
                                     .fitted = o->scale == TCQ_SCALE_FIT};
    if (!rule.fitted)
        return rule;
    tcq_scale_fit_init(&rule.fit, o->k, o->L);
    for (int i = 0; i < TCQ_SCALE_FIT_FACTORS; i++)
        rule.factors[i] = tcq_scale_fit_step(i);
    return rule;
}

enum tcq_status tcq_cuda_encode(struct tcq_cuda *cuda, const struct tcq_cuda_encode *job,
                                void *stream, struct tcq_error *error)
{
    struct tcq_encoder_options o;
    if (!cuda || !job || !job->d_words || !job->d_scales || !job->d_bad_row || !job->d_src)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "encode on the GPU: a pointer is NULL");
    enum tcq_status status = options_check(&o, &job->options, error);
    const struct tcq_geometry g = {
        .k = o.k, .L = o.L, .T = o.T, .axis = 1, .rows = job->rows, .cols = job->cols};
    if (status == TCQ_OK)
        status = tcq_geometry_check(&g, error);
    if (status != TCQ_OK)
        return status;
    if (job->src_stride < g.cols || g.rows * (g.cols / g.T) > INT32_MAX ||
        (g.L != 12 && !job->d_work))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "encode on the GPU: %llu rows of %llu, stride %zu%s",
                             (unsigned long long)g.rows, (unsigned long long)g.cols,
                             job->src_stride, job->d_work ? "" : ", no working memory");
    const struct encode_args a = {job->d_words,       job->d_scales,        job->d_src,
                                  job->src_stride,    (uint32_t)g.rows,     (uint32_t)g.cols,
                                  g.k,                g.T};
    const struct encode_scale_rule rule = scale_rule_of(&o);
    cudaError_t code = cudaMemsetAsync(job->d_bad_row, 0xff, sizeof *job->d_bad_row, stream);
    if (code == cudaSuccess)
        code = encode_scales_launch(&a, &rule, job->d_bad_row, stream);
    if (code == cudaSuccess)
        code = g.L == 12 ? encode_launch(&a, stream)
                         : encode_general_launch(&a, g.L, job->d_work, stream);
    return device_error(error, code, "starting the encoder on the GPU");
}

/* ---- host memory to host memory -------------------------------------------------------- */

/* Weights of a piece: 2 ms of work for an H200, 4 MiB to copy. */
enum { PIECE_WEIGHTS = 1 << 20, LANES = 2 };

static const char encoding[] = "encoding on the GPU";

struct lane {
    cudaStream_t stream;
    void *pinned, *device; /* [weights | words | scales | bad row], the same layout */
    void *work;            /* of tcq_cuda_encode */
    uint64_t row, rows;    /* of the piece in flight; rows 0: none */
};

struct tcq_cuda_encoder {
    struct tcq_cuda *cuda;
    struct tcq_encoder_options options;
    struct tcq_scale_fit fit;
    uint64_t piece; /* weights that a lane holds */
    size_t words_at, scales_at, bad_at, nbytes;
    struct lane lanes[LANES];
};

static void lanes_free(struct tcq_cuda_encoder *e)
{
    for (int i = 0; i < LANES; i++) {
        if (e->lanes[i].pinned)
            cudaFreeHost(e->lanes[i].pinned);
        tcq_cuda_free(e->cuda, e->lanes[i].device);
        e->lanes[i].pinned = e->lanes[i].device = NULL;
    }
}

/* Room for pieces of `weights`, a whole number of rows. */
static enum tcq_status lanes_reserve(struct tcq_cuda_encoder *e, uint64_t weights,
                                     struct tcq_error *error)
{
    if (weights <= e->piece)
        return TCQ_OK;
    lanes_free(e);
    e->piece = 0;
    e->words_at = weights * sizeof(float);
    e->scales_at = e->words_at + weights * e->options.k / 8;
    e->bad_at = (e->scales_at + weights / 64 * sizeof(uint16_t) + 63) & ~(size_t)63;
    e->nbytes = e->bad_at + 64;
    for (int i = 0; i < LANES; i++) {
        enum tcq_status status =
            device_error(error, cudaMallocHost(&e->lanes[i].pinned, e->nbytes), encoding);
        if (status == TCQ_OK)
            status = tcq_cuda_alloc(e->cuda, e->nbytes, &e->lanes[i].device, error);
        if (status != TCQ_OK)
            return status;
    }
    e->piece = weights;
    return TCQ_OK;
}

enum tcq_status tcq_cuda_encoder_create(struct tcq_cuda *cuda,
                                        const struct tcq_encoder_options *options,
                                        struct tcq_cuda_encoder **out, struct tcq_error *error)
{
    if (!cuda || !options || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "GPU encoder: a pointer is NULL");
    struct tcq_encoder_options o;
    size_t work_nbytes = 0;
    enum tcq_status status = options_check(&o, options, error);
    if (status == TCQ_OK)
        status = tcq_cuda_encode_work_nbytes(cuda, &o, &work_nbytes, error);
    if (status != TCQ_OK)
        return status;
    struct tcq_cuda_encoder *e = tcq_alloc(1, sizeof *e);
    if (!e)
        return tcq_error_memory(error, sizeof *e, "a GPU encoder");
    e->cuda = cuda;
    e->options = o;
    tcq_scale_fit_init(&e->fit, o.k, o.L);
    for (int i = 0; i < LANES && status == TCQ_OK; i++) {
        status = device_error(
            error, cudaStreamCreateWithFlags(&e->lanes[i].stream, cudaStreamNonBlocking), encoding);
        if (status == TCQ_OK && work_nbytes)
            status = tcq_cuda_alloc(cuda, work_nbytes, &e->lanes[i].work, error);
    }
    if (status != TCQ_OK) {
        tcq_cuda_encoder_destroy(e);
        return status;
    }
    *out = e;
    return TCQ_OK;
}

void tcq_cuda_encoder_destroy(struct tcq_cuda_encoder *e)
{
    if (!e)
        return;
    lanes_free(e);
    for (int i = 0; i < LANES; i++) {
        tcq_cuda_free(e->cuda, e->lanes[i].work);
        if (e->lanes[i].stream)
            cudaStreamDestroy(e->lanes[i].stream);
    }
    tcq_free(e);
}

/* One call. */
struct task {
    uint32_t *words;
    uint16_t *scales;
    const float *src;
    uint64_t rows, cols;
    size_t src_stride;
};

static enum tcq_status piece_start(struct tcq_cuda_encoder *e, struct lane *lane,
                                   const struct task *t, uint64_t row, uint64_t rows,
                                   struct tcq_error *error)
{
    char *pinned = lane->pinned, *device = lane->device;
    const struct tcq_cuda_encode job = {
        .options = e->options,
        .rows = rows,
        .cols = t->cols,
        .d_src = (const float *)(void *)device,
        .src_stride = t->cols,
        .d_words = (uint32_t *)(void *)(device + e->words_at),
        .d_scales = (uint16_t *)(void *)(device + e->scales_at),
        .d_bad_row = (uint32_t *)(void *)(device + e->bad_at),
        .d_work = lane->work,
    };
    for (uint64_t r = 0; r < rows; r++)
        memcpy(pinned + r * t->cols * sizeof(float), t->src + (row + r) * t->src_stride,
               t->cols * sizeof(float));
    enum tcq_status status =
        device_error(error,
                     cudaMemcpyAsync(device, pinned, rows * t->cols * sizeof(float),
                                     cudaMemcpyHostToDevice, lane->stream),
                     encoding);
    if (status == TCQ_OK)
        status = tcq_cuda_encode(e->cuda, &job, lane->stream, error);
    if (status == TCQ_OK)
        status = device_error(error,
                              cudaMemcpyAsync(pinned + e->words_at, device + e->words_at,
                                              e->nbytes - e->words_at, cudaMemcpyDeviceToHost,
                                              lane->stream),
                              encoding);
    lane->row = row;
    lane->rows = status == TCQ_OK ? rows : 0;
    return status;
}

/* Waits for the lane's piece and takes its results. */
static enum tcq_status piece_finish(struct tcq_cuda_encoder *e, struct lane *lane,
                                    const struct task *t, struct tcq_error *error)
{
    if (lane->rows == 0)
        return TCQ_OK;
    enum tcq_status status = tcq_cuda_wait(e->cuda, lane->stream, error);
    const uint64_t rows = lane->rows, row = lane->row;
    lane->rows = 0;
    if (status != TCQ_OK)
        return status;
    const char *pinned = lane->pinned;
    const size_t row_nbytes = t->cols * e->options.k / 8;
    uint32_t bad;
    memcpy(&bad, pinned + e->bad_at, sizeof bad);
    if (bad < rows) { /* the CPU says what is wrong with it */
        uint16_t unused;
        status = tcq_scale_compute(&unused, t->src + (row + bad) * t->src_stride, t->cols,
                                   tcq_code_rms(e->options.L),
                                   e->options.scale == TCQ_SCALE_FIT ? &e->fit : NULL, row + bad,
                                   error);
        return status != TCQ_OK
                   ? status
                   : tcq_error_set(error, TCQ_ERROR_VALUE, "row %llu has no scale on the GPU",
                                   (unsigned long long)(row + bad));
    }
    memcpy((char *)t->words + row * row_nbytes, pinned + e->words_at, rows * row_nbytes);
    memcpy(t->scales + row, pinned + e->scales_at, rows * sizeof *t->scales);
    return TCQ_OK;
}

enum tcq_status tcq_cuda_encode_rows(struct tcq_cuda_encoder *e, uint32_t *words, uint16_t *scales,
                                     const float *src, uint64_t rows, uint64_t cols,
                                     size_t src_stride, tcq_progress_fn progress,
                                     void *progress_user, struct tcq_error *error)
{
    if (!e || !words || !scales || !src)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "encode on the GPU: a pointer is NULL");
    const struct tcq_geometry g = {
        .k = e->options.k, .L = e->options.L, .T = e->options.T, .axis = 1, .rows = rows,
        .cols = cols};
    enum tcq_status status = tcq_geometry_check(&g, error);
    if (status == TCQ_OK && src_stride < cols)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "src_stride %zu: expected at least %llu",
                             src_stride, (unsigned long long)cols);
    const uint64_t piece_rows = cols >= PIECE_WEIGHTS ? 1 : PIECE_WEIGHTS / cols;
    if (status == TCQ_OK)
        status = lanes_reserve(e, piece_rows * cols, error);
    const struct task task = {words, scales, src, rows, cols, src_stride};
    uint64_t row = 0;
    int turn = 0;
    for (; row < rows && status == TCQ_OK; row += piece_rows, turn ^= 1) {
        status = piece_finish(e, &e->lanes[turn], &task, error);
        if (status == TCQ_OK && progress &&
            !progress(progress_user, row * (cols / e->options.T), rows * (cols / e->options.T)))
            status = tcq_error_set(error, TCQ_ERROR_CANCELLED, "encoding stopped on request");
        if (status == TCQ_OK)
            status = piece_start(e, &e->lanes[turn], &task, row,
                                 rows - row < piece_rows ? rows - row : piece_rows, error);
    }
    for (int i = 0; i < LANES; i++, turn ^= 1) { /* also after an error: nothing may be in flight */
        enum tcq_status last =
            piece_finish(e, &e->lanes[turn], &task, status == TCQ_OK ? error : NULL);
        status = status == TCQ_OK ? last : status;
    }
    if (status == TCQ_OK && progress &&
        !progress(progress_user, rows * (cols / e->options.T), rows * (cols / e->options.T)))
        status = tcq_error_set(error, TCQ_ERROR_CANCELLED, "encoding stopped on request");
    return status;
}
