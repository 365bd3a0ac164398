/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share.  A target is one function over bytes; libFuzzer
 * calls it (preset "fuzz"), and in every other build replay.c calls it with
 * the files of its corpus, as a test.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tcq.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

/* A claim about the library that holds for every input. */
#define FUZZ_CHECK(claim) \
    do {                  \
        if (!(claim))     \
            abort();      \
    } while (0)

/* Success says nothing, failure says why and with the same status. */
static inline void fuzz_check_status(enum tcq_status status, const struct tcq_error *error)
{
    FUZZ_CHECK((status == TCQ_OK) == (error->message[0] == '\0'));
    FUZZ_CHECK(status == TCQ_OK || status == error->status);
}

#endif
