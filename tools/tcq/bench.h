/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq bench, divided: bench_case.c makes layers and checks them, bench_time.c
 * measures a case in turns with the machine's limits, cmd_bench.c reads options
 * and reports.
 */
#ifndef TCQ_BENCH_H
#define TCQ_BENCH_H

#include "bench_probe.h"
#include "cli.h"

/* What is measured. */
enum bench_op {
    BENCH_AUTO = 0,  /* what tcq_linear selects */
    BENCH_REFERENCE, /* the same with reference numerics */
    BENCH_SMALL,
    BENCH_WIDE,
    BENCH_WIDE_INT16,
    BENCH_REDUCE,
    BENCH_SCATTER,
    BENCH_SCATTER_BALANCED,
    BENCH_SCATTER_TABLE,
    BENCH_SPLIT_K,
    BENCH_TILED,
    BENCH_GATE_UP, /* two layers and a SwiGLU */
    BENCH_EXPAND,
    BENCH_OP_COUNT
};
extern const char *const bench_op_names[BENCH_OP_COUNT];

/* One row of the report before it is measured. */
struct bench_case {
    enum bench_op op;
    enum tcq_activations activations;
    struct tcq_geometry geometry;
    uint32_t m; /* 0 for expand */
};

/* The machine and the memory that all cases share. */
struct bench {
    struct tcq_context *context, *scalar_context;
    const struct bench_probe *probe;
    uint32_t threads;
    /* Random words, far larger than any cache: the weights of every layer lie in
     * here, and reading it measures the memory.  As bf16 every half of a word is
     * a number of ordinary size. */
    uint32_t *arena;
    size_t arena_nbytes;
    uint16_t *scales; /* of any row */
    uint64_t scale_count;
    uint16_t *x; /* bf16 */
    uint16_t *y; /* bf16, or float32 for a check */
    uint16_t *expanded; /* where expand writes; NULL unless asked for */
    struct bench_gpu *gpu; /* bench_gpu.h; NULL: the CPU */
    void *call_x, *call_y, *call_expanded; /* the same as calls get them: on a GPU, its own */
    size_t turn; /* which part of the arena comes next */
    uint64_t fma_rounds, dot_rounds; /* of one measurement; 0: not known yet */
};

/* Rates of the machine's limits. */
struct bench_limits {
    double memory_gb, fma_gmac, int8_gmac;
};

struct bench_result {
    char kernel[64];
    enum tcq_operation operation;
    double us, gweights, gmac, gbytes;
    double share_fma, share_int8, share_memory;
    double ratio_scalar, ratio_bf16; /* 0: not measured */
    struct bench_limits limits;      /* medians of this case's own rounds */
    uint32_t rounds;
};

/* The largest number of features and of vectors of any case, and of weights that
 * are to be expanded (or 0). */
#define BENCH_MEMORY_MIN ((uint64_t)16 << 20)
#define BENCH_MEMORY_MAX ((uint64_t)64 << 30)
int bench_create(struct bench *bench, const struct cli_args *args, size_t arena_nbytes,
                 uint64_t size_max, uint32_t m_max, uint64_t expanded_max);
void bench_destroy(struct bench *bench);

/* The layers of one case: copies of different weights, so that each call meets
 * weights that no cache holds. */
enum { BENCH_COPIES_MAX = 64 };
struct bench_layers {
    struct tcq_linear *copies[BENCH_COPIES_MAX];
    size_t count, next;
};
/* TCQ_ERROR_UNSUPPORTED with its reason where the operation does not apply. */
enum tcq_status bench_layers_create(struct bench_layers *layers, const struct bench *bench,
                                    struct tcq_context *context, const struct bench_case *which,
                                    struct tcq_error *error);
void bench_layers_destroy(struct bench_layers *layers);
/* One call on the next copy. */
enum tcq_status bench_layers_run(struct bench_layers *layers, const struct bench *bench,
                                 const struct bench_case *which, struct tcq_error *error);
/* Some outputs against float64; false after a message. */
bool bench_layers_check(struct bench_layers *layers, const struct bench *bench,
                        const struct bench_case *which);

/* The dense bf16 product of out x in weights with m vectors, by the faster of two
 * kernels of ours. */
void bench_dense_run(struct bench *bench, uint64_t out, uint64_t in, uint32_t m);

/* What one call does; nbytes are those of the packed weights. */
struct bench_work {
    double weights, macs, nbytes;
};
struct bench_work bench_work_of(const struct bench_case *which);

struct bench_limits bench_limits_measure(struct bench *bench);
/* Measures one case; CLI_CONTINUE, or an exit code after a message.  *skipped is
 * set, with a note, where the operation does not apply. */
int bench_measure(struct bench *bench, const struct bench_case *which, bool ratios,
                  struct bench_result *out, bool *skipped);

#endif
