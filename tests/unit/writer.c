/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors writer: what it writes is read back, an interrupted run is
 * continued to the same bytes from every point, and each refusal of the system
 * is passed on in its words.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "support/failing.h"
#include "support/folder.h"

/* Tensors of every size of element, an empty one and a scalar, in an order that
 * leaves none aligned unless the writer sees to it. */
static const struct plan {
    const char *name;
    enum tcq_dtype dtype;
    uint32_t rank;
    uint64_t shape[3];
} plan[] = {
    {"odd", TCQ_DTYPE_U8, 1, {3}},
    {"words", TCQ_DTYPE_U32, 2, {5, 7}},
    {"empty", TCQ_DTYPE_F32, 2, {0, 9}},
    {"half", TCQ_DTYPE_F16, 1, {5}},
    {"scalar", TCQ_DTYPE_BF16, 0, {0}},
    {"long", TCQ_DTYPE_I64, 3, {2, 1, 3}},
    {"quote \" and \xc3\xa9", TCQ_DTYPE_BOOL, 1, {2}},
    {"last", TCQ_DTYPE_F32, 1, {0}},
};
enum { PLAN_COUNT = sizeof plan / sizeof *plan };

static size_t plan_nbytes(size_t i)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < plan[i].rank; d++)
        count *= plan[i].shape[d];
    return (size_t)count * tcq_dtype_nbytes(plan[i].dtype);
}

static uint8_t plan_byte(size_t i, size_t at)
{
    return (uint8_t)(31 * i + 7 * at + 1);
}

static enum tcq_status declare(struct tcq_writer *writer, struct tcq_error *error)
{
    enum tcq_status status = tcq_writer_metadata(writer, "format", "pt", error);
    for (size_t i = 0; i < PLAN_COUNT && status == TCQ_OK; i++)
        status = tcq_writer_declare(writer, plan[i].name, plan[i].dtype, plan[i].rank,
                                    plan[i].shape, error);
    return status;
}

/* Writes tensors from..; of the last, only `partly` bytes if that is not SIZE_MAX. */
static enum tcq_status put_tensors(struct tcq_writer *writer, size_t from, size_t to, size_t partly,
                                   size_t chunk, struct tcq_error *error)
{
    enum tcq_status status = TCQ_OK;
    for (size_t i = from; i < to; i++) {
        size_t nbytes = plan_nbytes(i);
        if (i + 1 == to && partly < nbytes)
            nbytes = partly;
        for (size_t at = 0; at < nbytes && status == TCQ_OK;) {
            uint8_t bytes[64];
            size_t n = nbytes - at < chunk ? nbytes - at : chunk;
            for (size_t b = 0; b < n; b++)
                bytes[b] = plan_byte(i, at + b);
            status = tcq_writer_write(writer, bytes, n, error);
            at += n;
        }
    }
    return status;
}

static enum tcq_status write_whole(const char *path, bool overwrite, bool resume, size_t chunk,
                                   size_t *done, struct tcq_error *error)
{
    struct tcq_writer *writer = NULL;
    size_t from = 0;
    enum tcq_status status = tcq_writer_create(path, overwrite, &writer, error);
    if (status == TCQ_OK)
        status = declare(writer, error);
    if (status == TCQ_OK)
        status = tcq_writer_begin(writer, resume, &from, error);
    if (status == TCQ_OK)
        status = put_tensors(writer, from, PLAN_COUNT, SIZE_MAX, chunk, error);
    if (status == TCQ_OK)
        status = tcq_writer_finish(writer, error);
    if (done)
        *done = from;
    tcq_writer_destroy(writer, false);
    return status;
}

static void assert_whole(const char *path)
{
    struct tcq_source *source = NULL;
    struct tcq_error error = {0};
    if (tcq_source_open(path, &source, &error) != TCQ_OK)
        fail_msg("%s", error.message);
    assert_int_equal(tcq_source_count(source), PLAN_COUNT);
    assert_string_equal(tcq_source_metadata(source, "format"), "pt");
    for (size_t i = 0; i < PLAN_COUNT; i++) {
        const struct tcq_source_tensor *t = tcq_source_find(source, plan[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, plan[i].dtype);
        assert_int_equal(t->rank, plan[i].rank);
        assert_memory_equal(t->shape, plan[i].shape, plan[i].rank * sizeof *t->shape);
        assert_int_equal(t->nbytes, plan_nbytes(i));
        assert_int_equal((uintptr_t)t->data % tcq_dtype_nbytes(t->dtype), 0);
        for (size_t at = 0; at < t->nbytes; at++)
            assert_int_equal(((const uint8_t *)t->data)[at], plan_byte(i, at));
    }
    tcq_source_close(source);
}

static bool exists(const char *folder, const char *name)
{
    return access(in_folder(folder, name), F_OK) == 0;
}

static void assert_nothing_beside(const char *folder)
{
    assert_false(exists(folder, "m.safetensors.partial"));
    assert_false(exists(folder, "m.safetensors.partial.done"));
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    char *folder = folder_make();
    for (size_t chunk = 1; chunk <= 64; chunk *= 4) {
        assert_int_equal(
            write_whole(in_folder(folder, "m.safetensors"), true, false, chunk, NULL, NULL),
            TCQ_OK);
        assert_whole(in_folder(folder, "m.safetensors"));
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

/* A child that writes up to a point and is killed there, with no chance to tidy. */
static void killed_after(const char *path, size_t tensors, size_t partly)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct tcq_writer *writer = NULL;
        size_t from = 0;
        if (tcq_writer_create(path, false, &writer, NULL) != TCQ_OK ||
            declare(writer, NULL) != TCQ_OK ||
            tcq_writer_begin(writer, true, &from, NULL) != TCQ_OK)
            _exit(1);
        put_tensors(writer, from, tensors, partly, 5, NULL);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_killed_run_is_continued_to_the_same_bytes(void **state)
{
    (void)state;
    char *folder = folder_make();
    size_t nbytes = 0, again_nbytes = 0;
    assert_int_equal(write_whole(in_folder(folder, "whole"), false, false, 64, NULL, NULL), TCQ_OK);
    uint8_t *whole = read_file(in_folder(folder, "whole"), &nbytes);
    for (size_t tensors = 0; tensors <= PLAN_COUNT; tensors++)
        for (size_t partly = 0; partly < 3; partly++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/m.safetensors", folder);
            killed_after(path, tensors, partly == 2 ? SIZE_MAX : partly);
            assert_false(exists(folder, "m.safetensors"));
            assert_true(exists(folder, "m.safetensors.partial"));
            /* Nobody takes it for a model. */
            struct tcq_source *source = NULL;
            assert_int_equal(
                tcq_source_open(in_folder(folder, "m.safetensors.partial"), &source, NULL),
                TCQ_ERROR_FORMAT);
            size_t done = 99;
            assert_int_equal(write_whole(path, false, true, 64, &done, NULL), TCQ_OK);
            size_t least = partly == 2 ? tensors : tensors ? tensors - 1 : 0;
            assert_true(done >= least && done <= PLAN_COUNT); /* empty ones need no writing */
            uint8_t *again = read_file(path, &again_nbytes);
            assert_int_equal(again_nbytes, nbytes);
            assert_memory_equal(again, whole, nbytes);
            assert_nothing_beside(folder);
            free(again);
            unlink(path);
        }
    free(whole);
    folder_remove(folder);
}

static void killed_twice(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    size_t done = 0;
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    killed_after(path, 2, 3);
    killed_after(path, 4, 3);
    killed_after(path, 6, SIZE_MAX);
    assert_int_equal(write_whole(path, false, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, 6);
    assert_whole(path);
    folder_remove(folder);
}

/* Leaves a partial file of six tensors. */
static void leave_partial(const char *path)
{
    killed_after(path, 6, SIZE_MAX);
}

static void a_partial_file_of_something_else_is_not_continued(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    size_t done = 99, nbytes = 0;
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    leave_partial(path);
    assert_int_equal(write_whole(path, false, false, 64, &done, NULL), TCQ_OK); /* no resume */
    assert_int_equal(done, 0);
    unlink(path);

    leave_partial(path); /* another header */
    uint8_t *bytes = read_file(in_folder(folder, "m.safetensors.partial"), &nbytes);
    bytes[30] ^= 1;
    write_file(in_folder(folder, "m.safetensors.partial"), bytes, nbytes);
    free(bytes);
    assert_int_equal(write_whole(path, false, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, 0);
    assert_whole(path);
    unlink(path);

    leave_partial(path); /* no list of what is done */
    unlink(in_folder(folder, "m.safetensors.partial.done"));
    assert_int_equal(write_whole(path, false, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, 0);
    assert_whole(path);
    unlink(path);

    leave_partial(path); /* a list without a file */
    unlink(in_folder(folder, "m.safetensors.partial"));
    assert_int_equal(write_whole(path, false, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, 0);
    assert_whole(path);
    folder_remove(folder);
}

static void a_damaged_list_counts_up_to_the_damage(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    size_t done = 99, nbytes = 0;
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    leave_partial(path);
    uint8_t *list = read_file(in_folder(folder, "m.safetensors.partial.done"), &nbytes);
    for (size_t kept = 0; kept <= nbytes; kept++) { /* a torn last line counts for nothing */
        size_t lines = 0;
        for (size_t i = 0; i < kept; i++)
            lines += list[i] == '\n';
        leave_partial(path);
        write_file(in_folder(folder, "m.safetensors.partial.done"), list, kept);
        assert_int_equal(write_whole(path, false, true, 64, &done, NULL), TCQ_OK);
        assert_int_equal(done, lines);
        assert_whole(path);
        unlink(path);
    }
    free(list);
    folder_remove(folder);
}

static void a_list_longer_than_its_file_is_not_believed(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    size_t done = 99;
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    leave_partial(path);
    struct stat st;
    assert_int_equal(stat(in_folder(folder, "m.safetensors.partial"), &st), 0);
    assert_int_equal(truncate(in_folder(folder, "m.safetensors.partial"), st.st_size - 20), 0);
    assert_int_equal(write_whole(path, false, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, 0);
    assert_whole(path);
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
        assert_int_equal(declare(writer, NULL), TCQ_OK);
        assert_nothing_beside(folder); /* not before begin */
        assert_int_equal(tcq_writer_begin(writer, false, NULL, NULL), TCQ_OK);
        assert_int_equal(put_tensors(writer, 0, 2, SIZE_MAX, 64, NULL), TCQ_OK);
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
    assert_int_equal(declare(writer, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_begin(writer, false, NULL, NULL), TCQ_OK);
    assert_int_equal(put_tensors(writer, 0, PLAN_COUNT, SIZE_MAX, 64, NULL), TCQ_OK);
    write_text(folder, "m.safetensors", "precious");
    assert_int_equal(tcq_writer_finish(writer, &error), TCQ_ERROR_EXISTS);
    tcq_writer_destroy(writer, true);
    size_t nbytes = 0, done = 0;
    char *kept = (char *)read_file(path, &nbytes);
    assert_string_equal(kept, "precious");
    free(kept);
    assert_int_equal(write_whole(path, true, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, PLAN_COUNT);
    assert_whole(path);
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
    assert_int_equal(declare(first, NULL), TCQ_OK);
    assert_int_equal(declare(second, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_begin(first, false, NULL, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_begin(second, false, NULL, &error), TCQ_ERROR_IO);
    assert_non_null(strstr(error.message, "another process is writing it"));
    tcq_writer_destroy(second, false); /* leaves the first one's file alone */
    assert_int_equal(put_tensors(first, 0, PLAN_COUNT, SIZE_MAX, 64, NULL), TCQ_OK);
    assert_int_equal(tcq_writer_finish(first, NULL), TCQ_OK);
    tcq_writer_destroy(first, false);
    assert_whole(path);
    folder_remove(folder);
}

static void wrong_calls(void **state)
{
    (void)state;
    char *folder = folder_make();
    struct tcq_writer *w = NULL;
    struct tcq_error error = {0};
    const uint64_t two[2] = {2, 2}, huge[2] = {1ull << 40, 1ull << 40}, negative[1] = {1ull << 63};
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
    assert_int_equal(write_whole(path, false, false, 64, NULL, &error), TCQ_ERROR_IO);
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
    return write_whole(argument, true, false, 64, NULL, error);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    failing_walk(write_once, path);
    assert_whole(path);
    assert_nothing_beside(folder);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(an_empty_file),
        cmocka_unit_test(a_killed_run_is_continued_to_the_same_bytes),
        cmocka_unit_test(killed_twice),
        cmocka_unit_test(a_partial_file_of_something_else_is_not_continued),
        cmocka_unit_test(a_damaged_list_counts_up_to_the_damage),
        cmocka_unit_test(a_list_longer_than_its_file_is_not_believed),
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
