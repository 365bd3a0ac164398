/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a packing run needs before its pipeline starts: encoders, the list of
 * output tensors, memory, and weights that are numbers.
 */
#include "pack.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/context.h"
#include "base/memory.h"

/* ---- Encoders ---- */

uint64_t pack_chunk_weights(const struct pack *pack)
{
    return pack->gpu ? PACK_CHUNK_WEIGHTS_GPU
                     : (uint64_t)PACK_CHUNK_WEIGHTS * tcq_context_threads(pack->context);
}

struct tcq_encoder **pack_encoder(struct pack *pack, const struct tcq_geometry *geometry)
{
    return &pack->encoders[geometry->k - 1][geometry->T == 64 ? 0 : geometry->T == 128 ? 1 : 2];
}

static int open_gpu(struct pack *pack, enum tcq_scale_rule scale)
{
    struct tcq_error error = {0};
    if (!pack->args->cuda)
        return CLI_CONTINUE;
    if (gpu_open(scale, &pack->gpu, &error) != TCQ_OK)
        return cli_fail(NULL, &error);
    if (!pack->args->quiet)
        cli_message("encoding on %s", gpu_name(pack->gpu));
    return CLI_CONTINUE;
}

static int create_encoders(struct pack *pack, enum tcq_scale_rule scale)
{
    if (pack->gpu)
        return CLI_CONTINUE;
    for (size_t i = 0; i < pack->plan->count; i++) {
        const struct plan_entry *entry = &pack->plan->entries[i];
        if (entry->action != PLAN_PACK)
            continue;
        struct tcq_encoder **slot = pack_encoder(pack, &entry->geometry);
        struct tcq_encoder_options options = {
            .k = entry->geometry.k, .L = entry->geometry.L, .T = entry->geometry.T, .scale = scale};
        struct tcq_error error = {0};
        if (!*slot && tcq_encoder_create(pack->context, &options, slot, &error) != TCQ_OK)
            return cli_fail(NULL, &error);
    }
    return CLI_CONTINUE;
}

/* ---- Creation ---- */

int pack_create(struct pack *pack, const struct tcq_source *source, const struct plan *plan,
                enum tcq_scale_rule scale, struct tcq_context *context, const struct cli_args *args)
{
    *pack = (struct pack){.source = source, .plan = plan, .context = context, .args = args};
    int code = open_gpu(pack, scale);
    if (code == CLI_CONTINUE)
        code = create_encoders(pack, scale);
    if (code == CLI_CONTINUE)
        code = output_list_make(&pack->list, plan);
    pack->clips = calloc(plan->count + 1, sizeof *pack->clips);
    if (code == CLI_CONTINUE && !pack->clips)
        code = cli_out_of_memory();
    if (code != CLI_CONTINUE)
        pack_destroy(pack);
    return code;
}

void pack_destroy(struct pack *pack)
{
    for (size_t k = 0; k < TCQ_K_MAX; k++)
        for (size_t t = 0; t < 3; t++)
            tcq_encoder_destroy(pack->encoders[k][t]);
    gpu_close(pack->gpu);
    output_list_free(&pack->list);
    free(pack->clips);
    *pack = (struct pack){0};
}

/* ---- Memory ---- */

uint64_t pack_memory_nbytes(const struct pack *pack)
{
    uint64_t total = 0, job = 0, slab = 0, mapped = 0;
    for (size_t k = 0; k < TCQ_K_MAX; k++)
        for (size_t t = 0; t < 3; t++)
            if (pack->encoders[k][t])
                total += tcq_encoder_nbytes(pack->encoders[k][t]);
    uint64_t chunk = pack_chunk_weights(pack);
    for (size_t i = 0; i < pack->plan->count; i++) {
        const struct plan_entry *entry = &pack->plan->entries[i];
        if (entry->action != PLAN_PACK)
            continue;
        const struct tcq_geometry *g = &entry->geometry;
        uint64_t weights = g->rows * g->cols;
        uint64_t part = weights < chunk ? weights : chunk < g->cols ? g->cols : chunk;
        uint64_t words = (g->layout == TCQ_LAYOUT_INTERLEAVED ? 2 * weights : part) * g->k / 8;
        uint64_t values = g->axis ? 4 * part : 0;
        job = job > words + values ? job : words + values;
        /* the transposed tensor, and the rows that are being transposed */
        uint64_t transposed = g->axis ? 0 : 4 * (weights + PACK_CHUNK_WEIGHTS + 32 * g->rows);
        slab = transposed > slab ? transposed : slab;
        mapped = entry->tensor->nbytes > mapped ? entry->tensor->nbytes : mapped;
    }
    return total + slab + mapped + PIPELINE_SLOTS * job;
}

void pack_forget(const struct tcq_source_tensor *tensor)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)tensor->data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)tensor->data + tensor->nbytes) / page * page;
    if (end > begin) /* pages of a mapped file: they are read again if need be */
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* ---- Values ---- */

/* One tensor looked through by all threads in chunks of rows. */
struct scan {
    const struct tcq_source *source;
    const struct tcq_source_tensor *tensor;
    uint64_t rows, cols, chunk_rows;
    float **buffers;                 /* one a thread */
    _Atomic uint64_t first_bad;      /* flat index */
    _Atomic(enum tcq_status) status; /* of reading */
};

static void scan_chunk(void *argument, size_t thread, size_t item)
{
    struct scan *scan = argument;
    uint64_t first = item * scan->chunk_rows;
    uint64_t count = scan->rows - first < scan->chunk_rows ? scan->rows - first : scan->chunk_rows;
    float *values = scan->buffers[thread];
    enum tcq_status status =
        tcq_source_read_f32(scan->source, values, scan->tensor, first, count, NULL);
    if (status != TCQ_OK) {
        atomic_store(&scan->status, status);
        return;
    }
    for (uint64_t i = 0; i < count * scan->cols; i++) {
        if (isfinite(values[i]))
            continue;
        uint64_t at = first * scan->cols + i, known = atomic_load(&scan->first_bad);
        while (at < known && !atomic_compare_exchange_weak(&scan->first_bad, &known, at))
            ;
        return;
    }
}

static int report_bad(const struct scan *scan)
{
    uint64_t row = scan->first_bad / scan->cols, col = scan->first_bad % scan->cols;
    struct tcq_error error = {0};
    if (tcq_source_read_f32(scan->source, scan->buffers[0], scan->tensor, row, 1, &error) != TCQ_OK)
        return cli_fail(scan->tensor->file, &error);
    cli_message("%s: tensor '%s': row %llu, column %llu is %g; nothing was written",
                scan->tensor->file, scan->tensor->name, (unsigned long long)row,
                (unsigned long long)col, (double)scan->buffers[0][col]);
    return CLI_FAILED;
}

static int scan_tensor(const struct pack *pack, const struct tcq_source_tensor *tensor)
{
    enum { SCAN_WEIGHTS = 1 << 18 };
    uint32_t threads = tcq_context_threads(pack->context);
    uint64_t cols = tensor->rank ? tensor->shape[tensor->rank - 1] : 1;
    if (tensor->count == 0)
        return CLI_CONTINUE;
    struct scan scan = {.source = pack->source,
                        .tensor = tensor,
                        .rows = tensor->count / cols,
                        .cols = cols,
                        .chunk_rows = cols < SCAN_WEIGHTS ? SCAN_WEIGHTS / cols : 1};
    atomic_init(&scan.first_bad, UINT64_MAX);
    atomic_init(&scan.status, TCQ_OK);
    scan.buffers = calloc(threads, sizeof *scan.buffers);
    bool ok = scan.buffers != NULL;
    for (uint32_t i = 0; ok && i < threads; i++)
        ok = (scan.buffers[i] = tcq_alloc(scan.chunk_rows * cols, sizeof(float))) != NULL;
    int code = CLI_CONTINUE;
    if (!ok) {
        code = cli_out_of_memory();
    } else {
        size_t chunks = (size_t)((scan.rows + scan.chunk_rows - 1) / scan.chunk_rows);
        tcq_context_run(pack->context, scan_chunk, &scan, chunks);
        if (scan.status != TCQ_OK) {
            cli_message("%s: tensor '%s': %s", tensor->file, tensor->name,
                        tcq_status_string(scan.status));
            code = CLI_FAILED;
        } else if (scan.first_bad != UINT64_MAX) {
            code = report_bad(&scan);
        }
    }
    for (uint32_t i = 0; scan.buffers && i < threads; i++)
        tcq_free(scan.buffers[i]);
    free(scan.buffers);
    return code;
}

int pack_check_values(const struct pack *pack)
{
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < pack->plan->count; i++)
        if (pack->plan->entries[i].action != PLAN_COPY)
            total += pack->plan->entries[i].tensor->count;
    struct cli_progress progress;
    cli_progress_start(&progress, pack->args, "checking", "weights", 0, total);
    int code = CLI_CONTINUE;
    for (size_t i = 0; code == CLI_CONTINUE && i < pack->plan->count; i++) {
        const struct plan_entry *entry = &pack->plan->entries[i];
        if (entry->action == PLAN_COPY)
            continue;
        code = scan_tensor(pack, entry->tensor);
        pack_forget(entry->tensor);
        done += entry->tensor->count;
        cli_progress_show(&progress, done, entry->tensor->name);
        if (code == CLI_CONTINUE && cli_interrupted()) {
            cli_message("interrupted before anything was written");
            code = CLI_FAILED;
        }
    }
    cli_progress_end(&progress);
    return code;
}
