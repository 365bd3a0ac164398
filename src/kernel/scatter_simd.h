/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scatter (axis 0, float32 activations), the text that every instruction set
 * shares; see reduce_simd.h.  Defines `scatter_prepared_nbytes`, `scatter_prepare`
 * and `scatter_run`.
 *
 * Order: every output is one chain of fma from +0 over the rows of the range, in
 * ascending order; x carries the row's scale/d.
 *
 * Prepared x: [m][in] float32.
 */
#include "kernel/columns.h"
#include "kernel/exact.h"
#include "kernel/kernel.h"

enum {
    FUSED_M = 4,
    RUN_ROWS = 16 /* rows that accumulators see between load and store */
};

static size_t scatter_prepared_nbytes(const struct tcq_geometry *g, uint32_t m)
{
    return (size_t)g->rows * m * sizeof(float);
}

static void scatter_prepare(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                            size_t x_stride, struct tcq_range in)
{
    size_t length = (size_t)tensor->geometry.rows;
    for (uint64_t r = in.begin; r < in.end; r++) {
        float factor = tcq_exact_factor(tensor, r);
        for (uint32_t i = 0; i < m; i++)
            ((float *)dst)[i * length + r] = x[i * x_stride + r] * factor;
    }
}

#ifdef INT8_AS_FLOAT
/* int8 activations without an integer product: x on its grid, as float32. */
static void scatter_prepare_int8(void *dst, const struct tcq_tensor *tensor, uint32_t m,
                                 const float *x, size_t x_stride, struct tcq_range in)
{
    size_t length = (size_t)tensor->geometry.rows;
    scatter_prepare(dst, tensor, m, x, x_stride, in);
    for (uint32_t i = 0; i < m; i++)
        for (uint64_t r = in.begin; r < in.end; r += tensor->geometry.T) {
            size_t count = in.end - r < tensor->geometry.T ? in.end - r : tensor->geometry.T;
            float *group = (float *)dst + i * length + r;
            int8_t q[TCQ_T_MAX];
            float step = tcq_quantize_int8(q, group, count);
            for (size_t j = 0; j < count; j++)
                group[j] = (float)q[j] * step;
        }
}
#endif

/* Some rows of one block. */
struct scatter_work {
    struct decoder decoder;
    const uint8_t *block; /* in the first of the rows */
    size_t row_nbytes, block_nbytes;
    unsigned rows, steps;
    const float *x; /* of the first row and vector */
    size_t x_stride;
    float *sums; /* in the order of the windows, vector i at sums + i * sums_stride */
    size_t sums_stride;
};

/* sums of M vectors over `count` steps from `first` on, which stay in registers
 * for all rows.  last: they are the block's last steps. */
TCQ_INLINE void fused_tile(unsigned k, unsigned M, unsigned count, bool last,
                           const struct scatter_work *given, unsigned first)
{
    const struct scatter_work work = *given;
    v16 acc[FUSED_ACC];
    TCQ_UNROLL
    for (unsigned i = 0; i < M; i++)
        TCQ_UNROLL
    for (unsigned s = 0; s < count; s++)
        acc[i * count + s] = v16_load(work.sums + i * work.sums_stride + (first + s) * STEP);
    const uint8_t *block = work.block;
    for (unsigned r = 0; r < work.rows; r++, block += work.row_nbytes) {
        if (last) /* the same block of the next run of rows */
            prefetch_block(block + RUN_ROWS * work.row_nbytes, work.block_nbytes);
        TCQ_UNROLL
        for (unsigned s = 0; s < count; s++) {
            bool wrapped = last && s + wrapped_steps(k) >= count;
            v16 y = decode_step(k, false, &work.decoder, block, first + s, work.steps, wrapped);
            TCQ_UNROLL
            for (unsigned i = 0; i < M; i++)
                acc[i * count + s] =
                    v16_fma(y, v16_set1(work.x[i * work.x_stride + r]), acc[i * count + s]);
        }
    }
    TCQ_UNROLL
    for (unsigned i = 0; i < M; i++)
        TCQ_UNROLL
    for (unsigned s = 0; s < count; s++)
        v16_store(work.sums + i * work.sums_stride + (first + s) * STEP, acc[i * count + s]);
}

/* A whole block, `count` steps at a time. */
TCQ_INLINE void fused_block(unsigned k, unsigned M, unsigned count, const struct scatter_work *work)
{
    unsigned first = 0;
    for (; first + count < work->steps; first += count)
        fused_tile(k, M, count, false, work, first);
    fused_tile(k, M, count, true, work, first);
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
#define FUSED_K(k) FUSED(k, 1) FUSED(k, 2) FUSED(k, 3) FUSED(k, 4)
FUSED_K(2)
FUSED_K(3)
FUSED_K(4)

typedef void (*fused_fn)(const struct scatter_work *);

/* NULL: no such specialisation, the batch path serves. */
static fused_fn fused_find(const struct tcq_geometry *g, uint32_t m)
{
#define ROW(k)                                                                                     \
    {                                                                                              \
        fused_block_k##k##_m1, fused_block_k##k##_m2, fused_block_k##k##_m3, fused_block_k##k##_m4 \
    }
    static const fused_fn table[3][FUSED_M] = {ROW(2), ROW(3), ROW(4)};
#undef ROW
    if (m > FUSED_M || g->k < 2 || g->k > 4 || g->L == 16)
        return NULL;
    return table[g->k - 2][m - 1];
}

/* ---- more vectors: decode a tile, then multiply it ------------------------- */

/* sums += y[r][.] * x[i][r] for V steps and M vectors over the rows of y. */
TCQ_INLINE void multiply_tile(unsigned V, unsigned M, const struct scatter_work *work,
                              const float *y, float *sums, const float *x)
{
    v16 acc[TILE_M][TILE_V];
    TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < V; v++)
        acc[i][v] = v16_load(sums + i * work->sums_stride + v * STEP);
    for (size_t r = 0; r < work->rows; r++) {
        v16 yv[TILE_V];
        TCQ_UNROLL
        for (size_t v = 0; v < V; v++)
            yv[v] = v16_load(y + r * TCQ_T_MAX + v * STEP);
        TCQ_UNROLL
        for (size_t i = 0; i < M; i++) {
            v16 xi = v16_set1(x[i * work->x_stride + r]);
            TCQ_UNROLL
            for (size_t v = 0; v < V; v++)
                acc[i][v] = v16_fma(yv[v], xi, acc[i][v]);
        }
    }
    TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < V; v++)
        v16_store(sums + i * work->sums_stride + v * STEP, acc[i][v]);
}

static void batch_block(const struct tcq_geometry *g, const struct scatter_work *work, uint32_t m)
{
    _Alignas(64) float y[RUN_ROWS * TCQ_T_MAX];
    struct block_run run = {
        .block = work->block,
        .stride_nbytes = work->row_nbytes,
        .count = work->rows,
        .steps = work->steps,
        .ahead_nbytes = RUN_ROWS * work->row_nbytes,
    };
    decode_blocks(y, TCQ_T_MAX, g, &work->decoder, &run);
    for (unsigned step = 0; step < work->steps; step += TILE_V) {
        float *sums = work->sums + step * STEP;
        uint32_t i = 0;
        for (; i + TILE_M <= m; i += TILE_M)
            multiply_tile(TILE_V, TILE_M, work, y + step * STEP, sums + i * work->sums_stride,
                          work->x + i * work->x_stride);
        sums += i * work->sums_stride;
        const float *x = work->x + i * work->x_stride;
        if (TILE_M > 3 && m - i == 3)
            multiply_tile(TILE_V, 3, work, y + step * STEP, sums, x);
        else if (TILE_M > 2 && m - i == 2)
            multiply_tile(TILE_V, 2, work, y + step * STEP, sums, x);
        else if (m - i == 1)
            multiply_tile(TILE_V, 1, work, y + step * STEP, sums, x);
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
        .block_nbytes = tcq_geometry_block_words(g) * 4,
        .steps = g->T / STEP,
        .x = (const float *)p->x + row,
        .x_stride = (size_t)g->rows,
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
    for (uint32_t i = 0; i < p->m; i++)
        memset(p->y + i * p->y_stride + blocks.begin * g->T, 0,
               (blocks.end - blocks.begin) * g->T * sizeof(float));
    struct scatter_work work = work_make(p, rows.begin, blocks.begin);
    work.sums_stride = p->y_stride;
    for (uint64_t row = rows.begin; row < rows.end; row += RUN_ROWS) {
        work.rows = rows_left(rows, row);
        work.x = (const float *)p->x + row;
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            work.block =
                (const uint8_t *)(p->tensor->words + tcq_geometry_block_offset(g, row, block));
            work.sums = p->y + block * g->T;
            fused(&work);
        }
    }
    for (uint32_t i = 0; i < p->m; i++)
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            float *y = p->y + i * p->y_stride + block * g->T;
            put_columns(y, y, g);
        }
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
            batch_block(g, &work, p->m);
            work.block += RUN_ROWS * work.row_nbytes;
            work.x += RUN_ROWS;
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
