/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder against the golden vectors: scales, words and states byte for
 * byte, with every solver that this processor runs and several thread counts.
 */
#include "support/golden.h"

static struct tcq_context_options setting;

static void reproduce(const struct golden *golden)
{
    uint64_t shape[2];
    const float *source = golden_data(golden, "source", TCQ_DTYPE_F32, 2, shape);
    const uint16_t *states = golden_data(golden, "states", TCQ_DTYPE_U16, 2, NULL);
    struct tcq_tensor packed =
        golden_packed(golden, "layer.weight", "layer.scales", golden->k, golden->axis);
    uint32_t k = golden->k, L = golden->L, T = golden->T;
    size_t rows = (size_t)shape[0], cols = (size_t)shape[1];

    struct tcq_context *context;
    struct tcq_encoder *encoder;
    struct tcq_encoder_options options = {.k = k, .L = L, .T = T};
    assert_int_equal(tcq_context_create(&setting, &context, NULL), TCQ_OK);
    assert_int_equal(tcq_encoder_create(context, &options, &encoder, NULL), TCQ_OK);
    size_t row_words = cols * k / 32;
    uint32_t *words = calloc(rows * row_words, sizeof *words);
    uint16_t *scales = calloc(rows, sizeof *scales), block_states[256];
    assert_int_equal(
        tcq_encode_rows(encoder, words, scales, source, rows, cols, cols, NULL, NULL, NULL),
        TCQ_OK);
    assert_memory_equal(scales, packed.scales, rows * sizeof *scales);
    assert_memory_equal(words, packed.words, rows * row_words * sizeof *words);
    for (size_t block = 0; block < rows * cols / T; block++) {
        tcq_block_unpack(block_states, words + block * T * k / 32, k, L, T);
        assert_memory_equal(block_states, states + block * T, T * sizeof *block_states);
    }
    free(words);
    free(scales);
    tcq_encoder_destroy(encoder);
    tcq_context_destroy(context);
}

static void plain_c_gives_the_golden_bytes(void **state)
{
    (void)state;
    setting = (struct tcq_context_options){.threads = 2, .limit_cpu = true};
    golden_run("encoded_", reproduce);
}

static void every_instruction_set_gives_the_golden_bytes(void **state)
{
    (void)state;
    static const uint32_t flags[] = {TCQ_CPU_AVX2, TCQ_CPU_AVX2 | TCQ_CPU_AVX512, TCQ_CPU_NEON};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (flags[i] & ~tcq_cpu_detect()) {
            print_message("cpu flags %#x: NOT RUN on this processor\n", flags[i]);
            continue;
        }
        for (uint32_t threads = 1; threads <= 3; threads += 2) {
            setting = (struct tcq_context_options){
                .threads = threads, .limit_cpu = true, .cpu_flags = flags[i]};
            golden_run("encoded_", reproduce);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_c_gives_the_golden_bytes),
        cmocka_unit_test(every_instruction_set_gives_the_golden_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
