/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of JSON objects.
 */
#include "model/json.h"

#include "base/error.h"

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

enum tcq_status tcq_json_u32(const json_t *object, const char *key, uint32_t *value,
                             struct tcq_error *error)
{
    const json_t *found = member(object, key);
    if (!found)
        return TCQ_OK;
    double number = json_is_number(found) ? json_number_value(found) : -1;
    if (!(number >= 0 && number <= UINT32_MAX) || number != (double)(uint32_t)number)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "'%s': expected an integer in 0..%u", key,
                             UINT32_MAX);
    *value = (uint32_t)number;
    return TCQ_OK;
}

enum tcq_status tcq_json_double(const json_t *object, const char *key, double *value,
                                struct tcq_error *error)
{
    const json_t *found = member(object, key);
    if (!found)
        return TCQ_OK;
    if (!json_is_number(found))
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "'%s': expected a number", key);
    *value = json_number_value(found);
    return TCQ_OK;
}

enum tcq_status tcq_json_bool(const json_t *object, const char *key, bool *value,
                              struct tcq_error *error)
{
    const json_t *found = member(object, key);
    if (!found)
        return TCQ_OK;
    if (!json_is_boolean(found))
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "'%s': expected true or false", key);
    *value = json_is_true(found);
    return TCQ_OK;
}

const char *tcq_json_string(const json_t *object, const char *key, const char *fallback)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : fallback;
}
