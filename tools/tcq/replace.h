/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small files of results (pictures, JSON): written beside and renamed, so that what was
 * there stays until the new one is whole.
 */
#ifndef TCQ_REPLACE_H
#define TCQ_REPLACE_H

#include "cli.h"

/* Devices and pipes are written to.  False with errno set. */
bool replace_file(const char *path, const void *bytes, size_t nbytes);
/* The value's text with jansson's `flags`; takes the value over, and NULL stands for no
 * memory.  Prints what went wrong; CLI_CONTINUE or an exit code. */
int replace_json(const char *path, json_t *json, size_t flags);

#endif
