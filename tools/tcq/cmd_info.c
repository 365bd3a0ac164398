/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq info: version, build, processor, and the kernels in use.
 */
#include "base/device.h"
#include "commands.h"
#include "kernel/kernel.h"

#ifdef __clang__
#define COMPILER __VERSION__ /* "Clang 14.0.6" */
#else
#define COMPILER "gcc " __VERSION__
#endif

/* A build without optimisation is many times slower: said wherever speed is. */
#ifdef __OPTIMIZE__
enum { OPTIMIZED = 1 };
#else
enum { OPTIMIZED = 0 };
#endif

static const struct {
    uint32_t flag;
    const char *name;
} features[] = {
    {TCQ_CPU_AVX2, "avx2"},
    {TCQ_CPU_AVX512, "avx512"},
    {TCQ_CPU_AVX512_VBMI, "avx512-vbmi"},
    {TCQ_CPU_AVX512_VNNI, "avx512-vnni"},
    {TCQ_CPU_AVX512_BF16, "avx512-bf16"},
    {TCQ_CPU_AVX512_IFMA, "avx512-ifma"},
    {TCQ_CPU_NEON, "neon"},
    {TCQ_CPU_NEON_DOTPROD, "neon-dotprod"},
};

static json_t *feature_list(uint32_t flags)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (flags & features[i].flag)
            json_array_append_new(list, json_string(features[i].name));
    return list;
}

/* The kernel of every operation: the last variant whose needs are met, as the
 * library selects it.  One that serves some geometries only stands beside the
 * one that serves the rest. */
static json_t *kernel_list(uint32_t flags)
{
    size_t count;
    const struct tcq_kernel_variant *all = tcq_kernels_all(&count);
    json_t *kernels = json_object();
    for (size_t i = 0; i < count; i++) {
        if (all[i].needs & ~flags)
            continue;
        json_t *list = json_object_get(kernels, all[i].operation);
        if (!list) {
            list = json_array();
            json_object_set_new(kernels, all[i].operation, list);
        }
        if (!all[i].serves)
            json_array_clear(list);
        json_array_append_new(list, json_string(all[i].isa));
    }
    return kernels;
}

static const char *encoder_isa(struct tcq_context *context)
{
    const struct tcq_encoder_options options = {.k = 3};
    struct tcq_encoder *encoder = NULL;
    if (tcq_encoder_create(context, &options, &encoder, NULL) != TCQ_OK)
        return "none";
    const char *isa = tcq_encoder_isa(encoder);
    tcq_encoder_destroy(encoder);
    return isa;
}

static json_t *describe(struct tcq_context *context)
{
    json_t *kernels = kernel_list(tcq_context_cpu_flags(context));
    json_object_set_new(kernels, "encode", json_pack("[s]", encoder_isa(context)));
    return json_pack("{s:s, s:s, s:b, s:b, s:s, s:o, s:o, s:I, s:o}", "version", tcq_version(),
                     "build", TCQ_BUILD_TYPE, "optimized", (int)OPTIMIZED, "cuda",
                     tcq_device_cuda != NULL, "compiler", COMPILER, "cpu_features",
                     feature_list(tcq_cpu_detect()), "cpu_features_used",
                     feature_list(tcq_context_cpu_flags(context)), "threads",
                     (json_int_t)tcq_context_threads(context), "kernels", kernels);
}

static void print_features(const char *label, const json_t *list)
{
    size_t i;
    json_t *item;
    printf("%-14s", label);
    json_array_foreach(list, i, item) printf("%s%s", i ? ", " : "", json_string_value(item));
    puts(json_array_size(list) ? "" : "none (plain C)");
}

static void print_text(json_t *info)
{
    const char *version, *build, *compiler;
    json_t *detected, *used, *kernels, *list, *isa;
    size_t i;
    json_int_t threads;
    json_unpack(info, "{s:s, s:s, s:s, s:o, s:o, s:I, s:o}", "version", &version, "build", &build,
                "compiler", &compiler, "cpu_features", &detected, "cpu_features_used", &used,
                "threads", &threads, "kernels", &kernels);
    printf("%-14s%s\n", "version", version);
    printf("%-14s%s, compiler %s\n", "build", build, compiler);
    printf("%-14s%s\n", "cuda",
           tcq_device_cuda ? "built in: --device cuda" : "not built in (cmake -DTCQ_CUDA=ON)");
    print_features("processor", detected);
    print_features("in use", used);
    printf("%-14s%lld\n\nkernels in use\n", "threads", (long long)threads);
    const char *operation;
    json_object_foreach(kernels, operation, list)
    {
        printf("  %-14s", operation);
        json_array_foreach(list, i, isa)
            printf("%s%s", i ? ", for some geometries " : "", json_string_value(isa));
        putchar('\n');
    }
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli_args args;
    int code = cli_parse(self, argc, argv, 0, 0, NULL, NULL, &args);
    if (code != CLI_CONTINUE)
        return code;
    struct tcq_context *context = NULL;
    if (cli_context(&args, &context) != TCQ_OK)
        return CLI_FAILED;
    json_t *info = describe(context);
    tcq_context_destroy(context);
    if (!info)
        return cli_out_of_memory();
    if (!OPTIMIZED)
        cli_message("THIS IS A DEBUG BUILD: every speed it shows is meaningless");
    if (args.json)
        return cli_print_json(info);
    print_text(info);
    json_decref(info);
    return CLI_OK;
}

const struct cli_command cmd_info = {
    .name = "info",
    .summary = "Show version, build, processor features and the kernels in use",
    .usage = "[OPTION...]",
    .common = CLI_JSON | CLI_THREADS | CLI_CPU,
    .run = run,
};
