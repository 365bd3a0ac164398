/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The constants by which tcq_linear divides and selects work on a CPU, in one
 * place.  None of them depends on the number of threads where it could change a
 * result; docs/benchmarking.md says how they were measured.
 */
#ifndef TCQ_LINEAR_PROFILE_H
#define TCQ_LINEAR_PROFILE_H

#include <stdint.h>

struct tcq_profile {
    /* reference numerics: the ranges of docs/numerics.md */
    uint32_t reference_matvec_m; /* reduce, scatter: up to here */
    uint32_t split_k_m;          /* axis 0: split-K up to here */
    uint32_t tiled_m;            /* axis 1: tiled up to here */
    /* fast numerics */
    uint32_t small_m; /* up to here weights are decoded in the product; above, expanded */
    uint64_t scatter_split_rows; /* about so many stored rows a partial sum (axis 0) */
    /* wide: a tile of expanded weights is wide_n x wide_depth bf16, for wide_m vectors */
    uint32_t wide_m, wide_n, wide_depth;
    /* sharing among threads; no effect on results */
    uint32_t items_per_thread;
    uint32_t item_rows_max;
    uint32_t scatter_long_m, scatter_items; /* axis 0: items a thread up to so many vectors */
    uint32_t prepare_inputs; /* a multiple of TCQ_INPUT_UNIT */
};

static const struct tcq_profile tcq_profile_cpu = {
    .reference_matvec_m = 4,
    .split_k_m = 8,
    .tiled_m = 32,
    .small_m = 32,
    /* 17408 rows make 5 splits: enough items for two threads in one column group
     * each, and partial sums of 1/3500 of the work. */
    .scatter_split_rows = 4096,
    /* 256 x 1024 bf16 are 512 KiB, a quarter of a 2 MiB second-level cache, beside
     * as much for the sums of 512 vectors. */
    .wide_m = 512,
    .wide_n = 256,
    .wide_depth = 1024,
    /* Threads of a shared machine are not equally fast; eight items each bound
     * what one late thread costs to about a sixteenth. */
    .items_per_thread = 8,
    .item_rows_max = 256,
    .scatter_long_m = 4,
    .scatter_items = 3,
    .prepare_inputs = 4096,
};

#endif
