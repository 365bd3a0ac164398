/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole model as a GGUF file of a few kilobytes, with one thing changed at a
 * time: an entry left out or replaced, a tensor left out, renamed or resized.
 */
#ifndef TESTS_SUPPORT_GGUF_SMALL_H
#define TESTS_SUPPORT_GGUF_SMALL_H

#include "support/gguf_bytes.h"

enum { SMALL_HIDDEN = 8, SMALL_MIDDLE = 12, SMALL_HEADS = 4, SMALL_KV_HEADS = 2 };
enum { SMALL_HEAD_DIM = 4, SMALL_VOCAB = 16, SMALL_LAYERS = 2 };

struct small_options {
    const char *architecture; /* NULL: llama */
    const char *without;      /* a metadata key (without prefix) or tensor to leave out */
    const char *extra_tensor; /* a vector of `extra_count` elements */
    uint64_t extra_count;
    const char *resized;  /* a tensor that gets one row more */
    struct bytes entries; /* further metadata ... */
    uint64_t entry_count; /* ... and their number */
};

struct small_tensor {
    char name[40];
    uint64_t rows, cols; /* rows 0: a vector */
};

static inline bool small_keeps(const struct small_options *options, const char *name)
{
    return options->without == NULL || strcmp(options->without, name) != 0;
}

static inline void small_add(const struct small_options *options, struct small_tensor *list,
                             size_t *count, const char *name, uint64_t rows, uint64_t cols)
{
    struct small_tensor *tensor = &list[*count];
    if (!small_keeps(options, name))
        return;
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    bool resized = options->resized != NULL && strcmp(options->resized, name) == 0;
    tensor->rows = rows + (resized && rows ? 1 : 0);
    tensor->cols = cols + (resized && !rows ? 1 : 0);
    ++*count;
}

/* Up to 50 tensors. */
static inline size_t small_tensors(const struct small_options *options, struct small_tensor *list)
{
    const uint64_t hidden = SMALL_HIDDEN, middle = SMALL_MIDDLE;
    const uint64_t query = SMALL_HEADS * SMALL_HEAD_DIM, key = SMALL_KV_HEADS * SMALL_HEAD_DIM;
    const struct {
        const char *name;
        uint64_t rows, cols;
    } block[] = {
        {"attn_norm.weight", 0, hidden},       {"attn_q.weight", query, hidden},
        {"attn_k.weight", key, hidden},        {"attn_v.weight", key, hidden},
        {"attn_output.weight", hidden, query}, {"ffn_norm.weight", 0, hidden},
        {"ffn_gate.weight", middle, hidden},   {"ffn_up.weight", middle, hidden},
        {"ffn_down.weight", hidden, middle},
    };
    size_t count = 0;
    small_add(options, list, &count, "token_embd.weight", SMALL_VOCAB, hidden);
    small_add(options, list, &count, "output_norm.weight", 0, hidden);
    for (int layer = 0; layer < SMALL_LAYERS; layer++)
        for (size_t i = 0; i < sizeof block / sizeof *block; i++) {
            char name[40];
            snprintf(name, sizeof name, "blk.%d.%s", layer, block[i].name);
            small_add(options, list, &count, name, block[i].rows, block[i].cols);
        }
    if (options->extra_tensor)
        small_add(options, list, &count, options->extra_tensor, 0, options->extra_count);
    return count;
}

static inline void small_u32(const struct small_options *options, struct bytes *b, uint64_t *count,
                             const char *name, uint32_t value)
{
    char key[80];
    if (!small_keeps(options, name))
        return;
    snprintf(key, sizeof key, "%s.%s", options->architecture ? options->architecture : "llama",
             name);
    put_u32_entry(b, key, value);
    ++*count;
}

static inline uint64_t small_entries(const struct small_options *options, struct bytes *b)
{
    const char *architecture = options->architecture ? options->architecture : "llama";
    uint64_t count = 0;
    if (small_keeps(options, "general.architecture")) {
        put_text_entry(b, "general.architecture", architecture);
        count++;
    }
    small_u32(options, b, &count, "block_count", SMALL_LAYERS);
    small_u32(options, b, &count, "embedding_length", SMALL_HIDDEN);
    small_u32(options, b, &count, "feed_forward_length", SMALL_MIDDLE);
    small_u32(options, b, &count, "context_length", 128);
    small_u32(options, b, &count, "attention.head_count", SMALL_HEADS);
    small_u32(options, b, &count, "attention.head_count_kv", SMALL_KV_HEADS);
    small_u32(options, b, &count, "attention.key_length", SMALL_HEAD_DIM);
    if (small_keeps(options, "attention.layer_norm_rms_epsilon")) {
        char key[80];
        snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
        put_f32_entry(b, key, 1e-5f);
        count++;
    }
    put(b, options->entries.data, options->entries.nbytes);
    return count + options->entry_count;
}

/* Element i of tensor t is 100 t + i; entries of `options` are freed. */
static inline struct bytes small_model(struct small_options *options)
{
    struct small_tensor list[50];
    struct bytes entries = {0}, file = {0};
    size_t count = small_tensors(options, list);
    uint64_t entry_count = small_entries(options, &entries), offset = 0;
    put_header(&file, 3, count, entry_count);
    put(&file, entries.data, entries.nbytes);
    for (size_t i = 0; i < count; i++) {
        uint64_t nbytes = (list[i].rows ? list[i].rows : 1) * list[i].cols * 4;
        put_tensor(&file, list[i].name, TCQ_GGUF_F32, list[i].rows, list[i].cols, offset);
        offset += (nbytes + 31) / 32 * 32;
    }
    for (size_t i = 0; i < count; i++) {
        put_padding(&file, 32);
        for (uint64_t j = 0; j < (list[i].rows ? list[i].rows : 1) * list[i].cols; j++) {
            float value = (float)(100 * i + j);
            put(&file, &value, sizeof value);
        }
    }
    free(entries.data);
    free(options->entries.data);
    return file;
}

#endif
