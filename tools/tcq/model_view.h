/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as the command looks at it: one item a weight, whether it is stored
 * as a plain tensor, packed as words and scales, or in MLX's affine form.
 */
#ifndef TCQ_MODEL_VIEW_H
#define TCQ_MODEL_VIEW_H

#include "cli.h"
#include "model/affine.h"

struct model_item {
    const char *name;   /* of the tensor; of a packed one, "<module>.weight" */
    const char *module; /* of a packed one (also if it is broken), else NULL */
    bool packed;        /* `tensor` is valid */
    struct tcq_tensor tensor;
    bool grouped; /* `affine` is valid */
    struct tcq_affine affine;
    const struct tcq_source_tensor *stored; /* the plain tensor, or the words; NULL if missing */
    uint32_t rank; /* and shape of the weight itself, [out, in] of a packed one */
    uint64_t shape[TCQ_RANK_MAX];
    uint64_t count;  /* elements of that shape */
    uint64_t nbytes; /* with scales */
    char *problem;   /* why a packed module cannot be used, or NULL */
};

struct model_view {
    const char *path;
    struct tcq_source *source;
    struct tcq_config *config; /* NULL without a config.json */
    json_t *settings;          /* a folder's config.json */
    struct model_item *items;  /* in the order of the names' bytes */
    size_t count;
    size_t problems;
    char **owned; /* names made here */
    size_t owned_count;
};

/* Prints why it fails; CLI_CONTINUE or an exit code.  A packed module that
 * breaks the format does not fail here: its item has a `problem`. */
int model_view_open(struct model_view *view, const char *path);
void model_view_close(struct model_view *view);
const struct model_item *model_view_find(const struct model_view *view, const char *name);

/* Rows of the innermost dimension and their length: [out, in] of a packed item. */
uint64_t model_item_rows(const struct model_item *item);
uint64_t model_item_cols(const struct model_item *item);
/* Rows that are read together: whole blocks of an axis 0 item. */
uint64_t model_item_step(const struct model_item *item, uint64_t weights);
/* Whether model_item_read will work: false for integers. */
bool model_item_is_float(const struct model_view *view, const struct model_item *item);
/* Rows as float32; of an axis 0 item row_first is a multiple of its block. */
enum tcq_status model_item_read(const struct model_view *view, float *dst,
                                const struct model_item *item, uint64_t row_first,
                                uint64_t row_count, struct tcq_error *error);

/* "576x1536" into out. */
void model_item_shape_text(const struct model_item *item, char *out, size_t nbytes);

#endif
