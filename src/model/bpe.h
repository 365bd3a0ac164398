/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair encoding of one word: the cheapest merge is applied, leftmost
 * first among equals, until none is left.  Two kinds of model share the loop:
 * a list of merges (rank = place in the list), and SentencePiece's, where any
 * two neighbours may merge whose joined bytes are a token (rank = its score,
 * the highest first).
 */
#ifndef TCQ_MODEL_BPE_H
#define TCQ_MODEL_BPE_H

#include "model/bytes.h"
#include "model/vocabulary.h"

/* Merges by pair of ids: open addressing, at most half full. */
struct tcq_merge {
    uint32_t left, right; /* left == TCQ_NO_TOKEN: empty slot */
    uint32_t rank, id;
};

struct tcq_bpe {
    struct tcq_vocabulary vocabulary;
    struct tcq_merge *merges;
    size_t merge_slots;  /* 0: a SentencePiece model */
    bool sentencepiece;
    bool unigram;        /* SentencePiece's other model, which is in unigram.h */
    float least_score;   /* unigram: of all tokens that text can give */
    uint32_t longest;    /* unigram: bytes of the longest of them */
    bool byte_level;     /* words start as single bytes, not as characters */
    bool ignore_merges;  /* a word that is a token stays whole */
    bool fuse_unknown;
    uint32_t unknown;    /* id, or TCQ_NO_TOKEN: what is not known is dropped */
    uint32_t bytes[256]; /* token of each single byte, or TCQ_NO_TOKEN */
};

/* Room for the merges of a list of `count`. */
enum tcq_status tcq_bpe_merges_create(struct tcq_bpe *bpe, size_t count, struct tcq_error *error);
/* Merge number `rank` joins two tokens; of two equal pairs the later counts.
 * Errors: FORMAT if one of the three is not in the (indexed) vocabulary. */
enum tcq_status tcq_bpe_merges_add(struct tcq_bpe *bpe, uint32_t rank, const char *left,
                                   size_t left_nbytes, const char *right, size_t right_nbytes,
                                   struct tcq_error *error);
void tcq_bpe_free(struct tcq_bpe *bpe);

struct tcq_symbol {
    uint32_t begin, nbytes; /* of the word; nbytes 0: merged away */
    uint32_t previous, next;
    uint32_t id;            /* TCQ_NO_TOKEN: not a token */
};

struct tcq_candidate {
    uint32_t rank, left;    /* symbol on the left */
    uint32_t nbytes;        /* of both symbols, to recognise stale ones */
    uint32_t id;
};

/* Scratch space of one caller; zero-initialised, reused from word to word. */
struct tcq_bpe_work {
    struct tcq_symbol *symbols;
    size_t symbol_capacity;
    struct tcq_candidate *heap;
    size_t heap_count, heap_capacity;
};

void tcq_bpe_work_free(struct tcq_bpe_work *work);

/* What stands for bytes that are no token: tokens of single bytes, else <unk>
 * (one for several in a row where *is_unknown, the result for what came
 * before, is passed as after_unknown), else nothing.  False: no memory. */
bool tcq_bpe_emit_unknown(const struct tcq_bpe *bpe, struct tcq_ids *out, const char *bytes,
                          size_t nbytes, bool after_unknown, bool *is_unknown);

/* Append the tokens of a word of valid UTF-8.  Errors: VALUE (longer than
 * 2^31 bytes), MEMORY. */
enum tcq_status tcq_bpe_encode(const struct tcq_bpe *bpe, struct tcq_bpe_work *work,
                               struct tcq_ids *out, const char *word, size_t nbytes,
                               struct tcq_error *error);

#endif
