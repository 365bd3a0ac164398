/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped files and path helpers (POSIX).
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

static enum tcq_status map_descriptor(int fd, const char *path, struct tcq_mapping *out,
                                      struct tcq_error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return tcq_error_set(error, TCQ_ERROR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return tcq_error_set(error, TCQ_ERROR_IO, "%s: not a regular file", path);
    size_t nbytes = (size_t)st.st_size;
    const uint8_t *data = NULL;
    if (nbytes) {
        void *map = mmap(NULL, nbytes, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            return tcq_error_set(error, TCQ_ERROR_IO, "%s: cannot map %zu bytes: %s", path, nbytes,
                                 strerror(errno));
        data = map;
    }
    *out = (struct tcq_mapping){data, nbytes};
    return TCQ_OK;
}

enum tcq_status tcq_mapping_open(const char *path, struct tcq_mapping *out,
                                 struct tcq_error *error)
{
    /* without waiting: opening a pipe would until someone writes to it */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tcq_error_set(error, TCQ_ERROR_IO, "%s: %s", path, strerror(errno));
    enum tcq_status status = map_descriptor(fd, path, out, error);
    close(fd);
    return status;
}

void tcq_mapping_close(struct tcq_mapping *mapping)
{
    if (mapping->data)
        munmap((void *)(uintptr_t)mapping->data, mapping->nbytes);
    *mapping = (struct tcq_mapping){NULL, 0};
}

char *tcq_path_join(const char *folder, const char *name)
{
    size_t folder_len = strlen(folder), name_len = strlen(name);
    bool slash = folder_len > 0 && folder[folder_len - 1] != '/';
    char *path = tcq_alloc(folder_len + name_len + 2, 1);
    if (!path)
        return NULL;
    memcpy(path, folder, folder_len);
    if (slash)
        path[folder_len] = '/';
    memcpy(path + folder_len + slash, name, name_len + 1);
    return path;
}

const char *tcq_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool tcq_path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

bool tcq_path_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool tcq_path_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
