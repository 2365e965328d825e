/* buf.h: reference counted byte buffers, recycled by size class.
 *
 * Request bytes are received into one and stay there until the log has written them; responses are built in others.
 * A pool is shared by all loops and hands the buffer freed last out first, since its pages and cache lines are warm.
 * Thread: any. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct buf_pool;

struct buf {
    _Atomic uint32_t refs;
    uint32_t size_class;
    size_t cap;
    struct buf_pool *pool; /* NULL: from the heap */
    struct buf *next;      /* while free */
    uint8_t *data;
};

/* Keeps at most `idle_bytes_max` of free buffers. */
struct buf_pool *buf_pool_new(size_t idle_bytes_max);
/* Every buffer must be back. */
void buf_pool_free(struct buf_pool *pool);
/* Bytes handed out at this moment. */
size_t buf_pool_in_use(const struct buf_pool *pool);
/* Gives all idle buffers back to the system. */
void buf_pool_trim(struct buf_pool *pool);

/* A buffer of at least `size` bytes with one reference; its content is undefined.  Without a pool: from the heap. */
struct buf *buf_new(struct buf_pool *pool, size_t size);
struct buf *buf_ref(struct buf *b);
/* The last one gives it back; NULL is allowed. */
void buf_unref(struct buf *b);

#endif
