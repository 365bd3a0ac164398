/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCQ_HOST_DEVICE marks inline functions that CUDA kernels use as well, so that
 * C and CUDA share one text.  In C it is empty.
 */
#ifndef TCQ_BASE_HOST_DEVICE_H
#define TCQ_BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define TCQ_HOST_DEVICE __host__ __device__
#else
#define TCQ_HOST_DEVICE
#endif

#endif
