/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two word orders of a packed tensor, and the check of a whole tensor.
 */
#include "format/geometry.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"

enum tcq_status tcq_tensor_check(const struct tcq_tensor *tensor, struct tcq_error *error)
{
    if (!tensor)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "tensor is NULL");
    enum tcq_status status = tcq_geometry_check(&tensor->geometry, error);
    if (status != TCQ_OK)
        return status;
    if (!tensor->words || !tensor->scales)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "tensor without %s",
                             tensor->words ? "scales" : "words");
    if ((uintptr_t)tensor->words % 4 || (uintptr_t)tensor->scales % 2)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                             "misaligned tensor: words need 4 bytes, scales 2");
    for (uint64_t r = 0; r < tensor->geometry.rows; r++)
        if ((tensor->scales[r] & 0x7c00u) == 0x7c00u)
            return tcq_error_set(error, TCQ_ERROR_VALUE, "the scale of row %" PRIu64 " is %s", r,
                                 tensor->scales[r] & 0x3ffu ? "NaN" : "infinite");
    return TCQ_OK;
}

/* Copies every block from its place in one layout to its place in the other. */
static enum tcq_status reorder(uint32_t *dst, enum tcq_layout dst_layout, const uint32_t *src,
                               enum tcq_layout src_layout, const struct tcq_geometry *geometry)
{
    if (!dst || !src || !geometry)
        return TCQ_ERROR_ARGUMENT;
    struct tcq_geometry to = *geometry, from = *geometry, interleaved = *geometry;
    to.layout = dst_layout;
    from.layout = src_layout;
    interleaved.layout = TCQ_LAYOUT_INTERLEAVED;
    enum tcq_status status = tcq_geometry_check(&interleaved, NULL);
    if (status != TCQ_OK)
        return status;
    size_t nbytes = tcq_geometry_block_words(geometry) * sizeof *dst;
    for (uint64_t row = 0; row < geometry->rows; row++)
        for (uint64_t block = 0; block < geometry->cols / geometry->T; block++)
            memcpy(dst + tcq_geometry_block_offset(&to, row, block),
                   src + tcq_geometry_block_offset(&from, row, block), nbytes);
    return TCQ_OK;
}

enum tcq_status tcq_words_interleave(uint32_t *dst, const uint32_t *src,
                                     const struct tcq_geometry *geometry)
{
    return reorder(dst, TCQ_LAYOUT_INTERLEAVED, src, TCQ_LAYOUT_ROW_MAJOR, geometry);
}

enum tcq_status tcq_words_deinterleave(uint32_t *dst, const uint32_t *src,
                                       const struct tcq_geometry *geometry)
{
    return reorder(dst, TCQ_LAYOUT_ROW_MAJOR, src, TCQ_LAYOUT_INTERLEAVED, geometry);
}
