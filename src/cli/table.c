/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

enum { GAP = 3 };

/* Characters, not bytes; wide characters count as one. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

void table_init(struct table *t, const char *const *headings)
{
    *t = (struct table){0};
    while (headings[t->columns])
        t->columns++;
    t->cells = xcalloc(t->columns, sizeof *t->cells);
    for (size_t i = 0; i < t->columns; i++)
        t->cells[i] = str_dup(str_of(headings[i]));
    t->rows = 1;
}

void table_done(struct table *t)
{
    size_t kept = min_u64(t->rows, TABLE_ROWS_MAX);
    for (size_t i = 0; i < kept * t->columns; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct table){0};
}

void table_add(struct table *t, const struct str *cells)
{
    size_t row = t->rows++;
    if (row >= TABLE_ROWS_MAX)
        return;
    if ((row & (row - 1)) == 0) /* a power of two: full */
        t->cells = xrealloc(t->cells, 2 * row * t->columns, sizeof *t->cells);
    for (size_t i = 0; i < t->columns; i++) {
        char *cell = t->cells[row * t->columns + i] = str_dup(cells[i]);
        text_make_printable(cell, cells[i].len);
    }
}

static void write_cell(const char *cell, size_t width, bool right, bool last, struct sbuf *b)
{
    size_t pad = width - width_of(cell);
    if (right)
        sbuf_addf(b, "%*s", (int)pad, "");
    sbuf_adds(b, cell);
    if (!last)
        sbuf_addf(b, "%*s", (int)(right ? GAP : pad + GAP), "");
}

void table_write(const struct table *t, struct sbuf *b)
{
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    size_t rows = min_u64(t->rows, TABLE_ROWS_MAX);
    for (size_t i = 0; i < rows * t->columns; i++) {
        bool marked = i < t->columns && t->cells[i][0] == '>';
        widths[i % t->columns] = max_u64(widths[i % t->columns], width_of(t->cells[i] + marked));
    }
    for (size_t i = 0; i < rows * t->columns; i++) {
        size_t column = i % t->columns;
        bool right = t->cells[column][0] == '>', last = column + 1 == t->columns;
        const char *cell = t->cells[i] + (right && i < t->columns);
        write_cell(cell, widths[column], right, last, b);
        if (last)
            sbuf_addc(b, '\n');
    }
    if (t->rows > rows)
        sbuf_addf(b, "... and %zu more\n", t->rows - rows);
}
