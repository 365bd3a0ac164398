/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and disk space.
 */
#include "resources.h"

#include <stdio.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "output.h"

/* What the system would give without swapping; UINT64_MAX if unknown. */
static uint64_t available_memory(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    unsigned long long kib = 0;
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
    if (file)
        fclose(file);
    return found ? kib * 1024 : UINT64_MAX;
}

/* glibc takes the first large array that is freed as a sign to keep such arrays
 * from then on; what is resident would outgrow what was compared here. */
static void return_freed_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

int resources_check_memory(uint64_t nbytes, const struct cli_args *args)
{
    uint64_t available = available_memory();
    return_freed_memory();
    if (nbytes <= available)
        return CLI_CONTINUE;
    cli_message("%s of memory needed, %s available%s", cli_nbytes_text(nbytes).s,
                cli_nbytes_text(available).s,
                args->threads == 1 ? "" : " (fewer --threads need less)");
    return CLI_FAILED;
}

int resources_check_disk(const char *path, uint64_t nbytes, uint64_t there)
{
    uint64_t free_nbytes = output_free_nbytes(path);
    uint64_t needed = nbytes > there ? nbytes - there : 0;
    if (needed <= free_nbytes)
        return CLI_CONTINUE;
    cli_message("%s: %s of disk space needed, %s free", path, cli_nbytes_text(needed).s,
                cli_nbytes_text(free_nbytes).s);
    return CLI_FAILED;
}
