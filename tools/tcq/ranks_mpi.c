/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes under mpirun.  While numbers are dealt, a thread of rank 0 answers
 * the other ranks; its main thread, which works as the others do, takes its own
 * numbers from the same counter and calls no MPI (MPI_THREAD_SERIALIZED).
 *
 * Waiting polls and sleeps: MPI's own waiting would keep a core busy that the
 * encoder can use.
 */
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

#include "cli.h"
#include "ranks.h"

enum { TAG_ASK = 1, TAG_ANSWER, POLL_NS = 1000000 };

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
}

static void wait_for(MPI_Request *request)
{
    int done = 0;
    for (;;) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done)
            return;
        pause_briefly();
    }
}

int ranks_start(struct ranks *ranks)
{
    *ranks = (struct ranks){.count = 1};
    /* Started without mpirun (Open MPI's or a PMI launcher), it stays one process. */
    if (!getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMI_SIZE") && !getenv("PMIX_RANK"))
        return CLI_CONTINUE;
    int provided = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
        provided < MPI_THREAD_SERIALIZED) {
        cli_message("this MPI library does not let a second thread call it");
        return CLI_FAILED;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks->count);
    pthread_mutex_init(&ranks->lock, NULL);
    return CLI_CONTINUE;
}

void ranks_stop(struct ranks *ranks)
{
    int started = 0;
    MPI_Initialized(&started);
    if (!started)
        return;
    pthread_mutex_destroy(&ranks->lock);
    MPI_Finalize();
}

int ranks_agree(struct ranks *ranks, int code)
{
    if (ranks->count == 1)
        return code;
    int worst = code;
    MPI_Request request;
    MPI_Iallreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
    wait_for(&request);
    return worst;
}

void ranks_join(struct ranks *ranks, void *bytes, size_t nbytes)
{
    enum { PIECE = 1 << 20 }; /* MPI counts in int */
    char *at = bytes;
    while (ranks->count > 1 && nbytes > 0) {
        size_t piece = nbytes < PIECE ? nbytes : PIECE;
        MPI_Request request;
        MPI_Iallreduce(MPI_IN_PLACE, at, (int)piece, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD, &request);
        wait_for(&request);
        at += piece;
        nbytes -= piece;
    }
}

/* ---- Dealing ---- */

static size_t take(struct ranks *ranks)
{
    pthread_mutex_lock(&ranks->lock);
    size_t number = ranks->next < ranks->end ? ranks->next++ : ranks->end;
    pthread_mutex_unlock(&ranks->lock);
    return number;
}

/* Until every other rank has said that it asks no more. */
static void *serve(void *argument)
{
    struct ranks *ranks = argument;
    for (int left = ranks->count - 1; left > 0;) {
        int there = 0, more = 0;
        MPI_Status from;
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_ASK, MPI_COMM_WORLD, &there, &from);
        if (!there) {
            pause_briefly();
            continue;
        }
        MPI_Recv(&more, 1, MPI_INT, from.MPI_SOURCE, TAG_ASK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!more) {
            left--;
            continue;
        }
        unsigned long long number = take(ranks);
        MPI_Send(&number, 1, MPI_UNSIGNED_LONG_LONG, from.MPI_SOURCE, TAG_ANSWER, MPI_COMM_WORLD);
    }
    return NULL;
}

int ranks_deal_begin(struct ranks *ranks, size_t end)
{
    ranks->next = 0;
    ranks->end = end;
    if (ranks->rank > 0 || ranks->count == 1)
        return CLI_CONTINUE;
    /* From here to ranks_deal_end the server has MPI to itself. */
    ranks->serving = pthread_create(&ranks->server, NULL, serve, ranks) == 0;
    if (ranks->serving)
        return CLI_CONTINUE;
    cli_message("cannot start a thread");
    return CLI_FAILED;
}

static void ask(int more)
{
    MPI_Send(&more, 1, MPI_INT, 0, TAG_ASK, MPI_COMM_WORLD);
}

size_t ranks_deal(struct ranks *ranks)
{
    if (ranks->rank == 0)
        return take(ranks);
    unsigned long long number = 0;
    MPI_Request request;
    ask(1);
    MPI_Irecv(&number, 1, MPI_UNSIGNED_LONG_LONG, 0, TAG_ANSWER, MPI_COMM_WORLD, &request);
    wait_for(&request);
    return (size_t)number;
}

void ranks_deal_end(struct ranks *ranks)
{
    if (ranks->rank > 0) {
        ask(0);
    } else if (ranks->serving) {
        pthread_join(ranks->server, NULL);
    } else if (ranks->count > 1) { /* there is no server: send the others home */
        ranks->next = ranks->end;
        serve(ranks);
    }
    ranks->serving = false;
}
