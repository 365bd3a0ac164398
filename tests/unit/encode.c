/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq_encode_rows from the outside: refusals and their messages, scales at the
 * edges, cancelling, threads, strides, and every allocation failing.
 */
#include "support/test.h"

#include "base/half.h"
#include "base/memory.h"
#include "encode/scale.h"
#include "tcq.h"

enum { ROWS = 5, COLS = 192, T = 64, K = 2, ROW_WORDS = COLS * K / 32 };

struct fixture {
    struct tcq_context *context;
    struct tcq_encoder *encoder;
    struct tcq_error error;
    float src[ROWS * COLS];
    uint32_t words[ROWS * ROW_WORDS];
    uint16_t scales[ROWS];
};

static struct fixture *setup(uint32_t threads)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct tcq_context_options options = {.threads = threads};
    struct tcq_encoder_options code = {.k = K, .L = 10, .T = T};
    struct random r = random_start("encode", 6);
    assert_int_equal(tcq_context_create(&options, &f->context, NULL), TCQ_OK);
    assert_int_equal(tcq_encoder_create(f->context, &code, &f->encoder, NULL), TCQ_OK);
    for (int i = 0; i < ROWS * COLS; i++)
        f->src[i] = random_normal(&r);
    return f;
}

static void teardown(struct fixture *f)
{
    tcq_encoder_destroy(f->encoder);
    tcq_context_destroy(f->context);
    free(f);
}

static enum tcq_status encode(struct fixture *f)
{
    return tcq_encode_rows(f->encoder, f->words, f->scales, f->src, ROWS, COLS, COLS, NULL, NULL,
                           &f->error);
}

static void bad_weights_are_named(void **state)
{
    (void)state;
    struct fixture *f = setup(2);
    f->src[4 * COLS + 1] = NAN;
    f->src[3 * COLS + 17] = -INFINITY;
    assert_int_equal(encode(f), TCQ_ERROR_VALUE);
    assert_string_equal(f->error.message,
                        "row 3, column 17: the weight is -inf, expected a finite number");
    f->src[3 * COLS + 17] = 0.5f;
    assert_int_equal(encode(f), TCQ_ERROR_VALUE);
    assert_string_equal(f->error.message,
                        "row 4, column 1: the weight is NaN, expected a finite number");
    for (int i = 0; i < COLS; i++)
        f->src[4 * COLS + i] = 1e6f;
    assert_int_equal(encode(f), TCQ_ERROR_VALUE);
    assert_non_null(strstr(f->error.message, "row 4: its scale is 9"));
    for (int i = 0; i < COLS; i++) /* squares far beyond float32 */
        f->src[4 * COLS + i] = 3e38f;
    assert_int_equal(encode(f), TCQ_ERROR_VALUE);
    assert_non_null(strstr(f->error.message, "more than binary16 holds (65504)"));
    teardown(f);
}

static void scales_at_the_edges(void **state)
{
    (void)state;
    static const struct {
        float weight;
        uint16_t scale;
        enum tcq_status status;
    } cases[] = {
        {0.0f, 0x3c00, TCQ_OK},        {-0.0f, 0x3c00, TCQ_OK},     {1.0f, 0x3c00, TCQ_OK},
        {1e-45f, 0x0001, TCQ_OK},      {0x1p-25f, 1, TCQ_OK},       {0x1.8p-24f, 2, TCQ_OK},
        {65504.0f, 0x7bff, TCQ_OK},    {-65504.0f, 0x7bff, TCQ_OK}, {65505.0f, 0, TCQ_ERROR_VALUE},
        {3.4e38f, 0, TCQ_ERROR_VALUE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float row[4] = {cases[i].weight, cases[i].weight, cases[i].weight, cases[i].weight};
        uint16_t scale = 0;
        assert_int_equal(tcq_scale_compute(&scale, row, 4, 1.0, NULL, 0, NULL), cases[i].status);
        assert_int_equal(scale, cases[i].scale);
    }
}

static void arguments_are_checked(void **state)
{
    (void)state;
    struct fixture *f = setup(1);
    struct tcq_encoder *none = NULL;
    static const struct tcq_encoder_options bad[] = {
        {.k = 0, .L = 12, .T = 256}, {.k = 7, .L = 12, .T = 256}, {.k = 3, .L = 7, .T = 256},
        {.k = 3, .L = 17, .T = 256}, {.k = 3, .L = 12, .T = 32},  {.k = 3, .L = 12, .T = 512}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tcq_encoder_create(f->context, &bad[i], &none, &f->error),
                         TCQ_ERROR_GEOMETRY);
        assert_null(none);
    }
    assert_int_equal(tcq_encoder_create(NULL, &bad[0], &none, &f->error), TCQ_ERROR_ARGUMENT);
    assert_int_equal(
        tcq_encode_rows(f->encoder, f->words, f->scales, NULL, 1, 64, 64, NULL, NULL, &f->error),
        TCQ_ERROR_ARGUMENT);
    assert_string_equal(f->error.message, "encode: src is NULL");
    assert_int_equal(
        tcq_encode_rows(f->encoder, f->words, f->scales, f->src, 1, 96, 96, NULL, NULL, &f->error),
        TCQ_ERROR_GEOMETRY);
    assert_int_equal(
        tcq_encode_rows(f->encoder, f->words, f->scales, f->src, 0, 64, 64, NULL, NULL, &f->error),
        TCQ_ERROR_GEOMETRY);
    assert_int_equal(
        tcq_encode_rows(f->encoder, f->words, f->scales, f->src, 2, 64, 63, NULL, NULL, &f->error),
        TCQ_ERROR_ARGUMENT);
    tcq_encoder_destroy(NULL);
    teardown(f);
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    struct tcq_context *context;
    struct tcq_context_options options = {.threads = 3};
    struct tcq_encoder_options code = {.k = 3};
    assert_int_equal(tcq_context_create(&options, &context, NULL), TCQ_OK);
    struct tcq_encoder *encoder = NULL;
    long failures = 0;
    for (;; failures++) {
        tcq_alloc_fail_after(failures);
        enum tcq_status status = tcq_encoder_create(context, &code, &encoder, NULL);
        tcq_alloc_fail_after(-1);
        if (status == TCQ_OK)
            break;
        assert_int_equal(status, TCQ_ERROR_MEMORY);
        assert_null(encoder);
    }
    assert_true(failures >= 5);
    assert_true(tcq_encoder_nbytes(encoder) > 3 * 4096);
    tcq_encoder_destroy(encoder);
    tcq_context_destroy(context);
}

struct watcher {
    uint64_t calls, last, total, stop_at;
    bool backwards;
};

static bool watch(void *user, uint64_t done, uint64_t total)
{
    struct watcher *w = user;
    w->calls++;
    w->backwards |= done < w->last || done > total;
    w->last = done;
    w->total = total;
    return done < w->stop_at;
}

static void progress_counts_and_cancels(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct fixture *f = setup(threads);
        struct watcher w = {.stop_at = UINT64_MAX};
        assert_int_equal(tcq_encode_rows(f->encoder, f->words, f->scales, f->src, ROWS, COLS, COLS,
                                         watch, &w, &f->error),
                         TCQ_OK);
        assert_int_equal(w.last, ROWS * COLS / T);
        assert_int_equal(w.total, ROWS * COLS / T);
        assert_false(w.backwards);
        w = (struct watcher){.stop_at = 1};
        assert_int_equal(tcq_encode_rows(f->encoder, f->words, f->scales, f->src, ROWS, COLS, COLS,
                                         watch, &w, &f->error),
                         TCQ_ERROR_CANCELLED);
        assert_int_equal(w.calls, 1);
        assert_non_null(strstr(f->error.message, "of 15 blocks"));
        assert_int_equal(encode(f), TCQ_OK); /* the encoder is still good */
        teardown(f);
    }
}

static void threads_and_strides_do_not_show(void **state)
{
    (void)state;
    struct fixture *one = setup(1);
    assert_int_equal(encode(one), TCQ_OK);
    for (uint32_t threads = 2; threads <= 7; threads++) {
        struct fixture *f = setup(threads);
        assert_int_equal(encode(f), TCQ_OK);
        assert_memory_equal(f->words, one->words, sizeof f->words);
        assert_memory_equal(f->scales, one->scales, sizeof f->scales);
        float wide[ROWS * (COLS + 7)];
        for (int i = 0; i < ROWS * (COLS + 7); i++)
            wide[i] = NAN;
        for (int row = 0; row < ROWS; row++)
            memcpy(wide + row * (COLS + 7), f->src + row * COLS, COLS * sizeof(float));
        memset(f->words, 0, sizeof f->words);
        assert_int_equal(tcq_encode_rows(f->encoder, f->words, f->scales, wide, ROWS, COLS,
                                         COLS + 7, NULL, NULL, &f->error),
                         TCQ_OK);
        assert_memory_equal(f->words, one->words, sizeof f->words);
        teardown(f);
    }
    teardown(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_weights_are_named),
        cmocka_unit_test(scales_at_the_edges),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(progress_counts_and_cancels),
        cmocka_unit_test(threads_and_strides_do_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
