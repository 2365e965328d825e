/* verify.c: the walk over a partition's files and batches; verify_index.c and verify_state.c look at each batch. */
#include "plog/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plog/checkpoint.h"
#include "plog/scan.h"
#include "plog/segment.h"
#include "plog/verify_internal.h"

static const struct {
    enum verify_level level;
    const char *id, *advice;
} kinds[VERIFY_KIND_COUNT] = {
#define X(name, level, id, advice) {VERIFY_##level, id, advice},
    VERIFY_KINDS(X)
#undef X
};

enum verify_level verify_kind_level(enum verify_kind kind)
{
    return kinds[kind].level;
}

const char *verify_kind_id(enum verify_kind kind)
{
    return kinds[kind].id;
}

const char *verify_kind_advice(enum verify_kind kind)
{
    return kinds[kind].advice;
}

void verify_found(struct verify *v, enum verify_kind kind, const char *file, int64_t pos, const char *fmt, ...)
{
    struct verify_finding f = {.kind = kind, .file = file, .pos = pos};
    va_list args;
    va_start(args, fmt);
    vsnprintf(f.text, sizeof f.text, fmt, args);
    va_end(args);
    v->res->damages += kinds[kind].level == VERIFY_DAMAGE;
    v->opt->found(v->opt->arg, &f);
}

/* ---- The files */

struct files {
    struct verify *v;
    struct offset_list logs, others; /* others: indexes, whose log should be there */
    char **notes;
    size_t note_count, note_cap;
};

static void offset_add(struct offset_list *list, int64_t offset)
{
    list->offsets = mem_grow(list->offsets, &list->cap, list->count + 1, sizeof *list->offsets);
    list->offsets[list->count++] = offset;
}

static int compare_offsets(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void offset_sort(struct offset_list *list)
{
    if (list->count > 1) qsort(list->offsets, list->count, sizeof *list->offsets, compare_offsets);
}

static void note_name(struct files *fl, const char *name)
{
    fl->notes = mem_grow(fl->notes, &fl->note_cap, fl->note_count + 1, sizeof(char *));
    fl->notes[fl->note_count++] = mem_strdup(name);
}

/* The list that a segment's file goes into; NULL: it is none. */
static struct offset_list *list_of(struct files *fl, const char *suffix)
{
    if (strcmp(suffix, SEGMENT_LOG) == 0) return &fl->logs;
    if (strcmp(suffix, SEGMENT_SNAPSHOT) == 0) return &fl->v->snapshots;
    bool index =
        strcmp(suffix, SEGMENT_OFFSETS) == 0 || strcmp(suffix, SEGMENT_TIMES) == 0 || strcmp(suffix, SEGMENT_TXNS) == 0;
    return index ? &fl->others : NULL;
}

static void see_file(void *arg, const char *name, bool is_dir)
{
    struct files *fl = arg;
    int64_t offset;
    const char *suffix;
    ASSERT(fl);
    if (!is_dir && (strcmp(name, LEADER_EPOCHS) == 0 || strcmp(name, PARTITION_METADATA) == 0)) return;
    bool named = !is_dir && segment_parse_name(name, &offset, &suffix) && offset <= SEGMENT_BASE_MAX;
    struct offset_list *list = named ? list_of(fl, suffix) : NULL;
    if (list)
        offset_add(list, offset);
    else
        note_name(fl, name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void tell_notes(struct files *fl)
{
    struct verify *v = fl->v;
    if (fl->note_count > 1) qsort(fl->notes, fl->note_count, sizeof(char *), compare_names);
    for (size_t i = 0; i < fl->note_count; i++) {
        char *path = mem_printf("%s/%s", v->opt->dir, fl->notes[i]);
        if (str_ends_with(str_of(path), SEGMENT_DELETED))
            verify_found(v, VERIFY_LEFTOVER, path, -1, "a file of a deleted segment");
        else if (str_ends_with(str_of(path), SEGMENT_CLEANED) || str_ends_with(str_of(path), SEGMENT_SWAP))
            verify_found(v, VERIFY_LEFTOVER, path, -1,
                         "a file of a segment that the cleaner was about to put in place");
        else if (str_ends_with(str_of(path), ".tmp"))
            verify_found(v, VERIFY_LEFTOVER, path, -1, "a file that was being written");
        else if (strstr(fl->notes[i], SEGMENT_LOG ".cut-"))
            verify_found(v, VERIFY_STRAY, path, -1, "bytes that a repair cut off");
        else
            verify_found(v, VERIFY_STRAY, path, -1, "no file of a log has such a name");
        mem_free(path);
    }
}

static void tell_without_log(struct files *fl)
{
    const struct offset_list *logs = &fl->logs;
    int64_t before = -1;
    offset_sort(&fl->others);
    for (size_t i = 0; i < fl->others.count; i++) {
        int64_t offset = fl->others.offsets[i];
        if (offset == before) continue;
        before = offset;
        if (logs->count && bsearch(&offset, logs->offsets, logs->count, sizeof offset, compare_offsets)) continue;
        char *path = segment_path(fl->v->opt->dir, offset, SEGMENT_OFFSETS);
        if (!fl->v->opt->live)
            verify_found(fl->v, VERIFY_STRAY, path, -1, "an index of a segment that has no .log file");
        mem_free(path);
    }
}

static void check_metadata(struct verify *v)
{
    struct uuid id;
    struct fault f = {.code = OK};
    char *path = mem_printf("%s/" PARTITION_METADATA, v->opt->dir);
    enum err e = partition_metadata_read(&id, v->opt->fs, path, &f);
    if (e && e != ERR_NOT_FOUND) verify_found(v, VERIFY_METADATA, path, -1, "%s", f.code ? f.text : err_text(e));
    mem_free(path);
}

static void files_free(struct files *fl)
{
    for (size_t i = 0; i < fl->note_count; i++) mem_free(fl->notes[i]);
    mem_free(fl->notes);
    mem_free(fl->logs.offsets);
    mem_free(fl->others.offsets);
}

/* ---- Bytes that are no batch */

static void cut_here(struct verify *v, int64_t pos, bool loses)
{
    if (v->res->cut_base >= 0) return;
    v->res->cut_base = v->base;
    v->res->cut_pos = pos;
    v->res->cut_end = v->next;
    v->res->cut_loses = loses;
}

/* Whether a sound batch of an offset that may come stands at `pos`. */
static bool batch_stands_at(struct verify *v, struct scan *sc, int64_t pos)
{
    struct batch_info b;
    const uint8_t *data;
    sc->pos = pos;
    if (scan_batch(sc, &b, &data) != OK) return false;
    return b.base_offset >= v->next && batch_last_offset(&b) - v->base <= INT32_MAX && batch_crc_ok(data, &b);
}

/* The next sound batch behind unreadable bytes: looks at every place where offset and magic are possible.  -1: none. */
static int64_t find_batch(struct verify *v, struct file *file, int64_t from, int64_t size)
{
    enum { CHUNK = 65536 };
    uint8_t *chunk = mem_alloc(CHUNK);
    int64_t found = -1;
    struct scan sc;
    scan_init(&sc, file, from, size, false);
    for (int64_t at = from; at + BATCH_HEADER_SIZE <= size && found < 0; at += CHUNK - BATCH_AT_ATTRIBUTES) {
        size_t got;
        if (file_pread(file, chunk, CHUNK, at, &got)) break;
        for (size_t i = 0; i + BATCH_AT_ATTRIBUTES <= got && found < 0; i++) {
            int64_t offset = (int64_t)get_be64(chunk + i);
            /* Nearly all places fail here, so that hardly any is read as a batch. */
            if (offset < v->next || offset - v->base > INT32_MAX || chunk[i + BATCH_AT_MAGIC] != BATCH_MAGIC) continue;
            if (batch_stands_at(v, &sc, at + (int64_t)i)) found = at + (int64_t)i;
        }
    }
    scan_fini(&sc);
    mem_free(chunk);
    return found;
}

/* Tells of it and finds where to go on; the segment's size when there is nothing more in it. */
static int64_t pass_unreadable(struct verify *v, const char *path, struct file *file, int64_t pos, int64_t size,
                               const char *what)
{
    int64_t go_on = find_batch(v, file, pos + 1, size);
    bool tail = go_on < 0 && v->last;
    if (tail)
        verify_found(v, VERIFY_TORN_TAIL, path, pos, "%s, and no sound batch follows in the last %" PRId64 " bytes",
                     what, size - pos);
    else if (go_on < 0)
        verify_found(v, VERIFY_BAD_BATCH, path, pos, "%s, nor is there one in the segment's last %" PRId64 " bytes",
                     what, size - pos);
    else
        verify_found(v, VERIFY_BAD_BATCH, path, pos, "%s; the next sound batch stands at position %" PRId64, what,
                     go_on);
    cut_here(v, pos, !tail);
    v->broken = v->offsets.wrong = v->times.wrong = true; /* they may well be right, of what cannot be read any more */
    return go_on < 0 ? size : go_on;
}

/* ---- Batches */

static void check_records(struct verify *v, const char *path, const struct batch_info *b, const uint8_t *data,
                          int64_t pos)
{
    struct record_iter it;
    struct record rec;
    int64_t before = b->base_offset - 1;
    enum err e = record_iter_init(&it, data, (size_t)b->size, INT32_MAX);
    if (!e) {
        while (!(e = record_iter_next(&it, &rec)) && rec.offset > before) before = rec.offset;
        record_iter_fini(&it);
    }
    if (e != ERR_NOT_FOUND)
        verify_found(v, VERIFY_BAD_RECORDS, path, pos,
                     "the records of the batch at offset %" PRId64 " are not sound: %s", b->base_offset,
                     e ? err_text(e) : "their offsets do not ascend");
}

/* What is wrong with a batch that parsed; NULL: nothing. */
static const char *batch_fault(const struct verify *v, const struct batch_info *b, const uint8_t *data)
{
    if (!batch_crc_ok(data, b)) return "the batch's CRC does not match its bytes";
    if (b->base_offset < v->next) return "the batch's offset is not above the one before it";
    if (b->base_offset < v->base || batch_last_offset(b) - v->base > INT32_MAX)
        return "the batch's offset cannot be in this segment";
    return NULL;
}

static void take_batch(struct verify *v, const char *path, const struct batch_info *b, const uint8_t *data, int64_t pos)
{
    v->res->batches++;
    v->res->records += b->count;
    verify_indexes_batch(v, b, pos);
    verify_state_batch(v, b, data, path, pos);
    if (v->opt->deep) check_records(v, path, b, data, pos);
    v->next = batch_last_offset(b) + 1;
}

static void advance(struct verify *v, int64_t bytes)
{
    v->res->bytes += bytes;
    if (v->opt->progress) atomic_fetch_add_explicit(v->opt->progress, bytes, memory_order_relaxed);
}

/* Returns where the last sound batch ends. */
static int64_t walk_segment(struct verify *v, const char *path, struct file *file, int64_t size)
{
    struct scan sc;
    int64_t sound = 0, pos = 0;
    scan_init(&sc, file, 0, size, false);
    while (pos < size) {
        struct batch_info b;
        const uint8_t *data;
        sc.pos = pos;
        enum err e = scan_batch(&sc, &b, &data);
        const char *fault = e ? "no whole batch stands here" : batch_fault(v, &b, data);
        if (e == ERR_UNSUPPORTED) {
            verify_found(v, VERIFY_OLD_FORMAT, path, pos,
                         "messages of format v0 or v1 stand here; only v2 can be read");
            v->broken = true;
            break;
        }
        if (e && e != ERR_CORRUPT) {
            verify_found(v, VERIFY_UNREADABLE, path, pos, "it cannot be read: %s", err_text(e));
            v->broken = true;
            break;
        }
        int64_t from = pos;
        if (fault) {
            pos = pass_unreadable(v, path, file, pos, size, fault);
        } else {
            take_batch(v, path, &b, data, pos);
            sound = pos = sc.pos;
        }
        advance(v, pos - from);
    }
    scan_fini(&sc);
    return sound;
}

static void verify_segment(struct verify *v)
{
    char *path = segment_path(v->opt->dir, v->base, SEGMENT_LOG);
    struct file *file = NULL;
    int64_t size;
    enum err e = fs_open(v->opt->fs, path, FS_READ, &file);
    if (!e) e = file_size(file, &size);
    if (!e && size > INT32_MAX) e = ERR_TOO_BIG;
    if (e == ERR_NOT_FOUND && v->opt->live) {
        v->incomplete = true; /* deleted meanwhile */
    } else if (e) {
        verify_found(v, VERIFY_UNREADABLE, path, -1, "it cannot be opened: %s", err_text(e));
        v->broken = true;
    } else {
        if (v->base < v->next && v->res->segments > 0) {
            verify_found(v, VERIFY_OFFSETS, path, -1,
                         "the segment begins at %" PRId64 ", but those before it end at %" PRId64, v->base, v->next);
            cut_here(v, 0, true);
            v->broken = true;
        }
        v->gaps |= v->res->segments > 0 && v->base > v->next;
        v->next = MAX(v->next, v->base);
        verify_indexes_open(v);
        verify_indexes_end(v, walk_segment(v, path, file, size));
        verify_txns_end(v);
    }
    v->res->segments++;
    file_unref(file);
    mem_free(path);
}

static void verify_segments(struct verify *v, const struct offset_list *logs)
{
    /* Of a log in use the active segment is still changing. */
    size_t count = v->opt->live && logs->count > 0 ? logs->count - 1 : logs->count;
    v->res->first = v->next = logs->count ? logs->offsets[0] : MAX(v->opt->log_start, 0);
    verify_state_open(v);
    for (size_t i = 0; i < count; i++) {
        v->base = logs->offsets[i];
        v->last = i + 1 == logs->count;
        verify_segment(v);
    }
    if (v->opt->live && logs->count > 0) v->next = MAX(v->next, logs->offsets[logs->count - 1]);
    v->res->end = v->next;
    verify_state_end(v);
}

static void free_index(struct verify_index *ix)
{
    mem_free(ix->entries);
    mem_free(ix->path);
}

enum err plog_verify(struct plog_verify_result *out, const struct plog_verify_options *opt)
{
    *out = (struct plog_verify_result){.cut_base = -1};
    struct verify v = {.opt = opt, .res = out};
    struct files fl = {.v = &v};
    enum err e = fs_list(opt->fs, opt->dir, see_file, &fl);
    if (!e) {
        offset_sort(&fl.logs);
        offset_sort(&v.snapshots);
        tell_notes(&fl);
        tell_without_log(&fl);
        check_metadata(&v);
        verify_segments(&v, &fl.logs);
    } else {
        mem_free(v.snapshots.offsets);
    }
    free_index(&v.offsets);
    free_index(&v.times);
    files_free(&fl);
    return e;
}
