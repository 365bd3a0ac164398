/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors writer, interrupted: a run killed at any point is continued to
 * the same bytes, after any failed system call too, and nothing is continued
 * that is not the same file.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

#include "support/writer_plan.h"

/* The linker sends the library's calls here (--wrap): after `faults_after` more
 * of them every one fails. */
static long faults_after = LONG_MAX;

static bool fault(void)
{
    if (faults_after-- > 0)
        return false;
    faults_after = 0;
    errno = EIO;
    return true;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd)
{
    return fault() ? -1 : __real_fsync(fd);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    return fault() ? -1 : __real_fdatasync(fd);
}

int __real_ftruncate(int fd, off_t nbytes);
int __wrap_ftruncate(int fd, off_t nbytes)
{
    return fault() ? -1 : __real_ftruncate(fd, nbytes);
}

ssize_t __real_write(int fd, const void *data, size_t nbytes);
ssize_t __wrap_write(int fd, const void *data, size_t nbytes)
{
    return fault() ? -1 : __real_write(fd, data, nbytes);
}

ssize_t __real_pwrite(int fd, const void *data, size_t nbytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t nbytes, off_t offset)
{
    return fault() ? -1 : __real_pwrite(fd, data, nbytes, offset);
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
            plan_declare(writer, NULL) != TCQ_OK ||
            tcq_writer_begin(writer, true, &from, NULL) != TCQ_OK)
            _exit(1);
        plan_put(writer, from, tensors, partly, 5, NULL);
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
    assert_int_equal(plan_write(in_folder(folder, "whole"), false, false, 64, NULL, NULL), TCQ_OK);
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
            assert_int_equal(plan_write(path, false, true, 64, &done, NULL), TCQ_OK);
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
    assert_int_equal(plan_write(path, false, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, 6);
    plan_assert(path);
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
    assert_int_equal(plan_write(path, false, false, 64, &done, NULL), TCQ_OK); /* no resume */
    assert_int_equal(done, 0);
    unlink(path);

    leave_partial(path); /* another header */
    uint8_t *bytes = read_file(in_folder(folder, "m.safetensors.partial"), &nbytes);
    bytes[30] ^= 1;
    write_file(in_folder(folder, "m.safetensors.partial"), bytes, nbytes);
    free(bytes);
    assert_int_equal(plan_write(path, false, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, 0);
    plan_assert(path);
    unlink(path);

    leave_partial(path); /* no list of what is done */
    unlink(in_folder(folder, "m.safetensors.partial.done"));
    assert_int_equal(plan_write(path, false, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, 0);
    plan_assert(path);
    unlink(path);

    leave_partial(path); /* a list without a file */
    unlink(in_folder(folder, "m.safetensors.partial"));
    assert_int_equal(plan_write(path, false, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, 0);
    plan_assert(path);
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
        assert_int_equal(plan_write(path, false, true, 64, &done, NULL), TCQ_OK);
        assert_int_equal(done, lines);
        plan_assert(path);
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
    assert_int_equal(plan_write(path, false, true, 64, &done, NULL), TCQ_OK);
    assert_int_equal(done, 0);
    plan_assert(path);
    folder_remove(folder);
}

/* A run up to the first failure; what it made stays. */
static enum tcq_status interrupted(const char *path, struct tcq_error *error)
{
    struct tcq_writer *writer = NULL;
    size_t from = 0;
    enum tcq_status status = tcq_writer_create(path, false, &writer, error);
    if (status == TCQ_OK)
        status = plan_declare(writer, error);
    if (status == TCQ_OK)
        status = tcq_writer_begin(writer, true, &from, error);
    if (status == TCQ_OK)
        status = plan_put(writer, from, PLAN_COUNT, SIZE_MAX, 64, error);
    if (status == TCQ_OK)
        status = tcq_writer_finish(writer, error);
    tcq_writer_destroy(writer, true);
    return status;
}

static void every_system_call_may_fail(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    enum tcq_status status = TCQ_ERROR_IO;
    long calls = 0;
    for (; status != TCQ_OK; calls++) {
        struct tcq_error error = {0};
        assert_true(calls < 1000);
        faults_after = calls;
        status = interrupted(path, &error);
        faults_after = LONG_MAX;
        if (status != TCQ_OK) {
            assert_int_equal(status, TCQ_ERROR_IO);
            assert_non_null(strstr(error.message, "Input/output error"));
        }
        if (!exists(folder, "m.safetensors"))
            assert_int_equal(plan_write(path, false, true, 64, NULL, NULL), TCQ_OK);
        plan_assert(path);
        unlink(path);
        unlink(in_folder(folder, "m.safetensors.partial.done"));
    }
    print_message("%ld calls\n", calls);
    assert_true(calls > 2 * PLAN_COUNT);
    folder_remove(folder);
}

/* Bytes that an earlier, longer file left must not end up behind the new one. */
static void a_longer_partial_file_is_cut(void **state)
{
    (void)state;
    char *folder = folder_make(), path[4096];
    static const char junk[10000];
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    write_file(in_folder(folder, "m.safetensors.partial"), junk, sizeof junk);
    assert_int_equal(plan_write(path, false, false, 64, NULL, NULL), TCQ_OK);
    plan_assert(path);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_is_continued_to_the_same_bytes),
        cmocka_unit_test(killed_twice),
        cmocka_unit_test(a_partial_file_of_something_else_is_not_continued),
        cmocka_unit_test(a_damaged_list_counts_up_to_the_damage),
        cmocka_unit_test(a_list_longer_than_its_file_is_not_believed),
        cmocka_unit_test(every_system_call_may_fail),
        cmocka_unit_test(a_longer_partial_file_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
