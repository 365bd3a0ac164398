/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scatter with NEON: sixteen registers of sums stay over a run of rows.
 */
#include "kernel/arm/neon.h"

#include "kernel/decode_simd.h"

#define INT8_AS_FLOAT
#define FUSED_EACH(X, k) X(k, 1) X(k, 2) X(k, 3) X(k, 4)
#define FUSED_STEPS(m) ((m) == 1 ? 4 : (m) == 2 ? 2 : 1)
#define AHEAD(m) 0
enum { FUSED_M = 4, TILE_M = 4, TILE_V = 4 };
#include "kernel/scatter_simd.h"

const struct tcq_small_kernel tcq_scatter_neon = {"scatter_neon", scatter_prepared_nbytes,
                                                  scatter_prepare, scatter_run};
const struct tcq_small_kernel tcq_scatter_int8_neon = {"scatter_int8_neon", scatter_prepared_nbytes,
                                                       scatter_prepare_int8, scatter_run};
