/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays between two pages that cannot be touched, and a net that turns a touch
 * into a reported failure.  An array lies flush with one of the pages (as far as
 * its alignment allows) and what is left of its own pages is filled with a
 * pattern that is a NaN as bf16, fp16 and float32 alike, and must survive.
 */
#ifndef TESTS_CHECK_GUARD_H
#define TESTS_CHECK_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum guard_side {
    GUARD_END = 0, /* the array's end is the page's: finds reads and writes past it */
    GUARD_BEGIN    /* the same before it */
};

struct guarded {
    void *data;
    size_t nbytes;
    uint8_t *map; /* the whole mapping */
    size_t map_nbytes, page;
};

/* nbytes of pattern, aligned to `alignment` (a power of two, up to 4096); exits
 * the program if the system gives no memory. */
struct guarded guarded_make(size_t nbytes, size_t alignment, enum guard_side side);
void guarded_free(struct guarded *guarded);
/* Fills the array with the pattern again. */
void guarded_wipe(struct guarded *guarded);
/* Whether the pattern around the array is whole. */
bool guarded_margins_whole(const struct guarded *guarded);
/* Whether `count` floats from `at` on still hold the pattern. */
bool guarded_is_pattern(const void *at, size_t nbytes);

/* Calls function(argument); false if that ended in SIGSEGV, SIGBUS or SIGFPE. */
bool guard_call(void (*function)(void *argument), void *argument);

#endif
