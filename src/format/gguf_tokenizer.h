/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer inside a GGUF file as Hugging Face's two files: tokenizer.json
 * (what turns text into tokens) and tokenizer_config.json (special tokens,
 * chat template).
 *
 * Carried over: byte-level BPE ("gpt2" in GGUF) with the pre-tokenizers gpt-2,
 * smollm, starcoder, refact, llama-bpe, qwen2, deepseek-r1-qwen and tekken,
 * SentencePiece's BPE ("llama"), and a tokenizer.json that the file holds whole
 * (tokenizer.huggingface.json).  Unigram models, WordPiece and other
 * pre-tokenizers are refused by name.
 */
#ifndef TCQ_FORMAT_GGUF_TOKENIZER_H
#define TCQ_FORMAT_GGUF_TOKENIZER_H

#include <jansson.h>

#include "format/gguf_model.h"

/* Both outputs are new objects.  Errors: UNSUPPORTED with what is not carried
 * over (the weights are fine then, and a caller may go on without); FORMAT for
 * a tokenizer that contradicts itself; MEMORY. */
enum tcq_status tcq_gguf_tokenizer_make(const struct tcq_gguf_model *model, json_t **tokenizer,
                                        json_t **tokenizer_config, struct tcq_error *error);

/* The second of them alone; ids may be missing. */
enum tcq_status tcq_gguf_tokenizer_config_make(const struct tcq_gguf_model *model, json_t **out,
                                               struct tcq_error *error);

/* The text of a token, found by a walk; false past the end. */
bool tcq_gguf_token_text(const struct tcq_gguf_model *model, uint32_t id,
                         struct tcq_gguf_text *out);

#endif
