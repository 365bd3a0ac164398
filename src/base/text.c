/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 checks (RFC 3629).
 */
#include "base/text.h"

#include <stdint.h>

#define SHOWN_MAX 96u

/* Bytes of the sequence that starts with `lead`; 0 if none can. */
static size_t sequence_nbytes(uint8_t lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef)
        return 3;
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

static bool is_continuation(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

/* The second byte rules out overlong forms, surrogates and code points past
 * U+10FFFF, each of which shows in the first two bytes. */
static bool second_is_valid(uint8_t lead, uint8_t second)
{
    switch (lead) {
    case 0xe0:
        return second >= 0xa0;
    case 0xed:
        return second < 0xa0;
    case 0xf0:
        return second >= 0x90;
    case 0xf4:
        return second < 0x90;
    default:
        return true;
    }
}

bool tcq_text_is_utf8(const char *bytes, size_t nbytes)
{
    const uint8_t *text = (const uint8_t *)bytes;
    for (size_t i = 0; i < nbytes;) {
        size_t length = sequence_nbytes(text[i]);
        if (length == 0 || length > nbytes - i)
            return false;
        if (length > 1 && !second_is_valid(text[i], text[i + 1]))
            return false;
        for (size_t j = 1; j < length; j++)
            if (!is_continuation(text[i + j]))
                return false;
        i += length;
    }
    return true;
}

bool tcq_text_is_printable(const char *bytes, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if ((uint8_t)bytes[i] < 0x20 || bytes[i] == 0x7f)
            return false;
    return tcq_text_is_utf8(bytes, nbytes);
}

int tcq_text_shown(const char *bytes, size_t nbytes)
{
    if (nbytes <= SHOWN_MAX)
        return (int)nbytes;
    size_t shown = SHOWN_MAX;
    while (shown > 0 && is_continuation((uint8_t)bytes[shown]))
        shown--;
    return (int)shown;
}
