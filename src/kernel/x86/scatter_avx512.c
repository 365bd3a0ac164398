/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scatter with AVX-512: sixteen accumulators stay in registers over a run of
 * rows, 256 columns for one vector, 64 for four.
 */
#include "kernel/x86/avx512.h"

#include "kernel/decode_simd.h"

#define FUSED_EACH(X, k) X(k, 1) X(k, 2) X(k, 3) X(k, 4) X(k, 5) X(k, 6) X(k, 7) X(k, 8)
#define FUSED_STEPS(m) ((m) == 1 ? 8 : (m) <= 4 ? 4 : 2)
#define AHEAD(m) 1
enum { FUSED_M = 8, TILE_M = 4, TILE_V = 4 };
#include "kernel/scatter_simd.h"

const struct tcq_small_kernel tcq_scatter_avx512 = {"scatter_avx512", scatter_prepared_nbytes,
                                                    scatter_prepare, scatter_run};
