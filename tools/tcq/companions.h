/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What belongs to a model beside its weights and config.json.
 */
#ifndef TCQ_COMPANIONS_H
#define TCQ_COMPANIONS_H

#include "output.h"

/* From a source folder every file that holds no weights; from the folder of a
 * single file its tokenizer and generation settings; from a GGUF file, where
 * these are missing beside it, the tokenizer inside it.  Prints; CLI_CONTINUE
 * or an exit code. */
int companions_write(const struct output *output, const struct tcq_source *source,
                     const char *source_path);

#endif
