/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of one run under mpirun.  A build without MPI (ranks_none.c)
 * has one; with it (ranks_mpi.c) rank 0 hands out numbers to all.
 */
#ifndef TCQ_RANKS_H
#define TCQ_RANKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct ranks {
    int rank, count;
    /* rank 0 while numbers are handed out */
    pthread_t server;
    bool serving;
    pthread_mutex_t lock;
    size_t next, end;
};

/* Prints; CLI_CONTINUE or an exit code. */
int ranks_start(struct ranks *ranks);
void ranks_stop(struct ranks *ranks);

/* The worst code of all ranks (CLI_CONTINUE is the best); all must call it. */
int ranks_agree(struct ranks *ranks, int code);

/* Puts together what the ranks know: bytes that are zero on all ranks but one.  All must call it. */
void ranks_join(struct ranks *ranks, void *bytes, size_t nbytes);

/* Numbers 0..end-1, each to one rank.  All ranks begin; each asks until it gets
 * `end` or gives up with ranks_deal_end, which all must call. */
int ranks_deal_begin(struct ranks *ranks, size_t end);
size_t ranks_deal(struct ranks *ranks);
void ranks_deal_end(struct ranks *ranks);

#endif
