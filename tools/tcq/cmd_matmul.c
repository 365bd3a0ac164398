/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq matmul: vectors from a file through one packed module, so that a layer can
 * be compared with other software.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "commands.h"
#include "model_view.h"
#include "output.h"

enum {
    KEY_X = CLI_KEY_LONG,
    KEY_TENSOR,
    KEY_TYPE,
    KEY_NUMERICS,
    KEY_OP,
    KEY_ACTIVATIONS,
    KEY_UP,
    KEY_TAIL,
    KEY_FORCE
};

static const struct cli_option option_list[] = {
    {KEY_X, "x", "FILE", "safetensors file with the vectors, [m, in] in F32, F16 or BF16"},
    {KEY_TENSOR, "tensor", "NAME", "the vectors' tensor in FILE (default: x, or the only one)"},
    {'o', "output", "FILE", "where to write y, [m, out], as safetensors"},
    {KEY_TYPE, "type", "TYPE", "of y: f32, f16 or bf16 (default: f32)"},
    {KEY_NUMERICS, "numerics", "NAME", "fast or reference (default: fast)"},
    {KEY_OP, "op", "NAME", "the operation to use (default: auto; names as of tcq bench)"},
    {KEY_ACTIVATIONS, "activations", "TYPE", "float or int8 (default: float)"},
    {KEY_UP, "up", "MODULE", "MODULE is gate, this is up: y = silu(gate x) * (up x)"},
    {KEY_TAIL, "tail", "NAME", "with --up: fused or split (default: fused)"},
    {KEY_FORCE, "force", NULL, "replace an existing output"},
    {0},
};

struct options {
    const char *x, *tensor, *output, *up;
    enum tcq_dtype type;
    enum tcq_swiglu tail;
    struct tcq_linear_options linear;
    bool force;
};

/* The index of text in a list that ends with NULL, or -1 after a message. */
static int choice(const char *option, const char *text, const char *const *list)
{
    int count = 0;
    for (; list[count]; count++)
        if (strcmp(text, list[count]) == 0)
            return count;
    cli_usage_names(option, text, list, (size_t)count);
    return -1;
}

static int set_choice(struct options *o, int key, const char *value)
{
    static const char *const types[] = {"f32", "f16", "bf16", NULL};
    static const char *const numerics[] = {"fast", "reference", NULL};
    static const char *const activations[] = {"float", "int8", NULL};
    static const char *const tails[] = {"fused", "split", NULL};
    const char *operations[TCQ_OPERATION_COUNT + 1] = {0};
    int i;
    for (i = 0; i < TCQ_OPERATION_COUNT; i++)
        operations[i] = tcq_operation_name((enum tcq_operation)i);
    switch (key) {
    case KEY_TYPE:
        i = choice("--type", value, types);
        o->type = (enum tcq_dtype)i; /* in the order of the enumeration */
        break;
    case KEY_NUMERICS:
        i = choice("--numerics", value, numerics);
        o->linear.numerics = (enum tcq_numerics)i;
        break;
    case KEY_OP:
        i = choice("--op", value, operations);
        o->linear.operation = (enum tcq_operation)i;
        break;
    case KEY_ACTIVATIONS:
        i = choice("--activations", value, activations);
        o->linear.activations = (enum tcq_activations)i;
        break;
    default:
        i = choice("--tail", value, tails);
        o->tail = (enum tcq_swiglu)i;
    }
    return i < 0 ? CLI_USAGE : CLI_CONTINUE;
}

static int set_option(void *user, int key, const char *value)
{
    struct options *o = user;
    switch (key) {
    case KEY_X:
        o->x = value;
        return CLI_CONTINUE;
    case KEY_TENSOR:
        o->tensor = value;
        return CLI_CONTINUE;
    case 'o':
        o->output = value;
        return CLI_CONTINUE;
    case KEY_UP:
        o->up = value;
        return CLI_CONTINUE;
    case KEY_FORCE:
        o->force = true;
        return CLI_CONTINUE;
    default:
        return set_choice(o, key, value);
    }
}

/* The packed tensor of a module, or NULL after a message. */
static const struct model_item *find_module(const struct model_view *view, const char *module)
{
    for (size_t i = 0; i < view->count; i++) {
        const struct model_item *item = &view->items[i];
        if (!item->module || strcmp(item->module, module) != 0)
            continue;
        if (item->packed)
            return item;
        cli_message("%s: %s", view->path, item->problem ? item->problem : "module is broken");
        return NULL;
    }
    size_t length = strlen(module);
    for (size_t i = 0; i < view->count; i++)
        if (strncmp(view->items[i].name, module, length) == 0 &&
            strcmp(view->items[i].name + length, ".weight") == 0) {
            cli_message("%s: module '%s' is not packed", view->path, module);
            return NULL;
        }
    cli_message("%s: no module '%s' (tcq inspect --all lists them)", view->path, module);
    return NULL;
}

/* The vectors of --x, as a copy aligned for use. */
struct input {
    struct tcq_source *source;
    struct tcq_vectors x;
    uint64_t m;
};

static const struct tcq_source_tensor *input_tensor(const struct input *input,
                                                    const struct options *o)
{
    const struct tcq_source_tensor *t = tcq_source_find(input->source, o->tensor ? o->tensor : "x");
    if (!t && !o->tensor && tcq_source_count(input->source) == 1)
        t = tcq_source_get(input->source, 0);
    if (!t)
        cli_message("%s: no tensor '%s'%s", o->x, o->tensor ? o->tensor : "x",
                    o->tensor ? "" : " (--tensor names another)");
    return t;
}

static int open_input(struct input *input, const struct options *o, uint64_t in)
{
    struct tcq_error error;
    if (tcq_source_open(o->x, &input->source, &error) != TCQ_OK)
        return cli_fail(o->x, &error);
    const struct tcq_source_tensor *t = input_tensor(input, o);
    if (!t)
        return CLI_FAILED;
    bool vector = t->rank == 1;
    if (t->rank < 1 || t->rank > 2 || t->shape[t->rank - 1] != in || t->count == 0) {
        cli_message("%s: tensor '%s' of rank %u with rows of %llu: expected [m, %llu]", o->x,
                    t->name, t->rank, (unsigned long long)(t->rank ? t->shape[t->rank - 1] : 0),
                    (unsigned long long)in);
        return CLI_FAILED;
    }
    input->m = vector ? 1 : t->shape[0];
    input->x = (struct tcq_vectors){malloc(t->nbytes), t->dtype, (size_t)in};
    if (!input->x.data)
        return cli_out_of_memory();
    memcpy(input->x.data, t->data, t->nbytes);
    return CLI_CONTINUE;
}

static int write_output(const struct options *o, const void *y, uint64_t m, uint64_t out,
                        const char *kernel)
{
    struct tcq_error error;
    struct tcq_writer *writer = NULL;
    uint64_t shape[] = {m, out};
    if (tcq_path_exists(o->output) && !o->force) {
        cli_message("%s: exists already (--force replaces it)", o->output);
        return CLI_FAILED;
    }
    enum tcq_status status = tcq_writer_create(o->output, o->force, &writer, &error);
    if (status == TCQ_OK)
        status = tcq_writer_declare(writer, "y", o->type, 2, shape, &error);
    if (status == TCQ_OK)
        status = tcq_writer_metadata(writer, "kernel", kernel, &error);
    if (status == TCQ_OK)
        status = tcq_writer_begin(writer, false, NULL, &error);
    if (status == TCQ_OK)
        status = tcq_writer_write(writer, y, (size_t)(m * out) * tcq_dtype_nbytes(o->type), &error);
    if (status == TCQ_OK)
        status = tcq_writer_finish(writer, &error);
    tcq_writer_destroy(writer, false);
    return status == TCQ_OK ? CLI_CONTINUE : cli_fail(o->output, &error);
}

/* One or two layers over the same x. */
struct product {
    struct tcq_context *context;
    struct tcq_linear *layers[2];
    void *y;
};

static int multiply(struct product *p, const struct options *o, const struct input *input,
                    uint64_t out)
{
    struct tcq_error error;
    p->y = calloc((size_t)(input->m * out), tcq_dtype_nbytes(o->type));
    if (!p->y)
        return cli_out_of_memory();
    struct tcq_vectors y = {p->y, o->type, (size_t)out};
    enum tcq_status status =
        o->up ? tcq_gate_up_forward(p->layers[0], p->layers[1], input->m, &y, &input->x, o->tail,
                                    &error)
              : tcq_linear_forward(p->layers[0], input->m, &y, &input->x, NULL, &error);
    return status == TCQ_OK ? CLI_CONTINUE : cli_fail(NULL, &error);
}

static int make_layer(struct product *p, int index, const struct options *o,
                      const struct model_view *view, const char *module, uint64_t *in,
                      uint64_t *out)
{
    struct tcq_error error;
    const struct model_item *item = find_module(view, module);
    if (!item)
        return CLI_FAILED;
    *in = tcq_geometry_in(&item->tensor.geometry);
    *out = tcq_geometry_out(&item->tensor.geometry);
    if (tcq_linear_create(p->context, &item->tensor, &o->linear, &p->layers[index], &error) ==
        TCQ_OK)
        return CLI_CONTINUE;
    return cli_fail(module, &error);
}

static int run_product(struct product *p, const struct options *o, const struct cli_args *args,
                       const struct model_view *view)
{
    uint64_t in = 0, out = 0;
    struct input input = {0};
    int code = cli_context(args, &p->context) == TCQ_OK ? CLI_CONTINUE : CLI_FAILED;
    if (code == CLI_CONTINUE && o->up)
        code = make_layer(p, 1, o, view, o->up, &in, &out);
    if (code == CLI_CONTINUE)
        code = make_layer(p, 0, o, view, args->operands[1], &in, &out);
    if (code == CLI_CONTINUE)
        code = output_check_source(o->output, true, args->operands[0]);
    if (code == CLI_CONTINUE)
        code = output_check_source(o->output, true, o->x);
    if (code == CLI_CONTINUE)
        code = open_input(&input, o, in);
    if (code == CLI_CONTINUE)
        code = multiply(p, o, &input, out);
    if (code == CLI_CONTINUE)
        code = write_output(o, p->y, input.m, out, tcq_linear_kernel(p->layers[0], input.m));
    if (code == CLI_CONTINUE && !args->quiet)
        printf("%s: %llu x %llu by %s\n", o->output, (unsigned long long)input.m,
                    (unsigned long long)out, tcq_linear_kernel(p->layers[0], input.m));
    free(input.x.data);
    tcq_source_close(input.source);
    return code;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli_args args;
    struct options o = {.type = TCQ_DTYPE_F32};
    int code = cli_parse(self, argc, argv, 2, 2, set_option, &o, &args);
    if (code != CLI_CONTINUE)
        return code;
    if (!o.x || !o.output)
        return cli_usage("%s is missing", o.x ? "-o FILE" : "--x FILE");
    struct model_view view;
    code = model_view_open(&view, args.operands[0]);
    if (code != CLI_CONTINUE)
        return code;
    struct product product = {0};
    code = run_product(&product, &o, &args, &view);
    free(product.y);
    tcq_linear_destroy(product.layers[0]);
    tcq_linear_destroy(product.layers[1]);
    tcq_context_destroy(product.context);
    model_view_close(&view);
    return code == CLI_CONTINUE ? CLI_OK : code;
}

const struct cli_command cmd_matmul = {
    .name = "matmul",
    .summary = "Send vectors from a file through one packed module",
    .usage = "DIR MODULE --x FILE -o FILE [OPTION...]",
    .details = "Writes y = W x of every row x of the input, without bias, so that one layer can\n"
               "be compared with other software.",
    .options = option_list,
    .common = CLI_QUIET | CLI_THREADS | CLI_CPU,
    .run = run,
};
