/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq synth: a packed model of a known shape with random words, for timing and
 * memory without downloading weights.  Any words are valid blocks, and scales
 * of 1/sqrt(inputs) keep activations of ordinary size.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/half.h"
#include "commands.h"
#include "output.h"
#include "resources.h"

enum { KEY_SHAPE = CLI_KEY_LONG, KEY_BITS, KEY_HEAD_BITS, KEY_LAYERS, KEY_SEED, KEY_FORCE };
enum { MODULES_MAX = 8192, NAME_MAX_NBYTES = 96, CHUNK_WORDS = 1 << 16, BYTE_TOKENS = 256 };

static const struct shape {
    const char *name, *family;
    uint32_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocab, positions;
    double theta;
    bool tied;
} shapes[] = {
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 100000, true},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 500000, true},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 500000, false},
    {"llama-3.1-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 500000, false},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1000000, true},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1000000, false},
    {"qwen3-32b", "qwen3", 64, 5120, 25600, 64, 8, 128, 151936, 40960, 1000000, false},
};
enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes };

static const struct cli_option option_list[] = {
    {'o', "output", "DIR", "folder to create (required)"},
    {KEY_SHAPE, "shape", "NAME", "which model (required): the names are above"},
    {KEY_BITS, "bits", "K", "bits a weight, 1 to 6 (default 3)"},
    {KEY_HEAD_BITS, "head-bits", "K", "of embedding and head (default: as --bits)"},
    {KEY_LAYERS, "layers", "N", "only so many layers"},
    {KEY_SEED, "seed", "N", "of the random words (default 1)"},
    {KEY_FORCE, "force", NULL, "replace an existing output"},
    {0},
};

struct options {
    const char *output;
    const struct shape *shape;
    uint32_t bits, head_bits, layers, seed;
    bool force;
};

/* A matrix that is packed, or (k 0) a norm of ones. */
struct module {
    char name[NAME_MAX_NBYTES];
    uint32_t out, in, k;
};

struct synth {
    const struct options *options;
    const struct cli_args *args;
    struct module *modules;
    size_t count;
    struct tcq_writer *writer;
    uint32_t *words; /* [CHUNK_WORDS] */
    uint64_t random, done, total;
    struct cli_progress progress;
};

static int set_shape(struct options *options, const char *value)
{
    const char *names[SHAPE_COUNT];
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        names[i] = shapes[i].name;
        if (strcmp(value, names[i]) == 0) {
            options->shape = &shapes[i];
            return CLI_CONTINUE;
        }
    }
    return cli_usage_names("--shape", value, names, SHAPE_COUNT);
}

static int set_option(void *user, int key, const char *value)
{
    struct options *options = user;
    switch (key) {
    case 'o':
        options->output = value;
        return *value ? CLI_CONTINUE : cli_usage("--output: must not be empty");
    case KEY_SHAPE:
        return set_shape(options, value);
    case KEY_BITS:
        return cli_parse_u32("--bits", value, TCQ_K_MIN, TCQ_K_MAX, &options->bits);
    case KEY_HEAD_BITS:
        return cli_parse_u32("--head-bits", value, TCQ_K_MIN, TCQ_K_MAX, &options->head_bits);
    case KEY_LAYERS:
        return cli_parse_u32("--layers", value, 1, 1024, &options->layers);
    case KEY_SEED:
        return cli_parse_u32("--seed", value, 0, UINT32_MAX, &options->seed);
    default:
        options->force = true;
        return CLI_CONTINUE;
    }
}

/* ---- What there is ---- */

static void add(struct synth *s, const char *prefix, const char *name, uint32_t out, uint32_t in,
                uint32_t k)
{
    struct module *m = &s->modules[s->count++];
    snprintf(m->name, sizeof m->name, "%s%s", prefix, name);
    m->out = out;
    m->in = in;
    m->k = k;
}

static void list_modules(struct synth *s)
{
    const struct shape *shape = s->options->shape;
    uint32_t q = shape->heads * shape->head_dim, kv = shape->kv_heads * shape->head_dim;
    uint32_t h = shape->hidden, f = shape->intermediate, k = s->options->bits;
    char p[NAME_MAX_NBYTES / 2];
    add(s, "model.", "embed_tokens", shape->vocab, h, s->options->head_bits);
    for (uint32_t i = 0; i < s->options->layers; i++) {
        snprintf(p, sizeof p, "model.layers.%u.", i);
        add(s, p, "input_layernorm", 1, h, 0);
        add(s, p, "self_attn.q_proj", q, h, k);
        add(s, p, "self_attn.k_proj", kv, h, k);
        add(s, p, "self_attn.v_proj", kv, h, k);
        add(s, p, "self_attn.o_proj", h, q, k);
        if (strcmp(shape->family, "qwen3") == 0) {
            add(s, p, "self_attn.q_norm", 1, shape->head_dim, 0);
            add(s, p, "self_attn.k_norm", 1, shape->head_dim, 0);
        }
        add(s, p, "post_attention_layernorm", 1, h, 0);
        add(s, p, "mlp.gate_proj", f, h, k);
        add(s, p, "mlp.up_proj", f, h, k);
        add(s, p, "mlp.down_proj", h, f, k);
    }
    add(s, "model.", "norm", 1, h, 0);
    if (!shape->tied)
        add(s, "", "lm_head", shape->vocab, h, s->options->head_bits);
}

static uint32_t block_of(uint32_t in)
{
    return in % 256 == 0 ? 256 : in % 128 == 0 ? 128 : 64;
}

static struct tcq_geometry geometry_of(const struct module *m)
{
    return (struct tcq_geometry){.k = m->k, .L = 12, .T = block_of(m->in), .axis = 1,
                                 .rows = m->out, .cols = m->in};
}

/* ---- Writing ---- */

static enum tcq_status declare(struct synth *s, const struct module *m, struct tcq_error *error)
{
    char name[NAME_MAX_NBYTES + 16];
    snprintf(name, sizeof name, "%s.weight", m->name);
    uint64_t vector[1] = {m->in}, scales[1] = {m->out};
    uint64_t words[2] = {m->out, (uint64_t)m->in * m->k / 32};
    if (m->k == 0)
        return tcq_writer_declare(s->writer, name, TCQ_DTYPE_F32, 1, vector, error);
    enum tcq_status status = tcq_writer_declare(s->writer, name, TCQ_DTYPE_U32, 2, words, error);
    snprintf(name, sizeof name, "%s.scales", m->name);
    return status ? status : tcq_writer_declare(s->writer, name, TCQ_DTYPE_F16, 1, scales, error);
}

static enum tcq_status write_words(struct synth *s, size_t count, struct tcq_error *error)
{
    enum tcq_status status = TCQ_OK;
    while (count && !status) {
        size_t n = count < CHUNK_WORDS ? count : CHUNK_WORDS;
        for (size_t i = 0; i < n; i++) {
            uint64_t z = s->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
            s->words[i] = (uint32_t)((z ^ (z >> 27)) * 0x94d049bb133111ebu >> 32);
        }
        status = tcq_writer_write(s->writer, s->words, n * sizeof *s->words, error);
        count -= n;
        s->done += n * sizeof *s->words;
        cli_progress_show(&s->progress, s->done, NULL);
        if (!status && cli_interrupted())
            status = TCQ_ERROR_CANCELLED;
    }
    return status;
}

/* `count` times one 16-bit or 32-bit pattern. */
static enum tcq_status write_same(struct synth *s, uint32_t pattern, size_t size, size_t count,
                                  struct tcq_error *error)
{
    enum tcq_status status = TCQ_OK;
    for (size_t i = 0; i < CHUNK_WORDS; i++)
        s->words[i] = size == 2 ? pattern * 0x10001u : pattern;
    for (size_t left = count * size; left && !status;) {
        size_t n = left < CHUNK_WORDS * sizeof *s->words ? left : CHUNK_WORDS * sizeof *s->words;
        status = tcq_writer_write(s->writer, s->words, n, error);
        left -= n;
    }
    return status;
}

static enum tcq_status write_module(struct synth *s, const struct module *m,
                                    struct tcq_error *error)
{
    if (m->k == 0)
        return write_same(s, tcq_float_bits(1.0f), 4, m->in, error);
    struct tcq_geometry geometry = geometry_of(m);
    float scale = (float)(1 / sqrt((double)m->in));
    enum tcq_status status = write_words(s, tcq_geometry_words(&geometry), error);
    return status ? status : write_same(s, tcq_f16_from_f32(scale), 2, m->out, error);
}

static enum tcq_status write_weights(struct synth *s, const char *path, struct tcq_error *error)
{
    enum tcq_status status = tcq_writer_create(path, true, &s->writer, error);
    for (size_t i = 0; i < s->count && !status; i++)
        status = declare(s, &s->modules[i], error);
    if (!status)
        status = tcq_writer_begin(s->writer, false, NULL, error);
    for (size_t i = 0; i < s->count && !status; i++)
        status = write_module(s, &s->modules[i], error);
    if (!status)
        status = tcq_writer_finish(s->writer, error);
    tcq_writer_destroy(s->writer, false);
    return status;
}

/* config.json: the shape, then the packed modules. */
static enum tcq_status config_text(const struct synth *s, char **out, struct tcq_error *error)
{
    const struct shape *shape = s->options->shape;
    struct tcq_module_entry *entries = calloc(s->count, sizeof *entries);
    json_t *json = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b, s:s}", "model_type",
        shape->family, "num_hidden_layers", (int)s->options->layers, "hidden_size",
        (int)shape->hidden, "intermediate_size", (int)shape->intermediate, "num_attention_heads",
        (int)shape->heads, "num_key_value_heads", (int)shape->kv_heads, "head_dim",
        (int)shape->head_dim, "vocab_size", (int)shape->vocab, "max_position_embeddings",
        (int)shape->positions, "rope_theta", shape->theta, "rms_norm_eps", 1e-6,
        "tie_word_embeddings", (int)shape->tied, "hidden_act", "silu");
    char *text = json ? json_dumps(json, 0) : NULL;
    enum tcq_status status = TCQ_ERROR_MEMORY;
    size_t count = 0;
    for (size_t i = 0; entries && i < s->count; i++) {
        const struct module *m = &s->modules[i];
        if (m->k)
            entries[count++] = (struct tcq_module_entry){
                m->name, true, {.k = m->k, .L = 12, .T = block_of(m->in), .axis = 1}};
    }
    if (entries && text)
        status = tcq_config_write(text, entries, count, out, error);
    free(text);
    json_decref(json);
    free(entries);
    return status;
}

/* A tokenizer of single bytes, so that the model can be run, too. */
static char *tokenizer_text(void)
{
    json_t *vocab = json_object();
    for (int byte = 0, hidden = 0; vocab && byte < BYTE_TOKENS; byte++) {
        bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
        int code = printable ? byte : 0x100 + hidden++;
        char key[3] = {0};
        if (code < 0x80) {
            key[0] = (char)code;
        } else {
            key[0] = (char)(0xc0 | code >> 6);
            key[1] = (char)(0x80 | (code & 0x3f));
        }
        json_object_set_new(vocab, key, json_integer(byte));
    }
    json_t *root = json_pack("{s:{s:s, s:o, s:[]}, s:{s:s}, s:{s:s, s:b, s:b}}", "model", "type",
                             "BPE", "vocab", vocab, "merges", "decoder", "type", "ByteLevel",
                             "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0,
                             "use_regex", 1);
    char *text = root ? json_dumps(root, 0) : NULL;
    json_decref(root);
    return text;
}

static int write_texts(const struct synth *s, const struct output *output)
{
    struct tcq_error error = {0};
    char *config = NULL, *tokenizer = tokenizer_text();
    if (config_text(s, &config, &error)) {
        free(tokenizer);
        return cli_fail("config.json", &error);
    }
    int code = tokenizer ? output_write_text(output, "config.json", config) : cli_out_of_memory();
    if (code == CLI_CONTINUE)
        code = output_write_text(output, "tokenizer.json", tokenizer);
    free(config);
    free(tokenizer);
    return code;
}

static int write_folder(struct synth *s, struct output *output)
{
    struct tcq_error error = {0};
    char *path = tcq_path_join(output->partial, "model.safetensors");
    if (!path)
        return cli_out_of_memory();
    cli_progress_start(&s->progress, s->args, "writing", "B", 0, s->total);
    enum tcq_status status = write_weights(s, path, &error);
    cli_progress_end(&s->progress);
    free(path);
    if (status)
        return status == TCQ_ERROR_CANCELLED ? CLI_FAILED : cli_fail(output->partial, &error);
    int code = write_texts(s, output);
    return code == CLI_CONTINUE ? output_commit(output, s->options->force) : code;
}

static int synthesize(struct synth *s)
{
    struct output output;
    json_t *job = json_pack("{s:s}", "command", "synth");
    s->modules = calloc(MODULES_MAX, sizeof *s->modules);
    s->words = malloc(CHUNK_WORDS * sizeof *s->words);
    if (!s->modules || !s->words || !job)
        return cli_out_of_memory();
    list_modules(s);
    for (size_t i = 0; i < s->count; i++)
        if (s->modules[i].k) {
            struct tcq_geometry geometry = geometry_of(&s->modules[i]);
            s->total += tcq_geometry_words(&geometry) * 4;
        }
    int code = output_check(s->options->output, false, s->options->force);
    if (code == CLI_CONTINUE)
        code = resources_check_disk(s->options->output, s->total, 0);
    if (code == CLI_CONTINUE)
        code = output_open(&output, s->options->output, false, s->options->force, job);
    json_decref(job);
    if (code != CLI_CONTINUE)
        return code;
    code = write_folder(s, &output);
    if (code != CLI_CONTINUE) {
        output_discard(&output);
        return code;
    }
    output_close(&output);
    if (!s->args->quiet)
        cli_message("%s: random weights in the shape of %s, %s", s->options->output,
                    s->options->shape->name, cli_nbytes_text(s->total).s);
    return CLI_OK;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct options options = {.bits = 3, .seed = 1};
    struct cli_args args;
    int code = cli_parse(self, argc, argv, 0, 0, set_option, &options, &args);
    if (code == CLI_CONTINUE && (!options.output || !options.shape))
        code = cli_usage("--shape NAME and --output DIR are required");
    if (code != CLI_CONTINUE)
        return code;
    options.head_bits = options.head_bits ? options.head_bits : options.bits;
    if (options.layers == 0 || options.layers > options.shape->layers)
        options.layers = options.shape->layers;
    struct synth s = {.options = &options, .args = &args, .random = options.seed};
    cli_signals_catch();
    code = synthesize(&s);
    free(s.modules);
    free(s.words);
    return code;
}

const struct cli_command cmd_synth = {
    .name = "synth",
    .summary = "Make a packed model of a known shape with random weights, for timing",
    .usage = "--shape NAME -o DIR [OPTION...]",
    .details = "Shapes: smollm2-135m, llama-3.2-1b, llama-3.1-8b, llama-3.1-70b, qwen3-0.6b, qwen3-8b,\n"
               "qwen3-32b. Every matrix is packed; what the model says is noise.",
    .options = option_list,
    .common = CLI_QUIET,
    .run = run,
};
