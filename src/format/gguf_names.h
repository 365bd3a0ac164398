/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a GGUF file's tensors are called in Hugging Face's naming, for the
 * families llama, qwen2 and qwen3, and what their rows went through.
 *
 * GGUF's converter reorders the rows of llama's q and k projections: within a
 * head of D rows, row 2j + i of the file is row i*D/2 + j of the model (i = 0 or
 * 1), because its rotary embedding turns neighbours where the model's turns
 * halves.  tcq_gguf_rotary_row undoes it.  The qwen families are not reordered.
 */
#ifndef TCQ_FORMAT_GGUF_NAMES_H
#define TCQ_FORMAT_GGUF_NAMES_H

#include "format/gguf.h"

/* A family of models that is read. */
struct tcq_gguf_family {
    const char *architecture; /* general.architecture; also the prefix of its metadata */
    const char *model_type;   /* of config.json */
    const char *model_class;  /* of config.json's "architectures" */
    bool rotary_reordered;
    bool head_norms; /* q_norm and k_norm in every block */
    bool qkv_bias;   /* biases of q, k and v in every block; elsewhere they may be there */
};

/* The family of general.architecture.  Errors: FORMAT if there is none,
 * UNSUPPORTED with its name for any other. */
enum tcq_status tcq_gguf_family_find(const struct tcq_gguf *gguf,
                                     const struct tcq_gguf_family **out, struct tcq_error *error);

/* How a tensor's rows relate to the model's. */
enum tcq_gguf_role {
    TCQ_GGUF_ROLE_PLAIN = 0, /* rows as in the model */
    TCQ_GGUF_ROLE_ROTARY,    /* reordered within each head */
    TCQ_GGUF_ROLE_DERIVED    /* follows from config.json; not in the model's files */
};

/* What a dimension counts, for checks against the metadata. */
enum tcq_gguf_size {
    TCQ_GGUF_SIZE_ANY = 0,
    TCQ_GGUF_SIZE_HIDDEN,
    TCQ_GGUF_SIZE_INTERMEDIATE,
    TCQ_GGUF_SIZE_QUERY, /* attention heads * head_dim */
    TCQ_GGUF_SIZE_KEY,   /* key-value heads * head_dim */
    TCQ_GGUF_SIZE_HEAD,
    TCQ_GGUF_SIZE_VOCAB,
    TCQ_GGUF_SIZE_COUNT
};

#define TCQ_GGUF_HF_NAME_NBYTES 64u

struct tcq_gguf_name {
    char hf[TCQ_GGUF_HF_NAME_NBYTES]; /* empty for a DERIVED tensor */
    enum tcq_gguf_role role;
    uint32_t layer;          /* UINT32_MAX outside the blocks */
    enum tcq_gguf_size rows; /* ANY for a DERIVED tensor */
    enum tcq_gguf_size cols; /* ANY for a vector */
};

/* Translate a tensor's name.  Errors: UNSUPPORTED, with the name, for a tensor
 * that the family does not have. */
enum tcq_status tcq_gguf_name_translate(const struct tcq_gguf *gguf,
                                        const struct tcq_gguf_family *family,
                                        const struct tcq_gguf_tensor *tensor,
                                        struct tcq_gguf_name *out, struct tcq_error *error);

/* Name i of the tensors that every model of the family has, in GGUF's naming:
 * with layer UINT32_MAX those outside the blocks, else those of that block.
 * False past the last. */
bool tcq_gguf_name_required(const struct tcq_gguf_family *family, uint32_t layer, size_t i,
                            char out[TCQ_GGUF_HF_NAME_NBYTES]);

/* The row of the file that holds row `row` of the model, in a tensor of q or k
 * with head_dim (even) rows a head. */
uint64_t tcq_gguf_rotary_row(uint64_t row, uint64_t head_dim);

#endif
