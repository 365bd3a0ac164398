/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation: aligned, overflow-checked, and able to fail on request so that
 * tests can walk through every failure.
 */
#ifndef TCQ_BASE_MEMORY_H
#define TCQ_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Cache lines and the widest vectors are 64 bytes. */
#define TCQ_ALIGNMENT ((size_t)64)

/* count * size zeroed bytes aligned to TCQ_ALIGNMENT; NULL on overflow or
 * failure.  A zero total gives a valid pointer. */
void *tcq_alloc(size_t count, size_t size);
void tcq_free(void *pointer);

/* A larger copy of an array made by tcq_alloc (the old one is freed), the new
 * part zeroed; NULL on failure, the old one is then untouched. */
void *tcq_realloc(void *pointer, size_t old_count, size_t new_count, size_t size);

char *tcq_strdup(const char *text);

/* Give freed memory back to the system, where many small pieces were freed at once
 * (the tree of a JSON file) and what is resident has a limit. */
void tcq_memory_return(void);

/* For tests: after `countdown` further successful allocations every one
 * fails; negative switches this off. Not thread-safe. */
void tcq_alloc_fail_after(long countdown);

/* a * b and a + b into *out; false on overflow. */
static inline bool tcq_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool tcq_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

#endif
