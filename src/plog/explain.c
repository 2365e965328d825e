/* explain.c: see explain.h. */
#include "plog/explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plog/index.h"
#include "plog/scan.h"
#include "plog/segment.h"

struct gather {
    const struct plog_explain_options *opt;
    struct log_explained *out;
};

static void see(void *arg, const char *name, bool is_dir)
{
    struct gather *g = arg;
    struct log_explained *le = g->out;
    int64_t base_offset;
    const char *suffix;
    if (is_dir || !segment_parse_name(name, &base_offset, &suffix) || base_offset > SEGMENT_BASE_MAX) return;
    bool deleted = strcmp(suffix, SEGMENT_LOG SEGMENT_DELETED) == 0;
    if (!deleted && strcmp(suffix, SEGMENT_LOG) != 0) return;
    le->segments = mem_grow(le->segments, &le->cap, le->count + 1, sizeof *le->segments);
    le->segments[le->count++] = (struct segment_explained){.base_offset = base_offset,
                                                           .end = base_offset,
                                                           .first_ms = -1,
                                                           .newest_ms = -1,
                                                           .roll_ms = INT64_MAX,
                                                           .deleted = deleted};
}

static int compare(const void *a, const void *b)
{
    const struct segment_explained *x = a, *y = b;
    if (x->deleted != y->deleted) return x->deleted ? -1 : 1;
    return (x->base_offset > y->base_offset) - (x->base_offset < y->base_offset);
}

/* ---- Looking into files */

/* The last entry in use of an index; false: there is none, or it cannot be read. */
static bool last_entry(const struct gather *g, const struct segment_explained *s, enum index_kind kind,
                       struct index_entry *out)
{
    const char *suffix = kind == INDEX_OFFSETS ? SEGMENT_OFFSETS : SEGMENT_TIMES;
    char *path = segment_path(g->opt->dir, s->base_offset, suffix);
    struct file *file = NULL;
    struct index_extent extent;
    enum err e = fs_open(g->opt->fs, path, FS_READ, &file);
    mem_free(path);
    if (!e) e = index_measure(file, kind, &extent);
    if (!e) e = index_find((struct index_view){file, extent.used, kind}, INDEX_BY_KEY, INT64_MAX, false, out);
    file_unref(file);
    return e == OK;
}

/* A batch that the cleaner has marked keeps there when its tombstones go. */
static int64_t first_time(const struct batch_info *b)
{
    return b->attributes & (BATCH_DELETE_HORIZON | BATCH_LOG_APPEND_TIME) ? b->max_timestamp : b->base_timestamp;
}

/* Headers from `pos` on: the end, and the largest timestamp.  False: no batch stands at `pos`. */
static bool walk(struct file *file, int64_t size, int64_t pos, struct segment_explained *s)
{
    struct scan sc;
    struct batch_info b;
    bool any = false;
    scan_init(&sc, file, pos, size, false);
    for (; scan_header(&sc, &b) == OK; any = true) {
        if (pos == 0 && !any) s->first_ms = first_time(&b);
        s->end = batch_last_offset(&b) + 1;
        s->newest_ms = MAX(s->newest_ms, b.max_timestamp);
    }
    scan_fini(&sc);
    return any;
}

/* The first batch of a closed segment, whose end the next one tells. */
static void look_at_first(struct file *file, int64_t size, struct segment_explained *s)
{
    struct scan sc;
    struct batch_info b;
    scan_init(&sc, file, 0, size, false);
    if (scan_header(&sc, &b) == OK) s->first_ms = first_time(&b);
    scan_fini(&sc);
}

/* Entries may be missing at an index's end, of a segment in use; what they lead to is read. */
static void look_into(const struct gather *g, struct segment_explained *s, struct file *file)
{
    struct index_entry time = {-1, 0}, place = {0, 0};
    bool timed = last_entry(g, s, INDEX_TIMES, &time);
    look_at_first(file, s->size, s);
    s->newest_ms = timed ? time.key : -1;
    if (!s->active && timed) return;
    if (!timed || !last_entry(g, s, INDEX_OFFSETS, &place) || place.value < 0 || place.value > s->size) place.value = 0;
    if (!walk(file, s->size, place.value, s) && place.value > 0) walk(file, s->size, 0, s);
}

static enum err look_at(const struct gather *g, struct segment_explained *s)
{
    char *path = segment_path(g->opt->dir, s->base_offset, s->deleted ? SEGMENT_LOG SEGMENT_DELETED : SEGMENT_LOG);
    struct fs_stat st;
    struct file *file = NULL;
    enum err e = fs_stat(g->opt->fs, path, &st);
    if (!e) e = fs_open(g->opt->fs, path, FS_READ, &file);
    if (!e) {
        s->size = st.size;
        if (!s->deleted) look_into(g, s, file);
        if (s->newest_ms < 0) s->newest_ms = st.modified_ms;
        if (s->active && s->size > 0 && g->opt->config.segment_ms >= 0 &&
            __builtin_add_overflow(st.modified_ms, g->opt->config.segment_ms, &s->roll_ms))
            s->roll_ms = INT64_MAX;
    }
    file_unref(file);
    mem_free(path);
    return e;
}

/* ---- Judging */

static enum err newest(void *arg, int64_t *newest_ms)
{
    *newest_ms = *(const int64_t *)arg;
    return OK;
}

static void judge(const struct plog_explain_options *opt, struct log_explained *le)
{
    const struct retention_rules rules = {
        .cleanup_delete = opt->config.cleanup_delete,
        .retention_ms = opt->config.retention_ms,
        .retention_bytes = opt->config.retention_bytes,
        .now_ms = opt->now_ms,
        .below = opt->below < 0 ? INT64_MAX : opt->below,
        .log_start = le->start,
    };
    struct retention r;
    int64_t older_due_ms = -1; /* none goes before the older ones */
    retention_begin(&r, &rules, le->size);
    for (size_t i = 0; i < le->count; i++) {
        struct segment_explained *s = &le->segments[i];
        const struct retention_segment seg = {.end = s->end, .size = s->size, .last = s->active};
        if (s->deleted) continue;
        enum err e = retention_next(&r, &seg, newest, &s->newest_ms, &s->opinion);
        ASSERT(!e);
        if (retention_goes(s->opinion.verdict)) continue;
        older_due_ms = s->opinion.due_ms = MAX(s->opinion.due_ms, older_due_ms);
    }
}

/* Those that vanish while we look are gone. */
static enum err look_at_all(const struct gather *g)
{
    struct log_explained *le = g->out;
    size_t kept = 0;
    if (le->count > 1) qsort(le->segments, le->count, sizeof *le->segments, compare);
    for (size_t i = 0; i < le->count; i++) {
        struct segment_explained s = le->segments[i];
        s.active = !s.deleted && i + 1 == le->count;
        enum err e = look_at(g, &s);
        if (e == ERR_NOT_FOUND) continue;
        if (e) return e;
        if (!s.active && !s.deleted) s.end = le->segments[i + 1].base_offset;
        le->segments[kept++] = s;
    }
    le->count = kept;
    return OK;
}

enum err plog_explain(struct log_explained *out, const struct plog_explain_options *opt)
{
    struct log_explained le = {0};
    struct gather g = {opt, &le};
    enum err e = fs_list(opt->fs, opt->dir, see, &g);
    if (!e) e = look_at_all(&g);
    if (e) {
        log_explained_fini(&le);
        return e;
    }
    le.start = MAX(opt->log_start, 0);
    bool first = true;
    for (size_t i = 0; i < le.count; i++) {
        if (le.segments[i].deleted) continue;
        if (first) le.start = MAX(opt->log_start, le.segments[i].base_offset);
        first = false;
        le.size += le.segments[i].size;
        le.end = le.segments[i].end;
    }
    judge(opt, &le);
    *out = le;
    return OK;
}

void log_explained_fini(struct log_explained *le)
{
    mem_free(le->segments);
    *le = (struct log_explained){0};
}
