/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carrying out a plan: every tensor read, encoded where it is packed, and
 * written, as a pipeline over chunks of rows.
 */
#ifndef TCQ_PACK_H
#define TCQ_PACK_H

#include "clip.h"
#include "gpu.h"
#include "output_list.h"
#include "pipeline.h"
#include "plan.h"

/* Weights of one chunk for every thread: large enough that the threads' rows
 * end together within a percent, small enough to keep memory low (4 MiB). */
enum { PACK_CHUNK_WEIGHTS = 1 << 20 };
/* On a GPU, which takes pieces of 2^20: 16 of them, so that the first and the last,
 * whose copies nothing hides, are few. */
enum { PACK_CHUNK_WEIGHTS_GPU = 16 << 20 };

struct pack {
    const struct tcq_source *source;
    const struct plan *plan;
    struct tcq_context *context;
    const struct cli_args *args;
    struct tcq_encoder *encoders[TCQ_K_MAX][3]; /* see pack_encoder; NULL: not needed */
    struct gpu *gpu;                            /* with --device cuda: encodes where L is 12 */
    struct output_list list;                    /* what comes of the plan */
    struct clip *clips;                         /* one an entry of the plan: what was cut off */
};

/* Creates the encoders and the list of output tensors.  Prints; CLI_CONTINUE or
 * an exit code. */
int pack_create(struct pack *pack, const struct tcq_source *source, const struct plan *plan,
                enum tcq_scale_rule scale, struct tcq_context *context,
                const struct cli_args *args);
void pack_destroy(struct pack *pack);

/* Weights of one chunk. */
uint64_t pack_chunk_weights(const struct pack *pack);
/* The encoder for the k and T of geometry. */
struct tcq_encoder **pack_encoder(struct pack *pack, const struct tcq_geometry *geometry);
/* Bytes that pack_run needs at most, with the mapped pages of one tensor. */
uint64_t pack_memory_nbytes(const struct pack *pack);
/* Gives the mapped pages of a tensor that has been dealt with back to the
 * system, so that what is resident stays within that. */
void pack_forget(const struct tcq_source_tensor *tensor);
/* Looks for NaN and infinities in every tensor that the plan packs or
 * converts, and names the first. */
int pack_check_values(const struct pack *pack);
/* Everything from output tensor `done` on.  Stops at a signal. */
int pack_run(struct pack *pack, struct model_writer *writer, size_t done);

#endif
