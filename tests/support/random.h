/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small seeded generator whose numbers are the same everywhere.
 */
#ifndef TESTS_SUPPORT_RANDOM_H
#define TESTS_SUPPORT_RANDOM_H

#include <math.h>
#include <stdint.h>

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

#endif
