/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GGUF file as a Hugging Face model: names, row order, shapes, completeness,
 * config.json, and every refusal by its own message.
 */
#include "support/test.h"

#include "base/memory.h"
#include "format/gguf_config.h"
#include "format/gguf_dequantize.h"
#include "format/gguf_model.h"
#include "support/gguf_small.h"

struct loaded {
    struct bytes file;
    struct tcq_gguf_model *model;
};

static struct loaded load(struct small_options options)
{
    struct loaded loaded = {.file = small_model(&options)};
    struct tcq_error error = {0};
    enum tcq_status status = tcq_gguf_model_create(loaded.file.data, loaded.file.nbytes, "m.gguf",
                                                   &loaded.model, &error);
    if (status != TCQ_OK)
        fail_msg("%s", error.message);
    return loaded;
}

static void unload(struct loaded loaded)
{
    tcq_gguf_model_destroy(loaded.model);
    free(loaded.file.data);
}

static const struct tcq_gguf_model_tensor *find(const struct loaded *loaded, const char *name)
{
    for (size_t i = 0; i < tcq_gguf_model_count(loaded->model); i++) {
        const struct tcq_gguf_model_tensor *tensor = tcq_gguf_model_get(loaded->model, i);
        if (strcmp(tensor->name.hf, name) == 0)
            return tensor;
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

static void names_are_translated_and_sorted(void **state)
{
    (void)state;
    struct loaded loaded = load((struct small_options){0});
    assert_int_equal(tcq_gguf_model_count(loaded.model), 20);
    assert_null(tcq_gguf_model_get(loaded.model, 20));
    for (size_t i = 1; i < 20; i++)
        assert_true(strcmp(tcq_gguf_model_get(loaded.model, i - 1)->name.hf,
                           tcq_gguf_model_get(loaded.model, i)->name.hf) < 0);
    const struct tcq_gguf_model_tensor *k = find(&loaded, "model.layers.1.self_attn.k_proj.weight");
    assert_true(tcq_gguf_text_equal(k->stored->name, "blk.1.attn_k.weight"));
    assert_int_equal(k->name.layer, 1);
    assert_int_equal(tcq_gguf_model_dtype(k), TCQ_DTYPE_COUNT);
    const struct tcq_gguf_model_tensor *v = find(&loaded, "model.layers.1.self_attn.v_proj.weight");
    assert_int_equal(tcq_gguf_model_dtype(v), TCQ_DTYPE_F32);
    unload(loaded);
}

/* By hand: within a head of 4 rows, rows 0 1 2 3 of the model are rows 0 2 1 3
 * of the file. */
static void rotary_rows_are_put_back(void **state)
{
    (void)state;
    static const uint64_t order[] = {0, 2, 1, 3};
    struct loaded loaded = load((struct small_options){0});
    const struct tcq_gguf_model_tensor *q = find(&loaded, "model.layers.0.self_attn.q_proj.weight");
    float rows[16 * SMALL_HIDDEN], first;
    memcpy(&first, q->stored->data, sizeof first);
    assert_int_equal(tcq_gguf_model_read(loaded.model, rows, q, 0, 16, NULL), TCQ_OK);
    for (uint64_t i = 0; i < 16; i++) {
        uint64_t from = i / 4 * 4 + order[i % 4];
        for (uint64_t c = 0; c < SMALL_HIDDEN; c++)
            assert_true(rows[i * SMALL_HIDDEN + c] == first + (float)(from * SMALL_HIDDEN + c));
    }
    float one[SMALL_HIDDEN];
    assert_int_equal(tcq_gguf_model_read(loaded.model, one, q, 5, 1, NULL), TCQ_OK);
    assert_memory_equal(one, rows + 5 * SMALL_HIDDEN, sizeof one);
    unload(loaded);
    static const uint64_t wide[] = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
    for (uint64_t i = 0; i < 12; i++)
        assert_int_equal(tcq_gguf_rotary_row(i, 6), wide[i]);
}

static void a_bias_is_put_back_as_one_row(void **state)
{
    (void)state;
    struct loaded loaded =
        load((struct small_options){.extra_tensor = "blk.0.attn_k.bias", .extra_count = 8});
    const struct tcq_gguf_model_tensor *bias =
        find(&loaded, "model.layers.0.self_attn.k_proj.bias");
    float values[8], first;
    memcpy(&first, bias->stored->data, sizeof first);
    assert_int_equal(tcq_gguf_model_read(loaded.model, values, bias, 0, 1, NULL), TCQ_OK);
    static const float order[] = {0, 2, 1, 3, 4, 6, 5, 7};
    for (int i = 0; i < 8; i++)
        assert_true(values[i] == first + order[i]);
    unload(loaded);
}

static void reading_outside_is_refused(void **state)
{
    (void)state;
    struct loaded loaded = load((struct small_options){0});
    const struct tcq_gguf_model_tensor *norm = find(&loaded, "model.norm.weight");
    struct tcq_error error;
    float values[SMALL_HIDDEN];
    assert_int_equal(tcq_gguf_model_read(loaded.model, values, norm, 0, 2, &error),
                     TCQ_ERROR_ARGUMENT);
    assert_string_equal(error.message, "m.gguf: tensor 'output_norm.weight': rows 0 to 2 of 1");
    assert_int_equal(tcq_gguf_model_read(loaded.model, values, norm, UINT64_MAX, 1, NULL),
                     TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_gguf_model_read(loaded.model, values, norm, 1, 0, NULL), TCQ_OK);
    unload(loaded);
}

static void other_types_are_refused_by_name(void **state)
{
    (void)state;
    int served = 0;
    for (uint32_t number = 0; number < 60; number++) {
        const struct tcq_gguf_type_info *type = tcq_gguf_type_find(number);
        struct tcq_error error = {0};
        if (type == NULL)
            continue;
        served += tcq_gguf_type_is_float(type);
        enum tcq_status status = tcq_gguf_dequantize(NULL, NULL, type, 0, &error);
        assert_int_equal(status, tcq_gguf_type_is_float(type) ? TCQ_OK : TCQ_ERROR_UNSUPPORTED);
        if (status != TCQ_OK)
            assert_memory_equal(strstr(error.message, "type ") + 5, type->name, strlen(type->name));
    }
    assert_int_equal(served, 11);
    assert_int_equal(tcq_gguf_dequantize(NULL, NULL, tcq_gguf_type_find(TCQ_GGUF_Q6_K), 255, NULL),
                     TCQ_ERROR_ARGUMENT);
}

/* The type of a small model's last norm, changed in the file: rows of 8 are
 * whole for types without blocks only. */
static void types_are_known_outside(void **state)
{
    (void)state;
    static const struct {
        uint32_t number;
        enum tcq_dtype dtype;
    } pairs[] = {{TCQ_GGUF_F32, TCQ_DTYPE_F32},   {TCQ_GGUF_F16, TCQ_DTYPE_F16},
                 {TCQ_GGUF_BF16, TCQ_DTYPE_BF16}, {TCQ_GGUF_F64, TCQ_DTYPE_F64},
                 {TCQ_GGUF_I8, TCQ_DTYPE_I8},     {TCQ_GGUF_I16, TCQ_DTYPE_I16},
                 {TCQ_GGUF_I32, TCQ_DTYPE_I32},   {TCQ_GGUF_I64, TCQ_DTYPE_I64},
                 {TCQ_GGUF_Q4_0, TCQ_DTYPE_COUNT}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_int_equal(tcq_gguf_type_dtype(tcq_gguf_type_find(pairs[i].number)), pairs[i].dtype);
}

static void an_integer_tensor_is_not_read(void **state)
{
    (void)state;
    struct small_options options = {0};
    struct bytes file = small_model(&options);
    uint8_t *name = memmem(file.data, file.nbytes, "output_norm.weight", 18);
    name[18 + 4 + 8] = TCQ_GGUF_I32; /* after rank and size; the same bytes an element */
    struct tcq_gguf_model *model = NULL;
    assert_int_equal(tcq_gguf_model_create(file.data, file.nbytes, "m.gguf", &model, NULL), TCQ_OK);
    struct loaded loaded = {file, model};
    const struct tcq_gguf_model_tensor *norm = find(&loaded, "model.norm.weight");
    struct tcq_error error;
    assert_int_equal(tcq_gguf_model_dtype(norm), TCQ_DTYPE_I32);
    assert_int_equal(tcq_gguf_model_read(model, NULL, norm, 0, 0, &error), TCQ_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "tensor 'output_norm.weight': type I32 is not read"));
    unload(loaded);
}

static void refuse(struct small_options options, enum tcq_status expected, const char *part)
{
    struct bytes file = small_model(&options);
    struct tcq_gguf_model *model = NULL;
    struct tcq_error error = {0};
    enum tcq_status status =
        tcq_gguf_model_create(file.data, file.nbytes, "m.gguf", &model, &error);
    if (status != expected || strstr(error.message, part) == NULL)
        fail_msg("expected \"%s\", status %d; got status %d \"%s\"", part, (int)expected,
                 (int)status, error.message);
    assert_null(model);
    free(file.data);
}

static void incomplete_models_are_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"block_count",          "embedding_length",
                                       "feed_forward_length",  "context_length",
                                       "attention.head_count", "attention.layer_norm_rms_epsilon"};
    static const char *const tensors[] = {"output_norm.weight", "blk.1.attn_q.weight",
                                          "blk.0.ffn_norm.weight", "blk.1.ffn_down.weight"};
    char part[100];
    for (size_t i = 0; i < 6; i++) {
        snprintf(part, sizeof part, "metadata 'llama.%s' is missing", keys[i]);
        refuse((struct small_options){.without = keys[i]}, TCQ_ERROR_FORMAT, part);
    }
    for (size_t i = 0; i < 4; i++) {
        snprintf(part, sizeof part, "tensor '%s' is missing", tensors[i]);
        refuse((struct small_options){.without = tensors[i]}, TCQ_ERROR_FORMAT, part);
        snprintf(part, sizeof part, "tensor '%s': ", tensors[i]);
        refuse((struct small_options){.resized = tensors[i]}, TCQ_ERROR_FORMAT, part);
    }
    refuse((struct small_options){.without = "token_embd.weight"}, TCQ_ERROR_FORMAT,
           "no tensor 'token_embd.weight'");
    refuse((struct small_options){.without = "general.architecture"}, TCQ_ERROR_FORMAT,
           "no string general.architecture");
    refuse((struct small_options){.architecture = "qwen2"}, TCQ_ERROR_FORMAT,
           "tensor 'blk.0.attn_q.bias' is missing");
    refuse((struct small_options){.architecture = "qwen3"}, TCQ_ERROR_FORMAT,
           "tensor 'blk.0.attn_q_norm.weight' is missing");
}

static void other_models_are_refused_by_name(void **state)
{
    (void)state;
    const enum tcq_status unsupported = TCQ_ERROR_UNSUPPORTED;
    refuse((struct small_options){.architecture = "gemma3"}, unsupported,
           "architecture 'gemma3' (llama, qwen2 or qwen3 expected)");
    static const char *const names[] = {"blk.0.ffn_gate_inp.weight",
                                        "blk.0.ffn_down_exps.weight",
                                        "blk.0.attn_q_norm.weight",
                                        "blk.00.attn_q.weight",
                                        "blk.0.attn_q",
                                        "blk.0.attn_norm.bias",
                                        "output_norm.bias",
                                        "blk.99999999999.attn_q.weight",
                                        "blk.0.",
                                        "v.blk.0.x.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char part[100];
        snprintf(part, sizeof part, "tensor '%s' is not part of a llama model%s", names[i],
                 i < 2 ? ": a mixture of experts" : "");
        refuse((struct small_options){.extra_tensor = names[i], .extra_count = 4}, unsupported,
               part);
    }
    refuse((struct small_options){.extra_tensor = "blk.2.attn_norm.weight", .extra_count = 8},
           TCQ_ERROR_FORMAT, "has only 2 blocks");
}

static struct small_options with_u32(const char *without, const char *key, uint32_t value)
{
    struct small_options options = {.without = without, .entry_count = 1};
    put_u32_entry(&options.entries, key, value);
    return options;
}

static struct small_options with_text(const char *key, const char *value)
{
    struct small_options options = {.entry_count = 1};
    put_text_entry(&options.entries, key, value);
    return options;
}

static void odd_metadata_is_refused(void **state)
{
    (void)state;
    const enum tcq_status format = TCQ_ERROR_FORMAT, unsupported = TCQ_ERROR_UNSUPPORTED;
    refuse(with_u32("block_count", "llama.block_count", 0), format, "is 0 (1 to");
    refuse(with_u32("block_count", "llama.block_count", UINT32_MAX), format, "is 4294967295 (1 to");
    refuse(with_u32("block_count", "llama.block_count", 0x7fffffff), format,
           "tensor 'blk.2.attn_norm.weight' is missing");
    refuse(with_u32("attention.head_count_kv", "llama.attention.head_count_kv", 3), format,
           "4 attention heads are no multiple of 3");
    refuse(with_u32(NULL, "llama.rope.dimension_count", 2), unsupported,
           "heads of 4 keys, 4 values and 2 rotary");
    refuse(with_u32(NULL, "llama.attention.value_length", 6), unsupported,
           "heads of 4 keys, 6 values");
    refuse(with_u32("attention.key_length", "llama.attention.key_length", 3), unsupported,
           "heads of 3 keys");
    refuse(with_u32(NULL, "llama.rope.freq_base", 7), format, "'llama.rope.freq_base': a positive");
    refuse(with_u32(NULL, "split.count", 3), unsupported, "one of 3 parts");
    refuse(with_text("general.type", "adapter"), unsupported, "of type 'adapter'");
    refuse(with_text("general.type", "\x1b[2J"), unsupported, "of type '(not printable)'");
    refuse(with_text("llama.rope.scaling.type", "longrope"), unsupported, "scaling 'longrope'");
    refuse(with_u32(NULL, "llama.rope.scaling.type", 1), format, "a string expected");
    refuse(with_u32("block_count", "general.name", 1), format, "block_count' is missing");
    refuse(with_text("llama.attention.value_length", "x"), format, "an integer expected");
    refuse(with_text("llama.rope.scaling.type", "yarn"), format, "scaling.factor' is missing");
    struct small_options nan = {.entry_count = 1};
    put_f32_entry(&nan.entries, "llama.rope.freq_base", NAN);
    refuse(nan, format, "a positive float expected");
    struct small_options mixed = {.without = "attention.head_count", .entry_count = 1};
    put_array_entry(&mixed.entries, "llama.attention.head_count", TCQ_GGUF_VALUE_U32, 2);
    put_integer(&mixed.entries, 4, 4);
    put_integer(&mixed.entries, 2, 4);
    refuse(mixed, unsupported, "differs between layers (4 and 2)");
    struct small_options texts = {.without = "attention.head_count", .entry_count = 1};
    put_array_entry(&texts.entries, "llama.attention.head_count", TCQ_GGUF_VALUE_STRING, 1);
    put_text(&texts.entries, "4");
    refuse(texts, format, "an integer expected");
}

static void equal_layers_are_read_as_one_number(void **state)
{
    (void)state;
    struct small_options options = {.without = "attention.head_count", .entry_count = 1};
    put_array_entry(&options.entries, "llama.attention.head_count", TCQ_GGUF_VALUE_I32, 2);
    put_integer(&options.entries, 4, 4);
    put_integer(&options.entries, 4, 4);
    struct loaded loaded = load(options);
    assert_int_equal(tcq_gguf_model_settings(loaded.model)->head_count, 4);
    unload(loaded);
}

static void no_scaling_may_be_said(void **state)
{
    (void)state;
    struct loaded loaded = load(with_text("llama.rope.scaling.type", "none"));
    assert_int_equal(tcq_gguf_model_settings(loaded.model)->scaling, TCQ_GGUF_SCALING_NONE);
    unload(loaded);
}

static json_t *config_of(const struct loaded *loaded)
{
    struct tcq_error error = {0};
    json_t *config = NULL;
    if (tcq_gguf_config_make(loaded->model, &config, &error) != TCQ_OK)
        fail_msg("%s", error.message);
    return config;
}

static void config_has_the_numbers(void **state)
{
    (void)state;
    struct small_options options = with_u32(NULL, "tokenizer.ggml.bos_token_id", 1);
    put_u32_entry(&options.entries, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    put_text_entry(&options.entries, "llama.rope.scaling.type", "linear");
    put_f32_entry(&options.entries, "llama.rope.scaling.factor", 2.5f);
    options.entry_count = 4;
    struct loaded loaded = load(options);
    json_t *config = config_of(&loaded);
    char *text = tcq_gguf_json_text(config);
    static const char *const lines[] = {
        "\"LlamaForCausalLM\"",        "\"model_type\": \"llama\"",
        "\"hidden_size\": 8,",         "\"intermediate_size\": 12,",
        "\"num_hidden_layers\": 2,",   "\"num_attention_heads\": 4,",
        "\"num_key_value_heads\": 2,", "\"head_dim\": 4,",
        "\"vocab_size\": 16,",         "\"max_position_embeddings\": 128,",
        "\"rms_norm_eps\": 1e-5,",     "\"rope_theta\": 10000.0,",
        "\"rope_type\": \"linear\"",   "\"factor\": 2.5",
        "\"attention_bias\": false",   "\"tie_word_embeddings\": true",
        "\"bos_token_id\": 1"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strstr(text, lines[i]) == NULL)
            fail_msg("%s is not in %s", lines[i], text);
    assert_null(strstr(text, "eos_token_id")); /* -1 names no token */
    tcq_free(text);
    json_decref(config);
    unload(loaded);
}

/* head_dim 4 at base 10000: two frequencies, wavelengths 6.28 and 628; with
 * factors (1, 1) nothing is scaled, with other pairs nothing known explains them. */
static void llama3_scaling_is_recognized(void **state)
{
    (void)state;
    static const float pairs[][2] = {{1, 1}, {1, 8}, {8, 8}, {NAN, 1}};
    for (int i = 0; i < 4; i++) {
        struct loaded loaded =
            load((struct small_options){.extra_tensor = "rope_freqs.weight", .extra_count = 2});
        const struct tcq_gguf_tensor *freqs =
            tcq_gguf_tensor_find(tcq_gguf_model_file(loaded.model), "rope_freqs.weight");
        memcpy(loaded.file.data + (freqs->data - loaded.file.data), pairs[i], sizeof pairs[i]);
        json_t *config = NULL;
        struct tcq_error error;
        enum tcq_status status = tcq_gguf_config_make(loaded.model, &config, &error);
        assert_int_equal(status, i == 0 ? TCQ_OK : TCQ_ERROR_UNSUPPORTED);
        if (i == 0)
            assert_true(json_is_null(json_object_get(config, "rope_scaling")));
        else
            assert_non_null(strstr(error.message, "Llama 3"));
        json_decref(config);
        unload(loaded);
    }
}

/* Every allocation of ours and of the JSON library in turn. */
static long countdown;
static void *failing_malloc(size_t nbytes)
{
    return countdown-- == 0 ? NULL : malloc(nbytes);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct small_options options = {0};
    struct bytes file = small_model(&options);
    struct tcq_gguf_model *model = NULL;
    enum tcq_status status = TCQ_ERROR_MEMORY;
    for (long n = 0; status != TCQ_OK; n++) {
        assert_int_equal(status, TCQ_ERROR_MEMORY);
        tcq_alloc_fail_after(n);
        status = tcq_gguf_model_create(file.data, file.nbytes, "m", &model, NULL);
        tcq_alloc_fail_after(-1);
    }
    status = TCQ_ERROR_MEMORY;
    for (long n = 0; status != TCQ_OK; n++) {
        json_t *config = NULL;
        assert_int_equal(status, TCQ_ERROR_MEMORY);
        assert_in_range(n, 0, 1000);
        countdown = n;
        json_set_alloc_funcs(failing_malloc, free);
        status = tcq_gguf_config_make(model, &config, NULL);
        json_set_alloc_funcs(malloc, free);
        json_decref(config);
    }
    tcq_gguf_model_destroy(model);
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_translated_and_sorted),
        cmocka_unit_test(rotary_rows_are_put_back),
        cmocka_unit_test(a_bias_is_put_back_as_one_row),
        cmocka_unit_test(reading_outside_is_refused),
        cmocka_unit_test(other_types_are_refused_by_name),
        cmocka_unit_test(types_are_known_outside),
        cmocka_unit_test(an_integer_tensor_is_not_read),
        cmocka_unit_test(incomplete_models_are_refused),
        cmocka_unit_test(other_models_are_refused_by_name),
        cmocka_unit_test(odd_metadata_is_refused),
        cmocka_unit_test(equal_layers_are_read_as_one_number),
        cmocka_unit_test(no_scaling_may_be_said),
        cmocka_unit_test(config_has_the_numbers),
        cmocka_unit_test(llama3_scaling_is_recognized),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
