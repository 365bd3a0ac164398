/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling by its first bytes what a file is that is not what was hoped for.
 */
#include "format/sniff.h"

#include <string.h>

/* Where safetensors has the first byte of its JSON header, always '{'. */
enum { SAFETENSORS_BRACE = 8, TEXT_NBYTES = 64 };

static const struct {
    const char *magic;
    size_t nbytes;
    const char *what;
} kinds[] = {
    {"version https://git-lfs", 23,
     "a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'"},
    {"PK\3\4", 4, "a zip archive, as PyTorch's .bin and .pt are: convert it to safetensors"},
    {"\x80\2", 2, "a Python pickle, as PyTorch's .bin is: convert it to safetensors"},
    {"\x80\3", 2, "a Python pickle: convert it to safetensors"},
    {"\x80\4", 2, "a Python pickle: convert it to safetensors"},
    {"\x80\5", 2, "a Python pickle: convert it to safetensors"},
    {"\x89HDF", 4, "an HDF5 file: convert it to safetensors"},
    {"\x93NUMPY", 6, "a numpy array: convert it to safetensors"},
    {"<!DOCTYPE", 9, "a web page: the download went wrong"},
    {"<html", 5, "a web page: the download went wrong"},
    {"{", 1, "plain JSON, not safetensors"},
};

bool tcq_sniff_is_gguf(const uint8_t *data, size_t nbytes)
{
    return nbytes >= 4 && !memcmp(data, "GGUF", 4);
}

/* No control characters but white space in the first bytes. */
static bool is_text(const uint8_t *data, size_t nbytes)
{
    size_t count = nbytes < TEXT_NBYTES ? nbytes : TEXT_NBYTES;
    for (size_t i = 0; i < count; i++)
        if ((data[i] < ' ' && (data[i] < '\t' || data[i] > '\r')) || data[i] == 0x7f)
            return false;
    return true;
}

const char *tcq_sniff_foreign(const uint8_t *data, size_t nbytes)
{
    if (nbytes == 0)
        return "an empty file";
    /* A header's length may begin with the bytes of any magic number. */
    if (nbytes > SAFETENSORS_BRACE && data[SAFETENSORS_BRACE] == '{')
        return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (nbytes >= kinds[i].nbytes && !memcmp(data, kinds[i].magic, kinds[i].nbytes))
            return kinds[i].what;
    if (is_text(data, nbytes))
        return "neither safetensors nor GGUF, but text";
    if (nbytes < SAFETENSORS_BRACE)
        return "neither safetensors nor GGUF: it is too short for either";
    return NULL;
}
