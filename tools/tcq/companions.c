/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizer and other files that go with a model.
 */
#include "companions.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "folder.h"

static bool is_there(const struct output *output, const char *name)
{
    char *path = tcq_path_join(output->partial, name);
    bool exists = path && tcq_path_exists(path);
    tcq_free(path);
    return exists;
}

/* A tokenizer that cannot be carried over leaves the weights as good as they
 * are: said, and gone on without. */
static int write_gguf_tokenizer(const struct output *output, const struct tcq_source *source)
{
    char *tokenizer = NULL, *config = NULL;
    struct tcq_error error = {0};
    if (tcq_source_tokenizer(source, &tokenizer, &config, &error) != TCQ_OK) {
        cli_fail(NULL, &error);
        cli_message("the output has no tokenizer.json");
        return CLI_CONTINUE;
    }
    int code = output_write_text(output, "tokenizer.json", tokenizer);
    if (code == CLI_CONTINUE)
        code = output_write_text(output, "tokenizer_config.json", config);
    free(tokenizer);
    free(config);
    return code;
}

int companions_write(const struct output *output, const struct tcq_source *source,
                     const char *source_path)
{
    if (tcq_source_get_kind(source) == TCQ_SOURCE_FOLDER)
        return folder_copy(output->partial, source_path, FOLDER_ALL_BUT_WEIGHTS);
    char *copy = strdup(source_path);
    if (!copy)
        return cli_out_of_memory();
    int code = folder_copy(output->partial, dirname(copy), FOLDER_TOKENIZER);
    free(copy);
    if (code == CLI_CONTINUE && tcq_source_get_kind(source) == TCQ_SOURCE_GGUF &&
        !is_there(output, "tokenizer.json"))
        code = write_gguf_tokenizer(output, source);
    return code;
}
