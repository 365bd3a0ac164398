/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of tcq quantize.
 */
#include "quantize.h"

#include <stdlib.h>

#include "companions.h"
#include "job.h"
#include "model_config.h"
#include "part.h"
#include "resources.h"

/* Tensors of the source whose outputs (words and scales) are all there. */
static size_t entries_done(const struct quantize *q, size_t done)
{
    size_t count = 0;
    while (count < q->plan.count && q->pack.list.first[count + 1] <= done)
        count++;
    return count;
}

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
    if (q->output.resumed && !q->args.quiet)
        cli_message("%s: %zu of %zu tensors are there already", q->output.partial,
                    entries_done(q, done), q->plan.count);
    int code = pack_run(&q->pack, &writer, done);
    if (code == CLI_CONTINUE && model_writer_finish(&writer, &error) != TCQ_OK)
        code = cli_fail(NULL, &error);
    model_writer_close(&writer, true);
    return code;
}

/* All but the tensors, and the final name. */
static int write_rest(struct quantize *q)
{
    int code = companions_write(&q->output, q->source, q->path);
    if (code == CLI_CONTINUE)
        code = q->options->plan.parts
                   ? part_write(&q->output, &q->options->plan, &q->whole, q->config)
                   : output_write_text(&q->output, "config.json", q->config);
    if (code == CLI_CONTINUE)
        code = output_commit(&q->output, q->options->force);
    return code;
}

static void warn_clipped(const struct quantize *q)
{
    struct clip_reach reach = clip_reach_of(q->options->plan.L);
    const struct clip *clips = q->pack.clips;
    size_t count = 0, worst = 0;
    for (size_t i = 0; i < q->plan.count; i++) {
        if (!clip_is_large(&clips[i], &reach))
            continue;
        if (!count++ || clip_share(&clips[i]) > clip_share(&clips[worst]))
            worst = i;
    }
    if (count)
        clip_warn(q->output.path, count, q->plan.entries[worst].tensor->name, &clips[worst]);
}

static int report(const struct quantize *q)
{
    double seconds = cli_seconds() - q->started;
    double weights = (double)q->plan.packed_weights;
    if (q->args.json) {
        json_t *json = plan_json(&q->plan);
        if (json) {
            json_object_set_new(json, "output", cli_json_text(q->output.path));
            json_object_set_new(json, "seconds", json_real(seconds));
            json_object_set_new(json, "memory_nbytes",
                                json_integer((json_int_t)pack_memory_nbytes(&q->pack)));
        }
        return cli_print_json(json);
    }
    if (q->args.quiet)
        return CLI_OK;
    printf("%s: %zu tensors packed, %s weights at %.3f bits each; %s in all (source: %s)",
           q->output.path, q->plan.packed_count, cli_count_text(weights).s,
           weights > 0 ? 8.0 * (double)q->plan.packed_nbytes / weights : 0.0,
           cli_nbytes_text(q->plan.nbytes).s, cli_nbytes_text(q->plan.source_nbytes).s);
    printf("; %s, at most %s of memory\n", cli_time_text(seconds).s,
           cli_nbytes_text(pack_memory_nbytes(&q->pack)).s);
    for (size_t i = 0; i < q->plan.count; i++)
        if (q->plan.entries[i].reason)
            printf("not packed: %s: %s\n", q->plan.entries[i].tensor->name,
                   q->plan.entries[i].reason);
    plan_print_growth(&q->plan);
    warn_clipped(q);
    return CLI_OK;
}

static int check_resources(const struct quantize *q)
{
    uint64_t there = 0;
    char *partial = NULL;
    if (q->options->resume && asprintf(&partial, "%s.partial", q->options->output) >= 0)
        there = output_folder_nbytes(partial);
    free(partial);
    int code = resources_check_memory(pack_memory_nbytes(&q->pack), &q->args);
    /* several ranks write every tensor once apart and once joined */
    uint64_t nbytes = q->ranks.count > 1 ? 2 * q->plan.nbytes : q->plan.nbytes;
    if (code == CLI_CONTINUE)
        code = resources_check_disk(q->options->output, nbytes, there);
    return code;
}

/* What one process does for all: checks, and the folder to write into. */
static int prepare(struct quantize *q)
{
    const struct quantize_options *o = q->options;
    int code = check_resources(q);
    if (code == CLI_CONTINUE)
        code = output_check_source(o->output, false, q->path);
    if (code == CLI_CONTINUE)
        code = output_check(o->output, o->resume, o->force);
    if (code == CLI_CONTINUE)
        code = pack_check_values(&q->pack);
    if (code != CLI_CONTINUE)
        return code;
    json_t *job = job_json(&o->plan, q->source, q->path);
    if (job && q->ranks.count > 1)
        json_object_set_new(job, "under mpirun", json_true());
    code = job ? output_open(&q->output, o->output, o->resume, o->force, job) : cli_out_of_memory();
    json_decref(job);
    return code;
}

static int pack_model(struct quantize *q)
{
    bool first = q->ranks.rank == 0;
    int code = first ? prepare(q) : output_follow(&q->output, q->options->output);
    code = ranks_agree(&q->ranks, code);
    if (code == CLI_CONTINUE)
        code = q->ranks.count > 1 ? distribute_tensors(q) : write_tensors(q);
    if (code == CLI_CONTINUE && first)
        code = write_rest(q);
    if (code == CLI_CONTINUE)
        code = first ? report(q) : CLI_OK;
    output_close(&q->output);
    return ranks_agree(&q->ranks, code);
}

static int create(struct quantize *q)
{
    struct cli_args args = q->args;
    args.cuda = false; /* the GPU's encoder opens the GPU for itself */
    if (cli_context(&args, &q->context) != TCQ_OK)
        return CLI_FAILED;
    return pack_create(&q->pack, q->source, &q->plan, q->options->plan.scale, q->context, &q->args);
}

static int after_plan(struct quantize *q)
{
    bool empty = q->plan.packed_count == 0 && !q->options->plan.parts;
    if (q->options->dry_run) {
        if (q->ranks.rank > 0)
            return CLI_OK;
        if (q->args.json) {
            int code = cli_print_json(plan_json(&q->plan));
            return code == CLI_OK && empty
                       ? plan_fail_empty(&q->plan, &q->options->plan, q->path)
                       : code;
        }
        if (!plan_print(&q->plan, q->options->all))
            return CLI_FAILED;
        return empty ? plan_fail_empty(&q->plan, &q->options->plan, q->path) : CLI_OK;
    }
    if (empty)
        return plan_fail_empty(&q->plan, &q->options->plan, q->path);
    int code = ranks_agree(&q->ranks, create(q));
    if (code == CLI_CONTINUE)
        code = pack_model(q);
    pack_destroy(&q->pack);
    tcq_context_destroy(q->context);
    return code;
}

static int open_source(struct quantize *q)
{
    struct plan_options *o = &q->options->plan;
    struct tcq_error error = {0};
    if (tcq_source_open(q->path, &q->source, &error) != TCQ_OK)
        return cli_fail(q->path, &error);
    int code = model_config_refuse_packed(q->source, q->path);
    if (code == CLI_CONTINUE)
        code = plan_make(q->source, o, &q->plan);
    if (code == CLI_CONTINUE)
        code = model_config_packed(&q->config, q->source, q->path, &q->plan);
    if (code == CLI_CONTINUE)
        code = output_list_make(&q->whole, &q->plan);
    if (code == CLI_CONTINUE && o->parts)
        code = part_take(&q->plan, o->part, o->parts);
    return code;
}

int quantize_run(const char *path, struct quantize_options *options, const struct cli_args *args)
{
    struct quantize q = {.path = path, .options = options, .args = *args, .started = cli_seconds()};
    q.output.lock = -1;
    int code = ranks_start(&q.ranks);
    if (code != CLI_CONTINUE)
        return code;
    q.args.quiet |= q.ranks.rank > 0; /* one rank talks about progress */
    code = ranks_agree(&q.ranks, open_source(&q));
    if (code == CLI_CONTINUE)
        code = after_plan(&q);
    plan_free(&q.plan);
    output_list_free(&q.whole);
    free(q.config);
    tcq_source_close(q.source);
    ranks_stop(&q.ranks);
    return code;
}
