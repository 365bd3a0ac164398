/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring the encoder on Gaussian weights.  The limit is three operations
 * a state and position of either pass (a multiply-add, an addition, a maximum),
 * all at the rate at which one thread does multiply-adds.
 */
#include "bench_encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_probe.h"
#include "replace.h"

enum {
    COLS = 4096,
    ROWS_MIN = 16,     /* 65,536 weights: the error is within 1 % for k <= 4 */
    ROWS_A_THREAD = 4, /* 64 blocks of 256: the last to finish is 2 % late */
    ROUNDS_MIN = 5,
    ROUNDS_MAX = 31,
    FMA_ROUNDS = 200000, /* about 2 ms */
    OPERATIONS = 3       /* a state-step */
};
static const double budget_s = 1.0; /* of the rounds of one line, after the first six */

/* What one line is measured with: all threads, one thread, plain C. */
struct encoders {
    struct tcq_context *all, *one, *plain;
    struct tcq_encoder *on_all, *on_one, *on_plain;
};

struct data {
    float *weights, *decoded;
    uint32_t *words;
    uint16_t *scales;
    size_t rows;
};

struct line {
    const char *isa;
    uint32_t k, L, T, threads;
    double all_mweights, scaling;                     /* all threads, by the clock */
    double one_mweights, gsteps, share, ratio_scalar; /* one thread, of its own time */
    double mse;
    size_t nbytes;
};

/* ---- set-up ---------------------------------------------------------------- */

/* Standard normal from a fixed seed (splitmix64, Box and Muller). */
static void fill_normal(float *x, size_t count)
{
    uint64_t state = 1;
    double uniform[2];
    for (size_t i = 0; i < count; i++) {
        for (int part = 0; part < 2; part++) {
            uint64_t z = state += 0x9e3779b97f4a7c15u;
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
            uniform[part] = ((double)((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
        }
        x[i] = (float)(sqrt(-2.0 * log(uniform[0])) * cos(6.283185307179586 * uniform[1]));
    }
}

static int data_create(struct data *d, uint32_t threads)
{
    d->rows = ROWS_A_THREAD * threads > ROWS_MIN ? ROWS_A_THREAD * threads : ROWS_MIN;
    size_t count = d->rows * COLS;
    d->weights = malloc(count * sizeof(float));
    d->decoded = malloc(COLS * sizeof(float));
    d->words = malloc(count * TCQ_K_MAX / 8);
    d->scales = malloc(d->rows * sizeof *d->scales);
    if (!d->weights || !d->decoded || !d->words || !d->scales)
        return cli_out_of_memory();
    fill_normal(d->weights, count);
    return CLI_CONTINUE;
}

static void data_destroy(struct data *d)
{
    free(d->weights);
    free(d->decoded);
    free(d->words);
    free(d->scales);
}

static int contexts_create(struct encoders *e, const struct cli_args *args)
{
    struct cli_args one = *args, plain = *args;
    one.threads = plain.threads = 1;
    plain.limit_cpu = true;
    plain.cpu_flags = 0;
    bool made = cli_context(args, &e->all) == TCQ_OK && cli_context(&one, &e->one) == TCQ_OK &&
                cli_context(&plain, &e->plain) == TCQ_OK;
    return made ? CLI_CONTINUE : CLI_FAILED;
}

static void contexts_destroy(struct encoders *e)
{
    tcq_context_destroy(e->all);
    tcq_context_destroy(e->one);
    tcq_context_destroy(e->plain);
}

static int encoders_create(struct encoders *e, uint32_t k, uint32_t L, uint32_t T)
{
    struct tcq_encoder_options options = {k, L, T, TCQ_SCALE_RMS};
    struct tcq_error error;
    bool made = tcq_encoder_create(e->all, &options, &e->on_all, &error) == TCQ_OK &&
                tcq_encoder_create(e->one, &options, &e->on_one, &error) == TCQ_OK &&
                tcq_encoder_create(e->plain, &options, &e->on_plain, &error) == TCQ_OK;
    return made ? CLI_CONTINUE : cli_fail(NULL, &error);
}

static void encoders_destroy(struct encoders *e)
{
    tcq_encoder_destroy(e->on_all);
    tcq_encoder_destroy(e->on_one);
    tcq_encoder_destroy(e->on_plain);
    e->on_all = e->on_one = e->on_plain = NULL;
}

/* ---- measuring --------------------------------------------------------------- */

/* Seconds of the calling thread's processor: what else runs there does not count. */
static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* float32 multiply-adds a second of one thread. */
static double fma_rate(const struct tcq_context *context)
{
    const struct bench_probe *probe = bench_probe_select(tcq_context_cpu_flags(context));
    volatile float sink;
    double start = processor_seconds();
    sink = probe->fma(FMA_ROUNDS);
    (void)sink;
    return (double)FMA_ROUNDS * probe->fma_round / (processor_seconds() - start);
}

/* Weights a second of one call by the given clock. */
static double encode_rate(struct tcq_encoder *encoder, struct data *d, size_t rows, size_t cols,
                          double (*seconds)(void))
{
    double start = seconds();
    enum tcq_status status = tcq_encode_rows(encoder, d->words, d->scales, d->weights, rows, cols,
                                             COLS, NULL, NULL, NULL);
    double took = seconds() - start;
    return status == TCQ_OK ? (double)(rows * cols) / took : 0.0;
}

static double relative_mse(const struct line *line, struct data *d)
{
    struct tcq_tensor tensor = {
        {line->k, line->L, line->T, 1, TCQ_LAYOUT_ROW_MAJOR, d->rows, COLS}, d->words, d->scales};
    double error = 0.0, power = 0.0;
    for (size_t row = 0; row < d->rows; row++) {
        tcq_decode_row(d->decoded, TCQ_DTYPE_F32, &tensor, row);
        for (size_t i = 0; i < COLS; i++) {
            double weight = (double)d->weights[row * COLS + i];
            double difference = weight - (double)d->decoded[i];
            error += difference * difference;
            power += weight * weight;
        }
    }
    return error / power;
}

static void keep_best(double *best, double rate)
{
    *best = rate > *best ? rate : *best;
}

/* Short calls in turns, and the best of each: whatever else runs on the machine
 * can only slow a call down.  A call on one thread runs in the calling one. */
static void measure(struct line *line, struct encoders *e, struct data *d)
{
    double steps = 2.0 * (double)(1u << line->L), end = 0.0; /* state-steps a weight */
    double fma = 0.0, all = 0.0, one = 0.0, one_wall = 0.0, plain = 0.0;
    size_t rows = ROWS_A_THREAD * line->threads;
    bool encoded = encode_rate(e->on_all, d, d->rows, COLS, cli_seconds) > 0;
    line->mse = encoded ? relative_mse(line, d) : (double)NAN;
    for (int round = 0; round < ROUNDS_MIN || cli_seconds() < end; round++) {
        keep_best(&fma, fma_rate(e->one));
        keep_best(&one, encode_rate(e->on_one, d, 1, COLS, processor_seconds));
        keep_best(&one_wall, encode_rate(e->on_one, d, ROWS_A_THREAD, COLS, cli_seconds));
        keep_best(&all, encode_rate(e->on_all, d, rows, COLS, cli_seconds));
        if (round < ROUNDS_MIN)
            keep_best(&plain, encode_rate(e->on_plain, d, 1, 2 * line->T, processor_seconds));
        if (round == ROUNDS_MIN - 1)
            end = cli_seconds() + budget_s;
    }
    line->all_mweights = all * 1e-6;
    line->scaling = all / (one_wall * line->threads);
    line->one_mweights = one * 1e-6;
    line->gsteps = one * steps * 1e-9;
    line->share = one * steps * OPERATIONS / fma;
    line->ratio_scalar = one / plain;
}

/* ---- report -------------------------------------------------------------------- */

static void print_line(const struct line *line)
{
    printf("%-7s %2u %2u %4u %9.3f %9.2f %7.1f %6.1f %7u %9.3f %8.2f %9.6f %12.0f\n", line->isa,
           line->L, line->k, line->T, line->one_mweights, line->gsteps, 100 * line->share,
           line->ratio_scalar, line->threads, line->all_mweights, line->scaling, line->mse,
           (double)line->nbytes / 1024);
    fflush(stdout);
}

static int add_json(json_t *rows, const struct line *line)
{
    json_t *row = json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:f, s:I}", "op", "encode",
        "isa", line->isa, "L", (int)line->L, "k", (int)line->k, "T", (int)line->T,
        "one_thread_mweights_per_s", line->one_mweights, "one_thread_gsteps_per_s", line->gsteps,
        "share_of_limit", line->share, "ratio_to_scalar", line->ratio_scalar, "threads",
        (int)line->threads, "mweights_per_s", line->all_mweights, "scaling", line->scaling,
        "relative_mse", line->mse, "encoder_nbytes", (json_int_t)line->nbytes);
    return json_array_append_new(rows, row) != 0 ? cli_out_of_memory() : CLI_CONTINUE;
}

static int bench_one(struct encoders *e, struct data *d, uint32_t k, uint32_t L, uint32_t T,
                     json_t *rows)
{
    int code = encoders_create(e, k, L, T);
    if (code == CLI_CONTINUE) {
        struct line line = {.isa = tcq_encoder_isa(e->on_all), .k = k, .L = L, .T = T};
        line.threads = tcq_context_threads(e->all);
        line.nbytes = tcq_encoder_nbytes(e->on_all);
        measure(&line, e, d);
        print_line(&line);
        code = add_json(rows, &line);
    }
    encoders_destroy(e);
    return code;
}

int bench_encode(const struct cli_args *args, const uint32_t *bits, size_t bits_count,
                 const uint32_t *L, size_t L_count, uint32_t T, const char *json)
{
    json_t *rows = json_array();
    struct encoders e = {0};
    struct data d = {0};
    int code = rows ? contexts_create(&e, args) : cli_out_of_memory();
    if (code == CLI_CONTINUE)
        code = data_create(&d, tcq_context_threads(e.all));
    if (code == CLI_CONTINUE)
        printf("%-7s %2s %2s %4s %9s %9s %7s %6s %7s %9s %8s %9s %12s\n", "isa", "L", "k", "T",
               "Mw/s core", "Gsteps/s", "%limit", "x C", "threads", "Mw/s", "scaling", "rel. mse",
               "encoder KiB");
    for (size_t l = 0; l < L_count && code == CLI_CONTINUE; l++)
        for (size_t b = 0; b < bits_count && code == CLI_CONTINUE; b++)
            code = bench_one(&e, &d, bits[b], L[l], T, rows);
    if (code == CLI_CONTINUE && json)
        code = replace_json(json, json_incref(rows), JSON_INDENT(1));
    json_decref(rows);
    data_destroy(&d);
    contexts_destroy(&e);
    return code;
}
