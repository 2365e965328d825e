/* codec_print.c: messages as one line of JSON, for debug logs and for comparing with Kafka's own classes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/utf8.h"
#include "wire/codec_internal.h"

enum { LOG_ELEMENTS_MAX = 16 };

struct printer {
    struct writer *w;
    uint32_t bit; /* of the version */
    enum wire_print how;
};

static void print_struct(struct printer *p, const struct wire_schema *s, const void *m);

static void put_text(struct printer *p, const char *zero_terminated)
{
    writer_bytes(p->w, zero_terminated, strlen(zero_terminated));
}

static void put_char(struct printer *p, char c)
{
    writer_i8(p->w, (int8_t)c);
}

static void print_string(struct printer *p, struct str s)
{
    if (!s.data) {
        put_text(p, "null");
        return;
    }
    put_char(p, '"');
    const uint8_t *at = (const uint8_t *)s.data, *end = at + s.size;
    while (at < end) {
        size_t n = utf8_size(at, (size_t)(end - at));
        if (n == 0) {
            put_text(p, "\\ufffd");
            n = 1;
        } else if (*at == '"' || *at == '\\') {
            put_char(p, '\\');
            writer_bytes(p->w, at, 1);
        } else if (*at < 0x20 || *at == 0x7f) {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", *at);
            put_text(p, escape);
        } else {
            writer_bytes(p->w, at, n);
        }
        at += n;
    }
    put_char(p, '"');
}

static void print_base64(struct printer *p, const uint8_t *data, size_t size)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        size_t n = MIN(size - i, (size_t)3);
        uint32_t bits = (uint32_t)data[i] << 16;
        if (n > 1) bits |= (uint32_t)data[i + 1] << 8;
        if (n > 2) bits |= data[i + 2];
        char out[4] = {alphabet[bits >> 18], alphabet[bits >> 12 & 63], n > 1 ? alphabet[bits >> 6 & 63] : '=',
                       n > 2 ? alphabet[bits & 63] : '='};
        writer_bytes(p->w, out, sizeof out);
    }
}

static void print_bytes(struct printer *p, struct bytes b, size_t size)
{
    if (!b.data && size == 0) {
        put_text(p, "null");
        return;
    }
    put_char(p, '"');
    if (p->how == WIRE_PRINT_FULL && b.data) {
        print_base64(p, b.data, b.size);
    } else {
        char text[40];
        snprintf(text, sizeof text, "<%zu bytes>", size);
        put_text(p, text);
    }
    put_char(p, '"');
}

/* Splices may be files: they are told by their size. */
static void print_records(struct printer *p, const struct records *r)
{
    size_t size = r->bytes.size;
    if (r->splice_count > 0) {
        size = 0;
        for (uint32_t i = 0; i < r->splice_count; i++) size += r->splices[i].size;
    }
    if (r->splice_count > 0 && size == 0)
        put_text(p, "\"\"");
    else
        print_bytes(p, r->splice_count > 0 ? (struct bytes){NULL, 0} : r->bytes, size);
}

static void print_float(struct printer *p, double v)
{
    if (!isfinite(v)) {
        put_text(p, isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
        return;
    }
    char text[40];
    snprintf(text, sizeof text, "%.17g", v);
    put_text(p, text);
    if (!strpbrk(text, ".e")) put_text(p, ".0");
}

static void print_integer(struct printer *p, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, v);
    put_text(p, text);
}

static void print_uuid(struct printer *p, struct uuid id)
{
    char text[UUID_TEXT_SIZE + 1];
    uuid_format(id, text);
    put_char(p, '"');
    put_text(p, text);
    put_char(p, '"');
}

static void print_value(struct printer *p, const struct wire_field *f, const void *v)
{
    switch ((enum wire_type)f->type) {
    case WIRE_BOOL: put_text(p, *(const bool *)v ? "true" : "false"); break;
    case WIRE_INT8: print_integer(p, *(const int8_t *)v); break;
    case WIRE_INT16: print_integer(p, *(const int16_t *)v); break;
    case WIRE_UINT16: print_integer(p, *(const uint16_t *)v); break;
    case WIRE_INT32: print_integer(p, *(const int32_t *)v); break;
    case WIRE_UINT32: print_integer(p, *(const uint32_t *)v); break;
    case WIRE_INT64: print_integer(p, *(const int64_t *)v); break;
    case WIRE_FLOAT64: print_float(p, *(const double *)v); break;
    case WIRE_UUID: print_uuid(p, *(const struct uuid *)v); break;
    case WIRE_STRING: print_string(p, *(const struct str *)v); break;
    case WIRE_BYTES: print_bytes(p, *(const struct bytes *)v, ((const struct bytes *)v)->size); break;
    case WIRE_RECORDS: print_records(p, v); break;
    case WIRE_STRUCT: print_struct(p, f->schema, v); break;
    case WIRE_TYPE_COUNT: UNREACHABLE();
    }
}

static void print_array(struct printer *p, const struct wire_field *f, const void *m)
{
    int32_t count = wire_count_get(m, f);
    if (count < 0) {
        put_text(p, "null");
        return;
    }
    int32_t shown = p->how == WIRE_PRINT_LOG ? MIN(count, (int32_t)LOG_ELEMENTS_MAX) : count;
    const char *items = wire_pointer_get(m, f);
    put_char(p, '[');
    for (int32_t i = 0; i < shown; i++) {
        if (i > 0) put_char(p, ',');
        print_value(p, f, items + (size_t)i * wire_element_size(f));
    }
    if (shown < count) {
        char text[40];
        snprintf(text, sizeof text, ",\"<%" PRId32 " more>\"", count - shown);
        put_text(p, text);
    }
    put_char(p, ']');
}

static void print_field(struct printer *p, const struct wire_field *f, const void *m)
{
    print_string(p, str_of(f->name));
    put_char(p, ':');
    if (f->flags & WIRE_ARRAY) {
        print_array(p, f, m);
    } else if (f->flags & WIRE_POINTER) {
        const void *s = wire_pointer_get(m, f);
        if (s)
            print_struct(p, f->schema, s);
        else
            put_text(p, "null");
    } else {
        print_value(p, f, (const char *)m + f->at);
    }
}

static void print_struct(struct printer *p, const struct wire_schema *s, const void *m)
{
    bool first = true;
    put_char(p, '{');
    for (int i = 0; i < s->field_count; i++) {
        const struct wire_field *f = &s->fields[i];
        if (!((f->in_line | f->tagged) & p->bit)) continue;
        if (f->tagged & p->bit && wire_field_is_default(s, f, m)) continue;
        if (!first) put_char(p, ',');
        first = false;
        print_field(p, f, m);
    }
    put_char(p, '}');
}

void wire_print(const struct wire_schema *s, const void *m, int16_t version, struct writer *w, enum wire_print how)
{
    ASSERT(version >= s->version_min && version <= s->version_max);
    struct printer p = {.w = w, .bit = BIT(version), .how = how};
    print_struct(&p, s, m);
}
