/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Half-precision conversions: all 65,536 halves, and rounding against
 * the compiler's own _Float16 or a search among neighbours.
 */
#include "support/test.h"

#include "base/half.h"
#include "tcq.h"

static bool is_nan16(uint16_t h, uint16_t infinity)
{
    return (h & 0x7fffu) > infinity;
}

static void every_half_survives_the_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000u; h++) {
        if (is_nan16((uint16_t)h, 0x7c00)) {
            assert_true(isnan(tcq_f16_to_f32((uint16_t)h)));
            assert_true(is_nan16(tcq_f16_from_f32(tcq_f16_to_f32((uint16_t)h)), 0x7c00));
        } else {
            assert_int_equal(tcq_f16_from_f32(tcq_f16_to_f32((uint16_t)h)), h);
        }
        if (is_nan16((uint16_t)h, 0x7f80))
            assert_true(is_nan16(tcq_bf16_from_f32(tcq_bf16_to_f32((uint16_t)h)), 0x7f80));
        else
            assert_int_equal(tcq_bf16_from_f32(tcq_bf16_to_f32((uint16_t)h)), h);
    }
}

/* Independent of the bit tricks: the nearest of two neighbouring halves in
 * float64, the even one on a tie. */
static void check_nearest(float x, uint16_t (*from)(float), float (*to)(uint16_t))
{
    uint16_t h = from(x);
    double error = fabs((double)to(h) - (double)x);
    uint16_t neighbours[2] = {(uint16_t)(h - 1), (uint16_t)(h + 1)};
    for (int i = 0; i < 2; i++) {
        double other = fabs((double)to(neighbours[i]) - (double)x);
        if ((h & 0x7fff) == 0 && i == 0)
            continue; /* below zero's pattern lies the other sign's NaN */
        assert_true(error < other || (error == other && (h & 1) == 0));
    }
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    struct random r = random_start("half", 1);
    for (int i = 0; i < 200000; i++) {
        /* every exponent that binary16 has, and ties made by clearing low bits */
        uint32_t bits = (uint32_t)random_u64(&r);
        uint32_t exponent = 127u - 26u + random_below(&r, 41);
        uint32_t mantissa = bits & 0x7fffffu;
        if (i & 1)
            mantissa = (mantissa & ~0x1fffu) | 0x1000u;
        float x = tcq_float_from_bits((bits & 0x80000000u) | exponent << 23 | mantissa);
        if (fabsf(x) < 65504.0f)
            check_nearest(x, tcq_f16_from_f32, tcq_f16_to_f32);
        check_nearest(x, tcq_bf16_from_f32, tcq_bf16_to_f32);
    }
}

static void limits(void **state)
{
    (void)state;
    assert_int_equal(tcq_f16_from_f32(65504.0f), 0x7bff);
    assert_int_equal(tcq_f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(tcq_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(tcq_f16_from_f32(-INFINITY), 0xfc00);
    assert_int_equal(tcq_f16_from_f32(0x1p-24f), 1);
    assert_int_equal(tcq_f16_from_f32(0x1p-25f), 0);
    assert_int_equal(tcq_f16_from_f32(-0.0f), 0x8000);
    assert_int_equal(tcq_bf16_from_f32(3.4028235e38f), 0x7f80);
    assert_int_equal(tcq_convert_from_f32(NULL, TCQ_DTYPE_F32, NULL, 1), TCQ_ERROR_ARGUMENT);
    uint32_t word = 0;
    float f = 0;
    assert_int_equal(tcq_convert_to_f32(&f, &word, TCQ_DTYPE_U32, 1), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_dtype_nbytes(TCQ_DTYPE_COUNT), 0);
    assert_string_equal(tcq_dtype_name(TCQ_DTYPE_BF16), "BF16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_survives_the_round_trip),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
