/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public products: everything is checked before any output is written, then
 * the vectors are taken a panel at a time.
 */
#include "linear/device.h"

#include <inttypes.h>

#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"

struct span {
    uintptr_t begin, end;
};

/* The bytes that m vectors of `length` reach over; false if that overflows. */
static bool vectors_span(const struct tcq_vectors *v, uint64_t m, uint64_t length, struct span *out)
{
    size_t last, count, nbytes;
    if (m > SIZE_MAX || !tcq_mul_size((size_t)m - 1, v->stride, &last) ||
        !tcq_add_size(last, (size_t)length, &count) ||
        !tcq_mul_size(count, tcq_dtype_nbytes(v->dtype), &nbytes) || nbytes > (size_t)PTRDIFF_MAX)
        return false;
    out->begin = (uintptr_t)v->data;
    return !__builtin_add_overflow(out->begin, nbytes, &out->end);
}

static enum tcq_status check_vectors(const char *name, const struct tcq_vectors *v, uint64_t m,
                                     uint64_t length, struct span *span, struct tcq_error *error)
{
    if (!v || !v->data)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "%s is NULL", name);
    if (v->dtype != TCQ_DTYPE_F32 && v->dtype != TCQ_DTYPE_F16 && v->dtype != TCQ_DTYPE_BF16)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "%s of type %s: expected F32, F16 or BF16",
                             name, tcq_dtype_name(v->dtype));
    if (v->stride < length)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "%s: stride %zu: expected at least the length, %" PRIu64, name,
                             v->stride, length);
    if ((uintptr_t)v->data % tcq_dtype_nbytes(v->dtype))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "%s is not aligned to %zu bytes", name,
                             tcq_dtype_nbytes(v->dtype));
    if (!vectors_span(v, m, length, span))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "%s: %" PRIu64 " vectors of stride %zu overflow", name, m, v->stride);
    return TCQ_OK;
}

static bool overlap(struct span a, struct span b)
{
    return a.begin < b.end && b.begin < a.end;
}

static enum tcq_status check_overlap(const char *names, struct span a, struct span b,
                                     struct tcq_error *error)
{
    return overlap(a, b) ? tcq_error_set(error, TCQ_ERROR_ARGUMENT, "%s overlap", names) : TCQ_OK;
}

static void *advance(const struct tcq_vectors *v, uint64_t m)
{
    return (char *)v->data + (size_t)m * v->stride * tcq_dtype_nbytes(v->dtype);
}

/* Runs all panels of a checked call. */
static void run_panels(struct tcq_pass *pass, uint64_t m, const struct tcq_vectors *y,
                       const struct tcq_vectors *x)
{
    enum tcq_operation operation = pass->operation;
    uint32_t panel = tcq_linear_panel(pass->layers[0].linear, operation);
    bool fast = pass->layers[0].linear->options.numerics == TCQ_NUMERICS_FAST;
    void *scratch = tcq_context_acquire(pass->context);
    for (uint64_t first = 0; first < m; first += panel) {
        pass->m = m - first < panel ? (uint32_t)(m - first) : panel;
        pass->x = (struct tcq_vectors){advance(x, first), x->dtype, x->stride};
        pass->y = (struct tcq_vectors){advance(y, first), y->dtype, y->stride};
        pass->operation = operation;
        if (operation == TCQ_OPERATION_WIDE_INT16 && !tcq_pass_x_finite(pass))
            pass->operation = TCQ_OPERATION_WIDE; /* there is no grid for these vectors */
        struct tcq_carve carve = {scratch, 0};
        tcq_pass_layout(pass, &carve);
        if (pass->operation == TCQ_OPERATION_SMALL)
            tcq_pass_run_small(pass);
        else if (pass->operation == TCQ_OPERATION_WIDE_INT16)
            tcq_pass_run_wide_int16(pass);
        else if (pass->operation == TCQ_OPERATION_WIDE && fast)
            tcq_pass_run_wide(pass);
        else
            tcq_pass_run_ordered(pass);
    }
    tcq_context_release(pass->context);
}

static struct tcq_pass pass_start(const struct tcq_linear *linear, enum tcq_operation operation)
{
    struct tcq_pass pass = {.context = linear->context, .operation = operation};
    pass.in = tcq_geometry_in(&linear->tensor.geometry);
    pass.out = tcq_geometry_out(&linear->tensor.geometry);
    pass.layer_count = 1;
    pass.layers[0].linear = linear;
    return pass;
}

enum tcq_status tcq_linear_forward(const struct tcq_linear *linear, uint64_t m,
                                   const struct tcq_vectors *y, const struct tcq_vectors *x,
                                   const float *bias, struct tcq_error *error)
{
    if (!linear)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "linear is NULL");
    struct tcq_error why = {0};
    enum tcq_operation operation = tcq_linear_select(linear, m, &why);
    if (operation == TCQ_OPERATION_AUTO)
        return tcq_error_set(error, why.status, "%s", why.message);
    struct tcq_pass pass = pass_start(linear, operation);
    struct span x_span, y_span;
    enum tcq_status status = check_vectors("x", x, m, pass.in, &x_span, error);
    if (status == TCQ_OK)
        status = check_vectors("y", y, m, pass.out, &y_span, error);
    if (status == TCQ_OK)
        status = check_overlap("x and y", x_span, y_span, error);
    if (status == TCQ_OK && bias) {
        struct span b = {(uintptr_t)bias, (uintptr_t)(bias + pass.out)};
        status = b.begin % sizeof *bias
                     ? tcq_error_set(error, TCQ_ERROR_ARGUMENT, "bias is not aligned to 4 bytes")
                     : check_overlap("bias and y", b, y_span, error);
    }
    if (status != TCQ_OK)
        return status;
    if (tcq_linear_device_of(linear))
        return tcq_linear_device_of(linear)->forward(linear, m, y, x, bias, error);
    pass.bias = bias;
    run_panels(&pass, m, y, x);
    return TCQ_OK;
}

/* Whether two layers can be gate and up of one pass. */
static enum tcq_status check_pair(const struct tcq_linear *gate, const struct tcq_linear *up,
                                  struct tcq_error *error)
{
    if (!gate || !up)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "gate/up: %s is NULL",
                             gate ? "up" : "gate");
    const struct tcq_geometry *g = &gate->tensor.geometry, *u = &up->tensor.geometry;
    if (g->axis != 1 || u->axis != 1)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY, "gate/up needs axis 1, given %u and %u",
                             g->axis, u->axis);
    if (g->rows != u->rows || g->cols != u->cols)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                             "gate is %" PRIu64 " x %" PRIu64 ", up is %" PRIu64 " x %" PRIu64
                             ": expected equal sizes",
                             g->rows, g->cols, u->rows, u->cols);
    if (gate->options.alone || up->options.alone)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "gate/up: a layer made to be alone");
    if (gate->context != up->context)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "gate and up have different contexts");
    if (gate->options.numerics != up->options.numerics ||
        gate->options.activations != up->options.activations ||
        gate->options.operation != up->options.operation ||
        gate->options.small_m != up->options.small_m ||
        gate->options.wide_m != up->options.wide_m)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "gate and up have different options");
    return TCQ_OK;
}

enum tcq_status tcq_gate_up_forward(const struct tcq_linear *gate, const struct tcq_linear *up,
                                    uint64_t m, const struct tcq_vectors *mid,
                                    const struct tcq_vectors *x, enum tcq_swiglu tail,
                                    struct tcq_error *error)
{
    enum tcq_status status = check_pair(gate, up, error);
    if (status != TCQ_OK)
        return status;
    if ((unsigned)tail > TCQ_SWIGLU_SPLIT)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "SwiGLU tail %d is unknown", (int)tail);
    struct tcq_error why = {0};
    enum tcq_operation operation = tcq_linear_select(gate, m, &why);
    if (operation == TCQ_OPERATION_AUTO)
        return tcq_error_set(error, why.status, "%s", why.message);
    struct tcq_pass pass = pass_start(gate, operation);
    struct span x_span, mid_span;
    status = check_vectors("x", x, m, pass.in, &x_span, error);
    if (status == TCQ_OK)
        status = check_vectors("mid", mid, m, pass.out, &mid_span, error);
    if (status == TCQ_OK)
        status = check_overlap("x and mid", x_span, mid_span, error);
    if (status != TCQ_OK)
        return status;
    if (tcq_linear_device_of(gate))
        return tcq_linear_device_of(gate)->gate_up(gate, up, m, mid, x, tail, error);
    pass.layer_count = 2;
    pass.layers[1].linear = up;
    pass.tail = tail;
    run_panels(&pass, m, mid, x);
    return TCQ_OK;
}
