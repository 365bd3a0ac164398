/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers that are told to need less scratch: they need less, give the bytes of
 * those that are not told, and refuse what they were made not to do.
 */
#include "support/layer.h"
#include "support/test.h"

enum { OUT = 300, IN = 512, M = 70 };

static struct tcq_linear *linear_of(struct tcq_context *context, const struct tcq_tensor *tensor,
                                    struct tcq_linear_options options)
{
    struct tcq_linear *linear = NULL;
    assert_int_equal(tcq_linear_create(context, tensor, &options, &linear, NULL), TCQ_OK);
    return linear;
}

static void forward(const struct tcq_linear *linear, uint64_t m, float *y, float *x)
{
    struct tcq_vectors ys = {y, TCQ_DTYPE_F32, OUT}, xs = {x, TCQ_DTYPE_F32, IN};
    assert_int_equal(tcq_linear_forward(linear, m, &ys, &xs, NULL, NULL), TCQ_OK);
}

/* One layer with and without limits, on vectors that both take in the same way. */
static void compare(struct tcq_context *context, const struct tcq_tensor *tensor, float *x)
{
    static float expected[M * OUT], got[M * OUT];
    static const struct tcq_linear_options none = {0};
    struct tcq_linear_options less = {.alone = true, .small_m = 8, .wide_m = 32};
    struct tcq_linear *plain = linear_of(context, tensor, none);
    struct tcq_linear *small = linear_of(context, tensor, less);
    assert_true(tcq_linear_scratch_nbytes(small) < tcq_linear_scratch_nbytes(plain));
    for (uint64_t m = 1; m <= M; m += m == 8 ? 25 : 1) { /* 1..8, then 33.. by the wide kernels */
        assert_string_equal(tcq_linear_kernel(small, m), tcq_linear_kernel(plain, m));
        forward(plain, m, expected, x);
        forward(small, m, got, x);
        assert_memory_equal(got, expected, m * OUT * sizeof *got);
    }
    assert_string_equal(tcq_linear_kernel(small, 9), tcq_linear_kernel(plain, 33));
    /* a limit beyond the kernels' own is none */
    less = (struct tcq_linear_options){.small_m = 1000, .wide_m = 100000};
    struct tcq_linear *more = linear_of(context, tensor, less);
    assert_int_equal(tcq_linear_scratch_nbytes(more), tcq_linear_scratch_nbytes(plain));
    tcq_linear_destroy(more);
    tcq_linear_destroy(small);
    tcq_linear_destroy(plain);
}

static void same_bytes_in_less_memory(void **state)
{
    (void)state;
    static float x[M * IN];
    struct random r = random_start("less scratch", 51);
    for (size_t i = 0; i < M * IN; i++)
        x[i] = random_normal(&r);
    struct tcq_context *context = NULL;
    struct tcq_context_options options = {.threads = 2};
    assert_int_equal(tcq_context_create(&options, &context, NULL), TCQ_OK);
    for (uint32_t k = 2; k <= 4; k++) {
        struct layer layer =
            layer_random(&r, (struct tcq_geometry){k, 12, 256, 1, TCQ_LAYOUT_ROW_MAJOR, OUT, IN});
        compare(context, &layer.tensor, x);
        layer_free(&layer);
    }
    tcq_context_destroy(context);
}

static void a_layer_alone_is_no_half_of_a_pair(void **state)
{
    (void)state;
    static float x[IN], mid[OUT];
    struct random r = random_start("alone", 52);
    struct layer layer =
        layer_random(&r, (struct tcq_geometry){3, 12, 256, 1, TCQ_LAYOUT_ROW_MAJOR, OUT, IN});
    struct tcq_context *context = NULL;
    assert_int_equal(tcq_context_create(NULL, &context, NULL), TCQ_OK);
    static const struct tcq_linear_options none = {0}, alone = {.alone = true}, few = {.small_m = 4};
    struct tcq_linear *plain = linear_of(context, &layer.tensor, none);
    struct tcq_linear *other = linear_of(context, &layer.tensor, alone);
    struct tcq_linear *narrow = linear_of(context, &layer.tensor, few);
    struct tcq_vectors ys = {mid, TCQ_DTYPE_F32, OUT}, xs = {x, TCQ_DTYPE_F32, IN};
    struct tcq_error error = {0};
    assert_int_equal(tcq_gate_up_forward(plain, other, 1, &ys, &xs, TCQ_SWIGLU_FUSED, &error),
                     TCQ_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "alone"));
    assert_int_equal(tcq_gate_up_forward(narrow, plain, 1, &ys, &xs, TCQ_SWIGLU_FUSED, &error),
                     TCQ_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "different options"));
    assert_int_equal(tcq_gate_up_forward(plain, plain, 1, &ys, &xs, TCQ_SWIGLU_FUSED, &error),
                     TCQ_OK);
    tcq_linear_destroy(plain);
    tcq_linear_destroy(other);
    tcq_linear_destroy(narrow);
    tcq_context_destroy(context);
    layer_free(&layer);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_in_less_memory),
        cmocka_unit_test(a_layer_alone_is_no_half_of_a_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
