/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the golden vectors: safetensors files of the folder TCQ_GOLDEN_DIR,
 * or of tests/golden.  What is in the folder decides what is checked: names say
 * k, T, axis and L, tensors say the shapes.
 */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include "support/test.h"

#include "tcq.h"

struct golden {
    const char *name; /* of the file, without ".safetensors" */
    struct tcq_source *source;
    uint32_t k, L, T, axis; /* k 0 where the name gives none; L 12, T 256 if it says nothing */
    uint32_t k_gate, k_up;  /* of gateup_* */
};

/* Calls check for every file whose name starts with prefix, in the order of the
 * names, and says which; returns how many there were.  An unreadable file or
 * folder fails the test. */
size_t golden_each(const char *prefix, void (*check)(const struct golden *golden));

/* The same, and the test is reported as skipped if there is none. */
void golden_run(const char *prefix, void (*check)(const struct golden *golden));

/* The tensor's bytes, aligned to 8, after checking dtype and rank (and, where
 * it is not NULL, storing the shape); until golden_each returns from check.
 * A missing tensor fails the test. */
const void *golden_data(const struct golden *golden, const char *tensor, enum tcq_dtype dtype,
                        uint32_t rank, uint64_t *shape);

/* A packed tensor from "<words_name>" and "<scales_name>", checked. */
struct tcq_tensor golden_packed(const struct golden *golden, const char *words_name,
                                const char *scales_name, uint32_t k, uint32_t axis);

#endif
