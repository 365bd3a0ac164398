/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over every file of the folders given, without libFuzzer,
 * and over each of their prefixes up to 64 bytes and random longer ones.  No
 * file at all is a failure.
 */
#include <dirent.h>
#include <stdio.h>

#include "fuzz.h"

/* Memory of exactly the prefix's size, so that a sanitizer sees its end. */
static void run_prefix(const uint8_t *data, size_t nbytes)
{
    uint8_t *copy = malloc(nbytes ? nbytes : 1);
    memcpy(copy, data, nbytes);
    LLVMFuzzerTestOneInput(copy, nbytes);
    free(copy);
}

static void run_prefixes(const uint8_t *data, size_t nbytes)
{
    size_t step = 1;
    for (size_t n = 0; n < nbytes; n += step) {
        run_prefix(data, n);
        step = n < 64 ? 1 : 1 + nbytes / 50;
    }
    run_prefix(data, nbytes);
}

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t limit = 1 << 20;
    uint8_t *data = malloc(limit);
    if (!file || !data) {
        fprintf(stderr, "%s: cannot be read\n", path);
        free(data);
        return 1;
    }
    size_t nbytes = fread(data, 1, limit, file);
    fclose(file);
    run_prefixes(data, nbytes);
    free(data);
    return 0;
}

static int run_folder(const char *folder, size_t *count)
{
    DIR *dir = opendir(folder);
    int failed = dir == NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        failed |= run_file(path);
        ++*count;
    }
    if (dir)
        closedir(dir);
    return failed;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    int failed = 0;
    for (int i = 1; i < argc; i++)
        failed |= run_folder(argv[i], &count);
    printf("%zu files\n", count);
    return failed || count == 0;
}
