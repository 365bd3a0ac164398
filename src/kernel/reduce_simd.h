/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce (axis 1, float32 activations), the text that every instruction set
 * shares.  A file includes its primitives (vec, decode_part, ...) first and then
 * this, which defines `reduce_prepared_nbytes`, `reduce_prepare` and `reduce_run`.
 *
 * Order: a row's windows come sixteen a step in ascending bit order; lane j sums
 * its windows of all steps by fma from +0, the lanes are added by halves, and
 * scale/d multiplies the sum.  Every path below keeps it, so that a vector's
 * result does not depend on how many came with it.
 *
 * Sixteen rows go together, DEPTH inputs at a time; the lanes of their sums lie in
 * memory between.  Up to FUSED_M vectors a weight goes from its bits to the sums in
 * registers; with more, rows are decoded to a tile of float32 y in L1 and multiplied
 * from there.  Either way sums stay in registers over all of DEPTH, since moving
 * them to memory and back costs a tenth when done twice as often (docs/kernels.md).
 *
 * Prepared x: [in / 256][m][256] float32, each block in the order of its windows.
 */
#include "format/geometry.h"
#include "kernel/rows.h"

/*
 * A file also says what its registers allow:
 *     FUSED_M        most vectors that go without a tile of y
 *     FUSED_EACH(X, k)  X(k, 1) X(k, 2) ... X(k, FUSED_M)
 *     FUSED_ROWS(m)  rows at once then
 *     AHEAD          1: decode one step ahead of the products
 *     TILE_M, TILE_ROWS(m)  vectors and rows of a tile's products; m <= TILE_M
 */
enum {
    PANEL = TCQ_INPUT_UNIT,
    DEPTH = 2 * PANEL,
    GROUP_ROWS = STEP, /* whose lanes are added together */
    Y_ROWS = 8,        /* decoded at once: 16 KiB of y stay in L1 while x and sums pass */
    ROWS_MAX = 8,      /* of a tile */
    VEC = STEP / PARTS
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

/* GROUP_ROWS rows or fewer, and at most DEPTH of their inputs. */
struct reduce_work {
    struct decoder decoder;
    const struct tcq_geometry *g;
    const uint8_t *words; /* the first row's */
    size_t row_nbytes, ahead_nbytes;
    unsigned rows, blocks;
    const float *x;
    uint32_t m;
    float *state; /* [GROUP_ROWS][m][16]: the lanes of every sum */
};

/* The inputs of block b and vector 0. */
TCQ_INLINE const float *block_inputs(const float *x, uint32_t m, unsigned T, unsigned b)
{
    return x + b * T / PANEL * m * PANEL + b * T % PANEL;
}

/* ---- few vectors: everything in registers ---------------------------------- */

/* acc[r][i] += y[r] * x[i], y[r] that of the given step; or AHEAD that of the step
 * before, so that decoding never waits for the products nor they for it. */
TCQ_INLINE void fused_step(unsigned k, unsigned R, unsigned M, v16 acc[ROWS_MAX][FUSED_M],
                           v16 y[ROWS_MAX], const float *x, const struct reduce_work *work,
                           const uint8_t *block, unsigned step, unsigned steps, bool wrapped)
{
    v16 decoded[ROWS_MAX];
    TCQ_UNROLL
    for (unsigned r = 0; r < R; r++)
        decoded[r] = decode_step(k, false, &work->decoder, block + r * work->row_nbytes, step,
                                 steps, wrapped);
    TCQ_UNROLL
    for (unsigned i = 0; i < M; i++) {
        v16 xi = v16_keep(v16_load(x + i * PANEL));
        TCQ_UNROLL
        for (unsigned r = 0; r < R; r++)
            acc[r][i] = v16_fma(AHEAD ? y[r] : decoded[r], xi, acc[r][i]);
    }
    TCQ_UNROLL
    for (unsigned r = 0; r < R; r++)
        y[r] = decoded[r];
}

/* R rows from `row` on times M vectors. */
TCQ_INLINE void fused_tile(unsigned k, unsigned R, unsigned M, const struct reduce_work *given,
                           unsigned row)
{
    const struct reduce_work work = *given;
    const unsigned T = work.g->T, steps = T / STEP, block_nbytes = 2 * k * steps;
    float *state = work.state + row * M * STEP;
    const uint8_t *block = work.words + row * work.row_nbytes;
    v16 acc[ROWS_MAX][FUSED_M], y[ROWS_MAX];
    TCQ_UNROLL
    for (unsigned r = 0; r < R; r++) {
        const uint8_t *words = block + r * work.row_nbytes;
        prefetch_bytes(words + work.ahead_nbytes, work.blocks * block_nbytes);
        if (AHEAD)
            y[r] = decode_step(k, false, &work.decoder, words, 0, steps, false);
        TCQ_UNROLL
        for (unsigned i = 0; i < M; i++)
            acc[r][i] = v16_load(state + (r * M + i) * STEP);
    }
    for (unsigned b = 0; b < work.blocks; b++) {
        const float *x = block_inputs(work.x, M, T, b);
        const uint8_t *next = b + 1 < work.blocks ? block + block_nbytes : block;
        for (unsigned step = AHEAD; step < steps - wrapped_steps(k); step++, x += STEP)
            fused_step(k, R, M, acc, y, x, &work, block, step, steps, false);
        TCQ_UNROLL
        for (unsigned left = wrapped_steps(k); left > 0; left--, x += STEP)
            fused_step(k, R, M, acc, y, x, &work, block, steps - left, steps, true);
        if (AHEAD)
            fused_step(k, R, M, acc, y, x, &work, next, 0, steps, false);
        block = next;
    }
    TCQ_UNROLL
    for (unsigned r = 0; r < R; r++)
        TCQ_UNROLL
    for (unsigned i = 0; i < M; i++)
        v16_store(state + (r * M + i) * STEP, acc[r][i]);
}

/* All rows, R at a time and the rest singly. */
TCQ_INLINE void fused_rows(unsigned k, unsigned R, unsigned M, const struct reduce_work *work)
{
    unsigned row = 0;
    for (; row + R <= work->rows; row += R)
        fused_tile(k, R, M, work, row);
    for (; row < work->rows; row++)
        fused_tile(k, 1, M, work, row);
}

#define FUSED(k, M)                                                                              \
    static __attribute__((noinline)) void fused_rows_k##k##_m##M(const struct reduce_work *work) \
    {                                                                                            \
        fused_rows(k, FUSED_ROWS(M), M, work);                                                   \
    }
FUSED_EACH(FUSED, 2)
FUSED_EACH(FUSED, 3)
FUSED_EACH(FUSED, 4)

/* ---- more vectors: decode a tile, then multiply it ------------------------- */

/* state += y[r][.] * x[i][.] for R rows and M vectors of m; one part of each step. */
TCQ_INLINE void multiply_tile(size_t R, size_t M, float *state, size_t m, const float *y,
                              const float *x, size_t count)
{
    vec acc[ROWS_MAX][TILE_M];
    TCQ_UNROLL
    for (size_t r = 0; r < R; r++)
        TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        acc[r][i] = vec_load(state + (r * m + i) * STEP);
    for (size_t panel = 0; panel < count; panel += PANEL, x += m * PANEL)
        for (size_t j = 0; j < PANEL && panel + j < count; j += STEP) {
            vec yr[ROWS_MAX];
            TCQ_UNROLL
            for (size_t r = 0; r < R; r++)
                yr[r] = vec_load(y + r * DEPTH + panel + j);
            TCQ_UNROLL
            for (size_t i = 0; i < M; i++) {
                vec xi = vec_keep(vec_load(x + i * PANEL + j));
                TCQ_UNROLL
                for (size_t r = 0; r < R; r++)
                    acc[r][i] = vec_fma(yr[r], xi, acc[r][i]);
            }
        }
    TCQ_UNROLL
    for (size_t r = 0; r < R; r++)
        TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        vec_store(state + (r * m + i) * STEP, acc[r][i]);
}

/* The same for all rows and parts. */
TCQ_INLINE void multiply_rows(size_t M, const struct reduce_work *work, size_t i, const float *y,
                              size_t count)
{
    for (size_t r = 0; r < Y_ROWS; r += TILE_ROWS(M))
        for (size_t at = 0; at < STEP; at += VEC)
            multiply_tile(TILE_ROWS(M), M, work->state + (r * work->m + i) * STEP + at, work->m,
                          y + r * DEPTH + at, work->x + i * PANEL + at, count);
}

/* state += y * x for all m vectors. */
static void multiply_panel(const struct reduce_work *work, const float *y, size_t count)
{
    size_t i = 0;
    for (; i + TILE_M <= work->m; i += TILE_M)
        multiply_rows(TILE_M, work, i, y, count);
    if (TILE_M > 3 && work->m - i == 3)
        multiply_rows(3, work, i, y, count);
    else if (TILE_M > 2 && work->m - i == 2)
        multiply_rows(2, work, i, y, count);
    else if (work->m - i == 1)
        multiply_rows(1, work, i, y, count);
}

static void decode_and_multiply(const struct reduce_work *given)
{
    struct reduce_work work = *given;
    _Alignas(64) float y[Y_ROWS * DEPTH];
    const unsigned T = work.g->T;
    const size_t block_nbytes = tcq_geometry_block_words(work.g) * 4;
    if (work.rows < GROUP_ROWS)
        memset(y, 0, sizeof y);
    for (unsigned row = 0; row < given->rows; row += Y_ROWS) {
        work.rows = given->rows - row < Y_ROWS ? given->rows - row : Y_ROWS;
        for (unsigned b = 0; b < work.blocks; b++) {
            struct block_run run = {
                .block = work.words + b * block_nbytes,
                .stride_nbytes = work.row_nbytes,
                .blocks = work.rows,
                .steps = T / STEP,
                .count = T / STEP,
                .ahead_nbytes = work.ahead_nbytes,
            };
            decode_blocks(y + b * T, DEPTH, work.g, &work.decoder, &run);
        }
        multiply_panel(&work, y, work.blocks * T);
        work.words += Y_ROWS * work.row_nbytes;
        work.state += Y_ROWS * work.m * STEP;
    }
}

typedef void (*reduce_fn)(const struct reduce_work *);

static reduce_fn reduce_find(const struct tcq_geometry *g, uint32_t m)
{
#define NAME(k, M) fused_rows_k##k##_m##M,
    static const reduce_fn fused[3][FUSED_M] = {
        {FUSED_EACH(NAME, 2)}, {FUSED_EACH(NAME, 3)}, {FUSED_EACH(NAME, 4)}};
#undef NAME
    if (m > FUSED_M || g->k < 2 || g->k > 4 || g->L == 16)
        return decode_and_multiply;
    return fused[g->k - 2][m - 1];
}

/* ---- the whole range ------------------------------------------------------- */

static void reduce_run(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    const reduce_fn accumulate = reduce_find(g, p->m);
    const size_t block_nbytes = tcq_geometry_block_words(g) * 4;
    _Alignas(64) float state[GROUP_ROWS * TCQ_SMALL_M_MAX * STEP];
    struct reduce_work work = {
        .decoder = decoder_make(g->k, g->L),
        .g = g,
        .row_nbytes = tcq_geometry_row_words(g) * 4,
        .m = p->m,
        .state = state,
    };
    const size_t next_rows = GROUP_ROWS * work.row_nbytes;
    (void)blocks; /* always all of them */
    for (uint64_t row = rows.begin; row < rows.end; row += GROUP_ROWS) {
        const uint8_t *words =
            (const uint8_t *)(p->tensor->words + tcq_geometry_block_offset(g, row, 0));
        work.rows = rows.end - row < GROUP_ROWS ? (unsigned)(rows.end - row) : GROUP_ROWS;
        memset(state, 0, sizeof(float) * GROUP_ROWS * p->m * STEP);
        for (uint64_t col = 0; col < g->cols; col += DEPTH) {
            uint64_t left = g->cols - col;
            size_t at = col / g->T * block_nbytes;
            work.words = words + at;
            work.blocks = (unsigned)((left < DEPTH ? left : DEPTH) / g->T);
            work.ahead_nbytes = left > DEPTH ? DEPTH / g->T * block_nbytes : next_rows - at;
            work.x = (const float *)p->x + col * p->m;
            accumulate(&work);
        }
        finish_rows(p, state, row, work.rows);
    }
}
