/* truncate.c: cutting a log's end, as a follower does whose leader knows better, and beginning it anew where the leader
 * has nothing left of what it lacks.  Workers, with the writer role.
 *
 * The end goes down first, so that no reader looks for what is being cut; files follow from the newest segment back,
 * each of them durably before the next, so that a crash in between leaves a log without a hole, which recovery takes as
 * it is; and nothing is written in the place of what was cut while a loss of power could bring that back (flush.c).
 *
 * All that can be made ready is ready before the end goes down: producers' state, and the first segment of a log that
 * is cut below its first.  What then cannot be done for want of room or descriptors is done by whoever next has the log
 * to himself (exclusive_begin_settled()); until then nothing is appended or flushed. */
#include "plog/plog_internal.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/mem.h"
#include "plog/scan.h"

/* Removes the newest segment's files, durably, and takes it out. */
static enum err remove_newest(struct plog *pl)
{
    struct segment *seg = active_segment(pl);
    enum err e = segment_remove_files(pl->fs, pl->dir, seg->base_offset, "");
    if (!e) e = fs_sync_dir(pl->fs, pl->dir);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    pl->segment_count--;
    pl->size -= seg->size;
    pthread_mutex_unlock(&pl->lock);
    segment_unref(seg);
    return OK;
}

/* What is known of the timestamps of a segment that has been cut, and is written to from now on: those of its first
 * batch, and the largest: the time index's last entry, or of a batch behind it. */
static enum err times_anew(struct segment *seg, struct max_time *out, int64_t *first)
{
    *out = MAX_TIME_NONE;
    *first = SEGMENT_TIME_NONE;
    if (index_count(&seg->times) > 0)
        *out = (struct max_time){seg->times.last.key, seg->base_offset + seg->times.last.value};
    struct scan sc;
    struct batch_info b;
    enum err e;
    scan_init(&sc, seg->log, 0, seg->size, false);
    e = scan_header(&sc, &b);
    if (!e) *first = b.max_timestamp;
    sc.pos = index_count(&seg->offsets) ? seg->offsets.last.value : 0;
    while (!e && !(e = scan_header(&sc, &b)))
        if (b.max_timestamp > out->timestamp) *out = (struct max_time){b.max_timestamp, batch_last_offset(&b)};
    scan_fini(&sc);
    return e == ERR_NOT_FOUND ? OK : e;
}

/* Cuts files of the active segment at its size. */
static enum err cut_files(struct plog *pl, struct segment *seg, int64_t offset)
{
    int64_t pos = seg->size;
    struct index offsets = seg->offsets, times = seg->times;
    enum err e = file_truncate(seg->log, pos);
    if (!e) {
        e = file_sync(seg->log);
        if (plog_error_passes(e)) e = ERR_CORRUPT; /* what it was to write is lost: it does not pass, for this log */
    }
    if (!e) e = index_truncate(&offsets, offset - seg->base_offset);
    if (!e) e = index_truncate(&times, offset - seg->base_offset);
    struct txnindex txns = seg->txns;
    if (!e && seg->txns_there && !txns.path) {
        char *path = segment_path(pl->dir, seg->base_offset, SEGMENT_TXNS);
        e = txnindex_open(&txns, pl->fs, path);
        mem_free(path);
    }
    if (!e && txns.path) e = txnindex_truncate(&txns, offset);
    pthread_mutex_lock(&pl->lock);
    seg->offsets = offsets;
    seg->times = times;
    seg->txns = txns;
    pthread_mutex_unlock(&pl->lock);
    struct max_time max_time = MAX_TIME_NONE;
    int64_t first_timestamp = SEGMENT_TIME_NONE;
    if (!e) e = times_anew(seg, &max_time, &first_timestamp);
    pthread_mutex_lock(&pl->lock);
    seg->max_time = max_time;
    seg->max_time_known = true;
    seg->bytes_unindexed = pos - (index_count(&seg->offsets) ? seg->offsets.last.value : 0);
    seg->first_timestamp = first_timestamp;
    pthread_mutex_unlock(&pl->lock);
    return e;
}

/* Nobody reads at or above `end` any more, nor trusts what was looked up before.  *producers: the state there, which is
 * exchanged for the old one.  Under the lock. */
static void lower_end(struct plog *pl, int64_t end, struct producers **producers)
{
    atomic_store_explicit(&pl->end, end, memory_order_release);
    if (plog_start(pl) > end) atomic_store_explicit(&pl->start, end, memory_order_release);
    if (plog_recovery_point(pl) > end) atomic_store_explicit(&pl->recovery_point, end, memory_order_release);
    if (plog_cleaned(pl) > end) atomic_store_explicit(&pl->cleaned, end, memory_order_release);
    hints_clear(pl);
    struct producers *old = pl->producers;
    pl->producers = *producers;
    *producers = old;
    epochs_truncate_end(&pl->epochs, end);
    pl->led_epoch = 0; /* whoever is cut follows */
    pl->uncut = ERR_AGAIN;
}

/* On a full disk the file is behind for a while: what it says of offsets behind the end, opening ignores. */
static enum err file_epochs(struct plog *pl)
{
    enum err e = plog_begin_epochs(pl);
    return plog_error_passes(e) ? OK : e;
}

static enum err producers_at(struct plog *pl, int64_t end, struct producers **out)
{
    struct producers *ps = producers_new();
    enum err e = plog_load_producers(pl, ps, end);
    if (e)
        producers_free(ps);
    else
        *out = ps;
    return e;
}

/* Within the log: `offset` is at or above the first segment's base. */
static enum err cut_to(struct plog *pl, int64_t offset)
{
    struct segment *seg = pl->segments[segment_floor(pl, offset)];
    enum err e = segment_ensure_open(pl, seg);
    if (!e) e = index_write(&seg->offsets);
    if (!e) e = index_write(&seg->times);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    index_wrote(&seg->offsets);
    index_wrote(&seg->times);
    pthread_mutex_unlock(&pl->lock);
    struct located found = {.pos = seg->size, .info.base_offset = offset};
    e = segment_locate(seg, offset, &found);
    if (e == ERR_NOT_FOUND)
        found = (struct located){.pos = seg->size, .info.base_offset = offset};
    else if (e)
        return e;
    /* In the midst of a batch: the whole batch goes. */
    int64_t end = MIN(offset, found.info.base_offset);
    struct producers *ps;
    e = producers_at(pl, end, &ps);
    if (e) return e;

    pthread_mutex_lock(&pl->lock);
    lower_end(pl, end, &ps);
    pl->size -= seg->size - found.pos;
    seg->size = found.pos;
    seg->unsynced = seg->indexes_unsynced = true;
    pthread_mutex_unlock(&pl->lock);
    producers_free(ps);
    return plog_cut_go_on(pl);
}

/* The files of a segment that the log begins with, before all that it has. */
static enum err create_before(struct plog *pl, int64_t offset, struct segment **out)
{
    struct segment *fresh = segment_new(offset);
    enum err e = segment_create(fresh, pl->fs, pl->dir);
    if (!e) {
        fresh->created_ms = fresh->modified_ms = clock_wall_ms(pl->clock);
        fresh->unsynced = true;
        *out = fresh;
        return OK;
    }
    segment_unref(fresh);
    enum err ignored = segment_remove_files(pl->fs, pl->dir, offset, ""); /* made anew at the next attempt */
    (void)ignored;
    return e;
}

/* Everything goes; the log starts anew, empty, at `offset`. */
static enum err cut_all(struct plog *pl, int64_t offset)
{
    struct segment *fresh;
    struct producers *ps;
    enum err e = producers_at(pl, offset, &ps);
    if (e) return e;
    e = create_before(pl, offset, &fresh);
    if (e) {
        producers_free(ps);
        return e;
    }
    pthread_mutex_lock(&pl->lock);
    lower_end(pl, offset, &ps);
    atomic_store_explicit(&pl->start, offset, memory_order_release);
    epochs_clear(&pl->epochs);
    pl->segments = mem_grow(pl->segments, &pl->segment_cap, pl->segment_count + 1, sizeof(struct segment *));
    memmove(pl->segments + 1, pl->segments, pl->segment_count++ * sizeof(struct segment *));
    pl->segments[0] = fresh;
    pl->files_made++;
    pthread_mutex_unlock(&pl->lock);
    producers_free(ps);
    return plog_cut_go_on(pl);
}

/* Gives the role up. */
static enum err cut_over(struct plog *pl, enum err e)
{
    bool failed = e && !plog_error_passes(e) && plog_set_failed(pl, e);
    exclusive_end(pl);
    if (failed) plog_tell_failed(pl, e);
    return e;
}

enum err plog_truncate(struct plog *pl, int64_t offset)
{
    ASSERT(offset >= 0);
    enum err e = exclusive_begin_settled(pl);
    if (e) return e;
    int64_t end = plog_end(pl);
    if (offset < end) {
        LOG_INFO("truncated", "dir=%s from=%" PRId64 " to=%" PRId64, pl->dir, end, offset);
        e = offset < pl->segments[0]->base_offset ? cut_all(pl, offset) : cut_to(pl, offset);
    } else {
        /* An epoch that began at the end without a batch may contradict the leader's. */
        pthread_mutex_lock(&pl->lock);
        bool changed = epochs_truncate_end(&pl->epochs, end);
        pthread_mutex_unlock(&pl->lock);
        if (changed) e = plog_begin_epochs(pl);
    }
    return cut_over(pl, e);
}

/* ---- Beginning anew */

/* Readers find an empty log at `offset` from now on; what it had is in `leaving`.  The segment that stands for the new
 * one has no files yet. */
static void show_anew(struct plog *pl, int64_t offset)
{
    struct segment *fresh = segment_new(offset);
    struct producers *none = producers_new();
    fresh->max_time_known = true;
    fresh->max_time = MAX_TIME_NONE;
    pthread_mutex_lock(&pl->lock);
    pl->leaving = pl->segments;
    pl->leaving_count = pl->segment_count;
    pl->segments = NULL;
    pl->segment_count = pl->segment_cap = 0;
    plog_add_segment(pl, fresh);
    pl->size = 0;
    lower_end(pl, offset, &none);
    pl->anew = true;
    atomic_store_explicit(&pl->start, offset, memory_order_release);
    atomic_store_explicit(&pl->recovery_point, offset, memory_order_release); /* there is nothing to lose */
    epochs_clear(&pl->epochs);
    pthread_mutex_unlock(&pl->lock);
    producers_free(none);
}

/* From the newest back, each durably before the next: what a crash leaves is the log's beginning. */
static enum err remove_leaving(struct plog *pl)
{
    while (pl->leaving_count > 0) {
        struct segment *seg = pl->leaving[pl->leaving_count - 1];
        enum err e = segment_remove_files(pl->fs, pl->dir, seg->base_offset, "");
        if (!e) e = fs_sync_dir(pl->fs, pl->dir);
        if (e) return e;
        pl->leaving_count--;
        segment_unref(seg);
    }
    mem_free(pl->leaving);
    pl->leaving = NULL;
    return OK;
}

/* What was known of producers goes with their batches; so do the snapshots. */
static enum err forget_producers(struct plog *pl)
{
    struct producers *none = producers_new();
    enum err e = plog_load_producers(pl, none, -1);
    producers_free(none); /* the log knows of none since show_anew() */
    return e;
}

static enum err create_anew(struct plog *pl)
{
    struct segment *fresh, *stand_in = active_segment(pl);
    enum err e = create_before(pl, plog_end(pl), &fresh);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    fresh->jitter_ms = plog_next_jitter(pl);
    pl->segments[0] = fresh;
    pl->files_made++;
    pthread_mutex_unlock(&pl->lock);
    segment_unref(stand_in);
    return OK;
}

static enum err anew_go_on(struct plog *pl)
{
    enum err e = remove_leaving(pl);
    if (!e) e = forget_producers(pl);
    if (!e && !active_segment(pl)->log) e = create_anew(pl);
    if (!e) e = fs_sync_dir(pl->fs, pl->dir);
    if (!e) e = plog_begin_epochs(pl);
    return e;
}

enum err plog_start_anew(struct plog *pl, int64_t offset)
{
    if (offset < 0 || offset > SEGMENT_BASE_MAX) return ERR_RANGE;
    enum err e = exclusive_begin_settled(pl);
    if (e) return e;
    LOG_INFO("started_anew", "dir=%s from=%" PRId64 " to=%" PRId64 " at=%" PRId64, pl->dir, plog_start(pl),
             plog_end(pl), offset);
    show_anew(pl, offset);
    return cut_over(pl, plog_cut_go_on(pl));
}

/* ---- What is left to do */

static enum err cut_go_on(struct plog *pl)
{
    int64_t end = plog_end(pl);
    enum err e = OK;
    while (!e && pl->segment_count > 1 && active_segment(pl)->base_offset > end) e = remove_newest(pl);
    if (!e) e = segment_ensure_open(pl, active_segment(pl));
    if (!e) e = cut_files(pl, active_segment(pl), end);
    if (!e) e = file_epochs(pl);
    return e;
}

enum err plog_cut_go_on(struct plog *pl)
{
    if (!pl->uncut) return OK;
    enum err e = pl->anew ? anew_go_on(pl) : cut_go_on(pl);
    pthread_mutex_lock(&pl->lock); /* appenders look at it */
    pl->uncut = e;
    pthread_mutex_unlock(&pl->lock);
    if (!e) pl->anew = false;
    return e;
}
