/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that decides the bytes of an output, as JSON: what --resume compares, and
 * what the parts of one output have in common.
 */
#ifndef TCQ_JOB_H
#define TCQ_JOB_H

#include "plan.h"

/* NULL without memory. */
json_t *job_options_json(const struct plan_options *options);
/* The options and, besides, the source's path, sizes and times. */
json_t *job_json(const struct plan_options *options, const struct tcq_source *source,
                 const char *path);

#endif
