/* lookup.c: finding records by time, and the aborted transactions of a range.  Workers, but for the latter with
 * `nowait`.
 */
#include "plog/plog_internal.h"

#include <stdlib.h>

#include "base/mem.h"
#include "plog/scan.h"

/* A compressed batch is looked into only when its header says that the record sought is in it. */

/* The next segment of a walk, with a reference; NULL behind the last. */
static struct segment *next_segment(struct plog *pl, int64_t *next, uint32_t *generation)
{
    pthread_mutex_lock(&pl->lock);
    struct segment *seg = segment_walk(pl, next);
    *generation = pl->generation;
    pthread_mutex_unlock(&pl->lock);
    return seg;
}

/* Opened, if it is not yet.  ERR_NOT_FOUND: retention was faster. */
static enum err open_segment(struct plog *pl, struct segment *seg, uint32_t generation)
{
    pthread_mutex_lock(&pl->lock);
    bool open = seg->log && index_is_open(&seg->offsets) && index_is_open(&seg->times) && !seg->indexes_bad;
    pthread_mutex_unlock(&pl->lock);
    if (open && !atomic_load_explicit(&seg->index_misled, memory_order_relaxed)) return OK;
    return plog_open_for_reading(pl, seg, generation);
}

/* Its largest timestamp; the files are opened only when the time index is no good. */
static enum err learn_max_time(struct plog *pl, struct segment *seg, uint32_t generation)
{
    enum err e = plog_load_max_time(pl, seg);
    if (e != ERR_CORRUPT) return e;
    atomic_store_explicit(&seg->index_misled, true, memory_order_relaxed);
    return open_segment(pl, seg, generation);
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
    enum err e = record_iter_init(&it, data, (size_t)b->size, BATCH_UNPACKED_STORED_MAX);
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

/* ERR_NOT_FOUND when this segment has no such record. */
static enum err find_time_in(struct plog *pl, struct segment *seg, uint32_t generation, int64_t timestamp,
                             struct found *out)
{
    enum err e = learn_max_time(pl, seg, generation);
    if (e) return e;
    struct timed t = timed_of(pl, seg);
    /* As Kafka: without timestamps, the file's age has to do. */
    int64_t largest = t.max_time.timestamp >= 0 ? t.max_time.timestamp : t.modified_ms;
    if (largest < timestamp || t.size == 0) return ERR_NOT_FOUND;
    e = open_segment(pl, seg, generation);
    if (e) return e;
    t = timed_of(pl, seg);
    return find_in_segment(seg, &t, plog_start(pl), timestamp, out);
}

enum err plog_find_time(struct plog *pl, int64_t timestamp, int64_t below, int64_t *offset, int64_t *found_ms,
                        int32_t *leader_epoch)
{
    *offset = *found_ms = -1;
    *leader_epoch = -1;
    int64_t next = plog_start(pl);
    for (;;) {
        uint32_t generation;
        struct segment *seg = next_segment(pl, &next, &generation);
        if (!seg) return OK;
        struct found found;
        enum err e = find_time_in(pl, seg, generation, timestamp, &found);
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

/* The segment with the largest timestamp, with a reference; NULL when no record has one. */
static enum err latest_segment(struct plog *pl, struct segment **out, uint32_t *generation, int64_t *timestamp)
{
    int64_t next = 0;
    uint32_t now;
    *out = NULL;
    *timestamp = SEGMENT_TIME_NONE;
    for (struct segment *seg; (seg = next_segment(pl, &next, &now)) != NULL;) {
        enum err e = learn_max_time(pl, seg, now);
        int64_t largest = timed_of(pl, seg).max_time.timestamp;
        if (!e && largest > *timestamp) {
            segment_unref(*out);
            *out = segment_ref(seg);
            *timestamp = largest;
            *generation = now;
        }
        segment_unref(seg);
        if (e && e != ERR_NOT_FOUND) {
            segment_unref(*out);
            return e;
        }
    }
    return OK;
}

enum err plog_max_timestamp(struct plog *pl, int64_t *timestamp, int64_t *offset)
{
    struct segment *seg;
    uint32_t generation;
    int64_t largest;
    *timestamp = *offset = -1;
    enum err e = latest_segment(pl, &seg, &generation, &largest);
    if (e || !seg) return e;
    struct found found;
    e = open_segment(pl, seg, generation);
    struct timed t = timed_of(pl, seg);
    if (!e) e = find_in_segment(seg, &t, plog_start(pl), largest, &found);
    if (!e) {
        *timestamp = found.record.timestamp;
        *offset = found.record.offset;
    }
    segment_unref(seg);
    return e == ERR_NOT_FOUND ? OK : e; /* its records have been trimmed meanwhile */
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
    if (x->first_offset != y->first_offset) return x->first_offset < y->first_offset ? -1 : 1;
    return x->producer_id < y->producer_id ? -1 : x->producer_id > y->producer_id;
}

/* The transaction index of the next segment of a walk, opened if need be; none: path is NULL. */
static enum err next_txns(struct plog *pl, int64_t *next, bool nowait, struct segment **seg, struct txnindex *txns)
{
    pthread_mutex_lock(&pl->lock);
    *seg = segment_walk(pl, next);
    *txns = *seg ? (*seg)->txns : (struct txnindex){0};
    bool to_open = *seg && (*seg)->txns_there && !txns->path;
    pthread_mutex_unlock(&pl->lock);
    if (!to_open) return OK;
    if (nowait) return ERR_AGAIN;

    enum err e = exclusive_begin(pl);
    if (e) return e;
    e = segment_ensure_txns(pl, *seg);
    *txns = (*seg)->txns;
    exclusive_end(pl);
    return e;
}

/* Sorts them as consumers want them; the files have them by last offset.  One may have come twice. */
static void aborted_list_sort(struct aborted_list *list)
{
    if (list->count < 2) return;
    qsort(list->txns, list->count, sizeof *list->txns, aborted_compare);
    size_t kept = 1;
    for (size_t i = 1; i < list->count; i++)
        if (aborted_compare(&list->txns[i], &list->txns[kept - 1]) != 0) list->txns[kept++] = list->txns[i];
    list->count = kept;
}

enum err plog_aborted_txns(struct plog *pl, int64_t from, int64_t to, bool nowait,
                           void (*each)(void *arg, const struct aborted_txn *txn), void *arg)
{
    struct aborted_list list = {0};
    bool complete = false;
    enum err e = OK;
    int64_t next = from;
    while (!e && !complete) {
        struct segment *seg;
        struct txnindex txns;
        e = next_txns(pl, &next, nowait, &seg, &txns);
        if (!e && seg && txns.path) e = txnindex_find(&txns, from, to, nowait, aborted_list_add, &list, &complete);
        segment_unref(seg);
        if (!seg) break;
    }
    if (!e) aborted_list_sort(&list);
    for (size_t i = 0; i < list.count && !e; i++) each(arg, &list.txns[i]);
    mem_free(list.txns);
    return e;
}
