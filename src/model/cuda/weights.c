/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's weights on the GPU, in one allocation: placed once to learn its size,
 * and a second time to copy.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/cuda/gpu.h"

enum { ALIGNMENT = 256 }; /* as cudaMalloc has it */

/* ---- placing ------------------------------------------------------------------------ */

struct placing {
    struct tcq_cuda *cuda;
    char *base;  /* NULL: only counts */
    size_t used;
    struct tcq_error *error;
    enum tcq_status status; /* the first failure; nothing is copied after it */
};

/* Where nbytes come to lie, right behind what came last. */
static void *place_next(struct placing *p, const void *src, size_t nbytes)
{
    char *to = p->base ? p->base + p->used : NULL;
    p->used += nbytes;
    if (to && p->status == TCQ_OK)
        p->status = tcq_cuda_upload(p->cuda, to, src, nbytes, p->error);
    return to;
}

static void *place(struct placing *p, const void *src, size_t nbytes)
{
    p->used = (p->used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return place_next(p, src, nbytes);
}

static const float *place_vector(struct placing *p, const float *vector, size_t count)
{
    return vector ? place(p, vector, count * sizeof *vector) : NULL;
}

/* ---- weights ------------------------------------------------------------------------- */

static size_t words_nbytes(const struct tcq_geometry *g)
{
    return tcq_geometry_words(g) * sizeof(uint32_t);
}

static struct gpu_weight place_affine(struct placing *p, const struct tcq_weight *w)
{
    const struct tcq_affine *a = &w->affine;
    size_t count = (size_t)w->out * (w->in / a->group);
    struct gpu_weight out = {.form = GPU_AFFINE, .out = w->out, .in = w->in};
    out.bits = a->bits;
    out.group = a->group;
    out.bf16_scales = a->dtype == TCQ_DTYPE_BF16;
    out.data = place(p, a->words, (size_t)w->out * w->in / 8 * a->bits);
    out.scales = place(p, a->scales, count * sizeof *a->scales);
    out.biases = place(p, a->biases, count * sizeof *a->biases);
    return out;
}

static struct gpu_weight place_packed(struct placing *p, const struct tcq_weight *const *weights,
                                      uint32_t count)
{
    const struct tcq_geometry *g = &weights[0]->packed.geometry;
    struct gpu_weight out = {.form = GPU_PACKED, .in = weights[0]->in};
    out.packed.geometry = *g;
    for (uint32_t i = 0; i < count; i++) {
        const struct tcq_tensor *t = &weights[i]->packed;
        size_t nbytes = words_nbytes(&t->geometry);
        void *words = i ? place_next(p, t->words, nbytes) : place(p, t->words, nbytes);
        out.packed.words = i ? out.packed.words : words;
        out.packed.geometry.rows += i ? t->geometry.rows : 0;
        out.out += weights[i]->out;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct tcq_tensor *t = &weights[i]->packed;
        size_t nbytes = (size_t)t->geometry.rows * sizeof *t->scales;
        void *scales = i ? place_next(p, t->scales, nbytes) : place(p, t->scales, nbytes);
        out.packed.scales = i ? out.packed.scales : scales;
    }
    return out;
}

/* Rows that the CPU decodes as it needs them are float32 on the GPU. */
static void *place_rows(struct placing *p, const struct tcq_weight *w)
{
    enum { ROWS = 64 };
    char *to = place(p, NULL, 0);
    float *chunk = to ? tcq_alloc((size_t)ROWS * w->in, sizeof *chunk) : NULL;
    if (to && !chunk && p->status == TCQ_OK)
        p->status = tcq_error_memory(p->error, (size_t)ROWS * w->in * sizeof *chunk, "rows");
    for (uint32_t row = 0; row < w->out; row += ROWS) {
        uint32_t count = w->out - row < ROWS ? w->out - row : ROWS;
        if (to && p->status == TCQ_OK)
            p->status = tcq_weight_read(w, chunk, row, count, p->error);
        place_next(p, chunk, (size_t)count * w->in * sizeof *chunk);
    }
    tcq_free(chunk);
    return to;
}

static struct gpu_weight place_weight(struct placing *p, const struct tcq_weight *w)
{
    if (w->kind == TCQ_WEIGHT_PACKED)
        return place_packed(p, &w, 1);
    if (w->kind == TCQ_WEIGHT_AFFINE)
        return place_affine(p, w);
    struct gpu_weight out = {.out = w->out, .in = w->in};
    out.form = w->dtype == TCQ_DTYPE_F32   ? GPU_F32
               : w->dtype == TCQ_DTYPE_F16 ? GPU_F16
                                           : GPU_BF16;
    out.data = w->kind == TCQ_WEIGHT_ROWS
                   ? place_rows(p, w)
                   : place(p, w->dense, (size_t)w->out * w->in * tcq_dtype_nbytes(w->dtype));
    return out;
}

/* Whether the rows of one can follow those of the other as one matrix. */
static bool rows_continue(const struct tcq_weight *a, const struct tcq_weight *b)
{
    const struct tcq_geometry *g = &a->packed.geometry, *h = &b->packed.geometry;
    return a->kind == TCQ_WEIGHT_PACKED && b->kind == TCQ_WEIGHT_PACKED && g->axis == 1 &&
           h->axis == 1 && g->k == h->k && g->L == h->L && g->T == h->T && g->cols == h->cols;
}

static const float *place_biases(struct placing *p, const struct tcq_weight *const *weights,
                                 uint32_t count)
{
    const float *first = NULL;
    for (uint32_t i = 0; i < count && weights[0]->bias; i++) {
        size_t nbytes = weights[i]->out * sizeof(float);
        void *to = i ? place_next(p, weights[i]->bias, nbytes) : place(p, weights[i]->bias, nbytes);
        first = i ? first : to;
    }
    return first;
}

static struct gpu_product place_product(struct placing *p, const struct tcq_weight *const *weights,
                                        uint32_t count)
{
    struct gpu_product out = {.count = count, .in = weights[0]->in};
    bool one = count > 1;
    for (uint32_t i = 0; i < count; i++) {
        one = one && rows_continue(weights[0], weights[i]);
        out.out += weights[i]->out;
    }
    if (one) {
        out.count = 1;
        out.parts[0] = place_packed(p, weights, count);
    }
    for (uint32_t i = 0; i < count && !one; i++)
        out.parts[i] = place_weight(p, weights[i]);
    out.bias = place_biases(p, weights, count);
    return out;
}

static struct gpu_block place_layer(struct placing *p, const struct tcq_settings *s,
                                    const struct tcq_layer *l)
{
    struct gpu_block out = {
        .attention_norm = place_vector(p, l->attention_norm, s->hidden),
        .mlp_norm = place_vector(p, l->mlp_norm, s->hidden),
        .q_norm = place_vector(p, l->q_norm, s->head_dim),
        .k_norm = place_vector(p, l->k_norm, s->head_dim),
        .qkv = place_product(p, (const struct tcq_weight *[]){&l->q, &l->k, &l->v}, 3),
        .o = place_product(p, (const struct tcq_weight *[]){&l->o}, 1),
        .gate_up = place_product(p, (const struct tcq_weight *[]){&l->gate, &l->up}, 2),
        .down = place_product(p, (const struct tcq_weight *[]){&l->down}, 1),
    };
    return out;
}

static void place_model(struct placing *p, const struct tcq_model *model, struct gpu_model *gpu)
{
    const struct tcq_settings *s = &model->settings;
    gpu->embedding = place_product(p, (const struct tcq_weight *[]){&model->embedding}, 1);
    if (!s->tied)
        gpu->separate_head =
            place_product(p, (const struct tcq_weight *[]){&model->separate_head}, 1);
    gpu->head = s->tied ? &gpu->embedding : &gpu->separate_head;
    gpu->final_norm = place_vector(p, model->final_norm, s->hidden);
    for (uint32_t i = 0; i < s->layers; i++)
        gpu->layers[i] = place_layer(p, s, &model->layers[i]);
}

/* ---- the whole -------------------------------------------------------------------------- */

static enum tcq_status load(struct tcq_model *model, struct gpu_model *gpu,
                            struct tcq_error *error)
{
    const struct tcq_settings *s = &model->settings;
    if (s->head_dim > GPU_HEAD_MAX)
        return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                             "heads of %u components: the GPU has up to %d", s->head_dim,
                             GPU_HEAD_MAX);
    gpu->layers = tcq_alloc(s->layers, sizeof *gpu->layers);
    if (!gpu->layers)
        return tcq_error_memory(error, s->layers * sizeof *gpu->layers, "layers");
    struct placing placing = {.cuda = gpu->cuda, .error = error};
    place_model(&placing, model, gpu);
    size_t available = 0, all = 0;
    enum tcq_status status =
        gpu_status(cudaMemGetInfo(&available, &all), "asking for the GPU's memory", error);
    if (!status)
        status = tcq_memory_check(placing.used, available, "the weights need", "GPU memory", error);
    if (!status)
        status = tcq_cuda_alloc(gpu->cuda, placing.used, &gpu->memory, error);
    if (status)
        return status;
    placing.base = gpu->memory;
    placing.used = 0;
    place_model(&placing, model, gpu);
    if (placing.status)
        return placing.status;
    return gpu_status(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking),
                      "creating a stream", error);
}

enum tcq_status gpu_model_load(struct tcq_model *model, struct tcq_error *error)
{
    struct gpu_model *gpu = tcq_alloc(1, sizeof *gpu);
    if (!gpu)
        return tcq_error_memory(error, sizeof *gpu, "a model on the GPU");
    model->on_device = gpu;
    gpu->cuda = ((struct gpu_device *)tcq_context_device(model->context))->cuda;
    return load(model, gpu, error); /* what is half made, the model's own end frees */
}

void gpu_model_unload(struct tcq_model *model)
{
    struct gpu_model *gpu = model->on_device;
    if (gpu->stream)
        cudaStreamDestroy(gpu->stream);
    tcq_cuda_free(gpu->cuda, gpu->memory);
    tcq_free(gpu->layers);
    tcq_free(gpu);
    model->on_device = NULL;
}
