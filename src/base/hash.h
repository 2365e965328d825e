/* hash.h: uthash, with its memory from mem.h.  Include this one, not <uthash.h>.  Thread: as the table's owner. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include "base/mem.h"

#define uthash_malloc(size)    mem_alloc(size)
#define uthash_free(ptr, size) mem_free(ptr)
#include <uthash.h>

#endif
