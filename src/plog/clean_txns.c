/* clean_txns.c: see clean_txns.h. */
#include "plog/clean_txns.h"

#include "base/hash.h"

struct clean_txn {
    int64_t producer_id;
    bool aborted, aborted_seen; /* an aborted one is open; a batch of it went by */
    bool committed_seen;        /* a batch of one that was not aborted went by */
    struct aborted_txn txn;
    UT_hash_handle hh;
};

void clean_txns_init(struct clean_txns *ts)
{
    *ts = (struct clean_txns){.open = NULL};
}

void clean_txns_fini(struct clean_txns *ts)
{
    struct clean_txn *t, *next;
    HASH_ITER(hh, ts->open, t, next)
    {
        HASH_DEL(ts->open, t); /* NOLINT(clang-analyzer-core.NullDereference): a macro the analyzer cannot follow */
        mem_free(t);
    }
    mem_free(ts->known);
    clean_txns_init(ts);
}

static void add_known(void *arg, const struct aborted_txn *txn)
{
    struct clean_txns *ts = arg;
    ts->known = mem_grow(ts->known, &ts->known_cap, ts->known_count + 1, sizeof *ts->known);
    ts->known[ts->known_count++] = *txn;
}

enum err clean_txns_load(struct clean_txns *ts, struct plog *pl, int64_t from, int64_t to)
{
    return plog_aborted_txns(pl, from, to, false, add_known, ts);
}

static struct clean_txn *find(const struct clean_txns *ts, int64_t producer_id)
{
    struct clean_txn *t;
    HASH_FIND(hh, ts->open, &producer_id, sizeof producer_id, t);
    return t;
}

static struct clean_txn *find_or_add(struct clean_txns *ts, int64_t producer_id)
{
    struct clean_txn *t = find(ts, producer_id);
    if (t) return t;
    t = mem_zalloc(1, sizeof *t);
    t->producer_id = producer_id;
    HASH_ADD(hh, ts->open, producer_id, sizeof t->producer_id, t);
    return t;
}

static void drop_if_idle(struct clean_txns *ts, struct clean_txn *t)
{
    if (t->aborted || t->committed_seen) return;
    HASH_DEL(ts->open, t);
    mem_free(t);
}

/* Opens the aborted transactions that begin at or before `offset`. */
static void begin_up_to(struct clean_txns *ts, int64_t offset)
{
    while (ts->known_at < ts->known_count && ts->known[ts->known_at].first_offset <= offset) {
        const struct aborted_txn *txn = &ts->known[ts->known_at++];
        struct clean_txn *t = find_or_add(ts, txn->producer_id);
        if (t->aborted) continue;
        t->aborted = true;
        t->aborted_seen = false;
        t->txn = *txn;
    }
}

bool clean_txns_data(struct clean_txns *ts, const struct batch_info *b)
{
    begin_up_to(ts, batch_last_offset(b));
    if (!(b->attributes & BATCH_TRANSACTIONAL)) return false;
    struct clean_txn *t = find_or_add(ts, b->producer_id);
    if (t->aborted)
        t->aborted_seen = true;
    else
        t->committed_seen = true;
    return t->aborted;
}

bool clean_txns_control(struct clean_txns *ts, const struct batch_info *b, const struct txn_marker *marker,
                        struct aborted_txn *aborted, bool *is_aborted)
{
    *is_aborted = false;
    begin_up_to(ts, batch_last_offset(b));
    if (!marker) return b->count == 0; /* emptied before; a control record of another kind stays */
    struct clean_txn *t = find(ts, b->producer_id);
    if (!t) return true;
    bool seen = marker->commit ? t->committed_seen : t->aborted && t->aborted_seen;
    if (marker->commit) {
        t->committed_seen = false;
    } else {
        *is_aborted = seen;
        if (seen) *aborted = t->txn;
        t->aborted = false;
    }
    drop_if_idle(ts, t);
    return !seen;
}
