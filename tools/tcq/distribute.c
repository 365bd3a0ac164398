/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several processes pack one model into one folder that all of them see.  Each
 * takes the next tensor, the largest first, packs it into a file of its own in
 * DIR.partial/parts, and asks for another; rank 0 then joins the files in the
 * order that a single process writes them in.  A file of its final name is
 * whole, so --resume goes on with those that are missing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "folder.h"
#include "part.h"
#include "quantize.h"

static char *parts_folder(const struct quantize *q)
{
    char *path = NULL;
    return asprintf(&path, "%s/parts", q->output.partial) < 0 ? NULL : path;
}

static struct cli_text file_name(size_t entry)
{
    struct cli_text name;
    snprintf(name.s, sizeof name.s, "%06u.safetensors", (unsigned)entry);
    return name;
}

static bool exists(const char *folder, size_t entry)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, file_name(entry).s) < 0)
        return false;
    bool there = tcq_path_exists(path);
    free(path);
    return there;
}

/* A plan of one entry, written with the encoders of the whole. */
static int pack_entry(struct quantize *q, const char *folder, size_t i)
{
    struct plan_entry entry = q->plan.entries[i];
    entry.shard = 0;
    struct plan plan = {.entries = &entry, .count = 1, .shard_count = 1};
    plan.packed_weights = entry.action == PLAN_PACK ? entry.tensor->count : 0;
    struct pack pack = q->pack;
    pack.plan = &plan;
    pack.clips = q->pack.clips + i;
    int code = output_list_make(&pack.list, &plan);
    if (code != CLI_CONTINUE)
        return code;
    struct model_writer writer;
    struct tcq_error error = {0};
    struct cli_text name = file_name(i);
    if (model_writer_open(&writer, folder, name.s, true, pack.list.tensors, pack.list.count, false,
                          NULL, &error) == TCQ_OK)
        code = pack_run(&pack, &writer, 0);
    else
        code = cli_fail(NULL, &error);
    if (code == CLI_CONTINUE && model_writer_finish(&writer, &error) != TCQ_OK)
        code = cli_fail(NULL, &error);
    model_writer_close(&writer, false);
    output_list_free(&pack.list);
    return code;
}

static int pack_share(struct quantize *q, const char *folder, const size_t *order)
{
    int code = ranks_deal_begin(&q->ranks, q->plan.count);
    while (code == CLI_CONTINUE) {
        size_t number = ranks_deal(&q->ranks);
        if (number >= q->plan.count)
            break;
        if (!exists(folder, order[number]))
            code = pack_entry(q, folder, order[number]);
        if (code == CLI_CONTINUE && cli_interrupted()) {
            cli_message("interrupted; the same command with --resume goes on");
            code = CLI_FAILED;
        }
    }
    ranks_deal_end(&q->ranks);
    return code;
}

static int open_files(struct quantize *q, const char *folder, struct tcq_source **sources)
{
    struct tcq_error error = {0};
    for (size_t i = 0; i < q->plan.count; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s", folder, file_name(i).s) < 0)
            return cli_out_of_memory();
        enum tcq_status status = tcq_source_open(path, &sources[i], &error);
        int code = status == TCQ_OK ? CLI_CONTINUE : cli_fail(path, &error);
        free(path);
        if (code != CLI_CONTINUE)
            return code;
    }
    return CLI_CONTINUE;
}

static int join_files(struct quantize *q, const char *folder)
{
    struct tcq_source **sources = calloc(q->plan.count + 1, sizeof(struct tcq_source *));
    if (!sources)
        return cli_out_of_memory();
    struct model_writer writer;
    struct tcq_error error = {0};
    int code = open_files(q, folder, sources);
    if (code == CLI_CONTINUE) {
        if (model_writer_open(&writer, q->output.partial, NULL, true, q->whole.tensors,
                              q->whole.count, false, NULL, &error) == TCQ_OK)
            code = part_join(&writer, &q->whole, sources, q->plan.count, &q->args);
        else
            code = cli_fail(NULL, &error);
        model_writer_close(&writer, true);
    }
    for (size_t i = 0; i < q->plan.count; i++)
        tcq_source_close(sources[i]);
    free(sources);
    if (code == CLI_CONTINUE && !folder_delete(folder)) {
        cli_message("%s: %s", folder, strerror(errno));
        code = CLI_FAILED;
    }
    return code;
}

int distribute_tensors(struct quantize *q)
{
    char *folder = parts_folder(q);
    size_t *order = part_order(&q->plan);
    int code = folder && order ? CLI_CONTINUE : cli_out_of_memory();
    if (code == CLI_CONTINUE && mkdir(folder, 0777) != 0 && errno != EEXIST) {
        cli_message("%s: %s", folder, strerror(errno));
        code = CLI_FAILED;
    }
    code = ranks_agree(&q->ranks, code);
    if (code == CLI_CONTINUE)
        code = ranks_agree(&q->ranks, pack_share(q, folder, order));
    if (code == CLI_CONTINUE) /* for rank 0's warning */
        ranks_join(&q->ranks, q->pack.clips, q->plan.count * sizeof *q->pack.clips);
    if (code != CLI_CONTINUE && q->ranks.rank == 0)
        cli_message("%s: not finished; the same command with --resume completes it",
                    q->output.partial);
    if (code == CLI_CONTINUE && q->ranks.rank == 0)
        code = join_files(q, folder);
    free(order);
    free(folder);
    return code;
}
