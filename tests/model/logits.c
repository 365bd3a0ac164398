/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A helper of tests/model/transformer.py: logits MODEL THREADS BATCH CACHE CPU.
 * Tokens come on stdin as little-endian uint32, logits of every position go to
 * stdout as float32.  CACHE is 16 or 32; CPU scalar, avx2 or native.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tcq_model.h"

static int fail(const struct tcq_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

static uint32_t flags_of(const char *cpu)
{
    if (strcmp(cpu, "scalar") == 0)
        return 0;
    return strcmp(cpu, "avx2") == 0 ? tcq_cpu_detect() & (uint32_t)TCQ_CPU_AVX2 : tcq_cpu_detect();
}

/* Calls that would read or write out of bounds are refused and leave the session as it was. */
static int check_refusals(struct tcq_session *session, uint32_t vocab)
{
    struct tcq_sampler_options options = {.temperature = 1};
    struct tcq_sampler *larger = NULL;
    uint32_t token = 0;
    float logit;
    if (tcq_sampler_create(&options, 2 * vocab, &larger, NULL))
        return 1;
    bool refused =
        tcq_session_next(session, larger, &token, 1, &token, NULL) == TCQ_ERROR_ARGUMENT &&
        tcq_session_forward(session, &token, 1, (enum tcq_logits)99, &logit, NULL) ==
            TCQ_ERROR_ARGUMENT;
    tcq_sampler_destroy(larger);
    if (!refused)
        fputs("a sampler for more tokens, or logits of an unknown kind, were accepted\n", stderr);
    return !refused;
}

int main(int argc, char **argv)
{
    static uint32_t tokens[1 << 16];
    struct tcq_error error;
    struct tcq_context *context = NULL;
    struct tcq_model *model = NULL;
    struct tcq_session *session = NULL;
    if (argc != 6)
        return 2;
    size_t count = fread(tokens, sizeof *tokens, sizeof tokens / sizeof *tokens, stdin);
    struct tcq_context_options options = {.threads = (uint32_t)atoi(argv[2]),
                                          .limit_cpu = true,
                                          .cpu_flags = flags_of(argv[5])};
    struct tcq_session_options session_options = {.batch = (uint32_t)atoi(argv[3]),
                                                  .cache_f32 = strcmp(argv[4], "32") == 0};
    if (tcq_context_create(&options, &context, &error) ||
        tcq_model_load(context, argv[1], NULL, &model, &error) ||
        tcq_session_create(model, &session_options, &session, &error))
        return fail(&error);
    size_t vocab = tcq_model_get_info(model)->vocab;
    if (check_refusals(session, (uint32_t)vocab))
        return 1;
    float *logits = malloc(count * vocab * sizeof *logits + 1);
    if (!logits)
        return 1;
    if (tcq_session_forward(session, tokens, count, TCQ_LOGITS_ALL, logits, &error))
        return fail(&error);
    fwrite(logits, sizeof *logits, count * vocab, stdout);
    free(logits);
    tcq_session_destroy(session);
    tcq_model_destroy(model);
    tcq_context_destroy(context);
    return 0;
}
