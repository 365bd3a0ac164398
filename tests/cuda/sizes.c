/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What needs no GPU of models on one: the memory that a session will take, and
 * what is said where there is no driver.
 */
#include "support/test.h"

#include <string.h>

#include "model/cuda/gpu.h"

/* SmolLM2-135M. */
static const struct tcq_settings small = {.layers = 30, .hidden = 576, .intermediate = 1536,
                                          .heads = 9, .kv_heads = 3, .head_dim = 64,
                                          .vocab = 49152};

static void cache_sizes(void **state)
{
    (void)state;
    struct gpu_sizes s = gpu_session_sizes(&small, 4096, 512, 132);
    assert_int_equal(s.head, 4096 * 64 * 2);
    assert_int_equal(s.cache, 30 * 3 * 2 * s.head);
    /* Positions come in tiles of 32, components of a head in 32, 64, 96, 128 or 256. */
    assert_int_equal(gpu_session_sizes(&small, 4097, 512, 132).head, 4128 * 64 * 2);
    struct tcq_settings odd = small;
    odd.head_dim = 80;
    assert_int_equal(gpu_session_sizes(&odd, 4096, 512, 132).head, 4096 * 96 * 2);
    odd.head_dim = 130;
    assert_int_equal(gpu_session_sizes(&odd, 4096, 512, 132).head, 4096 * 256 * 2);
}

static void work_sizes(void **state)
{
    (void)state;
    size_t one = gpu_session_sizes(&small, 4096, 64, 132).work;
    size_t two = gpu_session_sizes(&small, 4096, 128, 132).work;
    /* x, h and t; q, k, v and what attention gives; gate, up and mid; a token. */
    size_t position = (3 * 576 + (9 + 6) * 64 + 9 * 64 + 3 * 1536 + 1) * sizeof(float);
    assert_int_equal(two - one, 64 * position);
    /* A longer context costs two tables of angles more. */
    size_t longer = gpu_session_sizes(&small, 8192, 64, 132).work;
    assert_int_equal(longer - one, 4096 * 32 * 2 * sizeof(float));
    /* Logits of 64 positions are the largest part of a small batch's memory. */
    assert_true(one > 64 * 49152 * sizeof(float));
}

static void no_driver(void **state)
{
    (void)state;
    struct tcq_context *context = NULL;
    struct tcq_error error = {0};
    const struct tcq_context_options options = {.device = TCQ_DEVICE_CUDA};
    enum tcq_status status = tcq_context_create(&options, &context, &error);
    if (status == TCQ_OK) {
        assert_int_equal(tcq_context_get_device(context), TCQ_DEVICE_CUDA);
        tcq_context_destroy(context);
        skip();
    }
    assert_null(context);
    assert_int_equal(status, TCQ_ERROR_DEVICE);
    assert_non_null(strstr(error.message, "NVIDIA"));
}

static void cpu_context(void **state)
{
    (void)state;
    struct tcq_context *context = NULL;
    assert_int_equal(tcq_context_create(NULL, &context, NULL), TCQ_OK);
    assert_int_equal(tcq_context_get_device(context), TCQ_DEVICE_CPU);
    assert_int_equal(tcq_context_set_stream(context, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_context_set_stream(NULL, NULL), TCQ_ERROR_ARGUMENT);
    tcq_context_destroy(context);
    const struct tcq_context_options odd = {.device = (enum tcq_device)7};
    assert_int_equal(tcq_context_create(&odd, &context, NULL), TCQ_ERROR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cpu_context), cmocka_unit_test(cache_sizes),
                                       cmocka_unit_test(work_sizes), cmocka_unit_test(no_driver)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
