/* files.c: the files of a log that was closed: what Apache Kafka, and the next start, will believe without a look. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/endian.h"
#include "base/mem.h"
#include "plog/index.h"
#include "plog/producers.h"
#include "plog/segment.h"
#include "sim.h"

static const size_t FILE_SIZE_MAX = (size_t)1 << 20;

/* ---- Told when something is wrong */

enum { TOLD_BYTES_MAX = 400 };

struct tell {
    struct world *w;
    const char *dir;
};

static void tell_file(void *arg, const char *name, bool is_dir)
{
    const struct tell *t = arg;
    char *path = mem_printf("%s/%s", t->dir, name), *data;
    struct fs_stat st;
    size_t size;
    bool is_text = strstr(name, "checkpoint") || strstr(name, "metadata") || strstr(name, "shutdown");
    if (is_dir) {
        struct tell below = {t->w, path};
        enum err e = fs_list(fs_sim_fs(t->w->disk), path, tell_file, &below);
        if (e) fprintf(stderr, "     %s: %s\n", path, err_name(e));
    } else if (!fs_stat(fs_sim_fs(t->w->disk), path, &st)) {
        fprintf(stderr, "     %s: %" PRId64 " bytes\n", path, st.size);
        if (is_text && !fs_read_whole(fs_sim_fs(t->w->disk), path, TOLD_BYTES_MAX, &data, &size)) {
            for (size_t i = 0; i < size; i++) fputc(data[i] == '\n' ? ' ' : data[i] ? data[i] : '@', stderr);
            fputc('\n', stderr);
            mem_free(data);
        }
    }
    mem_free(path);
}

void tell_files(struct world *w)
{
    tell_file(&(struct tell){w, ""}, &SIM_DIR[1], true);
}

/* ---- Checked */

/* The batches of one segment. */
struct batch_at {
    int64_t pos, last, max_timestamp;
};

struct segment_file {
    int64_t base;
    struct batch_at *batches;
    size_t count, cap;
};

struct bases {
    int64_t *list;
    size_t count, cap;
};

static void bases_add(void *arg, const char *name, bool is_dir)
{
    struct bases *bs = arg;
    int64_t base;
    const char *suffix;
    if (is_dir || !segment_parse_name(name, &base, &suffix) || strcmp(suffix, SEGMENT_LOG) != 0) return;
    bs->list = mem_grow(bs->list, &bs->cap, bs->count + 1, sizeof *bs->list);
    bs->list[bs->count++] = base;
}

/* NULL: wrong already. */
static uint8_t *read_file(struct world *w, const char *dir, int64_t base, const char *suffix, size_t *size)
{
    char *path = segment_path(dir, base, suffix), *data = NULL;
    enum err e = fs_read_whole(fs_sim_fs(w->disk), path, FILE_SIZE_MAX, &data, size);
    if (e) wrong(w, "%s: %s", path, err_name(e));
    mem_free(path);
    return (uint8_t *)data;
}

static void read_segment(struct world *w, const char *dir, struct segment_file *sf)
{
    size_t size, pos = 0;
    uint8_t *data = read_file(w, dir, sf->base, SEGMENT_LOG, &size);
    struct batch_info b;
    while (data && size - pos >= BATCH_HEADER_SIZE && !batch_parse_header(&b, data + pos, (int64_t)(size - pos))) {
        sf->batches = mem_grow(sf->batches, &sf->cap, sf->count + 1, sizeof *sf->batches);
        sf->batches[sf->count++] = (struct batch_at){(int64_t)pos, batch_last_offset(&b), b.max_timestamp};
        pos += (size_t)b.size;
    }
    if (data && pos != size) wrong(w, "segment %" PRId64 " of a closed log ends torn", sf->base);
    mem_free(data);
}

static const struct batch_at *batch_with_last(const struct segment_file *sf, int64_t last)
{
    for (size_t i = 0; i < sf->count; i++)
        if (sf->batches[i].last == last) return &sf->batches[i];
    return NULL;
}

static void check_offset_index(struct world *w, const char *dir, const struct segment_file *sf)
{
    size_t size;
    uint8_t *data = read_file(w, dir, sf->base, SEGMENT_OFFSETS, &size);
    int64_t before = -1;
    if (data && size % INDEX_OFFSETS_ENTRY_SIZE) wrong(w, "half an entry in the index of %" PRId64, sf->base);
    for (size_t at = 0; data && at + INDEX_OFFSETS_ENTRY_SIZE <= size; at += INDEX_OFFSETS_ENTRY_SIZE) {
        int64_t last = sf->base + (int32_t)get_be32(data + at), pos = (int32_t)get_be32(data + at + 4);
        const struct batch_at *b = batch_with_last(sf, last);
        if (!b || b->pos != pos || last <= before)
            wrong(w, "the index of %" PRId64 " leads from %" PRId64 " to %" PRId64, sf->base, last, pos);
        before = last;
    }
    mem_free(data);
}

/* Whether `b` is the first batch that comes to that timestamp. */
static bool has_first(const struct segment_file *sf, const struct batch_at *b, int64_t timestamp)
{
    if (!b || !sf->batches || b->max_timestamp != timestamp) return false;
    for (const struct batch_at *x = sf->batches; x < b; x++)
        if (x->max_timestamp >= timestamp) return false;
    return true;
}

static void check_time_index(struct world *w, const char *dir, const struct segment_file *sf)
{
    size_t size;
    uint8_t *data = read_file(w, dir, sf->base, SEGMENT_TIMES, &size);
    int64_t before = -1, largest = -1;
    for (size_t i = 0; i < sf->count; i++) largest = MAX(largest, sf->batches[i].max_timestamp);
    if (data && size % INDEX_TIMES_ENTRY_SIZE) wrong(w, "half an entry in the time index of %" PRId64, sf->base);
    for (size_t at = 0; data && at + INDEX_TIMES_ENTRY_SIZE <= size; at += INDEX_TIMES_ENTRY_SIZE) {
        int64_t timestamp = (int64_t)get_be64(data + at), last = sf->base + (int32_t)get_be32(data + at + 8);
        const struct batch_at *b = batch_with_last(sf, last);
        bool first = timestamp > before && has_first(sf, b, timestamp);
        if (!first) wrong(w, "the time index of %" PRId64 " says %" PRId64 " of %" PRId64, sf->base, timestamp, last);
        before = timestamp;
    }
    if (data && before != largest)
        wrong(w, "the time index of %" PRId64 " ends with %" PRId64 ", not %" PRId64, sf->base, before, largest);
    mem_free(data);
}

static void check_segment(struct world *w, const char *dir, int64_t base)
{
    struct segment_file sf = {.base = base};
    read_segment(w, dir, &sf);
    if (!w->failed) check_offset_index(w, dir, &sf);
    if (!w->failed) check_time_index(w, dir, &sf);
    mem_free(sf.batches);
}

void check_files(struct world *w, struct sim_partition *sp, int index)
{
    char *dir = mem_printf("%s/%s-%d", SIM_DIR, SIM_TOPIC, index);
    struct bases bs = {.count = 0};
    enum err e = fs_list(fs_sim_fs(w->disk), dir, bases_add, &bs);
    if (e) wrong(w, "%s: %s", dir, err_name(e));
    for (size_t i = 0; i < bs.count && !w->failed; i++) check_segment(w, dir, bs.list[i]);
    if (sp->model.end > 0 && !w->failed) {
        size_t size;
        struct producers ps;
        uint8_t *data = read_file(w, dir, sp->model.end, SEGMENT_SNAPSHOT, &size);
        producers_init(&ps);
        if (data && producers_snapshot_decode(&ps, data, size, w->now_ms, w->config.log.producer_expiration_ms))
            wrong(w, "the snapshot at the end, %" PRId64 ", is no good", sp->model.end);
        producers_fini(&ps);
        mem_free(data);
    }
    mem_free(bs.list);
    mem_free(dir);
}
