/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output folder: checks, creation, resumption, the final rename.
 */
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "folder.h"

static const char job_name[] = "tcq-job.json";

static int fail_errno(const char *path)
{
    cli_message("%s: %s", path, strerror(errno));
    return CLI_FAILED;
}

static char *without_slashes(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return strndup(path, n);
}

/* Where the folder itself is: a link to one, "." and ".." can neither be renamed
 * nor have a neighbour. */
static char *folder_itself(const char *path)
{
    char *plain = without_slashes(path);
    const char *name = plain ? tcq_path_name(plain) : "";
    struct stat st;
    bool link = plain && lstat(plain, &st) == 0 && S_ISLNK(st.st_mode);
    if (!link && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
        return plain;
    char *real = realpath(plain, NULL);
    if (!real)
        return plain; /* a link to nothing: what follows says so */
    free(plain);
    return real;
}

static int make_paths(struct output *output, const char *path)
{
    *output = (struct output){.lock = -1};
    output->path = folder_itself(path);
    if (!output->path || asprintf(&output->partial, "%s.partial", output->path) < 0) {
        output->partial = NULL;
        output_close(output);
        return cli_out_of_memory();
    }
    return CLI_CONTINUE;
}

/* --force deletes a whole folder: only one that holds weights, as what this program
 * writes does.  A config.json alone may be anybody's. */
static bool is_replaceable(const char *path)
{
    static const char *const signs[] = {job_name, "tcq-part.json", "*.safetensors",
                                        "*.safetensors.partial", NULL};
    return folder_is_empty(path) || folder_has(path, signs);
}

static int check_replaceable(const char *path)
{
    if (is_replaceable(path))
        return CLI_CONTINUE;
    cli_message("%s: exists and %s: it is not replaced", path,
                tcq_path_is_folder(path) ? "holds no model" : "is no folder");
    return CLI_FAILED;
}

static int check_paths(const struct output *output, bool resume, bool force)
{
    if (tcq_path_exists(output->path) && !folder_is_empty(output->path)) {
        if (!force) {
            cli_message("%s: exists already (--force replaces it)", output->path);
            return CLI_FAILED;
        }
        if (check_replaceable(output->path) != CLI_CONTINUE)
            return CLI_FAILED;
    }
    if (tcq_path_exists(output->partial) && !resume && !force) {
        cli_message("%s: an interrupted run: continue it with --resume or discard it with --force",
                    output->partial);
        return CLI_FAILED;
    }
    return tcq_path_exists(output->partial) ? check_replaceable(output->partial) : CLI_CONTINUE;
}

static bool holds(const char *folder, const char *path)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (!path[n] || path[n] == '/' || folder[n - 1] == '/');
}

int output_check_source(const char *path, bool file, const char *source)
{
    char *output = realpath(path, NULL), *input = realpath(source, NULL);
    int code = CLI_CONTINUE;
    if (output && input && (holds(output, input) || (file && holds(input, output)))) {
        cli_message("%s: %s %s, which is read: choose another output", path,
                    holds(output, input) ? "is or holds" : "is a file of", source);
        code = CLI_FAILED;
    }
    free(output);
    free(input);
    return code;
}

int output_check(const char *path, bool resume, bool force)
{
    struct output output;
    int code = make_paths(&output, path);
    if (code == CLI_CONTINUE)
        code = check_paths(&output, resume, force);
    output_close(&output);
    return code;
}

/* ---- The job file ---- */

static char *job_path(const struct output *output)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", output->partial, job_name) < 0 ? NULL : path;
}

/* Two runs must not write into one folder. */
static int lock_job(struct output *output, const char *path)
{
    output->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (output->lock < 0)
        return fail_errno(path);
    if (flock(output->lock, LOCK_EX | LOCK_NB) != 0) {
        cli_message("%s: another tcq is writing there", output->partial);
        return CLI_FAILED;
    }
    return CLI_CONTINUE;
}

static int write_job(const struct output *output, const char *path, const json_t *job)
{
    if (ftruncate(output->lock, 0) != 0 || json_dumpfd(job, output->lock, JSON_INDENT(2)) != 0 ||
        fsync(output->lock) != 0)
        return fail_errno(path);
    return CLI_CONTINUE;
}

static void describe(const json_t *value, char *out, size_t nbytes)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    snprintf(out, nbytes, "%s", value ? (text ? text : "?") : "not given");
    free(text);
}

static int compare_jobs(const struct output *output, const json_t *before, const json_t *now)
{
    int code = CLI_CONTINUE;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
    {
        const json_t *old = json_object_get(before, key);
        if (json_equal(old, value))
            continue;
        char was[120], is[120];
        describe(old, was, sizeof was);
        describe(value, is, sizeof is);
        cli_message("%s: cannot be resumed: '%s' was %s, is %s", output->partial, key, was, is);
        code = CLI_FAILED;
    }
    return code;
}

static int take_up(struct output *output, const char *path, const json_t *job)
{
    json_error_t why;
    json_t *before = json_load_file(path, 0, &why);
    if (!json_is_object(before)) {
        cli_message("%s: cannot be resumed: %s; discard it with --force", output->partial,
                    before ? "its job is no object" : why.text);
        json_decref(before);
        return CLI_FAILED;
    }
    int code = compare_jobs(output, before, job);
    json_decref(before);
    output->resumed = code == CLI_CONTINUE;
    return code;
}

/* --force: unless another run is writing there this minute. */
static int discard(struct output *output, const char *path)
{
    if (tcq_path_exists(path)) {
        int code = lock_job(output, path);
        if (code != CLI_CONTINUE)
            return code;
    }
    bool deleted = folder_delete(output->partial);
    int code = deleted ? CLI_CONTINUE : fail_errno(output->partial);
    if (output->lock >= 0)
        close(output->lock);
    output->lock = -1;
    return code;
}

static int open_partial(struct output *output, const char *path, bool resume, const json_t *job)
{
    bool exists = tcq_path_exists(output->partial);
    /* A run that was killed before its job file was written, or after it was
     * deleted, has nothing that could be told to belong to this job. */
    struct stat st;
    bool fresh = stat(path, &st) != 0 || st.st_size == 0;
    if (exists && (fresh || !resume)) {
        int code = discard(output, path);
        if (code != CLI_CONTINUE)
            return code;
        exists = false;
        fresh = true;
    }
    if (!exists && mkdir(output->partial, 0777) != 0)
        return fail_errno(output->partial);
    int code = lock_job(output, path);
    if (code == CLI_CONTINUE)
        code = fresh ? write_job(output, path, job) : take_up(output, path, job);
    return code;
}

int output_open(struct output *output, const char *path, bool resume, bool force, const json_t *job)
{
    int code = make_paths(output, path);
    if (code != CLI_CONTINUE)
        return code;
    code = check_paths(output, resume, force);
    char *file = job_path(output);
    if (code == CLI_CONTINUE)
        code = file ? open_partial(output, file, resume, job) : cli_out_of_memory();
    free(file);
    if (code != CLI_CONTINUE)
        output_close(output);
    return code;
}

int output_follow(struct output *output, const char *path)
{
    return make_paths(output, path);
}

/* ---- Content and end ---- */

int output_write_text(const struct output *output, const char *name, const char *text)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", output->partial, name) < 0)
        return cli_out_of_memory();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && folder_write_all(fd, text, strlen(text)) && fsync(fd) == 0;
    int code = ok ? CLI_CONTINUE : fail_errno(path);
    if (fd >= 0 && close(fd) != 0 && ok)
        code = fail_errno(path);
    free(path);
    return code;
}

static void sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

/* Moves an older output out of the way, the new one in, then deletes the old. */
static int replace(const struct output *output)
{
    char *old = NULL;
    if (asprintf(&old, "%s.old.%ld", output->path, (long)getpid()) < 0)
        return cli_out_of_memory();
    int code = CLI_CONTINUE;
    if (rename(output->path, old) != 0)
        code = fail_errno(output->path);
    else if (rename(output->partial, output->path) != 0) {
        code = fail_errno(output->path);
        if (rename(old, output->path) != 0)
            cli_message("%s: the older output is there now", old);
    } else if (!folder_delete(old))
        code = fail_errno(old);
    free(old);
    return code;
}

int output_commit(struct output *output, bool force)
{
    char *job = job_path(output);
    if (!job)
        return cli_out_of_memory();
    sync_folder(output->partial);
    int code = unlink(job) == 0 ? CLI_CONTINUE : fail_errno(job);
    free(job);
    if (code != CLI_CONTINUE)
        return code;
    bool occupied = tcq_path_exists(output->path) && !folder_is_empty(output->path);
    if (occupied && force)
        code = replace(output);
    else if (rename(output->partial, output->path) != 0)
        code = fail_errno(output->path);
    return code;
}

void output_close(struct output *output)
{
    if (output->lock >= 0)
        close(output->lock);
    free(output->path);
    free(output->partial);
    *output = (struct output){.lock = -1};
}

void output_discard(struct output *output)
{
    if (output->partial && !folder_delete(output->partial))
        fail_errno(output->partial);
    output_close(output);
}

uint64_t output_free_nbytes(const char *path)
{
    char *copy = without_slashes(path);
    struct statvfs fs;
    bool known = copy && statvfs(dirname(copy), &fs) == 0;
    free(copy);
    return known ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

uint64_t output_folder_nbytes(const char *path)
{
    uint64_t nbytes = 0;
    DIR *folder = opendir(path);
    struct dirent *item;
    struct stat st;
    while (folder && (item = readdir(folder)))
        if (fstatat(dirfd(folder), item->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
            nbytes += (uint64_t)st.st_size;
    if (folder)
        closedir(folder);
    return nbytes;
}
