/* clean_copy.c: a group of segments, read from end to end, and what stays of it written into one new segment.
 *
 * A group of one segment of which all stays is left alone: nothing is written before the first batch that differs. */
#include "plog/clean_internal.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/mem.h"
#include "plog/scan.h"

/* ---- The new segment */

static enum err create_file(struct plog *pl, int64_t base_offset, const char *suffix, struct file **out)
{
    char *path = segment_path(pl->dir, base_offset, suffix);
    enum err e = fs_open(pl->fs, path, FS_READ | FS_WRITE | FS_CREATE | FS_TRUNCATE, out);
    mem_free(path);
    return e;
}

static enum err create_index(struct plog *pl, int64_t base_offset, const char *suffix, struct index *ix,
                             enum index_kind kind)
{
    char *path = segment_path(pl->dir, base_offset, suffix);
    enum err e = index_open(ix, pl->fs, path, kind);
    mem_free(path);
    return e;
}

/* Makes the files; those of an earlier attempt go. */
static enum err target_open(struct cleaning *c, int64_t base_offset)
{
    struct plog *pl = c->pl;
    enum err e = files_claim(pl); /* a retired log's path may lead into another log */
    if (e) return e;
    struct segment *seg = c->target.seg = segment_new(base_offset);
    seg->max_time_known = true;
    e = segment_remove_data(pl->fs, pl->dir, base_offset, SEGMENT_CLEANED);
    if (!e) e = create_file(pl, base_offset, SEGMENT_LOG SEGMENT_CLEANED, &seg->log);
    if (!e) e = create_index(pl, base_offset, SEGMENT_OFFSETS SEGMENT_CLEANED, &seg->offsets, INDEX_OFFSETS);
    if (!e) e = create_index(pl, base_offset, SEGMENT_TIMES SEGMENT_CLEANED, &seg->times, INDEX_TIMES);
    files_release(pl);
    return e;
}

void clean_target_close(struct cleaning *c)
{
    segment_unref(c->target.seg);
    c->target.seg = NULL;
    c->target.aborted_count = 0;
    c->tools->out_size = 0;
}

void clean_target_discard(struct cleaning *c)
{
    struct segment *seg = c->target.seg;
    if (seg && files_claim(c->pl) == OK) {
        enum err e = segment_remove_data(c->pl->fs, c->pl->dir, seg->base_offset, SEGMENT_CLEANED);
        if (e)
            LOG_WARN("cleaned_left", "dir=%s segment=%" PRId64 " error=%s", c->pl->dir, seg->base_offset, err_name(e));
        files_release(c->pl);
    }
    clean_target_close(c);
}

/* Writes what has gathered. */
static enum err target_write(struct cleaning *c)
{
    struct clean_tools *t = c->tools;
    struct segment *seg = c->target.seg;
    size_t size = t->out_size;
    if (size == 0) return OK;
    enum err e = file_pwrite(seg->log, t->out, size, seg->size - (int64_t)size);
    if (e) return e;
    t->out_size = 0;
    c->result->bytes_written += (int64_t)size;
    if (index_wants_write(&seg->offsets) || index_wants_write(&seg->times)) e = segment_save_indexes(seg);
    return e ? e : clean_pace(c, size);
}

/* A batch has been put behind tools->out. */
static enum err target_count(struct cleaning *c, const struct batch_info *info)
{
    struct segment *seg = c->target.seg;
    if (seg->size > INT32_MAX - info->size) return ERR_TOO_BIG; /* positions have 32 bits */
    segment_index_batch(seg, info, seg->size, c->config.index_interval_bytes);
    seg->size += info->size;
    return c->tools->out_size >= c->tools->limits.io_bytes ? target_write(c) : OK;
}

static enum err target_put_whole(struct cleaning *c, const struct batch_info *b, const uint8_t *data)
{
    memcpy(clean_out_reserve(c->tools, (size_t)b->size), data, (size_t)b->size);
    c->tools->out_size += (size_t)b->size;
    return target_count(c, b);
}

/* Everything written, and on the disk. */
static enum err target_finish(struct cleaning *c)
{
    struct segment *seg = c->target.seg;
    enum err e = target_write(c);
    segment_index_end(seg);
    if (!e) e = segment_save_indexes(seg);
    if (!e) e = file_sync(seg->log);
    if (!e) e = file_sync(seg->offsets.file);
    if (!e) e = file_sync(seg->times.file);
    return e;
}

/* ---- Copying */

/* The original, as far as it was only looked at: [0, end) of `log`. */
static enum err copy_prefix(struct cleaning *c, struct file *log, int64_t end)
{
    struct scan sc;
    struct batch_info b;
    const uint8_t *data;
    enum err e = OK;
    scan_init(&sc, log, 0, end, false);
    sc.read_ahead = c->tools->limits.io_bytes;
    while (!e && !(e = scan_batch(&sc, &b, &data))) e = scan_work(target_put_whole(c, &b, data));
    scan_fini(&sc);
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err put_batch(struct cleaning *c, const struct batch_info *b, const uint8_t *data,
                          const struct clean_verdict *v)
{
    struct batch_info info;
    enum err e = OK;
    switch (v->fate) {
    case CLEAN_DROP: return OK;
    case CLEAN_KEEP: return target_put_whole(c, b, data);
    case CLEAN_REWRITE: e = clean_batch_rewrite(c, b, data, v, &info); break;
    case CLEAN_EMPTY: clean_batch_empty(c, b, &info); break;
    }
    return e ? e : target_count(c, &info);
}

static enum err copy_batch(struct cleaning *c, struct file *log, int64_t base_offset, int64_t pos,
                           const struct batch_info *b, const uint8_t *data)
{
    struct clean_verdict v;
    if (!batch_crc_ok(data, b)) return ERR_CORRUPT;
    enum err e = clean_batch_judge(c, b, data, &v);
    if (e) return e;
    if (!c->target.seg && v.fate != CLEAN_KEEP) {
        e = target_open(c, base_offset);
        if (!e) e = copy_prefix(c, log, pos);
    }
    if (!e && c->target.seg) e = put_batch(c, b, data, &v);
    mem_free(v.decompressed);
    return e;
}

static enum err copy_segment(struct cleaning *c, struct segment *seg)
{
    struct file *log;
    enum err e = clean_open_log(c, seg, &log);
    if (e) return e;
    struct scan sc;
    struct batch_info b;
    const uint8_t *data;
    int64_t pos = 0, told = 0;
    scan_init(&sc, log, 0, seg->size, false);
    sc.read_ahead = c->tools->limits.io_bytes;
    while (!e && !(e = scan_batch(&sc, &b, &data))) {
        e = scan_work(copy_batch(c, log, seg->base_offset, pos, &b, data));
        pos = sc.pos;
        if (!e && pos - told >= (int64_t)sc.read_ahead) {
            e = clean_pace(c, (size_t)(pos - told));
            told = pos;
        }
    }
    scan_fini(&sc);
    file_unref(log);
    c->result->bytes_read += pos;
    if (e != ERR_NOT_FOUND) return e;
    return clean_pace(c, (size_t)(pos - told));
}

enum err clean_group_copy(struct cleaning *c, const struct clean_group *g)
{
    enum err e = g->count > 1 ? target_open(c, g->segments[0]->base_offset) : OK;
    for (size_t i = 0; i < g->count && !e; i++) e = copy_segment(c, g->segments[i]);
    if (!e && c->target.seg) e = target_finish(c);
    return e;
}
