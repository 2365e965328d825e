/* clean.c: what there is to clean in a log, and the course of one cleaning (clean.h). */
#include "plog/clean.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "plog/clean_internal.h"
#include "plog/scan.h"

/* Of a group, whose files are all open while they change their names. */
enum { GROUP_SEGMENTS_MAX = 128 };

/* ---- Tools */

struct clean_tools *clean_tools_new(const struct clean_limits *limits, struct rng *rng)
{
    struct clean_tools *t = mem_zalloc(1, sizeof *t);
    t->limits = *limits;
    t->pool = buf_pool_new(limits->io_bytes);
    rng_fill(rng, t->map.secret, sizeof t->map.secret);
    return t;
}

/* A big batch does not keep its memory. */
static void tools_shrink(struct clean_tools *t)
{
    mem_free(t->out);
    mem_free(t->plain);
    mem_free(t->kept);
    t->out = t->plain = t->kept = NULL;
    t->out_size = t->out_cap = t->plain_cap = t->kept_cap = 0;
    buf_pool_trim(t->pool);
}

void clean_tools_free(struct clean_tools *t)
{
    if (!t) return;
    tools_shrink(t);
    clean_map_end(&t->map);
    buf_pool_free(t->pool);
    mem_free(t);
}

/* ---- The plan */

/* What a segment is to a plan. */
struct planned {
    struct segment *seg; /* a reference */
    int64_t base_offset, size;
};

struct planning {
    struct plog *pl;
    struct plog_config config;
    struct planned *segments; /* closed ones, and none at or above `below` */
    size_t count;
    int64_t start, end, now_ms;
    uint32_t generation;
};

/* Under the lock. */
static void planning_take(struct planning *p, int64_t below)
{
    struct plog *pl = p->pl;
    p->config = pl->config;
    p->start = plog_start(pl);
    p->end = plog_end(pl);
    p->generation = pl->generation;
    p->segments = mem_zalloc(pl->segment_count, sizeof *p->segments);
    for (size_t i = 0; i + 1 < pl->segment_count && segment_end(pl, i) <= below; i++) {
        struct segment *seg = pl->segments[i];
        p->segments[p->count++] = (struct planned){segment_ref(seg), seg->base_offset, seg->size};
    }
}

static int64_t planned_end(const struct planning *p, size_t at, int64_t uncleanable)
{
    return at + 1 < p->count ? p->segments[at + 1].base_offset : uncleanable;
}

static void plan_start(const struct planning *p, int64_t checkpoint, struct clean_plan *out)
{
    bool passed = checkpoint >= 0 && checkpoint < p->start; /* as it happens where retention deletes what is clean */
    out->reset = checkpoint > p->end || (passed && !p->config.cleanup_delete);
    out->first_dirty = checkpoint > p->end ? p->start : MAX(checkpoint, p->start);
}

/* Leaves out dirty segments with a record younger than min.compaction.lag.ms, and all behind the first of them. */
static enum err plan_min_lag(struct planning *p, struct clean_plan *out)
{
    int64_t lag_ms = p->config.min_compaction_lag_ms, oldest_ms;
    if (lag_ms <= 0) return OK;
    if (__builtin_sub_overflow(p->now_ms, lag_ms, &oldest_ms)) oldest_ms = INT64_MIN;
    for (size_t i = 0; i < p->count; i++) {
        struct segment *seg = p->segments[i].seg;
        if (planned_end(p, i, out->first_uncleanable) <= out->first_dirty) continue;
        enum err e = plog_load_max_time(p->pl, seg);
        if (e == ERR_CORRUPT) e = plog_open_for_reading(p->pl, seg, p->generation); /* makes the indexes anew */
        if (e) return e;
        pthread_mutex_lock(&p->pl->lock);
        int64_t largest = seg->max_time.timestamp >= 0 ? seg->max_time.timestamp : seg->modified_ms;
        pthread_mutex_unlock(&p->pl->lock);
        if (largest <= oldest_ms) continue;
        out->first_uncleanable = p->segments[i].base_offset;
        return OK;
    }
    return OK;
}

/* Timestamp of a segment's first batch; -1: it has none. */
static enum err first_timestamp(struct plog *pl, const struct planned *segment, int64_t *out)
{
    pthread_mutex_lock(&pl->lock);
    *out = segment->seg->first_timestamp;
    struct file *log = segment->seg->log ? file_ref(segment->seg->log) : NULL;
    pthread_mutex_unlock(&pl->lock);
    enum err e = OK;
    if (*out == SEGMENT_TIME_NONE && !log) {
        char *path = segment_path(pl->dir, segment->base_offset, SEGMENT_LOG);
        e = fs_open(pl->fs, path, FS_READ, &log);
        mem_free(path);
    }
    if (!e && *out == SEGMENT_TIME_NONE) {
        struct scan sc;
        struct batch_info b;
        scan_init(&sc, log, 0, segment->size, false);
        e = scan_header(&sc, &b);
        if (!e) *out = b.max_timestamp;
        scan_fini(&sc);
    }
    file_unref(log);
    if (e) return e == ERR_NOT_FOUND ? OK : e;
    pthread_mutex_lock(&pl->lock);
    segment->seg->first_timestamp = *out;
    pthread_mutex_unlock(&pl->lock);
    return OK;
}

/* Whether a dirty segment begins with a record older than max.compaction.lag.ms. */
static enum err plan_max_lag(struct planning *p, struct clean_plan *out)
{
    int64_t lag_ms = p->config.max_compaction_lag_ms, oldest_ms;
    if (__builtin_sub_overflow(p->now_ms, lag_ms, &oldest_ms) || oldest_ms <= 0) return OK;
    for (size_t i = 0; i < p->count && !out->overdue; i++) {
        int64_t timestamp;
        if (planned_end(p, i, out->first_uncleanable) <= out->first_dirty) continue;
        enum err e = first_timestamp(p->pl, &p->segments[i], &timestamp);
        if (e) return e;
        out->overdue = timestamp > 0 && timestamp < oldest_ms;
    }
    return OK;
}

static void plan_bytes(const struct planning *p, struct clean_plan *out)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct planned *segment = &p->segments[i];
        if (planned_end(p, i, out->first_uncleanable) <= out->first_dirty)
            out->clean_bytes += segment->size;
        else if (segment->base_offset < out->first_uncleanable)
            out->dirty_bytes += segment->size;
    }
}

static void plan_judge(const struct planning *p, struct clean_plan *out)
{
    int64_t bytes = out->clean_bytes + out->dirty_bytes;
    out->ratio = bytes > 0 ? (double)out->dirty_bytes / (double)bytes : 0;
    out->due = out->dirty_bytes > 0 && (out->overdue || out->ratio > p->config.min_cleanable_dirty_ratio);
}

enum err plog_clean_plan(struct plog *pl, int64_t below, int64_t now_ms, struct clean_plan *out)
{
    struct planning p = {.pl = pl, .now_ms = now_ms};
    struct clean_plan plan = {0};
    *out = plan;
    pthread_mutex_lock(&pl->lock);
    bool compact = pl->config.cleanup_compact;
    if (compact) planning_take(&p, below);
    plan.first_uncleanable = pl->segments[p.count]->base_offset;
    pthread_mutex_unlock(&pl->lock);
    if (!compact) return OK;
    plan_start(&p, plog_cleaned(pl), &plan);
    enum err e = plan_min_lag(&p, &plan);
    plan.first_uncleanable = MAX(plan.first_uncleanable, plan.first_dirty);
    if (!e) e = plan_max_lag(&p, &plan);
    plan_bytes(&p, &plan);
    plan_judge(&p, &plan);
    for (size_t i = 0; i < p.count; i++) segment_unref(p.segments[i].seg);
    mem_free(p.segments);
    if (!e) *out = plan;
    return e;
}

/* ---- A cleaning's surroundings */

enum err clean_pace(struct cleaning *c, size_t bytes)
{
    return !c->rq->go_on || c->rq->go_on(c->rq->arg, bytes) ? OK : ERR_AGAIN;
}

int64_t clean_segment_end(const struct cleaning *c, size_t at)
{
    return at + 1 < c->segment_count ? c->segments[at + 1]->base_offset : c->rq->plan.first_uncleanable;
}

enum err clean_open_log(struct cleaning *c, struct segment *seg, struct file **out)
{
    pthread_mutex_lock(&c->pl->lock);
    struct file *log = seg->log ? file_ref(seg->log) : NULL;
    pthread_mutex_unlock(&c->pl->lock);
    if (!log) {
        char *path = segment_path(c->pl->dir, seg->base_offset, SEGMENT_LOG);
        enum err e = fs_open(c->pl->fs, path, FS_READ, &log);
        mem_free(path);
        if (e) return e;
    }
    *out = log;
    return OK;
}

static void add_last(void *arg, const struct producer_view *p)
{
    struct cleaning *c = arg;
    c->last = mem_grow(c->last, &c->last_cap, c->last_count + 1, sizeof *c->last);
    c->last[c->last_count++] = (struct clean_last){p->producer_id, p->last_offset, p->producer_epoch};
}

static int last_compare(const void *a, const void *b)
{
    const struct clean_last *x = a, *y = b;
    return x->producer_id < y->producer_id ? -1 : x->producer_id > y->producer_id;
}

/* Takes what the cleaning goes by.  With the role nothing is in flight, so the producers' state is that of the log. */
static enum err cleaning_begin(struct cleaning *c)
{
    struct plog *pl = c->pl;
    /* A flush looks for segments to sync from the newest back to the first that needs none: there must be none left
     * among those that are cleaned, since the new ones need none. */
    enum err e = plog_flush_segments(pl, FLUSH_CLOSED);
    if (!e) e = exclusive_begin_settled(pl);
    if (e) return e;
    pthread_mutex_lock(&pl->lock);
    c->config = pl->config;
    c->generation = pl->generation;
    producers_each(pl->producers, add_last, c);
    c->segments = mem_zalloc(pl->segment_count, sizeof(struct segment *));
    for (size_t i = 0; i + 1 < pl->segment_count && segment_end(pl, i) <= c->rq->plan.first_uncleanable; i++)
        c->segments[c->segment_count++] = segment_ref(pl->segments[i]);
    c->first_base = pl->segments[0]->base_offset;
    bool fits = pl->segments[c->segment_count]->base_offset == c->rq->plan.first_uncleanable;
    pthread_mutex_unlock(&pl->lock);
    exclusive_end(pl);
    if (!fits) return ERR_AGAIN; /* the log was cut since the plan was made */
    if (c->last_count > 1) qsort(c->last, c->last_count, sizeof *c->last, last_compare);
    return OK;
}

static void cleaning_end(struct cleaning *c)
{
    clean_target_discard(c);
    for (size_t i = 0; i < c->segment_count; i++) segment_unref(c->segments[i]);
    mem_free(c->segments);
    mem_free(c->last);
    mem_free(c->target.aborted);
    clean_txns_fini(&c->txns);
    clean_map_end(&c->tools->map);
    tools_shrink(c->tools);
}

/* ---- The table of keys */

static enum err note_batch(struct cleaning *c, const struct batch_info *b, const uint8_t *data, bool *full)
{
    if (!batch_crc_ok(data, b)) return ERR_CORRUPT;
    struct txn_marker marker;
    struct aborted_txn aborted;
    bool is_aborted;
    enum err e = OK;
    if (b->attributes & BATCH_CONTROL) {
        e = batch_read_marker(&marker, data, (size_t)b->size);
        if (e && e != ERR_NOT_FOUND) return e;
        (void)clean_txns_control(&c->txns, b, e ? NULL : &marker, &aborted, &is_aborted);
        e = OK;
    } else if (!clean_txns_data(&c->txns, b)) {
        e = clean_batch_keys(c, b, data, full);
    }
    if (!e && !*full) c->map_end = MAX(c->map_end, batch_last_offset(b) + 1);
    return e;
}

/* Where reading for the table begins in a segment. */
static enum err first_position(struct cleaning *c, struct segment *seg, struct file *log, int64_t *pos)
{
    int64_t offset = c->rq->plan.first_dirty;
    *pos = 0;
    if (offset <= seg->base_offset) return OK;
    enum err e = plog_open_for_reading(c->pl, seg, c->generation);
    if (e) return e;
    pthread_mutex_lock(&c->pl->lock);
    struct index_view view = index_view(&seg->offsets);
    pthread_mutex_unlock(&c->pl->lock);
    struct index_entry entry;
    e = index_find(view, INDEX_BY_KEY, offset - seg->base_offset, false, &entry);
    if (e == ERR_NOT_FOUND || e == ERR_CORRUPT || (!e && entry.value >= seg->size))
        entry.value = 0;
    else if (e)
        return e;
    struct located at;
    e = locate_from(log, entry.value, seg->size, offset, false, &at);
    *pos = e == ERR_NOT_FOUND ? seg->size : at.pos;
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err note_segment(struct cleaning *c, struct segment *seg, bool *full)
{
    struct file *log;
    int64_t pos = 0;
    enum err e = clean_open_log(c, seg, &log);
    if (e) return e;
    e = scan_work(first_position(c, seg, log, &pos));
    struct scan sc;
    struct batch_info b;
    const uint8_t *data;
    int64_t told = pos;
    scan_init(&sc, log, pos, seg->size, false);
    sc.read_ahead = c->tools->limits.io_bytes;
    while (!e && !*full && !(e = scan_batch(&sc, &b, &data))) {
        e = scan_work(note_batch(c, &b, data, full));
        if (!e && sc.pos - told >= (int64_t)sc.read_ahead) {
            e = clean_pace(c, (size_t)(sc.pos - told));
            told = sc.pos;
        }
    }
    c->result->bytes_read += sc.pos - pos;
    scan_fini(&sc);
    file_unref(log);
    return e == ERR_NOT_FOUND ? OK : e;
}

/* Notes the keys from first_dirty on, to first_uncleanable or until the table is full. */
static enum err note_keys(struct cleaning *c)
{
    const struct clean_plan *plan = &c->rq->plan;
    const struct clean_limits *limits = &c->tools->limits;
    clean_map_begin(&c->tools->map, limits->map_bytes, limits->load_factor,
                    plan->first_uncleanable - plan->first_dirty);
    c->map_end = plan->first_dirty;
    bool full = false;
    enum err e = clean_txns_load(&c->txns, c->pl, plan->first_dirty, plan->first_uncleanable);
    for (size_t i = 0; i < c->segment_count && !e && !full; i++) {
        if (clean_segment_end(c, i) <= plan->first_dirty) continue;
        e = note_segment(c, c->segments[i], &full);
        if (!e && !full) c->map_end = clean_segment_end(c, i); /* nothing stands in a gap */
    }
    clean_txns_fini(&c->txns);
    c->result->keys = c->tools->map.used;
    return e;
}

/* ---- Groups */

static int64_t index_size(struct cleaning *c, const struct segment *seg, const char *suffix)
{
    struct fs_stat st;
    char *path = segment_path(c->pl->dir, seg->base_offset, suffix);
    enum err e = fs_stat(c->pl->fs, path, &st);
    mem_free(path);
    return e ? 0 : st.size; /* it is made anew */
}

/* The segments from `at` on that fit into one, by the sizes of the originals, so that segments do not get ever smaller.
 */
static size_t group_count(struct cleaning *c, size_t at, size_t end)
{
    const struct plog_config *config = &c->config;
    int64_t bytes = 0, offsets_bytes = 0, times_bytes = 0, base_offset = c->segments[at]->base_offset;
    for (size_t n = 0; at + n < end; n++) {
        const struct segment *seg = c->segments[at + n];
        bytes += seg->size;
        offsets_bytes += index_size(c, seg, SEGMENT_OFFSETS);
        times_bytes += index_size(c, seg, SEGMENT_TIMES);
        if (n == 0) continue;
        if (n == GROUP_SEGMENTS_MAX || bytes > config->segment_bytes) return n;
        if (offsets_bytes > config->segment_index_bytes || times_bytes > config->segment_index_bytes) return n;
        if (seg->size > 0 && clean_segment_end(c, at + n) - 1 - base_offset > INT32_MAX) return n;
    }
    return end - at;
}

static enum err clean_group(struct cleaning *c, const struct clean_group *g)
{
    enum err e = clean_group_copy(c, g);
    if (!e && c->target.seg) e = clean_group_swap(c, g);
    if (e) {
        clean_target_discard(c);
        return e;
    }
    clean_target_close(c);
    for (size_t i = 0; i < g->count; i++) { /* what has been replaced keeps no files open, and no room on the disk */
        segment_unref(g->segments[i]);
        g->segments[i] = NULL;
    }
    return OK;
}

static enum err clean_groups(struct cleaning *c)
{
    size_t end = 0;
    while (end < c->segment_count && c->segments[end]->base_offset < c->map_end) end++;
    if (end == 0) return OK;
    enum err e = clean_txns_load(&c->txns, c->pl, c->segments[0]->base_offset, clean_segment_end(c, end - 1));
    for (size_t at = 0, n; at < end && !e; at += n) {
        n = group_count(c, at, end);
        e = clean_group(c, &(struct clean_group){c->segments + at, n});
    }
    return e;
}

/* ---- The whole */

/* What failed because the log was cut or moved meanwhile, or has lost its oldest segments, has not failed. */
static enum err explain(struct cleaning *c, enum err e)
{
    pthread_mutex_lock(&c->pl->lock);
    bool cut = c->pl->generation != c->generation, retired = c->pl->retired;
    bool shortened = c->pl->segments[0]->base_offset != c->first_base;
    pthread_mutex_unlock(&c->pl->lock);
    if (retired) return ERR_CLOSED;
    if (cut || (e == ERR_NOT_FOUND && shortened)) return ERR_AGAIN;
    return e == ERR_IO || e == ERR_DENIED ? plog_fail(c->pl, e) : e;
}

/* Unless the log was cut after the last group. */
bool plog_clean_first(struct plog *pl, const struct clean_plan *plan)
{
    int64_t none = -1;
    return atomic_compare_exchange_strong(&pl->cleaned, &none, plan->first_dirty);
}

static enum err raise_cleaned(struct cleaning *c, int64_t offset)
{
    pthread_mutex_lock(&c->pl->lock);
    bool cut = c->pl->generation != c->generation;
    if (!cut) atomic_store_explicit(&c->pl->cleaned, offset, memory_order_release);
    pthread_mutex_unlock(&c->pl->lock);
    return cut ? ERR_AGAIN : OK;
}

enum err plog_clean(struct plog *pl, const struct clean_request *rq, struct clean_result *out)
{
    struct clean_result result = {.first_dirty = rq->plan.first_dirty};
    struct cleaning c = {.pl = pl, .rq = rq, .tools = rq->tools, .result = &result};
    clean_txns_init(&c.txns);
    if (rq->plan.dirty_bytes == 0) {
        *out = result;
        return OK;
    }
    enum err e = cleaning_begin(&c);
    bool begun = !e;
    if (!e) e = note_keys(&c);
    if (!e) e = clean_groups(&c);
    if (e && begun) e = explain(&c, e);
    cleaning_end(&c);
    if (e) return e;
    result.first_dirty = MAX(c.map_end, rq->plan.first_dirty);
    *out = result;
    return raise_cleaned(&c, result.first_dirty);
}
