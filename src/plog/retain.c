/* retain.c: which segments are old enough to go, and the rest of a log's upkeep.  Everything here runs on workers.
 *
 * Deleting takes three steps: readers are turned away (start), the files get the
 * suffix .deleted, and after file.delete.delay.ms they are removed, if the process lives; else at the next opening. */
#include "plog/plog_internal.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/mem.h"
#include "plog/retention.h"

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

/* The segment that is being judged. */
struct judged {
    struct plog *pl;
    struct segment *seg;
};

static enum err judged_newest(void *arg, int64_t *newest_ms)
{
    struct judged *j = arg;
    return largest_timestamp(j->pl, j->seg, newest_ms);
}

/* How many of the oldest segments go for each of the reasons, which come in this order. */
struct going {
    size_t start, size, time;
};

static enum err count_going(struct upkeep *u, struct plog *pl, struct going *out)
{
    const struct retention_rules rules = {
        .cleanup_delete = u->config.cleanup_delete,
        .retention_ms = u->config.retention_ms,
        .retention_bytes = u->config.retention_bytes,
        .now_ms = u->now_ms,
        .below = u->below,
        .log_start = plog_start(pl),
    };
    struct retention r;
    struct retention_opinion o = {.verdict = RETENTION_GO_START};
    retention_begin(&r, &rules, pl->size);
    *out = (struct going){0};
    for (size_t n = 0; n < pl->segment_count && retention_goes(o.verdict); n++) {
        struct judged j = {pl, pl->segments[n]};
        const struct retention_segment seg = {
            .end = segment_end(pl, n), .size = pl->segments[n]->size, .last = n + 1 == pl->segment_count};
        enum err e = retention_next(&r, &seg, judged_newest, &j, &o);
        if (e) return e;
        out->start += o.verdict == RETENTION_GO_START;
        out->size += o.verdict == RETENTION_GO_SIZE;
        out->time += o.verdict == RETENTION_GO_TIME;
        /* One that is due already waits for something else. */
        if (!retention_goes(o.verdict) && o.due_ms > u->now_ms && seg.size > 0) upkeep_again_at(u, o.due_ms, 0);
    }
    return OK;
}

static enum err delete_oldest(const struct upkeep *u, struct plog *pl, size_t count, const char *reason)
{
    if (count == 0) return OK;
    if (count == pl->segment_count) { /* one segment there must be */
        enum err e = plog_roll_at_end(pl);
        if (e && !plog_error_passes(e)) return e;
        if (e && --count == 0) return e; /* no room for a new one: the last one stays */
    }
    int64_t start = MAX(pl->segments[count]->base_offset, plog_start(pl));
    LOG_INFO("segments_deleted", "dir=%s count=%zu first=%" PRId64 " new_start=%" PRId64 " reason=%s", pl->dir, count,
             pl->segments[0]->base_offset, start, reason);
    /* Readers are turned away before the files go. */
    pthread_mutex_lock(&pl->lock);
    atomic_store_explicit(&pl->start, start, memory_order_release);
    bool epochs_changed = epochs_truncate_start(&pl->epochs, start);
    pthread_mutex_unlock(&pl->lock);
    /* On a full disk the file is behind for a while: what it says of offsets below the start, opening ignores. */
    enum err e = epochs_changed ? plog_begin_epochs(pl) : OK;
    return e && !plog_error_passes(e) ? e : plog_drop_segments(pl, count, u->now_ms);
}

static enum err delete_segments(struct upkeep *u, struct plog *pl)
{
    struct going going;
    enum err e = count_going(u, pl, &going);
    if (!e) e = delete_oldest(u, pl, going.start, "below_log_start");
    if (!e) e = delete_oldest(u, pl, going.size, "retention_bytes");
    if (!e) e = delete_oldest(u, pl, going.time, "retention_ms");
    return e;
}

/* Kafka rolls by time only when something is appended; without that, an idle log's last records would neither expire
 * nor be compacted in time. */
static enum err roll_idle(struct upkeep *u, struct plog *pl)
{
    struct segment *seg = active_segment(pl);
    if (seg->size == 0 || u->config.segment_ms < 0) return OK;
    int64_t last_ms = u->config.segment_ms - seg->jitter_ms; /* of its life */
    if (u->now_ms - seg->created_ms > last_ms) return plog_roll_at_end(pl);
    if (last_ms < INT64_MAX) upkeep_again_at(u, seg->created_ms, last_ms + 1);
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
    enum err e = exclusive_begin_settled(pl);
    if (plog_error_passes(e)) { /* what can go makes room for it */
        enum err removed = remove_doomed(&u, pl);
        *next_ms = u.next_ms;
        return removed && !plog_error_passes(removed) ? plog_fail(pl, removed) : e;
    }
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    enum err failed = pl->failed;
    u.config = pl->config;
    int64_t expire_ms = producers_expire(pl->producers, now_ms, u.config.producer_expiration_ms);
    pthread_mutex_unlock(&pl->lock);
    upkeep_again_at(&u, expire_ms, 0);
    e = failed ? failed : roll_idle(&u, pl);
    enum err rolled = e;
    if (!e || plog_error_passes(e)) e = delete_segments(&u, pl); /* which makes room for what could not be written */
    if (!e) e = rolled;
    bool closed = has_closed_unsynced(pl);
    exclusive_end(pl);

    if (!e || plog_error_passes(e)) {
        enum err removed = remove_doomed(&u, pl);
        if (removed) e = removed;
    }
    if (e && !plog_error_passes(e)) e = plog_fail(pl, e);
    if (!e && closed) e = plog_flush_segments(pl, FLUSH_CLOSED);
    *next_ms = u.next_ms;
    return e;
}

enum err plog_set_start(struct plog *pl, int64_t offset)
{
    if (offset > plog_end(pl)) return ERR_RANGE;
    enum err e = exclusive_begin(pl);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    bool raised = offset > plog_start(pl), epochs_changed = false;
    if (raised) {
        atomic_store_explicit(&pl->start, offset, memory_order_release);
        epochs_changed = epochs_truncate_start(&pl->epochs, offset);
    }
    pthread_mutex_unlock(&pl->lock);
    e = epochs_changed ? plog_begin_epochs(pl) : OK;
    if (plog_error_passes(e)) e = OK; /* a full disk: the start holds, and the file follows with the next change */
    exclusive_end(pl);
    return e;
}

enum err plog_epoch_begin(struct plog *pl, int32_t epoch)
{
    enum err e = exclusive_begin(pl);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    bool changed = epochs_assign(&pl->epochs, epoch, plog_end(pl));
    pl->led_epoch = epoch;
    pthread_mutex_unlock(&pl->lock);
    e = changed ? plog_begin_epochs(pl) : OK;
    exclusive_end(pl);
    return e;
}
