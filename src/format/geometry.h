/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules on k, L and T shared by everything that touches a block.
 */
#ifndef TCQ_FORMAT_GEOMETRY_H
#define TCQ_FORMAT_GEOMETRY_H

#include "tcq.h"

enum {
    TCQ_T_MAX = 256,
    TCQ_BLOCK_WORDS_MAX = TCQ_T_MAX * 6 / 32,
    /* The interleaved layout: pairs of blocks of 24 words. */
    TCQ_INTERLEAVE_BLOCKS = 2
};

/* k, L and T alone: TCQ_OK, or TCQ_ERROR_GEOMETRY with the rule broken. */
enum tcq_status tcq_geometry_check_code(uint32_t k, uint32_t L, uint32_t T,
                                        struct tcq_error *error);

#endif
