/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model and its sessions ask of a device other than the CPU.  Tokens,
 * positions and errors are the session's business; a device keeps weights and
 * cache, and runs batches.
 */
#ifndef TCQ_MODEL_DEVICE_H
#define TCQ_MODEL_DEVICE_H

#include "model/session.h"

struct tcq_model_device {
    /* Where nobody has set the batch, up to exact_tokens tokens of one call go in
     * batches of exact_batch, in which a position's bytes do not depend on the batch;
     * more go in larger, faster ones. */
    uint32_t exact_batch, exact_tokens;

    /* Device memory that is free. */
    enum tcq_status (*available)(void *device, size_t *nbytes, struct tcq_error *error);

    /* Copies a loaded model's weights to the device: model->on_device. */
    enum tcq_status (*load)(struct tcq_model *model, struct tcq_error *error);
    void (*unload)(struct tcq_model *model);

    /* Cache and buffers of a session: session->on_device and its sizes. */
    enum tcq_status (*open)(struct tcq_session *session, struct tcq_error *error);
    void (*close)(struct tcq_session *session);

    /* tokens[0..m), m <= session->batch, at session->position.  Only enqueued. */
    enum tcq_status (*batch)(struct tcq_session *session, const uint32_t *tokens, size_t m,
                             struct tcq_error *error);
    /* Logits of positions first..first+count-1 of the last batch, to host memory. */
    enum tcq_status (*logits)(struct tcq_session *session, size_t first, size_t count,
                              float *logits, struct tcq_error *error);
    /* The token after the last position of the last batch, chosen as session->sampling
     * says, which was set before the batch. */
    enum tcq_status (*choose)(struct tcq_session *session, uint32_t *token,
                              struct tcq_error *error);
    /* Waits until everything is done. */
    enum tcq_status (*wait)(struct tcq_session *session, struct tcq_error *error);

    /* For measurements: every linear layer once for m vectors, and the head for one;
     * waits. */
    enum tcq_status (*linear)(struct tcq_session *session, size_t m, struct tcq_error *error);
};

#endif
