/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry of a packed tensor: the rules, and sizes that follow from it.
 */
#include "format/geometry.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"

enum tcq_status tcq_geometry_check_code(uint32_t k, uint32_t L, uint32_t T,
                                        struct tcq_error *error)
{
    if (k < TCQ_K_MIN || k > TCQ_K_MAX)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY, "k = %u bits a weight: expected 1..6", k);
    if (L < TCQ_L_MIN || L > TCQ_L_MAX)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY, "L = %u: expected 8..16", L);
    if (T != 64 && T != 128 && T != 256)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                             "block of T = %u weights: expected 64, 128 or 256", T);
    return TCQ_OK;
}

static enum tcq_status check_interleaved(const struct tcq_geometry *g, struct tcq_error *error)
{
    if (g->axis != 0 || g->k != 3 || g->T != 256 || g->L != 12)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                             "interleaved layout with axis %u, k = %u, T = %u, L = %u: expected "
                             "axis 0, k = 3, T = 256, L = 12",
                             g->axis, g->k, g->T, g->L);
    if (g->cols % (TCQ_INTERLEAVE_BLOCKS * g->T))
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                             "interleaved layout with %" PRIu64 " cols: expected a multiple of 512",
                             g->cols);
    return TCQ_OK;
}

/* The matrix as float32 is the largest array that anybody makes of it. */
static bool fits_memory(const struct tcq_geometry *g)
{
    size_t count, nbytes;
    return g->rows <= SIZE_MAX && g->cols <= SIZE_MAX &&
           tcq_mul_size((size_t)g->rows, (size_t)g->cols, &count) &&
           tcq_mul_size(count, sizeof(float), &nbytes) && nbytes <= (size_t)PTRDIFF_MAX;
}

enum tcq_status tcq_geometry_check(const struct tcq_geometry *g, struct tcq_error *error)
{
    if (!g)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "geometry is NULL");
    enum tcq_status status = tcq_geometry_check_code(g->k, g->L, g->T, error);
    if (status != TCQ_OK)
        return status;
    if (g->axis > 1)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY, "axis = %u: expected 0 or 1", g->axis);
    if (g->rows == 0 || g->cols == 0)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                             "stored matrix of %" PRIu64 " x %" PRIu64 ": expected at least 1 x T",
                             g->rows, g->cols);
    if (g->cols % g->T)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                             "%" PRIu64 " cols are not a multiple of the block of %u", g->cols,
                             g->T);
    if (!fits_memory(g))
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY,
                             "stored matrix of %" PRIu64 " x %" PRIu64 ": its size overflows",
                             g->rows, g->cols);
    if (g->layout == TCQ_LAYOUT_INTERLEAVED)
        return check_interleaved(g, error);
    if (g->layout != TCQ_LAYOUT_ROW_MAJOR)
        return tcq_error_set(error, TCQ_ERROR_GEOMETRY, "layout %d is unknown", (int)g->layout);
    return TCQ_OK;
}

uint64_t tcq_geometry_in(const struct tcq_geometry *g)
{
    return g->axis ? g->cols : g->rows;
}

uint64_t tcq_geometry_out(const struct tcq_geometry *g)
{
    return g->axis ? g->rows : g->cols;
}

size_t tcq_geometry_block_words(const struct tcq_geometry *g)
{
    return (size_t)g->T * g->k / 32;
}

size_t tcq_geometry_row_words(const struct tcq_geometry *g)
{
    return (size_t)(g->cols / g->T) * tcq_geometry_block_words(g);
}

size_t tcq_geometry_words(const struct tcq_geometry *g)
{
    return (size_t)g->rows * tcq_geometry_row_words(g);
}

double tcq_geometry_bits_per_weight(const struct tcq_geometry *g)
{
    return (double)g->k + 16.0 / (double)g->cols;
}

size_t tcq_geometry_block_offset(const struct tcq_geometry *g, uint64_t row, uint64_t block)
{
    size_t words = tcq_geometry_block_words(g);
    if (g->layout == TCQ_LAYOUT_ROW_MAJOR)
        return (size_t)row * tcq_geometry_row_words(g) + (size_t)block * words;
    size_t pair = (size_t)block / TCQ_INTERLEAVE_BLOCKS, half = block % TCQ_INTERLEAVE_BLOCKS;
    return ((pair * (size_t)g->rows + (size_t)row) * TCQ_INTERLEAVE_BLOCKS + half) * words;
}
