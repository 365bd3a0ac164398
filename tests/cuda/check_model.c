/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models on the GPU against the CPU: check_model [brief] MODEL...
 * For each: logits of batches that the small and the wide products take, the
 * bytes of a graph against those without one, the choice on the GPU against the
 * logits, and greedy text.  Exits with 77 where there is no GPU.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/cuda/gpu.h"

/* Largest difference of logits over the largest logit: up to 32 vectors both sides
 * multiply integers by inputs of 22 bits or more, and what differs is the order of
 * sums, which a rounding of the cache to binary16 can enlarge; above, the GPU's
 * products round weights and inputs to bf16, layer after layer. */
#define SMALL_LIMIT 5e-3
#define WIDE_LIMIT 1e-1

static size_t prompt = 150; /* tokens; brief: few, for the sanitizer's sake */

enum { PROMPT = 150, BRIEF = 6, SMALL_BATCH = 16, ANSWER = 48, CONTEXT = 1024, LONG = 700 };

struct side {
    struct tcq_context *context;
    struct tcq_model *model;
    struct tcq_session *session;
    struct tcq_sampler *sampler;
    uint32_t vocab;
};

static int failures;

static void fail_on(enum tcq_status status, const char *what, const struct tcq_error *error)
{
    if (status == TCQ_OK)
        return;
    fprintf(stderr, "check_model: %s: %s\n", what, error->message);
    exit(1);
}

static void open_side(struct side *side, enum tcq_device device, const char *path)
{
    struct tcq_error error = {0};
    const struct tcq_context_options options = {.device = device};
    const struct tcq_sampler_options greedy = {0};
    enum tcq_status status = tcq_context_create(&options, &side->context, &error);
    if (status == TCQ_ERROR_DEVICE) {
        printf("check_model: skipped: %s\n", error.message);
        exit(77);
    }
    fail_on(status, "context", &error);
    fail_on(tcq_model_load(side->context, path, NULL, &side->model, &error), path, &error);
    side->vocab = tcq_model_get_info(side->model)->vocab;
    fail_on(tcq_sampler_create(&greedy, side->vocab, &side->sampler, &error), path, &error);
}

static void new_session(struct side *side, uint32_t batch)
{
    struct tcq_error error = {0};
    uint32_t positions = tcq_model_get_info(side->model)->positions;
    const struct tcq_session_options options = {
        .context = positions < CONTEXT ? positions : CONTEXT, .batch = batch};
    tcq_session_destroy(side->session);
    side->session = NULL;
    fail_on(tcq_session_create(side->model, &options, &side->session, &error), "session", &error);
}

static void close_side(struct side *side)
{
    tcq_sampler_destroy(side->sampler);
    tcq_session_destroy(side->session);
    tcq_model_destroy(side->model);
    tcq_context_destroy(side->context);
}

static void forward(struct side *side, const uint32_t *tokens, size_t count, float *logits)
{
    struct tcq_error error = {0};
    fail_on(tcq_session_forward(side->session, tokens, count, TCQ_LOGITS_ALL, logits, &error),
            "forward", &error);
}

static double difference(const float *a, const float *b, size_t count)
{
    double most = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)a[i] - (double)b[i]), v = fabs((double)a[i]);
        most = d > most || d != d ? d : most;
        largest = v > largest ? v : largest;
    }
    return most / largest;
}

static void report(const char *path, const char *what, bool good, double value)
{
    printf("%s %-40s %-44s %.2e\n", good ? "ok  " : "FAIL", what, path, value);
    failures += !good;
}

static uint32_t likeliest(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* Logits of every position, in batches of `batch`. */
static void check_logits(struct side *cpu, struct side *gpu, const char *path,
                         const uint32_t *tokens, uint32_t batch, double limit)
{
    size_t count = prompt * cpu->vocab;
    float *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b);
    if (!a || !b)
        exit(1);
    char what[64];
    new_session(cpu, batch);
    new_session(gpu, batch);
    forward(cpu, tokens, prompt, a);
    forward(gpu, tokens, prompt, b);
    double d = difference(a, b, count);
    snprintf(what, sizeof what, "logits in batches of %u", batch);
    report(path, what, d <= limit, d);
    free(a);
    free(b);
}

/* One token at a time: the graph, no graph, and a batch of one by itself agree in
 * every byte; the choice made on the GPU is that of the logits. */
static void check_graph(struct side *gpu, const char *path, const uint32_t *tokens)
{
    struct tcq_error error = {0};
    size_t vocab = gpu->vocab, nbytes = vocab * sizeof(float);
    float *logits[2] = {malloc(prompt * nbytes), malloc(prompt * nbytes)};
    size_t choices = 0;
    if (!logits[0] || !logits[1])
        exit(1);
    for (int graph = 0; graph < 2; graph++) {
        new_session(gpu, SMALL_BATCH);
        ((struct gpu_session *)gpu->session->on_device)->no_graph = !graph;
        for (size_t i = 0; i < prompt; i++) {
            float *to = logits[graph] + i * vocab;
            uint32_t token;
            forward(gpu, tokens + i, 1, to);
            fail_on(gpu->model->device->choose(gpu->session, &token, &error), "choice", &error);
            choices += token == likeliest(to, gpu->vocab);
        }
    }
    bool captured = ((struct gpu_session *)gpu->session->on_device)->decode[0] != NULL;
    report(path, "a graph and none: the same bytes",
           captured && memcmp(logits[0], logits[1], prompt * nbytes) == 0, 0);
    report(path, "choices on the GPU", choices == 2 * prompt, (double)choices);
    free(logits[0]);
    free(logits[1]);
}

/* Tokens drawn on the GPU, by graphs that come and go with the rules, are those that
 * the sampler draws from the GPU's logits. */
static void check_draws(struct side *gpu, const char *path, const uint32_t *tokens)
{
    static const struct tcq_sampler_options options[] = {
        {.temperature = 1.5f, .top_k = 40, .top_p = 0.9f, .seed = 1},
        {.temperature = 3.0f, .seed = 2},
        {.temperature = 1.0f, .top_p = 0.5f, .seed = 3},
        {.temperature = 0},
        {.temperature = 2.0f, .top_k = 5, .min_p = 0.1f, .seed = 4}};
    enum { EACH = 4, WAYS = sizeof options / sizeof *options, DRAWS = 2 * EACH * WAYS };
    struct tcq_error error = {0};
    uint32_t drawn[DRAWS], same = 0;
    float *logits = malloc(gpu->vocab * sizeof *logits);
    if (!logits)
        exit(1);
    for (int host = 0; host < 2; host++) {
        struct tcq_sampler *samplers[WAYS] = {0};
        const uint32_t *fed = tokens;
        size_t count = BRIEF; /* first a prompt, then its continuation a token at a time */
        new_session(gpu, SMALL_BATCH);
        for (size_t i = 0; i < DRAWS; i++, count = 1) {
            struct tcq_sampler **sampler = &samplers[i / EACH % WAYS];
            uint32_t token = 0;
            if (!*sampler)
                fail_on(tcq_sampler_create(&options[i / EACH % WAYS], gpu->vocab, sampler, &error),
                        path, &error);
            if (!host) {
                fail_on(tcq_session_next(gpu->session, *sampler, fed, count, &token, &error), path,
                        &error);
                drawn[i] = token;
            } else {
                fail_on(tcq_session_forward(gpu->session, fed, count, TCQ_LOGITS_LAST, logits,
                                            &error), path, &error);
                fail_on(tcq_sampler_next(*sampler, logits, &token, &error), path, &error);
                same += token == drawn[i];
            }
            fed = &drawn[i];
        }
        for (size_t i = 0; i < WAYS; i++)
            tcq_sampler_destroy(samplers[i]);
    }
    report(path, "tokens drawn on the GPU", same == DRAWS, (double)same);
    free(logits);
}

/* Greedy text of both.  Where they part, the CPU's logits say how near the two
 * tokens were, and the text goes on with the CPU's. */
static void check_text(struct side *cpu, struct side *gpu, const char *path, const uint32_t *tokens,
                       size_t length)
{
    struct tcq_error error = {0};
    float *logits = malloc(cpu->vocab * sizeof *logits);
    uint32_t a, b, fed[PROMPT];
    double widest = 0;
    unsigned parted = 0;
    char what[64];
    if (!logits)
        exit(1);
    /* As the GPU does up to 128 tokens: batches in which nothing is rounded on a grid. */
    new_session(cpu, length == PROMPT ? 0 : 32);
    new_session(gpu, 0);
    memcpy(fed, tokens, length * sizeof *fed);
    for (size_t i = 0, count = length; i < ANSWER; i++, count = 1) {
        fail_on(tcq_session_forward(cpu->session, fed, count, TCQ_LOGITS_LAST, logits, &error),
                "text", &error);
        fail_on(tcq_session_next(gpu->session, gpu->sampler, fed, count, &b, &error), "text",
                &error);
        a = likeliest(logits, cpu->vocab);
        double gap = ((double)logits[a] - (double)logits[b]) / fabs((double)logits[a]);
        widest = gap > widest ? gap : widest;
        parted += a != b;
        fed[0] = a;
    }
    snprintf(what, sizeof what, "%d tokens after %zu, %u differ", ANSWER, length, parted);
    report(path, what, widest <= (length == PROMPT ? WIDE_LIMIT : SMALL_LIMIT), widest);
    free(logits);
}

/* A context long enough for its positions to be split among blocks. */
static void check_long(struct side *cpu, struct side *gpu, const char *path)
{
    struct tcq_error error = {0};
    struct side *const sides[] = {cpu, gpu};
    float *logits[2] = {malloc(cpu->vocab * sizeof(float)), malloc(cpu->vocab * sizeof(float))};
    uint32_t tokens[LONG];
    if (!logits[0] || !logits[1])
        exit(1);
    for (size_t i = 0; i < LONG; i++)
        tokens[i] = (uint32_t)(i * 7919) % cpu->vocab;
    for (int last = 0; last < 2; last++) {
        for (int i = 0; i < 2; i++) {
            if (!last)
                new_session(sides[i], SMALL_BATCH);
            fail_on(tcq_session_forward(sides[i]->session, tokens, last ? 1 : LONG,
                                        TCQ_LOGITS_LAST, logits[i], &error),
                    "long", &error);
        }
        double d = difference(logits[0], logits[1], cpu->vocab);
        report(path, last ? "one token after 700" : "after 700 tokens", d <= SMALL_LIMIT, d);
    }
    free(logits[0]);
    free(logits[1]);
}

static void check_model(const char *path, bool brief)
{
    struct side cpu = {0}, gpu = {0};
    uint32_t tokens[PROMPT], random = 12345;
    open_side(&gpu, TCQ_DEVICE_CUDA, path);
    open_side(&cpu, TCQ_DEVICE_CPU, path);
    for (size_t i = 0; i < PROMPT; i++) {
        random = random * 1664525u + 1013904223u;
        tokens[i] = (random >> 8) % cpu.vocab;
    }
    check_logits(&cpu, &gpu, path, tokens, SMALL_BATCH, SMALL_LIMIT);
    check_logits(&cpu, &gpu, path, tokens, (uint32_t)prompt, gpu.model->info.packed_modules
                                                       ? WIDE_LIMIT : SMALL_LIMIT);
    check_graph(&gpu, path, tokens);
    check_draws(&gpu, path, tokens);
    if (!brief) {
        check_text(&cpu, &gpu, path, tokens, 100);
        check_text(&cpu, &gpu, path, tokens, PROMPT);
        if (tcq_model_get_info(cpu.model)->positions > LONG)
            check_long(&cpu, &gpu, path);
    }
    close_side(&cpu);
    close_side(&gpu);
}

int main(int argc, char **argv)
{
    bool brief = argc > 1 && strcmp(argv[1], "brief") == 0;
    prompt = brief ? BRIEF : PROMPT;
    for (int i = 1 + brief; i < argc; i++)
        check_model(argv[i], brief);
    if (argc <= 1 + brief) { /* under CTest: whether there is a GPU at all */
        struct tcq_error error = {0};
        struct tcq_context *context = NULL;
        const struct tcq_context_options options = {.device = TCQ_DEVICE_CUDA};
        bool there = tcq_context_create(&options, &context, &error) == TCQ_OK;
        tcq_context_destroy(context);
        printf("check_model: %s\n", there ? "no models given" : error.message);
        return 77;
    }
    printf("check_model: %d failures\n", failures);
    return failures != 0;
}
