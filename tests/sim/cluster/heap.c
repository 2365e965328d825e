/* heap.c: see heap.h.  Sizes in classes, four a power of two; a list of free blocks for each. */
#include "heap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/macros.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
enum { REDZONE = 16, KEPT_SIZE_MAX = 4096 };
#define POISON(p, size)   ASAN_POISON_MEMORY_REGION(p, size)
#define UNPOISON(p, size) ASAN_UNPOISON_MEMORY_REGION(p, size)
#else
enum { REDZONE = 0, KEPT_SIZE_MAX = 0 };
#define POISON(p, size)   ((void)(p), (void)(size))
#define UNPOISON(p, size) ((void)(p), (void)(size))
#endif

enum { CLASSES = 4 * 64, ALIGN = 16 };
#define HEAP_BASE  ((uintptr_t)0x200000000000)
#define HEAP_BYTES ((size_t)8 << 30)

/* In front of every block; the block after it is aligned. */
struct block {
    size_t size; /* that it has room for */
    struct block *next_free;
};
_Static_assert(sizeof(struct block) % ALIGN == 0, "blocks are aligned");

struct heap {
    uintptr_t used;
    struct block *free[CLASSES];
};

static struct heap heaps[HEAPS_MAX];
static bool mapped;
static int current = HEAP_NONE;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);
void __wrap_free(void *p);

int heap_enter(int heap)
{
    int before = current;
    current = heap;
    return before;
}

static void map_all(void)
{
    void *want = (void *)HEAP_BASE;
    void *got = mmap(want, HEAP_BYTES * HEAPS_MAX, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    ASSERT(got == want);
    mapped = true;
}

void heap_drop(int heap)
{
    struct heap *h = &heaps[heap];
    void *base = (void *)(HEAP_BASE + (uintptr_t)heap * HEAP_BYTES);
    if (mapped) UNPOISON(base, h->used);
    *h = (struct heap){0};
}

/* The class and the size that its blocks have room for. */
static unsigned class_of(size_t need, size_t *size)
{
    need = MAX((need + ALIGN - 1) / ALIGN * ALIGN, (size_t)4 * ALIGN);
    unsigned log2 = 63 - (unsigned)__builtin_clzll(need);
    size_t step = (size_t)1 << (log2 - 2);
    size_t steps = (need - ((size_t)1 << log2) + step - 1) / step;
    *size = ((size_t)1 << log2) + steps * step;
    return log2 * 4 + (unsigned)steps;
}

static void *heap_alloc(struct heap *h, size_t need)
{
    if (!mapped) map_all();
    size_t size;
    unsigned class = class_of(need + REDZONE, &size);
    struct block *b = h->free[class];
    if (b) {
        h->free[class] = b->next_free;
    } else {
        ASSERT(h->used + sizeof *b + size <= HEAP_BYTES);
        b = (struct block *)(HEAP_BASE + (uintptr_t)(h - heaps) * HEAP_BYTES + h->used);
        h->used += sizeof *b + size;
        b->size = size;
    }
    UNPOISON(b + 1, need);
    POISON((uint8_t *)(b + 1) + need, size - need);
    return b + 1;
}

static bool is_ours(const void *p)
{
    return (uintptr_t)p - HEAP_BASE < HEAP_BYTES * HEAPS_MAX;
}

static struct heap *heap_of(const void *p)
{
    return &heaps[((uintptr_t)p - HEAP_BASE) / HEAP_BYTES];
}

void *__wrap_malloc(size_t size)
{
    return current == HEAP_NONE ? __real_malloc(size) : heap_alloc(&heaps[current], size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (current == HEAP_NONE) return __real_calloc(count, size);
    ASSERT(!__builtin_mul_overflow(count, size, &bytes));
    void *p = heap_alloc(&heaps[current], bytes);
    memset(p, 0, bytes);
    return p;
}

void __wrap_free(void *p)
{
    if (!p || !is_ours(p)) {
        __real_free(p);
        return;
    }
    struct block *b = (struct block *)p - 1;
    size_t size;
    unsigned class = class_of(b->size, &size);
    POISON(p, b->size);
    if (b->size <= KEPT_SIZE_MAX) return;
    struct heap *h = heap_of(p);
    b->next_free = h->free[class];
    h->free[class] = b;
}

void *__wrap_realloc(void *p, size_t size)
{
    if (!p) return __wrap_malloc(size);
    if (!is_ours(p)) return __real_realloc(p, size);
    struct block *b = (struct block *)p - 1;
    if (size + REDZONE <= b->size) {
        UNPOISON(p, size);
        POISON((uint8_t *)p + size, b->size - size);
        return p;
    }
    void *copy = heap_alloc(heap_of(p), size);
    UNPOISON(p, b->size);
    memcpy(copy, p, MIN(b->size, size));
    __wrap_free(p);
    return copy;
}
