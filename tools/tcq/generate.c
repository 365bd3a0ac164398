/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generating text.  A pipe closed by its reader ends the program by SIGPIPE, as
 * it does any other filter.
 */
#include "generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

void generator_close(struct generator *g)
{
    free(g->answer);
    tcq_sampler_destroy(g->sampler);
    tcq_session_destroy(g->session);
    tcq_model_destroy(g->model);
    tcq_context_destroy(g->context);
}

int generator_open(struct generator *g, const char *path, const struct generator_options *options,
                   const struct cli_args *args)
{
    struct tcq_error error = {0};
    double start = cli_seconds();
    *g = (struct generator){.options = options, .args = args, .path = path, .stop = "nothing asked"};
    if (cli_context(args, &g->context) != TCQ_OK)
        return CLI_FAILED;
    if (tcq_model_load(g->context, path, &options->model, &g->model, &error))
        return cli_fail(path, &error);
    g->tokenizer = tcq_model_tokenizer(g->model);
    if (!g->tokenizer) {
        cli_message("%s: no tokenizer (tokenizer.json) beside the weights", path);
        return CLI_FAILED;
    }
    uint32_t vocab = tcq_model_get_info(g->model)->vocab;
    if (tcq_session_create(g->model, &options->session, &g->session, &error) ||
        tcq_sampler_create(&options->sampler, vocab, &g->sampler, &error))
        return cli_fail(path, &error);
    g->answer = calloc(1, g->answer_capacity = 4096);
    if (!g->answer)
        return cli_out_of_memory();
    g->load_seconds = cli_seconds() - start;
    return CLI_CONTINUE;
}

/* ---- Output ---- */

static int put_text(struct generator *g, const char *text, size_t nbytes)
{
    if (g->answer_nbytes + nbytes >= g->answer_capacity) {
        size_t capacity = 2 * (g->answer_nbytes + nbytes + 1);
        char *larger = realloc(g->answer, capacity);
        if (!larger)
            return cli_out_of_memory();
        g->answer = larger;
        g->answer_capacity = capacity;
    }
    memcpy(g->answer + g->answer_nbytes, text, nbytes);
    g->answer_nbytes += nbytes;
    g->answer[g->answer_nbytes] = 0;
    if (g->args->json)
        return CLI_CONTINUE;
    if (fwrite(text, 1, nbytes, stdout) == nbytes && fflush(stdout) == 0)
        return CLI_CONTINUE;
    cli_message("standard output: %s", strerror(errno));
    return CLI_FAILED;
}

/* token NULL: what is held back of an incomplete character. */
static int put_token(struct generator *g, struct tcq_text_stream *stream, const uint32_t *token)
{
    struct tcq_error error = {0};
    char *text = NULL;
    size_t nbytes = 0;
    enum tcq_status status = token ? tcq_text_stream_next(stream, *token, &text, &nbytes, &error)
                                   : tcq_text_stream_end(stream, &text, &nbytes, &error);
    if (status)
        return cli_fail(g->path, &error);
    int code = nbytes ? put_text(g, text, nbytes) : CLI_CONTINUE;
    free(text);
    return code;
}

/* ---- Generating ---- */

/* Why to stop before token number `i` of an answer; NULL: go on. */
static const char *reason_to_stop(const struct generator *g, uint32_t i)
{
    if (cli_interrupted())
        return "interrupted";
    if (g->options->max_tokens && i == g->options->max_tokens)
        return "max-tokens";
    return NULL;
}

/* `token` and what follows it, until something stops it. */
static int generate(struct generator *g, struct tcq_text_stream *stream, uint32_t token)
{
    struct tcq_error error = {0};
    int code = CLI_CONTINUE;
    for (uint32_t i = 0; !(g->stop = reason_to_stop(g, i)); i++) {
        g->token_count++;
        if (tcq_tokenizer_is_end(g->tokenizer, token)) {
            g->stop = "end";
            break;
        }
        code = put_token(g, stream, &token);
        if (code != CLI_CONTINUE)
            return code;
        if (tcq_session_position(g->session) == tcq_session_context(g->session)) {
            g->stop = "context full";
            break;
        }
        if (tcq_session_next(g->session, g->sampler, &token, 1, &token, &error))
            return cli_fail(g->path, &error);
    }
    return put_token(g, stream, NULL);
}

/* Something has to stand before the first token of an empty prompt. */
static int first_token(const struct generator *g, uint32_t *out)
{
    struct tcq_error error = {0};
    uint32_t *ids = NULL;
    size_t count = 0;
    if (tcq_tokenizer_encode(g->tokenizer, "", 0, TCQ_ENCODE_WRAP, &ids, &count, &error))
        return cli_fail(g->path, &error);
    if (count)
        *out = ids[0];
    free(ids);
    if (count)
        return CLI_CONTINUE;
    cli_message("the prompt is empty, and this model has no token that begins a text");
    return CLI_FAILED;
}

int generator_answer(struct generator *g, const uint32_t *ids, size_t count, bool continues)
{
    struct tcq_error error = {0};
    uint32_t begin = 0, next;
    int code = count ? CLI_CONTINUE : first_token(g, &begin);
    if (code != CLI_CONTINUE)
        return code;
    if (count == 0) {
        ids = &begin;
        count = 1;
    }
    g->answer_nbytes = 0;
    g->answer[0] = 0;
    double start = cli_seconds();
    if (tcq_session_next(g->session, g->sampler, ids, count, &next, &error))
        return cli_fail("prompt", &error);
    double fed = cli_seconds();
    g->prompt_count += count;
    g->prefill_seconds += fed - start;
    struct tcq_text_stream stream = {.tokenizer = g->tokenizer, .started = continues};
    code = generate(g, &stream, next);
    g->decode_seconds += cli_seconds() - fed;
    return code;
}

/* ---- Statistics ---- */

static double rate(size_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

static uint64_t peak_nbytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

static int report_json(const struct generator *g, uint64_t weights, double prefill, double decode)
{
    return cli_print_json(json_pack(
        "{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I}", "text", g->answer, "stop", g->stop,
        "prompt_tokens", (json_int_t)g->prompt_count, "tokens", (json_int_t)g->token_count,
        "load_seconds", g->load_seconds, "prefill_tokens_per_second", prefill,
        "decode_tokens_per_second", decode, "weights_nbytes", (json_int_t)weights, "cache_nbytes",
        (json_int_t)tcq_session_cache_nbytes(g->session), "peak_nbytes",
        (json_int_t)peak_nbytes()));
}

int generator_report(const struct generator *g)
{
    const struct tcq_model_info *info = tcq_model_get_info(g->model);
    uint64_t weights = info->stored_nbytes + info->owned_nbytes;
    double prefill = rate(g->prompt_count, g->prefill_seconds);
    double decode = rate(g->token_count, g->decode_seconds);
    if (g->args->json)
        return report_json(g, weights, prefill, decode);
    if (g->args->quiet)
        return CLI_OK;
    fprintf(stderr,
            "load %.2f s; prompt %zu tokens, %.1f tokens/s; answer %zu tokens, %.1f tokens/s (%s)\n"
            "weights %s, cache %s for %u positions, peak memory %s\n",
            g->load_seconds, g->prompt_count, prefill, g->token_count, decode, g->stop,
            cli_nbytes_text(weights).s, cli_nbytes_text(tcq_session_cache_nbytes(g->session)).s,
            tcq_session_context(g->session), cli_nbytes_text(peak_nbytes()).s);
    return CLI_OK;
}
