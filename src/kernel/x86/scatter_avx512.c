/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scatter with AVX-512: sixteen accumulators stay in registers over a run of
 * rows, 256 columns for one vector, 64 for four.
 */
#include "kernel/x86/avx512.h"

#include "kernel/decode_simd.h"

#define FUSED_STEPS(m) ((m) == 1 ? 16 : (m) == 2 ? 8 : 4)
enum { FUSED_ACC = 16, TILE_V = 4, TILE_M = 4 };
#include "kernel/scatter_simd.h"

const struct tcq_small_kernel tcq_scatter_avx512 = {"scatter_avx512", scatter_prepared_nbytes,
                                                    scatter_prepare, scatter_run};
