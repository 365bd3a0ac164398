/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq bench --op encode: weights a second of the encoder, beside the rate at
 * which the processor could do its arithmetic, and the error it reaches.
 */
#ifndef TCQ_BENCH_ENCODE_H
#define TCQ_BENCH_ENCODE_H

#include "cli.h"

/* Every k in bits with every L; T weights a block.  The lines go to stdout,
 * and to the file `json` if that is not NULL.  CLI_CONTINUE, or an exit code after a message. */
int bench_encode(const struct cli_args *args, const uint32_t *bits, size_t bits_count,
                 const uint32_t *L, size_t L_count, uint32_t T, const char *json);

#endif
