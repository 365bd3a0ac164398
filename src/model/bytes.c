/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing arrays: capacity doubles, so that n appends cost O(n).
 */
#include "model/bytes.h"

#include <string.h>

#include "base/memory.h"

enum { FIRST_CAPACITY = 64 };

bool tcq_array_reserve(void **array, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    size_t larger = *capacity ? *capacity : FIRST_CAPACITY;
    while (larger < needed && !__builtin_mul_overflow(larger, (size_t)2, &larger))
        ;
    if (larger < needed)
        return false;
    void *moved = tcq_realloc(*array, *capacity, larger, size);
    if (!moved)
        return false;
    *array = moved;
    *capacity = larger;
    return true;
}

bool tcq_bytes_append(struct tcq_bytes *bytes, const void *data, size_t nbytes)
{
    size_t needed;
    void *array = bytes->data;
    if (!tcq_add_size(bytes->count, nbytes, &needed) ||
        !tcq_array_reserve(&array, &bytes->capacity, needed, 1))
        return false;
    bytes->data = array;
    if (nbytes)
        memcpy(bytes->data + bytes->count, data, nbytes);
    bytes->count = needed;
    return true;
}

bool tcq_bytes_append_text(struct tcq_bytes *bytes, const char *text)
{
    return tcq_bytes_append(bytes, text, strlen(text));
}

void tcq_bytes_free(struct tcq_bytes *bytes)
{
    tcq_free(bytes->data);
    *bytes = (struct tcq_bytes){0};
}

bool tcq_ids_append(struct tcq_ids *ids, uint32_t id)
{
    void *array = ids->data;
    if (!tcq_array_reserve(&array, &ids->capacity, ids->count + 1, sizeof *ids->data))
        return false;
    ids->data = array;
    ids->data[ids->count++] = id;
    return true;
}

void tcq_ids_free(struct tcq_ids *ids)
{
    tcq_free(ids->data);
    *ids = (struct tcq_ids){0};
}
