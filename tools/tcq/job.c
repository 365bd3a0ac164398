/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job as JSON.
 */
#include "job.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"

static json_t *patterns_json(const struct plan_patterns *patterns)
{
    json_t *list = json_array();
    for (size_t i = 0; i < patterns->count; i++) {
        const struct plan_pattern *p = &patterns->list[i];
        json_array_append_new(list, p->k ? json_pack("[s, i]", p->glob, (int)p->k)
                                         : json_string(p->glob));
    }
    return list;
}

json_t *job_options_json(const struct plan_options *p)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:b, s:b, s:I, s:o, s:o, s:o, s:i, s:i}",
                     "tcq", tcq_version(), "--bits", (int)p->k, "--head-bits",
                     (int)p->head_bits, "--L", (int)p->L, "--block",
                     (int)p->block, "--axis", (int)p->axis, "--scale",
                     p->scale == TCQ_SCALE_FIT ? "fit" : "rms", "--preset mlx-bun", (int)p->mlx_bun,
                     "--interleave", (int)p->interleave, "--shard-size",
                     (json_int_t)p->shard_nbytes, "--bits-for", patterns_json(&p->bits_for),
                     "--include", patterns_json(&p->include), "--exclude",
                     patterns_json(&p->exclude), "parts", (int)p->parts, "part", (int)p->part);
}

/* Size and time of last change of every file with tensors. */
static json_t *files_json(const struct tcq_source *source, const char *path)
{
    json_t *files = json_object();
    bool folder = tcq_source_get_kind(source) == TCQ_SOURCE_FOLDER;
    for (size_t i = 0; i < tcq_source_count(source); i++) {
        const char *name = tcq_source_get(source, i)->file;
        json_t *key = cli_json_text(name);
        char *full = folder ? tcq_path_join(path, name) : tcq_strdup(path);
        struct stat st;
        if (key && full && !json_object_get(files, json_string_value(key)) &&
            stat(full, &st) == 0)
            json_object_set_new(
                files, json_string_value(key),
                json_pack("[I, I, I]", (json_int_t)st.st_size, (json_int_t)st.st_mtim.tv_sec,
                          (json_int_t)st.st_mtim.tv_nsec));
        json_decref(key);
        tcq_free(full);
    }
    return files;
}

json_t *job_json(const struct plan_options *options, const struct tcq_source *source,
                 const char *path)
{
    json_t *job = job_options_json(options);
    char *full = realpath(path, NULL);
    if (job) {
        json_object_set_new(job, "source", cli_json_text(full ? full : path));
        json_object_set_new(job, "source files", files_json(source, path));
    }
    free(full);
    return job;
}
