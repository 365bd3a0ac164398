/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA back end through its C interface against the CPU: the same bytes for
 * every reference operation and for the encoder, and a stated error bound for the
 * fast and the wide products.  Exits with 77 where there is no GPU.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "format/geometry.h"
#include "kernel/cuda/cuda.h"
#include "kernel/reference/arithmetic.h"
#include "kernel/reference/reference.h"

static struct tcq_cuda *gpu;
static int checks, failures;
static uint64_t seed = 1;

static void must(enum tcq_status status, const struct tcq_error *error)
{
    if (status == TCQ_OK)
        return;
    fprintf(stderr, "check_cuda: %s: %s\n", tcq_status_string(status), error->message);
    exit(1);
}

static void *allocate(size_t nbytes)
{
    void *memory = calloc(nbytes, 1);
    if (!memory)
        exit(1);
    return memory;
}

static void *to_gpu(const void *data, size_t nbytes)
{
    struct tcq_error error = {0};
    void *d = NULL;
    must(tcq_cuda_alloc(gpu, nbytes, &d, &error), &error);
    must(tcq_cuda_upload(gpu, d, data, nbytes, &error), &error);
    return d;
}

static uint32_t random_bits(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 16);
}

static float random_normal(void)
{
    float sum = 0.0f;
    for (int i = 0; i < 12; i++)
        sum += (float)(random_bits() & 0xffff) * 0x1p-16f;
    return sum - 6.0f;
}

static void report(bool good, const char *what, const struct tcq_geometry *g, uint32_t m)
{
    checks++;
    if (good)
        return;
    failures++;
    printf("FAIL %s: axis %u k %u L %u T %u layout %d, %llu x %llu, m %u\n", what, g->axis, g->k,
           g->L, g->T, (int)g->layout, (unsigned long long)g->rows, (unsigned long long)g->cols, m);
}

/* One layer on both sides. */
struct layer {
    struct tcq_tensor host, device;
};

static struct layer layer_make(struct tcq_geometry g)
{
    struct tcq_error error = {0};
    must(tcq_geometry_check(&g, &error), &error);
    size_t words = tcq_geometry_words(&g);
    uint32_t *w = allocate(words * 4);
    uint16_t *s = allocate(g.rows * 2);
    for (size_t i = 0; i < words; i++)
        w[i] = random_bits();
    for (size_t i = 0; i < g.rows; i++)
        s[i] = tcq_f16_from_f32(0.01f + (float)(random_bits() & 1023) * 3e-5f);
    struct layer l = {{g, w, s}, {g, to_gpu(w, words * 4), to_gpu(s, g.rows * 2)}};
    return l;
}

static void layer_free(struct layer *l)
{
    tcq_cuda_free(gpu, (void *)(uintptr_t)l->device.words);
    tcq_cuda_free(gpu, (void *)(uintptr_t)l->device.scales);
    free((void *)(uintptr_t)l->host.words);
    free((void *)(uintptr_t)l->host.scales);
}

/* Inputs as float32 and as their bf16 form on the GPU. */
static float *inputs_make(size_t count, void **device)
{
    float *x = allocate(count * 4);
    uint16_t *h = allocate(count * 2);
    for (size_t i = 0; i < count; i++) {
        h[i] = tcq_bf16_from_f32(random_normal());
        x[i] = tcq_bf16_to_f32(h[i]);
    }
    *device = to_gpu(h, count * 2);
    free(h);
    return x;
}

static bool same_outputs(const float *want, void *d_y, enum tcq_dtype dtype, size_t count)
{
    struct tcq_error error = {0};
    size_t element = tcq_dtype_nbytes(dtype);
    void *got = allocate(count * element), *rounded = allocate(count * element);
    must(tcq_cuda_wait(gpu, NULL, &error), &error);
    must(tcq_cuda_download(gpu, got, d_y, count * element, &error), &error);
    must(tcq_convert_from_f32(rounded, dtype, want, count), &error);
    bool same = memcmp(got, rounded, count * element) == 0;
    free(got);
    free(rounded);
    return same;
}

static void reference_on_cpu(const struct tcq_reference_product *p, enum tcq_operation operation,
                             uint32_t splits, const int16_t *table)
{
    const struct tcq_geometry *g = &p->tensor->geometry;
    uint64_t blocks = g->cols / g->T;
    switch (operation) {
    case TCQ_OPERATION_REDUCE:
        tcq_reference_reduce(p, 0, g->rows);
        break;
    case TCQ_OPERATION_TILED:
        tcq_reference_tiled(p, 0, g->rows);
        break;
    case TCQ_OPERATION_SPLIT_K:
        tcq_reference_split_k(p, 0, blocks);
        break;
    case TCQ_OPERATION_WIDE:
        if (g->axis)
            tcq_reference_tiled(p, 0, g->rows);
        else
            tcq_reference_wide(p, 0, blocks);
        break;
    default:
        tcq_reference_scatter(p, splits,
                              operation == TCQ_OPERATION_SCATTER ? TCQ_SCATTER_GENERIC
                              : operation == TCQ_OPERATION_SCATTER_BALANCED
                                  ? TCQ_SCATTER_BALANCED
                                  : TCQ_SCATTER_BALANCED_TABLE,
                              table, 0, blocks);
    }
}

static void check_reference(struct tcq_geometry g, enum tcq_operation operation, uint32_t m,
                            uint32_t splits)
{
    static int16_t table[1 << TCQ_L_MAX];
    for (uint32_t s = 0; s < 1u << g.L; s++)
        table[s] = (int16_t)tcq_code_integer(s);
    struct tcq_error error = {0};
    struct layer l = layer_make(g);
    const size_t in = tcq_geometry_in(&g), out = tcq_geometry_out(&g);
    void *d_x, *d_y = NULL;
    float *x = inputs_make(m * in, &d_x), *y = allocate(m * out * 4);
    must(tcq_cuda_alloc(gpu, m * out * 4, &d_y, &error), &error);
    const struct tcq_reference_product host = {&l.host, m, x, in, y, out};
    reference_on_cpu(&host, operation, splits ? splits : TCQ_REFERENCE_SPLITS, table);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        enum tcq_dtype type = bf16 ? TCQ_DTYPE_BF16 : TCQ_DTYPE_F32;
        const struct tcq_cuda_product p = {.tensor = &l.device,
                                           .numerics = TCQ_NUMERICS_REFERENCE,
                                           .operation = operation,
                                           .splits = splits,
                                           .m = m,
                                           .x = {d_x, TCQ_DTYPE_BF16, in},
                                           .y = {d_y, type, out}};
        must(tcq_cuda_multiply(gpu, &p, NULL, &error), &error);
        report(same_outputs(y, d_y, type, m * out), tcq_operation_name(operation), &g, m);
    }
    tcq_cuda_free(gpu, d_x);
    tcq_cuda_free(gpu, d_y);
    free(x);
    free(y);
    layer_free(&l);
}

static void check_gate_up(uint32_t k_gate, uint32_t k_up, enum tcq_swiglu tail, enum tcq_dtype type)
{
    enum { M = 3, ROWS = 70, COLS = 768 };
    struct tcq_error error = {0};
    struct tcq_geometry g = {.k = k_gate, .L = 12, .T = 256, .axis = 1, .rows = ROWS, .cols = COLS};
    struct layer gate = layer_make(g);
    g.k = k_up;
    struct layer up = layer_make(g);
    void *d_x, *d_y = NULL;
    float *x = inputs_make(M * COLS, &d_x), sums[2][M * ROWS], want[M * ROWS];
    must(tcq_cuda_alloc(gpu, sizeof want, &d_y, &error), &error);
    struct tcq_reference_product host = {&gate.host, M, x, COLS, sums[0], ROWS};
    tcq_reference_reduce(&host, 0, ROWS);
    host.tensor = &up.host;
    host.y = sums[1];
    tcq_reference_reduce(&host, 0, ROWS);
    for (size_t i = 0; i < M * ROWS; i++)
        want[i] = tcq_swiglu_tail(type, tail, sums[0][i], sums[1][i]);
    const struct tcq_cuda_product p = {.tensor = &gate.device,
                                       .numerics = TCQ_NUMERICS_REFERENCE,
                                       .m = M,
                                       .x = {d_x, TCQ_DTYPE_BF16, COLS},
                                       .y = {d_y, type, ROWS}};
    must(tcq_cuda_gate_up(gpu, &p, &up.device, tail, NULL, &error), &error);
    report(same_outputs(want, d_y, type, M * ROWS), "gate/up", &g, M);
    tcq_cuda_free(gpu, d_x);
    tcq_cuda_free(gpu, d_y);
    free(x);
    layer_free(&gate);
    layer_free(&up);
}

static void download(void *to, const void *d, size_t nbytes)
{
    struct tcq_error error = {0};
    must(tcq_cuda_wait(gpu, NULL, &error), &error);
    must(tcq_cuda_download(gpu, to, d, nbytes, &error), &error);
}

static float element(const void *data, enum tcq_dtype type, size_t i)
{
    return type == TCQ_DTYPE_F32    ? ((const float *)data)[i]
           : type == TCQ_DTYPE_BF16 ? tcq_bf16_to_f32(((const uint16_t *)data)[i])
                                    : tcq_f16_to_f32(((const uint16_t *)data)[i]);
}

/* gate/up on `on` is what its two products by themselves and the tail give. */
static void check_gate_up_products(struct tcq_cuda *on, const struct tcq_geometry *both, uint32_t m,
                                   const struct tcq_cuda_product *how)
{
    struct tcq_error error = {0};
    const uint64_t out = both->rows, in = both->cols;
    const enum tcq_dtype type = how->y.dtype;
    const enum tcq_swiglu tail = m % 2 ? TCQ_SWIGLU_SPLIT : TCQ_SWIGLU_FUSED;
    const size_t count = m * out, nbytes = count * tcq_dtype_nbytes(type);
    struct layer gate = layer_make(both[0]), up = layer_make(both[1]);
    void *d_x, *sums[2] = {allocate(nbytes), allocate(nbytes)};
    float *x = inputs_make(m * in, &d_x), *want = allocate(count * sizeof *want);
    void *d_y = to_gpu(want, nbytes);
    struct tcq_cuda_product p = *how;
    p.m = m;
    p.x = (struct tcq_vectors){d_x, TCQ_DTYPE_BF16, in};
    p.y = (struct tcq_vectors){d_y, type, out};
    for (int i = 0; i < 2; i++) {
        p.tensor = i ? &up.device : &gate.device;
        must(tcq_cuda_multiply(gpu, &p, NULL, &error), &error);
        download(sums[i], d_y, nbytes);
    }
    for (size_t i = 0; i < count; i++)
        want[i] = tcq_swiglu_tail(type, tail, element(sums[0], type, i), element(sums[1], type, i));
    p.tensor = &gate.device;
    must(tcq_cuda_gate_up(on, &p, &up.device, tail, NULL, &error), &error);
    report(same_outputs(want, d_y, type, count), "gate/up of two products", both, m);
    tcq_cuda_free(gpu, d_x);
    tcq_cuda_free(gpu, d_y);
    free(x);
    free(want);
    free(sums[0]);
    free(sums[1]);
    layer_free(&gate);
    layer_free(&up);
}

/* Sizes that 16 bytes divide and that they do not, k that agree and that do not, and a
 * workspace that has room for the sums of a few vectors only. */
static void check_all_gate_up(void)
{
    static const enum tcq_dtype types[] = {TCQ_DTYPE_F32, TCQ_DTYPE_F16, TCQ_DTYPE_BF16};
    static const uint32_t ms[] = {1, 8, 33, 64, 100};
    struct tcq_error error = {0};
    struct tcq_cuda *narrow = NULL;
    const struct tcq_cuda_options few = {.workspace_nbytes = 4 * 4 * 304 * 7};
    must(tcq_cuda_create(&few, &narrow, &error), &error);
    for (int i = 0; i < 3; i++)
        for (uint32_t odd = 0; odd < 2; odd++) {
            struct tcq_geometry both[2] = {{.k = 3, .L = 12, .T = 256, .axis = 1, .rows = 304 - odd,
                                            .cols = 768}};
            struct tcq_cuda_product how = {.y = {.dtype = types[i]}};
            both[1] = both[0];
            both[1].k -= odd;
            for (size_t j = 0; j < sizeof ms / sizeof *ms; j++)
                check_gate_up_products(gpu, both, ms[j] + odd, &how);
            how.numerics = TCQ_NUMERICS_REFERENCE; /* a vector's bytes whatever its company */
            check_gate_up_products(narrow, both, 30 + odd, &how);
        }
    tcq_cuda_destroy(narrow);
}

static void check_expand(struct tcq_geometry g)
{
    struct tcq_error error = {0};
    struct layer l = layer_make(g);
    const size_t count = g.rows * g.cols;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        enum tcq_dtype type = bf16 ? TCQ_DTYPE_BF16 : TCQ_DTYPE_F32;
        const size_t nbytes = count * tcq_dtype_nbytes(type);
        void *want = allocate(nbytes), *got = allocate(nbytes), *d = to_gpu(got, nbytes);
        tcq_reference_expand(want, type, g.cols, &l.host, 0, g.rows);
        must(tcq_cuda_expand(gpu, d, type, g.cols, &l.device, 0, g.rows, NULL, &error), &error);
        must(tcq_cuda_wait(gpu, NULL, &error), &error);
        must(tcq_cuda_download(gpu, got, d, nbytes, &error), &error);
        report(memcmp(want, got, nbytes) == 0, "expand", &g, 0);
        tcq_cuda_free(gpu, d);
        free(want);
        free(got);
    }
    layer_free(&l);
}

/* Fast and wide products: |y - exact| <= relative * sum |w x|. */
static void check_bound(struct tcq_geometry g, uint32_t m, enum tcq_operation operation,
                        double relative)
{
    struct tcq_error error = {0};
    struct layer l = layer_make(g);
    const size_t in = tcq_geometry_in(&g), out = tcq_geometry_out(&g);
    void *d_x;
    float *x = inputs_make(m * in, &d_x), *y = allocate(m * out * 4);
    float *w = allocate(g.rows * g.cols * 4);
    void *d_y = to_gpu(y, m * out * 4);
    tcq_reference_expand(w, TCQ_DTYPE_F32, g.cols, &l.host, 0, g.rows);
    const struct tcq_cuda_product p = {.tensor = &l.device,
                                       .operation = operation,
                                       .m = m,
                                       .x = {d_x, TCQ_DTYPE_BF16, in},
                                       .y = {d_y, TCQ_DTYPE_F32, out}};
    must(tcq_cuda_multiply(gpu, &p, NULL, &error), &error);
    must(tcq_cuda_wait(gpu, NULL, &error), &error);
    must(tcq_cuda_download(gpu, y, d_y, m * out * 4, &error), &error);
    bool good = true;
    for (size_t i = 0; i < m; i++)
        for (size_t o = 0; o < out; o++) {
            double sum = 0.0, size = 0.0;
            for (size_t c = 0; c < in; c++) {
                double v = (double)w[g.axis ? o * in + c : c * out + o] * (double)x[i * in + c];
                sum += v;
                size += fabs(v);
            }
            good = good && fabs((double)y[i * out + o] - sum) <= relative * size;
        }
    report(good, tcq_operation_name(operation), &g, m);
    tcq_cuda_free(gpu, d_x);
    tcq_cuda_free(gpu, d_y);
    free(x);
    free(y);
    free(w);
    layer_free(&l);
}

/* A row of zeros, an outlier, ties, a scale that underflows, and the rest normal. */
static float *source_make(size_t rows, size_t cols)
{
    float *src = allocate(rows * cols * 4);
    for (size_t i = 0; i < rows * cols; i++)
        src[i] = random_normal() * 0.02f;
    memset(src, 0, cols * 4);
    src[cols + 5] = 3.0f;
    for (size_t i = 0; i < cols; i++) {
        src[2 * cols + i] = i % 3 ? 0.25f : -0.25f;
        src[3 * cols + i] *= 0x1p-26f;
    }
    return src;
}

struct packed {
    uint32_t *words;
    uint16_t *scales;
};

/* Device memory to device memory. */
static void check_encoder_device(const struct tcq_encoder_options *options,
                                 const struct tcq_geometry *g, const float *src,
                                 const struct packed *want)
{
    struct tcq_error error = {0};
    const size_t words = tcq_geometry_words(g), weights = g->rows * g->cols;
    size_t work_nbytes = 0;
    uint32_t *got = allocate(words * 4), bad_row = 0;
    uint16_t *got_scales = allocate(g->rows * 2);
    must(tcq_cuda_encode_work_nbytes(gpu, options, &work_nbytes, &error), &error);
    struct tcq_cuda_encode job = {.options = *options,
                                  .rows = g->rows,
                                  .cols = g->cols,
                                  .d_src = to_gpu(src, weights * 4),
                                  .src_stride = g->cols,
                                  .d_words = to_gpu(got, words * 4),
                                  .d_scales = to_gpu(got_scales, g->rows * 2),
                                  .d_bad_row = to_gpu(&bad_row, 4)};
    if (work_nbytes)
        must(tcq_cuda_alloc(gpu, work_nbytes, &job.d_work, &error), &error);
    must(tcq_cuda_encode(gpu, &job, NULL, &error), &error);
    download(got, job.d_words, words * 4);
    download(got_scales, job.d_scales, g->rows * 2);
    download(&bad_row, job.d_bad_row, 4);
    report(bad_row == UINT32_MAX && !memcmp(want->scales, got_scales, g->rows * 2), "scales", g, 0);
    report(!memcmp(want->words, got, words * 4), "encoder", g, 0);
    void *device[] = {(void *)(uintptr_t)job.d_src, job.d_words, job.d_scales, job.d_bad_row,
                      job.d_work};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        tcq_cuda_free(gpu, device[i]);
    free(got);
    free(got_scales);
}

/* Host to host, in two calls of other sizes, and a row without a scale. */
static void check_encoder_host(const struct tcq_encoder_options *options,
                               const struct tcq_geometry *g, float *src, const struct packed *want)
{
    struct tcq_error error = {0};
    const size_t words = tcq_geometry_words(g), rows = g->rows, cols = g->cols;
    uint32_t *got = allocate(words * 4);
    uint16_t *scales = allocate(rows * 2);
    struct tcq_cuda_encoder *on_gpu = NULL;
    must(tcq_cuda_encoder_create(gpu, options, &on_gpu, &error), &error);
    must(tcq_cuda_encode_rows(on_gpu, got, scales, src, 2, cols, cols, NULL, NULL, &error), &error);
    must(tcq_cuda_encode_rows(on_gpu, got + words / rows * 2, scales + 2, src + 2 * cols, rows - 2,
                              cols, cols, NULL, NULL, &error),
         &error);
    report(!memcmp(want->scales, scales, rows * 2) && !memcmp(want->words, got, words * 4),
           "encoder, host to host", g, 0);
    src[(rows - 2) * cols + 3] = INFINITY;
    char where[64];
    snprintf(where, sizeof where, "row %zu, column 3", rows - 2);
    report(tcq_cuda_encode_rows(on_gpu, got, scales, src, rows, cols, cols, NULL, NULL, &error) ==
                   TCQ_ERROR_VALUE &&
               strstr(error.message, where),
           "encoder, a weight that is infinite", g, 0);
    tcq_cuda_encoder_destroy(on_gpu);
    free(got);
    free(scales);
}

static void check_encoder(struct tcq_context *context, struct tcq_encoder_options options,
                          uint64_t rows, uint64_t cols)
{
    struct tcq_error error = {0};
    const struct tcq_geometry g = {.k = options.k, .L = options.L, .T = options.T, .axis = 1,
                                   .rows = rows, .cols = cols};
    float *src = source_make(rows, cols);
    const struct packed want = {allocate(tcq_geometry_words(&g) * 4), allocate(rows * 2)};
    struct tcq_encoder *encoder = NULL;
    must(tcq_encoder_create(context, &options, &encoder, &error), &error);
    must(tcq_encode_rows(encoder, want.words, want.scales, src, rows, cols, cols, NULL, NULL,
                         &error),
         &error);
    tcq_encoder_destroy(encoder);
    check_encoder_device(&options, &g, src, &want);
    check_encoder_host(&options, &g, src, &want);
    free(src);
    free(want.words);
    free(want.scales);
}

static void check_all_encoders(struct tcq_context *context, bool brief)
{
    for (uint32_t k = brief ? 3 : 1; k <= (brief ? 3 : 6); k++) {
        for (uint32_t T = 64; T <= 256; T *= 2)
            check_encoder(context, (struct tcq_encoder_options){.k = k, .L = 12, .T = T}, 9, 768);
        for (uint32_t L = brief ? 13 : 8; L <= (brief ? 13 : 16); L++)
            check_encoder(context,
                          (struct tcq_encoder_options){.k = k, .L = L, .T = 64u << (k + L) % 3,
                                                       .scale = L % 2 ? TCQ_SCALE_FIT
                                                                      : TCQ_SCALE_RMS},
                          brief ? 4 : 7, brief || L > 13 ? 256 : 512);
    }
    /* Rows of several tiles, some with far outliers, some without. */
    check_encoder(context, (struct tcq_encoder_options){.k = 2, .L = 12, .T = 64,
                                                        .scale = TCQ_SCALE_FIT}, 70, 1088);
}

static struct tcq_geometry geometry(uint32_t axis, uint32_t k, uint32_t L, uint32_t T,
                                    uint64_t rows, uint64_t cols)
{
    return (struct tcq_geometry){.k = k, .L = L, .T = T, .axis = axis, .rows = rows, .cols = cols};
}

static void check_all_reference(void)
{
    static const uint32_t Ts[] = {64, 128, 256}, Ls[] = {8, 12, 16};
    for (uint32_t k = 1; k <= 6; k++)
        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t T = Ts[i], L = Ls[(k + i) % 3], m = 1 + (k + i) % 4;
            check_reference(geometry(1, k, L, T, 37, 5 * T), TCQ_OPERATION_REDUCE, m, 0);
            check_reference(geometry(0, k, L, T, 300, 3 * T), TCQ_OPERATION_SCATTER, m, i ? 7 : 0);
            check_reference(geometry(1, k, 12, T, 45, 3 * T), TCQ_OPERATION_TILED, 5 + k * i, 0);
            check_reference(geometry(0, k, 12, T, 333, 2 * T), TCQ_OPERATION_SPLIT_K, 5 + i, 0);
            check_reference(geometry(i & 1, k, 12, T, 64 + i, 2 * T), TCQ_OPERATION_WIDE, 33, 0);
            check_expand(geometry(1, k, L, T, 9, 2 * T));
        }
    for (int layout = 0; layout < 2; layout++)
        for (uint32_t m = 1; m <= 4; m++) {
            struct tcq_geometry g = geometry(0, 3, 12, 256, 401, 1024);
            g.layout = layout ? TCQ_LAYOUT_INTERLEAVED : TCQ_LAYOUT_ROW_MAJOR;
            check_reference(g, TCQ_OPERATION_SCATTER, m, 0);
            check_reference(g, TCQ_OPERATION_SCATTER_BALANCED, m, 0);
            check_reference(g, TCQ_OPERATION_SCATTER_TABLE, m, 0);
            check_reference(g, TCQ_OPERATION_SPLIT_K, m + 4, 0);
            check_expand(g);
        }
    for (uint32_t k = 2; k <= 4; k++)
        for (int tail = 0; tail < 2; tail++) {
            check_gate_up(k, 3, (enum tcq_swiglu)tail, TCQ_DTYPE_BF16);
            check_gate_up(3, k, (enum tcq_swiglu)tail, TCQ_DTYPE_F16);
        }
}

static void check_refusals(void)
{
    struct tcq_error error = {0};
    struct layer l = layer_make(geometry(1, 3, 12, 256, 16, 256));
    struct tcq_cuda_product p = {.tensor = &l.device, .m = 0};
    report(tcq_cuda_multiply(gpu, &p, NULL, &error) == TCQ_ERROR_ARGUMENT, "null pointers",
           &l.host.geometry, 0);
    float y[16] = {0};
    void *d = to_gpu(y, sizeof y);
    p.x = (struct tcq_vectors){d, TCQ_DTYPE_F32, 256};
    p.y = (struct tcq_vectors){d, TCQ_DTYPE_F32, 16};
    report(tcq_cuda_multiply(gpu, &p, NULL, &error) == TCQ_ERROR_ARGUMENT, "m = 0",
           &l.host.geometry, 0);
    p.m = 1;
    p.operation = TCQ_OPERATION_SCATTER;
    report(tcq_cuda_multiply(gpu, &p, NULL, &error) == TCQ_ERROR_UNSUPPORTED, "wrong axis",
           &l.host.geometry, 1);
    p.operation = TCQ_OPERATION_AUTO;
    p.x.stride = 255;
    report(tcq_cuda_multiply(gpu, &p, NULL, &error) == TCQ_ERROR_ARGUMENT, "short stride",
           &l.host.geometry, 1);
    tcq_cuda_free(gpu, d);
    layer_free(&l);
}

int main(int argc, char **argv)
{
    struct tcq_error error = {0};
    const bool brief = argc > 1 && !strcmp(argv[1], "brief"); /* under compute-sanitizer */
    if (tcq_cuda_create(NULL, &gpu, &error) != TCQ_OK) {
        printf("SKIPPED: %s\n", error.message);
        return 77;
    }
    printf("%s, seed %llu\n", tcq_cuda_name(gpu), (unsigned long long)seed);
    struct tcq_context *context = NULL;
    must(tcq_context_create(NULL, &context, &error), &error);
    check_refusals();
    if (!brief) {
        check_all_reference();
        check_all_gate_up();
    }
    check_all_encoders(context, brief);
    for (uint32_t axis = 0; axis < 2; axis++)
        for (uint32_t k = 2; k <= 4; k++) {
            const struct tcq_geometry g = geometry(axis, k, 12, 256, axis ? 300 : 528, 512);
            const double bound = (double)tcq_geometry_in(&g) * 0x1p-24;
            for (uint32_t m = 1; m <= 32; m = m * 2 + 1)
                check_bound(g, m, TCQ_OPERATION_SMALL, bound);
            check_bound(g, 40, TCQ_OPERATION_SMALL, bound); /* two sets of columns */
            if (!brief) /* weights and x rounded to bf16, 2^-9 each, on some GPUs */
                for (uint32_t m = 40; m <= 400; m = m * 3 + 1)
                    check_bound(g, m, m < 300 ? TCQ_OPERATION_WIDE : TCQ_OPERATION_AUTO, 0x1p-8);
        }
    printf("%d checks, %d failures\n", checks, failures);
    tcq_context_destroy(context);
    tcq_cuda_destroy(gpu);
    return failures || !checks;
}
