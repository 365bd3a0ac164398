/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A helper of tests/model/tokenizer.py: texts on stdin, each a little-endian
 * uint32 of its length and then its bytes; a line for each on stdout: the
 * ids, a tab, and the ids decoded again, in hexadecimal.  Flags as in
 * tcq_tokenizer_encode.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tcq_model.h"

static void print_decoded(const struct tcq_tokenizer *tokenizer, const uint32_t *ids, size_t count)
{
    struct tcq_text_stream stream = {.tokenizer = tokenizer, .show_special = true};
    for (size_t i = 0; i <= count; i++) {
        char *text = NULL;
        size_t nbytes = 0;
        enum tcq_status status = i < count
                                     ? tcq_text_stream_next(&stream, ids[i], &text, &nbytes, NULL)
                                     : tcq_text_stream_end(&stream, &text, &nbytes, NULL);
        if (status)
            exit(1);
        for (size_t j = 0; j < nbytes; j++)
            printf("%02x", (unsigned char)text[j]);
        free(text);
    }
}

static int tokenize_stream(const struct tcq_tokenizer *tokenizer, unsigned flags)
{
    uint32_t nbytes;
    while (fread(&nbytes, sizeof nbytes, 1, stdin) == 1) {
        char *text = malloc((size_t)nbytes + 1);
        if (!text || fread(text, 1, nbytes, stdin) != nbytes)
            return 1;
        struct tcq_error error;
        uint32_t *ids = NULL;
        size_t count = 0;
        if (tcq_tokenizer_encode(tokenizer, text, nbytes, flags, &ids, &count, &error)) {
            printf("error: %s\n", error.message);
        } else {
            for (size_t i = 0; i < count; i++)
                printf("%s%u", i ? " " : "", ids[i]);
            printf("\t");
            print_decoded(tokenizer, ids, count);
            printf("\n");
        }
        free(ids);
        free(text);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct tcq_error error;
    struct tcq_tokenizer *tokenizer = NULL;
    if (argc != 3)
        return 2;
    if (tcq_tokenizer_open(argv[1], &tokenizer, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    int result = tokenize_stream(tokenizer, (unsigned)atoi(argv[2]));
    tcq_tokenizer_destroy(tokenizer);
    return result;
}
