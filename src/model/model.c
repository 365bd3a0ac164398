/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading a model: settings, then every module with its size checked.
 */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "format/source.h"
#include "model/device.h"
#include "model/json.h"
#include "model/session.h"

enum { NAME_NBYTES = 128 };

/* ------------------------------------------------------------------------ */
/* Modules                                                                   */
/* ------------------------------------------------------------------------ */

static void layer_free(struct tcq_layer *layer)
{
    tcq_free(layer->attention_norm);
    tcq_free(layer->mlp_norm);
    tcq_free(layer->q_norm);
    tcq_free(layer->k_norm);
    struct tcq_weight *weights[] = {&layer->q,    &layer->k,  &layer->v,   &layer->o,
                                    &layer->gate, &layer->up, &layer->down};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        tcq_weight_free(weights[i]);
}

/* Count a loaded module. */
static void account(struct tcq_model *model, const struct tcq_weight *weight)
{
    struct tcq_model_info *info = &model->info;
    size_t scratch = tcq_weight_scratch(weight);
    info->parameters += (uint64_t)weight->out * weight->in;
    info->stored_nbytes += weight->stored_nbytes;
    info->owned_nbytes += weight->owned_nbytes;
    info->packed_modules += weight->kind == TCQ_WEIGHT_PACKED;
    info->affine_modules += weight->kind == TCQ_WEIGHT_AFFINE;
    info->dense_modules += weight->kind == TCQ_WEIGHT_DENSE || weight->kind == TCQ_WEIGHT_ROWS;
    if (weight->kind == TCQ_WEIGHT_PACKED)
        info->packed_bits += (double)weight->stored_nbytes * 8;
    model->scratch = scratch > model->scratch ? scratch : model->scratch;
}

static enum tcq_status load_layer(struct tcq_model *model, const struct tcq_weight_loader *loader,
                                  uint32_t index, struct tcq_error *error)
{
    const struct tcq_settings *s = &model->settings;
    struct tcq_layer *layer = &model->layers[index];
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const struct {
        const char *name;
        struct tcq_weight *weight;
        uint32_t out, in;
        bool bias;
    } modules[] = {
        {"self_attn.q_proj", &layer->q, q, s->hidden, s->qkv_bias},
        {"self_attn.k_proj", &layer->k, kv, s->hidden, s->qkv_bias},
        {"self_attn.v_proj", &layer->v, kv, s->hidden, s->qkv_bias},
        {"self_attn.o_proj", &layer->o, s->hidden, q, s->o_bias},
        {"mlp.gate_proj", &layer->gate, s->intermediate, s->hidden, s->mlp_bias},
        {"mlp.up_proj", &layer->up, s->intermediate, s->hidden, s->mlp_bias},
        {"mlp.down_proj", &layer->down, s->hidden, s->intermediate, s->mlp_bias},
    };
    const struct {
        const char *name;
        float **vector;
        uint32_t count;
    } norms[] = {
        {"input_layernorm.weight", &layer->attention_norm, s->hidden},
        {"post_attention_layernorm.weight", &layer->mlp_norm, s->hidden},
        {"self_attn.q_norm.weight", &layer->q_norm, s->head_norms ? s->head_dim : 0},
        {"self_attn.k_norm.weight", &layer->k_norm, s->head_norms ? s->head_dim : 0},
    };
    char name[NAME_NBYTES];
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        struct tcq_weight_loader one = *loader;
        one.linear.alone = modules[i].weight != &layer->gate && modules[i].weight != &layer->up;
        snprintf(name, sizeof name, "model.layers.%u.%s", index, modules[i].name);
        enum tcq_status status = tcq_weight_load(modules[i].weight, &one, name, modules[i].out,
                                                 modules[i].in, modules[i].bias, error);
        if (status)
            return status;
        account(model, modules[i].weight);
    }
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        snprintf(name, sizeof name, "model.layers.%u.%s", index, norms[i].name);
        if (norms[i].count == 0)
            continue;
        enum tcq_status status =
            tcq_weight_load_vector(norms[i].vector, loader, name, norms[i].count, error);
        if (status)
            return status;
        model->info.parameters += norms[i].count;
    }
    return TCQ_OK;
}

static enum tcq_status load_modules(struct tcq_model *model, const struct tcq_weight_loader *loader,
                                    struct tcq_error *error)
{
    const struct tcq_settings *s = &model->settings;
    struct tcq_weight_loader ends = *loader;
    ends.linear.alone = true;
    ends.linear.small_m = TCQ_HEAD_SMALL_M;
    enum tcq_status status = tcq_weight_load(&model->embedding, &ends, "model.embed_tokens",
                                             s->vocab, s->hidden, false, error);
    if (status)
        return status;
    account(model, &model->embedding);
    if (model->embedding.kind == TCQ_WEIGHT_PACKED && model->embedding.packed.geometry.axis == 0)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "module 'model.embed_tokens' is packed along axis 0: its rows cannot "
                             "be read one at a time");
    for (uint32_t i = 0; i < s->layers && !status; i++)
        status = load_layer(model, loader, i, error);
    if (!status)
        status = tcq_weight_load_vector(&model->final_norm, loader, "model.norm.weight", s->hidden,
                                        error);
    if (!status && !s->tied) {
        status = tcq_weight_load(&model->separate_head, &ends, "lm_head", s->vocab, s->hidden,
                                 false, error);
        if (!status)
            account(model, &model->separate_head);
    }
    return status;
}

/* ------------------------------------------------------------------------ */
/* The whole                                                                 */
/* ------------------------------------------------------------------------ */

/* Bits per weight of the packed modules, from the bits that account() added up. */
static void finish_info(struct tcq_model *model)
{
    const struct tcq_settings *s = &model->settings;
    struct tcq_model_info *info = &model->info;
    uint64_t packed = 0;
    for (uint32_t i = 0; i < s->layers; i++) {
        const struct tcq_layer *l = &model->layers[i];
        const struct tcq_weight *weights[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof weights / sizeof *weights; j++)
            if (weights[j]->kind == TCQ_WEIGHT_PACKED)
                packed += (uint64_t)weights[j]->out * weights[j]->in;
    }
    const struct tcq_weight *ends[] = {&model->embedding, &model->separate_head};
    for (size_t j = 0; j < 2; j++)
        if (ends[j]->kind == TCQ_WEIGHT_PACKED)
            packed += (uint64_t)ends[j]->out * ends[j]->in;
    info->packed_bits = packed ? info->packed_bits / (double)packed : 0;
    info->family = s->family;
    info->layers = s->layers;
    info->hidden = s->hidden;
    info->intermediate = s->intermediate;
    info->heads = s->heads;
    info->kv_heads = s->kv_heads;
    info->head_dim = s->head_dim;
    info->vocab = s->vocab;
    info->positions = s->positions;
    info->parameters += s->hidden;
}

size_t tcq_model_weights_nbytes(const struct tcq_source *source, bool device)
{
    size_t needed = 0;
    for (size_t i = 0; i < tcq_source_count(source); i++) {
        const struct tcq_source_tensor *tensor = tcq_source_get(source, i);
        bool widened = device && tensor->dtype == TCQ_DTYPE_COUNT;
        needed += widened ? tensor->count * sizeof(float) : tensor->nbytes;
    }
    return needed;
}

enum tcq_status tcq_memory_check(size_t needed, size_t available, const char *what,
                                 const char *where, struct tcq_error *error)
{
    if (needed <= available)
        return TCQ_OK;
    /* Rounded so that the difference is what is missing. */
    size_t need = (needed + ((1 << 20) - 1)) >> 20, have = available >> 20;
    return tcq_error_set(error, TCQ_ERROR_MEMORY,
                         "%s %zu MiB, and %zu MiB of %s are free: %zu MiB too little", what, need,
                         have, where, need - have);
}

/* Mapped weights need no memory of their own, but are slow without it.  A device
 * holds all of them. */
static enum tcq_status check_memory(const struct tcq_model *model, struct tcq_error *error)
{
    size_t available = tcq_memory_available();
    if (model->device) {
        enum tcq_status status =
            model->device->available(tcq_context_device(model->context), &available, error);
        if (status)
            return status;
    }
    return tcq_memory_check(tcq_model_weights_nbytes(model->source, model->device != NULL),
                            available, "the weights need",
                            model->device ? "GPU memory" : "memory", error);
}

static enum tcq_status open_tokenizer(struct tcq_model *model, const char *path,
                                      struct tcq_error *error)
{
    if (tcq_source_get_kind(model->source) == TCQ_SOURCE_SAFETENSORS)
        return TCQ_OK;
    if (tcq_path_is_folder(path)) {
        char *file = tcq_path_join(path, "tokenizer.json");
        if (!file)
            return tcq_error_memory(error, strlen(path), "a path");
        bool exists = tcq_path_exists(file);
        tcq_free(file);
        if (!exists)
            return TCQ_OK;
    }
    enum tcq_status status = tcq_tokenizer_open(path, &model->tokenizer, error);
    /* Weights are of use without the tokenizer, too: logits can be compared. */
    if (status == TCQ_ERROR_UNSUPPORTED && tcq_source_get_kind(model->source) == TCQ_SOURCE_GGUF)
        return TCQ_OK;
    return status;
}

static enum tcq_status load(struct tcq_model *model, const char *path,
                            const struct tcq_model_options *options, struct tcq_error *error)
{
    json_t *root = NULL;
    enum tcq_status status = tcq_source_open(path, &model->source, error);
    if (status)
        return status;
    const char *config = tcq_source_config(model->source);
    if (!config)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "no config.json");
    /* Integers as float64: one beyond 64 bits, in a member that nobody reads, does
     * not make the file unreadable. */
    status = tcq_json_parse(config, strlen(config), JSON_DECODE_INT_AS_REAL, &root, error);
    if (!status)
        status = tcq_settings_read(root, &model->settings, error);
    if (!status)
        status = tcq_config_parse(config, strlen(config), &model->config, error);
    if (!status && !options->ignore_memory)
        status = check_memory(model, error);
    if (!status) {
        struct tcq_weight_loader loader = {
            model->context, model->source, model->config, json_object_get(root, "quantization"),
            {.numerics = options->numerics,
             .activations = options->activations,
             .wide_m = tcq_session_batch(&model->settings, true)}};
        size_t half = model->settings.head_dim / 2;
        model->layers = tcq_alloc(model->settings.layers, sizeof *model->layers);
        model->frequencies = tcq_alloc(half, sizeof *model->frequencies);
        status = !model->layers || !model->frequencies
                     ? tcq_error_memory(error, half * sizeof(float), "layers")
                     : load_modules(model, &loader, error);
    }
    json_decref(root);
    if (status)
        return status;
    tcq_settings_rope(&model->settings, model->frequencies);
    finish_info(model);
    if (model->device) {
        status = model->device->load(model, error);
        if (status)
            return status;
    }
    return open_tokenizer(model, path, error);
}

enum tcq_status tcq_model_load(struct tcq_context *context, const char *path,
                               const struct tcq_model_options *options, struct tcq_model **out,
                               struct tcq_error *error)
{
    static const struct tcq_model_options defaults = {0};
    if (!context || !path || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "model: a null pointer");
    if (options && options->activations == TCQ_ACTIVATIONS_INT8 && tcq_context_table(context))
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "int8 activations are for the CPU");
    struct tcq_model *model = tcq_alloc(1, sizeof *model);
    if (!model)
        return tcq_error_memory(error, sizeof *model, "a model");
    model->context = context;
    model->numerics = options ? options->numerics : TCQ_NUMERICS_FAST;
    model->math = tcq_math_select(tcq_context_cpu_flags(context));
    model->device = tcq_context_table(context) ? tcq_context_table(context)->model : NULL;
    enum tcq_status status = load(model, path, options ? options : &defaults, error);
    if (status) {
        tcq_model_destroy(model);
        return status;
    }
    *out = model;
    return TCQ_OK;
}

void tcq_model_destroy(struct tcq_model *model)
{
    if (!model)
        return;
    if (model->on_device)
        model->device->unload(model);
    for (uint32_t i = 0; model->layers && i < model->settings.layers; i++)
        layer_free(&model->layers[i]);
    tcq_free(model->layers);
    tcq_weight_free(&model->embedding);
    tcq_weight_free(&model->separate_head);
    tcq_free(model->final_norm);
    tcq_free(model->frequencies);
    tcq_tokenizer_destroy(model->tokenizer);
    tcq_config_destroy(model->config);
    tcq_source_close(model->source);
    tcq_free(model);
}

const struct tcq_model_info *tcq_model_get_info(const struct tcq_model *model)
{
    return &model->info;
}

const struct tcq_tokenizer *tcq_model_tokenizer(const struct tcq_model *model)
{
    return model->tokenizer;
}
