/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk down a double-array trie.  A unit has, from its lowest bit: the byte
 * that leads to it (8 bits), whether one of its children is a value (1), and
 * the distance to its children (22, in units of 1 or, with bit 9 set, of 256);
 * a value has bit 31 set.  Positions combine by exclusive or.  Nothing in the
 * bytes is trusted: a position outside the trie is one without a match.
 */
#include "model/charsmap.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/utf8.h"

#define VALUE_BIT 0x80000000u

/* What one string may become: Unicode's longest compatibility form has 33 bytes, and a
 * hostile map shall not blow up a text. */
enum { REPLACEMENT_NBYTES_MAX = 256 };

struct tcq_charsmap {
    uint32_t *units;
    size_t unit_count;
    char *texts; /* ended by a zero byte more than the file has */
    size_t texts_nbytes;
};

static uint32_t load_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

enum tcq_status tcq_charsmap_create(const uint8_t *data, size_t nbytes, struct tcq_charsmap **out,
                                    struct tcq_error *error)
{
    size_t trie = nbytes >= 4 ? load_u32(data) : 0;
    if (trie < 4 || trie % 4 != 0 || trie > nbytes - 4)
        return tcq_error_set(error, TCQ_ERROR_FORMAT,
                             "precompiled character map of %zu bytes: its trie has %zu", nbytes,
                             trie);
    struct tcq_charsmap *map = tcq_alloc(1, sizeof *map);
    if (!map)
        return tcq_error_memory(error, sizeof *map, "the character map");
    map->unit_count = trie / 4;
    map->texts_nbytes = nbytes - 4 - trie;
    map->units = tcq_alloc(map->unit_count, sizeof *map->units);
    map->texts = tcq_alloc(map->texts_nbytes + 1, 1);
    if (!map->units || !map->texts) {
        tcq_charsmap_destroy(map);
        return tcq_error_memory(error, nbytes, "the character map");
    }
    for (size_t i = 0; i < map->unit_count; i++)
        map->units[i] = load_u32(data + 4 + 4 * i);
    memcpy(map->texts, data + 4 + trie, map->texts_nbytes);
    *out = map;
    return TCQ_OK;
}

void tcq_charsmap_destroy(struct tcq_charsmap *map)
{
    if (!map)
        return;
    tcq_free(map->units);
    tcq_free(map->texts);
    tcq_free(map);
}

static uint32_t children(uint32_t unit)
{
    return unit >> 10 << ((unit & 0x200) >> 6);
}

/* The longest string of the map that text starts with: its length, or 0, and
 * where its replacement is. */
static size_t longest_match(const struct tcq_charsmap *map, const char *text, size_t nbytes,
                            uint32_t *value)
{
    size_t at = children(map->units[0]), longest = 0;
    for (size_t i = 0; i < nbytes; i++) {
        uint8_t byte = (uint8_t)text[i];
        at ^= byte;
        if (at >= map->unit_count || (map->units[at] & (VALUE_BIT | 0xff)) != byte)
            break;
        uint32_t unit = map->units[at];
        at ^= children(unit);
        if (unit & 0x100 && at < map->unit_count) {
            longest = i + 1;
            *value = map->units[at] & ~VALUE_BIT;
        }
    }
    return longest;
}

enum tcq_status tcq_charsmap_apply(const struct tcq_charsmap *map, struct tcq_bytes *text,
                                   struct tcq_error *error)
{
    struct tcq_bytes out = {0};
    bool ok = true;
    for (size_t at = 0; at < text->count && ok;) {
        uint32_t value = 0;
        size_t length = longest_match(map, text->data + at, text->count - at, &value);
        /* A string that ends within a character would leave half of it. */
        bool whole = at + length == text->count || (text->data[at + length] & 0xc0) != 0x80;
        if (length && whole && value <= map->texts_nbytes) {
            const char *by = map->texts + value;
            size_t by_nbytes = strnlen(by, REPLACEMENT_NBYTES_MAX + 1);
            if (by_nbytes > REPLACEMENT_NBYTES_MAX || !tcq_text_is_utf8(by, by_nbytes)) {
                tcq_bytes_free(&out);
                return tcq_error_set(error, TCQ_ERROR_FORMAT,
                                     "precompiled character map: text at %u is not UTF-8 of at most "
                                     "%d bytes", value, REPLACEMENT_NBYTES_MAX);
            }
            ok = tcq_bytes_append(&out, by, by_nbytes);
        } else {
            length = tcq_utf8_length((uint8_t)text->data[at]);
            ok = tcq_bytes_append(&out, text->data + at, length);
        }
        at += length;
    }
    if (!ok) {
        tcq_bytes_free(&out);
        return tcq_error_memory(error, text->count, "normalized text");
    }
    tcq_bytes_free(text);
    *text = out;
    return TCQ_OK;
}
