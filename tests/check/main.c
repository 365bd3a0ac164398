/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel harness: every variant of kernels.def against the plain decoder or
 * float64.  Usage:
 *     check_kernels [--full] [--op NAME] [--isa NAME] [--seed N] [--bench] [--self-test]
 * TCQ_FULL in the environment means --full.  Exit 0: all checks passed, and there
 * were some; 1: a failure, or nothing was checked; 2: usage.
 */
#include "check/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES_MAX = 5 }; /* a variant */

bool check_that(struct check *check, bool ok, const char *format, ...)
{
    check->checks++;
    if (ok)
        return true;
    if (check->failures++ < MESSAGES_MAX) {
        va_list args;
        va_start(args, format);
        printf("FAILED %s_%s [%s]: ", check->variant->operation, check->variant->isa, check->where);
        vprintf(format, args);
        printf(" (--seed %llu)\n", (unsigned long long)check->seed);
        va_end(args);
    }
    return false;
}

/* A case draws from the seed and its own description, so that it stays the same
 * when others are added or left out. */
struct random check_case(struct check *check, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(check->where, sizeof check->where, format, args);
    va_end(args);
    uint64_t hash = check->seed;
    for (const char *c = check->where; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    return (struct random){hash};
}

struct options {
    bool full, bench, self_test;
    const char *op, *isa;
    uint64_t seed;
};

static int usage(void)
{
    fprintf(stderr, "usage: check_kernels [--full] [--op NAME] [--isa NAME] [--seed N] [--bench] "
                    "[--self-test]\n");
    return 2;
}

static bool parse(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--full") == 0)
            o->full = true;
        else if (strcmp(argv[i], "--bench") == 0)
            o->bench = true;
        else if (strcmp(argv[i], "--self-test") == 0)
            o->self_test = true;
        else if (strcmp(argv[i], "--op") == 0 && value)
            o->op = argv[++i];
        else if (strcmp(argv[i], "--isa") == 0 && value)
            o->isa = argv[++i];
        else if (strcmp(argv[i], "--seed") == 0 && value)
            o->seed = strtoull(argv[++i], NULL, 0);
        else
            return false;
    }
    return true;
}

static void run_variant(struct check *check)
{
    switch (check->variant->op) {
    case TCQ_KERNEL_EXPAND:
        check_expand(check);
        break;
    case TCQ_KERNEL_GEMM:
        check_gemm(check);
        break;
    case TCQ_KERNEL_WIDE:
        check_wide(check);
        break;
    default:
        check_small(check);
    }
}

static int check_all(const struct options *o)
{
    size_t count;
    const struct tcq_kernel_variant *variants = tcq_kernels_all(&count);
    uint32_t flags = tcq_cpu_detect();
    uint64_t checks = 0, failures = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tcq_kernel_variant *v = &variants[i];
        if ((o->op && strcmp(o->op, v->operation) != 0) || (o->isa && strcmp(o->isa, v->isa) != 0))
            continue;
        if (v->needs & ~flags) {
            printf("NOT RUN %s_%s: this processor lacks %#x\n", v->operation, v->isa,
                   v->needs & ~flags);
            continue;
        }
        if (o->bench) {
            bench_variant(v);
            continue;
        }
        struct check check = {.full = o->full, .seed = o->seed, .variant = v};
        run_variant(&check);
        printf("%s %s_%s: %llu checks, %llu failed\n", check.failures ? "FAILED" : "ok",
               v->operation, v->isa, (unsigned long long)check.checks,
               (unsigned long long)check.failures);
        fflush(stdout);
        failures += check.failures + (check.checks == 0); /* a variant that nothing tested */
        checks += check.checks;
    }
    if (o->bench)
        return 0;
    printf("%llu checks, %llu failed (seed %llu, %s sweep)\n", (unsigned long long)checks,
           (unsigned long long)failures, (unsigned long long)o->seed, o->full ? "full" : "quick");
    if (checks == 0)
        printf("FAILED: nothing was checked\n");
    return failures || checks == 0;
}

int main(int argc, char **argv)
{
    const char *seed = getenv("TCQ_SEED");
    struct options o = {.seed = seed ? strtoull(seed, NULL, 0) : 1, .full = getenv("TCQ_FULL")};
    if (!parse(&o, argc, argv))
        return usage();
    if (!o.self_test)
        return check_all(&o);
    int missed = check_self_test(o.seed);
    printf("%s\n", missed ? "FAILED: a planted fault went unnoticed" : "every fault was noticed");
    return missed != 0;
}
