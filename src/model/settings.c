/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json to struct tcq_settings.
 */
#include "model/settings.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/json.h"

/* No known dense model comes near these; beyond them a size is a mistake. */
enum { SIZE_MAX_FEATURES = 1 << 20, SIZE_MAX_VOCAB = 1 << 22, SIZE_MAX_POSITIONS = 1 << 26 };

static const struct family {
    const char *name;
    bool head_norms, qkv_bias;
    uint32_t window; /* where the config does not say */
} families[] = {
    {"llama", false, false, 0},
    {"mistral", false, false, 4096},
    {"qwen2", false, true, 4096},
    {"qwen3", true, false, 4096},
};

/* Members that change what the model computes and are not implemented, unless
 * null, false or zero. */
static const char *const refused[] = {
    "num_experts",           "num_local_experts",    "attn_logit_softcapping",
    "final_logit_softcapping", "rope_interleaved",   "logit_scale",
    "residual_multiplier",   "embedding_multiplier", "attention_multiplier",
    "logits_scaling",        "query_pre_attn_scalar", "use_qk_norm",
    "attention_chunk_size",  "no_rope_layers",       "clip_qkv",
    "use_mrope",             "vision_config",        "text_config",
};

static enum tcq_status check_refused(const json_t *config, struct tcq_error *error)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const json_t *value = json_object_get(config, refused[i]);
        bool off = !value || json_is_null(value) || json_is_false(value) ||
                   (json_is_number(value) && json_number_value(value) == 0) ||
                   (json_is_array(value) && json_array_size(value) == 0);
        if (!off)
            return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                                 "config.json: '%s' is not implemented", refused[i]);
    }
    const char *act = tcq_json_string(config, "hidden_act", "silu");
    if (strcmp(act, "silu") != 0)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "config.json: hidden_act '%s' is not implemented ('silu' is)", act);
    double rotary = 1;
    enum tcq_status status = tcq_json_double(config, "partial_rotary_factor", &rotary, error);
    if (!status && rotary != 1)
        status = tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                               "config.json: partial_rotary_factor %g is not implemented", rotary);
    return status;
}

static enum tcq_status read_family(const json_t *config, struct tcq_settings *out,
                                   struct tcq_error *error)
{
    const char *type = tcq_json_string(config, "model_type", "");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(type, families[i].name) == 0) {
            out->family = families[i].name;
            out->head_norms = families[i].head_norms;
            out->qkv_bias = families[i].qkv_bias;
            out->window = families[i].window;
            return TCQ_OK;
        }
    return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                         "config.json: model_type '%.60s' is not implemented (llama, mistral, "
                         "qwen2 and qwen3 are)",
                         type);
}

static enum tcq_status read_sizes(const json_t *config, struct tcq_settings *out,
                                  struct tcq_error *error)
{
    const struct {
        const char *key;
        uint32_t *value;
        uint32_t most;
    } sizes[] = {
        {"num_hidden_layers", &out->layers, TCQ_LAYERS_MAX},
        {"hidden_size", &out->hidden, SIZE_MAX_FEATURES},
        {"intermediate_size", &out->intermediate, SIZE_MAX_FEATURES},
        {"num_attention_heads", &out->heads, TCQ_HEADS_MAX},
        {"num_key_value_heads", &out->kv_heads, TCQ_HEADS_MAX},
        {"head_dim", &out->head_dim, SIZE_MAX_FEATURES},
        {"vocab_size", &out->vocab, SIZE_MAX_VOCAB},
        {"max_position_embeddings", &out->positions, SIZE_MAX_POSITIONS},
    };
    out->positions = 2048;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        enum tcq_status status = tcq_json_u32(config, sizes[i].key, sizes[i].value, error);
        if (status)
            return status;
        if (sizes[i].value == &out->kv_heads && out->kv_heads == 0)
            out->kv_heads = out->heads;
        if (sizes[i].value == &out->head_dim && out->head_dim == 0 && out->heads)
            out->head_dim = out->hidden / out->heads;
        if (*sizes[i].value == 0 || *sizes[i].value > sizes[i].most)
            return tcq_error_set(error, TCQ_ERROR_FORMAT,
                                 "config.json: %s is %u, expected 1..%u", sizes[i].key,
                                 *sizes[i].value, sizes[i].most);
    }
    if (out->heads % out->kv_heads || out->head_dim % 2 ||
        (uint64_t)out->heads * out->head_dim > SIZE_MAX_FEATURES)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "config.json: %u heads of %u on %u key-value heads do not fit together",
                             out->heads, out->head_dim, out->kv_heads);
    return TCQ_OK;
}

/* rope_scaling of older files; rope_parameters, with theta in it, of newer ones. */
static enum tcq_status read_rope(const json_t *config, struct tcq_settings *out,
                                 struct tcq_error *error)
{
    const json_t *rope = json_object_get(config, "rope_parameters");
    if (!json_is_object(rope))
        rope = json_object_get(config, "rope_scaling");
    out->rope_theta = 10000;
    enum tcq_status status = tcq_json_double(config, "rope_theta", &out->rope_theta, error);
    if (!status)
        status = tcq_json_double(rope, "rope_theta", &out->rope_theta, error);
    if (status)
        return status;
    const char *type = tcq_json_string(rope, "rope_type", tcq_json_string(rope, "type", "default"));
    if (strcmp(type, "linear") == 0)
        out->scaling = TCQ_ROPE_LINEAR;
    else if (strcmp(type, "llama3") == 0)
        out->scaling = TCQ_ROPE_LLAMA3;
    else if (strcmp(type, "default") != 0)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "config.json: rope type '%.60s' is not implemented (default, linear "
                             "and llama3 are)",
                             type);
    out->scaling_factor = out->low_frequency = 1;
    out->high_frequency = 4;
    out->original_positions = out->positions;
    const struct {
        const char *key;
        double *value;
    } numbers[] = {{"factor", &out->scaling_factor},
                   {"low_freq_factor", &out->low_frequency},
                   {"high_freq_factor", &out->high_frequency},
                   {"original_max_position_embeddings", &out->original_positions}};
    for (size_t i = 0; i < 4 && !status && out->scaling; i++) {
        status = tcq_json_double(rope, numbers[i].key, numbers[i].value, error);
        if (!status && !(*numbers[i].value > 0 && isfinite(*numbers[i].value)))
            status = tcq_error_set(error, TCQ_ERROR_FORMAT, "config.json: rope %s is %g",
                                   numbers[i].key, *numbers[i].value);
    }
    if (!status && !(out->rope_theta > 1 && isfinite(out->rope_theta)))
        status = tcq_error_set(error, TCQ_ERROR_FORMAT, "config.json: rope_theta is %g",
                               out->rope_theta);
    if (!status && out->scaling == TCQ_ROPE_LLAMA3 && !(out->high_frequency > out->low_frequency))
        status = tcq_error_set(error, TCQ_ERROR_FORMAT,
                               "config.json: rope high_freq_factor %g is not above %g",
                               out->high_frequency, out->low_frequency);
    return status;
}

static enum tcq_status read_flags(const json_t *config, struct tcq_settings *out,
                                  struct tcq_error *error)
{
    bool attention_bias = false;
    const struct {
        const char *key;
        bool *value;
    } flags[] = {{"tie_word_embeddings", &out->tied},
                 {"attention_bias", &attention_bias},
                 {"mlp_bias", &out->mlp_bias}};
    enum tcq_status status = TCQ_OK;
    for (size_t i = 0; i < 3 && !status; i++)
        status = tcq_json_bool(config, flags[i].key, flags[i].value, error);
    /* Qwen 2 has biases on q, k and v whatever else it says, and none on o. */
    if (strcmp(out->family, "qwen2") != 0)
        out->qkv_bias = out->o_bias = attention_bias;
    out->norm_epsilon = 1e-6;
    if (!status)
        status = tcq_json_double(config, "rms_norm_eps", &out->norm_epsilon, error);
    if (!status && !(out->norm_epsilon >= 0 && out->norm_epsilon < 1))
        status = tcq_error_set(error, TCQ_ERROR_FORMAT, "config.json: rms_norm_eps is %g",
                               out->norm_epsilon);
    return status;
}

/* Which layers see a window only. */
static enum tcq_status read_window(const json_t *config, struct tcq_settings *out,
                                   struct tcq_error *error)
{
    bool mistral = strcmp(out->family, "mistral") == 0, use = mistral;
    bool qwen = strncmp(out->family, "qwen", 4) == 0;
    uint32_t full_layers = 28; /* transformers' default of max_window_layers */
    const json_t *types = json_object_get(config, "layer_types");
    const json_t *window = json_object_get(config, "sliding_window");
    enum tcq_status status = tcq_json_u32(config, "sliding_window", &out->window, error);
    if (json_is_null(window))
        out->window = 0;
    if (!status && qwen)
        status = tcq_json_bool(config, "use_sliding_window", &use, error);
    if (!status && qwen)
        status = tcq_json_u32(config, "max_window_layers", &full_layers, error);
    if (status)
        return status;
    if (json_is_array(types) && json_array_size(types) != out->layers)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "config.json: layer_types has %zu entries for %u layers",
                             json_array_size(types), out->layers);
    for (uint32_t i = 0; i < out->layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type && strcmp(type, "full_attention") != 0 && strcmp(type, "sliding_attention") != 0)
            return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                                 "config.json: layer type '%.60s' is not implemented", type);
        bool listed = type && strcmp(type, "sliding_attention") == 0;
        out->windowed[i] = out->window && use && (type ? listed : mistral || i >= full_layers);
    }
    return TCQ_OK;
}

enum tcq_status tcq_settings_read(const json_t *config, struct tcq_settings *out,
                                  struct tcq_error *error)
{
    *out = (struct tcq_settings){0};
    enum tcq_status status = read_family(config, out, error);
    if (!status)
        status = check_refused(config, error);
    if (!status)
        status = read_sizes(config, out, error);
    if (!status)
        status = read_rope(config, out, error);
    if (!status)
        status = read_flags(config, out, error);
    if (!status)
        status = read_window(config, out, error);
    return status;
}

void tcq_settings_rope(const struct tcq_settings *settings, float *frequencies)
{
    uint32_t half = settings->head_dim / 2;
    double original = settings->original_positions;
    for (uint32_t i = 0; i < half; i++) {
        double f = 1 / pow(settings->rope_theta, 2.0 * i / settings->head_dim);
        if (settings->scaling == TCQ_ROPE_LINEAR)
            f /= settings->scaling_factor;
        if (settings->scaling == TCQ_ROPE_LLAMA3) {
            /* Wavelengths well within the original context stay, those beyond it
             * are stretched, those between go smoothly from one to the other. */
            double turns = original * f / (2 * 3.14159265358979323846);
            double smooth = (turns - settings->low_frequency) /
                            (settings->high_frequency - settings->low_frequency);
            smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
            f = (1 - smooth) * f / settings->scaling_factor + smooth * f;
        }
        frequencies[i] = (float)f;
    }
}
