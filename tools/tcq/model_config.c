/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of what the command reads and writes.
 */
#include "model_config.h"

#include <stdlib.h>
#include <string.h>

int model_config_open(const struct tcq_source *source, const char *path, struct tcq_config **out)
{
    const char *text = tcq_source_config(source);
    struct tcq_error error = {0};
    *out = NULL;
    if (text && tcq_config_parse(text, strlen(text), out, &error) != TCQ_OK)
        return cli_fail(path, &error);
    return CLI_CONTINUE;
}

int model_config_refuse_packed(const struct tcq_source *source, const char *path)
{
    struct tcq_config *config = NULL;
    int code = model_config_open(source, path, &config);
    if (code == CLI_CONTINUE && config && tcq_config_module_count(config) > 0) {
        cli_message("%s: packed already ('%s' and others): 'tcq dequantize' makes a plain model",
                    path, tcq_config_module_name(config, 0));
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

int model_config_packed(char **out, const struct tcq_source *source, const struct plan *plan)
{
    struct tcq_module_entry *modules = calloc(plan->count + 1, sizeof *modules);
    if (!modules)
        return cli_out_of_memory();
    size_t count = list_modules(modules, plan);
    struct tcq_error error = {0};
    int code = CLI_CONTINUE;
    if (tcq_config_write(tcq_source_config(source), modules, count, out, &error) != TCQ_OK)
        code = cli_fail("config.json", &error);
    free(modules);
    return code;
}
