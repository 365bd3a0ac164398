/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq eval: perplexity of a text, and what packing cost against the source.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "commands.h"
#include "plot.h"
#include "tcq_model.h"

enum { KEY_TEXT = CLI_KEY_LONG, KEY_AGAINST, KEY_CONTEXT, KEY_TOKENS, KEY_PLOT, KEY_INT8, KEY_FORCE };

static const struct cli_option option_list[] = {
    {KEY_TEXT, "text", "FILE", "the text, UTF-8 (required)"},
    {KEY_AGAINST, "against", "SOURCE", "the unpacked model to compare with"},
    {KEY_CONTEXT, "context", "N", "tokens a window (default 512)"},
    {KEY_TOKENS, "tokens", "N", "only the first N tokens of the text"},
    {KEY_PLOT, "plot", "FILE", "with --against: a PNG of the error after each layer and of KL\n"
                               "along the text"},
    {KEY_INT8, "int8", NULL, "8-bit activations in MODEL's packed layers"},
    {KEY_FORCE, "force", NULL, "load even if memory seems too small"},
    {0},
};

struct options {
    const char *text, *against, *plot;
    uint32_t context, tokens;
    struct tcq_model_options model;
};

static int set_option(void *user, int key, const char *value)
{
    struct options *options = user;
    switch (key) {
    case KEY_TEXT:
        options->text = value;
        return CLI_CONTINUE;
    case KEY_AGAINST:
        options->against = value;
        return CLI_CONTINUE;
    case KEY_CONTEXT:
        return cli_parse_u32("--context", value, 3, UINT32_MAX, &options->context);
    case KEY_TOKENS:
        return cli_parse_u32("--tokens", value, 2, UINT32_MAX, &options->tokens);
    case KEY_PLOT:
        options->plot = value;
        return CLI_CONTINUE;
    case KEY_INT8:
        options->model.activations = TCQ_ACTIVATIONS_INT8;
        return CLI_CONTINUE;
    default:
        options->model.ignore_memory = true;
        return CLI_CONTINUE;
    }
}

struct job {
    const struct options *options;
    const struct cli_args *args;
    const char *path;
    struct tcq_context *context;
    struct tcq_model *model, *against;
    uint32_t *tokens;
    size_t count;
    struct tcq_evaluation result;
    struct cli_progress progress;
    double seconds;
};

static int load(struct job *job)
{
    struct tcq_error error = {0};
    struct tcq_model_options plain = {.ignore_memory = job->options->model.ignore_memory};
    if (cli_context(job->args, &job->context) != TCQ_OK)
        return CLI_FAILED;
    if (tcq_model_load(job->context, job->path, &job->options->model, &job->model, &error))
        return cli_fail(job->path, &error);
    if (job->options->against &&
        tcq_model_load(job->context, job->options->against, &plain, &job->against, &error))
        return cli_fail(job->options->against, &error);
    return CLI_CONTINUE;
}

static int tokenize(struct job *job)
{
    struct tcq_error error = {0};
    struct tcq_mapping mapping;
    const struct tcq_tokenizer *tokenizer = tcq_model_tokenizer(job->model);
    if (!tokenizer && job->against)
        tokenizer = tcq_model_tokenizer(job->against);
    if (!tokenizer) {
        cli_message("%s: no tokenizer (tokenizer.json) beside the weights", job->path);
        return CLI_FAILED;
    }
    if (tcq_mapping_open(job->options->text, &mapping, &error))
        return cli_fail(job->options->text, &error);
    enum tcq_status status = tcq_tokenizer_encode(tokenizer, (const char *)mapping.data,
                                                  mapping.nbytes, 0, &job->tokens, &job->count,
                                                  &error);
    tcq_mapping_close(&mapping);
    if (status)
        return cli_fail(job->options->text, &error);
    if (job->options->tokens && job->options->tokens < job->count)
        job->count = job->options->tokens;
    return CLI_CONTINUE;
}

static bool show_progress(void *user, uint64_t done, uint64_t total)
{
    struct job *job = user;
    (void)total;
    cli_progress_show(&job->progress, done, NULL);
    return !cli_interrupted();
}

static int evaluate(struct job *job)
{
    struct tcq_error error = {0};
    struct tcq_evaluate_options options = {job->options->context, show_progress, job};
    double start = cli_seconds();
    cli_progress_start(&job->progress, job->args, "evaluating", "tokens", 0, job->count);
    enum tcq_status status = tcq_evaluate(job->model, job->against, job->tokens, job->count,
                                          &options, &job->result, &error);
    cli_progress_end(&job->progress);
    job->seconds = cli_seconds() - start;
    return status ? cli_fail(job->path, &error) : CLI_CONTINUE;
}

static json_t *layer_list(const struct tcq_evaluation *e)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < e->layers; i++)
        json_array_append_new(list, json_real(e->layer_error[i]));
    return list;
}

static int report_json(const struct job *job)
{
    const struct tcq_evaluation *e = &job->result;
    const struct tcq_model_info *info = tcq_model_get_info(job->model);
    json_t *json = json_pack("{s:I, s:I, s:I, s:f, s:f, s:I, s:f}", "tokens", (json_int_t)job->count,
                             "windows", (json_int_t)e->windows, "scored", (json_int_t)e->scored,
                             "perplexity", e->perplexity, "seconds", job->seconds,
                             "weights_nbytes", (json_int_t)info->stored_nbytes,
                             "packed_bits_per_weight", info->packed_bits);
    if (e->compared && json)
        json_object_update_new(
            json, json_pack("{s:f, s:f, s:f, s:f, s:f, s:o}", "perplexity_against",
                            e->perplexity_against, "kl_mean", e->kl_mean, "kl_p99", e->kl_p99,
                            "kl_max", e->kl_max, "top1_agreement", e->top1, "layer_errors",
                            layer_list(e)));
    return cli_print_json(json);
}

static int report(const struct job *job)
{
    const struct tcq_evaluation *e = &job->result;
    const struct tcq_model_info *info = tcq_model_get_info(job->model);
    if (job->args->json)
        return report_json(job);
    printf("tokens          %zu in %zu windows, %zu scored, %.1f a second\n", job->count,
           e->windows, e->scored, (double)job->count / job->seconds);
    printf("weights         %s", cli_nbytes_text(info->stored_nbytes).s);
    if (info->packed_modules)
        printf(", %u modules packed at %.3f bits a weight", info->packed_modules,
               info->packed_bits);
    printf("\nperplexity      %.4f\n", e->perplexity);
    if (e->compared) {
        printf("of the source   %.4f\n", e->perplexity_against);
        printf("KL divergence   mean %.5f, 99th percentile %.4f, largest %.3f nats\n", e->kl_mean,
               e->kl_p99, e->kl_max);
        printf("same top token  %.2f %%\n", 100 * e->top1);
        printf("error by layer  ");
        for (uint32_t i = 0; i < e->layers; i++)
            printf("%s%.3f", i ? " " : "", e->layer_error[i]);
        puts("");
    }
    return CLI_OK;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct options options = {0};
    struct cli_args args;
    int code = cli_parse(self, argc, argv, 1, 1, set_option, &options, &args);
    if (code == CLI_CONTINUE && !options.text)
        code = cli_usage("--text FILE is required");
    if (code == CLI_CONTINUE && options.plot && !options.against)
        code = cli_usage("--plot needs --against");
    if (code != CLI_CONTINUE)
        return code;
    struct job job = {.options = &options, .args = &args, .path = args.operands[0]};
    cli_signals_catch();
    code = load(&job);
    if (code == CLI_CONTINUE)
        code = tokenize(&job);
    if (code == CLI_CONTINUE)
        code = evaluate(&job);
    if (code == CLI_CONTINUE && options.plot)
        code = plot_evaluation(options.plot, &job.result);
    if (code == CLI_CONTINUE)
        code = report(&job);
    tcq_evaluation_free(&job.result);
    free(job.tokens);
    tcq_model_destroy(job.against);
    tcq_model_destroy(job.model);
    tcq_context_destroy(job.context);
    return code;
}

const struct cli_command cmd_eval = {
    .name = "eval",
    .summary = "Measure a model on a text, and what packing cost against its source",
    .usage = "MODEL --text FILE [OPTION...]",
    .details =
        "The text is cut into windows, each evaluated for itself: every token after a window's\n"
        "first counts. With --against, the KL divergence is that of MODEL from SOURCE, in nats\n"
        "a token, and the error by layer is the mean of |MODEL - SOURCE| / |SOURCE| over the\n"
        "hidden states after each layer.",
    .options = option_list,
    .common = CLI_JSON | CLI_QUIET | CLI_THREADS | CLI_CPU | CLI_DEVICE,
    .run = run,
};
