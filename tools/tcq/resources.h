/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and disk space, compared with what is needed before work starts.
 */
#ifndef TCQ_RESOURCES_H
#define TCQ_RESOURCES_H

#include "cli.h"

/* CLI_CONTINUE, or CLI_FAILED after a message. */
int resources_check_memory(uint64_t nbytes, const struct cli_args *args);
/* `there`: bytes of the output that an interrupted run has written already. */
int resources_check_disk(const char *path, uint64_t nbytes, uint64_t there);

#endif
