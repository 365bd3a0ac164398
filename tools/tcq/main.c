/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq: a table of sub-commands.  To add one: define its struct cli_command in
 * cmd_NAME.c, declare it in commands.h, list it here and in CMakeLists.txt.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"

static const struct cli_command *const commands[] = {
    &cmd_quantize, &cmd_merge, &cmd_inspect, &cmd_verify, &cmd_dequantize, &cmd_run,
    &cmd_eval,     &cmd_matmul, &cmd_bench, &cmd_synth, &cmd_info,
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static const struct cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static void print_overview(FILE *to)
{
    fputs("Usage: tcq COMMAND [ARGUMENT...]\n\n"
          "Trellis-coded quantization of LLM weights.\n\nCommands:\n",
          to);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n'tcq COMMAND --help' explains a command; 'tcq --version' prints the version.\n"
          "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 verification found a mismatch.\n",
          to);
}

static int run_command(int argc, char **argv)
{
    const struct cli_command *command = find_command(argv[0]);
    if (!command)
        return cli_usage("unknown command '%s'", argv[0]);
    return command->run(command, argc, argv);
}

static int help_command(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stdout);
        return CLI_OK;
    }
    const struct cli_command *command = find_command(argv[1]);
    if (!command)
        return cli_usage("unknown command '%s'", argv[1]);
    cli_print_help(command);
    return CLI_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    const char *first = argv[1];
    if (strcmp(first, "--version") == 0) {
        printf("tcq %s\n", tcq_version());
        return CLI_OK;
    }
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0 || strcmp(first, "help") == 0)
        return help_command(argc - 1, argv + 1);
    return run_command(argc - 1, argv + 1);
}

/* Where standard input, output or error is closed, the next file that is opened takes its
 * number, and a message would be written into a model.  For reading only, so that what is
 * written to a closed output still fails. */
static void hold_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) != fd)
            return; /* no /dev/null: as it was */
}

int main(int argc, char **argv)
{
    hold_standard_descriptors();
    cli_signals_explain();
    int code = dispatch(argc, argv);
    /* Output that did not reach its file is a failure, whatever the command thought. */
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_OK) {
        cli_message("standard output: %s", errno ? strerror(errno) : "write failed");
        code = CLI_FAILED;
    }
    return code;
}
