/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF metadata to config.json.
 */
#include "format/gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Llama 3's rotary scaling, whose factor alone differs between its models. */
#define LLAMA3_CONTEXT 8192.0
#define LLAMA3_LOW 1.0
#define LLAMA3_HIGH 4.0
/* Writers compute the factors in float32 or float64: either is within this. */
#define FACTOR_TOLERANCE 1e-3
#define TWO_PI 6.283185307179586

bool tcq_gguf_token_id(const struct tcq_gguf_model *model, const char *which, uint32_t *out)
{
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", which);
    const struct tcq_gguf_value *value = tcq_gguf_find(tcq_gguf_model_file(model), key);
    if (value == NULL || value->type != TCQ_GGUF_VALUE_U32 ||
        value->as.u >= tcq_gguf_model_settings(model)->vocab)
        return false;
    *out = (uint32_t)value->as.u;
    return true;
}

char *tcq_gguf_json_text(const json_t *json)
{
    /* 15 digits are those that a double always keeps: 1e-05 stays 1e-05. */
    return json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
}

/* The decimal that a float32 was written from: the shortest that reads back
 * as the same float. */
static double shortest(double value)
{
    char text[40];
    float narrow = (float)value;
    if ((double)narrow != value)
        return value;
    for (int digits = 1; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == narrow)
            return strtod(text, NULL);
    }
    return value;
}

/* ------------------------------------------------------------------------ */
/* Rotary scaling                                                            */
/* ------------------------------------------------------------------------ */

/* What Llama 3's scaling divides frequency i of dim/2 by: 1 for wavelengths
 * far below the original context, the factor for those far above, a blend
 * between. */
static double llama3_factor(const struct tcq_gguf_settings *settings, uint32_t i, double factor)
{
    double exponent = 2.0 * i / settings->head_dim;
    double wavelength = TWO_PI * pow(settings->rope_theta, exponent);
    double turns = LLAMA3_CONTEXT / wavelength;
    if (turns > LLAMA3_HIGH)
        return 1.0;
    if (turns < LLAMA3_LOW)
        return factor;
    double smooth = (turns - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW);
    return 1.0 / ((1.0 - smooth) / factor + smooth);
}

static float factor_load(const struct tcq_gguf_tensor *tensor, uint32_t i)
{
    const uint8_t *src = tensor->data + (size_t)i * sizeof(float);
    float value;
    memcpy(&value, src, sizeof value);
    return value;
}

/* The factor of Llama 3's scaling from rope_freqs.weight; 1 if there is none. */
static enum tcq_status find_llama3(const struct tcq_gguf_model *model, double *out,
                                   struct tcq_error *error)
{
    const struct tcq_gguf *file = tcq_gguf_model_file(model);
    const struct tcq_gguf_settings *settings = tcq_gguf_model_settings(model);
    const struct tcq_gguf_tensor *tensor = tcq_gguf_tensor_find(file, "rope_freqs.weight");
    uint32_t count = settings->head_dim / 2;
    *out = 1.0;
    if (tensor == NULL)
        return TCQ_OK;
    bool known = tensor->type->number == TCQ_GGUF_F32 && tensor->count == count;
    double factor = known ? (double)factor_load(tensor, count - 1) : 0.0;
    for (uint32_t i = 0; known && i < count; i++) {
        double expected = llama3_factor(settings, i, factor);
        known = fabs((double)factor_load(tensor, i) - expected) <= FACTOR_TOLERANCE * expected;
    }
    if (!known || !(factor >= 1.0) || settings->scaling != TCQ_GGUF_SCALING_NONE)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "%s: tensor 'rope_freqs.weight': frequency factors that are not "
                             "those of Llama 3's rotary scaling",
                             tcq_gguf_label(file));
    *out = factor;
    return TCQ_OK;
}

/* rope_scaling, or JSON's null where there is none. */
static json_t *scaling_json(const struct tcq_gguf_settings *settings, double llama3)
{
    if (llama3 > 1.0)
        return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor",
                         shortest(llama3), "low_freq_factor", LLAMA3_LOW, "high_freq_factor",
                         LLAMA3_HIGH, "original_max_position_embeddings", (int)LLAMA3_CONTEXT);
    if (settings->scaling == TCQ_GGUF_SCALING_NONE)
        return json_null();
    const char *type = settings->scaling == TCQ_GGUF_SCALING_YARN ? "yarn" : "linear";
    json_t *scaling = json_pack("{s:s, s:s, s:f}", "rope_type", type, "type", type, "factor",
                                shortest(settings->scaling_factor));
    if (scaling != NULL && settings->scaling_context != 0)
        json_object_set_new(scaling, "original_max_position_embeddings",
                            json_integer(settings->scaling_context));
    return scaling;
}

/* ------------------------------------------------------------------------ */
/* The whole                                                                 */
/* ------------------------------------------------------------------------ */

static json_t *sizes_json(const struct tcq_gguf_settings *settings)
{
    return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:s}",
                     "architectures", settings->family->model_class, "model_type",
                     settings->family->model_type, "hidden_size", (json_int_t)settings->hidden,
                     "intermediate_size", (json_int_t)settings->intermediate, "num_hidden_layers",
                     (json_int_t)settings->layer_count, "num_attention_heads",
                     (json_int_t)settings->head_count, "num_key_value_heads",
                     (json_int_t)settings->kv_head_count, "head_dim",
                     (json_int_t)settings->head_dim, "vocab_size", (json_int_t)settings->vocab,
                     "max_position_embeddings", (json_int_t)settings->context, "rms_norm_eps",
                     shortest(settings->norm_epsilon), "rope_theta", shortest(settings->rope_theta),
                     "hidden_act", "silu", "torch_dtype", "bfloat16");
}

static bool add_flags(json_t *config, const struct tcq_gguf_model *model)
{
    const struct tcq_gguf *file = tcq_gguf_model_file(model);
    const struct tcq_gguf_family *family = tcq_gguf_model_settings(model)->family;
    bool tied = tcq_gguf_tensor_find(file, "output.weight") == NULL;
    bool failed = json_object_set_new(config, "tie_word_embeddings", json_boolean(tied)) != 0;
    if (family->qkv_bias) /* always there, so that no key says so */
        return !failed;
    bool attention = tcq_gguf_tensor_find(file, "blk.0.attn_q.bias") != NULL;
    failed |= json_object_set_new(config, "attention_bias", json_boolean(attention)) != 0;
    if (family->rotary_reordered) {
        bool mlp = tcq_gguf_tensor_find(file, "blk.0.ffn_up.bias") != NULL;
        failed |= json_object_set_new(config, "mlp_bias", json_boolean(mlp)) != 0;
    }
    return !failed;
}

static bool add_token_ids(json_t *config, const struct tcq_gguf_model *model)
{
    static const char *const names[][2] = {
        {"bos", "bos_token_id"}, {"eos", "eos_token_id"}, {"padding", "pad_token_id"}};
    bool failed = false;
    uint32_t id;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tcq_gguf_token_id(model, names[i][0], &id))
            failed |= json_object_set_new(config, names[i][1], json_integer(id)) != 0;
    return !failed;
}

enum tcq_status tcq_gguf_config_make(const struct tcq_gguf_model *model, json_t **out,
                                     struct tcq_error *error)
{
    const struct tcq_gguf_settings *settings = tcq_gguf_model_settings(model);
    double llama3;
    enum tcq_status status = find_llama3(model, &llama3, error);
    if (status != TCQ_OK)
        return status;
    json_t *config = sizes_json(settings);
    bool done = config != NULL &&
                json_object_set_new(config, "rope_scaling", scaling_json(settings, llama3)) == 0 &&
                add_flags(config, model) && add_token_ids(config, model);
    if (!done) {
        json_decref(config);
        return tcq_error_set(error, TCQ_ERROR_MEMORY, "%s: out of memory for config.json",
                             tcq_gguf_label(tcq_gguf_model_file(model)));
    }
    *out = config;
    return TCQ_OK;
}
