/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From text to words, in the two stages of a tokenizer.json: normalisers change
 * the text, pre-tokenizers cut it.  Both are short lists of steps.
 */
#ifndef TCQ_MODEL_PRETOKENIZE_H
#define TCQ_MODEL_PRETOKENIZE_H

#include "model/bytes.h"
#include "model/charsmap.h"
#include "model/regex.h"
#include "tcq.h"

enum tcq_normalize_kind {
    TCQ_NORMALIZE_NFC,
    TCQ_NORMALIZE_NFD,
    TCQ_NORMALIZE_NFKC,
    TCQ_NORMALIZE_NFKD,
    TCQ_NORMALIZE_PREPEND, /* `text` before what is not empty */
    TCQ_NORMALIZE_REPLACE, /* every match of `regex` by `text` */
    TCQ_NORMALIZE_CHARSMAP
};

struct tcq_normalize_step {
    enum tcq_normalize_kind kind;
    char *text; /* owned */
    struct tcq_regex *regex;
    struct tcq_charsmap *charsmap; /* owned */
};

enum tcq_split_kind {
    TCQ_SPLIT_ISOLATED,     /* matches and what lies between them are words */
    TCQ_SPLIT_REMOVED,      /* only what lies between */
    TCQ_SPLIT_MATCHES,      /* only matches */
    TCQ_SPLIT_PREFIX_SPACE, /* put a space before every word that has none */
    TCQ_SPLIT_PREFIX_MARK,  /* put `text` before words (see first_only) */
};

struct tcq_split_step {
    enum tcq_split_kind kind;
    struct tcq_regex *regex;
    char *text;      /* owned */
    bool first_only; /* PREFIX_MARK: only at the start of the whole text */
};

enum { TCQ_STEPS_MAX = 16 };

struct tcq_pretokenizer {
    struct tcq_normalize_step normalize[TCQ_STEPS_MAX];
    size_t normalize_count;
    struct tcq_split_step split[TCQ_STEPS_MAX];
    size_t split_count;
};

void tcq_pretokenizer_free(struct tcq_pretokenizer *pretokenizer);

/* text, which is replaced by its normal form. */
enum tcq_status tcq_normalize(const struct tcq_pretokenizer *pretokenizer,
                              struct tcq_regex_match *match, struct tcq_bytes *text,
                              struct tcq_error *error);

/* A word [begin, end) of a text. */
struct tcq_span {
    size_t begin, end;
};

struct tcq_spans {
    struct tcq_span *data;
    size_t count, capacity;
};

void tcq_spans_free(struct tcq_spans *spans);

/* Cut text (which prefixes may change) into spans.  first: nothing came before. */
enum tcq_status tcq_pretokenize(const struct tcq_pretokenizer *pretokenizer,
                                struct tcq_regex_match *match, struct tcq_bytes *text, bool first,
                                struct tcq_spans *spans, struct tcq_error *error);

#endif
