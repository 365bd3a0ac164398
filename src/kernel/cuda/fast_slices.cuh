/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of a tile of 256 outputs that several thread blocks of axis 0 share: on their way
 * between the blocks, each of which adds a slice of them, in block order, and writes it.
 */
#ifndef TCQ_KERNEL_CUDA_FAST_SLICES_CUH
#define TCQ_KERNEL_CUDA_FAST_SLICES_CUH

#include "kernel/cuda/fast.cuh"

/* A tile's values: column after column of 256.  A warp takes one half of a column, or of
 * the two columns of a vector, at a time, a lane four outputs. */
template <int N8> constexpr uint32_t kValues = 8 * N8 *kGroup;
constexpr uint32_t kHalf = kGroup / 2;

/* Of a block's first (slot 0) or last tile. */
template <int N8>
__device__ __forceinline__ float *partial_of(const fast_args &p, uint32_t block, uint32_t slot)
{
    return p.partial + ((size_t)block * 2 + slot) * kValues<N8>;
}

/* A tile of outputs, and the blocks that share it. */
struct tile_place {
    uint32_t output;              /* the first one */
    uint32_t block, blocks, slot; /* the first block, and where it has its sums of this tile */
    uint32_t begin, end;          /* the slice of this block: halves of vectors */
};
static __device__ __noinline__ void place_tile(tile_place *to, const fast_args &p, uint32_t tile,
                                               uint32_t per_tile)
{
    const work_plan plan(p);
    const uint32_t first = plan.owner(tile * per_tile);
    const uint32_t blocks = plan.owner((tile + 1) * per_tile - 1) - first + 1;
    const uint32_t mine = blockIdx.x - first, halves = p.columns / p.pieces * 2;
    to->output = tile * kGroup;
    to->block = first;
    to->blocks = blocks;
    to->slot = plan.begin(first) / per_tile == tile ? 0 : 1; /* there may be tiles before it */
    to->begin = halves * mine / blocks;
    to->end = halves * (mine + 1) / blocks;
}

__device__ __forceinline__ void add4(float4 &to, const float4 &v)
{
    to.x += v.x, to.y += v.y, to.z += v.z, to.w += v.w;
}
/* Takes 510 times the inputs off four sums of a column. */
__device__ __forceinline__ float4 scale4(const float4 &v, const column_sum &m)
{
    return make_float4((v.x - m.offset) * m.inverse * kFinal, (v.y - m.offset) * m.inverse * kFinal,
                       (v.z - m.offset) * m.inverse * kFinal,
                       (v.w - m.offset) * m.inverse * kFinal);
}
/* Four outputs of a vector, from a multiple of four on. */
__device__ __forceinline__ void store4(const fast_args &p, uint32_t vector, uint32_t out,
                                       const float4 &v)
{
    if (out >= p.cols)
        return;
    const size_t at = (size_t)vector * p.y_stride + out;
    if (p.y_type == FAST_F32 && ((uintptr_t)p.y + at * 4) % 16 == 0) {
        *(float4 *)((float *)p.y + at) = v;
    } else if (p.y_type == FAST_BF16 && ((uintptr_t)p.y + at * 2) % 8 == 0) {
        const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y);
        const __nv_bfloat162 high = __floats2bfloat162_rn(v.z, v.w);
        *(uint2 *)((uint16_t *)p.y + at) =
            make_uint2(*(const uint32_t *)&low, *(const uint32_t *)&high);
    } else {
        store_y(p, vector, out, v.x);
        store_y(p, vector, out + 1, v.y);
        store_y(p, vector, out + 2, v.z);
        store_y(p, vector, out + 3, v.w);
    }
}

/* Four sums to where another block waits for them; see send(). */
__device__ __forceinline__ uint32_t bits_to_send(float v)
{
    return v == v ? __float_as_uint(v) : 0x7fffffffu;
}
__device__ __forceinline__ void send4(float *to, const float4 &v)
{
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to),
                 "r"(bits_to_send(v.x)), "r"(bits_to_send(v.y)), "r"(bits_to_send(v.z)),
                 "r"(bits_to_send(v.w))
                 : "memory");
}
__device__ __forceinline__ uint4 peek4(const float *from)
{
    uint4 bits;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(from)
                 : "memory");
    return bits;
}
__device__ __forceinline__ bool is_empty(const uint4 &bits)
{
    return bits.x == kEmpty || bits.y == kEmpty || bits.z == kEmpty || bits.w == kEmpty;
}
__device__ __forceinline__ float4 as_floats(const uint4 &bits)
{
    return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                       __uint_as_float(bits.w));
}
/* Puts the pattern back that no sum has. */
__device__ __forceinline__ void clear4(float *at)
{
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(at), "r"(kEmpty)
                 : "memory");
}

/* The sums of all blocks of a tile, four values of a column from `index` on.  Those that are
 * missing are asked for again all at once. */
template <int N8>
__device__ __forceinline__ float4 receive_all(const fast_args &p, const tile_place &tile,
                                              uint32_t index)
{
    constexpr uint32_t kAtOnce = 8;
    float4 total = {};
    for (uint32_t first = 0; first < tile.blocks; first += kAtOnce) {
        float *from = partial_of<N8>(p, tile.block + first, first ? 0 : tile.slot) + index;
        float *next = partial_of<N8>(p, tile.block + first + 1, 0) + index;
        constexpr size_t kPitch = 2 * kValues<N8>;
        const uint32_t count = min(tile.blocks - first, kAtOnce);
        uint4 bits[kAtOnce];
        bits[0] = peek4(from);
#pragma unroll
        for (uint32_t b = 1; b < kAtOnce; b++)
            if (b < count)
                bits[b] = peek4(next + (b - 1) * kPitch);
        for (bool missing = true; missing;) {
            missing = is_empty(bits[0]);
            if (missing)
                bits[0] = peek4(from);
#pragma unroll
            for (uint32_t b = 1; b < kAtOnce; b++)
                if (b < count && is_empty(bits[b])) {
                    missing = true;
                    bits[b] = peek4(next + (b - 1) * kPitch);
                }
        }
        clear4(from);
        add4(total, as_floats(bits[0]));
#pragma unroll
        for (uint32_t b = 1; b < kAtOnce; b++)
            if (b < count) {
                clear4(next + (b - 1) * kPitch);
                add4(total, as_floats(bits[b]));
            }
    }
    return total;
}

/* Of the sums of the blocks that share a tile this block adds its slice; of one tile or
 * of both. */
template <int N8>
__device__ __forceinline__ void add_slices(const fast_args &p, const column_sum *column_sums,
                                           const tile_place *places, uint32_t tiles)
{
    const uint32_t halves0 = places[0].end - places[0].begin;
    const uint32_t halves = tiles == 2 ? halves0 + places[1].end - places[1].begin : halves0;
    for (uint32_t i = threadIdx.x / 32; i < halves; i += kWarps) {
        const tile_place &tile = places[i < halves0 ? 0 : 1];
        const uint32_t half = (i < halves0 ? i : i - halves0) + tile.begin;
        const uint32_t vector = half / 2, at = half % 2 * kHalf + threadIdx.x % 32 * 4;
        float4 total = {};
        for (uint32_t piece = 0; piece < p.pieces; piece++) {
            const uint32_t column = vector * p.pieces + piece;
            add4(total,
                 scale4(receive_all<N8>(p, tile, column * kGroup + at), column_sums[column]));
        }
        store4(p, vector, tile.output + at, total);
    }
}

#endif
