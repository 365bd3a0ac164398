/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast product, axis 0: coded along the outputs, one scale an input.
 *
 * A block owns 256 outputs and a run of units of 16 stored rows (inputs), and takes them
 * in steps of up to eight units, of which each of four chains has a quarter; four warps
 * share a chain and multiply together.  Lane (g, t) of warp s of them decodes four rows of
 * a unit and outputs 64s + 8g .. +7: two rows make a register of the A operand.  Where a
 * run leaves a tile of outputs the chains are added in ascending order, and where blocks
 * share a tile each adds a slice of their sums, in block order.
 */
#include "kernel/cuda/fast_slices.cuh"

namespace
{

constexpr int kShares = 4; /* warps of a chain */
constexpr int kChains = kWarps / kShares;
constexpr int kRun = 8; /* outputs of a lane */
constexpr uint32_t kStepUnits = 8, kStepRows = kStepUnits * kTileRows;

/* How many of eight pairs of weights come from the table: what an H200 was fastest with. */
template <int K, int N8> constexpr int kServed = 4;
template <int K, int N8> constexpr int kTableRoom = kServed<K, N8> ? kTableNbytes<K> : 0;

/* With many columns the warps that copy, always four then, have few registers. */
template <int N8> constexpr bool kManyRegisters = N8 > 2;

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

/* Sums on their way to being added: of four columns and all chains, and in the end of all
 * columns, for which there is room where words, inputs and the table were. */
constexpr int kColumnNbytes = kGroup * 4;
constexpr int kSumsNbytes = kChains * 4 * kColumnNbytes;
constexpr int kRoom = (227 - 4) * 1024 - kSumsNbytes; /* 4: static, alignment, the inputs' kernel */
template <int K, int N8>
constexpr int kStagesFit = (kRoom - kTableRoom<K, N8>) / kSlotNbytes<K, N8>;
template <int K, int N8> constexpr int kStages = kStagesFit<K, N8> < 6 ? kStagesFit<K, N8> : 6;
template <int K, int N8>
constexpr int kSharedNbytes = kTableRoom<K, N8> + kStages<K, N8> *kSlotNbytes<K, N8> + kSumsNbytes;
template <int K, int N8>
constexpr bool kSumsFit = kSharedNbytes<K, N8> >= kChains * 8 * N8 *kColumnNbytes;

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
    if (threadIdx.x != kThreads)
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

/* Where a lane finds, in a unit, the word with the last bits of its eight outputs of a row
 * and the one above; its other rows are one or four and eight on.  For k = 4 the order of
 * the pieces differs from one row to the next. */
template <int K> constexpr int kPlaces = K == 4 ? 2 : 1;
template <int K> struct lane_place {
    uint32_t words[kPlaces<K>], above[kPlaces<K>];
    uint32_t shift; /* of the two words, see align() */
};
template <int K> __device__ __forceinline__ lane_place<K> place_lane(const fast_args &p)
{
    const uint32_t share = threadIdx.x >> 5 & 3, g = threadIdx.x >> 2 & 7, t = threadIdx.x & 3;
    const uint32_t at = share * 64 + g * kRun, in_block = at % p.block_length;
    const uint32_t block_words = p.block_length / 32 * K;
    const uint32_t base = at / p.block_length * block_words;
    const uint32_t byte = (p.block_length - in_block - kRun) / 8 * K, word = byte / 4;
    uint32_t above = base + (word + 1 == block_words ? 0 : word + 1);
    lane_place<K> place;
    place.shift = byte % 4 * 8;
    if (K == 2) { /* six bits higher */
        above = place.shift ? above : base + word;
        place.shift = place.shift ? place.shift - 6 : 26;
    }
    for (uint32_t i = 0; i < kPlaces<K>; i++) {
        place.words[i] = place_of<K, kOrder<K>>(axis0_row<K>(t, i), base + word);
        place.above[i] = place_of<K, kOrder<K>>(axis0_row<K>(t, i), above);
    }
    return place;
}

/* Both words of a lane's four rows of the unit `offset` bytes on. */
template <int K, int offset>
__device__ __forceinline__ void load_words(uint32_t (&w)[4][2], uint32_t unit,
                                           const lane_place<K> &place)
{
    constexpr int k8Rows = 8 * 32 * K, kNext = K == 4 ? 0 : (K == 3 ? 4 : 1) * 32 * K;
    constexpr int kSecond = kPlaces<K> - 1;
    const uint32_t words = unit + place.words[0], above = unit + place.above[0];
    const uint32_t words1 = unit + place.words[kSecond], above1 = unit + place.above[kSecond];
    load<offset>(w[0][0], words);
    load<offset>(w[0][1], above);
    load<offset + kNext>(w[1][0], words1);
    load<offset + kNext>(w[1][1], above1);
    load<offset + k8Rows>(w[2][0], words);
    load<offset + k8Rows>(w[2][1], above);
    load<offset + kNext + k8Rows>(w[3][0], words1);
    load<offset + kNext + k8Rows>(w[3][1], above1);
}

/* A lane's bits of a row, 7k + 12 of them, where windows are cut at offsets that all lanes
 * have in common: for k = 2 from bit 6 on, so that the first window ends with its word; for
 * k = 3, 33 bits, once from bit 0 on and once without the last. */
template <int K> __device__ __forceinline__ void align(uint32_t (&w)[2], uint32_t shift)
{
    if (K == 4)
        return;
    const uint32_t low = w[0], high = w[1];
    w[0] = __funnelshift_r(low, high, shift);
    if (K == 3)
        w[1] = __funnelshift_r(low, high, shift + 1);
}
template <int K>
__device__ __forceinline__ uint32_t run_window(const uint32_t (&w)[2], int o, int bits, int scale)
{
    if (K == 3 && o > 0)
        return window(w + 1, o - 1, bits, scale);
    return window(w, K == 2 ? o + 6 : o, bits, scale);
}
template <int K> __device__ __forceinline__ uint32_t run_sum(const uint32_t (&w)[2], int o)
{
    return add_bytes(hash(run_window<K>(w, o, 12, 0)), 0u);
}

/* Sums of two rows as registers: of the state at o, and of that at o - K. */
template <int K, bool balanced>
__device__ __forceinline__ void sum_rows(uint32_t &first, uint32_t &second,
                                         const uint32_t (&low)[2], const uint32_t (&high)[2], int o,
                                         uint32_t table, bool from_table)
{
    if (!from_table) {
        first = pack<true>(run_sum<K>(low, o), run_sum<K>(high, o));
        second = pack<!balanced>(run_sum<K>(low, o - K), run_sum<K>(high, o - K));
    } else if (K == 4) { /* the table has sums in the upper half of a word */
        first = add_bytes(hash(run_window<K>(low, o, 12, 0)),
                          look_up(table, run_window<K>(high, o, 12, 2)));
        second = add_bytes(hash(run_window<K>(low, o - K, 12, 0)),
                           look_up(table, run_window<K>(high, o - K, 12, 2)));
    } else {
        const uint32_t a = look_up(table, run_window<K>(low, o - K, kTableBits<K>, 2));
        const uint32_t b = look_up(table, run_window<K>(high, o - K, kTableBits<K>, 2));
        first = __byte_perm(a, b, 0x5410);
        second = __byte_perm(a, b, 0x7632);
    }
}

/* Whether the pairs of tile j of rows 0 and 1 or 2 and 3 come from the table: first those
 * whose windows are shifted and masked both. */
__device__ __forceinline__ constexpr bool is_run_served(int j, int rows, int served)
{
    constexpr int order[8] = {5, 7, 0, 2, 3, 1, 6, 4}; /* of tile 0, rows 0 and 2, tile 1, ... */
    return order[2 * j + rows] < served;
}

/* Tiles of two outputs a lane, and the products of them that are one group, as registers
 * allow. */
constexpr int kTiles = kRun / 2;
template <int N8> constexpr int kTogether = N8 == 1 ? 2 : 1;

/* A unit of 16 rows whose words are w, with its inputs `offset` bytes after `matrix`.  The
 * tensor cores work on a group while the next one is decoded. */
template <int K, int N8, int offset>
__device__ __forceinline__ void multiply(float (&acc)[kTiles][N8][4], uint32_t (&w)[4][2],
                                         uint32_t matrix, const lane_place<K> &place,
                                         uint32_t table)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        align<K>(w[i], place.shift);
#pragma unroll
    for (int first = 0; first < kTiles; first += kTogether<N8>) {
        uint32_t a[kTogether<N8>][4];
#pragma unroll
        for (int i = 0; i < kTogether<N8>; i++) {
            const int j = first + i, o = (kRun - 1 - 2 * j) * K;
            sum_rows<K, (N8 > 2)>(a[i][0], a[i][1], w[0], w[1], o, table,
                                  is_run_served(j, 0, kServed<K, N8>));
            sum_rows<K, (N8 > 2)>(a[i][2], a[i][3], w[2], w[3], o, table,
                                  is_run_served(j, 1, kServed<K, N8>));
        }
        products_wait<1>();
        products_fence();
#pragma unroll
        for (int i = 0; i < kTogether<N8>; i++)
            multiply_step<offset>(acc[first + i], a[i], matrix);
        products_commit();
    }
}

/* What this block has of one tile, as a warp of the chain whose first unit of a step is
 * `first`. */
template <int K, int N8>
__device__ __forceinline__ void
multiply_part(float (&acc)[kTiles][N8][4], ring<kStages<K, N8>> &slots, uint32_t stages,
              uint32_t units, uint32_t first, const lane_place<K> &place, uint32_t table)
{
#pragma unroll 1
    for (int left = (int)units - (int)first; left > -(int)first; left -= kStepUnits) {
        const uint32_t slot = stages + slots.index * kSlotNbytes<K, N8>;
        const uint32_t unit = slot + first * kUnitNbytes<K>;
        slots.wait_filled();
        const uint32_t matrix = matrix_at(slot + kStepWords<K> + first * kUnitInputs<N8>);
        uint32_t w[2][4][2];
        load_words<K, 0>(w[0], unit, place);
        if (N8 == 1) /* whether or not it is needed */
            load_words<K, kUnitNbytes<K>>(w[1], unit, place);
        if (left > 0)
            multiply<K, N8, 0>(acc, w[0], matrix, place, table);
        if (N8 != 1)
            load_words<K, kUnitNbytes<K>>(w[1], unit, place);
        if (left > 1)
            multiply<K, N8, kUnitInputs<N8>>(acc, w[1], matrix, place, table);
        products_wait<0>(); /* they read the slot */
        slots.release();
        slots.advance();
    }
#pragma unroll
    for (int j = 0; j < kTiles; j++)
        products_keep(acc[j]);
}
static_assert(kStepUnits == 2 * kChains, "multiply_part");

/* ---- sums ----------------------------------------------------------------- */

/* Where shared memory has four sums, `unit` of a column's 64: in an order in which neither
 * writing nor reading meets a bank twice. */
__device__ __forceinline__ float4 *sums_at(float4 *sums, uint32_t row, uint32_t column,
                                           uint32_t unit)
{
    return sums + row * (kGroup / 4) + (unit ^ ((column >> 1 & 1) | (column >> 2 & 1) << 2));
}

/* Adds the chains, and writes or sends the sums of one part: `kColumns` columns at a time,
 * four or all. */
template <int N8, int kColumns>
__device__ __forceinline__ void close_part(const fast_args &p, float (&acc)[kTiles][N8][4],
                                           const column_sum *column_sums, float4 *sums,
                                           uint32_t output, float *partial)
{
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, t = lane & 3;
    const uint32_t unit = warp % kShares * 16 + lane / 4 * 2;
#pragma unroll
    for (int first = 0; first < 8 * N8; first += kColumns) {
        if (first >= p.columns)
            break;
        sync_multipliers();
#pragma unroll
        for (int n = first / 8; n < (first + kColumns + 7) / 8; n++) {
            if (kColumns == 4 && t / 2 != (uint32_t)first / 4 % 2)
                continue;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t column = 8 * n + 2 * t + i;
                if (column >= p.columns)
                    continue;
                const uint32_t row = warp / kShares * kColumns + column - first;
#pragma unroll
                for (int h = 0; h < 2; h++)
                    *sums_at(sums, row, column, unit + h) =
                        make_float4(acc[2 * h][n][i], acc[2 * h][n][2 + i], acc[2 * h + 1][n][i],
                                    acc[2 * h + 1][n][2 + i]);
            }
        }
        sync_multipliers();
        const uint32_t end = min(p.columns - first, (uint32_t)kColumns) / p.pieces * 2;
        for (uint32_t i = warp; i < end; i += kWarps) {
            const uint32_t vector = first / p.pieces + i / 2, at = i % 2 * kHalf + lane * 4;
            float4 total = {};
            for (uint32_t piece = 0; piece < p.pieces; piece++) {
                const uint32_t column = vector * p.pieces + piece;
                float4 v = {};
#pragma unroll
                for (uint32_t q = 0; q < kChains; q++)
                    add4(v, *sums_at(sums, q * kColumns + column - first, column, at / 4));
                if (partial)
                    send4(partial + column * kGroup + at, v);
                else
                    add4(total, scale4(v, column_sums[column]));
            }
            if (!partial)
                store4(p, vector, output + at, total);
        }
    }
#pragma unroll
    for (int i = 0; i < kTiles * N8 * 4; i++)
        acc[i / (4 * N8)][i / 4 % N8][i % 4] = 0.0f;
}

/* With up to 16 columns few registers, so that a block of the inputs' kernel fits beside. */
template <int K, int N8>
__global__ void __launch_bounds__(N8 <= 2 ? 768 : kThreads + kCopyThreadsMax, 1)
    axis0(const __grid_constant__ fast_args p, const __grid_constant__ CUtensorMap map,
          const uint32_t tensor_copies)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ column_sum column_sums[FAST_COLUMNS_MAX_AXIS0];
    __shared__ uint64_t barriers[2 * kStages<K, N8>];
    __shared__ tile_place places[2];
    float4 *sums = (float4 *)(shared + kTableRoom<K, N8> + kStages<K, N8> * kSlotNbytes<K, N8>);
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
        if (kManyRegisters<N8>)
            give_registers<kCopyKeeps>();
        produce<K, N8>({p, &map, slots, stages, {run, per_tile, run.begin}}, tensor_copies);
        return;
    }
    if (kManyRegisters<N8>)
        take_registers<kMultiplyTakes>();
    if (kServed < K, N8 >> 0)
        fill_table<K>((uint32_t *)shared);
    const uint32_t tile0 = run.begin / per_tile, tile1 = (run.end - 1) / per_tile;
    if (threadIdx.x < 2) /* of the first and the last tile */
        place_tile(places + threadIdx.x, p, threadIdx.x ? tile1 : tile0, per_tile);
    const lane_place<K> place = place_lane<K>(p);
    float acc[kTiles][N8][4] = {};
    wait_for_inputs();
    load_meta(column_sums, p);
    sync_multipliers();

    const uint32_t first = warp / kShares * 2; /* unit of a step */
    uint32_t shared_tiles = 0;
    for (uint32_t tile = tile0;; tile++) {
        const uint32_t begin = max(run.begin, tile * per_tile);
        const uint32_t units = min(run.end, (tile + 1) * per_tile) - begin;
        multiply_part<K, N8>(acc, slots, stages, units, first, place, table);
        const uint32_t which = tile == tile0 ? 0 : 1;
        float *partial = units < per_tile ? partial_of<N8>(p, blockIdx.x, which) : nullptr;
        if (partial)
            shared_tiles |= 1u << which;
        if (tile == tile1) {
            static_assert(kSumsFit<K, N8>, "sums of all columns");
            close_part<N8, 8 * N8>(p, acc, column_sums, (float4 *)shared, tile * kGroup, partial);
            break;
        }
        close_part<N8, 4>(p, acc, column_sums, sums, tile * kGroup, partial);
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
                                 kThreads +
                                     (tensor_copies && !kManyRegisters<N8> ? 32 : kCopyThreadsMax),
                                 nbytes, stream, args, map, tensor_copies);
    }
};

} /* namespace */

cudaError_t fast_axis0_launch(const struct fast_args *args, uint32_t blocks, cudaStream_t stream)
{
    return launch_product<product, 4>(*args, blocks, stream);
}
