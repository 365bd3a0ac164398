/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of variants made from kernels.def, and the choice among them.
 */
#include "kernel/kernel.h"

#define SMALL(operation, isa, op, needs, serves) \
    extern const struct tcq_small_kernel tcq_##operation##_##isa;
#define EXPAND(operation, isa, op, needs, serves) \
    extern const struct tcq_expand_kernel tcq_##operation##_##isa;
#define GEMM(operation, isa, op, needs, serves) \
    extern const struct tcq_gemm_kernel tcq_##operation##_##isa;
#define WIDE(operation, isa, op, needs, serves) \
    extern const struct tcq_wide_kernel tcq_##operation##_##isa;
#include "kernel/kernels.def"
#undef SMALL
#undef EXPAND
#undef GEMM
#undef WIDE

#define VARIANT(member, operation, isa, op, needs, serves) \
    {#operation, #isa, op, needs, serves, {.member = &tcq_##operation##_##isa}},
#define SMALL(...) VARIANT(small, __VA_ARGS__)
#define EXPAND(...) VARIANT(expand, __VA_ARGS__)
#define GEMM(...) VARIANT(gemm, __VA_ARGS__)
#define WIDE(...) VARIANT(wide, __VA_ARGS__)

static const struct tcq_kernel_variant variants[] = {
#include "kernel/kernels.def"
};

const struct tcq_kernel_variant *tcq_kernels_all(size_t *count)
{
    *count = sizeof variants / sizeof *variants;
    return variants;
}

void tcq_kernels_select(struct tcq_kernels *out, uint32_t cpu_flags,
                        const struct tcq_geometry *geometry)
{
    *out = (struct tcq_kernels){0};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct tcq_kernel_variant *v = &variants[i];
        if ((v->needs & ~cpu_flags) || (geometry && v->serves && !v->serves(geometry)) ||
            (!geometry && v->serves))
            continue;
        switch (v->op) {
        case TCQ_KERNEL_REDUCE:
            out->small[1][TCQ_ACTIVATIONS_FLOAT] = v->kernel.small;
            break;
        case TCQ_KERNEL_REDUCE_INT8:
            out->small[1][TCQ_ACTIVATIONS_INT8] = v->kernel.small;
            break;
        case TCQ_KERNEL_SCATTER:
            out->small[0][TCQ_ACTIVATIONS_FLOAT] = v->kernel.small;
            break;
        case TCQ_KERNEL_SCATTER_INT8:
            out->small[0][TCQ_ACTIVATIONS_INT8] = v->kernel.small;
            break;
        case TCQ_KERNEL_EXPAND:
            out->expand = v->kernel.expand;
            break;
        case TCQ_KERNEL_GEMM:
            out->gemm = v->kernel.gemm;
            break;
        case TCQ_KERNEL_WIDE:
            out->wide = v->kernel.wide;
            break;
        case TCQ_KERNEL_OPERATION_COUNT:
            break;
        }
    }
}
