/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small files of results, replaced as a whole.
 */
#include "replace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool write_all(const char *path, const void *bytes, size_t nbytes)
{
    FILE *file = fopen(path, "wb");
    bool ok = file && fwrite(bytes, 1, nbytes, file) == nbytes;
    int reason = errno;
    if (file && fclose(file) != 0 && ok) {
        ok = false;
        reason = errno;
    }
    errno = reason;
    return ok;
}

bool replace_file(const char *path, const void *bytes, size_t nbytes)
{
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return write_all(path, bytes, nbytes);
    char *partial = NULL;
    if (asprintf(&partial, "%s.partial", path) < 0)
        return false;
    bool ok = write_all(partial, bytes, nbytes) && rename(partial, path) == 0;
    int reason = errno;
    if (!ok)
        unlink(partial);
    free(partial);
    errno = reason;
    return ok;
}

int replace_json(const char *path, json_t *json, size_t flags)
{
    char *text = json ? json_dumps(json, flags) : NULL;
    json_decref(json);
    if (!text)
        return cli_out_of_memory();
    bool ok = replace_file(path, text, strlen(text));
    int reason = errno;
    free(text);
    if (ok)
        return CLI_CONTINUE;
    cli_message("%s: %s", path, strerror(reason));
    return CLI_FAILED;
}
