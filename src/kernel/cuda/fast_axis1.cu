/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast product, axis 1: coded along the inputs.
 *
 * A block owns 256 outputs, each of its 16 warps 16 of them, and takes a run of groups of
 * 256 inputs.  Lane (g, t) decodes outputs g and g+8 at inputs 64t..64t+63 of a group; the
 * weights are the A operand, the inputs, permuted alike, the B operand (fast_wgmma.cuh).  The
 * unit of work is a quarter of a group, inputs 64t+16q..64t+16q+15 of the four lanes.
 */
#include "kernel/cuda/fast.cuh"

namespace
{

/* How many of eight pairs of weights come from the table: what an H200 was fastest with.
 * With many columns the inputs need the room. */
template <int K, int N8>
constexpr int kServed = K == 4              ? (N8 == 1 ? 4 : 2)
                        : K == 3 && N8 == 8 ? 0
                                            : 4;
template <int K, int N8> constexpr int kTableRoom = kServed<K, N8> ? kTableNbytes<K> : 0;
/* With many columns the warps that copy, always four then, have few registers. */
template <int N8> constexpr bool kManyRegisters = N8 > 2;

constexpr int kTileOut = kTileRows * kWarps;
template <int K> constexpr piece_order kOrder = K == 4 ? PIECES_XOR8 : PIECES_PLAIN;

/* A slot: the packed words of a group, then its inputs. */
template <int K> constexpr int kGroupWords = kTileOut * 32 * K;
template <int N8> constexpr int kGroupInputs = kGroup * 2 * 8 * N8;
template <int K, int N8> constexpr int kSlotNbytes = kGroupWords<K> + kGroupInputs<N8>;
/* The rest is for static arrays, alignment and, with few columns, the inputs' kernel. */
template <int N8> constexpr int kRoom = (227 - (N8 == 1 ? 4 : 2)) * 1024;
template <int K, int N8>
constexpr int kStagesFit = (kRoom<N8> - kTableRoom<K, N8>) / kSlotNbytes<K, N8>;
template <int K, int N8> constexpr int kStages = kStagesFit<K, N8> < 4 ? kStagesFit<K, N8> : 4;
template <int K, int N8>
constexpr int kSharedNbytes = kTableRoom<K, N8> + kStages<K, N8> *kSlotNbytes<K, N8>;

/* The groups of a block.  It takes the tiles of its run from the last to the first, the
 * groups of a tile in ascending order: what it has of the last tile, which a later block
 * finishes, is then handed over early. */
struct group_walk {
    work_range run;
    uint32_t groups;            /* of a tile */
    uint32_t tile, group, left; /* left: groups of this tile, this one included */

    __device__ __forceinline__ void open(uint32_t at)
    {
        const uint32_t first = at * 4 * groups;
        tile = at;
        group = run.begin > first ? (run.begin - first) / 4 : 0;
        left = (min(run.end - first, 4 * groups) + 3) / 4 - group;
    }
    __device__ __forceinline__ void start()
    {
        open((run.end - 1) / (4 * groups));
    }
    __device__ __forceinline__ bool more() const
    {
        return left;
    }
    __device__ __forceinline__ void advance()
    {
        group++;
        left--;
        if (left)
            return;
        if (tile > run.begin / (4 * groups))
            open(tile - 1);
    }
};

/* ---- copies --------------------------------------------------------------- */

template <int K, int N8> struct producer {
    const fast_args &p;
    const CUtensorMap *map;
    ring<kStages<K, N8>> slots;
    uint32_t stages;
    group_walk walk;

    __device__ __forceinline__ uint32_t to() const
    {
        return stages + slots.index * kSlotNbytes<K, N8>;
    }
    __device__ __forceinline__ const uint8_t *inputs_from() const
    {
        return inputs_of(p) + walk.group * kGroupInputs<N8>;
    }
    __device__ __forceinline__ void words()
    {
        barrier_expect(slots.filled(), kSlotNbytes<K, N8>);
        copy_box(to(), map, walk.group * 8 * K, walk.tile * kTileOut, 0, slots.filled());
    }
    __device__ __forceinline__ void inputs()
    {
        copy_bulk(to() + kGroupWords<K>, inputs_from(), kGroupInputs<N8>, slots.filled());
    }
    __device__ __forceinline__ void both_by_threads()
    {
        copy_rows<K, kOrder<K>>(p, to(), walk.group, walk.tile * kTileOut, kTileOut);
        copy_inputs(p, to() + kGroupWords<K>, inputs_from(), kGroupInputs<N8>, slots.filled());
        arrive_after_copies(slots.filled());
    }
    __device__ __forceinline__ void advance()
    {
        walk.advance();
        slots.advance();
    }
};

template <int K, int N8>
__device__ __forceinline__ void produce(producer<K, N8> it, bool tensor_copies)
{
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

/* Where a lane finds its words in a slot. */
struct lane_place {
    uint32_t words, overlap;
};
template <int K> __device__ __forceinline__ lane_place place_lane(const fast_args &p)
{
    const uint32_t g = threadIdx.x >> 2 & 7, t = threadIdx.x & 3;
    const uint32_t block_words = p.block_length / 32 * K, in_block = t * 64 % p.block_length;
    const uint32_t block_base = t * 64 / p.block_length * block_words;
    const uint32_t in_words = (p.block_length - in_block - 64) / 32 * K;
    const uint32_t above = in_words + 2 * K == block_words ? 0 : in_words + 2 * K;
    const uint32_t row = (threadIdx.x >> 5) * kTileRows + g;
    lane_place place;
    place.words = place_of<K, kOrder<K>>(row, block_base + in_words);
    place.overlap = place_of<K, kOrder<K>>(row, block_base + above);
    return place;
}

/* The sums of the states at o and o - K of both rows, as registers. */
template <int K, bool balanced>
__device__ __forceinline__ void sum_both(uint32_t &a_low, uint32_t &a_high, const uint32_t *low,
                                         const uint32_t *high, int o, uint32_t table,
                                         bool low_served, bool high_served)
{
    a_low = sum_pair<K, true>(low, o, table, low_served);
    a_high = sum_pair<K, !balanced>(high, o, table, high_served);
}

constexpr int kSteps = 2; /* at a time: one takes fewer registers */

/* Steps of 16 inputs, `count` of a group, that the tensor cores work on while the next are
 * decoded. */
template <int K, int N8, int first, int count>
__device__ __forceinline__ void
multiply_steps(float (&acc)[N8][4], const uint32_t (&low)[2 * K + 1],
               const uint32_t (&high)[2 * K + 1], uint32_t inputs, uint32_t table)
{
    uint32_t a[count][4];
#pragma unroll
    for (int s = 0; s < count; s++) {
        const int o = (63 - 4 * (first + s)) * K, pair = 4 * (first + s);
        sum_both<K, (N8 > 1)>(a[s][0], a[s][1], low, high, o, table,
                              is_served(pair, kServed<K, N8>), is_served(pair + 2, kServed<K, N8>));
        sum_both<K, (N8 > 1)>(a[s][2], a[s][3], low, high, o - 2 * K, table,
                              is_served(pair + 1, kServed<K, N8>),
                              is_served(pair + 3, kServed<K, N8>));
    }
    products_wait<1>();
    products_fence();
    multiply_step<first * kStepInputs<N8>>(acc, a[0], inputs);
    if constexpr (count == 2)
        multiply_step<(first + 1) * kStepInputs<N8>>(acc, a[1], inputs);
    products_commit();
}
template <int K, int N8, int quarter, int count>
__device__ __forceinline__ void
multiply_quarter(float (&acc)[N8][4], const uint32_t (&low)[2 * K + 1],
                 const uint32_t (&high)[2 * K + 1], uint32_t inputs, uint32_t table)
{
    multiply_steps<K, N8, 4 * quarter, count>(acc, low, high, inputs, table);
    if constexpr (count == 1)
        multiply_steps<K, N8, 4 * quarter + 1, 1>(acc, low, high, inputs, table);
    multiply_steps<K, N8, 4 * quarter + 2, count>(acc, low, high, inputs, table);
    if constexpr (count == 1)
        multiply_steps<K, N8, 4 * quarter + 3, 1>(acc, low, high, inputs, table);
}

/* A lane's words of the group in the slot whose turn it is, of rows g and g+8. */
template <int K, int N8>
__device__ __forceinline__ uint32_t load_group(uint32_t (&low)[2 * K + 1],
                                               uint32_t (&high)[2 * K + 1],
                                               const ring<kStages<K, N8>> &slots, uint32_t stages,
                                               lane_place place)
{
    const uint32_t slot = stages + slots.index * kSlotNbytes<K, N8>;
    slots.wait_filled();
    load_words<K, 0>(low, slot + place.words, slot + place.overlap);
    load_words<K, 8 * 32 * K>(high, slot + place.words, slot + place.overlap);
    return matrix_at(slot + kGroupWords<K>);
}

/* Quarters begin..end-1 of a group. */
template <int K, int N8>
__device__ __forceinline__ void multiply_quarters(float (&acc)[N8][4], ring<kStages<K, N8>> &slots,
                                                  uint32_t begin, uint32_t end, uint32_t stages,
                                                  lane_place place, uint32_t table)
{
    uint32_t low[2 * K + 1], high[2 * K + 1];
    const uint32_t inputs = load_group<K, N8>(low, high, slots, stages, place);
    const auto quarter = [&](auto qq) {
        constexpr int q = decltype(qq)::value;
        if (q >= begin && q < end)
            multiply_quarter<K, N8, q, N8 == 8 ? 1 : kSteps>(acc, low, high, inputs, table);
        products_wait<0>();
        products_keep(acc);
    };
    quarter(std::integral_constant<uint32_t, 0>());
    quarter(std::integral_constant<uint32_t, 1>());
    quarter(std::integral_constant<uint32_t, 2>());
    quarter(std::integral_constant<uint32_t, 3>());
    slots.release();
    slots.advance();
}

/* `count` whole groups.  The tensor cores still read the inputs of a group when the next one
 * begins, whose first half has waited for them: then the slot is released, or, where there
 * are only two, at once. */
template <int K, int N8>
__device__ __forceinline__ void multiply_groups(float (&acc)[N8][4], ring<kStages<K, N8>> &slots,
                                                uint32_t count, uint32_t stages, lane_place place,
                                                uint32_t table, uint32_t nobody)
{
    uint32_t before = nobody;
#pragma unroll 1
    for (uint32_t i = 0; i < count; i++) {
        uint32_t low[2 * K + 1], high[2 * K + 1];
        const uint32_t inputs = load_group<K, N8>(low, high, slots, stages, place);
        multiply_quarter<K, N8, 0, kSteps>(acc, low, high, inputs, table);
        multiply_quarter<K, N8, 1, kSteps>(acc, low, high, inputs, table);
        if constexpr (kStages < K, N8 >> 2)
            arrive_once_a_warp(before);
        before = slots.emptied();
        multiply_quarter<K, N8, 2, kSteps>(acc, low, high, inputs, table);
        multiply_quarter<K, N8, 3, kSteps>(acc, low, high, inputs, table);
        if constexpr (kStages<K, N8> == 2) {
            products_wait<0>();
            products_keep(acc);
            slots.release();
        }
        slots.advance();
    }
    products_wait<0>();
    products_keep(acc);
    if constexpr (kStages < K, N8 >> 2)
        arrive_once_a_warp(before);
}

/* ---- sums ----------------------------------------------------------------- */

/* What a thread needs of a tile in the end: its rows g and g+8, their scales. */
struct output_place {
    uint32_t row, column; /* the first ones */
    float factor[2];

    __device__ __forceinline__ output_place(const fast_args &p, uint32_t tile)
    {
        row = tile * kTileOut + (threadIdx.x >> 5) * kTileRows + (threadIdx.x >> 2 & 7);
        column = (threadIdx.x & 3) * 2;
#pragma unroll
        for (int r = 0; r < 2; r++)
            factor[r] = row + 8 * r < p.rows
                            ? __half2float(__ushort_as_half(p.scales[row + 8 * r])) * kFinal
                            : 0.0f;
    }
};

/* Sums of one tile to y: a thread has columns 8n+2t, 8n+2t+1 of its rows. */
template <int N8>
__device__ __forceinline__ void finish(const fast_args &p, const column_sum *sums,
                                       const output_place &place, const float (&acc)[N8][4])
{
#pragma unroll
    for (int n = 0; n < N8; n++) {
        const uint32_t c = place.column + 8 * n;
        if (c >= p.columns)
            continue;
        const column_sum m0 = sums[c], m1 = sums[min(c + 1, p.columns - 1)];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t row = place.row + 8 * r;
            const float v0 = (acc[n][2 * r] - m0.offset) * m0.inverse * place.factor[r];
            const float v1 = (acc[n][2 * r + 1] - m1.offset) * m1.inverse * place.factor[r];
            if (row >= p.rows)
                continue;
            if (p.pieces == 2) {
                store_y(p, c >> 1, row, v0 + v1);
            } else {
                store_y(p, c, row, v0);
                if (c + 1 < p.columns)
                    store_y(p, c + 1, row, v1);
            }
        }
    }
}

/* Sums that a thread sends to the same one of the block that has the end of the tile. */
template <int N8> __device__ __forceinline__ float *partial_of(const fast_args &p, uint32_t block)
{
    return p.partial + (size_t)block * (4 * N8 * kThreads) + threadIdx.x;
}
template <int N8>
__device__ __forceinline__ void hand_over(const fast_args &p, const float (&acc)[N8][4])
{
    float *partial = partial_of<N8>(p, blockIdx.x);
#pragma unroll
    for (int i = 0; i < 4 * N8; i++)
        send(partial + i * kThreads, acc[i / 4][i % 4]);
}

/* Adds to this block's sums, the tile's last ones, those of the blocks from `first` on:
 * ((first + next) + ...) + own. */
template <int N8>
__device__ __forceinline__ void take_over(const fast_args &p, float (&acc)[N8][4], uint32_t first)
{
    constexpr int kAtOnce = N8 < 4 ? 4 * N8 : 16; /* as registers allow */
    constexpr int kBlocks = N8 == 1 ? 2 : 1;      /* likewise; mostly there are one or two */
#pragma unroll
    for (int part = 0; part < 4 * N8; part += kAtOnce) {
        float total[kAtOnce] = {};
        for (uint32_t block = first; block < blockIdx.x; block += kBlocks) {
            const bool two = kBlocks == 2 && block + 1 < blockIdx.x;
            float *one_of = partial_of<N8>(p, block) + part * kThreads;
            float *other_of = partial_of<N8>(p, two ? block + 1 : block) + part * kThreads;
            uint32_t one[kAtOnce];
            [[maybe_unused]] uint32_t other[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                one[i] = peek(one_of + i * kThreads);
                if constexpr (kBlocks == 2)
                    other[i] = peek(other_of + i * kThreads);
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; i++)
                total[i] += receive(one_of + i * kThreads, one[i]);
            if constexpr (kBlocks == 2)
                if (two)
#pragma unroll
                    for (int i = 0; i < kAtOnce; i++)
                        total[i] += receive(other_of + i * kThreads, other[i]);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; i++)
            acc[(part + i) / 4][i % 4] += total[i];
    }
}

template <int K, int N8>
__global__ void __launch_bounds__(kThreads + kCopyThreadsMax, 1)
    axis1(const __grid_constant__ fast_args p, const __grid_constant__ CUtensorMap map,
          const uint32_t tensor_copies)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ column_sum column_sums[FAST_COLUMNS_MAX];
    __shared__ uint64_t barriers[2 * kStages<K, N8> + 1]; /* the last: for nobody */
    const uint32_t table = shared_base(shared), stages = table + kTableRoom<K, N8>;

    let_next_start();
    ring<kStages<K, N8>> slots;
    slots.start(shared_address(barriers));
    if (threadIdx.x == 0) {
        slots.init(copy_arrivals(p, tensor_copies));
        barrier_init(shared_address(barriers + 2 * kStages<K, N8>), kWarps);
    }
    __syncthreads();
    const work_plan plan(p);
    const work_range run = {plan.begin(blockIdx.x), plan.begin(blockIdx.x + 1)};
    const uint32_t groups = (p.cols + kGroup - 1) / kGroup;
    group_walk at = {run, groups, 0, 0, 0};
    at.start();
    if (threadIdx.x >> 5 >= kWarps) {
        if (kManyRegisters<N8>)
            give_registers<kCopyKeeps>();
        produce<K, N8>({p, &map, slots, stages, at}, tensor_copies);
        return;
    }
    if (kManyRegisters<N8>)
        take_registers<kMultiplyTakes>();
    if (kServed < K, N8 >> 0)
        fill_table<K>((uint32_t *)shared);
    const lane_place place = place_lane<K>(p);
    wait_for_inputs();
    load_meta(column_sums, p);
    sync_multipliers();

    float acc[N8][4] = {};
    while (at.more()) {
        const uint32_t tile = at.tile, tile_begin = tile * 4 * groups, count = at.left;
        /* Groups of which only some quarters are this block's: the first, the last. */
        const uint32_t skipped = run.begin > tile_begin ? run.begin % 4 : 0;
        const uint32_t rest = run.end < tile_begin + 4 * groups ? run.end % 4 : 0;
        const bool one = count == 1 && skipped && rest;
        const uint32_t sender = tile_begin < run.begin ? plan.owner(tile_begin) : blockIdx.x;
        const output_place output(p, tile);
        if (skipped)
            multiply_quarters<K, N8>(acc, slots, skipped, one ? rest : 4, stages, place, table);
        multiply_groups<K, N8>(acc, slots, one ? 0 : count - (skipped > 0) - (rest > 0), stages,
                               place, table, shared_address(barriers + 2 * kStages<K, N8>));
        if (rest && !one)
            multiply_quarters<K, N8>(acc, slots, 0, rest, stages, place, table);
        at.left = 1;
        at.advance();
        if (tile_begin + 4 * groups > run.end) {
            hand_over<N8>(p, acc);
        } else {
            take_over<N8>(p, acc, sender);
            finish<N8>(p, column_sums, output, acc);
        }
#pragma unroll
        for (int i = 0; i < 4 * N8; i++)
            acc[i / 4][i % 4] = 0.0f;
    }
}

template <int K, int N8> struct product {
    static cudaError_t launch(fast_args args, uint32_t blocks, cudaStream_t stream)
    {
        auto *kernel = axis1<K, N8>;
        const int nbytes = kSharedNbytes<K, N8>;
        const uint32_t groups = (args.cols + kGroup - 1) / kGroup;
        const uint32_t tiles = (args.rows + kTileOut - 1) / kTileOut;
        blocks = divide_work(&args, tiles * groups * 4, blocks);
        cudaError_t status =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, nbytes);
        if (status != cudaSuccess)
            return status;
        CUtensorMap map = {};
        const uint32_t tensor_copies = fast_map_words(&map, args, kTileOut, kOrder<K>);
        return launch_overlapped(kernel, blocks, 1,
                                 kThreads +
                                     (tensor_copies && !kManyRegisters<N8> ? 32 : kCopyThreadsMax),
                                 nbytes, stream, args, map, tensor_copies);
    }
};

} /* namespace */

cudaError_t fast_axis1_launch(const struct fast_args *args, uint32_t blocks, cudaStream_t stream)
{
    return launch_product<product, 8>(*args, blocks, stream);
}
