/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dense product with AVX2 fma.
 */
#include "kernel/x86/avx2.h"

enum { TILE_M = 6, TILE_V = 1 };
#include "kernel/gemm_simd.h"

const struct tcq_gemm_kernel tcq_gemm_avx2 = {"gemm_avx2", gemm_scratch_nbytes, gemm_run};
