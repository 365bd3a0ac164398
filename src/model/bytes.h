/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing arrays of bytes and of token ids.  Zero-initialised they are empty;
 * a failed append leaves them as they were.
 */
#ifndef TCQ_MODEL_BYTES_H
#define TCQ_MODEL_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tcq_bytes {
    char *data;
    size_t count, capacity;
};

bool tcq_bytes_append(struct tcq_bytes *bytes, const void *data, size_t nbytes);
bool tcq_bytes_append_text(struct tcq_bytes *bytes, const char *text);
void tcq_bytes_free(struct tcq_bytes *bytes);

struct tcq_ids {
    uint32_t *data;
    size_t count, capacity;
};

bool tcq_ids_append(struct tcq_ids *ids, uint32_t id);
void tcq_ids_free(struct tcq_ids *ids);

/* Makes *array, of elements of `size` bytes, hold at least `needed`; false when
 * memory runs out. */
bool tcq_array_reserve(void **array, size_t *capacity, size_t needed, size_t size);

#endif
