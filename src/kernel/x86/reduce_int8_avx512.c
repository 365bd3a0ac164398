/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce with int8 activations and AVX-512 VNNI.  The sum over a block is exact in
 * integers, so only its place among the lanes and the order of blocks matter: a
 * lane holds the products of four windows that vpackssdw brings together (two of
 * an even step, or two of an odd one), blocks ascend by fma, lanes are added by
 * halves.
 *
 * One vector: vpdpbusd multiplies the four bytes of a hash by four copies of x and
 * adds them: five instructions for sixteen weights.  510 * x is taken off in what
 * the sums start from.  More vectors: y is packed to int16 and vpdpwssd multiplies
 * 32 weights at once.
 */
#include "kernel/x86/avx512_pairs.h"

#include "kernel/rows.h"

enum {
    ROWS = 4, /* at once, one vector */
    BATCH_ROWS = STEP,
    TILE = 4 /* rows and vectors in registers */
};

/* The prepared form: steps [in/T][m], then by quads the starting sums
 * [in/T][2][16] of even and odd steps and four bytes an input, or else int16
 * [in/T][m][T]. */
struct view {
    float *steps;
    int32_t *start; /* by quads */
    uint32_t *quads;
    int16_t *pairs; /* otherwise */
};

/* Whether one vector goes the way of four bytes an input. */
static bool by_quads(const struct tcq_geometry *g, uint32_t m)
{
    return m == 1 && g->k >= 2 && g->k <= 4 && g->L < 16;
}

static size_t round64(size_t nbytes)
{
    return (nbytes + 63) / 64 * 64;
}

static struct view view_make(void *prepared, const struct tcq_geometry *g, uint32_t m)
{
    size_t blocks = (size_t)(g->cols / g->T);
    char *body = (char *)prepared + round64(blocks * m * sizeof(float));
    return (struct view){prepared, (int32_t *)(void *)body,
                         (uint32_t *)(void *)(body + blocks * 2 * STEP * sizeof(int32_t)),
                         (int16_t *)(void *)body};
}

static size_t prepared_nbytes(const struct tcq_geometry *g, uint32_t m)
{
    size_t blocks = (size_t)(g->cols / g->T), cols = (size_t)g->cols;
    size_t body = by_quads(g, m) ? blocks * 2 * STEP * sizeof(int32_t) + cols * 4 : cols * m * 2;
    return round64(blocks * m * sizeof(float)) + body;
}

/* One vector's block in the order of the windows. */
static void put_quads(int32_t *start, uint32_t *quads, const int8_t *q,
                      const struct tcq_geometry *g)
{
    memset(start, 0, 2 * STEP * sizeof *start);
    for (unsigned j = 0; j < g->T; j++) {
        int8_t value = q[g->T - 1 - lane_window(g->k, j / STEP, j % STEP)];
        start[j % (2 * STEP)] -= TCQ_CODE_OFFSET * value;
        quads[j] = (uint8_t)value * 0x01010101u;
    }
}

static void put_pairs(int16_t *pairs, const int8_t *q, const struct tcq_geometry *g)
{
    for (unsigned j = 0; j < g->T; j++)
        pairs[j] = q[g->T - 1 - packed_window(g->k, j)];
}

static void prepare(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                    size_t x_stride, struct tcq_range in)
{
    const struct tcq_geometry *g = &tensor->geometry;
    struct view view = view_make(dst, g, m);
    for (uint64_t block = in.begin / g->T; block < in.end / g->T; block++)
        for (uint32_t i = 0; i < m; i++) {
            int8_t q[TCQ_T_MAX];
            view.steps[block * m + i] = tcq_quantize_int8(q, x + i * x_stride + block * g->T, g->T);
            if (by_quads(g, m))
                put_quads(view.start + block * 2 * STEP, view.quads + block * g->T, q, g);
            else
                put_pairs(view.pairs + (block * m + i) * g->T, q, g);
        }
}

/* [A0+A1, A2+A3, B0+B1, B2+B3] of each 128 bits. */
TCQ_INLINE __m512i add_neighbours(__m512i a, __m512i b)
{
    __m512 p = _mm512_castsi512_ps(a), q = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(p, q, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(p, q, 0xdd)));
}

/* ---- one vector -------------------------------------------------------------- */

/* The rows that one call works on. */
struct span {
    struct decoder decoder;
    const uint8_t *rows;
    size_t row_nbytes;
    const struct tcq_geometry *g;
    struct view view;
};

/* Two steps of R rows. */
TCQ_INLINE void single_steps(unsigned k, unsigned R, __m512i even[ROWS], __m512i odd[ROWS],
                             const struct span *span, const uint8_t *block, const uint32_t *x,
                             unsigned step, bool last)
{
    unsigned steps = span->g->T / STEP;
    TCQ_UNROLL
    for (unsigned r = 0; r < R; r++) {
        const uint8_t *p = block + r * span->row_nbytes;
        __m512i z = hash_step(k, false, &span->decoder, p, step, steps, false);
        even[r] = add_dot_bytes(even[r], z, _mm512_loadu_si512(x + step * STEP));
        z = hash_step(k, false, &span->decoder, p, step + 1, steps, last);
        odd[r] = add_dot_bytes(odd[r], z, _mm512_loadu_si512(x + (step + 1) * STEP));
    }
}

/* sums[r] of R rows, before scale/d. */
TCQ_INLINE void single_tile(unsigned k, unsigned R, float *sums, const struct span *given)
{
    const struct span span = *given;
    const unsigned T = span.g->T, steps = T / STEP;
    const size_t blocks = (size_t)(span.g->cols / T);
    __m512 total[ROWS];
    TCQ_UNROLL
    for (unsigned r = 0; r < R; r++)
        total[r] = _mm512_setzero_ps();
    const uint8_t *block = span.rows;
    for (size_t b = 0; b < blocks; b++, block += 2 * k * steps) {
        const uint32_t *x = span.view.quads + b * T;
        __m512i even[ROWS], odd[ROWS];
        TCQ_UNROLL
        for (unsigned r = 0; r < R; r++) {
            even[r] = _mm512_loadu_si512(span.view.start + b * 2 * STEP);
            odd[r] = _mm512_loadu_si512(span.view.start + b * 2 * STEP + STEP);
            prefetch_bytes(block + (R + r) * span.row_nbytes, 2 * k * steps);
        }
        for (unsigned step = 0; step < steps - 2; step += 2)
            single_steps(k, R, even, odd, &span, block, x, step, false);
        single_steps(k, R, even, odd, &span, block, x, steps - 2, true);
        TCQ_UNROLL
        for (unsigned r = 0; r < R; r++)
            total[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(add_neighbours(even[r], odd[r])),
                                       _mm512_set1_ps(span.view.steps[b]), total[r]);
    }
    TCQ_UNROLL
    for (unsigned r = 0; r < R; r++)
        sums[r] = v16_sum(total[r]);
}

#define SINGLE(k)                                                               \
    static __attribute__((noinline)) void single_rows_k##k(                     \
        const struct tcq_product *p, struct span *span, struct tcq_range rows)  \
    {                                                                           \
        for (uint64_t row = rows.begin; row < rows.end;) {                      \
            float sums[ROWS];                                                   \
            unsigned count = row + ROWS <= rows.end ? ROWS : 1;                 \
            if (count == ROWS)                                                  \
                single_tile(k, ROWS, sums, span);                               \
            else                                                                \
                single_tile(k, 1, sums, span);                                  \
            for (unsigned r = 0; r < count; r++)                                \
                p->y[row + r] = sums[r] * tcq_exact_factor(p->tensor, row + r); \
            row += count;                                                       \
            span->rows += count * span->row_nbytes;                             \
        }                                                                       \
    }
SINGLE(2)
SINGLE(3)
SINGLE(4)

/* ---- more vectors -------------------------------------------------------------- */

/* state[r][i] += step[i] * (y[r] . x[i]) over one block, TILE rows, M vectors. */
TCQ_INLINE void multiply_tile(size_t M, float *state, size_t m, const int16_t *y, const int16_t *x,
                              const float *step, size_t T)
{
    __m512i acc[TILE][TILE];
    TCQ_UNROLL
    for (size_t r = 0; r < TILE; r++)
        TCQ_UNROLL
    for (size_t i = 0; i < M; i++)
        acc[r][i] = _mm512_setzero_si512();
    for (size_t j = 0; j < T; j += 2 * STEP) {
        __m512i yr[TILE];
        TCQ_UNROLL
        for (size_t r = 0; r < TILE; r++)
            yr[r] = _mm512_loadu_si512(y + r * TCQ_T_MAX + j);
        TCQ_UNROLL
        for (size_t i = 0; i < M; i++) {
            __m512i xi = _mm512_loadu_si512(x + i * T + j);
            TCQ_UNROLL
            for (size_t r = 0; r < TILE; r++)
                acc[r][i] = add_dot_words(acc[r][i], yr[r], xi);
        }
    }
    TCQ_UNROLL
    for (size_t r = 0; r < TILE; r++)
        TCQ_UNROLL
    for (size_t i = 0; i < M; i++) {
        float *at = state + (r * m + i) * STEP;
        _mm512_storeu_ps(at, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][i]), _mm512_set1_ps(step[i]),
                                             _mm512_loadu_ps(at)));
    }
}

static void multiply_block(float *state, size_t m, const int16_t *y, const int16_t *x,
                           const float *step, size_t T)
{
    size_t i = 0;
    for (; i + TILE <= m; i += TILE)
        for (size_t r = 0; r < BATCH_ROWS; r += TILE)
            multiply_tile(TILE, state + (r * m + i) * STEP, m, y + r * TCQ_T_MAX, x + i * T,
                          step + i, T);
    for (; i < m; i++)
        for (size_t r = 0; r < BATCH_ROWS; r += TILE)
            multiply_tile(1, state + (r * m + i) * STEP, m, y + r * TCQ_T_MAX, x + i * T, step + i,
                          T);
}

static void batch_rows(const struct tcq_product *p, const struct span *span, uint64_t row,
                       unsigned rows)
{
    const decode_packed_fn decode = decode_packed_find(span->g->k);
    size_t m = p->m, T = span->g->T, block_nbytes = tcq_geometry_block_words(span->g) * 4;
    _Alignas(64) int16_t y[BATCH_ROWS * TCQ_T_MAX] = {0};
    _Alignas(64) float state[BATCH_ROWS * TCQ_SMALL_M_MAX * STEP];
    memset(state, 0, sizeof(float) * BATCH_ROWS * m * STEP);
    for (size_t b = 0; b < span->g->cols / T; b++) {
        struct pairs_run run = {
            .block = span->rows + b * block_nbytes,
            .row_nbytes = span->row_nbytes,
            .ahead_nbytes = block_nbytes,
            .rows = rows,
            .steps = (unsigned)T / STEP,
        };
        decode(span->g->L == 16, y, &run, &span->decoder);
        multiply_block(state, m, y, span->view.pairs + b * m * T, span->view.steps + b * m, T);
    }
    finish_rows(p, state, row, rows);
}

static void run(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    (void)blocks; /* always all of them */
    struct span span = {
        .decoder = decoder_make(g->k, g->L),
        .rows = (const uint8_t *)(p->tensor->words + tcq_geometry_block_offset(g, rows.begin, 0)),
        .row_nbytes = tcq_geometry_row_words(g) * 4,
        .g = g,
        .view = view_make((void *)(uintptr_t)p->x, g, p->m),
    };
    if (by_quads(g, p->m)) {
        void (*const single[])(const struct tcq_product *, struct span *,
                               struct tcq_range) = {single_rows_k2, single_rows_k3, single_rows_k4};
        single[g->k - 2](p, &span, rows);
        return;
    }
    for (uint64_t row = rows.begin; row < rows.end; row += BATCH_ROWS) {
        unsigned count = rows.end - row < BATCH_ROWS ? (unsigned)(rows.end - row) : BATCH_ROWS;
        batch_rows(p, &span, row, count);
        span.rows += BATCH_ROWS * span.row_nbytes;
    }
}

const struct tcq_small_kernel tcq_reduce_int8_avx512 = {"reduce_int8_avx512", prepared_nbytes,
                                                        prepare, run};
