/* retain.c: upkeep: what must reach the disk, what is old enough to go.  Everything here runs on workers.
 *
 * THE ORDER OF WRITES AND SYNCS.  An append is written, and published, without a sync.  A roll makes the new segment's
 * files and writes the producer snapshot of its start, without a sync.  A flush syncs, from the oldest segment that may
 * not be on the disk, the log, the transaction index and the snapshot of its start, and of closed segments the indexes,
 * after writing the entries that are still in memory; then leader-epoch-checkpoint when it changed; then the directory
 * when files were made in it; and only then moves the recovery point.  So after a crash nothing below the recovery
 * point needs to be looked at, but for the segment that holds it, which recovery reads whole.  A close counts the
 * active segment as closed. */
#include "plog/plog_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "plog/checkpoint.h"

/* ---- Flushing */

/* What a flush works on, taken with the writer role held. */
struct flush {
    struct segment **segments;  /* references, oldest first */
    size_t count, closed_count; /* the closed ones come first; the active one may follow */
    int64_t end;                /* where the recovery point goes */
    uint32_t generation, files_made;
    bool closing, epochs, dir, parent;
};

/* Writes the entries that are still in memory. */
static enum err flush_index_tails(struct plog *pl, struct segment *seg)
{
    enum err e = segment_ensure_open(pl, seg);
    if (!e) e = index_write(&seg->offsets);
    if (!e) e = index_write(&seg->times);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    index_wrote(&seg->offsets);
    index_wrote(&seg->times);
    pthread_mutex_unlock(&pl->lock);
    return OK;
}

static enum err flush_begin(struct flush *fl, struct plog *pl, bool with_active)
{
    enum err e = OK;
    exclusive_begin(pl);
    size_t end = pl->segment_count, active = end - 1, first = active;
    if (!with_active || !active_segment(pl)->unsynced) end--;
    while (first > 0 && pl->segments[first - 1]->unsynced) first--;
    fl->segments = mem_zalloc(end - first + 1, sizeof(struct segment *));
    for (size_t i = first; i < end && !e; i++) {
        bool closed = i < active || pl->closing;
        e = closed ? flush_index_tails(pl, pl->segments[i]) : segment_ensure_open(pl, pl->segments[i]);
        if (!e) fl->segments[fl->count++] = segment_ref(pl->segments[i]);
    }
    fl->closed_count = active - first;
    fl->end = with_active ? plog_end(pl) : active_segment(pl)->base_offset;
    fl->closing = pl->closing;
    fl->epochs = fl->count > 0 && pl->epochs_unsynced;
    if (fl->epochs) pl->epochs_unsynced = false;
    fl->generation = pl->generation;
    fl->files_made = pl->files_made;
    fl->dir = fl->count > 0 && (fl->epochs || pl->files_made != pl->files_synced);
    fl->parent = fl->count > 0 && pl->parent_unsynced;
    exclusive_end(pl);
    return e;
}

/* Syncs a small file that was written some time ago; owns the path. */
static enum err sync_path(struct plog *pl, char *path)
{
    struct file *f;
    enum err e = fs_open(pl->fs, path, FS_READ | FS_WRITE, &f);
    mem_free(path);
    if (e) return e == ERR_NOT_FOUND ? OK : e;
    e = file_sync(f);
    file_unref(f);
    return e;
}

static enum err sync_segment(struct plog *pl, struct segment *seg, bool with_indexes)
{
    pthread_mutex_lock(&pl->lock);
    struct txnindex txns = seg->txns;
    /* Of the active segment recovery makes them anew.  Empty ones have nothing to sync but their being there, which is
     * the directory's. */
    struct file *offsets = with_indexes && seg->offsets.written ? seg->offsets.file : NULL;
    struct file *times = with_indexes && seg->times.written ? seg->times.file : NULL;
    bool snapshot = seg->snapshot_unsynced;
    pthread_mutex_unlock(&pl->lock);
    enum err e = file_sync(seg->log);
    if (!e && offsets) e = file_sync(offsets);
    if (!e && times) e = file_sync(times);
    if (!e && txns.path) e = txnindex_flush(&txns);
    if (!e && snapshot) e = sync_path(pl, segment_path(pl->dir, seg->base_offset, SEGMENT_SNAPSHOT));
    return e;
}

static enum err sync_small_files(const struct flush *fl, struct plog *pl)
{
    enum err e = OK;
    if (fl->closing && fl->count > 0) e = sync_path(pl, segment_path(pl->dir, fl->end, SEGMENT_SNAPSHOT));
    if (!e && fl->epochs) e = sync_path(pl, plog_path(pl, "leader-epoch-checkpoint"));
    if (!e && fl->parent) e = sync_path(pl, plog_path(pl, PARTITION_METADATA));
    return e;
}

static enum err sync_dirs(const struct flush *fl, struct plog *pl)
{
    enum err e = fl->dir ? fs_sync_dir(pl->fs, pl->dir) : OK;
    if (e || !fl->parent) return e;
    char *parent = mem_strdup(pl->dir), *slash = strrchr(parent, '/');
    if (slash && slash != parent) {
        *slash = '\0';
        e = fs_sync_dir(pl->fs, parent);
    }
    mem_free(parent);
    return e;
}

/* What was appended, rolled or cut meanwhile is not covered. */
static void flush_end(const struct flush *fl, struct plog *pl)
{
    exclusive_begin(pl);
    pthread_mutex_lock(&pl->lock);
    bool all = fl->end == plog_end(pl);
    if (fl->generation == pl->generation) {
        for (size_t i = 0; i < fl->count; i++) {
            struct segment *seg = fl->segments[i];
            bool closed = i < fl->closed_count || fl->closing;
            seg->snapshot_unsynced = false;
            if (closed || all) seg->unsynced = false;
            if (closed) seg->indexes_unsynced = false;
        }
        int64_t known = atomic_load_explicit(&pl->recovery_point, memory_order_relaxed);
        atomic_store_explicit(&pl->recovery_point, MAX(known, fl->end), memory_order_release);
        if (fl->dir) pl->files_synced = fl->files_made;
        if (fl->parent) pl->parent_unsynced = false;
        if (all) pl->written_behind = active_segment(pl)->size;
    }
    pthread_mutex_unlock(&pl->lock);
    exclusive_end(pl);
}

static enum err flush_segments(struct plog *pl, bool with_active)
{
    struct flush fl = {.segments = NULL};
    enum err e = flush_begin(&fl, pl, with_active);
    for (size_t i = 0; i < fl.count && !e; i++) e = sync_segment(pl, fl.segments[i], i < fl.closed_count || fl.closing);
    if (!e) e = sync_small_files(&fl, pl);
    if (!e) e = sync_dirs(&fl, pl);
    if (!e) flush_end(&fl, pl);
    for (size_t i = 0; i < fl.count; i++) segment_unref(fl.segments[i]);
    mem_free(fl.segments);
    return e && !plog_error_passes(e) ? plog_fail(pl, e) : e;
}

enum err plog_flush(struct plog *pl)
{
    enum err e = flush_segments(pl, true);
    if (!e) atomic_store_explicit(&pl->last_flush_ms, clock_wall_ms(pl->clock), memory_order_relaxed);
    return e;
}

bool plog_flush_due(struct plog *pl, int64_t now_ms)
{
    int64_t unflushed = plog_end(pl) - plog_recovery_point(pl);
    if (unflushed <= 0) return false;
    if (unflushed >= atomic_load_explicit(&pl->flush_messages, memory_order_relaxed)) return true;
    int64_t flush_ms = atomic_load_explicit(&pl->flush_ms, memory_order_relaxed);
    return flush_ms != INT64_MAX && now_ms - atomic_load_explicit(&pl->last_flush_ms, memory_order_relaxed) >= flush_ms;
}

enum err plog_work(struct plog *pl)
{
    exclusive_begin(pl);
    pthread_mutex_lock(&pl->lock);
    struct segment *seg = segment_ref(active_segment(pl));
    int64_t from = pl->written_behind, to = seg->size;
    pl->written_behind = to;
    pthread_mutex_unlock(&pl->lock);
    bool closed = has_closed_unsynced(pl);
    exclusive_end(pl);

    if (seg->log && to > from) file_write_behind(seg->log, from, to - from);
    segment_unref(seg);
    enum err e = closed ? flush_segments(pl, false) : OK;
    pthread_mutex_lock(&pl->lock);
    pl->work_wanted = false; /* what came up meanwhile, the next append tells */
    pthread_mutex_unlock(&pl->lock);
    return e;
}

/* ---- Deleting */

static enum err largest_timestamp(struct plog *pl, struct segment *seg, int64_t *out)
{
    enum err e = plog_load_max_time(pl, seg);
    if (e == ERR_CORRUPT) {
        mark_indexes_bad(pl, seg);
        e = segment_ensure_open(pl, seg);
    }
    if (!e) *out = seg->max_time.timestamp >= 0 ? seg->max_time.timestamp : seg->modified_ms;
    return e;
}

/* One round of upkeep. */
struct upkeep {
    struct plog_config config; /* as it was when the round began */
    int64_t now_ms, below;
    int64_t next_ms; /* when there may be something to do again */
};

static void upkeep_again_at(struct upkeep *u, int64_t ms, int64_t after_ms)
{
    int64_t at;
    if (__builtin_add_overflow(ms, after_ms, &at)) return;
    u->next_ms = MIN(u->next_ms, at);
}

/* A last segment without data is never deleted, and nothing at or above `below`. */
static bool deletable(const struct upkeep *u, const struct plog *pl, size_t at)
{
    if (at >= pl->segment_count || segment_end(pl, at) > u->below) return false;
    return at + 1 < pl->segment_count || pl->segments[at]->size > 0;
}

static size_t count_below_start(const struct upkeep *u, const struct plog *pl)
{
    size_t n = 0;
    while (n + 1 < pl->segment_count && deletable(u, pl, n) && segment_end(pl, n) <= plog_start(pl)) n++;
    return n;
}

static size_t count_over_size(const struct upkeep *u, const struct plog *pl)
{
    size_t n = 0;
    if (!u->config.cleanup_delete || u->config.retention_bytes < 0) return 0;
    int64_t excess = pl->size - u->config.retention_bytes;
    while (deletable(u, pl, n) && excess - pl->segments[n]->size >= 0) excess -= pl->segments[n++]->size;
    return n;
}

static enum err count_expired(struct upkeep *u, struct plog *pl, size_t *count)
{
    *count = 0;
    int64_t keep_ms = u->config.retention_ms;
    if (!u->config.cleanup_delete || keep_ms < 0) return OK;
    for (size_t n = 0; n < pl->segment_count; n++) {
        int64_t newest;
        enum err e = largest_timestamp(pl, pl->segments[n], &newest);
        if (e) return e;
        if (u->now_ms - newest <= keep_ms) {
            if (pl->segments[n]->size > 0) upkeep_again_at(u, newest, keep_ms + 1);
            return OK;
        }
        if (!deletable(u, pl, n)) return OK;
        *count = n + 1;
    }
    return OK;
}

static enum err delete_oldest(const struct upkeep *u, struct plog *pl, size_t count, const char *reason)
{
    if (count == 0) return OK;
    if (count == pl->segment_count) { /* one segment there must be */
        enum err e = plog_roll_at_end(pl);
        if (e) return e;
    }
    int64_t start = MAX(pl->segments[count]->base_offset, plog_start(pl));
    LOG_INFO("segments_deleted", "dir=%s count=%zu first=%" PRId64 " new_start=%" PRId64 " reason=%s", pl->dir, count,
             pl->segments[0]->base_offset, start, reason);
    /* Readers are turned away before the files go. */
    pthread_mutex_lock(&pl->lock);
    atomic_store_explicit(&pl->start, start, memory_order_release);
    bool epochs_changed = epochs_truncate_start(&pl->epochs, start);
    pthread_mutex_unlock(&pl->lock);
    enum err e = epochs_changed ? plog_write_epochs(pl) : OK;
    return e ? e : plog_drop_segments(pl, count, u->now_ms);
}

static enum err delete_segments(struct upkeep *u, struct plog *pl)
{
    enum err e = delete_oldest(u, pl, count_below_start(u, pl), "below_log_start");
    if (!e) e = delete_oldest(u, pl, count_over_size(u, pl), "retention_bytes");
    size_t expired = 0;
    if (!e) e = count_expired(u, pl, &expired);
    if (!e) e = delete_oldest(u, pl, expired, "retention_ms");
    return e;
}

/* Kafka rolls by time only when something is appended; without that, an idle log's last records would neither expire
 * nor be compacted in time. */
static enum err roll_idle(struct upkeep *u, struct plog *pl)
{
    struct segment *seg = active_segment(pl);
    if (seg->size == 0 || u->config.segment_ms < 0) return OK;
    int64_t after_ms = u->config.segment_ms - seg->jitter_ms;
    if (u->now_ms - seg->created_ms > after_ms) return plog_roll_at_end(pl);
    upkeep_again_at(u, seg->created_ms, after_ms + 1);
    return OK;
}

/* Removes the files of deleted segments whose time has come; without the writer role, since a big file takes long. */
static enum err remove_doomed(struct upkeep *u, struct plog *pl)
{
    enum err e = OK;
    for (size_t i = 0; !e;) {
        pthread_mutex_lock(&pl->lock);
        bool more = i < pl->doomed_count, due = false;
        struct doomed d = {0};
        if (more) {
            d = pl->doomed[i];
            due = d.due_ms <= u->now_ms;
            if (due) pl->doomed[i] = pl->doomed[--pl->doomed_count];
        }
        pthread_mutex_unlock(&pl->lock);
        if (!more) break;
        if (due) {
            e = segment_remove_files(pl->fs, pl->dir, d.base_offset, SEGMENT_DELETED);
        } else {
            upkeep_again_at(u, d.due_ms, 0);
            i++;
        }
    }
    return e;
}

enum err plog_retain(struct plog *pl, int64_t now_ms, int64_t below, int64_t *next_ms)
{
    struct upkeep u = {.now_ms = now_ms, .below = below, .next_ms = INT64_MAX};
    *next_ms = INT64_MAX;
    exclusive_begin(pl);
    pthread_mutex_lock(&pl->lock);
    enum err failed = pl->failed;
    u.config = pl->config;
    int64_t expire_ms = producers_expire(pl->producers, now_ms, u.config.producer_expiration_ms);
    pthread_mutex_unlock(&pl->lock);
    upkeep_again_at(&u, expire_ms, 0);
    enum err e = failed ? failed : roll_idle(&u, pl);
    if (!e) e = delete_segments(&u, pl);
    bool closed = has_closed_unsynced(pl);
    exclusive_end(pl);

    if (!e) e = remove_doomed(&u, pl);
    if (e && !plog_error_passes(e)) (void)plog_fail(pl, e);
    if (!e && closed) e = flush_segments(pl, false);
    *next_ms = u.next_ms;
    return e;
}

enum err plog_set_start(struct plog *pl, int64_t offset)
{
    if (offset > plog_end(pl)) return ERR_RANGE;
    exclusive_begin(pl);
    pthread_mutex_lock(&pl->lock);
    bool raised = offset > plog_start(pl), epochs_changed = false;
    if (raised) {
        atomic_store_explicit(&pl->start, offset, memory_order_release);
        epochs_changed = epochs_truncate_start(&pl->epochs, offset);
    }
    pthread_mutex_unlock(&pl->lock);
    enum err e = epochs_changed ? plog_write_epochs(pl) : OK;
    exclusive_end(pl);
    return e;
}

enum err plog_epoch_begin(struct plog *pl, int32_t epoch)
{
    exclusive_begin(pl);
    pthread_mutex_lock(&pl->lock);
    bool changed = epochs_assign(&pl->epochs, epoch, plog_end(pl));
    pthread_mutex_unlock(&pl->lock);
    enum err e = changed ? plog_write_epochs(pl) : OK;
    exclusive_end(pl);
    return e;
}
