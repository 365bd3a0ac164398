/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece's parts alone: a character map written by hand, sizes that are
 * wrong, tries of random bits, which must leave every text UTF-8; the unigram
 * search on a few tokens; failing allocations.  Models and maps that
 * SentencePiece made are compared in tokenizer_spm.py.
 */
#include "model/charsmap.h"

#include <string.h>

#include "base/text.h"
#include "model/unigram.h"
#include "support/failing.h"
#include "support/test.h"

/* 'a' -> "xy", 'a' U+0301 -> "": from the root, whose children are at 1 ^ byte. */
static size_t write_map(uint8_t *bytes, const char *texts, size_t texts_nbytes)
{
    enum { UNITS = 1024 };
    static uint32_t units[UNITS];
    memset(units, 0, sizeof units);
    units[0] = 1u << 10;
    units[1 ^ 'a'] = 300u << 10 | 1u << 8 | 'a';
    uint32_t value = (1 ^ 'a') ^ 300;
    units[value] = 0x80000000u;
    units[value ^ 0xcc] = 500u << 10 | 0xcc;
    uint32_t next = value ^ 0xcc ^ 500;
    units[next ^ 0x81] = 256u << 10 | 1u << 8 | 0x81;
    units[next ^ 0x81 ^ 256] = 0x80000000u | 3;
    uint32_t size = sizeof units;
    memcpy(bytes, &size, 4);
    memcpy(bytes + 4, units, size);
    memcpy(bytes + 4 + size, texts, texts_nbytes);
    return 4 + size + texts_nbytes;
}

static void apply(const struct tcq_charsmap *map, const char *in, const char *expected)
{
    struct tcq_bytes text = {0};
    assert_true(tcq_bytes_append_text(&text, in));
    assert_int_equal(tcq_charsmap_apply(map, &text, NULL), TCQ_OK);
    assert_int_equal(text.count, strlen(expected));
    if (text.count)
        assert_memory_equal(text.data, expected, text.count);
    tcq_bytes_free(&text);
}

static void the_longest_string_is_replaced(void **state)
{
    (void)state;
    uint8_t bytes[8192];
    struct tcq_charsmap *map = NULL;
    size_t nbytes = write_map(bytes, "xy", 3);
    assert_int_equal(tcq_charsmap_create(bytes, nbytes, &map, NULL), TCQ_OK);
    apply(map, "bab", "bxyb");
    apply(map, "a\u0301a\u0300", "xy\u0300");
    apply(map, "a\u0301", "");
    apply(map, "\u00e4\U0001F642", "\u00e4\U0001F642");
    tcq_charsmap_destroy(map);
}

static void wrong_sizes_and_texts_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[8192];
    struct tcq_charsmap *map = NULL;
    struct tcq_error error = {0};
    size_t nbytes = write_map(bytes, "\xff", 2);
    for (size_t cut = 0; cut < nbytes - 2; cut += cut < 16 ? 1 : 97)
        assert_int_equal(tcq_charsmap_create(bytes, cut, &map, &error), TCQ_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "precompiled character map"));
    assert_int_equal(tcq_charsmap_create(bytes, nbytes, &map, NULL), TCQ_OK);
    struct tcq_bytes text = {0};
    assert_true(tcq_bytes_append_text(&text, "ba"));
    assert_int_equal(tcq_charsmap_apply(map, &text, &error), TCQ_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "is not UTF-8"));
    assert_int_equal(text.count, 2);
    tcq_bytes_free(&text);
    tcq_charsmap_destroy(map);
}

/* Units near the ones that a walk needs, so that it gets somewhere. */
static void random_tries_leave_text_whole(void **state)
{
    (void)state;
    static const char sample[] = "aZ \u00e9\u0301\u4e00\U0001F642 b\u0301~";
    struct random random = random_start("random_tries", 1);
    size_t changed = 0;
    for (int round = 0; round < 3000; round++) {
        uint8_t bytes[4 + 4 * 512 + 32];
        uint32_t size = 4 * 512;
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)(random_u64(&random) >> 40);
        memcpy(bytes, &size, 4);
        for (size_t i = 0; i < 512; i++) {
            uint32_t unit = (uint32_t)(random_u64(&random) >> 32);
            /* 0: a label that fits its place below the root, children within */
            unit = i == 0 ? 0 : i < 256 ? (unit & 0x7fd00) | (uint32_t)i : unit;
            memcpy(bytes + 4 + 4 * i, &unit, 4);
        }
        for (size_t i = sizeof bytes - 32; i < sizeof bytes; i++)
            bytes[i] &= 0x7f;
        struct tcq_charsmap *map = NULL;
        struct tcq_bytes text = {0};
        assert_int_equal(tcq_charsmap_create(bytes, sizeof bytes, &map, NULL), TCQ_OK);
        assert_true(tcq_bytes_append(&text, sample, sizeof sample - 1));
        assert_int_equal(tcq_charsmap_apply(map, &text, NULL), TCQ_OK);
        assert_true(tcq_text_is_utf8(text.data, text.count));
        changed += text.count != sizeof sample - 1 || memcmp(text.data, sample, text.count) != 0;
        tcq_bytes_free(&text);
        tcq_charsmap_destroy(map);
    }
    assert_true(changed > 10);
}

struct unigram_case {
    const char *text;
    size_t count;
    uint32_t ids[8];
};

/* Tokens 1..5; 0 is unknown, and so is every character but a, b and space. */
static enum tcq_status fill(struct tcq_bpe *bpe, struct tcq_error *error)
{
    static const struct {
        const char *text;
        float score;
    } tokens[] = {{"<unk>", 0}, {"a", -2}, {"b", -2}, {"ab", -3}, {" ", -1}, {"abb", -5.5f}};
    enum tcq_status status = TCQ_OK;
    for (uint32_t id = 0; id < 6 && !status; id++) {
        status = tcq_vocabulary_set(&bpe->vocabulary, id, tokens[id].text,
                                    strlen(tokens[id].text), id > 0, error);
        if (!status)
            bpe->vocabulary.tokens[id].score = tokens[id].score;
    }
    bpe->least_score = -5.5f;
    bpe->longest = 3;
    bpe->fuse_unknown = true;
    memset(bpe->bytes, 0xff, sizeof bpe->bytes);
    return status ? status : tcq_vocabulary_index(&bpe->vocabulary, error);
}

static enum tcq_status encode_case(void *argument, struct tcq_error *error)
{
    const struct unigram_case *c = argument;
    struct tcq_bpe bpe = {.unigram = true};
    struct tcq_unigram_work work = {0};
    struct tcq_ids ids = {0};
    enum tcq_status status = fill(&bpe, error);
    for (int again = 0; again < 2 && !status; again++) {
        ids.count = 0;
        status = tcq_unigram_encode(&bpe, &work, &ids, c->text, strlen(c->text), error);
        if (status)
            break;
        assert_int_equal(ids.count, c->count);
        if (c->count)
            assert_memory_equal(ids.data, c->ids, c->count * sizeof *ids.data);
    }
    tcq_unigram_work_free(&work);
    tcq_ids_free(&ids);
    tcq_bpe_free(&bpe);
    return status;
}

static void the_largest_sum_wins(void **state)
{
    (void)state;
    const struct unigram_case cases[] = {
        {"", 0, {0}},
        {"ab", 1, {3}},                 /* -3 against -4 */
        {"abb", 2, {3, 2}},             /* -5 against -5.5 */
        {"aab ba", 5, {1, 3, 4, 2, 1}},
        {"\u4e00\u4e01a\u0301", 3, {0, 1, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(encode_case((void *)&cases[i], NULL), TCQ_OK);
    failing_walk_one(encode_case, (void *)&cases[3], false);
}

static enum tcq_status map_text(void *argument, struct tcq_error *error)
{
    struct tcq_charsmap *map = NULL;
    struct tcq_bytes text = {0};
    (void)argument;
    uint8_t bytes[8192];
    enum tcq_status status = tcq_charsmap_create(bytes, write_map(bytes, "xy", 3), &map, error);
    if (!status && !tcq_bytes_append_text(&text, "banana"))
        status = TCQ_ERROR_MEMORY;
    if (!status)
        status = tcq_charsmap_apply(map, &text, error);
    tcq_bytes_free(&text);
    tcq_charsmap_destroy(map);
    return status;
}

static void memory_runs_out(void **state)
{
    (void)state;
    failing_walk_one(map_text, NULL, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_string_is_replaced),
        cmocka_unit_test(wrong_sizes_and_texts_are_refused),
        cmocka_unit_test(random_tries_leave_text_whole),
        cmocka_unit_test(the_largest_sum_wins),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
