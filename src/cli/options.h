/* options.h: a command's options as rows of a table, from which come parsing, --help and the page in docs/.
 *
 * "--name", "--name VALUE" and "--name=VALUE"; words that are no options go to a list of their own.  Thread: main. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_TEXTS,      /* may be given many times */
    OPTION_MAYBE_TEXT, /* the value may be left out */
    OPTION_NUMBER
};

struct option_row {
    const char *name;  /* "--group" */
    const char *value; /* what it takes, for help: "GROUP"; NULL: nothing */
    enum option_kind kind;
    unsigned of; /* what it goes with, as its command counts: bits */
    const char *meaning;
};

struct option_value {
    bool given;
    const char *text;   /* lent by argv; NULL: left out */
    const char **texts; /* all of them */
    size_t count;
    int64_t number;
};

/* What a command line says.  values[i] belongs to rows[i]. */
struct options {
    const struct option_row *rows;
    size_t row_count;
    struct option_value *values;
    const char **words; /* that are no options */
    size_t word_count;
};

/* Reads argv[from] to the end.  ERR_INVALID: `f` says in one sentence what is wrong; options_fini() all the same. */
MUST_USE enum err options_parse(struct options *o, const struct option_row *rows, size_t row_count, int argc,
                                char **argv, int from, struct fault *f);
void options_fini(struct options *o);

/* "  --name VALUE   meaning", in columns, for rows that share a bit with `of`. */
void options_print_help(FILE *out, const struct option_row *rows, size_t row_count, unsigned of);
/* The same as rows of a Markdown table. */
void options_print_markdown(FILE *out, const struct option_row *rows, size_t row_count, unsigned of);

#endif
