/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One part of an output that several machines make (quantize --shard I/N), and
 * joining the parts (merge).
 *
 * A part is a folder with part-I-of-N.safetensors, the files beside the weights
 * and tcq-part.json: the options, the whole output's list of tensors and its
 * config.json.  It has no config.json of its own, so that it passes for no model.
 */
#ifndef TCQ_PART_H
#define TCQ_PART_H

#include "output.h"
#include "output_list.h"

/* Keeps those entries of plan that fall to part `part` of `parts` (from 1):
 * each to the part with the least to do so far, the largest first. */
int part_take(struct plan *plan, uint32_t part, uint32_t parts);
/* The entries of plan, the most work first; the caller frees.  NULL without memory. */
size_t *part_order(const struct plan *plan);
/* "part-I-of-N.safetensors" */
struct cli_text part_file_name(uint32_t part, uint32_t parts);
/* Writes tcq-part.json; whole is the list of the whole output. */
int part_write(const struct output *output, const struct plan_options *options,
               const struct output_list *whole, const char *config);

struct part {
    const char *path;
    json_t *description; /* tcq-part.json */
    uint32_t part, parts;
    struct tcq_source *source;
};
/* Prints; CLI_CONTINUE or an exit code. */
int part_open(struct part *part, const char *path);
/* A folder that is a part cannot be read as a model: says so, CLI_FAILED. */
int part_refuse(const char *path);
void part_close(struct part *part);

/* Writes every tensor of the list from the one source that has it. */
int part_join(struct model_writer *writer, const struct output_list *list,
              struct tcq_source *const *sources, size_t source_count, const struct cli_args *args);

#endif
