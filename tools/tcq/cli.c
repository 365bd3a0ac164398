/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Option parsing (getopt_long under a table), help, and messages.
 */
#include "cli.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/utf8.h"

enum { OPTIONS_MAX = 48, HELP_COLUMN = 26, HELP_WIDTH = 90 };

static const struct {
    uint32_t flag;
    struct cli_option option;
} common_options[] = {
    {CLI_THREADS, {CLI_KEY_COMMON + 1, "threads", "N", "threads to use (default: all processors)"}},
    {CLI_CPU, {CLI_KEY_COMMON + 2, "cpu", "SET", "instruction set: scalar, avx2, avx512, neon"}},
    {CLI_DEVICE, {CLI_KEY_COMMON + 4, "device", "NAME", "cpu (the default), or cuda: an NVIDIA GPU"}},
    {CLI_JSON, {CLI_KEY_COMMON + 3, "json", NULL, "print JSON"}},
    {CLI_QUIET, {'q', "quiet", NULL, "no progress and no notes; errors only"}},
    {~0u, {'h', "help", NULL, "print this help"}},
};
enum { COMMON_COUNT = sizeof common_options / sizeof *common_options };

static const char *current_command = NULL;

/* ---- Messages ---- */

static void print_message(const char *format, va_list args)
{
    fflush(stdout);
    fputs("tcq: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void cli_message(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_message(format, args);
    va_end(args);
}

int cli_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_message(format, args);
    va_end(args);
    if (current_command)
        fprintf(stderr, "Try 'tcq %s --help'.\n", current_command);
    else
        fputs("Try 'tcq --help'.\n", stderr);
    return CLI_USAGE;
}

int cli_usage_names(const char *option, const char *text, const char *const *names, size_t count)
{
    char list[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 i == 0           ? ""
                                 : i + 1 == count ? " or "
                                                  : ", ",
                                 names[i]);
    return cli_usage("%s '%s' is unknown: expected %s", option, text, list);
}

int cli_fail(const char *file, const struct tcq_error *error)
{
    const char *message = *error->message ? error->message : tcq_status_string(error->status);
    const char *slash = file ? strrchr(file, '/') : NULL;
    const char *base = slash && slash[1] ? slash + 1 : file;
    bool named = !file || strncmp(message, file, strlen(file)) == 0 ||
                 strncmp(message, base, strlen(base)) == 0;
    if (named)
        cli_message("%s", message);
    else
        cli_message("%s: %s", file, message);
    return CLI_FAILED;
}

int cli_out_of_memory(void)
{
    cli_message("out of memory");
    return CLI_FAILED;
}

/* ---- Help ---- */

/* Words of a help text from HELP_COLUMN on, in lines of at most HELP_WIDTH. */
static void print_wrapped(const char *text)
{
    size_t column = HELP_COLUMN;
    while (*text) {
        size_t word = strcspn(text, " \n");
        if (column > HELP_COLUMN && column + 1 + word > HELP_WIDTH)
            printf("\n%*s", HELP_COLUMN, ""), column = HELP_COLUMN;
        if (column > HELP_COLUMN)
            putchar(' '), column++;
        printf("%.*s", (int)word, text);
        column += word;
        text += word + (text[word] != '\0');
    }
    putchar('\n');
}

static void print_option(const struct cli_option *option)
{
    char left[64];
    int n;
    if (option->key < CLI_KEY_LONG)
        n = snprintf(left, sizeof left, "  -%c, --%s", option->key, option->name);
    else
        n = snprintf(left, sizeof left, "      --%s", option->name);
    if (option->argument && n > 0 && (size_t)n < sizeof left)
        n += snprintf(left + n, sizeof left - (size_t)n, " %s", option->argument);
    printf("%-*s", HELP_COLUMN, left);
    if (n >= HELP_COLUMN)
        printf("\n%*s", HELP_COLUMN, "");
    print_wrapped(option->help);
}

void cli_print_help(const struct cli_command *command)
{
    printf("Usage: tcq %s %s\n\n%s.\n", command->name, command->usage, command->summary);
    if (command->details)
        printf("\n%s\n", command->details);
    puts("\nOptions:");
    for (const struct cli_option *o = command->options; o && o->name; o++)
        print_option(o);
    for (size_t i = 0; i < COMMON_COUNT; i++)
        if (common_options[i].flag == ~0u || (command->common & common_options[i].flag))
            print_option(&common_options[i].option);
}

/* ---- Parsing ---- */

struct parser {
    struct option longs[OPTIONS_MAX];
    char shorts[2 * OPTIONS_MAX + 2];
    size_t count, short_count;
};

static void parser_add(struct parser *parser, const struct cli_option *option)
{
    if (parser->count + 1 >= OPTIONS_MAX)
        return; /* no command comes near; the longs stay terminated */
    parser->longs[parser->count++] = (struct option){
        option->name, option->argument ? required_argument : no_argument, NULL, option->key};
    if (option->key < CLI_KEY_LONG) {
        parser->shorts[parser->short_count++] = (char)option->key;
        if (option->argument)
            parser->shorts[parser->short_count++] = ':';
    }
}

static void parser_build(struct parser *parser, const struct cli_command *command)
{
    parser->shorts[parser->short_count++] =
        ':'; /* tell a missing argument from an unknown option */
    for (const struct cli_option *o = command->options; o && o->name; o++)
        parser_add(parser, o);
    for (size_t i = 0; i < COMMON_COUNT; i++)
        if (common_options[i].flag == ~0u || (command->common & common_options[i].flag))
            parser_add(parser, &common_options[i].option);
}

static int set_cpu(struct cli_args *args, const char *name)
{
    static const struct {
        const char *name;
        uint32_t needs, allows;
    } sets[] = {
        {"scalar", 0, 0},
        {"avx2", TCQ_CPU_AVX2, TCQ_CPU_AVX2},
        {"avx512", TCQ_CPU_AVX512, 0xffffu},
        {"neon", TCQ_CPU_NEON, TCQ_CPU_NEON | TCQ_CPU_NEON_DOTPROD},
    };
    uint32_t detected = tcq_cpu_detect();
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (strcmp(name, sets[i].name) != 0)
            continue;
        if (sets[i].needs & ~detected)
            return cli_usage("--cpu %s: this processor does not have it", name);
        args->limit_cpu = true;
        args->cpu_flags = detected & sets[i].allows;
        return CLI_CONTINUE;
    }
    return cli_usage("--cpu '%s': expected scalar, avx2, avx512 or neon", name);
}

/* Threads beyond the processors only wait for one another: with a thousand of them a token
 * took seconds on two.  Some more are allowed, to see that results do not depend on them. */
static uint32_t threads_max(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 64 ? (uint32_t)online : 64;
}

static int set_common(const struct cli_command *command, struct cli_args *args, int key,
                      const char *value)
{
    switch (key) {
    case 'h':
        cli_print_help(command);
        return CLI_OK;
    case 'q':
        args->quiet = true;
        return CLI_CONTINUE;
    case CLI_KEY_COMMON + 1:
        return cli_parse_u32("--threads", value, 1, threads_max(), &args->threads);
    case CLI_KEY_COMMON + 2:
        return set_cpu(args, value);
    case CLI_KEY_COMMON + 4:
        args->cuda = !strcmp(value, "cuda");
        return args->cuda || !strcmp(value, "cpu")
                   ? CLI_CONTINUE
                   : cli_usage("--device '%s': expected cpu or cuda", value);
    default:
        args->json = true;
        return CLI_CONTINUE;
    }
}

static int one_option(const struct cli_command *command, struct cli_args *args, int key,
                      const char *given, cli_option_fn set, void *user)
{
    if (key == ':')
        return cli_usage("option '%s' needs an argument", given);
    if (key == '?')
        return cli_usage("unknown option '%s'", given);
    for (size_t i = 0; i < COMMON_COUNT; i++)
        if (key == common_options[i].option.key)
            return set_common(command, args, key, optarg);
    return set(user, key, optarg);
}

int cli_parse(const struct cli_command *command, int argc, char **argv, int operands_min,
              int operands_max, cli_option_fn set, void *user, struct cli_args *out)
{
    struct parser parser = {0};
    parser_build(&parser, command);
    *out = (struct cli_args){0};
    current_command = command->name;
    opterr = 0;
    optind = 1;
    for (;;) {
        int at = optind;
        int key = getopt_long(argc, argv, parser.shorts, parser.longs, NULL);
        if (key == -1)
            break;
        /* getopt names the letter of a bad short option only in optopt */
        char letter[3] = {'-', (char)optopt, '\0'};
        const char *given = argv[optind > at ? optind - 1 : at];
        if ((key == '?' || key == ':') && optopt > 0 && optopt < CLI_KEY_LONG)
            given = letter;
        int code = one_option(command, out, key, given, set, user);
        if (code != CLI_CONTINUE)
            return code;
    }
    out->operands = argv + optind;
    out->operand_count = argc - optind;
    if (out->operand_count < operands_min)
        return cli_usage("%s: too few arguments (usage: tcq %s %s)", command->name, command->name,
                         command->usage);
    if (out->operand_count > operands_max)
        return cli_usage("%s: unexpected argument '%s'", command->name,
                         out->operands[operands_max]);
    return CLI_CONTINUE;
}

enum tcq_status cli_context(const struct cli_args *args, struct tcq_context **out)
{
    struct tcq_context_options options = {args->threads, args->limit_cpu, args->cpu_flags,
                                          args->cuda ? TCQ_DEVICE_CUDA : TCQ_DEVICE_CPU};
    struct tcq_error error = {0};
    enum tcq_status status = tcq_context_create(&options, out, &error);
    if (status != TCQ_OK)
        cli_fail(NULL, &error);
    return status;
}

json_t *cli_json_text(const char *text)
{
    const uint8_t *bytes = (const uint8_t *)text;
    size_t nbytes = strlen(text), used = 0;
    char *valid = malloc(3 * nbytes + 1); /* U+FFFD takes three bytes */
    for (size_t at = 0, length; valid && at < nbytes; at += length) {
        uint32_t code = 0xfffd;
        length = tcq_utf8_decode(bytes + at, nbytes - at, &code);
        if (length == 0)
            length = 1;
        used += tcq_utf8_encode((uint8_t *)valid + used, code);
    }
    json_t *json = valid ? json_stringn(valid, used) : NULL;
    free(valid);
    return json;
}

int cli_print_json(json_t *json)
{
    if (!json)
        return cli_out_of_memory();
    bool failed = json_dumpf(json, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER) != 0;
    json_decref(json);
    putchar('\n');
    return failed ? CLI_FAILED : CLI_OK;
}
