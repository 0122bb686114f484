/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - writes rows of text under headings, each column as wide as its widest cell. home: main. */
#pragma once

#include "util/str.h"
#include <stdio.h>

enum { TABLE_COLUMNS_MAX = 16, TABLE_ROWS_MAX = 100000 };

struct table {
    size_t columns; /* at most TABLE_COLUMNS_MAX */
    char **cells;   /* owned; the cells by rows, the headings first */
    size_t rows;    /* count of added rows; those beyond TABLE_ROWS_MAX are not stored */
};

/* `headings` is NULL-terminated; one that begins with '>' (not shown) makes its column right-aligned. */
void table_init(struct table *t, const char *const *headings);
void table_done(struct table *t); /* may run twice */

/* Adds a row: one cell for each column; copied. Bytes that are not printable UTF-8 are shown as '?'. Rows beyond
 * TABLE_ROWS_MAX are omitted; table_write shows their number. */
void table_add(struct table *t, const struct str *cells);
void table_write(const struct table *t, struct sbuf *b);

DEFINE_AUTO_DONE(table, struct table, table_done)
#define auto_table auto_with(auto_clean_table) struct table
