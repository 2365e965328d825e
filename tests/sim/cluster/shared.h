/* shared.h: included first into what the whole world shares: its memory comes from the world's heap, whoever calls. */
#ifndef TESTS_SIM_CLUSTER_SHARED_H
#define TESTS_SIM_CLUSTER_SHARED_H

#include "base/mem.h"

void *world_mem_alloc(size_t size);
void *world_mem_zalloc(size_t count, size_t size);
void *world_mem_realloc(void *p, size_t size);
void *world_mem_grow(void *p, size_t *cap, size_t need, size_t size);
char *world_mem_strdup(const char *s);
char *world_mem_strndup(const char *s, size_t size);
char *world_mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define mem_alloc   world_mem_alloc
#define mem_zalloc  world_mem_zalloc
#define mem_realloc world_mem_realloc
#define mem_grow    world_mem_grow
#define mem_strdup  world_mem_strdup
#define mem_strndup world_mem_strndup
#define mem_printf  world_mem_printf

#endif
