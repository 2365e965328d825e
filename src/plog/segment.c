/* segment.c: see segment.h. */
#include "plog/segment.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "plog/scan.h"

enum { NAME_DIGITS = 20 };

static const char *const segment_suffixes[] = {SEGMENT_LOG, SEGMENT_OFFSETS, SEGMENT_TIMES, SEGMENT_TXNS,
                                               SEGMENT_SNAPSHOT};
enum { SUFFIXES_OF_DATA = ARRAY_COUNT(segment_suffixes) - 1 };

struct segment *segment_new(int64_t base_offset)
{
    struct segment *seg = mem_zalloc(1, sizeof *seg);
    atomic_init(&seg->refs, 1);
    seg->base_offset = base_offset;
    seg->first_timestamp = SEGMENT_TIME_NONE;
    seg->max_time = MAX_TIME_NONE;
    return seg;
}

struct segment *segment_ref(struct segment *seg)
{
    atomic_fetch_add_explicit(&seg->refs, 1, memory_order_relaxed);
    return seg;
}

void segment_unref(struct segment *seg)
{
    if (!seg || atomic_fetch_sub_explicit(&seg->refs, 1, memory_order_acq_rel) != 1) return;
    file_unref(seg->log);
    index_close(&seg->offsets);
    index_close(&seg->times);
    txnindex_close(&seg->txns);
    mem_free(seg);
}

char *segment_path(const char *dir, int64_t base_offset, const char *suffix)
{
    return mem_printf("%s/%020" PRId64 "%s", dir, base_offset, suffix);
}

bool segment_parse_name(const char *name, int64_t *base_offset, const char **suffix)
{
    int64_t value = 0;
    for (int i = 0; i < NAME_DIGITS; i++) {
        if (name[i] < '0' || name[i] > '9') return false;
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, name[i] - '0', &value))
            return false;
    }
    *base_offset = value;
    *suffix = name + NAME_DIGITS;
    return true;
}

enum err segment_open_log(struct segment *seg, struct fs *fs, const char *dir)
{
    if (seg->log) return OK;
    char *path = segment_path(dir, seg->base_offset, SEGMENT_LOG);
    enum err e = fs_open(fs, path, FS_READ | FS_WRITE, &seg->log);
    mem_free(path);
    return e;
}

static enum err open_index(struct index *ix, struct segment *seg, struct fs *fs, const char *dir, enum index_kind kind)
{
    if (index_is_open(ix)) return OK;
    char *path = segment_path(dir, seg->base_offset, kind == INDEX_OFFSETS ? SEGMENT_OFFSETS : SEGMENT_TIMES);
    enum err e = index_open(ix, fs, path, kind);
    mem_free(path);
    if (e != ERR_CORRUPT) return e;
    seg->indexes_bad = true;
    return OK;
}

enum err segment_open_indexes(struct segment *seg, struct fs *fs, const char *dir)
{
    enum err e = open_index(&seg->offsets, seg, fs, dir, INDEX_OFFSETS);
    if (!e) e = open_index(&seg->times, seg, fs, dir, INDEX_TIMES);
    if (e) return e;
    /* An entry that points behind the log's end comes from another life of this segment. */
    if (index_count(&seg->offsets) > 0 && seg->offsets.last.value >= seg->size) seg->indexes_bad = true;
    if (seg->indexes_bad || seg->max_time_known) return OK;
    if (index_count(&seg->times) > 0)
        seg->max_time = (struct max_time){seg->times.last.key, seg->base_offset + seg->times.last.value};
    seg->max_time_known = true;
    return OK;
}

void segment_close_files(struct segment *seg)
{
    ASSERT(seg->offsets.tail_count == 0 && seg->times.tail_count == 0);
    file_unref(seg->log);
    seg->log = NULL;
    index_close(&seg->offsets);
    index_close(&seg->times);
}

enum err segment_open_txns(struct segment *seg, struct fs *fs, const char *dir)
{
    if (seg->txns.path) return OK;
    char *path = segment_path(dir, seg->base_offset, SEGMENT_TXNS);
    enum err e = txnindex_open(&seg->txns, fs, path);
    mem_free(path);
    return e;
}

enum err segment_create(struct segment *seg, struct fs *fs, const char *dir)
{
    char *path = segment_path(dir, seg->base_offset, SEGMENT_LOG);
    enum err e = fs_open(fs, path, FS_READ | FS_WRITE | FS_CREATE | FS_TRUNCATE, &seg->log);
    mem_free(path);
    if (!e) e = segment_open_indexes(seg, fs, dir);
    if (!e && (seg->indexes_bad || index_count(&seg->offsets) > 0)) e = index_reset(&seg->offsets);
    if (!e && (seg->indexes_bad || index_count(&seg->times) > 0)) e = index_reset(&seg->times);
    seg->indexes_bad = false;
    seg->max_time_known = true;
    seg->max_time = MAX_TIME_NONE;
    return e;
}

void segment_index_batch(struct segment *seg, const struct batch_info *b, int64_t pos, int64_t interval_bytes)
{
    if (pos == 0) seg->first_timestamp = b->max_timestamp;
    if (b->max_timestamp > seg->max_time.timestamp)
        seg->max_time = (struct max_time){b->max_timestamp, batch_last_offset(b)};
    if (seg->bytes_unindexed > interval_bytes) {
        index_add(&seg->offsets, (struct index_entry){batch_last_offset(b) - seg->base_offset, pos});
        segment_index_end(seg);
        seg->bytes_unindexed = 0;
    }
    seg->bytes_unindexed += b->size;
}

void segment_index_end(struct segment *seg)
{
    if (seg->max_time.timestamp < 0) return;
    index_add(&seg->times, (struct index_entry){seg->max_time.timestamp, seg->max_time.offset - seg->base_offset});
}

bool segment_indexes_full(const struct segment *seg, int64_t index_bytes, int64_t more_entries)
{
    /* The time index keeps room for the entry that the end of the segment adds. */
    return index_count(&seg->offsets) + more_entries >= index_bytes / INDEX_OFFSETS_ENTRY_SIZE ||
           index_count(&seg->times) + more_entries >= index_bytes / INDEX_TIMES_ENTRY_SIZE - 1;
}

enum err segment_save_indexes(struct segment *seg)
{
    enum err e = index_is_open(&seg->offsets) ? index_save(&seg->offsets) : OK;
    if (!e && index_is_open(&seg->times)) e = index_save(&seg->times);
    return e;
}

enum err segment_rebuild_indexes(struct segment *seg, struct fs *fs, const char *dir, int64_t interval_bytes)
{
    enum err e = segment_open_log(seg, fs, dir);
    if (!e) e = segment_open_indexes(seg, fs, dir);
    if (!e) e = index_reset(&seg->offsets);
    if (!e) e = index_reset(&seg->times);
    if (e) return e;
    seg->max_time = MAX_TIME_NONE;
    seg->max_time_known = true;
    seg->bytes_unindexed = 0;

    struct scan sc;
    struct batch_info b;
    int64_t pos = 0;
    scan_init(&sc, seg->log, 0, seg->size, false);
    while (!(e = scan_header(&sc, &b))) {
        segment_index_batch(seg, &b, pos, interval_bytes);
        pos = sc.pos;
        if (index_wants_write(&seg->offsets) && (e = segment_save_indexes(seg)) != OK) break;
    }
    scan_fini(&sc);
    if (e != ERR_NOT_FOUND) return e;
    segment_index_end(seg);
    e = segment_save_indexes(seg);
    /* Of a segment that was flushed long ago nobody would sync them later: an empty index looks like a good one. */
    if (!e) e = file_sync(seg->offsets.file);
    if (!e) e = file_sync(seg->times.file);
    if (!e) seg->indexes_bad = false;
    return e;
}

size_t segment_file_count(bool with_snapshot)
{
    return with_snapshot ? ARRAY_COUNT(segment_suffixes) : SUFFIXES_OF_DATA;
}

enum err segment_rename_one(struct fs *fs, const char *dir, int64_t base_offset, size_t kind, const char *from,
                            const char *to)
{
    char *base = segment_path(dir, base_offset, segment_suffixes[kind]);
    char *old = mem_printf("%s%s", base, from), *new = mem_printf("%s%s", base, to);
    enum err e = fs_rename(fs, old, new);
    mem_free(new);
    mem_free(old);
    mem_free(base);
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err remove_files(struct fs *fs, const char *dir, int64_t base_offset, const char *suffix, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *base = segment_path(dir, base_offset, segment_suffixes[i]);
        char *path = mem_printf("%s%s", base, suffix);
        enum err e = fs_unlink(fs, path);
        mem_free(path);
        mem_free(base);
        if (e && e != ERR_NOT_FOUND) return e;
    }
    return OK;
}

enum err segment_rename_files(struct fs *fs, const char *dir, int64_t base_offset, const char *from, const char *to)
{
    enum err e = OK;
    for (size_t i = 0; i < ARRAY_COUNT(segment_suffixes) && !e; i++)
        e = segment_rename_one(fs, dir, base_offset, i, from, to);
    return e;
}

enum err segment_remove_files(struct fs *fs, const char *dir, int64_t base_offset, const char *suffix)
{
    return remove_files(fs, dir, base_offset, suffix, ARRAY_COUNT(segment_suffixes));
}

enum err segment_remove_data(struct fs *fs, const char *dir, int64_t base_offset, const char *suffix)
{
    return remove_files(fs, dir, base_offset, suffix, SUFFIXES_OF_DATA);
}
