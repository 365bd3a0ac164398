/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dense product of expanded tiles by float32 fma, the text that every
 * instruction set shares (see reduce_simd.h): bf16 is widened while panels are
 * packed.  Defines `gemm_scratch_nbytes` and `gemm_run`.
 *
 * Panels of PANEL_DEPTH: a as [m][depth], read by broadcasts; b as [n/PANEL_N]
 * [depth][PANEL_N], one such slice fits in half of a 48 KiB first-level cache.  A
 * register tile is TILE_M vectors by PANEL_N outputs.
 */
#include "base/half.h"
#include "kernel/kernel.h"

enum { PANEL_DEPTH = 128, PANEL_N = TILE_V * STEP };

static size_t gemm_scratch_nbytes(size_t m, size_t n, size_t depth)
{
    (void)n, (void)depth;
    return (m + PANEL_N) * PANEL_DEPTH * sizeof(float);
}

static void pack_a(float *dst, const uint16_t *a, size_t a_stride, size_t m, size_t depth)
{
    for (size_t i = 0; i < m; i++, dst += PANEL_DEPTH, a += a_stride) {
        size_t l = 0;
        for (; l + STEP <= depth; l += STEP)
            v16_store(dst + l, v16_load_bf16(a + l));
        for (; l < depth; l++)
            dst[l] = tcq_bf16_to_f32(a[l]);
    }
}

/* One slice of PANEL_N outputs, of which n exist; the others are zero. */
static void pack_b_rows(float *dst, const uint16_t *b, size_t b_stride, size_t n, size_t depth)
{
    for (size_t l = 0; l < depth; l++, dst += PANEL_N, b += b_stride) {
        size_t j = 0;
        for (; j + STEP <= n; j += STEP)
            v16_store(dst + j, v16_load_bf16(b + j));
        for (; j < PANEL_N; j++)
            dst[j] = j < n ? tcq_bf16_to_f32(b[j]) : 0.0f;
    }
}

/* The same from outputs whose depth lies along memory. */
static void pack_b_columns(float *dst, const uint16_t *b, size_t b_stride, size_t n, size_t depth)
{
    for (size_t j = 0; j < PANEL_N; j += STEP)
        for (size_t l = 0; l < depth; l += STEP) {
            if (j + STEP <= n && l + STEP <= depth) {
                transpose_bf16(dst + l * PANEL_N + j, PANEL_N, b + j * b_stride + l, b_stride);
                continue;
            }
            for (size_t jj = j; jj < j + STEP; jj++)
                for (size_t ll = l; ll < l + STEP && ll < depth; ll++)
                    dst[ll * PANEL_N + jj] = jj < n ? tcq_bf16_to_f32(b[jj * b_stride + ll]) : 0.0f;
        }
}

/* c[M][PANEL_N] += a[M][depth] * b[depth][PANEL_N]. */
TCQ_INLINE void gemm_tile(size_t M, float *c, size_t c_stride, const float *a, const float *b,
                          size_t depth)
{
    v16 acc[TILE_M][TILE_V];
    TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < TILE_V; v++)
        acc[i][v] = v16_load(c + i * c_stride + v * STEP);
    for (size_t l = 0; l < depth; l++) {
        v16 bv[TILE_V];
        TCQ_UNROLL
        for (size_t v = 0; v < TILE_V; v++)
            bv[v] = v16_load(b + l * PANEL_N + v * STEP);
        TCQ_UNROLL
        for (size_t i = 0; i < M; i++) {
            v16 ai = v16_set1(a[i * PANEL_DEPTH + l]);
            TCQ_UNROLL
            for (size_t v = 0; v < TILE_V; v++)
                acc[i][v] = v16_fma(ai, bv[v], acc[i][v]);
        }
    }
    TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < TILE_V; v++)
        v16_store(c + i * c_stride + v * STEP, acc[i][v]);
}

/* One slice of n <= PANEL_N outputs for all m vectors. */
static void gemm_slice(float *c, size_t c_stride, const float *a, const float *b, size_t m,
                       size_t n, size_t depth)
{
    size_t i = 0;
    for (; n == PANEL_N && i + TILE_M <= m; i += TILE_M)
        gemm_tile(TILE_M, c + i * c_stride, c_stride, a + i * PANEL_DEPTH, b, depth);
    for (; n == PANEL_N && i < m; i++)
        gemm_tile(1, c + i * c_stride, c_stride, a + i * PANEL_DEPTH, b, depth);
    for (; i < m; i++) { /* a narrow slice goes through a whole one */
        float whole[PANEL_N] = {0};
        memcpy(whole, c + i * c_stride, n * sizeof(float));
        gemm_tile(1, whole, PANEL_N, a + i * PANEL_DEPTH, b, depth);
        memcpy(c + i * c_stride, whole, n * sizeof(float));
    }
}

static void gemm_run(float *c, size_t c_stride, const uint16_t *a, size_t a_stride,
                     const uint16_t *b, size_t b_stride, uint32_t b_axis, size_t m, size_t n,
                     size_t depth, void *scratch)
{
    float *packed_a = scratch, *packed_b = packed_a + m * PANEL_DEPTH;
    for (size_t l = 0; l < depth; l += PANEL_DEPTH) {
        size_t deep = depth - l < PANEL_DEPTH ? depth - l : PANEL_DEPTH;
        pack_a(packed_a, a + l, a_stride, m, deep);
        for (size_t j = 0; j < n; j += PANEL_N) {
            size_t wide = n - j < PANEL_N ? n - j : PANEL_N;
            if (b_axis)
                pack_b_columns(packed_b, b + j * b_stride + l, b_stride, wide, deep);
            else
                pack_b_rows(packed_b, b + l * b_stride + j, b_stride, wide, deep);
            gemm_slice(c + j, c_stride, packed_a, packed_b, m, wide, deep);
        }
    }
}
