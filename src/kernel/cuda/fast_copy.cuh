/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How packed words and inputs come into shared memory for the fast kernels: a ring of
 * slots, filled by threads that do nothing else and emptied by the warps that multiply,
 * with tensor and bulk copies on compute capability 9.0 and cp.async where these do not
 * apply.
 */
#ifndef TCQ_KERNEL_CUDA_FAST_COPY_CUH
#define TCQ_KERNEL_CUDA_FAST_COPY_CUH

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "kernel/cuda/launch.h"

/* A block, one a multiprocessor: warps that multiply, and more that copy, one where there
 * are tensor copies and four elsewhere. */
constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps, kCopyThreadsMax = 128;
constexpr int kTileRows = 16; /* stored rows of one warp's tile */
constexpr int kGroup = 256;   /* columns of one warp's tile */

/* ---- shared memory ------------------------------------------------------ */

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Where dynamic shared memory starts, as a value that the compiler keeps rather than
 * works out again at each use. */
__device__ __forceinline__ uint32_t shared_base(const void *p)
{
    return __shfl_sync(~0u, shared_address(p), 0);
}
template <int offset> __device__ __forceinline__ void load(uint32_t &v, uint32_t at)
{
    asm volatile("ld.shared.u32 %0, [%1+%2];" : "=r"(v) : "r"(at), "n"(offset));
}
template <int offset> __device__ __forceinline__ void load(uint2 &v, uint32_t at)
{
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2+%3];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(at), "n"(offset));
}
template <int offset> __device__ __forceinline__ void load(uint4 &v, uint32_t at)
{
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4+%5];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at), "n"(offset));
}
__device__ __forceinline__ uint32_t look_up(uint32_t table, uint32_t offset)
{
    uint32_t v;
    asm("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(table + offset));
    return v;
}

/* ---- copies ------------------------------------------------------------ */

/* Barriers in shared memory, for slots that are filled and emptied in turns. */
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("{.reg .b64 t; mbarrier.arrive.shared.b64 t, [%0];}" ::"r"(barrier) : "memory");
}
/* Waits for the end of the phase of this parity. */
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
#else
    asm volatile("{.reg .pred done;\n"
                 "again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
#endif
}

__device__ __forceinline__ void arrive_once_a_warp(uint32_t barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(barrier);
}

/* By one thread: the phase also waits for this many bytes of the copies below. */
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t nbytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1;}" ::"r"(barrier),
                 "r"(nbytes)
                 : "memory");
#endif
}
/* Read once: first to leave the L2 cache, so that what the next kernel starts with stays. */
constexpr uint64_t kReadOnce = 0x12f0000000000000;

/* A box of packed words: `word` of a row, `row`, and, interleaved, the pair of groups. */
__device__ __forceinline__ void copy_box(uint32_t dst, const CUtensorMap *map, uint32_t word,
                                         uint32_t row, uint32_t pair, uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(dst),
                 "l"(map), "r"(word), "r"(row), "r"(pair), "r"(barrier), "l"(kReadOnce)
                 : "memory");
#endif
}
__device__ __forceinline__ void copy_bulk(uint32_t dst, const void *src, uint32_t nbytes,
                                          uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(nbytes), "r"(barrier)
                 : "memory");
#endif
}

/* 16 bytes, or as many leading bytes as `valid` says and zeros behind them. */
__device__ __forceinline__ void copy16(uint32_t dst, const void *src, int valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(valid));
}
__device__ __forceinline__ void copy4(uint32_t dst, const void *src, int valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(valid));
}
/* An arrival once this thread's copies of that kind are done. */
__device__ __forceinline__ void arrive_after_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/* ---- slots of packed words and inputs ------------------------------------ */

/* How the 16-byte pieces of a row lie in shared memory, so that the reads of a warp
 * meet no bank twice: as they come, or with bits of the row's number xored in. */
enum piece_order { PIECES_PLAIN, PIECES_XOR4, PIECES_XOR8 };

template <int K, int order>
__device__ __forceinline__ uint32_t place_of(uint32_t row, uint32_t word)
{
    const uint32_t turn = order == PIECES_XOR8 ? row & 7 : order == PIECES_XOR4 ? row >> 1 & 3 : 0;
    return row * (32 * K) + ((word / 4 ^ turn) * 16 | word % 4 * 4);
}

/* By all threads that copy and without tensor copies, for rows that do not start at 16
 * bytes: 256 columns (group) of `rows` rows; zeros where the matrix ends. */
template <int K, int order>
__device__ __noinline__ void copy_rows(const fast_args &p, uint32_t dst, uint32_t group,
                                       uint32_t row0, uint32_t rows)
{
    const uint32_t valid = min(p.cols - group * kGroup, (uint32_t)kGroup) / 32 * K;
    const uint32_t *from = p.words + (group >> 1) * p.pair_stride + (group & 1) * p.group_stride;
    for (uint32_t i = threadIdx.x - kThreads; i < 2 * K * rows; i += blockDim.x - kThreads) {
        const uint32_t row = i / (2 * K), word = i % (2 * K) * 4;
        const uint32_t *src = from + (size_t)(row0 + row) * p.row_stride + word;
        const uint32_t left = row0 + row < p.rows && word < valid ? min(valid - word, 4u) : 0;
        const uint32_t to = dst + place_of<K, order>(row, word);
        if (p.words_aligned && left % 4 == 0) {
            copy16(to, left ? src : p.words, left ? 16 : 0);
            continue;
        }
        for (uint32_t j = 0; j < 4; j++)
            copy4(to + 4 * j, j < left ? src + j : p.words, j < left ? 4 : 0);
    }
}

/* Inputs for a slot that threads fill.  The tensor cores may read them past the threads'
 * own writes, so that one thread has them copied in bulk where that can be. */
__device__ __forceinline__ void copy_inputs(const fast_args &p, uint32_t dst, const uint8_t *src,
                                            uint32_t nbytes, uint32_t barrier)
{
    if (p.hopper) {
        if (threadIdx.x == kThreads) {
            barrier_expect(barrier, nbytes);
            copy_bulk(dst, src, nbytes, barrier);
        }
        return;
    }
    for (uint32_t i = (threadIdx.x - kThreads) * 16; i < nbytes; i += (blockDim.x - kThreads) * 16)
        copy16(dst + i, src + i, 16);
}
/* How often those who fill a slot arrive at its barrier. */
__device__ __forceinline__ uint32_t copy_arrivals(const fast_args &p, bool tensor_copies)
{
    return tensor_copies ? 1 : blockDim.x - kThreads + (p.hopper ? 1 : 0);
}

/* A ring of slots with a barrier for `filled` and one for `emptied` each. */
template <int stages> struct ring {
    uint32_t barriers, index, parity; /* of the slot whose turn it is */

    __device__ __forceinline__ void start(uint32_t at)
    {
        asm("mov.u32 %0, %1;" : "=r"(barriers) : "r"(at)); /* once, not at each use */
        index = parity = 0;
    }
    __device__ __forceinline__ void init(uint32_t copies) const
    {
        for (uint32_t i = 0; i < stages; i++) {
            barrier_init(barriers + 16 * i, copies);
            barrier_init(barriers + 16 * i + 8, kWarps);
        }
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async;" ::: "memory");
#endif
    }
    __device__ __forceinline__ uint32_t filled() const
    {
        return barriers + 16 * index;
    }
    __device__ __forceinline__ uint32_t emptied() const
    {
        return filled() + 8;
    }
    __device__ __forceinline__ void advance()
    {
        index++;
        if (index == stages) {
            index = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void wait_filled() const
    {
        barrier_wait(filled(), parity);
    }
    __device__ __forceinline__ void wait_emptied() const
    {
        barrier_wait(emptied(), parity ^ 1);
    }
    /* By a warp that has read the slot. */
    __device__ __forceinline__ void release() const
    {
        arrive_once_a_warp(emptied());
    }
};

/* A barrier of the warps that multiply. */
__device__ __forceinline__ void sync_multipliers()
{
    asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

#endif
