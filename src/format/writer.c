/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing safetensors in one pass.
 *
 * Bytes go to "<path>.partial".  Its header is there from the start but for the
 * eight bytes of its length, which stay zero until everything else is on disk:
 * no reader takes an unfinished file for a whole one, even under another name.
 * "<path>.partial.done" has one line a finished tensor, written only after the
 * tensor's bytes are on disk; its matching lines are what `resume` builds on.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "format/safetensors.h"
#include "format/writer.h"

enum { DONE_LINE_NBYTES = 64 };

static enum tcq_status io_error(struct tcq_error *error, const char *path, const char *doing)
{
    return tcq_error_set(error, TCQ_ERROR_IO, "%s: %s: %s", path, doing, strerror(errno));
}

/* ---- creation ---------------------------------------------------------- */

static char *with_suffix(const char *path, const char *suffix)
{
    size_t path_len = strlen(path), suffix_len = strlen(suffix);
    char *text = tcq_alloc(path_len + suffix_len + 1, 1);
    if (text) {
        memcpy(text, path, path_len);
        memcpy(text + path_len, suffix, suffix_len + 1);
    }
    return text;
}

static enum tcq_status refuse_existing(const char *path, struct tcq_error *error)
{
    return tcq_error_set(error, TCQ_ERROR_EXISTS, "%s exists already", path);
}

enum tcq_status tcq_writer_create(const char *path, bool overwrite, struct tcq_writer **out,
                                  struct tcq_error *error)
{
    if (!path || !*path || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "writer: no path, or out is NULL");
    if (tcq_path_is_folder(path))
        return tcq_error_set(error, TCQ_ERROR_EXISTS, "%s is a folder", path);
    if (!overwrite && tcq_path_exists(path))
        return refuse_existing(path, error);
    if (tcq_path_exists(path) && !tcq_path_is_file(path)) /* a device or a pipe is not replaced */
        return tcq_error_set(error, TCQ_ERROR_EXISTS, "%s is no regular file", path);
    struct tcq_writer *writer = tcq_alloc(1, sizeof *writer);
    if (!writer)
        return tcq_error_memory(error, sizeof *writer, "a writer");
    writer->fd = writer->done_fd = -1;
    writer->overwrite = overwrite;
    writer->path = tcq_strdup(path);
    writer->partial = with_suffix(path, ".partial");
    writer->done = with_suffix(path, ".partial.done");
    writer->names = json_object();
    writer->metadata = json_object();
    if (!writer->path || !writer->partial || !writer->done || !writer->names || !writer->metadata) {
        tcq_writer_destroy(writer, true);
        return tcq_error_memory(error, strlen(path), "a writer");
    }
    *out = writer;
    return TCQ_OK;
}

static void close_files(struct tcq_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->done_fd >= 0)
        close(writer->done_fd);
    writer->fd = writer->done_fd = -1;
}

void tcq_writer_destroy(struct tcq_writer *writer, bool keep_partial)
{
    if (!writer)
        return;
    if (writer->begun && !writer->finished && !keep_partial) {
        unlink(writer->done);
        unlink(writer->partial);
    }
    close_files(writer);
    for (size_t i = 0; i < writer->count; i++)
        tcq_free(writer->entries[i].name);
    tcq_free(writer->entries);
    tcq_free(writer->path);
    tcq_free(writer->partial);
    tcq_free(writer->done);
    tcq_free(writer->header);
    json_decref(writer->names);
    json_decref(writer->metadata);
    tcq_free(writer);
}

/* ---- beginning and resuming -------------------------------------------- */

static enum tcq_status write_at(int fd, const char *path, const void *data, size_t nbytes,
                                uint64_t offset, struct tcq_error *error)
{
    const char *bytes = data;
    while (nbytes) {
        ssize_t n = pwrite(fd, bytes, nbytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = ENOSPC;
            return io_error(error, path, "cannot write");
        }
        bytes += n;
        nbytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return TCQ_OK;
}

static enum tcq_status sync_folder(const char *path, struct tcq_error *error)
{
    char *folder = tcq_strdup(path);
    if (!folder)
        return tcq_error_memory(error, strlen(path), "a path");
    size_t nbytes = (size_t)(tcq_path_name(path) - path);
    folder[nbytes] = '\0';
    int fd = open(nbytes ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tcq_free(folder);
    /* Some file systems cannot sync a folder (EINVAL): nothing more can be done there. */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) {
        enum tcq_status status = io_error(error, path, "cannot sync its folder");
        if (fd >= 0)
            close(fd);
        return status;
    }
    close(fd);
    return TCQ_OK;
}

/* Whether the partial file starts with this writer's header.  Its length may be
 * there or not: the earlier run may have ended just before the renaming. */
static bool header_matches(const struct tcq_writer *writer)
{
    char buffer[4096];
    for (size_t at = TCQ_SAFETENSORS_LENGTH_NBYTES; at < writer->header_nbytes;) {
        size_t want = writer->header_nbytes - at;
        ssize_t n =
            pread(writer->fd, buffer, want < sizeof buffer ? want : sizeof buffer, (off_t)at);
        if (n <= 0 || memcmp(buffer, writer->header + at, (size_t)n) != 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

static size_t done_line(const struct tcq_writer *writer, size_t i, char line[DONE_LINE_NBYTES])
{
    return (size_t)snprintf(line, DONE_LINE_NBYTES, "%zu %" PRIu64 "\n", i,
                            writer->entries[i].offset + writer->entries[i].nbytes);
}

/* How many leading lines of the list are whole and as expected, and their size. */
static size_t read_done(const struct tcq_writer *writer, size_t *list_nbytes)
{
    char expected[DONE_LINE_NBYTES], found[DONE_LINE_NBYTES];
    size_t count = 0, at = 0;
    for (; count < writer->count; count++) {
        size_t nbytes = done_line(writer, count, expected);
        ssize_t n = pread(writer->done_fd, found, nbytes, (off_t)at);
        if (n < 0 || (size_t)n != nbytes || memcmp(found, expected, nbytes) != 0)
            break;
        at += nbytes;
    }
    *list_nbytes = at;
    return count;
}

/* The size that the file must have for its first `count` tensors to be there. */
static uint64_t end_of(const struct tcq_writer *writer, size_t count)
{
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t e = writer->entries[i].offset + writer->entries[i].nbytes;
        end = e > end ? e : end;
    }
    return writer->header_nbytes + end;
}

/* Opens the partial file, new or old, and locks it.  Between the two another
 * process may have renamed it: what is locked must still be what the path names. */
static enum tcq_status open_partial(struct tcq_writer *writer, struct tcq_error *error)
{
    struct stat ours, named;
    int fd = open(writer->partial, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return io_error(error, writer->partial, "cannot create");
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &ours) != 0 ||
        stat(writer->partial, &named) != 0 || ours.st_ino != named.st_ino ||
        ours.st_dev != named.st_dev) {
        close(fd);
        return tcq_error_set(error, TCQ_ERROR_IO, "%s: another process is writing it",
                             writer->partial);
    }
    writer->fd = fd;
    writer->begun = true;
    return TCQ_OK;
}

/* Takes up what an earlier run left, if its header is the same; true if so. */
static bool take_up(struct tcq_writer *writer, size_t *tensors_done)
{
    static const char no_length[TCQ_SAFETENSORS_LENGTH_NBYTES];
    struct stat st;
    size_t list_nbytes = 0, count = 0;
    writer->done_fd = open(writer->done, O_RDWR | O_CLOEXEC);
    if (writer->done_fd < 0 || !header_matches(writer))
        return false;
    count = read_done(writer, &list_nbytes);
    if (fstat(writer->fd, &st) != 0 || (uint64_t)st.st_size < end_of(writer, count) ||
        ftruncate(writer->done_fd, (off_t)list_nbytes) != 0 ||
        lseek(writer->done_fd, 0, SEEK_END) < 0 ||
        write_at(writer->fd, writer->partial, no_length, sizeof no_length, 0, NULL) != TCQ_OK)
        return false;
    *tensors_done = count;
    return true;
}

/* An empty partial file.  The old list goes first, and durably: it must never
 * stand beside bytes that it does not speak of. */
static enum tcq_status start_afresh(struct tcq_writer *writer, struct tcq_error *error)
{
    if (writer->done_fd >= 0)
        close(writer->done_fd);
    writer->done_fd = -1;
    enum tcq_status status = TCQ_OK;
    if (unlink(writer->done) == 0)
        status = sync_folder(writer->path, error);
    if (status != TCQ_OK)
        return status;
    if (ftruncate(writer->fd, 0) != 0)
        return io_error(error, writer->partial, "cannot truncate");
    writer->done_fd = open(writer->done, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (writer->done_fd < 0)
        return io_error(error, writer->done, "cannot create");
    status = write_at(writer->fd, writer->partial, writer->header, writer->header_nbytes, 0, error);
    return status == TCQ_OK ? sync_folder(writer->path, error) : status;
}

/* Ask for the room now: better refused here than after hours of work.  File
 * systems that cannot reserve are left to fail when they are full. */
static enum tcq_status reserve(const struct tcq_writer *writer, struct tcq_error *error)
{
    uint64_t total = writer->header_nbytes + writer->data_nbytes;
    if (fallocate(writer->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)total) == 0 ||
        (errno != ENOSPC && errno != EDQUOT && errno != EFBIG))
        return TCQ_OK;
    return tcq_error_set(error, TCQ_ERROR_IO, "%s: cannot reserve %" PRIu64 " bytes: %s",
                         writer->partial, total, strerror(errno));
}

static enum tcq_status finish_tensors(struct tcq_writer *writer, struct tcq_error *error);

enum tcq_status tcq_writer_begin(struct tcq_writer *writer, bool resume, size_t *tensors_done,
                                 struct tcq_error *error)
{
    if (!writer || writer->begun)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "writer: begin twice");
    size_t done = 0;
    enum tcq_status status = writer->header ? TCQ_OK : tcq_writer_make_header(writer, error);
    if (status == TCQ_OK)
        status = open_partial(writer, error);
    if (status == TCQ_OK && !(resume && take_up(writer, &done)))
        status = start_afresh(writer, error);
    if (status == TCQ_OK)
        status = reserve(writer, error);
    if (status == TCQ_OK) {
        writer->current = done;
        status = finish_tensors(writer, error);
    }
    if (status == TCQ_OK && tensors_done)
        *tensors_done = done;
    return status;
}

/* ---- data -------------------------------------------------------------- */

/* Moves past every tensor that is complete; each is counted once its bytes are
 * on disk. */
static enum tcq_status finish_tensors(struct tcq_writer *writer, struct tcq_error *error)
{
    while (writer->current < writer->count &&
           writer->written == writer->entries[writer->current].nbytes) {
        char line[DONE_LINE_NBYTES];
        size_t nbytes = done_line(writer, writer->current, line);
        if (writer->written && fdatasync(writer->fd) != 0)
            return io_error(error, writer->partial, "cannot sync");
        ssize_t n = write(writer->done_fd, line, nbytes);
        if (n < 0 || (size_t)n != nbytes)
            return io_error(error, writer->done, "cannot write");
        writer->current++;
        writer->written = 0;
    }
    return TCQ_OK;
}

enum tcq_status tcq_writer_write(struct tcq_writer *writer, const void *data, size_t nbytes,
                                 struct tcq_error *error)
{
    if (!writer || !writer->begun || writer->finished || (!data && nbytes))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "writer: write before begin, after finish, or without data");
    if (nbytes == 0)
        return TCQ_OK;
    if (writer->current == writer->count)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "%s: %zu bytes beyond the last tensor declared", writer->path, nbytes);
    const struct tcq_writer_entry *entry = &writer->entries[writer->current];
    if (nbytes > entry->nbytes - writer->written)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "tensor '%.100s': %zu bytes more than the %" PRIu64 " declared",
                             entry->name, nbytes - (size_t)(entry->nbytes - writer->written),
                             entry->nbytes);
    enum tcq_status status =
        write_at(writer->fd, writer->partial, data, nbytes,
                 writer->header_nbytes + entry->offset + writer->written, error);
    if (status != TCQ_OK)
        return status;
    writer->written += nbytes;
    return finish_tensors(writer, error);
}

/* ---- finishing --------------------------------------------------------- */

/* Rename without replacing where the system can; else look first. */
static enum tcq_status rename_partial(const struct tcq_writer *writer, struct tcq_error *error)
{
    if (!writer->overwrite) {
        if (renameat2(AT_FDCWD, writer->partial, AT_FDCWD, writer->path, RENAME_NOREPLACE) == 0)
            return TCQ_OK;
        if (errno == EEXIST || tcq_path_exists(writer->path))
            return refuse_existing(writer->path, error);
    }
    if (rename(writer->partial, writer->path) != 0)
        return io_error(error, writer->path, "cannot rename the finished file");
    return TCQ_OK;
}

/* The header's length is the last thing written: it makes the file valid. */
static enum tcq_status validate(const struct tcq_writer *writer, struct tcq_error *error)
{
    uint8_t length[TCQ_SAFETENSORS_LENGTH_NBYTES];
    uint64_t nbytes = writer->header_nbytes - TCQ_SAFETENSORS_LENGTH_NBYTES;
    for (int i = 0; i < TCQ_SAFETENSORS_LENGTH_NBYTES; i++)
        length[i] = (uint8_t)(nbytes >> (8 * i));
    if (fsync(writer->fd) != 0)
        return io_error(error, writer->partial, "cannot sync");
    enum tcq_status status = write_at(writer->fd, writer->partial, length, sizeof length, 0, error);
    if (status == TCQ_OK && fsync(writer->fd) != 0)
        status = io_error(error, writer->partial, "cannot sync");
    return status;
}

enum tcq_status tcq_writer_finish(struct tcq_writer *writer, struct tcq_error *error)
{
    if (!writer || !writer->begun || writer->finished)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "writer: finish before begin, or twice");
    if (writer->current < writer->count) {
        const struct tcq_writer_entry *entry = &writer->entries[writer->current];
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "%s: tensor '%.100s' has %" PRIu64 " of %" PRIu64 " bytes",
                             writer->path, entry->name, writer->written, entry->nbytes);
    }
    enum tcq_status status = validate(writer, error);
    if (status == TCQ_OK)
        status = rename_partial(writer, error);
    if (status != TCQ_OK)
        return status;
    writer->finished = true;
    unlink(writer->done);
    return sync_folder(writer->path, error);
}
