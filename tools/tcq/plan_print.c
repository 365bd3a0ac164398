/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan as a table and as JSON.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "table.h"

/* Entries that share one row of the table. */
struct group {
    char *name;
    const struct plan_entry *first;
    size_t count;
    uint64_t nbytes;
};

static bool same_row(const struct group *group, const struct plan_entry *entry, const char *name)
{
    const struct plan_entry *first = group->first;
    return strcmp(group->name, name) == 0 && first->action == entry->action &&
           first->tensor->rank == entry->tensor->rank &&
           memcmp(first->tensor->shape, entry->tensor->shape,
                  entry->tensor->rank * sizeof *entry->tensor->shape) == 0 &&
           strcmp(first->tensor->type, entry->tensor->type) == 0 &&
           first->geometry.k == entry->geometry.k && first->geometry.T == entry->geometry.T &&
           first->geometry.axis == entry->geometry.axis &&
           first->geometry.layout == entry->geometry.layout;
}

static void group_free(struct group *groups, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(groups[i].name);
    free(groups);
}

/* NULL without memory. */
static struct group *group_entries(const struct plan *plan, bool all, size_t *out_count)
{
    struct group *groups = calloc(plan->count ? plan->count : 1, sizeof *groups);
    size_t count = 0;
    for (size_t i = 0; groups && i < plan->count; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        const char *name = entry->tensor->name;
        char *shared = all ? strdup(name) : table_group_name(name);
        if (!shared) {
            group_free(groups, count);
            return NULL;
        }
        size_t g = 0;
        while (g < count && !same_row(&groups[g], entry, shared))
            g++;
        if (g == count)
            groups[count++] = (struct group){.name = shared, .first = entry};
        else
            free(shared);
        groups[g].count++;
        groups[g].nbytes += entry->nbytes;
    }
    *out_count = count;
    return groups;
}

static void print_shape(struct table *table, const struct tcq_source_tensor *tensor)
{
    char text[160] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < tensor->rank; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%llu", i ? "x" : "",
                                 (unsigned long long)tensor->shape[i]);
    table_cell(table, "%s", used ? text : "scalar");
}

static void print_group(struct table *table, const struct group *group)
{
    const struct plan_entry *entry = group->first;
    const struct tcq_geometry *g = &entry->geometry;
    table_cell(table, "%s", group->name);
    table_cell(table, "%zu", group->count);
    print_shape(table, entry->tensor);
    table_cell(table, "%s", entry->tensor->type);
    if (entry->action == PLAN_PACK) {
        table_cell(table, "%u", g->k);
        table_cell(table, "%u", g->T);
        table_cell(table, "%u%s", g->axis, g->layout == TCQ_LAYOUT_INTERLEAVED ? "i" : "");
        table_cell(table, "%.3f", tcq_geometry_bits_per_weight(g));
    } else {
        table_cell(table, "%s",
                   entry->action == PLAN_CONVERT ? tcq_dtype_name(entry->dtype) : "kept");
        table_cell(table, "%s", "");
        table_cell(table, "%s", "");
        double count = (double)entry->tensor->count;
        table_cell(table, "%.3f", count > 0 ? 8.0 * (double)entry->nbytes / count : 0.0);
    }
    table_cell(table, "%s", cli_nbytes_text(group->nbytes).s);
    table_cell(table, "%s", entry->reason ? entry->reason : "");
}

bool plan_print(const struct plan *plan, bool all)
{
    size_t count = 0;
    struct group *groups = group_entries(plan, all, &count);
    if (!groups) {
        cli_out_of_memory();
        return false;
    }
    bool reasons = false;
    for (size_t i = 0; i < plan->count; i++)
        reasons |= plan->entries[i].reason != NULL;
    const char *const titles[] = {
        "tensor", "n",    "shape",       "from", "k",
        "block",  "axis", "bits/weight", "size", reasons ? "not packed because" : "",
        NULL};
    struct table table;
    table_start(&table, "lrrlrrrrrl", titles);
    for (size_t i = 0; i < count; i++)
        print_group(&table, &groups[i]);
    group_free(groups, count);
    bool printed = table_print(&table);
    double packed = (double)plan->packed_weights, total = (double)plan->weights;
    printf("\npacked  %zu tensors, %s weights, %s, %.3f bits per weight\n", plan->packed_count,
           cli_count_text(packed).s, cli_nbytes_text(plan->packed_nbytes).s,
           packed > 0 ? 8.0 * (double)plan->packed_nbytes / packed : 0.0);
    printf("total   %zu tensors, %s weights, %s, %.3f bits per weight, %zu file%s; source %s\n",
           plan->count, cli_count_text(total).s, cli_nbytes_text(plan->nbytes).s,
           total > 0 ? 8.0 * (double)plan->nbytes / total : 0.0, plan->shard_count,
           plan->shard_count == 1 ? "" : "s", cli_nbytes_text(plan->source_nbytes).s);
    plan_print_growth(plan);
    return printed;
}

void plan_print_growth(const struct plan *plan)
{
    const struct plan_entry *first = NULL;
    size_t count = 0;
    uint64_t before = 0, after = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        if (entry->action != PLAN_CONVERT || entry->nbytes <= entry->tensor->nbytes)
            continue;
        first = first ? first : entry;
        count++;
        before += entry->tensor->nbytes;
        after += entry->nbytes;
    }
    if (!first)
        return;
    printf("not packed, so larger than in the source: %s", first->tensor->name);
    if (count > 1)
        printf(" and %zu more", count - 1);
    printf(", %s as %s, %s as 16 bits (--head-bits K packs the embedding and the head, "
           "--include '*' every matrix)\n",
           cli_nbytes_text(before).s, first->tensor->type, cli_nbytes_text(after).s);
}

int plan_fail_empty(const struct plan *plan, const struct plan_options *options, const char *path)
{
    const char *reason = NULL, *name = NULL;
    for (size_t i = 0; i < plan->count && !reason; i++)
        if ((reason = plan->entries[i].reason))
            name = plan->entries[i].tensor->name;
    if (reason)
        cli_message("%s: nothing to pack: tensor '%s': %s%s", path, name, reason,
                    options->mlx_bun ? " (--preset mlx-bun has blocks of 256)" : "");
    else if (options->include.count || options->exclude.count)
        cli_message("%s: nothing to pack: --include and --exclude leave no matrix", path);
    else
        cli_message("%s: nothing to pack: no matrix has the name of a projection of a block "
                    "(--include GLOB names others)",
                    path);
    return CLI_FAILED;
}

static json_t *entry_json(const struct plan_entry *entry)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < entry->tensor->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)entry->tensor->shape[i]));
    static const char *const actions[] = {"pack", "keep", "convert"};
    json_t *json = json_pack("{s:s, s:s, s:o, s:s, s:I}", "name", entry->tensor->name, "type",
                             entry->tensor->type, "shape", shape, "action", actions[entry->action],
                             "nbytes", (json_int_t)entry->nbytes);
    if (json && entry->action == PLAN_PACK) {
        const struct tcq_geometry *g = &entry->geometry;
        json_object_set_new(json, "k", json_integer(g->k));
        json_object_set_new(json, "L", json_integer(g->L));
        json_object_set_new(json, "block", json_integer(g->T));
        json_object_set_new(json, "axis", json_integer(g->axis));
        json_object_set_new(json, "interleaved", json_boolean(g->layout == TCQ_LAYOUT_INTERLEAVED));
        json_object_set_new(json, "bits_per_weight", json_real(tcq_geometry_bits_per_weight(g)));
    }
    if (json && entry->reason)
        json_object_set_new(json, "reason", json_string(entry->reason));
    return json;
}

json_t *plan_json(const struct plan *plan)
{
    json_t *tensors = json_array();
    for (size_t i = 0; tensors && i < plan->count; i++)
        json_array_append_new(tensors, entry_json(&plan->entries[i]));
    double packed = (double)plan->packed_weights;
    return json_pack("{s:o, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I}", "tensors", tensors,
                     "packed_tensors", (json_int_t)plan->packed_count, "packed_weights",
                     (json_int_t)plan->packed_weights, "packed_nbytes",
                     (json_int_t)plan->packed_nbytes, "packed_bits_per_weight",
                     packed > 0 ? 8.0 * (double)plan->packed_nbytes / packed : 0.0, "weights",
                     (json_int_t)plan->weights, "nbytes", (json_int_t)plan->nbytes,
                     "source_nbytes", (json_int_t)plan->source_nbytes, "files",
                     (json_int_t)plan->shard_count);
}
