/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the golden vectors.
 */
#include "support/golden.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "format/source.h"

enum { NAMES_MAX = 1000, NAME_NBYTES = 256 };
static const char suffix[] = ".safetensors";

/* CTest runs tests in the build folder, so a relative path is also looked for in
 * the source folder. */
static const char *folder(void)
{
    static char path[4096];
    const char *given = getenv("TCQ_GOLDEN_DIR"), *root = getenv("TCQ_SOURCE_DIR");
    if (!given || !*given)
        given = "tests/golden";
    bool there = access(given, F_OK) == 0 || given[0] == '/' || !root;
    snprintf(path, sizeof path, "%s%s%s", there ? "" : root, there ? "" : "/", given);
    return path;
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Names that start with prefix, without the suffix, sorted. */
static size_t list_names(const char *prefix, char (*names)[NAME_NBYTES])
{
    size_t count = 0;
    DIR *dir = opendir(folder());
    if (!dir)
        fail_msg("cannot open the folder of golden vectors, %s", folder());
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t nbytes = strlen(entry->d_name), end = sizeof suffix - 1;
        if (nbytes <= end || nbytes >= NAME_NBYTES || count == NAMES_MAX ||
            strcmp(entry->d_name + nbytes - end, suffix) != 0 ||
            strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        memcpy(names[count], entry->d_name, nbytes - end);
        names[count++][nbytes - end] = '\0';
    }
    closedir(dir);
    qsort(names, count, NAME_NBYTES, compare);
    return count;
}

/* The number after `_key` in the name, or fallback. */
static uint32_t number(const char *name, const char *key, uint32_t fallback)
{
    for (const char *at = name; (at = strchr(at, '_'));) {
        at++;
        size_t nbytes = strlen(key);
        if (!strncmp(at, key, nbytes) && at[nbytes] >= '0' && at[nbytes] <= '9')
            return (uint32_t)strtoul(at + nbytes, NULL, 10);
    }
    return fallback;
}

static struct golden open_golden(const char *name)
{
    char path[8192];
    struct tcq_error error = {0};
    struct golden golden = {.name = name};
    snprintf(path, sizeof path, "%s/%s%s", folder(), name, suffix);
    if (tcq_source_open(path, &golden.source, &error) != TCQ_OK)
        fail_msg("%s: %s", path, error.message);
    const char *L = tcq_source_metadata(golden.source, "L");
    golden.L = number(name, "L", L ? (uint32_t)strtoul(L, NULL, 10) : 12);
    golden.k = number(name, "k", 0);
    golden.T = number(name, "T", 256);
    golden.axis = number(name, "axis", 1);
    golden.k_gate = number(name, "kg", 0);
    golden.k_up = number(name, "ku", 0);
    return golden;
}

size_t golden_each(const char *prefix, void (*check)(const struct golden *golden))
{
    static char names[NAMES_MAX][NAME_NBYTES];
    size_t count = list_names(prefix, names);
    for (size_t i = 0; i < count; i++) {
        struct golden golden = open_golden(names[i]);
        print_message("golden: %s\n", golden.name);
        check(&golden);
        tcq_source_close(golden.source);
    }
    return count;
}

void golden_run(const char *prefix, void (*check)(const struct golden *golden))
{
    if (golden_each(prefix, check) == 0) {
        print_message("golden: no %s* in %s\n", prefix, folder());
        skip();
    }
}

const void *golden_data(const struct golden *golden, const char *tensor, enum tcq_dtype dtype,
                        uint32_t rank, uint64_t *shape)
{
    const struct tcq_source_tensor *found = tcq_source_find(golden->source, tensor);
    if (!found)
        fail_msg("%s: no tensor '%s'", golden->name, tensor);
    if (found->dtype != dtype || found->rank != rank)
        fail_msg("%s: tensor '%s' is %s of rank %u, expected %s of rank %u", golden->name, tensor,
                 found->type, found->rank, tcq_dtype_name(dtype), rank);
    if (shape)
        memcpy(shape, found->shape, rank * sizeof *shape);
    const void *data = tcq_source_aligned(golden->source, found, 8);
    assert_non_null(data);
    return data;
}

struct tcq_tensor golden_packed(const struct golden *golden, const char *words_name,
                                const char *scales_name, uint32_t k, uint32_t axis)
{
    const struct tcq_source_tensor *words = tcq_source_find(golden->source, words_name);
    struct tcq_error error = {0};
    uint64_t shape[3], rows;
    if (!words)
        fail_msg("%s: no tensor '%s'", golden->name, words_name);
    struct tcq_tensor tensor = {
        .geometry = {.k = k, .L = golden->L, .T = golden->T, .axis = axis},
        .words = golden_data(golden, words_name, TCQ_DTYPE_U32, words->rank, shape),
        .scales = golden_data(golden, scales_name, TCQ_DTYPE_F16, 1, &rows),
    };
    bool interleaved = words->rank == 3;
    tensor.geometry.layout = interleaved ? TCQ_LAYOUT_INTERLEAVED : TCQ_LAYOUT_ROW_MAJOR;
    tensor.geometry.rows = shape[interleaved ? 1 : 0];
    tensor.geometry.cols = interleaved ? shape[0] * 512 : shape[1] * 32 / k;
    assert_int_equal(rows, tensor.geometry.rows);
    if (tcq_tensor_check(&tensor, &error) != TCQ_OK)
        fail_msg("%s: %s: %s", golden->name, words_name, error.message);
    assert_int_equal(words->count, tcq_geometry_words(&tensor.geometry));
    return tensor;
}
