/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small work on folders.
 */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

enum { DEPTH_MAX = 4, OPEN_FILES_MAX = 16, COPY_NBYTES = 1 << 16 };

/* Written anew, or holding weights in one format or another. */
static const char *const left_out[] = {
    ".*",          "config.json", "*.safetensors",    "*.safetensors.index.json",
    "*.partial",   "*.bin",       "*.bin.index.json", "*.pt",
    "*.pth",       "*.ckpt",      "*.gguf",           "*.onnx",
    "*.onnx_data", "*.h5",        "*.msgpack",        "*.ot",
    "*.tflite",    "*.npz",       "*.mlmodel",        "tcq-*.json",
    NULL,
};
static const char *const tokenizer_files[] = {
    "tokenizer*", "special_tokens_map.json", "added_tokens.json",      "vocab.*",
    "merges.txt", "chat_template*",          "generation_config.json", NULL,
};

static bool listed(const char *const *patterns, const char *name)
{
    for (; *patterns; patterns++)
        if (fnmatch(*patterns, name, 0) == 0)
            return true;
    return false;
}

bool folder_is_empty(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder)
        return false;
    size_t count = 0;
    struct dirent *item;
    while ((item = readdir(folder)))
        count += strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0;
    closedir(folder);
    return count == 0;
}

bool folder_has(const char *path, const char *const *patterns)
{
    DIR *folder = opendir(path);
    bool found = false;
    struct dirent *item;
    while (folder && !found && (item = readdir(folder)))
        found = listed(patterns, item->d_name);
    if (folder)
        closedir(folder);
    return found;
}

static int delete_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

bool folder_delete(const char *path)
{
    return nftw(path, delete_one, OPEN_FILES_MAX, FTW_DEPTH | FTW_PHYS) == 0;
}

bool folder_write_all(int fd, const void *data, size_t nbytes)
{
    const char *from = data;
    while (nbytes) {
        ssize_t n = write(fd, from, nbytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        nbytes -= (size_t)n;
    }
    return true;
}

static bool copy_bytes(int to, int from)
{
    char buffer[COPY_NBYTES];
    ssize_t n;
    while ((n = read(from, buffer, sizeof buffer)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || !folder_write_all(to, buffer, (size_t)n))
            return false;
    }
    return fsync(to) == 0;
}

static int copy_file(const char *dst, const char *src)
{
    int from = open(src, O_RDONLY | O_CLOEXEC);
    int to = from < 0 ? -1 : open(dst, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int code = CLI_CONTINUE;
    if (from < 0 || to < 0 || !copy_bytes(to, from)) {
        cli_message("%s: %s", from < 0 ? src : dst, strerror(errno));
        code = CLI_FAILED;
    }
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    return code;
}

static int copy_folder(const char *dst, const char *src, enum folder_choice choice, int depth);

static int copy_item(const char *dst, const char *src, enum folder_choice choice, int depth)
{
    struct stat st;
    if (stat(src, &st) != 0)
        return CLI_CONTINUE; /* a dangling link has nothing to copy */
    if (S_ISREG(st.st_mode))
        return copy_file(dst, src);
    /* a link to a folder may lead anywhere, upwards and round in circles too */
    if (lstat(src, &st) != 0 || !S_ISDIR(st.st_mode) || choice == FOLDER_TOKENIZER || depth >= DEPTH_MAX)
        return CLI_CONTINUE;
    if (mkdir(dst, 0777) != 0 && errno != EEXIST) {
        cli_message("%s: %s", dst, strerror(errno));
        return CLI_FAILED;
    }
    int code = copy_folder(dst, src, choice, depth + 1);
    rmdir(dst); /* fails, as it should, unless nothing in it was copied */
    return code;
}

static bool chosen(const char *name, enum folder_choice choice, int depth)
{
    if (choice == FOLDER_TOKENIZER)
        return listed(tokenizer_files, name);
    /* a config.json further down belongs to a component and is nobody else's */
    return (depth > 0 && strcmp(name, "config.json") == 0) || !listed(left_out, name);
}

static int copy_folder(const char *dst, const char *src, enum folder_choice choice, int depth)
{
    DIR *folder = opendir(src);
    if (!folder) {
        cli_message("%s: %s", src, strerror(errno));
        return CLI_FAILED;
    }
    int code = CLI_CONTINUE;
    struct dirent *item;
    while (code == CLI_CONTINUE && (item = readdir(folder))) {
        if (!chosen(item->d_name, choice, depth))
            continue;
        char *to = NULL, *from = NULL;
        if (asprintf(&to, "%s/%s", dst, item->d_name) < 0)
            to = NULL;
        if (asprintf(&from, "%s/%s", src, item->d_name) < 0)
            from = NULL;
        code = to && from ? copy_item(to, from, choice, depth) : cli_out_of_memory();
        free(to);
        free(from);
    }
    closedir(folder);
    return code;
}

int folder_copy(const char *dst, const char *src, enum folder_choice choice)
{
    return copy_folder(dst, src, choice, 0);
}
