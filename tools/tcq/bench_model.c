/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode and prefill of a model in turns with its linear layers alone, on the
 * same buffers' sizes: what is left is attention, norms and the rest.
 */
#include "bench_model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "model/session.h"
#include "replace.h"
#include "tcq_model.h"

enum { PREFILL = 512, DECODE_AT = 128, ROUNDS = 11 };
/* A GPU takes milliseconds a round; its second one captures the graph of a token. */
enum { GPU_ROUNDS = 31, GPU_WARM = 3 };
/* Time that one of the two measurements may take, all rounds together. */
#define SECONDS 8.0

struct model_bench {
    const char *path;
    struct tcq_context *context;
    struct tcq_model *model;
    struct tcq_session *session;
    struct tcq_sampler *sampler; /* takes the likeliest token, as tcq run does */
    uint32_t prefill; /* tokens: PREFILL, or as many as the model takes */
    uint32_t *tokens; /* [prefill] */
    float *logits;    /* [vocab] */
    float *x, *y;     /* [prefill][largest number of features] */
    float *scratch;
    double whole[2], linear[2]; /* seconds a call: decode, prefill; medians */
    double share[2];            /* median of a round's linear / whole */
};

static int compare_doubles(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

/* Every linear layer once for m vectors, as the forward pass does. */
static enum tcq_status run_linear(const struct model_bench *b, uint64_t m, struct tcq_error *error)
{
    const struct tcq_model *model = b->model;
    enum tcq_status status = TCQ_OK;
    if (model->device)
        return tcq_session_linear(b->session, (size_t)m, error);
    for (uint32_t i = 0; i < model->settings.layers && !status; i++) {
        const struct tcq_layer *l = &model->layers[i];
        const struct tcq_weight *weights[] = {&l->q, &l->k, &l->v, &l->o, &l->down,
                                              &l->gate, &l->up};
        bool fused = tcq_layer_is_fused(l);
        for (size_t j = 0; j < (fused ? 5 : 7) && !status; j++)
            status = tcq_weight_forward(weights[j], b->context, model->math, m, b->y, b->x,
                                        b->scratch, error);
        struct tcq_vectors mid = {b->y, TCQ_DTYPE_F32, model->settings.intermediate};
        struct tcq_vectors x = {b->x, TCQ_DTYPE_F32, model->settings.hidden};
        if (!status && fused)
            status = tcq_gate_up_forward(l->gate.linear, l->up.linear, m, &mid, &x,
                                         TCQ_SWIGLU_FUSED, error);
    }
    /* One position's logits, whatever m. */
    return status ? status
                  : tcq_weight_forward(tcq_model_head(model), b->context, model->math, 1,
                                       b->logits, b->x, b->scratch, error);
}

static enum tcq_status run_whole(const struct model_bench *b, uint32_t start, uint32_t m,
                                 struct tcq_error *error)
{
    uint32_t next;
    enum tcq_status status = tcq_session_rewind(b->session, start);
    return status ? status
                  : tcq_session_next(b->session, b->sampler, b->tokens, m, &next, error);
}

/* One round: seconds of m tokens through the model and through its linear layers.
 * Who is first changes from round to round: on a shared machine the second of two
 * often finds it busier. */
static enum tcq_status run_round(const struct model_bench *b, uint32_t start, uint32_t m,
                                 bool linear_first, double *whole, double *linear,
                                 struct tcq_error *error)
{
    enum tcq_status status = TCQ_OK;
    for (int i = 0; i < 2 && !status; i++) {
        bool is_linear = linear_first == (i == 0);
        double begin = cli_seconds();
        status = is_linear ? run_linear(b, m, error) : run_whole(b, start, m, error);
        *(is_linear ? linear : whole) = cli_seconds() - begin;
    }
    return status;
}

/* m tokens through the model and through its linear layers, in turns. */
static int measure(struct model_bench *b, size_t which, uint32_t m)
{
    struct tcq_error error = {0};
    double whole[GPU_ROUNDS], linear[GPU_ROUNDS], share[GPU_ROUNDS], started = cli_seconds();
    uint32_t start = tcq_session_position(b->session);
    size_t rounds = 0, cold = b->model->device ? GPU_WARM : 1;
    size_t most = b->model->device ? GPU_ROUNDS : ROUNDS;
    /* The first round warms up; where it took long already, it counts. */
    while (rounds < most) {
        double *w = &whole[rounds], *l = &linear[rounds];
        if (run_round(b, start, m, rounds % 2 == 1, w, l, &error))
            return cli_fail(b->path, &error);
        if (cold == 0 || *w + *l > SECONDS / 4)
            share[rounds++] = *l / *w;
        cold -= cold > 0;
        if (rounds && (cli_seconds() - started > SECONDS || cli_interrupted()))
            break;
    }
    b->whole[which] = median(whole, rounds);
    b->linear[which] = median(linear, rounds);
    b->share[which] = median(share, rounds);
    return CLI_CONTINUE;
}

static int rewind_to(struct model_bench *b, uint32_t position)
{
    struct tcq_error error = {0};
    return tcq_session_rewind(b->session, position) ? cli_fail(b->path, &error) : CLI_CONTINUE;
}

static int open_bench(struct model_bench *b, const struct cli_args *args)
{
    struct tcq_error error = {0};
    if (cli_context(args, &b->context) != TCQ_OK)
        return CLI_FAILED;
    if (tcq_model_load(b->context, b->path, NULL, &b->model, &error))
        return cli_fail(b->path, &error);
    const struct tcq_settings *s = &b->model->settings;
    struct tcq_session_options options = {.context = PREFILL + DECODE_AT};
    if (options.context > s->positions)
        options.context = s->positions;
    const struct tcq_sampler_options likeliest = {0};
    if (tcq_session_create(b->model, &options, &b->session, &error) ||
        tcq_sampler_create(&likeliest, s->vocab, &b->sampler, &error))
        return cli_fail(b->path, &error);
    b->prefill = options.context < PREFILL ? options.context : PREFILL;
    size_t wide = s->intermediate > s->hidden ? s->intermediate : s->hidden;
    wide = s->heads * s->head_dim > wide ? s->heads * s->head_dim : wide;
    b->tokens = calloc(b->prefill, sizeof *b->tokens);
    b->logits = calloc(s->vocab, sizeof *b->logits);
    b->x = tcq_alloc(b->prefill * wide, sizeof *b->x);
    b->y = tcq_alloc(b->prefill * wide, sizeof *b->y);
    b->scratch = tcq_alloc(b->model->scratch * tcq_context_threads(b->context), sizeof(float));
    if (!b->tokens || !b->logits || !b->x || !b->y || !b->scratch)
        return cli_out_of_memory();
    uint64_t random = 1;
    for (size_t i = 0; i < b->prefill; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        b->tokens[i] = (uint32_t)(random >> 33) % s->vocab;
    }
    for (size_t i = 0; i < b->prefill * wide; i++)
        b->x[i] = (float)((i * 7919) % 2001) / 1000.0f - 1.0f;
    return CLI_CONTINUE;
}

static int report(const struct model_bench *b, const char *json_path)
{
    const struct tcq_model_info *info = tcq_model_get_info(b->model);
    struct rusage usage;
    uint64_t peak = getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
    const uint32_t counts[2] = {1, b->prefill};
    printf("%s: %s parameters, %s stored, ", b->path,
           cli_count_text((double)info->parameters).s, cli_nbytes_text(info->stored_nbytes).s);
    if (b->model->device)
        puts("on the GPU");
    else
        printf("%u threads\n", tcq_context_threads(b->context));
    for (size_t i = 0; i < 2; i++)
        printf("%-8s %4u tokens  %9.2f ms  %8.1f tokens/s  linear layers alone %9.2f ms (%.0f %%)\n",
               i ? "prefill" : "decode", counts[i], 1e3 * b->whole[i],
               (double)counts[i] / b->whole[i], 1e3 * b->linear[i],
               100 * b->share[i]);
    printf("peak memory %s\n", cli_nbytes_text(peak).s);
    if (!json_path)
        return CLI_OK;
    json_t *json = json_pack("{s:o, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "model",
                             cli_json_text(b->path), "device", b->model->device ? "cuda" : "cpu", "threads",
                             (json_int_t)tcq_context_threads(b->context), "stored_nbytes",
                             (json_int_t)info->stored_nbytes, "decode_seconds", b->whole[0],
                             "decode_linear_seconds", b->linear[0], "decode_share", b->share[0],
                             "prefill_seconds", b->whole[1], "prefill_linear_seconds",
                             b->linear[1], "prefill_share", b->share[1], "peak_nbytes",
                             (json_int_t)peak);
    int code = replace_json(json_path, json, JSON_INDENT(2));
    return code == CLI_CONTINUE ? CLI_OK : code;
}

int bench_model(const struct cli_args *args, const char *path, const char *json)
{
    struct model_bench b = {.path = path};
    int code = open_bench(&b, args);
    if (code == CLI_CONTINUE)
        code = measure(&b, 1, b.prefill);
    if (code == CLI_CONTINUE)
        code = rewind_to(&b, DECODE_AT < b.prefill ? DECODE_AT : b.prefill - 1);
    if (code == CLI_CONTINUE)
        code = measure(&b, 0, 1);
    if (code == CLI_CONTINUE)
        code = report(&b, json);
    free(b.tokens);
    free(b.logits);
    tcq_free(b.x);
    tcq_free(b.y);
    tcq_free(b.scratch);
    tcq_sampler_destroy(b.sampler);
    tcq_session_destroy(b.session);
    tcq_model_destroy(b.model);
    tcq_context_destroy(b.context);
    return code;
}
