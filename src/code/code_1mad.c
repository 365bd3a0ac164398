/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 1MAD code: public access to one state, the table and its RMS.
 */
#include "code/code.h"

#include <math.h>

int32_t tcq_code_integer(uint32_t state)
{
    return tcq_code_y(state);
}

float tcq_code_value(uint32_t state)
{
    return tcq_code_precise(state);
}

static bool valid_L(uint32_t L)
{
    return L >= TCQ_L_MIN && L <= TCQ_L_MAX;
}

enum tcq_status tcq_code_table(float *table, uint32_t L)
{
    if (!table || !valid_L(L))
        return TCQ_ERROR_ARGUMENT;
    for (uint32_t s = 0; s < 1u << L; s++)
        table[s] = tcq_code_precise(s);
    return TCQ_OK;
}

double tcq_code_rms(uint32_t L)
{
    if (!valid_L(L))
        return 0.0;
    double sum = 0.0;
    for (uint32_t s = 0; s < 1u << L; s++) {
        double value = (double)tcq_code_precise(s);
        sum += value * value;
    }
    return sqrt(sum / (double)(1u << L));
}
