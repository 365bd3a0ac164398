/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dense product with AVX-512 fma.  Where it was measured (Intel, Emerald
 * Rapids) vdpbf16ps runs at half the multiply-adds of fma, so it is not used.
 */
#include "kernel/x86/avx512.h"

enum { TILE_M = 6, TILE_V = 4 };
#include "kernel/gemm_simd.h"

const struct tcq_gemm_kernel tcq_gemm_avx512 = {"gemm_avx512", gemm_scratch_nbytes, gemm_run};
