/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq quantize: a model's matrices packed, the rest kept, as a new folder.
 */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "quantize.h"

enum {
    KEY_BITS = CLI_KEY_LONG,
    KEY_HEAD_BITS,
    KEY_L,
    KEY_BLOCK,
    KEY_AXIS,
    KEY_SCALE,
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
    {KEY_HEAD_BITS, "head-bits", "K",
     "pack the embedding and the head, too, at K bits (default: as they are)"},
    {KEY_L, "L", "L", "2^L trellis states, 8 to 16 (default 12)"},
    {KEY_BLOCK, "block", "T",
     "weights a block: 64, 128, 256, or auto: the largest "
     "that divides the coded length (default)"},
    {KEY_AXIS, "axis", "A",
     "coded along the input (1), the output (0), or auto: "
     "1 unless only 0 fits (default)"},
    {KEY_SCALE, "scale", "RULE",
     "rms: a row's scale by its mean square (default); fit: larger where outliers are "
     "beyond the code's reach"},
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

static int set_scale(struct plan_options *plan, const char *value)
{
    if (strcmp(value, "rms") == 0)
        plan->scale = TCQ_SCALE_RMS;
    else if (strcmp(value, "fit") == 0)
        plan->scale = TCQ_SCALE_FIT;
    else
        return cli_usage("--scale '%s': expected rms or fit", value);
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
    int end = 0; /* four digits at most: no number overflows, and no sign or space passes */
    if (sscanf(value, "%*4[0-9]/%*4[0-9]%n", &end) != 0 || end == 0 || value[end] ||
        sscanf(value, "%4u/%4u", &plan->part, &plan->parts) != 2 || plan->part < 1 ||
        plan->part > plan->parts)
        return cli_usage("--shard '%s': expected I/N with I from 1 to N, N up to 9999", value);
    return CLI_CONTINUE;
}

static int set_option(void *user, int key, const char *value)
{
    struct quantize_options *o = user;
    switch (key) {
    case 'o':
        o->output = value;
        return *value ? CLI_CONTINUE : cli_usage("--output: must not be empty");
    case KEY_BITS:
        return cli_parse_u32("--bits", value, TCQ_K_MIN, TCQ_K_MAX, &o->plan.k);
    case KEY_HEAD_BITS:
        return cli_parse_u32("--head-bits", value, TCQ_K_MIN, TCQ_K_MAX, &o->plan.head_bits);
    case KEY_L:
        return cli_parse_u32("--L", value, TCQ_L_MIN, TCQ_L_MAX, &o->plan.L);
    case KEY_BLOCK:
        return set_block(&o->plan, value);
    case KEY_AXIS:
        return set_axis(&o->plan, value);
    case KEY_SCALE:
        return set_scale(&o->plan, value);
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

static int check_options(const struct quantize_options *o)
{
    const struct plan_options *p = &o->plan;
    if (!o->output && !o->dry_run)
        return cli_usage("quantize: -o DIR is missing");
    if (p->mlx_bun && (p->axis != PLAN_AXIS_AUTO || p->block || p->L != 12 || p->include.count))
        return cli_usage("--preset mlx-bun fixes --axis, --block, --L and what is packed: leave "
                         "them out");
    if (p->mlx_bun && p->head_bits)
        return cli_usage("--preset mlx-bun packs gate, up and down alone: leave --head-bits out");
    return CLI_CONTINUE;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct quantize_options options = {
        .plan = {.k = 3, .L = 12, .axis = PLAN_AXIS_AUTO, .shard_nbytes = (uint64_t)5 << 30}};
    struct cli_args args;
    int code = cli_parse(self, argc, argv, 1, 1, set_option, &options, &args);
    if (code == CLI_CONTINUE)
        code = check_options(&options);
    if (code != CLI_CONTINUE)
        return code;
    cli_signals_catch();
    return quantize_run(args.operands[0], &options, &args);
}

const struct cli_command cmd_quantize = {
    .name = "quantize",
    .summary = "Pack a model's matrices into a trellis code",
    .usage = "SOURCE -o DIR [OPTION...]",
    .details = "SOURCE is a .safetensors file, a model folder or a GGUF file.  Every attention\n"
               "and MLP projection of the transformer blocks is packed; norms stay as they are,\n"
               "the embedding and the head, too, without --head-bits, and so does, in 16 bits, a\n"
               "projection that fits no block.  GLOBs match a module ('*.mlp.down_proj') or a\n"
               "tensor's full name.\n"
               "DIR gets the weights, config.json and the source's other files.  It appears\n"
               "when it is complete: until then everything is in DIR.partial.",
    .options = option_list,
    .common = CLI_JSON | CLI_QUIET | CLI_THREADS | CLI_CPU | CLI_DEVICE,
    .run = run,
};
