/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of a GPU context through tcq.h against the same layers on the CPU: the
 * bytes of reference numerics and of dense weights, a bound for the fast products,
 * biases and every activation type, gate/up, and a captured graph.  Exits with 77
 * where there is no GPU.
 */
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "support/layer.h"

enum { M = 40, SEED = 20 };

static struct tcq_context *gpu, *cpu;
static cudaStream_t stream;
static int checks, failures;

static void must(bool good, const char *what, const struct tcq_error *error)
{
    if (good)
        return;
    fprintf(stderr, "check_linear: %s: %s\n", what, error ? error->message : "failed");
    exit(1);
}

static void cuda(cudaError_t code)
{
    must(code == cudaSuccess, cudaGetErrorString(code), NULL);
}

static void *device_copy(const void *data, size_t nbytes)
{
    void *d = NULL;
    cuda(cudaMalloc(&d, nbytes));
    cuda(data ? cudaMemcpy(d, data, nbytes, cudaMemcpyHostToDevice) : cudaMemset(d, 0xff, nbytes));
    return d;
}

static void report(bool good, const char *what, const struct tcq_geometry *g, uint64_t m,
                   double value)
{
    checks++;
    failures += !good;
    if (!good)
        printf("FAIL %s: axis %u k %u T %u layout %d, %llu x %llu, m %llu: %g\n", what, g->axis,
               g->k, g->T, (int)g->layout, (unsigned long long)g->rows, (unsigned long long)g->cols,
               (unsigned long long)m, value);
}

/* One layer on both sides, and vectors for it. */
struct pair {
    struct tcq_linear *gpu, *cpu;
    uint64_t in, out;
    float *x, *bias;         /* [M][in], of bf16 values; [out] */
    float *want, *got;       /* [M][out] */
    void *d_x, *d_bias, *d_y; /* d_x of type x_type; d_y holds float32 */
    enum tcq_dtype type;
};

static void pair_open(struct pair *p, const struct layer *layer, enum tcq_numerics numerics,
                      enum tcq_dtype type, struct random *r)
{
    struct tcq_error error = {0};
    const struct tcq_linear_options options = {.numerics = numerics};
    *p = (struct pair){.type = type};
    must(!tcq_linear_create(gpu, &layer->tensor, &options, &p->gpu, &error), "create", &error);
    must(!tcq_linear_create(cpu, &layer->tensor, &options, &p->cpu, &error), "create", &error);
    p->in = tcq_geometry_in(&layer->tensor.geometry);
    p->out = tcq_geometry_out(&layer->tensor.geometry);
    p->x = malloc(M * p->in * 4);
    p->bias = malloc(p->out * 4);
    p->want = malloc(M * p->out * 4);
    p->got = malloc(M * p->out * 4);
    void *typed = malloc(M * p->in * 4);
    must(p->x && p->bias && p->want && p->got && typed, "memory", NULL);
    for (size_t i = 0; i < M * p->in; i++)
        p->x[i] = tcq_bf16_to_f32(tcq_bf16_from_f32(random_normal(r)));
    for (size_t i = 0; i < p->out; i++)
        p->bias[i] = random_normal(r);
    tcq_convert_from_f32(typed, type, p->x, M * p->in);
    tcq_convert_to_f32(p->x, typed, type, M * p->in);
    p->d_x = device_copy(typed, M * p->in * tcq_dtype_nbytes(type));
    p->d_bias = device_copy(p->bias, p->out * 4);
    p->d_y = device_copy(NULL, M * p->out * 4);
    free(typed);
}

static void pair_close(struct pair *p)
{
    tcq_linear_destroy(p->gpu);
    tcq_linear_destroy(p->cpu);
    free(p->x);
    free(p->bias);
    free(p->want);
    free(p->got);
    cudaFree(p->d_x);
    cudaFree(p->d_bias);
    cudaFree(p->d_y);
}

static void fetch(struct pair *p, uint64_t m)
{
    cuda(cudaStreamSynchronize(stream));
    size_t nbytes = m * p->out * tcq_dtype_nbytes(p->type);
    void *typed = malloc(nbytes);
    must(typed != NULL, "memory", NULL);
    cuda(cudaMemcpy(typed, p->d_y, nbytes, cudaMemcpyDeviceToHost));
    tcq_convert_to_f32(p->got, typed, p->type, m * p->out);
    free(typed);
}

/* Largest difference over the root mean square of what is wanted. */
static double difference(const struct pair *p, uint64_t m)
{
    double most = 0, sum = 0;
    for (size_t i = 0; i < m * p->out; i++) {
        double d = fabs((double)p->got[i] - (double)p->want[i]);
        most = d > most || d != d ? d : most;
        sum += (double)p->want[i] * (double)p->want[i];
    }
    return most / sqrt(sum / (double)(m * p->out));
}

static void run(struct pair *p, uint64_t m, bool biased)
{
    struct tcq_error error = {0};
    struct tcq_vectors y = {p->d_y, p->type, p->out}, x = {p->d_x, p->type, p->in};
    must(!tcq_linear_forward(p->gpu, m, &y, &x, biased ? p->d_bias : NULL, &error), "forward",
         &error);
}

static void check_product(struct pair *p, const struct tcq_geometry *g, uint64_t m, bool exact,
                          double limit)
{
    struct tcq_error error = {0};
    void *typed = malloc(M * p->out * 4);
    for (int biased = 0; biased < 2; biased++) {
        struct tcq_vectors y = {typed, p->type, p->out}, x = {p->x, TCQ_DTYPE_F32, p->in};
        must(typed && !tcq_linear_forward(p->cpu, m, &y, &x, biased ? p->bias : NULL, &error),
             "forward", &error);
        tcq_convert_to_f32(p->want, typed, p->type, m * p->out);
        run(p, m, biased);
        fetch(p, m);
        double d = difference(p, m);
        report(exact ? d == 0 : d <= limit, biased ? "product with a bias" : "product", g, m, d);
    }
    free(typed);
}

static void check_expand(struct pair *p, const struct tcq_geometry *g, enum tcq_dtype dtype)
{
    struct tcq_error error = {0};
    size_t stride = p->in + 8, nbytes = p->out * stride * tcq_dtype_nbytes(dtype);
    char *want = calloc(nbytes, 1), *got = calloc(nbytes, 1);
    void *d = device_copy(got, nbytes);
    must(!tcq_linear_expand(p->cpu, want, dtype, stride, &error), "expand", &error);
    must(!tcq_linear_expand(p->gpu, d, dtype, stride, &error), "expand", &error);
    cuda(cudaStreamSynchronize(stream));
    cuda(cudaMemcpy(got, d, nbytes, cudaMemcpyDeviceToHost));
    report(memcmp(want, got, nbytes) == 0, "expand", g, 0, 0);
    cudaFree(d);
    free(want);
    free(got);
}

/* The same call by a graph, on new inputs. */
static void check_graph(struct pair *p, const struct tcq_geometry *g)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    run(p, 3, true);
    fetch(p, 3);
    memcpy(p->want, p->got, 3 * p->out * 4);
    cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    run(p, 3, true);
    cuda(cudaStreamEndCapture(stream, &graph));
    cuda(cudaGraphInstantiate(&exec, graph, 0));
    cuda(cudaMemset(p->d_y, 0xff, 3 * p->out * 4));
    cuda(cudaGraphLaunch(exec, stream));
    fetch(p, 3);
    report(memcmp(p->want, p->got, 3 * p->out * 4) == 0, "graph", g, 3, 0);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
}

static void check_gate_up(struct random *r, struct tcq_geometry g)
{
    struct tcq_error error = {0};
    struct layer gate = layer_random(r, g), up;
    g.k = 4;
    up = layer_random(r, g);
    struct pair a, b;
    pair_open(&a, &gate, TCQ_NUMERICS_FAST, TCQ_DTYPE_F32, r);
    pair_open(&b, &up, TCQ_NUMERICS_FAST, TCQ_DTYPE_F32, r);
    struct tcq_vectors mid = {a.want, TCQ_DTYPE_F32, a.out}, x = {a.x, TCQ_DTYPE_F32, a.in};
    must(!tcq_gate_up_forward(a.cpu, b.cpu, 5, &mid, &x, TCQ_SWIGLU_FUSED, &error), "gate/up",
         &error);
    mid.data = a.d_y;
    x.data = a.d_x;
    must(!tcq_gate_up_forward(a.gpu, b.gpu, 5, &mid, &x, TCQ_SWIGLU_FUSED, &error), "gate/up",
         &error);
    fetch(&a, 5);
    double d = difference(&a, 5);
    report(d < 1e-4, "gate/up", &g, 5, d);
    pair_close(&a);
    pair_close(&b);
    layer_free(&gate);
    layer_free(&up);
}

static void check_layer(struct random *r, struct tcq_geometry g)
{
    static const enum tcq_dtype types[] = {TCQ_DTYPE_F32, TCQ_DTYPE_BF16, TCQ_DTYPE_F16};
    /* A rounding of the outputs; and, above 32 vectors, of weights to bf16. */
    static const double roundings[] = {1e-5, 0x1p-5, 0x1p-8};
    struct layer layer = layer_random(r, g);
    for (size_t i = 0; i < 3; i++)
        for (int reference = 0; reference < 2; reference++) {
            struct pair p;
            pair_open(&p, &layer, reference ? TCQ_NUMERICS_REFERENCE : TCQ_NUMERICS_FAST, types[i],
                      r);
            check_product(&p, &g, 1, reference, roundings[i]);
            check_product(&p, &g, 5, reference, roundings[i]);
            if (!reference)
                check_product(&p, &g, M, false, roundings[i] > 0.02 ? roundings[i] : 0.02);
            if (i == 0 && !reference) {
                check_expand(&p, &g, TCQ_DTYPE_F32);
                check_expand(&p, &g, TCQ_DTYPE_BF16);
                check_graph(&p, &g);
            }
            pair_close(&p);
        }
    layer_free(&layer);
}

static void check_refusals(void)
{
    struct random r = {SEED};
    struct tcq_error error = {0};
    struct tcq_linear *linear = NULL;
    struct tcq_geometry g = {2, 12, 256, 1, TCQ_LAYOUT_ROW_MAJOR, 16, 256};
    struct layer layer = layer_random(&r, g);
    const struct tcq_linear_options int8 = {.activations = TCQ_ACTIVATIONS_INT8};
    const struct tcq_linear_options other = {.operation = TCQ_OPERATION_WIDE_INT16};
    report(tcq_linear_create(gpu, &layer.tensor, &int8, &linear, &error) == TCQ_ERROR_UNSUPPORTED,
           "int8 refused", &g, 0, 0);
    report(tcq_linear_create(gpu, &layer.tensor, &other, &linear, &error) == TCQ_ERROR_UNSUPPORTED,
           "wide-int16 refused", &g, 0, 0);
    report(tcq_context_set_stream(cpu, NULL) == TCQ_ERROR_ARGUMENT, "a stream for a CPU", &g, 0, 0);
    layer_free(&layer);
}

int main(void)
{
    struct tcq_error error = {0};
    const struct tcq_context_options on_gpu = {.device = TCQ_DEVICE_CUDA};
    enum tcq_status status = tcq_context_create(&on_gpu, &gpu, &error);
    if (status == TCQ_ERROR_DEVICE) {
        printf("check_linear: skipped: %s\n", error.message);
        return 77;
    }
    must(!status && !tcq_context_create(NULL, &cpu, &error), "context", &error);
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must(!tcq_context_set_stream(gpu, stream), "stream", NULL);
    struct random r = {SEED};
    printf("check_linear: seed %d\n", SEED);
    for (uint32_t axis = 0; axis < 2; axis++)
        for (uint32_t k = 2; k <= 4; k++) {
            check_layer(&r, (struct tcq_geometry){k, 12, 256, axis, TCQ_LAYOUT_ROW_MAJOR, 300, 768});
            check_layer(&r, (struct tcq_geometry){k, 12, 64, axis, TCQ_LAYOUT_ROW_MAJOR, 130, 192});
        }
    check_layer(&r, (struct tcq_geometry){3, 12, 256, 0, TCQ_LAYOUT_INTERLEAVED, 300, 1024});
    check_gate_up(&r, (struct tcq_geometry){3, 12, 256, 1, TCQ_LAYOUT_ROW_MAJOR, 300, 768});
    check_refusals();
    tcq_context_destroy(cpu);
    tcq_context_destroy(gpu);
    cudaStreamDestroy(stream);
    printf("check_linear: %d checks, %d failures\n", checks, failures);
    return failures != 0 || checks == 0;
}
