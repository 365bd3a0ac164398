/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce with AVX2: as many rows at once as sixteen registers allow.
 */
#include "kernel/x86/avx2.h"

#include "kernel/decode_simd.h"

#define INT8_AS_FLOAT
#define FUSED_EACH(X, k) X(k, 1) X(k, 2) X(k, 3) X(k, 4)
#define FUSED_ROWS(m) ((m) == 1 ? 4 : (m) == 2 ? 2 : 1)
#define TILE_ROWS(m) ((m) >= 2 ? 4 : 8)
enum { FUSED_M = 4, AHEAD = 0, TILE_M = 3 };
#include "kernel/reduce_simd.h"

const struct tcq_small_kernel tcq_reduce_avx2 = {"reduce_avx2", reduce_prepared_nbytes,
                                                 reduce_prepare, reduce_run};
const struct tcq_small_kernel tcq_reduce_int8_avx2 = {"reduce_int8_avx2", reduce_prepared_nbytes,
                                                      reduce_prepare_int8, reduce_run};
