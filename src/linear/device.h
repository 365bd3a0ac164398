/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What layers ask of a device other than the CPU.  Arguments are checked before;
 * data pointers are the device's.  Everything but create and destroy only
 * enqueues work on the device's stream.
 */
#ifndef TCQ_LINEAR_DEVICE_H
#define TCQ_LINEAR_DEVICE_H

#include "base/device.h"
#include "linear/linear.h"

struct tcq_linear_device {
    void (*set_stream)(void *device, void *stream);

    /* Copies the tensor: linear->on_device, and linear->device_nbytes of it. */
    enum tcq_status (*create)(struct tcq_linear *linear, struct tcq_error *error);
    void (*destroy)(struct tcq_linear *linear);
    /* As tcq_linear_select. */
    enum tcq_operation (*select)(const struct tcq_linear *linear, uint64_t m,
                                 struct tcq_error *error);
    const char *(*kernel)(enum tcq_operation operation);
    enum tcq_status (*forward)(const struct tcq_linear *linear, uint64_t m,
                               const struct tcq_vectors *y, const struct tcq_vectors *x,
                               const float *bias, struct tcq_error *error);
    enum tcq_status (*gate_up)(const struct tcq_linear *gate, const struct tcq_linear *up,
                               uint64_t m, const struct tcq_vectors *mid,
                               const struct tcq_vectors *x, enum tcq_swiglu tail,
                               struct tcq_error *error);
    enum tcq_status (*expand)(const struct tcq_linear *linear, void *dst, enum tcq_dtype dtype,
                              size_t dst_stride, struct tcq_error *error);
};

/* The device of a layer, or NULL for the CPU. */
static inline const struct tcq_linear_device *tcq_linear_device_of(const struct tcq_linear *linear)
{
    const struct tcq_device_table *table = tcq_context_table(linear->context);
    return table ? table->linear : NULL;
}

#endif
