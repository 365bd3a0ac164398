/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many vectors, integer weights: x is rounded to a grid of 2 * 16383 + 1 points a
 * vector and T inputs, and vpdpwssd multiplies 32 pairs of int16 an instruction,
 * twice what fma does.  A sum over a group is exact: 510 * 16383 * 256 < 2^31.
 *
 * One register tile serves both axes: sums[TILE_A][TILE_B * 16] of pairs of a that
 * are broadcast and pairs of b that lie side by side.  Axis 1: a is y of rows, b is
 * x of 64 vectors.  Axis 0: a is x of vectors, b is y of 64 columns.  Either panel
 * of b over one group is 32 KiB.
 */
#include "kernel/x86/avx512_pairs.h"

#include "kernel/columns.h"
#include "kernel/exact.h"
#include "kernel/kernel.h"

enum {
    GRID = 16383,
    TILE_A = 6,
    TILE_B = 4,
    WIDTH = TILE_B * STEP,  /* of a panel of b */
    BATCH_ROWS = 4 * TILE_A /* decoded together, axis 1 */
};
_Static_assert((int64_t)TCQ_CODE_OFFSET *GRID *TCQ_T_MAX < INT32_MAX, "sums fit");

/* The prepared form.  Axis 1: steps[in/T][panels*64] and pairs
 * [in/T][panels][T/2][64], panels = ceil(m/64), the rest zero.  Axis 0: steps
 * [groups of T][m] and pairs[m][ceil(rows/2)]. */
struct view {
    float *steps;
    int32_t *pairs;
    size_t panels, pair_stride;
};

static size_t groups_of(const struct tcq_geometry *g)
{
    return (size_t)((tcq_geometry_in(g) + g->T - 1) / g->T);
}

static size_t panels_of(uint32_t m)
{
    return (m + WIDTH - 1) / WIDTH;
}

static size_t steps_nbytes(const struct tcq_geometry *g, uint32_t m)
{
    size_t nbytes = groups_of(g) * (g->axis ? panels_of(m) * WIDTH : m) * sizeof(float);
    return (nbytes + 63) / 64 * 64;
}

static struct view view_make(const void *prepared, const struct tcq_geometry *g, uint32_t m)
{
    char *base = (char *)(uintptr_t)prepared;
    return (struct view){(float *)(void *)base, (int32_t *)(void *)(base + steps_nbytes(g, m)),
                         panels_of(m), (size_t)((g->rows + 1) / 2)};
}

static size_t prepared_nbytes(const struct tcq_geometry *g, uint32_t m)
{
    size_t pairs =
        g->axis ? groups_of(g) * panels_of(m) * g->T / 2 * WIDTH : m * (size_t)((g->rows + 1) / 2);
    return steps_nbytes(g, m) + pairs * sizeof(int32_t);
}

/* q = x / step to nearest even; returns step = max|x| / GRID.  x is padded with
 * zeros to a multiple of sixteen and finite. */
static float quantize(int16_t *q, const float *x, size_t count)
{
    __m512 largest = _mm512_setzero_ps();
    for (size_t j = 0; j < count; j += STEP)
        largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_loadu_ps(x + j)));
    float step = _mm512_reduce_max_ps(largest) / (float)GRID;
    const __m512i limit = _mm512_set1_epi32(GRID);
    for (size_t j = 0; j < count; j += STEP) {
        __m512i r = _mm512_setzero_si512();
        if (step > 0.0f)
            r = _mm512_cvtps_epi32(_mm512_div_ps(_mm512_loadu_ps(x + j), _mm512_set1_ps(step)));
        r = _mm512_max_epi32(_mm512_min_epi32(r, limit),
                             _mm512_sub_epi32(_mm512_setzero_si512(), limit));
        _mm256_storeu_si256((void *)(q + j), _mm512_cvtepi32_epi16(r));
    }
    return step;
}

static int32_t pair(int16_t low, int16_t high)
{
    return (int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16);
}

/* Axis 1: one group of one vector into its lane of the panel; order[j] is where
 * number j of the order of vpackssdw lies. */
static void put_lane(const struct view *view, size_t T, size_t group, size_t i, const int16_t *q,
                     const uint8_t *order)
{
    int32_t *to = view->pairs + (group * view->panels + i / WIDTH) * T / 2 * WIDTH + i % WIDTH;
    for (size_t j = 0; j < T; j += 2)
        to[j / 2 * WIDTH] = pair(q[order[j]], q[order[j + 1]]);
}

static void prepare(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                    size_t x_stride, struct tcq_range in)
{
    const struct tcq_geometry *g = &tensor->geometry;
    const struct view view = view_make(dst, g, m);
    size_t lanes = g->axis ? view.panels * WIDTH : m;
    uint8_t order[TCQ_T_MAX];
    for (unsigned j = 0; j < g->T; j++)
        order[j] = (uint8_t)(g->T - 1 - packed_window(g->k, j));
    for (uint64_t first = in.begin; first < in.end; first += g->T) {
        size_t count = in.end - first < g->T ? (size_t)(in.end - first) : g->T;
        size_t group = (size_t)(first / g->T);
        float factors[TCQ_T_MAX];
        for (size_t j = 0; j < count; j++)
            factors[j] = g->axis ? 1.0f : tcq_exact_factor(tensor, first + j);
        for (size_t i = 0; i < lanes; i++) {
            float scaled[TCQ_T_MAX] = {0};
            int16_t q[TCQ_T_MAX];
            const float *from = x + i * x_stride + (first - in.begin);
            for (size_t j = 0; i < m && j < count; j++)
                scaled[j] = from[j] * factors[j];
            view.steps[group * lanes + i] = quantize(q, scaled, g->T);
            if (g->axis)
                put_lane(&view, g->T, group, i, q, order);
            else
                for (size_t j = 0; j < count; j += 2)
                    view.pairs[i * view.pair_stride + (first + j) / 2] = pair(q[j], q[j + 1]);
        }
    }
}

/* integers of A rows of pairs of a (a_stride dwords apart) and V vectors of b. */
TCQ_INLINE void multiply(size_t A, size_t V, __m512i acc[TILE_A][TILE_B], const int32_t *a,
                         size_t a_stride, const int32_t *b, size_t pairs)
{
    TCQ_UNROLL
    for (size_t i = 0; i < A; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < V; v++)
        acc[i][v] = _mm512_setzero_si512();
    for (size_t l = 0; l < pairs; l++) {
        __m512i bv[TILE_B];
        TCQ_UNROLL
        for (size_t v = 0; v < V; v++)
            bv[v] = _mm512_loadu_si512(b + l * WIDTH + v * STEP);
        TCQ_UNROLL
        for (size_t i = 0; i < A; i++) {
            __m512i ai = _mm512_set1_epi32(a[i * a_stride + l]);
            TCQ_UNROLL
            for (size_t v = 0; v < V; v++)
                acc[i][v] = add_dot_words(acc[i][v], bv[v], ai);
        }
    }
}

/* ---- axis 1 -------------------------------------------------------------------- */

/* sums[r][lane] += step[lane] * integers, for TILE_A rows and V * 16 vectors. */
TCQ_INLINE void reduce_tile(size_t V, float *sums, size_t sums_stride, const int16_t *y,
                            const int32_t *x, const float *steps, size_t T)
{
    __m512i acc[TILE_A][TILE_B];
    multiply(TILE_A, V, acc, (const int32_t *)(const void *)y, TCQ_T_MAX / 2, x, T / 2);
    TCQ_UNROLL
    for (size_t i = 0; i < TILE_A; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < V; v++) {
        float *at = sums + i * sums_stride + v * STEP;
        v16_store(at,
                  v16_fma(_mm512_cvtepi32_ps(acc[i][v]), v16_load(steps + v * STEP), v16_load(at)));
    }
}

/* One group of inputs for BATCH_ROWS decoded rows and all vectors. */
static void reduce_group(float *sums, const int16_t *y, const struct view *view, size_t group,
                         size_t m, size_t T)
{
    size_t lanes = view->panels * WIDTH;
    for (size_t i = 0; i < m; i += WIDTH) {
        const int32_t *x = view->pairs + (group * view->panels + i / WIDTH) * T / 2 * WIDTH;
        const float *steps = view->steps + group * lanes + i;
        for (size_t r = 0; r < BATCH_ROWS; r += TILE_A) {
            float *to = sums + r * lanes + i;
            if (m - i > 2 * STEP)
                reduce_tile(TILE_B, to, lanes, y + r * TCQ_T_MAX, x, steps, T);
            else
                reduce_tile(2, to, lanes, y + r * TCQ_T_MAX, x, steps, T);
        }
    }
}

static void reduce_finish(const struct tcq_product *p, const float *sums, size_t lanes,
                          uint64_t row, size_t rows)
{
    for (size_t r = 0; r < rows; r += STEP) {
        size_t count = rows - r < STEP ? rows - r : STEP;
        float factors[STEP] = {0}, column[STEP];
        for (size_t j = 0; j < count; j++)
            factors[j] = tcq_exact_factor(p->tensor, row + r + j);
        for (size_t i = 0; i < p->m; i++) {
            for (size_t j = 0; j < count; j++)
                column[j] = sums[(r + j) * lanes + i] * factors[j];
            memcpy(p->y + i * p->y_stride + r, column, count * sizeof(float));
        }
    }
}

/* Groups of inputs outermost: x of one group is in L2 for all rows. */
static void reduce(const struct tcq_product *p, struct tcq_range rows, float *sums)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    const struct view view = view_make(p->x, g, p->m);
    const struct decoder decoder = decoder_make(g->k, g->L);
    const decode_packed_fn decode = decode_packed_find(g->k);
    size_t lanes = view.panels * WIDTH, count = (size_t)(rows.end - rows.begin);
    size_t padded = (count + BATCH_ROWS - 1) / BATCH_ROWS * BATCH_ROWS;
    _Alignas(64) int16_t y[BATCH_ROWS * TCQ_T_MAX] = {0};
    memset(sums, 0, padded * lanes * sizeof *sums);
    for (size_t group = 0; group < g->cols / g->T; group++)
        for (size_t r = 0; r < count; r += BATCH_ROWS) {
            size_t at = tcq_geometry_block_offset(g, rows.begin + r, group);
            struct pairs_run run = {
                .block = (const uint8_t *)(p->tensor->words + at),
                .row_nbytes = tcq_geometry_row_words(g) * 4,
                .ahead_nbytes = BATCH_ROWS * tcq_geometry_row_words(g) * 4,
                .rows = count - r < BATCH_ROWS ? (unsigned)(count - r) : BATCH_ROWS,
                .steps = g->T / STEP,
            };
            decode(g->L == 16, y, &run, &decoder);
            reduce_group(sums + r * lanes, y, &view, group, p->m, g->T);
        }
    reduce_finish(p, sums, lanes, rows.begin, count);
}

/* ---- axis 0 -------------------------------------------------------------------- */

/* y[i][.] += step[i] * integers, for A vectors and WIDTH columns. */
TCQ_INLINE void scatter_tile(size_t A, float *y, size_t y_stride, const int32_t *x, size_t x_stride,
                             const int32_t *weights, const float *steps, size_t pairs)
{
    __m512i acc[TILE_A][TILE_B];
    multiply(A, TILE_B, acc, x, x_stride, weights, pairs);
    TCQ_UNROLL
    for (size_t i = 0; i < A; i++)
        TCQ_UNROLL
    for (size_t v = 0; v < TILE_B; v++) {
        float *at = y + i * y_stride + v * STEP;
        v16_store(at, v16_fma(_mm512_cvtepi32_ps(acc[i][v]), v16_set1(steps[i]), v16_load(at)));
    }
}

/* Some columns (four steps) of one block and one group of rows. */
static void scatter_panel(const struct tcq_product *p, const struct view *view, float *y,
                          const int32_t *weights, struct tcq_range rows)
{
    size_t pairs = (size_t)(rows.end - rows.begin + 1) / 2, i = 0, m = p->m;
    const float *steps = view->steps + rows.begin / p->tensor->geometry.T * m;
    const int32_t *x = view->pairs + rows.begin / 2;
    for (; i + TILE_A <= m; i += TILE_A)
        scatter_tile(TILE_A, y + i * p->y_stride, p->y_stride, x + i * view->pair_stride,
                     view->pair_stride, weights, steps + i, pairs);
    for (; i < m; i++)
        scatter_tile(1, y + i * p->y_stride, p->y_stride, x + i * view->pair_stride,
                     view->pair_stride, weights, steps + i, pairs);
}

static void scatter(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    const struct view view = view_make(p->x, g, p->m);
    const struct decoder decoder = decoder_make(g->k, g->L);
    const decode_stacked_fn decode = decode_stacked_find(g->k);
    _Alignas(64) int32_t weights[TCQ_T_MAX / 2 * WIDTH];
    for (size_t i = 0; i < p->m; i++)
        memset(p->y + i * p->y_stride, 0, (blocks.end - blocks.begin) * g->T * sizeof(float));
    for (uint64_t row = rows.begin; row < rows.end; row += g->T)
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            struct tcq_range group = {row, rows.end - row < g->T ? rows.end : row + g->T};
            struct pairs_run run = {
                .block =
                    (const uint8_t *)(p->tensor->words + tcq_geometry_block_offset(g, row, block)),
                .row_nbytes = row_distance_nbytes(g),
                .rows = (unsigned)(group.end - group.begin),
                .steps = g->T / STEP,
            };
            run.ahead_nbytes = 16 * run.row_nbytes;
            for (unsigned step = 0; step < run.steps; step += TILE_B) {
                decode(g->L == 16, weights, WIDTH, &run, &decoder, step, TILE_B);
                scatter_panel(p, &view, p->y + (block - blocks.begin) * g->T + step * STEP, weights,
                              group);
            }
        }
    for (size_t i = 0; i < p->m; i++)
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            float *y = p->y + i * p->y_stride + (block - blocks.begin) * g->T;
            put_columns(y, y, g);
        }
}

/* ---- either ---------------------------------------------------------------------- */

static size_t scratch_nbytes(const struct tcq_geometry *g, uint32_t m, uint64_t outputs)
{
    size_t padded = ((size_t)outputs + BATCH_ROWS - 1) / BATCH_ROWS * BATCH_ROWS;
    return g->axis ? padded * panels_of(m) * WIDTH * sizeof(float) : 0;
}

static void run(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks,
                void *scratch)
{
    if (p->tensor->geometry.axis)
        reduce(p, rows, scratch);
    else
        scatter(p, rows, blocks);
}

const struct tcq_wide_kernel tcq_wide_avx512 = {"wide_avx512", prepared_nbytes, prepare,
                                                scratch_nbytes, run};
