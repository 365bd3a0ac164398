/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of eight small tensors, declared, written and checked in one call each:
 * what the tests of the writer share.
 */
#ifndef TESTS_SUPPORT_WRITER_PLAN_H
#define TESTS_SUPPORT_WRITER_PLAN_H

#include "support/folder.h"
#include "tcq.h"

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

static inline size_t plan_nbytes(size_t i)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < plan[i].rank; d++)
        count *= plan[i].shape[d];
    return (size_t)count * tcq_dtype_nbytes(plan[i].dtype);
}

static inline uint8_t plan_byte(size_t i, size_t at)
{
    return (uint8_t)(31 * i + 7 * at + 1);
}

static inline enum tcq_status plan_declare(struct tcq_writer *writer, struct tcq_error *error)
{
    enum tcq_status status = tcq_writer_metadata(writer, "format", "pt", error);
    for (size_t i = 0; i < PLAN_COUNT && status == TCQ_OK; i++)
        status = tcq_writer_declare(writer, plan[i].name, plan[i].dtype, plan[i].rank,
                                    plan[i].shape, error);
    return status;
}

/* Writes tensors from..; of the last, only `partly` bytes if that is not SIZE_MAX. */
static inline enum tcq_status plan_put(struct tcq_writer *writer, size_t from, size_t to,
                                       size_t partly, size_t chunk, struct tcq_error *error)
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

static inline enum tcq_status plan_write(const char *path, bool overwrite, bool resume,
                                         size_t chunk, size_t *done, struct tcq_error *error)
{
    struct tcq_writer *writer = NULL;
    size_t from = 0;
    enum tcq_status status = tcq_writer_create(path, overwrite, &writer, error);
    if (status == TCQ_OK)
        status = plan_declare(writer, error);
    if (status == TCQ_OK)
        status = tcq_writer_begin(writer, resume, &from, error);
    if (status == TCQ_OK)
        status = plan_put(writer, from, PLAN_COUNT, SIZE_MAX, chunk, error);
    if (status == TCQ_OK)
        status = tcq_writer_finish(writer, error);
    if (done)
        *done = from;
    tcq_writer_destroy(writer, false);
    return status;
}

static inline void plan_assert(const char *path)
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

static inline bool exists(const char *folder, const char *name)
{
    return access(in_folder(folder, name), F_OK) == 0;
}

static inline void assert_nothing_beside(const char *folder)
{
    assert_false(exists(folder, "m.safetensors.partial"));
    assert_false(exists(folder, "m.safetensors.partial.done"));
}

#endif
