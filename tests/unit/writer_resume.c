/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors writer, interrupted: a run killed at any point is continued to
 * the same bytes, and nothing is continued that is not the same file.
 */
#include <signal.h>
#include <sys/wait.h>

#include "support/writer_plan.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_is_continued_to_the_same_bytes),
        cmocka_unit_test(killed_twice),
        cmocka_unit_test(a_partial_file_of_something_else_is_not_continued),
        cmocka_unit_test(a_damaged_list_counts_up_to_the_damage),
        cmocka_unit_test(a_list_longer_than_its_file_is_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
