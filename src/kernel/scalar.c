/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast operations in portable C: the fallback of every CPU, and the plainest
 * statement of what the SIMD variants do.
 *
 * Orders (a product is rounded before it is added: no fma, which not every CPU
 * has).  reduce: 16 lanes, lane j sums positions j, j+16, ... of the row in
 * ascending order; lanes are added by halves (8, 4, 2, 1); times scale/d.
 * scatter: y += weight * x in ascending row order.  With int8 activations the
 * sums over a group of T inputs are integers and the groups ascend.
 */
#include <math.h>
#include <string.h>

#include "format/geometry.h"
#include "kernel/exact.h"
#include "kernel/kernel.h"
#include "kernel/reference/reference.h"

enum { LANES = 16 };

/* ---- decoding ---------------------------------------------------------- */

/* y of the T positions of one block, four from one window of 64 bits. */
static void decode_block(int16_t *y, const struct tcq_tensor *tensor, uint64_t row, uint64_t block)
{
    const struct tcq_geometry *g = &tensor->geometry;
    const uint32_t *words = tensor->words + tcq_geometry_block_offset(g, row, block);
    uint32_t count = g->T * g->k / 32, mask = (1u << g->L) - 1, k = g->k;
    for (uint32_t t = 0; t < g->T; t += 4) {
        uint32_t bit = (g->T - 4 - t) * k, word = bit >> 5;
        uint64_t next = words[word + 1 == count ? 0 : word + 1];
        uint64_t window = (next << 32 | words[word]) >> (bit & 31);
        for (uint32_t i = 0; i < 4; i++)
            y[t + i] = (int16_t)tcq_code_y((uint32_t)(window >> (3 - i) * k) & mask);
    }
}

/* ---- float32 activations ------------------------------------------------ */

static uint64_t inputs(const struct tcq_geometry *g)
{
    return tcq_geometry_in(g);
}

static size_t float_nbytes(const struct tcq_geometry *g, uint32_t m)
{
    return (size_t)inputs(g) * m * sizeof(float);
}

/* [m][in], on axis 0 times scale/d. */
static void float_prepare(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                          size_t x_stride, struct tcq_range in)
{
    size_t length = (size_t)inputs(&tensor->geometry);
    for (uint32_t i = 0; i < m; i++) {
        float *to = (float *)dst + i * length;
        const float *from = x + i * x_stride;
        if (tensor->geometry.axis)
            memcpy(to + in.begin, from + in.begin, (in.end - in.begin) * sizeof *to);
        else
            for (uint64_t r = in.begin; r < in.end; r++)
                to[r] = from[r] * tcq_exact_factor(tensor, r);
    }
}

static float lanes_sum(float v[LANES])
{
    for (int d = LANES / 2; d; d /= 2)
        for (int l = 0; l < d; l++)
            v[l] += v[l + d];
    return v[0];
}

static void reduce_run(const struct tcq_product *p, struct tcq_range rows, struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    size_t length = (size_t)g->cols;
    for (uint64_t row = rows.begin; row < rows.end; row++) {
        float acc[TCQ_SMALL_M_MAX][LANES] = {{0}};
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            int16_t y[TCQ_T_MAX];
            decode_block(y, p->tensor, row, block);
            for (uint32_t i = 0; i < p->m; i++) {
                const float *x = (const float *)p->x + i * length + block * g->T;
                for (uint32_t t = 0; t < g->T; t += LANES)
                    for (uint32_t l = 0; l < LANES; l++)
                        acc[i][l] += (float)y[t + l] * x[t + l];
            }
        }
        float factor = tcq_exact_factor(p->tensor, row);
        for (uint32_t i = 0; i < p->m; i++)
            p->y[i * p->y_stride + row] = lanes_sum(acc[i]) * factor;
    }
}

static void clear_outputs(const struct tcq_product *p, struct tcq_range blocks)
{
    uint32_t T = p->tensor->geometry.T;
    for (uint32_t i = 0; i < p->m; i++)
        memset(p->y + i * p->y_stride + blocks.begin * T, 0,
               (blocks.end - blocks.begin) * T * sizeof(float));
}

static void scatter_run(const struct tcq_product *p, struct tcq_range rows,
                        struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    size_t length = (size_t)g->rows;
    clear_outputs(p, blocks);
    for (uint64_t row = rows.begin; row < rows.end; row++)
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            int16_t y[TCQ_T_MAX];
            decode_block(y, p->tensor, row, block);
            for (uint32_t i = 0; i < p->m; i++) {
                float x = ((const float *)p->x)[i * length + row];
                float *out = p->y + i * p->y_stride + block * g->T;
                for (uint32_t t = 0; t < g->T; t++)
                    out[t] += (float)y[t] * x;
            }
        }
}

const struct tcq_small_kernel tcq_reduce_scalar = {"reduce_scalar", float_nbytes, float_prepare,
                                                   reduce_run};
const struct tcq_small_kernel tcq_scatter_scalar = {"scatter_scalar", float_nbytes, float_prepare,
                                                    scatter_run};

/* ---- int8 activations --------------------------------------------------- */

/* The loops have no branches, so that compilers make vectors of them. */
float tcq_quantize_int8(int8_t *q, const float *x, size_t count)
{
    /* 1.5 * 2^23: adding it rounds to an integer, to nearest even */
    const float rounder = 12582912.0f;
    uint32_t bits = 0; /* magnitudes order like their bits; the largest, NaN above all */
    for (size_t i = 0; i < count; i++) {
        uint32_t u = tcq_float_bits(x[i]) & 0x7fffffffu;
        bits = u > bits ? u : bits;
    }
    float step = tcq_float_from_bits(bits) / 127.0f;
    bool finite = bits < 0x7f800000u;
    if (!finite || step == 0.0f) { /* zeros, or so small that the step underflows */
        memset(q, 0, count);
        return finite ? 0.0f : NAN;
    }
    for (size_t i = 0; i < count; i++) {
        float r = (x[i] / step + rounder) - rounder;
        r = r > 127.0f ? 127.0f : r;
        q[i] = (int8_t)(int32_t)(r < -127.0f ? -127.0f : r);
    }
    return step;
}

/* The prepared form: steps[m][groups], then q[m][in]. */
struct int8_view {
    float *steps;
    int8_t *q;
    size_t groups, length;
};

static struct int8_view int8_view(void *prepared, const struct tcq_geometry *g, uint32_t m)
{
    size_t length = (size_t)inputs(g), groups = (length + g->T - 1) / g->T;
    float *steps = prepared;
    return (struct int8_view){steps, (int8_t *)(steps + m * groups), groups, length};
}

static size_t int8_nbytes(const struct tcq_geometry *g, uint32_t m)
{
    size_t length = (size_t)inputs(g), groups = (length + g->T - 1) / g->T;
    return m * (groups * sizeof(float) + length);
}

static void int8_prepare(void *dst, const struct tcq_tensor *tensor, uint32_t m, const float *x,
                         size_t x_stride, struct tcq_range in)
{
    const struct tcq_geometry *g = &tensor->geometry;
    struct int8_view view = int8_view(dst, g, m);
    for (uint32_t i = 0; i < m; i++)
        for (uint64_t first = in.begin; first < in.end; first += g->T) {
            size_t count = in.end - first < g->T ? in.end - first : g->T;
            float scaled[TCQ_T_MAX];
            for (size_t j = 0; j < count; j++) {
                float value = x[i * x_stride + first + j];
                scaled[j] = g->axis ? value : value * tcq_exact_factor(tensor, first + j);
            }
            view.steps[i * view.groups + first / g->T] =
                tcq_quantize_int8(view.q + i * view.length + first, scaled, count);
        }
}

static void reduce_int8_run(const struct tcq_product *p, struct tcq_range rows,
                            struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    struct int8_view view = int8_view((void *)(uintptr_t)p->x, g, p->m);
    for (uint64_t row = rows.begin; row < rows.end; row++) {
        float acc[TCQ_SMALL_M_MAX] = {0};
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            int16_t y[TCQ_T_MAX];
            decode_block(y, p->tensor, row, block);
            for (uint32_t i = 0; i < p->m; i++) {
                const int8_t *q = view.q + i * view.length + block * g->T;
                int32_t sum = 0;
                for (uint32_t t = 0; t < g->T; t++)
                    sum += y[t] * q[t];
                acc[i] += (float)sum * view.steps[i * view.groups + block];
            }
        }
        float factor = tcq_exact_factor(p->tensor, row);
        for (uint32_t i = 0; i < p->m; i++)
            p->y[i * p->y_stride + row] = acc[i] * factor;
    }
}

/* y of one block += the rows of one group, whose sums are integers. */
static void scatter_int8_group(const struct tcq_product *p, const struct int8_view *view,
                               struct tcq_range rows, uint64_t block)
{
    uint32_t T = p->tensor->geometry.T;
    int32_t sum[TCQ_SMALL_M_MAX][TCQ_T_MAX];
    memset(sum, 0, p->m * sizeof sum[0]);
    for (uint64_t row = rows.begin; row < rows.end; row++) {
        int16_t y[TCQ_T_MAX];
        decode_block(y, p->tensor, row, block);
        for (uint32_t i = 0; i < p->m; i++) {
            int32_t q = view->q[i * view->length + row];
            for (uint32_t t = 0; t < T; t++)
                sum[i][t] += y[t] * q;
        }
    }
    for (uint32_t i = 0; i < p->m; i++) {
        float step = view->steps[i * view->groups + rows.begin / T];
        float *out = p->y + i * p->y_stride + block * T;
        for (uint32_t t = 0; t < T; t++)
            out[t] += (float)sum[i][t] * step;
    }
}

static void scatter_int8_run(const struct tcq_product *p, struct tcq_range rows,
                             struct tcq_range blocks)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    struct int8_view view = int8_view((void *)(uintptr_t)p->x, g, p->m);
    clear_outputs(p, blocks);
    for (uint64_t first = rows.begin; first < rows.end; first += g->T)
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            uint64_t end = rows.end - first < g->T ? rows.end : first + g->T;
            scatter_int8_group(p, &view, (struct tcq_range){first, end}, block);
        }
}

const struct tcq_small_kernel tcq_reduce_int8_scalar = {"reduce_int8_scalar", int8_nbytes,
                                                        int8_prepare, reduce_int8_run};
const struct tcq_small_kernel tcq_scatter_int8_scalar = {"scatter_int8_scalar", int8_nbytes,
                                                         int8_prepare, scatter_int8_run};

/* ---- expand and the dense product --------------------------------------- */

static void expand_run(void *dst, enum tcq_dtype dtype, size_t dst_stride,
                       const struct tcq_tensor *tensor, struct tcq_range rows,
                       struct tcq_range blocks)
{
    size_t element = dtype == TCQ_DTYPE_BF16 ? 2 : 4, T = tensor->geometry.T;
    for (uint64_t row = rows.begin; row < rows.end; row++)
        for (uint64_t block = blocks.begin; block < blocks.end; block++) {
            size_t at = (row - rows.begin) * dst_stride + (block - blocks.begin) * T;
            tcq_reference_expand_block((char *)dst + at * element, dtype, tensor, row, block);
        }
}

const struct tcq_expand_kernel tcq_expand_scalar = {"expand_scalar", expand_run};

static size_t gemm_scratch_nbytes(size_t m, size_t n, size_t depth)
{
    (void)m, (void)n, (void)depth;
    return 0;
}

static void gemm_run(float *c, size_t c_stride, const uint16_t *a, size_t a_stride,
                     const uint16_t *b, size_t b_stride, uint32_t b_axis, size_t m, size_t n,
                     size_t depth, void *scratch)
{
    (void)scratch;
    for (size_t i = 0; i < m; i++) {
        const uint16_t *ai = a + i * a_stride;
        float *ci = c + i * c_stride;
        for (size_t j = 0; b_axis && j < n; j++) {
            const uint16_t *bj = b + j * b_stride;
            float acc = 0.0f;
            for (size_t l = 0; l < depth; l++)
                acc += tcq_bf16_to_f32(ai[l]) * tcq_bf16_to_f32(bj[l]);
            ci[j] += acc;
        }
        for (size_t l = 0; !b_axis && l < depth; l++) {
            float al = tcq_bf16_to_f32(ai[l]);
            for (size_t j = 0; j < n; j++)
                ci[j] += al * tcq_bf16_to_f32(b[l * b_stride + j]);
        }
    }
}

const struct tcq_gemm_kernel tcq_gemm_scalar = {"gemm_scalar", gemm_scratch_nbytes, gemm_run};
