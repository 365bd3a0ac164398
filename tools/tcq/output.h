/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An output folder that never looks finished before it is: everything is
 * written to "<path>.partial", which becomes <path> by one rename in the end.
 * The file tcq-job.json in it says with which options it was begun, so that
 * --resume goes on with the same ones or not at all.
 *
 * Functions print what went wrong and return CLI_CONTINUE or an exit code.
 */
#ifndef TCQ_OUTPUT_H
#define TCQ_OUTPUT_H

#include "cli.h"

struct output {
    char *path;    /* as asked for, without trailing slashes */
    char *partial; /* path + ".partial" */
    int lock;      /* the locked tcq-job.json */
    bool resumed;  /* an interrupted run is continued */
};

/* Refuses an existing output (unless force), and an interrupted one unless
 * resume or force.  Writes nothing. */
int output_check(const char *path, bool resume, bool force);
/* Refuses an output that is or holds the source, which --force would delete; a
 * file also within the folder that is read. */
int output_check_source(const char *path, bool file, const char *source);
/* Creates the partial folder, or with resume takes up an existing one whose
 * job equals `job` (else: what differs). */
int output_open(struct output *output, const char *path, bool resume, bool force,
                const json_t *job);
/* The paths alone, for a process that writes beside the one that opened it. */
int output_follow(struct output *output, const char *path);
/* A text file in the folder, synced. */
int output_write_text(const struct output *output, const char *name, const char *text);
/* The last step: the folder gets its name; with force it replaces an older one. */
int output_commit(struct output *output, bool force);
/* Frees; the partial folder stays for --resume. */
void output_close(struct output *output);
/* Deletes the partial folder (nothing worth resuming was written) and frees. */
void output_discard(struct output *output);

/* Free bytes where `path` will be created; UINT64_MAX if unknown. */
uint64_t output_free_nbytes(const char *path);
/* Bytes of the files in the folder `path` (not of folders inside). */
uint64_t output_folder_nbytes(const char *path);

#endif
