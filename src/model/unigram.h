/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece's unigram model: of all ways to cut a text into tokens, the one
 * whose scores (logarithms of probabilities) have the largest sum.  The
 * vocabulary and its fallbacks are those of struct tcq_bpe.
 */
#ifndef TCQ_MODEL_UNIGRAM_H
#define TCQ_MODEL_UNIGRAM_H

#include "model/bpe.h"

/* Where the best cut of the text up to some byte has its last token. */
struct tcq_unigram_end {
    float score;
    uint32_t begin; /* TCQ_NO_TOKEN: not reached */
    uint32_t id;    /* TCQ_NO_TOKEN: a character that is no token */
};

struct tcq_unigram_work {
    struct tcq_unigram_end *ends;
    size_t capacity;
};

void tcq_unigram_work_free(struct tcq_unigram_work *work);

/* Append the tokens of valid UTF-8.  Errors: VALUE (2^31 bytes or more), MEMORY. */
enum tcq_status tcq_unigram_encode(const struct tcq_bpe *bpe, struct tcq_unigram_work *work,
                                   struct tcq_ids *out, const char *text, size_t nbytes,
                                   struct tcq_error *error);

#endif
