/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling in struct tcq_error.  Every failing function ends in
 *     return tcq_error_set(error, TCQ_ERROR_FORMAT, "offset %zu past end (%zu)", ...);
 * so that status and message are set in one place.
 */
#ifndef TCQ_BASE_ERROR_H
#define TCQ_BASE_ERROR_H

#include "tcq.h"

/* Sets *error (may be NULL) and returns status. */
enum tcq_status tcq_error_set(struct tcq_error *error, enum tcq_status status, const char *format,
                              ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message already in *error (may be NULL) and
 * returns its status. */
enum tcq_status tcq_error_prefix(struct tcq_error *error, enum tcq_status status,
                                 const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "out of memory: %zu bytes for WHAT". */
enum tcq_status tcq_error_memory(struct tcq_error *error, size_t nbytes, const char *what);

#endif
