/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The merge loop: symbols in a linked list, candidate pairs in a binary heap.
 * A candidate whose left symbol has changed since is recognised by its length
 * and skipped, so nothing is ever removed from the middle of the heap.
 */
#include "model/bpe.h"

#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "model/utf8.h"

enum { NO_SYMBOL = INT32_MAX };

static size_t pair_hash(uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (size_t)(key ^ key >> 32);
}

enum tcq_status tcq_bpe_merges_create(struct tcq_bpe *bpe, size_t count, struct tcq_error *error)
{
    size_t slots = 16;
    while (slots / 2 < count)
        slots *= 2;
    bpe->merges = tcq_alloc(slots, sizeof *bpe->merges);
    if (!bpe->merges)
        return tcq_error_memory(error, slots * sizeof *bpe->merges, "merges");
    bpe->merge_slots = slots;
    for (size_t i = 0; i < slots; i++)
        bpe->merges[i].left = TCQ_NO_TOKEN;
    return TCQ_OK;
}

static struct tcq_merge *merge_slot(const struct tcq_bpe *bpe, uint32_t left, uint32_t right)
{
    size_t mask = bpe->merge_slots - 1, slot = pair_hash(left, right) & mask;
    while (bpe->merges[slot].left != TCQ_NO_TOKEN &&
           (bpe->merges[slot].left != left || bpe->merges[slot].right != right))
        slot = (slot + 1) & mask;
    return &bpe->merges[slot];
}

enum tcq_status tcq_bpe_merges_add(struct tcq_bpe *bpe, uint32_t rank, const char *left,
                                   size_t left_nbytes, const char *right, size_t right_nbytes,
                                   struct tcq_error *error)
{
    const struct tcq_vocabulary *vocabulary = &bpe->vocabulary;
    struct tcq_bytes joined = {0};
    if (!tcq_bytes_append(&joined, left, left_nbytes) ||
        !tcq_bytes_append(&joined, right, right_nbytes)) {
        tcq_bytes_free(&joined);
        return tcq_error_memory(error, left_nbytes + right_nbytes, "a merge");
    }
    uint32_t a = tcq_vocabulary_find(vocabulary, left, left_nbytes);
    uint32_t b = tcq_vocabulary_find(vocabulary, right, right_nbytes);
    uint32_t both = tcq_vocabulary_find(vocabulary, joined.data, joined.count);
    tcq_bytes_free(&joined);
    if (a == TCQ_NO_TOKEN || b == TCQ_NO_TOKEN || both == TCQ_NO_TOKEN)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "merge %u: %s is not in the vocabulary", rank,
                             a == TCQ_NO_TOKEN   ? "its left side"
                             : b == TCQ_NO_TOKEN ? "its right side"
                                                 : "its result");
    *merge_slot(bpe, a, b) = (struct tcq_merge){a, b, rank, both};
    return TCQ_OK;
}

void tcq_bpe_free(struct tcq_bpe *bpe)
{
    tcq_vocabulary_free(&bpe->vocabulary);
    tcq_free(bpe->merges);
    *bpe = (struct tcq_bpe){0};
}

void tcq_bpe_work_free(struct tcq_bpe_work *work)
{
    tcq_free(work->symbols);
    tcq_free(work->heap);
    *work = (struct tcq_bpe_work){0};
}

/* Unsigned order of the result: highest score first. */
static uint32_t score_rank(float score)
{
    uint32_t bits = tcq_float_bits(score);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

static bool candidate_before(const struct tcq_candidate *a, const struct tcq_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static bool heap_push(struct tcq_bpe_work *work, struct tcq_candidate candidate)
{
    void *array = work->heap;
    if (!tcq_array_reserve(&array, &work->heap_capacity, work->heap_count + 1, sizeof *work->heap))
        return false;
    work->heap = array;
    size_t i = work->heap_count++;
    while (i > 0 && candidate_before(&candidate, &work->heap[(i - 1) / 2])) {
        work->heap[i] = work->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    work->heap[i] = candidate;
    return true;
}

static struct tcq_candidate heap_pop(struct tcq_bpe_work *work)
{
    struct tcq_candidate top = work->heap[0], last = work->heap[--work->heap_count];
    size_t i = 0, n = work->heap_count;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && candidate_before(&work->heap[child + 1], &work->heap[child]))
            child++;
        if (!candidate_before(&work->heap[child], &last))
            break;
        work->heap[i] = work->heap[child];
        i = child;
    }
    work->heap[i] = last;
    return top;
}

/* Offer the pair that starts at symbol `left`, if it merges at all. */
static bool offer(const struct tcq_bpe *bpe, struct tcq_bpe_work *work, const char *word,
                  uint32_t left)
{
    if (left == NO_SYMBOL || work->symbols[left].next == NO_SYMBOL)
        return true;
    const struct tcq_symbol *a = &work->symbols[left], *b = &work->symbols[a->next];
    struct tcq_candidate candidate = {0, left, a->nbytes + b->nbytes, TCQ_NO_TOKEN};
    if (bpe->sentencepiece) {
        candidate.id = tcq_vocabulary_find(&bpe->vocabulary, word + a->begin, candidate.nbytes);
        if (candidate.id != TCQ_NO_TOKEN)
            candidate.rank = score_rank(bpe->vocabulary.tokens[candidate.id].score);
    } else if (a->id != TCQ_NO_TOKEN && b->id != TCQ_NO_TOKEN) {
        const struct tcq_merge *merge = merge_slot(bpe, a->id, b->id);
        if (merge->left != TCQ_NO_TOKEN) {
            candidate.id = merge->id;
            candidate.rank = merge->rank;
        }
    }
    return candidate.id == TCQ_NO_TOKEN || heap_push(work, candidate);
}

/* Cut the word into single bytes or characters; returns how many. */
static uint32_t split_word(const struct tcq_bpe *bpe, struct tcq_bpe_work *work, const char *word,
                           size_t nbytes)
{
    uint32_t count = 0;
    for (size_t at = 0; at < nbytes;) {
        uint8_t byte = (uint8_t)word[at];
        size_t length = bpe->byte_level ? 1 : tcq_utf8_length(byte);
        if (length == 0 || length > nbytes - at)
            length = 1;
        uint32_t id = bpe->byte_level ? bpe->bytes[byte]
                                      : tcq_vocabulary_find(&bpe->vocabulary, word + at, length);
        /* A byte-level vocabulary without this byte and without <unk> drops it. */
        if (id != TCQ_NO_TOKEN || !bpe->byte_level || bpe->unknown != TCQ_NO_TOKEN) {
            work->symbols[count] = (struct tcq_symbol){(uint32_t)at, (uint32_t)length, count - 1,
                                                       count + 1, id};
            count++;
        }
        at += length;
    }
    if (count) {
        work->symbols[0].previous = NO_SYMBOL;
        work->symbols[count - 1].next = NO_SYMBOL;
    }
    return count;
}

static bool merge_all(const struct tcq_bpe *bpe, struct tcq_bpe_work *work, const char *word,
                      uint32_t count)
{
    work->heap_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!offer(bpe, work, word, i))
            return false;
    while (work->heap_count) {
        struct tcq_candidate best = heap_pop(work);
        struct tcq_symbol *a = &work->symbols[best.left];
        if (a->nbytes == 0 || a->next == NO_SYMBOL)
            continue;
        struct tcq_symbol *b = &work->symbols[a->next];
        if (a->nbytes + b->nbytes != best.nbytes)
            continue;
        a->nbytes = best.nbytes;
        a->id = best.id;
        a->next = b->next;
        b->nbytes = 0;
        if (a->next != NO_SYMBOL)
            work->symbols[a->next].previous = best.left;
        if (!offer(bpe, work, word, best.left) || !offer(bpe, work, word, a->previous))
            return false;
    }
    return true;
}

bool tcq_bpe_emit_unknown(const struct tcq_bpe *bpe, struct tcq_ids *out, const char *bytes,
                          size_t nbytes, bool after_unknown, bool *is_unknown)
{
    bool all = true;
    for (size_t i = 0; i < nbytes; i++)
        all = all && bpe->bytes[(uint8_t)bytes[i]] != TCQ_NO_TOKEN;
    *is_unknown = !all;
    if (!all)
        return bpe->unknown == TCQ_NO_TOKEN || (after_unknown && bpe->fuse_unknown) ||
               tcq_ids_append(out, bpe->unknown);
    for (size_t i = 0; i < nbytes; i++)
        if (!tcq_ids_append(out, bpe->bytes[(uint8_t)bytes[i]]))
            return false;
    return true;
}

static bool emit(const struct tcq_bpe *bpe, const struct tcq_bpe_work *work, struct tcq_ids *out,
                 const char *word, uint32_t count)
{
    bool unknown = false;
    for (uint32_t i = count ? 0 : NO_SYMBOL; i != NO_SYMBOL; i = work->symbols[i].next) {
        const struct tcq_symbol *symbol = &work->symbols[i];
        bool ok = true;
        if (symbol->id == TCQ_NO_TOKEN) {
            ok = tcq_bpe_emit_unknown(bpe, out, word + symbol->begin, symbol->nbytes, unknown,
                                      &unknown);
        } else {
            ok = tcq_ids_append(out, symbol->id);
            unknown = false;
        }
        if (!ok)
            return false;
    }
    return true;
}

enum tcq_status tcq_bpe_encode(const struct tcq_bpe *bpe, struct tcq_bpe_work *work,
                               struct tcq_ids *out, const char *word, size_t nbytes,
                               struct tcq_error *error)
{
    if (nbytes == 0)
        return TCQ_OK;
    if (nbytes >= NO_SYMBOL)
        return tcq_error_set(error, TCQ_ERROR_VALUE, "a word of %zu bytes: at most %d", nbytes,
                             NO_SYMBOL - 1);
    size_t before = out->count;
    bool ok = true;
    uint32_t whole = bpe->ignore_merges ? tcq_vocabulary_find(&bpe->vocabulary, word, nbytes)
                                        : TCQ_NO_TOKEN;
    if (whole != TCQ_NO_TOKEN && bpe->vocabulary.tokens[whole].searchable) {
        ok = tcq_ids_append(out, whole);
    } else {
        void *array = work->symbols;
        ok = tcq_array_reserve(&array, &work->symbol_capacity, nbytes, sizeof *work->symbols);
        work->symbols = array;
        uint32_t count = ok ? split_word(bpe, work, word, nbytes) : 0;
        ok = ok && merge_all(bpe, work, word, count) && emit(bpe, work, out, word, count);
    }
    if (ok)
        return TCQ_OK;
    out->count = before;
    return tcq_error_memory(error, nbytes * sizeof *work->symbols, "the tokens of a word");
}
