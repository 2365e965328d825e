/* log_out.h: what the log commands print: lines of named values, as text for people or as JSON, one object a line.
 *
 * What stands in files is shown as what it is: text that is not printable is escaped, bytes that are no UTF-8 come out
 * in hexadecimal.  Thread: main. */
#ifndef CLI_LOG_OUT_H
#define CLI_LOG_OUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/slice.h"

struct log_out {
    bool json;
    const char *file; /* that lines are about; lent */
    int errors;       /* lines of log_out_error() */
};

/* One line; the fields are printed in the order in which they were set. */
struct row {
    struct log_out *out;
    const char *type; /* JSON only */
    json_t *fields;
};

struct row row_begin(struct log_out *out, const char *type);
void row_int(struct row *row, const char *name, int64_t value);
void row_bool(struct row *row, const char *name, bool value);
void row_text(struct row *row, const char *name, const char *value);
/* Text if it is UTF-8, else hexadecimal, in JSON as NAMEHex; null where null. */
void row_bytes(struct row *row, const char *name, struct bytes value);
/* Takes the value over. */
void row_json(struct row *row, const char *name, json_t *value);
/* Prints the line, after `lead` if it is text, and frees it. */
void row_end(struct row *row, const char *lead);

/* Something in a file cannot be read: says so on standard error (with --json on standard output, as type "error") and
 * counts it.  `pos`: where, -1 for no place in particular. */
void log_out_error(struct log_out *out, int64_t pos, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* A new JSON value of UTF-8 text or, where it is none, of hexadecimal digits (*hex says which); null of null. */
json_t *json_of_bytes(struct bytes value, bool *hex);
/* Writes text as a person can read it: quoted and with escapes where it has blanks or what cannot be printed. */
void print_escaped(FILE *out, struct str text);

#endif
