/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The float32 arithmetic of a transformer beside packed products: dense products
 * for weights that are not packed, attention over the cache, normalization,
 * SwiGLU.  One table a set of CPU features; every function works on one thread
 * and sums in an order that depends on its sizes alone, so results are the same
 * for every number of threads and of vectors.
 *
 * Vectors are handled 16 lanes at a time.  Where a length is no multiple of 16,
 * the rest is padded with zeros.
 */
#ifndef TCQ_MODEL_MATH_H
#define TCQ_MODEL_MATH_H

#include "tcq.h"

enum { TCQ_LANES = 16 };

static inline size_t tcq_round_lanes(size_t n)
{
    return (n + TCQ_LANES - 1) / TCQ_LANES * TCQ_LANES;
}

/* Where attention finds keys and values of one head; binary16 or float32.
 * Keys lie in tiles of 16 positions, [tile][head_dim][16], so that one load
 * brings the same component of 16 keys; values as [position][head_dim], each
 * padded to whole lanes. */
struct tcq_cache_view {
    const void *keys, *values;
    bool f32;
    size_t head_dim;
};

struct tcq_math {
    const char *isa;

    /* y[i][r] = sum over c < in of w[r][c] * x[i][c] for r < rows, i < m.  w is
     * dense [rows, in] of F32, F16 or BF16; scratch holds 4 * tcq_round_lanes(in). */
    void (*product)(float *y, size_t y_stride, const void *w, enum tcq_dtype dtype, size_t in,
                    size_t rows, const float *x, size_t x_stride, size_t m, float *scratch);

    /* scores[i][p] = q[i] . key[p] for i < n and p in whole tiles from first_tile
     * up to end_tile (positions past the last key give what lies there). */
    void (*scores)(float *scores, size_t stride, const float *q, size_t q_stride, size_t n,
                   const struct tcq_cache_view *cache, size_t first_tile, size_t end_tile);

    /* scores[p] = exp(scale * (scores[p] - max)) for p < count, not divided by
     * their sum, which is returned. */
    float (*softmax)(float *scores, size_t count, float scale);

    /* out[i] += weights[i][p] * value[p] for p from first to end - 1, one after the
     * other, and i < n; out rows have tcq_round_lanes(head_dim) elements. */
    void (*mix)(float *out, const float *weights, size_t stride, size_t n,
                const struct tcq_cache_view *cache, size_t first, size_t end);

    /* out = x / sqrt(mean(x^2) + epsilon) * weight; out may be x. */
    void (*norm)(float *out, const float *x, const float *weight, size_t n, float epsilon);

    /* Components i and i + half of a head turn together by angle i. */
    void (*rotate)(float *head, const float *cosines, const float *sines, size_t half);

    /* dst = src as binary16, rounded to nearest. */
    void (*narrow)(uint16_t *dst, const float *src, size_t n);

    /* mid = gate / (1 + exp(-gate)) * up; mid may be gate. */
    void (*swiglu)(float *mid, const float *gate, const float *up, size_t n);
};

const struct tcq_math *tcq_math_select(uint32_t cpu_flags);

extern const struct tcq_math tcq_math_scalar, tcq_math_avx2, tcq_math_avx512;

#endif
