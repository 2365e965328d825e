/* close_unused.c: closing the files of segments that nobody needs now, so that a broker with more segments than
 * descriptors serves all of them.
 *
 * Who uses a segment's files holds a reference on the segment, taken under the lock, or the writer role.  So under the
 * lock, with the role free and no reference but the log's own, files can be taken out; they are closed outside of it.
 */
#include "plog/plog_internal.h"

#include "base/mem.h"

enum {
    FILES_A_SEGMENT = 4,
    SOON_DENOMINATOR = 8, /* room is wanted when no more than an eighth is left */
    SEGMENTS_A_TURN = 32, /* taken out under one turn of the lock */
};

void plog_note_opened(struct plog *pl)
{
    if (!pl->files) return;
    size_t soon = pl->files->max - pl->files->max / SOON_DENOMINATOR;
    if (fs_open_count(pl->fs) > soon) pl->files->wants_room(pl->files->arg);
}

bool plog_may_open(const struct plog *pl)
{
    return !pl->files || fs_open_count(pl->fs) + FILES_A_SEGMENT <= pl->files->max;
}

static bool used_before(const struct segment *seg, uint32_t turn)
{
    return (int32_t)(turn - atomic_load_explicit(&seg->used, memory_order_relaxed)) > 0;
}

static bool is_unused(const struct segment *seg, uint32_t turn)
{
    if (!seg->log && !index_is_open(&seg->offsets) && !index_is_open(&seg->times) && !seg->txns.path) return false;
    if (atomic_load_explicit(&seg->refs, memory_order_acquire) > 1 || seg->unsynced) return false;
    if (seg->indexes_bad || atomic_load_explicit(&seg->index_misled, memory_order_relaxed)) return false;
    if (index_is_open(&seg->offsets) && seg->offsets.tail_count > 0) return false;
    if (index_is_open(&seg->times) && seg->times.tail_count > 0) return false;
    return used_before(seg, turn);
}

static void take_file(struct file **list, size_t *count, struct file **file)
{
    if (*file) list[(*count)++] = *file;
    *file = NULL;
}

/* Under the lock. */
static void take_files(struct segment *seg, struct file **list, size_t *count)
{
    take_file(list, count, &seg->log);
    take_file(list, count, &seg->offsets.file);
    take_file(list, count, &seg->times.file);
    take_file(list, count, &seg->txns.file);
    index_close(&seg->offsets);
    index_close(&seg->times);
    txnindex_close(&seg->txns); /* txns_there says that it is to be opened again */
}

/* Returns where to go on; segment_count when all have been looked at. */
static size_t close_some(struct plog *pl, size_t from, uint32_t turn)
{
    struct file *list[SEGMENTS_A_TURN * FILES_A_SEGMENT];
    size_t count = 0;
    pthread_mutex_lock(&pl->lock);
    size_t closed = pl->segment_count - 1, i = from;
    if (pl->writing) i = closed; /* the holder of the role may be using any of them: another time */
    for (size_t taken = 0; i < closed && taken < SEGMENTS_A_TURN; i++) {
        if (!is_unused(pl->segments[i], turn)) continue;
        take_files(pl->segments[i], list, &count);
        taken++;
    }
    pthread_mutex_unlock(&pl->lock);
    for (size_t n = 0; n < count; n++) file_unref(list[n]);
    return i < closed ? i : SIZE_MAX;
}

/* What is still in memory goes to the index files first, with the entry that a closed time index ends with: nobody may
 * open it again before the broker stops.  With the role. */
static enum err save_active_indexes(struct plog *pl, struct segment *seg)
{
    if (!index_is_open(&seg->offsets) || !index_is_open(&seg->times)) return OK;
    pthread_mutex_lock(&pl->lock);
    segment_index_end(seg);
    pthread_mutex_unlock(&pl->lock);
    enum err e = index_write(&seg->offsets);
    if (!e) e = index_write(&seg->times);
    if (e) return e; /* they stay in memory, and the files open */
    pthread_mutex_lock(&pl->lock);
    index_wrote(&seg->offsets);
    index_wrote(&seg->times);
    pthread_mutex_unlock(&pl->lock);
    return OK;
}

bool plog_is_unused(struct plog *pl, uint32_t turn)
{
    pthread_mutex_lock(&pl->lock);
    const struct segment *seg = active_segment(pl);
    bool unused = seg->log && used_before(seg, turn);
    pthread_mutex_unlock(&pl->lock);
    return unused;
}

static void close_active(struct plog *pl, uint32_t turn)
{
    struct file *list[FILES_A_SEGMENT];
    size_t count = 0;
    if (exclusive_begin(pl)) return;
    struct segment *seg = active_segment(pl);
    if (used_before(seg, turn) && !seg->unsynced && !save_active_indexes(pl, seg)) {
        pthread_mutex_lock(&pl->lock);
        if (is_unused(seg, turn)) take_files(seg, list, &count);
        pthread_mutex_unlock(&pl->lock);
    }
    exclusive_end(pl);
    for (size_t n = 0; n < count; n++) file_unref(list[n]);
}

void plog_close_unused(struct plog *pl, enum plog_close_what what, uint32_t turn)
{
    if (what == PLOG_CLOSE_ACTIVE) {
        close_active(pl, turn);
        return;
    }
    for (size_t at = 0; at != SIZE_MAX;) at = close_some(pl, at, turn);
}
