/* lookup.c: finding records by time, and the aborted transactions of a range.  Workers, but for the latter. */
#include "plog/plog_internal.h"

#include <stdlib.h>

#include "base/mem.h"
#include "plog/scan.h"

/* A compressed batch is looked into only when its header says that the record sought is in it. */
enum { DECOMPRESSED_MAX = 512 * 1024 * 1024 };

/* The first segment whose base offset is >= `from`, with a reference and its files open; NULL behind the last. */
static enum err segment_from(struct plog *pl, int64_t from, struct segment **out, int64_t *next_base)
{
    enum err e = OK;
    *out = NULL;
    exclusive_begin(pl);
    size_t at = segment_floor(pl, from);
    if (pl->segments[at]->base_offset < from) at++;
    if (at < pl->segment_count) {
        e = segment_ensure_open(pl, pl->segments[at]);
        if (!e) *out = segment_ref(pl->segments[at]);
        *next_base = pl->segments[at]->base_offset + 1;
    }
    exclusive_end(pl);
    return e;
}

/* A segment's fields as they are now. */
struct timed {
    int64_t size, modified_ms;
    struct max_time max_time;
    struct index_view offsets, times;
};

static struct timed timed_of(struct plog *pl, struct segment *seg)
{
    pthread_mutex_lock(&pl->lock);
    struct timed t = {seg->size, seg->modified_ms, seg->max_time, index_view(&seg->offsets), index_view(&seg->times)};
    pthread_mutex_unlock(&pl->lock);
    return t;
}

/* The position of the batch that holds `offset`, or of the first after it. */
static enum err position_of(struct segment *seg, const struct timed *t, int64_t offset, int64_t *pos)
{
    struct index_entry entry;
    enum err e = index_find(t->offsets, INDEX_BY_KEY, offset - seg->base_offset, false, &entry);
    if (e == ERR_NOT_FOUND || e == ERR_CORRUPT || (!e && entry.value >= t->size))
        entry.value = 0;
    else if (e)
        return e;
    struct located at;
    e = locate_from(seg->log, entry.value, t->size, offset, false, &at);
    if (!e) *pos = at.pos;
    if (at.misled) atomic_store_explicit(&seg->index_misled, true, memory_order_relaxed);
    return e;
}

/* The first record of a batch at or after both `from` and `timestamp`. */
static enum err find_record(const uint8_t *data, const struct batch_info *b, int64_t from, int64_t timestamp,
                            struct record *out)
{
    struct record_iter it;
    enum err e = record_iter_init(&it, data, (size_t)b->size, DECOMPRESSED_MAX);
    if (e) return e;
    do e = record_iter_next(&it, out);
    while (!e && (out->offset < from || out->timestamp < timestamp));
    record_iter_fini(&it);
    return e;
}

struct found {
    struct record record;
    int32_t leader_epoch;
};

/* ERR_NOT_FOUND when the segment has none. */
static enum err find_in_segment(struct segment *seg, const struct timed *t, int64_t from, int64_t timestamp,
                                struct found *out)
{
    struct index_entry entry = {0};
    enum err e = index_find(t->times, INDEX_BY_KEY, timestamp, false, &entry);
    if (e && e != ERR_NOT_FOUND && e != ERR_CORRUPT) return e;
    int64_t relative = e ? 0 : entry.value, pos;
    e = position_of(seg, t, MAX(seg->base_offset + relative, from), &pos);
    if (e) return e;
    struct scan sc;
    struct batch_info b;
    scan_init(&sc, seg->log, pos, t->size, false);
    for (;;) {
        pos = sc.pos;
        e = scan_header(&sc, &b);
        if (e) break;
        if (b.max_timestamp < timestamp || batch_last_offset(&b) < from) continue;
        const uint8_t *data;
        sc.pos = pos;
        e = scan_batch(&sc, &b, &data);
        if (!e) e = find_record(data, &b, from, timestamp, &out->record);
        out->leader_epoch = b.leader_epoch;
        if (e != ERR_NOT_FOUND) break; /* a header that promised too much is passed by */
    }
    scan_fini(&sc);
    return e;
}

enum err plog_find_time(struct plog *pl, int64_t timestamp, int64_t below, int64_t *offset, int64_t *found_ms,
                        int32_t *leader_epoch)
{
    *offset = *found_ms = -1;
    *leader_epoch = -1;
    int64_t from = plog_start(pl), next;
    pthread_mutex_lock(&pl->lock);
    next = pl->segments[segment_floor(pl, from)]->base_offset;
    pthread_mutex_unlock(&pl->lock);
    for (;;) {
        struct segment *seg;
        enum err e = segment_from(pl, next, &seg, &next);
        if (e || !seg) return e;
        struct timed t = timed_of(pl, seg);
        struct found found;
        e = ERR_NOT_FOUND;
        /* As Kafka: without timestamps, the file's age has to do. */
        int64_t largest = t.max_time.timestamp >= 0 ? t.max_time.timestamp : t.modified_ms;
        if (largest >= timestamp) e = find_in_segment(seg, &t, from, timestamp, &found);
        segment_unref(seg);
        if (e == ERR_NOT_FOUND) continue;
        if (e) return e;
        if (found.record.offset >= below) return OK;
        *offset = found.record.offset;
        *found_ms = found.record.timestamp;
        *leader_epoch = found.leader_epoch;
        return OK;
    }
}

enum err plog_max_timestamp(struct plog *pl, int64_t *timestamp, int64_t *offset)
{
    *timestamp = *offset = -1;
    int64_t next = 0, start = plog_start(pl);
    struct segment *best = NULL, *seg = NULL;
    struct timed best_t = {.max_time = MAX_TIME_NONE};
    enum err e;
    while (!(e = segment_from(pl, next, &seg, &next)) && seg) {
        struct timed t = timed_of(pl, seg);
        if (t.max_time.timestamp > best_t.max_time.timestamp) {
            segment_unref(best);
            best = seg;
            best_t = t;
        } else {
            segment_unref(seg);
        }
    }
    if (!e && best) {
        struct found found;
        e = find_in_segment(best, &best_t, start, best_t.max_time.timestamp, &found);
        if (!e) {
            *timestamp = found.record.timestamp;
            *offset = found.record.offset;
        }
        if (e == ERR_NOT_FOUND) e = OK; /* its records have been trimmed meanwhile */
    }
    segment_unref(best);
    return e;
}

/* ---- Aborted transactions */

struct aborted_list {
    struct aborted_txn *txns;
    size_t count, cap;
};

static void aborted_list_add(void *arg, const struct aborted_txn *txn)
{
    struct aborted_list *list = arg;
    list->txns = mem_grow(list->txns, &list->cap, list->count + 1, sizeof *list->txns);
    list->txns[list->count++] = *txn;
}

static int aborted_compare(const void *a, const void *b)
{
    const struct aborted_txn *x = a, *y = b;
    return x->first_offset < y->first_offset ? -1 : x->first_offset > y->first_offset;
}

/* The transaction index of the segment after `*next_base`, opened if need be; none: path is NULL. */
static enum err txns_from(struct plog *pl, int64_t from, struct segment **seg, struct txnindex *txns,
                          int64_t *next_base)
{
    pthread_mutex_lock(&pl->lock);
    size_t at = segment_floor(pl, from);
    if (pl->segments[at]->base_offset < from) at++;
    *seg = at < pl->segment_count ? segment_ref(pl->segments[at]) : NULL;
    *txns = *seg ? (*seg)->txns : (struct txnindex){0};
    bool to_open = *seg && (*seg)->txns_there && !txns->path;
    if (*seg) *next_base = (*seg)->base_offset + 1;
    pthread_mutex_unlock(&pl->lock);
    if (!to_open) return OK;

    enum err e = OK;
    exclusive_begin(pl);
    if (!(*seg)->txns.path) {
        char *path = segment_path(pl->dir, (*seg)->base_offset, SEGMENT_TXNS);
        e = txnindex_open(txns, pl->fs, path);
        mem_free(path);
        pthread_mutex_lock(&pl->lock);
        if (!e) (*seg)->txns = *txns;
        pthread_mutex_unlock(&pl->lock);
    } else {
        *txns = (*seg)->txns;
    }
    exclusive_end(pl);
    return e;
}

enum err plog_aborted_txns(struct plog *pl, int64_t from, int64_t to,
                           void (*each)(void *arg, const struct aborted_txn *txn), void *arg)
{
    struct aborted_list list = {0};
    bool complete = false;
    enum err e = OK;
    pthread_mutex_lock(&pl->lock);
    int64_t next = pl->segments[segment_floor(pl, from)]->base_offset;
    pthread_mutex_unlock(&pl->lock);
    while (!e && !complete) {
        struct segment *seg;
        struct txnindex txns;
        e = txns_from(pl, next, &seg, &txns, &next);
        if (!e && seg && txns.path) e = txnindex_find(&txns, from, to, aborted_list_add, &list, &complete);
        segment_unref(seg);
        if (!seg) break;
    }
    /* The files have them by last offset. */
    if (!e && list.count > 1) qsort(list.txns, list.count, sizeof *list.txns, aborted_compare);
    for (size_t i = 0; i < list.count && !e; i++) each(arg, &list.txns[i]);
    mem_free(list.txns);
    return e;
}
