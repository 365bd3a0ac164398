/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights beyond the code's reach.  What lies further out than the code's
 * largest value times the scale is cut off: little of the relative error, but
 * some models hang on such weights.
 */
#ifndef TCQ_CLIP_H
#define TCQ_CLIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct clip_reach {
    double lowest, highest; /* of the code, at scale 1 */
    double normal;          /* the part of their energy that normal weights lose */
};

/* Sums over weights. */
struct clip {
    double energy, beyond; /* w^2, and the square of what is cut off */
    uint64_t weights, clipped;
};

struct clip_reach clip_reach_of(uint32_t L);
/* Adds `count` weights; weight i has the binary16 scale scales[i * step], step 0 or 1. */
void clip_add(struct clip *clip, const struct clip_reach *reach, const float *weights,
              const uint16_t *scales, size_t step, size_t count);
void clip_join(struct clip *clip, const struct clip *other);
/* The part of the energy that is cut off. */
double clip_share(const struct clip *clip);
/* Whether that is far more than normal weights lose. */
bool clip_is_large(const struct clip *clip, const struct clip_reach *reach);
/* The warning about `count` tensors of which `name` is the worst. */
void clip_warn(const char *path, size_t count, const char *name, const struct clip *worst);

#endif
