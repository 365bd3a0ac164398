/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the makers of tokenizer.json from GGUF metadata share: byte-level BPE
 * (gguf_tokenizer.c) and SentencePiece's BPE (gguf_sentencepiece.c).
 */
#ifndef TCQ_FORMAT_GGUF_MAKER_H
#define TCQ_FORMAT_GGUF_MAKER_H

#include "format/gguf_tokenizer.h"

/* tokenizer.ggml.token_type, numbered in files. */
enum tcq_gguf_token_type {
    TCQ_GGUF_TOKEN_NORMAL = 1,
    TCQ_GGUF_TOKEN_UNKNOWN,
    TCQ_GGUF_TOKEN_CONTROL,
    TCQ_GGUF_TOKEN_USER_DEFINED,
    TCQ_GGUF_TOKEN_UNUSED,
    TCQ_GGUF_TOKEN_BYTE
};

struct tcq_gguf_maker {
    const struct tcq_gguf_model *model;
    const struct tcq_gguf *file;
    const struct tcq_gguf_array *tokens; /* set by tcq_gguf_maker_tokens */
    const struct tcq_gguf_array *types;
    json_t *vocab;    /* {text: id}, owned; set by tcq_gguf_maker_vocab */
    bool begins_text; /* where the file does not say: a text begins with bos */
    struct tcq_error *error;
};

/* MEMORY, with a message. */
enum tcq_status tcq_gguf_maker_memory(const struct tcq_gguf_maker *maker);
/* An array of the metadata.  Errors: UNSUPPORTED if it is missing or of another type. */
enum tcq_status tcq_gguf_maker_array(const struct tcq_gguf_maker *maker, const char *key,
                                     enum tcq_gguf_value_type type,
                                     const struct tcq_gguf_array **out);
bool tcq_gguf_maker_flag(const struct tcq_gguf_maker *maker, const char *key, bool fallback);
enum tcq_status tcq_gguf_maker_tokens(struct tcq_gguf_maker *maker);
/* All tokens but those that only pad the embedding to a round size. */
enum tcq_status tcq_gguf_maker_vocab(struct tcq_gguf_maker *maker);
/* Tokens that are found in a text before it is cut into words; NULL: no memory. */
json_t *tcq_gguf_maker_added(const struct tcq_gguf_maker *maker);
/* The post-processor that puts bos and eos round a text; JSON's null if there
 * are none, NULL: no memory. */
json_t *tcq_gguf_maker_template(const struct tcq_gguf_maker *maker);

/* tokenizer.json of a SentencePiece BPE model. */
enum tcq_status tcq_gguf_sentencepiece_make(struct tcq_gguf_maker *maker, json_t **out);

#endif
