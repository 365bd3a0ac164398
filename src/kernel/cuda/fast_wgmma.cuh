/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of weights in registers with inputs in shared memory: 64 outputs of four
 * warps (wgmma, where the code is compiled for compute capability 9.0 itself), or 16 of
 * each warp by itself (mma.sync, everywhere else).  Sums lie in the same registers and the
 * inputs in the same order either way.
 *
 * The inputs of 16 rows of the B operand, 8*N8 columns: a piece of 256 bytes for every
 * eight columns, in it two of 128 for rows 0..7 and 8..15, in these 16 bytes a column.
 */
#ifndef TCQ_KERNEL_CUDA_FAST_WGMMA_CUH
#define TCQ_KERNEL_CUDA_FAST_WGMMA_CUH

#include "kernel/cuda/fast_copy.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TCQ_WGMMA 1
#else
#define TCQ_WGMMA 0
#endif

template <int N8> constexpr uint32_t kStepInputs = 16 * 2 * 8 * N8; /* bytes of 16 rows */

/* ---- four warps ---------------------------------------------------------- */

/* What a matrix in shared memory is called by: address, 128 bytes from rows 0..7 to 8..15,
 * 256 from eight columns to the next; in units of 16 bytes, no swizzle.  Only the lower
 * half varies; it is made once for many products and comes from one lane, so that it stays
 * in the registers that a warp has in common. */
constexpr uint32_t kMatrixHigh = 256 >> 4;
__device__ __forceinline__ uint32_t matrix_at(uint32_t address)
{
    return __shfl_sync(~0u, address >> 4 | (128 >> 4) << 16, 0);
}
/* Before the first product, and whenever registers that products read were written. */
__device__ __forceinline__ void products_fence()
{
#if TCQ_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void products_commit()
{
#if TCQ_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* Until at most `left` of the groups committed are under way. */
template <int left> __device__ __forceinline__ void products_wait()
{
#if TCQ_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
#endif
}
/* What reads sums after a wait must not be moved before it. */
template <int N8> __device__ __forceinline__ void products_keep(float (&d)[N8][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N8; i++)
        asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}

__device__ __forceinline__ void wgmma(float (&d)[1][4], const uint32_t (&a)[4], uint32_t b)
{
    asm volatile("{.reg .b64 b;\n"
                 "mov.b64 b, {%8, %9};\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {"
                 "%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, b, 1, 1, 1, 0;}"
                 : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(kMatrixHigh));
}
__device__ __forceinline__ void wgmma(float (&d)[2][4], const uint32_t (&a)[4], uint32_t b)
{
    asm volatile("{.reg .b64 b;\n"
                 "mov.b64 b, {%12, %13};\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7}, "
                 "{%8, %9, %10, %11}, b, 1, 1, 1, 0;}"
                 : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
                   "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(kMatrixHigh));
}
__device__ __forceinline__ void wgmma(float (&d)[4][4], const uint32_t (&a)[4], uint32_t b)
{
    asm volatile("{.reg .b64 b;\n"
                 "mov.b64 b, {%20, %21};\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
                 "{%16, %17, %18, %19}, b, 1, 1, 1, 0;}"
                 : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
                   "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
                   "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
                   "+f"(d[3][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(kMatrixHigh));
}
__device__ __forceinline__ void wgmma(float (&d)[8][4], const uint32_t (&a)[4], uint32_t b)
{
    asm volatile("{.reg .b64 b;\n"
                 "mov.b64 b, {%36, %37};\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, b, 1, 1, 1, 0;}"
                 : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
                   "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
                   "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
                   "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
                   "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
                   "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
                   "+f"(d[7][2]), "+f"(d[7][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(kMatrixHigh));
}
__device__ __forceinline__ void wgmma(float (&d)[16][4], const uint32_t (&a)[4], uint32_t b)
{
    asm volatile("{.reg .b64 b;\n"
                 "mov.b64 b, {%68, %69};\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
                 "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
                 "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
                 "%58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, b, 1, 1, 1, 0;}"
                 : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
                   "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
                   "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
                   "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
                   "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
                   "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
                   "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]),
                   "+f"(d[8][3]), "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
                   "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]),
                   "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
                   "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
                   "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
                   "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
                   "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(kMatrixHigh));
}

/* Registers from the warps that copy, four of them, to those that multiply: what a thread
 * has afterwards.  The first suit 16 that multiply. */
constexpr int kCopyKeeps = 32, kMultiplyTakes = 112;
template <int left> __device__ __forceinline__ void give_registers()
{
#if TCQ_WGMMA
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(left));
#endif
}
template <int then> __device__ __forceinline__ void take_registers()
{
#if TCQ_WGMMA
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(then));
#endif
}

/* ---- one warp ------------------------------------------------------------ */

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- either -------------------------------------------------------------- */

/* d += a * (the 16 rows of inputs `offset` bytes after those of `matrix`, matrix_at()). */
template <int offset, int N8>
__device__ __forceinline__ void multiply_step(float (&d)[N8][4], const uint32_t (&a)[4],
                                              uint32_t matrix)
{
#if TCQ_WGMMA
    wgmma(d, a, matrix + (offset >> 4));
#else
    const uint32_t at = (matrix & 0xffffu) * 16 + threadIdx.x % 32 * 4;
#pragma unroll
    for (int n = 0; n < N8; n++) {
        uint32_t b0, b1;
        asm volatile("ld.shared.u32 %0, [%1+%2];" : "=r"(b0) : "r"(at + n * 256), "n"(offset));
        asm volatile("ld.shared.u32 %0, [%1+%2];"
                     : "=r"(b1)
                     : "r"(at + n * 256), "n"(offset + 128));
        mma(d[n], a, b0, b1);
    }
#endif
}

#endif
