/* clean_map.c: open addressing, one probe after the other: neighbours share cache lines, nothing is ever removed, and
 * the limit leaves some slots free, so that every search ends. */
#include "plog/clean_map.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/mem.h"

_Static_assert(CLEAN_SECRET_SIZE >= XXH3_SECRET_SIZE_MIN, "secret of the key hash");

void clean_map_begin(struct clean_map *m, size_t bytes_max, double load_factor, int64_t keys_max)
{
    size_t slots_max = MAX(bytes_max / sizeof(struct clean_slot), 2);
    double share = load_factor > 0 ? MIN(load_factor, 1) : 0;
    size_t limit = MIN((size_t)((double)slots_max * share), slots_max - 1);
    limit = MAX(limit, 1);
    /* A small log does not pay for a big table: at half full, searches are short. */
    if ((uint64_t)keys_max < limit / 2) {
        limit = MAX((size_t)keys_max, 1);
        slots_max = limit * 2 + 1;
    }
    m->slots = mem_zalloc(slots_max, sizeof(struct clean_slot));
    m->slot_count = slots_max;
    m->limit = limit;
    m->used = 0;
}

void clean_map_end(struct clean_map *m)
{
    mem_free(m->slots);
    m->slots = NULL;
    m->slot_count = m->used = m->limit = 0;
}

struct clean_hash clean_map_hash(const struct clean_map *m, const uint8_t *key, size_t size)
{
    XXH128_hash_t hash = XXH3_128bits_withSecret(key, size, m->secret, sizeof m->secret);
    return (struct clean_hash){hash.low64, hash.high64};
}

/* The slot that has the hash, or the free one where it would go. */
static struct clean_slot *find(const struct clean_map *m, struct clean_hash hash)
{
    size_t at = (size_t)(((unsigned __int128)hash.low * m->slot_count) >> 64);
    for (;;) {
        struct clean_slot *slot = &m->slots[at];
        if (slot->offset_plus_1 == 0) return slot;
        if (slot->hash.low == hash.low && slot->hash.high == hash.high) return slot;
        if (++at == m->slot_count) at = 0;
    }
}

bool clean_map_put(struct clean_map *m, struct clean_hash hash, int64_t offset)
{
    struct clean_slot *slot = find(m, hash);
    if (slot->offset_plus_1 == 0) {
        if (m->used >= m->limit) return false;
        m->used++;
        slot->hash = hash;
    }
    slot->offset_plus_1 = offset + 1;
    return true;
}

int64_t clean_map_get(const struct clean_map *m, struct clean_hash hash)
{
    return find(m, hash)->offset_plus_1 - 1;
}
