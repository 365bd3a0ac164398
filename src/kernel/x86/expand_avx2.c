/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expand with AVX2.
 */
#include "kernel/x86/avx2.h"

#include "base/half.h"
#include "kernel/decode_simd.h"
#include "kernel/expand_simd.h"

const struct tcq_expand_kernel tcq_expand_avx2 = {"expand_avx2", expand_run};
