/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce with AVX-512: four rows at once, so that every x is loaded once for four
 * weights and the fma chains are long enough apart.
 */
#include "kernel/x86/avx512.h"

#include "kernel/decode_simd.h"

#define FUSED_ROWS(m) 4
enum { TILE_ROWS = 4, TILE_M = 4 };
#include "kernel/reduce_simd.h"

const struct tcq_small_kernel tcq_reduce_avx512 = {"reduce_avx512", reduce_prepared_nbytes,
                                                   reduce_prepare, reduce_run};
