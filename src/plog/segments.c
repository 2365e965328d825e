/* segments.c: the array of a log's segments: rolling to the next one, taking old ones out; and the small files beside
 * them.  Everything here is done by the holder of the writer role. */
#include "plog/plog_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

char *plog_path(const struct plog *pl, const char *name)
{
    return mem_printf("%s/%s", pl->dir, name);
}

enum err plog_write_plain(struct plog *pl, const char *path, const void *data, size_t size)
{
    struct file *f;
    enum err e = fs_open(pl->fs, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &f);
    if (e) return e;
    if (size > 0) e = file_pwrite(f, data, size, 0);
    file_unref(f);
    return e;
}

static enum err write_epochs(struct plog *pl, bool replace)
{
    size_t size;
    pthread_mutex_lock(&pl->lock);
    char *text = epochs_are_filed(&pl->epochs) ? NULL : epochs_encode(&pl->epochs, &size);
    pthread_mutex_unlock(&pl->lock);
    if (!text) return OK;
    char *path = plog_path(pl, LEADER_EPOCHS);
    enum err e = replace ? fs_replace(pl->fs, path, text, size) : plog_write_plain(pl, path, text, size);
    mem_free(path);
    mem_free(text);
    pl->epochs_file = true;
    pl->epochs_written++;
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    epochs_set_filed(&pl->epochs); /* only the role's holder changes them */
    pthread_mutex_unlock(&pl->lock);
    return OK;
}

/* A first file needs neither renaming nor a sync, which cost more than all else of a new log: until it is synced, and
 * the recovery point moves, recovery finds in the batches what a torn one does not tell.  One that replaces another
 * would take that one's entries with it if it were torn, and those of batches below the recovery point nobody reads
 * again: so it waits for a flush, which syncs it before it takes the other's place. */
enum err plog_begin_epochs(struct plog *pl)
{
    return pl->epochs_file ? OK : write_epochs(pl, false);
}

enum err plog_save_epochs(struct plog *pl)
{
    return write_epochs(pl, pl->epochs_file);
}

enum err plog_write_snapshot(struct plog *pl, int64_t offset)
{
    uint8_t *data;
    size_t size;
    pthread_mutex_lock(&pl->lock);
    producers_snapshot_encode(pl->producers, offset, &data, &size);
    pthread_mutex_unlock(&pl->lock);
    char *path = segment_path(pl->dir, offset, SEGMENT_SNAPSHOT);
    enum err e = plog_write_plain(pl, path, data, size);
    mem_free(path);
    mem_free(data);
    if (e) return e;
    pl->snapshot_offset = offset;
    pl->files_made++; /* its name is to be synced too */
    return OK;
}

enum err plog_add_aborted(struct plog *pl, struct segment *seg, const struct aborted_txn *txn)
{
    struct txnindex txns = seg->txns;
    enum err e = OK;
    if (!txns.path) {
        char *path = segment_path(pl->dir, seg->base_offset, SEGMENT_TXNS);
        e = txnindex_open(&txns, pl->fs, path);
        mem_free(path);
    }
    if (e) return e;
    bool is_new = !txns.file;
    e = txnindex_append(&txns, txn);
    if (is_new && txns.file) pl->files_made++; /* its name is to be synced with it */
    pthread_mutex_lock(&pl->lock);             /* readers copy it */
    seg->txns = txns;
    seg->txns_there = true;
    pthread_mutex_unlock(&pl->lock);
    return e;
}

/* splitmix64: spreads the rolls of segments of one age.  Under the lock. */
int64_t plog_next_jitter(struct plog *pl)
{
    int64_t bound = MIN(pl->config.segment_jitter_ms, pl->config.segment_ms);
    if (bound <= 0) return 0;
    uint64_t z = (pl->jitter_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (int64_t)((z ^ (z >> 31)) % (uint64_t)bound);
}

void plog_add_segment(struct plog *pl, struct segment *seg)
{
    ASSERT(pl->segment_count == 0 || active_segment(pl)->base_offset < seg->base_offset);
    pl->segments = mem_grow(pl->segments, &pl->segment_cap, pl->segment_count + 1, sizeof(struct segment *));
    pl->segments[pl->segment_count++] = seg;
}

void mark_indexes_bad(struct plog *pl, struct segment *seg)
{
    pthread_mutex_lock(&pl->lock);
    atomic_store_explicit(&seg->index_misled, false, memory_order_relaxed);
    seg->indexes_bad = true;
    pthread_mutex_unlock(&pl->lock);
}

static bool is_open(const struct segment *seg)
{
    return seg->log && index_is_open(&seg->offsets) && index_is_open(&seg->times);
}

/* Under the lock. */
static bool is_untouched(const struct segment *seg)
{
    return !seg->log && !index_is_open(&seg->offsets) && !index_is_open(&seg->times) && !seg->indexes_bad &&
           !seg->opening;
}

static enum err open_copy(struct plog *pl, struct segment *copy, int64_t interval_bytes)
{
    if (!copy->log && !plog_may_open(pl)) return ERR_TOO_MANY;
    enum err e = segment_open_log(copy, pl->fs, pl->dir);
    if (!e) e = segment_open_indexes(copy, pl->fs, pl->dir);
    if (!e && copy->indexes_bad) {
        LOG_WARN("indexes_rebuilt", "dir=%s segment=%" PRId64, pl->dir, copy->base_offset);
        e = segment_rebuild_indexes(copy, pl->fs, pl->dir, interval_bytes);
    }
    return e;
}

/* Works on a copy, since readers look at the original under the lock; none of them lends it files meanwhile. */
enum err segment_ensure_open(struct plog *pl, struct segment *seg)
{
    if (UNLIKELY(atomic_load_explicit(&seg->index_misled, memory_order_relaxed))) mark_indexes_bad(pl, seg);
    pthread_mutex_lock(&pl->lock);
    bool open = is_open(seg) && !seg->indexes_bad;
    seg->opening = !open;
    int64_t interval_bytes = pl->config.index_interval_bytes;
    struct segment copy = {
        .base_offset = seg->base_offset,
        .size = seg->size,
        .indexes_bad = seg->indexes_bad,
        .max_time_known = seg->max_time_known,
        .max_time = seg->max_time,
        .first_timestamp = seg->first_timestamp,
        .bytes_unindexed = seg->bytes_unindexed,
        .log = seg->log,
        .offsets = seg->offsets,
        .times = seg->times,
    };
    pthread_mutex_unlock(&pl->lock);
    if (open) return OK;

    enum err e = open_copy(pl, &copy, interval_bytes);
    pthread_mutex_lock(&pl->lock);
    seg->opening = false;
    seg->log = copy.log;
    seg->offsets = copy.offsets;
    seg->times = copy.times;
    seg->indexes_bad = copy.indexes_bad;
    seg->max_time = copy.max_time;
    seg->max_time_known = copy.max_time_known;
    seg->first_timestamp = copy.first_timestamp;
    seg->bytes_unindexed = copy.bytes_unindexed;
    segment_note_use(pl, seg);
    pthread_mutex_unlock(&pl->lock);
    plog_note_opened(pl);
    return e;
}

enum err segment_ensure_txns(struct plog *pl, struct segment *seg)
{
    if (!seg->txns_there || seg->txns.path) return OK;
    struct txnindex txns;
    char *path = segment_path(pl->dir, seg->base_offset, SEGMENT_TXNS);
    enum err e = txnindex_open(&txns, pl->fs, path);
    mem_free(path);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    seg->txns = txns;
    pthread_mutex_unlock(&pl->lock);
    return OK;
}

/* A closed segment does not change, so a reader opens its files aside and lends them to the log, without keeping the
 * writers waiting.  *done = false: it takes the writer role after all. */
static enum err open_aside(struct plog *pl, struct segment *seg, uint32_t generation, bool *done)
{
    struct segment aside = {.base_offset = seg->base_offset};
    pthread_mutex_lock(&pl->lock);
    bool closed = seg != active_segment(pl) && generation == pl->generation;
    bool untouched = is_untouched(seg);
    aside.size = seg->size;
    bool retired = pl->retired;
    pthread_mutex_unlock(&pl->lock);
    *done = false;
    if (retired) return ERR_CLOSED;
    if (!closed || !untouched || atomic_load_explicit(&seg->index_misled, memory_order_relaxed)) return OK;

    enum err e = plog_may_open(pl) ? segment_open_log(&aside, pl->fs, pl->dir) : ERR_TOO_MANY;
    if (!e) e = segment_open_indexes(&aside, pl->fs, pl->dir);
    pthread_mutex_lock(&pl->lock);
    untouched = is_untouched(seg);
    if (!e && !aside.indexes_bad && untouched && generation == pl->generation) {
        segment_note_use(pl, seg);
        seg->log = aside.log;
        seg->offsets = aside.offsets;
        seg->times = aside.times;
        seg->max_time = aside.max_time;
        seg->max_time_known = true;
        aside.log = aside.offsets.file = aside.times.file = NULL;
        *done = true;
    }
    pthread_mutex_unlock(&pl->lock);
    segment_close_files(&aside);
    plog_note_opened(pl);
    return e;
}

static enum err open_for_reading(struct plog *pl, struct segment *seg, uint32_t generation)
{
    bool done;
    enum err e = open_aside(pl, seg, generation, &done);
    if (e || done) return e;
    e = exclusive_begin(pl);
    if (e) return e;
    e = segment_ensure_open(pl, seg);
    exclusive_end(pl);
    return e;
}

enum { OPEN_TRIES_MAX = 8 }; /* when there are no descriptors, and others are faster to take what room is made */

enum err plog_open_for_reading(struct plog *pl, struct segment *seg, uint32_t generation)
{
    enum err e = open_for_reading(pl, seg, generation);
    for (int tries = 1; e == ERR_TOO_MANY && pl->files && tries < OPEN_TRIES_MAX; tries++) {
        pl->files->make_room(pl->files->arg, atomic_load(&pl->files->turn));
        e = open_for_reading(pl, seg, generation);
    }
    return e;
}

enum err plog_load_max_time(struct plog *pl, struct segment *seg)
{
    pthread_mutex_lock(&pl->lock);
    bool known = seg->max_time_known, bad = seg->indexes_bad;
    pthread_mutex_unlock(&pl->lock);
    if (known) return OK;
    if (bad) return ERR_CORRUPT;
    struct index times;
    char *path = segment_path(pl->dir, seg->base_offset, SEGMENT_TIMES);
    enum err e = index_open(&times, pl->fs, path, INDEX_TIMES);
    mem_free(path);
    struct max_time max_time = MAX_TIME_NONE;
    if (!e && index_count(&times) > 0)
        max_time = (struct max_time){times.last.key, seg->base_offset + times.last.value};
    index_close(&times);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    if (!seg->max_time_known) seg->max_time = max_time;
    seg->max_time_known = true;
    pthread_mutex_unlock(&pl->lock);
    return OK;
}

/* No more will come for the segment: its time index gets the largest timestamp, both indexes go to their files.  If
 * that fails the entries stay in memory, and the next flush tries again. */
static void segment_end_writing(struct plog *pl, struct segment *seg)
{
    pthread_mutex_lock(&pl->lock);
    segment_index_end(seg);
    pthread_mutex_unlock(&pl->lock);
    enum err e = index_write(&seg->offsets);
    if (!e) e = index_write(&seg->times);
    if (e) return;
    pthread_mutex_lock(&pl->lock);
    index_wrote(&seg->offsets);
    index_wrote(&seg->times);
    pthread_mutex_unlock(&pl->lock);
}

enum err plog_roll(struct plog *pl, int64_t base_offset, const uint8_t *snapshot, size_t snapshot_size)
{
    struct segment *old = active_segment(pl), *seg = segment_new(base_offset);
    ASSERT(old->base_offset < base_offset);
    char *path = segment_path(pl->dir, base_offset, SEGMENT_SNAPSHOT);
    enum err e = segment_ensure_open(pl, old); /* its time index gets a last entry */
    if (!e) e = plog_may_open(pl) ? segment_create(seg, pl->fs, pl->dir) : ERR_TOO_MANY;
    if (!e) e = plog_write_plain(pl, path, snapshot, snapshot_size);
    mem_free(path);
    if (e) {
        segment_unref(seg);
        enum err ignored = segment_remove_files(pl->fs, pl->dir, base_offset, ""); /* made anew at the next attempt */
        (void)ignored;
        if (pl->snapshot_offset == base_offset) pl->snapshot_offset = -1; /* the last close had left it */
        return e;
    }
    segment_end_writing(pl, old);
    seg->snapshot_unsynced = true;
    seg->created_ms = seg->modified_ms = clock_wall_ms(pl->clock);
    pthread_mutex_lock(&pl->lock);
    seg->jitter_ms = plog_next_jitter(pl);
    old->unsynced |= old->indexes_unsynced;
    plog_add_segment(pl, seg);
    pl->snapshot_offset = base_offset;
    pl->files_made++;
    segment_note_use(pl, seg);
    pthread_mutex_unlock(&pl->lock);
    plog_note_opened(pl);
    return OK;
}

enum err plog_roll_at_end(struct plog *pl)
{
    uint8_t *snapshot;
    size_t size;
    int64_t end = plog_end(pl);
    pthread_mutex_lock(&pl->lock);
    producers_snapshot_encode(pl->producers, end, &snapshot, &size);
    pthread_mutex_unlock(&pl->lock);
    enum err e = plog_roll(pl, end, snapshot, size);
    mem_free(snapshot);
    return e;
}

/* What the batches that go said of their producers is only in the snapshot with which the log begins then: that is on
 * the disk before they go. */
static enum err keep_producers(struct plog *pl, const struct segment *first)
{
    if (!first->snapshot_unsynced) return OK;
    char *path = segment_path(pl->dir, first->base_offset, SEGMENT_SNAPSHOT);
    struct file *f;
    enum err e = fs_open(pl->fs, path, FS_READ | FS_WRITE, &f);
    mem_free(path);
    if (e) return e == ERR_NOT_FOUND ? OK : e;
    e = file_sync(f);
    file_unref(f);
    return e ? e : fs_sync_dir(pl->fs, pl->dir);
}

/* Renames a segment's files, durably before the next one's: one that came back, alone or with what was never flushed,
 * would have recovery cut the log there. */
static enum err doom_files(struct plog *pl, const struct segment *seg, const struct segment *next)
{
    enum err e = keep_producers(pl, next);
    if (!e) e = segment_rename_files(pl->fs, pl->dir, seg->base_offset, "", SEGMENT_DELETED);
    return e ? e : fs_sync_dir(pl->fs, pl->dir);
}

void plog_doom_segment(struct plog *pl, int64_t base_offset, int64_t now_ms)
{
    int64_t due_ms;
    if (__builtin_add_overflow(now_ms, MAX(pl->config.file_delete_delay_ms, 0), &due_ms)) due_ms = INT64_MAX;
    pl->doomed = mem_grow(pl->doomed, &pl->doomed_cap, pl->doomed_count + 1, sizeof *pl->doomed);
    pl->doomed[pl->doomed_count++] = (struct doomed){base_offset, due_ms};
}

enum err plog_drop_segments(struct plog *pl, size_t count, int64_t now_ms)
{
    ASSERT(count < pl->segment_count);
    for (size_t i = 0; i < count; i++) {
        /* One whose files cannot be renamed stays, below the start, and has its turn again: without it the log would
         * have a hole. */
        struct segment *seg = pl->segments[0];
        enum err e = doom_files(pl, seg, pl->segments[1]);
        if (e) return e;
        pthread_mutex_lock(&pl->lock);
        memmove(pl->segments, pl->segments + 1, (pl->segment_count - 1) * sizeof(struct segment *));
        pl->segment_count--;
        pl->size -= seg->size;
        plog_doom_segment(pl, seg->base_offset, now_ms);
        pthread_mutex_unlock(&pl->lock);
        segment_unref(seg);
    }
    return OK;
}
