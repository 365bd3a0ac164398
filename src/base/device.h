/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a context computes: on the CPU, or on a device whose back end is a
 * library of its own.  A program that links the back end has its table; one that
 * does not finds a null pointer and says so.
 */
#ifndef TCQ_BASE_DEVICE_H
#define TCQ_BASE_DEVICE_H

#include "tcq.h"

struct tcq_linear_device; /* linear/device.h */
struct tcq_model_device;  /* model/device.h */

struct tcq_device_table {
    /* Errors: DEVICE (no driver, no device, too old), MEMORY. */
    enum tcq_status (*open)(void **device, struct tcq_error *error);
    void (*close)(void *device);
    const struct tcq_linear_device *linear;
    const struct tcq_model_device *model;
};

/* Defined by the CUDA back end. */
__attribute__((weak)) const struct tcq_device_table *tcq_device_cuda(void);

/* The table of the context's device, NULL for the CPU; and what its open gave. */
const struct tcq_device_table *tcq_context_table(const struct tcq_context *context);
void *tcq_context_device(const struct tcq_context *context);

#endif
