/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Viterbi search over the text's characters.  Ties and roundings follow
 * SentencePiece: sums are floats, and of equal ones the first found stays, which
 * is the one with the longest last token.
 */
#include "model/unigram.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/utf8.h"

void tcq_unigram_work_free(struct tcq_unigram_work *work)
{
    tcq_free(work->ends);
    *work = (struct tcq_unigram_work){0};
}

static void offer(struct tcq_unigram_end *end, float score, size_t begin, uint32_t id)
{
    if (end->begin == TCQ_NO_TOKEN || score > end->score)
        *end = (struct tcq_unigram_end){score, (uint32_t)begin, id};
}

/* Every token that starts at `at`; a character that is no token counts as one
 * that is ten worse than the worst of them. */
static void extend(const struct tcq_bpe *bpe, struct tcq_unigram_end *ends, const char *text,
                   size_t nbytes, size_t at)
{
    const struct tcq_vocabulary *vocabulary = &bpe->vocabulary;
    float before = ends[at].score;
    size_t first = tcq_utf8_length((uint8_t)text[at]);
    size_t most = nbytes - at < bpe->longest ? nbytes - at : bpe->longest;
    bool single = false;
    for (size_t length = first; length <= most;) {
        uint32_t id = tcq_vocabulary_find(vocabulary, text + at, length);
        if (id != TCQ_NO_TOKEN) {
            offer(&ends[at + length], before + vocabulary->tokens[id].score, at, id);
            single = single || length == first;
        }
        if (at + length == nbytes)
            break;
        length += tcq_utf8_length((uint8_t)text[at + length]);
    }
    if (!single)
        offer(&ends[at + first], before + (bpe->least_score - 10.0f), at, TCQ_NO_TOKEN);
}

/* Turn the chain of last tokens round, so that it is read from the start: the
 * entry at each token's first byte then says where it ends. */
static void reverse(struct tcq_unigram_end *ends, size_t nbytes)
{
    uint32_t end = (uint32_t)nbytes;
    struct tcq_unigram_end last = ends[end];
    for (;;) {
        uint32_t begin = last.begin;
        struct tcq_unigram_end before = ends[begin];
        ends[begin] = (struct tcq_unigram_end){0, end, last.id};
        if (begin == 0)
            return;
        end = begin;
        last = before;
    }
}

static bool emit(const struct tcq_bpe *bpe, const struct tcq_unigram_end *ends,
                 struct tcq_ids *out, const char *text, size_t nbytes)
{
    bool unknown = false;
    for (size_t at = 0; at < nbytes; at = ends[at].begin) {
        bool ok;
        if (ends[at].id == TCQ_NO_TOKEN) {
            ok = tcq_bpe_emit_unknown(bpe, out, text + at, ends[at].begin - at, unknown, &unknown);
        } else {
            ok = tcq_ids_append(out, ends[at].id);
            unknown = false;
        }
        if (!ok)
            return false;
    }
    return true;
}

enum tcq_status tcq_unigram_encode(const struct tcq_bpe *bpe, struct tcq_unigram_work *work,
                                   struct tcq_ids *out, const char *text, size_t nbytes,
                                   struct tcq_error *error)
{
    if (nbytes == 0)
        return TCQ_OK;
    if (nbytes >= INT32_MAX)
        return tcq_error_set(error, TCQ_ERROR_VALUE, "a text of %zu bytes: at most %d", nbytes,
                             INT32_MAX - 1);
    void *array = work->ends;
    size_t before = out->count;
    if (tcq_array_reserve(&array, &work->capacity, nbytes + 1, sizeof *work->ends)) {
        work->ends = array;
        for (size_t i = 0; i <= nbytes; i++)
            work->ends[i].begin = TCQ_NO_TOKEN;
        work->ends[0].score = 0;
        for (size_t at = 0; at < nbytes; at += tcq_utf8_length((uint8_t)text[at]))
            extend(bpe, work->ends, text, nbytes, at);
        reverse(work->ends, nbytes);
        if (emit(bpe, work->ends, out, text, nbytes))
            return TCQ_OK;
    }
    out->count = before;
    return tcq_error_memory(error, nbytes * sizeof *work->ends, "the tokens of a text");
}
