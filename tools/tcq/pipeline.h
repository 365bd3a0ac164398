/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three stages over numbered jobs: read, work, write, each in its own thread
 * and in order, with at most PIPELINE_SLOTS jobs on their way.  So reading and
 * writing happen while the previous and the next job are worked on, in memory
 * bounded by the slots.
 */
#ifndef TCQ_PIPELINE_H
#define TCQ_PIPELINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { PIPELINE_SLOTS = 3 };

enum pipeline_result {
    PIPELINE_NEXT,  /* done with this job */
    PIPELINE_END,   /* from read: there was no further job */
    PIPELINE_FAILED /* all stages stop */
};

/* One stage's share of the job in `slot` (< PIPELINE_SLOTS). */
typedef enum pipeline_result (*pipeline_fn)(void *user, size_t slot);

struct pipeline {
    pipeline_fn stages[3]; /* read, work, write; work runs in the calling thread */
    void *user;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t done[3]; /* jobs that each stage has finished */
    bool ended, failed;
};

/* True if every job went through all stages. */
bool pipeline_run(struct pipeline *pipeline, pipeline_fn read, pipeline_fn work, pipeline_fn write,
                  void *user);
/* For the read stage: wait until every job so far has been worked on; false if
 * the pipeline failed meanwhile. */
bool pipeline_wait_worked(struct pipeline *pipeline);

#endif
