/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scatter with int8 activations and AVX-512 VNNI.  The sum over a group of T rows
 * is exact in integers; groups are added to each output by fma in ascending order.
 *
 * Up to four vectors: vpdpbusd multiplies the four bytes of a hash by four copies
 * of x; 510 * sum x is taken off in what the sums start from.  More vectors: y of
 * two rows are put side by side as int16, and vpdpwssd multiplies both at once.
 */
#include "kernel/x86/avx512_pairs.h"

#include "kernel/columns.h"
#include "kernel/exact.h"
#include "kernel/kernel.h"

enum {
    FEW_M = 4,
    FEW_ACC = 16,  /* sums in registers */
    RUN_ROWS = 32, /* decoded together */
    TILE = 4       /* steps and vectors in registers */
};

/* The prepared form: groups g of T rows have steps[g][m]; for few vectors also
 * starts[g][m], the sums' starting values.  quads[m][rows] hold four copies of a
 * byte, or for more vectors pairs[m][ceil(rows/2)] two neighbouring rows' int16. */
struct view {
    float *steps;
    int32_t *starts;
    uint32_t *x;
    size_t x_stride;
};

static bool by_quads(const struct tcq_geometry *g, uint32_t m)
{
    return m <= FEW_M && g->k >= 2 && g->k <= 4 && g->L < 16;
}

static struct view view_make(void *prepared, const struct tcq_geometry *g, uint32_t m)
{
    size_t groups = (size_t)((g->rows + g->T - 1) / g->T);
    float *steps = prepared;
    int32_t *starts = (int32_t *)(void *)(steps + groups * m);
    return (struct view){steps, starts, (uint32_t *)(void *)(starts + groups * m),
                         (size_t)(by_quads(g, m) ? g->rows : (g->rows + 1) / 2)};
}

static size_t prepared_nbytes(const struct tcq_geometry *g, uint32_t m)
{
    size_t groups = (size_t)((g->rows + g->T - 1) / g->T);
    return m * (groups * 8 + (size_t)(by_quads(g, m) ? g->rows : (g->rows + 1) / 2) * 4);
}

static void put_group(const struct view *view, const struct tcq_geometry *g, uint32_t m, uint32_t i,
                      uint64_t first, const int8_t *q, size_t count)
{
    int32_t sum = 0;
    for (size_t j = 0; j < count; j++)
        sum += q[j];
    view->starts[first / g->T * m + i] = -TCQ_CODE_OFFSET * sum;
    uint32_t *x = view->x + i * view->x_stride;
    if (by_quads(g, m)) {
        for (size_t j = 0; j < count; j++)
            x[first + j] = (uint8_t)q[j] * 0x01010101u;
        return;
    }
    for (size_t j = 0; j < count; j += 2) {
        int next = j + 1 < count ? q[j + 1] : 0;
        x[(first + j) / 2] = (uint32_t)(uint16_t)q[j] | (uint32_t)next << 16;
    }
}

static void prepare(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                    size_t x_stride, struct tcq_range in)
{
    const struct tcq_geometry *g = &tensor->geometry;
    struct view view = view_make(dst, g, m);
    for (uint64_t first = in.begin; first < in.end; first += g->T) {
        size_t count = in.end - first < g->T ? (size_t)(in.end - first) : g->T;
        float factors[TCQ_T_MAX];
        for (size_t j = 0; j < count; j++)
            factors[j] = tcq_exact_factor(tensor, first + j);
        for (uint32_t i = 0; i < m; i++) {
            float scaled[TCQ_T_MAX];
            int8_t q[TCQ_T_MAX];
            for (size_t j = 0; j < count; j++)
                scaled[j] = x[i * x_stride + first + j] * factors[j];
            view.steps[first / g->T * m + i] = tcq_quantize_int8(q, scaled, count);
            put_group(&view, g, m, i, first, q, count);
        }
    }
}

/* Some rows of one group and one block. */
struct work {
    struct decoder decoder;
    const uint8_t *block;
    size_t row_nbytes;
    unsigned rows, steps; /* of the group's rows; of the block */
    const uint32_t *x;
    size_t x_stride;
    const float *scale;    /* the group's step of each vector */
    const int32_t *starts; /* few vectors */
    float *sums;           /* in the order of the windows */
    size_t sums_stride;
};

/* sums += scale * integers, the last act of every group. */
TCQ_INLINE void add_group(float *sums, __m512i integers, float scale)
{
    v16_store(sums, v16_fma(_mm512_cvtepi32_ps(integers), v16_set1(scale), v16_load(sums)));
}

/* ---- up to four vectors --------------------------------------------------------- */

TCQ_INLINE void few_tile(unsigned k, unsigned M, unsigned count, bool last,
                         const struct work *given, unsigned first)
{
    const struct work work = *given;
    __m512i acc[FEW_ACC];
    TCQ_UNROLL
    for (unsigned i = 0; i < M; i++)
        TCQ_UNROLL
    for (unsigned s = 0; s < count; s++)
        acc[i * count + s] = _mm512_set1_epi32(work.starts[i]);
    const uint8_t *block = work.block;
    for (unsigned r = 0; r < work.rows; r++, block += work.row_nbytes) {
        if (first == 0)
            prefetch_bytes(block + 16 * work.row_nbytes, 2 * k * work.steps);
        TCQ_UNROLL
        for (unsigned s = 0; s < count; s++) {
            bool wrapped = last && s + wrapped_steps(k) >= count;
            __m512i z = hash_step(k, false, &work.decoder, block, first + s, work.steps, wrapped);
            TCQ_UNROLL
            for (unsigned i = 0; i < M; i++)
                acc[i * count + s] = add_dot_bytes(
                    acc[i * count + s], z, _mm512_set1_epi32((int)work.x[i * work.x_stride + r]));
        }
    }
    TCQ_UNROLL
    for (unsigned i = 0; i < M; i++)
        TCQ_UNROLL
    for (unsigned s = 0; s < count; s++)
        add_group(work.sums + i * work.sums_stride + (first + s) * STEP, acc[i * count + s],
                  work.scale[i]);
}

TCQ_INLINE void few_block(unsigned k, unsigned M, unsigned count, const struct work *work)
{
    unsigned first = 0;
    for (; first + count < work->steps; first += count)
        few_tile(k, M, count, false, work, first);
    few_tile(k, M, count, true, work, first);
}

#define FEW(k, M)                                                                        \
    static __attribute__((noinline)) void few_block_k##k##_m##M(const struct work *work) \
    {                                                                                    \
        if (M == 1 && work->steps == 16)                                                 \
            few_block(k, M, 16, work);                                                   \
        else                                                                             \
            few_block(k, M, 4, work);                                                    \
    }
#define FEW_K(k) FEW(k, 1) FEW(k, 2) FEW(k, 3) FEW(k, 4)
FEW_K(2)
FEW_K(3)
FEW_K(4)

/* ---- more vectors --------------------------------------------------------------- */

/* integers += y * x over `pairs` pairs of rows, TILE steps, M vectors. */
TCQ_INLINE void multiply_tile(size_t M, int32_t *integers, const int32_t *y, const uint32_t *x,
                              size_t x_stride, size_t pairs)
{
    __m512i acc[TILE][TILE];
    TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < TILE; v++)
        acc[i][v] = _mm512_loadu_si512(integers + i * TCQ_T_MAX + v * STEP);
    for (size_t r = 0; r < pairs; r++) {
        __m512i yv[TILE];
        TCQ_UNROLL
        for (size_t v = 0; v < TILE; v++)
            yv[v] = _mm512_loadu_si512(y + r * TCQ_T_MAX + v * STEP);
        TCQ_UNROLL
        for (size_t i = 0; i < M; i++) {
            __m512i xi = _mm512_set1_epi32((int)x[i * x_stride + r]);
            TCQ_UNROLL
            for (size_t v = 0; v < TILE; v++)
                acc[i][v] = add_dot_words(acc[i][v], yv[v], xi);
        }
    }
    TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < TILE; v++)
        _mm512_storeu_si512(integers + i * TCQ_T_MAX + v * STEP, acc[i][v]);
}

/* The sums of one group. */
static void batch_group(const struct tcq_geometry *g, struct work work, uint32_t m)
{
    const decode_stacked_fn decode = decode_stacked_find(g->k);
    _Alignas(64) int32_t integers[TCQ_SMALL_M_MAX * TCQ_T_MAX], y[RUN_ROWS / 2 * TCQ_T_MAX];
    memset(integers, 0, m * TCQ_T_MAX * sizeof *integers);
    for (unsigned row = 0; row < work.rows; row += RUN_ROWS) {
        unsigned rows = work.rows - row < RUN_ROWS ? work.rows - row : RUN_ROWS;
        struct pairs_run run = {
            .block = work.block,
            .row_nbytes = work.row_nbytes,
            .ahead_nbytes = RUN_ROWS * work.row_nbytes,
            .rows = rows,
            .steps = work.steps,
        };
        decode(g->L == 16, y, TCQ_T_MAX, &run, &work.decoder, 0, work.steps);
        for (unsigned step = 0; step < work.steps; step += TILE) {
            size_t i = 0, at = step * STEP;
            for (; i + TILE <= m; i += TILE)
                multiply_tile(TILE, integers + i * TCQ_T_MAX + at, y + at,
                              work.x + i * work.x_stride, work.x_stride, (rows + 1) / 2);
            for (; i < m; i++)
                multiply_tile(1, integers + i * TCQ_T_MAX + at, y + at, work.x + i * work.x_stride,
                              work.x_stride, (rows + 1) / 2);
        }
        work.block += RUN_ROWS * work.row_nbytes;
        work.x += RUN_ROWS / 2;
    }
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < g->T; j += STEP)
            add_group(work.sums + i * work.sums_stride + j,
                      _mm512_loadu_si512(integers + i * TCQ_T_MAX + j), work.scale[i]);
}

/* ---- the whole range ------------------------------------------------------------ */

typedef void (*few_fn)(const struct work *);

static few_fn few_find(const struct tcq_geometry *g, uint32_t m)
{
#define ROW(k)                                                                             \
    {                                                                                      \
        few_block_k##k##_m1, few_block_k##k##_m2, few_block_k##k##_m3, few_block_k##k##_m4 \
    }
    static const few_fn table[3][FEW_M] = {ROW(2), ROW(3), ROW(4)};
#undef ROW
    return by_quads(g, m) ? table[g->k - 2][m - 1] : NULL;
}

/* Groups outermost: the words of one group's rows stay in L2 while their lines
 * serve neighbouring blocks. */
static void run(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    const struct view view = view_make((void *)(uintptr_t)p->x, g, p->m);
    few_fn few = few_find(g, p->m);
    struct work work = {
        .decoder = decoder_make(g->k, g->L),
        .row_nbytes = row_distance_nbytes(g),
        .steps = g->T / STEP,
        .x_stride = view.x_stride,
        .sums_stride = p->y_stride,
    };
    begin_columns(p, blocks);
    for (uint64_t row = rows.begin; row < rows.end; row += g->T) {
        work.rows = rows.end - row < g->T ? (unsigned)(rows.end - row) : g->T;
        work.x = view.x + (few ? row : row / 2);
        work.scale = view.steps + row / g->T * p->m;
        work.starts = view.starts + row / g->T * p->m;
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            work.block =
                (const uint8_t *)(p->tensor->words + tcq_geometry_block_offset(g, row, block));
            work.sums = p->y + block * g->T;
            if (few)
                few(&work);
            else
                batch_group(g, work, p->m);
        }
    }
    finish_columns(p, blocks);
}

const struct tcq_small_kernel tcq_scatter_int8_avx512 = {"scatter_int8_avx512", prepared_nbytes,
                                                         prepare, run};
