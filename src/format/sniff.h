/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling by its first bytes what a file is that is not what was hoped for.
 */
#ifndef TCQ_FORMAT_SNIFF_H
#define TCQ_FORMAT_SNIFF_H

#include "tcq.h"

bool tcq_sniff_is_gguf(const uint8_t *data, size_t nbytes);

/* What the file seems to be, in words and with what to do about it ("a Git LFS
 * pointer, not the file itself: fetch it with 'git lfs pull'"); NULL if it may
 * be safetensors. */
const char *tcq_sniff_foreign(const uint8_t *data, size_t nbytes);

#endif
