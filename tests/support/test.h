/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every cmocka program includes, and a small seeded generator whose
 * numbers are the same everywhere.
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

/* splitmix64 (Steele, Lea, Flood 2014): any seed will do, zero too. */
struct random {
    uint64_t state;
};

static inline uint64_t random_u64(struct random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t random_below(struct random *r, uint32_t bound)
{
    return (uint32_t)((random_u64(r) >> 32) * bound >> 32);
}

/* Standard normal (Box and Muller). */
static inline float random_normal(struct random *r)
{
    double u = ((double)(random_u64(r) >> 11) + 0.5) * 0x1p-53;
    double v = (double)(random_u64(r) >> 11) * 0x1p-53;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

/* A seed from TCQ_SEED, else `fallback`; printed, so that a failure can be repeated. */
static inline struct random random_start(const char *name, uint64_t fallback)
{
    const char *text = getenv("TCQ_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : fallback;
    print_message("%s: TCQ_SEED=%llu\n", name, (unsigned long long)seed);
    return (struct random){seed};
}

#endif
