/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The x86 probes, or NULL where the flags allow none.
 */
#ifndef TCQ_BENCH_PROBE_X86_H
#define TCQ_BENCH_PROBE_X86_H

#include "bench_probe.h"

const struct bench_probe *bench_probe_x86(uint32_t cpu_flags);

#endif
