/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer's tokens: the bytes each stands for, and a hash table from bytes
 * to id.  Bytes are those of the text itself (byte-level alphabets are
 * translated when a tokenizer is loaded), so encoding never leaves them.
 */
#ifndef TCQ_MODEL_VOCABULARY_H
#define TCQ_MODEL_VOCABULARY_H

#include "model/bytes.h"
#include "tcq.h"

#define TCQ_NO_TOKEN UINT32_MAX
/* More than any known vocabulary (about 262,000), so that a hostile id cannot
 * ask for gigabytes. */
#define TCQ_VOCABULARY_MAX (1u << 22)

struct tcq_token {
    size_t offset;   /* into bytes */
    uint32_t nbytes;
    bool present;
    bool searchable; /* can result from encoding plain text */
    float score;     /* SentencePiece models only */
};

struct tcq_vocabulary {
    struct tcq_token *tokens;
    size_t token_capacity;
    uint32_t count; /* one more than the largest id */
    struct tcq_bytes bytes;
    uint32_t *slots; /* id + 1, or 0 */
    size_t slot_count;
};

/* Set token `id`.  Errors: FORMAT for an id at TCQ_VOCABULARY_MAX or above, or
 * one that is set already to other bytes; MEMORY. */
enum tcq_status tcq_vocabulary_set(struct tcq_vocabulary *vocabulary, uint32_t id,
                                   const char *bytes, size_t nbytes, bool searchable,
                                   struct tcq_error *error);
/* Build the hash table over the searchable tokens, once all are set. */
enum tcq_status tcq_vocabulary_index(struct tcq_vocabulary *vocabulary, struct tcq_error *error);
/* The id of a searchable token (the least, if several share their bytes), or
 * TCQ_NO_TOKEN. */
uint32_t tcq_vocabulary_find(const struct tcq_vocabulary *vocabulary, const char *bytes,
                             size_t nbytes);
const char *tcq_vocabulary_bytes(const struct tcq_vocabulary *vocabulary, uint32_t id);
void tcq_vocabulary_free(struct tcq_vocabulary *vocabulary);

/* FNV-1a folded once more; good enough for tables that no attacker can flood
 * beyond the size of the file that he supplies. */
uint64_t tcq_hash_bytes(const char *bytes, size_t nbytes);

#endif
