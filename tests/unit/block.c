/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks: pack and unpack at every k, L and T against a bit-by-bit reading,
 * interleaving there and back, and decoding rows = 1, one block.
 */
#include "support/test.h"

#include "base/half.h"
#include "tcq.h"

static const uint32_t lengths[] = {64, 128, 256};

/* The definition, a bit at a time. */
static uint32_t slow_state(const uint32_t *words, uint32_t k, uint32_t L, uint32_t T, uint32_t t)
{
    uint32_t state = 0, nbits = T * k;
    for (uint32_t i = 0; i < L; i++) {
        uint32_t bit = ((T - 1 - t) * k + i) % nbits;
        state |= (words[bit / 32] >> bit % 32 & 1u) << i;
    }
    return state;
}

static void every_bit_pattern_is_a_block(void **state)
{
    (void)state;
    struct random r = random_start("block", 3);
    for (uint32_t k = 1; k <= 6; k++)
        for (uint32_t L = 8; L <= 16; L++)
            for (int i = 0; i < 3; i++) {
                uint32_t T = lengths[i], words[48], again[48];
                uint16_t states[256];
                for (uint32_t w = 0; w < T * k / 32; w++)
                    words[w] = (uint32_t)random_u64(&r);
                assert_int_equal(tcq_block_unpack(states, words, k, L, T), TCQ_OK);
                for (uint32_t t = 0; t < T; t++) {
                    assert_int_equal(states[t], slow_state(words, k, L, T, t));
                    assert_int_equal(states[t], tcq_block_state(words, k, L, T, t));
                }
                assert_int_equal(tcq_block_pack(again, states, k, L, T), TCQ_OK);
                assert_memory_equal(again, words, T * k / 8);
                /* a bit that the next state repeats */
                states[random_below(&r, T)] ^= (uint16_t)(1u << random_below(&r, L - k));
                assert_int_equal(tcq_block_pack(again, states, k, L, T), TCQ_ERROR_VALUE);
                assert_memory_equal(again, words, T * k / 8);
            }
}

static void interleaving_goes_there_and_back(void **state)
{
    (void)state;
    struct random r = random_start("interleave", 4);
    struct tcq_geometry g = {3, 12, 256, 0, TCQ_LAYOUT_ROW_MAJOR, 7, 1024};
    size_t count = tcq_geometry_words(&g);
    uint32_t *words = malloc(count * 4), *other = malloc(count * 4), *back = malloc(count * 4);
    for (size_t i = 0; i < count; i++)
        words[i] = (uint32_t)random_u64(&r);
    assert_int_equal(tcq_words_interleave(other, words, &g), TCQ_OK);
    for (uint64_t row = 0; row < g.rows; row++)
        for (uint64_t b = 0; b < 4; b++)
            for (uint64_t w = 0; w < 24; w++)
                assert_int_equal(other[(b >> 1) * g.rows * 48 + row * 48 + (b & 1) * 24 + w],
                                 words[row * 96 + b * 24 + w]);
    assert_int_equal(tcq_words_deinterleave(back, other, &g), TCQ_OK);
    assert_memory_equal(back, words, count * 4);
    g.cols = 256;
    assert_int_equal(tcq_words_interleave(other, words, &g), TCQ_ERROR_GEOMETRY);
    free(words);
    free(other);
    free(back);
}

static void one_row_of_one_block_decodes(void **state)
{
    (void)state;
    uint32_t words[24];
    uint16_t scale = tcq_f16_from_f32(0.25f), bf16[256];
    float row[256], table[4096];
    struct random r = random_start("decode", 5);
    for (int i = 0; i < 24; i++)
        words[i] = (uint32_t)random_u64(&r);
    struct tcq_tensor tensor = {{3, 12, 256, 1, TCQ_LAYOUT_ROW_MAJOR, 1, 256}, words, &scale};
    assert_int_equal(tcq_tensor_check(&tensor, NULL), TCQ_OK);
    assert_int_equal(tcq_code_table(table, 12), TCQ_OK);
    assert_int_equal(tcq_decode_row(row, TCQ_DTYPE_F32, &tensor, 0), TCQ_OK);
    assert_int_equal(tcq_decode_row(bf16, TCQ_DTYPE_BF16, &tensor, 0), TCQ_OK);
    for (uint32_t t = 0; t < 256; t++) {
        float expected = table[slow_state(words, 3, 12, 256, t)] * 0.25f;
        assert_memory_equal(&row[t], &expected, sizeof expected);
        assert_int_equal(bf16[t], tcq_bf16_from_f32(expected));
    }
    assert_int_equal(tcq_decode_row(row, TCQ_DTYPE_F32, &tensor, 1), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_decode_block(row, TCQ_DTYPE_U8, &tensor, 0, 0), TCQ_ERROR_ARGUMENT);
    scale = 0x7e00;
    struct tcq_error error;
    assert_int_equal(tcq_tensor_check(&tensor, &error), TCQ_ERROR_VALUE);
    assert_string_equal(error.message, "the scale of row 0 is NaN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_pattern_is_a_block),
        cmocka_unit_test(interleaving_goes_there_and_back),
        cmocka_unit_test(one_row_of_one_block_decodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
