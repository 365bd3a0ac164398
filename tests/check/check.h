/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel harness: what its files share.
 */
#ifndef TESTS_CHECK_CHECK_H
#define TESTS_CHECK_CHECK_H

#include <math.h>

#include "check/guard.h"
#include "kernel/kernel.h"
#include "support/random.h"

/* One run of the program. */
struct check {
    bool full;       /* the long sweep */
    uint64_t seed;   /* of the run; every case draws from seed and its own number */
    uint64_t checks; /* cases done and passed or failed */
    uint64_t failures;
    const struct tcq_kernel_variant *variant;
    char where[256]; /* the case being run, for messages */
};

/* Counts a check; prints variant, case and message if it failed, up to a few a
 * variant.  Returns ok. */
bool check_that(struct check *check, bool ok, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The next case's own generator. */
struct random check_case(struct check *check, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void check_small(struct check *check);
void check_expand(struct check *check);
void check_gemm(struct check *check);
void check_wide(struct check *check);
/* Every kind of corruption that the harness claims to find, planted; returns the
 * number that went unnoticed. */
int check_self_test(uint64_t seed);

/* Times every selected variant; nothing is checked. */
void bench_variant(const struct tcq_kernel_variant *variant);

#endif
