/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq inspect: the tensors of a model, how they are stored, and totals.
 */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "model_view.h"
#include "table.h"

enum { KEY_ALL = CLI_KEY_LONG };

static const struct cli_option option_list[] = {
    {KEY_ALL, "all", NULL, "print every tensor, not groups of alike ones"},
    {0},
};

/* Sums over all items, or over those that share a row of the table. */
struct totals {
    size_t tensors, packed_tensors;
    uint64_t weights, nbytes, packed_weights, packed_nbytes;
};

struct group {
    char *name;
    const struct model_item *first;
    struct totals totals;
};

static double bits(uint64_t nbytes, uint64_t weights)
{
    return weights ? 8.0 * (double)nbytes / (double)weights : 0.0;
}

static void count_item(struct totals *totals, const struct model_item *item)
{
    totals->tensors++;
    totals->weights += item->count;
    totals->nbytes += item->nbytes;
    if (!item->packed)
        return;
    totals->packed_tensors++;
    totals->packed_weights += item->count;
    totals->packed_nbytes += item->nbytes;
}

static bool alike(const struct model_item *a, const struct model_item *b)
{
    const struct tcq_geometry *g = &a->tensor.geometry, *h = &b->tensor.geometry;
    if (a->packed != b->packed || a->grouped != b->grouped || a->rank != b->rank || a->problem || b->problem ||
        memcmp(a->shape, b->shape, sizeof a->shape) != 0)
        return false;
    if (a->packed)
        return g->k == h->k && g->L == h->L && g->T == h->T && g->axis == h->axis &&
               g->layout == h->layout;
    if (a->grouped)
        return a->affine.bits == b->affine.bits && a->affine.group == b->affine.group;
    return strcmp(a->stored->type, b->stored->type) == 0;
}

static void print_group(struct table *table, const struct group *group)
{
    const struct model_item *item = group->first;
    const struct tcq_geometry *g = &item->tensor.geometry;
    char shape[160];
    model_item_shape_text(item, shape, sizeof shape);
    table_cell(table, "%s", group->name);
    table_cell(table, "%zu", group->totals.tensors);
    table_cell(table, "%s", shape);
    if (item->packed) {
        table_cell(table, "trellis");
        table_cell(table, "%u", g->k);
        table_cell(table, "%u", g->L);
        table_cell(table, "%u", g->T);
        table_cell(table, "%u%s", g->axis, g->layout == TCQ_LAYOUT_INTERLEAVED ? "i" : "");
    } else if (item->grouped) {
        table_cell(table, "affine");
        table_cell(table, "%u", item->affine.bits);
        table_cell(table, "%s", "");
        table_cell(table, "%u", item->affine.group);
        table_cell(table, "%s", "");
    } else {
        table_cell(table, "%s", item->problem ? "broken" : item->stored->type);
        for (int i = 0; i < 4; i++)
            table_cell(table, "%s", "");
    }
    table_cell(table, "%.3f", bits(group->totals.nbytes, group->totals.weights));
    table_cell(table, "%s", cli_nbytes_text(group->totals.nbytes).s);
}

/* Groups in the order of their first item; false without memory. */
static bool make_groups(const struct model_view *view, bool all, struct group *groups,
                        size_t *count)
{
    for (size_t i = 0; i < view->count; i++) {
        const struct model_item *item = &view->items[i];
        char *name = all ? strdup(item->name) : table_group_name(item->name);
        if (!name)
            return false;
        size_t g = 0;
        while (g < *count && !(strcmp(groups[g].name, name) == 0 && alike(groups[g].first, item)))
            g++;
        if (g == *count)
            groups[(*count)++] = (struct group){.name = name, .first = item};
        else
            free(name);
        count_item(&groups[g].totals, item);
    }
    return true;
}

static bool print_table(const struct model_view *view, bool all)
{
    static const char *const titles[] = {"tensor", "n",    "shape",       "type", "k", "L",
                                         "block",  "axis", "bits/weight", "size", NULL};
    struct group *groups = calloc(view->count + 1, sizeof *groups);
    size_t count = 0;
    bool made = groups && make_groups(view, all, groups, &count);
    struct table table;
    table_start(&table, "lrrlrrrrrr", titles);
    for (size_t i = 0; i < count; i++) {
        print_group(&table, &groups[i]);
        free(groups[i].name);
    }
    free(groups);
    return table_print(&table) && made;
}

static const char *kind_name(const struct model_view *view)
{
    static const char *const names[] = {[TCQ_SOURCE_SAFETENSORS] = "safetensors file",
                                        [TCQ_SOURCE_FOLDER] = "model folder",
                                        [TCQ_SOURCE_GGUF] = "GGUF file"};
    return names[tcq_source_get_kind(view->source)];
}

static json_t *item_json(const struct model_item *item)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < item->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)item->shape[i]));
    json_t *json = json_pack("{s:s, s:s, s:o, s:I, s:f}", "name", item->name, "type",
                             item->packed    ? "trellis"
                             : item->grouped ? "affine"
                             : item->problem ? "broken"
                                             : item->stored->type,
                             "shape", shape, "nbytes", (json_int_t)item->nbytes, "bits_per_weight",
                             bits(item->nbytes, item->count));
    if (json && item->packed) {
        const struct tcq_geometry *g = &item->tensor.geometry;
        json_object_set_new(json, "k", json_integer(g->k));
        json_object_set_new(json, "L", json_integer(g->L));
        json_object_set_new(json, "block", json_integer(g->T));
        json_object_set_new(json, "axis", json_integer(g->axis));
        json_object_set_new(json, "interleaved", json_boolean(g->layout == TCQ_LAYOUT_INTERLEAVED));
    }
    if (json && item->grouped) {
        json_object_set_new(json, "bits", json_integer(item->affine.bits));
        json_object_set_new(json, "group_size", json_integer(item->affine.group));
    }
    if (json && item->stored)
        json_object_set_new(json, "file", cli_json_text(item->stored->file));
    if (json && item->problem)
        json_object_set_new(json, "problem", cli_json_text(item->problem));
    return json;
}

static int print_json(const struct model_view *view, const struct totals *t)
{
    json_t *tensors = json_array();
    for (size_t i = 0; tensors && i < view->count; i++)
        json_array_append_new(tensors, item_json(&view->items[i]));
    return cli_print_json(
        json_pack("{s:o, s:s, s:o, s:I, s:I, s:I, s:f, s:I, s:I, s:f}", "path",
                  cli_json_text(view->path), "kind", kind_name(view), "tensors", tensors, "packed_tensors",
                  (json_int_t)t->packed_tensors, "packed_weights", (json_int_t)t->packed_weights,
                  "packed_nbytes", (json_int_t)t->packed_nbytes, "packed_bits_per_weight",
                  bits(t->packed_nbytes, t->packed_weights), "weights", (json_int_t)t->weights,
                  "nbytes", (json_int_t)t->nbytes, "bits_per_weight", bits(t->nbytes, t->weights)));
}

static int print_text(const struct model_view *view, const struct totals *t, bool all)
{
    printf("%s: %s\n\n", view->path, kind_name(view));
    if (!print_table(view, all))
        return CLI_FAILED;
    puts("");
    if (t->packed_tensors)
        printf("packed  %zu tensors, %s weights, %s, %.3f bits per weight\n", t->packed_tensors,
               cli_count_text((double)t->packed_weights).s, cli_nbytes_text(t->packed_nbytes).s,
               bits(t->packed_nbytes, t->packed_weights));
    printf("total   %zu tensors, %s weights, %s, %.3f bits per weight\n", t->tensors,
           cli_count_text((double)t->weights).s, cli_nbytes_text(t->nbytes).s,
           bits(t->nbytes, t->weights));
    return CLI_OK;
}

static int set_option(void *user, int key, const char *value)
{
    (void)key, (void)value;
    *(bool *)user = true;
    return CLI_CONTINUE;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    bool all = false;
    struct cli_args args;
    int code = cli_parse(self, argc, argv, 1, 1, set_option, &all, &args);
    if (code != CLI_CONTINUE)
        return code;
    struct model_view view;
    code = model_view_open(&view, args.operands[0]);
    if (code != CLI_CONTINUE)
        return code;
    struct totals totals = {0};
    for (size_t i = 0; i < view.count; i++)
        count_item(&totals, &view.items[i]);
    code = args.json ? print_json(&view, &totals) : print_text(&view, &totals, all);
    for (size_t i = 0; i < view.count; i++)
        if (view.items[i].problem) {
            cli_message("%s: %s", args.operands[0], view.items[i].problem);
            code = CLI_FAILED;
        }
    model_view_close(&view);
    return code;
}

const struct cli_command cmd_inspect = {
    .name = "inspect",
    .summary = "List a model's tensors with geometry, bits per weight and sizes",
    .usage = "PATH [OPTION...]",
    .details = "PATH is a model folder, a .safetensors file or a GGUF file, packed or not.",
    .options = option_list,
    .common = CLI_JSON,
    .run = run,
};
