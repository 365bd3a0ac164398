/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a loaded model and of a session on it.
 */
#ifndef TCQ_MODEL_MODEL_H
#define TCQ_MODEL_MODEL_H

#include "base/device.h"
#include "model/math.h"
#include "model/settings.h"
#include "model/weight.h"
#include "tcq_model.h"

/* Vectors at once through a packed head by the small kernels: their scratch has as
 * many rows of the vocabulary's size. */
enum { TCQ_HEAD_SMALL_M = 8 };

struct tcq_layer {
    float *attention_norm, *mlp_norm; /* [hidden] */
    float *q_norm, *k_norm;           /* [head_dim], or NULL */
    struct tcq_weight q;              /* [heads*head_dim, hidden] */
    struct tcq_weight k, v;           /* [kv_heads*head_dim, hidden] */
    struct tcq_weight o;              /* [hidden, heads*head_dim] */
    struct tcq_weight gate, up;       /* [intermediate, hidden] */
    struct tcq_weight down;           /* [hidden, intermediate] */
};

struct tcq_model {
    struct tcq_context *context;
    const struct tcq_math *math;
    enum tcq_numerics numerics; /* of packed modules */
    struct tcq_source *source;
    struct tcq_config *config;
    struct tcq_tokenizer *tokenizer; /* or NULL */
    struct tcq_settings settings;
    struct tcq_model_info info;
    struct tcq_layer *layers;
    struct tcq_weight embedding;     /* [vocab, hidden] */
    struct tcq_weight separate_head; /* [vocab, hidden], where it is not the embedding */
    float *final_norm;               /* [hidden] */
    float *frequencies;              /* [head_dim/2] */
    size_t scratch;                  /* elements a thread for any product */
    const struct tcq_model_device *device; /* NULL: the CPU */
    void *on_device;                       /* the device's own */
};

/* Gate and up are packed such that one pass can make both. */
static inline bool tcq_layer_is_fused(const struct tcq_layer *layer)
{
    const struct tcq_weight *gate = &layer->gate, *up = &layer->up;
    return gate->linear && up->linear && !gate->bias && !up->bias &&
           gate->packed.geometry.axis == 1 && up->packed.geometry.axis == 1;
}

static inline const struct tcq_weight *tcq_model_head(const struct tcq_model *model)
{
    return model->settings.tied ? &model->embedding : &model->separate_head;
}

/* Bytes of all weights: as stored, which is how the CPU uses them, or with what has
 * no form of its own on a device (GGUF's blocks) in float32. */
size_t tcq_model_weights_nbytes(const struct tcq_source *source, bool device);
/* MEMORY where needed exceeds available: "WHAT 9 MiB, and 2 MiB of WHERE are free:
 * 7 MiB too little". */
enum tcq_status tcq_memory_check(size_t needed, size_t available, const char *what,
                                 const char *where, struct tcq_error *error);

/* Bytes that the system can give without swapping; SIZE_MAX where it does not say. */
size_t tcq_memory_available(void);

#endif
