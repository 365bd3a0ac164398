/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `quantization` section of a config.json: which modules are packed, and
 * how.  Sections that other software wrote are looked through, not judged: only
 * modules of mode "trellis" are ours.
 */
#include "format/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/geometry.h"
#include "format/json.h"

struct module {
    const char *name; /* lives in root */
    struct tcq_module_config config;
};

struct tcq_config {
    json_t *root;
    struct module *modules; /* sorted by name */
    size_t count;
};

/* Modes of other quantizations whose modules are left alone. */
static const char *const foreign_modes[] = {"affine", "mxfp4", "mxfp8", "nvfp4"};

bool tcq_config_is_default_key(const char *key)
{
    return !strcmp(key, "group_size") || !strcmp(key, "bits") || !strcmp(key, "mode");
}

enum tcq_status tcq_module_config_check(const struct tcq_module_config *config,
                                        struct tcq_error *error)
{
    enum tcq_status status = tcq_geometry_check_code(config->k, config->L, config->T, error);
    if (status == TCQ_OK && config->axis > 1)
        status =
            tcq_error_set(error, TCQ_ERROR_GEOMETRY, "axis = %u: expected 0 or 1", config->axis);
    return status;
}

/* A member that is there and not null. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

enum tcq_status tcq_config_section(const json_t *root, const json_t **out, struct tcq_error *error)
{
    static const char *const keys[] = {"quantization", "quantization_config"};
    const json_t *sections[2];
    for (int i = 0; i < 2; i++) {
        sections[i] = member(root, keys[i]);
        if (sections[i] && !json_is_object(sections[i]))
            return tcq_error_set(error, TCQ_ERROR_FORMAT, "%s is not an object", keys[i]);
    }
    if (sections[0] && sections[1] && !json_equal(sections[0], sections[1]))
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "%s and %s differ", keys[0], keys[1]);
    *out = sections[0] ? sections[0] : sections[1];
    return TCQ_OK;
}

/* Numbers were read as float64, so that an integer too large for jansson does
 * not make the whole file unreadable. */
static enum tcq_status read_number(const json_t *object, const char *key, uint32_t *out,
                                   struct tcq_error *error)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "no '%s'", key);
    double number = json_is_real(value) ? json_real_value(value) : -1;
    if (!(number >= 0 && number <= UINT32_MAX) || number != (double)(uint32_t)number)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "'%s' is not a whole number from 0", key);
    *out = (uint32_t)number;
    return TCQ_OK;
}

static enum tcq_status read_trellis(const json_t *entry, struct tcq_module_config *out,
                                    struct tcq_error *error)
{
    const json_t *trellis = json_object_get(entry, "trellis");
    if (!json_is_object(trellis))
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "mode is trellis, but 'trellis' is missing "
                             "or not an object");
    const char *code = json_string_value(json_object_get(trellis, "code"));
    if (!code)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "'code' is missing or not a string");
    if (strcmp(code, "1mad") != 0)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "code '%.40s' is unknown: expected 1mad",
                             code);
    enum tcq_status status = read_number(entry, "bits", &out->k, error);
    if (status == TCQ_OK)
        status = read_number(entry, "group_size", &out->T, error);
    if (status == TCQ_OK)
        status = read_number(trellis, "L", &out->L, error);
    if (status == TCQ_OK)
        status = read_number(trellis, "axis", &out->axis, error);
    return status == TCQ_OK ? tcq_module_config_check(out, error) : status;
}

/* TCQ_OK with *ours false where the module is somebody else's. */
static enum tcq_status check_mode(const json_t *entry, bool *ours, struct tcq_error *error)
{
    const json_t *value = json_object_get(entry, "mode");
    const char *mode = json_string_value(value);
    *ours = false;
    if (value && !mode)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "mode is not a string");
    if (mode && !strcmp(mode, "trellis")) {
        *ours = true;
        return TCQ_OK;
    }
    if (json_object_get(entry, "trellis"))
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "has 'trellis', but its mode is not trellis");
    for (size_t i = 0; mode && i < sizeof foreign_modes / sizeof *foreign_modes; i++)
        if (!strcmp(mode, foreign_modes[i]))
            return TCQ_OK;
    return mode ? tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "mode '%.40s' is unknown", mode)
                : TCQ_OK;
}

static enum tcq_status read_defaults(const json_t *section, struct tcq_error *error)
{
    bool trellis;
    enum tcq_status status = check_mode(section, &trellis, error);
    if (status == TCQ_OK && trellis)
        status = tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                               "mode trellis as the default: expected an entry for each module");
    return status;
}

static int compare_modules(const void *a, const void *b)
{
    return strcmp(((const struct module *)a)->name, ((const struct module *)b)->name);
}

static enum tcq_status read_modules(struct tcq_config *config, const json_t *section,
                                    struct tcq_error *error)
{
    size_t entries = json_object_size(section);
    config->modules = tcq_alloc(entries, sizeof *config->modules);
    if (!config->modules)
        return tcq_error_memory(error, entries * sizeof *config->modules, "the list of modules");
    json_t *object = (json_t *)(uintptr_t)section; /* jansson's iterators are not const */
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i)) {
        struct module *module = &config->modules[config->count];
        const json_t *entry = json_object_iter_value(i);
        bool ours = false;
        module->name = json_object_iter_key(i);
        if (tcq_config_is_default_key(module->name) || !json_is_object(entry))
            continue;
        enum tcq_status status = check_mode(entry, &ours, error);
        if (status == TCQ_OK && ours)
            status = read_trellis(entry, &module->config, error);
        if (status != TCQ_OK)
            return tcq_error_prefix(error, status, "module '%.100s'", module->name);
        config->count += ours;
    }
    qsort(config->modules, config->count, sizeof *config->modules, compare_modules);
    return TCQ_OK;
}

static enum tcq_status parse(struct tcq_config *config, const char *text, size_t nbytes,
                             struct tcq_error *error)
{
    const json_t *section = NULL;
    enum tcq_status status =
        tcq_json_parse(text, nbytes, JSON_DECODE_INT_AS_REAL, &config->root, error);
    if (status == TCQ_OK)
        status = tcq_config_section(config->root, &section, error);
    if (status == TCQ_OK && section) {
        status = read_defaults(section, error);
        if (status == TCQ_OK)
            status = read_modules(config, section, error);
        if (status != TCQ_OK)
            tcq_error_prefix(error, status, "quantization");
    }
    return status == TCQ_OK ? status : tcq_error_prefix(error, status, "config.json");
}

enum tcq_status tcq_config_parse(const char *text, size_t text_nbytes, struct tcq_config **out,
                                 struct tcq_error *error)
{
    if (!text || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "config: text or out is NULL");
    struct tcq_config *config = tcq_alloc(1, sizeof *config);
    if (!config)
        return tcq_error_memory(error, sizeof *config, "a config");
    enum tcq_status status = parse(config, text, text_nbytes, error);
    if (status != TCQ_OK)
        tcq_config_destroy(config);
    else
        *out = config;
    return status;
}

void tcq_config_destroy(struct tcq_config *config)
{
    if (!config)
        return;
    json_decref(config->root);
    tcq_free(config->modules);
    tcq_free(config);
}

size_t tcq_config_module_count(const struct tcq_config *config)
{
    return config->count;
}

const char *tcq_config_module_name(const struct tcq_config *config, size_t i)
{
    return i < config->count ? config->modules[i].name : NULL;
}

bool tcq_config_find(const struct tcq_config *config, const char *module,
                     struct tcq_module_config *out)
{
    if (!config->count)
        return false;
    struct module key = {.name = module};
    const struct module *found =
        bsearch(&key, config->modules, config->count, sizeof key, compare_modules);
    if (found)
        *out = found->config;
    return found != NULL;
}
