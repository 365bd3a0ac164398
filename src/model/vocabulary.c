/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens and their hash table: open addressing with linear probing, at most
 * half full.
 */
#include "model/vocabulary.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

uint64_t tcq_hash_bytes(const char *bytes, size_t nbytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < nbytes; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

const char *tcq_vocabulary_bytes(const struct tcq_vocabulary *vocabulary, uint32_t id)
{
    /* Without a single byte there is no array to point into. */
    return vocabulary->bytes.data ? vocabulary->bytes.data + vocabulary->tokens[id].offset : "";
}

static bool same_bytes(const struct tcq_vocabulary *vocabulary, uint32_t id, const char *bytes,
                       size_t nbytes)
{
    return vocabulary->tokens[id].nbytes == nbytes &&
           (nbytes == 0 || memcmp(tcq_vocabulary_bytes(vocabulary, id), bytes, nbytes) == 0);
}

enum tcq_status tcq_vocabulary_set(struct tcq_vocabulary *vocabulary, uint32_t id,
                                   const char *bytes, size_t nbytes, bool searchable,
                                   struct tcq_error *error)
{
    if (id >= TCQ_VOCABULARY_MAX || nbytes > UINT32_MAX)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "token id %u: expected less than %u", id,
                             TCQ_VOCABULARY_MAX);
    if (id < vocabulary->count && vocabulary->tokens[id].present) {
        if (same_bytes(vocabulary, id, bytes, nbytes))
            return TCQ_OK;
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "token id %u is given to two tokens", id);
    }
    void *array = vocabulary->tokens;
    size_t offset = vocabulary->bytes.count;
    if (!tcq_array_reserve(&array, &vocabulary->token_capacity, (size_t)id + 1,
                           sizeof *vocabulary->tokens))
        return tcq_error_memory(error, (size_t)id * sizeof *vocabulary->tokens, "tokens");
    vocabulary->tokens = array;
    if (!tcq_bytes_append(&vocabulary->bytes, bytes, nbytes))
        return tcq_error_memory(error, nbytes, "a token");
    vocabulary->tokens[id] = (struct tcq_token){offset, (uint32_t)nbytes, true, searchable, 0};
    if (id >= vocabulary->count)
        vocabulary->count = id + 1;
    return TCQ_OK;
}

enum tcq_status tcq_vocabulary_index(struct tcq_vocabulary *vocabulary, struct tcq_error *error)
{
    size_t slots = 16;
    while (slots < (size_t)vocabulary->count * 2)
        slots *= 2;
    vocabulary->slots = tcq_alloc(slots, sizeof *vocabulary->slots);
    if (!vocabulary->slots)
        return tcq_error_memory(error, slots * sizeof *vocabulary->slots, "the vocabulary's index");
    vocabulary->slot_count = slots;
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        const struct tcq_token *token = &vocabulary->tokens[id];
        if (!token->present || !token->searchable)
            continue;
        const char *bytes = tcq_vocabulary_bytes(vocabulary, id);
        size_t slot = tcq_hash_bytes(bytes, token->nbytes) & (slots - 1);
        while (vocabulary->slots[slot] &&
               !same_bytes(vocabulary, vocabulary->slots[slot] - 1, bytes, token->nbytes))
            slot = (slot + 1) & (slots - 1);
        if (!vocabulary->slots[slot])
            vocabulary->slots[slot] = id + 1;
    }
    return TCQ_OK;
}

uint32_t tcq_vocabulary_find(const struct tcq_vocabulary *vocabulary, const char *bytes,
                             size_t nbytes)
{
    size_t mask = vocabulary->slot_count - 1;
    size_t slot = tcq_hash_bytes(bytes, nbytes) & mask;
    for (; vocabulary->slots[slot]; slot = (slot + 1) & mask)
        if (same_bytes(vocabulary, vocabulary->slots[slot] - 1, bytes, nbytes))
            return vocabulary->slots[slot] - 1;
    return TCQ_NO_TOKEN;
}

void tcq_vocabulary_free(struct tcq_vocabulary *vocabulary)
{
    tcq_free(vocabulary->tokens);
    tcq_free(vocabulary->slots);
    tcq_bytes_free(&vocabulary->bytes);
    *vocabulary = (struct tcq_vocabulary){0};
}
