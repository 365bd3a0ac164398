/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of every tensor of a source: packed (and with which geometry),
 * copied as it is, or converted to 16 bits; and in which output file it lands.
 */
#ifndef TCQ_PLAN_H
#define TCQ_PLAN_H

#include "cli.h"

enum { PLAN_PATTERNS_MAX = 64, PLAN_AXIS_AUTO = 2, PLAN_SCALES_DTYPE = TCQ_DTYPE_F16 };

struct plan_pattern {
    const char *glob;
    uint32_t k; /* of --bits-for */
    bool used;  /* matched something */
};

struct plan_patterns {
    struct plan_pattern list[PLAN_PATTERNS_MAX];
    size_t count;
};

struct plan_options {
    uint32_t k, L;
    uint32_t head_bits; /* of embedding and head; 0: they are kept */
    bool head_found;    /* the source has one of them */
    uint32_t block; /* 0: auto */
    uint32_t axis;  /* 0, 1 or PLAN_AXIS_AUTO */
    bool mlx_bun;   /* --preset mlx-bun */
    bool interleave;
    uint64_t shard_nbytes;
    enum tcq_scale_rule scale;
    uint32_t part, parts; /* --shard: part 1..parts; 0: all of it */
    struct plan_patterns bits_for, include, exclude;
};

enum plan_action {
    PLAN_PACK,
    PLAN_COPY,   /* the stored bytes */
    PLAN_CONVERT /* a GGUF block type, or a projection that fits no block, to 16 bits */
};

struct plan_entry {
    const struct tcq_source_tensor *tensor;
    enum plan_action action;
    char *module;                 /* the name without ".weight" */
    struct tcq_geometry geometry; /* of PLAN_PACK */
    const char *reason;           /* why a projection is not packed, or NULL */
    enum tcq_dtype dtype;         /* in the output; of the words for PLAN_PACK */
    uint64_t nbytes;              /* in the output */
    size_t shard;                 /* index of the output file */
};

struct plan {
    struct plan_entry *entries; /* in the order of the source */
    size_t count;
    size_t shard_count;
    size_t packed_count;
    uint64_t packed_weights, packed_nbytes; /* words and scales */
    uint64_t weights, nbytes;               /* of everything */
    uint64_t source_nbytes;                 /* of the same tensors in the source */
};

/* Fills a plan for every tensor of source.  Returns CLI_CONTINUE or, after a
 * message, an exit code.  Patterns that match nothing are refused. */
int plan_make(const struct tcq_source *source, struct plan_options *options, struct plan *out);
/* Drops every entry whose owner is not `mine`, puts the rest into one file. */
void plan_keep(struct plan *plan, const uint32_t *owner, uint32_t mine);
void plan_free(struct plan *plan);

/* The shape of the words of a packed entry; returns the rank. */
uint32_t plan_words_shape(const struct tcq_geometry *geometry, uint64_t shape[3]);

/* The table (`all`: a row a tensor; else one for each group of alike tensors)
 * with totals, to stdout. */
bool plan_print(const struct plan *plan, bool all);
/* Where GGUF blocks that are not packed take more room as 16 bits: one line. */
void plan_print_growth(const struct plan *plan);
/* Prints that no tensor is packed, and why that may be; CLI_FAILED. */
int plan_fail_empty(const struct plan *plan, const struct plan_options *options, const char *path);
json_t *plan_json(const struct plan *plan);

#endif
