/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed to dense bf16, L = 12 and k = 2..4, at the speed at which the result can
 * be written: contract `bf16`, the bytes of tcq_reference_expand.
 *
 * A thread makes eight neighbouring weights, one 16-byte store, of several rows.
 * S comes out of the dot product as the low bits of the float32 2^23 + S, so that
 * one subtraction makes y; two fma refine y / d, as in the reference.
 */
#include "kernel/cuda/fast.cuh"
#include "kernel/reference/arithmetic.h"

namespace {

constexpr int kExpandThreads = 128;
constexpr int kEight = 8;
constexpr int kExpandRows = 8; /* rows a thread */

template <int K>
__global__ void __launch_bounds__(kExpandThreads) expand(uint16_t *dst, size_t dst_stride,
                                                         const __grid_constant__ reference_tensor w,
                                                         uint32_t row_begin, uint32_t row_end)
{
    const uint32_t col = (blockIdx.x * kExpandThreads + threadIdx.x) * kEight;
    if (col >= w.cols)
        return;
    const uint32_t block = col / w.T, t = col % w.T, words = w.T * K / 32;
    const uint32_t bit = (w.T - kEight - t) * K, word = bit >> 5, shift = bit & 31;
    const uint32_t next = word + 1 == words ? 0 : word + 1;
    const size_t row_stride = w.interleaved ? 48 : w.cols / 32 * K;
    const uint32_t *at = w.words + (w.interleaved ? (size_t)(block >> 1) * w.rows * 48 + (block & 1) * 24
                                                  : (size_t)block * words);
    const uint32_t row0 = row_begin + blockIdx.y * kExpandRows;
#pragma unroll
    for (int r = 0; r < kExpandRows; r++) {
        const uint32_t row = row0 + r;
        if (row >= row_end)
            return;
        const uint32_t low = at[row * row_stride + word], high = at[row * row_stride + next];
        const uint32_t window_of[2] = {__funnelshift_r(low, high, shift), high >> shift};
        const float scale = __half2float(__ushort_as_half(w.scales[row]));
        uint32_t pair[kEight / 2];
#pragma unroll
        for (int i = 0; i < kEight; i += 2) {
            float v[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint32_t state = window(window_of, (kEight - 1 - i - j) * K, 12, 0);
                const float y = __uint_as_float(add_bytes(hash(state), 0x4b000000u)) - 8389118.0f;
                const float q = y * TCQ_RECIPROCAL_F32;
                v[j] = fmaf(fmaf(-q, TCQ_DIVISOR_F32, y), TCQ_RECIPROCAL_F32, q) * scale;
            }
            const __nv_bfloat162 both = __floats2bfloat162_rn(v[0], v[1]);
            pair[i / 2] = *(const uint32_t *)&both;
        }
        *(uint4 *)(dst + (row - row_begin) * dst_stride + col) =
            make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
}

} /* namespace */

cudaError_t expand_launch(void *dst, size_t dst_stride, const struct reference_tensor *w,
                          uint64_t row_begin, uint64_t row_end, cudaStream_t stream)
{
    const uint64_t rows = row_end - row_begin;
    const dim3 grid((uint32_t)((w->cols / kEight + kExpandThreads - 1) / kExpandThreads),
                    (uint32_t)((rows + kExpandRows - 1) / kExpandRows));
    auto *kernel = w->k == 2 ? expand<2> : w->k == 3 ? expand<3> : expand<4>;
    if (w->L != 12 || w->k < 2 || w->k > 4 || dst_stride % 8 != 0 || (uintptr_t)dst % 16 != 0 ||
        grid.y > 65535)
        return reference_expand_launch(dst, TCQ_DTYPE_BF16, dst_stride, w, row_begin, row_end,
                                       stream);
    kernel<<<grid, kExpandThreads, 0, stream>>>((uint16_t *)dst, dst_stride, *w,
                                                (uint32_t)row_begin, (uint32_t)row_end);
    return cudaGetLastError();
}
