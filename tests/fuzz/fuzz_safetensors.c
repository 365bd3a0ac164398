/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors: parse the input as a file and as the header of one, then touch
 * the first and last byte of every tensor.
 */
#include "fuzz.h"

#include "format/safetensors.h"
#include "format/sniff.h"

static volatile uint64_t sink; /* keeps reads from being optimised away */

static void walk(const struct tcq_safetensors *st, const uint8_t *data, size_t nbytes)
{
    for (size_t i = 0; i < st->count; i++) {
        const struct tcq_source_tensor *tensor = &st->tensors[i];
        const uint8_t *bytes = tensor->data;
        uint64_t count = 1;
        FUZZ_CHECK(tensor->rank <= TCQ_RANK_MAX);
        for (uint32_t j = 0; j < tensor->rank; j++)
            count *= tensor->shape[j];
        FUZZ_CHECK(count == tensor->count);
        FUZZ_CHECK(bytes >= data && tensor->nbytes <= nbytes);
        FUZZ_CHECK((size_t)(bytes - data) <= nbytes - tensor->nbytes);
        if (tensor->nbytes)
            sink += (uint64_t)bytes[0] + bytes[tensor->nbytes - 1];
        if (tensor->dtype != TCQ_DTYPE_COUNT)
            FUZZ_CHECK(tensor->nbytes == count * tcq_dtype_nbytes(tensor->dtype));
    }
}

static void parse(const uint8_t *data, size_t nbytes)
{
    struct tcq_safetensors st = {0};
    struct tcq_error error = {0};
    enum tcq_status status = tcq_safetensors_parse(data, nbytes, "fuzz", &st, &error);
    fuzz_check_status(status, &error);
    if (status == TCQ_OK) {
        walk(&st, data, nbytes);
        tcq_safetensors_release(&st);
    }
}

/* The input as a header of the right length, with some data behind it: a
 * mutated length would hide nearly all headers from the parser. */
static void parse_as_header(const uint8_t *data, size_t nbytes)
{
    enum { LENGTH_NBYTES = 8, DATA_NBYTES = 64 };
    uint8_t *file = calloc(1, LENGTH_NBYTES + nbytes + DATA_NBYTES);
    if (file == NULL)
        return;
    for (size_t i = 0; i < LENGTH_NBYTES; i++)
        file[i] = (uint8_t)((uint64_t)nbytes >> (8 * i));
    if (nbytes)
        memcpy(file + LENGTH_NBYTES, data, nbytes);
    parse(file, LENGTH_NBYTES + nbytes);
    parse(file, LENGTH_NBYTES + nbytes + DATA_NBYTES);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    const char *foreign = tcq_sniff_foreign(data, nbytes);
    sink += foreign ? strlen(foreign) : 0;
    parse(data, nbytes);
    parse_as_header(data, nbytes);
    return 0;
}
