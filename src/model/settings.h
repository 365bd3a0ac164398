/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What config.json says of a transformer, checked and with defaults filled in.
 */
#ifndef TCQ_MODEL_SETTINGS_H
#define TCQ_MODEL_SETTINGS_H

#include <jansson.h>

#include "tcq.h"

enum tcq_rope_scaling { TCQ_ROPE_PLAIN = 0, TCQ_ROPE_LINEAR, TCQ_ROPE_LLAMA3 };

enum { TCQ_LAYERS_MAX = 1024, TCQ_HEADS_MAX = 1024 };

struct tcq_settings {
    const char *family; /* "llama", "mistral", "qwen2", "qwen3"; static */
    uint32_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
    uint32_t positions; /* the most that the model was made for */
    double norm_epsilon;
    bool tied;          /* the head is the embedding */
    bool head_norms;    /* q and k of every head are normalized */
    bool qkv_bias, o_bias, mlp_bias;
    double rope_theta;
    enum tcq_rope_scaling scaling;
    double scaling_factor, low_frequency, high_frequency, original_positions;
    uint32_t window;                  /* 0: attention sees everything */
    bool windowed[TCQ_LAYERS_MAX];    /* layers that see the window only */
};

/* Errors: FORMAT (missing, of the wrong type, out of range, sizes that do not
 * fit together), UNSUPPORTED (another family, or a member that would change the
 * result and is not implemented, by name). */
enum tcq_status tcq_settings_read(const json_t *config, struct tcq_settings *out,
                                  struct tcq_error *error);

/* The head_dim/2 angles that one position turns by. */
void tcq_settings_rope(const struct tcq_settings *settings, float *frequencies);

#endif
