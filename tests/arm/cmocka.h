/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As much of cmocka as tests/unit/viterbi.c uses, for programs built for
 * another processor, where the library is not installed: found instead of it
 * because this folder comes first.  The first failure ends the program.
 */
#ifndef TESTS_ARM_CMOCKA_H
#define TESTS_ARM_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>

#define print_message printf
#define assert_true(condition)                                             \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)
#define assert_int_equal(a, b) assert_true((a) == (b))
#define assert_memory_equal(a, b, nbytes) assert_true(memcmp(a, b, nbytes) == 0)

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(function) \
    {                              \
#function, function        \
    }

static inline int run_all(const struct CMUnitTest *tests, size_t count)
{
    void *state = NULL;
    for (size_t i = 0; i < count; i++) {
        printf("%s\n", tests[i].name);
        tests[i].run(&state);
    }
    printf("%zu tests passed\n", count);
    return count == 0;
}
#define cmocka_run_group_tests(tests, setup, teardown) \
    run_all(tests, sizeof(tests) / sizeof *(tests))

#endif
