/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Temporary folders and files for tests, and safetensors bytes from a header.
 */
#ifndef TESTS_SUPPORT_FOLDER_H
#define TESTS_SUPPORT_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

/* A new folder under TMPDIR or /tmp; free with folder_remove. */
static inline char *folder_make(void)
{
    const char *base = getenv("TMPDIR");
    char *path = malloc(4096);
    assert_non_null(path);
    snprintf(path, 4096, "%s/tcq-test-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline int folder_remove_entry(const char *path, const struct stat *st, int type,
                                      struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static inline void folder_remove(char *path)
{
    nftw(path, folder_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(path);
}

/* "folder/name" in one of four buffers that take turns. */
static inline const char *in_folder(const char *folder, const char *name)
{
    static char paths[4][4096];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline void write_file(const char *path, const void *data, size_t nbytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, nbytes, file), nbytes);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *folder, const char *name, const char *text)
{
    write_file(in_folder(folder, name), text, strlen(text));
}

/* The file's bytes with a zero after them; free() them.  NULL if there is none. */
static inline uint8_t *read_file(const char *path, size_t *nbytes)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long end = ftell(file);
    assert_true(end >= 0);
    rewind(file);
    uint8_t *data = calloc((size_t)end + 1, 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)end, file), end);
    fclose(file);
    *nbytes = (size_t)end;
    return data;
}

/* The bytes of a safetensors file: length, header as given, data_nbytes bytes
 * counting up.  In a block of just that size, so that a sanitizer sees any read
 * beyond; free() it. */
static inline uint8_t *safetensors_bytes(const char *header, size_t data_nbytes, size_t *nbytes)
{
    size_t length = strlen(header);
    *nbytes = 8 + length + data_nbytes;
    uint8_t *bytes = malloc(*nbytes);
    assert_non_null(bytes);
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_nbytes; i++)
        bytes[8 + length + i] = (uint8_t)i;
    return bytes;
}

static inline void write_safetensors(const char *folder, const char *name, const char *header,
                                     size_t data_nbytes)
{
    size_t nbytes;
    uint8_t *bytes = safetensors_bytes(header, data_nbytes, &nbytes);
    write_file(in_folder(folder, name), bytes, nbytes);
    free(bytes);
}

#endif
