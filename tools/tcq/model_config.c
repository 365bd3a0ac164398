/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of what the command reads and writes.
 */
#include "model_config.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

/* The config.json in the folder of a safetensors file; empty without one. */
static enum tcq_status map_neighbour(const char *path, struct tcq_mapping *out,
                                     struct tcq_error *error)
{
    *out = (struct tcq_mapping){0};
    char *copy = strdup(path);
    char *name = copy ? tcq_path_join(dirname(copy), "config.json") : NULL;
    enum tcq_status status = TCQ_OK;
    if (!name)
        status = tcq_error_memory(error, strlen(path), "a path");
    else if (tcq_path_is_file(name))
        status = tcq_mapping_open(name, out, error);
    tcq_free(name);
    free(copy);
    return status;
}

int model_config_open(const struct tcq_source *source, const char *path, struct tcq_config **out)
{
    const char *text = tcq_source_config(source);
    size_t nbytes = text ? strlen(text) : 0;
    struct tcq_error error = {0};
    struct tcq_mapping beside = {0};
    enum tcq_status status = TCQ_OK;
    *out = NULL;
    if (!text && tcq_source_get_kind(source) == TCQ_SOURCE_SAFETENSORS) {
        status = map_neighbour(path, &beside, &error);
        text = (const char *)beside.data;
        nbytes = beside.nbytes;
    }
    if (status == TCQ_OK && text && nbytes)
        status = tcq_config_parse(text, nbytes, out, &error);
    tcq_mapping_close(&beside);
    return status == TCQ_OK ? CLI_CONTINUE : cli_fail(path, &error);
}

bool model_config_has_words(const struct tcq_source *source, const char *module)
{
    char *name = NULL;
    bool found = asprintf(&name, "%s.weight", module) >= 0 && tcq_source_find(source, name);
    free(name);
    return found;
}

static const char *packed_module(const struct tcq_source *source, const struct tcq_config *config)
{
    bool file = tcq_source_get_kind(source) == TCQ_SOURCE_SAFETENSORS;
    for (size_t i = 0; config && i < tcq_config_module_count(config); i++) {
        const char *module = tcq_config_module_name(config, i);
        if (!file || model_config_has_words(source, module))
            return module;
    }
    return NULL;
}

int model_config_refuse_packed(const struct tcq_source *source, const char *path)
{
    struct tcq_config *config = NULL;
    int code = model_config_open(source, path, &config);
    const char *module = code == CLI_CONTINUE ? packed_module(source, config) : NULL;
    if (module) {
        cli_message("%s: packed already ('%s' and others): 'tcq dequantize' makes a plain model",
                    path, module);
        code = CLI_FAILED;
    }
    tcq_config_destroy(config);
    return code;
}

/* Modules of the plan: packed ones, and matrices that were left as they are. */
static size_t list_modules(struct tcq_module_entry *modules, const struct plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        const struct tcq_geometry *g = &entry->geometry;
        bool packed = entry->action == PLAN_PACK;
        if (!packed && (entry->tensor->rank < 2 || strcmp(entry->module, entry->tensor->name) == 0))
            continue;
        modules[count] = (struct tcq_module_entry){.name = entry->module, .packed = packed};
        if (packed)
            modules[count].config = (struct tcq_module_config){g->k, g->L, g->T, g->axis};
        count++;
    }
    return count;
}

/* A copy of what a source, or the folder of a safetensors file, has for config.json; NULL
 * without one. */
static enum tcq_status config_text(const struct tcq_source *source, const char *path, char **out,
                                   struct tcq_error *error)
{
    struct tcq_mapping beside = {0};
    const char *own = tcq_source_config(source);
    enum tcq_status status = TCQ_OK;
    *out = NULL;
    if (own)
        *out = strdup(own);
    else if (tcq_source_get_kind(source) == TCQ_SOURCE_SAFETENSORS)
        status = map_neighbour(path, &beside, error);
    if (status == TCQ_OK && beside.nbytes)
        *out = strndup((const char *)beside.data, beside.nbytes);
    if (status == TCQ_OK && (own || beside.nbytes) && !*out)
        status = tcq_error_memory(error, beside.nbytes, "config.json");
    tcq_mapping_close(&beside);
    return status;
}

int model_config_packed(char **out, const struct tcq_source *source, const char *path,
                        const struct plan *plan)
{
    struct tcq_module_entry *modules = calloc(plan->count + 1, sizeof *modules);
    if (!modules)
        return cli_out_of_memory();
    size_t count = list_modules(modules, plan);
    struct tcq_error error = {0};
    int code = CLI_CONTINUE;
    char *text = NULL;
    if (config_text(source, path, &text, &error) != TCQ_OK ||
        tcq_config_write(text, modules, count, out, &error) != TCQ_OK)
        code = cli_fail("config.json", &error);
    free(text);
    free(modules);
    return code;
}
