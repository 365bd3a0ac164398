/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two models compared weight by weight: how far a packed one is from its
 * source, and whether what was kept is the same.
 */
#ifndef TCQ_COMPARE_H
#define TCQ_COMPARE_H

#include "clip.h"
#include "model_view.h"

/* One tensor against the same tensor of the source. */
struct comparison {
    double squared_error, squared_source; /* sums */
    double largest_error;                 /* absolute */
    uint64_t largest_at;                  /* flat index */
    double largest_in_rms;                /* the largest error over the RMS of its row */
    struct clip clip;                     /* of a packed tensor: the source beyond its reach */
    uint64_t different;                   /* of a kept tensor: elements that are not the
                                           * source's, rounded to the type they are kept in */
};

/* Relative mean squared error; 0 where both are all zero. */
double comparison_relative(const struct comparison *comparison);

/* Compares item with `source_item`, both of one shape, on the context's
 * threads.  The sums are the same for every number of threads. */
enum tcq_status compare_items(struct comparison *out, struct tcq_context *context,
                              const struct model_view *view, const struct model_item *item,
                              const struct model_view *source, const struct model_item *source_item,
                              struct tcq_error *error);

#endif
