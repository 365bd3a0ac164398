/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model that answers: loading it, feeding a prompt, streaming what it says,
 * and the statistics of that.
 */
#ifndef TCQ_GENERATE_H
#define TCQ_GENERATE_H

#include "cli.h"
#include "tcq_model.h"

struct generator_options {
    uint32_t max_tokens; /* 0: up to the context's end */
    struct tcq_session_options session;
    struct tcq_model_options model;
    struct tcq_sampler_options sampler;
};

struct generator {
    const struct generator_options *options;
    const struct cli_args *args;
    const char *path;
    struct tcq_context *context;
    struct tcq_model *model;
    struct tcq_session *session;
    struct tcq_sampler *sampler;
    const struct tcq_tokenizer *tokenizer;
    char *answer; /* the last one, terminated */
    size_t answer_nbytes, answer_capacity;
    const char *stop; /* why it ended */
    size_t prompt_count, token_count;
    double load_seconds, prefill_seconds, decode_seconds;
};

/* Functions print what went wrong and return CLI_CONTINUE or an exit code.
 * generator_close takes what a failed open left, too. */
int generator_open(struct generator *g, const char *path, const struct generator_options *options,
                   const struct cli_args *args);
void generator_close(struct generator *g);

/* Feed tokens, then answer; text goes to stdout as it comes, unless --json.
 * continues: the answer goes on where the prompt's text ended. */
int generator_answer(struct generator *g, const uint32_t *ids, size_t count, bool continues);

/* Statistics to stderr; with --json all of it, the answer too, to stdout. */
int generator_report(const struct generator *g);

#endif
