/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scatter with NEON: sixteen registers of sums stay over a run of rows.
 */
#include "kernel/arm/neon.h"

#include "kernel/decode_simd.h"

#define INT8_AS_FLOAT
#define FUSED_STEPS(m) ((m) == 1 ? 4 : (m) == 2 ? 2 : 1)
enum { FUSED_ACC = 4, TILE_V = 2, TILE_M = 2 };
#include "kernel/scatter_simd.h"

const struct tcq_small_kernel tcq_scatter_neon = {"scatter_neon", scatter_prepared_nbytes,
                                                  scatter_prepare, scatter_run};
const struct tcq_small_kernel tcq_scatter_int8_neon = {"scatter_int8_neon", scatter_prepared_nbytes,
                                                       scatter_prepare_int8, scatter_run};
