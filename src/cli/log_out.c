/* log_out.c: see log_out.h. */
#include "cli/log_out.h"

#include <stdarg.h>
#include <string.h>

#include "base/mem.h"

struct row row_begin(struct log_out *out, const char *type)
{
    json_t *fields = json_object();
    ASSERT(fields);
    return (struct row){.out = out, .type = type, .fields = fields};
}

void row_json(struct row *row, const char *name, json_t *value)
{
    ASSERT(value && json_object_set_new_nocheck(row->fields, name, value) == 0);
}

void row_int(struct row *row, const char *name, int64_t value)
{
    row_json(row, name, json_integer(value));
}

void row_bool(struct row *row, const char *name, bool value)
{
    row_json(row, name, json_boolean(value));
}

void row_text(struct row *row, const char *name, const char *value)
{
    row_bytes(row, name, (struct bytes){(const uint8_t *)value, value ? strlen(value) : 0});
}

json_t *json_of_bytes(struct bytes value, bool *hex)
{
    *hex = false;
    if (!value.data) return json_null();
    json_t *text = json_stringn((const char *)value.data, value.size); /* NULL unless it is UTF-8 */
    if (text) return text;
    static const char digits[] = "0123456789abcdef";
    *hex = true;
    char *out = mem_alloc(value.size * 2);
    for (size_t i = 0; i < value.size; i++) {
        out[2 * i] = digits[value.data[i] >> 4];
        out[2 * i + 1] = digits[value.data[i] & 15];
    }
    text = json_stringn_nocheck(out, value.size * 2);
    mem_free(out);
    return text;
}

void row_bytes(struct row *row, const char *name, struct bytes value)
{
    bool hex;
    json_t *json = json_of_bytes(value, &hex);
    if (!hex) {
        row_json(row, name, json);
        return;
    }
    char *hex_name = mem_printf("%sHex", name);
    row_json(row, hex_name, json);
    mem_free(hex_name);
}

static bool is_plain(struct str text)
{
    if (text.size == 0 || str_is(text, "null")) return false; /* a word is not to be taken for nothing at all */
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c <= ' ' || c == '"' || c == '\\' || c == 0x7f) return false;
    }
    return true;
}

void print_escaped(FILE *out, struct str text)
{
    if (is_plain(text)) {
        fwrite(text.data, 1, text.size, out);
        return;
    }
    json_t *json = json_stringn(text.data, text.size);
    char *quoted = json ? json_dumps(json, JSON_ENCODE_ANY) : NULL;
    if (quoted)
        fputs(quoted, out);
    else
        for (size_t i = 0; i < text.size; i++) fprintf(out, "\\x%02x", (unsigned char)text.data[i]);
    free(quoted); /* Jansson's own */
    json_decref(json);
}

static void print_value(json_t *value)
{
    if (json_is_string(value)) {
        print_escaped(stdout, (struct str){json_string_value(value), json_string_length(value)});
        return;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    fputs(text ? text : "?", stdout);
    free(text);
}

static void print_text(const struct row *row, const char *lead)
{
    const char *name;
    json_t *value;
    fputs(lead, stdout);
    bool first = true;
    json_object_foreach(row->fields, name, value)
    {
        printf("%s%s: ", first ? "" : " ", name);
        print_value(value);
        first = false;
    }
    putchar('\n');
}

static void print_json(const struct row *row)
{
    json_t *line = json_object();
    bool hex;
    json_t *file = json_of_bytes((struct bytes){(const uint8_t *)row->out->file, strlen(row->out->file)}, &hex);
    ASSERT(line && json_object_set_new(line, "type", json_string(row->type)) == 0);
    ASSERT(json_object_set_new(line, hex ? "fileHex" : "file", file) == 0);
    ASSERT(json_object_update(line, row->fields) == 0);
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(line);
}

void row_end(struct row *row, const char *lead)
{
    if (row->out->json)
        print_json(row);
    else
        print_text(row, lead);
    json_decref(row->fields);
    row->fields = NULL;
}

void log_out_error(struct log_out *out, int64_t pos, const char *fmt, ...)
{
    struct fault f;
    va_list args;
    va_start(args, fmt);
    vsnprintf(f.text, sizeof f.text, fmt, args);
    va_end(args);
    out->errors++;
    if (out->json) {
        struct row row = row_begin(out, "error");
        if (pos >= 0) row_int(&row, "position", pos);
        row_text(&row, "error", f.text);
        row_end(&row, "");
        return;
    }
    fflush(stdout); /* what came before it stands before it */
    fprintf(stderr, "barnabas: ");
    print_escaped(stderr, str_of(out->file));
    if (pos >= 0) fprintf(stderr, ", position %lld", (long long)pos);
    fprintf(stderr, ": %s\n", f.text);
}
