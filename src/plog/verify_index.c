/* verify_index.c: a segment's two indexes against its batches: both are walked side by side, once. */
#include <inttypes.h>

#include "base/mem.h"
#include "plog/segment.h"
#include "plog/verify_internal.h"

struct load {
    struct verify *v;
    struct verify_index *ix;
    enum verify_kind kind;
};

static void wrong(struct verify *v, struct verify_index *ix, enum verify_kind kind, size_t at, const char *what,
                  int64_t a, int64_t b)
{
    if (ix->wrong) return; /* the whole of it has to be made anew */
    ix->wrong = true;
    int64_t size = kind == VERIFY_OFFSET_INDEX ? INDEX_OFFSETS_ENTRY_SIZE : INDEX_TIMES_ENTRY_SIZE;
    verify_found(v, kind, ix->path, (int64_t)at * size, what, a, b);
}

static bool load_entry(void *arg, uint32_t at, struct index_entry entry)
{
    struct load *l = arg;
    struct verify_index *ix = l->ix;
    const struct index_entry *before = ix->count ? &ix->entries[ix->count - 1] : NULL;
    bool ascends = !before || (entry.key > before->key && entry.value > before->value);
    if (entry.key < 0 || entry.value < 0 || !ascends)
        wrong(l->v, ix, l->kind, at, "its entries do not ascend: here stand %" PRId64 " and %" PRId64, entry.key,
              entry.value);
    ix->entries = mem_grow(ix->entries, &ix->cap, ix->count + 1, sizeof *ix->entries);
    ix->entries[ix->count++] = entry;
    return true;
}

static void load_file(struct verify *v, struct verify_index *ix, enum index_kind kind, struct file *file)
{
    struct load l = {v, ix, kind == INDEX_OFFSETS ? VERIFY_OFFSET_INDEX : VERIFY_TIME_INDEX};
    struct index_extent extent;
    enum err e = index_measure(file, kind, &extent);
    if (!e) e = index_walk(file, kind, extent.used, load_entry, &l);
    if (e) {
        ix->wrong = true;
        verify_found(v, l.kind, ix->path, -1, "it cannot be read: %s", err_text(e));
        return;
    }
    if (extent.torn_bytes > 0)
        wrong(v, ix, l.kind, extent.used + extent.zeros,
              "%" PRId64 " bytes stand behind the last of its %" PRId64 " whole entries", extent.torn_bytes,
              (int64_t)extent.used + extent.zeros);
    if (extent.zeros > 0)
        verify_found(v, VERIFY_PREALLOCATED, ix->path, -1, "%u entries are in use, and %u zeros stand behind them",
                     extent.used, extent.zeros);
}

static void open_one(struct verify *v, struct verify_index *ix, enum index_kind kind)
{
    struct file *file;
    mem_free(ix->path);
    ix->path = segment_path(v->opt->dir, v->base, kind == INDEX_OFFSETS ? SEGMENT_OFFSETS : SEGMENT_TIMES);
    ix->count = ix->at = 0;
    ix->wrong = false;
    enum err e = fs_open(v->opt->fs, ix->path, FS_READ, &file);
    ix->there = e == OK;
    if (e == ERR_NOT_FOUND && v->opt->live) return; /* the segment may be on its way out */
    if (e) {
        ix->wrong = true;
        verify_found(v, kind == INDEX_OFFSETS ? VERIFY_OFFSET_INDEX : VERIFY_TIME_INDEX, ix->path, -1, "%s",
                     e == ERR_NOT_FOUND ? "it is missing" : err_text(e));
        return;
    }
    load_file(v, ix, kind, file);
    file_unref(file);
}

void verify_indexes_open(struct verify *v)
{
    v->max_time = -1;
    open_one(v, &v->offsets, INDEX_OFFSETS);
    open_one(v, &v->times, INDEX_TIMES);
}

static void check_offsets(struct verify *v, const struct batch_info *b, int64_t pos)
{
    struct verify_index *ix = &v->offsets;
    while (ix->at < ix->count && ix->entries[ix->at].value < pos) {
        wrong(v, ix, VERIFY_OFFSET_INDEX, ix->at,
              "it leads to position %" PRId64 " for offset %" PRId64 ", where no batch begins",
              ix->entries[ix->at].value, v->base + ix->entries[ix->at].key);
        ix->at++;
    }
    if (ix->at == ix->count || ix->entries[ix->at].value != pos) return;
    int64_t offset = v->base + ix->entries[ix->at].key;
    if (offset != batch_last_offset(b))
        wrong(v, ix, VERIFY_OFFSET_INDEX, ix->at,
              "it says that the batch which ends with offset %" PRId64 " ends with %" PRId64, batch_last_offset(b),
              offset);
    ix->at++;
}

/* An entry says how late a timestamp has come up to and with its offset. */
static void check_times(struct verify *v, const struct batch_info *b, int64_t before)
{
    struct verify_index *ix = &v->times;
    for (; ix->at < ix->count && v->base + ix->entries[ix->at].value <= batch_last_offset(b); ix->at++) {
        int64_t offset = v->base + ix->entries[ix->at].value;
        if (ix->entries[ix->at].key == (offset < b->base_offset ? before : v->max_time)) continue;
        wrong(v, ix, VERIFY_TIME_INDEX, ix->at,
              "it says that the largest timestamp up to offset %" PRId64 " is %" PRId64 ", but that is another one",
              offset, ix->entries[ix->at].key);
    }
}

void verify_indexes_batch(struct verify *v, const struct batch_info *b, int64_t pos)
{
    int64_t before = v->max_time;
    if (b->max_timestamp > v->max_time) v->max_time = b->max_timestamp;
    check_offsets(v, b, pos);
    check_times(v, b, before);
}

void verify_indexes_end(struct verify *v, int64_t size)
{
    struct verify_index *o = &v->offsets, *t = &v->times;
    if (o->at < o->count)
        wrong(v, o, VERIFY_OFFSET_INDEX, o->at,
              "it leads to position %" PRId64 ", behind the log's last batch (%" PRId64 ")", o->entries[o->at].value,
              size);
    if (t->at < t->count)
        wrong(v, t, VERIFY_TIME_INDEX, t->at,
              "it tells of offset %" PRId64 ", behind the log's last batch (%" PRId64 ")",
              v->base + t->entries[t->at].value, size);
    /* Retention goes by a closed segment's last entry. */
    int64_t said = t->count ? t->entries[t->count - 1].key : -1;
    if (!v->last && t->there && said != v->max_time)
        wrong(v, t, VERIFY_TIME_INDEX, t->count,
              "the segment's largest timestamp is %" PRId64 ", but the last entry says %" PRId64, v->max_time, said);
}
