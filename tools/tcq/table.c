/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text tables with aligned columns.
 */
#include "table.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

void table_start(struct table *table, const char *align, const char *const *titles)
{
    *table = (struct table){.columns = strlen(align), .align = align};
    for (; *titles; titles++)
        table_cell(table, "%s", *titles);
}

static bool reserve(struct table *table)
{
    if (table->count < table->capacity)
        return true;
    size_t capacity = table->capacity ? 2 * table->capacity : 64;
    char **cells = realloc(table->cells, capacity * sizeof *cells);
    if (!cells)
        return false;
    table->cells = cells;
    table->capacity = capacity;
    return true;
}

void table_cell(struct table *table, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    bool made = vasprintf(&text, format, args) >= 0;
    va_end(args);
    if (!made || !reserve(table)) {
        if (made)
            free(text);
        table->failed = true;
        return;
    }
    table->cells[table->count++] = text;
}

void table_end_row(struct table *table)
{
    while (table->count % table->columns && !table->failed)
        table_cell(table, "%s", "");
}

static void print_row(const struct table *table, char *const *row, const int *widths)
{
    size_t last = table->columns; /* nothing is printed after the last cell with text */
    while (last > 0 && !*row[last - 1])
        last--;
    for (size_t c = 0; c < last; c++) {
        int width = table->align[c] == 'r' ? widths[c] : -widths[c];
        if (c + 1 == last && width < 0)
            width = 0;
        printf("%s%*s", c ? "  " : "", width, row[c]);
    }
    putchar('\n');
}

bool table_print(struct table *table)
{
    int widths[TABLE_COLUMNS_MAX] = {0};
    for (size_t i = 0; i < table->count; i++) {
        int n = (int)strlen(table->cells[i]);
        if (n > widths[i % table->columns])
            widths[i % table->columns] = n;
    }
    for (size_t i = 0; i + table->columns <= table->count; i += table->columns)
        print_row(table, table->cells + i, widths);
    bool whole = !table->failed;
    if (!whole)
        cli_out_of_memory();
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct table){0};
    return whole;
}

char *table_group_name(const char *name)
{
    char *out = malloc(strlen(name) + 1), *to = out;
    if (!out)
        return NULL;
    while (*name) {
        size_t part = strcspn(name, ".");
        size_t digits = strspn(name, "0123456789");
        if (part > 0 && digits == part) {
            *to++ = '*';
        } else {
            memcpy(to, name, part);
            to += part;
        }
        name += part;
        if (*name)
            *to++ = *name++;
    }
    *to = '\0';
    return out;
}
