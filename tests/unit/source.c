/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources: a file, a folder, a folder of shards, and everything that may be
 * wrong with them; numbers read as float32.
 */
#include "support/failing.h"
#include "support/folder.h"
#include "support/gguf_small.h"

#include "format/source.h"

#define U8(name, begin, end) \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" begin "," end "]}"

static void expect_refusal(const char *path, enum tcq_status status, const char *message)
{
    struct tcq_source *source = NULL;
    struct tcq_error error = {0};
    assert_int_equal(tcq_source_open(path, &source, &error), status);
    assert_null(source);
    if (!strstr(error.message, message))
        fail_msg("'%s' is not in '%s'", message, error.message);
}

static struct tcq_source *open_good(const char *path)
{
    struct tcq_source *source = NULL;
    struct tcq_error error = {0};
    if (tcq_source_open(path, &source, &error) != TCQ_OK)
        fail_msg("%s", error.message);
    return source;
}

static void a_file_is_sorted_and_found(void **state)
{
    (void)state;
    char *folder = folder_make();
    write_safetensors(folder, "m.safetensors",
                      "{" U8("b", "0", "4") "," U8("a", "4", "8") "," U8("C", "8", "12") "}", 12);
    struct tcq_source *source = open_good(in_folder(folder, "m.safetensors"));
    assert_int_equal(tcq_source_get_kind(source), TCQ_SOURCE_SAFETENSORS);
    assert_int_equal(tcq_source_count(source), 3);
    assert_string_equal(tcq_source_get(source, 0)->name, "C");
    assert_string_equal(tcq_source_get(source, 1)->name, "a");
    assert_string_equal(tcq_source_get(source, 2)->name, "b");
    assert_null(tcq_source_get(source, 3));
    assert_ptr_equal(tcq_source_find(source, "b"), tcq_source_get(source, 2));
    assert_null(tcq_source_find(source, "bb"));
    assert_string_equal(tcq_source_find(source, "a")->file, "m.safetensors");
    assert_int_equal(*(const uint8_t *)tcq_source_find(source, "C")->data, 8);
    assert_null(tcq_source_config(source));
    tcq_source_close(source);
    tcq_source_close(NULL);
    folder_remove(folder);
}

/* A header of 123 bytes: the file starts with '{', as JSON does. */
static void a_length_that_looks_like_something_else(void **state)
{
    (void)state;
    char *folder = folder_make(), header[124];
    snprintf(header, sizeof header, "%-123s", "{" U8("x", "0", "4") "}");
    write_safetensors(folder, "m", header, 4);
    struct tcq_source *source = open_good(in_folder(folder, "m"));
    assert_int_equal(tcq_source_count(source), 1);
    tcq_source_close(source);
    folder_remove(folder);
}

static void a_folder_with_one_file(void **state)
{
    (void)state;
    char *folder = folder_make();
    write_safetensors(folder, "model.safetensors", "{" U8("x", "0", "4") "}", 4);
    struct tcq_source *source = open_good(folder);
    assert_null(tcq_source_config(source));
    tcq_source_close(source);
    write_text(folder, "config.json", "{\"model_type\":\"llama\"}");
    source = open_good(folder);
    assert_int_equal(tcq_source_get_kind(source), TCQ_SOURCE_FOLDER);
    assert_int_equal(tcq_source_count(source), 1);
    assert_string_equal(tcq_source_config(source), "{\"model_type\":\"llama\"}");
    tcq_source_close(source);
    write_file(in_folder(folder, "config.json"), "{\"a\":\0}", 7);
    expect_refusal(folder, TCQ_ERROR_FORMAT, "config.json: not a text file");
    folder_remove(folder);
}

static const char two_shards[] = "{\"metadata\":{\"total_size\":12},\"weight_map\":{"
                                 "\"x\":\"s-1.safetensors\",\"y\":\"s-2.safetensors\","
                                 "\"z\":\"s-1.safetensors\"}}";

static char *sharded(const char *index)
{
    char *folder = folder_make();
    write_safetensors(folder, "s-1.safetensors", "{" U8("x", "0", "4") "," U8("z", "4", "8") "}",
                      8);
    write_safetensors(folder, "s-2.safetensors", "{" U8("y", "0", "4") "}", 4);
    write_text(folder, "model.safetensors.index.json", index);
    return folder;
}

static void a_folder_of_shards(void **state)
{
    (void)state;
    char *folder = sharded(two_shards);
    struct tcq_source *source = open_good(folder);
    assert_int_equal(tcq_source_count(source), 3);
    assert_string_equal(tcq_source_find(source, "y")->file, "s-2.safetensors");
    assert_string_equal(tcq_source_find(source, "z")->file, "s-1.safetensors");
    tcq_source_close(source);
    folder_remove(folder);
}

#define MAP(entries) "{\"weight_map\":{" entries "}}"
#define X1 "\"x\":\"s-1.safetensors\""
#define Y2 "\"y\":\"s-2.safetensors\""
#define Z1 "\"z\":\"s-1.safetensors\""

static void every_lie_of_an_index_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *index;
        enum tcq_status status;
        const char *message;
    } lies[] = {
        {MAP(X1 "," Y2 "," Z1 ",\"w\":\"s-3.safetensors\""), TCQ_ERROR_IO,
         "model.safetensors.index.json: shard s-3.safetensors is missing"},
        {MAP(X1 "," Y2 "," Z1 ",\"w\":\"s-1.safetensors\""), TCQ_ERROR_FORMAT,
         "model.safetensors.index.json: tensor 'w' is missing from s-1.safetensors"},
        {MAP(X1 ",\"y\":\"s-1.safetensors\"," Z1 ",\"z2\":\"s-2.safetensors\""), TCQ_ERROR_FORMAT,
         "tensor 'y' is in s-2.safetensors, not in s-1.safetensors"},
        {MAP(X1 "," Y2), TCQ_ERROR_FORMAT, "tensor 'z' of s-1.safetensors is not listed"},
        {MAP(X1 "," Y2 "," Z1 ",\"w\":\"../s-1.safetensors\""), TCQ_ERROR_FORMAT,
         "tensor 'w': '../s-1.safetensors' is not the name of a file in this folder"},
        {MAP(X1 "," Y2 "," Z1 ",\"w\":\"/etc/passwd\""), TCQ_ERROR_FORMAT,
         "tensor 'w': '/etc/passwd' is not the name of a file in this folder"},
        {MAP(X1 "," Y2 "," Z1 ",\"w\":\"..\""), TCQ_ERROR_FORMAT, "'..' is not the name"},
        {MAP(X1 "," Y2 "," Z1 ",\"w\":\"\""), TCQ_ERROR_FORMAT, "'' is not the name"},
        {MAP(X1 "," Y2 "," Z1 ",\"w\":7"), TCQ_ERROR_FORMAT, "tensor 'w': shard is not a string"},
        {MAP(X1 "," Y2 "," Z1 ",\"__metadata__\":\"s-1.safetensors\""), TCQ_ERROR_FORMAT,
         "tensor '__metadata__' is missing from s-1.safetensors"},
        {MAP(X1 "," X1), TCQ_ERROR_FORMAT, "duplicate object key"},
        {"{}", TCQ_ERROR_FORMAT, "model.safetensors.index.json: no weight_map"},
        {"{\"weight_map\":[]}", TCQ_ERROR_FORMAT, "no weight_map"},
        {"", TCQ_ERROR_FORMAT, "model.safetensors.index.json: JSON: empty"},
        {"[]", TCQ_ERROR_FORMAT, "JSON: expected an object"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        char *folder = sharded(lies[i].index);
        expect_refusal(folder, lies[i].status, lies[i].message);
        folder_remove(folder);
    }
}

static void a_tensor_in_two_shards(void **state)
{
    (void)state;
    char *folder = sharded(two_shards);
    write_safetensors(folder, "s-2.safetensors", "{" U8("y", "0", "4") "," U8("x", "4", "8") "}",
                      8);
    expect_refusal(folder, TCQ_ERROR_FORMAT,
                   "tensor 'x' is in both s-1.safetensors and s-2.safetensors");
    folder_remove(folder);
}

static void a_damaged_shard_is_named(void **state)
{
    (void)state;
    char *folder = sharded(two_shards);
    write_text(folder, "s-2.safetensors",
               "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n");
    expect_refusal(folder, TCQ_ERROR_UNSUPPORTED, "s-2.safetensors: this is a Git LFS pointer");
    write_file(in_folder(folder, "s-2.safetensors"), "GGUF\3\0\0\0", 8);
    expect_refusal(folder, TCQ_ERROR_UNSUPPORTED, "s-2.safetensors: a GGUF file under the name");
    folder_remove(folder);
}

static void what_a_file_seems_to_be(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t nbytes;
        const char *message;
    } files[] = {
        {"", 0, "m: this is an empty file"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "m: this is a Git LFS pointer"},
        {"PK\3\4\0\0\0\0\0\0", 10, "m: this is a zip archive, as PyTorch's"},
        {"\x80\2}q\0.\0\0\0\0", 10, "m: this is a Python pickle"},
        {"\x80\4\x95\0\0\0\0\0\0\0", 10, "m: this is a Python pickle"},
        {"\x89HDF\r\n\x1a\n", 8, "m: this is an HDF5 file"},
        {"\x93NUMPY\1\0v\0", 10, "m: this is a numpy array"},
        {"<!DOCTYPE html>", 15, "m: this is a web page"},
        {"{\"a\": 1, \"b\": 2}", 16, "m: this is plain JSON"},
    };
    char *folder = folder_make();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_file(in_folder(folder, "m"), files[i].bytes, files[i].nbytes);
        expect_refusal(in_folder(folder, "m"), TCQ_ERROR_UNSUPPORTED, files[i].message);
    }
    folder_remove(folder);
}

static void what_is_not_there(void **state)
{
    (void)state;
    char *folder = folder_make();
    expect_refusal(in_folder(folder, "none"), TCQ_ERROR_IO, "none: No such file or directory");
    expect_refusal(folder, TCQ_ERROR_IO,
                   "neither model.safetensors nor model.safetensors.index.json");
    write_text(folder, "pytorch_model.bin", "PK");
    expect_refusal(folder, TCQ_ERROR_IO, "a PyTorch .bin may be");
    write_text(folder, "other.safetensors", "");
    expect_refusal(folder, TCQ_ERROR_IO, "another .safetensors file is");
    write_text(folder, "model.gguf", "GGUF");
    expect_refusal(folder, TCQ_ERROR_IO, "a .gguf file is");
    write_text(folder, "model.safetensors.partial", "");
    expect_refusal(folder, TCQ_ERROR_IO, "the run that wrote it was interrupted");
    expect_refusal("/dev/null", TCQ_ERROR_IO, "not a regular file");
    assert_int_equal(tcq_source_open(NULL, NULL, NULL), TCQ_ERROR_ARGUMENT);
    folder_remove(folder);
}

static void numbers_of_every_float_type(void **state)
{
    (void)state;
    static const char header[] =
        "{\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
        "\"f\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]},"
        "\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[32,36]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[36,38]},"
        "\"i\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[38,40]},"
        "\"e\":{\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[40,44]}} ";
    const double d[2] = {1.5, 0.1};
    const float f[4] = {1, -2, 3.25f, 1e30f};
    const uint16_t h[2] = {0x3c00, 0xc000}, b = 0x4049;
    size_t nbytes;
    uint8_t *bytes = safetensors_bytes(header, 44, &nbytes), *data = bytes + nbytes - 44;
    memcpy(data, d, 16);
    memcpy(data + 16, f, 16);
    memcpy(data + 32, h, 4);
    memcpy(data + 36, &b, 2);
    char *folder = folder_make();
    write_file(in_folder(folder, "m"), bytes, nbytes);
    struct tcq_source *source = open_good(in_folder(folder, "m"));
    struct tcq_error error;
    float out[4];
#define READ(name, first, count) \
    tcq_source_read_f32(source, out, tcq_source_find(source, name), first, count, &error)
    assert_int_equal(READ("d", 0, 1), TCQ_OK);
    assert_true(out[0] == 1.5f && out[1] == 0.1f);
    assert_int_equal(READ("f", 1, 1), TCQ_OK);
    assert_true(out[0] == 3.25f && out[1] == 1e30f);
    assert_int_equal(READ("f", 0, 2), TCQ_OK);
    assert_true(out[1] == -2 && out[2] == 3.25f);
    assert_int_equal(READ("h", 0, 1), TCQ_OK);
    assert_true(out[0] == 1 && out[1] == -2);
    assert_int_equal(READ("b", 0, 1), TCQ_OK);
    assert_true(out[0] == 3.140625f);
    assert_int_equal(READ("f", 0, 0), TCQ_OK);
    assert_int_equal(READ("f", 2, 1), TCQ_ERROR_ARGUMENT);
    assert_string_equal(error.message, "tensor 'f': rows 2 to 3 of 2");
    assert_int_equal(READ("f", UINT64_MAX, 2), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_source_read_f32(source, NULL, tcq_source_get(source, 0), 0, 1, &error),
                     TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_source_read_f32(source, out, NULL, 0, 1, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(READ("i", 0, 1), TCQ_ERROR_UNSUPPORTED);
    assert_string_equal(error.message, "tensor 'i': type I16 cannot be read as numbers: expected "
                                       "F32, F16, BF16 or F64");
    assert_int_equal(READ("e", 0, 1), TCQ_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "type F8_E5M2"));
#undef READ
    tcq_source_close(source);
    free(bytes);
    folder_remove(folder);
}

static void a_gguf_file_is_a_source(void **state)
{
    (void)state;
    char *folder = folder_make();
    struct small_options options = {0};
    struct bytes file = small_model(&options);
    write_file(in_folder(folder, "m.gguf"), file.data, file.nbytes);
    struct tcq_source *source = open_good(in_folder(folder, "m.gguf"));
    assert_int_equal(tcq_source_get_kind(source), TCQ_SOURCE_GGUF);
    assert_non_null(strstr(tcq_source_config(source), "\"llama\""));
    const struct tcq_source_tensor *q =
        tcq_source_find(source, "model.layers.1.self_attn.q_proj.weight");
    assert_non_null(q);
    assert_string_equal(q->file, "m.gguf");
    assert_int_equal(q->shape[1], SMALL_HIDDEN);
    for (size_t i = 1; i < tcq_source_count(source); i++)
        assert_true(strcmp(tcq_source_get(source, i - 1)->name, tcq_source_get(source, i)->name) <
                    0);
    float *rows = calloc(q->count, sizeof *rows);
    assert_int_equal(tcq_source_read_f32(source, rows, q, 0, q->shape[0], NULL), TCQ_OK);
    assert_int_equal(tcq_source_read_f32(source, rows, q, 1, q->shape[0], NULL),
                     TCQ_ERROR_ARGUMENT);
    free(rows);
    assert_null(tcq_source_metadata(source, "format"));
    tcq_source_close(source);
    free(file.data);
    folder_remove(folder);
}

static enum tcq_status open_once(void *argument, struct tcq_error *error)
{
    struct tcq_source *source = NULL;
    enum tcq_status status = tcq_source_open(argument, &source, error);
    if (status == TCQ_OK)
        tcq_source_close(source);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char *folder = sharded(two_shards);
    write_text(folder, "config.json", "{}");
    failing_walk(open_once, folder);
    write_text(folder, "model.safetensors.index.json", "");
    unlink(in_folder(folder, "model.safetensors.index.json"));
    write_safetensors(folder, "model.safetensors", "{" U8("x", "0", "4") "}", 4);
    failing_walk(open_once, folder);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_sorted_and_found),
        cmocka_unit_test(a_length_that_looks_like_something_else),
        cmocka_unit_test(a_folder_with_one_file),
        cmocka_unit_test(a_folder_of_shards),
        cmocka_unit_test(every_lie_of_an_index_is_refused),
        cmocka_unit_test(a_tensor_in_two_shards),
        cmocka_unit_test(a_damaged_shard_is_named),
        cmocka_unit_test(what_a_file_seems_to_be),
        cmocka_unit_test(what_is_not_there),
        cmocka_unit_test(numbers_of_every_float_type),
        cmocka_unit_test(a_gguf_file_is_a_source),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
