/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every sub-command shares: the shape of a command, option parsing and
 * help, messages, numbers and units, progress, signals.
 *
 * Data goes to stdout, messages and progress to stderr.  Messages read
 * "tcq: FILE: WHAT".
 */
#ifndef TCQ_CLI_H
#define TCQ_CLI_H

#include <jansson.h>
#include <stdio.h>

#include "tcq.h"

/* Exit codes of the command. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_MISMATCH = 3 /* verify: the files do not agree */
};
/* cli_parse: nothing to report, go on. */
enum { CLI_CONTINUE = -1 };

/* ---- Commands and options ---- */

/* One option of a command.  key: its short letter, or a number from
 * CLI_KEY_LONG for an option without one.  argument NULL: it takes none. */
struct cli_option {
    int key;
    const char *name;
    const char *argument;
    const char *help;
};
enum { CLI_KEY_LONG = 256, CLI_KEY_COMMON = 512 };

/* Options that cli_parse itself understands, where a command asks for them. */
enum cli_common {
    CLI_JSON = 1u << 0,    /* --json */
    CLI_QUIET = 1u << 1,   /* -q, --quiet */
    CLI_THREADS = 1u << 2, /* --threads N */
    CLI_CPU = 1u << 3,     /* --cpu scalar|avx2|avx512|neon */
    CLI_DEVICE = 1u << 4   /* --device cpu|cuda */
};

struct cli_command {
    const char *name;
    const char *summary;              /* one line, for `tcq --help` */
    const char *usage;                /* operands and options in short: "PATH [OPTION...]" */
    const char *details;              /* further paragraphs of its help, or NULL */
    const struct cli_option *options; /* ends with a NULL name; may be NULL */
    uint32_t common;                  /* of enum cli_common */
    int (*run)(const struct cli_command *self, int argc, char **argv);
};

/* What cli_parse found.  operands points into argv. */
struct cli_args {
    bool json, quiet;
    uint32_t threads; /* 0: as many as there are processors */
    bool limit_cpu;
    uint32_t cpu_flags;
    bool cuda; /* --device cuda */
    char **operands;
    int operand_count;
};

/* Called for each option of the command's own; value is NULL where it takes
 * no argument.  Returns CLI_CONTINUE or, after a message, an exit code. */
typedef int (*cli_option_fn)(void *user, int key, const char *value);

/* Parses argv (argv[0] is the command's name).  Options and operands may be
 * mixed; operand counts outside [operands_min, operands_max] are refused.
 * Returns CLI_CONTINUE, or the exit code to end with (--help prints to stdout
 * and ends with CLI_OK). */
int cli_parse(const struct cli_command *command, int argc, char **argv, int operands_min,
              int operands_max, cli_option_fn set, void *user, struct cli_args *out);

void cli_print_help(const struct cli_command *command);

/* A context with the threads and instruction sets of args; prints why not. */
enum tcq_status cli_context(const struct cli_args *args, struct tcq_context **out);

/* ---- Messages ---- */

/* "tcq: " message, to stderr. */
void cli_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with a pointer to --help; returns CLI_USAGE. */
int cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same: "OPTION 'TEXT' is unknown: expected A, B or C", of `count` names. */
int cli_usage_names(const char *option, const char *text, const char *const *names, size_t count);
/* Prints a library error ("tcq: file: message"; file may be NULL, and is left
 * out where the message already begins with it); returns CLI_FAILED. */
int cli_fail(const char *file, const struct tcq_error *error);
int cli_out_of_memory(void);

/* ---- Numbers ---- */

/* Parse a whole decimal number in [min, max]; on failure a usage message that
 * names `option`. */
int cli_parse_u32(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out);
/* Bytes with an optional unit: 1048576, 64K, 512MiB, 5GiB, 1.5GB (GB = 10^9,
 * G and GiB = 2^30). */
int cli_parse_nbytes(const char *option, const char *text, uint64_t *out);

/* Text of a number of bytes ("1.25 GiB"), of a count ("134.5 M") and of a
 * time ("2 m 05 s"). */
struct cli_text {
    char s[32];
};
struct cli_text cli_nbytes_text(uint64_t nbytes);
struct cli_text cli_count_text(double count);
struct cli_text cli_time_text(double seconds);

/* Seconds of a clock that only goes forward. */
double cli_seconds(void);

/* A string of JSON, which is UTF-8 and a path need not be: other bytes become
 * U+FFFD.  NULL: out of memory. */
json_t *cli_json_text(const char *text);
/* Prints json to stdout and releases it (NULL: out of memory). */
int cli_print_json(json_t *json);

/* ---- Progress ---- */

/* A line on stderr with share, rate and time left; silent unless stderr is a
 * terminal and --quiet is not given. */
struct cli_progress {
    bool active;
    const char *label;
    const char *unit;      /* of total: "weights", "B" */
    uint64_t total, first; /* first: what was done before this run began */
    double started, shown;
};
void cli_progress_start(struct cli_progress *progress, const struct cli_args *args,
                        const char *label, const char *unit, uint64_t first, uint64_t total);
/* detail (may be NULL) names what is being worked on. */
void cli_progress_show(struct cli_progress *progress, uint64_t done, const char *detail);
void cli_progress_end(struct cli_progress *progress);

/* ---- Signals ---- */

/* SIGINT and SIGTERM set a flag; a second one ends the program at once. */
void cli_signals_catch(void);
/* A mapped file that is cut off while it is read ends the program with a message. */
void cli_signals_explain(void);
bool cli_interrupted(void);

#endif
