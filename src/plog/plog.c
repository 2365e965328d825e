/* plog.c: the face of a log, and its end: how appends are combined, written and published.
 *
 * WHAT ALWAYS HOLDS
 * (1) Offsets only grow along the log; only compaction leaves gaps.
 * (2) Up to `size` a segment's file holds whole, published batches.  What lies behind is torn or in flight: it is cut
 *     before anything else is written there, by the failed write itself or by recovery.
 * (3) start <= end, recovery_point <= end.  Segments ascend by base offset, the first one's is <= start, and only the
 *     last one, the active segment, is written to.
 * (4) An index entry points at the start of a batch at or below its offset.  Losing an index costs time, not data.
 * (5) Leader epochs never fall along the log.
 * (6) With no write in flight, producer state is that of the published end.
 * (7) Bytes are published (end, producers, epochs, indexes) after they were written and before anybody is told.
 *
 * One write goes like this: the holder of the writer role takes a group of appends off the queue and, under the lock,
 * checks sequences and assigns offsets; without the lock it patches headers and writes; under the lock it publishes, or
 * takes back what it had assigned.  The lock's order: it is the innermost, nothing is called under it. */
#include "plog/plog.h"

#include "plog/checkpoint.h"
#include "plog/plog_internal.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/mem.h"

enum {
    GROUP_APPENDS_MAX = 64, /* of one write; with its bytes, what others may have to wait for */
    GROUP_BYTES_MAX = 4 * 1024 * 1024,
    STALLS_MAX = 8, /* attempts to write a group when there are no descriptors */
};

/* Appends that are written together, in order; also those among them that turned out to need no write. */
struct group {
    struct append *first, **last;
    struct segment *segment;
    int64_t bytes, end; /* what is written, and the log's end after it */
    int64_t first_timestamp;
    bool roll;       /* a new segment first, */
    int64_t roll_at; /*   with this base offset */
    uint8_t *snapshot;
    size_t snapshot_size;
    struct aborted_txn *aborted; /* for the transaction index */
    size_t aborted_count, aborted_cap;
    int iov_count;
    struct iovec iov[GROUP_APPENDS_MAX];
};

/* ---- Looking */

int64_t plog_start(const struct plog *pl)
{
    return atomic_load_explicit(&pl->start, memory_order_acquire);
}

int64_t plog_end(const struct plog *pl)
{
    return atomic_load_explicit(&pl->end, memory_order_acquire);
}

int64_t plog_recovery_point(const struct plog *pl)
{
    return atomic_load_explicit(&pl->recovery_point, memory_order_acquire);
}

int64_t plog_safe_end(const struct plog *pl)
{
    int64_t end = plog_end(pl);
    return flush_is_due(pl, end) ? plog_recovery_point(pl) : end;
}

int64_t plog_cleaned(const struct plog *pl)
{
    return atomic_load_explicit(&pl->cleaned, memory_order_acquire);
}

struct uuid plog_topic_id(const struct plog *pl)
{
    return pl->topic_id;
}

enum err plog_take_topic_id(struct plog *pl, struct uuid topic_id)
{
    ASSERT(uuid_is_zero(pl->topic_id) && !uuid_is_zero(topic_id));
    char *path = plog_path(pl, PARTITION_METADATA);
    enum err e = partition_metadata_write(topic_id, pl->fs, path);
    mem_free(path);
    if (!e) pl->topic_id = topic_id;
    return e;
}

int64_t plog_size(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    int64_t size = pl->size;
    pthread_mutex_unlock(&pl->lock);
    return size;
}

int64_t plog_segment_bytes(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    int64_t bytes = pl->config.segment_bytes;
    pthread_mutex_unlock(&pl->lock);
    return bytes;
}

int64_t plog_first_unstable(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    int64_t end = plog_end(pl), unstable = producers_first_unstable(pl->producers);
    pthread_mutex_unlock(&pl->lock);
    /* One that a write in flight has just opened lies at the end. */
    return unstable < 0 ? end : MIN(unstable, end);
}

void plog_replicated(struct plog *pl, int64_t high_watermark)
{
    if (!atomic_load_explicit(&pl->txns_ended, memory_order_acquire)) return;
    pthread_mutex_lock(&pl->lock);
    producers_replicated(pl->producers, high_watermark);
    bool more = pl->producers->ended_at < pl->producers->ended_count;
    atomic_store_explicit(&pl->txns_ended, more, memory_order_release);
    pthread_mutex_unlock(&pl->lock);
}

void plog_reconfigure(struct plog *pl, const struct plog_config *config)
{
    pthread_mutex_lock(&pl->lock);
    pl->config = *config;
    int64_t messages = config->flush_group ? 1 : config->flush_messages, ms = config->flush_ms;
    atomic_store_explicit(&pl->flush_messages, messages < 0 ? INT64_MAX : messages, memory_order_relaxed);
    atomic_store_explicit(&pl->flush_ms, ms < 0 ? INT64_MAX : ms, memory_order_relaxed);
    /* What was acknowledged without a flush is not to wait for the next append to be shown. */
    bool behind = flush_is_due(pl, plog_end(pl));
    pthread_mutex_unlock(&pl->lock);
    if (behind) plog_request_flush(pl);
}

void plog_epoch_end(struct plog *pl, int32_t epoch, int32_t *found, int64_t *end)
{
    pthread_mutex_lock(&pl->lock);
    epochs_end_offset(&pl->epochs, epoch, plog_end(pl), found, end);
    pthread_mutex_unlock(&pl->lock);
}

int32_t plog_last_epoch(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    int32_t epoch = epochs_latest(&pl->epochs);
    pthread_mutex_unlock(&pl->lock);
    return epoch;
}

int32_t plog_last_epoch_begun(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    int32_t epoch = epochs_latest_known(&pl->epochs);
    pthread_mutex_unlock(&pl->lock);
    return epoch;
}

int32_t plog_epoch_of(struct plog *pl, int64_t offset)
{
    pthread_mutex_lock(&pl->lock);
    int32_t epoch = epochs_of_offset(&pl->epochs, offset);
    pthread_mutex_unlock(&pl->lock);
    return epoch;
}

void plog_each_producer(struct plog *pl, void (*each)(void *arg, const struct producer_view *p), void *arg)
{
    pthread_mutex_lock(&pl->lock);
    producers_each(pl->producers, each, arg);
    pthread_mutex_unlock(&pl->lock);
}

size_t segment_floor(const struct plog *pl, int64_t offset)
{
    size_t low = 0, high = pl->segment_count; /* segments below `low` start at or below `offset` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pl->segments[middle]->base_offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? low - 1 : 0;
}

struct segment *segment_walk(const struct plog *pl, int64_t *next)
{
    if (*next == SEGMENT_WALK_END) return NULL;
    size_t at = segment_floor(pl, *next);
    *next = at + 1 < pl->segment_count ? pl->segments[at + 1]->base_offset : SEGMENT_WALK_END;
    return segment_ref(pl->segments[at]);
}

int64_t segment_end(const struct plog *pl, size_t at)
{
    return at + 1 < pl->segment_count ? pl->segments[at + 1]->base_offset : plog_end(pl);
}

/* ---- A group: taken under the lock */

/* The next segment must be able to begin behind the last record. */
#define OFFSET_MAX (SEGMENT_BASE_MAX - 1)

/* One or more batches with offsets of their own: they must ascend and start at or after `next`. */
static enum kerr assign_replica(const struct plog *pl, struct append *a, int64_t next)
{
    a->base_offset = -1;
    bool too_large = (int64_t)a->size > pl->config.segment_bytes;
    for (size_t at = 0; at < a->size;) {
        struct batch_info b;
        if (a->size - at < BATCH_HEADER_SIZE || batch_parse_header(&b, a->data + at, (int64_t)(a->size - at)) != OK)
            return KERR_CORRUPT_MESSAGE;
        if (too_large && (size_t)b.size < a->size) return KERR_RECORD_LIST_TOO_LARGE;
        if (b.base_offset < next || b.last_offset_delta < 0 || b.base_offset > OFFSET_MAX - b.last_offset_delta)
            return KERR_OFFSET_OUT_OF_RANGE;
        if (a->base_offset < 0) {
            a->base_offset = b.base_offset;
            a->info = b;
            a->max_timestamp = b.max_timestamp;
        }
        a->max_timestamp = MAX(a->max_timestamp, b.max_timestamp);
        a->last_offset = batch_last_offset(&b);
        next = a->last_offset + 1;
        at += (size_t)b.size;
    }
    if (a->base_offset < 0) return KERR_CORRUPT_MESSAGE;
    return a->last_offset - a->base_offset > INT32_MAX ? KERR_OFFSET_OUT_OF_RANGE : KERR_NONE;
}

/* Between plog_epoch_begin() and the partition's new role a leader that goes on leading appends, in its old epoch:
 * behind the start of the new one it would send every follower back to that start, for ever.  One that has been
 * overtaken by another leader's batches comes too late. */
static enum kerr assign_epoch(const struct plog *pl, struct append *a)
{
    a->leader_epoch = MAX(a->leader_epoch, pl->led_epoch);
    a->info.leader_epoch = a->leader_epoch;
    return a->leader_epoch < epochs_latest(&pl->epochs) ? KERR_NOT_LEADER_OR_FOLLOWER : KERR_NONE;
}

static enum kerr assign_offsets(const struct plog *pl, struct append *a, int64_t next)
{
    if (pl->retired) return KERR_NOT_LEADER_OR_FOLLOWER;
    if (pl->failed || pl->uncut) return KERR_KAFKA_STORAGE_ERROR;
    if (a->origin == APPEND_REPLICA) return assign_replica(pl, a, next);
    if ((int64_t)a->size > pl->config.segment_bytes) return KERR_RECORD_LIST_TOO_LARGE;
    ASSERT(a->size == (size_t)a->info.size);
    enum kerr kerr = assign_epoch(pl, a);
    if (kerr) return kerr;
    a->info.base_offset = next;
    if (pl->config.log_append_time) {
        a->log_append_time_ms = a->now_ms;
        a->info.max_timestamp = a->now_ms;
        a->info.attributes |= BATCH_LOG_APPEND_TIME;
    }
    a->base_offset = next;
    a->last_offset = batch_last_offset(&a->info);
    a->max_timestamp = a->info.max_timestamp;
    return a->last_offset <= OFFSET_MAX ? KERR_NONE : KERR_OFFSET_OUT_OF_RANGE;
}

/* Kafka's LogSegment.shouldRoll, for the segment as it will be with the group written. */
static bool should_roll(const struct plog *pl, const struct group *g, const struct append *a)
{
    const struct segment *seg = g->segment;
    int64_t size = seg->size + g->bytes;
    if (a->last_offset - seg->base_offset > INT32_MAX) return true;
    if (size == 0) return false;
    if (size > pl->config.segment_bytes - (int64_t)a->size) return true;
    if (pl->config.segment_ms >= 0) {
        int64_t first = seg->size > 0 ? seg->first_timestamp : g->first_timestamp;
        int64_t waited = a->now_ms - seg->created_ms;
        /* A client may write any timestamp. */
        if (first >= 0 && __builtin_sub_overflow(a->max_timestamp, first, &waited)) waited = INT64_MIN;
        if (waited > pl->config.segment_ms - seg->jitter_ms) return true;
    }
    return segment_indexes_full(seg, pl->config.segment_index_bytes, g->iov_count);
}

static void note_producer_result(struct plog *pl, struct group *g, const struct producers_result *r)
{
    if (!r->txn_ended) return;
    atomic_store_explicit(&pl->txns_ended, true, memory_order_release);
    if (!r->aborted) return;
    g->aborted = mem_grow(g->aborted, &g->aborted_cap, g->aborted_count + 1, sizeof *g->aborted);
    g->aborted[g->aborted_count++] = r->txn;
}

static enum kerr queue_batch(struct plog *pl, struct group *g, struct append *a, const struct batch_info *b,
                             const uint8_t *data)
{
    if (b->producer_id < 0) return KERR_NONE;
    struct txn_marker marker;
    bool is_marker = (b->attributes & BATCH_CONTROL) && batch_read_marker(&marker, data, (size_t)b->size) == OK;
    if (is_marker && a->log_append_time_ms >= 0) marker.timestamp = a->log_append_time_ms; /* as it will be read back */
    if (a->not_first && !producers_knows(pl->producers, b->producer_id)) return KERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    struct producers_result r;
    producers_queue(pl->producers, b, is_marker ? &marker : NULL, a->origin, &r);
    if (r.kerr == KERR_DUPLICATE_SEQUENCE_NUMBER) {
        a->base_offset = r.base_offset;
        a->last_offset = r.last_offset;
        if (a->log_append_time_ms >= 0) a->log_append_time_ms = r.timestamp;
    }
    if (r.kerr == KERR_NONE) note_producer_result(pl, g, &r);
    return r.kerr;
}

static enum kerr queue_producers(struct plog *pl, struct group *g, struct append *a)
{
    if (a->origin != APPEND_REPLICA) return queue_batch(pl, g, a, &a->info, a->data);
    for (size_t at = 0; at < a->size;) {
        struct batch_info b;
        enum err e = batch_parse_header(&b, a->data + at, (int64_t)(a->size - at));
        ASSERT(e == OK); /* assign_replica() has read it */
        enum kerr kerr = queue_batch(pl, g, a, &b, a->data + at);
        ASSERT(kerr == KERR_NONE); /* what a leader has accepted is followed */
        at += (size_t)b.size;
    }
    return KERR_NONE;
}

static void group_init(struct group *g, struct plog *pl)
{
    g->first = NULL;
    g->last = &g->first;
    g->segment = active_segment(pl);
    g->bytes = 0;
    g->first_timestamp = -1;
    g->end = plog_end(pl);
    g->roll = false;
    g->snapshot = NULL;
    g->aborted = NULL;
    g->aborted_count = g->aborted_cap = 0;
    g->iov_count = 0;
}

/* Adds the queue's first append, unless it must wait for a later group. */
static bool group_take_one(struct group *g, struct plog *pl)
{
    struct append *a = pl->queue;
    a->kerr = assign_offsets(pl, a, g->end);
    bool roll = a->kerr == KERR_NONE && should_roll(pl, g, a);
    if (g->bytes > 0 && (roll || g->bytes + (int64_t)a->size > GROUP_BYTES_MAX)) return false;

    pl->queue = a->next;
    if (!pl->queue) pl->queue_tail = &pl->queue;
    a->next = NULL;
    *g->last = a;
    g->last = &a->next;
    if (a->kerr == KERR_NONE) a->kerr = queue_producers(pl, g, a);
    if (a->kerr != KERR_NONE) return true; /* keeps its place: a duplicate may depend on what goes before it */

    if (roll) {
        /* At the log's end, not where the batch starts: if it cannot be written, another may come that fits into the
         * gap.
         */
        g->roll = true;
        g->roll_at = MAX(g->end, a->last_offset - INT32_MAX);
        producers_snapshot_encode(pl->producers, g->roll_at, &g->snapshot, &g->snapshot_size);
    }
    if (g->bytes == 0) g->first_timestamp = a->max_timestamp;
    g->iov[g->iov_count++] = (struct iovec){a->data, a->size};
    g->bytes += (int64_t)a->size;
    g->end = a->last_offset + 1;
    return !roll; /* the new segment starts with this one alone; what follows is measured against it */
}

/* ---- A group: written without the lock */

static void patch_headers(struct append *a)
{
    if (a->kerr != KERR_NONE || a->origin == APPEND_REPLICA) return;
    batch_set_offset(a->data, a->base_offset);
    batch_set_leader_epoch(a->data, a->leader_epoch);
    if (a->log_append_time_ms >= 0) batch_set_append_time(a->data, a->size, a->log_append_time_ms);
}

/* Also of an earlier one, where that was not to be had then. */
static enum err undo_write(struct plog *pl)
{
    struct segment *seg = active_segment(pl);
    enum err e = seg->log ? file_truncate(seg->log, seg->size) : OK;
    /* If what is cut came back, in a segment that is closed by then, recovery would cut the log there: a flush syncs
     * it. */
    pthread_mutex_lock(&pl->lock);
    seg->unsynced = true;
    pl->undone++;
    pthread_mutex_unlock(&pl->lock);
    if (!e && seg->txns.path) {
        struct txnindex txns = seg->txns;
        e = txnindex_truncate(&txns, plog_end(pl));
        pthread_mutex_lock(&pl->lock);
        seg->txns = txns;
        pthread_mutex_unlock(&pl->lock);
    }
    pl->torn = e != OK;
    return e;
}

void plog_tell_failed(struct plog *pl, enum err e)
{
    LOG_ERROR("log_failed", "dir=%s error=%s", pl->dir, err_name(e));
    if (pl->events.failed) pl->events.failed(pl->events.arg, e);
}

static enum err group_write(struct group *g, struct plog *pl)
{
    enum err e = pl->torn ? undo_write(pl) : OK;
    if (!e && g->roll) e = plog_roll(pl, g->roll_at, g->snapshot, g->snapshot_size);
    g->segment = active_segment(pl);
    if (!e) e = segment_ensure_open(pl, g->segment);
    if (e) return e;
    for (struct append *a = g->first; a; a = a->next) patch_headers(a);
    e = file_pwritev(g->segment->log, g->iov, g->iov_count, g->segment->size);
    for (size_t i = 0; !e && i < g->aborted_count; i++) e = plog_add_aborted(pl, g->segment, &g->aborted[i]);
    if (!e) return OK;
    enum err undone = undo_write(pl); /* else torn bytes stay behind the end: no way to go on but when that passes */
    return undone && !plog_error_passes(undone) ? ERR_IO : e;
}

/* ---- A group: published, or taken back */

static void publish_replica(struct plog *pl, struct segment *seg, const struct append *a, int64_t pos)
{
    for (size_t at = 0; at < a->size;) {
        struct batch_info b;
        enum err e = batch_parse_header(&b, a->data + at, (int64_t)(a->size - at));
        ASSERT(e == OK);
        segment_index_batch(seg, &b, pos + (int64_t)at, pl->config.index_interval_bytes);
        if (b.leader_epoch > epochs_latest(&pl->epochs)) epochs_assign(&pl->epochs, b.leader_epoch, b.base_offset);
        at += (size_t)b.size;
    }
}

static void hint_appended(struct plog *pl, const struct segment *seg, int64_t end)
{
    pl->hints[pl->hint_next++ % HINTS_APPENDED] =
        (struct hint){.offset = end, .base_offset = seg->base_offset, .pos = (int32_t)seg->size};
}

/* Under the lock.  True when leader-epoch-checkpoint is to be written. */
static bool group_publish(struct group *g, struct plog *pl)
{
    struct segment *seg = g->segment;
    for (struct append *a = g->first; a; a = a->next) {
        if (a->kerr != KERR_NONE) continue;
        if (a->origin == APPEND_REPLICA) {
            publish_replica(pl, seg, a, seg->size);
        } else {
            segment_index_batch(seg, &a->info, seg->size, pl->config.index_interval_bytes);
            if (a->leader_epoch > epochs_latest(&pl->epochs))
                epochs_assign(&pl->epochs, a->leader_epoch, a->base_offset);
        }
        seg->size += (int64_t)a->size;
        seg->modified_ms = a->now_ms;
    }
    segment_note_use(pl, seg);
    seg->unsynced = seg->indexes_unsynced = true;
    pl->size += g->bytes;
    producers_publish(pl->producers, g->end);
    hint_appended(pl, seg, g->end);
    atomic_store_explicit(&pl->end, g->end, memory_order_release);
    return !pl->epochs_file; /* a first file is made at once, else the next flush writes what is new */
}

/* Under the lock. */
static void group_take_back(struct group *g, struct plog *pl)
{
    producers_rollback(pl->producers);
    int64_t end = plog_end(pl);
    for (struct append *a = g->first; a; a = a->next) {
        bool of_lost = a->kerr == KERR_DUPLICATE_SEQUENCE_NUMBER && a->last_offset >= end;
        if (a->kerr == KERR_NONE || of_lost) a->kerr = KERR_KAFKA_STORAGE_ERROR;
    }
    /* What is queued behind goes too: written alone, a producer's next batch would be out of sequence. */
    for (struct append *a = pl->queue; a; a = a->next) a->kerr = KERR_KAFKA_STORAGE_ERROR;
    *g->last = pl->queue;
    pl->queue = NULL;
    pl->queue_tail = &pl->queue;
}

/* For want of a descriptor, which a worker can find: everything is as before the group was taken.  Under the lock. */
static void group_put_back(struct group *g, struct plog *pl)
{
    producers_rollback(pl->producers);
    *g->last = pl->queue;
    if (!pl->queue) pl->queue_tail = g->last;
    pl->queue = g->first;
    g->first = NULL;
    g->last = &g->first;
    g->bytes = 0;
    pl->stalled = true;
    pl->stall_turn = atomic_load(&pl->files->turn);
    pl->stalls++;
}

/* With the role, without the lock. */
static void save_index_tail(struct plog *pl, struct index *ix)
{
    /* A failure shows at the next flush at the latest; until then the entries stay in memory. */
    if (!index_wants_write(ix) || index_write(ix) != OK) return;
    pthread_mutex_lock(&pl->lock);
    index_wrote(ix);
    pthread_mutex_unlock(&pl->lock);
}

/* Enters and leaves with lock and role; what it does is seldom needed. */
static void after_publish(struct plog *pl, bool write_epochs)
{
    struct segment *seg = active_segment(pl);
    if (!write_epochs && !index_wants_write(&seg->offsets) && !index_wants_write(&seg->times)) return;
    pthread_mutex_unlock(&pl->lock);
    save_index_tail(pl, &seg->offsets);
    save_index_tail(pl, &seg->times);
    /* Recovery finds the epoch in the batches again: a failure here costs nothing yet. */
    if (write_epochs && plog_begin_epochs(pl) != OK)
        LOG_LIMITED(LOG_LEVEL_WARN, "epochs_not_written", "dir=%s", pl->dir);
    pthread_mutex_lock(&pl->lock);
}

/* Which appends may be acknowledged only when they are on the disk; also duplicates of batches that are not there yet.
 * Under the lock. */
static void group_mark_flushes(struct group *g, struct plog *pl)
{
    for (struct append *a = g->first; a; a = a->next) {
        bool is_there = a->kerr == KERR_NONE || a->kerr == KERR_DUPLICATE_SEQUENCE_NUMBER;
        a->must_flush = is_there && flush_is_due(pl, a->last_offset + 1);
        pl->flush_wanted |= a->must_flush;
    }
}

/* Whether to call a worker.  Under the lock, with the role. */
static bool work_is_due(struct plog *pl)
{
    if (pl->work_wanted || !pl->events.wants_work) return false;
    pl->work_wanted = pl->flush_wanted || pl->stalled || has_closed_unsynced(pl);
    return pl->work_wanted;
}

static void group_complete(struct group *g, int64_t start)
{
    for (struct append *a = g->first, *next; a; a = next) {
        next = a->next; /* `done` may free it */
        a->next = NULL;
        a->log_start = start;
        buf_unref(a->buf);
        a->done(a);
    }
}

/* What a group's end is to be told about; without lock and role. */
static void group_tell(struct group *g, struct plog *pl, enum err e, bool failed, bool work)
{
    if (e)
        LOG_LIMITED(LOG_LEVEL_ERROR, "append_failed", "dir=%s end=%" PRId64 " error=%s", pl->dir, plog_end(pl),
                    err_name(e));
    if (failed) plog_tell_failed(pl, e);
    if (e == ERR_FULL && pl->events.full) pl->events.full(pl->events.arg);
    if (work) pl->events.wants_work(pl->events.arg); /* first: the disk takes longest */
    if (!e && g->bytes > 0 && pl->events.advanced) pl->events.advanced(pl->events.arg, g->end);
    group_complete(g, plog_start(pl));
}

/* ---- The writer role */

/* Under the lock.  Whoever gets it writes what is queued. */
static void role_give_up(struct plog *pl)
{
    pl->writing = false;
    if (pl->role_wanted) pthread_cond_broadcast(&pl->role_free);
}

/* Writes one group.  Enters with lock and role, leaves with the lock alone: the role is free while callbacks run, so
 * that other threads' appends do not wait for them. */
static void write_group(struct plog *pl)
{
    struct group g;
    group_init(&g, pl);
    while (pl->queue && g.iov_count < GROUP_APPENDS_MAX && group_take_one(&g, pl)) {
    }
    pthread_mutex_unlock(&pl->lock);
    enum err e = g.bytes > 0 ? group_write(&g, pl) : OK;
    pthread_mutex_lock(&pl->lock);
    bool failed = e && !plog_error_passes(e) && !pl->failed, work = false;
    if (failed) pl->failed = e; /* before anybody else can write */
    if (e == ERR_TOO_MANY && pl->files && pl->events.wants_work && pl->stalls < STALLS_MAX) {
        group_put_back(&g, pl);
        work = work_is_due(pl);
        e = OK;
    } else if (e) {
        pl->stalls = 0;
        group_take_back(&g, pl);
    } else {
        pl->stalls = 0;
        if (g.bytes > 0) after_publish(pl, group_publish(&g, pl));
        group_mark_flushes(&g, pl);
        work = work_is_due(pl);
    }
    role_give_up(pl);
    pl->callers++; /* the log must not go away under the callbacks' hands */
    pthread_mutex_unlock(&pl->lock);

    mem_free(g.snapshot);
    mem_free(g.aborted);
    group_tell(&g, pl, e, failed, work);
    pthread_mutex_lock(&pl->lock);
    if (--pl->callers == 0 && pl->role_wanted) pthread_cond_broadcast(&pl->role_free);
}

/* Enters with lock and role, leaves without both, and with the queue empty or in somebody else's hands. */
static void role_release(struct plog *pl)
{
    while (pl->queue && !pl->role_wanted && !pl->stalled) {
        write_group(pl);
        if (pl->writing || !pl->queue || pl->role_wanted || pl->stalled) {
            pthread_mutex_unlock(&pl->lock);
            return;
        }
        pl->writing = true;
    }
    role_give_up(pl);
    pthread_mutex_unlock(&pl->lock);
}

enum err exclusive_begin(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    pl->role_wanted++;
    while (pl->writing) pthread_cond_wait(&pl->role_free, &pl->lock);
    pl->role_wanted--;
    pl->writing = true;
    bool retired = pl->retired;
    pthread_mutex_unlock(&pl->lock);
    if (!retired) return OK;
    exclusive_end(pl);
    return ERR_CLOSED;
}

void exclusive_end(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    role_release(pl);
}

enum err exclusive_begin_alone(struct plog *pl)
{
    for (;;) {
        enum err e = exclusive_begin(pl);
        if (e) return e;
        pthread_mutex_lock(&pl->lock);
        bool claimed = pl->claimed;
        pthread_mutex_unlock(&pl->lock);
        if (!claimed) return OK; /* a claim is made with the role */
        exclusive_end(pl);
        pthread_mutex_lock(&pl->lock);
        while (pl->claimed) pthread_cond_wait(&pl->role_free, &pl->lock);
        pthread_mutex_unlock(&pl->lock);
    }
}

enum err exclusive_begin_settled(struct plog *pl)
{
    enum err e = exclusive_begin_alone(pl);
    if (e || (!pl->exchange && !pl->uncut && !pl->torn)) return e;
    pthread_mutex_lock(&pl->lock);
    e = pl->failed;
    pthread_mutex_unlock(&pl->lock);
    if (!e && pl->torn) e = undo_write(pl);
    if (!e) e = plog_cut_go_on(pl);
    if (!e) e = plog_exchange_go_on(pl);
    if (!e) return OK;
    bool failed = !plog_error_passes(e) && plog_set_failed(pl, e);
    exclusive_end(pl);
    if (failed) plog_tell_failed(pl, e);
    return e;
}

enum err files_claim(struct plog *pl)
{
    enum err e = exclusive_begin_settled(pl);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    pl->claimed = true;
    role_release(pl);
    return OK;
}

void files_release(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    ASSERT(pl->claimed);
    pl->claimed = false;
    pthread_cond_broadcast(&pl->role_free);
    pthread_mutex_unlock(&pl->lock);
}

void exclusive_last(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    pl->role_wanted++;
    while (pl->writing || pl->claimed || pl->callers > 0) pthread_cond_wait(&pl->role_free, &pl->lock);
    ASSERT(!pl->queue);
    pthread_mutex_unlock(&pl->lock);
}

void plog_append(struct plog *pl, struct append *a)
{
    if (a->buf) buf_ref(a->buf);
    a->next = NULL;
    a->kerr = KERR_NONE;
    a->must_flush = false;
    a->log_append_time_ms = -1;
    pthread_mutex_lock(&pl->lock);
    *pl->queue_tail = a;
    pl->queue_tail = &a->next;
    if (pl->writing || pl->stalled) {
        pthread_mutex_unlock(&pl->lock);
        return;
    }
    pl->writing = true;
    role_release(pl);
}

/* False: nothing is stalled. */
static bool resume_once(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    bool stalled = pl->stalled;
    uint32_t turn = pl->stall_turn;
    pthread_mutex_unlock(&pl->lock);
    if (!stalled) return false;
    pl->files->make_room(pl->files->arg, turn);
    pthread_mutex_lock(&pl->lock);
    pl->role_wanted++;
    while (pl->writing) pthread_cond_wait(&pl->role_free, &pl->lock);
    pl->role_wanted--;
    pl->writing = true;
    pl->stalled = false;
    role_release(pl); /* writes the queue */
    return true;
}

/* Others may be faster to take what room there is: then once more, until it counts as an error. */
void plog_resume(struct plog *pl)
{
    while (resume_once(pl)) {
    }
}

enum err plog_retire(struct plog *pl, const char *to)
{
    enum err e = exclusive_begin_alone(pl);
    if (e) return e;
    e = fs_rename(pl->fs, pl->dir, to);
    if (e && e != ERR_NOT_FOUND) { /* it is where it was, and may be retired again */
        exclusive_end(pl);
        return e;
    }
    pthread_mutex_lock(&pl->lock);
    pl->retired = true;
    pl->stalled = false;
    hints_clear(pl); /* what readers are about to open is not lent to the log */
    pthread_mutex_unlock(&pl->lock);
    exclusive_end(pl);
    return e;
}

bool plog_set_failed(struct plog *pl, enum err e)
{
    pthread_mutex_lock(&pl->lock);
    bool first = !pl->failed && !pl->retired;
    if (first) pl->failed = e;
    pthread_mutex_unlock(&pl->lock);
    return first;
}

enum err plog_fail(struct plog *pl, enum err e)
{
    bool first = plog_set_failed(pl, e);
    if (first) plog_tell_failed(pl, e);
    pthread_mutex_lock(&pl->lock);
    bool retired = pl->retired;
    pthread_mutex_unlock(&pl->lock);
    return retired ? ERR_CLOSED : e; /* it failed because its directory is gone */
}
