/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small work on folders: emptiness, deletion, copying what lies beside weights.
 */
#ifndef TCQ_FOLDER_H
#define TCQ_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

enum folder_choice {
    FOLDER_ALL_BUT_WEIGHTS, /* with sub-folders; hidden names left out */
    FOLDER_TOKENIZER        /* tokenizer, vocabulary, chat template, generation settings */
};

bool folder_is_empty(const char *path);
/* Whether a name in it matches one of the patterns (the last is NULL). */
bool folder_has(const char *path, const char *const *patterns);
/* The folder and all in it; symbolic links are removed, not followed.  False
 * with errno set. */
bool folder_delete(const char *path);
/* All of data to fd; false with errno set. */
bool folder_write_all(int fd, const void *data, size_t nbytes);
/* Copies the chosen files of src into the existing folder dst.  Prints what
 * went wrong; CLI_CONTINUE or an exit code. */
int folder_copy(const char *dst, const char *src, enum folder_choice choice);

#endif
