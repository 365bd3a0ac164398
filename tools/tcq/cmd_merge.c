/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq merge: the parts that `quantize --shard I/N` made on several machines
 * become the folder that one machine would have made.
 */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "folder.h"
#include "part.h"
#include "resources.h"

enum { KEY_FORCE = CLI_KEY_LONG };

static const struct cli_option option_list[] = {
    {'o', "output", "DIR", "folder to create (required)"},
    {KEY_FORCE, "force", NULL, "replace an existing output"},
    {0},
};

struct merge {
    const char *output;
    bool force;
    struct cli_args args;
    struct part *parts;          /* in the order of their numbers once checked */
    struct tcq_source **sources; /* likewise */
    size_t count;
    struct output_list list;
};

static int set_option(void *user, int key, const char *value)
{
    struct merge *m = user;
    if (key == 'o') {
        m->output = value;
        return *value ? CLI_CONTINUE : cli_usage("--output: must not be empty");
    }
    m->force = true;
    return CLI_CONTINUE;
}

/* ---- Do the parts go together? ---- */

static int by_number(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return x->part < y->part ? -1 : x->part > y->part;
}

static int compare_parts(const struct part *first, const struct part *other)
{
    static const char *const keys[] = {"options", "config", "tensors"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_equal(json_object_get(first->description, keys[i]),
                        json_object_get(other->description, keys[i]))) {
            cli_message("%s and %s: parts of different outputs: their %s differ", first->path,
                        other->path, keys[i]);
            return CLI_FAILED;
        }
    return CLI_CONTINUE;
}

static int check_parts(struct merge *m)
{
    qsort(m->parts, m->count, sizeof *m->parts, by_number);
    for (size_t i = 0; i < m->count; i++) {
        const struct part *part = &m->parts[i];
        int code = i ? compare_parts(&m->parts[0], part) : CLI_CONTINUE;
        if (code != CLI_CONTINUE)
            return code;
        if (i && part->part == part[-1].part) {
            cli_message("%s and %s: both are part %u", part[-1].path, part->path, part->part);
            return CLI_FAILED;
        }
    }
    for (uint32_t number = 1; number <= m->parts[0].parts; number++)
        if (number > m->count || m->parts[number - 1].part != number) {
            cli_message("part %u of %u is missing", number, m->parts[0].parts);
            return CLI_FAILED;
        }
    return CLI_CONTINUE;
}

static int open_parts(struct merge *m)
{
    m->parts = calloc(m->count, sizeof *m->parts);
    m->sources = calloc(m->count, sizeof *m->sources);
    if (!m->parts || !m->sources)
        return cli_out_of_memory();
    int code = CLI_CONTINUE;
    for (size_t i = 0; code == CLI_CONTINUE && i < m->count; i++)
        code = part_open(&m->parts[i], m->args.operands[i]);
    if (code == CLI_CONTINUE)
        code = check_parts(m);
    for (size_t i = 0; i < m->count; i++)
        m->sources[i] = m->parts[i].source;
    if (code == CLI_CONTINUE &&
        !output_list_parse(&m->list, json_object_get(m->parts[0].description, "tensors"))) {
        cli_message("%s: its list of tensors cannot be read", m->parts[0].path);
        code = CLI_FAILED;
    }
    return code;
}

/* ---- Writing ---- */

static int write_tensors(struct merge *m, const struct output *output)
{
    struct model_writer writer;
    struct tcq_error error = {0};
    int code;
    if (model_writer_open(&writer, output->partial, NULL, true, m->list.tensors, m->list.count,
                          false, NULL, &error) == TCQ_OK)
        code = part_join(&writer, &m->list, m->sources, m->count, &m->args);
    else
        code = cli_fail(NULL, &error);
    model_writer_close(&writer, false);
    return code;
}

static int write_folder(struct merge *m)
{
    struct output output;
    const char *config = json_string_value(json_object_get(m->parts[0].description, "config"));
    json_t *job = json_pack("{s:s}", "command", "merge");
    int code = job ? output_open(&output, m->output, false, m->force, job) : cli_out_of_memory();
    json_decref(job);
    if (code != CLI_CONTINUE)
        return code;
    code = write_tensors(m, &output);
    if (code == CLI_CONTINUE)
        code = folder_copy(output.partial, m->parts[0].path, FOLDER_ALL_BUT_WEIGHTS);
    if (code == CLI_CONTINUE)
        code = output_write_text(&output, "config.json", config ? config : "{}");
    if (code == CLI_CONTINUE)
        code = output_commit(&output, m->force);
    if (code == CLI_CONTINUE)
        output_close(&output);
    else
        output_discard(&output);
    return code;
}

static int merge(struct merge *m)
{
    uint64_t nbytes = 0;
    int code = open_parts(m);
    for (size_t i = 0; code == CLI_CONTINUE && i < m->count; i++)
        code = output_check_source(m->output, false, m->parts[i].path);
    for (size_t i = 0; i < m->list.count; i++)
        nbytes += model_tensor_nbytes(&m->list.tensors[i]);
    if (code == CLI_CONTINUE)
        code = resources_check_disk(m->output, nbytes, 0);
    if (code == CLI_CONTINUE)
        code = write_folder(m);
    if (code == CLI_CONTINUE && !m->args.quiet)
        printf("%s: %zu parts joined, %zu tensors, %s\n", m->output, m->count, m->list.count,
               cli_nbytes_text(nbytes).s);
    for (size_t i = 0; m->parts && i < m->count; i++)
        part_close(&m->parts[i]);
    free(m->parts);
    free(m->sources);
    output_list_free(&m->list);
    return code == CLI_CONTINUE ? CLI_OK : code;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct merge m = {0};
    int code = cli_parse(self, argc, argv, 1, 9999, set_option, &m, &m.args);
    if (code == CLI_CONTINUE && !m.output)
        code = cli_usage("merge: -o DIR is missing");
    if (code != CLI_CONTINUE)
        return code;
    cli_signals_catch();
    m.count = (size_t)m.args.operand_count;
    return merge(&m);
}

const struct cli_command cmd_merge = {
    .name = "merge",
    .summary = "Join the parts of a model that several machines packed",
    .usage = "PART... -o DIR [OPTION...]",
    .details = "PARTs are the folders that 'tcq quantize --shard I/N' made, all N of them, from\n"
               "the same source with the same options.  DIR gets the bytes that one machine\n"
               "would have written.",
    .options = option_list,
    .common = CLI_QUIET,
    .run = run,
};
