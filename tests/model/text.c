/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizer files that are wrong, text streams, and chat forms, on a tokenizer
 * of single bytes and a few control tokens.
 */
#include "support/test.h"

#include <stdio.h>

#include "base/memory.h"
#include "model/tokenizer.h"
#include "model/utf8.h"

static const char *const controls[] = {
    "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
    "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>",
};
enum { CONTROL_COUNT = sizeof controls / sizeof *controls };

/* GPT-2's alphabet: hidden bytes count up from U+0100. */
static json_t *byte_vocabulary(void)
{
    json_t *vocab = json_object();
    for (uint32_t byte = 0, hidden = 0; byte < 256; byte++) {
        bool shown = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
        uint8_t key[TCQ_UTF8_MAX + 1] = {0};
        tcq_utf8_encode(key, shown ? byte : 0x100 + hidden++);
        json_object_set_new(vocab, (const char *)key, json_integer(byte));
    }
    return vocab;
}

static json_t *make_json(void)
{
    json_t *added = json_array();
    for (int i = 0; i < CONTROL_COUNT; i++)
        json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b}", "id", 256 + i, "content",
                                               controls[i], "special", 1, "normalized", 0));
    return json_pack("{s:{s:s, s:o, s:[]}, s:{s:s}, s:{s:s, s:b, s:b}, s:o}", "model", "type", "BPE",
                     "vocab", byte_vocabulary(), "merges", "decoder", "type", "ByteLevel",
                     "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 1,
                     "added_tokens", added);
}

static enum tcq_status build(const json_t *json, struct tcq_tokenizer **out,
                             struct tcq_error *error)
{
    struct tcq_tokenizer *tokenizer = tcq_alloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return TCQ_ERROR_MEMORY;
    for (size_t i = 0; i < 256; i++)
        tokenizer->bpe.bytes[i] = TCQ_NO_TOKEN;
    enum tcq_status status = tcq_tokenizer_from_json(tokenizer, json, error);
    if (!status)
        status = tcq_tokenizer_finish(tokenizer, error);
    if (status)
        tcq_tokenizer_destroy(tokenizer);
    else
        *out = tokenizer;
    return status;
}

static struct tcq_tokenizer *make(const char *chat_template)
{
    struct tcq_tokenizer *tokenizer = NULL;
    json_t *json = make_json();
    assert_int_equal(build(json, &tokenizer, NULL), TCQ_OK);
    json_decref(json);
    tokenizer->chat_template = chat_template ? tcq_strdup(chat_template) : NULL;
    return tokenizer;
}

static char *decode(const struct tcq_tokenizer *tokenizer, const uint32_t *ids, size_t count)
{
    struct tcq_text_stream stream = {.tokenizer = tokenizer, .show_special = true};
    char *all = calloc(1, 65536);
    for (size_t i = 0; i <= count; i++) {
        char *text = NULL;
        size_t nbytes = 0;
        assert_int_equal(i < count ? tcq_text_stream_next(&stream, ids[i], &text, &nbytes, NULL)
                                   : tcq_text_stream_end(&stream, &text, &nbytes, NULL),
                         TCQ_OK);
        strcat(all, text);
        free(text);
    }
    return all;
}

/* ------------------------------------------------------------------------ */
/* Chat                                                                      */
/* ------------------------------------------------------------------------ */

static void check_chat(const char *chat_template, enum tcq_chat_form form, const char *system,
                       const char *expected)
{
    struct tcq_tokenizer *tokenizer = make(chat_template);
    struct tcq_chat_message messages[4] = {
        {"system", system}, {"user", " Hi "}, {"assistant", "Hello"}, {"user", "Bye<s>"}};
    uint32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(tcq_chat_form_of(tokenizer), form);
    assert_int_equal(tcq_chat_encode(tokenizer, form, system ? messages : messages + 1,
                                     system ? 4 : 3, &ids, &count, NULL),
                     TCQ_OK);
    char *text = decode(tokenizer, ids, count);
    assert_string_equal(text, expected);
    /* "<s>" in a message is three characters, not a control token. */
    size_t begins = 0;
    for (size_t i = 0; i < count; i++)
        begins += ids[i] == tcq_tokenizer_find(tokenizer, "<s>");
    size_t written = 0;
    for (const char *at = expected; (at = strstr(at, "<s>")); at++)
        written++;
    assert_int_equal(begins, written - 1);
    free(text);
    free(ids);
    tcq_tokenizer_destroy(tokenizer);
}

static void chat_forms(void **state)
{
    (void)state;
    check_chat("{{'<|im_start|>' + role}}", TCQ_CHAT_CHATML, NULL,
               "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
               "<|im_start|>user\nBye<s><|im_end|>\n<|im_start|>assistant\n");
    check_chat("{{ '<|im_start|>system\\n' + m }}{{'<|im_start|>system\\nBe kind.<|im_end|>\\n'}}",
               TCQ_CHAT_CHATML, NULL,
               "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
               "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<s><|im_end|>\n"
               "<|im_start|>assistant\n");
    check_chat("{{ '<|start_header_id|>' }}", TCQ_CHAT_LLAMA3, "Be kind.",
               "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nBye<s><|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\n");
    check_chat("'<|begin_of_text|>' Cutting Knowledge Date: <|start_header_id|>", TCQ_CHAT_LLAMA3,
               NULL,
               "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
               "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nBye<s><|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

static void inst_forms(void **state)
{
    (void)state;
    /* These tokenizers have no <|begin_of_text|>; this one has, so it is used. */
    check_chat("'[INST] ' '<<SYS>>\\n' ' [/INST]'", TCQ_CHAT_LLAMA2, "Be kind.",
               "<|begin_of_text|>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Hello </s>"
               "<|begin_of_text|>[INST] Bye<s> [/INST]");
    check_chat("'[INST] ' + c + ' [/INST]'", TCQ_CHAT_MISTRAL, NULL,
               "<|begin_of_text|>[INST]  Hi  [/INST] Hello</s>[INST] Bye<s> [/INST]");
    check_chat("'[INST]' + c + '[/INST]'", TCQ_CHAT_MISTRAL, "Be kind.",
               "<|begin_of_text|>[INST]Be kind.\n\n Hi [/INST]Hello</s>[INST]Bye<s>[/INST]");
}

static void chat_refuses(void **state)
{
    (void)state;
    struct tcq_tokenizer *tokenizer = make(NULL);
    uint32_t *ids = NULL;
    size_t count = 0;
    struct tcq_error error;
    assert_int_equal(tcq_chat_form_of(tokenizer), TCQ_CHAT_NONE);
    struct tcq_chat_message bad[] = {{"tool", "x"}}, twice[] = {{"user", "a"}, {"user", "b"}};
    struct tcq_chat_message open[] = {{"user", "a"}, {"assistant", "b"}};
    assert_int_equal(tcq_chat_encode(tokenizer, TCQ_CHAT_CHATML, bad, 1, &ids, &count, &error),
                     TCQ_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "role 'tool'"));
    assert_int_equal(tcq_chat_encode(tokenizer, TCQ_CHAT_LLAMA2, twice, 2, &ids, &count, &error),
                     TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_chat_encode(tokenizer, TCQ_CHAT_CHATML, open, 2, &ids, &count, &error),
                     TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_chat_encode(tokenizer, TCQ_CHAT_NONE, twice, 1, &ids, &count, &error),
                     TCQ_ERROR_ARGUMENT);
    struct tcq_chat_message broken[] = {{"user", "a\xff"}};
    assert_int_equal(tcq_chat_encode(tokenizer, TCQ_CHAT_CHATML, broken, 1, &ids, &count, &error),
                     TCQ_ERROR_VALUE);
    tcq_tokenizer_destroy(tokenizer);
}

/* ------------------------------------------------------------------------ */
/* Streams                                                                   */
/* ------------------------------------------------------------------------ */

static void check_stream(const char *bytes, const char *expected)
{
    struct tcq_tokenizer *tokenizer = make(NULL);
    uint32_t ids[64];
    size_t count = strlen(bytes);
    for (size_t i = 0; i < count; i++)
        ids[i] = (uint8_t)bytes[i];
    char *text = decode(tokenizer, ids, count);
    assert_string_equal(text, expected);
    free(text);
    tcq_tokenizer_destroy(tokenizer);
}

static void streams(void **state)
{
    (void)state;
    check_stream("a\xe2\x82\xac" "b", "a\xe2\x82\xac" "b");
    check_stream("\xf0\x9f\x99\x82", "\xf0\x9f\x99\x82");
    check_stream("\xe2\x82" "b", "\xef\xbf\xbd" "b");
    check_stream("\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd");
    check_stream("x\xe2\x82", "x\xef\xbf\xbd");
    check_stream("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a surrogate */
    check_stream("\xf0\x9f\xf0\x9f\x99\x82", "\xef\xbf\xbd\xf0\x9f\x99\x82");
}

static void stream_refuses(void **state)
{
    (void)state;
    struct tcq_tokenizer *tokenizer = make(NULL);
    struct tcq_text_stream stream = {.tokenizer = tokenizer}, none = {0};
    char *text = NULL;
    size_t nbytes = 0;
    struct tcq_error error = {0};
    assert_int_equal(tcq_text_stream_next(NULL, 1, &text, &nbytes, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_text_stream_next(&none, 1, &text, &nbytes, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_text_stream_next(&stream, 1, NULL, &nbytes, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_text_stream_next(&stream, 1, &text, NULL, &error), TCQ_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "null pointer"));
    assert_int_equal(tcq_text_stream_end(NULL, &text, &nbytes, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_text_stream_end(&stream, NULL, &nbytes, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_text_stream_end(&stream, &text, NULL, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_session_rewind(NULL, 0), TCQ_ERROR_ARGUMENT);
    tcq_evaluation_free(NULL);
    tcq_tokenizer_destroy(tokenizer);
}

/* Nothing is given out before a character is whole. */
static void stream_holds_back(void **state)
{
    (void)state;
    struct tcq_tokenizer *tokenizer = make(NULL);
    struct tcq_text_stream stream = {.tokenizer = tokenizer};
    static const uint32_t ids[] = {0xf0, 0x9f, 0x99, 0x82};
    for (size_t i = 0; i < 4; i++) {
        char *text = NULL;
        size_t nbytes = 9;
        assert_int_equal(tcq_text_stream_next(&stream, ids[i], &text, &nbytes, NULL), TCQ_OK);
        assert_int_equal(nbytes, i < 3 ? 0 : 4);
        free(text);
    }
    tcq_tokenizer_destroy(tokenizer);
}

/* ------------------------------------------------------------------------ */
/* Files that are wrong                                                      */
/* ------------------------------------------------------------------------ */

static void check_refused(const char *path, json_t *value, enum tcq_status status,
                          const char *message)
{
    json_t *json = make_json();
    struct tcq_tokenizer *tokenizer = NULL;
    struct tcq_error error = {0};
    char object[64];
    snprintf(object, sizeof object, "%s", path);
    char *dot = strchr(object, '.');
    if (dot)
        *dot = 0;
    if (dot)
        json_object_set_new(json_object_get(json, object), dot + 1, value);
    else
        json_object_set_new(json, path, value);
    assert_int_equal(build(json, &tokenizer, &error), status);
    if (!strstr(error.message, message))
        print_message("%s: '%s' lacks '%s'\n", path, error.message, message);
    assert_non_null(strstr(error.message, message));
    json_decref(json);
}

static void wrong_files(void **state)
{
    (void)state;
    check_refused("model.type", json_string("WordPiece"), TCQ_ERROR_UNSUPPORTED, "WordPiece");
    check_refused("model.vocab", json_array(), TCQ_ERROR_FORMAT, "model.vocab");
    check_refused("model.vocab", json_pack("{s:i}", "a", -1), TCQ_ERROR_FORMAT, "'a'");
    check_refused("model.vocab", json_pack("{s:I}", "a", (json_int_t)1 << 40), TCQ_ERROR_FORMAT,
                  "below");
    check_refused("model.vocab", json_pack("{s:i, s:i}", "a", 1, "b", 1), TCQ_ERROR_FORMAT,
                  "two tokens");
    check_refused("model.merges", json_pack("[s]", "ab"), TCQ_ERROR_FORMAT, "two tokens");
    check_refused("model.merges", json_pack("[s]", "a b"), TCQ_ERROR_FORMAT, "its result");
    check_refused("model.merges", json_pack("[[s, i]]", "a", 1), TCQ_ERROR_FORMAT, "model.merges");
    check_refused("model.dropout", json_real(0.5), TCQ_ERROR_UNSUPPORTED, "dropout");
    check_refused("model.end_of_word_suffix", json_string("</w>"), TCQ_ERROR_UNSUPPORTED,
                  "end_of_word_suffix");
    check_refused("normalizer", json_pack("{s:s}", "type", "Precompiled"), TCQ_ERROR_UNSUPPORTED,
                  "Precompiled");
    check_refused("pre_tokenizer", json_pack("{s:s}", "type", "Whitespace"), TCQ_ERROR_UNSUPPORTED,
                  "Whitespace");
    check_refused("pre_tokenizer",
                  json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "Regex", "(a",
                            "behavior", "Isolated"),
                  TCQ_ERROR_FORMAT, "offset 2");
    check_refused("pre_tokenizer",
                  json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "Regex", "[a&&b]",
                            "behavior", "Isolated"),
                  TCQ_ERROR_UNSUPPORTED, "&&");
    check_refused("post_processor", json_pack("{s:s}", "type", "BertProcessing"),
                  TCQ_ERROR_UNSUPPORTED, "BertProcessing");
    check_refused("decoder", json_pack("{s:s}", "type", "WordPiece"), TCQ_ERROR_UNSUPPORTED,
                  "WordPiece");
    check_refused("added_tokens", json_pack("[{s:s}]", "content", "x"), TCQ_ERROR_FORMAT, "token id");
}

/* A pattern that would run for ever is an error, not a hang. */
static void hostile_pattern(void **state)
{
    (void)state;
    json_t *json = make_json();
    struct tcq_tokenizer *tokenizer = NULL;
    struct tcq_error error;
    uint32_t *ids = NULL;
    size_t count = 0;
    json_object_set_new(json, "pre_tokenizer",
                        json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "Regex",
                                  "((a+)+)+$", "behavior", "Isolated"));
    assert_int_equal(build(json, &tokenizer, NULL), TCQ_OK);
    char text[81] = {0};
    memset(text, 'a', 80);
    text[79] = 'b';
    assert_int_equal(tcq_tokenizer_encode(tokenizer, text, 80, 0, &ids, &count, &error),
                     TCQ_ERROR_VALUE);
    assert_non_null(strstr(error.message, "the pattern fails"));
    tcq_tokenizer_destroy(tokenizer);
    json_decref(json);
}

/* Every allocation fails once, in building and in encoding. */
static void allocations_fail(void **state)
{
    (void)state;
    json_t *json = make_json();
    static const char text[] = "some words, <s> and more";
    int built = 0;
    for (long n = 0; n < 5000 && !built; n++) {
        struct tcq_tokenizer *tokenizer = NULL;
        tcq_alloc_fail_after(n);
        enum tcq_status status = build(json, &tokenizer, NULL);
        tcq_alloc_fail_after(-1);
        assert_true(status == TCQ_OK || status == TCQ_ERROR_MEMORY);
        built = status == TCQ_OK;
        if (!built)
            continue;
        bool encoded = false;
        for (long k = 0; k < 1000 && !encoded; k++) {
            uint32_t *ids = NULL;
            size_t count = 0;
            tcq_alloc_fail_after(k);
            status = tcq_tokenizer_encode(tokenizer, text, sizeof text - 1, TCQ_ENCODE_SPECIAL, &ids,
                                          &count, NULL);
            tcq_alloc_fail_after(-1);
            assert_true(status == TCQ_OK || status == TCQ_ERROR_MEMORY);
            encoded = status == TCQ_OK;
            free(ids);
        }
        assert_true(encoded);
        tcq_tokenizer_destroy(tokenizer);
    }
    assert_true(built);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_forms),      cmocka_unit_test(inst_forms),
        cmocka_unit_test(chat_refuses),    cmocka_unit_test(streams),
        cmocka_unit_test(stream_holds_back), cmocka_unit_test(stream_refuses),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(hostile_pattern), cmocka_unit_test(allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
