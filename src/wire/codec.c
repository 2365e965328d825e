/* codec.c: the interpreter that decodes and encodes every message.
 *
 * Both directions walk a struct's fields in wire order and ask one bit of each: is it in line in this version?  What is
 * tagged comes after them, in flexible versions.  The depth of recursion is the depth of the schemas, at most six.
 *
 * WHAT ALWAYS HOLDS WHILE DECODING
 * (1) Nothing is read past reader.end; a tagged value sees no further than its own size.
 * (2) No array is allocated unless its elements, at the least size they can have, fit in the bytes that are left.  An
 *     element takes at most 24 times as much in C, so that bounds memory by the frame; the arena's limit bounds it too.
 * (3) After the first error nothing more is allocated and every loop ends. */
#include "wire/codec.h"

#include "wire/codec_internal.h"

enum { STRING_SIZE_MAX = INT16_MAX }; /* in the compact form too: Kafka refuses longer ones */

/* Bytes on the wire; 0: it depends on the value. */
static const uint8_t wire_sizes[WIRE_TYPE_COUNT] = {
    [WIRE_BOOL] = 1,   [WIRE_INT8] = 1,  [WIRE_INT16] = 2,   [WIRE_UINT16] = 2, [WIRE_INT32] = 4,
    [WIRE_UINT32] = 4, [WIRE_INT64] = 8, [WIRE_FLOAT64] = 8, [WIRE_UUID] = 16,
};

static const uint8_t c_sizes[WIRE_TYPE_COUNT] = {
    [WIRE_BOOL] = sizeof(bool),         [WIRE_INT8] = sizeof(int8_t),        [WIRE_INT16] = sizeof(int16_t),
    [WIRE_UINT16] = sizeof(uint16_t),   [WIRE_INT32] = sizeof(int32_t),      [WIRE_UINT32] = sizeof(uint32_t),
    [WIRE_INT64] = sizeof(int64_t),     [WIRE_FLOAT64] = sizeof(double),     [WIRE_UUID] = sizeof(struct uuid),
    [WIRE_STRING] = sizeof(struct str), [WIRE_BYTES] = sizeof(struct bytes), [WIRE_RECORDS] = sizeof(struct records),
};

size_t wire_element_size(const struct wire_field *f)
{
    return f->type == WIRE_STRUCT ? f->schema->size : c_sizes[f->type];
}

static bool has_version(const struct wire_schema *s, int16_t version)
{
    return version >= s->version_min && version <= s->version_max;
}

/* ---------------------------------------------------------------- defaults */

static bool struct_equal(const struct wire_schema *s, const void *a, const void *b);

static bool bytes_equal(struct bytes a, struct bytes b)
{
    if (!a.data || !b.data) return a.data == b.data;
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* Bit by bit.  Sizes are spelled out since most fields of an answer come by here, and memcmp() is slow for so few
 * bytes. */
static inline bool fixed_equal(const void *a, const void *b, size_t size)
{
    switch (size) {
    case 1: return memcmp(a, b, 1) == 0;
    case 2: return memcmp(a, b, 2) == 0;
    case 4: return memcmp(a, b, 4) == 0;
    case 8: return memcmp(a, b, 8) == 0;
    default: return memcmp(a, b, size) == 0;
    }
}

/* `b` is the default: its arrays are null or empty, its records are null. */
static bool field_equal(const struct wire_field *f, const void *a, const void *b)
{
    if (f->flags & WIRE_ARRAY) return wire_count_get(a, f) == wire_count_get(b, f);
    if (f->flags & WIRE_POINTER) {
        const void *pa = wire_pointer_get(a, f), *pb = wire_pointer_get(b, f);
        return pa && pb ? struct_equal(f->schema, pa, pb) : pa == pb;
    }
    const void *va = (const char *)a + f->at, *vb = (const char *)b + f->at;
    switch ((enum wire_type)f->type) {
    case WIRE_STRUCT: return struct_equal(f->schema, va, vb);
    case WIRE_STRING: return str_equal(*(const struct str *)va, *(const struct str *)vb);
    case WIRE_BYTES: return bytes_equal(*(const struct bytes *)va, *(const struct bytes *)vb);
    case WIRE_RECORDS: {
        const struct records *r = va;
        return !r->bytes.data && r->splice_count == 0;
    }
    default: return fixed_equal(va, vb, c_sizes[f->type]);
    }
}

static bool struct_equal(const struct wire_schema *s, const void *a, const void *b)
{
    for (int i = 0; i < s->field_count; i++)
        if (!field_equal(&s->fields[i], a, b)) return false;
    return true;
}

bool wire_field_is_default(const struct wire_schema *s, const struct wire_field *f, const void *m)
{
    return field_equal(f, m, s->default_value);
}

/* ---------------------------------------------------------------- decoding */

struct decoder {
    struct reader *r;
    struct arena *arena;
    uint32_t bit; /* of the version */
    int16_t version;
    bool flexible;
};

static void decode_struct(struct decoder *d, const struct wire_schema *s, void *out);

static bool is_compact(const struct wire_field *f, bool flexible)
{
    return flexible && !(f->flags & WIRE_CLASSIC);
}

/* A length or a count; -1 is null, and an error where the field is not nullable. */
static int32_t read_length(struct decoder *d, const struct wire_field *f, bool narrow, bool nullable)
{
    int32_t n;
    if (is_compact(f, d->flexible)) {
        uint32_t plus_one = reader_uvarint(d->r);
        if (UNLIKELY(plus_one > (uint32_t)INT32_MAX + 1)) reader_fail(d->r, ERR_CORRUPT);
        n = (int32_t)(plus_one - 1);
    } else {
        n = narrow ? reader_i16(d->r) : reader_i32(d->r);
    }
    if (UNLIKELY(n < 0 && (n < -1 || !nullable))) {
        reader_fail(d->r, ERR_CORRUPT);
        return -1;
    }
    return n;
}

/* A value of fixed size, whose bytes are there. */
static inline void get_fixed(unsigned type, const uint8_t *p, void *out)
{
    switch (type) {
    case WIRE_BOOL: *(bool *)out = *p != 0; break;
    case WIRE_INT8: *(int8_t *)out = (int8_t)*p; break;
    case WIRE_INT16: *(int16_t *)out = (int16_t)get_be16(p); break;
    case WIRE_UINT16: *(uint16_t *)out = get_be16(p); break;
    case WIRE_INT32: *(int32_t *)out = (int32_t)get_be32(p); break;
    case WIRE_UINT32: *(uint32_t *)out = get_be32(p); break;
    case WIRE_INT64: *(int64_t *)out = (int64_t)get_be64(p); break;
    case WIRE_FLOAT64: {
        uint64_t bits = get_be64(p);
        memcpy(out, &bits, sizeof bits);
        break;
    }
    case WIRE_UUID: memcpy(out, p, sizeof(struct uuid)); break;
    default: UNREACHABLE();
    }
}

/* One value, or one element of an array: elements are never null. */
static void decode_value(struct decoder *d, const struct wire_field *f, bool nullable, void *out)
{
    size_t fixed = wire_sizes[f->type];
    if (fixed) {
        const uint8_t *p = reader_take(d->r, fixed);
        if (p) get_fixed(f->type, p, out);
        return;
    }
    if (f->type == WIRE_STRUCT) {
        decode_struct(d, f->schema, out);
        return;
    }
    int32_t size = read_length(d, f, f->type == WIRE_STRING, nullable);
    if (f->type == WIRE_STRING && UNLIKELY(size > STRING_SIZE_MAX)) reader_fail(d->r, ERR_CORRUPT);
    struct bytes b = {NULL, 0};
    if (size >= 0) b.data = reader_take(d->r, (size_t)size);
    if (b.data) b.size = (size_t)size;
    switch ((enum wire_type)f->type) {
    case WIRE_STRING: *(struct str *)out = (struct str){(const char *)b.data, b.size}; break;
    case WIRE_BYTES: *(struct bytes *)out = b; break;
    case WIRE_RECORDS: *(struct records *)out = (struct records){.bytes = b}; break;
    default: UNREACHABLE();
    }
}

static size_t element_size_min(const struct decoder *d, const struct wire_field *f)
{
    if (f->type == WIRE_STRUCT) return f->schema->size_mins[d->version];
    if (wire_sizes[f->type]) return wire_sizes[f->type];
    if (is_compact(f, d->flexible)) return 1;
    return f->type == WIRE_STRING ? sizeof(int16_t) : sizeof(int32_t);
}

static void decode_elements(struct decoder *d, const struct wire_field *f, char *items, size_t count)
{
    size_t step = wire_element_size(f), fixed = wire_sizes[f->type];
    if (fixed) {
        const uint8_t *p = reader_take(d->r, count * fixed);
        for (size_t i = 0; p && i < count; i++) get_fixed(f->type, p + i * fixed, items + i * step);
    } else if (f->type == WIRE_STRUCT) {
        for (size_t i = 0; i < count && !d->r->err; i++) decode_struct(d, f->schema, items + i * step);
    } else {
        for (size_t i = 0; i < count && !d->r->err; i++) decode_value(d, f, false, items + i * step);
    }
}

static void decode_array(struct decoder *d, const struct wire_field *f, void *out)
{
    int32_t count = read_length(d, f, false, (f->nullable & d->bit) != 0);
    void *items = NULL;
    if (count > 0) {
        if ((uint64_t)count * element_size_min(d, f) > reader_left(d->r)) {
            reader_fail(d->r, ERR_CORRUPT);
            return;
        }
        items = arena_try_alloc(d->arena, (size_t)count * wire_element_size(f));
        if (!items) {
            reader_fail(d->r, ERR_TOO_BIG);
            return;
        }
        decode_elements(d, f, items, (size_t)count);
    }
    memcpy((char *)out + f->at, &items, sizeof items);
    *(int32_t *)(void *)((char *)out + f->count_at) = count;
}

/* A nullable struct: a mark says whether it is there, an int8 in line and a uvarint in a tagged section. */
static void decode_pointer(struct decoder *d, const struct wire_field *f, bool tagged, void *out)
{
    bool there = true;
    if (f->nullable & d->bit) there = tagged ? reader_uvarint(d->r) != 0 : reader_i8(d->r) >= 0;
    if (d->r->err) return;
    void *p = NULL;
    if (there) {
        p = arena_try_alloc(d->arena, f->schema->size);
        if (!p) {
            reader_fail(d->r, ERR_TOO_BIG);
            return;
        }
        decode_struct(d, f->schema, p);
    }
    memcpy((char *)out + f->at, &p, sizeof p);
}

static inline void decode_field(struct decoder *d, const struct wire_field *f, bool tagged, void *out)
{
    if (f->flags & WIRE_ARRAY)
        decode_array(d, f, out);
    else if (f->flags & WIRE_POINTER)
        decode_pointer(d, f, tagged, out);
    else
        decode_value(d, f, (f->nullable & d->bit) != 0, (char *)out + f->at);
}

static const struct wire_field *find_tag(const struct decoder *d, const struct wire_schema *s, uint32_t tag)
{
    for (int i = 0; i < s->tag_count; i++) {
        const struct wire_field *f = &s->fields[s->by_tag[i]];
        if (f->tag == tag && f->tagged & d->bit) return f;
    }
    return NULL;
}

static void decode_tagged_value(struct decoder *d, const struct wire_field *f, uint32_t size, void *out)
{
    const uint8_t *end = d->r->end;
    d->r->end = d->r->at + size; /* invariant 1 */
    decode_field(d, f, true, out);
    if (d->r->at != d->r->end) reader_fail(d->r, ERR_CORRUPT);
    d->r->end = end;
    if (d->r->err) d->r->at = end;
}

static void decode_tagged(struct decoder *d, const struct wire_schema *s, void *out)
{
    uint32_t count = reader_uvarint(d->r);
    uint32_t tag_min = 0; /* tags must rise, so that none comes twice */
    for (; count > 0 && !d->r->err; count--) {
        uint32_t tag = reader_uvarint(d->r);
        uint32_t size = reader_uvarint(d->r);
        if (tag < tag_min || (tag == UINT32_MAX && count > 1)) {
            reader_fail(d->r, ERR_CORRUPT);
        } else if (size > reader_left(d->r)) {
            reader_fail(d->r, ERR_TRUNCATED);
        } else {
            const struct wire_field *f = find_tag(d, s, tag);
            if (f)
                decode_tagged_value(d, f, size, out);
            else
                reader_take(d->r, size);
        }
        tag_min = tag + 1;
    }
}

static void decode_struct(struct decoder *d, const struct wire_schema *s, void *out)
{
    memcpy(out, s->default_value, s->size);
    const struct wire_field *f = s->fields;
    for (unsigned left = s->field_count; left > 0; left--, f++)
        if (f->in_line & d->bit) decode_field(d, f, false, out);
    if (d->flexible) decode_tagged(d, s, out);
}

enum err wire_decode(const struct wire_schema *s, void *out, int16_t version, struct reader *r, struct arena *a)
{
    if (!has_version(s, version)) {
        memcpy(out, s->default_value, s->size);
        return ERR_VERSION;
    }
    uint32_t bit = BIT(version);
    struct decoder d = {.r = r, .arena = a, .bit = bit, .version = version, .flexible = (s->flexible & bit) != 0};
    decode_struct(&d, s, out);
    if (r->err) memcpy(out, s->default_value, s->size);
    return r->err;
}

/* ---------------------------------------------------------------- encoding */

/* Like a reader, the encoder remembers its first error and goes on: so that every splice reaches the writer, which
 * then owns all of them, whatever happened. */
struct encoder {
    struct writer *w;
    uint32_t bit; /* of the version */
    bool flexible;
    enum err err;
};

static void encode_struct(struct encoder *e, const struct wire_schema *s, const void *m);

static void encoder_fail(struct encoder *e, enum err err)
{
    if (!e->err) e->err = err;
}

/* writer_extend() with its usual case in line. */
static inline uint8_t *room(struct encoder *e, size_t size)
{
    struct writer *w = e->w;
    if (UNLIKELY(!w->buf || size > w->buf->cap - w->size)) return writer_extend(w, size);
    uint8_t *p = w->buf->data + w->size;
    w->size += size;
    return p;
}

/* Most compact lengths and all counts of tagged fields take one byte. */
static inline void write_uvarint(struct encoder *e, uint64_t v)
{
    if (LIKELY(v < 0x80))
        *room(e, 1) = (uint8_t)v;
    else
        writer_uvarint(e->w, v);
}

static void write_null(struct encoder *e, const struct wire_field *f, bool narrow, bool nullable)
{
    if (!nullable) encoder_fail(e, ERR_UNSUPPORTED);
    if (is_compact(f, e->flexible))
        write_uvarint(e, 0);
    else if (narrow)
        writer_i16(e->w, -1);
    else
        writer_i32(e->w, -1);
}

static void write_length(struct encoder *e, const struct wire_field *f, size_t n, bool narrow)
{
    if (n > (narrow ? (size_t)STRING_SIZE_MAX : (size_t)INT32_MAX)) encoder_fail(e, ERR_TOO_BIG);
    if (is_compact(f, e->flexible))
        write_uvarint(e, (uint64_t)n + 1);
    else if (narrow)
        writer_i16(e->w, (int16_t)n);
    else
        writer_i32(e->w, (int32_t)n);
}

static inline void put_fixed(unsigned type, uint8_t *p, const void *v)
{
    switch (type) {
    case WIRE_BOOL: *p = *(const bool *)v; break;
    case WIRE_INT8: *p = (uint8_t) * (const int8_t *)v; break;
    case WIRE_INT16: put_be16(p, (uint16_t) * (const int16_t *)v); break;
    case WIRE_UINT16: put_be16(p, *(const uint16_t *)v); break;
    case WIRE_INT32: put_be32(p, (uint32_t) * (const int32_t *)v); break;
    case WIRE_UINT32: put_be32(p, *(const uint32_t *)v); break;
    case WIRE_INT64: put_be64(p, (uint64_t) * (const int64_t *)v); break;
    case WIRE_FLOAT64: {
        uint64_t bits;
        memcpy(&bits, v, sizeof bits);
        put_be64(p, bits);
        break;
    }
    case WIRE_UUID: memcpy(p, v, sizeof(struct uuid)); break;
    default: UNREACHABLE();
    }
}

static void encode_records(struct encoder *e, const struct wire_field *f, bool nullable, const struct records *r)
{
    if (r->splice_count == 0) {
        if (!r->bytes.data) {
            write_null(e, f, false, nullable);
        } else {
            write_length(e, f, r->bytes.size, false);
            writer_bytes(e->w, r->bytes.data, r->bytes.size);
        }
        return;
    }
    size_t size = 0;
    for (uint32_t i = 0; i < r->splice_count; i++) size += r->splices[i].size;
    write_length(e, f, size, false);
    for (uint32_t i = 0; i < r->splice_count; i++) writer_splice(e->w, r->splices[i]);
}

static void encode_value(struct encoder *e, const struct wire_field *f, bool nullable, const void *v)
{
    switch ((enum wire_type)f->type) {
    case WIRE_STRUCT: encode_struct(e, f->schema, v); break;
    case WIRE_RECORDS: encode_records(e, f, nullable, v); break;
    case WIRE_STRING: {
        const struct str *s = v;
        if (!s->data) {
            write_null(e, f, true, nullable);
        } else {
            write_length(e, f, s->size, true);
            writer_bytes(e->w, s->data, s->size);
        }
        break;
    }
    case WIRE_BYTES: {
        const struct bytes *b = v;
        if (!b->data) {
            write_null(e, f, false, nullable);
        } else {
            write_length(e, f, b->size, false);
            writer_bytes(e->w, b->data, b->size);
        }
        break;
    }
    default: put_fixed(f->type, room(e, wire_sizes[f->type]), v); break;
    }
}

static void encode_array(struct encoder *e, const struct wire_field *f, const void *m)
{
    int32_t count = wire_count_get(m, f);
    if (count < 0) {
        write_null(e, f, false, (f->nullable & e->bit) != 0);
        return;
    }
    write_length(e, f, (size_t)count, false);
    const char *items = wire_pointer_get(m, f);
    size_t step = wire_element_size(f), fixed = wire_sizes[f->type];
    if (fixed && count > 0) {
        uint8_t *p = writer_extend(e->w, (size_t)count * fixed);
        for (int32_t i = 0; i < count; i++, items += step) put_fixed(f->type, p + (size_t)i * fixed, items);
        return;
    }
    for (int32_t i = 0; i < count; i++, items += step) encode_value(e, f, false, items);
}

static void encode_pointer(struct encoder *e, const struct wire_field *f, bool tagged, const void *m)
{
    const void *p = wire_pointer_get(m, f);
    if (f->nullable & e->bit) {
        if (tagged)
            write_uvarint(e, p ? 1 : 0);
        else
            writer_i8(e->w, p ? 1 : -1);
    } else if (!p) {
        encoder_fail(e, ERR_UNSUPPORTED);
    }
    if (p) encode_struct(e, f->schema, p);
}

static inline void encode_field(struct encoder *e, const struct wire_field *f, bool tagged, const void *m)
{
    if (f->flags & WIRE_ARRAY)
        encode_array(e, f, m);
    else if (f->flags & WIRE_POINTER)
        encode_pointer(e, f, tagged, m);
    else
        encode_value(e, f, (f->nullable & e->bit) != 0, (const char *)m + f->at);
}

/* The size goes before the value and is known after it: one byte is kept free, and more are let in where that is not
 * enough, which is rare. */
static void encode_tagged_value(struct encoder *e, const struct wire_field *f, const void *m)
{
    write_uvarint(e, f->tag);
    size_t at = e->w->size;
    writer_i8(e->w, 0);
    size_t before = writer_size(e->w);
    encode_field(e, f, true, m);
    uint64_t size = writer_size(e->w) - before;
    if (size > INT32_MAX) encoder_fail(e, ERR_TOO_BIG);
    size_t more = 0;
    for (uint64_t rest = size >> 7; rest; rest >>= 7) more++;
    if (more) writer_insert(e->w, at + 1, more);
    uint8_t *p = e->w->buf->data + at;
    for (; size >= 0x80; size >>= 7) *p++ = (uint8_t)(size | 0x80);
    *p = (uint8_t)size;
}

static bool is_tagged_now(const struct encoder *e, const struct wire_schema *s, const struct wire_field *f,
                          const void *m)
{
    return f->tagged & e->bit && !wire_field_is_default(s, f, m);
}

static void encode_tagged(struct encoder *e, const struct wire_schema *s, const void *m)
{
    uint64_t count = 0;
    for (int i = 0; i < s->tag_count; i++) count += is_tagged_now(e, s, &s->fields[s->by_tag[i]], m);
    write_uvarint(e, count);
    for (int i = 0; count > 0 && i < s->tag_count; i++) {
        const struct wire_field *f = &s->fields[s->by_tag[i]];
        if (is_tagged_now(e, s, f, m)) encode_tagged_value(e, f, m);
    }
}

static void encode_struct(struct encoder *e, const struct wire_schema *s, const void *m)
{
    const struct wire_field *f = s->fields;
    for (unsigned left = s->field_count; left > 0; left--, f++) {
        if (f->in_line & e->bit)
            encode_field(e, f, false, m);
        else if (!(f->tagged & e->bit) && !(f->flags & WIRE_IGNORABLE) && !wire_field_is_default(s, f, m))
            encoder_fail(e, ERR_UNSUPPORTED);
    }
    if (e->flexible) encode_tagged(e, s, m);
}

enum err wire_encode(const struct wire_schema *s, const void *m, int16_t version, struct writer *w)
{
    if (!has_version(s, version)) return ERR_VERSION;
    uint32_t bit = BIT(version);
    struct encoder e = {.w = w, .bit = bit, .flexible = (s->flexible & bit) != 0};
    encode_struct(&e, s, m);
    return e.err;
}

/* ---------------------------------------------------------------- prefixes and names */

enum err wire_decode_prefixed(const struct wire_schema *s, void *out, int16_t *version, struct reader *r,
                              struct arena *a)
{
    memcpy(out, s->default_value, s->size);
    int16_t prefix = reader_i16(r);
    if (r->err) return r->err;
    int16_t v = prefix;
    if (s->record_id >= 0) {
        if (prefix != s->record_id) return ERR_NOT_FOUND;
        v = s->version_max;
    } else if (s->newer_is_last && prefix > s->version_max) {
        v = s->version_max;
    }
    enum err e = wire_decode(s, out, v, r, a);
    if (!e && version) *version = v;
    return e;
}

enum err wire_encode_prefixed(const struct wire_schema *s, const void *m, int16_t version, struct writer *w)
{
    if (!has_version(s, version)) return ERR_VERSION;
    writer_i16(w, s->record_id >= 0 ? s->record_id : version);
    return wire_encode(s, m, version, w);
}

bool wire_prefix_peek(struct bytes record, int16_t *prefix)
{
    if (record.size < sizeof *prefix) return false;
    *prefix = (int16_t)get_be16(record.data);
    return true;
}

const struct wire_schema *wire_schema_find(const char *name)
{
    int low = 0, high = wire_schema_count;
    while (low < high) {
        int mid = low + (high - low) / 2;
        int c = strcmp(name, wire_schemas[mid]->name);
        if (c == 0) return wire_schemas[mid];
        if (c < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}
