/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of tcq quantize: from the options to the finished folder.
 */
#ifndef TCQ_QUANTIZE_H
#define TCQ_QUANTIZE_H

#include "output.h"
#include "pack.h"
#include "ranks.h"

struct quantize_options {
    struct plan_options plan;
    const char *output;
    bool resume, force, dry_run, all;
};

struct quantize {
    const char *path;
    struct quantize_options *options;
    struct cli_args args;
    struct ranks ranks;
    struct tcq_source *source;
    struct plan plan;
    struct output_list whole; /* of the output that all parts make */
    char *config;             /* config.json of that */
    struct tcq_context *context;
    struct pack pack;
    struct output output;
    double started;
};

/* Returns an exit code. */
int quantize_run(const char *path, struct quantize_options *options, const struct cli_args *args);

/* With several ranks (mpirun): every rank packs the tensors that it is handed
 * into files of their own, rank 0 joins these.  On all ranks alike: CLI_CONTINUE
 * or an exit code. */
int distribute_tensors(struct quantize *q);

#endif
