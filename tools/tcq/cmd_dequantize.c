/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq dequantize: a packed (or GGUF) model as plain safetensors.
 */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "commands.h"
#include "companions.h"
#include "format/config.h"
#include "model_config.h"
#include "model_view.h"
#include "model_writer.h"
#include "output.h"
#include "resources.h"

enum { KEY_DTYPE = CLI_KEY_LONG, KEY_FORCE, KEY_SHARD_SIZE, CHUNK_WEIGHTS = 1 << 18 };

static const struct cli_option option_list[] = {
    {'o', "output", "FILE", "a .safetensors file, or a folder to create (required)"},
    {KEY_DTYPE, "dtype", "TYPE", "of the decoded weights: bf16 (default), f16 or f32"},
    {KEY_SHARD_SIZE, "shard-size", "SIZE", "largest file of a folder (default 5GiB)"},
    {KEY_FORCE, "force", NULL, "replace an existing output"},
    {0},
};

struct options {
    const char *output;
    enum tcq_dtype dtype;
    uint64_t shard_nbytes;
    bool force;
};

struct dequantize {
    const struct options *options;
    const struct cli_args *args;
    struct model_view view;
    struct tcq_context *context;
    struct model_tensor *tensors; /* one an item */
};

static int set_dtype(struct options *options, const char *value)
{
    static const struct {
        const char *name;
        enum tcq_dtype dtype;
    } types[] = {{"bf16", TCQ_DTYPE_BF16}, {"f16", TCQ_DTYPE_F16}, {"f32", TCQ_DTYPE_F32}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(value, types[i].name) == 0) {
            options->dtype = types[i].dtype;
            return CLI_CONTINUE;
        }
    return cli_usage("--dtype '%s': expected bf16, f16 or f32", value);
}

static int set_option(void *user, int key, const char *value)
{
    struct options *options = user;
    switch (key) {
    case 'o':
        options->output = value;
        return *value ? CLI_CONTINUE : cli_usage("--output: must not be empty");
    case KEY_DTYPE:
        return set_dtype(options, value);
    case KEY_SHARD_SIZE:
        return cli_parse_nbytes("--shard-size", value, &options->shard_nbytes);
    default:
        options->force = true;
        return CLI_CONTINUE;
    }
}

/* ---- What is written ---- */

/* Packed and affine weights and GGUF's block types are decoded, the rest copied. */
static bool is_decoded(const struct model_item *item)
{
    return item->packed || item->grouped || item->stored->dtype == TCQ_DTYPE_COUNT;
}

/* "a.weight" of 32-bit words goes with "a.scales" where it is packed. */
static bool has_scales(const struct model_view *view, const struct model_item *item)
{
    size_t n = strlen(item->name), s = strlen(".weight");
    char *name = NULL;
    bool found = n > s && strcmp(item->name + n - s, ".weight") == 0 &&
                 asprintf(&name, "%.*s.scales", (int)(n - s), item->name) >= 0 &&
                 model_view_find(view, name) != NULL;
    free(name);
    return found;
}

static int list_tensors(struct dequantize *d, bool folder)
{
    d->tensors = calloc(d->view.count + 1, sizeof *d->tensors);
    if (!d->tensors)
        return cli_out_of_memory();
    uint64_t filled = 0;
    size_t shard = 0;
    for (size_t i = 0; i < d->view.count; i++) {
        const struct model_item *item = &d->view.items[i];
        struct model_tensor *t = &d->tensors[i];
        if (item->problem) {
            cli_message("%s: %s", d->view.path, item->problem);
            return CLI_FAILED;
        }
        if (!is_decoded(item) && item->stored->dtype == TCQ_DTYPE_U32 &&
            has_scales(&d->view, item)) {
            cli_message("%s: tensor '%s': looks packed, and no config.json beside it says how",
                        d->view.path, item->name);
            return CLI_FAILED;
        }
        if (is_decoded(item) && !model_item_is_float(&d->view, item)) {
            cli_message("%s: tensor '%s': type %s cannot be decoded", d->view.path, item->name,
                        item->stored->type);
            return CLI_FAILED;
        }
        t->name = item->name;
        t->dtype = is_decoded(item) ? d->options->dtype : item->stored->dtype;
        t->rank = item->rank;
        memcpy(t->shape, item->shape, sizeof t->shape);
        uint64_t nbytes = model_tensor_nbytes(t);
        if (folder && filled && filled + nbytes > d->options->shard_nbytes) {
            shard++;
            filled = 0;
        }
        filled += nbytes;
        t->shard = shard;
    }
    return CLI_CONTINUE;
}

/* Chunks of rows decoded by all threads at once, then written in order. */
struct batch {
    const struct dequantize *d;
    const struct model_item *item;
    uint64_t first, rows, step; /* rows of this batch, rows a chunk */
    float *values;              /* [threads][step * cols] */
    uint8_t *out;               /* the batch */
    enum tcq_status *statuses;  /* one a chunk */
};

static void decode_chunk(void *argument, size_t thread, size_t chunk)
{
    struct batch *b = argument;
    uint64_t cols = model_item_cols(b->item), at = chunk * b->step;
    uint64_t rows = b->rows - at < b->step ? b->rows - at : b->step;
    float *values = b->values + thread * b->step * cols;
    enum tcq_dtype dtype = b->d->options->dtype;
    enum tcq_status status =
        model_item_read(&b->d->view, values, b->item, b->first + at, rows, NULL);
    if (status == TCQ_OK)
        status = tcq_convert_from_f32(b->out + at * cols * tcq_dtype_nbytes(dtype), dtype, values,
                                      (size_t)(rows * cols));
    b->statuses[chunk] = status;
}

static enum tcq_status decode_batches(const struct dequantize *d, struct batch *b, size_t chunks,
                                      struct model_writer *writer, size_t i,
                                      struct tcq_error *error)
{
    uint64_t total = model_item_rows(b->item), cols = model_item_cols(b->item);
    enum tcq_status status = TCQ_OK;
    for (b->first = 0; status == TCQ_OK && b->first < total; b->first += chunks * b->step) {
        uint64_t left = total - b->first, full = chunks * b->step;
        b->rows = left < full ? left : full;
        size_t count = (size_t)((b->rows + b->step - 1) / b->step);
        tcq_context_run(d->context, decode_chunk, b, count);
        for (size_t c = 0; status == TCQ_OK && c < count; c++)
            if (b->statuses[c] != TCQ_OK)
                status = tcq_error_set(error, b->statuses[c], "tensor '%s': cannot be decoded",
                                       b->item->name);
        if (status == TCQ_OK && cli_interrupted())
            status = tcq_error_set(error, TCQ_ERROR_CANCELLED, "interrupted");
        if (status == TCQ_OK)
            status = model_writer_write(
                writer, i, b->out, (size_t)(b->rows * cols) * tcq_dtype_nbytes(d->options->dtype),
                error);
    }
    return status;
}

static enum tcq_status write_decoded(const struct dequantize *d, struct model_writer *writer,
                                     size_t i, struct tcq_error *error)
{
    const struct model_item *item = &d->view.items[i];
    size_t threads = tcq_context_threads(d->context);
    uint64_t cols = model_item_cols(item);
    struct batch b = {.d = d, .item = item, .step = model_item_step(item, CHUNK_WEIGHTS)};
    size_t chunk = (size_t)(b.step * cols);
    b.values = tcq_alloc(threads * chunk, sizeof *b.values);
    b.out = tcq_alloc(threads * chunk, tcq_dtype_nbytes(d->options->dtype));
    b.statuses = tcq_alloc(threads, sizeof *b.statuses);
    enum tcq_status status;
    if (b.values && b.out && b.statuses)
        status = decode_batches(d, &b, threads, writer, i, error);
    else
        status = tcq_error_memory(error, threads * chunk * sizeof *b.values, item->name);
    tcq_free(b.values);
    tcq_free(b.out);
    tcq_free(b.statuses);
    return status;
}

static int write_tensors(struct dequantize *d, const char *folder, const char *name)
{
    struct model_writer writer;
    struct tcq_error error = {0};
    struct cli_progress progress;
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < d->view.count; i++)
        total += d->view.items[i].count;
    cli_progress_start(&progress, d->args, "writing", "weights", 0, total);
    enum tcq_status status = model_writer_open(&writer, folder, name, d->options->force, d->tensors,
                                               d->view.count, false, NULL, &error);
    for (size_t i = 0; status == TCQ_OK && i < d->view.count; i++) {
        const struct model_item *item = &d->view.items[i];
        cli_progress_show(&progress, done, item->name);
        if (is_decoded(item) && item->count)
            status = write_decoded(d, &writer, i, &error);
        else
            status = model_writer_write(&writer, i, item->stored ? item->stored->data : NULL,
                                        is_decoded(item) ? 0 : (size_t)item->nbytes, &error);
        done += item->count;
    }
    if (status == TCQ_OK)
        status = model_writer_finish(&writer, &error);
    cli_progress_end(&progress);
    model_writer_close(&writer, false);
    return status == TCQ_OK ? CLI_CONTINUE : cli_fail(NULL, &error);
}

/* ---- A file or a folder ---- */

static bool wants_file(const char *output)
{
    size_t n = strlen(output), s = strlen(".safetensors");
    return n > s && strcmp(output + n - s, ".safetensors") == 0;
}

static int write_file(struct dequantize *d)
{
    const char *path = d->options->output;
    if (tcq_path_exists(path) && !d->options->force) {
        cli_message("%s: exists already (--force replaces it)", path);
        return CLI_FAILED;
    }
    char *copy = strdup(path);
    if (!copy)
        return cli_out_of_memory();
    int code = write_tensors(d, dirname(copy), tcq_path_name(path));
    free(copy);
    return code;
}

static int write_config(const struct output *output, const struct model_view *view)
{
    const char *text = tcq_source_config(view->source);
    if (!text)
        return CLI_CONTINUE;
    char *plain = tcq_config_without_sections(text);
    int code = plain ? output_write_text(output, "config.json", plain) : cli_out_of_memory();
    free(plain);
    return code;
}

static int write_folder(struct dequantize *d)
{
    const struct options *o = d->options;
    struct output output;
    json_t *job = json_pack("{s:o}", "source", cli_json_text(d->view.path));
    int code = job ? output_open(&output, o->output, false, o->force, job) : cli_out_of_memory();
    json_decref(job);
    if (code != CLI_CONTINUE)
        return code;
    code = write_tensors(d, output.partial, NULL);
    if (code == CLI_CONTINUE)
        code = companions_write(&output, d->view.source, d->view.path);
    if (code == CLI_CONTINUE)
        code = write_config(&output, &d->view);
    if (code == CLI_CONTINUE)
        code = output_commit(&output, o->force);
    if (code == CLI_CONTINUE)
        output_close(&output);
    else
        output_discard(&output);
    return code;
}

static int dequantize(struct dequantize *d)
{
    bool file = wants_file(d->options->output);
    int code = list_tensors(d, !file);
    uint64_t nbytes = 0;
    for (size_t i = 0; code == CLI_CONTINUE && i < d->view.count; i++)
        nbytes += model_tensor_nbytes(&d->tensors[i]);
    if (code == CLI_CONTINUE)
        code = output_check_source(d->options->output, file, d->view.path);
    if (code == CLI_CONTINUE)
        code = resources_check_disk(d->options->output, nbytes, 0);
    if (code == CLI_CONTINUE && cli_context(d->args, &d->context) != TCQ_OK)
        code = CLI_FAILED;
    if (code == CLI_CONTINUE)
        code = file ? write_file(d) : write_folder(d);
    if (code == CLI_CONTINUE && !d->args->quiet)
        printf("%s: %zu tensors, %s\n", d->options->output, d->view.count,
               cli_nbytes_text(nbytes).s);
    tcq_context_destroy(d->context);
    free(d->tensors);
    return code == CLI_CONTINUE ? CLI_OK : code;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct options options = {.dtype = TCQ_DTYPE_BF16, .shard_nbytes = (uint64_t)5 << 30};
    struct cli_args args;
    int code = cli_parse(self, argc, argv, 1, 1, set_option, &options, &args);
    if (code == CLI_CONTINUE && !options.output)
        code = cli_usage("dequantize: -o FILE is missing");
    if (code != CLI_CONTINUE)
        return code;
    cli_signals_catch();
    struct dequantize d = {.options = &options, .args = &args};
    code = model_view_open(&d.view, args.operands[0]);
    if (code != CLI_CONTINUE)
        return code;
    code = dequantize(&d);
    model_view_close(&d.view);
    return code;
}

const struct cli_command cmd_dequantize = {
    .name = "dequantize",
    .summary = "Write a packed or GGUF model as plain safetensors",
    .usage = "PATH -o FILE [OPTION...]",
    .details = "Packed weights, GGUF's blocks and MLX's affine groups are decoded to --dtype;\n"
               "everything else is copied.  If FILE does not end in .safetensors it is a\n"
               "folder, and gets config.json without its quantization and the model's other files.",
    .options = option_list,
    .common = CLI_QUIET | CLI_THREADS | CLI_CPU,
    .run = run,
};
