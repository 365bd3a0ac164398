/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a small Llama-shaped model of normally distributed weights, the same
 * bytes for the same arguments: what the tests of the command, and the demo
 * without a network, work on.
 *
 *     tcq-synth-model DIR [layers [hidden [intermediate [vocabulary [FLAW]]]]]
 *
 * FLAW "nan", "inf" or "zero" spoils layer 0's up_proj: one weight at row 3,
 * column 5, or all of it; "other" gives other weights of the same shapes, "untied" adds a
 * head of its own.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tcq.h"

enum { TENSORS_MAX = 4096, ROW_MAX = 1 << 16, FLAW_ROW = 3, FLAW_COLUMN = 5 };

struct model {
    uint64_t layers, hidden, intermediate, vocabulary;
    const char *flaw;
    char folder[4096];
    char names[TENSORS_MAX][96];
    uint64_t shapes[TENSORS_MAX][2]; /* a vector has shape[0] == 0 */
    size_t count;
    uint64_t random;
};

static uint64_t next_random(struct model *m)
{
    uint64_t z = m->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static float normal(struct model *m)
{
    double u = ((double)(next_random(m) >> 11) + 0.5) * 0x1p-53;
    double v = (double)(next_random(m) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static void add(struct model *m, const char *prefix, const char *name, uint64_t rows, uint64_t cols)
{
    if (m->count == TENSORS_MAX) {
        fputs("too many tensors\n", stderr);
        exit(1);
    }
    snprintf(m->names[m->count], sizeof *m->names, "%s%s.weight", prefix, name);
    m->shapes[m->count][0] = rows;
    m->shapes[m->count++][1] = cols;
}

static bool is_untied(const struct model *m)
{
    return m->flaw && strcmp(m->flaw, "untied") == 0;
}

static void list_tensors(struct model *m)
{
    uint64_t h = m->hidden, f = m->intermediate, kv = h / 2;
    add(m, "model.", "embed_tokens", m->vocabulary, h);
    add(m, "model.", "norm", 0, h);
    if (is_untied(m))
        add(m, "", "lm_head", m->vocabulary, h);
    for (uint64_t i = 0; i < m->layers; i++) {
        char p[64];
        snprintf(p, sizeof p, "model.layers.%" PRIu64 ".", i);
        add(m, p, "input_layernorm", 0, h);
        add(m, p, "post_attention_layernorm", 0, h);
        add(m, p, "self_attn.q_proj", h, h);
        add(m, p, "self_attn.k_proj", kv, h);
        add(m, p, "self_attn.v_proj", kv, h);
        add(m, p, "self_attn.o_proj", h, h);
        add(m, p, "mlp.gate_proj", f, h);
        add(m, p, "mlp.up_proj", f, h);
        add(m, p, "mlp.down_proj", h, f);
    }
}

static void fill_row(struct model *m, uint16_t *row, size_t tensor, uint64_t r)
{
    static float values[ROW_MAX];
    uint64_t cols = m->shapes[tensor][1];
    bool vector = m->shapes[tensor][0] == 0;
    bool flawed = m->flaw && !is_untied(m) && strcmp(m->names[tensor], "model.layers.0.mlp.up_proj.weight") == 0;
    for (uint64_t c = 0; c < cols; c++)
        values[c] = vector ? 1 + 0.1f * normal(m) : 0.02f * normal(m);
    if (flawed && strcmp(m->flaw, "zero") == 0)
        memset(values, 0, cols * sizeof *values);
    else if (flawed && r == FLAW_ROW && strcmp(m->flaw, "other") != 0)
        values[FLAW_COLUMN] = strcmp(m->flaw, "nan") == 0 ? NAN : INFINITY;
    tcq_convert_from_f32(row, TCQ_DTYPE_BF16, values, (size_t)cols);
}

static enum tcq_status write_weights(struct model *m, struct tcq_error *error)
{
    static uint16_t row[ROW_MAX];
    char path[4200];
    snprintf(path, sizeof path, "%s/model.safetensors", m->folder);
    struct tcq_writer *writer = NULL;
    enum tcq_status status = tcq_writer_create(path, true, &writer, error);
    for (size_t i = 0; status == TCQ_OK && i < m->count; i++) {
        bool vector = m->shapes[i][0] == 0;
        status = tcq_writer_declare(writer, m->names[i], TCQ_DTYPE_BF16, vector ? 1 : 2,
                                    m->shapes[i] + vector, error);
    }
    if (status == TCQ_OK)
        status = tcq_writer_begin(writer, false, NULL, error);
    for (size_t i = 0; status == TCQ_OK && i < m->count; i++)
        for (uint64_t r = 0; status == TCQ_OK && r < (m->shapes[i][0] ? m->shapes[i][0] : 1); r++) {
            fill_row(m, row, i, r);
            status = tcq_writer_write(writer, row, (size_t)m->shapes[i][1] * sizeof *row, error);
        }
    if (status == TCQ_OK)
        status = tcq_writer_finish(writer, error);
    tcq_writer_destroy(writer, false);
    return status;
}

static bool write_text(const struct model *m, const char *name, const char *text)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", m->folder, name);
    FILE *file = fopen(path, "w");
    bool ok = file && fputs(text, file) != EOF;
    return file && fclose(file) == 0 && ok;
}

static bool write_config(const struct model *m)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
             "  \"hidden_size\": %" PRIu64 ",\n  \"intermediate_size\": %" PRIu64 ",\n"
             "  \"num_hidden_layers\": %" PRIu64 ",\n  \"num_attention_heads\": 4,\n"
             "  \"num_key_value_heads\": 2,\n  \"vocab_size\": %" PRIu64 ",\n"
             "  \"max_position_embeddings\": 512,\n  \"rms_norm_eps\": 1e-05,\n"
             "  \"rope_theta\": 10000.0,\n  \"hidden_act\": \"silu\",\n"
             "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"bfloat16\"\n}\n",
             m->hidden, m->intermediate, m->layers, m->vocabulary, is_untied(m) ? "false" : "true");
    return write_text(m, "config.json", text) &&
           write_text(m, "README.md", "A synthetic model: random weights.\n") &&
           write_text(m, "tokenizer_config.json", "{\"model_max_length\": 512}\n");
}

static uint64_t number(int argc, char **argv, int i, uint64_t fallback)
{
    return i < argc ? strtoull(argv[i], NULL, 10) : fallback;
}

int main(int argc, char **argv)
{
    static struct model m;
    if (argc < 2 || argc > 7 || argv[1][0] == '-') {
        fputs("usage: tcq-synth-model DIR [layers [hidden [intermediate [vocabulary [FLAW]]]]]\n",
              stderr);
        return 2;
    }
    snprintf(m.folder, sizeof m.folder, "%s", argv[1]);
    m.layers = number(argc, argv, 2, 2);
    m.hidden = number(argc, argv, 3, 128);
    m.intermediate = number(argc, argv, 4, 256);
    m.vocabulary = number(argc, argv, 5, 100);
    m.flaw = argc > 6 ? argv[6] : NULL;
    if (!m.hidden || m.hidden > ROW_MAX || !m.intermediate || m.intermediate > ROW_MAX) {
        fprintf(stderr, "sizes must be 1 to %d\n", ROW_MAX);
        return 2;
    }
    m.random = m.flaw && strcmp(m.flaw, "other") == 0; /* the seed */
    list_tensors(&m);
    if (mkdir(m.folder, 0777) != 0 && errno != EEXIST) {
        perror(m.folder);
        return 1;
    }
    struct tcq_error error = {0};
    if (write_weights(&m, &error) != TCQ_OK || !write_config(&m)) {
        fprintf(stderr, "%s: %s\n", m.folder, *error.message ? error.message : strerror(errno));
        return 1;
    }
    return 0;
}
