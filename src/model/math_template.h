/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text that the instruction sets share.  A file that includes it defines
 * v16 (16 float32 lanes) with its operations, and
 *   TILE_ROWS, TILE_VECTORS  accumulators of a dense product that fit registers
 *   TILE_QUERIES             vectors that share a key or a value
 *   MATH_NAME, MATH_ISA      the table and its name
 */
#include <math.h>
#include <string.h>

#include "model/math.h"

/* ------------------------------------------------------------------------ */
/* Loads                                                                     */
/* ------------------------------------------------------------------------ */

/* The last n < 16 elements, zeros behind them. */
static inline v16 load_part(const float *p, size_t n)
{
    float padded[TCQ_LANES] = {0};
    memcpy(padded, p, n * sizeof *p);
    return v_load(padded);
}

static inline v16 load_weights(const char *p, enum tcq_dtype dtype)
{
    if (dtype == TCQ_DTYPE_F32)
        return v_load((const float *)(const void *)p);
    if (dtype == TCQ_DTYPE_F16)
        return v_load_f16((const uint16_t *)(const void *)p);
    return v_load_bf16((const uint16_t *)(const void *)p);
}

static inline v16 load_weights_part(const char *p, size_t n, enum tcq_dtype dtype)
{
    if (dtype == TCQ_DTYPE_F32)
        return load_part((const float *)(const void *)p, n);
    uint16_t padded[TCQ_LANES] = {0};
    memcpy(padded, p, n * sizeof *padded);
    return dtype == TCQ_DTYPE_F16 ? v_load_f16(padded) : v_load_bf16(padded);
}

/* One row of weights as float32, padded. */
static inline void widen_row(float *out, const char *w, enum tcq_dtype dtype, size_t in)
{
    size_t size = dtype == TCQ_DTYPE_F32 ? 4 : 2, c = 0;
    for (; c + TCQ_LANES <= in; c += TCQ_LANES)
        v_store(out + c, load_weights(w + c * size, dtype));
    if (c < in)
        v_store(out + c, load_weights_part(w + c * size, in - c, dtype));
}

/* ------------------------------------------------------------------------ */
/* Dense products                                                            */
/* ------------------------------------------------------------------------ */

/* rows x vectors dot products at once; both counts are constants where inlined. */
static inline __attribute__((always_inline)) void
dot_tile(float *y, size_t y_stride, const char *w, size_t row_nbytes, enum tcq_dtype dtype,
         size_t in, const float *x, size_t x_stride, int rows, int vectors)
{
    v16 sum[TILE_ROWS][TILE_VECTORS];
    size_t size = dtype == TCQ_DTYPE_F32 ? 4 : 2, c = 0;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vectors; i++)
            sum[r][i] = v_zero();
    for (; c + TCQ_LANES <= in; c += TCQ_LANES) {
        v16 xs[TILE_VECTORS];
        for (int i = 0; i < vectors; i++)
            xs[i] = v_load(x + (size_t)i * x_stride + c);
        for (int r = 0; r < rows; r++) {
            v16 ws = load_weights(w + (size_t)r * row_nbytes + c * size, dtype);
            for (int i = 0; i < vectors; i++)
                sum[r][i] = v_fma(ws, xs[i], sum[r][i]);
        }
    }
    for (int r = 0; r < rows && c < in; r++) {
        v16 ws = load_weights_part(w + (size_t)r * row_nbytes + c * size, in - c, dtype);
        for (int i = 0; i < vectors; i++)
            sum[r][i] = v_fma(ws, load_part(x + (size_t)i * x_stride + c, in - c), sum[r][i]);
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vectors; i++)
            y[(size_t)i * y_stride + (size_t)r] = v_sum(sum[r][i]);
}

/* All m vectors with `rows` rows of weights. */
static inline __attribute__((always_inline)) void
dot_rows(float *y, size_t y_stride, const char *w, size_t row_nbytes, enum tcq_dtype dtype,
         size_t in, const float *x, size_t x_stride, size_t m, int rows)
{
    size_t i = 0;
    for (; i + TILE_VECTORS <= m; i += TILE_VECTORS)
        dot_tile(y + i * y_stride, y_stride, w, row_nbytes, dtype, in, x + i * x_stride, x_stride,
                 rows, TILE_VECTORS);
    for (; i < m; i++)
        dot_tile(y + i * y_stride, y_stride, w, row_nbytes, dtype, in, x + i * x_stride, x_stride,
                 rows, 1);
}

static inline __attribute__((always_inline)) void
product_of(float *y, size_t y_stride, const char *w, enum tcq_dtype dtype, size_t in, size_t rows,
           const float *x, size_t x_stride, size_t m, float *scratch)
{
    size_t row_nbytes = in * (dtype == TCQ_DTYPE_F32 ? 4u : 2u), r = 0;
    size_t padded = tcq_round_lanes(in);
    bool widen = m > TILE_VECTORS && dtype != TCQ_DTYPE_F32;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS) {
        const char *tile = w + r * row_nbytes;
        if (widen) {
            for (size_t j = 0; j < TILE_ROWS; j++)
                widen_row(scratch + j * padded, tile + j * row_nbytes, dtype, in);
            dot_rows(y + r, y_stride, (const char *)scratch, padded * 4, TCQ_DTYPE_F32, in, x,
                     x_stride, m, TILE_ROWS);
        } else {
            dot_rows(y + r, y_stride, tile, row_nbytes, dtype, in, x, x_stride, m, TILE_ROWS);
        }
    }
    for (; r < rows; r++)
        dot_rows(y + r, y_stride, w + r * row_nbytes, row_nbytes, dtype, in, x, x_stride, m, 1);
}

static void product(float *y, size_t y_stride, const void *w, enum tcq_dtype dtype, size_t in,
                    size_t rows, const float *x, size_t x_stride, size_t m, float *scratch)
{
    if (dtype == TCQ_DTYPE_F32)
        product_of(y, y_stride, w, TCQ_DTYPE_F32, in, rows, x, x_stride, m, scratch);
    else if (dtype == TCQ_DTYPE_F16)
        product_of(y, y_stride, w, TCQ_DTYPE_F16, in, rows, x, x_stride, m, scratch);
    else
        product_of(y, y_stride, w, TCQ_DTYPE_BF16, in, rows, x, x_stride, m, scratch);
}

/* ------------------------------------------------------------------------ */
/* Attention                                                                 */
/* ------------------------------------------------------------------------ */

static inline v16 load_cache(const void *base, size_t i, bool f32)
{
    return f32 ? v_load((const float *)base + i) : v_load_f16((const uint16_t *)base + i);
}

static inline __attribute__((always_inline)) void
score_tile(float *scores, size_t stride, const float *q, size_t q_stride, const void *keys,
           size_t at, size_t head_dim, bool f32, int n)
{
    v16 sum[TILE_QUERIES];
    for (int i = 0; i < n; i++)
        sum[i] = v_zero();
    for (size_t d = 0; d < head_dim; d++) {
        v16 k = load_cache(keys, at + d * TCQ_LANES, f32);
        for (int i = 0; i < n; i++)
            sum[i] = v_fma(v_set(q[(size_t)i * q_stride + d]), k, sum[i]);
    }
    for (int i = 0; i < n; i++)
        v_store(scores + (size_t)i * stride, sum[i]);
}

static inline __attribute__((always_inline)) void
scores_of(float *scores, size_t stride, const float *q, size_t q_stride, size_t n,
          const struct tcq_cache_view *cache, size_t first_tile, size_t end_tile, bool f32)
{
    size_t dim = cache->head_dim;
    for (size_t t = first_tile; t < end_tile; t++) {
        size_t at = t * dim * TCQ_LANES, i = 0;
        float *out = scores + t * TCQ_LANES;
        for (; i + TILE_QUERIES <= n; i += TILE_QUERIES)
            score_tile(out + i * stride, stride, q + i * q_stride, q_stride, cache->keys, at, dim,
                       f32, TILE_QUERIES);
        /* A query alone waits for each of its sums: what is left goes by as many as
         * there are. */
        for (; i + 4 <= n && TILE_QUERIES > 4; i += 4)
            score_tile(out + i * stride, stride, q + i * q_stride, q_stride, cache->keys, at, dim,
                       f32, 4);
        for (; i + 2 <= n && TILE_QUERIES > 2; i += 2)
            score_tile(out + i * stride, stride, q + i * q_stride, q_stride, cache->keys, at, dim,
                       f32, 2);
        for (; i < n; i++)
            score_tile(out + i * stride, stride, q + i * q_stride, q_stride, cache->keys, at, dim,
                       f32, 1);
    }
}

static void scores(float *out, size_t stride, const float *q, size_t q_stride, size_t n,
                   const struct tcq_cache_view *cache, size_t first_tile, size_t end_tile)
{
    if (cache->f32)
        scores_of(out, stride, q, q_stride, n, cache, first_tile, end_tile, true);
    else
        scores_of(out, stride, q, q_stride, n, cache, first_tile, end_tile, false);
}

/* Four lanes' worth of components at once: 64 of a value. */
enum { MIX_LANES = 4 };

static inline __attribute__((always_inline)) void
mix_tile(float *out, size_t padded, const float *weights, size_t stride, const void *values,
         size_t first, size_t end, size_t d, bool f32, int n, int lanes)
{
    v16 sum[TILE_ROWS][MIX_LANES];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < lanes; j++)
            sum[i][j] = v_load(out + (size_t)i * padded + d + (size_t)j * TCQ_LANES);
    for (size_t p = first; p < end; p++)
        for (int j = 0; j < lanes; j++) {
            v16 v = load_cache(values, p * padded + d + (size_t)j * TCQ_LANES, f32);
            for (int i = 0; i < n; i++)
                sum[i][j] = v_fma(v_set(weights[(size_t)i * stride + p]), v, sum[i][j]);
        }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < lanes; j++)
            v_store(out + (size_t)i * padded + d + (size_t)j * TCQ_LANES, sum[i][j]);
}

static inline __attribute__((always_inline)) void
mix_rows(float *out, size_t padded, const float *weights, size_t stride, const void *values,
         size_t first, size_t end, bool f32, int n)
{
    size_t d = 0;
    for (; d + MIX_LANES * TCQ_LANES <= padded; d += MIX_LANES * TCQ_LANES)
        mix_tile(out, padded, weights, stride, values, first, end, d, f32, n, MIX_LANES);
    for (; d < padded; d += TCQ_LANES)
        mix_tile(out, padded, weights, stride, values, first, end, d, f32, n, 1);
}

static inline __attribute__((always_inline)) void
mix_of(float *out, const float *weights, size_t stride, size_t n,
       const struct tcq_cache_view *cache, size_t first, size_t end, bool f32)
{
    size_t padded = tcq_round_lanes(cache->head_dim), i = 0;
    for (; i + TILE_ROWS <= n; i += TILE_ROWS)
        mix_rows(out + i * padded, padded, weights + i * stride, stride, cache->values, first, end,
                 f32, TILE_ROWS);
    for (; i + 2 <= n && TILE_ROWS > 2; i += 2)
        mix_rows(out + i * padded, padded, weights + i * stride, stride, cache->values, first, end,
                 f32, 2);
    for (; i < n; i++)
        mix_rows(out + i * padded, padded, weights + i * stride, stride, cache->values, first, end,
                 f32, 1);
}

static void mix(float *out, const float *weights, size_t stride, size_t n,
                const struct tcq_cache_view *cache, size_t first, size_t end)
{
    if (cache->f32)
        mix_of(out, weights, stride, n, cache, first, end, true);
    else
        mix_of(out, weights, stride, n, cache, first, end, false);
}

/* ------------------------------------------------------------------------ */
/* Element by element                                                        */
/* ------------------------------------------------------------------------ */

/*
 * exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2)/2 = 0.3466; ln 2 in two
 * parts so that n * ln 2 is exact to the last bit of r.  exp(r) is its Taylor
 * series up to r^7/7!, whose next term is below 0.3466^8/8! = 5.2e-9, a twelfth
 * of a unit in the last place.  x is limited to where 2^n is a normal number.
 */
static inline v16 v_exp(v16 x)
{
    x = v_min(v_set(88.0f), v_max(v_set(-87.0f), x));
    v16 n = v_round(v_mul(x, v_set(1.44269504f)));
    v16 r = v_fma(n, v_set(-0x1.62e4p-1f), x);
    r = v_fma(n, v_set(-0x1.7f7d1cp-20f), r);
    v16 p = v_set(1.0f / 5040.0f);
    p = v_fma(p, r, v_set(1.0f / 720.0f));
    p = v_fma(p, r, v_set(1.0f / 120.0f));
    p = v_fma(p, r, v_set(1.0f / 24.0f));
    p = v_fma(p, r, v_set(1.0f / 6.0f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, r, v_set(1.0f));
    p = v_fma(p, r, v_set(1.0f));
    return v_scale(p, n);
}

/* The largest; a NaN is passed over, stays in its place and spreads from there. */
static float largest(const float *scores, size_t count)
{
    v16 most = v_set(-INFINITY);
    size_t p = 0;
    for (; p + TCQ_LANES <= count; p += TCQ_LANES)
        most = v_max(v_load(scores + p), most);
    float lanes[TCQ_LANES], top = -INFINITY;
    v_store(lanes, most);
    for (int i = 0; i < TCQ_LANES; i++)
        top = lanes[i] > top ? lanes[i] : top;
    for (; p < count; p++)
        top = scores[p] > top ? scores[p] : top;
    return top;
}

static float softmax(float *scores, size_t count, float scale)
{
    v16 sum = v_zero(), top = v_set(-largest(scores, count) * scale), by = v_set(scale);
    size_t p = 0;
    for (; p + TCQ_LANES <= count; p += TCQ_LANES) {
        v16 e = v_exp(v_fma(v_load(scores + p), by, top));
        v_store(scores + p, e);
        sum = v_add(sum, e);
    }
    if (p < count) {
        float part[TCQ_LANES];
        v_store(part, v_exp(v_fma(load_part(scores + p, count - p), by, top)));
        memcpy(scores + p, part, (count - p) * sizeof *part);
        sum = v_add(sum, load_part(part, count - p));
    }
    return v_sum(sum);
}

static void norm(float *out, const float *x, const float *weight, size_t n, float epsilon)
{
    v16 sum = v_zero();
    size_t i = 0;
    for (; i + TCQ_LANES <= n; i += TCQ_LANES) {
        v16 v = v_load(x + i);
        sum = v_fma(v, v, sum);
    }
    if (i < n) {
        v16 v = load_part(x + i, n - i);
        sum = v_fma(v, v, sum);
    }
    float factor = 1.0f / sqrtf(v_sum(sum) / (float)n + epsilon);
    v16 factors = v_set(factor);
    for (i = 0; i + TCQ_LANES <= n; i += TCQ_LANES)
        v_store(out + i, v_mul(v_mul(v_load(x + i), factors), v_load(weight + i)));
    for (; i < n; i++)
        out[i] = x[i] * factor * weight[i];
}

static void rotate(float *head, const float *cosines, const float *sines, size_t half)
{
    float *other = head + half;
    size_t i = 0;
    for (; i + TCQ_LANES <= half; i += TCQ_LANES) {
        v16 a = v_load(head + i), b = v_load(other + i);
        v16 c = v_load(cosines + i), s = v_load(sines + i);
        v_store(head + i, v_add(v_mul(a, c), v_mul(v_mul(b, s), v_set(-1.0f))));
        v_store(other + i, v_add(v_mul(b, c), v_mul(a, s)));
    }
    for (; i < half; i++) {
        float a = head[i], b = other[i];
        head[i] = a * cosines[i] - b * sines[i];
        other[i] = b * cosines[i] + a * sines[i];
    }
}

static void narrow(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + TCQ_LANES <= n; i += TCQ_LANES)
        v_store_f16(dst + i, v_load(src + i));
    if (i < n) {
        uint16_t part[TCQ_LANES];
        v_store_f16(part, load_part(src + i, n - i));
        memcpy(dst + i, part, (n - i) * sizeof *part);
    }
}

static inline v16 swiglu_lanes(v16 gate, v16 up)
{
    v16 one = v_set(1.0f);
    v16 e = v_exp(v_mul(gate, v_set(-1.0f)));
    return v_mul(v_div(gate, v_add(one, e)), up);
}

static void swiglu(float *mid, const float *gate, const float *up, size_t n)
{
    size_t i = 0;
    for (; i + TCQ_LANES <= n; i += TCQ_LANES)
        v_store(mid + i, swiglu_lanes(v_load(gate + i), v_load(up + i)));
    if (i < n) {
        float part[TCQ_LANES];
        v_store(part, swiglu_lanes(load_part(gate + i, n - i), load_part(up + i, n - i)));
        memcpy(mid + i, part, (n - i) * sizeof *part);
    }
}

const struct tcq_math MATH_NAME = {MATH_ISA, product, scores, softmax, mix,
                                   norm,     rotate,  narrow, swiglu};
