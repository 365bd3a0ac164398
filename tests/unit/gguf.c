/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GGUF parser on crafted files: what it reads, every refusal by its own
 * message, truncation at every byte, every allocation failing.
 */
#include "support/test.h"

#include "base/memory.h"
#include "format/gguf.h"
#include "support/gguf_bytes.h"

static const char *const number_keys[] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool"};

/* Every value type, arrays of numbers, strings and arrays, two tensors. */
static struct bytes craft(uint32_t version)
{
    struct bytes b = {0};
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1};
    put_header(&b, version, 2, 17);
    for (uint32_t type = 0; type < 8; type++) {
        put_key(&b, number_keys[type], type);
        put_integer(&b,
                    type == TCQ_GGUF_VALUE_F32 ? 0xbfc00000u
                    : type == 7                ? 1
                                               : 0xfffffffe,
                    sizes[type]);
    }
    put_text_entry(&b, "text", "Ü\n");
    put_key(&b, "u64", TCQ_GGUF_VALUE_U64);
    put_integer(&b, UINT64_MAX, 8);
    put_key(&b, "i64", TCQ_GGUF_VALUE_I64);
    put_integer(&b, (uint64_t)-5, 8);
    put_key(&b, "f64", TCQ_GGUF_VALUE_F64);
    put_integer(&b, 0x3ff8000000000000u, 8);
    put_array_entry(&b, "numbers", TCQ_GGUF_VALUE_I16, 3);
    put_integer(&b, 0xffff00070001u, 6);
    put_array_entry(&b, "texts", TCQ_GGUF_VALUE_STRING, 2);
    put_text(&b, "");
    put_text(&b, "b");
    put_array_entry(&b, "arrays", TCQ_GGUF_VALUE_ARRAY, 1);
    put_integer(&b, TCQ_GGUF_VALUE_U8, 4);
    put_integer(&b, 2, 8);
    put_integer(&b, 0x0201, 2);
    put_array_entry(&b, "none", TCQ_GGUF_VALUE_STRING, 0);
    put_u32_entry(&b, "general.alignment", 64);
    put_tensor(&b, "a", TCQ_GGUF_Q8_0, 2, 32, 128);
    put_tensor(&b, "b", TCQ_GGUF_F32, 0, 3, 0);
    put_padding(&b, 64);
    for (uint32_t i = 0; i < 128 + 2 * 34; i++)
        put_integer(&b, i, 1);
    return b;
}

static void check_numbers(const struct tcq_gguf *gguf)
{
    assert_int_equal(tcq_gguf_find(gguf, "u8")->as.u, 0xfe);
    assert_int_equal(tcq_gguf_find(gguf, "i8")->as.i, -2);
    assert_int_equal(tcq_gguf_find(gguf, "u16")->as.u, 0xfffe);
    assert_int_equal(tcq_gguf_find(gguf, "i16")->as.i, -2);
    assert_int_equal(tcq_gguf_find(gguf, "u32")->as.u, 0xfffffffe);
    assert_int_equal(tcq_gguf_find(gguf, "i32")->as.i, -2);
    assert_true(tcq_gguf_find(gguf, "f32")->as.f == -1.5);
    assert_int_equal(tcq_gguf_find(gguf, "bool")->as.u, 1);
    assert_true(tcq_gguf_find(gguf, "u64")->as.u == UINT64_MAX);
    assert_int_equal(tcq_gguf_find(gguf, "i64")->as.i, -5);
    assert_true(tcq_gguf_find(gguf, "f64")->as.f == 1.5);
    assert_true(tcq_gguf_text_equal(tcq_gguf_find(gguf, "text")->as.text, "Ü\n"));
    assert_null(tcq_gguf_find(gguf, "u"));
    assert_null(tcq_gguf_find(gguf, "u641"));
}

static void check_arrays(const struct tcq_gguf *gguf)
{
    const struct tcq_gguf_array *numbers = &tcq_gguf_find(gguf, "numbers")->as.array;
    assert_int_equal(numbers->count, 3);
    assert_int_equal(tcq_gguf_array_number(numbers, 1).as.i, 7);
    assert_int_equal(tcq_gguf_array_number(numbers, 2).as.i, -1);
    const struct tcq_gguf_array *texts = &tcq_gguf_find(gguf, "texts")->as.array;
    struct tcq_gguf_text text;
    size_t at = 0;
    assert_true(tcq_gguf_array_next_text(texts, &at, &text));
    assert_int_equal(text.nbytes, 0);
    assert_true(tcq_gguf_array_next_text(texts, &at, &text));
    assert_true(tcq_gguf_text_equal(text, "b"));
    assert_false(tcq_gguf_array_next_text(texts, &at, &text));
    assert_int_equal(tcq_gguf_find(gguf, "arrays")->as.array.nbytes, 14);
    assert_int_equal(tcq_gguf_find(gguf, "none")->as.array.count, 0);
}

static void both_versions_are_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct bytes b = craft(version);
        struct tcq_gguf *gguf = NULL;
        assert_int_equal(tcq_gguf_parse(b.data, b.nbytes, "x", &gguf, NULL), TCQ_OK);
        assert_int_equal(tcq_gguf_version(gguf), version);
        assert_int_equal(tcq_gguf_alignment(gguf), 64);
        assert_int_equal(tcq_gguf_entry_count(gguf), 17);
        assert_true(tcq_gguf_text_equal(tcq_gguf_entry_get(gguf, 0)->key, "u8"));
        assert_null(tcq_gguf_entry_get(gguf, 17));
        check_numbers(gguf);
        check_arrays(gguf);
        const struct tcq_gguf_tensor *a = tcq_gguf_tensor_find(gguf, "a");
        assert_ptr_equal(a, tcq_gguf_tensor_get(gguf, 0));
        assert_int_equal(a->shape[0], 2);
        assert_int_equal(a->shape[1], 32);
        assert_int_equal(a->nbytes, 68);
        assert_int_equal(a->data[0], 128);
        assert_int_equal(tcq_gguf_tensor_find(gguf, "b")->data[1], 1);
        assert_null(tcq_gguf_tensor_get(gguf, 2));
        tcq_gguf_destroy(gguf);
        free(b.data);
    }
    tcq_gguf_destroy(NULL);
}

/* Each prefix in memory of exactly its size, so that a sanitizer sees a read
 * past its end. */
static void every_truncation_is_refused(void **state)
{
    (void)state;
    struct bytes b = craft(3);
    for (size_t n = 0; n < b.nbytes; n++) {
        struct tcq_error error = {0};
        struct tcq_gguf *gguf = NULL;
        uint8_t *part = malloc(n ? n : 1);
        memcpy(part, b.data, n);
        assert_int_equal(tcq_gguf_parse(n ? part : NULL, n, "x.gguf", &gguf, &error),
                         TCQ_ERROR_FORMAT);
        assert_null(gguf);
        const char *wanted = n ? "x.gguf: truncated: " : "x.gguf: empty file";
        if (strncmp(error.message, wanted, strlen(wanted)) != 0)
            fail_msg("%zu bytes: %s", n, error.message);
        free(part);
    }
    free(b.data);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct bytes b = craft(3);
    for (long n = 0;; n++) {
        struct tcq_gguf *gguf = NULL;
        struct tcq_error error = {0};
        tcq_alloc_fail_after(n);
        enum tcq_status status = tcq_gguf_parse(b.data, b.nbytes, "x", &gguf, &error);
        tcq_alloc_fail_after(-1);
        if (status == TCQ_OK) {
            assert_in_range(n, 6, 6); /* handle, label, four tables */
            tcq_gguf_destroy(gguf);
            break;
        }
        assert_int_equal(status, TCQ_ERROR_MEMORY);
        assert_null(gguf);
        assert_non_null(strstr(error.message, "memory"));
    }
    free(b.data);
}

static void refuse(struct bytes b, enum tcq_status expected, const char *part)
{
    struct tcq_gguf *gguf = NULL;
    struct tcq_error error = {0};
    enum tcq_status status = tcq_gguf_parse(b.data, b.nbytes, "x.gguf", &gguf, &error);
    if (status != expected || strstr(error.message, part) == NULL)
        fail_msg("expected \"%s\", status %d; got status %d \"%s\"", part, (int)expected,
                 (int)status, error.message);
    assert_null(gguf);
    assert_int_equal(strncmp(error.message, "x.gguf: ", 8), 0);
    free(b.data);
}

static void refuse_text(const char *text, enum tcq_status expected, const char *part)
{
    struct bytes b = {0};
    put(&b, text, strlen(text));
    refuse(b, expected, part);
}

static void other_files_are_recognized(void **state)
{
    (void)state;
    refuse_text("", TCQ_ERROR_FORMAT, "empty file");
    refuse_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
                TCQ_ERROR_UNSUPPORTED, "Git LFS pointer");
    refuse_text("version ht", TCQ_ERROR_UNSUPPORTED, "Git LFS pointer");
    refuse_text("PK\003\004", TCQ_ERROR_FORMAT, "not a GGUF file");
    refuse_text("v", TCQ_ERROR_FORMAT, "not a GGUF file");
    refuse_text("GG", TCQ_ERROR_FORMAT, "truncated: a GGUF file of 2 bytes");
    static const uint32_t versions[] = {0, 1, 4, 0x03000000u};
    static const char *const parts[] = {"version 0 (2 or 3", "version 1 (2 or 3",
                                        "version 4 (2 or 3", "big-endian"};
    for (size_t i = 0; i < 4; i++) {
        struct bytes b = {0};
        put_header(&b, versions[i], 0, 0);
        refuse(b, TCQ_ERROR_UNSUPPORTED, parts[i]);
    }
}

/* One metadata entry made by `key`, `type` and raw bytes of a value. */
static struct bytes entry(const char *key, uint32_t type, uint64_t value, size_t value_nbytes)
{
    struct bytes b = {0};
    put_header(&b, 3, 0, 1);
    put_key(&b, key, type);
    put_integer(&b, value, value_nbytes);
    put_integer(&b, 0, 8);
    put_integer(&b, 0, 8);
    put_integer(&b, 0, 8);
    return b;
}

static void bad_metadata_is_refused(void **state)
{
    (void)state;
    refuse(entry("k", 13, 0, 8), TCQ_ERROR_FORMAT, "metadata 'k': value type 13");
    refuse(entry("k", UINT32_MAX, 0, 8), TCQ_ERROR_FORMAT, "value type 4294967295");
    refuse(entry("", TCQ_GGUF_VALUE_U8, 0, 8), TCQ_ERROR_FORMAT, "key at byte 24 is 0 bytes");
    refuse(entry("\xff", TCQ_GGUF_VALUE_U8, 0, 8), TCQ_ERROR_FORMAT, "not printable UTF-8");
    refuse(entry("a\nb", TCQ_GGUF_VALUE_U8, 0, 8), TCQ_ERROR_FORMAT, "not printable UTF-8");
    refuse(entry("k", TCQ_GGUF_VALUE_BOOL, 2, 1), TCQ_ERROR_FORMAT, "bool before byte 38 is 2");
    refuse(entry("k", TCQ_GGUF_VALUE_STRING, UINT64_MAX, 8), TCQ_ERROR_FORMAT,
           "needs 18446744073709551615 bytes");
    refuse(entry("k", TCQ_GGUF_VALUE_ARRAY, 13, 4), TCQ_ERROR_FORMAT, "value type 13 at depth 1");
    refuse(entry("general.alignment", TCQ_GGUF_VALUE_U32, 48, 4), TCQ_ERROR_FORMAT,
           "alignment is 48");
    refuse(entry("general.alignment", TCQ_GGUF_VALUE_U32, 0, 4), TCQ_ERROR_FORMAT,
           "alignment is 0");
    refuse(entry("general.alignment", TCQ_GGUF_VALUE_U64, 32, 8), TCQ_ERROR_FORMAT,
           "alignment has value type 10");
    char *longest = calloc(1, 65537);
    memset(longest, 'k', 65536);
    refuse(entry(longest, TCQ_GGUF_VALUE_U8, 0, 8), TCQ_ERROR_FORMAT, "is 65536 bytes long");
    free(longest);
}

static void bad_arrays_are_refused(void **state)
{
    (void)state;
    static const uint32_t types[] = {TCQ_GGUF_VALUE_U64, TCQ_GGUF_VALUE_STRING,
                                     TCQ_GGUF_VALUE_ARRAY, TCQ_GGUF_VALUE_U8};
    for (size_t i = 0; i < 4; i++) {
        struct bytes b = {0};
        put_header(&b, 3, 0, 1);
        put_array_entry(&b, "k", types[i], UINT64_MAX / 2);
        put_integer(&b, 0, 8);
        refuse(b, TCQ_ERROR_FORMAT, "truncated: a");
    }
    struct bytes deep = {0}, flags = {0};
    put_header(&deep, 3, 0, 1);
    put_array_entry(&deep, "k", TCQ_GGUF_VALUE_ARRAY, 1);
    for (int i = 0; i < 100; i++) {
        put_integer(&deep, TCQ_GGUF_VALUE_ARRAY, 4);
        put_integer(&deep, 1, 8);
    }
    refuse(deep, TCQ_ERROR_FORMAT, "at depth 5");
    put_header(&flags, 3, 0, 1);
    put_array_entry(&flags, "k", TCQ_GGUF_VALUE_BOOL, 3);
    put_integer(&flags, 0x020100, 3);
    refuse(flags, TCQ_ERROR_FORMAT, "is 2 (0 or 1");
    struct bytes twice = {0};
    put_header(&twice, 3, 0, 3);
    put_u32_entry(&twice, "same", 1);
    put_u32_entry(&twice, "other", 1);
    put_u32_entry(&twice, "same", 2);
    refuse(twice, TCQ_ERROR_FORMAT, "metadata 'same' is given twice");
}

static void bad_counts_are_refused(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 1000000, 1ull << 60, UINT64_MAX};
    for (size_t i = 0; i < 4; i++) {
        struct bytes tensors = {0}, entries = {0};
        put_header(&tensors, 3, counts[i], 0);
        refuse(tensors, TCQ_ERROR_FORMAT, "truncated: the tensor count is");
        put_header(&entries, 3, 0, counts[i]);
        refuse(entries, TCQ_ERROR_FORMAT, "truncated: the metadata count is");
    }
}

/* Two tensors; `data` bytes of data follow. */
static struct bytes two(uint32_t type, uint64_t rows, uint64_t cols, uint64_t offset,
                        const char *second, uint64_t second_offset, size_t data)
{
    struct bytes b = {0};
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "first", type, rows, cols, offset);
    put_tensor(&b, second, TCQ_GGUF_F32, 0, 8, second_offset);
    put_padding(&b, 32);
    for (size_t i = 0; i < data; i++)
        put_integer(&b, 0, 1);
    return b;
}

static void bad_tensors_are_refused(void **state)
{
    (void)state;
    const uint32_t f32 = TCQ_GGUF_F32;
    const enum tcq_status format = TCQ_ERROR_FORMAT;
    refuse(two(f32, 0, 8, 0, "first", 32, 64), format, "tensor 'first': is given twice");
    refuse(two(f32, 0, 9, 0, "b", 32, 64), format, "offset 32 overlaps tensor 'first'");
    refuse(two(f32, 0, 8, 32, "b", 32, 64), format, "overlaps");
    refuse(two(f32, 0, 8, 4, "b", 64, 96), format, "offset 4 is no multiple of the alignment 32");
    refuse(two(f32, 0, 8, 0, "b", 32, 63), format, "truncated: tensor 'b': 32 bytes at offset 32");
    refuse(two(f32, 0, 8, 0, "b", UINT64_MAX - 31, 64), format, "pass the end of the data (64");
    refuse(two(f32, 0, 0, 0, "b", 32, 64), format, "a dimension is zero");
    refuse(two(f32, 1ull << 32, 1ull << 32, 0, "b", 32, 64), format, "more than 2^63 elements");
    refuse(two(f32, 1ull << 31, 1ull << 31, 0, "b", 32, 64), format, "exceeds 2^63 bytes");
    refuse(two(TCQ_GGUF_Q4_K, 2, 128, 0, "b", 32, 64), format, "no multiple of the 256 of a Q4_K");
    refuse(two(31, 0, 8, 0, "b", 32, 64), TCQ_ERROR_UNSUPPORTED, "retired type 31 Q4_0_4_4");
    refuse(two(99, 0, 8, 0, "b", 32, 64), TCQ_ERROR_UNSUPPORTED, "unknown type 99");
    refuse(two(f32, 0, 8, 0, "\x1b[31m", 32, 64), format, "name at byte 61 is not printable");
    static const uint32_t ranks[] = {0, 5, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct bytes b = {0};
        put_header(&b, 3, 1, 0);
        put_text(&b, "t");
        put_integer(&b, ranks[i], 4);
        for (int j = 0; j < 5; j++)
            put_integer(&b, 1, 8);
        refuse(b, format, "dimensions (1 to 4 expected)");
    }
}

/* Any single byte changed: accepted or refused, never out of bounds (a
 * sanitizer's build sees it), and never refused without a message. */
static void mutations_never_crash(void **state)
{
    (void)state;
    struct random r = random_start("gguf", 5);
    struct bytes b = craft(3);
    for (size_t i = 0; i < b.nbytes; i++) {
        for (int j = 0; j < 8; j++) {
            uint8_t kept = b.data[i];
            struct tcq_gguf *gguf = NULL;
            struct tcq_error error = {0};
            b.data[i] = j ? (uint8_t)random_u64(&r) : 0xff;
            enum tcq_status status = tcq_gguf_parse(b.data, b.nbytes, "x", &gguf, &error);
            assert_true((status == TCQ_OK) == (error.message[0] == '\0'));
            tcq_gguf_destroy(gguf);
            b.data[i] = kept;
        }
    }
    free(b.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_versions_are_read),    cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_allocation_may_fail), cmocka_unit_test(other_files_are_recognized),
        cmocka_unit_test(bad_metadata_is_refused),   cmocka_unit_test(bad_arrays_are_refused),
        cmocka_unit_test(bad_counts_are_refused),    cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(mutations_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
