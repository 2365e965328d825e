/* hash.h: uthash, with its memory from mem.h.  Include this one, not <uthash.h>.  Thread: as the table's owner. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include "base/mem.h"

#define uthash_malloc(size)    mem_alloc(size)
#define uthash_free(ptr, size) mem_free(ptr)
#include <uthash.h>

#ifdef __clang_analyzer__
/* It would follow paths on which a table has lost its last element and goes on with the next one all the same. */
void hash_analyzer_forget(void *head, void *element);
#undef HASH_DELETE
#define HASH_DELETE(hh, head, element) hash_analyzer_forget(&(head), (element))
#endif

#endif
