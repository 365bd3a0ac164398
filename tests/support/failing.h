/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work done again and again with one allocation more succeeding each time,
 * until it gets by: first the library's own allocations, then jansson's.  Its
 * parser calls a string that it has no memory for a syntax error, so there any
 * failure will do.
 */
#ifndef TESTS_SUPPORT_FAILING_H
#define TESTS_SUPPORT_FAILING_H

#include <limits.h>

#include <jansson.h>

#include "base/memory.h"
#include "support/test.h"
#include "tcq.h"

static long failing_json_left;

static inline void *failing_json_malloc(size_t nbytes)
{
    return failing_json_left-- > 0 ? malloc(nbytes) : NULL;
}

typedef enum tcq_status (*failing_work_fn)(void *argument, struct tcq_error *error);

/* work must free what it made, also when it succeeds, and start anew each time. */
static inline void failing_walk_one(failing_work_fn work, void *argument, bool json)
{
    enum tcq_status status = TCQ_ERROR_MEMORY;
    long left = 0;
    for (; status != TCQ_OK; left++) {
        struct tcq_error error = {0};
        assert_true(left < 100000);
        failing_json_left = json ? left : LONG_MAX;
        json_set_alloc_funcs(failing_json_malloc, free);
        tcq_alloc_fail_after(json ? -1 : left);
        status = work(argument, &error);
        tcq_alloc_fail_after(-1);
        json_set_alloc_funcs(malloc, free);
        if (status != TCQ_OK && status != TCQ_ERROR_MEMORY && !json)
            fail_msg("allocation %ld failing gave: %s", left, error.message);
    }
    assert_true(left > 1); /* something was allocated */
}

/* For work that allocates through jansson alone. */
static inline void failing_walk_json(failing_work_fn work, void *argument)
{
    failing_walk_one(work, argument, true);
}

static inline void failing_walk(failing_work_fn work, void *argument)
{
    failing_walk_one(work, argument, false);
    failing_walk_one(work, argument, true);
}

#endif
