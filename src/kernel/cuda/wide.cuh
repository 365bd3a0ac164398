/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lane decodes in products with many vectors (wide.cu): the A operand of products
 * of four warps (fast_wgmma.cuh), a step of 16 inputs at a time, kTiles tiles of 64 outputs
 * a warp.  A group is 256 inputs by the 256 outputs of a block.
 */
#ifndef TCQ_KERNEL_CUDA_WIDE_CUH
#define TCQ_KERNEL_CUDA_WIDE_CUH

#include "kernel/cuda/fast.cuh"

template <int K>
constexpr piece_order kWideOrder = K == 2   ? PIECES_XOR4
                                   : K == 4 ? PIECES_XOR8
                                            : PIECES_PLAIN;

/* Rows r and r + 1 of a tile are rows g and g + 8 of the A operand's 16, so that a lane's
 * sums of a vector are neighbours. */
template <int kAxis, int K, int kTiles> struct lane_weights;

/* Axis 1: inputs 64t..64t+63 of two outputs a tile. */
template <int K, int kTiles> struct lane_weights<1, K, kTiles> {
    static constexpr bool kKeepsSlot = false; /* after open() */
    uint32_t words[2], overlap[2];            /* where they are in a slot, a row */
    uint32_t w[kTiles][2][2 * K + 1];

    /* Of a lane of `warp`, of all that multiply, its first output in a tile of the block. */
    static __device__ __forceinline__ uint32_t output(uint32_t warp, uint32_t tile)
    {
        return warp / 4 * (64 * kTiles) + tile * 64 + warp % 4 * 16 + (threadIdx.x >> 2 & 7) * 2;
    }
    __device__ __forceinline__ void start(const fast_args &p, uint32_t warp)
    {
        const uint32_t t = threadIdx.x & 3;
        const uint32_t block_words = p.block_length / 32 * K, in_block = t * 64 % p.block_length;
        const uint32_t block_base = t * 64 / p.block_length * block_words;
        const uint32_t in_words = (p.block_length - in_block - 64) / 32 * K;
        const uint32_t above = in_words + 2 * K == block_words ? 0 : in_words + 2 * K;
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            words[r] = place_of<K, kWideOrder<K>>(output(warp, 0) + r, block_base + in_words);
            overlap[r] = place_of<K, kWideOrder<K>>(output(warp, 0) + r, block_base + above);
        }
    }
    template <int tile> __device__ __forceinline__ void open_tile(uint32_t slot)
    {
        constexpr int at = tile * 64 * 32 * K;
#pragma unroll
        for (int r = 0; r < 2; r++)
            load_words<K, at>(w[tile][r], slot + words[r], slot + overlap[r]);
    }
    __device__ __forceinline__ void open(uint32_t slot)
    {
        open_tile<0>(slot);
        if constexpr (kTiles == 2)
            open_tile<1>(slot);
    }
    template <int step> __device__ __forceinline__ void fetch()
    {
    }
    template <int step, int tile> __device__ __forceinline__ void decode(uint32_t (&a)[4])
    {
        constexpr int o = (63 - 4 * step) * K;
        a[0] = sum_pair<K, true>(w[tile][0], o, 0, false);
        a[1] = sum_pair<K, false>(w[tile][1], o, 0, false);
        a[2] = sum_pair<K, true>(w[tile][0], o - 2 * K, 0, false);
        a[3] = sum_pair<K, false>(w[tile][1], o - 2 * K, 0, false);
    }
};

/* Axis 0: a run of 2 * kTiles outputs of four inputs a step. */
template <int K, int kTiles> struct lane_weights<0, K, kTiles> {
    static constexpr bool kKeepsSlot = true;
    static constexpr uint32_t kRun = 2 * kTiles;
    uint32_t words[2], above[2], shift, slot;
    uint32_t low[4], high[4]; /* of the step to come */
    uint32_t run[4];          /* the bits of this step's runs */

    static __device__ __forceinline__ uint32_t output(uint32_t warp, uint32_t tile)
    {
        return warp * (16 * kTiles) + (threadIdx.x >> 2 & 7) * kRun + 2 * tile;
    }
    __device__ __forceinline__ void start(const fast_args &p, uint32_t warp)
    {
        const uint32_t first = output(warp, 0), in_block = first % p.block_length;
        const uint32_t block_words = p.block_length / 32 * K;
        const uint32_t base = first / p.block_length * block_words;
        const uint32_t bit = (p.block_length - kRun - in_block) * K, word = bit >> 5;
        shift = bit & 31;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t row = axis0_row<K>(threadIdx.x & 3, i);
            words[i] = place_of<K, kWideOrder<K>>(row, base + word);
            above[i] = place_of<K, kWideOrder<K>>(row, base + (word + 1) % block_words);
        }
    }
    __device__ __forceinline__ void open(uint32_t at)
    {
        slot = at;
        fetch<0>();
    }
    template <int step> __device__ __forceinline__ void fetch()
    {
        constexpr int at = step % 16 * kTileRows * 32 * K, eight = 8 * 32 * K;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            load<at>(low[i], slot + words[i]);
            load<at>(high[i], slot + above[i]);
            load<at + eight>(low[2 + i], slot + words[i]);
            load<at + eight>(high[2 + i], slot + above[i]);
        }
    }
    template <int step, int tile> __device__ __forceinline__ void decode(uint32_t (&a)[4])
    {
#pragma unroll
        for (int i = 0; i < 4 && tile == 0; i++)
            run[i] = __funnelshift_r(low[i], high[i], shift);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int o = ((int)kRun - 1 - 2 * tile - r % 2) * K, half = r / 2 * 2;
            const uint32_t first = byte_sum(run + half, o), second = byte_sum(run + half + 1, o);
            a[r] = r % 2 ? pack<false>(first, second) : pack<true>(first, second);
        }
    }
};

#endif
