/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a config.json.  What does not concern quantization is copied from the
 * source as it is written there, character by character: a number that went
 * through a parser might not come out the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/config.h"
#include "format/json.h"

/* ---- members of an object in JSON text that is known to be valid -------- */

struct span {
    const char *start;
    size_t nbytes;
};

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++)
        if (*at == '\\')
            at++;
    return at + 1;
}

static const char *skip_value(const char *at)
{
    if (*at == '"')
        return skip_string(at);
    if (*at != '{' && *at != '[')
        return at + strcspn(at, ",]} \t\r\n");
    size_t depth = 0;
    do {
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at++;
    } while (depth);
    return at;
}

/* The next member; *at starts at the object's brace.  False at its end. */
static bool next_member(const char **at, struct span *key, struct span *value)
{
    const char *p = skip_space(*at + 1); /* past the brace or the comma */
    if (*p != '"')
        return false;
    key->start = p;
    p = skip_string(p);
    key->nbytes = (size_t)(p - key->start);
    p = skip_space(skip_space(p) + 1);
    value->start = p;
    p = skip_value(p);
    value->nbytes = (size_t)(p - value->start);
    *at = skip_space(p);
    return true;
}

/* A key's text without quotes and escapes; NULL if memory is short. */
static json_t *decode_key(struct span key)
{
    return json_loadb(key.start, key.nbytes, JSON_DECODE_ANY, NULL);
}

/* ---- writing ----------------------------------------------------------- */

/* What goes into the section, and how lines are indented. */
struct output {
    FILE *stream;
    const char *indent;
    size_t indent_nbytes;
    json_t *ours;            /* the names of `modules`, as keys */
    const char *old_section; /* its text, or NULL */
    const struct tcq_module_entry *modules;
    size_t count;
    bool memory_short;
};

static void new_line(const struct output *o, int depth, bool first)
{
    fputs(first ? "\n" : ",\n", o->stream);
    for (int i = 0; i < depth; i++)
        fwrite(o->indent, 1, o->indent_nbytes, o->stream);
}

static void put_member(const struct output *o, struct span key, struct span value)
{
    fwrite(key.start, 1, key.nbytes, o->stream);
    fputs(": ", o->stream);
    fwrite(value.start, 1, value.nbytes, o->stream);
}

static bool find_member(const char *object, const char *name, struct span *key, struct span *value)
{
    size_t nbytes = strlen(name);
    while (object && next_member(&object, key, value))
        if (key->nbytes == nbytes + 2 && !memcmp(key->start + 1, name, nbytes))
            return true;
    return false;
}

/* The defaults of modules that have no entry: the source's, else those that
 * MLX assumes.  Every module that we pack has an entry. */
static void put_defaults(const struct output *o)
{
    static const struct {
        const char *key, *text;
    } defaults[] = {{"group_size", "64"}, {"bits", "4"}, {"mode", "\"affine\""}};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        struct span key, value;
        new_line(o, 2, i == 0);
        if (find_member(o->old_section, defaults[i].key, &key, &value))
            put_member(o, key, value);
        else
            fprintf(o->stream, "\"%s\": %s", defaults[i].key, defaults[i].text);
    }
}

/* Modules that the source has quantized in its own way keep their entries. */
static void put_old_entries(struct output *o)
{
    struct span key, value;
    for (const char *at = o->old_section; at && next_member(&at, &key, &value);) {
        json_t *name = decode_key(key);
        o->memory_short |= !name;
        if (name && !tcq_config_is_default_key(json_string_value(name)) &&
            !json_object_get(o->ours, json_string_value(name))) {
            new_line(o, 2, false);
            put_member(o, key, value);
        }
        json_decref(name);
    }
}

static void put_module(struct output *o, const struct tcq_module_entry *module)
{
    json_t *name = json_string(module->name);
    char *text = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    json_decref(name);
    o->memory_short |= !text;
    new_line(o, 2, false);
    fprintf(o->stream, "%s: ", text ? text : "");
    free(text);
    if (!module->packed)
        fputs("false", o->stream);
    else
        fprintf(o->stream,
                "{\"bits\": %u, \"group_size\": %u, \"mode\": \"trellis\", "
                "\"trellis\": {\"L\": %u, \"code\": \"1mad\", \"axis\": %u}}",
                module->config.k, module->config.T, module->config.L, module->config.axis);
}

static void put_section(struct output *o, const char *key, bool first)
{
    new_line(o, 1, first);
    fprintf(o->stream, "\"%s\": {", key);
    put_defaults(o);
    put_old_entries(o);
    for (size_t i = 0; i < o->count; i++)
        put_module(o, &o->modules[i]);
    new_line(o, 1, true);
    fputs("}", o->stream);
}

static void put_config(struct output *o, const char *source)
{
    static const char *const sections[] = {"quantization", "quantization_config"};
    bool written[2] = {false, false}, first = true;
    struct span key, value;
    fputs("{", o->stream);
    for (const char *at = skip_space(source); next_member(&at, &key, &value); first = false) {
        json_t *name = decode_key(key);
        int section = -1;
        o->memory_short |= !name;
        for (int i = 0; i < 2 && name; i++)
            if (!strcmp(json_string_value(name), sections[i]))
                section = i;
        json_decref(name);
        if (section >= 0) {
            put_section(o, sections[section], first);
            written[section] = true;
        } else {
            new_line(o, 1, first);
            put_member(o, key, value);
        }
    }
    for (int i = 0; i < 2; i++)
        if (!written[i]) {
            put_section(o, sections[i], first);
            first = false;
        }
    fputs("\n}\n", o->stream);
}

/* ---- checking ---------------------------------------------------------- */

static enum tcq_status check_module(const struct tcq_module_entry *module, json_t *names,
                                    struct tcq_error *error)
{
    if (!module->name || !*module->name || tcq_config_is_default_key(module->name) ||
        !strcmp(module->name, "trellis") || !strcmp(module->name, "quant_method"))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "config: '%s' is not a module's path",
                             module->name ? module->name : "");
    if (json_object_get(names, module->name))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "config: module '%.100s' is there twice",
                             module->name);
    enum tcq_status status = TCQ_OK;
    if (module->packed && (status = tcq_module_config_check(&module->config, error)) != TCQ_OK)
        return tcq_error_prefix(error, status, "module '%.100s'", module->name);
    status = tcq_json_check_text(module->name, "a module's path", error);
    if (status == TCQ_OK && json_object_set_new(names, module->name, json_true()) != 0)
        status = tcq_error_memory(error, strlen(module->name), "a module's path");
    return status;
}

/* The text of the section to keep: not that of another quantization method,
 * whose settings do not describe what is written. */
static enum tcq_status find_old_section(const char *source, const char **out,
                                        struct tcq_error *error)
{
    json_t *root = NULL;
    const json_t *section = NULL;
    struct span key, value;
    enum tcq_status status =
        tcq_json_parse(source, strlen(source), JSON_DECODE_INT_AS_REAL, &root, error);
    if (status == TCQ_OK)
        status = tcq_config_section(root, &section, error);
    *out = NULL;
    if (status == TCQ_OK && section && !json_object_get(section, "quant_method")) {
        const char *name = section == json_object_get(root, "quantization") ? "quantization"
                                                                            : "quantization_config";
        if (find_member(skip_space(source), name, &key, &value))
            *out = value.start;
    }
    json_decref(root);
    return status == TCQ_OK ? status : tcq_error_prefix(error, status, "config.json");
}

/* The white space that indents the source's first key; two spaces if it has no lines. */
static void find_indent(struct output *o, const char *source)
{
    const char *brace = skip_space(source), *key = skip_space(brace + 1), *line = key;
    while (line > brace && line[-1] != '\n')
        line--;
    bool lines = line > brace && line < key;
    o->indent = lines ? line : "  ";
    o->indent_nbytes = lines ? (size_t)(key - line) : 2;
}

static enum tcq_status write_config(struct output *o, const char *source, char **out,
                                    struct tcq_error *error)
{
    enum tcq_status status = find_old_section(source, &o->old_section, error);
    for (size_t i = 0; i < o->count && status == TCQ_OK; i++)
        status = check_module(&o->modules[i], o->ours, error);
    if (status != TCQ_OK)
        return status;
    char *text = NULL;
    size_t nbytes = 0;
    o->stream = open_memstream(&text, &nbytes);
    if (!o->stream)
        return tcq_error_memory(error, strlen(source), "a config");
    find_indent(o, source);
    put_config(o, source);
    o->memory_short |= ferror(o->stream) != 0;
    o->memory_short |= fclose(o->stream) != 0;
    if (o->memory_short) {
        free(text);
        return tcq_error_memory(error, strlen(source), "a config");
    }
    *out = text;
    return TCQ_OK;
}

static bool is_section(struct span key)
{
    json_t *name = decode_key(key);
    const char *text = name ? json_string_value(name) : "";
    bool section = !strcmp(text, "quantization") || !strcmp(text, "quantization_config");
    json_decref(name);
    return section;
}

char *tcq_config_without_sections(const char *source)
{
    char *text = NULL;
    size_t nbytes = 0;
    struct output o = {.stream = open_memstream(&text, &nbytes)};
    if (!o.stream)
        return NULL;
    find_indent(&o, source);
    bool first = true;
    struct span key, value;
    fputs("{", o.stream);
    for (const char *at = skip_space(source); next_member(&at, &key, &value);) {
        if (is_section(key))
            continue;
        new_line(&o, 1, first);
        put_member(&o, key, value);
        first = false;
    }
    fputs("\n}\n", o.stream);
    bool failed = ferror(o.stream) != 0;
    if (fclose(o.stream) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

enum tcq_status tcq_config_write(const char *source_text, const struct tcq_module_entry *modules,
                                 size_t count, char **out, struct tcq_error *error)
{
    if ((!modules && count) || !out)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "config: modules or out is NULL");
    struct output o = {.modules = modules, .count = count, .ours = json_object()};
    if (!o.ours)
        return tcq_error_memory(error, count * sizeof *modules, "the names of modules");
    enum tcq_status status = write_config(&o, source_text ? source_text : "{}", out, error);
    json_decref(o.ours);
    return status;
}
