/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Aligned, overflow-checked allocation with a switch for failure tests.
 */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static long fail_countdown = -1;

void tcq_alloc_fail_after(long countdown)
{
    fail_countdown = countdown;
}

static bool told_to_fail(void)
{
    if (fail_countdown < 0)
        return false;
    if (fail_countdown == 0)
        return true;
    fail_countdown--;
    return false;
}

void *tcq_alloc(size_t count, size_t size)
{
    size_t nbytes;
    if (!tcq_mul_size(count, size, &nbytes) || nbytes > (size_t)PTRDIFF_MAX - TCQ_ALIGNMENT)
        return NULL;
    if (told_to_fail())
        return NULL;
    size_t rounded = (nbytes + TCQ_ALIGNMENT) & ~(TCQ_ALIGNMENT - 1);
    void *pointer = aligned_alloc(TCQ_ALIGNMENT, rounded);
    if (pointer)
        memset(pointer, 0, rounded);
    return pointer;
}

void tcq_free(void *pointer)
{
    free(pointer);
}

void *tcq_realloc(void *pointer, size_t old_count, size_t new_count, size_t size)
{
    void *larger = tcq_alloc(new_count, size);
    if (!larger)
        return NULL;
    size_t kept = old_count < new_count ? old_count : new_count;
    if (pointer && kept)
        memcpy(larger, pointer, kept * size);
    tcq_free(pointer);
    return larger;
}

void tcq_memory_return(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

char *tcq_strdup(const char *text)
{
    size_t nbytes = strlen(text) + 1;
    char *copy = tcq_alloc(nbytes, 1);
    return copy ? memcpy(copy, text, nbytes) : NULL;
}
