/* writer.c: one growing buffer and its splices. */
#include "base/writer.h"

#include "base/endian.h"
#include "base/mem.h"

enum { FIRST_SIZE = 1024 };

void writer_init(struct writer *w, struct buf_pool *pool)
{
    *w = (struct writer){.pool = pool};
}

void writer_fini(struct writer *w)
{
    for (size_t i = 0; i < w->splice_count; i++)
        if (w->splices[i].release) w->splices[i].release(w->splices[i].owner);
    mem_free(w->splices);
    buf_unref(w->buf);
    writer_init(w, w->pool);
}

static void reserve(struct writer *w, size_t more)
{
    size_t need = w->size + more;
    if (w->buf && need <= w->buf->cap) return;
    struct buf *next = buf_new(w->pool, w->buf ? MAX(need, w->buf->cap * 2) : MAX(need, (size_t)FIRST_SIZE));
    if (w->buf) memcpy(next->data, w->buf->data, w->size);
    buf_unref(w->buf);
    w->buf = next;
}

uint8_t *writer_extend(struct writer *w, size_t size)
{
    reserve(w, size);
    uint8_t *p = w->buf->data + w->size;
    w->size += size;
    return p;
}

void writer_bytes(struct writer *w, const void *data, size_t size)
{
    if (size) memcpy(writer_extend(w, size), data, size);
}

void writer_splice(struct writer *w, struct splice s)
{
    w->splices = mem_grow(w->splices, &w->splice_cap, w->splice_count + 1, sizeof *w->splices);
    s.at = w->size;
    w->splices[w->splice_count++] = s;
    w->splice_bytes += s.size;
}

uint8_t *writer_insert(struct writer *w, size_t at, size_t size)
{
    ASSERT(at <= w->size);
    size_t tail = w->size - at;
    writer_extend(w, size);
    uint8_t *p = w->buf->data + at;
    if (tail) memmove(p + size, p, tail);
    for (size_t i = w->splice_count; i > 0 && w->splices[i - 1].at >= at; i--) w->splices[i - 1].at += size;
    return p;
}

void writer_flatten(const struct writer *w, uint8_t *out)
{
    size_t from = 0;
    for (size_t i = 0; i < w->splice_count; i++) {
        const struct splice *s = &w->splices[i];
        ASSERT(s->data || s->size == 0);
        if (s->at > from) memcpy(out, w->buf->data + from, s->at - from);
        out += s->at - from;
        from = s->at;
        if (s->size) memcpy(out, s->data, s->size);
        out += s->size;
    }
    if (w->size > from) memcpy(out, w->buf->data + from, w->size - from);
}

void writer_i8(struct writer *w, int8_t v)
{
    *writer_extend(w, 1) = (uint8_t)v;
}

void writer_i16(struct writer *w, int16_t v)
{
    put_be16(writer_extend(w, 2), (uint16_t)v);
}

void writer_i32(struct writer *w, int32_t v)
{
    put_be32(writer_extend(w, 4), (uint32_t)v);
}

void writer_i64(struct writer *w, int64_t v)
{
    put_be64(writer_extend(w, 8), (uint64_t)v);
}

void writer_uvarint(struct writer *w, uint64_t v)
{
    uint8_t out[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) out[n++] = (uint8_t)(v | 0x80);
    out[n++] = (uint8_t)v;
    writer_bytes(w, out, n);
}

void writer_varint(struct writer *w, int64_t v)
{
    writer_uvarint(w, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}
