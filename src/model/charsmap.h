/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece's precompiled character map: which strings are replaced by
 * which before a text is tokenized.  The bytes are a little-endian uint32, the
 * size of a double-array trie (of uint32 units); the trie, whose values are
 * offsets; and the replacements they point to, each ended by a zero byte.
 */
#ifndef TCQ_MODEL_CHARSMAP_H
#define TCQ_MODEL_CHARSMAP_H

#include "model/bytes.h"
#include "tcq.h"

struct tcq_charsmap;

/* The bytes are copied.  Errors: FORMAT, MEMORY. */
enum tcq_status tcq_charsmap_create(const uint8_t *data, size_t nbytes, struct tcq_charsmap **out,
                                    struct tcq_error *error);
void tcq_charsmap_destroy(struct tcq_charsmap *map);

/* Replace, from the left, the longest strings that the map has.  text is valid
 * UTF-8 and stays so.  Errors: FORMAT (a replacement that is not), MEMORY. */
enum tcq_status tcq_charsmap_apply(const struct tcq_charsmap *map, struct tcq_bytes *text,
                                   struct tcq_error *error);

#endif
