/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One code point of UTF-8 at a time, strict: no overlong forms, no surrogates,
 * nothing above U+10FFFF.  Inline, since the tokenizer walks text with it.
 */
#ifndef TCQ_MODEL_UTF8_H
#define TCQ_MODEL_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define TCQ_UTF8_MAX 4u

/* Bytes that a lead byte announces; 0 for one that cannot lead. */
static inline size_t tcq_utf8_length(uint8_t lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
}

/* How many of the nbytes (at least 1) at p are the start of some valid code
 * point, at most its length; 0 if the first byte cannot lead. */
static inline size_t tcq_utf8_prefix(const uint8_t *p, size_t nbytes)
{
    size_t length = tcq_utf8_length(p[0]);
    if (length < 2 || nbytes < 2)
        return length ? 1 : 0;
    /* Second bytes that would make overlong forms, surrogates or too large values. */
    uint8_t low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high)
        return 1;
    size_t n = 2;
    while (n < length && n < nbytes && (p[n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* The code point at p (nbytes at least 1) into *code; its length, or 0 if the
 * bytes are not one. */
static inline size_t tcq_utf8_decode(const uint8_t *p, size_t nbytes, uint32_t *code)
{
    size_t length = tcq_utf8_length(p[0]);
    if (length == 0 || tcq_utf8_prefix(p, nbytes) != length)
        return 0;
    uint32_t value = length == 1 ? p[0] : p[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        value = value << 6 | (p[i] & 0x3fu);
    *code = value;
    return length;
}

/* Writes a valid code point to p (room for TCQ_UTF8_MAX bytes); its length. */
static inline size_t tcq_utf8_encode(uint8_t *p, uint32_t code)
{
    if (code < 0x80) {
        p[0] = (uint8_t)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        p[i] = (uint8_t)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    p[0] = (uint8_t)((0xf00u >> length) | code);
    return length;
}

#endif
