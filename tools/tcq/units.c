/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers, units, time, progress and signals of the command.
 */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* ---- Numbers in ---- */

int cli_parse_u32(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || value < min || value > max)
        return cli_usage("%s '%s': expected a whole number from %u to %u", option, text, min, max);
    *out = (uint32_t)value;
    return CLI_CONTINUE;
}

int cli_parse_nbytes(const char *option, const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {
        {"", 1},       {"B", 1},        {"K", 0x1p10},   {"KiB", 0x1p10}, {"KB", 1e3},
        {"M", 0x1p20}, {"MiB", 0x1p20}, {"MB", 1e6},     {"G", 0x1p30},   {"GiB", 0x1p30},
        {"GB", 1e9},   {"T", 0x1p40},   {"TiB", 0x1p40}, {"TB", 1e12},
    };
    char *end = NULL;
    double value = isdigit((unsigned char)*text) ? strtod(text, &end) : -1;
    for (size_t i = 0; value >= 0 && i < sizeof units / sizeof *units; i++)
        if (strcasecmp(end, units[i].name) == 0 && value * units[i].factor < 0x1p62) {
            *out = (uint64_t)(value * units[i].factor);
            return CLI_CONTINUE;
        }
    return cli_usage("%s '%s': expected a size such as 512MiB or 5GiB", option, text);
}

/* ---- Numbers out ---- */

struct cli_text cli_nbytes_text(uint64_t nbytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct cli_text text;
    double value = (double)nbytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1024;
    snprintf(text.s, sizeof text.s, "%.*f %s", unit ? 2 : 0, value, units[unit]);
    return text;
}

struct cli_text cli_count_text(double count)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    struct cli_text text;
    size_t unit = 0;
    for (; count >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++)
        count /= 1000;
    snprintf(text.s, sizeof text.s, "%.*f%s", unit ? 2 : 0, count, units[unit]);
    return text;
}

struct cli_text cli_time_text(double seconds)
{
    struct cli_text text;
    uint64_t s = seconds > 0 && seconds < 1e15 ? (uint64_t)(seconds + 0.5) : 0;
    if (seconds < 9.95)
        snprintf(text.s, sizeof text.s, "%.1f s", seconds > 0 ? seconds : 0.0);
    else if (s < 60)
        snprintf(text.s, sizeof text.s, "%u s", (unsigned)s);
    else if (s < 3600)
        snprintf(text.s, sizeof text.s, "%u m %02u s", (unsigned)(s / 60), (unsigned)(s % 60));
    else
        snprintf(text.s, sizeof text.s, "%llu h %02u m", (unsigned long long)(s / 3600),
                 (unsigned)(s / 60 % 60));
    return text;
}

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Progress ---- */

void cli_progress_start(struct cli_progress *progress, const struct cli_args *args,
                        const char *label, const char *unit, uint64_t first, uint64_t total)
{
    *progress = (struct cli_progress){
        .active = !args->quiet && isatty(STDERR_FILENO),
        .label = label,
        .unit = unit,
        .first = first,
        .total = total,
        .started = cli_seconds(),
    };
}

void cli_progress_show(struct cli_progress *progress, uint64_t done, const char *detail)
{
    double now = cli_seconds();
    if (!progress->active || now - progress->shown < 0.2)
        return;
    progress->shown = now;
    double share = progress->total ? (double)done / (double)progress->total : 1;
    fprintf(stderr, "\r\033[K%s %5.1f %%", progress->label, 100 * share);
    double elapsed = now - progress->started;
    if (elapsed > 0.5 && done > progress->first) {
        double rate = (double)(done - progress->first) / elapsed;
        fprintf(stderr, "  %s %s/s  %s left", cli_count_text(rate).s, progress->unit,
                cli_time_text((double)(progress->total - done) / rate).s);
    }
    if (detail)
        fprintf(stderr, "  %s", detail);
    fflush(stderr);
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->active && progress->shown > 0)
        fputs("\r\033[K", stderr);
    progress->active = false;
}

/* ---- Signals ---- */

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

void cli_signals_catch(void)
{
    /* SA_RESETHAND: the second signal has its usual effect. */
    struct sigaction action = {.sa_handler = on_signal,
                               .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* Files are mapped: reading beyond the end of one that was cut off since comes as
 * this signal, and so does a disk that fails. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char message[] =
        "tcq: a file that was being read was cut off meanwhile, or its disk failed\n";
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL); /* a fault of the program: again, without us */
        return;
    }
    ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
    (void)written;
    _exit(CLI_FAILED);
}

void cli_signals_explain(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}
