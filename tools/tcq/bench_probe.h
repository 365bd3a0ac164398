/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a processor can do at most, as small loops that do nothing else: reading
 * memory, float32 multiply-adds, int8 multiply-adds; and the same layer in bf16.
 * One set of loops an instruction set, like the kernels that they are held
 * against.
 */
#ifndef TCQ_BENCH_PROBE_H
#define TCQ_BENCH_PROBE_H

#include <stddef.h>
#include <stdint.h>

struct bench_probe {
    const char *isa;
    /* Reads nbytes (a multiple of 1024) at data, aligned to 64; the result keeps
     * the compiler from leaving it out. */
    uint64_t (*read)(const void *data, size_t nbytes);
    /* `rounds` rounds of independent multiply-adds; one round does so many. */
    float (*fma)(uint64_t rounds);
    uint32_t fma_round;
    int32_t (*dot)(uint64_t rounds);
    uint32_t dot_round;
    /* y[i*y_stride + r] = sum of w[r*depth + l] * x[i*depth + l], bf16, for r in
     * [row_begin, row_end) and i < m; depth is a multiple of 64. */
    void (*bf16)(float *y, size_t y_stride, const uint16_t *w, const uint16_t *x, uint32_t m,
                 uint64_t row_begin, uint64_t row_end, size_t depth);
};

/* The best probe for a set of enum tcq_cpu_flag. */
const struct bench_probe *bench_probe_select(uint32_t cpu_flags);

#endif
