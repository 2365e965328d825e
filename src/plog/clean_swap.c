/* clean_swap.c: a cleaned segment takes the place of those that it was made from.  The order of renames and syncs is
 * explained at the top of flush.c, together with that of all other writes. */
#include "plog/clean_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

/* Index of the group's first segment in the log; -1 when not all of it is there any more.  With the role. */
static int64_t group_at(const struct cleaning *c, const struct clean_group *g)
{
    const struct plog *pl = c->pl;
    if (pl->generation != c->generation) return -1;
    size_t at = segment_floor(pl, g->segments[0]->base_offset);
    if (at + g->count >= pl->segment_count) return -1; /* never the active one */
    for (size_t i = 0; i < g->count; i++)
        if (pl->segments[at + i] != g->segments[i]) return -1;
    return (int64_t)at;
}

/* From here on the originals are read through open files only.  The cleaning's references keep them open. */
static enum err open_originals(struct cleaning *c, const struct clean_group *g)
{
    struct plog *pl = c->pl;
    enum err e = exclusive_begin(pl);
    if (e) return e;
    if (group_at(c, g) < 0) e = ERR_AGAIN;
    for (size_t i = 0; i < g->count && !e; i++) {
        e = segment_ensure_open(pl, g->segments[i]);
        if (!e) e = segment_ensure_txns(pl, g->segments[i]);
    }
    exclusive_end(pl);
    return e;
}

/* The transaction index, and the names of all new files on the disk. */
static enum err finish_cleaned(struct cleaning *c)
{
    struct plog *pl = c->pl;
    struct clean_target *t = &c->target;
    struct segment *seg = t->seg;
    enum err e = OK;
    if (t->aborted_count > 0) {
        struct txnindex txns;
        char *path = segment_path(pl->dir, seg->base_offset, SEGMENT_TXNS SEGMENT_CLEANED);
        e = txnindex_open(&txns, pl->fs, path);
        mem_free(path);
        if (e) return e;
        for (size_t i = 0; i < t->aborted_count && !e; i++) e = txnindex_append(&txns, &t->aborted[i]);
        if (!e) e = txnindex_flush(&txns);
        txnindex_close(&txns);
        seg->txns_there = true;
    }
    return e ? e : fs_sync_dir(pl->fs, pl->dir);
}

/* Once this is on the disk, opening the log finishes the swap. */
static enum err rename_to_swap(struct cleaning *c)
{
    struct plog *pl = c->pl;
    enum err e = segment_rename_data(pl->fs, pl->dir, c->target.seg->base_offset, SEGMENT_CLEANED, SEGMENT_SWAP);
    return e ? e : fs_sync_dir(pl->fs, pl->dir);
}

/* The names must not come back after a crash, when the log has gone on: it fails if that cannot be told. */
static enum err undo_swap(struct cleaning *c, enum err why)
{
    struct plog *pl = c->pl;
    int64_t base_offset = c->target.seg->base_offset;
    enum err e = segment_remove_data(pl->fs, pl->dir, base_offset, SEGMENT_SWAP);
    if (!e) e = segment_remove_data(pl->fs, pl->dir, base_offset, SEGMENT_CLEANED);
    if (!e) e = fs_sync_dir(pl->fs, pl->dir);
    return e ? plog_fail(pl, e) : why;
}

static enum err exchange_files(struct cleaning *c, const struct clean_group *g)
{
    struct plog *pl = c->pl;
    int64_t first = g->segments[0]->base_offset;
    /* The snapshot of the place that stays holds good; the others are of places that are none any more. */
    enum err e = segment_rename_data(pl->fs, pl->dir, first, "", SEGMENT_DELETED);
    for (size_t i = 1; i < g->count && !e; i++)
        e = segment_rename_files(pl->fs, pl->dir, g->segments[i]->base_offset, "", SEGMENT_DELETED);
    if (!e) e = fs_sync_dir(pl->fs, pl->dir);
    if (!e) e = segment_rename_data(pl->fs, pl->dir, first, SEGMENT_SWAP, "");
    if (!e) e = fs_sync_dir(pl->fs, pl->dir);
    return e;
}

/* What readers see from now on. */
static void publish(struct cleaning *c, const struct clean_group *g)
{
    struct plog *pl = c->pl;
    struct segment *seg = c->target.seg;
    const struct segment *last = g->segments[g->count - 1];
    enum err e = exclusive_begin(pl);
    ASSERT(!e); /* who retires a log waits for the claim */
    int64_t found = group_at(c, g);
    ASSERT(found >= 0); /* and so does who cuts it */
    size_t at = (size_t)found;
    segment_close_files(seg); /* whoever needs them opens them under their new names */
    seg->modified_ms = last->modified_ms;
    seg->created_ms = last->created_ms;
    pthread_mutex_lock(&pl->lock);
    seg->snapshot_unsynced = pl->segments[at]->snapshot_unsynced;
    pl->size += seg->size;
    for (size_t i = 0; i < g->count; i++) {
        pl->size -= pl->segments[at + i]->size;
        plog_doom_segment(pl, pl->segments[at + i]->base_offset, c->rq->now_ms);
    }
    pl->segments[at] = seg;
    memmove(pl->segments + at + 1, pl->segments + at + g->count,
            (pl->segment_count - at - g->count) * sizeof(struct segment *));
    pl->segment_count -= g->count - 1;
    hints_forget(pl);
    pthread_mutex_unlock(&pl->lock);
    exclusive_end(pl);
    for (size_t i = 0; i < g->count; i++) segment_unref(g->segments[i]); /* the log's references */
    c->target.seg = NULL;
}

static enum err swap_claimed(struct cleaning *c, const struct clean_group *g)
{
    enum err e = open_originals(c, g);
    if (!e) {
        e = finish_cleaned(c);
        if (!e) e = rename_to_swap(c);
        if (e) e = undo_swap(c, e);
    }
    if (!e) {
        e = exchange_files(c, g);
        if (e) return plog_fail(c->pl, e); /* half done: the next opening finishes it; readers have their files */
        publish(c, g);
    }
    return e;
}

enum err clean_group_swap(struct cleaning *c, const struct clean_group *g)
{
    enum err e = OK;
    /* Not under the writer role: indexes may have to be made anew. */
    for (size_t i = 0; i < g->count && !e; i++) e = plog_open_for_reading(c->pl, g->segments[i], c->generation);
    if (!e) e = files_claim(c->pl);
    if (e) return e;
    e = swap_claimed(c, g);
    files_release(c->pl);
    return e;
}
