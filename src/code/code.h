/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code 1MAD, inline for kernels and tables: what a state emits.
 */
#ifndef TCQ_CODE_CODE_H
#define TCQ_CODE_CODE_H

#include <stdint.h>

#include "base/host_device.h"
#include "tcq.h"

/* Multiplier and addend of QTIP's "1mad" (arXiv 2406.11235, section 3.1.1). */
#define TCQ_CODE_MULTIPLIER 34038481u
#define TCQ_CODE_ADDEND 76625530u
/* The mean of a sum of four uniform bytes. */
#define TCQ_CODE_OFFSET 510

TCQ_HOST_DEVICE static inline int32_t tcq_code_y(uint32_t state)
{
    uint32_t z = state * TCQ_CODE_MULTIPLIER + TCQ_CODE_ADDEND;
    uint32_t pairs = (z & 0x00ff00ffu) + ((z >> 8) & 0x00ff00ffu);
    return (int32_t)((pairs & 0xffffu) + (pairs >> 16)) - TCQ_CODE_OFFSET;
}

TCQ_HOST_DEVICE static inline float tcq_code_precise(uint32_t state)
{
    return (float)((double)tcq_code_y(state) / TCQ_CODE_DIVISOR);
}

#endif
