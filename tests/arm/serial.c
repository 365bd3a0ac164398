/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq_context_run without a thread pool, for programs that are cross-compiled
 * without libraries.
 */
#include "base/context.h"

void tcq_context_run(struct tcq_context *context, tcq_task_fn task, void *argument, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++)
        task(argument, 0, i);
}
