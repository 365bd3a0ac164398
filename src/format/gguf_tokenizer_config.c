/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF's tokenizer metadata to tokenizer_config.json: the special tokens by
 * their texts, and the chat template or templates.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "format/gguf_config.h"
#include "format/gguf_tokenizer.h"

#define TEMPLATE_KEY "tokenizer.chat_template"

static bool add_special_tokens(json_t *config, const struct tcq_gguf_model *model)
{
    static const char *const names[][2] = {{"bos", "bos_token"},
                                           {"eos", "eos_token"},
                                           {"unknown", "unk_token"},
                                           {"padding", "pad_token"}};
    bool failed = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tcq_gguf_text text;
        uint32_t id;
        json_t *value = json_null();
        if (tcq_gguf_token_id(model, names[i][0], &id) && tcq_gguf_token_text(model, id, &text))
            value = json_stringn(text.bytes, text.nbytes);
        failed |= json_object_set_new(config, names[i][1], value) != 0;
    }
    return !failed;
}

static bool add_flags(json_t *config, const struct tcq_gguf *file)
{
    static const char *const keys[][2] = {{"tokenizer.ggml.add_bos_token", "add_bos_token"},
                                          {"tokenizer.ggml.add_eos_token", "add_eos_token"},
                                          {"tokenizer.ggml.add_space_prefix", "add_prefix_space"}};
    bool failed = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct tcq_gguf_value *value = tcq_gguf_find(file, keys[i][0]);
        if (value != NULL && value->type == TCQ_GGUF_VALUE_BOOL)
            failed |= json_object_set_new(config, keys[i][1], json_boolean(value->as.u != 0)) != 0;
    }
    return !failed;
}

/* The name of an entry that is a template ("" for the default one) or false. */
static bool template_name(const struct tcq_gguf_entry *entry, struct tcq_gguf_text *name)
{
    size_t nbytes = strlen(TEMPLATE_KEY);
    struct tcq_gguf_text key = entry->key;
    if (entry->value.type != TCQ_GGUF_VALUE_STRING || key.nbytes < nbytes ||
        memcmp(key.bytes, TEMPLATE_KEY, nbytes) != 0 ||
        !tcq_text_is_utf8(entry->value.as.text.bytes, entry->value.as.text.nbytes))
        return false;
    bool named = key.nbytes > nbytes + 1 && key.bytes[nbytes] == '.';
    *name = named ? (struct tcq_gguf_text){key.bytes + nbytes + 1, key.nbytes - nbytes - 1}
                  : (struct tcq_gguf_text){"", 0};
    return named || key.nbytes == nbytes;
}

/* One template is written as a string, several as a list with their names. */
static bool add_templates(json_t *config, const struct tcq_gguf *file)
{
    json_t *list = json_array();
    struct tcq_gguf_text name;
    bool failed = list == NULL, all_default = true;
    for (size_t i = 0; i < tcq_gguf_entry_count(file) && !failed; i++) {
        const struct tcq_gguf_entry *entry = tcq_gguf_entry_get(file, i);
        if (!template_name(entry, &name))
            continue;
        all_default &= name.nbytes == 0;
        if (name.nbytes == 0)
            name = (struct tcq_gguf_text){"default", 7};
        failed |=
            json_array_append_new(list, json_pack("{s:s%, s:s%}", "name", name.bytes, name.nbytes,
                                                  "template", entry->value.as.text.bytes,
                                                  entry->value.as.text.nbytes)) != 0;
    }
    if (!failed && json_array_size(list) == 1 && all_default)
        failed |= json_object_set(config, "chat_template",
                                  json_object_get(json_array_get(list, 0), "template")) != 0;
    else if (!failed && json_array_size(list) > 0)
        failed |= json_object_set(config, "chat_template", list) != 0;
    json_decref(list);
    return !failed;
}

enum tcq_status tcq_gguf_tokenizer_config_make(const struct tcq_gguf_model *model, json_t **out,
                                               struct tcq_error *error)
{
    const struct tcq_gguf *file = tcq_gguf_model_file(model);
    json_t *config = json_pack(
        "{s:s, s:I, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "model_max_length",
        (json_int_t)tcq_gguf_model_settings(model)->context, "clean_up_tokenization_spaces", 0);
    if (config == NULL || !add_special_tokens(config, model) || !add_flags(config, file) ||
        !add_templates(config, file)) {
        json_decref(config);
        return tcq_error_set(error, TCQ_ERROR_MEMORY, "%s: out of memory for the tokenizer",
                             tcq_gguf_label(file));
    }
    *out = config;
    return TCQ_OK;
}
