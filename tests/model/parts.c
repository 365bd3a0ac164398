/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the model layer by themselves: arithmetic of every instruction set
 * against float64, affine weights, the sampler.
 */
#include "support/test.h"

#include "base/half.h"
#include "base/memory.h"
#include "model/math.h"
#include "model/model.h"
#include "model/session.h"
#include "model/weight.h"
#include "tcq_model.h"

/* ------------------------------------------------------------------------ */
/* Arithmetic                                                                */
/* ------------------------------------------------------------------------ */

static size_t tables(const struct tcq_math *out[3])
{
    size_t count = 1;
    out[0] = tcq_math_select(0);
    for (int i = 0; i < 2; i++) {
        uint32_t flag = i ? TCQ_CPU_AVX512 : TCQ_CPU_AVX2;
        if (tcq_cpu_detect() & flag)
            out[count++] = tcq_math_select(flag);
        else
            print_message("NOT RUN on this processor: %s\n", i ? "avx512" : "avx2");
    }
    return count;
}

static float as_stored(float x, enum tcq_dtype dtype, void *w, size_t i)
{
    if (dtype == TCQ_DTYPE_F32)
        return ((float *)w)[i] = x;
    uint16_t half = dtype == TCQ_DTYPE_F16 ? tcq_f16_from_f32(x) : tcq_bf16_from_f32(x);
    ((uint16_t *)w)[i] = half;
    return dtype == TCQ_DTYPE_F16 ? tcq_f16_to_f32(half) : tcq_bf16_to_f32(half);
}

enum { IN_MAX = 100, ROWS = 11, M_MAX = 9 };

static void check_product(const struct tcq_math *math, struct random *r, size_t in, size_t m,
                          enum tcq_dtype dtype)
{
    float w[ROWS * IN_MAX], x[M_MAX * IN_MAX], y[M_MAX * ROWS], scratch[4 * 112];
    union {
        float f[ROWS * IN_MAX];
        uint16_t h[ROWS * IN_MAX];
    } stored;
    for (size_t i = 0; i < ROWS * in; i++)
        w[i] = as_stored(random_normal(r), dtype, &stored, i);
    for (size_t i = 0; i < m * in; i++)
        x[i] = random_normal(r);
    math->product(y, ROWS, &stored, dtype, in, ROWS, x, in, m, scratch);
    for (size_t i = 0; i < m; i++)
        for (size_t row = 0; row < ROWS; row++) {
            double sum = 0, size = 0;
            for (size_t c = 0; c < in; c++) {
                sum += (double)w[row * in + c] * (double)x[i * in + c];
                size += fabs((double)w[row * in + c] * (double)x[i * in + c]);
            }
            assert_true(fabs(sum - (double)y[i * ROWS + row]) <= 1e-6 * size + 1e-30);
        }
}

static void products(void **state)
{
    (void)state;
    struct random r = random_start("products", 1);
    const struct tcq_math *all[3];
    size_t count = tables(all);
    static const enum tcq_dtype types[] = {TCQ_DTYPE_F32, TCQ_DTYPE_F16, TCQ_DTYPE_BF16};
    for (size_t t = 0; t < count; t++)
        for (size_t in = 1; in <= IN_MAX; in += in < 40 ? 1 : 13)
            for (size_t m = 1; m <= M_MAX; m++)
                for (size_t d = 0; d < 3; d++)
                    check_product(all[t], &r, in, m, types[d]);
}

/* Scores, softmax and values of n queries over the cache, all at once. */
static void check_attention(const struct tcq_math *math, struct random *r, size_t dim, size_t end,
                            size_t n)
{
    enum { DIM = 48, END = 50, N = 11, STRIDE = 64 };
    static float keys[END / 16 * 16 * DIM + 16 * DIM], values[END * DIM], q[N * DIM];
    static float scores[N * STRIDE], out[N * DIM], whole[N * DIM];
    size_t padded = tcq_round_lanes(dim), first = end / 3;
    struct tcq_cache_view cache = {keys, values, true, dim};
    memset(keys, 0, sizeof keys);
    memset(values, 0, sizeof values);
    for (size_t p = 0; p < end; p++)
        for (size_t d = 0; d < dim; d++) {
            keys[(p / 16 * dim + d) * 16 + p % 16] = random_normal(r);
            values[p * padded + d] = random_normal(r);
        }
    for (size_t i = 0; i < n * dim; i++)
        q[i] = random_normal(r);
    math->scores(scores, STRIDE, q, dim, n, &cache, first / 16, (end + 15) / 16);
    float sums[N];
    for (size_t i = 0; i < n; i++)
        sums[i] = math->softmax(scores + i * STRIDE + first, end - first, 0.25f);
    /* in two pieces, as in one */
    memset(out, 0, sizeof out);
    math->mix(out, scores, STRIDE, n, &cache, first, (first + end) / 2);
    math->mix(out, scores, STRIDE, n, &cache, (first + end) / 2, end);
    memset(whole, 0, sizeof whole);
    math->mix(whole, scores, STRIDE, n, &cache, first, end);
    assert_memory_equal(out, whole, sizeof out);
    for (size_t i = 0; i < n; i++) {
        double weight[END], total = 0;
        for (size_t p = first; p < end; p++) {
            double dot = 0;
            for (size_t d = 0; d < dim; d++)
                dot += (double)q[i * dim + d] * (double)keys[(p / 16 * dim + d) * 16 + p % 16];
            total += weight[p] = exp(0.25 * dot);
        }
        for (size_t d = 0; d < dim; d++) {
            double expected = 0;
            for (size_t p = first; p < end; p++)
                expected += weight[p] / total * (double)values[p * padded + d];
            assert_true(fabs(expected - (double)(out[i * padded + d] / sums[i])) < 2e-5);
        }
    }
}

static void attention(void **state)
{
    (void)state;
    struct random r = random_start("attention", 2);
    const struct tcq_math *all[3];
    size_t count = tables(all);
    for (size_t t = 0; t < count; t++)
        for (size_t dim = 2; dim <= 48; dim += 2)
            for (size_t end = 1; end <= 50; end += 7)
                for (size_t n = 1; n <= 11; n += 2)
                    check_attention(all[t], &r, dim, end, n);
}

static void norms_and_swiglu(void **state)
{
    (void)state;
    struct random r = random_start("norms", 3);
    const struct tcq_math *all[3];
    size_t count = tables(all);
    float x[70], w[70], out[70];
    for (size_t t = 0; t < count; t++)
        for (size_t n = 1; n <= 70; n++) {
            double sum = 0;
            for (size_t i = 0; i < n; i++) {
                x[i] = random_normal(&r) * (i % 7 ? 1.0f : 40.0f);
                w[i] = random_normal(&r);
                sum += (double)x[i] * (double)x[i];
            }
            all[t]->norm(out, x, w, n, 1e-5f);
            for (size_t i = 0; i < n; i++) {
                double expected = (double)x[i] / sqrt(sum / (double)n + 1e-5) * (double)w[i];
                assert_true(fabs(expected - (double)out[i]) <= 2e-6 * (1 + fabs(expected)));
            }
            all[t]->swiglu(out, x, w, n);
            for (size_t i = 0; i < n; i++) {
                double expected = (double)x[i] / (1 + exp(-(double)x[i])) * (double)w[i];
                assert_true(fabs(expected - (double)out[i]) <= 1e-6 * (1e-30 + fabs(expected)) +
                                                                   1e-35);
            }
        }
    /* Not-a-number spreads, extremes stay finite. */
    float wild[3] = {NAN, -1e30f, 1e30f}, ones[3] = {1, 1, 1};
    for (size_t t = 0; t < count; t++) {
        all[t]->swiglu(out, wild, ones, 3);
        assert_true(isnan(out[0]) && fabsf(out[1]) < 1e-6f && out[2] == 1e30f);
    }
}

/* ------------------------------------------------------------------------ */
/* Affine weights                                                            */
/* ------------------------------------------------------------------------ */

static void affine_rows(void **state)
{
    (void)state;
    struct random r = random_start("affine", 4);
    static const uint32_t widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    for (size_t b = 0; b < 6; b++)
        for (size_t g = 0; g < 3; g++) {
            uint32_t bits = widths[b], group = groups[g], in = 256;
            uint32_t words[2 * 256 * 8 / 32];
            uint16_t scales[16], biases[16];
            float row[256];
            for (size_t i = 0; i < sizeof words / sizeof *words; i++)
                words[i] = (uint32_t)random_u64(&r);
            for (size_t i = 0; i < 16; i++) {
                scales[i] = tcq_f16_from_f32(random_normal(&r));
                biases[i] = tcq_f16_from_f32(random_normal(&r));
            }
            struct tcq_affine affine = {.words = words, .scales = scales, .biases = biases,
                                        .dtype = TCQ_DTYPE_F16, .bits = bits, .group = group};
            tcq_affine_row(row, &affine, in, 1);
            for (uint32_t i = 0; i < in; i++) {
                uint32_t q = 0, at = in * bits + i * bits; /* bit by bit */
                for (uint32_t k = 0; k < bits; k++)
                    q |= (words[(at + k) / 32] >> (at + k) % 32 & 1) << k;
                size_t j = in / group + i / group;
                float expected = tcq_f16_to_f32(scales[j]) * (float)q + tcq_f16_to_f32(biases[j]);
                assert_true(row[i] == expected);
            }
        }
}

/* ------------------------------------------------------------------------ */
/* Sampler                                                                   */
/* ------------------------------------------------------------------------ */

enum { VOCAB = 6, DRAWS = 20000 };
/* Probabilities 0.4, 0.3, 0.15, 0.1, 0.05, 0 in another order. */
static const float chances[VOCAB] = {0.1f, 0.4f, 0.05f, 0.3f, 0.15f, 0.0f};

static void draw(const struct tcq_sampler_options *options, double *shares)
{
    struct tcq_sampler *sampler = NULL;
    float logits[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        logits[i] = logf(chances[i]);
    assert_int_equal(tcq_sampler_create(options, VOCAB, &sampler, NULL), TCQ_OK);
    memset(shares, 0, VOCAB * sizeof *shares);
    for (int i = 0; i < DRAWS; i++) {
        uint32_t token = VOCAB;
        assert_int_equal(tcq_sampler_next(sampler, logits, &token, NULL), TCQ_OK);
        assert_true(token < VOCAB);
        shares[token] += 1.0 / DRAWS;
    }
    tcq_sampler_destroy(sampler);
}

static void check_draw(struct tcq_sampler_options options, const double expected[VOCAB])
{
    double shares[VOCAB];
    options.seed = 11;
    draw(&options, shares);
    for (int i = 0; i < VOCAB; i++) /* four standard deviations of 20,000 draws */
        assert_true(fabs(shares[i] - expected[i]) <= 4 * sqrt(0.25 / DRAWS) * (expected[i] > 0));
}

static void sampling(void **state)
{
    (void)state;
    struct tcq_sampler_options plain = {.temperature = 1};
    check_draw(plain, (double[]){0.1, 0.4, 0.05, 0.3, 0.15, 0});
    struct tcq_sampler_options cold = {0};
    check_draw(cold, (double[]){0, 1, 0, 0, 0, 0});
    struct tcq_sampler_options top2 = {.temperature = 1, .top_k = 2};
    check_draw(top2, (double[]){0, 4.0 / 7, 0, 3.0 / 7, 0, 0});
    struct tcq_sampler_options nucleus = {.temperature = 1, .top_p = 0.8f};
    check_draw(nucleus, (double[]){0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85, 0});
    struct tcq_sampler_options floor = {.temperature = 1, .min_p = 0.5f};
    check_draw(floor, (double[]){0, 4.0 / 7, 0, 3.0 / 7, 0, 0});
    struct tcq_sampler_options half = {.temperature = 0.5f}; /* squares of the chances */
    check_draw(half, (double[]){0.01 / 0.285, 0.16 / 0.285, 0.0025 / 0.285, 0.09 / 0.285,
                                0.0225 / 0.285, 0});
}

static void sampler_refuses(void **state)
{
    (void)state;
    struct tcq_sampler *sampler = NULL;
    struct tcq_sampler_options options = {.temperature = -1};
    assert_int_equal(tcq_sampler_create(&options, 4, &sampler, NULL), TCQ_ERROR_ARGUMENT);
    options = (struct tcq_sampler_options){.top_p = 1.5f};
    assert_int_equal(tcq_sampler_create(&options, 4, &sampler, NULL), TCQ_ERROR_ARGUMENT);
    options = (struct tcq_sampler_options){.min_p = NAN};
    assert_int_equal(tcq_sampler_create(&options, 4, &sampler, NULL), TCQ_ERROR_ARGUMENT);
    options = (struct tcq_sampler_options){0};
    assert_int_equal(tcq_sampler_create(&options, 4, &sampler, NULL), TCQ_OK);
    float logits[4] = {1, 3, 3, 2};
    uint32_t token = 9;
    assert_int_equal(tcq_sampler_next(sampler, logits, &token, NULL), TCQ_OK);
    assert_int_equal(token, 1); /* the smaller id of two equals */
    logits[3] = NAN;
    assert_int_equal(tcq_sampler_next(sampler, logits, &token, NULL), TCQ_ERROR_VALUE);
    assert_int_equal(tcq_sampler_next(sampler, NULL, &token, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_sampler_next(NULL, logits, &token, NULL), TCQ_ERROR_ARGUMENT);
    tcq_sampler_destroy(sampler);
}

/* The top k of a large vocabulary with many equals give the choices that they give
 * where nothing else can be chosen. */
static void top_k_of_many(void **state)
{
    (void)state;
    enum { MANY = 5000, ROUNDS = 60 };
    static float logits[MANY], sorted[MANY];
    struct random r = random_start("top_k_of_many", 3);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t k = 1 + random_below(&r, 200), equals = 0, a = 0, b = 0;
        for (size_t i = 0; i < MANY; i++)
            logits[i] = sorted[i] = floorf(random_normal(&r) * 8) / 4;
        for (size_t i = 0; i < MANY; i++) /* those of rank k and above, ties by id */
            for (size_t j = i + 1; j < MANY && i < k; j++)
                if (sorted[j] > sorted[i]) {
                    float swap = sorted[i];
                    sorted[i] = sorted[j];
                    sorted[j] = swap;
                }
        for (size_t i = 0; i < k; i++)
            equals += sorted[i] == sorted[k - 1];
        struct tcq_sampler *one = NULL, *other = NULL;
        struct tcq_sampler_options options = {.temperature = 1, .top_k = k, .seed = r.state};
        assert_int_equal(tcq_sampler_create(&options, MANY, &one, NULL), TCQ_OK);
        options.top_k = 0;
        assert_int_equal(tcq_sampler_create(&options, MANY, &other, NULL), TCQ_OK);
        assert_int_equal(tcq_sampler_next(one, logits, &a, NULL), TCQ_OK);
        for (size_t i = 0; i < MANY; i++) {
            bool kept = logits[i] > sorted[k - 1] || (logits[i] == sorted[k - 1] && equals > 0);
            equals -= kept && logits[i] == sorted[k - 1];
            logits[i] = kept ? logits[i] : -INFINITY;
        }
        assert_int_equal(tcq_sampler_next(other, logits, &b, NULL), TCQ_OK);
        assert_int_equal(a, b);
        tcq_sampler_destroy(one);
        tcq_sampler_destroy(other);
    }
}

static double weight_in(const float *logits, size_t i, float highest)
{
    return exp((double)logits[i] - (double)highest);
}

/* top_p on a large vocabulary, where a few candidates hold the mass and where many
 * do: what is chosen lies among the likeliest that reach it, near to the last of them. */
static void top_p_of_many(void **state)
{
    (void)state;
    enum { MANY = 5000, TRIES = 400 };
    static float logits[MANY];
    struct random r = random_start("top_p_of_many", 4);
    for (int flat = 0; flat < 2; flat++) {
        float highest = -INFINITY, lowest_chosen = INFINITY;
        double total = 0, above = 0;
        struct tcq_sampler *sampler = NULL;
        struct tcq_sampler_options options = {.temperature = 1, .top_p = 0.9f, .seed = 7};
        assert_int_equal(tcq_sampler_create(&options, MANY, &sampler, NULL), TCQ_OK);
        for (size_t i = 0; i < MANY; i++) {
            logits[i] = random_normal(&r) * (flat ? 0.1f : 3.0f);
            highest = logits[i] > highest ? logits[i] : highest;
        }
        for (int i = 0; i < TRIES; i++) {
            uint32_t token = MANY;
            assert_int_equal(tcq_sampler_next(sampler, logits, &token, NULL), TCQ_OK);
            assert_true(token < MANY);
            lowest_chosen = logits[token] < lowest_chosen ? logits[token] : lowest_chosen;
        }
        for (size_t i = 0; i < MANY; i++) {
            total += weight_in(logits, i, highest);
            above += logits[i] > lowest_chosen ? weight_in(logits, i, highest) : 0;
        }
        /* The least likely that was chosen: the ones above it do not reach 0.9, but
         * 400 draws come near it. */
        assert_true(above < 0.9 * total);
        assert_true(above > 0.8 * total);
        tcq_sampler_destroy(sampler);
    }
}

/* Weights against exp, and units whose sums fit 64 bits. */
static void sampling_weights(void **state)
{
    (void)state;
    struct tcq_sampling s = {.temperature = 0.7f, .unit = tcq_sampling_unit(150000)};
    assert_true(s.unit == 0x1p43f);
    assert_true(tcq_sampling_unit(1) == 0x1p43f);
    assert_true(tcq_sampling_unit(UINT32_MAX) == 0x1p31f);
    for (float below = 0; below < 22; below += 0.00137f) {
        double weight = (double)tcq_sampling_weight(&s, 5.0f - below, 5.0f);
        double exact = exp(((double)(5.0f - below) - 5.0) / (double)0.7f);
        assert_true(exact < 0x1p-43 ? weight <= 0x1p-43 : fabs(weight - exact) <= 1e-5 * exact);
    }
    assert_true(tcq_sampling_weight(&s, 3.0f, 3.0f) == 1.0f);
    assert_true(tcq_sampling_weight(&s, -INFINITY, 3.0f) == 0.0f);
    s.min_p = 0.5f;
    assert_true(tcq_sampling_weight(&s, 2.5f, 3.0f) == 0.0f);
    assert_true(tcq_sampling_weight(&s, 2.6f, 3.0f) > 0.5f);
    static const float numbers[] = {-INFINITY, -3e38f, -1, -1e-45f, 0, 1e-45f, 1, 3e38f, INFINITY};
    for (size_t i = 0; i + 1 < sizeof numbers / sizeof *numbers; i++)
        assert_true(tcq_sampling_key(numbers[i]) < tcq_sampling_key(numbers[i + 1]) &&
                    tcq_sampling_logit(tcq_sampling_key(numbers[i])) == numbers[i]);
    assert_true(tcq_sampling_key(-0.0f) == tcq_sampling_key(0.0f));
    s.random = UINT64_MAX;
    assert_true(tcq_sampling_draw(&s, UINT64_C(0x123456789abcdef)) == UINT64_C(0x123456789abcdee));
    s.random = UINT64_C(1) << 63;
    assert_true(tcq_sampling_draw(&s, UINT64_C(0x1234567890abcde)) == UINT64_C(0x91a2b3c4855e6f));
}

struct ranked {
    float logit;
    uint32_t id;
};

static int likelier_first(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static int smaller_id_first(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    return a->id < b->id ? -1 : 1;
}

/* The choice as the rules have it: all sorted, the tail cut off, a draw by ids. */
static uint32_t choice_by_definition(const struct tcq_sampling *s, const float *logits,
                                     uint32_t count)
{
    static struct ranked all[300];
    for (uint32_t i = 0; i < count; i++)
        all[i] = (struct ranked){logits[i], i};
    qsort(all, count, sizeof *all, likelier_first);
    float highest = all[0].logit;
    uint64_t mass = 0, sum = 0;
    count = s->rules & TCQ_SAMPLING_TOP_K && s->top_k < count ? s->top_k : count;
    for (uint32_t i = 0; i < count; i++)
        mass += tcq_sampling_mass(s, all[i].logit, highest);
    if (s->rules & TCQ_SAMPLING_TOP_P) {
        uint64_t target = tcq_sampling_target(s, mass);
        for (mass = 0, count = 0; mass < target; count++)
            mass += tcq_sampling_mass(s, all[count].logit, highest);
    }
    qsort(all, count, sizeof *all, smaller_id_first);
    uint64_t at = tcq_sampling_draw(s, mass);
    for (uint32_t i = 0;; i++) {
        assert_true(i < count);
        sum += tcq_sampling_mass(s, all[i].logit, highest);
        if (at < sum)
            return all[i].id;
    }
}

static void sampler_by_definition(void **state)
{
    (void)state;
    enum { ROUNDS = 20000, MOST = 300 };
    static const float top_p[] = {0, 1, 0.5f, 0.9f, 1e-6f, 0.999f};
    struct random r = random_start("sampler_by_definition", 5);
    float logits[MOST];
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t count = 1 + random_below(&r, round % 2 ? MOST : 5), token = 0;
        float steps = round % 3 ? 4.0f : 1e6f; /* many equals, or none */
        for (uint32_t i = 0; i < count; i++)
            logits[i] = rintf(random_normal(&r) * steps) / steps * (round % 5 ? 2.0f : 0.01f);
        if (count > 1)
            logits[random_below(&r, count - 1)] = -INFINITY;
        struct tcq_sampler_options options = {.temperature = round % 7 ? 1.0f : 0.05f,
                                              .top_k = random_below(&r, count + 3),
                                              .top_p = top_p[random_below(&r, 6)],
                                              .min_p = round % 11 ? 0 : 0.2f,
                                              .seed = r.state};
        struct tcq_sampler *sampler = NULL;
        assert_int_equal(tcq_sampler_create(&options, count, &sampler, NULL), TCQ_OK);
        struct tcq_sampling sampling = tcq_sampler_sampling(sampler);
        assert_int_equal(tcq_sampler_next(sampler, logits, &token, NULL), TCQ_OK);
        assert_int_equal(token, choice_by_definition(&sampling, logits, count));
        tcq_sampler_destroy(sampler);
    }
}

/* By how much something does not fit, in whole MiB that add up. */
static void memory_messages(void **state)
{
    (void)state;
    struct tcq_error error = {0};
    assert_int_equal(tcq_memory_check(5 << 20, 5 << 20, "it needs", "memory", &error), TCQ_OK);
    assert_int_equal(tcq_memory_check((5 << 20) + 1, 5 << 20, "it needs", "GPU memory", &error),
                     TCQ_ERROR_MEMORY);
    assert_string_equal(error.message,
                        "it needs 6 MiB, and 5 MiB of GPU memory are free: 1 MiB too little");
    assert_int_equal(tcq_memory_check(9, 8, "it needs", "memory", &error), TCQ_ERROR_MEMORY);
    assert_string_equal(error.message,
                        "it needs 1 MiB, and 0 MiB of memory are free: 1 MiB too little");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_messages), cmocka_unit_test(top_k_of_many),
        cmocka_unit_test(top_p_of_many),   cmocka_unit_test(sampling_weights),
        cmocka_unit_test(sampler_by_definition),
        cmocka_unit_test(products),        cmocka_unit_test(attention),
        cmocka_unit_test(norms_and_swiglu), cmocka_unit_test(affine_rows),
        cmocka_unit_test(sampling),        cmocka_unit_test(sampler_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
