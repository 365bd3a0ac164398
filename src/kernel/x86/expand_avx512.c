/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expand with AVX-512.
 */
#define NATURAL_LANES 1
#include "kernel/x86/avx512.h"

#include "base/half.h"
#include "kernel/decode_simd.h"
#include "kernel/expand_simd.h"

const struct tcq_expand_kernel tcq_expand_avx512 = {"expand_avx512", expand_run};
