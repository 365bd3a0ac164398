/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over the cache by tensor cores.  The query heads that share a
 * key-value head, of one or of many positions, are rows of one matrix; a block
 * takes 16 of them and a range of positions, its warps every 4th tile of 32.
 *
 * Keys and values are binary16.  Queries, and the weights that softmax gives
 * the values, are float32: each is split into two binary16 and multiplied twice,
 * which leaves an error near that of float32.
 *
 * The order of positions inside a tile is chosen so that what mma leaves of
 * queries * keys is what it takes for weights * values, and so that each lane
 * reads 16 bytes at a time: column n of the j-th group of 8 scores is position
 * 8*(n/2) + 2*j + n%2 of the tile.
 */
#include "model/cuda/rope.cuh"

namespace {

constexpr uint32_t kWarps = 4, kThreads = 32 * kWarps;
constexpr uint32_t kTilesLeast = 2 * kWarps; /* of a split: less is not worth a block */
constexpr float kLog2e = 1.44269504f;

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two float32 as a pair of binary16, and what that left, as another. */
__device__ __forceinline__ void split(uint32_t *high, uint32_t *low, float a, float b)
{
    const __half2 h = __floats2half2_rn(a, b);
    const float2 f = __half22float2(h);
    const __half2 l = __floats2half2_rn(a - f.x, b - f.y);
    *high = *(const uint32_t *)&h;
    *low = *(const uint32_t *)&l;
}

/* Which rows and positions a block works on. */
struct block_work {
    uint32_t first_row, rows;   /* of the m * group vectors of a head */
    uint32_t start;             /* position of vector 0 */
    uint32_t tile_begin, tile_end;
    uint32_t used;              /* splits that have work */
};

__device__ __forceinline__ block_work work_of(const gpu_attention &p)
{
    block_work w;
    const uint32_t group = p.heads / p.kv_heads, vectors = p.m * group;
    w.start = p.d_position ? *p.d_position : p.position;
    w.first_row = blockIdx.x * GPU_ROWS;
    w.rows = min(vectors - w.first_row, (uint32_t)GPU_ROWS);
    const uint32_t first = w.start + w.first_row / group;
    const uint32_t last = w.start + (w.first_row + w.rows - 1) / group;
    const uint32_t seen = p.window && first + 1 > p.window ? first + 1 - p.window : 0;
    const uint32_t begin = seen / GPU_TILE, total = last / GPU_TILE + 1 - begin;
    const uint32_t each = max((total + p.splits - 1) / p.splits, kTilesLeast);
    w.used = (total + each - 1) / each;
    w.tile_begin = begin + blockIdx.z * each;
    w.tile_end = begin + min(total, (blockIdx.z + 1) * each);
    return w;
}

/* One warp's rows g and g+8, in units of its lanes (g, t). */
template <int DIM> struct warp_rows {
    uint32_t high[DIM / 32][2][4], low[DIM / 32][2][4]; /* queries */
    float out[DIM / 8][4];
    float most[2], sum[2];     /* of scores; of their exponentials, this lane's share */
    uint32_t position[2];      /* the last that a row sees */
    uint32_t seen[2];          /* the first */
};

/* One token: its queries to shared memory, turned, and by the block that has the
 * last tile its key and value to the cache. */
template <int DIM>
__device__ __forceinline__ void turn_token(float (&queries)[GPU_ROWS][DIM], const gpu_attention &p,
                                           const block_work &w)
{
    constexpr int pairs = (DIM + 63) / 64;
    const uint32_t group = p.heads / p.kv_heads, half = p.head_dim / 2, lane = threadIdx.x % 32;
    for (uint32_t item = threadIdx.x / 32; item < group + 2; item += kWarps) {
        const uint32_t head = item < group    ? blockIdx.y * group + item
                              : item == group ? p.heads + blockIdx.y
                                              : p.heads + p.kv_heads + blockIdx.y;
        const gpu_turn<pairs> turn = load_turn<pairs>(p, head, w.start);
        const gpu_head<pairs> h =
            turn_head<pairs>(p, turn, p.qkv + (size_t)head * p.head_dim, head);
        if (item >= group) {
            if (blockIdx.z + 1 == w.used)
                store_head<pairs>(h, p, head, w.start);
            continue;
        }
#pragma unroll
        for (int j = 0; j < pairs; j++)
            if (lane + 32 * j < half) {
                queries[item][lane + 32 * j] = h.a[j];
                queries[item][lane + 32 * j + half] = h.b[j];
            }
    }
    __syncthreads();
}

template <int DIM>
__device__ __forceinline__ void load_queries(warp_rows<DIM> &r, const gpu_attention &p,
                                             const block_work &w, const float *turned, uint32_t g,
                                             uint32_t t)
{
    const uint32_t group = p.heads / p.kv_heads;
    const float by = p.scale * kLog2e;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t row = g + 8 * half;
        const bool valid = row < w.rows;
        const uint32_t vector = w.first_row + (valid ? row : 0);
        const uint32_t position = vector / group;
        const float *q = turned ? turned + vector * DIM
                                : p.qkv + position * p.stride +
                                      (size_t)(blockIdx.y * group + vector % group) * p.head_dim;
        r.position[half] = w.start + position;
        r.seen[half] = p.window && r.position[half] + 1 > p.window
                           ? r.position[half] + 1 - p.window : 0;
        if (!valid) /* sees nothing */
            r.seen[half] = ~0u;
        r.most[half] = -INFINITY;
        r.sum[half] = 0.0f;
#pragma unroll
        for (int c = 0; c < DIM / 32; c++)
#pragma unroll
            for (int j = 0; j < 4; j++) { /* components 32c + 8t + 2j, +1 */
                const uint32_t d = 32 * c + 8 * t + 2 * j;
                const float a = valid && d < p.head_dim ? q[d] * by : 0.0f;
                const float b = valid && d + 1 < p.head_dim ? q[d + 1] * by : 0.0f;
                split(&r.high[c][j / 2][half + j % 2 * 2], &r.low[c][j / 2][half + j % 2 * 2], a, b);
            }
    }
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            r.out[n][i] = 0.0f;
}

template <int DIM>
__device__ __forceinline__ void score_tile(float (&s)[4][4], const warp_rows<DIM> &r,
                                           const uint16_t *keys, uint32_t g, uint32_t t)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint16_t *key = keys + (8 * (g / 2) + 2 * j + g % 2) * DIM + 8 * t;
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[j][i] = 0.0f;
#pragma unroll
        for (int c = 0; c < DIM / 32; c++) {
            const uint4 k = *(const uint4 *)(key + 32 * c);
            mma(s[j], r.high[c][0], k.x, k.y);
            mma(s[j], r.low[c][0], k.x, k.y);
            mma(s[j], r.high[c][1], k.z, k.w);
            mma(s[j], r.low[c][1], k.z, k.w);
        }
    }
}

/* One tile of values, asked for before the weights are known. */
template <int DIM>
__device__ __forceinline__ void load_values(uint4 (&v)[DIM / 8], const uint16_t *values, uint32_t g,
                                            uint32_t t)
{
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
        v[n] = *(const uint4 *)(values + (n * 8 + g) * GPU_TILE + 8 * t);
}

/* Scores to weights, with the running maximum; out and sum are brought to it. */
template <int DIM>
__device__ __forceinline__ void weigh_tile(float (&s)[4][4], warp_rows<DIM> &r, uint32_t position0,
                                           uint32_t t)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = r.most[half];
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const uint32_t position = position0 + 8 * t + 2 * j + e;
                const bool sees = position >= r.seen[half] && position <= r.position[half];
                float &v = s[j][2 * half + e];
                v = sees ? v : -INFINITY;
                most = fmaxf(most, v);
            }
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        const float base = most == -INFINITY ? 0.0f : most; /* nothing seen so far */
        const float keep = exp2f(r.most[half] - base);
        r.most[half] = most;
        r.sum[half] *= keep;
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &v = s[j][2 * half + e];
                v = exp2f(v - base);
                r.sum[half] += v;
            }
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
            r.out[n][2 * half] *= keep;
            r.out[n][2 * half + 1] *= keep;
        }
    }
}

template <int DIM>
__device__ __forceinline__ void mix_tile(warp_rows<DIM> &r, const float (&s)[4][4],
                                         const uint4 (&v)[DIM / 8])
{
    uint32_t high[2][4], low[2][4];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            split(&high[j / 2][half + j % 2 * 2], &low[j / 2][half + j % 2 * 2], s[j][2 * half],
                  s[j][2 * half + 1]);
#pragma unroll
    for (int n = 0; n < DIM / 8; n++) {
        mma(r.out[n], high[0], v[n].x, v[n].y);
        mma(r.out[n], low[0], v[n].x, v[n].y);
        mma(r.out[n], high[1], v[n].z, v[n].w);
        mma(r.out[n], low[1], v[n].z, v[n].w);
    }
}

/* A block's result: rows of DIM sums, and the maximum and sum of each. */
template <int DIM> struct alignas(16) block_rows {
    float out[GPU_ROWS][DIM], most[GPU_ROWS], sum[GPU_ROWS];
};

/* The warps' rows added up in shared memory, in the warps' order. */
template <int DIM>
__device__ __forceinline__ void merge_warps(block_rows<DIM> &all, float (&most)[kWarps][GPU_ROWS],
                                            warp_rows<DIM> &r, uint32_t g, uint32_t t)
{
    const uint32_t warp = threadIdx.x / 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        r.sum[half] += __shfl_xor_sync(~0u, r.sum[half], 1);
        r.sum[half] += __shfl_xor_sync(~0u, r.sum[half], 2);
        if (t == 0)
            most[warp][g + 8 * half] = r.most[half];
    }
    __syncthreads();
    float keep[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = -INFINITY;
        for (uint32_t i = 0; i < kWarps; i++)
            top = fmaxf(top, most[i][g + 8 * half]);
        keep[half] = top == -INFINITY ? 0.0f : exp2f(r.most[half] - top);
        if (warp == 0 && t == 0)
            all.most[g + 8 * half] = top;
    }
    for (uint32_t turn = 0; turn < kWarps; turn++) {
        if (turn == warp)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t row = g + 8 * half;
                if (t == 0)
                    all.sum[row] = (turn ? all.sum[row] : 0.0f) + r.sum[half] * keep[half];
#pragma unroll
                for (int n = 0; n < DIM / 8; n++) {
                    float2 *to = (float2 *)&all.out[row][n * 8 + 2 * t];
                    float2 v = turn ? *to : make_float2(0.0f, 0.0f);
                    v.x = fmaf(r.out[n][2 * half], keep[half], v.x);
                    v.y = fmaf(r.out[n][2 * half + 1], keep[half], v.y);
                    *to = v;
                }
            }
        __syncthreads();
    }
}

__device__ __forceinline__ float *output_of(const gpu_attention &p, const block_work &w,
                                            uint32_t row)
{
    const uint32_t group = p.heads / p.kv_heads, vector = w.first_row + row;
    return p.out + ((size_t)(vector / group) * p.heads + blockIdx.y * group + vector % group) *
                       p.head_dim;
}

/* Adds the splits' rows in order; the block that comes last does it. */
template <int DIM>
__device__ __forceinline__ void merge_splits(const block_rows<DIM> &all, const gpu_attention &p,
                                             const block_work &w)
{
    __shared__ uint32_t turn;
    constexpr uint32_t size = sizeof(block_rows<DIM>) / sizeof(float);
    const size_t block = (size_t)blockIdx.x * p.kv_heads + blockIdx.y;
    float *mine = p.partial + (block * p.splits + blockIdx.z) * size;
    for (uint32_t i = threadIdx.x; i < size; i += kThreads)
        mine[i] = ((const float *)&all)[i];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        turn = atomicInc(&p.tickets[block], w.used - 1);
    __syncthreads();
    if (turn != w.used - 1)
        return;
    __threadfence();
    const block_rows<DIM> *parts = (const block_rows<DIM> *)(p.partial + block * p.splits * size);
    for (uint32_t i = threadIdx.x; i < w.rows * DIM; i += kThreads) {
        const uint32_t row = i / DIM, d = i % DIM;
        float top = -INFINITY, sum = 0.0f, out = 0.0f;
        for (uint32_t s = 0; s < w.used; s++)
            top = fmaxf(top, __ldcg(&parts[s].most[row]));
        for (uint32_t s = 0; s < w.used; s++) {
            const float most = __ldcg(&parts[s].most[row]);
            const float keep = top == -INFINITY ? 0.0f : exp2f(most - top);
            sum = fmaf(__ldcg(&parts[s].sum[row]), keep, sum);
            out = fmaf(__ldcg(&parts[s].out[row][d]), keep, out);
        }
        if (d < p.head_dim)
            output_of(p, w, row)[d] = out / sum;
    }
}

/* Sends for one tile of keys and values, while the kernel before is still at work on
 * the last position: the rest lies in memory, pushed out of the L2 by the weights. */
template <int DIM>
__device__ __forceinline__ void send_for_tile(const uint16_t *keys, const uint16_t *values)
{
    constexpr uint32_t line = 64, lines = GPU_TILE * DIM / line; /* of 128 bytes */
    for (uint32_t i = threadIdx.x % 32; i < lines; i += 32) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(keys + i * line));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(values + i * line));
    }
}

template <int DIM>
__global__ void __launch_bounds__(kThreads) attend(const __grid_constant__ gpu_attention p)
{
    __shared__ block_rows<DIM> all;
    __shared__ float most[kWarps][GPU_ROWS];
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    let_next_start();
    const block_work w = work_of(p);
    const uint16_t *keys = p.cache.keys + blockIdx.y * p.cache.head_stride;
    const uint16_t *values = p.cache.values + blockIdx.y * p.cache.head_stride;
    const uint32_t first = w.tile_begin + threadIdx.x / 32;
    if (blockIdx.z < w.used && first < w.tile_end)
        send_for_tile<DIM>(keys + (size_t)first * GPU_TILE * DIM,
                           values + (size_t)first * GPU_TILE * DIM);
    wait_for_others();
    if (blockIdx.z >= w.used)
        return;
    warp_rows<DIM> r;
    const bool alone = p.m == 1 && p.heads / p.kv_heads <= GPU_ROWS; /* gpu_turns_itself */
    if (alone)
        turn_token<DIM>(all.out, p, w);
    load_queries<DIM>(r, p, w, alone ? all.out[0] : nullptr, g, t);
    for (uint32_t tile = first; tile < w.tile_end; tile += kWarps) {
        float s[4][4];
        const size_t at = (size_t)tile * GPU_TILE * DIM;
        uint4 v[DIM / 8];
        score_tile<DIM>(s, r, keys + at, g, t);
        load_values<DIM>(v, values + at, g, t);
        weigh_tile<DIM>(s, r, tile * GPU_TILE, t);
        mix_tile<DIM>(r, s, v);
    }
    merge_warps<DIM>(all, most, r, g, t);
    if (w.used > 1) {
        merge_splits<DIM>(all, p, w);
        return;
    }
    for (uint32_t i = threadIdx.x; i < w.rows * DIM; i += kThreads)
        if (i % DIM < p.head_dim)
            output_of(p, w, i / DIM)[i % DIM] = all.out[i / DIM][i % DIM] / all.sum[i / DIM];
}

} /* namespace */

cudaError_t gpu_attend_launch(const struct gpu_attention *args, cudaStream_t stream)
{
    const uint32_t tiles = gpu_tiles(args->m, args->heads / args->kv_heads);
    const dim3 grid(tiles, args->kv_heads, args->splits);
    switch (args->cache.padded) {
    case 32:
        return launch(attend<32>, grid, kThreads, stream, *args);
    case 64:
        return launch(attend<64>, grid, kThreads, stream, *args);
    case 96:
        return launch(attend<96>, grid, kThreads, stream, *args);
    case 128:
        return launch(attend<128>, grid, kThreads, stream, *args);
    case 256:
        return launch(attend<256>, grid, kThreads, stream, *args);
    default:
        return cudaErrorInvalidValue;
    }
}
