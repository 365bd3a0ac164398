/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files mapped for reading, and the few path helpers that readers share.
 */
#ifndef TCQ_BASE_FILE_H
#define TCQ_BASE_FILE_H

#include "tcq.h"

/* A whole file mapped read-only.  An empty file has data == NULL. */
struct tcq_mapping {
    const uint8_t *data;
    size_t nbytes;
};

/* Errors: IO with the path and the system's words. */
enum tcq_status tcq_mapping_open(const char *path, struct tcq_mapping *out,
                                 struct tcq_error *error);
void tcq_mapping_close(struct tcq_mapping *mapping);

/* "folder/name" in memory of tcq_alloc, or NULL. */
char *tcq_path_join(const char *folder, const char *name);
/* The part after the last slash. */
const char *tcq_path_name(const char *path);

bool tcq_path_exists(const char *path);
/* A regular one, perhaps through a link. */
bool tcq_path_is_file(const char *path);
bool tcq_path_is_folder(const char *path);

#endif
