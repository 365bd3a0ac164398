/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference operations against the orders of docs/numerics.md written down a
 * second time, one output and one term after another, byte for byte; the forms
 * of scatter against each other; exp against float64.
 */
#include "support/layer.h"
#include "support/test.h"

#include <stdio.h>

#include "kernel/reference/arithmetic.h"
#include "kernel/reference/reference.h"

enum { M = 5, X_STRIDE_EXTRA = 3 };

static float weight_f32(const struct tcq_tensor *t, uint64_t row, uint64_t col)
{
    return ((float)layer_y(t, row, col) * (1.0f / 147.800537109375f)) * layer_scale(t, row);
}

static float weight_bf16(const struct tcq_tensor *t, uint64_t row, uint64_t col)
{
    float value = (float)(layer_y(t, row, col) / 147.800537109375);
    return tcq_bf16_to_f32(tcq_bf16_from_f32(value * layer_scale(t, row)));
}

static float sum_reduce(const struct tcq_tensor *t, uint64_t row, const float *x)
{
    float chain[32][2] = {{0}}, lane[32], next[32];
    for (uint64_t c = 0; c < t->geometry.cols; c++) {
        float *acc = &chain[c / 32 % 32][c & 1];
        *acc = fmaf(weight_f32(t, row, c), x[c], *acc);
    }
    for (int l = 0; l < 32; l++)
        lane[l] = chain[l][0] + chain[l][1];
    for (int d = 16; d >= 1; d /= 2) {
        for (int l = 0; l < 32; l++)
            next[l] = lane[l] + lane[l ^ d];
        memcpy(lane, next, sizeof lane);
    }
    return lane[7]; /* every lane holds the sum */
}

static float sum_scatter(const struct tcq_tensor *t, uint64_t col, const float *x, uint64_t splits)
{
    uint64_t rows = t->geometry.rows, per = (rows + splits - 1) / splits;
    float total = 0;
    for (uint64_t s = 0; s < splits; s++) {
        float acc = 0;
        for (uint64_t r = s * per; r < (s + 1) * per && r < rows; r++)
            acc = fmaf(weight_f32(t, r, col), x[r], acc);
        total += acc;
    }
    return total;
}

static float sum_split_k(const struct tcq_tensor *t, uint64_t col, const float *x, double m)
{
    double in = (double)t->geometry.rows, out = (double)t->geometry.cols;
    double tiles = ceil(m / 32) * ceil(out / 32), tiles_k = floor(in / 16);
    double splits = exp2(ceil(log2(fmax(1, floor(tiles_k / tiles)))));
    splits = fmin(fmax(splits, 2), 32);
    uint64_t part = (uint64_t)floor(tiles_k / splits) * 16;
    float total = 0;
    for (uint64_t s = 0; s < (uint64_t)splits; s++) {
        float acc = 0;
        uint64_t end = s + 1 == (uint64_t)splits ? t->geometry.rows : (s + 1) * part;
        for (uint64_t r = s * part; r < end; r++)
            acc = fmaf(weight_bf16(t, r, col), x[r], acc);
        total += acc;
    }
    return total;
}

static float sum_ascending(const struct tcq_tensor *t, uint64_t out, const float *x)
{
    float acc = 0;
    for (uint64_t i = 0; i < tcq_geometry_in(&t->geometry); i++)
        acc = fmaf(t->geometry.axis ? weight_bf16(t, out, i) : weight_bf16(t, i, out), x[i], acc);
    return acc;
}

/* One layer with M random vectors, and a product over it. */
struct fixture {
    struct layer layer;
    struct tcq_reference_product product;
    float *x, *y;
    uint64_t in, out;
};

static struct fixture fixture_make(struct random *r, struct tcq_geometry g)
{
    struct fixture f = {.layer = layer_random(r, g), .in = tcq_geometry_in(&g),
                        .out = tcq_geometry_out(&g)};
    size_t x_stride = f.in + X_STRIDE_EXTRA;
    f.x = malloc(M * x_stride * sizeof(float));
    f.y = malloc(M * (f.out + 1) * sizeof(float));
    for (size_t i = 0; i < M * x_stride; i++)
        f.x[i] = random_normal(r);
    f.product = (struct tcq_reference_product){NULL, M, f.x, x_stride, f.y, f.out + 1};
    return f;
}

static void fixture_free(struct fixture *f)
{
    layer_free(&f->layer);
    free(f->x);
    free(f->y);
}

static float y_at(const struct fixture *f, uint32_t i, uint64_t o)
{
    return f->y[i * (f->out + 1) + o];
}

static const float *x_of(const struct fixture *f, uint32_t i)
{
    return f->x + i * (f->in + X_STRIDE_EXTRA);
}

#define ASSERT_SAME(a, b)                                                                          \
    do {                                                                                           \
        float a_ = (a), b_ = (b);                                                                  \
        assert_memory_equal(&a_, &b_, sizeof a_);                                                  \
    } while (0)

static void axis1_orders_are_as_written(void **state)
{
    (void)state;
    static const struct tcq_geometry shapes[] = {
        {3, 12, 256, 1, 0, 3, 256},  {3, 12, 256, 1, 0, 2, 2304}, {2, 12, 128, 1, 0, 3, 1152},
        {4, 12, 64, 1, 0, 2, 1088},  {1, 8, 64, 1, 0, 2, 64},     {6, 16, 256, 1, 0, 2, 1280},
        {5, 13, 128, 1, 0, 1, 128},
    };
    struct random r = random_start("axis 1", 11);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct fixture f = fixture_make(&r, shapes[s]);
        f.product.tensor = &f.layer.tensor;
        tcq_reference_reduce(&f.product, 0, 1);
        tcq_reference_reduce(&f.product, 1, f.out);
        for (uint32_t i = 0; i < M; i++)
            for (uint64_t o = 0; o < f.out; o++)
                ASSERT_SAME(y_at(&f, i, o), sum_reduce(&f.layer.tensor, o, x_of(&f, i)));
        tcq_reference_tiled(&f.product, 0, f.out);
        for (uint32_t i = 0; i < M; i++)
            for (uint64_t o = 0; o < f.out; o++)
                ASSERT_SAME(y_at(&f, i, o), sum_ascending(&f.layer.tensor, o, x_of(&f, i)));
        fixture_free(&f);
    }
}

static void axis0_orders_are_as_written(void **state)
{
    (void)state;
    static const struct tcq_geometry shapes[] = {
        {3, 12, 256, 0, 0, 300, 512}, {3, 12, 256, 0, 1, 130, 512}, {2, 12, 128, 0, 0, 200, 128},
        {4, 12, 64, 0, 0, 259, 64},   {1, 8, 64, 0, 0, 130, 128},   {6, 16, 256, 0, 0, 128, 256},
        {5, 13, 128, 0, 0, 3000, 128},
    };
    struct random r = random_start("axis 0", 12);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct fixture f = fixture_make(&r, shapes[s]);
        f.product.tensor = &f.layer.tensor;
        uint64_t blocks = shapes[s].cols / shapes[s].T;
        static const uint32_t splits[] = {1, 7, 128};
        for (int j = 0; j < 3; j++) {
            tcq_reference_scatter(&f.product, splits[j], TCQ_SCATTER_GENERIC, NULL, 0, blocks);
            for (uint32_t i = 0; i < M; i++)
                for (uint64_t o = 0; o < f.out; o++)
                    ASSERT_SAME(y_at(&f, i, o),
                                sum_scatter(&f.layer.tensor, o, x_of(&f, i), splits[j]));
        }
        tcq_reference_split_k(&f.product, 0, blocks);
        for (uint32_t i = 0; i < M; i++)
            for (uint64_t o = 0; o < f.out; o++)
                ASSERT_SAME(y_at(&f, i, o), sum_split_k(&f.layer.tensor, o, x_of(&f, i), M));
        tcq_reference_wide(&f.product, 0, blocks);
        for (uint32_t i = 0; i < M; i++)
            for (uint64_t o = 0; o < f.out; o++)
                ASSERT_SAME(y_at(&f, i, o), sum_ascending(&f.layer.tensor, o, x_of(&f, i)));
        fixture_free(&f);
    }
}

static void scatter_forms_give_the_same_bytes(void **state)
{
    (void)state;
    struct random r = random_start("scatter forms", 13);
    int16_t table[4096];
    for (uint32_t s = 0; s < 4096; s++)
        table[s] = (int16_t)tcq_code_integer(s);
    for (uint32_t L = 8; L <= 12; L++) {
        struct fixture f = fixture_make(&r, (struct tcq_geometry){3, L, 256, 0, 0, 150, 512});
        f.product.tensor = &f.layer.tensor;
        size_t nbytes = M * (f.out + 1) * sizeof(float);
        float *first = malloc(nbytes);
        f.y[f.out] = 0; /* the margins between vectors take part in the comparison */
        memset(f.y, 0, nbytes);
        tcq_reference_scatter(&f.product, 128, TCQ_SCATTER_GENERIC, NULL, 0, 2);
        memcpy(first, f.y, nbytes);
        tcq_reference_scatter(&f.product, 128, TCQ_SCATTER_BALANCED, NULL, 0, 2);
        assert_memory_equal(first, f.y, nbytes);
        tcq_reference_scatter(&f.product, 128, TCQ_SCATTER_BALANCED_TABLE, table, 0, 2);
        assert_memory_equal(first, f.y, nbytes);
        if (L == 12) {
            uint32_t *words = malloc(tcq_geometry_words(&f.layer.tensor.geometry) * 4);
            assert_int_equal(
                tcq_words_interleave(words, f.layer.words, &f.layer.tensor.geometry), TCQ_OK);
            struct tcq_tensor tensor = f.layer.tensor;
            tensor.words = words;
            tensor.geometry.layout = TCQ_LAYOUT_INTERLEAVED;
            f.product.tensor = &tensor;
            for (int form = TCQ_SCATTER_GENERIC; form <= TCQ_SCATTER_BALANCED_TABLE; form++) {
                tcq_reference_scatter(&f.product, 128, (enum tcq_scatter_form)form, table, 0, 2);
                assert_memory_equal(first, f.y, nbytes);
            }
            free(words);
        }
        free(first);
        fixture_free(&f);
    }
}

static void split_k_of_the_known_shape(void **state)
{
    (void)state;
    struct tcq_split_k plan = tcq_split_k_plan(8, 17408, 5120);
    assert_int_equal(plan.splits, 8);
    assert_int_equal(plan.partition, 2176);
}

static void expand_equals_decoding(void **state)
{
    (void)state;
    struct random r = random_start("expand", 14);
    static const uint32_t lengths[] = {64, 128, 256};
    for (uint32_t k = 1; k <= 6; k++)
        for (uint32_t L = 8; L <= 16; L++)
            for (int j = 0; j < 3; j++) {
                uint32_t T = lengths[j], cols = 2 * T, stride = cols + 5;
                struct layer layer = layer_random(&r, (struct tcq_geometry){k, L, T, 0, 0, 3, cols});
                uint16_t *bf16 = calloc(2 * stride, 2), *row16 = malloc(cols * 2);
                float *f32 = calloc(2 * stride, 4), *row32 = malloc(cols * 4);
                tcq_reference_expand(bf16, TCQ_DTYPE_BF16, stride, &layer.tensor, 1, 3);
                tcq_reference_expand(f32, TCQ_DTYPE_F32, stride, &layer.tensor, 1, 3);
                for (uint64_t row = 1; row < 3; row++) {
                    tcq_decode_row(row16, TCQ_DTYPE_BF16, &layer.tensor, row);
                    tcq_decode_row(row32, TCQ_DTYPE_F32, &layer.tensor, row);
                    assert_memory_equal(row16, bf16 + (row - 1) * stride, cols * 2);
                    assert_memory_equal(row32, f32 + (row - 1) * stride, cols * 4);
                }
                free(bf16), free(row16), free(f32), free(row32);
                layer_free(&layer);
            }
}

/* |got - exp(x)| in units of the last place of the float nearest to exp(x). */
static double exp_error_ulp(float x)
{
    double exact = exp((double)x), got = (double)tcq_exp(x);
    double ulp = exact < 0x1p-126 ? 0x1p-149 : exp2(floor(log2(exact)) - 23);
    return fabs(got - exact) / ulp;
}

static void exp_is_within_one_ulp(void **state)
{
    (void)state;
    double worst = 0;
    uint32_t step = getenv("TCQ_FULL") ? 1 : 997;
    for (uint32_t sign = 0; sign <= 0x80000000u; sign += 0x80000000u) {
        uint32_t last = tcq_float_bits(sign ? 103.97f : 88.722f);
        for (uint32_t bits = 0; bits < last; bits += step) {
            double error = exp_error_ulp(tcq_float_from_bits(bits | sign));
            worst = error > worst ? error : worst;
        }
        if (sign)
            break;
    }
    print_message("exp: worst error %.4f ulp (every %u-th float)\n", worst, step);
    assert_true(worst <= 1.0);
    ASSERT_SAME(tcq_exp(0.0f), 1.0f);
    ASSERT_SAME(tcq_exp(0x1.62e42ep+6f), 0x1.ffff08p+127f);
    ASSERT_SAME(tcq_exp(0x1.62e430p+6f), INFINITY);
    ASSERT_SAME(tcq_exp(INFINITY), INFINITY);
    ASSERT_SAME(tcq_exp(-INFINITY), 0.0f);
    ASSERT_SAME(tcq_exp(-104.0f), 0.0f);
    assert_true(isnan(tcq_exp(NAN)));
}

static void swiglu_tails(void **state)
{
    (void)state;
    for (int tail = TCQ_SWIGLU_FUSED; tail <= TCQ_SWIGLU_SPLIT; tail++)
        for (float g = -120.0f; g <= 120.0f; g += 0.37f) {
            double exact = (double)g / (1.0 + exp(-(double)g)) * 1.5;
            float mid = tcq_swiglu_tail(TCQ_DTYPE_F32, (enum tcq_swiglu)tail, g, 1.5f);
            /* 1 - small loses the tail's relative accuracy nowhere: small <= 1/2 */
            assert_true(fabs((double)mid - exact) <= 4e-7 * fabs(exact) + 1e-30);
            /* three roundings to bf16 after that of g, 2^-8 each */
            float g16 = tcq_round_to(TCQ_DTYPE_BF16, g);
            float rounded = tcq_swiglu_tail(TCQ_DTYPE_BF16, (enum tcq_swiglu)tail, g, 1.5f);
            exact = (double)g16 / (1.0 + exp(-(double)g16)) * 1.5;
            ASSERT_SAME(rounded, tcq_round_to(TCQ_DTYPE_BF16, rounded));
            assert_true(fabs((double)rounded - exact) <= 0.0119 * fabs(exact) + 1e-30);
        }
    assert_true(isnan(tcq_swiglu_tail(TCQ_DTYPE_BF16, TCQ_SWIGLU_FUSED, NAN, 1.0f)));
    assert_true(isnan(tcq_swiglu_tail(TCQ_DTYPE_BF16, TCQ_SWIGLU_SPLIT, NAN, 1.0f)));
    ASSERT_SAME(tcq_swiglu_tail(TCQ_DTYPE_F32, TCQ_SWIGLU_FUSED, INFINITY, 1.0f), INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axis1_orders_are_as_written),
        cmocka_unit_test(axis0_orders_are_as_written),
        cmocka_unit_test(scatter_forms_give_the_same_bytes),
        cmocka_unit_test(split_k_of_the_known_shape),
        cmocka_unit_test(expand_equals_decoding),
        cmocka_unit_test(exp_is_within_one_ulp),
        cmocka_unit_test(swiglu_tails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
