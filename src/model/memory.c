/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory there is, from Linux's /proc and the process's cgroup.
 */
#include <stdio.h>

#include "model/model.h"

static size_t read_number(const char *path, const char *format)
{
    FILE *file = fopen(path, "re");
    unsigned long long value = 0;
    char line[256];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, format, &value) == 1;
    if (file)
        fclose(file);
    return found ? (size_t)value : SIZE_MAX;
}

size_t tcq_memory_available(void)
{
    size_t kib = read_number("/proc/meminfo", "MemAvailable: %llu kB");
    size_t free_nbytes = kib < SIZE_MAX / 1024 ? kib * 1024 : SIZE_MAX;
    /* A container's limit, where cgroup v2 sets one. */
    size_t most = read_number("/sys/fs/cgroup/memory.max", "%llu");
    size_t used = read_number("/sys/fs/cgroup/memory.current", "%llu");
    if (most != SIZE_MAX && used != SIZE_MAX) {
        size_t left = most > used ? most - used : 0;
        free_nbytes = left < free_nbytes ? left : free_nbytes;
    }
    return free_nbytes;
}
