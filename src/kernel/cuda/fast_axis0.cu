/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast product, axis 0: coded along the outputs, one scale an input.
 *
 * A block of 16 warps owns 256 outputs and takes the stored rows (inputs) in
 * steps of 32.  Step u belongs to chain u mod 4; four warps share a chain.  Lane
 * (g, t) decodes rows t, t+4, t+8, ... of a step and, as warp `share` of the
 * four, outputs 32g + 8*share .. +7: two rows make a register of the A operand.
 * Where a tile or the block's range ends the chains are added in ascending order.
 */
#include "kernel/cuda/fast.cuh"

namespace {

constexpr int kShares = 4;               /* warps of a chain */
constexpr int kChains = kWarps / kShares;
constexpr int kRun = 8;                  /* outputs of a lane */
constexpr int kStepRows = 2 * kTileRows;
constexpr int kStages = 3;               /* of packed words in flight, a chain */

/* How many of four pairs of a lane's rows come from the table: what an H200 was
 * fastest with. */
template <int K, int N8> constexpr int kTablePairs = K == 4 ? 0 : 2;
template <int K, int N8> constexpr int kTableRoom = kTablePairs<K, N8> ? kTableNbytes<K> : 0;

template <int K> constexpr int kPitch = K == 2 ? 96 : K == 4 ? 160 : 32 * K;
template <int K> constexpr int kStageNbytes = kStepRows * kPitch<K>;
template <int K> constexpr int kWordsNbytes = kChains * kStages * kStageNbytes<K>;

/* Sums of 16 warps, 8 registers each, on their way to being added. */
constexpr int kSumsNbytes = kWarps * 8 * 32 * 4;
/* Inputs of a step follow its packed words: 16 rows of every column, then 16 more. */
template <int N8> constexpr int kInputNbytes = 2 * 8 * N8 * 32;
template <int K, int N8> constexpr int kSlotNbytes = kStageNbytes<K> + kInputNbytes<N8>;

/* ---- packed words -------------------------------------------------------- */

/* The slow way: a step that the matrix does not fill, or unaligned rows. */
template <int K>
__device__ __noinline__ void copy_edge(const fast_args &p, uint32_t dst, uint32_t group,
                                       uint32_t row0)
{
    const uint32_t valid = min(p.cols - group * kGroup, (uint32_t)kGroup) / 32 * K;
    for (uint32_t i = threadIdx.x & 127; i < 2 * K * kStepRows; i += 32 * kShares) {
        const uint32_t row = i / (2 * K), chunk = i % (2 * K);
        const bool inside = row0 + row < p.rows;
        copy_checked(dst + row * kPitch<K> + chunk * 16,
                     p.words + (inside ? (row0 + row) * p.row_stride + (group >> 1) * p.pair_stride +
                                             (group & 1) * p.group_stride
                                       : 0),
                     chunk, inside ? valid : 0, p.words_aligned);
    }
}

/* Copies the steps of one chain, by its 128 threads. */
template <int K, int N8> struct step_copier {
    static constexpr int kPieces = (2 * K * kStepRows + 127) / 128;
    const uint8_t *from; /* the step's first word */
    uint32_t source_offset[kPieces], target_offset[kPieces];
    const uint8_t *inputs_from;
    uint32_t step, row, group, slot;

    __device__ __forceinline__ void open(const fast_args &p, uint32_t per_tile)
    {
        group = step / per_tile;
        row = step % per_tile * kStepRows;
        from = (const uint8_t *)(p.words + row * p.row_stride + (group >> 1) * p.pair_stride +
                                 (group & 1) * p.group_stride);
        inputs_from = fragments_of(p) + (size_t)row * p.columns * 2 + (threadIdx.x & 127) * 16;
    }
    __device__ __forceinline__ void start(const fast_args &p, uint32_t first, uint32_t per_tile)
    {
#pragma unroll
        for (int i = 0; i < kPieces; i++) {
            const uint32_t index = (threadIdx.x & 127) + 128 * i;
            source_offset[i] =
                index / (2 * K) * (uint32_t)p.row_stride * 4 + index % (2 * K) * 16;
            target_offset[i] = index / (2 * K) * kPitch<K> + index % (2 * K) * 16;
        }
        slot = 0;
        step = first;
        open(p, per_tile);
    }
    __device__ __forceinline__ void inputs(const fast_args &p, uint32_t stages)
    {
        if ((threadIdx.x & 127) < p.columns * 4)
            copy16(stages + slot + kStageNbytes<K> + (threadIdx.x & 127) * 16,
                   (const uint32_t *)inputs_from, 16);
    }
    __device__ __forceinline__ void words(const fast_args &p, uint32_t stages)
    {
        if (row + kStepRows <= p.rows && (group + 1) * kGroup <= p.cols && p.words_aligned) {
#pragma unroll
            for (int i = 0; i < kPieces; i++)
                if (2 * K * kStepRows % 128 == 0 || i + 1 < kPieces ||
                    (threadIdx.x & 127) < 2 * K * kStepRows % 128)
                    copy16(stages + slot + target_offset[i],
                           (const uint32_t *)(from + source_offset[i]), 16);
        } else {
            copy_edge<K>(p, stages + slot, group, row);
        }
    }
    __device__ __forceinline__ void advance(const fast_args &p, uint32_t per_tile)
    {
        slot = slot == (kStages - 1) * kSlotNbytes<K, N8> ? 0 : slot + kSlotNbytes<K, N8>;
        step += kChains;
        row += kChains * kStepRows;
        from += p.row_stride * (4 * kChains * kStepRows);
        inputs_from += p.columns * (2 * kChains * kStepRows);
        if (row >= p.rows)
            open(p, per_tile);
    }
};

/* The words of a lane's 32 outputs of one row, and the one above them. */
template <int K>
__device__ __forceinline__ void load_words(uint32_t (&w)[K + 1], const uint8_t *at, uint32_t base,
                                           uint32_t overlap)
{
    const uint32_t *row = (const uint32_t *)at;
    if constexpr (K % 4 == 0) {
#pragma unroll
        for (int i = 0; i < K; i += 4)
            *(uint4 *)&w[i] = *(const uint4 *)(row + base + i);
    } else if constexpr (K % 2 == 0) {
#pragma unroll
        for (int i = 0; i < K; i += 2)
            *(uint2 *)&w[i] = *(const uint2 *)(row + base + i);
    } else {
#pragma unroll
        for (int i = 0; i < K; i++)
            w[i] = row[base + i];
    }
    w[K] = row[overlap];
}

/* Sums of two rows as registers: of the state at o, and of that at o - K. */
template <int K>
__device__ __forceinline__ void sum_rows(uint32_t &first, uint32_t &second, const uint32_t *low,
                                         const uint32_t *high, int o, const uint8_t *table,
                                         bool from_table)
{
    if (!from_table) {
        first = pack(byte_sum(low, o), byte_sum(high, o));
        second = pack(byte_sum(low, o - K), byte_sum(high, o - K));
    } else if constexpr (K <= 3) {
        const uint32_t a = *(const uint32_t *)(table + window(low, o - K, kTableBits<K>, 2));
        const uint32_t b = *(const uint32_t *)(table + window(high, o - K, kTableBits<K>, 2));
        first = __byte_perm(a, b, 0x5410);
        second = __byte_perm(a, b, 0x7632);
    } else {
        first = add_bytes(hash(window(low, o, 12, 0)),
                          *(const uint32_t *)(table + window(high, o, 12, 2)));
        second = add_bytes(hash(window(low, o - K, 12, 0)),
                           *(const uint32_t *)(table + window(high, o - K, 12, 2)));
    }
}

/* 16 rows by the 64 outputs of a warp. */
template <int K, int N8, int share>
__device__ __forceinline__ void multiply(float (&acc)[N8][kRun / 2][4], const uint8_t *rows, const uint2 (&b)[N8], uint32_t base,
                                         uint32_t overlap, const uint8_t *table)
{
    uint32_t w[4][K + 1];
#pragma unroll
    for (int r = 0; r < 4; r++)
        load_words<K>(w[r], rows + 4 * r * kPitch<K>, base, overlap);
#pragma unroll
    for (int j = 0; j < kRun / 2; j++) {
        const int o = (31 - (8 * share + 2 * j)) * K;
        uint32_t a[4];
        /* The table serves one pair of rows of two, or more or fewer. */
        sum_rows<K>(a[0], a[1], w[0], w[1], o, table, kTablePairs<K, N8> > (j & 1 ? 2 : 0));
        sum_rows<K>(a[2], a[3], w[2], w[3], o, table, kTablePairs<K, N8> > (j & 1 ? 1 : 3));
#pragma unroll
        for (int n = 0; n < N8; n++)
            mma(acc[n][j], a, b[n].x, b[n].y);
    }
}

/* ---- sums ----------------------------------------------------------------- */

__device__ __forceinline__ float *partial_of(const fast_args &p, uint32_t block, uint32_t slot,
                                             uint32_t values)
{
    return p.partial + ((size_t)block * 2 + slot) * values * kThreads + threadIdx.x;
}

/* One sum a thread; neighbouring threads hold neighbouring columns. */
__device__ __forceinline__ void finish(const fast_args &p, const column_sum *column_sums,
                                       uint32_t out, uint32_t column, float v)
{
    const column_sum m = column_sums[min(column, p.columns - 1)];
    v = (v - m.offset) * m.inverse * kFinal;
    if (p.pieces == 2)
        v += __shfl_xor_sync(~0u, v, 1);
    if (out < p.cols && column < p.columns && (p.pieces == 1 || !(column & 1)))
        store_y(p, p.pieces == 2 ? column >> 1 : column, out, v);
}

/* After the last step: blocks that share a tile leave their sums, and the one
 * that comes last adds them in block order. */
template <int values, typename finish_tile>
__device__ __forceinline__ void join_partials(const fast_args &p, uint32_t slot_used,
                                              work_range work, work_plan plan, uint32_t per_tile,
                                              finish_tile finish_values)
{
    __shared__ uint32_t arrived[2];
    if (!slot_used)
        return;
    __syncthreads();
    if (threadIdx.x < 2 && (slot_used >> threadIdx.x & 1)) {
        const uint32_t tile = (threadIdx.x ? work.end - 1 : work.begin) / per_tile;
        __threadfence();
        arrived[threadIdx.x] = atomicAdd(p.tickets + tile, 1);
        __threadfence();
    }
    __syncthreads();
    for (uint32_t slot = 0; slot < 2; slot++) {
        const uint32_t tile = (slot ? work.end - 1 : work.begin) / per_tile;
        const uint32_t block0 = plan.owner(tile * per_tile);
        const uint32_t block1 = plan.owner((tile + 1) * per_tile - 1);
        if (!(slot_used >> slot & 1) || arrived[slot] != block1 - block0)
            continue;
        if (threadIdx.x == 0)
            p.tickets[tile] = 0;
        float total[values] = {};
        for (uint32_t b = block0; b <= block1; b++) {
            const float *partial = partial_of(p, b, plan.begin(b) / per_tile == tile ? 0 : 1, values);
#pragma unroll
            for (int i = 0; i < values; i++)
                total[i] += __ldcg(partial + i * kThreads);
        }
        finish_values(tile, total);
    }
}

/* Where sum r of this thread goes: sums[q][2 shares][4 pairs][lane][2] of round r / 2. */
template <int N8>
__device__ __forceinline__ void finish_value(const fast_args &p, const column_sum *column_sums,
                                             uint32_t tile, int r, float v)
{
    const uint32_t from = threadIdx.x >> 1 & 31, pair = threadIdx.x >> 6 & 3;
    const uint32_t share = r % 2 * 2 + (threadIdx.x >> 8);
    finish(p, column_sums, tile * kGroup + (from >> 2) * 32 + share * kRun + r / 2 % 2 * 4 + pair,
           r / 4 * 8 + (from & 3) * 2 + (threadIdx.x & 1), v);
}

/* A barrier of the chain's four warps; its number must be a constant, or the
 * compiler reserves all sixteen.  racecheck loses track where barriers of several
 * numbers meet, so for it one of the whole block takes their place (2 us slower). */
__device__ __forceinline__ void chain_barrier(uint32_t chain)
{
#ifdef TCQ_CUDA_RACECHECK
    __syncthreads();
    (void)chain;
    return;
#endif
    switch (chain) {
    case 0: asm volatile("bar.sync 1, 128;" ::: "memory"); break;
    case 1: asm volatile("bar.sync 2, 128;" ::: "memory"); break;
    case 2: asm volatile("bar.sync 3, 128;" ::: "memory"); break;
    default: asm volatile("bar.sync 4, 128;" ::: "memory"); break;
    }
}

template <int K, int N8>
__global__ void __launch_bounds__(kThreads, 1) axis0(const __grid_constant__ fast_args p, uint32_t)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ column_sum column_sums[FAST_COLUMNS_MAX];
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint32_t share = warp & (kShares - 1), chain = warp / kShares;
    const uint8_t *table = shared;
    const uint8_t *stages = shared + kTableRoom<K, N8> + chain * kStages * kSlotNbytes<K, N8>;
    float *sums = (float *)(shared + kTableRoom<K, N8> + kChains * kStages * kSlotNbytes<K, N8>);

    let_next_start();
    const uint32_t per_tile = (p.rows + kStepRows - 1) / kStepRows;
    const work_plan plan(p);
    const work_range work = {plan.begin(blockIdx.x), plan.begin(blockIdx.x + 1)};
    uint32_t step = work.begin + chain, slot = 0;

    /* Weights may be read before the inputs are there. */
    step_copier<K, N8> copier, first;
    const uint32_t stages_address = shared_address(stages);
    copier.start(p, step, per_tile);
    first = copier;
#pragma unroll
    for (int i = 0; i < kStages - 1; i++)
        if (copier.step < work.end) {
            copier.words(p, stages_address);
            copier.advance(p, per_tile);
        }
    if (kTablePairs<K, N8> > 0)
        fill_table<K>((uint32_t *)shared);

    const uint32_t block_words = p.block_length / 32 * K, in_block = g * 32 % p.block_length;
    const uint32_t block_base = g * 32 / p.block_length * block_words;
    const uint32_t in_words = (p.block_length - in_block - 32) / 32 * K;
    const uint32_t base = block_base + in_words;
    const uint32_t overlap = block_base + (in_words + K == block_words ? 0 : in_words + K);

    float acc[N8][kRun / 2][4] = {};
    uint32_t column[N8];
#pragma unroll
    for (int n = 0; n < N8; n++)
        column[n] = kStageNbytes<K> + (min(8 * n + g, p.columns - 1) * 4 + t) * 8;

    wait_for_inputs();
    load_meta(column_sums, p);
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) {
        if (first.step < work.end) {
            first.inputs(p, stages_address);
            first.advance(p, per_tile);
        }
        copy_commit();
    }
    __syncthreads(); /* the table */
    uint32_t slot_used = 0, end;
    for (uint32_t at = work.begin; at < work.end; at = end) {
        const uint32_t tile = at / per_tile, tile_end = (tile + 1) * per_tile;
        end = min(tile_end, work.end);
        /* As many rounds for every chain, so that a block-wide barrier would do. */
        const uint32_t rounds = (end - at + kChains - 1) / kChains;
        for (uint32_t round = 0; round < rounds; round++) {
            copy_wait<kStages - 2>();
            chain_barrier(chain);
            if (step >= end)
                break;
            if (copier.step < work.end) {
                copier.words(p, stages_address);
                copier.inputs(p, stages_address);
                copier.advance(p, per_tile);
            }
            copy_commit();
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint8_t *rows = stages + slot + (half * kTileRows + t) * kPitch<K>;
                uint2 b[N8];
#pragma unroll
                for (int n = 0; n < N8; n++)
                    b[n] = *(const uint2 *)(stages + slot + half * p.columns * 32 + column[n]);
                switch (share) {
                case 0: multiply<K, N8, 0>(acc, rows, b, base, overlap, table); break;
                case 1: multiply<K, N8, 1>(acc, rows, b, base, overlap, table); break;
                case 2: multiply<K, N8, 2>(acc, rows, b, base, overlap, table); break;
                default: multiply<K, N8, 3>(acc, rows, b, base, overlap, table); break;
                }
            }
            slot = slot == (kStages - 1) * kSlotNbytes<K, N8> ? 0 : slot + kSlotNbytes<K, N8>;
            step += kChains;
        }
        const bool whole = tile * per_tile >= work.begin && tile_end <= work.end;
        const uint32_t which = tile == work.begin / per_tile ? 0 : 1;
        if (!whole)
            slot_used |= 1u << which;
#pragma unroll
        for (int n = 0; n < N8; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float2 *to = (float2 *)sums + warp * 128 + lane;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int j = 2 * h + i / 2, r = i % 2 * 2;
                    to[i * 32] = make_float2(acc[n][j][r], acc[n][j][r + 1]);
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < kShares / 2; i++) {
                    float v = 0.0f;
#pragma unroll
                    for (int q = 0; q < kChains; q++)
                        v += sums[(q * 2 + i) * 512 + threadIdx.x];
                    const int r = 4 * n + 2 * h + i;
                    if (whole)
                        finish_value<N8>(p, column_sums, tile, r, v);
                    else
                        __stcg(partial_of(p, blockIdx.x, which, 4 * N8) + r * kThreads, v);
                }
                __syncthreads();
            }
#pragma unroll
            for (int j = 0; j < kRun / 2; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    acc[n][j][i] = 0.0f;
        }
    }
    join_partials<4 * N8>(p, slot_used, work, plan, per_tile,
                          [&](uint32_t tile, float(&total)[4 * N8]) {
#pragma unroll
                              for (int r = 0; r < 4 * N8; r++)
                                  finish_value<N8>(p, column_sums, tile, r, total[r]);
                          });
}

template <int K, int N8>
cudaError_t launch(fast_args args, uint32_t blocks, cudaStream_t stream)
{
    auto *kernel = axis0<K, N8>;
    const int nbytes = kTableRoom<K, N8> + kChains * kStages * kSlotNbytes<K, N8> + kSumsNbytes;
    const uint32_t per_tile = (args.rows + kStepRows - 1) / kStepRows;
    const uint32_t units = (args.cols + kGroup - 1) / kGroup * per_tile;
    blocks = divide_work(&args, units, blocks);
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, nbytes);
    if (status != cudaSuccess)
        return status;
    return launch_overlapped(kernel, blocks, kThreads, nbytes, stream, args, 0);
}

template <int K>
cudaError_t launch_columns(const fast_args &args, uint32_t blocks, cudaStream_t stream)
{
    if (args.columns <= 8)
        return launch<K, 1>(args, blocks, stream);
    if (args.columns <= 16)
        return launch<K, 2>(args, blocks, stream);
    return launch<K, 4>(args, blocks, stream);
}

} /* namespace */

cudaError_t fast_axis0_launch(const struct fast_args *args, uint32_t k, uint32_t blocks,
                              cudaStream_t stream)
{
    switch (k) {
    case 2: return launch_columns<2>(*args, blocks, stream);
    case 3: return launch_columns<3>(*args, blocks, stream);
    case 4: return launch_columns<4>(*args, blocks, stream);
    default: return cudaErrorInvalidValue;
    }
}
