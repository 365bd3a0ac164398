/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a safetensors file from a plan on standard input, for files_loaded.py:
 * a line a tensor, "DTYPE RANK DIMENSIONS... NAME" (the name to the line's end),
 * byte j of tensor i being 31*i + 7*j + 1.
 *
 *     files_write FILE < PLAN
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tcq.h"

enum { TENSORS_MAX = 1000, LINE_NBYTES = 4096 };

static int fail(const struct tcq_error *error)
{
    fprintf(stderr, "files_write: %s\n", error->message);
    return 1;
}

/* Declares the tensor of one line; its size in bytes, or -1. */
static long declare(struct tcq_writer *writer, char *line, struct tcq_error *error)
{
    uint64_t shape[TCQ_RANK_MAX];
    char *at = NULL, *type = strtok_r(line, " ", &at);
    uint32_t rank = (uint32_t)strtoul(strtok_r(NULL, " ", &at), NULL, 10);
    enum tcq_dtype dtype = TCQ_DTYPE_F32;
    while (dtype < TCQ_DTYPE_COUNT && strcmp(type, tcq_dtype_name(dtype)) != 0)
        dtype++;
    uint64_t nbytes = tcq_dtype_nbytes(dtype);
    for (uint32_t d = 0; d < rank; d++) {
        shape[d] = strtoull(strtok_r(NULL, " ", &at), NULL, 10);
        nbytes *= shape[d];
    }
    return tcq_writer_declare(writer, at, dtype, rank, shape, error) == TCQ_OK ? (long)nbytes : -1;
}

static enum tcq_status put(struct tcq_writer *writer, size_t i, long nbytes,
                           struct tcq_error *error)
{
    enum tcq_status status = TCQ_OK;
    for (long j = 0; j < nbytes && status == TCQ_OK; j++) {
        uint8_t byte = (uint8_t)(31 * i + 7 * (size_t)j + 1);
        status = tcq_writer_write(writer, &byte, 1, error);
    }
    return status;
}

int main(int argc, char **argv)
{
    static long sizes[TENSORS_MAX];
    struct tcq_writer *writer = NULL;
    struct tcq_error error = {0};
    char line[LINE_NBYTES];
    size_t count = 0;
    if (argc != 2)
        return 2;
    if (tcq_writer_create(argv[1], true, &writer, &error) != TCQ_OK ||
        tcq_writer_metadata(writer, "made by", "files_write \"quoted\"", &error) != TCQ_OK)
        return fail(&error);
    for (; count < TENSORS_MAX && fgets(line, sizeof line, stdin); count++) {
        line[strcspn(line, "\n")] = '\0';
        if ((sizes[count] = declare(writer, line, &error)) < 0)
            return fail(&error);
    }
    if (tcq_writer_begin(writer, false, NULL, &error) != TCQ_OK)
        return fail(&error);
    for (size_t i = 0; i < count; i++)
        if (put(writer, i, sizes[i], &error) != TCQ_OK)
            return fail(&error);
    if (tcq_writer_finish(writer, &error) != TCQ_OK)
        return fail(&error);
    tcq_writer_destroy(writer, false);
    return 0;
}
