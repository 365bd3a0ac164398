/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers of GGUF files: what is carried over, what is refused and why, and
 * every allocation of the JSON library failing without a leak.
 */
#include "support/test.h"

#include "base/memory.h"
#include "format/gguf_config.h"
#include "format/gguf_tokenizer.h"
#include "support/gguf_small.h"

/* What the file says; NULL leaves the entry out. */
struct vocabulary {
    const char *model, *pre;
    const char *tokens[8];
    int32_t types[8];
    size_t count;
    size_t type_count;
    const char *merges[4];
    size_t merge_count;
    float scores[8];
    size_t score_count;
};

static const struct vocabulary good = {
    .model = "gpt2",
    .pre = "smollm",
    .tokens = {"<s>", "a", "b", "ab", "\xc4\xa0", "<pad>"},
    .types = {3, 1, 1, 1, 4, 5},
    .count = 6,
    .type_count = 6,
    .merges = {"a b"},
    .merge_count = 1,
};

/* Known to SentencePiece: "ba" can be made in no way, "abb" in two. */
static const struct vocabulary sentencepiece = {
    .model = "llama",
    .tokens = {"<unk>", "a", "b", "ab", "bb", "abb", "\xe2\x96\x81", "<0x0A>"},
    .types = {2, 1, 1, 1, 1, 1, 1, 6},
    .count = 8,
    .type_count = 8,
    .scores = {0, -9, -9, -2, -1, -3, -9, 0},
    .score_count = 8,
};

static void put_texts(struct small_options *options, const char *key, const char *const *texts,
                      size_t count)
{
    put_array_entry(&options->entries, key, TCQ_GGUF_VALUE_STRING, count);
    for (size_t i = 0; i < count; i++)
        put_text(&options->entries, texts[i]);
    options->entry_count++;
}

static struct small_options options_of(const struct vocabulary *v)
{
    struct small_options options = {0};
    if (v->model) {
        put_text_entry(&options.entries, "tokenizer.ggml.model", v->model);
        options.entry_count++;
    }
    if (v->pre) {
        put_text_entry(&options.entries, "tokenizer.ggml.pre", v->pre);
        options.entry_count++;
    }
    put_texts(&options, "tokenizer.ggml.tokens", v->tokens, v->count);
    put_texts(&options, "tokenizer.ggml.merges", v->merges, v->merge_count);
    if (v->type_count) {
        put_array_entry(&options.entries, "tokenizer.ggml.token_type", TCQ_GGUF_VALUE_I32,
                        v->type_count);
        for (size_t i = 0; i < v->type_count; i++)
            put_integer(&options.entries, (uint64_t)v->types[i], 4);
        options.entry_count++;
    }
    if (v->score_count) {
        put_array_entry(&options.entries, "tokenizer.ggml.scores", TCQ_GGUF_VALUE_F32,
                        v->score_count);
        put(&options.entries, v->scores, v->score_count * sizeof *v->scores);
        options.entry_count++;
    }
    put_u32_entry(&options.entries, "tokenizer.ggml.unknown_token_id", 0);
    options.entry_count++;
    put_u32_entry(&options.entries, "tokenizer.ggml.bos_token_id", 0);
    put_text_entry(&options.entries, "tokenizer.chat_template", "{{ x }}");
    options.entry_count += 2;
    return options;
}

struct made {
    struct bytes file;
    struct tcq_gguf_model *model;
    json_t *tokenizer, *config;
    struct tcq_error error;
    enum tcq_status status;
};

static struct made make(struct small_options options)
{
    struct made made = {.file = small_model(&options)};
    assert_int_equal(
        tcq_gguf_model_create(made.file.data, made.file.nbytes, "t.gguf", &made.model, NULL),
        TCQ_OK);
    made.status = tcq_gguf_tokenizer_make(made.model, &made.tokenizer, &made.config, &made.error);
    return made;
}

static void release(struct made made)
{
    json_decref(made.tokenizer);
    json_decref(made.config);
    tcq_gguf_model_destroy(made.model);
    free(made.file.data);
}

static void a_good_one_is_carried_over(void **state)
{
    (void)state;
    struct made made = make(options_of(&good));
    assert_int_equal(made.status, TCQ_OK);
    json_t *model = json_object_get(made.tokenizer, "model");
    json_t *vocab = json_object_get(model, "vocab");
    assert_int_equal(json_object_size(vocab), 5); /* without the unused one */
    assert_int_equal(json_integer_value(json_object_get(vocab, "ab")), 3);
    assert_string_equal(json_string_value(json_array_get(json_object_get(model, "merges"), 0)),
                        "a b");
    json_t *added = json_object_get(made.tokenizer, "added_tokens");
    assert_int_equal(json_array_size(added), 2);
    assert_true(json_is_true(json_object_get(json_array_get(added, 0), "special")));
    assert_true(json_is_false(json_object_get(json_array_get(added, 1), "special")));
    assert_string_equal(json_string_value(json_object_get(made.config, "chat_template")),
                        "{{ x }}");
    assert_string_equal(json_string_value(json_object_get(made.config, "bos_token")), "<s>");
    release(made);
}

static void scores_become_merges(void **state)
{
    (void)state;
    static const char *const expected[][2] = {{"b", "b"}, {"a", "b"}, {"ab", "b"}, {"a", "bb"}};
    struct made made = make(options_of(&sentencepiece));
    assert_int_equal(made.status, TCQ_OK);
    json_t *model = json_object_get(made.tokenizer, "model");
    json_t *merges = json_object_get(model, "merges");
    assert_int_equal(json_array_size(merges), 4);
    for (size_t i = 0; i < 4; i++)
        for (size_t side = 0; side < 2; side++)
            assert_string_equal(json_string_value(json_array_get(json_array_get(merges, i), side)),
                                expected[i][side]);
    assert_true(json_is_true(json_object_get(model, "byte_fallback")));
    assert_string_equal(json_string_value(json_object_get(model, "unk_token")), "<unk>");
    release(made);
}

static void refuse(struct vocabulary v, enum tcq_status expected, const char *part)
{
    struct made made = make(options_of(&v));
    if (made.status != expected || strstr(made.error.message, part) == NULL)
        fail_msg("expected \"%s\", got status %d \"%s\"", part, (int)made.status,
                 made.error.message);
    assert_null(made.tokenizer);
    assert_null(made.config);
    release(made);
}

static void other_kinds_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const kinds[] = {"bert", "t5", "no_vocab"};
    struct vocabulary v = good;
    for (size_t i = 0; i < 3; i++) {
        char part[60];
        snprintf(part, sizeof part, "not carried over: its kind is '%s'", kinds[i]);
        v.model = kinds[i];
        refuse(v, TCQ_ERROR_UNSUPPORTED, part);
    }
    v.model = NULL;
    refuse(v, TCQ_ERROR_UNSUPPORTED, "its kind is 'none'");
    v = good;
    v.pre = "deepseek-coder";
    refuse(v, TCQ_ERROR_UNSUPPORTED, "pre-tokenizer 'deepseek-coder' (gpt-2, ");
    v.pre = NULL;
    refuse(v, TCQ_ERROR_UNSUPPORTED, "pre-tokenizer 'none'");
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    struct vocabulary v = good;
    v.type_count = 0;
    refuse(v, TCQ_ERROR_UNSUPPORTED, "'tokenizer.ggml.token_type' is missing");
    v.type_count = 5;
    refuse(v, TCQ_ERROR_FORMAT, "6 tokens and 5 token types for an embedding of 16 rows");
    v = good;
    v.tokens[2] = "a";
    refuse(v, TCQ_ERROR_UNSUPPORTED, "tokens 1 and 2 are the same text");
    v = good;
    v.tokens[2] = "\xff";
    refuse(v, TCQ_ERROR_UNSUPPORTED, "token 2 is not UTF-8");
    static const char *const merges[] = {"a", "ab", "a  b", "b a", " ", "", "a c", "a b "};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        v = good;
        v.merges[1] = merges[i];
        v.merge_count = 2;
        refuse(v, TCQ_ERROR_UNSUPPORTED, "merge 1 does not join two tokens");
    }
}

static void a_model_with_scores_needs_them(void **state)
{
    (void)state;
    struct vocabulary v = sentencepiece;
    v.score_count = 0;
    refuse(v, TCQ_ERROR_UNSUPPORTED, "'tokenizer.ggml.scores' is missing");
    v.score_count = 7;
    refuse(v, TCQ_ERROR_FORMAT, "7 scores for 8 tokens");
    v = sentencepiece;
    char long_token[300];
    memset(long_token, 'a', sizeof long_token);
    long_token[257] = 0;
    v.tokens[5] = long_token;
    refuse(v, TCQ_ERROR_UNSUPPORTED, "token 5 has 257 bytes (at most 256 expected)");
}

static void several_templates_become_a_list(void **state)
{
    (void)state;
    struct small_options options = options_of(&good);
    put_text_entry(&options.entries, "tokenizer.chat_template.tool_use", "{{ y }}");
    options.entry_count++;
    struct made made = make(options);
    json_t *list = json_object_get(made.config, "chat_template");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "name")),
                        "default");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "name")),
                        "tool_use");
    release(made);
}

static void a_whole_tokenizer_is_taken_as_it_is(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"version\": \"x\"}", "[]", "{"};
    for (int i = 0; i < 3; i++) {
        struct small_options options = {.entry_count = 1};
        put_text_entry(&options.entries, "tokenizer.huggingface.json", texts[i]);
        struct made made = make(options);
        assert_int_equal(made.status, i ? TCQ_ERROR_FORMAT : TCQ_OK);
        if (i == 0)
            assert_string_equal(json_string_value(json_object_get(made.tokenizer, "version")), "x");
        release(made);
    }
}

static long countdown, outstanding;

static void *failing_malloc(size_t nbytes)
{
    if (countdown-- == 0)
        return NULL;
    outstanding++;
    return malloc(nbytes);
}

static void counting_free(void *pointer)
{
    outstanding -= pointer != NULL;
    free(pointer);
}

static void walk_failures(const struct vocabulary *v)
{
    struct small_options options = options_of(v);
    struct bytes file = small_model(&options);
    struct tcq_gguf_model *model = NULL;
    assert_int_equal(tcq_gguf_model_create(file.data, file.nbytes, "t", &model, NULL), TCQ_OK);
    enum tcq_status status = TCQ_ERROR_MEMORY;
    long n = 0;
    for (; status != TCQ_OK; n++) {
        json_t *tokenizer = NULL, *config = NULL;
        assert_int_equal(status, TCQ_ERROR_MEMORY);
        countdown = n;
        outstanding = 0;
        json_set_alloc_funcs(failing_malloc, counting_free);
        status = tcq_gguf_tokenizer_make(model, &tokenizer, &config, NULL);
        json_decref(tokenizer);
        json_decref(config);
        json_set_alloc_funcs(malloc, free);
        if (outstanding != 0)
            fail_msg("%ld allocations left after failure %ld", outstanding, n);
    }
    assert_in_range(n, 100, 100000);
    tcq_gguf_model_destroy(model);
    free(file.data);
}

static void every_allocation_may_fail_without_a_leak(void **state)
{
    (void)state;
    struct vocabulary v = good;
    v.pre = "llama-bpe"; /* the longest way: pattern, bos */
    walk_failures(&v);
    walk_failures(&sentencepiece);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_one_is_carried_over),
        cmocka_unit_test(scores_become_merges),
        cmocka_unit_test(a_model_with_scores_needs_them),
        cmocka_unit_test(other_kinds_are_refused_by_name),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(several_templates_become_a_list),
        cmocka_unit_test(a_whole_tokenizer_is_taken_as_it_is),
        cmocka_unit_test(every_allocation_may_fail_without_a_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
