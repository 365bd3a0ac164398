/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq verify: is a packed model whole, and how near is it to its source?
 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "compare.h"
#include "encode/scale_fit.h"
#include "table.h"

enum { KEY_AGAINST = CLI_KEY_LONG, KEY_ALL };

/* A relative error beyond this multiple of what normal weights give, or beyond
 * the whole of the weights' energy, is a mismatch.  Layers of real models with a
 * few large outliers reach 4 times; another layer's weights, a transposed or a
 * permuted one give a relative error of about 2. */
#define LIMIT_RATIO 10.0
#define LIMIT_ERROR 1.0

static const struct cli_option option_list[] = {
    {KEY_AGAINST, "against", "SOURCE", "compare every weight with the model it was made from"},
    {KEY_ALL, "all", NULL, "print every tensor, not groups of alike ones"},
    {0},
};

struct options {
    const char *against;
    bool all;
};

/* What verify says about one item. */
struct finding {
    const struct model_item *item;
    struct comparison comparison;
    bool compared;
    double expected;
    char *mismatch; /* NULL: fine */
};

struct verify {
    struct model_view view, source;
    bool has_source;
    struct finding *findings;
    size_t count;
    size_t mismatches;
};

static int set_option(void *user, int key, const char *value)
{
    struct options *options = user;
    if (key == KEY_AGAINST)
        options->against = value;
    else
        options->all = true;
    return CLI_CONTINUE;
}

/* ---- Judging ---- */

static void mismatch(struct verify *v, struct finding *finding, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void mismatch(struct verify *v, struct finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (vasprintf(&finding->mismatch, format, args) < 0)
        finding->mismatch = NULL;
    va_end(args);
    v->mismatches++;
}

/* Of independent normal weights: a group of 64 spans 4.75 standard deviations on
 * average, and a step has a twelfth of its square as its error. */
static double affine_expected(const struct tcq_affine *affine)
{
    double step = 4.75 / (double)((1u << affine->bits) - 1);
    return step * step / 12;
}

static void judge(struct verify *v, struct finding *f)
{
    const struct model_item *item = f->item;
    uint64_t cols = model_item_cols(item);
    if (!item->packed && !item->grouped) {
        if (f->comparison.different)
            mismatch(v, f, "%llu of %llu elements differ from the source's",
                     (unsigned long long)f->comparison.different, (unsigned long long)item->count);
        return;
    }
    f->expected = item->grouped
                      ? affine_expected(&item->affine)
                      : tcq_expected_error(item->tensor.geometry.k, item->tensor.geometry.L);
    double relative = comparison_relative(&f->comparison);
    /* An all-zero tensor has scales of 1 and errors to go with them. */
    if (f->comparison.squared_source == 0)
        relative = f->comparison.squared_error / (double)item->count;
    if (!(relative <= fmin(LIMIT_ERROR, LIMIT_RATIO * f->expected)))
        mismatch(v, f,
                 "relative error %.4g, expected about %.4g; largest error %.4g at row %llu, "
                 "column %llu",
                 relative, f->expected, f->comparison.largest_error,
                 (unsigned long long)(f->comparison.largest_at / cols),
                 (unsigned long long)(f->comparison.largest_at % cols));
}

static int check_item(struct verify *v, struct tcq_context *context, struct finding *f)
{
    const struct model_item *item = f->item;
    if (item->problem) {
        mismatch(v, f, "%s", item->problem);
        return CLI_CONTINUE;
    }
    if (!v->has_source)
        return CLI_CONTINUE;
    const struct model_item *other = model_view_find(&v->source, item->name);
    char ours[160], theirs[160];
    if (!other || other->problem) {
        mismatch(v, f, "%s", other ? "broken in the source" : "not in the source");
        return CLI_CONTINUE;
    }
    if (item->rank != other->rank || memcmp(item->shape, other->shape, sizeof item->shape) != 0) {
        model_item_shape_text(item, ours, sizeof ours);
        model_item_shape_text(other, theirs, sizeof theirs);
        mismatch(v, f, "shape %s, in the source %s", ours, theirs);
        return CLI_CONTINUE;
    }
    struct tcq_error error = {0};
    if (compare_items(&f->comparison, context, &v->view, item, &v->source, other, &error) != TCQ_OK)
        return cli_fail(v->view.path, &error);
    f->compared = true;
    judge(v, f);
    return CLI_CONTINUE;
}

/* Tensors of the source that the model lacks. */
static void check_missing(struct verify *v)
{
    for (size_t i = 0; v->has_source && i < v->source.count; i++)
        if (!model_view_find(&v->view, v->source.items[i].name)) {
            struct finding *f = &v->findings[v->count++];
            f->item = &v->source.items[i];
            mismatch(v, f, "in the source, but not here");
        }
}

static int check_all(struct verify *v, struct tcq_context *context, const struct cli_args *args)
{
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < v->view.count; i++)
        total += v->view.items[i].count;
    struct cli_progress progress;
    cli_progress_start(&progress, args, "verifying", "weights", 0, total);
    int code = CLI_CONTINUE;
    for (size_t i = 0; code == CLI_CONTINUE && i < v->view.count; i++) {
        struct finding *f = &v->findings[v->count++];
        f->item = &v->view.items[i];
        code = check_item(v, context, f);
        done += f->item->count;
        cli_progress_show(&progress, done, f->item->name);
        if (cli_interrupted())
            code = CLI_FAILED;
    }
    cli_progress_end(&progress);
    check_missing(v);
    return code;
}

/* ---- Printing ---- */

/* Findings about packed items that share a row of the table. */
struct group {
    char *name;
    const struct finding *first;
    size_t count;
    double squared_error, squared_source, worst, largest;
    struct clip clip;
};

static void add_to_group(struct group *group, const struct finding *f)
{
    double relative = comparison_relative(&f->comparison);
    group->count++;
    group->squared_error += f->comparison.squared_error;
    group->squared_source += f->comparison.squared_source;
    group->worst = relative > group->worst ? relative : group->worst;
    group->largest = fmax(group->largest, f->comparison.largest_in_rms);
    clip_join(&group->clip, &f->comparison.clip);
}

static bool make_groups(const struct verify *v, bool all, struct group *groups, size_t *count)
{
    for (size_t i = 0; i < v->count; i++) {
        const struct finding *f = &v->findings[i];
        if (!f->compared || !f->item->packed)
            continue;
        const struct tcq_geometry *g = &f->item->tensor.geometry;
        char *name = all ? strdup(f->item->name) : table_group_name(f->item->name);
        if (!name)
            return false;
        size_t j = 0;
        for (; j < *count; j++) {
            const struct tcq_geometry *h = &groups[j].first->item->tensor.geometry;
            if (strcmp(groups[j].name, name) == 0 && g->k == h->k && g->L == h->L)
                break;
        }
        if (j == *count)
            groups[(*count)++] = (struct group){.name = name, .first = f};
        else
            free(name);
        add_to_group(&groups[j], f);
    }
    return true;
}

static void print_group(struct table *table, const struct group *group)
{
    const struct tcq_geometry *g = &group->first->item->tensor.geometry;
    double mean = group->squared_source > 0 ? group->squared_error / group->squared_source : 0;
    table_cell(table, "%s", group->name);
    table_cell(table, "%zu", group->count);
    table_cell(table, "%u", g->k);
    table_cell(table, "%u", g->L);
    table_cell(table, "%.5f", mean);
    table_cell(table, "%.5f", group->worst);
    table_cell(table, "%.5f", group->first->expected);
    table_cell(table, "%.2f", group->largest);
    table_cell(table, "%.4f %%",
               group->clip.weights ? 100.0 * (double)group->clip.clipped / (double)group->clip.weights
                                   : 0.0);
}

static bool print_table(const struct verify *v, bool all)
{
    static const char *const titles[] = {
        "tensor",   "n",           "k",       "L", "relative MSE", "worst",
        "expected", "error / RMS", "clipped", NULL};
    struct group *groups = calloc(v->count + 1, sizeof *groups);
    size_t count = 0;
    bool made = groups && make_groups(v, all, groups, &count);
    struct table table;
    table_start(&table, "lrrrrrrrr", titles);
    for (size_t i = 0; i < count; i++) {
        print_group(&table, &groups[i]);
        free(groups[i].name);
    }
    free(groups);
    return table_print(&table) && made;
}

static void count_findings(const struct verify *v, size_t *packed, size_t *kept)
{
    *packed = *kept = 0;
    for (size_t i = 0; i < v->view.count; i++) {
        *packed += v->view.items[i].packed;
        *kept += !v->view.items[i].packed && !v->view.items[i].problem;
    }
}

/* Outliers that were cut off: far more than normal weights lose. */
static void print_clipped(const struct verify *v)
{
    const struct finding *worst = NULL;
    size_t count = 0;
    for (size_t i = 0; i < v->count; i++) {
        const struct finding *f = &v->findings[i];
        if (!f->compared || !f->item->packed)
            continue;
        struct clip_reach reach = clip_reach_of(f->item->tensor.geometry.L);
        if (!clip_is_large(&f->comparison.clip, &reach))
            continue;
        count++;
        if (!worst || clip_share(&f->comparison.clip) > clip_share(&worst->comparison.clip))
            worst = f;
    }
    if (worst)
        clip_warn(v->view.path, count, worst->item->name, &worst->comparison.clip);
}

static int print_text(const struct verify *v, const struct cli_args *args, bool all)
{
    size_t packed, kept;
    count_findings(v, &packed, &kept);
    if (!args->quiet && v->has_source && !print_table(v, all))
        return CLI_FAILED;
    for (size_t i = 0; i < v->count; i++)
        if (v->findings[i].mismatch)
            cli_message("%s: tensor '%s': %s", v->view.path, v->findings[i].item->name,
                        v->findings[i].mismatch);
    if (!args->quiet)
        print_clipped(v);
    if (!args->quiet)
        printf("%s%s: %zu packed tensors and %zu others, %zu mismatch%s\n",
               v->has_source ? "\n" : "", v->view.path, packed, kept, v->mismatches,
               v->mismatches == 1 ? "" : "es");
    return CLI_OK;
}

static json_t *finding_json(const struct finding *f)
{
    json_t *json = json_pack("{s:s, s:b}", "name", f->item->name, "packed", (int)f->item->packed);
    if (json && f->compared && f->item->packed) {
        const struct tcq_geometry *g = &f->item->tensor.geometry;
        json_object_set_new(json, "k", json_integer(g->k));
        json_object_set_new(json, "L", json_integer(g->L));
        json_object_set_new(json, "relative_mse", json_real(comparison_relative(&f->comparison)));
        json_object_set_new(json, "expected", json_real(f->expected));
        json_object_set_new(json, "largest_error", json_real(f->comparison.largest_error));
        json_object_set_new(json, "largest_error_in_rms", json_real(f->comparison.largest_in_rms));
        json_object_set_new(json, "clipped", json_integer((json_int_t)f->comparison.clip.clipped));
        json_object_set_new(json, "clipped_energy", json_real(clip_share(&f->comparison.clip)));
    }
    if (json && f->mismatch)
        json_object_set_new(json, "mismatch", json_string(f->mismatch));
    return json;
}

static int print_json(const struct verify *v)
{
    json_t *tensors = json_array();
    for (size_t i = 0; tensors && i < v->count; i++)
        json_array_append_new(tensors, finding_json(&v->findings[i]));
    return cli_print_json(json_pack("{s:o, s:o, s:I}", "path", cli_json_text(v->view.path),
                                    "tensors", tensors, "mismatches", (json_int_t)v->mismatches));
}

/* ---- The command ---- */

static int verify(struct verify *v, const struct cli_args *args, const struct options *options)
{
    struct tcq_context *context = NULL;
    bool packed = false;
    for (size_t i = 0; i < v->view.count; i++)
        packed |= v->view.items[i].module != NULL;
    if (!packed && !v->has_source) {
        cli_message("%s: not packed: nothing to verify", v->view.path);
        return CLI_FAILED;
    }
    v->findings = calloc(v->view.count + v->source.count + 1, sizeof *v->findings);
    if (!v->findings)
        return cli_out_of_memory();
    if (cli_context(args, &context) != TCQ_OK)
        return CLI_FAILED;
    int code = check_all(v, context, args);
    tcq_context_destroy(context);
    if (code == CLI_CONTINUE)
        code = args->json ? print_json(v) : print_text(v, args, options->all);
    for (size_t i = 0; i < v->count; i++)
        free(v->findings[i].mismatch);
    free(v->findings);
    return code == CLI_OK && v->mismatches ? CLI_MISMATCH : code;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct options options = {0};
    struct cli_args args;
    int code = cli_parse(self, argc, argv, 1, 1, set_option, &options, &args);
    if (code != CLI_CONTINUE)
        return code;
    cli_signals_catch();
    struct verify v = {.has_source = options.against != NULL};
    code = model_view_open(&v.view, args.operands[0]);
    if (code != CLI_CONTINUE)
        return code;
    if (options.against)
        code = model_view_open(&v.source, options.against);
    if (code == CLI_CONTINUE) {
        code = verify(&v, &args, &options);
        model_view_close(&v.source);
    }
    model_view_close(&v.view);
    return code;
}

const struct cli_command cmd_verify = {
    .name = "verify",
    .summary = "Check a packed model, alone or against its source",
    .usage = "PATH [--against SOURCE] [OPTION...]",
    .details = "Alone: every packed tensor fits its configuration and has finite scales.  Against\n"
               "its source: packed tensors are decoded and their relative mean squared error is\n"
               "shown beside that of normally distributed weights at the same bits; beyond ten\n"
               "times that, or where a kept tensor differs, the exit code is 3.",
    .options = option_list,
    .common = CLI_JSON | CLI_QUIET | CLI_THREADS | CLI_CPU,
    .run = run,
};
