/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline of a packing run.  A job is a chunk of rows of one tensor; the
 * reader makes float32 of it, the encoder words and scales, the writer appends
 * them to the output.  A tensor coded on axis 0 is transposed whole by the
 * reader, so one such tensor is in memory at a time.
 */
#include "pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"

enum { COPY_NBYTES = 4 << 20, TRANSPOSE_TILE = 32 };

struct job {
    const struct plan_entry *entry;
    size_t tensor; /* first output tensor of the entry */
    uint64_t row_first, row_count;
    const float *values; /* [row_count, cols]: own, or within the slab */
    float *own;
    uint32_t *words; /* PLAN_PACK */
    uint16_t *scales;
    uint8_t *converted;   /* PLAN_CONVERT */
    const uint8_t *bytes; /* PLAN_COPY: within the mapped source */
    size_t nbytes;
};

struct run {
    struct pack *pack;
    struct model_writer *writer;
    size_t skip_before; /* output tensors complete before this run */
    struct pipeline pipeline;
    struct job jobs[PIPELINE_SLOTS];
    struct tcq_error error;
    pthread_mutex_t error_lock;
    /* the reader's position */
    size_t entry;
    uint64_t row; /* or byte, of PLAN_COPY */
    float *slab;  /* the transposed tensor of axis 0 */
    /* the encoder's progress */
    uint64_t weights_done;
    struct cli_progress progress;
    /* the writer's: what it is at, and the scales of that tensor so far */
    const struct plan_entry *writing;
    uint16_t *scales;
};

/* The first failure is the one to report: the others follow from it. */
static enum pipeline_result fail(struct run *run, const struct tcq_error *error)
{
    pthread_mutex_lock(&run->error_lock);
    if (run->error.status == TCQ_OK)
        run->error = *error;
    pthread_mutex_unlock(&run->error_lock);
    return PIPELINE_FAILED;
}

static enum pipeline_result fail_memory(struct run *run, size_t nbytes, const char *what)
{
    struct tcq_error error = {0};
    tcq_error_memory(&error, nbytes, what);
    return fail(run, &error);
}

static void job_free(struct job *job)
{
    tcq_free(job->own);
    tcq_free(job->words);
    tcq_free(job->scales);
    tcq_free(job->converted);
    *job = (struct job){0};
}

/* ---- Reading ---- */

static uint64_t chunk_rows(const struct run *run, uint64_t rows, uint64_t cols)
{
    uint64_t weights = pack_chunk_weights(run->pack);
    uint64_t count = weights / (cols ? cols : 1);
    count = count ? count : 1;
    return count < rows ? count : rows;
}

/* dst[c * rows_total + row + r] = src[r * cols + c], in tiles that fit the first cache. */
static void transpose_rows(float *dst, uint64_t rows_total, uint64_t row, const float *src,
                           uint64_t rows, uint64_t cols)
{
    for (uint64_t r0 = 0; r0 < rows; r0 += TRANSPOSE_TILE)
        for (uint64_t c0 = 0; c0 < cols; c0 += TRANSPOSE_TILE) {
            uint64_t r1 = r0 + TRANSPOSE_TILE < rows ? r0 + TRANSPOSE_TILE : rows;
            uint64_t c1 = c0 + TRANSPOSE_TILE < cols ? c0 + TRANSPOSE_TILE : cols;
            for (uint64_t c = c0; c < c1; c++)
                for (uint64_t r = r0; r < r1; r++)
                    dst[c * rows_total + row + r] = src[r * cols + c];
        }
}

static enum pipeline_result read_slab(struct run *run, const struct tcq_source_tensor *tensor)
{
    if (!pipeline_wait_worked(&run->pipeline))
        return PIPELINE_FAILED;
    uint64_t rows = tensor->shape[0], cols = tensor->shape[1];
    uint64_t step = TRANSPOSE_TILE * (1 + (PACK_CHUNK_WEIGHTS / TRANSPOSE_TILE) / cols);
    tcq_free(run->slab);
    run->slab = tcq_alloc(tensor->count, sizeof(float));
    float *part = tcq_alloc(step * cols, sizeof(float));
    if (!run->slab || !part) {
        tcq_free(part);
        return fail_memory(run, tensor->count * sizeof(float), tensor->name);
    }
    struct tcq_error error = {0};
    for (uint64_t row = 0; row < rows && error.status == TCQ_OK; row += step) {
        uint64_t count = rows - row < step ? rows - row : step;
        if (tcq_source_read_f32(run->pack->source, part, tensor, row, count, &error) == TCQ_OK)
            transpose_rows(run->slab, rows, row, part, count, cols);
    }
    tcq_free(part);
    return error.status == TCQ_OK ? PIPELINE_NEXT : fail(run, &error);
}

static enum pipeline_result read_own(struct run *run, struct job *job, uint64_t cols)
{
    job->own = tcq_alloc(job->row_count * cols, sizeof(float));
    if (!job->own)
        return fail_memory(run, job->row_count * cols * sizeof(float), job->entry->tensor->name);
    job->values = job->own;
    struct tcq_error error = {0};
    if (tcq_source_read_f32(run->pack->source, job->own, job->entry->tensor, job->row_first,
                            job->row_count, &error) != TCQ_OK)
        return fail(run, &error);
    return PIPELINE_NEXT;
}

static enum pipeline_result read_packed(struct run *run, struct job *job)
{
    const struct tcq_geometry *g = &job->entry->geometry;
    enum pipeline_result result = PIPELINE_NEXT;
    bool whole = g->layout == TCQ_LAYOUT_INTERLEAVED;
    job->row_first = run->row;
    job->row_count = whole ? g->rows : chunk_rows(run, g->rows - run->row, g->cols);
    if (g->axis == 0) {
        if (run->row == 0)
            result = read_slab(run, job->entry->tensor);
        job->values = run->slab + job->row_first * g->cols;
    } else {
        result = read_own(run, job, g->cols);
    }
    size_t words = (size_t)job->row_count * tcq_geometry_row_words(g);
    job->words = tcq_alloc(words, sizeof *job->words);
    job->scales = tcq_alloc((size_t)job->row_count, sizeof *job->scales);
    if (result == PIPELINE_NEXT && (!job->words || !job->scales))
        result = fail_memory(run, words * sizeof *job->words, job->entry->tensor->name);
    run->row += job->row_count;
    if (run->row == g->rows) {
        pack_forget(job->entry->tensor);
        run->entry++, run->row = 0;
    }
    return result;
}

static enum pipeline_result read_converted(struct run *run, struct job *job)
{
    const struct tcq_source_tensor *tensor = job->entry->tensor;
    uint64_t cols = tensor->rank ? tensor->shape[tensor->rank - 1] : 1;
    uint64_t rows = tensor->count / (cols ? cols : 1);
    job->row_first = run->row;
    job->row_count = chunk_rows(run, rows - run->row, cols);
    run->row += job->row_count;
    if (run->row == rows)
        run->entry++, run->row = 0;
    return tensor->count ? read_own(run, job, cols) : PIPELINE_NEXT;
}

static enum pipeline_result read_copied(struct run *run, struct job *job)
{
    const struct tcq_source_tensor *tensor = job->entry->tensor;
    uint64_t left = tensor->nbytes - run->row;
    job->bytes = (const uint8_t *)tensor->data + run->row;
    job->nbytes = (size_t)(left < COPY_NBYTES ? left : COPY_NBYTES);
    run->row += job->nbytes;
    if (run->row == tensor->nbytes)
        run->entry++, run->row = 0;
    return PIPELINE_NEXT;
}

static enum pipeline_result stage_read(void *user, size_t slot)
{
    struct run *run = user;
    if (run->entry == run->pack->plan->count)
        return PIPELINE_END;
    struct job *job = &run->jobs[slot];
    *job = (struct job){.entry = &run->pack->plan->entries[run->entry],
                        .tensor = run->pack->list.first[run->entry]};
    switch (job->entry->action) {
    case PLAN_PACK:
        return read_packed(run, job);
    case PLAN_CONVERT:
        return read_converted(run, job);
    default:
        return read_copied(run, job);
    }
}

/* ---- Encoding ---- */

struct encode_progress {
    struct run *run;
    const struct job *job;
};

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    struct encode_progress *p = user;
    (void)total;
    uint64_t weights = p->run->weights_done + done * p->job->entry->geometry.T;
    cli_progress_show(&p->run->progress, weights, p->job->entry->tensor->name);
    return !cli_interrupted();
}

static enum tcq_status interleave(struct job *job, struct tcq_error *error)
{
    struct tcq_geometry plain = job->entry->geometry;
    plain.layout = TCQ_LAYOUT_ROW_MAJOR;
    uint32_t *words = tcq_alloc(tcq_geometry_words(&plain), sizeof *words);
    if (!words)
        return tcq_error_memory(error, tcq_geometry_words(&plain) * sizeof *words,
                                job->entry->tensor->name);
    enum tcq_status status = tcq_words_interleave(words, job->words, &plain);
    tcq_free(job->words);
    job->words = words;
    return status == TCQ_OK ? status
                            : tcq_error_set(error, status, "%s: cannot be interleaved",
                                            job->entry->tensor->name);
}

/* Rows of a job against what their scales reach. */
struct clipping {
    const struct job *job;
    struct clip_reach reach;
    struct clip *rows;
};

static void clip_row(void *argument, size_t thread, size_t row)
{
    struct clipping *c = argument;
    (void)thread;
    size_t cols = (size_t)c->job->entry->geometry.cols;
    clip_add(&c->rows[row], &c->reach, c->job->values + row * cols, c->job->scales + row, 0, cols);
}

static bool count_clipped(struct run *run, const struct job *job)
{
    size_t count = (size_t)job->row_count;
    struct clipping c = {job, clip_reach_of(job->entry->geometry.L),
                         tcq_alloc(count, sizeof *c.rows)};
    if (!c.rows)
        return false;
    tcq_context_run(run->pack->context, clip_row, &c, count);
    struct clip *clip = &run->pack->clips[job->entry - run->pack->plan->entries];
    for (size_t r = 0; r < count; r++)
        clip_join(clip, &c.rows[r]);
    tcq_free(c.rows);
    return true;
}

static enum pipeline_result encode(struct run *run, struct job *job)
{
    const struct tcq_geometry *g = &job->entry->geometry;
    struct encode_progress progress = {run, job};
    struct tcq_error error = {0};
    enum tcq_status status;
    if (run->pack->gpu)
        status = gpu_encode_rows(run->pack->gpu, g, job->words, job->scales, job->values,
                                 job->row_count, on_progress, &progress, &error);
    else
        status = tcq_encode_rows(*pack_encoder(run->pack, g), job->words, job->scales, job->values,
                                 job->row_count, g->cols, (size_t)g->cols, on_progress, &progress,
                                 &error);
    if (status == TCQ_OK && g->layout == TCQ_LAYOUT_INTERLEAVED)
        status = interleave(job, &error);
    if (status != TCQ_OK) {
        if (status == TCQ_ERROR_VALUE)
            tcq_error_prefix(&error, status, "%s: tensor '%s', coded rows from %llu on",
                             job->entry->tensor->file, job->entry->tensor->name,
                             (unsigned long long)job->row_first);
        return fail(run, &error);
    }
    run->weights_done += job->row_count * g->cols;
    if (!count_clipped(run, job))
        return fail_memory(run, (size_t)job->row_count * sizeof(struct clip), "sums of rows");
    tcq_free(job->own);
    job->own = NULL;
    return PIPELINE_NEXT;
}

static enum pipeline_result convert(struct run *run, struct job *job)
{
    const struct tcq_source_tensor *tensor = job->entry->tensor;
    size_t count = (size_t)(job->row_count * (tensor->rank ? tensor->shape[tensor->rank - 1] : 1));
    job->nbytes = count * tcq_dtype_nbytes(job->entry->dtype);
    job->converted = tcq_alloc(job->nbytes, 1);
    if (!job->converted)
        return fail_memory(run, job->nbytes, tensor->name);
    if (tensor->count)
        tcq_convert_from_f32(job->converted, job->entry->dtype, job->values, count);
    job->bytes = job->converted;
    return PIPELINE_NEXT;
}

static enum pipeline_result stage_work(void *user, size_t slot)
{
    struct run *run = user;
    struct job *job = &run->jobs[slot];
    if (cli_interrupted()) {
        struct tcq_error error = {.status = TCQ_ERROR_CANCELLED, .message = "interrupted"};
        return fail(run, &error);
    }
    switch (job->entry->action) {
    case PLAN_PACK:
        return encode(run, job);
    case PLAN_CONVERT:
        return convert(run, job);
    default:
        return PIPELINE_NEXT;
    }
}

/* ---- Writing ---- */

static enum tcq_status write_packed(struct run *run, struct job *job, struct tcq_error *error)
{
    const struct tcq_geometry *g = &job->entry->geometry;
    if (job->row_first == 0) {
        tcq_free(run->scales);
        run->scales = tcq_alloc((size_t)g->rows, sizeof *run->scales);
        if (!run->scales)
            return tcq_error_memory(error, (size_t)g->rows * 2, "scales");
    }
    memcpy(run->scales + job->row_first, job->scales, (size_t)job->row_count * 2);
    enum tcq_status status = TCQ_OK;
    /* The words may be complete from before the interruption, the scales not. */
    if (job->tensor >= run->skip_before)
        status = model_writer_write(run->writer, job->tensor, job->words,
                                    (size_t)job->row_count * tcq_geometry_row_words(g) * 4, error);
    if (status == TCQ_OK && job->row_first + job->row_count == g->rows)
        status = model_writer_write(run->writer, job->tensor + 1, run->scales, (size_t)g->rows * 2,
                                    error);
    return status;
}

static enum pipeline_result stage_write(void *user, size_t slot)
{
    struct run *run = user;
    struct job *job = &run->jobs[slot];
    struct tcq_error error = {0};
    enum tcq_status status;
    run->writing = job->entry;
    if (job->entry->action == PLAN_PACK)
        status = write_packed(run, job, &error);
    else
        status = model_writer_write(run->writer, job->tensor, job->bytes, job->nbytes, &error);
    if (job->entry->action == PLAN_COPY)
        pack_forget(job->entry->tensor);
    job_free(job);
    return status == TCQ_OK ? PIPELINE_NEXT : fail(run, &error);
}

/* ---- The run ---- */

static uint64_t packed_weights_before(const struct plan *plan, size_t entry)
{
    uint64_t weights = 0;
    for (size_t i = 0; i < entry; i++)
        if (plan->entries[i].action == PLAN_PACK)
            weights += plan->entries[i].tensor->count;
    return weights;
}

static int report(const struct run *run)
{
    if (run->error.status != TCQ_ERROR_CANCELLED)
        return cli_fail(NULL, &run->error);
    cli_message("interrupted; the same command with --resume goes on at tensor '%s'",
                run->writing->tensor->name);
    return CLI_FAILED;
}

int pack_run(struct pack *pack, struct model_writer *writer, size_t done)
{
    struct run run = {.pack = pack, .writer = writer, .skip_before = done};
    pthread_mutex_init(&run.error_lock, NULL);
    /* An entry is complete when its last output tensor is. */
    while (run.entry < pack->plan->count && pack->list.first[run.entry + 1] <= done)
        run.entry++;
    run.writing = &pack->plan->entries[run.entry < pack->plan->count ? run.entry : 0];
    run.weights_done = packed_weights_before(pack->plan, run.entry);
    cli_progress_start(&run.progress, pack->args, "packing", "weights", run.weights_done,
                       pack->plan->packed_weights);
    bool whole = pipeline_run(&run.pipeline, stage_read, stage_work, stage_write, &run);
    cli_progress_end(&run.progress);
    for (size_t i = 0; i < PIPELINE_SLOTS; i++)
        job_free(&run.jobs[i]);
    tcq_free(run.slab);
    tcq_free(run.scales);
    int code = CLI_CONTINUE;
    if (!whole) {
        if (run.error.status == TCQ_OK)
            run.error = (struct tcq_error){TCQ_ERROR_MEMORY, "cannot start threads"};
        code = report(&run);
    }
    pthread_mutex_destroy(&run.error_lock);
    return code;
}
