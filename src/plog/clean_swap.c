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

/* ---- The exchange, step by step */

/* A log has one at a time.  It begins with the claim on the files; where there is no room for a new name it stops, and
 * whoever next has the files to himself goes on.  What has been done already is not done again: a file .deleted may be
 * there from an earlier cleaning, under the name of one whose turn has yet to come. */
struct exchange {
    struct segment *fresh;
    struct segment **old; /* references: they are read through open files only */
    size_t count, done;   /* done: steps */
    int64_t now_ms;
};

/* What is done to the names of one segment's files. */
struct rename {
    const char *from, *to;
    bool with_snapshot;
};

static const struct rename to_swap = {SEGMENT_CLEANED, SEGMENT_SWAP, false};
static const struct rename to_plain = {SEGMENT_SWAP, "", false};
/* The snapshot of the place that stays holds good; the others are of places that are none any more. */
static const struct rename first_to_deleted = {"", SEGMENT_DELETED, false};
static const struct rename others_to_deleted = {"", SEGMENT_DELETED, true};

/* One step, unless an earlier attempt has done it.  *at counts them. */
static bool is_next(const struct exchange *x, size_t *at)
{
    return (*at)++ == x->done;
}

static enum err rename_next(struct exchange *x, struct plog *pl, size_t *at, const struct segment *seg,
                            const struct rename *r)
{
    enum err e = OK;
    size_t count = segment_file_count(r->with_snapshot);
    for (size_t i = 0; i < count && !e; i++) {
        if (!is_next(x, at)) continue;
        e = segment_rename_one(pl->fs, pl->dir, seg->base_offset, i, r->from, r->to);
        x->done += !e;
    }
    return e;
}

static enum err sync_next(struct exchange *x, struct plog *pl, size_t *at)
{
    if (!is_next(x, at)) return OK;
    enum err e = fs_sync_dir(pl->fs, pl->dir);
    x->done += !e;
    return e;
}

/* All that is left to do, in the order that flush.c explains. */
static enum err exchange_files(struct exchange *x, struct plog *pl)
{
    size_t at = 0;
    enum err e = rename_next(x, pl, &at, x->fresh, &to_swap);
    if (!e) e = sync_next(x, pl, &at); /* from here on opening the log finishes it */
    if (!e) e = rename_next(x, pl, &at, x->old[0], &first_to_deleted);
    for (size_t i = 1; i < x->count && !e; i++) e = rename_next(x, pl, &at, x->old[i], &others_to_deleted);
    if (!e) e = sync_next(x, pl, &at);
    if (!e) e = rename_next(x, pl, &at, x->fresh, &to_plain);
    if (!e) e = sync_next(x, pl, &at);
    return e;
}

/* What readers see from now on.  With the role. */
static void publish(struct exchange *x, struct plog *pl)
{
    struct segment *seg = x->fresh;
    const struct segment *last = x->old[x->count - 1];
    size_t at = segment_floor(pl, x->old[0]->base_offset);
    for (size_t i = 0; i < x->count; i++) ASSERT(pl->segments[at + i] == x->old[i]); /* who cuts or drops waits */
    segment_close_files(seg); /* whoever needs them opens them under their new names */
    seg->modified_ms = last->modified_ms;
    seg->created_ms = last->created_ms;
    pthread_mutex_lock(&pl->lock);
    seg->snapshot_unsynced = pl->segments[at]->snapshot_unsynced;
    pl->size += seg->size;
    for (size_t i = 0; i < x->count; i++) {
        pl->size -= x->old[i]->size;
        plog_doom_segment(pl, x->old[i]->base_offset, x->now_ms);
    }
    pl->segments[at] = segment_ref(seg);
    memmove(pl->segments + at + 1, pl->segments + at + x->count,
            (pl->segment_count - at - x->count) * sizeof(struct segment *));
    pl->segment_count -= x->count - 1;
    hints_forget(pl);
    pthread_mutex_unlock(&pl->lock);
    for (size_t i = 0; i < x->count; i++) segment_unref(x->old[i]); /* the log's references */
}

void plog_exchange_drop(struct plog *pl)
{
    struct exchange *x = pl->exchange;
    if (!x) return;
    for (size_t i = 0; i < x->count; i++) segment_unref(x->old[i]);
    segment_unref(x->fresh);
    mem_free(x->old);
    mem_free(x);
    pl->exchange = NULL;
}

enum err plog_exchange_go_on(struct plog *pl)
{
    if (!pl->exchange) return OK;
    enum err e = exchange_files(pl->exchange, pl);
    if (e) return e;
    publish(pl->exchange, pl);
    plog_exchange_drop(pl);
    return OK;
}

/* ---- One group */

static void exchange_begin(struct cleaning *c, const struct clean_group *g)
{
    struct exchange *x = c->pl->exchange = mem_zalloc(1, sizeof *x);
    x->fresh = c->target.seg;
    c->target.seg = NULL;
    x->old = mem_zalloc(g->count, sizeof(struct segment *));
    x->count = g->count;
    x->now_ms = c->rq->now_ms;
    for (size_t i = 0; i < g->count; i++) x->old[i] = segment_ref(g->segments[i]);
}

/* As if it had not begun: nothing has got another name. */
static void exchange_take_back(struct cleaning *c)
{
    c->target.seg = segment_ref(c->pl->exchange->fresh);
    plog_exchange_drop(c->pl);
}

static enum err swap_claimed(struct cleaning *c, const struct clean_group *g)
{
    struct plog *pl = c->pl;
    enum err e = open_originals(c, g);
    if (!e) e = finish_cleaned(c);
    if (e) return e;
    exchange_begin(c, g);
    e = exchange_files(pl->exchange, pl); /* without the role: it waits for the disk */
    if (e && pl->exchange->done == 0) exchange_take_back(c);
    if (e) return plog_error_passes(e) ? e : plog_fail(pl, e); /* the next opening finishes it */
    e = exclusive_begin(pl);
    ASSERT(!e); /* who retires a log waits for the claim */
    e = plog_exchange_go_on(pl);
    ASSERT(!e);
    exclusive_end(pl);
    return OK;
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
