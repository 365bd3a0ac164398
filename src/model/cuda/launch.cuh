/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launching with the start overlapped with the end of the kernel before: until
 * wait_for_others() a kernel reads only what no kernel of the pass writes: weights,
 * tables, and the position, which a copy has set before the first of them.
 */
#ifndef TCQ_MODEL_CUDA_LAUNCH_CUH
#define TCQ_MODEL_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

__device__ __forceinline__ void let_next_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_others()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void start_overlapped()
{
    let_next_start();
    wait_for_others();
}

__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int d = 16; d; d >>= 1)
        v += __shfl_xor_sync(~0u, v, d);
    return v;
}

template <typename... parameters, typename... arguments>
inline cudaError_t launch(void (*kernel)(parameters...), dim3 grid, uint32_t threads,
                          cudaStream_t stream, arguments... values)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, (parameters)values...);
}

#endif
