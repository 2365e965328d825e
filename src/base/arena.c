/* arena.c: a bump allocator over a list of blocks. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdalign.h>
#include <stdio.h>

#include "base/mem.h"

struct arena_block {
    struct arena_block *next;
    size_t size;
    alignas(16) char room[];
};

enum { BLOCK_SIZE_MIN = 4096, BLOCK_KEEP_MAX = 64 * 1024, ALIGN = 16 };

void arena_init(struct arena *a, size_t bytes_max)
{
    *a = (struct arena){.bytes_max = bytes_max};
}

static void blocks_free(struct arena_block *b)
{
    while (b) {
        struct arena_block *next = b->next;
        mem_free(b);
        b = next;
    }
}

void arena_reset(struct arena *a)
{
    struct arena_block *keep = a->blocks;
    if (keep) {
        blocks_free(keep->next);
        keep->next = NULL;
        if (keep->size > BLOCK_KEEP_MAX) {
            mem_free(keep);
            keep = NULL;
        }
    }
    a->blocks = keep;
    a->at = keep ? keep->room : NULL;
    a->end = keep ? keep->room + keep->size : NULL;
    a->used = 0;
}

void arena_fini(struct arena *a)
{
    blocks_free(a->blocks);
    arena_init(a, a->bytes_max);
}

void arena_absorb(struct arena *a, struct arena *from)
{
    struct arena_block *last = from->blocks;
    if (!last) return;
    if (!a->blocks) {
        a->blocks = from->blocks;
        a->at = from->at;
        a->end = from->end;
    } else { /* behind the newest one, which still has room */
        while (last->next) last = last->next;
        last->next = a->blocks->next;
        a->blocks->next = from->blocks;
    }
    a->used += from->used;
    arena_init(from, from->bytes_max);
}

static void *take(struct arena *a, size_t size)
{
    if (!a->blocks || size > (size_t)(a->end - a->at)) {
        size_t last = a->blocks ? a->blocks->size : BLOCK_SIZE_MIN / 2;
        size_t room = MAX(size, MIN(last * 2, (size_t)1 << 20));
        struct arena_block *b = mem_alloc(sizeof *b + room);
        b->next = a->blocks;
        b->size = room;
        a->blocks = b;
        a->at = b->room;
        a->end = b->room + room;
    }
    void *p = a->at;
    a->at += size;
    a->used += size;
    memset(p, 0, size);
    return p;
}

static bool round_up(size_t size, size_t *out)
{
    if (size > SIZE_MAX - ALIGN) return false;
    *out = (size + ALIGN - 1) / ALIGN * ALIGN;
    return true;
}

void *arena_try_alloc(struct arena *a, size_t size)
{
    size_t need;
    if (!round_up(size, &need) || a->used > a->bytes_max || need > a->bytes_max - a->used) return NULL;
    return take(a, need);
}

void *arena_alloc(struct arena *a, size_t size)
{
    size_t need;
    ASSERT(round_up(size, &need));
    return take(a, need);
}

void *arena_array_alloc(struct arena *a, size_t count, size_t size)
{
    size_t bytes;
    ASSERT(!__builtin_mul_overflow(count, size, &bytes));
    return arena_alloc(a, bytes);
}

struct str arena_str(struct arena *a, struct str s)
{
    if (str_is_null(s)) return s;
    char *copy = arena_alloc(a, s.size + 1);
    if (s.size) memcpy(copy, s.data, s.size);
    return (struct str){copy, s.size};
}

struct str arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    ASSERT(n >= 0);
    char *out = arena_alloc(a, (size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(out, (size_t)n + 1, fmt, args);
    va_end(args);
    return (struct str){out, (size_t)n};
}
