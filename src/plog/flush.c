/* flush.c: what must reach the disk, and when the recovery point may follow.  Everything here runs on workers.
 *
 * THE ORDER OF WRITES AND SYNCS.  An append is written, and published, without a sync.  A roll makes the new segment's
 * files and writes the producer snapshot of its start, without a sync.  A flush syncs, from the oldest segment that may
 * not be on the disk, the log, the transaction index and the snapshot of its start, and of closed segments the indexes,
 * after writing the entries that are still in memory; then leader-epoch-checkpoint when it changed; then the directory
 * when files were made in it; and only then moves the recovery point.  So after a crash nothing below the recovery
 * point needs to be looked at, but for the segment that holds it, which recovery reads whole.  A close counts the
 * active segment as closed.  What is checkpointed of the recovery point is plog_recovery_start(): a segment may be
 * closed after a flush that left its indexes out.
 *
 * A segment that is deleted is gone on the disk before the next one goes, and before the recovery point can pass it;
 * the snapshot with which the log will begin, which alone tells what its producers had done, is there before that.
 *
 * What is cut from a log's end, by a truncation or as torn by recovery, is cut on the disk before anything is written
 * in its place: else a loss of power could leave new batches with old ones behind them.  Segments behind the cut go
 * first, the newest before the others.  leader-epoch-checkpoint is replaced only by one that is on the disk: what it
 * says of batches below the recovery point nobody could find again cheaply.
 *
 * A cleaning (clean_swap.c) puts one new segment, <base>, in the place of a group of closed ones, the first of which
 * has the same base.  First a flush: no segment below the active one is unsynced.  Then
 *   1. the new files are written under names that end in .cleaned and synced; sync of the directory, for their names;
 *   2. they are renamed to .swap; sync of the directory: from here on opening the log finishes the exchange;
 *   3. the files of the originals are renamed to .deleted; sync of the directory: none of them may come back beside a
 *      new segment that has its plain name already;
 *   4. .swap is renamed to the plain name; sync of the directory: a later cleaning's .cleaned file would condemn a
 *      .swap file, whose originals may be gone by then;
 *   5. readers get the new segment; the .deleted files are removed after file.delete.delay.ms.
 * A crash before 2 is complete leaves a .cleaned file: opening removes it and the .swap files at or above it, nothing
 * has happened.  After it there are only .swap files: opening removes what they replace and renames them.  Steps 2 to 5
 * wait for the disk without the writer role; what must not come in between (truncation, deletion of segments, moving
 * the directory) waits for files_release().  A step for which there is no room is done later
 * (exclusive_begin_settled()), before anything else that changes segments; until then readers have the originals, whose
 * files are open whatever their names are.  After any other failure the log counts as failed. */
#include "plog/plog_internal.h"

#include <string.h>

#include "base/mem.h"
#include "plog/checkpoint.h"

/* What a flush works on, taken with the writer role held. */
struct plog_flush {
    struct plog *pl;
    enum err e;
    bool with_active;           /* the log's end is flushed */
    bool is_work;               /* plog_work_begin() */
    bool sync_failed;           /* the disk has refused: no later sync may be believed */
    struct segment **segments;  /* references, oldest first */
    size_t count, closed_count; /* the closed ones come first; the active one may follow */
    int64_t end;                /* where the recovery point goes */
    uint32_t generation, undone, files_made, epochs_written;
    bool closing, epochs, dir, parent;
    struct file **files; /* references on what is to be synced */
    size_t file_count, file_cap;
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

/* With the role.  What is published from now on, and waits, is another flush's. */
static enum err flush_choose(struct plog_flush *fl, enum flush_what what)
{
    struct plog *pl = fl->pl;
    pthread_mutex_lock(&pl->lock);
    fl->with_active = what == FLUSH_ALL || (what == FLUSH_WANTED && pl->flush_wanted);
    if (fl->with_active) pl->flush_wanted = false;
    enum err failed = pl->failed ? pl->failed : pl->uncut;
    pthread_mutex_unlock(&pl->lock);
    return failed;
}

static enum err flush_begin(struct plog_flush *fl, enum flush_what what)
{
    struct plog *pl = fl->pl;
    enum err e = exclusive_begin(pl);
    if (e) return e;
    e = flush_choose(fl, what);
    bool with_active = fl->with_active;
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
    /* Also where the recovery point passes records that were deleted before a flush; and what a clean stop says is
     * there, if nothing was ever appended to it. */
    bool small_files = fl->count > 0 || fl->end > plog_recovery_point(pl) || pl->closing;
    if (!e && small_files) e = plog_save_epochs(pl);
    fl->closing = pl->closing;
    fl->epochs = small_files && pl->epochs_written != pl->epochs_synced;
    fl->epochs_written = pl->epochs_written;
    fl->generation = pl->generation;
    fl->undone = pl->undone;
    fl->files_made = pl->files_made;
    fl->dir = small_files && (fl->epochs || pl->files_made != pl->files_synced);
    fl->parent = small_files && pl->parent_unsynced;
    exclusive_end(pl);
    return e;
}

/* ---- Syncing */

static void flush_add(struct plog_flush *fl, struct file *f)
{
    fl->files = mem_grow(fl->files, &fl->file_cap, fl->file_count + 1, sizeof(struct file *));
    fl->files[fl->file_count++] = f;
}

/* A small file that was written some time ago, by its path, which is freed; one that is not there is no error. */
static enum err flush_add_path(struct plog_flush *fl, struct plog *pl, char *path)
{
    struct file *f;
    enum err e = fs_open(pl->fs, path, FS_READ | FS_WRITE, &f);
    mem_free(path);
    if (!e) flush_add(fl, f);
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err flush_add_segment(struct plog_flush *fl, struct plog *pl, struct segment *seg, bool with_indexes)
{
    pthread_mutex_lock(&pl->lock);
    flush_add(fl, file_ref(seg->log));
    /* Of the active segment recovery makes the indexes anew.  Empty ones have nothing to sync but their being there,
     * which is the directory's. */
    if (with_indexes && seg->offsets.written) flush_add(fl, file_ref(seg->offsets.file));
    if (with_indexes && seg->times.written) flush_add(fl, file_ref(seg->times.file));
    if (seg->txns.file) flush_add(fl, file_ref(seg->txns.file));
    bool snapshot = seg->snapshot_unsynced;
    pthread_mutex_unlock(&pl->lock);
    return snapshot ? flush_add_path(fl, pl, segment_path(pl->dir, seg->base_offset, SEGMENT_SNAPSHOT)) : OK;
}

static enum err flush_add_files(struct plog_flush *fl, struct plog *pl)
{
    enum err e = OK;
    for (size_t i = 0; i < fl->count && !e; i++)
        e = flush_add_segment(fl, pl, fl->segments[i], i < fl->closed_count || fl->closing);
    /* One was made for the end, or for the active segment that starts there; else it was there already. */
    if (!e && fl->closing && (fl->dir || active_segment(pl)->snapshot_unsynced))
        e = flush_add_path(fl, pl, segment_path(pl->dir, fl->end, SEGMENT_SNAPSHOT));
    if (!e && fl->epochs) e = flush_add_path(fl, pl, plog_path(pl, LEADER_EPOCHS));
    if (!e && fl->parent) e = flush_add_path(fl, pl, plog_path(pl, PARTITION_METADATA));
    return e;
}

static enum err sync_files(struct plog_flush *fl)
{
    enum err e = OK;
    for (size_t i = 0; i < fl->file_count && !e; i++) e = file_sync(fl->files[i]);
    fl->sync_failed = e != OK;
    return e;
}

static enum err sync_dirs(struct plog_flush *fl, struct plog *pl)
{
    enum err e = fl->dir ? fs_sync_dir(pl->fs, pl->dir) : OK;
    char *parent = mem_strdup(pl->dir), *slash = strrchr(parent, '/');
    if (!e && fl->parent && slash && slash != parent) {
        *slash = '\0';
        e = fs_sync_dir(pl->fs, parent);
    }
    mem_free(parent);
    fl->sync_failed = e && e != ERR_TOO_MANY; /* which is of its opening */
    return e;
}

/* What was appended, rolled or cut meanwhile is not covered. */
static enum err flush_end(const struct plog_flush *fl, struct plog *pl)
{
    if (fl->count == 0 && fl->end <= plog_recovery_point(pl)) return OK;
    enum err e = exclusive_begin(pl);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    bool all = fl->end == plog_end(pl) && fl->undone == pl->undone;
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
        if (fl->epochs) pl->epochs_synced = fl->epochs_written;
        if (fl->parent) pl->parent_unsynced = false;
    }
    pthread_mutex_unlock(&pl->lock);
    exclusive_end(pl);
    return OK;
}

/* ---- One round */

/* Starts writing out.  `others`: a file is waited for before this one.  With flush_lock, which round_finish() gives up.
 */
static struct plog_flush *round_begin(struct plog *pl, enum flush_what what, bool others)
{
    struct plog_flush *fl = mem_zalloc(1, sizeof *fl);
    fl->pl = pl;
    fl->e = flush_begin(fl, what);
    if (!fl->e) fl->e = flush_add_files(fl, pl);
    /* With space allocated for all files, one commit of the file system's journal serves them all. */
    for (size_t i = 0; i < fl->file_count && !fl->e && (others || fl->file_count > 1); i++)
        file_write_behind(fl->files[i], 0, 0);
    return fl;
}

static void round_free(struct plog_flush *fl)
{
    for (size_t i = 0; i < fl->file_count; i++) file_unref(fl->files[i]);
    for (size_t i = 0; i < fl->count; i++) segment_unref(fl->segments[i]);
    mem_free(fl->files);
    mem_free(fl->segments);
    mem_free(fl);
}

/* Fails the log, if need be, before anybody can sync it again. */
static enum err round_finish(struct plog_flush *fl)
{
    struct plog *pl = fl->pl;
    enum err e = fl->e;
    if (!e) e = sync_files(fl);
    if (!e) e = sync_dirs(fl, pl);
    if (!e) e = flush_end(fl, pl);
    if (e && e != ERR_CLOSED && (fl->sync_failed || !plog_error_passes(e))) e = plog_fail(pl, e);
    bool told = fl->with_active;
    if (!e && told) atomic_store_explicit(&pl->last_flush_ms, clock_wall_ms(pl->clock), memory_order_relaxed);
    round_free(fl);
    pthread_mutex_unlock(&pl->flush_lock);
    if (told && pl->events.flushed) pl->events.flushed(pl->events.arg, e);
    return e;
}

enum err plog_flush_segments(struct plog *pl, enum flush_what what)
{
    pthread_mutex_lock(&pl->flush_lock);
    return round_finish(round_begin(pl, what, false));
}

enum err plog_flush(struct plog *pl)
{
    return plog_flush_segments(pl, FLUSH_ALL);
}

bool plog_flush_due(const struct plog *pl, int64_t now_ms)
{
    int64_t flush_ms = atomic_load_explicit(&pl->flush_ms, memory_order_relaxed);
    if (flush_ms == INT64_MAX || plog_end(pl) <= plog_recovery_point(pl)) return false;
    return now_ms - atomic_load_explicit(&pl->last_flush_ms, memory_order_relaxed) >= flush_ms;
}

size_t plog_unflushed_segments(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    size_t count = 0;
    while (count + 1 < pl->segment_count && pl->segments[pl->segment_count - 2 - count]->unsynced) count++;
    pthread_mutex_unlock(&pl->lock);
    return count;
}

void plog_request_flush(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    bool wanted = plog_recovery_point(pl) < plog_end(pl) && !pl->failed && !pl->retired;
    bool call = wanted && !pl->work_wanted && pl->events.wants_work;
    pl->flush_wanted |= wanted;
    pl->work_wanted |= call;
    pthread_mutex_unlock(&pl->lock);
    if (call) pl->events.wants_work(pl->events.arg);
}

struct plog_flush *plog_flush_begin(struct plog *pl, bool others)
{
    return pthread_mutex_trylock(&pl->flush_lock) ? NULL : round_begin(pl, FLUSH_ALL, others);
}

static struct plog_flush *work_begin(struct plog *pl, bool others)
{
    struct plog_flush *fl = round_begin(pl, FLUSH_WANTED, others);
    fl->is_work = true;
    return fl;
}

struct plog_flush *plog_work_begin(struct plog *pl, bool others)
{
    return pthread_mutex_trylock(&pl->flush_lock) ? NULL : work_begin(pl, others);
}

enum err plog_flush_finish(struct plog_flush *fl)
{
    struct plog *pl = fl->pl;
    bool is_work = fl->is_work;
    enum err e = round_finish(fl);
    if (!is_work) return e;
    pthread_mutex_lock(&pl->lock);
    /* Closed segments that came up meanwhile, the next append tells; who waits for a flush may be the last to append.
     */
    bool again = (pl->flush_wanted || pl->stalled) && !pl->failed && !pl->retired && pl->events.wants_work;
    pl->work_wanted = again;
    pthread_mutex_unlock(&pl->lock);
    if (again) pl->events.wants_work(pl->events.arg);
    return e;
}

enum err plog_work(struct plog *pl)
{
    plog_resume(pl);
    pthread_mutex_lock(&pl->flush_lock);
    return plog_flush_finish(work_begin(pl, false));
}
