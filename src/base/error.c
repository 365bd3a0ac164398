/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status names and error messages.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *tcq_version(void)
{
    return TCQ_VERSION;
}

const char *tcq_status_string(enum tcq_status status)
{
    static const char *const names[] = {
        [TCQ_OK] = "ok",
        [TCQ_ERROR_ARGUMENT] = "invalid argument",
        [TCQ_ERROR_GEOMETRY] = "invalid geometry",
        [TCQ_ERROR_FORMAT] = "malformed data",
        [TCQ_ERROR_UNSUPPORTED] = "unsupported",
        [TCQ_ERROR_VALUE] = "invalid value",
        [TCQ_ERROR_MEMORY] = "out of memory",
        [TCQ_ERROR_IO] = "input or output error",
        [TCQ_ERROR_EXISTS] = "output exists",
        [TCQ_ERROR_CANCELLED] = "cancelled",
        [TCQ_ERROR_DEVICE] = "device error",
    };
    size_t i = (size_t)status;
    return i < sizeof names / sizeof *names ? names[i] : "unknown status";
}

enum tcq_status tcq_error_set(struct tcq_error *error, enum tcq_status status, const char *format,
                              ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
        error->status = status;
    }
    return status;
}

enum tcq_status tcq_error_prefix(struct tcq_error *error, enum tcq_status status,
                                 const char *format, ...)
{
    if (error) {
        char rest[sizeof error->message];
        memcpy(rest, error->message, sizeof rest);
        va_list args;
        va_start(args, format);
        int n = vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
        size_t used = n < 0 ? 0 : (size_t)n;
        /* A message that does not fit is cut: gcc warns unless the result is looked at. */
        if (used < sizeof error->message &&
            snprintf(error->message + used, sizeof error->message - used, ": %s", rest) < 0)
            error->message[used] = '\0';
        error->status = status;
    }
    return status;
}

enum tcq_status tcq_error_memory(struct tcq_error *error, size_t nbytes, const char *what)
{
    return tcq_error_set(error, TCQ_ERROR_MEMORY, "out of memory: %zu bytes for %s", nbytes, what);
}
