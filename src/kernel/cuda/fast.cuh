/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fast kernels of both axes share: their argument, the decoder, the
 * copies into shared memory and the division of the work among thread blocks.
 *
 * A weight enters the tensor cores as S, the byte sum of z = state*a + b, held
 * as the bits of a binary16: S <= 1020 is the subnormal S * 2^-24, so no
 * conversion is needed.  y = S - 510, and 510 * sum(x) is taken off the sums.
 */
#ifndef TCQ_KERNEL_CUDA_FAST_CUH
#define TCQ_KERNEL_CUDA_FAST_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "kernel/cuda/launch.h"

constexpr int kWarps = 16;          /* a block; one block a multiprocessor */
constexpr int kThreads = 32 * kWarps;
constexpr int kTileRows = 16;       /* stored rows of one warp's tile */
constexpr int kGroup = 256;         /* columns of one warp's tile */
constexpr uint32_t kMask = 0xfffu;  /* L = 12 */
constexpr float kUnit = 0x1p-24f;   /* what a set bit 0 of a binary16 means */
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
__device__ __forceinline__ uint32_t hash(uint32_t state) { return state * 34038481u + 76625530u; }
__device__ __forceinline__ uint32_t add_bytes(uint32_t z, uint32_t to)
{
    return __dp4a(z, 0x01010101u, to);
}
__device__ __forceinline__ uint32_t byte_sum(const uint32_t *w, int o)
{
    return add_bytes(hash(window(w, o, 12, 0)), 0u);
}

/* Two sums as one register. */
__device__ __forceinline__ uint32_t pack(uint32_t low, uint32_t high)
{
    return __byte_perm(low, high, 0x5410);
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
        for (uint32_t v = threadIdx.x; v < 1024; v += blockDim.x) {
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
    for (uint32_t first = threadIdx.x; first < period; first += blockDim.x) {
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
template <int K>
__device__ __forceinline__ uint32_t sum_pair(const uint32_t *w, int o, const uint8_t *table,
                                             bool from_table)
{
    if (!from_table)
        return pack(byte_sum(w, o), byte_sum(w, o - K));
    const uint32_t entry = *(const uint32_t *)(table + window(w, o - K, kTableBits<K>, 2));
    return K <= 3 ? entry : add_bytes(hash(window(w, o, 12, 0)), entry);
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- copies ------------------------------------------------------------ */

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes, or as many leading bytes as `valid` says and zeros behind them. */
__device__ __forceinline__ void copy16(uint32_t dst, const uint32_t *src, int valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(valid));
}
__device__ __forceinline__ void copy4(uint32_t dst, const uint32_t *src, int valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(valid));
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;"); }
template <int pending> __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

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

/* Copies 16-byte piece `chunk` of one row of packed words; what lies past
 * words_valid becomes zero. */
__device__ __forceinline__ void copy_checked(uint32_t dst, const uint32_t *row, uint32_t chunk,
                                             uint32_t words_valid, bool aligned)
{
    if (aligned) {
        const bool valid = chunk * 4 < words_valid;
        copy16(dst, valid ? row + chunk * 4 : row, valid ? 16 : 0);
        return;
    }
    for (uint32_t j = 0; j < 4; j++) {
        const bool valid = chunk * 4 + j < words_valid;
        copy4(dst + j * 4, valid ? row + chunk * 4 + j : row, valid ? 4 : 0);
    }
}

/* ---- inputs ------------------------------------------------------------ */

/* What `inputs` starts with, a column: the inverse of the power of two that the
 * inputs were multiplied with, and 510 times their sum, in slices of the vector
 * to be added in ascending order.  The inputs follow. */
struct column_meta {
    float inverse, offset[FAST_INPUT_SLICES];
};
__device__ __forceinline__ uint8_t *fragments_of(const fast_args &p)
{
    return (uint8_t *)p.inputs + FAST_INPUT_META_NBYTES;
}

/* The same with one sum, as the kernels keep it in shared memory. */
struct column_sum {
    float inverse, offset;
};
__device__ __forceinline__ void load_meta(column_sum *to, const fast_args &p)
{
    if (threadIdx.x >= p.columns)
        return;
    const column_meta m = ((const column_meta *)p.inputs)[threadIdx.x];
    float offset = 0.0f;
#pragma unroll
    for (int i = 0; i < (int)FAST_INPUT_SLICES; i++)
        offset += m.offset[i];
    to[threadIdx.x] = {m.inverse, offset};
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

/* ---- launch ------------------------------------------------------------ */

inline cudaError_t launch_overlapped(void (*kernel)(fast_args, uint32_t), uint32_t blocks,
                                     int threads, int shared_nbytes, cudaStream_t stream, const fast_args &args,
                                     uint32_t option)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3((uint32_t)threads);
    config.dynamicSmemBytes = (size_t)shared_nbytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, args, option);
}

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
