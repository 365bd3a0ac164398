/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq bench: how fast layers run on packed weights, beside what the machine can
 * do at most.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench_gpu.h"
#include "bench_model.h"
#include "bench_encode.h"
#include "commands.h"
#include "replace.h"

#ifdef __OPTIMIZE__
static const bool optimized = true;
#else
static const bool optimized = false; /* every timing says so */
#endif

enum { LIST_MAX = 32, SHAPES_MAX = 256 };
enum {
    KEY_OP = CLI_KEY_LONG,
    KEY_SHAPE,
    KEY_BITS,
    KEY_M,
    KEY_AXIS,
    KEY_BLOCK,
    KEY_L,
    KEY_INTERLEAVED,
    KEY_ACTIVATIONS,
    KEY_NO_RATIOS,
    KEY_MEMORY,
    KEY_MODEL,
    KEY_JSON
};

static const struct cli_option option_list[] = {
    {KEY_OP, "op", "NAME", "what to measure (default: auto); the names are above"},
    {KEY_SHAPE, "shape", "WHICH", "OUTxIN weights, or a file of 'M OUT IN' lines"},
    {KEY_BITS, "bits", "LIST", "bits a weight (default: 2,3,4)"},
    {KEY_M, "m", "LIST", "numbers of vectors (default: 1,4,8,32,512, or the file's)"},
    {KEY_AXIS, "axis", "0|1", "coded along the output or the input (default: 0 if OUT < IN)"},
    {KEY_BLOCK, "block", "T", "weights a block: 64, 128, 256 (default: the largest that fits)"},
    {KEY_L, "L", "LIST", "--op encode: log2 of the states, 8 to 16 (default: 12)"},
    {KEY_INTERLEAVED, "interleaved", NULL, "axis 0, 3 bits: the interleaved layout"},
    {KEY_ACTIVATIONS, "activations", "TYPE", "float, int8 or both (default: both)"},
    {KEY_NO_RATIOS, "no-ratios", NULL, "leave plain C and bf16 out: faster"},
    {KEY_MEMORY, "memory", "SIZE", "memory that weights lie in (default: 1GiB)"},
    {KEY_MODEL, "model", "PATH", "instead: whole tokens through every layer of a model"},
    {KEY_JSON, "json", "FILE", "also write the rows and the limits to FILE"},
    {0},
};

/* One layer to measure; m 0: the list of --m. */
struct shape {
    uint64_t out, in;
    uint32_t m;
};

struct options {
    enum bench_op op;
    uint32_t bits[LIST_MAX], m[LIST_MAX], axis, block;
    uint32_t L[LIST_MAX];
    size_t L_count;
    bool encode; /* measures the encoder, not layers */
    size_t bits_count, m_count, shape_count;
    struct shape shapes[SHAPES_MAX];
    bool axis_given, m_given, interleaved, act_float, act_int8, act_given, no_ratios;
    uint64_t memory_nbytes;
    const char *json, *model;
};

/* ---- options ------------------------------------------------------------- */

static int parse_list(const char *option, const char *text, uint32_t max, uint32_t *list,
                      size_t *count)
{
    char *copy = strdup(text), *rest = copy, *item;
    if (!copy)
        return cli_out_of_memory();
    int code = CLI_CONTINUE;
    *count = 0;
    while (code == CLI_CONTINUE && (item = strsep(&rest, ",")))
        code = *count == LIST_MAX ? cli_usage("%s: at most %d numbers", option, LIST_MAX)
                                  : cli_parse_u32(option, item, 1, max, &list[(*count)++]);
    free(copy);
    return code;
}

static int add_shape(struct options *o, const char *where, uint64_t m, uint64_t out, uint64_t in)
{
    if (o->shape_count == SHAPES_MAX)
        return cli_usage("%s: more than %d shapes", where, SHAPES_MAX);
    if (out < 1 || in < 1 || out > 1u << 24 || in > 1u << 24 || m > 65536)
        return cli_usage("%s: sizes from 1 to 16777216 and at most 65536 vectors", where);
    o->shapes[o->shape_count++] = (struct shape){out, in, (uint32_t)m};
    return CLI_CONTINUE;
}

/* Lines 'M OUT IN', with comments after '#'. */
static int read_shapes(struct options *o, const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        cli_message("%s: %s", path, strerror(errno));
        return CLI_FAILED;
    }
    char line[512], where[600];
    int code = CLI_CONTINUE;
    for (unsigned number = 1; code == CLI_CONTINUE && fgets(line, sizeof line, file); number++) {
        unsigned long long m, out, in;
        line[strcspn(line, "#\n")] = '\0';
        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        char extra;
        snprintf(where, sizeof where, "%s:%u", path, number);
        if (sscanf(line, "%llu %llu %llu %c", &m, &out, &in, &extra) != 3)
            code = cli_usage("%s: expected 'M OUT IN'", where);
        else
            code = add_shape(o, where, m, out, in);
    }
    fclose(file);
    return code;
}

static int parse_shape(struct options *o, const char *text)
{
    unsigned long long out, in;
    char extra;
    if (isdigit((unsigned char)*text) && sscanf(text, "%llux%llu%c", &out, &in, &extra) == 2)
        return add_shape(o, "--shape", 0, out, in);
    return read_shapes(o, text);
}

static int parse_op(struct options *o, const char *text)
{
    o->encode = strcmp(text, "encode") == 0;
    if (o->encode)
        return CLI_CONTINUE;
    const char *names[BENCH_OP_COUNT + 1];
    for (int i = 0; i < BENCH_OP_COUNT; i++) {
        names[i] = bench_op_names[i];
        if (strcmp(text, names[i]) == 0) {
            o->op = (enum bench_op)i;
            return CLI_CONTINUE;
        }
    }
    names[BENCH_OP_COUNT] = "encode";
    return cli_usage_names("--op", text, names, BENCH_OP_COUNT + 1);
}

static int parse_L(struct options *o, const char *text)
{
    int code = parse_list("--L", text, TCQ_L_MAX, o->L, &o->L_count);
    for (size_t i = 0; i < o->L_count && code == CLI_CONTINUE; i++)
        if (o->L[i] < TCQ_L_MIN)
            code = cli_usage("--L '%s': expected 8 to 16", text);
    return code;
}

static int parse_activations(struct options *o, const char *text)
{
    bool both = strcmp(text, "both") == 0;
    o->act_given = true;
    o->act_float = both || strcmp(text, "float") == 0;
    o->act_int8 = both || strcmp(text, "int8") == 0;
    if (!o->act_float && !o->act_int8)
        return cli_usage("--activations '%s': expected float, int8 or both", text);
    return CLI_CONTINUE;
}

static int parse_memory(struct options *o, const char *text)
{
    int code = cli_parse_nbytes("--memory", text, &o->memory_nbytes);
    if (code == CLI_CONTINUE &&
        (o->memory_nbytes < BENCH_MEMORY_MIN || o->memory_nbytes > BENCH_MEMORY_MAX))
        code = cli_usage("--memory '%s': expected 16MiB to 64GiB", text);
    return code;
}

static int set_option(void *user, int key, const char *value)
{
    struct options *o = user;
    switch (key) {
    case KEY_OP:
        return parse_op(o, value);
    case KEY_SHAPE:
        return parse_shape(o, value);
    case KEY_BITS:
        return parse_list("--bits", value, TCQ_K_MAX, o->bits, &o->bits_count);
    case KEY_M:
        o->m_given = true;
        return parse_list("--m", value, 65536, o->m, &o->m_count);
    case KEY_AXIS:
        o->axis_given = true;
        return cli_parse_u32("--axis", value, 0, 1, &o->axis);
    case KEY_BLOCK:
        return cli_parse_u32("--block", value, 64, 256, &o->block);
    case KEY_L:
        return parse_L(o, value);
    case KEY_INTERLEAVED:
        o->interleaved = true;
        return CLI_CONTINUE;
    case KEY_ACTIVATIONS:
        return parse_activations(o, value);
    case KEY_NO_RATIOS:
        o->no_ratios = true;
        return CLI_CONTINUE;
    case KEY_MEMORY:
        return parse_memory(o, value);
    case KEY_MODEL:
        o->model = value;
        return CLI_CONTINUE;
    default:
        o->json = value;
        return CLI_CONTINUE;
    }
}

static void set_defaults(struct options *o)
{
    static const uint32_t bits[] = {2, 3, 4}, m[] = {1, 4, 8, 32, 512};
    memcpy(o->bits, bits, sizeof bits);
    memcpy(o->m, m, sizeof m);
    o->memory_nbytes = (uint64_t)1 << 30; /* four times a large third-level cache */
    o->bits_count = sizeof bits / sizeof *bits;
    o->L[0] = 12;
    o->L_count = 1;
    o->m_count = sizeof m / sizeof *m;
}

static void finish_options(struct options *o, bool cuda)
{
    if (!o->shape_count) {
        o->shapes[o->shape_count++] = (struct shape){17408, 5120, 0};
        o->shapes[o->shape_count++] = (struct shape){5120, 17408, 0};
    }
    bool takes_int8 =
        !cuda && (o->op == BENCH_AUTO || o->op == BENCH_SMALL || o->op == BENCH_GATE_UP);
    if (!o->act_given) {
        o->act_float = true;
        o->act_int8 = takes_int8;
    }
}

/* ---- report -------------------------------------------------------------- */

static const char *isa_of(const char *kernel)
{
    const char *last = strrchr(kernel, '_');
    return strncmp(kernel, "reference", 9) == 0 || !last ? "c" : last + 1;
}

static const char *op_of(const struct bench_case *which, const struct bench_result *r)
{
    if (which->op == BENCH_GATE_UP || which->op == BENCH_EXPAND)
        return bench_op_names[which->op];
    return tcq_operation_name(r->operation);
}

static const char *activations_of(const struct bench_case *which)
{
    return which->activations == TCQ_ACTIVATIONS_INT8 ? "int8" : "float";
}

/* Rows are printed as they come: a run takes a minute or two. */
static void print_titles(const struct bench *bench)
{
    if (bench->gpu) {
        printf("%-30s %2s %12s %1s %4s %9s %7s %8s %5s %8s %6s\n", "kernel", "ax", "stored", "k",
               "M", "us", "Gw/s", "GMAC/s", "%copy", "bf16 us", "x bf16");
        return;
    }
    printf("%-30s %2s %12s %1s %-5s %4s %9s %7s %7s %5s %5s %5s %7s %6s\n", "kernel", "ax",
           "stored", "k", "act", "M", "us", "Gw/s", "GMAC/s", "%FMA", "%int8", "%mem", "x C",
           "x bf16");
}

static const char *ratio_text(double ratio, char text[16])
{
    snprintf(text, 16, ratio > 0 ? "%.2f" : "-", ratio);
    return text;
}

static void print_gpu_row(const struct bench_case *which, const struct bench_result *r,
                          const char *name, const char *stored)
{
    const struct tcq_geometry *g = &which->geometry;
    char bf16[16], ratio[16];
    printf("%-30s %2u %12s %1u %4u %9.2f %7.0f %8.0f %5.1f %8s %6s\n", name, g->axis, stored, g->k,
           which->m, r->us, r->gweights, r->gmac, 100 * r->share_memory,
           ratio_text(r->ratio_bf16 * r->us, bf16), ratio_text(r->ratio_bf16, ratio));
    fflush(stdout);
}

static void print_row(const struct bench *bench, const struct bench_case *which,
                      const struct bench_result *r)
{
    const struct tcq_geometry *g = &which->geometry;
    char name[96], stored[48], scalar[16], dense[16];
    snprintf(name, sizeof name, "%s%s%s", optimized ? "" : "DEBUG BUILD ",
             which->op == BENCH_GATE_UP ? "gate-up " : "", r->kernel);
    snprintf(stored, sizeof stored, "%llux%llu", (unsigned long long)g->rows,
             (unsigned long long)g->cols);
    if (bench->gpu) {
        print_gpu_row(which, r, name, stored);
        return;
    }
    printf("%-30s %2u %12s %1u %-5s %4u %9.0f %7.2f %7.1f %5.1f %5.1f %5.1f %7s %6s\n", name,
           g->axis, stored, g->k, activations_of(which), which->m, r->us, r->gweights, r->gmac,
           100 * r->share_fma, 100 * r->share_int8, 100 * r->share_memory,
           ratio_text(r->ratio_scalar, scalar), ratio_text(r->ratio_bf16, dense));
    fflush(stdout);
}

static json_t *limits_json(const struct bench_limits *limits)
{
    return json_pack("{s:f, s:f, s:f}", "memory_gb_per_s", limits->memory_gb, "fma_gmac_per_s",
                     limits->fma_gmac, "int8_gmac_per_s", limits->int8_gmac);
}

static json_t *row_json(const struct bench *bench, const struct bench_case *which,
                        const struct bench_result *r)
{
    const struct tcq_geometry *g = &which->geometry;
    json_t *row = json_pack(
        "{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:i, s:i, s:s, s:f, s:f, s:f, s:f, s:f, "
        "s:f, s:f, s:f, s:i, s:b, s:o}",
        "op", op_of(which, r), "kernel", r->kernel, "isa", isa_of(r->kernel), "axis", (int)g->axis,
        "k", (int)g->k, "L", (int)g->L, "T", (int)g->T, "rows", (json_int_t)g->rows, "cols",
        (json_int_t)g->cols, "m", (int)which->m, "threads", (int)bench->threads, "activations",
        activations_of(which), "us", r->us, "gweights_per_s", r->gweights, "gmac_per_s", r->gmac,
        "share_of_fma", r->share_fma, "share_of_int8", r->share_int8, "share_of_bandwidth",
        r->share_memory, "ratio_to_scalar", r->ratio_scalar, "ratio_to_bf16", r->ratio_bf16,
        "rounds", (int)r->rounds, "optimized", (int)optimized, "limits", limits_json(&r->limits));
    if (g->layout == TCQ_LAYOUT_INTERLEAVED)
        json_object_set_new(row, "layout", json_string("interleaved"));
    return row;
}

static int write_json(const char *path, const struct bench *bench,
                      const struct bench_limits *limits, json_t *rows)
{
    json_t *all =
        json_pack("{s:s, s:s, s:s, s:b, s:s, s:i, s:o, s:O}", "device",
                  bench->gpu ? bench_gpu_name(bench) : "cpu", "version", tcq_version(), "build",
                  TCQ_BUILD_TYPE, "optimized", (int)optimized, "limits_isa", bench->probe->isa,
                  "threads", (int)bench->threads, "limits", limits_json(limits), "rows", rows);
    return replace_json(path, all, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
}

/* The best of a few measurements: what the machine can do. */
static struct bench_limits best_limits(struct bench *bench)
{
    struct bench_limits best = {0};
    if (bench->gpu)
        return bench_gpu_limits(bench);
    for (int i = 0; i < 7; i++) {
        struct bench_limits now = bench_limits_measure(bench);
        best.memory_gb = now.memory_gb > best.memory_gb ? now.memory_gb : best.memory_gb;
        best.fma_gmac = now.fma_gmac > best.fma_gmac ? now.fma_gmac : best.fma_gmac;
        best.int8_gmac = now.int8_gmac > best.int8_gmac ? now.int8_gmac : best.int8_gmac;
    }
    return best;
}

/* ---- the run ------------------------------------------------------------- */

/* The axis and block length of one shape; false after a note. */
static bool geometry_of(const struct options *o, const struct shape *shape, uint32_t bits,
                        struct tcq_geometry *out)
{
    struct tcq_error error;
    bool up = o->op == BENCH_GATE_UP; /* exists on axis 1 alone */
    uint32_t axis = o->axis_given ? o->axis : up || shape->out >= shape->in;
    *out = (struct tcq_geometry){bits, 12, 256, axis, TCQ_LAYOUT_ROW_MAJOR, 0, 0};
    out->rows = axis ? shape->out : shape->in;
    out->cols = axis ? shape->in : shape->out;
    while (out->cols % out->T && out->T > 64)
        out->T /= 2;
    out->T = o->block ? o->block : out->T;
    if (o->interleaved && axis == 0 && bits == 3)
        out->layout = TCQ_LAYOUT_INTERLEAVED;
    if (tcq_geometry_check(out, &error) == TCQ_OK && (!up || axis == 1))
        return true;
    cli_message("not run: %s", up && axis == 0 ? "gate/up needs axis 1" : error.message);
    return false;
}

struct report {
    struct bench bench;
    struct bench_limits limits;
    json_t *rows;
    size_t done;
};

static int measure(struct report *report, const struct options *o,
                   const struct tcq_geometry *geometry, uint32_t m,
                   enum tcq_activations activations)
{
    struct bench_case which = {o->op, activations, *geometry, o->op == BENCH_EXPAND ? 0 : m};
    struct bench_result result;
    bool skipped;
    int code = bench_measure(&report->bench, &which, !o->no_ratios, &result, &skipped);
    if (code != CLI_CONTINUE || skipped)
        return code;
    print_row(&report->bench, &which, &result);
    json_array_append_new(report->rows, row_json(&report->bench, &which, &result));
    report->done++;
    return code;
}

static int measure_shape(struct report *report, const struct options *o, const struct shape *shape,
                         uint32_t bits)
{
    struct tcq_geometry g;
    if (!geometry_of(o, shape, bits, &g))
        return CLI_CONTINUE;
    bool own_m = shape->m && !o->m_given;
    size_t count = own_m || o->op == BENCH_EXPAND ? 1 : o->m_count;
    int code = CLI_CONTINUE;
    for (size_t i = 0; i < count && code == CLI_CONTINUE; i++) {
        uint32_t m = own_m ? shape->m : o->m[i];
        if (o->act_float)
            code = measure(report, o, &g, m, TCQ_ACTIVATIONS_FLOAT);
        /* above 32 vectors a float product is at least as fast as eight small ones */
        if (code == CLI_CONTINUE && o->act_int8 && (m <= 32 || !o->act_float))
            code = measure(report, o, &g, m, TCQ_ACTIVATIONS_INT8);
    }
    return code;
}

static int measure_all(struct report *report, const struct options *o)
{
    int code = CLI_CONTINUE;
    for (size_t s = 0; s < o->shape_count && code == CLI_CONTINUE; s++)
        for (size_t b = 0; b < o->bits_count && code == CLI_CONTINUE; b++)
            code = measure_shape(report, o, &o->shapes[s], o->bits[b]);
    return code;
}

static int bench_all(struct report *report, const struct options *o, const struct cli_args *args)
{
    uint64_t size = 0, weights = 0;
    uint32_t m = 1;
    for (size_t s = 0; s < o->shape_count; s++) {
        const struct shape *shape = &o->shapes[s];
        uint64_t larger = shape->out > shape->in ? shape->out : shape->in;
        size = larger > size ? larger : size;
        weights = shape->out * shape->in > weights ? shape->out * shape->in : weights;
        m = shape->m > m ? shape->m : m;
    }
    for (size_t i = 0; i < o->m_count; i++)
        m = o->m[i] > m ? o->m[i] : m;
    int code = bench_create(&report->bench, args, (size_t)o->memory_nbytes, size, m,
                            o->op == BENCH_EXPAND ? weights : 0);
    if (code != CLI_CONTINUE)
        return code;
    report->limits = best_limits(&report->bench);
    if (report->bench.gpu)
        printf("limits (%s): a copy reads and writes %.0f GB/s\n", bench_gpu_name(&report->bench),
               report->limits.memory_gb);
    else
        printf(
            "%slimits (%s, %u threads): memory %.1f GB/s, float32 %.1f GMAC/s, int8 %.1f GMAC/s\n",
            optimized ? "" : "DEBUG BUILD, every speed is meaningless: ", report->bench.probe->isa,
            report->bench.threads, report->limits.memory_gb, report->limits.fma_gmac,
            report->limits.int8_gmac);
    fflush(stdout);
    print_titles(&report->bench);
    code = measure_all(report, o);
    if (code == CLI_CONTINUE && report->done == 0) {
        cli_message("nothing was measured");
        code = CLI_FAILED;
    }
    if (code == CLI_CONTINUE && o->json)
        code = write_json(o->json, &report->bench, &report->limits, report->rows);
    return code;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli_args args;
    struct options *o = calloc(1, sizeof *o);
    struct report report = {.rows = json_array()};
    int code = o && report.rows ? CLI_CONTINUE : cli_out_of_memory();
    if (code == CLI_CONTINUE) {
        set_defaults(o);
        code = cli_parse(self, argc, argv, 0, 0, set_option, o, &args);
    }
    if (code == CLI_CONTINUE && args.cuda && o->encode)
        code = cli_usage("--op encode measures the CPU: --device cuda is for layers and models");
    if (code == CLI_CONTINUE && o->model) {
        code = bench_model(&args, o->model, o->json);
    } else if (code == CLI_CONTINUE && o->encode) {
        code = bench_encode(&args, o->bits, o->bits_count, o->L, o->L_count,
                            o->block ? o->block : 256, o->json);
    } else if (code == CLI_CONTINUE) {
        finish_options(o, args.cuda);
        code = bench_all(&report, o, &args);
        bench_destroy(&report.bench);
    }
    json_decref(report.rows);
    free(o);
    return code == CLI_CONTINUE ? CLI_OK : code;
}

const struct cli_command cmd_bench = {
    .name = "bench",
    .summary = "Measure layers on packed weights beside the machine's limits",
    .usage = "[OPTION...]",
    .details =
        "Operations: auto, small, wide, wide-int16, gate-up, expand, encode; with reference\n"
        "numerics: reference, reduce, scatter, scatter-balanced, scatter-table, split-k, tiled.\n"
        "Default shapes: 17408x5120 and 5120x17408.\n\n"
        "Weights are random and lie in 1 GiB of memory, so that no call finds them in a\n"
        "cache. Every case is first checked against float64, then measured in turns with\n"
        "the limits and with the same layer in bf16; shares and ratios are medians.\n"
        "Gw/s: 10^9 weights of the layer a second; GMAC/s: that times M. %FMA, %int8 and\n"
        "%mem: share of the limit; x C and x bf16: times as fast as plain C and as the\n"
        "same layer in bf16.\n\n"
        "On a GPU, times are those of calls in a CUDA graph; the limit is a copy, bf16 is\n"
        "cuBLAS, and %copy counts the packed weights alone.\n\n"
        "Operation encode measures the encoder on Gaussian weights, the best of short\n"
        "calls. Mw/s core: 10^6 weights a second of one thread's processor time; Gsteps/s:\n"
        "10^9 states times positions of both passes; %limit: share of the rate at which it\n"
        "can do the three operations that these take; x C: over plain C; Mw/s: all threads,\n"
        "by the clock; scaling: that over threads times one thread by the clock.",
    .options = option_list,
    .common = CLI_THREADS | CLI_CPU | CLI_DEVICE,
    .run = run,
};
