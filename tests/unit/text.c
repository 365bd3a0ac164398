/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8: every code point, the forms that are not valid, and what is shown of
 * a long text.
 */
#include "support/test.h"

#include "base/text.h"

/* The definition of RFC 3629, written forwards. */
static size_t encode(uint32_t point, char out[4])
{
    static const uint8_t leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t nbytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = nbytes; i-- > 1; point >>= 6)
        out[i] = (char)(0x80 | (point & 63));
    out[0] = (char)(leads[nbytes] | point);
    return nbytes;
}

static void every_code_point(void **state)
{
    (void)state;
    char bytes[4];
    for (uint32_t point = 0; point < 0x200000; point++) {
        size_t nbytes = encode(point, bytes);
        bool valid = point < 0x110000 && (point < 0xd800 || point > 0xdfff);
        bool control = point < 0x20 || point == 0x7f;
        assert_true(tcq_text_is_utf8(bytes, nbytes) == valid);
        assert_true(tcq_text_is_printable(bytes, nbytes) == (valid && !control));
        if (nbytes > 1) /* cut short */
            assert_false(tcq_text_is_utf8(bytes, nbytes - 1));
    }
}

static void invalid_forms(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "\x80",         "\xbf",         "\xc0\x80",         "\xc1\xbf",    "\xe0\x80\x80",
        "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf8\x88",    "\xff",
        "a\xc3",        "\xc3\x28",     "\xe2\x28\xa1",     "\xe2\x82\x28"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        assert_false(tcq_text_is_utf8(forms[i], strlen(forms[i])));
    assert_true(tcq_text_is_utf8("", 0));
}

static void long_texts_are_cut_between_characters(void **state)
{
    (void)state;
    char text[200];
    memset(text, 'a', sizeof text);
    assert_int_equal(tcq_text_shown(text, 96), 96);
    assert_int_equal(tcq_text_shown(text, sizeof text), 96);
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'a', sizeof text);
        for (size_t i = shift; i + 3 <= sizeof text; i += 3)
            memcpy(text + i, "\xe2\x82\xac", 3);
        int shown = tcq_text_shown(text, sizeof text);
        assert_in_range(shown, 94, 96);
        assert_true(tcq_text_is_utf8(text, (size_t)shown));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(invalid_forms),
        cmocka_unit_test(long_texts_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
