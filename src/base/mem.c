/* mem.c: the heap, with one answer to exhaustion. */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

static void *must(void *p, size_t size)
{
    if (UNLIKELY(!p)) {
        fprintf(stderr, "barnabas: out of memory: %zu bytes are not to be had\n", size);
        abort();
    }
    return p;
}

void *mem_alloc(size_t size)
{
    return must(malloc(size ? size : 1), size);
}

void *mem_zalloc(size_t count, size_t size)
{
    return must(calloc(count ? count : 1, size ? size : 1), count * size);
}

void *mem_realloc(void *p, size_t size)
{
    return must(realloc(p, size ? size : 1), size);
}

void *mem_grow(void *p, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap) return p;
    size_t next = *cap ? *cap * 2 : 8;
    if (next < need) next = need;
    size_t bytes;
    ASSERT(!__builtin_mul_overflow(next, size, &bytes));
    p = mem_realloc(p, bytes);
    *cap = next;
    return p;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

char *mem_strndup(const char *s, size_t size)
{
    char *copy = mem_alloc(size + 1);
    if (size) memcpy(copy, s, size);
    copy[size] = '\0';
    return copy;
}

char *mem_printf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    ASSERT(n >= 0);
    char *out = mem_alloc((size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(out, (size_t)n + 1, fmt, args);
    va_end(args);
    return out;
}

void mem_free(void *p)
{
    free(p);
}
