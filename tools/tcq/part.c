/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of an output: who makes what, their description, and joining them.
 */
#include "part.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "job.h"

static const char description_name[] = "tcq-part.json";

/* ---- Dividing ---- */

struct share {
    size_t entry;
    uint64_t cost;
};

/* Encoding costs a thousand times what copying does. */
static uint64_t cost_of(const struct plan_entry *entry)
{
    return entry->action == PLAN_PACK ? 1000 * entry->tensor->count : entry->nbytes;
}

static int by_cost(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? 1 : -1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static void assign(const struct share *shares, size_t count, uint64_t *loads, uint32_t parts,
                   uint32_t *owner)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t least = 0;
        for (uint32_t p = 1; p < parts; p++)
            least = loads[p] < loads[least] ? p : least;
        loads[least] += shares[i].cost;
        owner[shares[i].entry] = least;
    }
}

static struct share *sorted_shares(const struct plan *plan)
{
    struct share *shares = calloc(plan->count + 1, sizeof *shares);
    if (!shares)
        return NULL;
    for (size_t i = 0; i < plan->count; i++)
        shares[i] = (struct share){i, cost_of(&plan->entries[i])};
    qsort(shares, plan->count, sizeof *shares, by_cost);
    return shares;
}

int part_take(struct plan *plan, uint32_t part, uint32_t parts)
{
    struct share *shares = sorted_shares(plan);
    uint64_t *loads = calloc(parts, sizeof *loads);
    uint32_t *owner = calloc(plan->count + 1, sizeof *owner);
    bool ok = shares && loads && owner;
    if (ok) {
        assign(shares, plan->count, loads, parts, owner);
        plan_keep(plan, owner, part - 1);
    }
    free(shares);
    free(loads);
    free(owner);
    return ok ? CLI_CONTINUE : cli_out_of_memory();
}

size_t *part_order(const struct plan *plan)
{
    struct share *shares = sorted_shares(plan);
    size_t *order = calloc(plan->count + 1, sizeof *order);
    for (size_t i = 0; shares && order && i < plan->count; i++)
        order[i] = shares[i].entry;
    if (!shares) {
        free(order);
        order = NULL;
    }
    free(shares);
    return order;
}

/* ---- Describing ---- */

struct cli_text part_file_name(uint32_t part, uint32_t parts)
{
    struct cli_text name;
    snprintf(name.s, sizeof name.s, "part-%u-of-%u.safetensors", part, parts);
    return name;
}

/* What the parts of one output have in common. */
static json_t *common_options(const struct plan_options *options)
{
    json_t *json = job_options_json(options);
    if (json)
        json_object_del(json, "part");
    return json;
}

int part_write(const struct output *output, const struct plan_options *options,
               const struct output_list *whole, const char *config)
{
    json_t *json = json_pack("{s:i, s:i, s:o, s:s, s:o}", "part", (int)options->part, "parts",
                             (int)options->parts, "options", common_options(options), "config",
                             config, "tensors", output_list_json(whole));
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    int code = text ? output_write_text(output, description_name, text) : cli_out_of_memory();
    free(text);
    json_decref(json);
    return code;
}

static int read_description(struct part *part)
{
    char *path = NULL;
    json_error_t why;
    if (asprintf(&path, "%s/%s", part->path, description_name) < 0)
        return cli_out_of_memory();
    if (!tcq_path_exists(path)) {
        cli_message("%s: %s", part->path,
                    !tcq_path_exists(part->path) ? "no such folder"
                                                 : "no part of an output: it has no tcq-part.json");
        free(path);
        return CLI_FAILED;
    }
    part->description = json_load_file(path, 0, &why);
    int code = CLI_CONTINUE;
    int number = 0, count = 0;
    if (!part->description)
        cli_message("%s: not a description of a part: line %d: %s", path, why.line, why.text), code = CLI_FAILED;
    else if (json_unpack(part->description, "{s:i, s:i}", "part", &number, "parts", &count) != 0 ||
             number < 1 || number > count)
        cli_message("%s: not a description of a part", path), code = CLI_FAILED;
    part->part = (uint32_t)number;
    part->parts = (uint32_t)count;
    free(path);
    return code;
}

int part_refuse(const char *path)
{
    char *file = tcq_path_join(path, description_name);
    bool is_part = file && tcq_path_exists(file);
    tcq_free(file);
    if (!is_part)
        return CLI_CONTINUE;
    struct part part = {.path = path};
    if (read_description(&part) == CLI_CONTINUE)
        cli_message("%s: part %u of %u of an output: 'tcq merge' joins them", path, part.part,
                    part.parts);
    part_close(&part);
    return CLI_FAILED;
}

int part_open(struct part *part, const char *path)
{
    *part = (struct part){.path = path};
    int code = read_description(part);
    char *file = NULL;
    struct tcq_error error = {0};
    if (code == CLI_CONTINUE &&
        asprintf(&file, "%s/%s", path, part_file_name(part->part, part->parts).s) < 0)
        code = cli_out_of_memory();
    if (code == CLI_CONTINUE && tcq_source_open(file, &part->source, &error) != TCQ_OK)
        code = cli_fail(path, &error);
    free(file);
    return code;
}

void part_close(struct part *part)
{
    json_decref(part->description);
    tcq_source_close(part->source);
    *part = (struct part){0};
}

/* ---- Joining ---- */

static bool matches(const struct model_tensor *wanted, const struct tcq_source_tensor *found)
{
    return found->dtype == wanted->dtype && found->rank == wanted->rank &&
           memcmp(found->shape, wanted->shape, wanted->rank * sizeof *wanted->shape) == 0;
}

static const struct tcq_source_tensor *find(const struct model_tensor *wanted,
                                            struct tcq_source *const *sources, size_t count)
{
    const struct tcq_source_tensor *found = NULL;
    for (size_t s = 0; s < count; s++) {
        const struct tcq_source_tensor *tensor = tcq_source_find(sources[s], wanted->name);
        if (!tensor)
            continue;
        if (found || !matches(wanted, tensor)) {
            cli_message("%s: tensor '%s': %s", tensor->file, wanted->name,
                        found ? "is in another part, too"
                              : "has another type or shape than planned");
            return NULL;
        }
        found = tensor;
    }
    if (!found)
        cli_message("tensor '%s': is in none of the parts", wanted->name);
    return found;
}

int part_join(struct model_writer *writer, const struct output_list *list,
              struct tcq_source *const *sources, size_t source_count, const struct cli_args *args)
{
    struct cli_progress progress;
    struct tcq_error error = {0};
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < list->count; i++)
        total += model_tensor_nbytes(&list->tensors[i]);
    cli_progress_start(&progress, args, "joining", "B", 0, total);
    int code = CLI_CONTINUE;
    for (size_t i = 0; code == CLI_CONTINUE && i < list->count; i++) {
        const struct model_tensor *wanted = &list->tensors[i];
        const struct tcq_source_tensor *found = find(wanted, sources, source_count);
        if (!found)
            code = CLI_FAILED;
        else if (model_writer_write(writer, i, found->data, (size_t)found->nbytes, &error) !=
                 TCQ_OK)
            code = cli_fail(NULL, &error);
        done += model_tensor_nbytes(wanted);
        cli_progress_show(&progress, done, wanted->name);
        if (code == CLI_CONTINUE && cli_interrupted()) {
            cli_message("interrupted");
            code = CLI_FAILED;
        }
    }
    if (code == CLI_CONTINUE && model_writer_finish(writer, &error) != TCQ_OK)
        code = cli_fail(NULL, &error);
    cli_progress_end(&progress);
    return code;
}
