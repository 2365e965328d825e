/* refused.c: see refused.h. */
#include "broker/refused.h"

#include "base/hash.h"
#include "wire/topic_name.h"

enum { SEQUENCE_AHEAD_MAX = 1 << 30 }; /* half of all sequences, which begin again at 0 */

/* Compared as bytes: made by key_of(), which leaves none unset. */
struct key {
    int64_t producer_id;
    int32_t partition;
    int16_t producer_epoch;
    uint16_t name_size; /* 0: by id */
    uint8_t topic[TOPIC_NAME_MAX];
};

struct refused {
    struct key key;
    int32_t base_sequence; /* the first one */
    UT_hash_handle hh;     /* in the order of their coming */
};

/* False: no such topic can ever be, or no such batch matters. */
static bool key_of(struct key *key, const struct refused_at *at, const struct batch_info *b)
{
    if (b->producer_id < 0 || b->base_sequence < 0 || at->topic.size > TOPIC_NAME_MAX) return false;
    memset(key, 0, sizeof *key);
    key->producer_id = b->producer_id;
    key->partition = at->partition;
    key->producer_epoch = b->producer_epoch;
    key->name_size = (uint16_t)at->topic.size;
    if (at->topic.size)
        memcpy(key->topic, at->topic.data, at->topic.size);
    else
        memcpy(key->topic, at->topic_id.bytes, sizeof at->topic_id.bytes);
    return true;
}

static struct refused *find(struct refused *set, const struct refused_at *at, const struct batch_info *b)
{
    struct key key;
    struct refused *r = NULL;
    if (set && key_of(&key, at, b)) HASH_FIND(hh, set, &key, sizeof key, r);
    return r;
}

static bool comes_before(int32_t sequence, int32_t other)
{
    uint32_t ahead = ((uint32_t)other - (uint32_t)sequence) & INT32_MAX;
    return ahead > 0 && ahead < SEQUENCE_AHEAD_MAX;
}

static void drop(struct refused **set, struct refused *r)
{
    HASH_DEL(*set, r);
    mem_free(r);
}

void refused_note(struct refused **set, const struct refused_at *at, const struct batch_info *b)
{
    struct key key;
    if (!key_of(&key, at, b)) return;
    struct refused *r = find(*set, at, b);
    if (r) {
        if (comes_before(b->base_sequence, r->base_sequence)) r->base_sequence = b->base_sequence;
        return;
    }
    if (HASH_COUNT(*set) >= REFUSED_MAX) drop(set, *set);
    r = mem_zalloc(1, sizeof *r);
    r->key = key;
    r->base_sequence = b->base_sequence;
    HASH_ADD(hh, *set, key, sizeof r->key, r);
}

bool refused_before(struct refused *set, const struct refused_at *at, const struct batch_info *b)
{
    const struct refused *r = find(set, at, b);
    return r && comes_before(r->base_sequence, b->base_sequence);
}

void refused_forget(struct refused **set, const struct refused_at *at, const struct batch_info *b)
{
    struct refused *r = find(*set, at, b);
    if (r && !comes_before(r->base_sequence, b->base_sequence)) drop(set, r);
}

void refused_free(struct refused **set)
{
    while (*set) drop(set, *set);
}
