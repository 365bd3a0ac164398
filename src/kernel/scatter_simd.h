/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scatter (axis 0, float32 activations), the text that every instruction set
 * shares; see reduce_simd.h.  Defines `scatter_prepared_nbytes`, `scatter_prepare`
 * and `scatter_run`.
 *
 * Order: every output is one chain of fma from +0 over the rows of the range, in
 * ascending order; x carries the row's scale/d.
 *
 * Up to FUSED_M vectors a weight goes from its bits to the sums in registers, which
 * see a run of rows between load and store; with more, a run's rows are decoded to a
 * tile of float32 y in L1, half a block at a time, and multiplied from there.
 *
 * Prepared x: [in][m] float32.
 *
 * A file also says what its registers allow:
 *     FUSED_M           most vectors that go without a tile of y
 *     FUSED_EACH(X, k)  X(k, 1) X(k, 2) ... X(k, FUSED_M)
 *     FUSED_STEPS(m)    steps at once then
 *     AHEAD(m)          1: decode one row ahead of the products
 *     TILE_M, TILE_V    vectors and steps' parts of a tile's products
 */
#include "kernel/columns.h"
#include "kernel/exact.h"
#include "kernel/kernel.h"

enum {
    RUN_ROWS = 32, /* that sums see between load and store */
    Y_STEPS = 8,   /* decoded at once: 16 KiB of y stay in L1 while x and sums pass */
    FUSED_STEPS_MAX = 16,
    VEC = STEP / PARTS
};

static size_t scatter_prepared_nbytes(const struct tcq_geometry *g, uint32_t m)
{
    return (size_t)g->rows * m * sizeof(float);
}

static void scatter_prepare(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                            size_t x_stride, struct tcq_range in)
{
    for (uint64_t r = in.begin; r < in.end; r++) {
        float factor = tcq_exact_factor(tensor, r);
        for (uint32_t i = 0; i < m; i++)
            ((float *)dst)[r * m + i] = x[i * x_stride + r] * factor;
    }
}

#ifdef INT8_AS_FLOAT
/* int8 activations without an integer product: x on its grid, as float32. */
static void scatter_prepare_int8(void *dst, const struct tcq_tensor *tensor, uint32_t m,
                                 const float *x, size_t x_stride, struct tcq_range in)
{
    const uint64_t T = tensor->geometry.T;
    scatter_prepare(dst, tensor, m, x, x_stride, in);
    for (uint32_t i = 0; i < m; i++)
        for (uint64_t r = in.begin; r < in.end; r += T) {
            size_t count = (size_t)(in.end - r < T ? in.end - r : T);
            float *group = (float *)dst + r * m + i, values[TCQ_T_MAX];
            int8_t q[TCQ_T_MAX];
            for (size_t j = 0; j < count; j++)
                values[j] = group[j * m];
            float step = tcq_quantize_int8(q, values, count);
            for (size_t j = 0; j < count; j++)
                group[j * m] = (float)q[j] * step;
        }
}
#endif

/* Some rows of one block. */
struct scatter_work {
    struct decoder decoder;
    const uint8_t *block; /* in the first of the rows */
    size_t row_nbytes;
    unsigned rows, steps;
    const float *x; /* of the first row, all m vectors */
    uint32_t m;
    float *sums; /* in the order of the windows, vector i at sums + i * sums_stride */
    size_t sums_stride;
};

/* ---- few vectors: everything in registers ---------------------------------- */

/* y of `count` steps of one row.  last: they are the block's last. */
TCQ_INLINE void decode_few(unsigned k, unsigned count, bool last, v16 y[FUSED_STEPS_MAX],
                           const struct scatter_work *work, const uint8_t *block, unsigned first)
{
    TCQ_UNROLL
    for (unsigned s = 0; s < count; s++)
        y[s] = decode_step(k, false, &work->decoder, block, first + s, work->steps,
                           last && s + wrapped_steps(k) >= count);
}

TCQ_INLINE void multiply_few(unsigned M, unsigned count, v16 acc[FUSED_M][FUSED_STEPS_MAX],
                             const v16 y[FUSED_STEPS_MAX], const float *x)
{
    TCQ_UNROLL
    for (unsigned i = 0; i < M; i++) {
        vec xi = vec_keep(vec_set1(x[i]));
        TCQ_UNROLL
        for (unsigned s = 0; s < count; s++)
            acc[i][s] = v16_scale_add(acc[i][s], y[s], xi);
    }
}

/* sums of M vectors over `count` steps from `first` on, which stay in registers
 * for all rows. */
TCQ_INLINE void fused_tile(unsigned k, unsigned M, unsigned count, bool last,
                           const struct scatter_work *given, unsigned first)
{
    const struct scatter_work work = *given;
    v16 acc[FUSED_M][FUSED_STEPS_MAX], y[FUSED_STEPS_MAX], decoded[FUSED_STEPS_MAX];
    TCQ_UNROLL
    for (unsigned i = 0; i < M; i++)
        TCQ_UNROLL
    for (unsigned s = 0; s < count; s++)
        acc[i][s] = v16_load(work.sums + i * work.sums_stride + (first + s) * STEP);
    const uint8_t *block = work.block;
    const float *x = work.x;
    if (AHEAD(M))
        decode_few(k, count, last, y, &work, block, first);
    for (unsigned r = AHEAD(M); r < work.rows; r++, x += M) {
        /* where this tile ends in the next run of rows */
        __builtin_prefetch(block + RUN_ROWS * work.row_nbytes + 2 * k * (first + count) - 1);
        if (AHEAD(M))
            block += work.row_nbytes;
        decode_few(k, count, last, decoded, &work, block, first);
        if (!AHEAD(M))
            block += work.row_nbytes;
        multiply_few(M, count, acc, AHEAD(M) ? y : decoded, x);
        TCQ_UNROLL
        for (unsigned s = 0; s < count; s++)
            y[s] = decoded[s];
    }
    if (AHEAD(M))
        multiply_few(M, count, acc, y, x);
    TCQ_UNROLL
    for (unsigned i = 0; i < M; i++)
        TCQ_UNROLL
    for (unsigned s = 0; s < count; s++)
        v16_store(work.sums + i * work.sums_stride + (first + s) * STEP, acc[i][s]);
}

/* A whole block, `count` steps at a time. */
TCQ_INLINE void fused_block(unsigned k, unsigned M, unsigned count, const struct scatter_work *work)
{
    unsigned first = 0;
    for (; first + count < work->steps; first += count)
        fused_tile(k, M, count, false, work, first);
    fused_tile(k, M, count, true, work, work->steps - count);
}

/* T = 256 in as few tiles as registers allow, shorter blocks in tiles of at most
 * four steps, which divide every T. */
#define FUSED(k, M)                                                                                \
    static __attribute__((noinline)) void fused_block_k##k##_m##M(const struct scatter_work *work) \
    {                                                                                              \
        if (FUSED_STEPS(M) > 4 && work->steps == 16)                                               \
            fused_block(k, M, FUSED_STEPS(M), work);                                               \
        else                                                                                       \
            fused_block(k, M, FUSED_STEPS(M) < 4 ? FUSED_STEPS(M) : 4, work);                      \
    }
FUSED_EACH(FUSED, 2)
FUSED_EACH(FUSED, 3)
FUSED_EACH(FUSED, 4)

typedef void (*fused_fn)(const struct scatter_work *);

/* NULL: no such specialisation, the batch path serves. */
static fused_fn fused_find(const struct tcq_geometry *g, uint32_t m)
{
#define NAME(k, M) fused_block_k##k##_m##M,
    static const fused_fn table[3][FUSED_M] = {
        {FUSED_EACH(NAME, 2)}, {FUSED_EACH(NAME, 3)}, {FUSED_EACH(NAME, 4)}};
#undef NAME
    if (m > FUSED_M || g->k < 2 || g->k > 4 || g->L == 16)
        return NULL;
    return table[g->k - 2][m - 1];
}

/* ---- more vectors: decode a tile, then multiply it ------------------------- */

/* sums[i][.] += y[r][.] * x[r][i] for M vectors and TILE_V parts of steps, over the
 * rows of y. */
TCQ_INLINE void multiply_tile(unsigned M, const struct scatter_work *work, const float *y,
                              float *sums, const float *x)
{
    vec acc[TILE_M][TILE_V];
    TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < TILE_V; v++)
        acc[i][v] = vec_load(sums + i * work->sums_stride + v * VEC);
    for (size_t r = 0; r < work->rows; r++, x += work->m) {
        vec yv[TILE_V];
        TCQ_UNROLL
        for (size_t v = 0; v < TILE_V; v++)
            yv[v] = vec_load(y + r * Y_STEPS * STEP + v * VEC);
        TCQ_UNROLL
        for (size_t i = 0; i < M; i++) {
            vec xi = vec_keep(vec_set1(x[i]));
            TCQ_UNROLL
            for (size_t v = 0; v < TILE_V; v++)
                acc[i][v] = vec_fma(yv[v], xi, acc[i][v]);
        }
    }
    TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < TILE_V; v++)
        vec_store(sums + i * work->sums_stride + v * VEC, acc[i][v]);
}

/* The same for all m vectors. */
static void multiply_columns(const struct scatter_work *work, const float *y, float *sums)
{
    const uint32_t m = work->m;
    uint32_t i = 0;
    for (; i + TILE_M <= m; i += TILE_M)
        multiply_tile(TILE_M, work, y, sums + i * work->sums_stride, work->x + i);
    sums += i * work->sums_stride;
    if (TILE_M > 3 && m - i == 3)
        multiply_tile(3, work, y, sums, work->x + i);
    else if (TILE_M > 2 && m - i == 2)
        multiply_tile(2, work, y, sums, work->x + i);
    else if (m - i == 1)
        multiply_tile(1, work, y, sums, work->x + i);
}

static void batch_block(const struct tcq_geometry *g, const struct scatter_work *work)
{
    _Alignas(64) float y[RUN_ROWS * Y_STEPS * STEP];
    struct block_run run = {
        .block = work->block,
        .stride_nbytes = work->row_nbytes,
        .blocks = work->rows,
        .steps = work->steps,
        .count = work->steps < Y_STEPS ? work->steps : Y_STEPS,
        .ahead_nbytes = RUN_ROWS * work->row_nbytes,
    };
    for (; run.first < run.steps; run.first += run.count) {
        decode_blocks(y, Y_STEPS * STEP, g, &work->decoder, &run);
        for (unsigned at = 0; at < run.count * STEP; at += TILE_V * VEC)
            multiply_columns(work, y + at, work->sums + run.first * STEP + at);
    }
}

static struct scatter_work work_make(const struct tcq_product *p, uint64_t row, uint64_t block)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    size_t at = tcq_geometry_block_offset(g, row, block);
    return (struct scatter_work){
        .decoder = decoder_make(g->k, g->L),
        .block = (const uint8_t *)(p->tensor->words + at),
        .row_nbytes = row_distance_nbytes(g),
        .steps = g->T / STEP,
        .x = (const float *)p->x + row * p->m,
        .m = p->m,
    };
}

static unsigned rows_left(struct tcq_range rows, uint64_t row)
{
    return rows.end - row < RUN_ROWS ? (unsigned)(rows.end - row) : RUN_ROWS;
}

/* Few vectors: runs of rows outermost, so that each row is read along its
 * length; y itself holds the sums meanwhile, in the order of windows. */
static void scatter_few(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks,
                        fused_fn fused)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    begin_columns(p, blocks);
    struct scatter_work work = work_make(p, rows.begin, blocks.begin);
    work.sums_stride = p->y_stride;
    for (uint64_t row = rows.begin; row < rows.end; row += RUN_ROWS) {
        work.rows = rows_left(rows, row);
        work.x = (const float *)p->x + row * p->m;
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            work.block =
                (const uint8_t *)(p->tensor->words + tcq_geometry_block_offset(g, row, block));
            work.sums = p->y + block * g->T;
            fused(&work);
        }
    }
    finish_columns(p, blocks);
}

/* Many vectors: one block at a time, all rows, its sums in L1. */
static void scatter_many(const struct tcq_product *p, struct tcq_range rows,
                         struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    _Alignas(64) float sums[TCQ_SMALL_M_MAX * TCQ_T_MAX];
    for (uint64_t block = blocks.begin; block < blocks.end; block++) {
        struct scatter_work work = work_make(p, rows.begin, block);
        work.sums = sums;
        work.sums_stride = TCQ_T_MAX;
        memset(sums, 0, p->m * TCQ_T_MAX * sizeof(float));
        for (uint64_t row = rows.begin; row < rows.end; row += RUN_ROWS) {
            work.rows = rows_left(rows, row);
            batch_block(g, &work);
            work.block += RUN_ROWS * work.row_nbytes;
            work.x += RUN_ROWS * p->m;
        }
        for (uint32_t i = 0; i < p->m; i++)
            put_columns(p->y + i * p->y_stride + block * g->T, sums + i * TCQ_T_MAX, g);
    }
}

static void scatter_run(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks)
{
    fused_fn fused = fused_find(&p->tensor->geometry, p->m);
    if (fused)
        scatter_few(p, rows, blocks, fused);
    else
        scatter_many(p, rows, blocks);
}
