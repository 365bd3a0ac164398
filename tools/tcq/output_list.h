/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors that a plan's output consists of: words and scales of each packed
 * entry, one tensor of each other.
 */
#ifndef TCQ_OUTPUT_LIST_H
#define TCQ_OUTPUT_LIST_H

#include "model_writer.h"
#include "plan.h"

struct output_list {
    struct model_tensor *tensors;
    size_t count;
    size_t *first; /* by entry: its first tensor; one more at the end.  NULL after parsing */
    char **owned;  /* names made here, NULL-terminated */
};

/* Names of kept tensors are the source's.  Prints; CLI_CONTINUE or an exit code. */
int output_list_make(struct output_list *list, const struct plan *plan);
void output_list_free(struct output_list *list);

/* As JSON and back; parsing returns false for what is no such list. */
json_t *output_list_json(const struct output_list *list);
bool output_list_parse(struct output_list *list, const json_t *json);

#endif
