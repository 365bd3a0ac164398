/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text tables with aligned columns: cells are added one after another, a row
 * is full after as many cells as there are columns.
 */
#ifndef TCQ_TABLE_H
#define TCQ_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { TABLE_COLUMNS_MAX = 16 };

struct table {
    size_t columns;
    const char *align; /* a letter a column: 'l' or 'r' */
    char **cells;
    size_t count, capacity;
    bool failed; /* an allocation failed; table_print says so */
};

/* The titles become the first row; NULL ends them. */
void table_start(struct table *table, const char *align, const char *const *titles);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fills the rest of the row with empty cells. */
void table_end_row(struct table *table);
/* Prints to stdout and frees the cells; false if memory ran out meanwhile. */
bool table_print(struct table *table);

/* `name` with every all-digit component replaced by '*' ("model.layers.*.mlp"), so that
 * the same tensor of different blocks shares one row.  malloc'ed; NULL without memory. */
char *table_group_name(const char *name);

#endif
