/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors parser on bytes in memory: what it reads, and every refusal
 * with its message.
 */
#include "support/failing.h"
#include "support/folder.h"

#include "format/safetensors.h"

static const char good_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[24,24]},"
    "\"odd\":{\"dtype\":\"F8_E4M3\",\"shape\":[5],\"data_offsets\":[26,31]},"
    "\"scalar\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]}}  ";
enum { GOOD_DATA_NBYTES = 31 };

static void a_good_file_is_read(void **state)
{
    (void)state;
    size_t nbytes;
    uint8_t *bytes = safetensors_bytes(good_header, GOOD_DATA_NBYTES, &nbytes);
    struct tcq_safetensors st;
    assert_int_equal(tcq_safetensors_parse(bytes, nbytes, "f", &st, NULL), TCQ_OK);
    const uint8_t *data = bytes + nbytes - GOOD_DATA_NBYTES;
    assert_int_equal(st.count, 4);
    const struct tcq_source_tensor *a = &st.tensors[0], *none = &st.tensors[1];
    const struct tcq_source_tensor *scalar = &st.tensors[2], *odd = &st.tensors[3];
    assert_string_equal(a->name, "a");
    assert_int_equal(a->dtype, TCQ_DTYPE_F32);
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[1], 3);
    assert_int_equal(a->count, 6);
    assert_ptr_equal(a->data, data);
    assert_string_equal(none->name, "none");
    assert_int_equal(none->nbytes, 0);
    assert_string_equal(scalar->name, "scalar");
    assert_int_equal(scalar->rank, 0);
    assert_int_equal(scalar->count, 1);
    assert_ptr_equal(scalar->data, data + 24);
    assert_string_equal(odd->type, "F8_E4M3");
    assert_int_equal(odd->dtype, TCQ_DTYPE_COUNT);
    assert_int_equal(odd->nbytes, 5);
    assert_string_equal(tcq_safetensors_metadata(&st, "format"), "pt");
    assert_null(tcq_safetensors_metadata(&st, "else"));
    tcq_safetensors_release(&st);
    free(bytes);
}

static void every_dtype_has_its_size(void **state)
{
    (void)state;
    for (int d = 0; d < TCQ_DTYPE_COUNT; d++) {
        char header[200];
        size_t size = tcq_dtype_nbytes((enum tcq_dtype)d), nbytes;
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}",
                 tcq_dtype_name((enum tcq_dtype)d), 3 * size);
        uint8_t *bytes = safetensors_bytes(header, 3 * size, &nbytes);
        struct tcq_safetensors st;
        assert_int_equal(tcq_safetensors_parse(bytes, nbytes, "f", &st, NULL), TCQ_OK);
        assert_int_equal(st.tensors[0].dtype, d);
        tcq_safetensors_release(&st);
        free(bytes);
    }
}

static void refuse(const uint8_t *bytes, size_t nbytes, enum tcq_status status, const char *message)
{
    struct tcq_safetensors st = {0};
    struct tcq_error error = {0};
    assert_int_equal(tcq_safetensors_parse(bytes, nbytes, "f", &st, &error), status);
    assert_int_equal(error.status, status);
    assert_null(st.tensors); /* untouched */
    if (message)
        assert_string_equal(error.message, message);
    assert_int_equal(strncmp(error.message, "f: ", 3), 0);
}

static void truncated_at_every_byte(void **state)
{
    (void)state;
    size_t nbytes;
    uint8_t *bytes = safetensors_bytes(good_header, GOOD_DATA_NBYTES, &nbytes);
    for (size_t n = 0; n < nbytes; n++) {
        uint8_t *part = malloc(n ? n : 1); /* just as large, for the sanitizer */
        assert_non_null(part);
        memcpy(part, bytes, n);
        refuse(part, n, TCQ_ERROR_FORMAT, NULL);
        free(part);
    }
    free(bytes);
}

static void header_lengths(void **state)
{
    (void)state;
    uint8_t bytes[16] = {0, 0, 0, 0, 0, 0, 0, 0x80, '{', '}'};
    refuse(bytes, 10, TCQ_ERROR_FORMAT,
           "f: header length 9223372036854775808 past end (10 bytes in the file)");
    memset(bytes, 0xff, 8);
    refuse(bytes, 10, TCQ_ERROR_FORMAT,
           "f: header length 18446744073709551615 past end (10 bytes in the file)");
    memset(bytes, 0, 8);
    bytes[0] = 3;
    refuse(bytes, 10, TCQ_ERROR_FORMAT, "f: header length 3 past end (10 bytes in the file)");
    bytes[0] = 0;
    refuse(bytes, 10, TCQ_ERROR_FORMAT,
           "f: header length 0: expected at least 2; what an interrupted run of tcq leaves looks "
           "like this");
    refuse(bytes, 5, TCQ_ERROR_FORMAT, "f: 5 bytes: expected at least the 8 of the header length");
    bytes[0] = 2;
    bytes[8] = '[';
    refuse(bytes, 10, TCQ_ERROR_FORMAT, "f: header of 2 bytes does not start with '{'");
}

static void a_header_beyond_the_limit(void **state)
{
    (void)state;
    size_t length = TCQ_SAFETENSORS_HEADER_NBYTES_MAX + 1, nbytes = 8 + length;
    uint8_t *bytes = calloc(nbytes, 1); /* untouched pages cost nothing */
    assert_non_null(bytes);
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(length >> (8 * i));
    bytes[8] = '{';
    refuse(bytes, nbytes, TCQ_ERROR_FORMAT, "f: header length 100000001: at most 100000000");
    free(bytes);
}

#define ENTRY(dtype, shape, offsets) \
    "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define SIZED(name, begin, end) \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" begin "," end "]}"

static const struct refusal {
    const char *header;
    size_t data_nbytes;
    enum tcq_status status;
    const char *message;
} refusals[] = {
    {ENTRY("U8", "[4]", "[0,5]"), 4, TCQ_ERROR_FORMAT, "f: tensor 'x': offset 5 past end (4)"},
    {ENTRY("U8", "[4]", "[5,5]"), 4, TCQ_ERROR_FORMAT, "f: tensor 'x': offset 5 past end (4)"},
    {ENTRY("U8", "[4]", "[0,9223372036854775807]"), 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': offset 9223372036854775807 past end (4)"},
    {ENTRY("U8", "[4]", "[4,0]"), 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': offsets 4 and 0 are reversed"},
    {ENTRY("U8", "[4]", "[-1,3]"), 4, TCQ_ERROR_FORMAT, "f: tensor 'x': offset -1 is negative"},
    {ENTRY("U8", "[4]", "[0]"), 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': data_offsets is not a pair of integers"},
    {ENTRY("U8", "[4]", "[0,4,4]"), 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': data_offsets is not a pair of integers"},
    {ENTRY("U8", "[4]", "[0,4.0]"), 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': data_offsets is not a pair of integers"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': data_offsets is not a pair of integers"},
    {ENTRY("F32", "[4]", "[0,4]"), 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': 4 elements of F32 are 16 bytes, its offsets span 4"},
    {ENTRY("U8", "[-4]", "[0,4]"), 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': dimension 0 of the shape is not a whole number >= 0"},
    {ENTRY("U8", "[4,1.0]", "[0,4]"), 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': dimension 1 of the shape is not a whole number >= 0"},
    {ENTRY("U8", "[4294967296,4294967296]", "[0,4]"), 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': the shape's element count overflows"},
    {ENTRY("F32", "[4611686018427387904]", "[0,0]"), 0, TCQ_ERROR_FORMAT,
     "f: tensor 'x': the shape's size in bytes overflows"},
    {ENTRY("U8", "4", "[0,4]"), 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': shape is missing or not an array"},
    {ENTRY("U8", "[1,1,1,1,1,1,1,1,4]", "[0,4]"), 4, TCQ_ERROR_UNSUPPORTED,
     "f: tensor 'x': 9 dimensions: at most 8"},
    {"{\"x\":{\"shape\":[4],\"data_offsets\":[0,4]}}", 4, TCQ_ERROR_FORMAT,
     "f: tensor 'x': dtype is missing or not a string"},
    {"{\"x\":[]}", 0, TCQ_ERROR_FORMAT, "f: tensor 'x': its entry is not an object"},
    {"{" SIZED("a", "0", "4") "," SIZED("b", "2", "6") "}", 6, TCQ_ERROR_FORMAT,
     "f: tensor 'b': offset 2 overlaps 'a', which ends at 4"},
    {"{" SIZED("a", "0", "4") "," SIZED("b", "0", "4") "}", 4, TCQ_ERROR_FORMAT, NULL},
    {"{" SIZED("a", "0", "4") "," SIZED("b", "5", "9") "}", 9, TCQ_ERROR_FORMAT,
     "f: tensor 'b': offset 5 leaves a gap after 4"},
    {"{" SIZED("a", "1", "5") "}", 5, TCQ_ERROR_FORMAT,
     "f: tensor 'a': offset 1 leaves a gap after 0"},
    {"{" SIZED("a", "0", "4") "}", 5, TCQ_ERROR_FORMAT,
     "f: the tensors end at 4, the data at 5: the header and the file's length disagree"},
    {"{}", 1, TCQ_ERROR_FORMAT,
     "f: the tensors end at 0, the data at 1: the header and the file's length disagree"},
    {"{" SIZED("a", "0", "4") "," SIZED("a", "4", "8") "}", 8, TCQ_ERROR_FORMAT,
     "f: header: JSON: duplicate object key near '\"a\"' (line 1, column 56)"},
    {"{" SIZED("a", "0", "4") "," SIZED("\\u0061", "4", "8") "}", 8, TCQ_ERROR_FORMAT, NULL},
    {"{\"a\\u0000b\":1}", 0, TCQ_ERROR_FORMAT, NULL},
    {"{\"x\"", 0, TCQ_ERROR_FORMAT, NULL},
    {"{}x", 0, TCQ_ERROR_FORMAT,
     "f: header: JSON: end of file expected near 'x' (line 1, "
     "column 3)"},
    {ENTRY("U8", "[4]", "[0,9223372036854775808]"), 4, TCQ_ERROR_FORMAT, NULL},
    {"{\"__metadata__\":[]}", 0, TCQ_ERROR_FORMAT, "f: __metadata__ is not an object"},
    {"{\"__metadata__\":{\"n\":1}}", 0, TCQ_ERROR_FORMAT, "f: __metadata__: 'n' is not a string"},
};

static void every_refusal_has_its_message(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        size_t nbytes;
        uint8_t *bytes = safetensors_bytes(r->header, r->data_nbytes, &nbytes);
        print_message("%s\n", r->header);
        refuse(bytes, nbytes, r->status, r->message);
        free(bytes);
    }
}

/* Nothing to expect of the result but that it ends, and is one of the two. */
static void damaged_bytes(void **state)
{
    (void)state;
    struct random r = random_start("safetensors", 11);
    size_t nbytes;
    uint8_t *good = safetensors_bytes(good_header, GOOD_DATA_NBYTES, &nbytes);
    uint8_t *bytes = malloc(nbytes);
    assert_non_null(bytes);
    size_t refused = 0;
    for (int i = 0; i < 20000; i++) {
        struct tcq_safetensors st;
        memcpy(bytes, good, nbytes);
        for (uint32_t n = 1 + random_below(&r, 3); n; n--)
            bytes[random_below(&r, (uint32_t)nbytes - GOOD_DATA_NBYTES)] = (uint8_t)random_u64(&r);
        if (tcq_safetensors_parse(bytes, nbytes, "f", &st, NULL) == TCQ_OK)
            tcq_safetensors_release(&st);
        else
            refused++;
    }
    assert_true(refused > 10000);
    free(bytes);
    free(good);
}

static enum tcq_status parse_once(void *argument, struct tcq_error *error)
{
    (void)argument;
    size_t nbytes;
    uint8_t *bytes = safetensors_bytes(good_header, GOOD_DATA_NBYTES, &nbytes);
    struct tcq_safetensors st;
    enum tcq_status status = tcq_safetensors_parse(bytes, nbytes, "f", &st, error);
    if (status == TCQ_OK)
        tcq_safetensors_release(&st);
    free(bytes);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    failing_walk(parse_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_is_read),
        cmocka_unit_test(every_dtype_has_its_size),
        cmocka_unit_test(truncated_at_every_byte),
        cmocka_unit_test(header_lengths),
        cmocka_unit_test(a_header_beyond_the_limit),
        cmocka_unit_test(every_refusal_has_its_message),
        cmocka_unit_test(damaged_bytes),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
