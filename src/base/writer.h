/* writer.h: bytes being built, big endian, with places where other bytes are let in without a copy.
 *
 * What is written lies in one growing buffer.  A splice remembers "here come N bytes of that file, or of that buffer":
 * the record batches of a Fetch answer.  writer_size() counts both; the network layer sends them in order.
 * Thread: one at a time. */
#ifndef BASE_WRITER_H
#define BASE_WRITER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/slice.h"

/* Bytes that come from elsewhere.  `release(owner)` is called once they are sent or dropped. */
struct splice {
    size_t at;           /* after this many bytes of the buffer */
    const uint8_t *data; /* memory, or NULL: */
    int fd;              /*   a file of the real file system, from `pos` on */
    int64_t pos;
    size_t size;
    void *owner;
    void (*release)(void *owner);
};

struct writer {
    struct buf_pool *pool;
    struct buf *buf; /* NULL until the first byte */
    size_t size;     /* bytes in buf */
    struct splice *splices;
    size_t splice_count, splice_cap, splice_bytes;
};

void writer_init(struct writer *w, struct buf_pool *pool);
/* Releases the buffer and every splice. */
void writer_fini(struct writer *w);
/* Bytes in all, splices included. */
static inline size_t writer_size(const struct writer *w)
{
    return w->size + w->splice_bytes;
}

/* Room for `size` more bytes, which count as written; good until the next call. */
uint8_t *writer_extend(struct writer *w, size_t size);
void writer_bytes(struct writer *w, const void *data, size_t size);
/* Lets the splice in at the end (its `at` is set here) and takes over its owner. */
void writer_splice(struct writer *w, struct splice s);
/* Opens a gap of `size` bytes at `at`, moving what follows (splices too): for lengths known only afterwards. */
uint8_t *writer_insert(struct writer *w, size_t at, size_t size);
/* Copies everything, splices in memory included, into `out` (writer_size() bytes); splices of files must not be there.
 */
void writer_flatten(const struct writer *w, uint8_t *out);

void writer_i8(struct writer *w, int8_t v);
void writer_i16(struct writer *w, int16_t v);
void writer_i32(struct writer *w, int32_t v);
void writer_i64(struct writer *w, int64_t v);
/* 7 bits a byte, low bits first. */
void writer_uvarint(struct writer *w, uint64_t v);
/* Zigzag: small values of either sign are short. */
void writer_varint(struct writer *w, int64_t v);

#endif
