/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row scales for the encoder on the GPU: encode/scale.c and, where outliers count,
 * encode/scale_fit.c.  Sums run in float64 from the first weight to the last.
 */
#include <cuda_runtime.h>

#include "base/half.h"
#include "kernel/cuda/launch.h"

namespace {

__device__ void store_scale(uint16_t *scales, uint32_t row, double sum, double exact,
                            uint32_t *bad_row)
{
    const float scale = sum == 0.0 ? 1.0f : (float)exact;
    if (!isfinite(sum) || scale > 65504.0f)
        atomicMin(bad_row, row);
    const uint16_t rounded = tcq_f16_from_f32(scale);
    scales[row] = rounded ? rounded : 1; /* 2^-24, the smallest */
}

/* One lane a row; a warp loads tiles of 32 x 32 so that reads are whole lines. */
__global__ void __launch_bounds__(32)
    row_scales(uint16_t *scales, const float *src, size_t src_stride, uint32_t rows, uint32_t cols,
               double table_rms, uint32_t *bad_row)
{
    __shared__ float tile[32][33];
    const uint32_t lane = threadIdx.x, row0 = blockIdx.x * 32, row = row0 + lane;
    double sum = 0.0;
    for (uint32_t c = 0; c < cols; c += 32) { /* cols is a multiple of 64 */
#pragma unroll 8
        for (uint32_t r = 0; r < 32; r++)
            tile[r][lane] = row0 + r < rows ? src[(row0 + r) * src_stride + c + lane] : 0.0f;
        __syncwarp();
#pragma unroll 8
        for (int i = 0; i < 32; i++) {
            const float v = tile[lane][i];
            sum += (double)v * (double)v;
        }
        __syncwarp();
    }
    if (row < rows)
        store_scale(scales, row, sum, sqrt(sum / (double)cols) / table_rms, bad_row);
}

constexpr uint32_t kFitThreads = 64, kTile = 1024;
static_assert(TCQ_SCALE_FIT_FACTORS <= kFitThreads, "a thread a factor");

/* A block a row, a thread a factor: all read the row in the same order. */
template <typename term>
__device__ double sum_row(float *tile, const float *row, uint32_t cols, term of)
{
    double sum = 0.0;
    for (uint32_t c = 0; c < cols; c += kTile) {
        const uint32_t count = cols - c < kTile ? cols - c : kTile;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < count; i += kFitThreads)
            tile[i] = row[c + i];
        __syncthreads();
#pragma unroll 8
        for (uint32_t i = 0; i < count; i++)
            sum += of((double)tile[i]);
    }
    return sum;
}

__global__ void __launch_bounds__(kFitThreads)
    row_scales_fitted(uint16_t *scales, const float *src, size_t src_stride, uint32_t cols,
                      const __grid_constant__ encode_scale_rule rule, uint32_t *bad_row)
{
    __shared__ float tile[kTile];
    __shared__ double costs[TCQ_SCALE_FIT_FACTORS], beyonds[TCQ_SCALE_FIT_FACTORS];
    const float *row = src + blockIdx.x * src_stride;
    const uint32_t i = threadIdx.x;
    const double sum = sum_row(tile, row, cols, [](double w) { return w * w; });
    const double rms = sqrt(sum / (double)cols) / rule.table_rms;
    const double scale = (i < TCQ_SCALE_FIT_FACTORS ? rule.factors[i] : 1.0) * rms;
    const double low = rule.fit.lowest * scale, high = rule.fit.highest * scale;
    const double beyond = sum_row(tile, row, cols, [low, high](double w) {
        const double b = tcq_scale_fit_beyond(w, low, high);
        return b * b;
    });
    if (i < TCQ_SCALE_FIT_FACTORS) {
        costs[i] = tcq_scale_fit_cost(&rule.fit, cols, scale, beyond);
        beyonds[i] = beyond;
    }
    __syncthreads();
    if (i)
        return;
    double best = 1.0, least = HUGE_VAL;
    for (int f = 0; f < TCQ_SCALE_FIT_FACTORS; f++) {
        if (costs[f] < least) {
            least = costs[f];
            best = rule.factors[f];
        }
        if (beyonds[f] == 0.0)
            break;
    }
    store_scale(scales, blockIdx.x, sum, rms * best, bad_row);
}

} /* namespace */

cudaError_t encode_scales_launch(const struct encode_args *p, const struct encode_scale_rule *rule,
                                 uint32_t *bad_row, cudaStream_t stream)
{
    if (rule->fitted)
        row_scales_fitted<<<p->rows, kFitThreads, 0, stream>>>(p->scales, p->src, p->src_stride,
                                                               p->cols, *rule, bad_row);
    else
        row_scales<<<(p->rows + 31) / 32, 32, 0, stream>>>(p->scales, p->src, p->src_stride,
                                                           p->rows, p->cols, rule->table_rms,
                                                           bad_row);
    return cudaGetLastError();
}
