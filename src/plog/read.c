/* read.c: where batches stand.  Readers hold the lock only to look up a segment and take references; they search its
 * files without it, and a log that is being written does not wait for them.
 *
 * A fetch that goes on where the last one ended is the common case, so a few places are remembered (`hints`): the last
 * published ends and the ends of the last slices.  Such a fetch finds its place without reading an index or a header.
 */
#include "plog/plog_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "plog/scan.h"

/* ---- Hints, under the lock */

void hints_forget(struct plog *pl)
{
    for (size_t i = 0; i < HINT_COUNT; i++) pl->hints[i].offset = -1;
    pl->layout++;
}

void hints_clear(struct plog *pl)
{
    hints_forget(pl);
    pl->generation++;
}

static const struct hint *hint_find(const struct plog *pl, int64_t offset, int64_t base_offset)
{
    for (size_t i = 0; i < HINT_COUNT; i++)
        if (pl->hints[i].offset == offset && pl->hints[i].base_offset == base_offset) return &pl->hints[i];
    return NULL;
}

static void hint_remember(struct plog *pl, struct hint hint, uint32_t layout)
{
    pthread_mutex_lock(&pl->lock);
    /* Neighbouring offsets of several readers spread over the slots. */
    size_t slot = HINTS_APPENDED + (size_t)(((uint64_t)hint.offset * UINT64_C(0x9e3779b97f4a7c15)) >> 61);
    if (pl->layout == layout) pl->hints[slot] = hint;
    pthread_mutex_unlock(&pl->lock);
}
_Static_assert(HINTS_READ == 8, "a slot is the top three bits of a hash");

/* ---- A reader's view of one segment */

struct view {
    struct segment *seg; /* a reference */
    struct file *log;    /* lent by the segment; NULL: to be opened */
    struct index_view offsets;
    int64_t size; /* published bytes */
    int64_t end;  /* first offset behind it */
    bool is_last;
    uint32_t generation, layout;
    bool start_hinted, limit_hinted, limit_remembered, tail_hit;
    struct hint start, limit;
    struct index_entry tail; /* the entry for the start, from memory */
};

/* Under the lock. */
static void view_take(struct view *v, struct plog *pl, size_t at, int64_t offset, int64_t limit)
{
    struct segment *seg = pl->segments[at];
    v->seg = segment_ref(seg);
    segment_note_use(pl, seg);
    v->log = seg->log;
    v->offsets = index_view(&seg->offsets);
    if (seg->indexes_bad || atomic_load_explicit(&seg->index_misled, memory_order_relaxed)) v->offsets.file = NULL;
    v->size = seg->size;
    v->end = segment_end(pl, at);
    v->is_last = at + 1 == pl->segment_count;
    v->generation = pl->generation;
    v->layout = pl->layout;
    const struct hint *start = hint_find(pl, offset, seg->base_offset), *end = hint_find(pl, limit, seg->base_offset);
    v->start_hinted = start != NULL;
    if (start) v->start = *start;
    v->limit_hinted = end != NULL;
    if (end) v->limit = *end;
    v->limit_remembered = end && end >= pl->hints + HINTS_APPENDED;
    v->tail_hit = index_find_tail(&seg->offsets, INDEX_BY_KEY, offset - seg->base_offset, &v->tail);
}

/* Opens what the view needs and is not open yet, or makes it anew. */
static enum err view_open(struct view *v, struct plog *pl, int64_t offset)
{
    enum err e = plog_open_for_reading(pl, v->seg, v->generation);
    pthread_mutex_lock(&pl->lock);
    v->log = v->seg->log;
    v->offsets = index_view(&v->seg->offsets);
    pthread_mutex_unlock(&pl->lock);
    if (e == ERR_NOT_FOUND)
        e = offset < plog_start(pl) ? ERR_RANGE : ERR_NOT_FILE; /* retention was faster, or a hand */
    return e;
}

static enum err view_index(const struct view *v, struct plog *pl, enum index_by by, int64_t target, bool nowait,
                           struct index_entry *out)
{
    if (v->is_last) {
        pthread_mutex_lock(&pl->lock);
        bool found = index_find_tail(&v->seg->offsets, by, target, out);
        pthread_mutex_unlock(&pl->lock);
        if (found) return OK;
    }
    return index_find(v->offsets, by, target, nowait, out);
}

/* ---- Reading */

struct place {
    int64_t pos, start_offset, first_size; /* of the first batch; its size is 0 when nobody had to look */
};

static enum err find_start(struct view *v, int64_t offset, bool nowait, struct place *out)
{
    if (v->start_hinted) {
        *out = (struct place){v->start.pos, offset, v->start.size};
        return OK;
    }
    struct index_entry entry = v->tail;
    if (!v->tail_hit) {
        enum err e = index_find(v->offsets, INDEX_BY_KEY, offset - v->seg->base_offset, nowait, &entry);
        if (e == ERR_NOT_FOUND || e == ERR_CORRUPT)
            entry.value = 0; /* from the start is always right */
        else if (e)
            return e;
    }
    struct located at;
    enum err e = locate_from(v->log, entry.value < v->size ? entry.value : 0, v->size, offset, nowait, &at);
    if (at.misled) atomic_store_explicit(&v->seg->index_misled, true, memory_order_relaxed);
    if (!e) *out = (struct place){at.pos, at.info.base_offset, at.info.size};
    return e;
}

static enum err need_first_size(const struct view *v, bool nowait, struct place *at)
{
    if (at->first_size > 0) return OK;
    struct scan sc;
    struct batch_info b;
    scan_init(&sc, v->log, at->pos, v->size, nowait);
    enum err e = scan_header(&sc, &b);
    scan_fini(&sc);
    if (e) return e;
    at->first_size = b.size;
    at->start_offset = b.base_offset;
    return OK;
}

/* Where the batch that starts at `limit` stands: the slice must not go past it. */
static enum err find_limit(const struct view *v, struct plog *pl, int64_t limit, int64_t from, bool nowait,
                           int64_t *pos)
{
    struct index_entry entry;
    enum err e = view_index(v, pl, INDEX_BY_KEY, limit - 1 - v->seg->base_offset, nowait, &entry);
    if (e == ERR_NOT_FOUND || e == ERR_CORRUPT || (!e && entry.value > v->size))
        entry.value = 0;
    else if (e)
        return e;
    struct located at;
    e = locate_from(v->log, MAX(entry.value, from), v->size, limit, nowait, &at);
    if (e == ERR_NOT_FOUND)
        at.pos = v->size; /* a gap up to the segment's end */
    else if (e)
        return e;
    *pos = at.pos;
    return OK;
}

/* A slice that must be cut: at the last batch boundary that the index knows within `want`, else in the midst of a
 * batch, which the protocol allows.  *at_boundary tells. */
static enum err find_cut(const struct view *v, struct plog *pl, const struct place *at, int64_t want, int64_t limit,
                         int64_t visible, bool nowait, int64_t *cut, bool *at_boundary)
{
    struct index_entry entry;
    enum err e = view_index(v, pl, INDEX_BY_VALUE, want, nowait, &entry);
    if (e && e != ERR_NOT_FOUND && e != ERR_CORRUPT) return e;
    bool below_limit = !e && (visible >= 0 ? entry.value <= visible : v->seg->base_offset + entry.key < limit);
    *at_boundary = below_limit && entry.value >= at->pos + at->first_size;
    *cut = *at_boundary ? entry.value : want;
    if (*at_boundary || visible >= 0) return OK;
    e = find_limit(v, pl, limit, at->pos, nowait, &visible);
    if (e) return e;
    *at_boundary = visible <= want;
    *cut = MIN(visible, want);
    return OK;
}

/* The next fetch will ask for what follows: reads that batch's header now, while the place is known. */
static void remember_cut(const struct view *v, struct plog *pl, int64_t cut, bool nowait)
{
    struct scan sc;
    struct batch_info b;
    scan_init(&sc, v->log, cut, v->size, nowait);
    enum err e = scan_header(&sc, &b);
    scan_fini(&sc);
    if (e) return; /* not in the page cache, or nothing there: it will be looked up */
    hint_remember(pl, (struct hint){b.base_offset, v->seg->base_offset, (int32_t)cut, b.size}, v->layout);
}

static enum err view_slice(struct view *v, struct plog *pl, int64_t offset, int64_t limit, size_t bytes_max,
                           bool whole_first, bool nowait, struct plog_slice *out)
{
    struct place at;
    enum err e = find_start(v, offset, nowait, &at);
    if (!e && at.pos >= v->size) e = ERR_NOT_FOUND;
    if (!e && !v->is_last && at.start_offset >= v->end) e = ERR_CORRUPT; /* the next segment's, or of another log */
    if (e || at.start_offset >= limit) return e; /* nothing there when a gap reaches up to the limit */
    bool to_end = limit >= v->end;
    int64_t visible = to_end ? v->size : v->limit_hinted ? v->limit.pos : -1; /* -1: to be found out if need be */
    int64_t want = at.pos + (int64_t)MIN(bytes_max, (size_t)INT32_MAX), cut = visible;
    bool at_boundary = true;
    if (visible < 0 || visible > want) {
        e = need_first_size(v, nowait, &at);
        if (e) return e;
        bool fits = at.pos + at.first_size <= want;
        if (!fits && !whole_first) return OK;
        if (fits)
            e = find_cut(v, pl, &at, want, limit, visible, nowait, &cut, &at_boundary);
        else
            cut = at.pos + at.first_size; /* whole, whatever bytes_max says; it lies below the limit */
        if (e) return e;
        if (at_boundary && cut < v->size) remember_cut(v, pl, cut, nowait);
    } else if (!v->limit_remembered && (v->is_last || !to_end)) {
        hint_remember(pl, (struct hint){limit, v->seg->base_offset, (int32_t)cut, 0}, v->layout);
    }
    if (cut <= at.pos) return OK;
    ASSERT(cut <= v->size);
    *out = (struct plog_slice){file_ref(v->log), at.pos, (size_t)(cut - at.pos), at.start_offset};
    return OK;
}

/* Takes the view of the segment that holds `offset`; v->seg stays NULL when there is nothing to read yet. */
static enum err begin_read(struct view *v, struct plog *pl, int64_t offset, int64_t below, int64_t *limit)
{
    enum err e = OK;
    v->seg = NULL;
    pthread_mutex_lock(&pl->lock);
    int64_t end = plog_end(pl);
    *limit = MIN(below, end);
    if (offset < plog_start(pl) || offset > end)
        e = ERR_RANGE;
    else if (offset < *limit)
        view_take(v, pl, segment_floor(pl, offset), offset, *limit);
    pthread_mutex_unlock(&pl->lock);
    return e;
}

enum err plog_read(struct plog *pl, int64_t offset, int64_t below, size_t bytes_max, bool whole_first, bool nowait,
                   struct plog_slice *out)
{
    *out = (struct plog_slice){.file = NULL};
    for (;;) {
        struct view v;
        int64_t limit;
        enum err e = begin_read(&v, pl, offset, below, &limit);
        if (e || !v.seg) return e;
        if (!v.log || !v.offsets.file) e = nowait ? ERR_AGAIN : view_open(&v, pl, offset);
        if (!e) e = view_slice(&v, pl, offset, limit, bytes_max, whole_first, nowait, out);
        bool more = e == ERR_NOT_FOUND && !v.is_last;
        if (e == ERR_UNSUPPORTED) /* opening a clean log does not look into closed segments */
            LOG_LIMITED(LOG_LEVEL_ERROR, "old_format",
                        "dir=%s segment=%" PRId64 " offset=%" PRId64
                        " reason=\"messages of format v0 or v1, which Kafka wrote before 0.11, cannot be served\"",
                        pl->dir, v.seg->base_offset, offset);
        if (more) offset = v.end; /* compaction left nothing up to the segment's end */
        segment_unref(v.seg);
        if (!more) return e == ERR_NOT_FOUND ? OK : e;
    }
}

void plog_slice_release(struct plog_slice *s)
{
    file_unref(s->file);
    s->file = NULL;
}
