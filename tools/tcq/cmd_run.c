/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq run: a model continues a text or answers a question.  Text streams to
 * stdout as it comes, statistics go to stderr.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "generate.h"

enum {
    KEY_CHAT = CLI_KEY_LONG,
    KEY_RAW,
    KEY_SYSTEM,
    KEY_CONTEXT,
    KEY_TEMPERATURE,
    KEY_TOP_K,
    KEY_TOP_P,
    KEY_MIN_P,
    KEY_SEED,
    KEY_INT8,
    KEY_FORCE,
    PROMPT_NBYTES_MAX = 1 << 26
};

static const struct cli_option option_list[] = {
    {'n', "max-tokens", "N", "stop after N new tokens (default: 256, 0: at the context's end)"},
    {KEY_CHAT, "chat", NULL, "a conversation in the model's chat form; without PROMPT,\n"
                             "questions are read from the terminal, a line each"},
    {KEY_RAW, "raw", NULL, "continue the prompt as it is (default without a chat form)"},
    {KEY_SYSTEM, "system", "TEXT", "the system message of a conversation"},
    {KEY_CONTEXT, "context", "N", "positions to make room for (default: the model's, up to 4096)"},
    {KEY_TEMPERATURE, "temperature", "X", "0 takes the likeliest token (default 0)"},
    {KEY_TOP_K, "top-k", "N", "choose among the N likeliest"},
    {KEY_TOP_P, "top-p", "X", "choose among the likeliest that together reach X"},
    {KEY_MIN_P, "min-p", "X", "leave out tokens less likely than X times the likeliest"},
    {KEY_SEED, "seed", "N", "of the choices (default 0): same seed, same text"},
    {KEY_INT8, "int8", NULL, "8-bit activations in packed layers: faster, less exact"},
    {KEY_FORCE, "force", NULL, "load even if memory seems too small"},
    {0},
};

struct options {
    bool chat, raw;
    const char *system;
    struct generator_options generator;
};

/* A decimal number of 0..max. */
static int parse_number(const char *option, const char *text, float max, float *out)
{
    char *end = NULL;
    *out = strtof(text, &end);
    if (end == text || *end || text[strspn(text, "0123456789.eE+-")] || !(*out >= 0.0f) ||
        *out > max)
        return cli_usage("%s '%s': expected a number from 0 to %g", option, text, (double)max);
    return CLI_CONTINUE;
}

static int set_option(void *user, int key, const char *value)
{
    struct options *options = user;
    struct generator_options *o = &options->generator;
    uint32_t number = 0;
    int code = CLI_CONTINUE;
    switch (key) {
    case 'n':
        return cli_parse_u32("--max-tokens", value, 0, UINT32_MAX, &o->max_tokens);
    case KEY_CHAT:
        options->chat = true;
        return CLI_CONTINUE;
    case KEY_RAW:
        options->raw = true;
        return CLI_CONTINUE;
    case KEY_SYSTEM:
        options->system = value;
        return CLI_CONTINUE;
    case KEY_CONTEXT:
        return cli_parse_u32("--context", value, 1, UINT32_MAX, &o->session.context);
    case KEY_TEMPERATURE:
        return parse_number("--temperature", value, 1000.0f, &o->sampler.temperature);
    case KEY_TOP_K:
        return cli_parse_u32("--top-k", value, 0, UINT32_MAX, &o->sampler.top_k);
    case KEY_TOP_P:
        return parse_number("--top-p", value, 1.0f, &o->sampler.top_p);
    case KEY_MIN_P:
        return parse_number("--min-p", value, 1.0f, &o->sampler.min_p);
    case KEY_SEED:
        code = cli_parse_u32("--seed", value, 0, UINT32_MAX, &number);
        o->sampler.seed = number;
        return code;
    case KEY_INT8:
        o->model.activations = TCQ_ACTIVATIONS_INT8;
        return CLI_CONTINUE;
    default:
        o->model.ignore_memory = true;
        return CLI_CONTINUE;
    }
}

/* ---- One prompt ---- */

static int run_raw(struct generator *g, const char *prompt)
{
    struct tcq_error error = {0};
    uint32_t *ids = NULL;
    size_t count = 0;
    if (tcq_tokenizer_encode(g->tokenizer, prompt, strlen(prompt),
                             TCQ_ENCODE_SPECIAL | TCQ_ENCODE_WRAP, &ids, &count, &error))
        return cli_fail("prompt", &error);
    int code = generator_answer(g, ids, count, *prompt);
    free(ids);
    return code;
}

static int run_question(struct generator *g, enum tcq_chat_form form, const char *system,
                        const char *question)
{
    struct tcq_error error = {0};
    const struct tcq_chat_message messages[2] = {{"system", system}, {"user", question}};
    uint32_t *ids = NULL;
    size_t count = 0;
    if (tcq_chat_encode(g->tokenizer, form, system ? messages : messages + 1, system ? 2 : 1, &ids,
                        &count, &error))
        return cli_fail("prompt", &error);
    int code = generator_answer(g, ids, count, false);
    free(ids);
    return code;
}

/* ---- A conversation on the terminal ---- */

struct talk {
    struct tcq_chat_message *messages;
    size_t count;
    uint32_t *seen; /* tokens of the last turn's prompt, which the cache has */
    size_t seen_count;
};

static int talk_add(struct talk *talk, const char *role, const char *content)
{
    struct tcq_chat_message *larger =
        realloc(talk->messages, (talk->count + 1) * sizeof *talk->messages);
    char *copy = strdup(content);
    if (larger)
        talk->messages = larger;
    if (!larger || !copy) {
        free(copy);
        return cli_out_of_memory();
    }
    talk->messages[talk->count++] = (struct tcq_chat_message){role, copy};
    return CLI_CONTINUE;
}

static void talk_free(struct talk *talk)
{
    for (size_t i = 0; i < talk->count; i++)
        free((char *)(uintptr_t)talk->messages[i].content);
    free(talk->messages);
    free(talk->seen);
}

/* One question: the whole conversation is written out anew, and what the cache
 * has of it already is not computed again. */
static int talk_turn(struct generator *g, enum tcq_chat_form form, struct talk *talk)
{
    struct tcq_error error = {0};
    uint32_t *ids = NULL;
    size_t count = 0, same = 0;
    if (tcq_chat_encode(g->tokenizer, form, talk->messages, talk->count, &ids, &count, &error))
        return cli_fail("conversation", &error);
    while (same < talk->seen_count && same + 1 < count && ids[same] == talk->seen[same])
        same++;
    tcq_session_rewind(g->session, (uint32_t)same);
    int code = generator_answer(g, ids + same, count - same, false);
    free(talk->seen);
    talk->seen = ids;
    talk->seen_count = count;
    if (code != CLI_CONTINUE)
        return code;
    if (!g->args->json)
        putchar('\n');
    fflush(stdout);
    return talk_add(talk, "assistant", g->answer);
}

static int talk_run(struct generator *g, enum tcq_chat_form form, struct talk *talk)
{
    char *line = NULL;
    size_t capacity = 0;
    int code = CLI_CONTINUE;
    while (code == CLI_CONTINUE && !cli_interrupted()) {
        if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
            fputs("> ", stderr);
        ssize_t length = getline(&line, &capacity, stdin);
        if (length < 0)
            break;
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            line[--length] = 0;
        if (length == 0)
            continue;
        code = talk_add(talk, "user", line);
        if (code == CLI_CONTINUE)
            code = talk_turn(g, form, talk);
    }
    free(line);
    return code;
}

static int run_talk(struct generator *g, enum tcq_chat_form form, const char *system)
{
    struct talk talk = {0};
    int code = system ? talk_add(&talk, "system", system) : CLI_CONTINUE;
    if (code == CLI_CONTINUE)
        code = talk_run(g, form, &talk);
    talk_free(&talk);
    return code;
}

/* ---- The command ---- */

/* All of stdin, terminated. */
static int read_stdin(char **out)
{
    size_t capacity = 1 << 16, count = 0, got;
    char *text = malloc(capacity);
    while (text && (got = fread(text + count, 1, capacity - count - 1, stdin)) > 0) {
        count += got;
        if (count + 1 < capacity)
            continue;
        char *larger = capacity < PROMPT_NBYTES_MAX ? realloc(text, capacity *= 2) : NULL;
        if (!larger)
            free(text);
        text = larger;
    }
    if (!text)
        return cli_usage("the prompt on standard input is larger than %d MiB",
                         PROMPT_NBYTES_MAX >> 20);
    text[count] = 0;
    *out = text;
    if (count > 0 && strlen(text) == count)
        return CLI_CONTINUE;
    free(text);
    *out = NULL;
    if (count == 0)
        return cli_usage("no prompt: give one as an argument or on standard input");
    return cli_usage("the prompt on standard input has a zero byte");
}

static int run_prompt(struct generator *g, const struct options *options, const char *prompt)
{
    enum tcq_chat_form form = tcq_chat_form_of(g->tokenizer);
    if (options->raw || (form == TCQ_CHAT_NONE && !options->chat))
        return run_raw(g, prompt ? prompt : "");
    if (form == TCQ_CHAT_NONE) {
        cli_message("%s: no chat template of a known form (ChatML, Llama 2, Llama 3, Mistral): "
                    "use --raw",
                    g->path);
        return CLI_FAILED;
    }
    return prompt ? run_question(g, form, options->system, prompt)
                  : run_talk(g, form, options->system);
}

static int run_all(const struct options *options, const struct cli_args *args, const char *prompt)
{
    struct generator g;
    int code = generator_open(&g, args->operands[0], &options->generator, args);
    if (code == CLI_CONTINUE)
        code = run_prompt(&g, options, prompt);
    if (code == CLI_CONTINUE && !args->json)
        putchar('\n');
    fflush(stdout);
    if (code == CLI_CONTINUE)
        code = generator_report(&g);
    generator_close(&g);
    return code;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct options options = {.generator.max_tokens = 256};
    struct cli_args args;
    int code = cli_parse(self, argc, argv, 1, 2, set_option, &options, &args);
    if (code == CLI_CONTINUE && options.chat && options.raw)
        code = cli_usage("--chat and --raw exclude each other");
    if (code == CLI_CONTINUE && options.system && options.raw)
        code = cli_usage("--system needs a conversation, and --raw has none");
    if (code != CLI_CONTINUE)
        return code;
    char *piped = NULL;
    const char *prompt = args.operand_count > 1 ? args.operands[1] : NULL;
    if (!prompt && !options.chat && !isatty(STDIN_FILENO)) {
        code = read_stdin(&piped);
        prompt = piped;
    }
    cli_signals_catch();
    if (code == CLI_CONTINUE)
        code = run_all(&options, &args, prompt);
    free(piped);
    return code;
}

const struct cli_command cmd_run = {
    .name = "run",
    .summary = "Let a model continue a text or answer a question",
    .usage = "MODEL [PROMPT] [OPTION...]",
    .details =
        "MODEL is a folder (packed by tcq or mlx-bun, or unpacked), or a GGUF file. PROMPT comes\n"
        "from the command line or from standard input. A model with a chat template answers it\n"
        "as a question; --raw continues it as it is. With --chat and no PROMPT, every line of\n"
        "standard input is a question of one conversation.",
    .options = option_list,
    .common = CLI_JSON | CLI_QUIET | CLI_THREADS | CLI_CPU | CLI_DEVICE,
    .run = run,
};
