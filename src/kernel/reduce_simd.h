/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce (axis 1, float32 activations), the text that every instruction set
 * shares.  A file includes its primitives (v16, decode_step, ...) first and then
 * this, which defines `reduce_prepared_nbytes`, `reduce_prepare` and `reduce_run`.
 *
 * Order: a row's windows come sixteen a step in ascending bit order; lane j sums
 * its windows of all steps by fma from +0, the lanes are added by halves, and
 * scale/d multiplies the sum.  Every path below keeps it, so that a vector's
 * result does not depend on how many came with it.
 *
 * Up to FUSED_M vectors a weight goes from its bits to the sums in registers; with
 * more, rows are decoded to a tile of float32 y in L1 and multiplied from there.
 *
 * Prepared x: [in / 256][m][256] float32, each block in the order of its windows.
 */
#include "format/geometry.h"
#include "kernel/exact.h"
#include "kernel/kernel.h"

enum {
    PANEL = TCQ_INPUT_UNIT,
    FUSED_M = 4,
    FUSED_ROWS_MAX = 4,
    BATCH_ROWS = STEP /* decoded together: 16 KiB of y stay in L1 while x and sums pass */
};

static size_t reduce_prepared_nbytes(const struct tcq_geometry *g, uint32_t m)
{
    return (size_t)((g->cols + PANEL - 1) / PANEL) * PANEL * m * sizeof(float);
}

/* One block's inputs in the order of its windows. */
static void prepare_block(float *to, const float *from, const struct tcq_geometry *g)
{
    for (uint32_t j = 0; j < g->T; j++)
        to[j] = from[g->T - 1 - lane_window(g->k, j / STEP, j % STEP)];
}

static float *prepared_block(void *prepared, uint32_t m, uint32_t i, uint64_t col)
{
    return (float *)prepared + (col / PANEL * m + i) * PANEL + col % PANEL;
}

static void reduce_prepare(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                           size_t x_stride, struct tcq_range in)
{
    const struct tcq_geometry *g = &tensor->geometry;
    for (uint32_t i = 0; i < m; i++)
        for (uint64_t col = in.begin; col < in.end; col += g->T)
            prepare_block(prepared_block(dst, m, i, col), x + i * x_stride + col, g);
}

#ifdef INT8_AS_FLOAT
/* int8 activations without an integer product: x on its grid, as float32. */
static void reduce_prepare_int8(void *dst, const struct tcq_tensor *tensor, uint32_t m,
                                const float *x, size_t x_stride, struct tcq_range in)
{
    const struct tcq_geometry *g = &tensor->geometry;
    for (uint32_t i = 0; i < m; i++)
        for (uint64_t col = in.begin; col < in.end; col += g->T) {
            int8_t q[TCQ_T_MAX];
            float grid[TCQ_T_MAX];
            float step = tcq_quantize_int8(q, x + i * x_stride + col, g->T);
            for (uint32_t j = 0; j < g->T; j++)
                grid[j] = (float)q[j] * step;
            prepare_block(prepared_block(dst, m, i, col), grid, g);
        }
}
#endif

/* The part of a tensor that one call of a tile works on. */
struct reduce_span {
    struct decoder decoder;
    const uint8_t *rows; /* the first row's words */
    size_t row_nbytes, block_nbytes;
    uint64_t cols;
    unsigned T;
};

/* acc[r][i] += the `count` = 1 step at `block` of every row. */
TCQ_INLINE void fused_step(unsigned k, unsigned R, unsigned M, v16 acc[FUSED_ROWS_MAX][FUSED_M],
                           const struct reduce_span *span, const uint8_t *block, const float *x,
                           unsigned step, bool wrapped)
{
    TCQ_UNROLL
    for (unsigned r = 0; r < R; r++) {
        const uint8_t *source = block + r * span->row_nbytes;
        v16 y = decode_step(k, false, &span->decoder, source, step, span->T / STEP, wrapped);
        TCQ_UNROLL
        for (unsigned i = 0; i < M; i++)
            acc[r][i] = v16_fma(y, v16_load(x + i * PANEL + step * STEP), acc[r][i]);
    }
}

/* sums[r][i]: R rows times M vectors, never leaving the registers. */
TCQ_INLINE void fused_tile(unsigned k, unsigned R, unsigned M, float *sums,
                           const struct reduce_span *given, const float *x)
{
    const struct reduce_span span = *given;
    const unsigned steps = span.T / STEP, plain = steps - wrapped_steps(k);
    v16 acc[FUSED_ROWS_MAX][FUSED_M];
    TCQ_UNROLL
    for (unsigned r = 0; r < R; r++)
        TCQ_UNROLL
    for (unsigned i = 0; i < M; i++)
        acc[r][i] = v16_zero();
    const uint8_t *block = span.rows;
    for (uint64_t col = 0; col < span.cols; col += span.T, block += span.block_nbytes) {
        const float *xb = x + col / PANEL * M * PANEL + col % PANEL;
        TCQ_UNROLL
        for (unsigned r = 0; r < R; r++) /* the same place in the next R rows */
            prefetch_block(block + (R + r) * span.row_nbytes, span.block_nbytes);
        for (unsigned step = 0; step < plain; step++)
            fused_step(k, R, M, acc, &span, block, xb, step, false);
        for (unsigned step = plain; step < steps; step++)
            fused_step(k, R, M, acc, &span, block, xb, step, true);
    }
    TCQ_UNROLL
    for (unsigned r = 0; r < R; r++)
        TCQ_UNROLL
    for (unsigned i = 0; i < M; i++)
        sums[r * M + i] = v16_sum(acc[r][i]);
}

static void store_sums(const struct tcq_product *p, uint64_t row, unsigned rows, const float *sums)
{
    for (unsigned r = 0; r < rows; r++) {
        float factor = tcq_exact_factor(p->tensor, row + r);
        for (uint32_t i = 0; i < p->m; i++)
            p->y[i * p->y_stride + row + r] = sums[r * p->m + i] * factor;
    }
}

/* All rows of a range, R at a time and the rest singly. */
TCQ_INLINE void fused_rows(unsigned k, unsigned R, unsigned M, const struct tcq_product *p,
                           struct reduce_span *span, struct tcq_range rows)
{
    float sums[FUSED_ROWS_MAX * FUSED_M];
    uint64_t row = rows.begin;
    for (; row + R <= rows.end; row += R, span->rows += R * span->row_nbytes) {
        fused_tile(k, R, M, sums, span, p->x);
        store_sums(p, row, R, sums);
    }
    for (; row < rows.end; row++, span->rows += span->row_nbytes) {
        fused_tile(k, 1, M, sums, span, p->x);
        store_sums(p, row, 1, sums);
    }
}

#define FUSED(k, M)                                                                   \
    static __attribute__((noinline)) void fused_rows_k##k##_m##M(                     \
        const struct tcq_product *p, struct reduce_span *span, struct tcq_range rows) \
    {                                                                                 \
        fused_rows(k, FUSED_ROWS(M), M, p, span, rows);                               \
    }
#define FUSED_K(k) FUSED(k, 1) FUSED(k, 2) FUSED(k, 3) FUSED(k, 4)
FUSED_K(2)
FUSED_K(3)
FUSED_K(4)

typedef void (*fused_fn)(const struct tcq_product *, struct reduce_span *, struct tcq_range);

/* NULL: no such specialisation, the batch path serves. */
static fused_fn fused_find(const struct tcq_geometry *g, uint32_t m)
{
#define ROW(k)                                                                                 \
    {                                                                                          \
        fused_rows_k##k##_m1, fused_rows_k##k##_m2, fused_rows_k##k##_m3, fused_rows_k##k##_m4 \
    }
    static const fused_fn table[3][FUSED_M] = {ROW(2), ROW(3), ROW(4)};
#undef ROW
    if (m > FUSED_M || g->k < 2 || g->k > 4 || g->L == 16)
        return NULL;
    return table[g->k - 2][m - 1];
}

/* ---- more vectors: decode a tile, then multiply it ------------------------- */

/* state += y[r][.] * x[i][.] over one panel for R rows and M vectors; the state of
 * (r, i) is the sixteen lanes at state + (r*m + i) * 16. */
TCQ_INLINE void multiply_tile(size_t R, size_t M, float *state, size_t m, const float *y,
                              const float *x, size_t count)
{
    v16 acc[2 * TILE_ROWS][TILE_M];
    TCQ_UNROLL
    for (size_t r = 0; r < R; r++)
        TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        acc[r][i] = v16_load(state + (r * m + i) * STEP);
    for (size_t j = 0; j < count; j += STEP) {
        v16 yr[2 * TILE_ROWS];
        TCQ_UNROLL
        for (size_t r = 0; r < R; r++)
            yr[r] = v16_load(y + r * PANEL + j);
        TCQ_UNROLL
        for (size_t i = 0; i < M; i++) {
            v16 xi = v16_load(x + i * PANEL + j);
            TCQ_UNROLL
            for (size_t r = 0; r < R; r++)
                acc[r][i] = v16_fma(yr[r], xi, acc[r][i]);
        }
    }
    TCQ_UNROLL
    for (size_t r = 0; r < R; r++)
        TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        v16_store(state + (r * m + i) * STEP, acc[r][i]);
}

/* The same for BATCH_ROWS rows. */
TCQ_INLINE void multiply_rows(size_t R, size_t M, float *state, size_t m, const float *y,
                              const float *x, size_t count)
{
    for (size_t r = 0; r < BATCH_ROWS; r += R)
        multiply_tile(R, M, state + r * m * STEP, m, y + r * PANEL, x, count);
}

/* The same for all m vectors.  Few left over take twice the rows, so that there are
 * still enough independent sums for the latency of fma. */
static void multiply_panel(float *state, size_t m, const float *y, const float *x, size_t count)
{
    size_t i = 0;
    for (; i + TILE_M <= m; i += TILE_M)
        multiply_rows(TILE_ROWS, TILE_M, state + i * STEP, m, y, x + i * PANEL, count);
    state += i * STEP;
    x += i * PANEL;
    if (TILE_M > 3 && m - i == 3)
        multiply_rows(TILE_ROWS, 3, state, m, y, x, count);
    else if (TILE_M > 2 && m - i == 2)
        multiply_rows(2 * TILE_ROWS, 2, state, m, y, x, count);
    else if (m - i == 1)
        multiply_rows(2 * TILE_ROWS, 1, state, m, y, x, count);
}

/* sums[r] = the lanes of state[r * stride] added, times factors[r]. */
TCQ_INLINE void batch_sums(float *sums, const float *state, size_t stride, const float *factors)
{
    v16_store(sums, v16_mul(v16_sum16(state, stride), v16_load(factors)));
}

static void batch_rows(const struct tcq_product *p, const struct reduce_span *span, uint64_t row,
                       unsigned rows)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    _Alignas(64) float y[BATCH_ROWS * PANEL] = {0};
    _Alignas(64) float state[BATCH_ROWS * TCQ_SMALL_M_MAX * STEP];
    memset(state, 0, sizeof(float) * BATCH_ROWS * p->m * STEP);
    for (uint64_t col = 0; col < span->cols; col += PANEL) {
        unsigned count = span->cols - col < PANEL ? (unsigned)(span->cols - col) : PANEL;
        for (unsigned at = 0; at < count; at += g->T) {
            struct block_run run = {
                .block = span->rows + (col + at) / g->T * span->block_nbytes,
                .stride_nbytes = span->row_nbytes,
                .count = rows,
                .steps = g->T / STEP,
                .ahead_nbytes = PANEL / g->T * span->block_nbytes,
            };
            decode_blocks(y + at, PANEL, g, &span->decoder, &run);
        }
        multiply_panel(state, p->m, y, (const float *)p->x + col * p->m, count);
    }
    float factors[BATCH_ROWS] = {0}, sums[BATCH_ROWS];
    for (unsigned r = 0; r < rows; r++)
        factors[r] = tcq_exact_factor(p->tensor, row + r);
    for (size_t i = 0; i < p->m; i++) {
        batch_sums(sums, state + i * STEP, p->m * STEP, factors);
        memcpy(p->y + i * p->y_stride + row, sums, rows * sizeof(float));
    }
}

static void reduce_run(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    (void)blocks; /* always all of them */
    struct reduce_span span = {
        .decoder = decoder_make(g->k, g->L),
        .rows = (const uint8_t *)(p->tensor->words + tcq_geometry_block_offset(g, rows.begin, 0)),
        .row_nbytes = tcq_geometry_row_words(g) * 4,
        .block_nbytes = tcq_geometry_block_words(g) * 4,
        .cols = g->cols,
        .T = g->T,
    };
    fused_fn fused = fused_find(g, p->m);
    if (fused) {
        fused(p, &span, rows);
        return;
    }
    for (uint64_t row = rows.begin; row < rows.end; row += BATCH_ROWS) {
        unsigned count = rows.end - row < BATCH_ROWS ? (unsigned)(rows.end - row) : BATCH_ROWS;
        batch_rows(p, &span, row, count);
        span.rows += BATCH_ROWS * span.row_nbytes;
    }
}
