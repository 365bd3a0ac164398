/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast products with many vectors, on compute capability 9.0 alone.
 *
 * A block, one a multiprocessor, makes tiles of 256 outputs by 64 or 128 columns.  Its
 * warpgroups decode weights into registers, those of the next two steps while the tensor
 * cores work on the last two; a thread brings packed words, a group of 256 inputs at a time,
 * and inputs, 64 at a time.  All groups of all tiles are cut into one equal run a block;
 * the block that has the end of a tile adds the sums of those before it.
 */
#include "kernel/cuda/wide.cuh"

namespace
{

constexpr int kCopyThreads = 128;
constexpr int kWordSlots = 2, kInputSlots = 8;
constexpr int kTileOut = 256;

/* kGroups: warpgroups that multiply. */
template <int kAxis, int K, int N8, int kGroups> struct form {
    static constexpr int kTiles = 4 / kGroups, kMultipliers = 128 * kGroups;
    static constexpr int kAllThreads = kMultipliers + kCopyThreads;
    static constexpr uint32_t kWordsNbytes = kGroup * 32 * K;
    static constexpr uint32_t kChunkNbytes = 4 * kStepInputs<N8>;
    static constexpr int kSharedNbytes = kWordSlots * kWordsNbytes + kInputSlots * kChunkNbytes;
    static constexpr int kSums = kTiles * N8 * 4; /* a thread */
    /* Registers: 65536 less what the copying warps keep. */
    static constexpr int kRegisters = kGroups == 4 ? kMultiplyTakes : 240;
    static constexpr int kCopyRegisters = kGroups == 4 ? kCopyKeeps : 24;
    using weights = lane_weights<kAxis, K, kTiles>;

    static_assert(kMultipliers * kRegisters + kCopyThreads * kCopyRegisters <= 65536, "registers");
    static_assert(kSums * kMultipliers <= 2 * 256 * (int)FAST_COLUMNS_MAX, "fast_partial_nbytes");
};

/* Tiles of the same outputs, for all columns, are neighbours. */
struct tile_plan {
    uint32_t column_tiles;
    uint32_t paired; /* two neighbouring outputs may be stored at once */
};

#if TCQ_WGMMA /* elsewhere the kernels are empty, and nobody launches them */

/* ---- the work of a block ---------------------------------------------------- */

/* Its groups, tiles from the last to the first, in a tile in ascending order: what it has of
 * the last tile, which a later block finishes, is then handed over early. */
struct group_walk {
    work_range run;
    uint32_t per_tile;
    uint32_t tile, group, left; /* left: groups of this tile, this one included */

    __device__ __forceinline__ void open(uint32_t at)
    {
        const uint32_t first = at * per_tile;
        tile = at;
        group = run.begin > first ? run.begin - first : 0;
        left = min(run.end - first, per_tile) - group;
    }
    __device__ __forceinline__ void start()
    {
        open((run.end - 1) / per_tile);
    }
    __device__ __forceinline__ bool more() const
    {
        return left;
    }
    __device__ __forceinline__ void advance()
    {
        group++;
        left--;
        if (left == 0 && tile > run.begin / per_tile)
            open(tile - 1);
    }
};

/* ---- copies --------------------------------------------------------------- */

template <typename form> struct producer {
    const fast_args &p;
    const CUtensorMap *map;
    uint32_t column_tiles, axis;
    ring<kWordSlots> word_slots;
    ring<kInputSlots> input_slots;
    uint32_t words_at, inputs_at;

    __device__ __forceinline__ void words(const group_walk &at)
    {
        const uint32_t out = at.tile / column_tiles;
        const uint32_t to = words_at + word_slots.index * form::kWordsNbytes;
        const bool interleaved = p.pair_stride != 16 * p.k;
        word_slots.wait_emptied();
        barrier_expect(word_slots.filled(), form::kWordsNbytes);
        if (axis)
            copy_box(to, map, at.group * 8 * p.k, out * kTileOut, 0, word_slots.filled());
        else
            copy_box(to, map, (interleaved ? out & 1 : out) * 8 * p.k, at.group * kGroup,
                     interleaved ? out >> 1 : 0, word_slots.filled());
        word_slots.advance();
    }
    __device__ __forceinline__ void inputs(const group_walk &at, uint32_t groups)
    {
        const uint32_t nbytes = form::kChunkNbytes;
        const size_t first = (size_t)(at.tile % column_tiles) * groups + at.group;
        const uint8_t *from =
            (const uint8_t *)p.inputs + wide_meta_nbytes(p.columns) + first * (4 * nbytes);
        for (uint32_t i = 0; i < 4; i++) {
            input_slots.wait_emptied();
            barrier_expect(input_slots.filled(), nbytes);
            copy_bulk(inputs_at + input_slots.index * nbytes, from + i * nbytes, nbytes,
                      input_slots.filled());
            input_slots.advance();
        }
    }
    /* By one thread.  Weights may be read before the inputs are there. */
    __device__ __forceinline__ void run(group_walk at)
    {
        group_walk ahead = at;
        for (int i = 0; i < kWordSlots && ahead.more(); i++, ahead.advance())
            words(ahead);
        wait_for_inputs();
        for (bool first = true; at.more(); at.advance(), first = false) {
            inputs(at, at.per_tile);
            if (!first && ahead.more()) {
                words(ahead);
                ahead.advance();
            }
        }
    }
};

/* ---- products ------------------------------------------------------------- */

template <typename form> struct multiplier {
    typename form::weights weights;
    ring<kWordSlots> word_slots;
    ring<kInputSlots> input_slots;
    uint32_t words_at, inputs_at;
    uint32_t before; /* the barrier of the slot that products under way may still read */

    /* A step of one tile of 64 outputs.  It is decoded while the tensor cores work on the one
     * before: a warp cannot have many instructions wait for them. */
    template <int step, int tile, int N8>
    __device__ __forceinline__ void multiply_tile(float (&acc)[form::kTiles][N8][4],
                                                  uint32_t &matrix)
    {
        uint32_t a[4];
        constexpr bool first = step % 4 == 0 && tile == 0; /* of 64 inputs */
        weights.template decode<step, tile>(a);
        if constexpr (tile == 0 && step < 15)
            weights.template fetch<step + 1>();
        if constexpr (first) {
            input_slots.wait_filled();
            matrix = matrix_at(inputs_at + input_slots.index * form::kChunkNbytes);
        }
        products_fence();
        multiply_step<step % 4 * kStepInputs<N8>>(acc[tile], a, matrix);
        products_commit();
        products_wait<1>();
        if constexpr (first) {
            arrive_once_a_warp(before);
            before = input_slots.emptied();
            input_slots.advance();
        }
        /* All words are there: the last to come were used. */
        if constexpr (!form::weights::kKeepsSlot && step == 0 && tile == form::kTiles - 1)
            word_slots.release();
        if constexpr (tile + 1 < form::kTiles)
            multiply_tile<step, tile + 1>(acc, matrix);
        else if constexpr (step < 15)
            multiply_tile<step + 1, 0>(acc, matrix);
    }
    template <int N8>
    __device__ __forceinline__ void multiply_groups(float (&acc)[form::kTiles][N8][4],
                                                    uint32_t count, uint32_t nobody)
    {
        uint32_t matrix = 0;
        before = nobody;
#pragma unroll 1
        for (uint32_t i = 0; i < count; i++) {
            word_slots.wait_filled();
            weights.open(words_at + word_slots.index * form::kWordsNbytes);
            multiply_tile<0, 0>(acc, matrix);
            if constexpr (form::weights::kKeepsSlot)
                word_slots.release();
            word_slots.advance();
        }
        products_wait<0>();
#pragma unroll
        for (int i = 0; i < form::kTiles; i++)
            products_keep(acc[i]);
        arrive_once_a_warp(before);
    }
};

/* ---- sums ----------------------------------------------------------------- */

template <typename form>
__device__ __forceinline__ float *partial_of(const fast_args &p, uint32_t block)
{
    return p.partial + (size_t)block * (form::kSums * form::kMultipliers) + threadIdx.x;
}
template <typename form, int N8>
__device__ __forceinline__ void hand_over(const fast_args &p,
                                          const float (&acc)[form::kTiles][N8][4])
{
    float *partial = partial_of<form>(p, blockIdx.x);
#pragma unroll
    for (int i = 0; i < form::kSums; i++)
        send(partial + i * form::kMultipliers, acc[i / (4 * N8)][i / 4 % N8][i % 4]);
}
/* Adds to this block's sums, the tile's last ones, those of the blocks from `first` on. */
template <typename form, int N8>
__device__ __forceinline__ void take_over(const fast_args &p, float (&acc)[form::kTiles][N8][4],
                                          uint32_t first)
{
    constexpr int kAtOnce = form::kTiles == 2 ? 64 : 32; /* as registers allow */
    for (uint32_t block = first; block < blockIdx.x; block++) {
        float *partial = partial_of<form>(p, block);
#pragma unroll
        for (int part = 0; part < form::kSums; part += kAtOnce) {
            uint32_t bits[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; i++)
                bits[i] = peek(partial + (part + i) * form::kMultipliers);
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                const int at = part + i;
                acc[at / (4 * N8)][at / 4 % N8][at % 4] +=
                    receive(partial + at * form::kMultipliers, bits[i]);
            }
        }
    }
}

/* Outputs `out` and the next of a vector, if these are `valid`. */
template <int type>
__device__ __forceinline__ void store_pair(const fast_args &p, bool paired, uint32_t valid,
                                           size_t at, float v0, float v1)
{
    if (paired) {
        if (type == FAST_F32)
            *(float2 *)((float *)p.y + at) = make_float2(v0, v1);
        else if (type == FAST_BF16)
            *(__nv_bfloat162 *)((__nv_bfloat16 *)p.y + at) = __floats2bfloat162_rn(v0, v1);
        else
            *(__half2 *)((__half *)p.y + at) = __floats2half2_rn(v0, v1);
        return;
    }
    const float v[2] = {v0, v1};
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        if (r >= valid)
            continue;
        if (type == FAST_F32)
            ((float *)p.y)[at + r] = v[r];
        else if (type == FAST_BF16)
            ((__nv_bfloat16 *)p.y)[at + r] = __float2bfloat16_rn(v[r]);
        else
            ((__half *)p.y)[at + r] = __float2half_rn(v[r]);
    }
}

/* What a tile of 64 outputs has become to y: a thread has columns 8n+2t, 8n+2t+1 of two
 * outputs. */
template <int type, int N8>
__device__ __forceinline__ void store_tile(const fast_args &p, bool paired, uint32_t valid,
                                           uint32_t out, uint32_t column, const float (&y)[N8][4])
{
#pragma unroll
    for (int n = 0; n < N8; n++) {
        const uint32_t c = column + 8 * n;
        if (c >= p.columns)
            return;
        if (p.pieces == 2) {
            store_pair<type>(p, paired, valid, (c >> 1) * p.y_stride + out, y[n][0] + y[n][1],
                             y[n][2] + y[n][3]);
            continue;
        }
        store_pair<type>(p, paired, valid, c * p.y_stride + out, y[n][0], y[n][2]);
        if (c + 1 < p.columns)
            store_pair<type>(p, paired, valid, (c + 1) * p.y_stride + out, y[n][1], y[n][3]);
    }
}
/* Sums to outputs, in place: loads and stores apart, since they may not pass one another. */
template <int N8>
__device__ __forceinline__ void finish(const fast_args &p, const tile_plan &plan, uint32_t axis,
                                       uint32_t out, uint32_t column, float (&acc)[N8][4])
{
    const uint32_t outputs = axis ? p.rows : p.cols;
    if (out >= outputs)
        return;
    const uint32_t valid = min(outputs - out, 2u);
    const bool paired = plan.paired && valid == 2;
    float factor[2] = {kFinal, kFinal};
#pragma unroll
    for (uint32_t r = 0; r < 2; r++)
        if (axis && r < valid)
            factor[r] *= __half2float(__ushort_as_half(p.scales[out + r]));
#pragma unroll
    for (int n = 0; n < N8; n++) { /* there is room for the columns of whole tiles */
        const float4 m = *(const float4 *)((const column_sum *)p.inputs + column + 8 * n);
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[n][i] = (acc[n][i] - (i % 2 ? m.w : m.y)) * (i % 2 ? m.z : m.x) * factor[i / 2];
    }
    if (p.y_type == FAST_F32)
        store_tile<FAST_F32>(p, paired, valid, out, column, acc);
    else if (p.y_type == FAST_BF16)
        store_tile<FAST_BF16>(p, paired, valid, out, column, acc);
    else
        store_tile<FAST_F16>(p, paired, valid, out, column, acc);
}

#endif /* TCQ_WGMMA */

template <int kAxis, int K, int N8, int kGroups>
__global__ void __launch_bounds__(form<kAxis, K, N8, kGroups>::kAllThreads, 1)
    wide(const __grid_constant__ fast_args p, const __grid_constant__ CUtensorMap map,
         const __grid_constant__ tile_plan tiles)
{
#if TCQ_WGMMA
    using form = form<kAxis, K, N8, kGroups>;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ uint64_t barriers[2 * (kWordSlots + kInputSlots) + 1]; /* the last: for nobody */
    const uint32_t words_at = shared_base(shared);
    const uint32_t inputs_at = words_at + kWordSlots * form::kWordsNbytes;
    const uint32_t nobody = shared_address(barriers + 2 * (kWordSlots + kInputSlots));
    ring<kWordSlots> word_slots;
    ring<kInputSlots> input_slots;

    let_next_start();
    word_slots.start(shared_address(barriers));
    input_slots.start(shared_address(barriers + 2 * kWordSlots));
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < kWordSlots + kInputSlots; i++) {
            barrier_init(shared_address(barriers + 2 * i), 1);
            barrier_init(shared_address(barriers + 2 * i + 1), form::kMultipliers / 32);
        }
        barrier_init(nobody, form::kMultipliers / 32);
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    const work_plan plan(p);
    group_walk at = {{plan.begin(blockIdx.x), plan.begin(blockIdx.x + 1)},
                     ((kAxis ? p.cols : p.rows) + kGroup - 1) / kGroup};
    at.start();
    if (threadIdx.x >= form::kMultipliers) {
        give_registers<form::kCopyRegisters>();
        if (threadIdx.x == form::kMultipliers)
            producer<form>{p,          &map,        tiles.column_tiles, kAxis,
                           word_slots, input_slots, words_at,           inputs_at}
                .run(at);
        return;
    }
    take_registers<form::kRegisters>();
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    multiplier<form> it = {{}, word_slots, input_slots, words_at, inputs_at, nobody};
    it.weights.start(p, warp);
    float acc[form::kTiles][N8][4] = {};
    while (at.more()) {
        const uint32_t tile = at.tile, begin = tile * at.per_tile;
        it.multiply_groups(acc, at.left, nobody);
        at.left = 1;
        at.advance();
        wait_for_inputs(); /* nothing may be written before */
        if (begin + at.per_tile > at.run.end) {
            hand_over<form>(p, acc);
        } else {
            take_over<form>(p, acc, begin < at.run.begin ? plan.owner(begin) : blockIdx.x);
#pragma unroll
            for (int i = 0; i < form::kTiles; i++)
                finish(p, tiles, kAxis,
                       tile / tiles.column_tiles * kTileOut + form::weights::output(warp, i),
                       tile % tiles.column_tiles * (8 * N8) + (threadIdx.x & 3) * 2, acc[i]);
        }
#pragma unroll
        for (int i = 0; i < form::kSums; i++)
            acc[i / (4 * N8)][i / 4 % N8][i % 4] = 0.0f;
    }
#endif
}

/* Tells by its shared memory what it was compiled for. */
__global__ void probe(uint32_t *out)
{
    __shared__ uint32_t room[TCQ_WGMMA ? 32 : 1];
    room[threadIdx.x % (sizeof room / 4)] = threadIdx.x;
    __syncthreads();
    *out = room[0];
}

template <int kAxis, int K, int N8, int kGroups>
cudaError_t launch(fast_args args, uint32_t blocks, cudaStream_t stream)
{
    using form = form<kAxis, K, N8, kGroups>;
    auto *kernel = wide<kAxis, K, N8, kGroups>;
    const uint32_t outputs = kAxis ? args.rows : args.cols;
    const uint32_t groups = ((kAxis ? args.cols : args.rows) + kGroup - 1) / kGroup;
    const tile_plan tiles = {(args.columns + 8 * N8 - 1) / (8 * N8),
                             args.y_stride % 2 == 0 &&
                                 (uintptr_t)args.y % (args.y_type == FAST_F32 ? 8 : 4) == 0};
    CUtensorMap map = {};
    if (!fast_map_words(&map, args, kGroup, kWideOrder<K>))
        return cudaErrorNotSupported;
    blocks = divide_work(&args, (outputs + kTileOut - 1) / kTileOut * tiles.column_tiles * groups,
                         blocks);
    cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              form::kSharedNbytes);
    if (status != cudaSuccess)
        return status;
    return launch_overlapped(kernel, blocks, 1, form::kAllThreads, form::kSharedNbytes, stream,
                             args, map, tiles);
}

template <int K>
cudaError_t launch_axis(const fast_args &args, uint32_t axis, uint32_t blocks, cudaStream_t stream)
{
    const bool few = args.columns <= WIDE_COLUMNS_FEW;
    if (axis)
        return few ? launch<1, K, 8, 4>(args, blocks, stream)
                   : launch<1, K, 16, 4>(args, blocks, stream);
    return few ? launch<0, K, 8, 2>(args, blocks, stream)
               : launch<0, K, 16, 2>(args, blocks, stream);
}

} /* namespace */

bool wide_has_code(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, probe) == cudaSuccess &&
           attributes.sharedSizeBytes >= 128;
}

cudaError_t wide_launch(const struct fast_args *args, uint32_t axis, uint32_t blocks,
                        cudaStream_t stream)
{
    switch (args->k) {
    case 2:
        return launch_axis<2>(*args, axis, blocks, stream);
    case 3:
        return launch_axis<3>(*args, axis, blocks, stream);
    case 4:
        return launch_axis<4>(*args, axis, blocks, stream);
    default:
        return cudaErrorInvalidValue;
    }
}
