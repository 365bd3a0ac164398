/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GGUF parser: a pass over metadata and tensor infos with the cursor, then
 * checks over the whole table: duplicate names, alignment, sizes, overlaps.
 *
 * Layout of a file (little-endian): "GGUF", u32 version, u64 tensor count,
 * u64 metadata count; the metadata, each a string key, u32 type and value; the
 * tensor infos, each a string name, u32 rank, u64 sizes (innermost first), u32
 * type, u64 offset; padding to the alignment; the data that offsets count from.
 */
#include "format/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/gguf_cursor.h"

/* The alignment of a file that does not set general.alignment. */
#define ALIGNMENT_DEFAULT 32u

struct tcq_gguf {
    char *label;
    uint32_t version;
    uint32_t alignment;
    size_t entry_count;
    size_t tensor_count;
    struct tcq_gguf_entry *entries;
    struct tcq_gguf_tensor *tensors;
    const struct tcq_gguf_entry **entries_by_key;
    const struct tcq_gguf_tensor **tensors_by_name;
};

/* ------------------------------------------------------------------------ */
/* The whole table: names and places                                         */
/* ------------------------------------------------------------------------ */

static int compare_text(struct tcq_gguf_text a, struct tcq_gguf_text b)
{
    int order = memcmp(a.bytes, b.bytes, a.nbytes < b.nbytes ? a.nbytes : b.nbytes);
    return order != 0 ? order : (a.nbytes > b.nbytes) - (a.nbytes < b.nbytes);
}

static int compare_entries(const void *a, const void *b)
{
    const struct tcq_gguf_entry *const *left = a, *const *right = b;
    return compare_text((*left)->key, (*right)->key);
}

static int compare_tensors(const void *a, const void *b)
{
    const struct tcq_gguf_tensor *const *left = a, *const *right = b;
    return compare_text((*left)->name, (*right)->name);
}

static int compare_offsets(const void *a, const void *b)
{
    const struct tcq_gguf_tensor *const *left = a, *const *right = b;
    return ((*left)->offset > (*right)->offset) - ((*left)->offset < (*right)->offset);
}

static enum tcq_status index_entries(struct tcq_gguf *gguf, struct tcq_gguf_cursor *cursor)
{
    for (size_t i = 0; i < gguf->entry_count; i++)
        gguf->entries_by_key[i] = &gguf->entries[i];
    qsort(gguf->entries_by_key, gguf->entry_count, sizeof *gguf->entries_by_key, compare_entries);
    for (size_t i = 1; i < gguf->entry_count; i++) {
        struct tcq_gguf_text key = gguf->entries_by_key[i]->key;
        if (compare_text(gguf->entries_by_key[i - 1]->key, key) == 0)
            return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                                 "%s: metadata '%.*s' is given twice", cursor->label,
                                 tcq_gguf_shown(key), key.bytes);
    }
    return TCQ_OK;
}

/* Also orders by offset first, to find overlaps, in the same array. */
static enum tcq_status check_overlaps(struct tcq_gguf *gguf, struct tcq_gguf_cursor *cursor)
{
    const struct tcq_gguf_tensor **order = gguf->tensors_by_name;
    for (size_t i = 0; i < gguf->tensor_count; i++)
        order[i] = &gguf->tensors[i];
    qsort(order, gguf->tensor_count, sizeof *order, compare_offsets);
    for (size_t i = 1; i < gguf->tensor_count; i++) {
        const struct tcq_gguf_tensor *before = order[i - 1], *tensor = order[i];
        if (before->offset + before->nbytes > tensor->offset)
            return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                                 "%s: tensor '%.*s': offset %" PRIu64
                                 " overlaps tensor '%.*s', which ends at %" PRIu64,
                                 cursor->label, tcq_gguf_shown(tensor->name), tensor->name.bytes,
                                 tensor->offset, tcq_gguf_shown(before->name), before->name.bytes,
                                 before->offset + before->nbytes);
    }
    return TCQ_OK;
}

static enum tcq_status index_tensors(struct tcq_gguf *gguf, struct tcq_gguf_cursor *cursor)
{
    qsort(gguf->tensors_by_name, gguf->tensor_count, sizeof *gguf->tensors_by_name,
          compare_tensors);
    for (size_t i = 1; i < gguf->tensor_count; i++) {
        const struct tcq_gguf_tensor *tensor = gguf->tensors_by_name[i];
        if (compare_text(gguf->tensors_by_name[i - 1]->name, tensor->name) == 0)
            return tcq_gguf_tensor_error(cursor, tensor, TCQ_ERROR_FORMAT, "is given twice");
    }
    return TCQ_OK;
}

static enum tcq_status read_alignment(struct tcq_gguf *gguf, struct tcq_gguf_cursor *cursor)
{
    const struct tcq_gguf_value *value = tcq_gguf_find(gguf, "general.alignment");
    gguf->alignment = ALIGNMENT_DEFAULT;
    if (value == NULL)
        return TCQ_OK;
    if (value->type != TCQ_GGUF_VALUE_U32)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: general.alignment has value type %d (4, uint32, expected)",
                             cursor->label, (int)value->type);
    uint64_t alignment = value->as.u;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: general.alignment is %" PRIu64 " (a power of two expected)",
                             cursor->label, alignment);
    gguf->alignment = (uint32_t)alignment;
    return TCQ_OK;
}

/* Sets each tensor's data; offsets count from the aligned end of the infos. */
static enum tcq_status place_tensors(struct tcq_gguf *gguf, struct tcq_gguf_cursor *cursor)
{
    uint64_t mask = gguf->alignment - 1;
    uint64_t start = ((uint64_t)cursor->at + mask) & ~mask;
    uint64_t left = start < cursor->nbytes ? cursor->nbytes - start : 0;
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        struct tcq_gguf_tensor *tensor = &gguf->tensors[i];
        if ((tensor->offset & mask) != 0)
            return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                                 "%s: tensor '%.*s': offset %" PRIu64
                                 " is no multiple of the alignment %" PRIu32,
                                 cursor->label, tcq_gguf_shown(tensor->name), tensor->name.bytes,
                                 tensor->offset, gguf->alignment);
        if (tensor->offset > left || tensor->nbytes > left - tensor->offset)
            return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                                 "%s: truncated: tensor '%.*s': %" PRIu64
                                 " bytes at offset %" PRIu64 " pass the end of the data (%" PRIu64
                                 " bytes)",
                                 cursor->label, tcq_gguf_shown(tensor->name), tensor->name.bytes,
                                 tensor->nbytes, tensor->offset, left);
        tensor->data = cursor->data + start + tensor->offset;
    }
    return TCQ_OK;
}

/* ------------------------------------------------------------------------ */
/* Header and parsing                                                        */
/* ------------------------------------------------------------------------ */

/* What a file without the magic "GGUF" is, as far as its first bytes tell. */
static enum tcq_status refuse_magic(struct tcq_gguf_cursor *cursor)
{
    static const char lfs[] = "version https://git-lfs";
    size_t compared = cursor->nbytes < sizeof lfs - 1 ? cursor->nbytes : sizeof lfs - 1;
    if (cursor->nbytes == 0)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT, "%s: empty file", cursor->label);
    if (compared > 4 && memcmp(cursor->data, lfs, compared) == 0)
        return tcq_error_set(cursor->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: a Git LFS pointer, not the model itself: fetch it with "
                             "'git lfs pull'",
                             cursor->label);
    if (cursor->nbytes < 4 && memcmp(cursor->data, "GGUF", cursor->nbytes) == 0)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: truncated: a GGUF file of %zu bytes (at least 24 expected)",
                             cursor->label, cursor->nbytes);
    return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                         "%s: not a GGUF file (it does not begin with 'GGUF')", cursor->label);
}

static enum tcq_status take_version(struct tcq_gguf_cursor *cursor, uint32_t *out)
{
    uint32_t version;
    if (cursor->nbytes < 4 || memcmp(cursor->data, "GGUF", 4) != 0)
        return refuse_magic(cursor);
    cursor->at = 4;
    enum tcq_status status = tcq_gguf_take_u32(cursor, "the version", &version);
    if (status != TCQ_OK)
        return status;
    if ((version & 0xffffu) == 0 && version != 0)
        return tcq_error_set(cursor->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: a big-endian GGUF file (little-endian expected)", cursor->label);
    if (version != 2 && version != 3)
        return tcq_error_set(cursor->error, TCQ_ERROR_UNSUPPORTED,
                             "%s: GGUF version %" PRIu32 " (2 or 3 expected)", cursor->label,
                             version);
    *out = version;
    return TCQ_OK;
}

static enum tcq_status take_count(struct tcq_gguf_cursor *cursor, const char *what,
                                  size_t nbytes_min, size_t *out)
{
    uint64_t count;
    enum tcq_status status = tcq_gguf_take_u64(cursor, what, &count);
    if (status != TCQ_OK)
        return status;
    size_t left = cursor->nbytes - cursor->at;
    if (count > left / nbytes_min)
        return tcq_error_set(cursor->error, TCQ_ERROR_FORMAT,
                             "%s: truncated: %s is %" PRIu64
                             ", more than the %zu bytes that follow can hold",
                             cursor->label, what, count, left);
    *out = (size_t)count;
    return TCQ_OK;
}

static enum tcq_status allocate_tables(struct tcq_gguf *gguf, struct tcq_error *error)
{
    gguf->entries = tcq_alloc(gguf->entry_count, sizeof *gguf->entries);
    gguf->entries_by_key = tcq_alloc(gguf->entry_count, sizeof *gguf->entries_by_key);
    gguf->tensors = tcq_alloc(gguf->tensor_count, sizeof *gguf->tensors);
    gguf->tensors_by_name = tcq_alloc(gguf->tensor_count, sizeof *gguf->tensors_by_name);
    if (!gguf->entries || !gguf->entries_by_key || !gguf->tensors || !gguf->tensors_by_name)
        return tcq_error_set(error, TCQ_ERROR_MEMORY,
                             "%s: out of memory for %zu metadata entries and %zu tensors",
                             gguf->label, gguf->entry_count, gguf->tensor_count);
    return TCQ_OK;
}

static enum tcq_status parse(struct tcq_gguf *gguf, struct tcq_gguf_cursor *cursor)
{
    enum tcq_status status = take_version(cursor, &gguf->version);
    if (status == TCQ_OK)
        status =
            take_count(cursor, "the tensor count", TCQ_GGUF_TENSOR_NBYTES_MIN, &gguf->tensor_count);
    if (status == TCQ_OK)
        status =
            take_count(cursor, "the metadata count", TCQ_GGUF_ENTRY_NBYTES_MIN, &gguf->entry_count);
    if (status == TCQ_OK)
        status = allocate_tables(gguf, cursor->error);
    for (size_t i = 0; i < gguf->entry_count && status == TCQ_OK; i++)
        status = tcq_gguf_take_entry(cursor, &gguf->entries[i]);
    for (size_t i = 0; i < gguf->tensor_count && status == TCQ_OK; i++)
        status = tcq_gguf_take_tensor(cursor, &gguf->tensors[i]);
    if (status == TCQ_OK)
        status = index_entries(gguf, cursor);
    if (status == TCQ_OK)
        status = read_alignment(gguf, cursor);
    if (status == TCQ_OK)
        status = place_tensors(gguf, cursor);
    if (status == TCQ_OK)
        status = check_overlaps(gguf, cursor);
    return status == TCQ_OK ? index_tensors(gguf, cursor) : status;
}

enum tcq_status tcq_gguf_parse(const uint8_t *data, size_t nbytes, const char *label,
                               struct tcq_gguf **out, struct tcq_error *error)
{
    struct tcq_gguf_cursor cursor = {
        .data = data, .nbytes = nbytes, .label = label, .error = error};
    struct tcq_gguf *gguf = tcq_alloc(1, sizeof *gguf);
    if (gguf == NULL || (gguf->label = tcq_strdup(label)) == NULL) {
        tcq_gguf_destroy(gguf);
        return tcq_error_memory(error, sizeof *gguf, "a GGUF file's table");
    }
    enum tcq_status status = parse(gguf, &cursor);
    if (status == TCQ_OK)
        *out = gguf;
    else
        tcq_gguf_destroy(gguf);
    return status;
}

void tcq_gguf_destroy(struct tcq_gguf *gguf)
{
    if (gguf == NULL)
        return;
    tcq_free(gguf->label);
    tcq_free(gguf->entries);
    tcq_free(gguf->tensors);
    tcq_free(gguf->entries_by_key);
    tcq_free(gguf->tensors_by_name);
    tcq_free(gguf);
}

/* ------------------------------------------------------------------------ */
/* Access                                                                    */
/* ------------------------------------------------------------------------ */

const char *tcq_gguf_label(const struct tcq_gguf *gguf)
{
    return gguf->label;
}

uint32_t tcq_gguf_version(const struct tcq_gguf *gguf)
{
    return gguf->version;
}

uint32_t tcq_gguf_alignment(const struct tcq_gguf *gguf)
{
    return gguf->alignment;
}

size_t tcq_gguf_entry_count(const struct tcq_gguf *gguf)
{
    return gguf->entry_count;
}

const struct tcq_gguf_entry *tcq_gguf_entry_get(const struct tcq_gguf *gguf, size_t i)
{
    return i < gguf->entry_count ? &gguf->entries[i] : NULL;
}

size_t tcq_gguf_tensor_count(const struct tcq_gguf *gguf)
{
    return gguf->tensor_count;
}

const struct tcq_gguf_tensor *tcq_gguf_tensor_get(const struct tcq_gguf *gguf, size_t i)
{
    return i < gguf->tensor_count ? &gguf->tensors[i] : NULL;
}

const struct tcq_gguf_value *tcq_gguf_find(const struct tcq_gguf *gguf, const char *key)
{
    struct tcq_gguf_entry wanted = {.key = {key, strlen(key)}};
    const struct tcq_gguf_entry *pointer = &wanted;
    const struct tcq_gguf_entry **found = bsearch(&pointer, gguf->entries_by_key, gguf->entry_count,
                                                  sizeof *gguf->entries_by_key, compare_entries);
    return found != NULL ? &(*found)->value : NULL;
}

const struct tcq_gguf_tensor *tcq_gguf_tensor_find(const struct tcq_gguf *gguf, const char *name)
{
    struct tcq_gguf_tensor wanted = {.name = {name, strlen(name)}};
    const struct tcq_gguf_tensor *pointer = &wanted;
    const struct tcq_gguf_tensor **found =
        bsearch(&pointer, gguf->tensors_by_name, gguf->tensor_count, sizeof *gguf->tensors_by_name,
                compare_tensors);
    return found != NULL ? *found : NULL;
}

bool tcq_gguf_text_equal(struct tcq_gguf_text text, const char *other)
{
    return compare_text(text, (struct tcq_gguf_text){other, strlen(other)}) == 0;
}
