/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens to whole characters.  Bytes that cannot start or continue a character
 * become one U+FFFD for each longest part that could have been one, which is
 * what Unicode recommends and most software does.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer.h"
#include "model/utf8.h"

static const char replacement[] = "\xef\xbf\xbd";

/* Append the complete characters of bytes; the last incomplete one is held. */
static bool take(struct tcq_text_stream *stream, struct tcq_bytes *out, const uint8_t *bytes,
                 size_t nbytes)
{
    bool ok = true;
    for (size_t at = 0; at < nbytes && ok;) {
        size_t length = tcq_utf8_length(bytes[at]);
        size_t prefix = tcq_utf8_prefix(bytes + at, nbytes - at);
        if (length && prefix < length && at + prefix == nbytes) {
            memcpy(stream->held, bytes + at, prefix);
            stream->held_nbytes = prefix;
            return true;
        }
        if (length && prefix == length)
            ok = tcq_bytes_append(out, bytes + at, length);
        else
            ok = tcq_bytes_append_text(out, replacement);
        at += prefix ? prefix : 1;
    }
    return ok;
}

static enum tcq_status hand_over(struct tcq_bytes *out, bool ok, char **text, size_t *nbytes,
                                 struct tcq_error *error)
{
    size_t count = out->count;
    if (!ok || !tcq_bytes_append(out, "", 1)) {
        tcq_bytes_free(out);
        return tcq_error_memory(error, count + 1, "text");
    }
    *text = out->data;
    *nbytes = count;
    return TCQ_OK;
}

enum tcq_status tcq_text_stream_next(struct tcq_text_stream *stream, uint32_t id, char **text,
                                     size_t *nbytes, struct tcq_error *error)
{
    if (!stream || !stream->tokenizer || !text || !nbytes)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "text stream: a null pointer");
    size_t length;
    const char *bytes = tcq_tokenizer_bytes(stream->tokenizer, id, &length);
    struct tcq_bytes all = {0}, out = {0};
    if (!stream->show_special && tcq_tokenizer_is_special(stream->tokenizer, id))
        return hand_over(&out, true, text, nbytes, error);
    if (!stream->started && stream->tokenizer->strip_first_space && length && bytes[0] == ' ') {
        bytes++;
        length--;
    }
    stream->started = true;
    bool ok = tcq_bytes_append(&all, stream->held, stream->held_nbytes) &&
              tcq_bytes_append(&all, bytes, length);
    if (ok) {
        stream->held_nbytes = 0;
        ok = take(stream, &out, (const uint8_t *)all.data, all.count);
    }
    tcq_bytes_free(&all);
    return hand_over(&out, ok, text, nbytes, error);
}

enum tcq_status tcq_text_stream_end(struct tcq_text_stream *stream, char **text, size_t *nbytes,
                                    struct tcq_error *error)
{
    if (!stream || !text || !nbytes)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "text stream: a null pointer");
    struct tcq_bytes out = {0};
    bool ok = stream->held_nbytes == 0 || tcq_bytes_append_text(&out, replacement);
    stream->held_nbytes = 0;
    return hand_over(&out, ok, text, nbytes, error);
}
