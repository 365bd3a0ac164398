/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process: a build without MPI.
 */
#include <stdlib.h>

#include "cli.h"
#include "ranks.h"

int ranks_start(struct ranks *ranks)
{
    *ranks = (struct ranks){.count = 1};
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (size && atoi(size) > 1) {
        cli_message("this build knows no MPI (cmake -DTCQ_MPI=ON makes one that does): run it "
                    "without mpirun, or use --shard");
        return CLI_FAILED;
    }
    return CLI_CONTINUE;
}

void ranks_stop(struct ranks *ranks)
{
    (void)ranks;
}

int ranks_agree(struct ranks *ranks, int code)
{
    (void)ranks;
    return code;
}

void ranks_join(struct ranks *ranks, void *bytes, size_t nbytes)
{
    (void)ranks;
    (void)bytes;
    (void)nbytes;
}

int ranks_deal_begin(struct ranks *ranks, size_t end)
{
    ranks->next = 0;
    ranks->end = end;
    return CLI_CONTINUE;
}

size_t ranks_deal(struct ranks *ranks)
{
    return ranks->next < ranks->end ? ranks->next++ : ranks->end;
}

void ranks_deal_end(struct ranks *ranks)
{
    (void)ranks;
}
