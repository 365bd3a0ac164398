/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing what is packed and how: names, patterns, block and axis.
 */
#include "plan.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* Projections by their name within a transformer block. */
static const char *const projections[] = {
    /* Llama, Mistral, Qwen, Gemma, SmolLM, ...; fused forms of Phi-3 and others */
    "*.q_proj",
    "*.k_proj",
    "*.v_proj",
    "*.o_proj",
    "*.qkv_proj",
    "*.gate_proj",
    "*.up_proj",
    "*.down_proj",
    "*.gate_up_proj",
    /* experts of Mixtral and alike */
    "*.experts.*.w1",
    "*.experts.*.w2",
    "*.experts.*.w3",
    /* BERT-like encoders */
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
    /* OPT, Falcon, GPT-NeoX; linear attention of Qwen 3 */
    "self_attn.out_proj",
    "fc1",
    "fc2",
    "*.query_key_value",
    "*attention.dense",
    "*.dense_h_to_4h",
    "*.dense_4h_to_h",
    "linear_attn.in_proj_qkv*",
    "linear_attn.in_proj_z",
    "linear_attn.out_proj",
};
/* The embedding and the head, outside the blocks, by the end of their path. */
static const char *const end_names[] = {
    "embed_tokens", "lm_head", "wte", "word_embeddings", "embed_in", "embed_out",
};
/* Those of --preset mlx-bun, with their axis. */
static const struct {
    const char *glob;
    uint32_t axis;
} mlx_bun[] = {{"*.gate_proj", 1}, {"*.up_proj", 1}, {"*.down_proj", 0}};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The part of `module` after "layers.N." (or layer, blocks, block, h), or NULL
 * outside the blocks of a model. */
static const char *within_block(const char *module)
{
    static const char *const stems[] = {"layers", "layer", "blocks", "block", "h"};
    for (const char *part = module; part; part = strchr(part, '.') ? strchr(part, '.') + 1 : NULL)
        for (size_t i = 0; i < COUNT(stems); i++) {
            size_t n = strlen(stems[i]);
            if (strncmp(part, stems[i], n) != 0 || part[n] != '.')
                continue;
            size_t digits = strspn(part + n + 1, "0123456789");
            if (digits && part[n + 1 + digits] == '.')
                return part + n + digits + 2;
        }
    return NULL;
}

static bool is_projection(const char *module)
{
    const char *rest = within_block(module);
    for (size_t i = 0; rest && i < COUNT(projections); i++)
        if (fnmatch(projections[i], rest, 0) == 0)
            return true;
    return false;
}

static bool is_end(const char *module)
{
    const char *dot = strrchr(module, '.'), *name = dot ? dot + 1 : module;
    for (size_t i = 0; i < COUNT(end_names); i++)
        if (strcmp(name, end_names[i]) == 0)
            return within_block(module) == NULL;
    return false;
}

static int preset_axis(const char *module)
{
    const char *rest = within_block(module);
    for (size_t i = 0; rest && i < COUNT(mlx_bun); i++)
        if (fnmatch(mlx_bun[i].glob, rest, 0) == 0)
            return (int)mlx_bun[i].axis;
    return -1;
}

/* A pattern is held against the module's path and the tensor's name.  All that
 * match are marked as used; the last one decides. */
static const struct plan_pattern *match(struct plan_patterns *patterns,
                                        const struct plan_entry *entry)
{
    const struct plan_pattern *found = NULL;
    for (size_t i = 0; i < patterns->count; i++) {
        struct plan_pattern *pattern = &patterns->list[i];
        if (fnmatch(pattern->glob, entry->module, 0) != 0 &&
            fnmatch(pattern->glob, entry->tensor->name, 0) != 0)
            continue;
        pattern->used = true;
        found = pattern;
    }
    return found;
}

static bool is_wanted(struct plan_options *options, const struct plan_entry *entry)
{
    bool wanted;
    if (options->include.count)
        wanted = match(&options->include, entry) != NULL;
    else if (options->mlx_bun)
        wanted = preset_axis(entry->module) >= 0;
    else
        wanted = is_projection(entry->module);
    if (options->head_bits && is_end(entry->module)) {
        options->head_found = true;
        wanted = true;
    }
    return match(&options->exclude, entry) == NULL && wanted;
}

/* Whether tcq_source_read_f32 understands its type: reading no rows tells. */
static bool is_float(const struct tcq_source *source, const struct tcq_source_tensor *tensor)
{
    return tcq_source_read_f32(source, NULL, tensor, 0, 0, NULL) == TCQ_OK;
}

/* The largest allowed block that divides the coded length, or 0. */
static uint32_t choose_block(uint32_t wanted, uint64_t coded)
{
    for (uint32_t T = 256; T >= 64; T /= 2)
        if ((wanted == 0 || wanted == T) && coded % T == 0)
            return T;
    return 0;
}

/* Axis 1 unless only axis 0 fits.  False if neither does.  Of an embedding, rows
 * are read one at a time: axis 1 whatever the options say of the rest. */
static bool choose_geometry(const struct plan_options *options, const struct plan_entry *entry,
                            uint32_t k, struct tcq_geometry *out)
{
    uint64_t rows = entry->tensor->shape[0], cols = entry->tensor->shape[1];
    uint32_t axis = options->axis, block = options->block;
    if (options->mlx_bun) {
        int preset = preset_axis(entry->module);
        axis = preset >= 0 ? (uint32_t)preset : axis;
        block = 256;
    }
    if (is_end(entry->module))
        axis = 1;
    uint32_t first = axis == 0 ? 0 : 1, last = axis == 1 ? 1 : 0;
    for (uint32_t a = first + 1; a-- > last;) {
        uint32_t T = choose_block(block, a ? cols : rows);
        if (!T)
            continue;
        *out = (struct tcq_geometry){.k = k,
                                     .L = options->L,
                                     .T = T,
                                     .axis = a,
                                     .rows = a ? rows : cols,
                                     .cols = a ? cols : rows};
        if (options->interleave && a == 0 && k == 3 && T == 256 && options->L == 12 &&
            out->cols % 512 == 0)
            out->layout = TCQ_LAYOUT_INTERLEAVED;
        return true;
    }
    return false;
}

static bool has_tensor(const struct tcq_source *source, const char *module, const char *suffix)
{
    char *name = NULL;
    bool found =
        asprintf(&name, "%s%s", module, suffix) >= 0 && tcq_source_find(source, name) != NULL;
    free(name);
    return found;
}

static const char *cannot_pack(const struct tcq_source *source, const struct plan_entry *entry)
{
    const struct tcq_source_tensor *tensor = entry->tensor;
    if (strcmp(entry->module, tensor->name) == 0)
        return "its name does not end in .weight";
    if (tensor->rank != 2)
        return "not a matrix";
    if (tensor->count == 0)
        return "empty";
    if (!is_float(source, tensor))
        return "not of a floating-point type";
    bool taken = has_tensor(source, entry->module, ".scales") ||
                 has_tensor(source, entry->module, ".biases");
    return taken ? "the source has scales or biases for it: quantized already" : NULL;
}

static const char *misfit(const struct plan_options *options, uint32_t axis)
{
    if (options->mlx_bun || options->block)
        return axis == PLAN_AXIS_AUTO ? "neither side is a multiple of the block"
                                      : "the coded side is no multiple of the block";
    return axis == PLAN_AXIS_AUTO ? "neither side is a multiple of 64"
                                  : "the coded side is no multiple of 64";
}

/* The dtype of a tensor that is not packed: as stored, but 16 bits for a
 * projection that fits no block and for GGUF's block types. */
static enum tcq_dtype kept_dtype(const struct tcq_source_tensor *tensor, bool narrow)
{
    bool wide = tensor->dtype == TCQ_DTYPE_F32 || tensor->dtype == TCQ_DTYPE_F64;
    if (tensor->dtype == TCQ_DTYPE_COUNT && strcmp(tensor->type, "F16") == 0)
        return TCQ_DTYPE_F16; /* of GGUF, rows in another order */
    if (tensor->dtype == TCQ_DTYPE_COUNT && strcmp(tensor->type, "F32") == 0)
        return narrow ? TCQ_DTYPE_BF16 : TCQ_DTYPE_F32;
    return tensor->dtype == TCQ_DTYPE_COUNT || (wide && narrow) ? TCQ_DTYPE_BF16 : tensor->dtype;
}

static int keep(const struct tcq_source *source, struct plan_entry *entry, const char *reason)
{
    const struct tcq_source_tensor *tensor = entry->tensor;
    entry->reason = reason;
    entry->dtype = kept_dtype(tensor, reason && is_float(source, tensor));
    entry->action = entry->dtype == tensor->dtype ? PLAN_COPY : PLAN_CONVERT;
    entry->nbytes = tensor->count * tcq_dtype_nbytes(entry->dtype);
    if (entry->action == PLAN_CONVERT && !is_float(source, tensor)) {
        cli_message("%s: tensor '%s': type %s can be neither packed nor kept", tensor->file,
                    tensor->name, tensor->type);
        return CLI_FAILED;
    }
    return CLI_CONTINUE;
}

static int plan_one(const struct tcq_source *source, struct plan_options *options,
                    struct plan_entry *entry)
{
    bool wanted = is_wanted(options, entry);
    /* a pattern for a whole layer means its matrices: norms and biases stay as they are */
    if (entry->tensor->rank < 2)
        wanted = false;
    const char *reason = wanted ? cannot_pack(source, entry) : NULL;
    if (!wanted || reason)
        return keep(source, entry, reason);
    const struct plan_pattern *bits = match(&options->bits_for, entry);
    struct tcq_geometry *geometry = &entry->geometry;
    bool end = is_end(entry->module);
    uint32_t k = end && options->head_bits ? options->head_bits : options->k;
    if (!choose_geometry(options, entry, bits ? bits->k : k, geometry)) {
        int preset = options->mlx_bun ? preset_axis(entry->module) : -1;
        uint32_t axis = end ? 1 : preset >= 0 ? (uint32_t)preset : options->axis;
        return keep(source, entry, misfit(options, axis));
    }
    struct tcq_error error = {0};
    if (tcq_geometry_check(geometry, &error) != TCQ_OK) {
        cli_message("tensor '%s': %s", entry->tensor->name, error.message);
        return CLI_FAILED;
    }
    entry->action = PLAN_PACK;
    entry->dtype = TCQ_DTYPE_U32;
    entry->nbytes = tcq_geometry_words(geometry) * 4 + geometry->rows * 2;
    return CLI_CONTINUE;
}

static char *module_name(const char *name)
{
    static const char suffix[] = ".weight";
    size_t n = strlen(name), s = sizeof suffix - 1;
    bool ends = n > s && strcmp(name + n - s, suffix) == 0;
    return strndup(name, ends ? n - s : n);
}

/* Files are filled in order, each up to shard_nbytes; a larger tensor has its own. */
static void assign_shards(struct plan *plan, uint64_t shard_nbytes)
{
    uint64_t filled = 0;
    size_t shard = 0;
    for (size_t i = 0; i < plan->count; i++) {
        struct plan_entry *entry = &plan->entries[i];
        if (filled && filled + entry->nbytes > shard_nbytes) {
            shard++;
            filled = 0;
        }
        filled += entry->nbytes;
        entry->shard = shard;
    }
    plan->shard_count = shard + 1;
}

static void sum_up(struct plan *plan)
{
    plan->packed_count = 0;
    plan->packed_weights = plan->packed_nbytes = plan->weights = plan->nbytes = 0;
    plan->source_nbytes = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        plan->weights += entry->tensor->count;
        plan->source_nbytes += entry->tensor->nbytes;
        plan->nbytes += entry->nbytes;
        if (entry->action != PLAN_PACK)
            continue;
        plan->packed_count++;
        plan->packed_weights += entry->tensor->count;
        plan->packed_nbytes += entry->nbytes;
    }
}

static int check_used(const char *option, const struct plan_patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (!patterns->list[i].used)
            return cli_usage("%s '%s': matches no tensor%s", option, patterns->list[i].glob,
                             strcmp(option, "--bits-for") == 0 ? " that is packed" : "");
    return CLI_CONTINUE;
}

static int fill(const struct tcq_source *source, struct plan_options *options, struct plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        struct plan_entry *entry = &plan->entries[i];
        entry->tensor = tcq_source_get(source, i);
        entry->module = module_name(entry->tensor->name);
        if (!entry->module)
            return cli_out_of_memory();
        int code = plan_one(source, options, entry);
        if (code != CLI_CONTINUE)
            return code;
    }
    int code = check_used("--include", &options->include);
    if (code == CLI_CONTINUE)
        code = check_used("--exclude", &options->exclude);
    if (code == CLI_CONTINUE)
        code = check_used("--bits-for", &options->bits_for);
    if (code == CLI_CONTINUE && options->head_bits && !options->head_found)
        code = cli_usage("--head-bits: the source has neither an embedding nor a head");
    return code;
}

int plan_make(const struct tcq_source *source, struct plan_options *options, struct plan *out)
{
    struct plan plan = {.count = tcq_source_count(source)};
    plan.entries = calloc(plan.count ? plan.count : 1, sizeof *plan.entries);
    if (!plan.entries)
        return cli_out_of_memory();
    int code = fill(source, options, &plan);
    if (code != CLI_CONTINUE) {
        plan_free(&plan);
        return code;
    }
    assign_shards(&plan, options->shard_nbytes);
    sum_up(&plan);
    *out = plan;
    return CLI_CONTINUE;
}

void plan_keep(struct plan *plan, const uint32_t *owner, uint32_t mine)
{
    size_t kept = 0;
    for (size_t i = 0; i < plan->count; i++) {
        if (owner[i] != mine) {
            free(plan->entries[i].module);
            continue;
        }
        plan->entries[kept] = plan->entries[i];
        plan->entries[kept++].shard = 0;
    }
    plan->count = kept;
    plan->shard_count = 1;
    sum_up(plan);
}

void plan_free(struct plan *plan)
{
    for (size_t i = 0; plan->entries && i < plan->count; i++)
        free(plan->entries[i].module);
    free(plan->entries);
    *plan = (struct plan){0};
}

uint32_t plan_words_shape(const struct tcq_geometry *geometry, uint64_t shape[3])
{
    if (geometry->layout == TCQ_LAYOUT_INTERLEAVED) {
        shape[0] = geometry->cols / 512;
        shape[1] = geometry->rows;
        shape[2] = 48;
        return 3;
    }
    shape[0] = geometry->rows;
    shape[1] = tcq_geometry_row_words(geometry);
    return 2;
}
