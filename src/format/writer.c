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
#include <jansson.h>
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

/* The header is padded so that the data, and with it every tensor of elements
 * up to this size, starts on a multiple of it. */
enum { DATA_ALIGNMENT = 8 };
enum { DONE_LINE_NBYTES = 64 };

struct entry {
    char *name;
    enum tcq_dtype dtype;
    uint32_t rank;
    uint64_t shape[TCQ_RANK_MAX];
    uint64_t nbytes;
    uint64_t offset; /* in the data section */
};

struct tcq_writer {
    char *path, *partial, *done;
    bool overwrite, begun, finished;
    struct entry *entries;
    size_t count, capacity;
    json_t *names, *metadata; /* names: a set, to find duplicates */
    char *header;             /* with its length in front, padded */
    size_t header_nbytes;
    uint64_t data_nbytes;
    int fd, done_fd;
    size_t current;   /* the tensor being written */
    uint64_t written; /* bytes of it */
};

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

/* ---- declaring --------------------------------------------------------- */

static enum tcq_status check_size(enum tcq_dtype dtype, uint32_t rank, const uint64_t *shape,
                                  uint64_t *nbytes, struct tcq_error *error)
{
    if (tcq_dtype_nbytes(dtype) == 0)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "dtype %d is unknown", (int)dtype);
    if (rank > TCQ_RANK_MAX || (rank && !shape))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "%u dimensions: at most %u, with a shape",
                             rank, TCQ_RANK_MAX);
    uint64_t size = tcq_dtype_nbytes(dtype);
    bool fits = true;
    for (uint32_t i = 0; i < rank; i++)
        fits = fits && shape[i] <= INT64_MAX && !__builtin_mul_overflow(size, shape[i], &size);
    if (!fits || size > INT64_MAX)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "its size in bytes overflows");
    *nbytes = size;
    return TCQ_OK;
}

/* jansson makes no string of what is not UTF-8, nor where memory is short. */
static enum tcq_status check_text(const char *text, const char *what, struct tcq_error *error)
{
    json_t *string = json_string(text), *empty = json_string("");
    bool valid = string != NULL, memory = empty != NULL;
    json_decref(string);
    json_decref(empty);
    if (valid)
        return TCQ_OK;
    return memory ? tcq_error_set(error, TCQ_ERROR_ARGUMENT, "writer: %s is not UTF-8", what)
                  : tcq_error_memory(error, strlen(text), what);
}

static enum tcq_status check_name(const struct tcq_writer *writer, const char *name,
                                  struct tcq_error *error)
{
    if (!name || !*name)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "writer: a tensor without a name");
    if (!strcmp(name, "__metadata__"))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "tensor '%s': the name is reserved", name);
    if (json_object_get(writer->names, name))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "tensor '%.100s' is declared twice", name);
    return check_text(name, "a tensor's name", error);
}

static enum tcq_status add_entry(struct tcq_writer *writer, const struct entry *entry,
                                 struct tcq_error *error)
{
    if (writer->count == writer->capacity) {
        size_t capacity = writer->capacity ? 2 * writer->capacity : 64;
        struct entry *entries =
            tcq_realloc(writer->entries, writer->count, capacity, sizeof *entries);
        if (!entries)
            return tcq_error_memory(error, capacity * sizeof *entries, "the list of tensors");
        writer->entries = entries;
        writer->capacity = capacity;
    }
    if (json_object_set_new(writer->names, entry->name, json_true()) != 0)
        return tcq_error_memory(error, strlen(entry->name), "a name");
    writer->entries[writer->count++] = *entry;
    return TCQ_OK;
}

enum tcq_status tcq_writer_declare(struct tcq_writer *writer, const char *name,
                                   enum tcq_dtype dtype, uint32_t rank, const uint64_t *shape,
                                   struct tcq_error *error)
{
    if (!writer || writer->begun)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "writer: declare after begin");
    struct entry entry = {.dtype = dtype, .rank = rank};
    enum tcq_status status = check_name(writer, name, error);
    if (status != TCQ_OK)
        return status;
    status = check_size(dtype, rank, shape, &entry.nbytes, error);
    if (status == TCQ_OK &&
        __builtin_add_overflow(writer->data_nbytes, entry.nbytes, &entry.offset))
        status = tcq_error_set(error, TCQ_ERROR_ARGUMENT, "the file's size overflows");
    if (status == TCQ_OK && entry.offset > INT64_MAX - TCQ_SAFETENSORS_HEADER_NBYTES_MAX)
        status = tcq_error_set(error, TCQ_ERROR_ARGUMENT, "the file's size overflows");
    if (status != TCQ_OK)
        return tcq_error_prefix(error, status, "tensor '%.100s'", name);
    if (rank)
        memcpy(entry.shape, shape, rank * sizeof *shape);
    entry.name = tcq_strdup(name);
    status = entry.name ? add_entry(writer, &entry, error)
                        : tcq_error_memory(error, strlen(name), "a name");
    if (status != TCQ_OK)
        tcq_free(entry.name);
    else
        writer->data_nbytes += entry.nbytes;
    return status;
}

enum tcq_status tcq_writer_metadata(struct tcq_writer *writer, const char *key, const char *value,
                                    struct tcq_error *error)
{
    if (!writer || writer->begun || !key || !value)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "writer: metadata after begin, or without key or value");
    enum tcq_status status = check_text(key, "a key of the metadata", error);
    if (status == TCQ_OK)
        status = check_text(value, "a value of the metadata", error);
    if (status == TCQ_OK && json_object_set_new(writer->metadata, key, json_string(value)) != 0)
        status = tcq_error_memory(error, strlen(value), "the metadata");
    return status;
}

/* ---- the header -------------------------------------------------------- */

/* Larger elements come first in the data, so that all lie aligned; among equal
 * sizes the order is that of the declarations. */
static void place_entries(struct tcq_writer *writer)
{
    uint64_t offset = 0;
    for (size_t size = DATA_ALIGNMENT; size; size /= 2)
        for (size_t i = 0; i < writer->count; i++)
            if (tcq_dtype_nbytes(writer->entries[i].dtype) == size) {
                writer->entries[i].offset = offset;
                offset += writer->entries[i].nbytes;
            }
}

static json_t *entry_json(const struct entry *entry)
{
    json_t *shape = json_array();
    bool ok = shape != NULL;
    for (uint32_t i = 0; i < entry->rank && ok; i++)
        ok = json_array_append_new(shape, json_integer((json_int_t)entry->shape[i])) == 0;
    if (!ok) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tcq_dtype_name(entry->dtype), "shape", shape,
                     "data_offsets", (json_int_t)entry->offset,
                     (json_int_t)(entry->offset + entry->nbytes));
}

/* The whole header, in the order of the offsets. */
static json_t *header_json(const struct tcq_writer *writer)
{
    json_t *root = json_object();
    bool ok = root != NULL;
    if (ok && json_object_size(writer->metadata))
        ok = json_object_set(root, "__metadata__", writer->metadata) == 0;
    for (size_t size = DATA_ALIGNMENT; size && ok; size /= 2)
        for (size_t i = 0; i < writer->count && ok; i++)
            if (tcq_dtype_nbytes(writer->entries[i].dtype) == size)
                ok = json_object_set_new(root, writer->entries[i].name,
                                         entry_json(&writer->entries[i])) == 0;
    if (!ok) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* header: 8 zero bytes for the length, the JSON, spaces up to the alignment. */
static enum tcq_status make_header(struct tcq_writer *writer, struct tcq_error *error)
{
    place_entries(writer);
    json_t *root = header_json(writer);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text)
        return tcq_error_memory(error, writer->count * sizeof *writer->entries, "the header");
    size_t text_nbytes = strlen(text);
    size_t padded = (text_nbytes + DATA_ALIGNMENT - 1) & ~(size_t)(DATA_ALIGNMENT - 1);
    enum tcq_status status = TCQ_OK;
    if (padded > TCQ_SAFETENSORS_HEADER_NBYTES_MAX)
        status = tcq_error_set(error, TCQ_ERROR_ARGUMENT, "%s: header of %zu bytes: at most %d",
                               writer->path, padded, TCQ_SAFETENSORS_HEADER_NBYTES_MAX);
    else if (!(writer->header = tcq_alloc(TCQ_SAFETENSORS_LENGTH_NBYTES + padded, 1)))
        status = tcq_error_memory(error, padded, "the header");
    if (status == TCQ_OK) {
        writer->header_nbytes = TCQ_SAFETENSORS_LENGTH_NBYTES + padded;
        memset(writer->header + TCQ_SAFETENSORS_LENGTH_NBYTES, ' ', padded);
        memcpy(writer->header + TCQ_SAFETENSORS_LENGTH_NBYTES, text, text_nbytes);
    }
    free(text);
    return status;
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
    enum tcq_status status = writer->header ? TCQ_OK : make_header(writer, error);
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
    const struct entry *entry = &writer->entries[writer->current];
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
        const struct entry *entry = &writer->entries[writer->current];
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
