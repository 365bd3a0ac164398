/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expand with NEON.
 */
#include "kernel/arm/neon.h"

#include "base/half.h"
#include "kernel/decode_simd.h"
#include "kernel/expand_simd.h"

const struct tcq_expand_kernel tcq_expand_neon = {"expand_neon", expand_run};
