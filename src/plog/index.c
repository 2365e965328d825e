/* index.c: entries of fixed size, searched by halves: first over 4 KiB blocks of the file, then within one. */
#include "plog/index.h"

#include <string.h>

#include "base/endian.h"
#include "base/mem.h"

enum { BLOCK_SIZE = 4096 };

static size_t entry_size(enum index_kind kind)
{
    return kind == INDEX_OFFSETS ? INDEX_OFFSETS_ENTRY_SIZE : INDEX_TIMES_ENTRY_SIZE;
}

static struct index_entry entry_decode(enum index_kind kind, const uint8_t *p)
{
    if (kind == INDEX_OFFSETS) return (struct index_entry){(int32_t)get_be32(p), (int32_t)get_be32(p + 4)};
    return (struct index_entry){(int64_t)get_be64(p), (int32_t)get_be32(p + 8)};
}

static void entry_encode(enum index_kind kind, uint8_t *p, struct index_entry entry)
{
    if (kind == INDEX_OFFSETS) {
        put_be32(p, (uint32_t)entry.key);
        put_be32(p + 4, (uint32_t)entry.value);
    } else {
        put_be64(p, (uint64_t)entry.key);
        put_be32(p + 8, (uint32_t)entry.value);
    }
}

static enum err read_entry(struct file *file, enum index_kind kind, uint32_t at, struct index_entry *out)
{
    uint8_t bytes[INDEX_TIMES_ENTRY_SIZE];
    size_t size = entry_size(kind), got;
    enum err e = file_pread(file, bytes, size, (int64_t)(at * size), &got);
    if (e) return e;
    if (got < size) return ERR_CORRUPT;
    *out = entry_decode(kind, bytes);
    return OK;
}

static bool entry_is_zero(struct index_entry entry)
{
    return entry.key == 0 && entry.value == 0;
}

/* A killed Kafka leaves the file at its preallocated size: `count` entries of which the last are zero.  Finds how many
 * come before them; a time index of records from 1970 alone would lose its entries, which costs nothing. */
static enum err count_before_zeros(struct file *file, enum index_kind kind, uint32_t *count)
{
    uint32_t low = 0, high = *count; /* entries below `low` are in use, those from `high` on are zero */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct index_entry entry;
        enum err e = read_entry(file, kind, middle, &entry);
        if (e) return e;
        if (entry_is_zero(entry))
            high = middle;
        else
            low = middle + 1;
    }
    *count = low;
    return OK;
}

enum err index_measure(struct file *file, enum index_kind kind, struct index_extent *out)
{
    int64_t size, entry = (int64_t)entry_size(kind);
    enum err e = file_size(file, &size);
    if (e) return e;
    if (size > INT32_MAX) return ERR_TOO_BIG;
    struct index_extent extent = {.used = (uint32_t)(size / entry), .torn_bytes = size % entry};
    uint32_t whole = extent.used;
    struct index_entry last = {1, 1};
    if (whole > 0) e = read_entry(file, kind, whole - 1, &last);
    if (!e && entry_is_zero(last)) e = count_before_zeros(file, kind, &extent.used);
    if (e) return e;
    extent.zeros = whole - extent.used;
    *out = extent;
    return OK;
}

/* Looks at the ends only: what is wrong in between shows when a look-up leads to a place that is no batch. */
static enum err load(struct index *ix)
{
    int64_t size;
    enum err e = file_size(ix->file, &size);
    if (e) return e;
    if (size % (int64_t)entry_size(ix->kind) != 0 || size > INT32_MAX) return ERR_CORRUPT;
    uint32_t count = (uint32_t)(size / (int64_t)entry_size(ix->kind)), in_file = count;
    if (count == 0) return OK;

    e = read_entry(ix->file, ix->kind, count - 1, &ix->last);
    if (!e && entry_is_zero(ix->last)) {
        e = count_before_zeros(ix->file, ix->kind, &count);
        if (!e && count > 0) e = read_entry(ix->file, ix->kind, count - 1, &ix->last);
    }
    if (e) return e;
    if (count < in_file) e = file_truncate(ix->file, (int64_t)(count * entry_size(ix->kind)));
    if (e) return e;
    if (count > 0 && (ix->last.key < 0 || ix->last.value < 0)) return ERR_CORRUPT;
    if (count > 1) {
        struct index_entry first;
        e = read_entry(ix->file, ix->kind, 0, &first);
        if (e) return e;
        if (first.key >= ix->last.key || first.value >= ix->last.value) return ERR_CORRUPT;
    }
    ix->written = count;
    return OK;
}

enum err index_open(struct index *ix, struct fs *fs, const char *path, enum index_kind kind)
{
    *ix = (struct index){.kind = kind};
    enum err e = fs_open(fs, path, FS_READ | FS_WRITE | FS_CREATE, &ix->file);
    if (e) return e;
    e = load(ix);
    if (e && e != ERR_CORRUPT) index_close(ix); /* a corrupt one stays open, to be reset */
    return e;
}

void index_close(struct index *ix)
{
    file_unref(ix->file);
    mem_free(ix->tail);
    *ix = (struct index){.kind = ix->kind};
}

/* Entries of another life of the segment: they must not come back, least of all in an index that is empty else, which
 * no flush would sync. */
static enum err cut_file(struct index *ix, int64_t keep)
{
    int64_t size;
    enum err e = file_size(ix->file, &size);
    if (e || size <= keep) return e;
    e = file_truncate(ix->file, keep);
    return e ? e : file_sync(ix->file);
}

enum err index_reset(struct index *ix)
{
    enum err e = cut_file(ix, 0);
    if (e) return e;
    ix->written = ix->tail_count = 0;
    return OK;
}

void index_restart(struct index *ix)
{
    ix->written = ix->tail_count = 0;
}

enum err index_cut(struct index *ix)
{
    ASSERT(ix->tail_count == 0);
    return cut_file(ix, (int64_t)(ix->written * entry_size(ix->kind)));
}

void index_add(struct index *ix, struct index_entry entry)
{
    if (index_count(ix) > 0 && (entry.key <= ix->last.key || entry.value <= ix->last.value)) return;
    if (ix->tail_count >= INDEX_TAIL_MAX) return;
    if (ix->tail_count == ix->tail_cap) {
        ix->tail_cap = ix->tail_cap ? ix->tail_cap * 2 : INDEX_TAIL_FIRST;
        ix->tail = mem_realloc(ix->tail, ix->tail_cap * entry_size(ix->kind));
    }
    entry_encode(ix->kind, ix->tail + ix->tail_count * entry_size(ix->kind), entry);
    ix->tail_count++;
    ix->last = entry;
}

enum err index_write(struct index *ix)
{
    if (ix->tail_count == 0) return OK;
    size_t size = entry_size(ix->kind);
    return file_pwrite(ix->file, ix->tail, ix->tail_count * size, (int64_t)(ix->written * size));
}

void index_wrote(struct index *ix)
{
    ix->written += ix->tail_count;
    ix->tail_count = 0;
}

enum err index_save(struct index *ix)
{
    enum err e = index_write(ix);
    if (e) return e;
    index_wrote(ix);
    mem_free(ix->tail); /* an idle log keeps none */
    ix->tail = NULL;
    ix->tail_cap = 0;
    return OK;
}

/* The last of `count` encoded entries whose key (or value) is <= target; -1 when there is none. */
static int64_t search(const uint8_t *entries, uint32_t count, enum index_kind kind, enum index_by by, int64_t target)
{
    uint32_t low = 0, high = count; /* entries below `low` are <= target, those from `high` on are > target */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct index_entry entry = entry_decode(kind, entries + middle * entry_size(kind));
        if ((by == INDEX_BY_KEY ? entry.key : entry.value) <= target)
            low = middle + 1;
        else
            high = middle;
    }
    return (int64_t)low - 1;
}

bool index_find_tail(const struct index *ix, enum index_by by, int64_t target, struct index_entry *out)
{
    int64_t at = search(ix->tail, ix->tail_count, ix->kind, by, target);
    if (at < 0) return false;
    *out = entry_decode(ix->kind, ix->tail + (size_t)at * entry_size(ix->kind));
    return true;
}

static enum err read_entries(struct index_view view, uint32_t first, uint32_t count, bool nowait, uint8_t *out)
{
    size_t size = entry_size(view.kind), got;
    int64_t pos = (int64_t)(first * size);
    enum err e = nowait ? file_pread_nowait(view.file, out, count * size, pos, &got)
                        : file_pread(view.file, out, count * size, pos, &got);
    if (e) return e;
    return got < count * size ? ERR_CORRUPT : OK;
}

enum err index_find(struct index_view view, enum index_by by, int64_t target, bool nowait, struct index_entry *out)
{
    uint8_t block[BLOCK_SIZE];
    uint32_t per_block = (uint32_t)(BLOCK_SIZE / entry_size(view.kind));
    /* The entry sought is in [low, high), or there is none and low stays 0. */
    uint32_t low = 0, high = view.written;
    while (high - low > per_block) {
        uint32_t middle = low + (high - low) / 2;
        enum err e = read_entries(view, middle, 1, nowait, block);
        if (e) return e;
        if (search(block, 1, view.kind, by, target) == 0)
            low = middle;
        else
            high = middle;
    }
    if (low == high) return ERR_NOT_FOUND;
    enum err e = read_entries(view, low, high - low, nowait, block);
    if (e) return e;
    int64_t at = search(block, high - low, view.kind, by, target);
    if (at < 0) return ERR_NOT_FOUND;
    *out = entry_decode(view.kind, block + (size_t)at * entry_size(view.kind));
    return OK;
}

enum err index_truncate(struct index *ix, int64_t offset)
{
    ASSERT(ix->tail_count == 0);
    struct index_entry entry;
    enum index_by by = ix->kind == INDEX_OFFSETS ? INDEX_BY_KEY : INDEX_BY_VALUE;
    uint32_t keep = ix->written;
    while (keep > 0) { /* entries are cut at the end, mostly few */
        enum err e = read_entry(ix->file, ix->kind, keep - 1, &entry);
        if (e) return e;
        if ((by == INDEX_BY_KEY ? entry.key : entry.value) < offset) break;
        keep--;
    }
    if (keep == ix->written) return OK;
    enum err e = cut_file(ix, (int64_t)(keep * entry_size(ix->kind)));
    if (e) return e;
    ix->written = keep;
    if (keep > 0) ix->last = entry;
    return OK;
}

enum err index_walk(struct file *file, enum index_kind kind, uint32_t count, index_each_fn each, void *arg)
{
    uint8_t block[BLOCK_SIZE];
    size_t size = entry_size(kind);
    uint32_t per_block = (uint32_t)(sizeof block / size);
    for (uint32_t at = 0; at < count;) {
        uint32_t want = MIN(count - at, per_block);
        size_t got;
        enum err e = file_pread(file, block, want * size, (int64_t)(at * size), &got);
        if (e) return e;
        for (uint32_t i = 0; i < got / size; i++)
            if (!each(arg, at + i, entry_decode(kind, block + i * size))) return OK;
        if (got < want * size) return OK;
        at += want;
    }
    return OK;
}
