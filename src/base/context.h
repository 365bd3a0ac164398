/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct tcq_context, and how library code runs work on it.
 */
#ifndef TCQ_BASE_CONTEXT_H
#define TCQ_BASE_CONTEXT_H

#include "tcq.h"

/* task(argument, thread, item): thread < tcq_context_threads() names the
 * worker, so that it can own a workspace. */
typedef void (*tcq_task_fn)(void *argument, size_t thread, size_t item);

/* Runs item 0..count-1 on the context's threads and waits.  Items are handed
 * out dynamically: results must not depend on which thread takes which.
 * Callers in different threads take turns. */
void tcq_context_run(struct tcq_context *context, tcq_task_fn task, void *argument, size_t count);

/*
 * Scratch memory that layers of one context share, so that a call allocates
 * nothing: reserve at creation (the largest reservation counts), acquire around
 * a call.  acquire waits for other callers and returns the memory, aligned to
 * TCQ_ALIGNMENT; reserve waits too.
 */
enum tcq_status tcq_context_reserve(struct tcq_context *context, size_t nbytes,
                                    struct tcq_error *error);
void *tcq_context_acquire(struct tcq_context *context);
void tcq_context_release(struct tcq_context *context);

#endif
