/* table_out.h: columns for people, as wide as what stands in them.  Thread: main. */
#ifndef CLI_TABLE_OUT_H
#define CLI_TABLE_OUT_H

#include <stddef.h>
#include <stdio.h>

#include "base/macros.h"
#include "base/slice.h"

struct table_out {
    const char *const *columns; /* headings; lent.  One that begins with '>' is set to the right */
    size_t column_count;
    char **cells;
    size_t cell_count, cell_cap;
};

void table_out_init(struct table_out *t, const char *const *columns, size_t column_count);
/* The next cell, row by row; what cannot be printed is escaped. */
void table_out_text(struct table_out *t, struct str text);
/* As it is: text that has been escaped already. */
void table_out_plain(struct table_out *t, struct str text);
void table_out_printf(struct table_out *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Prints headings and rows, and frees the cells. */
void table_out_print(struct table_out *t, FILE *out);

#endif
