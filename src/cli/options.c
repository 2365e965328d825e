/* options.c: see options.h. */
#include "cli/options.h"

#include <string.h>

#include "base/mem.h"

enum { HELP_COLUMN = 32, HELP_WIDTH = 110 };

/* ---- parsing ---- */

static const struct option_row *find_row(const struct options *o, const char *word, const char **after)
{
    for (size_t i = 0; i < o->row_count; i++) {
        size_t n = strlen(o->rows[i].name);
        if (strncmp(word, o->rows[i].name, n) != 0 || (word[n] != '\0' && word[n] != '=')) continue;
        *after = word[n] == '=' ? word + n + 1 : NULL;
        return &o->rows[i];
    }
    return NULL;
}

static bool parse_number(const char *text, int64_t *out)
{
    bool negative = *text == '-';
    const char *p = text + (negative || *text == '+');
    if (!*p) return false;
    int64_t n = 0;
    for (; *p; p++) {
        if (*p < '0' || *p > '9' || n > (INT64_MAX - (*p - '0')) / 10) return false;
        n = n * 10 + (*p - '0');
    }
    *out = negative ? -n : n;
    return true;
}

static void add_text(struct option_value *v, const char *text)
{
    v->texts = mem_realloc(v->texts, (v->count + 1) * sizeof *v->texts);
    v->texts[v->count++] = text;
}

static bool is_option(const char *word)
{
    return strncmp(word, "--", 2) == 0;
}

/* One option whose value, if there is one, is in the same word (`text`) or in the next. */
static enum err take_option(struct options *o, const struct option_row *row, const char *text, int argc, char **argv,
                            int *i, struct fault *f)
{
    struct option_value *v = &o->values[row - o->rows];
    if (v->given && row->kind != OPTION_FLAG && row->kind != OPTION_TEXTS)
        return fault_set(f, ERR_INVALID, "%s is given more than once", row->name);
    v->given = true;
    if (row->kind == OPTION_FLAG) return text ? fault_set(f, ERR_INVALID, "%s takes no value", row->name) : OK;
    bool optional = row->kind == OPTION_MAYBE_TEXT;
    if (!text && *i + 1 < argc && !is_option(argv[*i + 1])) text = argv[++*i];
    if (!text) return optional ? OK : fault_set(f, ERR_INVALID, "%s needs a value: %s", row->name, row->value);
    v->text = text;
    if (row->kind == OPTION_TEXTS) add_text(v, text);
    if (row->kind == OPTION_NUMBER && !parse_number(text, &v->number))
        return fault_set(f, ERR_INVALID, "%s needs a number, not '%s'", row->name, text);
    return OK;
}

enum err options_parse(struct options *o, const struct option_row *rows, size_t row_count, int argc, char **argv,
                       int from, struct fault *f)
{
    *o = (struct options){.rows = rows, .row_count = row_count};
    o->values = mem_zalloc(row_count, sizeof *o->values);
    o->words = mem_zalloc((size_t)argc, sizeof *o->words);
    for (int i = from; i < argc; i++) {
        const char *after;
        if (!is_option(argv[i])) {
            o->words[o->word_count++] = argv[i];
            continue;
        }
        const struct option_row *row = find_row(o, argv[i], &after);
        if (!row) return fault_set(f, ERR_INVALID, "there is no option '%s'", argv[i]);
        enum err e = take_option(o, row, after, argc, argv, &i, f);
        if (e) return e;
    }
    return OK;
}

void options_fini(struct options *o)
{
    for (size_t i = 0; i < o->row_count && o->values; i++) mem_free(o->values[i].texts);
    mem_free(o->values);
    mem_free(o->words);
}

/* ---- help ---- */

static void print_wrapped(FILE *out, const char *text)
{
    int column = HELP_COLUMN;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " ");
        if (column > HELP_COLUMN && column + 1 + (int)n > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        if (column > HELP_COLUMN) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)n, p);
        column += (int)n;
        p += n + (p[n] == ' ');
    }
    fputc('\n', out);
}

static void name_with_value(const struct option_row *row, char *lead, size_t size)
{
    const char *form = row->kind == OPTION_MAYBE_TEXT ? "%s [%s]" : row->value ? "%s %s" : "%s%s";
    snprintf(lead, size, form, row->name, row->value ? row->value : "");
}

void options_print_help(FILE *out, const struct option_row *rows, size_t row_count, unsigned of)
{
    for (size_t i = 0; i < row_count; i++) {
        if (!(rows[i].of & of)) continue;
        char lead[64];
        name_with_value(&rows[i], lead, sizeof lead);
        int n = fprintf(out, "  %-*s", HELP_COLUMN - 2, lead);
        if (n > HELP_COLUMN) fprintf(out, "\n%*s", HELP_COLUMN, "");
        print_wrapped(out, rows[i].meaning);
    }
}

void options_print_markdown(FILE *out, const struct option_row *rows, size_t row_count, unsigned of)
{
    fprintf(out, "| option | what it does |\n| --- | --- |\n");
    for (size_t i = 0; i < row_count; i++) {
        if (!(rows[i].of & of)) continue;
        char lead[64];
        name_with_value(&rows[i], lead, sizeof lead);
        fprintf(out, "| `%s` | %s |\n", lead, rows[i].meaning);
    }
}
