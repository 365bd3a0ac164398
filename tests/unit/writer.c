/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors writer: what it writes is read back, wrong calls are refused,
 * and each refusal of the system is passed on in its words.
 */
#include <errno.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "support/failing.h"
#include "support/writer_plan.h"

static void what_is_written_is_read(void **state)
{
    (void)state;
    char *folder = folder_make();
    for (size_t chunk = 1; chunk <= 64; chunk *= 4) {
        assert_int_equal(
            plan_write(in_folder(folder, "m.safetensors"), true, false, chunk, NULL, NULL), TCQ_OK);
        plan_assert(in_folder(folder, "m.safetensors"));
        assert_nothing_beside(folder);
    }
    folder_remove(folder);
}

static void an_empty_file(void **state)
{
    (void)state;
    char *folder = folder_make();
    struct tcq_writer *writer = NULL;
    const char *path = in_folder(folder, "m.safetensors");
    assert_int_equal(tcq_writer_create(path, false, &writer, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_begin(writer, false, NULL, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_finish(writer, NULL), TCQ_OK);
    tcq_writer_destroy(writer, false);
    struct tcq_source *source = NULL;
    assert_int_equal(tcq_source_open(in_folder(folder, "m.safetensors"), &source, NULL), TCQ_OK);
    assert_int_equal(tcq_source_count(source), 0);
    tcq_source_close(source);
    folder_remove(folder);
}

static void destroying_keeps_or_removes_the_partial_file(void **state)
{
    (void)state;
    char *folder = folder_make();
    for (int keep = 0; keep < 2; keep++) {
        struct tcq_writer *writer = NULL;
        assert_int_equal(
            tcq_writer_create(in_folder(folder, "m.safetensors"), false, &writer, NULL), TCQ_OK);
        assert_int_equal(plan_declare(writer, NULL), TCQ_OK);
        assert_nothing_beside(folder); /* not before begin */
        assert_int_equal(tcq_writer_begin(writer, false, NULL, NULL), TCQ_OK);
        assert_int_equal(plan_put(writer, 0, 2, SIZE_MAX, 64, NULL), TCQ_OK);
        assert_true(exists(folder, "m.safetensors.partial"));
        tcq_writer_destroy(writer, keep != 0);
        assert_int_equal(exists(folder, "m.safetensors.partial"), keep);
        assert_int_equal(exists(folder, "m.safetensors.partial.done"), keep);
    }
    tcq_writer_destroy(NULL, false);
    folder_remove(folder);
}

static void an_output_that_exists(void **state)
{
    (void)state;
    char *folder = folder_make();
    struct tcq_writer *writer = NULL;
    struct tcq_error error = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    write_text(folder, "m.safetensors", "precious");
    assert_int_equal(tcq_writer_create(path, false, &writer, &error), TCQ_ERROR_EXISTS);
    assert_non_null(strstr(error.message, "m.safetensors exists already"));
    assert_int_equal(tcq_writer_create(folder, true, &writer, &error), TCQ_ERROR_EXISTS);
    assert_non_null(strstr(error.message, "is a folder"));
    unlink(path);

    /* One that appears while we write is not replaced, and our work is kept. */
    assert_int_equal(tcq_writer_create(path, false, &writer, NULL), TCQ_OK);
    assert_int_equal(plan_declare(writer, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_begin(writer, false, NULL, NULL), TCQ_OK);
    assert_int_equal(plan_put(writer, 0, PLAN_COUNT, SIZE_MAX, 64, NULL), TCQ_OK);
    write_text(folder, "m.safetensors", "precious");
    assert_int_equal(tcq_writer_finish(writer, &error), TCQ_ERROR_EXISTS);
    tcq_writer_destroy(writer, true);
    size_t nbytes = 0, done = 0;
    char *kept = (char *)read_file(path, &nbytes);
    assert_string_equal(kept, "precious");
    free(kept);
    assert_int_equal(plan_write(path, true, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, PLAN_COUNT);
    plan_assert(path);
    folder_remove(folder);
}

static void two_writers_of_one_file(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    struct tcq_writer *first = NULL, *second = NULL;
    struct tcq_error error = {0};
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    assert_int_equal(tcq_writer_create(path, false, &first, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_create(path, false, &second, NULL), TCQ_OK);
    assert_int_equal(plan_declare(first, NULL), TCQ_OK);
    assert_int_equal(plan_declare(second, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_begin(first, false, NULL, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_begin(second, false, NULL, &error), TCQ_ERROR_IO);
    assert_non_null(strstr(error.message, "another process is writing it"));
    tcq_writer_destroy(second, false); /* leaves the first one's file alone */
    assert_int_equal(plan_put(first, 0, PLAN_COUNT, SIZE_MAX, 64, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_finish(first, NULL), TCQ_OK);
    tcq_writer_destroy(first, false);
    plan_assert(path);
    folder_remove(folder);
}

static void wrong_calls(void **state)
{
    (void)state;
    char *folder = folder_make();
    struct tcq_writer *w = NULL;
    struct tcq_error error = {0};
    const uint64_t two[2] = {2, 2}, huge[2] = {1ull << 40, 1ull << 40}, negative[1] = {1ull << 63};
    const uint64_t large[1] = {1ull << 62};
    uint8_t bytes[8] = {0};
#define REFUSED(call, text)                                       \
    do {                                                          \
        assert_int_equal(call, TCQ_ERROR_ARGUMENT);               \
        if (!strstr(error.message, text))                         \
            fail_msg("'%s' is not in '%s'", text, error.message); \
    } while (0)
    REFUSED(tcq_writer_create("", false, &w, &error), "no path");
    assert_int_equal(tcq_writer_create(in_folder(folder, "m"), false, &w, &error), TCQ_OK);
    REFUSED(tcq_writer_write(w, bytes, 1, &error), "write before begin");
    REFUSED(tcq_writer_finish(w, &error), "finish before begin");
    REFUSED(tcq_writer_declare(w, "", TCQ_DTYPE_U8, 1, two, &error), "without a name");
    REFUSED(tcq_writer_declare(w, "__metadata__", TCQ_DTYPE_U8, 1, two, &error), "reserved");
    REFUSED(tcq_writer_declare(w, "a\xff", TCQ_DTYPE_U8, 1, two, &error), "is not UTF-8");
    REFUSED(tcq_writer_declare(w, "a", TCQ_DTYPE_COUNT, 1, two, &error), "dtype 13 is unknown");
    REFUSED(tcq_writer_declare(w, "a", TCQ_DTYPE_U8, 9, two, &error), "9 dimensions: at most 8");
    REFUSED(tcq_writer_declare(w, "a", TCQ_DTYPE_U8, 2, huge, &error), "overflows");
    REFUSED(tcq_writer_declare(w, "a", TCQ_DTYPE_U8, 1, negative, &error), "overflows");
    assert_int_equal(tcq_writer_declare(w, "big", TCQ_DTYPE_U8, 1, large, &error), TCQ_OK);
    REFUSED(tcq_writer_declare(w, "a", TCQ_DTYPE_U8, 1, large, &error), "file's size overflows");
    tcq_writer_destroy(w, false);
    assert_int_equal(tcq_writer_create(in_folder(folder, "m"), false, &w, &error), TCQ_OK);
    assert_int_equal(tcq_writer_declare(w, "a", TCQ_DTYPE_U8, 2, two, &error), TCQ_OK);
    REFUSED(tcq_writer_declare(w, "a", TCQ_DTYPE_U8, 2, two, &error), "'a' is declared twice");
    REFUSED(tcq_writer_metadata(w, "k", "\xff", &error), "is not UTF-8");
    assert_int_equal(tcq_writer_begin(w, false, NULL, &error), TCQ_OK);
    REFUSED(tcq_writer_begin(w, false, NULL, &error), "begin twice");
    REFUSED(tcq_writer_declare(w, "b", TCQ_DTYPE_U8, 2, two, &error), "declare after begin");
    REFUSED(tcq_writer_metadata(w, "k", "v", &error), "metadata after begin");
    REFUSED(tcq_writer_write(w, bytes, 5, &error), "'a': 1 bytes more than the 4 declared");
    assert_int_equal(tcq_writer_write(w, bytes, 3, &error), TCQ_OK);
    REFUSED(tcq_writer_finish(w, &error), "tensor 'a' has 3 of 4 bytes");
    assert_int_equal(tcq_writer_write(w, bytes, 1, &error), TCQ_OK);
    REFUSED(tcq_writer_write(w, bytes, 1, &error), "1 bytes beyond the last tensor declared");
    assert_int_equal(tcq_writer_finish(w, &error), TCQ_OK);
    REFUSED(tcq_writer_finish(w, &error), "or twice");
#undef REFUSED
    tcq_writer_destroy(w, false);
    folder_remove(folder);
}

/* ---- refusals of the system -------------------------------------------- */

static void expect_io_error(const char *path, const char *text)
{
    struct tcq_error error = {0};
    assert_int_equal(plan_write(path, false, false, 64, NULL, &error), TCQ_ERROR_IO);
    if (!strstr(error.message, text))
        fail_msg("'%s' is not in '%s'", text, error.message);
}

static void a_path_that_cannot_be_written(void **state)
{
    (void)state;
    char *folder = folder_make();
    char path[4096];
    snprintf(path, sizeof path, "%s/none/m.safetensors", folder);
    expect_io_error(path, "cannot create: No such file or directory");
    write_text(folder, "file", "x");
    snprintf(path, sizeof path, "%s/file/m.safetensors", folder);
    expect_io_error(path, "cannot create: Not a directory");
    if (geteuid() != 0) { /* root may write anywhere */
        assert_int_equal(chmod(folder, 0500), 0);
        snprintf(path, sizeof path, "%s/m.safetensors", folder);
        expect_io_error(path, "cannot create: Permission denied");
        assert_int_equal(chmod(folder, 0700), 0);
    }
    folder_remove(folder);
}

/* A small tmpfs on a new folder; false, after saying so, where that is not permitted. */
static char *mount_small(const char *options)
{
    char *folder = folder_make();
    if (mount("tcq-test", folder, "tmpfs", 0, options) == 0)
        return folder;
    print_message("not run: mount of a tmpfs: %s\n", strerror(errno));
    folder_remove(folder);
    return NULL;
}

static void unmount(char *folder)
{
    assert_int_equal(umount(folder), 0);
    folder_remove(folder);
}

static void a_full_disk(void **state)
{
    (void)state;
    char *folder = mount_small("size=64k");
    if (!folder)
        skip();
    struct tcq_writer *writer = NULL;
    struct tcq_error error = {0};
    const uint64_t shape[1] = {1 << 20};
    assert_int_equal(tcq_writer_create(in_folder(folder, "m"), false, &writer, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_declare(writer, "x", TCQ_DTYPE_U8, 1, shape, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_begin(writer, false, NULL, &error), TCQ_ERROR_IO);
    assert_non_null(strstr(error.message, "m.partial: cannot reserve 1048"));
    assert_non_null(strstr(error.message, "No space left on device"));
    tcq_writer_destroy(writer, false);
    assert_false(exists(folder, "m.partial"));
    unmount(folder);
}

static void a_read_only_file_system(void **state)
{
    (void)state;
    char *folder = mount_small("size=64k");
    if (!folder)
        skip();
    assert_int_equal(mount(NULL, folder, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    char path[4096];
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    expect_io_error(path, "cannot create: Read-only file system");
    unmount(folder);
}

/* Room cannot always be reserved.  A limit on the size of files makes the write
 * itself fail, half-way, as a disk that fills up would; then there is room. */
static void a_write_that_fails_half_way(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    snprintf(path, sizeof path, "%s/m", folder);
    const uint64_t shape[1] = {40000};
    static uint8_t bytes[40000];
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (int round = 0; round < 2; round++) {
        struct tcq_writer *writer = NULL;
        struct tcq_error error = {0};
        size_t done = 99;
        assert_int_equal(tcq_writer_create(path, false, &writer, NULL), TCQ_OK);
        assert_int_equal(tcq_writer_declare(writer, "x", TCQ_DTYPE_U8, 1, shape, NULL), TCQ_OK);
        assert_int_equal(tcq_writer_declare(writer, "y", TCQ_DTYPE_U8, 1, shape, NULL), TCQ_OK);
        assert_int_equal(tcq_writer_begin(writer, true, &done, NULL), TCQ_OK);
        assert_int_equal(done, round); /* what had been written is kept */
        if (round == 0) {
            assert_int_equal(tcq_writer_write(writer, bytes, sizeof bytes, NULL), TCQ_OK);
            low = (struct rlimit){60000, old.rlim_max};
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
            assert_int_equal(tcq_writer_write(writer, bytes, sizeof bytes, &error), TCQ_ERROR_IO);
            assert_non_null(strstr(error.message, "m.partial: cannot write: File too large"));
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        } else {
            assert_int_equal(tcq_writer_write(writer, bytes, sizeof bytes, NULL), TCQ_OK);
            assert_int_equal(tcq_writer_finish(writer, NULL), TCQ_OK);
        }
        tcq_writer_destroy(writer, true);
    }
    signal(SIGXFSZ, SIG_DFL);
    struct tcq_source *source = NULL;
    assert_int_equal(tcq_source_open(path, &source, NULL), TCQ_OK);
    tcq_source_close(source);
    folder_remove(folder);
}

static enum tcq_status write_once(void *argument, struct tcq_error *error)
{
    return plan_write(argument, true, false, 64, NULL, error);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    failing_walk(write_once, path);
    plan_assert(path);
    assert_nothing_beside(folder);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(an_empty_file),
        cmocka_unit_test(destroying_keeps_or_removes_the_partial_file),
        cmocka_unit_test(an_output_that_exists),
        cmocka_unit_test(two_writers_of_one_file),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(a_path_that_cannot_be_written),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(a_read_only_file_system),
        cmocka_unit_test(a_write_that_fails_half_way),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
