/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of jobs passed from stage to stage by three counters.
 */
#include "pipeline.h"

/* Whether stage may start its next job: read keeps PIPELINE_SLOTS ahead of
 * write at most, the others follow the stage before them. */
static bool ready(const struct pipeline *p, int stage)
{
    if (stage == 0)
        return p->done[0] - p->done[2] < PIPELINE_SLOTS;
    return p->done[stage] < p->done[stage - 1];
}

static bool finished(const struct pipeline *p, int stage)
{
    return p->failed || (p->ended && (stage == 0 || p->done[stage] == p->done[0]));
}

static void run_stage(struct pipeline *p, int stage)
{
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!finished(p, stage) && !ready(p, stage))
            pthread_cond_wait(&p->changed, &p->lock);
        if (finished(p, stage))
            break;
        size_t slot = p->done[stage] % PIPELINE_SLOTS;
        pthread_mutex_unlock(&p->lock);
        enum pipeline_result result = p->stages[stage](p->user, slot);
        pthread_mutex_lock(&p->lock);
        if (result == PIPELINE_NEXT)
            p->done[stage]++;
        p->ended |= result == PIPELINE_END;
        p->failed |= result == PIPELINE_FAILED;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
}

static void *run_read(void *argument)
{
    run_stage(argument, 0);
    return NULL;
}

static void *run_write(void *argument)
{
    run_stage(argument, 2);
    return NULL;
}

bool pipeline_run(struct pipeline *pipeline, pipeline_fn read, pipeline_fn work, pipeline_fn write,
                  void *user)
{
    *pipeline = (struct pipeline){.stages = {read, work, write}, .user = user};
    pthread_mutex_init(&pipeline->lock, NULL);
    pthread_cond_init(&pipeline->changed, NULL);
    pthread_t reader, writer;
    bool reads = pthread_create(&reader, NULL, run_read, pipeline) == 0;
    bool writes = pthread_create(&writer, NULL, run_write, pipeline) == 0;
    if (!reads || !writes) {
        pthread_mutex_lock(&pipeline->lock);
        pipeline->failed = true;
        pthread_cond_broadcast(&pipeline->changed);
        pthread_mutex_unlock(&pipeline->lock);
    }
    run_stage(pipeline, 1);
    if (reads)
        pthread_join(reader, NULL);
    if (writes)
        pthread_join(writer, NULL);
    pthread_cond_destroy(&pipeline->changed);
    pthread_mutex_destroy(&pipeline->lock);
    return !pipeline->failed;
}

bool pipeline_wait_worked(struct pipeline *pipeline)
{
    pthread_mutex_lock(&pipeline->lock);
    while (!pipeline->failed && pipeline->done[1] < pipeline->done[0])
        pthread_cond_wait(&pipeline->changed, &pipeline->lock);
    bool ok = !pipeline->failed;
    pthread_mutex_unlock(&pipeline->lock);
    return ok;
}
