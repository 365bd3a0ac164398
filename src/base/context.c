/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Context: a thread pool (pthreadpool) and the instruction sets to use.
 */
#include "base/context.h"

#include <pthread.h>
#include <pthreadpool.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/device.h"
#include "base/error.h"
#include "base/memory.h"

enum { THREADS_MAX = 4096 };

/* One parallel run. */
struct run {
    tcq_task_fn task;
    void *argument;
    size_t count;
};

struct tcq_context {
    pthreadpool_t pool;   /* NULL with one thread */
    pthread_mutex_t turn; /* held while a caller uses the pool */
    struct run run;       /* the caller's, while it holds its turn */
    atomic_size_t next;   /* its next item */
    uint32_t threads;
    uint32_t cpu_flags;
    uint32_t flags;               /* of pthreadpool */
    pthread_mutex_t scratch_turn; /* held while a caller uses, or grows, the scratch */
    void *scratch;
    size_t scratch_nbytes;
    const struct tcq_device_table *table; /* NULL: the CPU */
    void *device;
};

/* Processors that this process may run on (cgroup quotas are not looked at). */
static uint32_t usable_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int count = CPU_COUNT(&set);
    return count < 1 ? 1 : (uint32_t)count;
}

static enum tcq_status open_device(struct tcq_context *context, enum tcq_device device,
                                   struct tcq_error *error)
{
    if (device == TCQ_DEVICE_CPU)
        return TCQ_OK;
    if (device != TCQ_DEVICE_CUDA)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "device %d is unknown", (int)device);
    if (!tcq_device_cuda)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "this program was built without the CUDA back end");
    const struct tcq_device_table *table = tcq_device_cuda();
    enum tcq_status status = table->open(&context->device, error);
    if (status == TCQ_OK)
        context->table = table;
    return status;
}

enum tcq_status tcq_context_create(const struct tcq_context_options *options,
                                   struct tcq_context **out, struct tcq_error *error)
{
    static const struct tcq_context_options defaults = {0};
    if (!out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "context: out is NULL");
    if (!options)
        options = &defaults;
    if (options->threads > THREADS_MAX)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "threads %u: at most %d", options->threads,
                             THREADS_MAX);
    uint32_t detected = tcq_cpu_detect();
    uint32_t flags = options->limit_cpu ? options->cpu_flags : detected;
    if (flags & ~detected)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "cpu flags %#x: this processor has only %#x", flags, detected);

    struct tcq_context *context = tcq_alloc(1, sizeof *context);
    if (!context)
        return tcq_error_memory(error, sizeof *context, "a context");
    context->threads = options->threads ? options->threads : usable_processors();
    context->cpu_flags = flags;
    /* Workers may spin between two runs only where a processor is left for everybody
     * else: on a busy one, a spinning worker takes the time that the caller needs
     * (decoding at two threads on two busy processors: six times slower). */
    if (context->threads >= usable_processors())
        context->flags = PTHREADPOOL_FLAG_YIELD_WORKERS;
    pthread_mutex_init(&context->turn, NULL);
    pthread_mutex_init(&context->scratch_turn, NULL);
    if (context->threads > 1 && !(context->pool = pthreadpool_create(context->threads))) {
        tcq_context_destroy(context);
        return tcq_error_set(error, TCQ_ERROR_MEMORY, "cannot start %u threads", options->threads);
    }
    enum tcq_status status = open_device(context, options->device, error);
    if (status != TCQ_OK) {
        tcq_context_destroy(context);
        return status;
    }
    *out = context;
    return TCQ_OK;
}

void tcq_context_destroy(struct tcq_context *context)
{
    if (!context)
        return;
    if (context->table)
        context->table->close(context->device);
    if (context->pool)
        pthreadpool_destroy(context->pool);
    pthread_mutex_destroy(&context->turn);
    pthread_mutex_destroy(&context->scratch_turn);
    tcq_free(context->scratch);
    tcq_free(context);
}

uint32_t tcq_context_threads(const struct tcq_context *context)
{
    return context->threads;
}

uint32_t tcq_context_cpu_flags(const struct tcq_context *context)
{
    return context->cpu_flags;
}

enum tcq_device tcq_context_get_device(const struct tcq_context *context)
{
    return context->table ? TCQ_DEVICE_CUDA : TCQ_DEVICE_CPU;
}

const struct tcq_device_table *tcq_context_table(const struct tcq_context *context)
{
    return context->table;
}

void *tcq_context_device(const struct tcq_context *context)
{
    return context->device;
}

/* Every worker takes the next item until none is left.  `next` orders memory
 * too: workers touch the run between their first and their last access to it,
 * the caller before and after.  The pool promises the same, but a race detector
 * cannot look into it. */
static void work(void *argument, size_t worker)
{
    struct tcq_context *context = argument;
    const struct run *run = &context->run;
    size_t item;
    while ((item = atomic_fetch_add_explicit(&context->next, 1, memory_order_acq_rel)) < run->count)
        run->task(run->argument, worker, item);
    atomic_fetch_add_explicit(&context->next, 1, memory_order_release);
}

void tcq_context_run(struct tcq_context *context, tcq_task_fn task, void *argument, size_t count)
{
    pthread_mutex_lock(&context->turn);
    context->run = (struct run){task, argument, count};
    atomic_store_explicit(&context->next, 0, memory_order_release);
    /* The pool hands out one item a worker: its own items carry no worker index. */
    if (context->pool && count > 1)
        pthreadpool_parallelize_1d(context->pool, work, context, context->threads, context->flags);
    else
        work(context, 0);
    (void)atomic_load_explicit(&context->next, memory_order_acquire);
    pthread_mutex_unlock(&context->turn);
}

enum tcq_status tcq_context_reserve(struct tcq_context *context, size_t nbytes,
                                    struct tcq_error *error)
{
    enum tcq_status status = TCQ_OK;
    pthread_mutex_lock(&context->scratch_turn);
    if (nbytes > context->scratch_nbytes) {
        void *larger = tcq_alloc(nbytes, 1);
        if (larger) {
            tcq_free(context->scratch);
            context->scratch = larger;
            context->scratch_nbytes = nbytes;
        } else {
            status = tcq_error_memory(error, nbytes, "scratch shared by layers");
        }
    }
    pthread_mutex_unlock(&context->scratch_turn);
    return status;
}

void *tcq_context_acquire(struct tcq_context *context)
{
    pthread_mutex_lock(&context->scratch_turn);
    return context->scratch;
}

void tcq_context_release(struct tcq_context *context)
{
    pthread_mutex_unlock(&context->scratch_turn);
}
