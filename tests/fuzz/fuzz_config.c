/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json: parse, list and find its modules; write them back over the same
 * text and parse that: the modules must come out as they went in.
 */
#include "fuzz.h"

enum { ENTRIES_MAX = 64 };

static struct tcq_module_entry entry_of(const struct tcq_config *config, size_t i)
{
    struct tcq_module_entry entry = {.name = tcq_config_module_name(config, i), .packed = true};
    FUZZ_CHECK(tcq_config_find(config, entry.name, &entry.config));
    return entry;
}

static void check_same(const struct tcq_config *config, const struct tcq_module_entry *entries,
                       size_t count)
{
    FUZZ_CHECK(tcq_config_module_count(config) == count);
    for (size_t i = 0; i < count; i++) {
        struct tcq_module_config found;
        FUZZ_CHECK(tcq_config_find(config, entries[i].name, &found));
        FUZZ_CHECK(memcmp(&found, &entries[i].config, sizeof found) == 0);
    }
}

/* text is terminated here; the parser itself goes by its length. */
static void write_again(const struct tcq_config *config, const char *text)
{
    struct tcq_module_entry entries[ENTRIES_MAX];
    struct tcq_config *again = NULL;
    struct tcq_error error = {0};
    size_t count = tcq_config_module_count(config);
    char *written = NULL;
    if (count > ENTRIES_MAX)
        return;
    for (size_t i = 0; i < count; i++)
        entries[i] = entry_of(config, i);
    enum tcq_status status = tcq_config_write(text, entries, count, &written, &error);
    fuzz_check_status(status, &error);
    if (status != TCQ_OK)
        return;
    FUZZ_CHECK(tcq_config_parse(written, strlen(written), &again, &error) == TCQ_OK);
    check_same(again, entries, count);
    tcq_config_destroy(again);
    free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    struct tcq_config *config = NULL;
    struct tcq_error error = {0};
    enum tcq_status status = tcq_config_parse((const char *)data, nbytes, &config, &error);
    fuzz_check_status(status, &error);
    if (status != TCQ_OK)
        return 0;
    char *text = calloc(1, nbytes + 1);
    if (text != NULL) {
        memcpy(text, data, nbytes);
        write_again(config, text);
    }
    free(text);
    tcq_config_destroy(config);
    return 0;
}
