/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens drawn on the GPU against those of the CPU: the same one for every case of
 * logits, rules and seed.  Exits with 77 where there is no GPU.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cuda/cuda.h"
#include "model/cuda/kernels.h"
#include "model/session.h"
#include "support/random.h"

enum { VOCAB_MAX = 151936, KINDS = 9 };

static struct tcq_cuda *gpu;
static struct gpu_state *d_state;
static struct gpu_sampler *d_sampler;
static float *d_logits;
static unsigned checks, failures;
static struct random numbers = {1};

static void must(enum tcq_status status, const struct tcq_error *error)
{
    if (status == TCQ_OK)
        return;
    fprintf(stderr, "check_sample: %s\n", error->message);
    exit(1);
}

static void must_run(cudaError_t code)
{
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "check_sample: %s\n", cudaGetErrorString(code));
    exit(1);
}

static uint32_t random_bits(void)
{
    return (uint32_t)(random_u64(&numbers) >> 32);
}

static const char *const kinds[KINDS] = {"wide", "flat", "many equals", "all equal", "few finite",
                                         "one far above", "all -inf", "an inf", "a NaN"};

static void logits_fill(float *logits, uint32_t vocab, int kind)
{
    const uint32_t at = random_bits() % vocab;
    for (uint32_t i = 0; i < vocab; i++) {
        float v = random_normal(&numbers);
        logits[i] = kind == 0   ? 4.0f * v
                    : kind == 1 ? 12.0f + 0.05f * v
                    : kind == 2 ? rintf(8.0f * v) / 4.0f
                    : kind == 3 ? -0.0f
                    : kind == 4 ? (random_bits() % 64 ? -INFINITY : v)
                    : kind == 5 ? v - 30.0f
                    : kind == 6 ? -INFINITY
                                : v;
        if (kind == 3 && i % 2) /* -0 and 0 are equal */
            logits[i] = 0.0f;
    }
    if (kind >= 4 && kind != 6)
        logits[at] = kind == 4 ? 1.0f : kind == 5 ? 3.0f : kind == 7 ? INFINITY : NAN;
}

static struct tcq_sampler_options options_random(uint32_t vocab)
{
    static const float temperatures[] = {1.0f, 0.7f, 0.05f, 3.0f, 1000.0f, 1e-30f};
    static const float masses[] = {0.0f, 0.95f, 0.5f, 1e-9f, 0.9999999f, 0.1f, 1.0f, 0.999f};
    static const float floors[] = {0.0f, 0.0f, 0.0f, 0.05f, 0.5f, 1.0f, 1e-7f};
    const uint32_t counts[] = {0, 0, 1, 2, 40, 1000, vocab / 2, vocab - 1, vocab, vocab + 7,
                               UINT32_MAX};
    const uint32_t r = random_bits();
    return (struct tcq_sampler_options){.temperature = temperatures[r % 6],
                                        .top_p = masses[(r >> 8) % 8],
                                        .min_p = floors[(r >> 12) % 7],
                                        .top_k = counts[(r >> 20) % 11],
                                        .seed = random_bits()};
}

/* The token, or UINT32_MAX for an error. */
static uint32_t choose_on_gpu(const struct tcq_sampling *sampling, uint32_t vocab)
{
    struct tcq_error error = {0};
    struct gpu_state state;
    must(tcq_cuda_upload(gpu, &d_state->sampling, sampling, sizeof *sampling, &error), &error);
    must_run(gpu_argmax_launch(d_state, d_logits, vocab, NULL));
    must_run(gpu_sample_launch(d_state, d_sampler, d_logits, vocab, sampling->rules, NULL));
    must(tcq_cuda_wait(gpu, NULL, &error), &error);
    must(tcq_cuda_download(gpu, &state, d_state, sizeof state, &error), &error);
    return state.not_a_number ? UINT32_MAX : state.chosen;
}

static void check(const float *logits, uint32_t vocab, int kind,
                  const struct tcq_sampler_options *options)
{
    struct tcq_error error = {0};
    struct tcq_sampler *sampler = NULL;
    must(tcq_sampler_create(options, vocab, &sampler, &error), &error);
    for (int turn = 0; turn < 2; turn++) { /* the second needs what the first must clear */
        const struct tcq_sampling sampling = tcq_sampler_sampling(sampler);
        uint32_t want, got = choose_on_gpu(&sampling, vocab);
        if (tcq_sampler_next(sampler, logits, &want, &error) != TCQ_OK)
            want = UINT32_MAX;
        checks++;
        if (want == got)
            continue;
        failures++;
        printf("FAIL %s, %u tokens, temperature %g, top_k %u, top_p %g, min_p %g, seed %llu: "
               "the GPU chose %u, the CPU %u\n",
               kinds[kind], vocab, (double)options->temperature, options->top_k,
               (double)options->top_p, (double)options->min_p, (unsigned long long)options->seed,
               got, want);
    }
    tcq_sampler_destroy(sampler);
}

static void check_all(float *logits, bool brief)
{
    static const uint32_t vocabs[] = {1, 2, 3, 100, 1023, 1024, 1025, 5000, 49152, VOCAB_MAX};
    struct tcq_error error = {0};
    const size_t sizes = sizeof vocabs / sizeof *vocabs - (brief ? 2 : 0);
    for (size_t v = 0; v < sizes; v++)
        for (int kind = 0; kind < KINDS; kind++) {
            logits_fill(logits, vocabs[v], kind);
            must(tcq_cuda_upload(gpu, d_logits, logits, vocabs[v] * sizeof *logits, &error),
                 &error);
            for (int i = 0; i < (brief ? 4 : 40); i++) {
                const struct tcq_sampler_options options = options_random(vocabs[v]);
                check(logits, vocabs[v], kind, &options);
            }
        }
}

int main(int argc, char **argv)
{
    struct tcq_error error = {0};
    const bool brief = argc > 1 && !strcmp(argv[1], "brief"); /* under compute-sanitizer */
    if (tcq_cuda_create(NULL, &gpu, &error) != TCQ_OK) {
        printf("check_sample: skipped: %s\n", error.message);
        return 77;
    }
    printf("check_sample: %s, seed %llu\n", tcq_cuda_name(gpu), (unsigned long long)numbers.state);
    float *logits = malloc(VOCAB_MAX * sizeof *logits);
    if (!logits)
        return 1;
    const size_t sampler_nbytes = gpu_sampler_nbytes(VOCAB_MAX);
    must_run(cudaMalloc((void **)&d_state, sizeof *d_state));
    must_run(cudaMalloc((void **)&d_sampler, sampler_nbytes));
    must_run(cudaMalloc((void **)&d_logits, VOCAB_MAX * sizeof *d_logits));
    must_run(cudaMemset(d_state, 0, sizeof *d_state));
    must_run(cudaMemset(d_sampler, 0, sampler_nbytes));
    check_all(logits, brief);
    printf("check_sample: %u checks, %u failures\n", checks, failures);
    cudaFree(d_state);
    cudaFree(d_sampler);
    cudaFree(d_logits);
    free(logits);
    tcq_cuda_destroy(gpu);
    return failures || !checks;
}
