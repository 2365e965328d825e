/* buf.c: power-of-two size classes, one stack of free buffers each, under one short lock. */
#include "base/buf.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/mem.h"

enum {
    CLASS_SHIFT_MIN = 10, /* 1 KiB */
    CLASS_SHIFT_MAX = 26, /* 64 MiB; larger ones are not kept */
    CLASS_COUNT = CLASS_SHIFT_MAX - CLASS_SHIFT_MIN + 1,
    CLASS_NONE = CLASS_COUNT
};

struct buf_pool {
    pthread_mutex_t lock; /* guards free and idle_bytes */
    struct buf *free[CLASS_COUNT];
    size_t idle_bytes, idle_bytes_max;
    _Atomic size_t in_use;
};

struct buf_pool *buf_pool_new(size_t idle_bytes_max)
{
    struct buf_pool *pool = mem_zalloc(1, sizeof *pool);
    pthread_mutex_init(&pool->lock, NULL);
    pool->idle_bytes_max = idle_bytes_max;
    return pool;
}

static void buf_release(struct buf *b)
{
    mem_free(b->data);
    mem_free(b);
}

void buf_pool_trim(struct buf_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    for (int c = 0; c < CLASS_COUNT; c++) {
        while (pool->free[c]) {
            struct buf *b = pool->free[c];
            pool->free[c] = b->next;
            buf_release(b);
        }
    }
    pool->idle_bytes = 0;
    pthread_mutex_unlock(&pool->lock);
}

void buf_pool_free(struct buf_pool *pool)
{
    if (!pool) return;
    ASSERT(atomic_load(&pool->in_use) == 0);
    buf_pool_trim(pool);
    pthread_mutex_destroy(&pool->lock);
    mem_free(pool);
}

size_t buf_pool_in_use(const struct buf_pool *pool)
{
    return atomic_load(&pool->in_use);
}

static uint32_t class_of(size_t size)
{
    uint32_t c = 0;
    while (c < CLASS_COUNT && ((size_t)1 << (c + CLASS_SHIFT_MIN)) < size) c++;
    return c;
}

static struct buf *buf_take_free(struct buf_pool *pool, uint32_t c)
{
    pthread_mutex_lock(&pool->lock);
    struct buf *b = pool->free[c];
    if (b) {
        pool->free[c] = b->next;
        pool->idle_bytes -= b->cap;
    }
    pthread_mutex_unlock(&pool->lock);
    return b;
}

struct buf *buf_new(struct buf_pool *pool, size_t size)
{
    uint32_t c = class_of(size);
    struct buf *b = pool && c < CLASS_NONE ? buf_take_free(pool, c) : NULL;
    if (!b) {
        b = mem_zalloc(1, sizeof *b);
        b->size_class = c;
        b->cap = c < CLASS_NONE ? (size_t)1 << (c + CLASS_SHIFT_MIN) : size;
        b->data = mem_alloc(b->cap);
        b->pool = pool;
    }
    b->next = NULL;
    atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
    if (pool) atomic_fetch_add_explicit(&pool->in_use, b->cap, memory_order_relaxed);
    return b;
}

struct buf *buf_ref(struct buf *b)
{
    uint32_t before = atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    ASSERT(before > 0);
    return b;
}

void buf_unref(struct buf *b)
{
    if (!b) return;
    uint32_t before = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel);
    ASSERT(before > 0);
    if (before > 1) return;
    struct buf_pool *pool = b->pool;
    if (!pool) {
        buf_release(b);
        return;
    }
    atomic_fetch_sub_explicit(&pool->in_use, b->cap, memory_order_relaxed);
    pthread_mutex_lock(&pool->lock);
    bool keep = b->size_class < CLASS_NONE && pool->idle_bytes + b->cap <= pool->idle_bytes_max;
    if (keep) {
        b->next = pool->free[b->size_class];
        pool->free[b->size_class] = b;
        pool->idle_bytes += b->cap;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!keep) buf_release(b);
}
