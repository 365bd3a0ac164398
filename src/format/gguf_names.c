/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Families and names: two tables and the code that walks them.
 */
#include "format/gguf_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const struct tcq_gguf_family families[] = {
    {.architecture = "llama",
     .model_type = "llama",
     .model_class = "LlamaForCausalLM",
     .rotary_reordered = true},
    {.architecture = "qwen2",
     .model_type = "qwen2",
     .model_class = "Qwen2ForCausalLM",
     .qkv_bias = true},
    {.architecture = "qwen3",
     .model_type = "qwen3",
     .model_class = "Qwen3ForCausalLM",
     .head_norms = true},
};

/* Names without ".weight" or ".bias", and the weight's shape. */
struct name_pair {
    const char *gguf;
    const char *hf;
    enum tcq_gguf_size rows;
    enum tcq_gguf_size cols;
    enum tcq_gguf_role role;
    enum { ALWAYS, SOMETIMES, HEAD_NORM } presence;
};

#define ANY TCQ_GGUF_SIZE_ANY
#define HIDDEN TCQ_GGUF_SIZE_HIDDEN
#define INTERMEDIATE TCQ_GGUF_SIZE_INTERMEDIATE
#define QUERY TCQ_GGUF_SIZE_QUERY
#define KEY TCQ_GGUF_SIZE_KEY
#define HEAD TCQ_GGUF_SIZE_HEAD
#define VOCAB TCQ_GGUF_SIZE_VOCAB
#define PLAIN TCQ_GGUF_ROLE_PLAIN
#define ROTARY TCQ_GGUF_ROLE_ROTARY
#define DERIVED TCQ_GGUF_ROLE_DERIVED

static const struct name_pair model_names[] = {
    {"token_embd", "model.embed_tokens", VOCAB, HIDDEN, PLAIN, ALWAYS},
    {"output_norm", "model.norm", HIDDEN, ANY, PLAIN, ALWAYS},
    {"output", "lm_head", VOCAB, HIDDEN, PLAIN, SOMETIMES},
    {"rope_freqs", "", ANY, ANY, DERIVED, SOMETIMES},
};

/* After "blk.N." and "model.layers.N.". */
static const struct name_pair block_names[] = {
    {"attn_norm", "input_layernorm", HIDDEN, ANY, PLAIN, ALWAYS},
    {"attn_q", "self_attn.q_proj", QUERY, HIDDEN, ROTARY, ALWAYS},
    {"attn_k", "self_attn.k_proj", KEY, HIDDEN, ROTARY, ALWAYS},
    {"attn_v", "self_attn.v_proj", KEY, HIDDEN, PLAIN, ALWAYS},
    {"attn_output", "self_attn.o_proj", HIDDEN, QUERY, PLAIN, ALWAYS},
    {"attn_q_norm", "self_attn.q_norm", HEAD, ANY, PLAIN, HEAD_NORM},
    {"attn_k_norm", "self_attn.k_norm", HEAD, ANY, PLAIN, HEAD_NORM},
    {"ffn_norm", "post_attention_layernorm", HIDDEN, ANY, PLAIN, ALWAYS},
    {"ffn_gate", "mlp.gate_proj", INTERMEDIATE, HIDDEN, PLAIN, ALWAYS},
    {"ffn_up", "mlp.up_proj", INTERMEDIATE, HIDDEN, PLAIN, ALWAYS},
    {"ffn_down", "mlp.down_proj", HIDDEN, INTERMEDIATE, PLAIN, ALWAYS},
    {"attn_rot_embd", "", ANY, ANY, DERIVED, SOMETIMES},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum tcq_status tcq_gguf_family_find(const struct tcq_gguf *gguf,
                                     const struct tcq_gguf_family **out, struct tcq_error *error)
{
    const struct tcq_gguf_value *value = tcq_gguf_find(gguf, "general.architecture");
    if (value == NULL || value->type != TCQ_GGUF_VALUE_STRING)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "%s: no string general.architecture",
                             tcq_gguf_label(gguf));
    struct tcq_gguf_text name = tcq_gguf_printable(value->as.text);
    for (size_t i = 0; i < COUNT(families); i++) {
        if (tcq_gguf_text_equal(name, families[i].architecture)) {
            *out = &families[i];
            return TCQ_OK;
        }
    }
    return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                         "%s: architecture '%.*s' (llama, qwen2 or qwen3 expected)",
                         tcq_gguf_label(gguf), tcq_gguf_shown(name), name.bytes);
}

/* Split "blk.12.attn_q.weight" into 12 and "attn_q.weight"; the text as it is
 * and UINT32_MAX where it names no block.  Up to five digits and no leading
 * zero: one spelling a block. */
static uint32_t split_block(struct tcq_gguf_text *text)
{
    static const char prefix[] = "blk.";
    size_t at = sizeof prefix - 1, first = at;
    uint32_t layer = 0;
    if (text->nbytes < at || memcmp(text->bytes, prefix, at) != 0)
        return UINT32_MAX;
    while (at < text->nbytes && text->bytes[at] >= '0' && text->bytes[at] <= '9' && at < first + 5)
        layer = layer * 10 + (uint32_t)(text->bytes[at++] - '0');
    bool leading_zero = at > first + 1 && text->bytes[first] == '0';
    if (at == first || at == text->nbytes || text->bytes[at] != '.' || leading_zero)
        return UINT32_MAX;
    text->bytes += at + 1;
    text->nbytes -= at + 1;
    return layer;
}

/* Take ".weight" or ".bias" off the end; NULL if neither is there. */
static const char *split_suffix(struct tcq_gguf_text *text)
{
    static const char *const suffixes[] = {".weight", ".bias"};
    for (size_t i = 0; i < COUNT(suffixes); i++) {
        size_t nbytes = strlen(suffixes[i]);
        if (text->nbytes > nbytes &&
            memcmp(text->bytes + text->nbytes - nbytes, suffixes[i], nbytes) == 0) {
            text->nbytes -= nbytes;
            return suffixes[i];
        }
    }
    return NULL;
}

static const struct name_pair *find_pair(const struct tcq_gguf_family *family,
                                         struct tcq_gguf_text text, bool in_block)
{
    const struct name_pair *pairs = in_block ? block_names : model_names;
    size_t count = in_block ? COUNT(block_names) : COUNT(model_names);
    for (size_t i = 0; i < count; i++) {
        if (tcq_gguf_text_equal(text, pairs[i].gguf))
            return pairs[i].presence != HEAD_NORM || family->head_norms ? &pairs[i] : NULL;
    }
    return NULL;
}

static enum tcq_status refuse_name(const struct tcq_gguf *gguf,
                                   const struct tcq_gguf_family *family, struct tcq_gguf_text name,
                                   struct tcq_gguf_text part, struct tcq_error *error)
{
    static const char experts[] = "_exps";
    const char *why = "";
    if (tcq_gguf_text_equal(part, "ffn_gate_inp") ||
        (part.nbytes >= sizeof experts &&
         memcmp(part.bytes + part.nbytes - (sizeof experts - 1), experts, sizeof experts - 1) == 0))
        why = ": a mixture of experts is not read";
    return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                         "%s: tensor '%.*s' is not part of a %s model%s", tcq_gguf_label(gguf),
                         tcq_gguf_shown(name), name.bytes, family->architecture, why);
}

enum tcq_status tcq_gguf_name_translate(const struct tcq_gguf *gguf,
                                        const struct tcq_gguf_family *family,
                                        const struct tcq_gguf_tensor *tensor,
                                        struct tcq_gguf_name *out, struct tcq_error *error)
{
    struct tcq_gguf_text text = tensor->name;
    uint32_t layer = split_block(&text);
    const char *suffix = split_suffix(&text);
    bool bias = suffix != NULL && strcmp(suffix, ".bias") == 0;
    const struct name_pair *pair =
        suffix != NULL ? find_pair(family, text, layer != UINT32_MAX) : NULL;
    /* Only the projections of a block can have a bias. */
    if (pair == NULL || (bias && (layer == UINT32_MAX || pair->cols == ANY)))
        return refuse_name(gguf, family, tensor->name, text, error);
    *out = (struct tcq_gguf_name){.role = pair->role, .layer = layer, .rows = pair->rows};
    if (!bias)
        out->cols = pair->cols;
    if (pair->role == ROTARY && !family->rotary_reordered)
        out->role = PLAIN;
    if (pair->role != DERIVED && layer != UINT32_MAX)
        snprintf(out->hf, sizeof out->hf, "model.layers.%" PRIu32 ".%s%s", layer, pair->hf, suffix);
    else if (pair->role != DERIVED)
        snprintf(out->hf, sizeof out->hf, "%s%s", pair->hf, suffix);
    return TCQ_OK;
}

static bool is_required(const struct tcq_gguf_family *family, const struct name_pair *pair)
{
    return pair->presence == ALWAYS || (pair->presence == HEAD_NORM && family->head_norms);
}

bool tcq_gguf_name_required(const struct tcq_gguf_family *family, uint32_t layer, size_t i,
                            char out[TCQ_GGUF_HF_NAME_NBYTES])
{
    static const char *const biases[] = {"attn_q", "attn_k", "attn_v"};
    bool in_block = layer != UINT32_MAX;
    const struct name_pair *pairs = in_block ? block_names : model_names;
    size_t count = in_block ? COUNT(block_names) : COUNT(model_names);
    const char *stem = NULL, *suffix = "weight";
    for (size_t at = 0; at < count && stem == NULL; at++)
        if (is_required(family, &pairs[at]) && i-- == 0)
            stem = pairs[at].gguf;
    if (stem == NULL && in_block && family->qkv_bias && i < COUNT(biases)) {
        stem = biases[i];
        suffix = "bias";
    }
    if (stem == NULL)
        return false;
    if (in_block)
        snprintf(out, TCQ_GGUF_HF_NAME_NBYTES, "blk.%" PRIu32 ".%s.%s", layer, stem, suffix);
    else
        snprintf(out, TCQ_GGUF_HF_NAME_NBYTES, "%s.%s", stem, suffix);
    return true;
}

uint64_t tcq_gguf_rotary_row(uint64_t row, uint64_t head_dim)
{
    uint64_t head = row / head_dim, within = row % head_dim;
    uint64_t half = within / (head_dim / 2), pair = within % (head_dim / 2);
    return head * head_dim + 2 * pair + half;
}
