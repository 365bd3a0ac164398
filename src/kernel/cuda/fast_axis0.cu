/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast product, axis 0: coded along the outputs, one scale an input.
 *
 * A block owns 256 outputs and a run of units of 16 stored rows (inputs), and takes them
 * in steps of up to eight units, of which each of four chains has a quarter; four warps
 * share a chain.  Lane (g, t) decodes four rows of a unit and, as warp `share` of the
 * four, outputs 32g + 8*share .. +7: two rows make a register of the A operand.  Where a
 * run leaves a tile of outputs the chains are added in ascending order, and where blocks
 * share a tile each adds a slice of their sums, in block order.
 */
#include "kernel/cuda/fast.cuh"

namespace
{

constexpr int kShares = 4; /* warps of a chain */
constexpr int kChains = kWarps / kShares;
constexpr int kRun = 8; /* outputs of a lane */
constexpr uint32_t kStepUnits = 8, kStepRows = kStepUnits * kTileRows;

/* How many of eight pairs of weights come from the table: what an H200 was fastest with. */
template <int K, int N8> constexpr int kServed = K == 4 ? 0 : 4;
template <int K, int N8> constexpr int kTableRoom = kServed<K, N8> ? kTableNbytes<K> : 0;

template <int K>
constexpr piece_order kOrder = K == 2   ? PIECES_XOR4
                               : K == 4 ? PIECES_XOR8
                                        : PIECES_PLAIN;
template <int K> constexpr int kUnitNbytes = kTileRows * 32 * K;

/* A slot: the packed words of a step and then its inputs, all columns of a unit side by
 * side. */
template <int N8> constexpr int kUnitInputs = kTileRows * 2 * 8 * N8;
template <int K> constexpr int kStepWords = kStepUnits *kUnitNbytes<K>;
template <int K, int N8> constexpr int kSlotNbytes = kStepWords<K> + kStepUnits *kUnitInputs<N8>;

/* Sums of 16 warps, 8 registers each, on their way to being added. */
constexpr int kSumsNbytes = kWarps * 8 * 32 * 4;
constexpr int kRoom = (227 - 4) * 1024 - kSumsNbytes; /* 4: static, alignment, the inputs' kernel */
template <int K, int N8>
constexpr int kStagesFit = (kRoom - kTableRoom<K, N8>) / kSlotNbytes<K, N8>;
template <int K, int N8> constexpr int kStages = kStagesFit<K, N8> < 6 ? kStagesFit<K, N8> : 6;
template <int K, int N8>
constexpr int kSharedNbytes = kTableRoom<K, N8> + kStages<K, N8> *kSlotNbytes<K, N8> + kSumsNbytes;

/* The steps of a block, tile after tile. */
struct step_walk {
    work_range run;
    uint32_t per_tile; /* units of a tile */
    uint32_t unit;     /* the next one, of all tiles */

    __device__ __forceinline__ bool more() const
    {
        return unit < run.end;
    }
    __device__ __forceinline__ uint32_t tile() const
    {
        return unit / per_tile;
    }
    __device__ __forceinline__ uint32_t count(uint32_t tile_end) const
    {
        return min(min(kStepUnits, tile_end - unit), run.end - unit);
    }
};

/* ---- copies --------------------------------------------------------------- */

template <int K, int N8> struct producer {
    const fast_args &p;
    const CUtensorMap *map;
    ring<kStages<K, N8>> slots;
    uint32_t stages;
    step_walk walk;
    uint32_t tile, tile_end, interleaved;

    __device__ __forceinline__ void open()
    {
        tile = walk.tile();
        tile_end = (tile + 1) * walk.per_tile;
    }
    __device__ __forceinline__ void start()
    {
        interleaved = p.pair_stride != 16 * K;
        open();
    }
    __device__ __forceinline__ const uint8_t *inputs_from() const
    {
        return inputs_of(p) + row() / kTileRows * kUnitInputs<N8>;
    }
    __device__ __forceinline__ uint32_t row() const
    {
        return (walk.unit - tile * walk.per_tile) * kTileRows;
    }
    __device__ __forceinline__ uint32_t to() const
    {
        return stages + slots.index * kSlotNbytes<K, N8>;
    }
    __device__ __forceinline__ void words()
    {
        barrier_expect(slots.filled(), kStepWords<K> + walk.count(tile_end) * kUnitInputs<N8>);
        copy_box(to(), map, (interleaved ? tile & 1 : tile) * 8 * K, row(),
                 interleaved ? tile >> 1 : 0, slots.filled());
    }
    __device__ __forceinline__ void inputs()
    {
        copy_bulk(to() + kStepWords<K>, inputs_from(), walk.count(tile_end) * kUnitInputs<N8>,
                  slots.filled());
    }
    __device__ __forceinline__ void both_by_threads()
    {
        const uint32_t count = walk.count(tile_end);
        copy_rows<K, kOrder<K>>(p, to(), tile, row(), count * kTileRows);
        copy_inputs(p, to() + kStepWords<K>, inputs_from(), count * kUnitInputs<N8>,
                    slots.filled());
        arrive_after_copies(slots.filled());
    }
    __device__ __forceinline__ void advance()
    {
        walk.unit += walk.count(tile_end);
        if (walk.unit == tile_end)
            open();
        slots.advance();
    }
};

template <int K, int N8>
__device__ __forceinline__ void produce(producer<K, N8> it, bool tensor_copies)
{
    it.start();
    if (!tensor_copies) {
        wait_for_inputs();
        for (; it.walk.more(); it.advance()) {
            it.slots.wait_emptied();
            it.both_by_threads();
        }
        return;
    }
    if (threadIdx.x % 32)
        return;
    /* Weights may be read before the inputs are there. */
    producer<K, N8> first = it;
    for (int i = 0; i < kStages<K, N8> && it.walk.more(); i++, it.advance())
        it.words();
    wait_for_inputs();
    for (int i = 0; i < kStages<K, N8> && first.walk.more(); i++, first.advance())
        first.inputs();
    for (; it.walk.more(); it.advance()) {
        it.slots.wait_emptied();
        it.words();
        it.inputs();
    }
}

/* ---- products ------------------------------------------------------------- */

/* Where a lane finds its rows in a unit: two of them, the others are eight rows on. */
struct lane_place {
    uint32_t words[2], overlap[2];
};
template <int K> __device__ __forceinline__ lane_place place_lane(const fast_args &p)
{
    const uint32_t g = threadIdx.x >> 2 & 7, t = threadIdx.x & 3;
    const uint32_t block_words = p.block_length / 32 * K, in_block = g * 32 % p.block_length;
    const uint32_t block_base = g * 32 / p.block_length * block_words;
    const uint32_t in_words = (p.block_length - in_block - 32) / 32 * K;
    const uint32_t above = in_words + K == block_words ? 0 : in_words + K;
    lane_place place;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t row = axis0_row<K>(t, i);
        place.words[i] = place_of<K, kOrder<K>>(row, block_base + in_words);
        place.overlap[i] = place_of<K, kOrder<K>>(row, block_base + above);
    }
    return place;
}

/* The words of a lane's 32 outputs of row `offset` bytes on, and the one above them. */
template <int K, int offset>
__device__ __forceinline__ void load_words(uint32_t (&w)[K + 1], uint32_t words, uint32_t overlap)
{
    if constexpr (K == 4) {
        uint4 v;
        load<offset>(v, words);
        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else if constexpr (K == 2) {
        uint2 v;
        load<offset>(v, words);
        w[0] = v.x, w[1] = v.y;
    } else {
        load<offset>(w[0], words);
        load<offset + 4>(w[1], words);
        load<offset + 8>(w[2], words);
    }
    load<offset>(w[K], overlap);
}

/* Sums of two rows as registers: of the state at o, and of that at o - K. */
template <int K, bool balanced>
__device__ __forceinline__ void sum_rows(uint32_t &first, uint32_t &second, const uint32_t *low,
                                         const uint32_t *high, int o, uint32_t table,
                                         bool from_table)
{
    if (!from_table) {
        first = pack<true>(byte_sum(low, o), byte_sum(high, o));
        second = pack<!balanced>(byte_sum(low, o - K), byte_sum(high, o - K));
    } else {
        static_assert(K <= 3 || kServed<K, 1> == 0, "the table of pairs");
        const uint32_t a = look_up(table, window(low, o - K, kTableBits<K>, 2));
        const uint32_t b = look_up(table, window(high, o - K, kTableBits<K>, 2));
        first = __byte_perm(a, b, 0x5410);
        second = __byte_perm(a, b, 0x7632);
    }
}

/* Unit `u` of a step, 16 rows by the 64 outputs of a warp; `unit` and `inputs` are those
 * of the first. */
template <int K, int N8, int share, int u>
__device__ __forceinline__ void multiply(float (&acc)[N8][kRun / 2][4], uint32_t unit,
                                         uint32_t inputs, const lane_place &place, uint32_t table)
{
    constexpr int kAt = u * kUnitNbytes<K>, k8Rows = 8 * 32 * K;
    uint2 b[N8];
#pragma unroll
    for (int n = 0; n < N8; n++) {
        load<u * kUnitInputs<N8>>(b[n].x, inputs + threadIdx.x % 32 * 4 + n * 256);
        load<u * kUnitInputs<N8> + 128>(b[n].y, inputs + threadIdx.x % 32 * 4 + n * 256);
    }
    uint32_t w[4][K + 1];
    load_words<K, kAt>(w[0], unit + place.words[0], unit + place.overlap[0]);
    load_words<K, kAt>(w[1], unit + place.words[1], unit + place.overlap[1]);
    load_words<K, kAt + k8Rows>(w[2], unit + place.words[0], unit + place.overlap[0]);
    load_words<K, kAt + k8Rows>(w[3], unit + place.words[1], unit + place.overlap[1]);
#pragma unroll
    for (int j = 0; j < kRun / 2; j++) {
        const int o = (31 - (8 * share + 2 * j)) * K;
        uint32_t a[4];
        sum_rows<K, (N8 > 2)>(a[0], a[1], w[0], w[1], o, table, is_served(2 * j, kServed<K, N8>));
        sum_rows<K, (N8 > 2)>(a[2], a[3], w[2], w[3], o, table,
                              is_served(2 * j + 1, kServed<K, N8>));
#pragma unroll
        for (int n = 0; n < N8; n++)
            mma(acc[n][j], a, b[n].x, b[n].y);
    }
}

/* What this block has of one tile, as warp `share` of a chain, whose first unit of a step
 * and its inputs are at `unit` and `inputs` in the first slot. */
template <int K, int N8, int share>
__device__ __forceinline__ void multiply_part(float (&acc)[N8][kRun / 2][4],
                                              ring<kStages<K, N8>> &slots, uint32_t units,
                                              uint32_t first, const lane_place &place,
                                              uint32_t table, uint32_t unit, uint32_t inputs)
{
#pragma unroll 1
    for (int left = (int)units - (int)first; left > -(int)first; left -= kStepUnits) {
        const uint32_t slot = slots.index * kSlotNbytes<K, N8>;
        slots.wait_filled();
        if (left > 0)
            multiply<K, N8, share, 0>(acc, unit + slot, inputs + slot, place, table);
        if (left > 1)
            multiply<K, N8, share, 1>(acc, unit + slot, inputs + slot, place, table);
        slots.release();
        slots.advance();
    }
}
static_assert(kStepUnits == 2 * kChains, "multiply_part");

/* ---- sums ----------------------------------------------------------------- */

/* Values of a tile are numbered thread + kThreads * r. */
template <int N8> constexpr uint32_t kValues = 4 * N8 *kThreads;

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
    uint32_t begin, end;          /* the slice of this block: values, in warps */
};
template <int N8>
__device__ __noinline__ void place_tile(tile_place *to, const fast_args &p, uint32_t tile,
                                        uint32_t per_tile)
{
    const work_plan plan(p);
    const uint32_t first = plan.owner(tile * per_tile);
    const uint32_t blocks = plan.owner((tile + 1) * per_tile - 1) - first + 1;
    const uint32_t mine = blockIdx.x - first, warps = kValues<N8> / 32;
    to->output = tile * kGroup;
    to->block = first;
    to->blocks = blocks;
    to->slot = plan.begin(first) / per_tile == tile ? 0 : 1; /* there may be tiles before it */
    to->begin = warps * mine / blocks;
    to->end = warps * (mine + 1) / blocks;
}

/* Value `index`; neighbouring lanes hold neighbouring columns. */
template <int N8>
__device__ __forceinline__ void finish_value(const fast_args &p, const column_sum *column_sums,
                                             uint32_t output, uint32_t index, float v)
{
    const uint32_t thread = index % kThreads, r = index / kThreads;
    const uint32_t from = thread >> 1 & 31, pair = thread >> 6 & 3;
    const uint32_t share = r % 2 * 2 + (thread >> 8);
    const uint32_t out = output + (from >> 2) * 32 + share * kRun + r / 2 % 2 * 4 + pair;
    const uint32_t column = r / 4 * 8 + (from & 3) * 2 + (thread & 1);
    const column_sum m = column_sums[min(column, p.columns - 1)];
    v = (v - m.offset) * m.inverse * kFinal;
    if (p.pieces == 2)
        v += __shfl_xor_sync(~0u, v, 1);
    if (out < p.cols && column < p.columns && (p.pieces == 1 || !(column & 1)))
        store_y(p, p.pieces == 2 ? column >> 1 : column, out, v);
}

/* Adds the chains, and writes or sends the sums of one part. */
template <int N8>
__device__ __forceinline__ void close_part(const fast_args &p, float (&acc)[N8][kRun / 2][4],
                                           const column_sum *column_sums, float *sums,
                                           uint32_t output, float *partial)
{
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < N8; n++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float2 *to = (float2 *)sums + warp * 128 + lane;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int j = 2 * h + i / 2, r = i % 2 * 2;
                to[i * 32] = make_float2(acc[n][j][r], acc[n][j][r + 1]);
                acc[n][j][r] = acc[n][j][r + 1] = 0.0f;
            }
            sync_multipliers();
#pragma unroll
            for (int i = 0; i < kShares / 2; i++) {
                float v = 0.0f;
#pragma unroll
                for (int q = 0; q < kChains; q++)
                    v += sums[(q * 2 + i) * 512 + threadIdx.x];
                const uint32_t index = (uint32_t)(4 * n + 2 * h + i) * kThreads + threadIdx.x;
                if (partial)
                    send(partial + index, v);
                else
                    finish_value<N8>(p, column_sums, output, index, v);
            }
            sync_multipliers();
        }
    }
}

/* Of the sums of the blocks that share a tile this block adds its slice; of one tile or
 * of both.  A warp has two rows of 32 values on their way at a time. */
template <int N8>
__device__ __forceinline__ void add_slices(const fast_args &p, const column_sum *column_sums,
                                           const tile_place *places, uint32_t tiles)
{
    constexpr uint32_t kAtOnce = 8;
    const uint32_t rows0 = places[0].end - places[0].begin;
    const uint32_t rows = tiles == 2 ? rows0 + places[1].end - places[1].begin : rows0;
    for (uint32_t i = threadIdx.x / 32; i < rows; i += 2 * kWarps) {
        uint32_t bits[2][kAtOnce];
#pragma unroll
        for (uint32_t u = 0; u < 2; u++) {
            const uint32_t row = i + u * kWarps;
            if (row >= rows)
                break;
            const tile_place &tile = places[row < rows0 ? 0 : 1];
            const uint32_t index =
                (row < rows0 ? row : row - rows0) * 32 + tile.begin * 32 + threadIdx.x % 32;
#pragma unroll
            for (uint32_t b = 0; b < kAtOnce; b++)
                if (b < tile.blocks)
                    bits[u][b] = peek(partial_of<N8>(p, tile.block + b, b ? 0 : tile.slot) + index);
        }
#pragma unroll
        for (uint32_t u = 0; u < 2; u++) {
            const uint32_t row = i + u * kWarps;
            if (row >= rows)
                break;
            const tile_place &tile = places[row < rows0 ? 0 : 1];
            const uint32_t index =
                (row < rows0 ? row : row - rows0) * 32 + tile.begin * 32 + threadIdx.x % 32;
            float total = 0.0f;
#pragma unroll
            for (uint32_t b = 0; b < kAtOnce; b++)
                if (b < tile.blocks)
                    total += receive(partial_of<N8>(p, tile.block + b, b ? 0 : tile.slot) + index,
                                     bits[u][b]);
            for (uint32_t b = kAtOnce; b < tile.blocks; b++) {
                float *from = partial_of<N8>(p, tile.block + b, 0) + index;
                total += receive(from, peek(from));
            }
            finish_value<N8>(p, column_sums, tile.output, index, total);
        }
    }
}

template <int K, int N8>
/* With few columns few registers, so that a block of the inputs' kernel fits beside. */
__global__ void __launch_bounds__(N8 == 1 ? 768 : kThreads + kCopyThreadsMax, 1)
    axis0(const __grid_constant__ fast_args p, const __grid_constant__ CUtensorMap map,
          const uint32_t tensor_copies)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ column_sum column_sums[FAST_COLUMNS_MAX_AXIS0];
    __shared__ uint64_t barriers[2 * kStages<K, N8>];
    __shared__ tile_place places[2];
    float *sums = (float *)(shared + kTableRoom<K, N8> + kStages<K, N8> * kSlotNbytes<K, N8>);
    const uint32_t table = shared_base(shared), stages = table + kTableRoom<K, N8>;

    let_next_start();
    ring<kStages<K, N8>> slots;
    slots.start(shared_address(barriers));
    if (threadIdx.x == 0)
        slots.init(copy_arrivals(p, tensor_copies));
    __syncthreads();
    const work_plan plan(p);
    const uint32_t per_tile = (p.rows + kTileRows - 1) / kTileRows;
    const work_range run = {plan.begin(blockIdx.x), plan.begin(blockIdx.x + 1)};
    const uint32_t warp = threadIdx.x >> 5;
    if (warp >= kWarps) {
        produce<K, N8>({p, &map, slots, stages, {run, per_tile, run.begin}}, tensor_copies);
        return;
    }
    if (kServed < K, N8 >> 0)
        fill_table<K>((uint32_t *)shared);
    const uint32_t tile0 = run.begin / per_tile, tile1 = (run.end - 1) / per_tile;
    if (threadIdx.x < 2) /* of the first and the last tile */
        place_tile<N8>(places + threadIdx.x, p, threadIdx.x ? tile1 : tile0, per_tile);
    const lane_place place = place_lane<K>(p);
    float acc[N8][kRun / 2][4] = {};
    wait_for_inputs();
    load_meta(column_sums, p);
    sync_multipliers();

    const uint32_t first = warp / kShares * 2; /* unit of a step */
    const uint32_t unit = stages + first * kUnitNbytes<K>;
    const uint32_t inputs = stages + kStepWords<K> + first * kUnitInputs<N8>;
    uint32_t shared_tiles = 0;
    for (uint32_t tile = tile0; tile <= tile1; tile++) {
        const uint32_t begin = max(run.begin, tile * per_tile);
        const uint32_t units = min(run.end, (tile + 1) * per_tile) - begin;
        switch (warp % kShares) {
        case 0:
            multiply_part<K, N8, 0>(acc, slots, units, first, place, table, unit, inputs);
            break;
        case 1:
            multiply_part<K, N8, 1>(acc, slots, units, first, place, table, unit, inputs);
            break;
        case 2:
            multiply_part<K, N8, 2>(acc, slots, units, first, place, table, unit, inputs);
            break;
        default:
            multiply_part<K, N8, 3>(acc, slots, units, first, place, table, unit, inputs);
            break;
        }
        const uint32_t which = tile == tile0 ? 0 : 1;
        if (units < per_tile)
            shared_tiles |= 1u << which;
        close_part<N8>(p, acc, column_sums, sums, tile * kGroup,
                       units < per_tile ? partial_of<N8>(p, blockIdx.x, which) : nullptr);
    }
    if (shared_tiles)
        add_slices<N8>(p, column_sums, places + (shared_tiles == 2), shared_tiles == 3 ? 2 : 1);
}

template <int K, int N8> struct product {
    static cudaError_t launch(fast_args args, uint32_t blocks, cudaStream_t stream)
    {
        auto *kernel = axis0<K, N8>;
        const int nbytes = kSharedNbytes<K, N8>;
        const uint32_t tiles = (args.cols + kGroup - 1) / kGroup;
        blocks = divide_work(&args, tiles * ((args.rows + kTileRows - 1) / kTileRows), blocks);
        cudaError_t status =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, nbytes);
        if (status != cudaSuccess)
            return status;
        CUtensorMap map = {};
        const uint32_t tensor_copies = fast_map_words(&map, args, kStepRows, kOrder<K>);
        return launch_overlapped(kernel, blocks, args.together ? 0 : 1,
                                 kThreads + (tensor_copies ? 32 : kCopyThreadsMax), nbytes, stream,
                                 args, map, tensor_copies);
    }
};

} /* namespace */

cudaError_t fast_axis0_launch(const struct fast_args *args, uint32_t blocks, cudaStream_t stream)
{
    return launch_product<product, 4>(*args, blocks, stream);
}
