/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the ten likeliest tokens to follow a text, one after another:
 * next_tokens MODEL TEXT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tcq_model.h"

static int fail(const struct tcq_error *error)
{
    fprintf(stderr, "next_tokens: %s\n", error->message);
    return 1;
}

int main(int argc, char **argv)
{
    struct tcq_error error;
    struct tcq_context *context;
    struct tcq_model *model;
    struct tcq_session *session;
    uint32_t *tokens;
    size_t count;
    if (argc != 3) {
        fputs("usage: next_tokens MODEL TEXT\n", stderr);
        return 2;
    }
    if (tcq_context_create(NULL, &context, &error) ||
        tcq_model_load(context, argv[1], NULL, &model, &error) ||
        tcq_session_create(model, NULL, &session, &error))
        return fail(&error);
    const struct tcq_tokenizer *tokenizer = tcq_model_tokenizer(model);
    uint32_t vocab = tcq_model_get_info(model)->vocab, next = 0;
    float *logits = malloc(vocab * sizeof *logits);
    if (!tokenizer || !logits)
        return 1;
    if (tcq_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), TCQ_ENCODE_WRAP, &tokens, &count,
                             &error) ||
        tcq_session_forward(session, tokens, count, TCQ_LOGITS_LAST, logits, &error))
        return fail(&error);
    for (int i = 0; i < 10; i++) {
        for (uint32_t t = next = 0; t < vocab; t++)
            next = logits[t] > logits[next] ? t : next;
        size_t nbytes;
        const char *bytes = tcq_tokenizer_bytes(tokenizer, next, &nbytes);
        printf("%6u '%.*s'\n", next, (int)nbytes, bytes);
        if (tcq_session_forward(session, &next, 1, TCQ_LOGITS_LAST, logits, &error))
            return fail(&error);
    }
    free(logits);
    free(tokens);
    tcq_session_destroy(session);
    tcq_model_destroy(model);
    tcq_context_destroy(context);
    return 0;
}
