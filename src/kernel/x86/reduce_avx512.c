/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce with AVX-512.
 */
#include "kernel/x86/avx512.h"

#include "kernel/decode_simd.h"

#define FUSED_EACH(X, k) X(k, 1) X(k, 2) X(k, 3) X(k, 4) X(k, 5) X(k, 6) X(k, 7) X(k, 8)
#define FUSED_ROWS(m) ((m) == 1 ? 8 : (m) <= 5 ? 4 : 2)
#define TILE_ROWS(m) ((m) >= 3 ? 4 : 8)
enum { FUSED_M = 8, AHEAD = 1, TILE_M = 4 };
#include "kernel/reduce_simd.h"

const struct tcq_small_kernel tcq_reduce_avx512 = {"reduce_avx512", reduce_prepared_nbytes,
                                                   reduce_prepare, reduce_run};
