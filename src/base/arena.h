/* arena.h: memory that is freed in one stroke, when a request ends.
 * Thread: one at a time.  Pointers are good until arena_reset() or arena_fini(). */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/slice.h"

struct arena_block;

struct arena {
    struct arena_block *blocks; /* newest first */
    char *at, *end;             /* free room in the newest block */
    size_t used;                /* bytes handed out */
    size_t bytes_max;           /* arena_try_alloc() refuses to go past it */
};

/* `bytes_max` bounds what peers can make us allocate; SIZE_MAX for none. */
void arena_init(struct arena *a, size_t bytes_max);
/* Frees all but one block, for reuse. */
void arena_reset(struct arena *a);
void arena_fini(struct arena *a);

/* Takes over what `from` has handed out, which lives as long as `a` from now on; `from` is empty afterwards. */
void arena_absorb(struct arena *a, struct arena *from);

/* Zeroed, aligned for any type.  NULL past bytes_max: for sizes that came from a peer. */
MUST_USE void *arena_try_alloc(struct arena *a, size_t size);
/* Zeroed; for sizes we chose ourselves: never NULL, the limit does not apply. */
void *arena_alloc(struct arena *a, size_t size);
#define arena_array(a, type, count) ((type *)arena_array_alloc((a), (count), sizeof(type)))
void *arena_array_alloc(struct arena *a, size_t count, size_t size);
/* A copy, with a zero behind it that size does not count; null stays null. */
struct str arena_str(struct arena *a, struct str s);
/* printf. */
struct str arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
