/* clean_map.h: the cleaner's table of keys: the hash of a key -> the last offset that it was seen at.
 *
 * Of a key only a 128-bit hash is kept, under a secret that differs with every cleaner, so that nobody can choose two
 * keys that fall together; that two do by chance is as unlikely as with Kafka's MD5.  An entry takes 24 bytes, as in
 * Kafka, so that log.cleaner.dedupe.buffer.size holds as many keys.  Thread: one at a time. */
#ifndef PLOG_CLEAN_MAP_H
#define PLOG_CLEAN_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

enum { CLEAN_SECRET_SIZE = 192 };

struct clean_hash {
    uint64_t low, high;
};

struct clean_slot {
    struct clean_hash hash;
    int64_t offset_plus_1; /* 0: free */
};
_Static_assert(sizeof(struct clean_slot) == 24, "an entry of the cleaner's table");

struct clean_map {
    struct clean_slot *slots;
    size_t slot_count;
    size_t used, limit;                /* keys that are there; that there may be */
    uint8_t secret[CLEAN_SECRET_SIZE]; /* random bytes */
};

/* Makes it empty, with room for `keys_max` keys or as many as `bytes_max` bytes hold at `load_factor`, at least one. */
void clean_map_begin(struct clean_map *m, size_t bytes_max, double load_factor, int64_t keys_max);
/* Gives the memory back. */
void clean_map_end(struct clean_map *m);

struct clean_hash clean_map_hash(const struct clean_map *m, const uint8_t *key, size_t size);
/* Asks for the cache line that the next put or get of this hash begins at. */
static inline void clean_map_prefetch(const struct clean_map *m, struct clean_hash hash)
{
    size_t at = (size_t)(((unsigned __int128)hash.low * m->slot_count) >> 64);
    __builtin_prefetch(&m->slots[at]);
}
/* False: a new key, and there is no room for it. */
MUST_USE bool clean_map_put(struct clean_map *m, struct clean_hash hash, int64_t offset);
/* -1: not there. */
int64_t clean_map_get(const struct clean_map *m, struct clean_hash hash);

#endif
