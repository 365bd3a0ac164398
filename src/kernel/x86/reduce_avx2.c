/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce with AVX2: as many rows at once as sixteen registers allow.
 */
#include "kernel/x86/avx2.h"

#include "kernel/decode_simd.h"

#define INT8_AS_FLOAT
#define FUSED_ROWS(m) ((m) == 1 ? 4 : (m) == 2 ? 2 : 1)
enum { TILE_ROWS = 2, TILE_M = 2 };
#include "kernel/reduce_simd.h"

const struct tcq_small_kernel tcq_reduce_avx2 = {"reduce_avx2", reduce_prepared_nbytes,
                                                 reduce_prepare, reduce_run};
const struct tcq_small_kernel tcq_reduce_int8_avx2 = {"reduce_int8_avx2", reduce_prepared_nbytes,
                                                      reduce_prepare_int8, reduce_run};
