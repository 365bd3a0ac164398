/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer.json and a text: the input is the JSON, a zero byte, the text.
 * What can be loaded must encode any text, and give back ids of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/json.h"
#include "fuzz.h"
#include "model/tokenizer.h"

static void encode(const struct tcq_tokenizer *tokenizer, const char *text, size_t nbytes)
{
    uint32_t *ids = NULL;
    size_t count = 0;
    if (tcq_tokenizer_encode(tokenizer, text, nbytes, TCQ_ENCODE_SPECIAL | TCQ_ENCODE_WRAP, &ids,
                             &count, NULL))
        return;
    struct tcq_text_stream stream = {.tokenizer = tokenizer};
    for (size_t i = 0; i < count; i++) {
        char *out = NULL;
        size_t out_nbytes = 0;
        if (ids[i] >= tcq_tokenizer_count(tokenizer))
            abort();
        if (tcq_text_stream_next(&stream, ids[i], &out, &out_nbytes, NULL) == TCQ_OK)
            free(out);
    }
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    const uint8_t *end = nbytes ? memchr(data, 0, nbytes) : NULL;
    size_t json_nbytes = end ? (size_t)(end - data) : nbytes;
    json_t *root = NULL;
    if (tcq_json_parse((const char *)data, json_nbytes, 0, &root, NULL))
        return 0;
    struct tcq_tokenizer *tokenizer = tcq_alloc(1, sizeof *tokenizer);
    if (tokenizer) {
        for (size_t i = 0; i < 256; i++)
            tokenizer->bpe.bytes[i] = TCQ_NO_TOKEN;
        tokenizer->bpe.unknown = TCQ_NO_TOKEN;
        if (tcq_tokenizer_from_json(tokenizer, root, NULL) == TCQ_OK &&
            tcq_tokenizer_finish(tokenizer, NULL) == TCQ_OK && end)
            encode(tokenizer, (const char *)end + 1, nbytes - json_nbytes - 1);
    }
    tcq_tokenizer_destroy(tokenizer);
    json_decref(root);
    return 0;
}
