/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq quantize: a model's matrices packed, the rest kept, as a new folder.
 */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "companions.h"
#include "job.h"
#include "model_config.h"
#include "output.h"
#include "pack.h"
#include "part.h"
#include "resources.h"

struct options {
    struct plan_options plan;
    const char *output;
    bool resume, force, dry_run, all;
};

enum {
    KEY_BITS = CLI_KEY_LONG,
    KEY_L,
    KEY_BLOCK,
    KEY_AXIS,
    KEY_PRESET,
    KEY_BITS_FOR,
    KEY_INCLUDE,
    KEY_EXCLUDE,
    KEY_INTERLEAVE,
    KEY_SHARD_SIZE,
    KEY_SHARD,
    KEY_RESUME,
    KEY_FORCE,
    KEY_DRY_RUN,
    KEY_ALL
};

static const struct cli_option option_list[] = {
    {'o', "output", "DIR", "folder to create (required unless --dry-run)"},
    {KEY_BITS, "bits", "K", "bits a weight, 1 to 6 (default 3)"},
    {KEY_L, "L", "L", "2^L trellis states, 8 to 16 (default 12)"},
    {KEY_BLOCK, "block", "T",
     "weights a block: 64, 128, 256, or auto: the largest "
     "that divides the coded length (default)"},
    {KEY_AXIS, "axis", "A",
     "coded along the input (1), the output (0), or auto: "
     "1 unless only 0 fits (default)"},
    {KEY_PRESET, "preset", "mlx-bun",
     "gate and up on axis 1, down on axis 0, blocks of 256, "
     "nothing else"},
    {KEY_BITS_FOR, "bits-for", "GLOB=K", "other bits for matching modules; the last match counts"},
    {KEY_INCLUDE, "include", "GLOB", "pack the matrices that match, instead of the usual ones"},
    {KEY_EXCLUDE, "exclude", "GLOB", "leave these as they are"},
    {KEY_INTERLEAVE, "interleave", NULL, "interleaved words where axis 0, k 3, block 256 allow it"},
    {KEY_SHARD_SIZE, "shard-size", "SIZE", "largest output file (default 5GiB)"},
    {KEY_SHARD, "shard", "I/N", "only part I of N, for N machines; 'tcq merge' joins them"},
    {KEY_RESUME, "resume", NULL, "continue an interrupted run"},
    {KEY_FORCE, "force", NULL, "replace an existing output, discard an interrupted run"},
    {KEY_DRY_RUN, "dry-run", NULL, "print the plan with sizes, write nothing"},
    {KEY_ALL, "all", NULL, "print every tensor of the plan, not groups of alike ones"},
    {0},
};

/* ---- Options ---- */

static int add_pattern(const char *option, struct plan_patterns *patterns, const char *glob,
                       uint32_t k)
{
    if (patterns->count == PLAN_PATTERNS_MAX)
        return cli_usage("%s: at most %d of them", option, PLAN_PATTERNS_MAX);
    patterns->list[patterns->count++] = (struct plan_pattern){.glob = glob, .k = k};
    return CLI_CONTINUE;
}

static int add_bits_for(struct plan_options *plan, const char *value)
{
    const char *equals = strrchr(value, '=');
    uint32_t k = 0;
    if (!equals || equals == value)
        return cli_usage("--bits-for '%s': expected GLOB=K, for example '*.down_proj=4'", value);
    int code = cli_parse_u32("--bits-for", equals + 1, TCQ_K_MIN, TCQ_K_MAX, &k);
    if (code != CLI_CONTINUE)
        return code;
    /* the glob ends where the value had its '=': argv belongs to this process */
    ((char *)(uintptr_t)equals)[0] = '\0';
    return add_pattern("--bits-for", &plan->bits_for, value, k);
}

static int set_block(struct plan_options *plan, const char *value)
{
    if (strcmp(value, "auto") == 0)
        plan->block = 0;
    else if (strcmp(value, "64") == 0 || strcmp(value, "128") == 0 || strcmp(value, "256") == 0)
        plan->block = (uint32_t)atoi(value);
    else
        return cli_usage("--block '%s': expected auto, 64, 128 or 256", value);
    return CLI_CONTINUE;
}

static int set_axis(struct plan_options *plan, const char *value)
{
    if (strcmp(value, "auto") == 0)
        plan->axis = PLAN_AXIS_AUTO;
    else if (strcmp(value, "0") == 0 || strcmp(value, "1") == 0)
        plan->axis = (uint32_t)(*value - '0');
    else
        return cli_usage("--axis '%s': expected auto, 0 or 1", value);
    return CLI_CONTINUE;
}

static int set_preset(struct plan_options *plan, const char *value)
{
    if (strcmp(value, "mlx-bun") != 0)
        return cli_usage("--preset '%s': the only preset is mlx-bun", value);
    plan->mlx_bun = true;
    return CLI_CONTINUE;
}

static int set_shard_size(struct plan_options *plan, const char *value)
{
    int code = cli_parse_nbytes("--shard-size", value, &plan->shard_nbytes);
    if (code == CLI_CONTINUE && plan->shard_nbytes == 0)
        return cli_usage("--shard-size: must not be zero");
    return code;
}

static int set_shard(struct plan_options *plan, const char *value)
{
    char extra;
    if (sscanf(value, "%u/%u%c", &plan->part, &plan->parts, &extra) != 2 || plan->part < 1 ||
        plan->part > plan->parts || plan->parts > 9999)
        return cli_usage("--shard '%s': expected I/N with I from 1 to N, N up to 9999", value);
    return CLI_CONTINUE;
}

static int set_option(void *user, int key, const char *value)
{
    struct options *o = user;
    switch (key) {
    case 'o':
        o->output = value;
        return *value ? CLI_CONTINUE : cli_usage("--output: must not be empty");
    case KEY_BITS:
        return cli_parse_u32("--bits", value, TCQ_K_MIN, TCQ_K_MAX, &o->plan.k);
    case KEY_L:
        return cli_parse_u32("--L", value, TCQ_L_MIN, TCQ_L_MAX, &o->plan.L);
    case KEY_BLOCK:
        return set_block(&o->plan, value);
    case KEY_AXIS:
        return set_axis(&o->plan, value);
    case KEY_PRESET:
        return set_preset(&o->plan, value);
    case KEY_BITS_FOR:
        return add_bits_for(&o->plan, value);
    case KEY_INCLUDE:
        return add_pattern("--include", &o->plan.include, value, 0);
    case KEY_EXCLUDE:
        return add_pattern("--exclude", &o->plan.exclude, value, 0);
    case KEY_SHARD_SIZE:
        return set_shard_size(&o->plan, value);
    case KEY_SHARD:
        return set_shard(&o->plan, value);
    case KEY_INTERLEAVE:
        o->plan.interleave = true;
        return CLI_CONTINUE;
    case KEY_RESUME:
        o->resume = true;
        return CLI_CONTINUE;
    case KEY_FORCE:
        o->force = true;
        return CLI_CONTINUE;
    case KEY_ALL:
        o->all = true;
        return CLI_CONTINUE;
    default:
        o->dry_run = true;
        return CLI_CONTINUE;
    }
}

static int check_options(const struct options *o)
{
    const struct plan_options *p = &o->plan;
    if (!o->output && !o->dry_run)
        return cli_usage("quantize: -o DIR is missing");
    if (p->mlx_bun && (p->axis != PLAN_AXIS_AUTO || p->block || p->L != 12 || p->include.count))
        return cli_usage("--preset mlx-bun fixes --axis, --block, --L and what is packed: leave "
                         "them out");
    return CLI_CONTINUE;
}

/* ---- The run ---- */

struct quantize {
    const char *path;
    struct options *options;
    const struct cli_args *args;
    struct tcq_source *source;
    struct plan plan;
    struct output_list whole; /* of the output that all parts make */
    char *config;             /* config.json of that */
    struct tcq_context *context;
    struct pack pack;
    struct output output;
    double started;
};

static int write_tensors(struct quantize *q)
{
    struct model_writer writer;
    struct tcq_error error = {0};
    size_t done = 0;
    const struct plan_options *p = &q->options->plan;
    struct cli_text name = part_file_name(p->part, p->parts);
    if (model_writer_open(&writer, q->output.partial, p->parts ? name.s : NULL, true,
                          q->pack.list.tensors, q->pack.list.count, q->output.resumed, &done,
                          &error) != TCQ_OK) {
        model_writer_close(&writer, true);
        return cli_fail(NULL, &error);
    }
    if (q->output.resumed && !q->args->quiet)
        cli_message("%s: %zu of %zu tensors are there already", q->output.partial, done,
                    q->pack.list.count);
    int code = pack_run(&q->pack, &writer, done);
    if (code == CLI_CONTINUE && model_writer_finish(&writer, &error) != TCQ_OK)
        code = cli_fail(NULL, &error);
    model_writer_close(&writer, true);
    return code;
}

static int write_folder(struct quantize *q)
{
    int code = write_tensors(q);
    if (code == CLI_CONTINUE)
        code = companions_write(&q->output, q->source, q->path);
    if (code == CLI_CONTINUE)
        code = q->options->plan.parts
                   ? part_write(&q->output, &q->options->plan, &q->whole, q->config)
                   : output_write_text(&q->output, "config.json", q->config);
    if (code == CLI_CONTINUE)
        code = output_commit(&q->output, q->options->force);
    return code;
}

static int report(const struct quantize *q)
{
    double seconds = cli_seconds() - q->started;
    double weights = (double)q->plan.packed_weights;
    if (q->args->json) {
        json_t *json = plan_json(&q->plan);
        if (json) {
            json_object_set_new(json, "output", json_string(q->output.path));
            json_object_set_new(json, "seconds", json_real(seconds));
        }
        return cli_print_json(json);
    }
    if (q->args->quiet)
        return CLI_OK;
    printf("%s: %zu tensors packed, %s weights at %.3f bits each; %s in all", q->output.path,
           q->plan.packed_count, cli_count_text(weights).s,
           weights > 0 ? 8.0 * (double)q->plan.packed_nbytes / weights : 0.0,
           cli_nbytes_text(q->plan.nbytes).s);
    printf("; %s\n", cli_time_text(seconds).s);
    for (size_t i = 0; i < q->plan.count; i++)
        if (q->plan.entries[i].reason)
            printf("not packed: %s: %s\n", q->plan.entries[i].tensor->name,
                   q->plan.entries[i].reason);
    return CLI_OK;
}

static int check_resources(const struct quantize *q)
{
    uint64_t there = 0;
    char *partial = NULL;
    if (q->options->resume && asprintf(&partial, "%s.partial", q->options->output) >= 0)
        there = output_folder_nbytes(partial);
    free(partial);
    int code = resources_check_memory(pack_memory_nbytes(&q->pack), q->args);
    if (code == CLI_CONTINUE)
        code = resources_check_disk(q->options->output, q->plan.nbytes, there);
    return code;
}

static int pack_model(struct quantize *q)
{
    const struct options *o = q->options;
    int code = check_resources(q);
    if (code == CLI_CONTINUE)
        code = output_check(o->output, o->resume, o->force);
    if (code == CLI_CONTINUE)
        code = pack_check_values(&q->pack);
    if (code != CLI_CONTINUE)
        return code;
    json_t *job = job_json(&o->plan, q->source, q->path);
    code = job ? output_open(&q->output, o->output, o->resume, o->force, job) : cli_out_of_memory();
    json_decref(job);
    if (code != CLI_CONTINUE)
        return code;
    code = write_folder(q);
    if (code == CLI_CONTINUE)
        code = report(q);
    output_close(&q->output);
    return code;
}

static int after_plan(struct quantize *q)
{
    if (q->options->dry_run) {
        if (q->args->json)
            return cli_print_json(plan_json(&q->plan));
        return plan_print(&q->plan, q->options->all) ? CLI_OK : CLI_FAILED;
    }
    if (q->plan.packed_count == 0 && !q->options->plan.parts) {
        cli_message("%s: nothing to pack: no matrix of it is a projection of a block that fits "
                    "(see --dry-run, --include)",
                    q->path);
        return CLI_FAILED;
    }
    if (cli_context(q->args, &q->context) != TCQ_OK)
        return CLI_FAILED;
    int code = pack_create(&q->pack, q->source, &q->plan, q->context, q->args);
    if (code == CLI_CONTINUE) {
        code = pack_model(q);
        pack_destroy(&q->pack);
    }
    tcq_context_destroy(q->context);
    return code;
}

static int make_plan(struct quantize *q)
{
    struct plan_options *o = &q->options->plan;
    int code = plan_make(q->source, o, &q->plan);
    if (code == CLI_CONTINUE)
        code = model_config_packed(&q->config, q->source, &q->plan);
    if (code == CLI_CONTINUE)
        code = output_list_make(&q->whole, &q->plan);
    if (code == CLI_CONTINUE && o->parts)
        code = part_take(&q->plan, o->part, o->parts);
    return code;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct options options = {
        .plan = {.k = 3, .L = 12, .axis = PLAN_AXIS_AUTO, .shard_nbytes = (uint64_t)5 << 30}};
    struct cli_args args;
    int code = cli_parse(self, argc, argv, 1, 1, set_option, &options, &args);
    if (code == CLI_CONTINUE)
        code = check_options(&options);
    if (code != CLI_CONTINUE)
        return code;
    struct quantize q = {
        .path = args.operands[0], .options = &options, .args = &args, .started = cli_seconds()};
    cli_signals_catch();
    struct tcq_error error = {0};
    if (tcq_source_open(q.path, &q.source, &error) != TCQ_OK)
        return cli_fail(q.path, &error);
    code = model_config_refuse_packed(q.source, q.path);
    if (code == CLI_CONTINUE)
        code = make_plan(&q);
    if (code == CLI_CONTINUE)
        code = after_plan(&q);
    plan_free(&q.plan);
    output_list_free(&q.whole);
    free(q.config);
    tcq_source_close(q.source);
    return code;
}

const struct cli_command cmd_quantize = {
    .name = "quantize",
    .summary = "Pack a model's matrices into a trellis code",
    .usage = "SOURCE -o DIR [OPTION...]",
    .details = "SOURCE is a .safetensors file, a model folder or a GGUF file.  Every attention\n"
               "and MLP projection of the transformer blocks is packed; embeddings, norms and\n"
               "the head stay as they are, and so does, in 16 bits, a projection that fits no\n"
               "block.  GLOBs match a module ('*.mlp.down_proj') or a tensor's full name.\n"
               "DIR gets the weights, config.json and the source's other files.  It appears\n"
               "when it is complete: until then everything is in DIR.partial.",
    .options = option_list,
    .common = CLI_JSON | CLI_QUIET | CLI_THREADS | CLI_CPU,
    .run = run,
};
