/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks and times the fast CUDA kernels by themselves: every result against a
 * float64 product made on the device straight from the definition of the code,
 * the same bytes for every number of vectors, and times with weights rotated
 * through more memory than the L2 cache holds, beside cuBLAS bf16.
 *
 *     bench_cuda [check|time|many|interface|choices|all]
 *
 * BENCH_PLAIN=1: the kernels as on GPUs before compute capability 9.0.  BENCH_L2=1: weights
 * from the L2 cache.  BENCH_TOGETHER=1: launches of axis 0 as where two may meet.
 * BENCH_NO_INPUTS=1: without preparing the inputs.  BENCH_BRIEF=1: the fast kernels' times only.
 * BENCH_PROFILE=1: one launch each, for ncu --replay-mode application.
 */
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "kernel/cuda/cuda.h"
#include "kernel/cuda/launch.h"
#include "model/cuda/kernels.h"

#define CHECK(call)                                                        \
    do {                                                                   \
        cudaError_t status_ = (call);                                      \
        if (status_ != cudaSuccess) {                                      \
            fprintf(stderr, "bench_cuda: %s:%d: %s\n", __FILE__, __LINE__, \
                    cudaGetErrorString(status_));                          \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

static int failures, checks;
static uint32_t sm_count;
static bool hopper, together;

__host__ __device__ static inline uint32_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)(x ^ (x >> 31));
}

__global__ void fill_words(uint32_t *p, size_t n, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = mix(i + seed * 0x9e3779b97f4a7c15ull);
}
/* About normal: the sum of four uniform numbers. */
__device__ static float noise(uint64_t i, uint64_t seed)
{
    const uint32_t h = mix(i * 2 + seed * 0x9e3779b97f4a7c15ull);
    return ((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24)) * (1.0f / 148.0f) - 3.4459f;
}
__global__ void fill_x(void *p, size_t n, int type, uint64_t seed, float size)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        const float v = noise(i, seed) * size * (mix(i * 7 + seed) % 97 == 0 ? 30.0f : 1.0f);
        if (type == FAST_F32)
            ((float *)p)[i] = v;
        else if (type == FAST_BF16)
            ((__nv_bfloat16 *)p)[i] = __float2bfloat16(v);
        else
            ((__half *)p)[i] = __float2half(v);
    }
}
__global__ void fill_scales(uint16_t *p, size_t n, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = __half_as_ushort(__float2half(0.005f + (mix(i + seed) & 1023) * 3e-5f));
}

/* y and sum |w x| of one output by definition, one block an output. */
__global__ void reference(double *y, double *bound, const uint32_t *words, const uint16_t *scales,
                          const void *x, int type, uint32_t rows, uint32_t cols, uint32_t k,
                          uint32_t T, int axis, uint32_t m, int interleaved)
{
    const uint32_t out = blockIdx.x, vector = blockIdx.y;
    const uint32_t inputs = axis ? cols : rows, outputs = axis ? rows : cols;
    double sum = 0, size = 0;
    for (uint32_t i = threadIdx.x; i < inputs; i += blockDim.x) {
        const uint32_t row = axis ? out : i, col = axis ? i : out, wpb = T * k / 32;
        const size_t block = col / T, at = (T - 1 - col % T) * k;
        const uint32_t *b = interleaved
                                ? words + (block >> 1) * rows * 48 + row * 48 + (block & 1) * 24
                                : words + ((size_t)row * (cols / T) + block) * wpb;
        const uint64_t two = b[at / 32] | (uint64_t)b[(at / 32 + 1) % wpb] << 32;
        const uint32_t z = ((uint32_t)(two >> (at & 31)) & 4095u) * 34038481u + 76625530u;
        const int code = (int)((z & 255) + (z >> 8 & 255) + (z >> 16 & 255) + (z >> 24)) - 510;
        const double w =
            code / 147.800537109375 * (double)__half2float(__ushort_as_half(scales[row]));
        const size_t xi = (size_t)vector * inputs + i;
        const double v = type == FAST_F32 ? (double)((const float *)x)[xi]
                         : type == FAST_BF16
                             ? (double)__bfloat162float(((const __nv_bfloat16 *)x)[xi])
                             : (double)__half2float(((const __half *)x)[xi]);
        sum += w * v;
        size += fabs(w * v);
    }
    __shared__ double part[2][128];
    part[0][threadIdx.x] = sum;
    part[1][threadIdx.x] = size;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (uint32_t i = 1; i < blockDim.x; i++) {
            sum += part[0][i];
            size += part[1][i];
        }
        y[(size_t)vector * outputs + out] = sum;
        bound[(size_t)vector * outputs + out] = size;
    }
}

struct layer {
    uint32_t rows, cols, k, T;
    int axis, interleaved;
    size_t words() const
    {
        return (size_t)rows * cols / 32 * k;
    }
    uint32_t inputs() const
    {
        return axis ? cols : rows;
    }
    uint32_t outputs() const
    {
        return axis ? rows : cols;
    }
};

static float *partial;
static void *inputs, *wide_room;

static fast_args arguments(const layer &l, const uint32_t *words, const uint16_t *scales,
                           const void *x, int type, uint32_t m, uint32_t pieces, float *y)
{
    fast_args a = {};
    a.words = words, a.scales = scales, a.x = x, a.y = y;
    a.partial = partial, a.inputs = inputs;
    a.x_stride = l.inputs(), a.y_stride = l.outputs();
    a.row_stride = l.interleaved ? 48 : l.cols / 32 * l.k;
    a.pair_stride = l.interleaved ? (size_t)l.rows * 48 : 16 * l.k;
    a.group_stride = 8 * l.k;
    a.rows = l.rows, a.cols = l.cols, a.block_length = l.T;
    a.columns = m * pieces, a.pieces = pieces, a.x_type = type, a.y_type = FAST_F32;
    a.x_aligned = a.x_stride % 8 == 0;
    a.scales_aligned = 1;
    a.words_aligned = a.row_stride % 4 == 0;
    a.k = l.k, a.hopper = hopper, a.together = together;
    return a;
}

static cudaError_t launch(const layer &l, const fast_args &a, cudaStream_t stream)
{
    static const bool skip_inputs = getenv("BENCH_NO_INPUTS"); /* to see what they cost */
    const cudaError_t status = skip_inputs ? cudaSuccess : fast_inputs_launch(&a, l.axis, stream);
    if (status != cudaSuccess)
        return status;
    return l.axis ? fast_axis1_launch(&a, sm_count, stream)
                  : fast_axis0_launch(&a, sm_count, stream);
}

/* Many vectors. */
static cudaError_t launch_wide(const layer &l, fast_args a, cudaStream_t stream)
{
    a.inputs = wide_room;
    const cudaError_t status = wide_inputs_launch(&a, l.axis, stream);
    return status == cudaSuccess ? wide_launch(&a, l.axis, sm_count, stream) : status;
}

static const std::vector<uint32_t> few_m = {1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 50};

/* For `many` 0 the kernels for few vectors, else those for as many. */
static void check(const layer &l, int type, uint32_t pieces, float size, uint32_t many = 0)
{
    const uint32_t max_m =
        many ? many : (l.axis ? FAST_COLUMNS_MAX : FAST_COLUMNS_MAX_AXIS0) / pieces;
    uint32_t *words;
    uint16_t *scales;
    void *x;
    float *y;
    double *want, *bound;
    const size_t nx = (size_t)max_m * l.inputs(), ny = (size_t)max_m * l.outputs();
    CHECK(cudaMalloc(&words, l.words() * 4));
    CHECK(cudaMalloc(&scales, l.rows * 2));
    CHECK(cudaMalloc(&x, nx * 4));
    CHECK(cudaMalloc(&y, ny * 4));
    CHECK(cudaMalloc(&want, ny * 8));
    CHECK(cudaMalloc(&bound, ny * 8));
    fill_words<<<1024, 256>>>(words, l.words(), 1);
    fill_scales<<<64, 256>>>(scales, l.rows, 2);
    fill_x<<<64, 256>>>(x, nx, type, 3, size);
    reference<<<dim3(l.outputs(), max_m), 128>>>(want, bound, words, scales, x, type, l.rows,
                                                 l.cols, l.k, l.T, l.axis, max_m, l.interleaved);
    CHECK(cudaDeviceSynchronize());
    std::vector<double> hw(ny), hb(ny);
    std::vector<float> hy(ny), widest(ny);
    CHECK(cudaMemcpy(hw.data(), want, ny * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(hb.data(), bound, ny * 8, cudaMemcpyDeviceToHost));
    /* Few: a vector's bytes do not depend on its company.  Many: two runs give the same. */
    std::vector<uint32_t> ms = {max_m};
    ms.insert(ms.end(), many ? &max_m : few_m.data(),
              many ? &max_m + 1 : few_m.data() + few_m.size());
    bool again = false;
    for (uint32_t m : ms) {
        if (m > max_m)
            continue;
        CHECK(cudaMemset(y, 0xff, ny * 4));
        fast_args a = arguments(l, words, scales, x, type, m, pieces, y);
        CHECK(many ? launch_wide(l, a, 0) : launch(l, a, 0));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(hy.data(), y, ny * 4, cudaMemcpyDeviceToHost));
        double worst = 0, rms = 0, ref = 0;
        size_t bad = 0, differ = 0, written_past = 0;
        for (size_t i = 0; i < ny; i++) {
            if (i >= (size_t)m * l.outputs()) {
                uint32_t bits;
                memcpy(&bits, &hy[i], 4);
                written_past += bits != 0xffffffffu;
                continue;
            }
            const double e = fabs(hy[i] - hw[i]) / (hb[i] + 1e-300);
            if (!(e <= l.inputs() * 0x1p-24 + (l.axis == 0 && pieces == 1 ? 0x1p-11 : 0x1p-20)))
                bad++;
            worst = std::max(worst, e);
            rms += (hy[i] - hw[i]) * (hy[i] - hw[i]);
            ref += hw[i] * hw[i];
        }
        if (!again)
            widest = hy, again = true;
        else
            differ = memcmp(hy.data(), widest.data(), (size_t)m * l.outputs() * 4) != 0;
        checks++;
        if (bad || differ || written_past) {
            failures++;
            printf("FAIL ");
        }
        if (bad || differ || written_past)
            printf("axis %d k %u T %u %ux%u il %d type %d pieces %u m %2u: rel %.2e "
                   "worst/bound-sum %.2e "
                   "(2^-24*n %.2e) bad %zu differ %zu past %zu\n",
                   l.axis, l.k, l.T, l.rows, l.cols, l.interleaved, type, pieces, m,
                   sqrt(rms / ref), worst, l.inputs() * 0x1p-24, bad, differ, written_past);
    }
    for (void *p : {(void *)words, (void *)scales, x, (void *)y, (void *)want, (void *)bound})
        CHECK(cudaFree(p));
}

template <typename work> static double time_us(int repeats, work launch_one)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < repeats; i++)
        launch_one(i, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<float> times;
    for (int i = 0; i < 7; i++) {
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i > 1)
            times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return times[times.size() / 2] * 1e3 / repeats;
}

static const uint32_t time_m[] = {1, 2, 4, 8, 16, 32, 64};

static void time_layers()
{
    const int copies = getenv("BENCH_L2") ? 1 : 8, repeats = 40;
    const size_t nweights = (size_t)17408 * 5120;
    uint32_t *words;
    uint16_t *scales;
    void *x;
    float *y;
    CHECK(cudaMalloc(&words, nweights / 2 * 8));
    CHECK(cudaMalloc(&scales, 17408 * 2));
    CHECK(cudaMalloc(&x, 64 * 17408 * 2));
    CHECK(cudaMalloc(&y, 64 * 17408 * 4));
    fill_words<<<1024, 256>>>(words, nweights / 8 * 8, 1);
    fill_scales<<<64, 256>>>(scales, 17408, 2);
    fill_x<<<64, 256>>>(x, 64 * 17408, FAST_BF16, 3, 1.0f);
    const double copy = time_us(20, [&](int i, cudaStream_t s) {
        CHECK(cudaMemcpyAsync((uint8_t *)words + (i & 1) * nweights,
                              (uint8_t *)words + nweights * 2 + (i & 1) * nweights, nweights,
                              cudaMemcpyDeviceToDevice, s));
    });
    printf("copy %.2f TB/s\n", 2e-6 * nweights / copy);
    if (getenv("BENCH_PROFILE")) { /* one launch each, for ncu */
        for (int axis = 1; axis >= 0; axis--)
            for (uint32_t m : {1, 32}) {
                const layer l = {17408, 5120, 3, 256, axis, 0};
                fast_args a = arguments(l, words, scales, x, FAST_BF16, m, 1, y);
                CHECK(launch(l, a, 0));
                CHECK(cudaDeviceSynchronize());
            }
        return;
    }
    for (int axis = 1; axis >= 0; axis--)
        for (uint32_t k = 2; k <= 4; k++) {
            const layer l = {17408, 5120, k, 256, axis, 0};
            printf("axis %d k %u:", axis, k);
            for (uint32_t m : time_m) {
                if (!axis && m > FAST_COLUMNS_MAX_AXIS0)
                    continue;
                const double t = time_us(repeats, [&](int i, cudaStream_t s) {
                    fast_args a = arguments(l, words + l.words() * (i % copies), scales, x,
                                            FAST_BF16, m, 1, y);
                    a.y_type = FAST_BF16;
                    CHECK(launch(l, a, s));
                });
                printf("  m%-2u %6.2f", m, t);
            }
            printf(" us\n");
            fflush(stdout);
        }
    if (getenv("BENCH_BRIEF"))
        exit(0);
    cublasHandle_t handle;
    if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS)
        return;
    const float one = 1, zero = 0;
    void *workspace;
    CHECK(cudaMalloc(&workspace, 64 << 20));
    cublasSetWorkspace(handle, workspace, 64 << 20);
    __nv_bfloat16 *dense;
    CHECK(cudaMalloc(&dense, nweights * 2 * 2));
    fill_x<<<1024, 256>>>(dense, nweights * 2, FAST_BF16, 4, 1.0f);
    for (int axis = 1; axis >= 0; axis--) {
        const int in = axis ? 5120 : 17408, out = axis ? 17408 : 5120;
        printf("cuBLAS bf16 %d->%d:", in, out);
        for (int m : {1, 8, 32, 40, 64, 96, 128, 192, 256, 512}) {
            void *xm, *ym;
            CHECK(cudaMalloc(&xm, (size_t)m * in * 2));
            CHECK(cudaMalloc(&ym, (size_t)m * out * 2));
            fill_x<<<64, 256>>>(xm, (size_t)m * in, FAST_BF16, 5, 1.0f);
            CHECK(cudaDeviceSynchronize());
            const double t = time_us(20, [&](int i, cudaStream_t s) {
                cublasSetStream(handle, s);
                cublasSetWorkspace(handle, workspace, 64 << 20);
                if (cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, out, m, in, &one,
                                 dense + (i & 1) * nweights, CUDA_R_16BF, in, xm, CUDA_R_16BF, in,
                                 &zero, ym, CUDA_R_16BF, out, CUBLAS_COMPUTE_32F,
                                 CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
                    printf("cublas failed\n");
            });
            printf("  m%-2d %6.2f", m, t);
            CHECK(cudaFree(xm));
            CHECK(cudaFree(ym));
        }
        printf(" us\n");
    }
}

/* Every number of vectors up to which a wide kernel has one form, and around tiles. */
static void check_many()
{
    for (uint32_t k = 2; k <= 4; k++)
        for (int axis = 0; axis < 2; axis++) {
            for (uint32_t m : {33u, 40u, 64u, 65u, 100u, 128u, 129u, 200u, 256u, 257u, 512u})
                check({axis ? 529u : 1040u, 1280, k, 256, axis, 0}, FAST_BF16, 1, 1.0f, m);
            check({17408, 5120, k, 256, axis, 0}, FAST_BF16, 1, 1.0f, 64);
            check({17408, 5120, k, 256, axis, 0}, FAST_BF16, 1, 1.0f, 512);
            check({272, 1280, k, 256, axis, 0}, FAST_BF16, 1, 1e-20f, 100);
            check({41, 640, k, 128, axis, 0}, FAST_F16, 1, 1.0f, 70);
            check({1003, 5504, k, 128, axis, 0}, FAST_BF16, 2, 1e20f, 90);
            check({3000, 64 * 12, k, 64, axis, 0}, FAST_F32, 2, 1.0f, 45);
            check({1, 256, k, 256, axis, 0}, FAST_BF16, 1, 1.0f, 65);
        }
    check({4099, 1024, 3, 256, 0, 1}, FAST_BF16, 1, 1.0f, 130);
}

/* The same in time, each form by itself. */
static void time_many()
{
    const size_t nweights = (size_t)17408 * 5120;
    const int copies = 8;
    uint32_t *words;
    uint16_t *scales;
    void *x;
    float *y;
    CHECK(cudaMalloc(&words, nweights / 2 * copies));
    CHECK(cudaMalloc(&scales, 17408 * 2));
    CHECK(cudaMalloc(&x, 512 * 17408 * 2));
    CHECK(cudaMalloc(&y, 512 * 17408 * 4));
    fill_words<<<1024, 256>>>(words, nweights / 8 * copies, 1);
    fill_scales<<<64, 256>>>(scales, 17408, 2);
    fill_x<<<64, 256>>>(x, 512 * 17408, FAST_BF16, 3, 1.0f);
    for (int axis = 1; axis >= 0; axis--)
        for (uint32_t k = 2; k <= 4; k++) {
            const layer l = {17408, 5120, k, 256, axis, 0};
            printf("many, axis %d k %u:", axis, k);
            for (uint32_t m : {40u, 64u, 96u, 128u, 192u, 256u, 512u}) {
                const double t = time_us(20, [&](int i, cudaStream_t s) {
                    fast_args a = arguments(l, words + l.words() * (i % copies), scales, x,
                                            FAST_BF16, m, 1, y);
                    a.y_type = FAST_BF16;
                    CHECK(launch_wide(l, a, s));
                });
                printf("  m%-3u %6.2f", m, t);
            }
            printf(" us\n");
            fflush(stdout);
        }
    const layer l = {17408, 5120, 3, 256, 1, 0};
    for (uint32_t m : {64u, 512u}) {
        const double t = time_us(20, [&](int, cudaStream_t s) {
            fast_args a = arguments(l, words, scales, x, FAST_BF16, m, 1, y);
            a.inputs = wide_room;
            CHECK(wide_inputs_launch(&a, 1, s));
        });
        printf("inputs alone, axis 1, m %u: %.2f us\n", m, t);
    }
    for (void *p : {(void *)words, (void *)scales, x, (void *)y})
        CHECK(cudaFree(p));
}

static void must(enum tcq_status status, const struct tcq_error *error)
{
    if (status == TCQ_OK)
        return;
    fprintf(stderr, "bench_cuda: %s\n", error->message);
    exit(1);
}

static void time_encoder(tcq_cuda *gpu, tcq_encoder_options options, const float *src,
                         uint32_t rows)
{
    struct tcq_error error = {};
    struct tcq_cuda_encode job = {};
    size_t work = 0;
    must(tcq_cuda_encode_work_nbytes(gpu, &options, &work, &error), &error);
    job.options = options, job.rows = rows, job.cols = job.src_stride = 5120, job.d_src = src;
    CHECK(cudaMalloc(&job.d_words, rows * 5120 / 32 * options.k * 4));
    CHECK(cudaMalloc(&job.d_scales, rows * 2));
    CHECK(cudaMalloc(&job.d_bad_row, 4));
    CHECK(cudaMalloc(&job.d_work, work + 1));
    const double t = time_us(
        1, [&](int, cudaStream_t s) { must(tcq_cuda_encode(gpu, &job, s, &error), &error); });
    printf("encoder L %u k %u%s: %.0f million weights/s\n", options.L, options.k,
           options.scale == TCQ_SCALE_FIT ? " fit" : "", rows * 5120.0 / t);
    fflush(stdout);
    for (void *p : {(void *)job.d_words, (void *)job.d_scales, (void *)job.d_bad_row, job.d_work})
        CHECK(cudaFree(p));
}

/* Many vectors, gate/up and the encoder, through the C interface. */
static void time_interface(tcq_cuda *gpu)
{
    const size_t nweights = (size_t)17408 * 5120;
    struct tcq_error error = {};
    uint32_t *words;
    uint16_t *scales;
    void *x, *y;
    float *src;
    const int copies = 4;
    CHECK(cudaMalloc(&words, nweights / 2 * copies));
    CHECK(cudaMalloc(&scales, 17408 * 2));
    CHECK(cudaMalloc(&x, (size_t)512 * 17408 * 2));
    CHECK(cudaMalloc(&y, (size_t)512 * 17408 * 4));
    CHECK(cudaMalloc(&src, nweights * 4));
    fill_words<<<1024, 256>>>(words, nweights / 8 * copies, 1);
    fill_scales<<<64, 256>>>(scales, 17408, 2);
    fill_x<<<64, 256>>>(x, (size_t)512 * 17408, FAST_BF16, 3, 1.0f);
    fill_x<<<1024, 256>>>(src, nweights, FAST_F32, 4, 0.02f);
    for (int axis = 1; axis >= 0; axis--)
        for (uint32_t k = 2; k <= 4; k++) {
            const uint64_t in = axis ? 5120 : 17408, out = axis ? 17408 : 5120;
            printf("axis %d k %u:", axis, k);
            for (uint32_t m : {64u, 128u, 512u}) {
                const double t = time_us(10, [&](int i, cudaStream_t s) {
                    struct tcq_tensor w = {};
                    w.geometry.k = k, w.geometry.L = 12, w.geometry.T = 256;
                    w.geometry.axis = (uint32_t)axis, w.geometry.rows = 17408,
                    w.geometry.cols = 5120;
                    w.words = words + nweights / 32 * k * (size_t)(i % copies), w.scales = scales;
                    struct tcq_cuda_product p = {};
                    p.tensor = &w, p.m = m;
                    p.x.data = x, p.x.dtype = TCQ_DTYPE_BF16, p.x.stride = in;
                    p.y.data = y, p.y.dtype = TCQ_DTYPE_BF16, p.y.stride = out;
                    must(tcq_cuda_multiply(gpu, &p, s, &error), &error);
                });
                printf("  m%-3u %7.2f", m, t);
            }
            printf(" us\n");
        }
    printf("gate/up 5120->17408 k 3:");
    for (uint32_t m : {1u, 8u, 32u, 64u, 128u, 512u}) {
        struct tcq_tensor w[2] = {};
        for (int i = 0; i < 2; i++) {
            w[i].geometry.k = 3, w[i].geometry.L = 12, w[i].geometry.T = 256;
            w[i].geometry.axis = 1, w[i].geometry.rows = 17408, w[i].geometry.cols = 5120;
            w[i].scales = scales;
        }
        struct tcq_cuda_product p = {};
        p.tensor = w, p.m = m;
        p.x.data = x, p.x.dtype = TCQ_DTYPE_BF16, p.x.stride = 5120;
        p.y.data = y, p.y.dtype = TCQ_DTYPE_BF16, p.y.stride = 17408;
        const double t = time_us(10, [&](int i, cudaStream_t s) {
            for (int j = 0; j < 2; j++)
                w[j].words = words + nweights / 32 * 3 * (size_t)((2 * i + j) % copies);
            must(tcq_cuda_gate_up(gpu, &p, &w[1], TCQ_SWIGLU_FUSED, s, &error), &error);
        });
        printf("  m%-3u %7.2f", m, t);
    }
    printf(" us\n");
    for (uint32_t L = 8; L <= 16; L += 4)
        for (uint32_t k = 1; k <= 6; k++)
            time_encoder(gpu, {k, L, 256, TCQ_SCALE_RMS}, src, L == 16 ? 256 : 4096);
    time_encoder(gpu, {3, 12, 256, TCQ_SCALE_FIT}, src, 4096);
}

/* Choosing the next of 151936 tokens. */
static void time_choices()
{
    const uint32_t vocab = 151936;
    float *logits;
    gpu_state *state;
    gpu_sampler *sampler;
    CHECK(cudaMalloc(&logits, vocab * 4));
    CHECK(cudaMalloc(&state, sizeof *state));
    CHECK(cudaMalloc(&sampler, gpu_sampler_nbytes(vocab)));
    CHECK(cudaMemset(state, 0, sizeof *state));
    CHECK(cudaMemset(sampler, 0, gpu_sampler_nbytes(vocab)));
    for (float width : {3.0f, 0.02f}) {
        fill_x<<<64, 256>>>(logits, vocab, FAST_F32, 6, width);
        printf("a token of %u, logits of width %g:", vocab, width);
        for (int rules = -1; rules < 4; rules++) {
            const char *names[] = {"likeliest", "drawn", "top_k", "top_p", "both"};
            tcq_sampling s = {1.0f, 0.95f, 0.0f, tcq_sampling_unit(vocab), 40, (uint32_t)rules, 1};
            CHECK(cudaMemcpy(&state->sampling, &s, sizeof s, cudaMemcpyHostToDevice));
            const double t = time_us(50, [&](int, cudaStream_t stream) {
                CHECK(gpu_argmax_launch(state, logits, vocab, stream));
                if (rules >= 0)
                    CHECK(gpu_sample_launch(state, sampler, logits, vocab, s.rules, stream));
            });
            printf("  %s %.1f", names[rules + 1], t);
        }
        printf(" us\n");
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    sm_count = (uint32_t)device.multiProcessorCount;
    printf("%s, %u multiprocessors\n", device.name, sm_count);
    hopper = device.major >= 9 && fast_has_hopper_code() &&
             !getenv("BENCH_PLAIN"); /* as on older GPUs */
    together = getenv("BENCH_TOGETHER");
    CHECK(cudaMalloc(&partial, fast_partial_nbytes(sm_count)));
    CHECK(cudaMemset(partial, FAST_PARTIAL_EMPTY, fast_partial_nbytes(sm_count)));
    CHECK(cudaMalloc(&inputs, fast_inputs_nbytes(131072, FAST_COLUMNS_MAX)));
    const bool wide = hopper && device.major == 9 && device.minor == 0 && wide_has_code();
    CHECK(cudaMalloc(&wide_room, wide_inputs_nbytes(17408, 512)));
    if (!strcmp(what, "many")) {
        if (!getenv("BENCH_BRIEF"))
            check_many();
        printf("%d checks, %d failures\n", checks, failures);
        time_many();
        return failures != 0;
    }
    if (!strcmp(what, "choices")) {
        time_choices();
        return 0;
    }
    const bool checking = strcmp(what, "time") && strcmp(what, "interface");
    if (checking) {
        for (uint32_t k = 2; k <= 4; k++)
            for (int axis = 0; axis < 2; axis++) {
                check({17408, 5120, k, 256, axis, 0}, FAST_BF16, 1, 1.0f);
                check({272, 1280, k, 256, axis, 0}, FAST_BF16, 1, 1e-20f);
                check({40, 640, k, 128, axis, 0}, FAST_F16, 1, 1.0f);
                check({1003, 5504, k, 128, axis, 0}, FAST_BF16, 2, 1e20f);
                check({5120, 64 * 13, k, 64, axis, 0}, FAST_F32, 2, 1.0f);
                check({1, 256, k, 256, axis, 0}, FAST_BF16, 1, 1.0f);
            }
        check({4099, 1024, 3, 256, 0, 1}, FAST_BF16, 1, 1.0f);
        if (wide)
            check_many();
        printf("%d checks, %d failures\n", checks, failures);
    }
    if (strcmp(what, "check")) {
        if (strcmp(what, "interface"))
            time_layers();
        if (strcmp(what, "interface") && wide)
            time_many();
        struct tcq_error error = {};
        struct tcq_cuda *gpu = nullptr;
        must(tcq_cuda_create(nullptr, &gpu, &error), &error);
        time_interface(gpu);
        time_choices();
        tcq_cuda_destroy(gpu);
    }
    return failures || (!checks && checking);
}
