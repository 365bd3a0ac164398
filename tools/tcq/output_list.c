/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of output tensors, made from a plan or read from JSON.
 */
#include "output_list.h"

#include <stdlib.h>
#include <string.h>

static bool allocate(struct output_list *list, size_t tensors)
{
    *list = (struct output_list){0};
    list->tensors = calloc(tensors + 1, sizeof *list->tensors);
    list->owned = calloc(tensors + 1, sizeof *list->owned);
    return list->tensors && list->owned;
}

static bool add_entry(struct output_list *list, const struct plan_entry *entry, size_t packed)
{
    struct model_tensor *t = &list->tensors[list->count++];
    *t = (struct model_tensor){
        .name = entry->tensor->name, .dtype = entry->dtype, .shard = entry->shard};
    if (entry->action != PLAN_PACK) {
        t->rank = entry->tensor->rank;
        memcpy(t->shape, entry->tensor->shape, sizeof t->shape);
        return true;
    }
    t->rank = plan_words_shape(&entry->geometry, t->shape);
    if (asprintf(&list->owned[packed], "%s.scales", entry->module) < 0) {
        list->owned[packed] = NULL;
        return false;
    }
    list->tensors[list->count++] = (struct model_tensor){.name = list->owned[packed],
                                                         .dtype = (enum tcq_dtype)PLAN_SCALES_DTYPE,
                                                         .rank = 1,
                                                         .shape = {entry->geometry.rows},
                                                         .shard = entry->shard};
    return true;
}

int output_list_make(struct output_list *list, const struct plan *plan)
{
    bool ok = allocate(list, 2 * plan->count) &&
              (list->first = calloc(plan->count + 1, sizeof *list->first)) != NULL;
    size_t packed = 0;
    for (size_t i = 0; ok && i < plan->count; i++) {
        list->first[i] = list->count;
        ok = add_entry(list, &plan->entries[i], packed);
        packed += plan->entries[i].action == PLAN_PACK;
    }
    if (!ok) {
        output_list_free(list);
        return cli_out_of_memory();
    }
    list->first[plan->count] = list->count;
    return CLI_CONTINUE;
}

void output_list_free(struct output_list *list)
{
    for (char **name = list->owned; name && *name; name++)
        free(*name);
    free(list->owned);
    free(list->first);
    free(list->tensors);
    *list = (struct output_list){0};
}

/* ---- JSON: an array of [name, dtype, [shape], file] ---- */

json_t *output_list_json(const struct output_list *list)
{
    json_t *json = json_array();
    for (size_t i = 0; json && i < list->count; i++) {
        const struct model_tensor *t = &list->tensors[i];
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->rank; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
        json_array_append_new(json, json_pack("[s, s, o, I]", t->name, tcq_dtype_name(t->dtype),
                                              shape, (json_int_t)t->shard));
    }
    return json;
}

static bool parse_dtype(const char *name, enum tcq_dtype *out)
{
    for (int d = 0; d < TCQ_DTYPE_COUNT; d++)
        if (strcmp(name, tcq_dtype_name((enum tcq_dtype)d)) == 0) {
            *out = (enum tcq_dtype)d;
            return true;
        }
    return false;
}

static bool parse_tensor(struct output_list *list, json_t *json)
{
    const char *name, *dtype;
    json_t *shape;
    json_int_t shard;
    struct model_tensor *t = &list->tensors[list->count];
    if (json_unpack(json, "[s, s, o, I]", &name, &dtype, &shape, &shard) != 0 ||
        !parse_dtype(dtype, &t->dtype) || !json_is_array(shape) ||
        json_array_size(shape) > TCQ_RANK_MAX || shard < 0 ||
        (size_t)shard > (list->count ? t[-1].shard + 1 : 0) ||
        (list->count && (size_t)shard < t[-1].shard))
        return false;
    t->rank = (uint32_t)json_array_size(shape);
    for (uint32_t d = 0; d < t->rank; d++) {
        json_int_t n = json_integer_value(json_array_get(shape, d));
        if (n < 0)
            return false;
        t->shape[d] = (uint64_t)n;
    }
    t->shard = (size_t)shard;
    t->name = list->owned[list->count] = strdup(name);
    list->count++;
    return t->name != NULL;
}

bool output_list_parse(struct output_list *list, const json_t *json)
{
    *list = (struct output_list){0};
    bool ok = json_is_array(json) && allocate(list, json_array_size(json));
    for (size_t i = 0; ok && i < json_array_size(json); i++)
        ok = parse_tensor(list, json_array_get(json, i));
    if (!ok)
        output_list_free(list);
    return ok;
}
