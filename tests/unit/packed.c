/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A packed module of a file: the view that is handed out, in both layouts and
 * from unaligned bytes, and every refusal in its own words.
 */
#include <pthread.h>

#include "support/failing.h"
#include "support/folder.h"

#define CONFIG(bits, group, L, axis)                                    \
    "{\"quantization\":{\"m\":{\"bits\":" bits ",\"group_size\":" group \
    ",\"mode\":\"trellis\",\"trellis\":{\"L\":" L ",\"code\":\"1mad\",\"axis\":" axis "}}}}"

/* A file of up to three tensors, filled with zeros (thus scales of 0, finite),
 * with `shift` bytes of another tensor in front. */
struct part {
    const char *name, *dtype, *shape;
    size_t nbytes;
};

static void write_parts(const char *path, const struct part *parts, size_t shift, uint8_t fill)
{
    char header[2048];
    size_t at = shift, nbytes;
    int n = snprintf(header, sizeof header,
                     "{\"a\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}", shift,
                     shift);
    for (int i = 0; i < 3 && parts[i].name; i++) {
        n += snprintf(header + n, sizeof header - (size_t)n,
                      ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                      parts[i].name, parts[i].dtype, parts[i].shape, at, at + parts[i].nbytes);
        at += parts[i].nbytes;
    }
    strcpy(header + n, "}");
    while (strlen(header) % 8)
        strcat(header, " ");
    uint8_t *bytes = safetensors_bytes(header, at, &nbytes);
    memset(bytes + nbytes - at, fill, at);
    write_file(path, bytes, nbytes);
    free(bytes);
}

struct opened {
    struct tcq_source *source;
    struct tcq_config *config;
};

static struct opened open_both(const char *path, const char *config)
{
    struct opened o = {0};
    struct tcq_error error = {0};
    if (tcq_source_open(path, &o.source, &error) != TCQ_OK ||
        tcq_config_parse(config, strlen(config), &o.config, &error) != TCQ_OK)
        fail_msg("%s", error.message);
    return o;
}

static void close_both(struct opened *o)
{
    tcq_source_close(o->source);
    tcq_config_destroy(o->config);
}

/* 2 rows of 512 weights at 3 bits. */
static const struct part good[3] = {{"m.weight", "U32", "[2,48]", 384},
                                    {"m.scales", "F16", "[2]", 4}};

static void a_view_of_the_file(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    snprintf(path, sizeof path, "%s/m", folder);
    for (size_t shift = 0; shift < 8; shift++) { /* in place, or copied to be aligned */
        write_parts(path, good, shift, 0x11);
        struct opened o = open_both(path, CONFIG("3", "256", "12", "1"));
        struct tcq_tensor tensor, again;
        struct tcq_error error;
        assert_int_equal(tcq_source_packed(o.source, o.config, "m", &tensor, &error), TCQ_OK);
        assert_int_equal(tensor.geometry.rows, 2);
        assert_int_equal(tensor.geometry.cols, 512);
        assert_int_equal(tensor.geometry.layout, TCQ_LAYOUT_ROW_MAJOR);
        assert_int_equal((uintptr_t)tensor.words % 4, 0);
        assert_int_equal((uintptr_t)tensor.scales % 2, 0);
        for (int i = 0; i < 96; i++)
            assert_int_equal(tensor.words[i], 0x11111111);
        assert_int_equal(tensor.scales[1], 0x1111);
        const struct tcq_source_tensor *stored = tcq_source_find(o.source, "m.weight");
        assert_int_equal(stored->data == (const void *)tensor.words, shift % 4 == 0);
        assert_int_equal(tcq_source_packed(o.source, o.config, "m", &again, &error), TCQ_OK);
        assert_ptr_equal(again.words, tensor.words); /* copied once */
        close_both(&o);
    }
    folder_remove(folder);
}

static void an_interleaved_view(void **state)
{
    (void)state;
    static const struct part parts[3] = {{"m.weight", "U32", "[3,2,48]", 1152},
                                         {"m.scales", "F16", "[2]", 4}};
    char *folder = folder_make();
    write_parts(in_folder(folder, "m"), parts, 0, 0);
    struct opened o = open_both(in_folder(folder, "m"), CONFIG("3", "256", "12", "0"));
    struct tcq_tensor tensor;
    assert_int_equal(tcq_source_packed(o.source, o.config, "m", &tensor, NULL), TCQ_OK);
    assert_int_equal(tensor.geometry.layout, TCQ_LAYOUT_INTERLEAVED);
    assert_int_equal(tensor.geometry.rows, 2);
    assert_int_equal(tensor.geometry.cols, 1536);
    close_both(&o);
    folder_remove(folder);
}

#define SCALES2                     \
    {                               \
        "m.scales", "F16", "[2]", 4 \
    }

static const struct refusal {
    const char *config;
    struct part parts[3];
    uint8_t fill;
    enum tcq_status status;
    const char *message;
} refusals[] = {
    {CONFIG("3", "256", "12", "1"),
     {{"n.weight", "U32", "[2,48]", 384}, SCALES2},
     0,
     TCQ_ERROR_FORMAT,
     ".weight is missing"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[2,48]", 384}},
     0,
     TCQ_ERROR_FORMAT,
     ".scales is missing"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "I32", "[2,48]", 384}, SCALES2},
     0,
     TCQ_ERROR_FORMAT,
     ".weight is I32: expected U32"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[2,48]", 384}, {"m.scales", "BF16", "[2]", 4}},
     0,
     TCQ_ERROR_FORMAT,
     ".scales is BF16: expected F16"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[2,48]", 384}, {"m.scales", "F16", "[3]", 6}},
     0,
     TCQ_ERROR_FORMAT,
     ".scales has 3 elements in 1 dimensions: expected the 2 rows in one"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[2,48]", 384}, {"m.scales", "F16", "[2,1]", 4}},
     0,
     TCQ_ERROR_FORMAT,
     ".scales has 2 elements in 2 dimensions: expected the 2 rows in one"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[2,48]", 384}, SCALES2, {"m.biases", "F16", "[2]", 4}},
     0,
     TCQ_ERROR_FORMAT,
     "has .biases: a packed module has none"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[2,50]", 400}, SCALES2},
     0,
     TCQ_ERROR_GEOMETRY,
     "50 words a row are no whole number of weights of 3 bits"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[2,36]", 288}, SCALES2},
     0,
     TCQ_ERROR_GEOMETRY,
     "384 cols are not a multiple of the block of 256"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[96]", 384}, SCALES2},
     0,
     TCQ_ERROR_GEOMETRY,
     ".weight has 1 dimensions: expected 2, or 3 interleaved"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[2,0]", 0}, SCALES2},
     0,
     TCQ_ERROR_GEOMETRY,
     "stored matrix of 2 x 0: expected at least 1 x T"},
    {CONFIG("3", "256", "12", "0"),
     {{"m.weight", "U32", "[1,2,24]", 192}, SCALES2},
     0,
     TCQ_ERROR_GEOMETRY,
     ".weight of shape [1, 2, 24]: expected [rows, words], or [cols/512, rows, 48] interleaved"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[1,2,48]", 384}, SCALES2},
     0,
     TCQ_ERROR_GEOMETRY,
     "interleaved layout with axis 1, k = 3, T = 256, L = 12: expected axis 0, k = 3, T = 256, "
     "L = 12"},
    {CONFIG("3", "128", "12", "0"),
     {{"m.weight", "U32", "[1,2,48]", 384}, SCALES2},
     0,
     TCQ_ERROR_GEOMETRY,
     "interleaved layout with axis 0, k = 3, T = 128, L = 12: expected axis 0, k = 3, T = 256, "
     "L = 12"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[0,2305843009213693952]", 0}, {"m.scales", "F16", "[0]", 0}},
     0,
     TCQ_ERROR_GEOMETRY,
     "2305843009213693952 words a row overflow"},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[2,48]", 384}, SCALES2},
     0x7d,
     TCQ_ERROR_VALUE,
     NULL},
    {CONFIG("3", "256", "12", "1"),
     {{"m.weight", "U32", "[2,48]", 384}, SCALES2},
     0xfc,
     TCQ_ERROR_VALUE,
     NULL},
};

static void every_refusal_has_its_message(void **state)
{
    (void)state;
    char *folder = folder_make();
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        write_parts(in_folder(folder, "m"), r->parts, 0, r->fill);
        struct opened o = open_both(in_folder(folder, "m"), r->config);
        struct tcq_tensor tensor = {0};
        struct tcq_error error = {0};
        assert_int_equal(tcq_source_packed(o.source, o.config, "m", &tensor, &error), r->status);
        assert_null(tensor.words);
        print_message("%s\n", error.message);
        assert_int_equal(strncmp(error.message, "module 'm': ", 12), 0);
        if (r->message)
            assert_string_equal(error.message + 12, r->message);
        else
            assert_non_null(strstr(error.message, "scale"));
        close_both(&o);
    }
    folder_remove(folder);
}

/* A scale of each sign of infinity, and one just finite. */
static void scales_must_be_finite(void **state)
{
    (void)state;
    static const struct {
        uint16_t scale;
        enum tcq_status status;
    } cases[] = {{0x7c00, TCQ_ERROR_VALUE}, {0xfc00, TCQ_ERROR_VALUE}, {0x7bff, TCQ_OK}};
    char *folder = folder_make(), path[4096];
    snprintf(path, sizeof path, "%s/m", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_parts(path, good, 0, 0);
        size_t nbytes = 0;
        uint8_t *bytes = read_file(path, &nbytes);
        memcpy(bytes + nbytes - 2, &cases[i].scale, 2); /* the last row's */
        write_file(path, bytes, nbytes);
        free(bytes);
        struct opened o = open_both(path, CONFIG("3", "256", "12", "1"));
        struct tcq_tensor tensor;
        struct tcq_error error = {0};
        assert_int_equal(tcq_source_packed(o.source, o.config, "m", &tensor, &error),
                         cases[i].status);
        if (cases[i].status != TCQ_OK)
            assert_non_null(strstr(error.message, "the scale of row 1 is"));
        close_both(&o);
    }
    folder_remove(folder);
}

static void *use_packed(void *argument)
{
    const struct opened *o = argument;
    struct tcq_tensor tensor = {0};
    tcq_source_packed(o->source, o->config, "m", &tensor, NULL);
    return (void *)(uintptr_t)tensor.words;
}

/* A source may be read by several threads at once; all see one copy. */
static void threads_share_a_copy(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    char *folder = folder_make();
    pthread_t threads[THREADS];
    void *words[THREADS];
    write_parts(in_folder(folder, "m"), good, 1, 0);
    struct opened o = open_both(in_folder(folder, "m"), CONFIG("3", "256", "12", "1"));
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_packed, &o), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], &words[i]), 0);
    assert_non_null(words[0]);
    for (int i = 1; i < THREADS; i++)
        assert_ptr_equal(words[i], words[0]);
    close_both(&o);
    folder_remove(folder);
}

static void a_module_that_is_not_packed(void **state)
{
    (void)state;
    char *folder = folder_make();
    write_parts(in_folder(folder, "m"), good, 0, 0);
    struct opened o = open_both(in_folder(folder, "m"), CONFIG("3", "256", "12", "1"));
    struct tcq_tensor tensor;
    struct tcq_error error;
    assert_int_equal(tcq_source_packed(o.source, o.config, "other", &tensor, &error),
                     TCQ_ERROR_ARGUMENT);
    assert_string_equal(error.message, "module 'other' is not packed, as config.json says");
    assert_int_equal(tcq_source_packed(o.source, NULL, "m", &tensor, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_source_packed(o.source, o.config, NULL, &tensor, NULL),
                     TCQ_ERROR_ARGUMENT);
    close_both(&o);
    folder_remove(folder);
}

static enum tcq_status packed_once(void *argument, struct tcq_error *error)
{
    struct opened o = {0};
    struct tcq_tensor tensor;
    const char *config = CONFIG("3", "256", "12", "1");
    enum tcq_status status = tcq_source_open(argument, &o.source, error);
    if (status == TCQ_OK)
        status = tcq_config_parse(config, strlen(config), &o.config, error);
    if (status == TCQ_OK)
        status = tcq_source_packed(o.source, o.config, "m", &tensor, error);
    close_both(&o);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    snprintf(path, sizeof path, "%s/m", folder);
    write_parts(path, good, 1, 0); /* unaligned: copies are made */
    failing_walk(packed_once, path);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_of_the_file),
        cmocka_unit_test(an_interleaved_view),
        cmocka_unit_test(every_refusal_has_its_message),
        cmocka_unit_test(scales_must_be_finite),
        cmocka_unit_test(threads_share_a_copy),
        cmocka_unit_test(a_module_that_is_not_packed),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
