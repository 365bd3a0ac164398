/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guard pages and the signal net.
 */
#include "check/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* 0x7fd5 is a NaN in bf16 (and 0x7fd57fd5 in float32) and in fp16. */
static const uint8_t pattern[2] = {0xd5, 0x7f};

static sigjmp_buf back;

static void fill(uint8_t *at, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        at[i] = pattern[(uintptr_t)(at + i) & 1];
}

bool guarded_is_pattern(const void *at, size_t nbytes)
{
    const uint8_t *bytes = at;
    for (size_t i = 0; i < nbytes; i++)
        if (bytes[i] != pattern[(uintptr_t)(bytes + i) & 1])
            return false;
    return true;
}

struct guarded guarded_make(size_t nbytes, size_t alignment, enum guard_side side)
{
    struct guarded g = {.nbytes = nbytes, .page = (size_t)sysconf(_SC_PAGESIZE)};
    size_t inner = (nbytes + g.page - 1) / g.page * g.page;
    inner = inner ? inner : g.page;
    g.map_nbytes = inner + 2 * g.page;
    g.map = mmap(NULL, g.map_nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map, g.page, PROT_NONE) != 0 ||
        mprotect(g.map + g.page + inner, g.page, PROT_NONE) != 0) {
        perror("check: mmap");
        exit(1);
    }
    uint8_t *first = g.map + g.page;
    size_t slack = inner - nbytes;
    g.data = side == GUARD_BEGIN ? first : first + slack / alignment * alignment;
    fill(first, inner);
    return g;
}

void guarded_free(struct guarded *g)
{
    if (g->map)
        munmap(g->map, g->map_nbytes);
    *g = (struct guarded){0};
}

void guarded_wipe(struct guarded *g)
{
    fill(g->data, g->nbytes);
}

bool guarded_margins_whole(const struct guarded *g)
{
    const uint8_t *begin = g->map + g->page, *end = g->map + g->map_nbytes - g->page;
    const uint8_t *data = g->data;
    return guarded_is_pattern(begin, (size_t)(data - begin)) &&
           guarded_is_pattern(data + g->nbytes, (size_t)(end - data) - g->nbytes);
}

static void caught(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

bool guard_call(void (*function)(void *argument), void *argument)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE};
    static struct sigaction before[3];
    struct sigaction action = {.sa_handler = caught};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &action, &before[i]);
    volatile bool returned = false;
    if (sigsetjmp(back, 1) == 0) {
        function(argument);
        returned = true;
    }
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &before[i], NULL);
    return returned;
}
