/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast product, axis 1: coded along the inputs.
 *
 * A block of 16 warps owns 256 outputs, a warp 16 of them.  Lane (g, t) decodes
 * outputs g and g+8 at inputs 64t..64t+63 of a group of 256; the weights are
 * the A operand of m16n8k16, the inputs, permuted alike, the B operand.  The
 * unit of work is half a group, inputs 64t+32h..64t+32h+31 of the four lanes.
 */
#include "kernel/cuda/fast.cuh"

namespace {

constexpr int kStages = 2; /* of packed words, a warp: one in use, one on its way */
/* How many of a lane's four pairs of weights a product come from the table: what an
 * H200 was fastest with.  With many columns the inputs need the room. */
template <int K, int N8>
constexpr int kTablePairs = K == 4 ? 1 : N8 == 1 || (K == 2 && N8 == 2) ? 2 : K == 2 ? 1 : 0;
template <int K, int N8> constexpr int kTableRoom = kTablePairs<K, N8> ? kTableNbytes<K> : 0;

constexpr int kTileOut = kTileRows * kWarps;

template <int K> constexpr int kPitch = K == 4 ? 144 : 32 * K;
template <int K> constexpr int kStageNbytes = kTileRows * kPitch<K>;
template <int K> constexpr int kWordsNbytes = kWarps * kStages * kStageNbytes<K>;

/* Staged inputs of one group, a column. */
constexpr int kInputNbytes = kGroup * 2;

template <int K>
__device__ __forceinline__ void load_words(uint32_t (&w)[2 * K + 1], const uint8_t *row,
                                           uint32_t base, uint32_t overlap)
{
    const uint32_t *words = (const uint32_t *)row;
    if constexpr (2 * K % 4 == 0) {
#pragma unroll
        for (int i = 0; i < 2 * K; i += 4)
            *(uint4 *)&w[i] = *(const uint4 *)(words + base + i);
    } else {
#pragma unroll
        for (int i = 0; i < 2 * K; i += 2) {
            const uint2 pair = *(const uint2 *)(words + base + i);
            w[i] = pair.x;
            w[i + 1] = pair.y;
        }
    }
    w[2 * K] = words[overlap];
}

template <int K, int N8, int half>
__device__ __forceinline__ void multiply_half(float (&acc)[N8][4], const uint32_t (&low)[2 * K + 1],
                                              const uint32_t (&high)[2 * K + 1],
                                              const uint8_t *fragments, const uint32_t (&column)[N8],
                                              uint32_t pitch, const uint8_t *table)
{
#pragma unroll
    for (int jj = 0; jj < 4; jj++) {
        uint4 b[N8];
#pragma unroll
        for (int n = 0; n < N8; n++)
            b[n] = *(const uint4 *)(fragments + (half * 4 + jj) * pitch + column[n]);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const int o = (63 - (32 * half + 8 * jj + 4 * s)) * K;
            uint32_t a[4];
            a[0] = sum_pair<K>(low, o, table, kTablePairs<K, N8> > 0);
            a[1] = sum_pair<K>(high, o, table, kTablePairs<K, N8> > 2);
            a[2] = sum_pair<K>(low, o - 2 * K, table, kTablePairs<K, N8> > 3);
            a[3] = sum_pair<K>(high, o - 2 * K, table, kTablePairs<K, N8> > 1);
#pragma unroll
            for (int n = 0; n < N8; n++)
                mma(acc[n], a, s ? b[n].z : b[n].x, s ? b[n].w : b[n].y);
        }
    }
}

/* A block takes the tiles of its run from the last to the first, the groups of a
 * tile in ascending order: what it has of the last tile, which a later block
 * finishes, is then handed over early. */
struct walk {
    uint32_t tile, group, left;       /* left: groups of this tile, this one included */
    uint32_t tile_first, group_first; /* of the run */
    uint32_t groups;

    __device__ __forceinline__ walk(work_range work, uint32_t all_groups)
        : groups(all_groups)
    {
        const uint32_t per_tile = 2 * groups;
        tile_first = work.begin / per_tile;
        group_first = (work.begin - tile_first * per_tile) / 2;
        tile = (work.end - 1) / per_tile;
        group = tile == tile_first ? group_first : 0;
        left = (work.end - tile * per_tile + 1) / 2 - group;
    }
    /* True if another tile begins. */
    __device__ __forceinline__ bool advance()
    {
        group++;
        if (--left)
            return false;
        tile--;
        group = tile == tile_first ? group_first : 0;
        left = groups - group;
        return true;
    }
};

/* The slow way: a tile that the matrix does not fill, or unaligned rows. */
template <int K>
__device__ __noinline__ void copy_edge(const fast_args &p, uint32_t dst, uint32_t tile,
                                       uint32_t group)
{
    const uint32_t row0 = tile * kTileOut + (threadIdx.x >> 5) * kTileRows;
    const uint32_t valid = min(p.cols - group * kGroup, (uint32_t)kGroup) / 32 * K;
    for (uint32_t i = threadIdx.x & 31; i < 32 * K; i += 32) {
        const uint32_t row = i / (2 * K), chunk = i % (2 * K);
        const bool inside = row0 + row < p.rows;
        copy_checked(dst + row * kPitch<K> + chunk * 16,
                     p.words + (inside ? (row0 + row) * p.row_stride + group * 8 * K : 0), chunk,
                     inside ? valid : 0, p.words_aligned);
    }
}

/* Copies one warp's tiles, 16 rows by 256 columns, group after group. */
template <int K> struct tile_copier {
    const uint8_t *from; /* the group's first word in row 0 of the tile */
    uint32_t source_offset[K], target_offset[K];
    uint32_t slot;
    bool whole; /* the fast way will do for this tile */
    walk at;

    __device__ __forceinline__ explicit tile_copier(const walk &w) : at(w) {}
    __device__ __forceinline__ void open(const fast_args &p)
    {
        const uint32_t row = at.tile * kTileOut + (threadIdx.x >> 5) * kTileRows;
        whole = row + kTileRows <= p.rows && p.words_aligned;
        from = (const uint8_t *)(p.words + (whole ? row * p.row_stride : 0)) + at.group * 32 * K;
    }
    __device__ __forceinline__ void start(const fast_args &p)
    {
#pragma unroll
        for (int i = 0; i < K; i++) {
            const uint32_t index = (threadIdx.x & 31) + 32 * i, row = index / (2 * K);
            const uint32_t chunk = index % (2 * K);
            source_offset[i] = row * (uint32_t)p.row_stride * 4 + chunk * 16;
            target_offset[i] = row * kPitch<K> + chunk * 16;
        }
        slot = 0;
        open(p);
    }
    __device__ __forceinline__ void next(const fast_args &p, uint32_t stages)
    {
        if (whole && (at.group + 1) * kGroup <= p.cols) {
#pragma unroll
            for (int i = 0; i < K; i++)
                copy16(stages + slot + target_offset[i],
                       (const uint32_t *)(from + source_offset[i]), 16);
        } else {
            copy_edge<K>(p, stages + slot, at.tile, at.group);
        }
        slot = slot == (kStages - 1) * kStageNbytes<K> ? 0 : slot + kStageNbytes<K>;
        from += 32 * K;
        if (at.advance())
            open(p);
    }
};

/* Sums of one tile to y: a thread has rows g and g+8 at columns 8n+2t, 8n+2t+1. */
template <int N8>
__device__ __forceinline__ void finish(const fast_args &p, const column_sum *sums, uint32_t tile,
                                       const float (&acc)[N8][4])
{
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint32_t row0 = tile * kTileOut + (threadIdx.x >> 5) * kTileRows + g;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const uint32_t row = row0 + 8 * r;
        if (row >= p.rows)
            continue;
        const float factor = __half2float(__ushort_as_half(p.scales[row])) * kFinal;
#pragma unroll
        for (int n = 0; n < N8; n++) {
            const uint32_t c = 8 * n + 2 * t;
            if (c >= p.columns)
                continue;
            const column_sum m0 = sums[c];
            const column_sum m1 = sums[min(c + 1, p.columns - 1)];
            const float v0 = (acc[n][2 * r] - m0.offset) * m0.inverse * factor;
            const float v1 = (acc[n][2 * r + 1] - m1.offset) * m1.inverse * factor;
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

/* Sums that a warp hands to the same warp of the block that has the end of the
 * tile, and the flag that says so; the receiver clears it. */
template <int N8> __device__ __forceinline__ float *partial_of(const fast_args &p, uint32_t block)
{
    return p.partial + (size_t)block * (4 * N8 * kThreads) + threadIdx.x;
}
__device__ __forceinline__ uint32_t *flag_of(const fast_args &p, uint32_t block)
{
    return p.tickets + block * kWarps + (threadIdx.x >> 5);
}

template <int N8>
__device__ __forceinline__ void hand_over(const fast_args &p, const float (&acc)[N8][4])
{
    float *partial = partial_of<N8>(p, blockIdx.x);
#pragma unroll
    for (int i = 0; i < 4 * N8; i++)
        __stcg(partial + i * kThreads, acc[i / 4][i % 4]);
    __syncwarp(); /* the release below covers what the other lanes wrote */
    if ((threadIdx.x & 31) == 0)
        asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag_of(p, blockIdx.x)) : "memory");
}

/* Adds to this block's sums, the tile's last ones, those of the blocks from
 * `first` on: ((first + next) + ...) + own. */
template <int N8>
__device__ __forceinline__ void take_over(const fast_args &p, float (&acc)[N8][4], uint32_t first)
{
    float total[4 * N8] = {};
    for (uint32_t block = first; block < blockIdx.x; block++) {
        uint32_t *flag = flag_of(p, block), ready;
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(ready) : "l"(flag) : "memory");
        while (!ready);
        const float *partial = partial_of<N8>(p, block);
#pragma unroll
        for (int i = 0; i < 4 * N8; i++)
            total[i] += __ldcg(partial + i * kThreads);
        __syncwarp();
        if ((threadIdx.x & 31) == 0)
            *flag = 0;
    }
#pragma unroll
    for (int i = 0; i < 4 * N8; i++)
        acc[i / 4][i % 4] += total[i];
}

/* Starts the copy of the inputs of `count` groups, from the nth on in the order in
 * which the block takes them. */
__device__ __forceinline__ void stage_inputs(const fast_args &p, uint8_t *fragments,
                                             const walk &start, uint32_t nth, uint32_t count)
{
    const uint32_t pieces = 32 * p.columns; /* of 16 bytes a group */
    const uint32_t at_once = pieces < kThreads ? kThreads / pieces : 1;
    const uint32_t mine = threadIdx.x / pieces;
    for (uint32_t i = mine; i < count && mine < at_once; i += at_once) {
        uint32_t left = nth + i, tile = start.tile, first = start.group, length = start.left;
        while (left >= length) {
            left -= length;
            tile--;
            first = tile == start.tile_first ? start.group_first : 0;
            length = start.groups - first;
        }
        const uint8_t *from = fragments_of(p) + (size_t)(first + left) * pieces * 16;
        for (uint32_t j = threadIdx.x - mine * pieces; j < pieces; j += kThreads)
            copy16(shared_address(fragments + ((size_t)i * pieces + j) * 16),
                   (const uint32_t *)(from + j * 16), 16);
    }
}

template <int K, int N8>
__global__ void __launch_bounds__(kThreads, 1) axis1(const __grid_constant__ fast_args p,
                                                     const uint32_t groups_staged)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ column_sum column_sums[FAST_COLUMNS_MAX];
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint8_t *table = shared;
    uint8_t *stages = shared + kTableRoom<K, N8> + warp * kStages * kStageNbytes<K>;
    uint8_t *fragments = shared + kTableRoom<K, N8> + kWordsNbytes<K>;

    let_next_start();
    const uint32_t groups = (p.cols + kGroup - 1) / kGroup, per_tile = 2 * groups;
    const work_plan plan(p);
    const work_range work = {plan.begin(blockIdx.x), plan.begin(blockIdx.x + 1)};
    const uint32_t steps = (work.end + 1) / 2 - work.begin / 2;
    walk at(work, groups);
    /* Steps of which only one half is this block's. */
    const uint32_t last_tile_steps = at.left;
    const uint32_t second_only =
        !(work.begin & 1) ? ~0u : at.tile == at.tile_first ? 0 : steps - (groups - at.group_first);
    const uint32_t first_only = work.end & 1 ? last_tile_steps - 1 : ~0u;

    tile_copier<K> copier(at);
    const uint32_t stages_address = shared_address(stages);
    copier.start(p);
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) {
        if (i < steps)
            copier.next(p, stages_address);
        copy_commit();
    }
    if (kTablePairs<K, N8> > 0)
        fill_table<K>((uint32_t *)shared);

    /* Words of this lane within a row of the tile. */
    const uint32_t block_words = p.block_length / 32 * K, in_block = t * 64 % p.block_length;
    const uint32_t block_base = t * 64 / p.block_length * block_words;
    const uint32_t in_words = (p.block_length - in_block - 64) / 32 * K;
    const uint32_t base = block_base + in_words + g * (kPitch<K> / 4);
    const uint32_t overlap = block_base + (in_words + 2 * K == block_words ? 0 : in_words + 2 * K) +
                             g * (kPitch<K> / 4);

    uint32_t column[N8];
    float acc[N8][4] = {};
#pragma unroll
    for (int n = 0; n < N8; n++)
        column[n] = (min(8 * n + g, p.columns - 1) * 4 + t) * 16;

    /* Inputs come in chunks, the next one on its way while one is in use. */
    const uint32_t group_nbytes = p.columns * kInputNbytes;
    const walk start = at;
    uint32_t staged_end = 0, slot = 0;
    uint8_t *other = fragments; /* what the next chunk is copied to */
    const uint8_t *in = nullptr;
    wait_for_inputs();
    load_meta(column_sums, p);
    stage_inputs(p, fragments, start, 0, min(groups_staged, steps));
    copy_commit();
    for (uint32_t step = 0; step < steps; step++) {
        if (step == staged_end) {
            copy_wait<0>();
            __syncthreads();
            in = other;
            other = fragments + (other == fragments ? groups_staged * group_nbytes : 0);
            staged_end = min(step + groups_staged, steps);
            if (staged_end < steps)
                stage_inputs(p, other, start, staged_end, min(groups_staged, steps - staged_end));
            copy_commit();
        }
        copy_wait<kStages - 2>();
        __syncwarp();
        uint32_t low[2 * K + 1], high[2 * K + 1];
        load_words<K>(low, stages + slot, base, overlap);
        load_words<K>(high, stages + slot + 8 * kPitch<K>, base, overlap);
        slot = slot == (kStages - 1) * kStageNbytes<K> ? 0 : slot + kStageNbytes<K>;
        if (step + kStages - 1 < steps)
            copier.next(p, stages_address);
        copy_commit();

        if (step != second_only)
            multiply_half<K, N8, 0>(acc, low, high, in, column, p.columns * 64, table);
        if (step != first_only)
            multiply_half<K, N8, 1>(acc, low, high, in, column, p.columns * 64, table);
        in += group_nbytes;

        const uint32_t tile = at.tile;
        if (at.advance() || step + 1 == steps) {
            const uint32_t tile_begin = tile * per_tile;
            if (tile_begin + per_tile > work.end) {
                hand_over<N8>(p, acc);
            } else {
                if (tile_begin < work.begin)
                    take_over<N8>(p, acc, plan.owner(tile_begin));
                finish<N8>(p, column_sums, tile, acc);
            }
#pragma unroll
            for (int i = 0; i < 4 * N8; i++)
                acc[i / 4][i % 4] = 0.0f;
        }
    }
}

template <int K, int N8>
cudaError_t launch(fast_args args, uint32_t blocks, cudaStream_t stream)
{
    auto *kernel = axis1<K, N8>;
    const int fixed = kTableRoom<K, N8> + kWordsNbytes<K>;
    const uint32_t room = (227 * 1024 - 1024 - fixed) / (kInputNbytes * args.columns);
    const uint32_t groups = (args.cols + kGroup - 1) / kGroup;
    const uint32_t tiles = (args.rows + kTileOut - 1) / kTileOut;
    const uint32_t units = tiles * groups * 2;
    blocks = divide_work(&args, units, blocks);
    const uint32_t need = (units / blocks + 2) / 2 + 1;
    const uint32_t staged = need <= room ? need : room / 2;
    const int buffers = need <= room ? 1 : 2;
    const int nbytes = fixed + buffers * (int)(staged * args.columns) * kInputNbytes;
    if (staged == 0)
        return cudaErrorInvalidConfiguration;
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, nbytes);
    if (status != cudaSuccess)
        return status;
    return launch_overlapped(kernel, blocks, kThreads, nbytes, stream, args, staged);
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

cudaError_t fast_axis1_launch(const struct fast_args *args, uint32_t k, uint32_t blocks,
                              cudaStream_t stream)
{
    switch (k) {
    case 2: return launch_columns<2>(*args, blocks, stream);
    case 3: return launch_columns<3>(*args, blocks, stream);
    case 4: return launch_columns<4>(*args, blocks, stream);
    default: return cudaErrorInvalidValue;
    }
}
