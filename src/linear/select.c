/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which operation serves m vectors, and why another one cannot.  Only geometry,
 * m, numerics and the profile decide; no shape and no model is known by name.
 */
#include "linear/device.h"

#include <inttypes.h>

#include "base/error.h"
#include "kernel/reference/reference.h"

static const char *const names[TCQ_OPERATION_COUNT] = {
    [TCQ_OPERATION_AUTO] = "auto",
    [TCQ_OPERATION_REDUCE] = "reduce",
    [TCQ_OPERATION_SCATTER] = "scatter",
    [TCQ_OPERATION_SCATTER_BALANCED] = "scatter-balanced",
    [TCQ_OPERATION_SCATTER_TABLE] = "scatter-table",
    [TCQ_OPERATION_SPLIT_K] = "split-k",
    [TCQ_OPERATION_TILED] = "tiled",
    [TCQ_OPERATION_SMALL] = "small",
    [TCQ_OPERATION_WIDE] = "wide",
    [TCQ_OPERATION_WIDE_INT16] = "wide-int16",
};

const char *tcq_operation_name(enum tcq_operation operation)
{
    return (unsigned)operation < TCQ_OPERATION_COUNT ? names[operation] : "unknown";
}

static bool is_scatter(enum tcq_operation operation)
{
    return operation == TCQ_OPERATION_SCATTER || operation == TCQ_OPERATION_SCATTER_BALANCED ||
           operation == TCQ_OPERATION_SCATTER_TABLE;
}

static bool balanced_serves(const struct tcq_geometry *g)
{
    return g->axis == 0 && g->k == 3 && g->T == 256 && g->L <= 12;
}

static enum tcq_status refuse(struct tcq_error *error, enum tcq_operation operation,
                              const char *needs)
{
    return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "operation %s needs %s",
                         tcq_operation_name(operation), needs);
}

/* Whether a forced operation fits the geometry and numerics at all. */
static enum tcq_status check_operation(enum tcq_operation operation, const struct tcq_geometry *g,
                                       enum tcq_numerics numerics, struct tcq_error *error)
{
    bool reference = numerics == TCQ_NUMERICS_REFERENCE;
    if (operation == TCQ_OPERATION_AUTO || operation == TCQ_OPERATION_WIDE)
        return TCQ_OK;
    if (operation == TCQ_OPERATION_SMALL || operation == TCQ_OPERATION_WIDE_INT16)
        return reference ? refuse(error, operation, "fast numerics") : TCQ_OK;
    if (!reference)
        return refuse(error, operation, "reference numerics");
    bool axis1 = operation == TCQ_OPERATION_REDUCE || operation == TCQ_OPERATION_TILED;
    if (axis1 != (g->axis == 1))
        return refuse(error, operation, axis1 ? "axis 1, given axis 0" : "axis 0, given axis 1");
    if (operation == TCQ_OPERATION_SPLIT_K && g->rows < TCQ_SPLIT_K_IN_MIN)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "operation split-k needs at least %d inputs, given %" PRIu64,
                             TCQ_SPLIT_K_IN_MIN, g->rows);
    if (is_scatter(operation) && operation != TCQ_OPERATION_SCATTER && !balanced_serves(g))
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "operation %s needs k = 3, T = 256, L <= 12, given k = %u, T = %u, "
                             "L = %u",
                             tcq_operation_name(operation), g->k, g->T, g->L);
    return TCQ_OK;
}

enum tcq_status tcq_linear_check_options(const struct tcq_linear *linear, struct tcq_error *error)
{
    const struct tcq_linear_options *o = &linear->options;
    if ((unsigned)o->numerics > TCQ_NUMERICS_REFERENCE)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "numerics %d is unknown", (int)o->numerics);
    if ((unsigned)o->operation >= TCQ_OPERATION_COUNT)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "operation %d is unknown",
                             (int)o->operation);
    if ((unsigned)o->activations > TCQ_ACTIVATIONS_INT8)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "activations %d is unknown",
                             (int)o->activations);
    if (o->activations == TCQ_ACTIVATIONS_INT8 && o->numerics == TCQ_NUMERICS_REFERENCE)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED, "int8 activations need fast numerics");
    if (o->activations == TCQ_ACTIVATIONS_INT8 &&
        (o->operation == TCQ_OPERATION_WIDE || o->operation == TCQ_OPERATION_WIDE_INT16))
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "int8 activations need operation small, given %s",
                             tcq_operation_name(o->operation));
    return check_operation(o->operation, &linear->tensor.geometry, o->numerics, error);
}

static enum tcq_operation select_reference(const struct tcq_geometry *g, uint64_t m)
{
    const struct tcq_profile *profile = &tcq_profile_cpu;
    if (g->axis == 1) {
        if (m <= profile->reference_matvec_m)
            return TCQ_OPERATION_REDUCE;
        return m <= profile->tiled_m ? TCQ_OPERATION_TILED : TCQ_OPERATION_WIDE;
    }
    if (m <= profile->reference_matvec_m)
        return balanced_serves(g) ? TCQ_OPERATION_SCATTER_BALANCED : TCQ_OPERATION_SCATTER;
    bool split_k = m <= profile->split_k_m && g->rows >= TCQ_SPLIT_K_IN_MIN;
    return split_k ? TCQ_OPERATION_SPLIT_K : TCQ_OPERATION_WIDE;
}

/* The largest m that an operation takes in one call; 0: any. */
static uint32_t operation_m_max(enum tcq_operation operation)
{
    if (operation == TCQ_OPERATION_REDUCE || is_scatter(operation))
        return TCQ_REFERENCE_M_MAX;
    if (operation == TCQ_OPERATION_TILED || operation == TCQ_OPERATION_SPLIT_K)
        return TCQ_SPLIT_K_M_MAX;
    return 0;
}

enum tcq_operation tcq_linear_select(const struct tcq_linear *linear, uint64_t m,
                                     struct tcq_error *error)
{
    const struct tcq_linear_options *o = &linear->options;
    if (tcq_linear_device_of(linear))
        return tcq_linear_device_of(linear)->select(linear, m, error);
    if (m == 0) {
        tcq_error_set(error, TCQ_ERROR_ARGUMENT, "m = 0 vectors: expected at least 1");
        return TCQ_OPERATION_AUTO;
    }
    if (o->operation == TCQ_OPERATION_AUTO && o->numerics == TCQ_NUMERICS_REFERENCE)
        return select_reference(&linear->tensor.geometry, m);
    if (o->operation == TCQ_OPERATION_AUTO) {
        if (m <= tcq_linear_panel(linear, TCQ_OPERATION_SMALL) || o->activations == TCQ_ACTIVATIONS_INT8)
            return TCQ_OPERATION_SMALL;
        return linear->kernels.wide ? TCQ_OPERATION_WIDE_INT16 : TCQ_OPERATION_WIDE;
    }
    uint32_t m_max = operation_m_max(o->operation);
    if (m_max && m > m_max) {
        tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                      "operation %s serves 1..%u vectors, given %" PRIu64,
                      tcq_operation_name(o->operation), m_max, m);
        return TCQ_OPERATION_AUTO;
    }
    return o->operation;
}

uint32_t tcq_linear_panel(const struct tcq_linear *linear, enum tcq_operation operation)
{
    bool fast = linear->options.numerics == TCQ_NUMERICS_FAST;
    bool wide = operation == TCQ_OPERATION_WIDE || operation == TCQ_OPERATION_WIDE_INT16;
    uint32_t most = wide && fast ? tcq_profile_cpu.wide_m : tcq_profile_cpu.small_m;
    uint32_t told = !fast ? 0 : wide ? linear->options.wide_m : linear->options.small_m;
    return told && told < most ? told : most;
}
