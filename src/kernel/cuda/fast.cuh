/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fast kernels of both axes share: the decoder, inputs and outputs, sums on
 * their way between thread blocks, and the division of the work among these.
 *
 * A weight enters the tensor cores as S, the byte sum of z = state*a + b, held
 * as the bits of a binary16: S <= 1020 is the subnormal S * 2^-24, so no
 * conversion is needed.  y = S - 510, and 510 * sum(x) is taken off the sums.
 */
#ifndef TCQ_KERNEL_CUDA_FAST_CUH
#define TCQ_KERNEL_CUDA_FAST_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "kernel/cuda/fast_wgmma.cuh"

constexpr uint32_t kMask = 0xfffu; /* L = 12 */
constexpr float kUnit = 0x1p-24f;  /* what a set bit 0 of a binary16 means */
constexpr float kOffset = 510.0f * kUnit;
/* Sums are in units of 2^-24; d is the divisor of the code. */
constexpr float kFinal = 0x1p24f / 147.800537109375f;

/* ---- decoding ---------------------------------------------------------- */

/* A window of `bits` bits from bit o of w, times 2^scale; all but w known at
 * compile time.  A window that ends with its word needs no mask. */
__device__ __forceinline__ uint32_t window(const uint32_t *w, int o, int bits, int scale)
{
    const int shift = o & 31, right = shift - scale;
    const uint32_t low = w[o >> 5];
    uint32_t s;
    if (shift + bits <= 32)
        s = right > 0 ? low >> right : low << -right;
    else
        s = right >= 0 ? __funnelshift_r(low, w[(o >> 5) + 1], right) : low << -right;
    return shift + bits == 32 && scale == 0 ? s : s & (((1u << bits) - 1u) << scale);
}

/* z of a state: its bytes sum to y + 510. */
__device__ __forceinline__ uint32_t hash(uint32_t state)
{
    return state * 34038481u + 76625530u;
}
__device__ __forceinline__ uint32_t add_bytes(uint32_t z, uint32_t to)
{
    return __dp4a(z, 0x01010101u, to);
}
__device__ __forceinline__ uint32_t byte_sum(const uint32_t *w, int o)
{
    return add_bytes(hash(window(w, o, 12, 0)), 0u);
}

/* Two sums as one register, by the multiplier or by the units that shift and permute,
 * whichever has less to do. */
template <bool multiplier> __device__ __forceinline__ uint32_t pack(uint32_t low, uint32_t high)
{
    if (!multiplier)
        return __byte_perm(low, high, 0x5410);
    uint32_t both;
    asm("mad.lo.u32 %0, %1, 65536, %2;" : "=r"(both) : "r"(high), "r"(low));
    return both;
}

/* Whether the i-th of every eight pairs of weights comes from a table that serves
 * `served` of them. */
__device__ __forceinline__ constexpr bool is_served(int i, int served)
{
    return (i % 8 + 1) * served / 8 > i % 8 * served / 8;
}

/* Part of the sums come from a table in shared memory, which takes the load
 * off the integer units: for k = 2 and 3 of both sums of two neighbouring
 * states, which are one window of 12 + k bits; for k = 4, whose windows of 16
 * bits would need 256 KiB, of one sum in the upper half of a word, to which
 * the other is added in place. */
template <int K> constexpr int kTableBits = K <= 3 ? 12 + K : 12;
template <int K> constexpr int kTableNbytes = 4 << kTableBits<K>;

template <int K> __device__ __forceinline__ void fill_table(uint32_t *table)
{
    if constexpr (K > 3) {
        for (uint32_t v = threadIdx.x; v < 1024; v += kThreads) {
            uint32_t entry[4], z = hash(v * 4);
#pragma unroll
            for (int i = 0; i < 4; i++, z += 34038481u)
                entry[i] = add_bytes(z, 0u) * 65536u;
            *(uint4 *)(table + v * 4) = *(const uint4 *)entry;
        }
        return;
    }
    /* Entries v*2^K + i, i < 2^K: the lower half is that of state v, the upper ones
     * recur for every v + n*2^(12-K). */
    constexpr uint32_t run = 1u << K, period = 4096u >> K;
    for (uint32_t first = threadIdx.x; first < period; first += kThreads) {
        uint32_t upper[run], z = hash(first * run & kMask);
#pragma unroll
        for (uint32_t i = 0; i < run; i++, z += 34038481u)
            upper[i] = add_bytes(z, 0u) << 16;
        if (run == 8 && (first & 1)) { /* odd lanes the other way round: no bank twice */
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t swap = upper[i];
                upper[i] = upper[(i + 4) % run];
                upper[(i + 4) % run] = swap;
            }
        }
        const uint32_t turn = run == 8 ? (first & 1) * 4 : 0;
#pragma unroll
        for (uint32_t n = 0; n < run; n++) {
            const uint32_t v = first + n * period, low = add_bytes(hash(v), 0u);
#pragma unroll
            for (uint32_t i = 0; i < run; i += 4)
                *(uint4 *)(table + v * run + (i ^ turn)) = make_uint4(
                    upper[i] + low, upper[i + 1] + low, upper[i + 2] + low, upper[i + 3] + low);
        }
    }
}

/* The sums of the states at o (lower half) and o - K (upper half). */
template <int K, bool multiplier>
__device__ __forceinline__ uint32_t sum_pair(const uint32_t *w, int o, uint32_t table,
                                             bool from_table)
{
    if (!from_table)
        return pack<multiplier>(byte_sum(w, o), byte_sum(w, o - K));
    const uint32_t entry = look_up(table, window(w, o - K, kTableBits<K>, 2));
    return K <= 3 ? entry : add_bytes(hash(window(w, o, 12, 0)), entry);
}

/* ---- words of axis 1 --------------------------------------------------- */

/* The words of a lane's 64 inputs of a row, and the one above them; the row is `offset`
 * bytes on. */
template <int K, int offset>
__device__ __forceinline__ void load_words(uint32_t (&w)[2 * K + 1], uint32_t words,
                                           uint32_t overlap)
{
    if constexpr (K == 3) {
        uint2 v[3];
        load<offset>(v[0], words);
        load<offset + 8>(v[1], words);
        load<offset + 16>(v[2], words);
#pragma unroll
        for (int i = 0; i < 3; i++)
            w[2 * i] = v[i].x, w[2 * i + 1] = v[i].y;
    } else {
        uint4 v[K / 2];
        load<offset>(v[0], words);
        if constexpr (K == 4) /* the next piece, in the order PIECES_XOR8 */
            load<offset>(v[1], words ^ 16);
#pragma unroll
        for (int i = 0; i < K / 2; i++)
            w[4 * i] = v[i].x, w[4 * i + 1] = v[i].y, w[4 * i + 2] = v[i].z, w[4 * i + 3] = v[i].w;
    }
    load<offset>(w[2 * K], overlap);
}

/* ---- overlap ----------------------------------------------------------- */

/* The kernels overlap their start with the end of the one before them: until
 * wait_for_inputs() only weights may be read and nothing written. */
__device__ __forceinline__ void let_next_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_inputs()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- inputs ------------------------------------------------------------ */

/* What `inputs` start with, a column: the inverse of the power of two that
 * the inputs were multiplied with, and 510 times their sum, in slices of the vector
 * to be added in ascending order.  The inputs follow. */
struct column_meta {
    float inverse, offset[FAST_INPUT_SLICES];
};
__device__ __forceinline__ uint8_t *inputs_of(const fast_args &p)
{
    return (uint8_t *)p.inputs + FAST_INPUT_META_NBYTES;
}

/* Axis 0: rows of a unit of 16 that lane t decodes, the first two; the others are 8 on.
 * So that four lanes meet no bank twice. */
template <int K> __device__ __forceinline__ constexpr uint32_t axis0_row(uint32_t t, uint32_t i)
{
    return K == 3 ? t + 4 * i : 2 * t + i;
}

/* The same with one sum, as the kernels keep it in shared memory. */
struct column_sum {
    float inverse, offset;
};
__device__ __forceinline__ void load_meta(column_sum *to, const fast_args &p)
{
    const uint32_t i = threadIdx.x;
    if (i >= p.columns)
        return;
    const column_meta m = ((const column_meta *)p.inputs)[i];
    float offset = 0.0f;
#pragma unroll
    for (int j = 0; j < (int)FAST_INPUT_SLICES; j++)
        offset += m.offset[j];
    to[i] = {m.inverse, offset};
}

/* ---- outputs ----------------------------------------------------------- */

__device__ __forceinline__ void store_y(const fast_args &p, uint32_t vector, uint32_t out, float v)
{
    const size_t at = (size_t)vector * p.y_stride + out;
    if (p.y_type == FAST_F32)
        ((float *)p.y)[at] = v;
    else if (p.y_type == FAST_BF16)
        ((__nv_bfloat16 *)p.y)[at] = __float2bfloat16_rn(v);
    else
        ((__half *)p.y)[at] = __float2half_rn(v);
}

/* ---- sums on their way between blocks ----------------------------------- */

/* A sum is its own signal: the place it is written to holds a bit pattern that no sum
 * has (sums that are NaN are written with another), and whoever reads it puts that
 * pattern back.  So nothing is fenced, and waiting costs one way through the L2 cache.
 * Blocks wait for others of the same launch, on axis 1 only for those before them, which
 * have started earlier; on axis 0 all must run at once.  There is one a multiprocessor, so
 * they do, unless two such launches meet: fast_args.together. */
constexpr uint32_t kEmpty = FAST_PARTIAL_EMPTY * 0x01010101u;

__device__ __forceinline__ void send(float *to, float v)
{
    const uint32_t bits = v == v ? __float_as_uint(v) : 0x7fffffffu;
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(bits) : "memory");
}
__device__ __forceinline__ uint32_t peek(const float *from)
{
    uint32_t bits;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(bits) : "l"(from) : "memory");
    return bits;
}
/* `bits` was read from there a moment ago. */
__device__ __forceinline__ float receive(float *from, uint32_t bits)
{
    while (bits == kEmpty)
        bits = peek(from);
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(from), "r"(kEmpty) : "memory");
    return __uint_as_float(bits);
}

/* ---- launch ------------------------------------------------------------ */

/* `cluster` blocks are one cluster; 0: blocks wait for one another, and all of them must
 * run at once or none. */
template <typename... arguments>
cudaError_t launch_overlapped(void (*kernel)(arguments...), uint32_t blocks, uint32_t cluster,
                              int threads, int shared_nbytes, cudaStream_t stream,
                              const arguments &...args)
{
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    if (cluster == 0) {
        attributes[1].id = cudaLaunchAttributeCooperative;
        attributes[1].val.cooperative = 1;
    } else {
        attributes[1].id = cudaLaunchAttributeClusterDimension;
        attributes[1].val.clusterDim.x = cluster;
        attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3((uint32_t)threads);
    config.dynamicSmemBytes = (size_t)shared_nbytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = cluster == 1 ? 1 : 2;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

/* The kernel of a class template for k and the columns, up to 8 * N8Max. */
template <template <int, int> class product, int N8Max, int K>
cudaError_t launch_columns(const fast_args &args, uint32_t blocks, cudaStream_t stream)
{
    if (args.columns <= 8)
        return product<K, 1>::launch(args, blocks, stream);
    if (args.columns <= 16)
        return product<K, 2>::launch(args, blocks, stream);
    if (N8Max == 4 || args.columns <= 32)
        return product<K, 4>::launch(args, blocks, stream);
    return product<K, N8Max>::launch(args, blocks, stream);
}
template <template <int, int> class product, int N8Max>
cudaError_t launch_product(const fast_args &args, uint32_t blocks, cudaStream_t stream)
{
    switch (args.k) {
    case 2:
        return launch_columns<product, N8Max, 2>(args, blocks, stream);
    case 3:
        return launch_columns<product, N8Max, 3>(args, blocks, stream);
    case 4:
        return launch_columns<product, N8Max, 4>(args, blocks, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

/* The map for boxes of `rows` rows by 256 columns; false where there can be none and the
 * kernels copy by themselves. */
bool fast_map_words(CUtensorMap *map, const fast_args &args, uint32_t rows, piece_order order);

/* ---- division of the work ---------------------------------------------- */

/* Units 0..units-1 are cut into one run a block, the first `longer` of them one
 * unit longer, whatever the number of vectors; `tile` consecutive units make one
 * output tile. */
struct work_plan {
    uint32_t length, longer;

    __device__ __forceinline__ explicit work_plan(const fast_args &p)
        : length(p.run_length), longer(p.runs_longer)
    {
    }
    __device__ __forceinline__ uint32_t begin(uint32_t block) const
    {
        return block * length + min(block, longer);
    }
    __device__ __forceinline__ uint32_t owner(uint32_t unit) const
    {
        const uint32_t split = longer * (length + 1);
        return unit < split ? unit / (length + 1) : longer + (unit - split) / length;
    }
};
/* The blocks to launch: `most`, or as many as there are units. */
inline uint32_t divide_work(fast_args *args, uint32_t units, uint32_t most)
{
    const uint32_t blocks = units < most ? units : most;
    args->run_length = units / blocks;
    args->runs_longer = units % blocks;
    return blocks;
}
struct work_range {
    uint32_t begin, end;
};

#endif
