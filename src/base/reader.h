/* reader.h: bytes being read, big endian.
 * The reader remembers its first error, gives zeros after it, and the caller asks once, at the end.  It never reads
 * past `end` and copies nothing: slices point into the bytes it was given.  Thread: one at a time. */
#ifndef BASE_READER_H
#define BASE_READER_H

#include <stdint.h>

#include "base/endian.h"
#include "base/err.h"
#include "base/slice.h"

struct reader {
    const uint8_t *at, *end;
    enum err err; /* the first one */
};

static inline struct reader reader_of(const void *data, size_t size)
{
    return (struct reader){(const uint8_t *)data, (const uint8_t *)data + size, OK};
}

static inline size_t reader_left(const struct reader *r)
{
    return (size_t)(r->end - r->at);
}

/* Remembers the first error and lets nothing more be read. */
static inline void reader_fail(struct reader *r, enum err e)
{
    if (!r->err) r->err = e;
    r->at = r->end;
}

/* `size` bytes, or NULL and ERR_TRUNCATED. */
static inline const uint8_t *reader_take(struct reader *r, size_t size)
{
    if (UNLIKELY(size > reader_left(r))) {
        reader_fail(r, ERR_TRUNCATED);
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at += size;
    return p;
}

static inline int8_t reader_i8(struct reader *r)
{
    const uint8_t *p = reader_take(r, 1);
    return p ? (int8_t)*p : 0;
}

static inline int16_t reader_i16(struct reader *r)
{
    const uint8_t *p = reader_take(r, 2);
    return p ? (int16_t)get_be16(p) : 0;
}

static inline int32_t reader_i32(struct reader *r)
{
    const uint8_t *p = reader_take(r, 4);
    return p ? (int32_t)get_be32(p) : 0;
}

static inline int64_t reader_i64(struct reader *r)
{
    const uint8_t *p = reader_take(r, 8);
    return p ? (int64_t)get_be64(p) : 0;
}

/* More than `bits_max` significant bits, or more bytes than those need, is ERR_CORRUPT. */
static inline uint64_t reader_uvarint_bits(struct reader *r, unsigned bits_max)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < bits_max; shift += 7) {
        const uint8_t *p = reader_take(r, 1);
        if (!p) return 0;
        uint64_t part = *p & 0x7f;
        if (shift + 7 > bits_max && part >> (bits_max - shift)) break;
        v |= part << shift;
        if (!(*p & 0x80)) return v;
    }
    reader_fail(r, ERR_CORRUPT);
    return 0;
}

static inline uint32_t reader_uvarint(struct reader *r)
{
    return (uint32_t)reader_uvarint_bits(r, 32);
}

/* Zigzag, as in records. */
static inline int32_t reader_varint(struct reader *r)
{
    uint32_t v = (uint32_t)reader_uvarint_bits(r, 32);
    return (int32_t)(v >> 1) ^ -(int32_t)(v & 1);
}

static inline int64_t reader_varlong(struct reader *r)
{
    uint64_t v = reader_uvarint_bits(r, 64);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

#endif
