/* table_out.c: see table_out.h. */
#include "cli/table_out.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/log_out.h"

void table_out_init(struct table_out *t, const char *const *columns, size_t column_count)
{
    *t = (struct table_out){.columns = columns, .column_count = column_count};
}

static void add_cell(struct table_out *t, char *text)
{
    t->cells = mem_grow(t->cells, &t->cell_cap, t->cell_count + 1, sizeof *t->cells);
    t->cells[t->cell_count++] = text;
}

void table_out_text(struct table_out *t, struct str text)
{
    char *escaped = NULL;
    size_t size = 0;
    FILE *mem = open_memstream(&escaped, &size);
    ASSERT(mem);
    print_escaped(mem, text);
    fclose(mem);
    add_cell(t, mem_strndup(escaped, size));
    free(escaped); /* the C library's own */
}

void table_out_plain(struct table_out *t, struct str text)
{
    add_cell(t, mem_strndup(text.data, text.size));
}

void table_out_printf(struct table_out *t, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    add_cell(t, mem_strdup(text));
}

/* Characters, where each byte that continues one counts for nothing. */
static int width_of(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void print_cell(FILE *out, const char *text, int width, bool right, bool last)
{
    int pad = width - width_of(text);
    if (right) fprintf(out, "%*s", pad, "");
    fputs(text, out);
    if (!right && !last) fprintf(out, "%*s", pad, "");
    fputs(last ? "\n" : "  ", out);
}

void table_out_print(struct table_out *t, FILE *out)
{
    int *widths = mem_zalloc(t->column_count, sizeof *widths);
    for (size_t c = 0; c < t->column_count; c++) {
        widths[c] = width_of(t->columns[c]) - (t->columns[c][0] == '>');
        for (size_t i = c; i < t->cell_count; i += t->column_count) widths[c] = MAX(widths[c], width_of(t->cells[i]));
    }
    for (size_t c = 0; c < t->column_count; c++) {
        bool right = t->columns[c][0] == '>';
        print_cell(out, t->columns[c] + right, widths[c], right, c + 1 == t->column_count);
    }
    for (size_t i = 0; i < t->cell_count; i++) {
        size_t c = i % t->column_count;
        print_cell(out, t->cells[i], widths[c], t->columns[c][0] == '>', c + 1 == t->column_count);
        mem_free(t->cells[i]);
    }
    mem_free(t->cells);
    mem_free(widths);
}
