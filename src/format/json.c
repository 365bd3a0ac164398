/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON through jansson, with its errors turned into ours.
 */
#include "format/json.h"

#include <string.h>

#include "base/error.h"

enum tcq_status tcq_json_parse(const char *text, size_t nbytes, size_t flags, json_t **out,
                               struct tcq_error *error)
{
    if (nbytes == 0)
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "JSON: empty");
    json_error_t problem = {0};
    json_t *root = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES | flags, &problem);
    if (root && json_is_object(root)) {
        *out = root;
        return TCQ_OK;
    }
    if (root) {
        json_decref(root);
        return tcq_error_set(error, TCQ_ERROR_FORMAT, "JSON: expected an object");
    }
    /* jansson leaves the text empty, or code unknown, where malloc failed. */
    if (!problem.text[0] || json_error_code(&problem) == json_error_out_of_memory)
        return tcq_error_set(error, TCQ_ERROR_MEMORY, "out of memory for %zu bytes of JSON",
                             nbytes);
    return tcq_error_set(error, TCQ_ERROR_FORMAT, "JSON: %s (line %d, column %d)", problem.text,
                         problem.line, problem.column);
}

enum tcq_status tcq_json_check_text(const char *text, const char *what, struct tcq_error *error)
{
    /* jansson makes no string of what is not UTF-8, nor where memory is short. */
    json_t *string = json_string(text), *empty = json_string("");
    bool valid = string != NULL, memory = empty != NULL;
    json_decref(string);
    json_decref(empty);
    if (valid)
        return TCQ_OK;
    return memory ? tcq_error_set(error, TCQ_ERROR_ARGUMENT, "%s is not UTF-8", what)
                  : tcq_error_memory(error, strlen(text), what);
}
