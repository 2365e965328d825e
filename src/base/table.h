/* table.h: a hash table that any thread reads without a lock while one thread at a time changes it.
 *
 * Values are the caller's; the key is read out of the value by table_ops.  What a change unlinks (cells, old bucket
 * arrays) may still be looked at by readers: it goes to `retire`, which frees it when that is safe (os/grace.h).  The
 * caller does the same with values it has removed. */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct table;

struct table_ops {
    struct bytes (*key)(const void *value);
    /* Calls release(p) when no reader can see p any more. */
    void (*retire)(void *arg, void *p, void (*release)(void *p));
    void *arg;
};

struct table *table_new(const struct table_ops *ops);
/* No reader may be left; values are not touched. */
void table_free(struct table *t);

/* NULL when it is not there.  Any thread; the value is good as long as the caller's retire rule says. */
void *table_find(const struct table *t, struct bytes key);
size_t table_count(const struct table *t);
/* Writer.  Puts `value` in; returns the value that had the same key and is replaced by it, or NULL. */
void *table_put(struct table *t, void *value);
/* Writer.  The removed value, or NULL. */
void *table_remove(struct table *t, struct bytes key);
/* Any thread; sees each value that is there throughout.  Stops when `each` returns false. */
void table_each(const struct table *t, bool (*each)(void *arg, void *value), void *arg);

/* Frees the memory at once: for writers with no concurrent reader. */
void table_retire_now(void *arg, void *p, void (*release)(void *p));

#endif
