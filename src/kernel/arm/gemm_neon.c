/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dense product with NEON fma.
 */
#include "kernel/arm/neon.h"

enum { TILE_M = 6, TILE_V = 1 };
#include "kernel/gemm_simd.h"

const struct tcq_gemm_kernel tcq_gemm_neon = {"gemm_neon", gemm_scratch_nbytes, gemm_run};
