/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every cmocka program includes.
 */
#ifndef TESTS_SUPPORT_TEST_H
#define TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/random.h"

/* A seed from TCQ_SEED, else `fallback`; printed, so that a failure can be repeated. */
static inline struct random random_start(const char *name, uint64_t fallback)
{
    const char *text = getenv("TCQ_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : fallback;
    print_message("%s: TCQ_SEED=%llu\n", name, (unsigned long long)seed);
    return (struct random){seed};
}

#endif
