/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq bench --model: whole tokens through every layer of a model, beside the
 * linear layers alone.
 */
#ifndef TCQ_BENCH_MODEL_H
#define TCQ_BENCH_MODEL_H

#include "cli.h"

/* json: a file for the results, or NULL.  Prints; CLI_OK or an exit code. */
int bench_model(const struct cli_args *args, const char *path, const char *json);

#endif
