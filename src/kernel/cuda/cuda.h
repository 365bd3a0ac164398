/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA back end: operations on packed weights and the encoder on one NVIDIA
 * GPU, behind plain C.
 *
 * Pointers named d_... are device memory that the caller owns.  `stream` is a
 * cudaStream_t (NULL: the default stream).  Operations only enqueue work: they
 * allocate nothing, wait for nothing and may be called during stream capture.
 * They share the context's workspace, so calls on one context must be ordered,
 * as calls on one stream are.  Every failure is TCQ_ERROR_DEVICE with CUDA's own
 * words; a failure on the device shows at the next call that waits.
 *
 * Thread blocks of a fast product on axis 0 wait for one another.  Where a process has
 * several contexts such a launch therefore starts as a whole (1.5 us slower); graphs that
 * were captured before the second context came must not run beside its products.
 *
 * A program with this back end starts without a driver; tcq_cuda_create then
 * says what is missing.
 */
#ifndef TCQ_KERNEL_CUDA_CUDA_H
#define TCQ_KERNEL_CUDA_CUDA_H

#include "tcq.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tcq_cuda;

struct tcq_cuda_options {
    int device;              /* as CUDA numbers them */
    size_t workspace_nbytes; /* for dense weights, partial sums; 0: 256 MiB */
};

/* Errors: DEVICE (no driver, no device, one older than compute capability 8.0);
 * MEMORY. */
enum tcq_status tcq_cuda_create(const struct tcq_cuda_options *options, struct tcq_cuda **out,
                                struct tcq_error *error);
void tcq_cuda_destroy(struct tcq_cuda *cuda);
/* The device's name, its multiprocessors, and bytes of device memory held. */
const char *tcq_cuda_name(const struct tcq_cuda *cuda);
uint32_t tcq_cuda_multiprocessors(const struct tcq_cuda *cuda);
size_t tcq_cuda_nbytes(const struct tcq_cuda *cuda);

/* Device memory and copies, for callers that know nothing of CUDA.  upload and
 * download wait until the copy is done. */
enum tcq_status tcq_cuda_alloc(struct tcq_cuda *cuda, size_t nbytes, void **d_out,
                               struct tcq_error *error);
void tcq_cuda_free(struct tcq_cuda *cuda, void *d_memory);
enum tcq_status tcq_cuda_upload(struct tcq_cuda *cuda, void *d_dst, const void *src, size_t nbytes,
                                struct tcq_error *error);
enum tcq_status tcq_cuda_download(struct tcq_cuda *cuda, void *dst, const void *d_src,
                                  size_t nbytes, struct tcq_error *error);
/* Waits for the stream and reports what failed on it. */
enum tcq_status tcq_cuda_wait(struct tcq_cuda *cuda, void *stream, struct tcq_error *error);

/* A product y[i] = W x[i], i < m.  tensor's words and scales, x and y are device
 * memory; words and scales aligned to 16 bytes. */
struct tcq_cuda_product {
    const struct tcq_tensor *tensor;
    enum tcq_numerics numerics;
    enum tcq_operation operation; /* AUTO, or one that fits */
    uint32_t splits;              /* of REFERENCE scatter; 0: 128 */
    uint32_t m;
    struct tcq_vectors x, y; /* F32, F16 or BF16 each */
};

/* The operation that AUTO stands for, or AUTO with the reason in *error.  (GPUs with less
 * than 227 KiB of shared memory a block, those before compute capability 9.0, take WIDE
 * in place of SMALL; those of 9.0 do from 33 vectors on, on axis 0, what WIDE does there.)
 * FAST: SMALL up to m = 64 where k is 2..4 and L 12, above that and for other k
 * and L WIDE.  REFERENCE: as docs/kernels.md says. */
enum tcq_operation tcq_cuda_select(const struct tcq_cuda_product *product, struct tcq_error *error);

enum tcq_status tcq_cuda_multiply(struct tcq_cuda *cuda, const struct tcq_cuda_product *product,
                                  void *stream, struct tcq_error *error);

/* mid = silu(gate x) * (up x): two products with the same x, axis 1 and sizes; k
 * may differ.  y of `gate` is mid; it must not be x.  Up to a quarter of the workspace
 * holds sums. */
enum tcq_status tcq_cuda_gate_up(struct tcq_cuda *cuda, const struct tcq_cuda_product *gate,
                                 const struct tcq_tensor *up, enum tcq_swiglu tail, void *stream,
                                 struct tcq_error *error);

/* Stored rows [row_begin, row_end), dense: BF16 or F32, contract `bf16` or
 * value*scale. */
enum tcq_status tcq_cuda_expand(struct tcq_cuda *cuda, void *d_dst, enum tcq_dtype dtype,
                                size_t dst_stride, const struct tcq_tensor *tensor,
                                uint64_t row_begin, uint64_t row_end, void *stream,
                                struct tcq_error *error);

/* The encoder: the bytes of tcq_encode_rows, fastest for L = 12. */
struct tcq_cuda_encode {
    struct tcq_encoder_options options; /* as for tcq_encoder_create */
    uint64_t rows, cols;                /* cols a multiple of T */
    const float *d_src;
    size_t src_stride;
    uint32_t *d_words;
    uint16_t *d_scales;
    uint32_t *d_bad_row; /* the lowest row whose scale does not exist (a non-finite weight,
                          * a scale beyond binary16), whose words mean nothing; or 0xffffffff */
    void *d_work;        /* tcq_cuda_encode_work_nbytes(); NULL where that is 0 */
};
enum tcq_status tcq_cuda_encode_work_nbytes(struct tcq_cuda *cuda,
                                            const struct tcq_encoder_options *options,
                                            size_t *nbytes, struct tcq_error *error);
enum tcq_status tcq_cuda_encode(struct tcq_cuda *cuda, const struct tcq_cuda_encode *job,
                                void *stream, struct tcq_error *error);

/* The same from host memory to host memory, with its own streams and memory, copies
 * overlapped with the work: tcq_encode_rows on a GPU, with its results, progress and
 * errors.  One call at a time a context. */
struct tcq_cuda_encoder;
enum tcq_status tcq_cuda_encoder_create(struct tcq_cuda *cuda,
                                        const struct tcq_encoder_options *options,
                                        struct tcq_cuda_encoder **out, struct tcq_error *error);
void tcq_cuda_encoder_destroy(struct tcq_cuda_encoder *encoder);
enum tcq_status tcq_cuda_encode_rows(struct tcq_cuda_encoder *encoder, uint32_t *words,
                                     uint16_t *scales, const float *src, uint64_t rows,
                                     uint64_t cols, size_t src_stride, tcq_progress_fn progress,
                                     void *progress_user, struct tcq_error *error);

#ifdef __cplusplus
}
#endif

#endif
