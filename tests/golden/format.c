/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format against the golden vectors, byte for byte: the table of 1MAD,
 * states from words and back, decoded weights, and both layouts.
 */
#include "support/golden.h"

static struct tcq_context *context;

static void *buffer(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

static void check_table(const struct golden *golden)
{
    uint64_t count;
    const float *expected = golden_data(golden, "lut", TCQ_DTYPE_F32, 1, &count);
    assert_int_equal(count, 1u << golden->L);
    float *table = buffer(count, sizeof *table);
    assert_int_equal(tcq_code_table(table, golden->L), TCQ_OK);
    assert_memory_equal(table, expected, count * sizeof *table);
    free(table);
    const char *rms = tcq_source_metadata(golden->source, "rms");
    if (rms) /* given with nine decimals */
        assert_true(fabs(tcq_code_rms(golden->L) - strtod(rms, NULL)) < 1e-9);
}

static void the_table_is_the_precise_one(void **state)
{
    (void)state;
    golden_run("lut_1mad", check_table);
}

static void check_states(const struct golden *golden)
{
    const struct tcq_tensor tensor =
        golden_packed(golden, "layer.weight", "layer.scales", golden->k, golden->axis);
    const struct tcq_geometry *g = &tensor.geometry;
    uint64_t shape[2];
    const uint16_t *expected = golden_data(golden, "states", TCQ_DTYPE_U16, 2, shape);
    assert_int_equal(shape[0], g->rows);
    assert_int_equal(shape[1], g->cols);
    for (uint64_t row = 0; row < g->rows; row++)
        for (uint64_t block = 0; block < g->cols / g->T; block++) {
            uint16_t states[256];
            uint32_t words[48];
            const uint16_t *wanted = expected + row * g->cols + block * g->T;
            const uint32_t *stored = tensor.words + tcq_geometry_block_offset(g, row, block);
            assert_int_equal(tcq_block_unpack(states, stored, g->k, g->L, g->T), TCQ_OK);
            assert_memory_equal(states, wanted, g->T * sizeof *states);
            for (uint32_t t = 0; t < g->T; t++)
                assert_int_equal(tcq_block_state(stored, g->k, g->L, g->T, t), wanted[t]);
            assert_int_equal(tcq_block_pack(words, wanted, g->k, g->L, g->T), TCQ_OK);
            assert_memory_equal(words, stored, tcq_geometry_block_words(g) * sizeof *words);
        }
}

static void words_and_states_agree_both_ways(void **state)
{
    (void)state;
    golden_run("encoded_", check_states);
}

static void check_decoded(const struct golden *golden, const struct tcq_tensor *tensor,
                          const char *name, enum tcq_dtype dtype)
{
    const struct tcq_geometry *g = &tensor->geometry;
    uint64_t shape[2];
    const uint8_t *expected = golden_data(golden, name, dtype, 2, shape);
    assert_int_equal(shape[0], g->rows);
    assert_int_equal(shape[1], g->cols);
    size_t size = tcq_dtype_nbytes(dtype), row_nbytes = g->cols * size;
    uint8_t *decoded = buffer(g->rows, row_nbytes);
    assert_int_equal(tcq_decode_tensor(decoded, dtype, tensor, context), TCQ_OK);
    assert_memory_equal(decoded, expected, g->rows * row_nbytes);
    for (uint64_t row = 0; row < g->rows; row++) {
        assert_int_equal(tcq_decode_row(decoded, dtype, tensor, row), TCQ_OK);
        assert_memory_equal(decoded, expected + row * row_nbytes, row_nbytes);
        for (uint64_t block = 0; block < g->cols / g->T; block++) {
            assert_int_equal(tcq_decode_block(decoded, dtype, tensor, row, block), TCQ_OK);
            assert_memory_equal(decoded, expected + row * row_nbytes + block * g->T * size,
                                g->T * size);
        }
    }
    free(decoded);
}

static void check_weights(const struct golden *golden)
{
    const struct tcq_tensor tensor =
        golden_packed(golden, "layer.weight", "layer.scales", golden->k, golden->axis);
    check_decoded(golden, &tensor, "expand_bf16", TCQ_DTYPE_BF16);
    check_decoded(golden, &tensor, "expand_f32", TCQ_DTYPE_F32);
}

static void weights_decode_to_the_same_bytes(void **state)
{
    (void)state;
    golden_run("encoded_", check_weights);
}

static void check_layouts(const struct golden *golden)
{
    const struct tcq_tensor plain =
        golden_packed(golden, "layer_rowmajor.weight", "layer.scales", golden->k, golden->axis);
    const struct tcq_tensor interleaved =
        golden_packed(golden, "layer_interleaved.weight", "layer.scales", golden->k, golden->axis);
    size_t count = tcq_geometry_words(&plain.geometry), nbytes = count * sizeof(uint32_t);
    assert_int_equal(interleaved.geometry.layout, TCQ_LAYOUT_INTERLEAVED);
    assert_int_equal(plain.geometry.cols, interleaved.geometry.cols);
    uint32_t *words = buffer(count, sizeof *words);
    assert_int_equal(tcq_words_interleave(words, plain.words, &plain.geometry), TCQ_OK);
    assert_memory_equal(words, interleaved.words, nbytes);
    assert_int_equal(tcq_words_deinterleave(words, interleaved.words, &plain.geometry), TCQ_OK);
    assert_memory_equal(words, plain.words, nbytes);
    free(words);
    check_decoded(golden, &plain, "expand_bf16", TCQ_DTYPE_BF16);
    check_decoded(golden, &interleaved, "expand_bf16", TCQ_DTYPE_BF16);
}

static void both_layouts_hold_the_same_blocks(void **state)
{
    (void)state;
    golden_run("interleaved_", check_layouts);
}

static void ignore(const struct golden *golden)
{
    (void)golden;
}

/* A folder of which nothing is known must not pass for one that was checked. */
static void there_are_vectors(void **state)
{
    (void)state;
    assert_true(golden_each("encoded_", ignore) + golden_each("lut_", ignore) +
                    golden_each("interleaved_", ignore) >
                0);
}

static int start(void **state)
{
    (void)state;
    return tcq_context_create(NULL, &context, NULL) == TCQ_OK ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    tcq_context_destroy(context);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_vectors),
        cmocka_unit_test(the_table_is_the_precise_one),
        cmocka_unit_test(words_and_states_agree_both_ways),
        cmocka_unit_test(weights_decode_to_the_same_bytes),
        cmocka_unit_test(both_layouts_hold_the_same_blocks),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
