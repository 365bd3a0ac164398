/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tail-biting Viterbi over the bitshift trellis: the tables of one trellis and
 * the solvers, one an instruction set, that all give the same states.
 *
 * Names used throughout (docs/encoder.md has the pictures):
 *   state    n < 2^L; its symbol is n & (2^k - 1)
 *   group    j < 2^(L-k): the 2^k states n with n >> k == j, which share their
 *            predecessors j' = j + m*2^(L-k), m < 2^k
 *   boundary i of a pass lies before its position i; a group is what a path is
 *            in at a boundary: it has left state p with p mod 2^(L-k) == j and
 *            enters a state n with n >> k == j
 *   metric   of a group at a boundary: the greatest sum of emissions of a path
 *            from the pass's start that is in the group there
 */
#ifndef TCQ_ENCODE_VITERBI_H
#define TCQ_ENCODE_VITERBI_H

#include <stddef.h>
#include <stdint.h>

#include "tcq.h"

/* What a path that breaks a constraint starts from.  A block's emissions add
 * up to less than its unit in the last place (2^76), so it stays what it is. */
#define TCQ_VITERBI_FORBIDDEN (-1e30f)

/* Blocks that a solver may be given at once. */
enum { TCQ_VITERBI_BLOCKS_MAX = 4 };

/* The code's integers run from -510 to 510. */
enum { TCQ_TRELLIS_LEVELS = 1021 };

/* The emissions of one trellis, as its solver reads them. */
struct tcq_trellis {
    uint32_t k, L;
    float *levels;   /* scalar: [TCQ_TRELLIS_LEVELS], the values that a state can emit */
    uint16_t *level; /* scalar: [2^L], which of them each state emits */
    float *forward;  /* vector: [2^L / lanes][2][lanes], value and -(value^2), in step order */
    float *backward; /* vector: [2^(L-k)][2][2^k], the same, by group left and predecessor */
};

/* One solver.  Several may exist in one process; they share nothing. */
struct tcq_viterbi {
    const char *isa;
    uint32_t cpu_flags;  /* enum tcq_cpu_flag that it needs */
    uint32_t lanes_log2; /* float32 a vector; 0 for plain C */

    /* Blocks that it solves best at once, and has workspace for. */
    uint32_t (*blocks)(uint32_t L);

    /* Bytes of workspace for one thread. */
    size_t (*work_nbytes)(uint32_t k, uint32_t L, uint32_t T);

    /* The states [blocks][T] of the tail-biting paths through x [blocks][T],
     * blocks <= this->blocks(L).  work is aligned to 64 bytes.  T may be any
     * number with T*k >= L; only files limit it further. */
    void (*solve)(uint16_t *states, const float *x, uint32_t T, uint32_t blocks,
                  const struct tcq_trellis *trellis, void *work);
};

extern const struct tcq_viterbi tcq_viterbi_scalar;
#if defined(__x86_64__)
extern const struct tcq_viterbi tcq_viterbi_avx2;
extern const struct tcq_viterbi tcq_viterbi_avx512;
#elif defined(__aarch64__)
extern const struct tcq_viterbi tcq_viterbi_neon;
#endif

/* Every solver of this build, the best first; NULL ends the list. */
extern const struct tcq_viterbi *const tcq_viterbi_all[];

/* The best solver that needs nothing beyond cpu_flags. */
const struct tcq_viterbi *tcq_viterbi_select(uint32_t cpu_flags);

/* The tables that `solver` reads; bytes held are added to *nbytes.
 * Errors: MEMORY. */
enum tcq_status tcq_trellis_init(struct tcq_trellis *trellis, const struct tcq_viterbi *solver,
                                 uint32_t k, uint32_t L, size_t *nbytes, struct tcq_error *error);
void tcq_trellis_free(struct tcq_trellis *trellis);

#endif
