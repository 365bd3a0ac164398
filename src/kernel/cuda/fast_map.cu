/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The description of the packed words that the tensor copies of compute capability 9.0
 * go by.  The driver makes it; it is asked for at run time, like the driver itself.
 */
#include "kernel/cuda/fast.cuh"

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_function find_encode()
{
    void *function = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return nullptr;
    return (encode_function)function;
}

namespace
{
__global__ void probe()
{
}
} /* namespace */

bool fast_has_hopper_code()
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, probe) == cudaSuccess && attributes.ptxVersion >= 90;
}

bool fast_map_words(CUtensorMap *map, const fast_args &args, uint32_t rows, piece_order order)
{
    static const encode_function encode = find_encode();
    if (!args.hopper || !args.words_aligned || !encode)
        return false;
    const bool interleaved = args.pair_stride != 16 * args.k;
    const cuuint64_t row_nbytes = args.row_stride * 4;
    const cuuint64_t sizes[3] = {interleaved ? 16 * args.k : args.cols / 32 * args.k, args.rows,
                                 interleaved ? args.cols / 512 : 1};
    const cuuint64_t strides[2] = {row_nbytes, interleaved ? args.pair_stride * 4 : row_nbytes};
    const cuuint32_t box[3] = {8 * args.k, rows, 1}, steps[3] = {1, 1, 1};
    const CUtensorMapSwizzle swizzle = order == PIECES_XOR8   ? CU_TENSOR_MAP_SWIZZLE_128B
                                       : order == PIECES_XOR4 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                              : CU_TENSOR_MAP_SWIZZLE_NONE;
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 3, (void *)args.words, sizes, strides, box,
                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
