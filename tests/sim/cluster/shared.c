/* shared.c: see shared.h. */
#include "shared.h"

#undef mem_alloc
#undef mem_zalloc
#undef mem_realloc
#undef mem_grow
#undef mem_strdup
#undef mem_strndup
#undef mem_printf

#include <stdarg.h>
#include <stdio.h>

#include "base/macros.h"
#include "heap.h"

#define IN_WORLD(call)                      \
    do {                                    \
        int heap_ = heap_enter(HEAP_WORLD); \
        void *p_ = (call);                  \
        heap_enter(heap_);                  \
        return p_;                          \
    } while (0)

void *world_mem_alloc(size_t size)
{
    IN_WORLD(mem_alloc(size));
}

void *world_mem_zalloc(size_t count, size_t size)
{
    IN_WORLD(mem_zalloc(count, size));
}

void *world_mem_realloc(void *p, size_t size)
{
    IN_WORLD(mem_realloc(p, size));
}

void *world_mem_grow(void *p, size_t *cap, size_t need, size_t size)
{
    IN_WORLD(mem_grow(p, cap, need, size));
}

char *world_mem_strdup(const char *s)
{
    IN_WORLD(mem_strdup(s));
}

char *world_mem_strndup(const char *s, size_t size)
{
    IN_WORLD(mem_strndup(s, size));
}

char *world_mem_printf(const char *fmt, ...)
{
    enum { TEXT_MAX = 4096 };
    char text[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ASSERT(n >= 0 && n < TEXT_MAX);
    return world_mem_strdup(text);
}
