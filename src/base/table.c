/* table.c: buckets of singly linked cells.  A reader follows atomic pointers of one bucket array; a writer adds a cell
 * at a bucket's head, replaces or unlinks one, or, to grow, builds a whole new array with new cells beside the old. */
#include "base/table.h"

#include <stdatomic.h>

#include "base/mem.h"

struct cell {
    _Atomic(struct cell *) next;
    uint64_t hash;
    void *value;
};

struct buckets {
    size_t mask;
    _Atomic(struct cell *) heads[];
};

struct table {
    struct table_ops ops;
    _Atomic(struct buckets *) buckets;
    _Atomic size_t count;
};

enum { BUCKETS_MIN = 16 };

/* FNV-1a with a final mix: names are short and come from administrators, not from attackers at will. */
static uint64_t hash_of(struct bytes key)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < key.size; i++) h = (h ^ key.data[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

static struct buckets *buckets_new(size_t count)
{
    struct buckets *b = mem_zalloc(1, sizeof *b + count * sizeof b->heads[0]);
    b->mask = count - 1;
    return b;
}

static void buckets_release(void *p)
{
    struct buckets *b = p;
    for (size_t i = 0; i <= b->mask; i++) {
        struct cell *c = atomic_load_explicit(&b->heads[i], memory_order_relaxed);
        while (c) {
            struct cell *next = atomic_load_explicit(&c->next, memory_order_relaxed);
            mem_free(c);
            c = next;
        }
    }
    mem_free(b);
}

struct table *table_new(const struct table_ops *ops)
{
    struct table *t = mem_zalloc(1, sizeof *t);
    t->ops = *ops;
    atomic_init(&t->buckets, buckets_new(BUCKETS_MIN));
    return t;
}

void table_free(struct table *t)
{
    if (!t) return;
    buckets_release(atomic_load(&t->buckets));
    mem_free(t);
}

void table_retire_now(void *arg, void *p, void (*release)(void *p))
{
    (void)arg;
    release(p);
}

size_t table_count(const struct table *t)
{
    return atomic_load_explicit(&t->count, memory_order_relaxed);
}

static bool cell_is(const struct table *t, const struct cell *c, uint64_t hash, struct bytes key)
{
    if (c->hash != hash) return false;
    struct bytes k = t->ops.key(c->value);
    return k.size == key.size && (k.size == 0 || memcmp(k.data, key.data, k.size) == 0);
}

/* Writer: the link that points at the key's cell, or NULL. */
static _Atomic(struct cell *) *link_find(const struct table *t, struct buckets *b, uint64_t hash, struct bytes key)
{
    _Atomic(struct cell *) *link = &b->heads[hash & b->mask];
    for (struct cell *c; (c = atomic_load_explicit(link, memory_order_relaxed)); link = &c->next)
        if (cell_is(t, c, hash, key)) return link;
    return NULL;
}

void *table_find(const struct table *t, struct bytes key)
{
    struct buckets *b = atomic_load_explicit(&t->buckets, memory_order_acquire);
    uint64_t hash = hash_of(key);
    for (struct cell *c = atomic_load_explicit(&b->heads[hash & b->mask], memory_order_acquire); c;
         c = atomic_load_explicit(&c->next, memory_order_acquire))
        if (cell_is(t, c, hash, key)) return c->value;
    return NULL;
}

static void cell_push(struct buckets *b, uint64_t hash, void *value)
{
    struct cell *c = mem_zalloc(1, sizeof *c);
    c->hash = hash;
    c->value = value;
    _Atomic(struct cell *) *head = &b->heads[hash & b->mask];
    atomic_store_explicit(&c->next, atomic_load_explicit(head, memory_order_relaxed), memory_order_relaxed);
    atomic_store_explicit(head, c, memory_order_release);
}

static void grow(struct table *t, struct buckets *old)
{
    struct buckets *b = buckets_new((old->mask + 1) * 2);
    for (size_t i = 0; i <= old->mask; i++)
        for (struct cell *c = atomic_load_explicit(&old->heads[i], memory_order_relaxed); c;
             c = atomic_load_explicit(&c->next, memory_order_relaxed))
            cell_push(b, c->hash, c->value);
    atomic_store_explicit(&t->buckets, b, memory_order_release);
    t->ops.retire(t->ops.arg, old, buckets_release);
}

void *table_put(struct table *t, void *value)
{
    struct bytes key = t->ops.key(value);
    uint64_t hash = hash_of(key);
    struct buckets *b = atomic_load_explicit(&t->buckets, memory_order_relaxed);
    _Atomic(struct cell *) *link = link_find(t, b, hash, key);
    if (!link) {
        cell_push(b, hash, value);
        size_t count = atomic_fetch_add_explicit(&t->count, 1, memory_order_relaxed) + 1;
        if (count > b->mask) grow(t, b);
        return NULL;
    }
    struct cell *old = atomic_load_explicit(link, memory_order_relaxed);
    struct cell *c = mem_zalloc(1, sizeof *c);
    c->hash = hash;
    c->value = value;
    atomic_store_explicit(&c->next, atomic_load_explicit(&old->next, memory_order_relaxed), memory_order_relaxed);
    atomic_store_explicit(link, c, memory_order_release);
    void *replaced = old->value;
    t->ops.retire(t->ops.arg, old, mem_free);
    return replaced;
}

void *table_remove(struct table *t, struct bytes key)
{
    struct buckets *b = atomic_load_explicit(&t->buckets, memory_order_relaxed);
    _Atomic(struct cell *) *link = link_find(t, b, hash_of(key), key);
    if (!link) return NULL;
    struct cell *c = atomic_load_explicit(link, memory_order_relaxed);
    atomic_store_explicit(link, atomic_load_explicit(&c->next, memory_order_relaxed), memory_order_release);
    atomic_fetch_sub_explicit(&t->count, 1, memory_order_relaxed);
    void *removed = c->value;
    t->ops.retire(t->ops.arg, c, mem_free);
    return removed;
}

void table_each(const struct table *t, bool (*each)(void *arg, void *value), void *arg)
{
    struct buckets *b = atomic_load_explicit(&t->buckets, memory_order_acquire);
    for (size_t i = 0; i <= b->mask; i++)
        for (struct cell *c = atomic_load_explicit(&b->heads[i], memory_order_acquire); c;
             c = atomic_load_explicit(&c->next, memory_order_acquire))
            if (!each(arg, c->value)) return;
}
