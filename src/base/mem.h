/* mem.h: the heap.  Running out of memory ends the process with a message: every size that a peer or a file can choose
 * is bounded before it gets here, so there is nothing left to give back.  Thread: any. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

/* Never NULL; size 0 is allowed.  Free with mem_free(). */
void *mem_alloc(size_t size);
/* The same, zeroed; count * size is checked for overflow. */
void *mem_zalloc(size_t count, size_t size);
/* Grows or shrinks; `p` may be NULL. */
void *mem_realloc(void *p, size_t size);
/* Grows an array to at least `need` elements, doubling; updates *cap.  Elements past the old *cap are not set. */
void *mem_grow(void *p, size_t *cap, size_t need, size_t size);
char *mem_strdup(const char *s);
/* A zero-terminated copy of `size` bytes. */
char *mem_strndup(const char *s, size_t size);
/* printf into a new string. */
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void mem_free(void *p);

#endif
