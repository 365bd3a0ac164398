/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct tcq_tokenizer and its two loaders.  A tokenizer is:
 * added tokens cut out of the text first, then normalisers, then a cut into
 * words, then byte-pair encoding of each word.
 */
#ifndef TCQ_MODEL_TOKENIZER_H
#define TCQ_MODEL_TOKENIZER_H

#include <jansson.h>

#include "model/bpe.h"
#include "model/pretokenize.h"
#include "model/unigram.h"
#include "tcq_model.h"

struct tcq_added_token {
    uint32_t id;
    struct tcq_bytes text; /* what is looked for; set by tcq_tokenizer_finish */
    bool special;
    bool normalized;   /* looked for in normalized text */
    bool single_word;  /* not next to a word character */
    bool left, right;  /* takes the white space on that side with it */
};

enum { TCQ_END_TOKENS_MAX = 16, TCQ_WRAP_TOKENS_MAX = 4 };

struct tcq_tokenizer {
    struct tcq_bpe bpe;
    struct tcq_pretokenizer pretokenizer;
    struct tcq_added_token *added; /* longest first, so that the longest match wins */
    size_t added_count, added_capacity;
    uint8_t added_first[256];      /* whether some added token starts with this byte */
    bool marks;         /* SentencePiece's U+2581 stands for a space; kept as a space here */
    bool byte_fallback; /* tokens "<0x0A>" stand for bytes */
    bool strip_first_space;        /* decoding drops one space at the start of a text */
    uint32_t before[TCQ_WRAP_TOKENS_MAX], after[TCQ_WRAP_TOKENS_MAX];
    size_t before_count, after_count; /* what TCQ_ENCODE_WRAP adds */
    uint32_t end[TCQ_END_TOKENS_MAX]; /* tokens that end a text */
    size_t end_count;
    char *chat_template;           /* or NULL */
};

/* Record an added token whose bytes are set in the vocabulary. */
enum tcq_status tcq_tokenizer_add(struct tcq_tokenizer *tokenizer, struct tcq_added_token token,
                                  struct tcq_error *error);
/* Record a token that ends a text; ids outside the vocabulary are ignored. */
void tcq_tokenizer_add_end(struct tcq_tokenizer *tokenizer, uint32_t id);
/* Add a step to the pre-tokenizer or normaliser; text and pattern may be NULL. */
enum tcq_status tcq_tokenizer_split(struct tcq_tokenizer *tokenizer, enum tcq_split_kind kind,
                                    const char *pattern, size_t pattern_nbytes, bool literal,
                                    const char *text, struct tcq_error *error);
enum tcq_status tcq_tokenizer_normalize(struct tcq_tokenizer *tokenizer,
                                        enum tcq_normalize_kind kind, const char *pattern,
                                        size_t pattern_nbytes, bool literal, const char *text,
                                        struct tcq_error *error);
/* Finish: index added tokens, check what the parts need of each other. */
enum tcq_status tcq_tokenizer_finish(struct tcq_tokenizer *tokenizer, struct tcq_error *error);

/* U+2581, as SentencePiece writes a space. */
#define TCQ_SPACE_MARK "\xe2\x96\x81"

/* Set token `id` or merge number `rank` from the form that files write them in
 * (byte alphabet, space marks, "<0x0A>").  plain: it can result from text. */
enum tcq_status tcq_tokenizer_set_written(struct tcq_tokenizer *tokenizer, uint32_t id,
                                          const char *text, size_t nbytes, bool plain,
                                          struct tcq_error *error);
enum tcq_status tcq_tokenizer_merge_written(struct tcq_tokenizer *tokenizer, uint32_t rank,
                                            const char *left, size_t left_nbytes,
                                            const char *right, size_t right_nbytes,
                                            struct tcq_error *error);
/* A merge written as one line, "left right". */
enum tcq_status tcq_tokenizer_merge_line(struct tcq_tokenizer *tokenizer, uint32_t rank,
                                         const char *line, size_t nbytes, struct tcq_error *error);

/* Into a new tokenizer, from a tokenizer.json. */
enum tcq_status tcq_tokenizer_from_json(struct tcq_tokenizer *tokenizer, const json_t *root,
                                        struct tcq_error *error);
/* What a tokenizer_config.json adds: the end token and the chat template. */
enum tcq_status tcq_tokenizer_read_config(struct tcq_tokenizer *tokenizer, const json_t *root,
                                          struct tcq_error *error);
/* From a GGUF file. */
enum tcq_status tcq_tokenizer_from_gguf(struct tcq_tokenizer *tokenizer, const uint8_t *data,
                                        size_t nbytes, const char *label,
                                        struct tcq_error *error);

/* GPT-2's alphabet, which writes every byte as a printable character: the bytes
 * that `text` stands for, appended to out; false if a character is not of it
 * (out is then as before) or memory runs out (*no_memory is set). */
bool tcq_byte_alphabet_decode(struct tcq_bytes *out, const char *text, size_t nbytes,
                              bool *no_memory);
/* GPT-2's pre-tokenizer, which "ByteLevel" stands for. */
extern const char tcq_pattern_gpt2[];

#endif
