/* recover.c: reading again what may be torn, segment by segment, each batch once.
 *
 * The batches themselves are the truth: what they and their CRCs say is kept, and all that is derived from them
 * (indexes, transaction index, epochs, producer state) is made anew from the recovery point's segment on.  Nothing is
 * synced here but what had to be cut (flush.c): a crash during recovery leaves a log that is recovered again. */
#include "plog/recover.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "plog/scan.h"

/* ---- Where to begin */

/* Recovery begins with the segment that holds the recovery point.  A flush leaves out the indexes of the active
 * segment, which is that one; but when everything is flushed and the segment is closed then, the point lies in the next
 * one, and nobody would look at these indexes again.  So it stays a step behind the end of a segment with such indexes.
 */
int64_t plog_recovery_start(struct plog *pl)
{
    pthread_mutex_lock(&pl->lock);
    int64_t start = plog_recovery_point(pl);
    size_t first = pl->segment_count - 1; /* the active one may be new, and empty */
    while (first > 0 && pl->segments[first - 1]->indexes_unsynced) first--;
    if (pl->segments[first]->indexes_unsynced) {
        int64_t last = segment_end(pl, first) - 1;
        start = MIN(start, MAX(last, pl->segments[first]->base_offset));
    }
    pthread_mutex_unlock(&pl->lock);
    return start;
}

/* ---- Finding places */

enum err locate_from(struct file *log, int64_t from, int64_t size, int64_t offset, bool nowait, struct located *out)
{
    struct scan sc;
    enum err e;
    out->misled = false;
    scan_init(&sc, log, from, size, nowait);
    do {
        out->pos = sc.pos;
        e = scan_header(&sc, &out->info);
        /* An index entry that leads behind what it should lead to, or into a batch: begin at the beginning. */
        if (out->pos == from && from > 0 && (e == ERR_CORRUPT || (!e && out->info.base_offset > offset))) {
            sc.pos = from = 0;
            out->misled = true;
            e = OK;
            out->info.base_offset = -1;
            out->info.last_offset_delta = 0;
        }
    } while (!e && batch_last_offset(&out->info) < offset);
    scan_fini(&sc);
    return e;
}

enum err segment_locate(struct segment *seg, int64_t offset, struct located *out)
{
    struct index_entry entry = {0};
    int64_t relative = offset - seg->base_offset;
    if (!index_find_tail(&seg->offsets, INDEX_BY_KEY, relative, &entry)) {
        enum err e = index_find(index_view(&seg->offsets), INDEX_BY_KEY, relative, false, &entry);
        if (e && e != ERR_NOT_FOUND) return e;
    }
    return locate_from(seg->log, entry.value, seg->size, offset, false, out);
}

/* ---- Producer state */

struct snapshot_list {
    int64_t *offsets;
    size_t count, cap;
};

static void snapshot_list_add(void *arg, const char *name, bool is_dir)
{
    struct snapshot_list *list = arg;
    int64_t offset;
    const char *suffix;
    if (is_dir || !segment_parse_name(name, &offset, &suffix) || strcmp(suffix, SEGMENT_SNAPSHOT) != 0) return;
    list->offsets = mem_grow(list->offsets, &list->cap, list->count + 1, sizeof *list->offsets);
    list->offsets[list->count++] = offset;
}

static int offset_compare_descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

static enum err remove_snapshot(struct plog *pl, int64_t offset)
{
    char *path = segment_path(pl->dir, offset, SEGMENT_SNAPSHOT);
    enum err e = fs_unlink(pl->fs, path);
    mem_free(path);
    return e == ERR_NOT_FOUND ? OK : e;
}

/* The newest usable snapshot at or below `end`; *offset = -1 when there is none.  Others above it are of a past that
 * was cut off, or broken: they go. */
static enum err load_snapshot(struct plog *pl, struct producers *ps, int64_t end, int64_t *offset)
{
    struct snapshot_list list = {0};
    int64_t now_ms = clock_wall_ms(pl->clock);
    *offset = -1;
    enum err e = fs_list(pl->fs, pl->dir, snapshot_list_add, &list);
    if (!e && list.count > 1) qsort(list.offsets, list.count, sizeof *list.offsets, offset_compare_descending);
    for (size_t i = 0; i < list.count && !e && *offset < 0; i++) {
        e = ERR_CORRUPT;
        if (list.offsets[i] <= end)
            e = producers_snapshot_read(ps, pl->fs, pl->dir, list.offsets[i], now_ms,
                                        pl->config.producer_expiration_ms);
        if (!e) *offset = list.offsets[i];
        if (e == ERR_CORRUPT) e = remove_snapshot(pl, list.offsets[i]);
    }
    mem_free(list.offsets);
    return e;
}

/* Counts a batch that is in the log already.  `data` is needed of control batches only. */
static bool replay_batch(struct producers *ps, const struct batch_info *b, const uint8_t *data,
                         struct producers_result *r)
{
    *r = (struct producers_result){.txn_ended = false};
    if (b->producer_id < 0) return false;
    struct txn_marker marker;
    bool is_marker = data && (b->attributes & BATCH_CONTROL) && batch_read_marker(&marker, data, (size_t)b->size) == OK;
    producers_queue(ps, b, is_marker ? &marker : NULL, APPEND_REPLICA, r);
    producers_publish(ps, batch_last_offset(b) + 1);
    return r->txn_ended;
}

/* Counts the batches of [from, end) in one segment. */
static enum err replay_segment(struct plog *pl, struct producers *ps, struct segment *seg, int64_t from, int64_t end)
{
    enum err e = segment_ensure_open(pl, seg);
    if (e) return scan_work(e);
    struct located at = {.pos = 0};
    if (from > seg->base_offset) e = segment_locate(seg, from, &at);
    if (e) return e == ERR_NOT_FOUND ? OK : e;

    struct scan sc;
    scan_init(&sc, seg->log, at.pos, seg->size, false);
    for (;;) {
        struct batch_info b;
        int64_t pos = sc.pos;
        const uint8_t *data = NULL;
        e = scan_header(&sc, &b);
        if (e || b.base_offset >= end) break;
        if (b.attributes & BATCH_CONTROL) { /* the marker's record is needed too */
            sc.pos = pos;
            e = scan_batch(&sc, &b, &data);
        }
        if (e) break;
        struct producers_result r;
        if (replay_batch(ps, &b, data, &r)) atomic_store_explicit(&pl->txns_ended, true, memory_order_release);
    }
    scan_fini(&sc);
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err plog_load_producers(struct plog *pl, struct producers *ps, int64_t end)
{
    int64_t from;
    enum err e = load_snapshot(pl, ps, end, &from);
    if (e) return e;
    pl->snapshot_offset = from;
    if (from < 0) from = pl->segments[0]->base_offset;
    for (size_t i = segment_floor(pl, from); i < pl->segment_count && !e; i++)
        if (pl->segments[i]->base_offset < end) e = replay_segment(pl, ps, pl->segments[i], from, end);
    producers_publish(ps, end);
    return e;
}

struct producers *producers_new(void)
{
    struct producers *ps = mem_zalloc(1, sizeof *ps);
    producers_init(ps);
    return ps;
}

void producers_free(struct producers *ps)
{
    producers_fini(ps);
    mem_free(ps);
}

enum err recover_producers_clean(struct plog *pl)
{
    int64_t end = plog_end(pl);
    /* Without any snapshot there were no producers: Kafka believes that too, and saves reading the whole log. */
    if (pl->snapshot_offset < 0) return OK;
    if (pl->snapshot_offset == end) {
        enum err e = producers_snapshot_read(pl->producers, pl->fs, pl->dir, end, clock_wall_ms(pl->clock),
                                             pl->config.producer_expiration_ms);
        if (e != ERR_CORRUPT) return e;
    }
    return plog_load_producers(pl, pl->producers, end);
}

/* ---- Batches */

enum err recover_fault(const struct plog *pl, const struct segment *seg, int64_t pos, enum err e, struct fault *f)
{
    char *path = segment_path(pl->dir, seg->base_offset, SEGMENT_LOG);
    uint8_t magic = 0;
    size_t got = 0;
    if (e == ERR_UNSUPPORTED) {
        enum err ignored = file_pread(seg->log, &magic, 1, pos + BATCH_AT_MAGIC, &got);
        (void)ignored;
        fault_set(f, e,
                  "%s holds, at position %" PRId64 ", messages of format v%d, which Kafka wrote before 0.11: only "
                  "format v2 can be read. Let a Kafka 3.x broker rewrite or expire them first.",
                  path, pos, magic);
    } else {
        fault_set(f, e, "%s cannot be read at position %" PRId64 ": %s.", path, pos, err_text(e));
    }
    mem_free(path);
    return e;
}

/* Whether a batch that parsed can be what stands here: after what came before, and with the bytes that were written. */
static bool batch_is_sound(const struct segment *seg, const struct batch_info *b, const uint8_t *data, int64_t next)
{
    if (b->base_offset < next || b->last_offset_delta < 0) return false;
    if (batch_last_offset(b) - seg->base_offset > INT32_MAX) return false;
    return batch_crc_ok(data, b);
}

static enum err begin_segment(struct plog *pl, struct segment *seg)
{
    enum err e = segment_open_log(seg, pl->fs, pl->dir);
    if (!e) e = segment_open_indexes(seg, pl->fs, pl->dir);
    if (e) return e;
    index_restart(&seg->offsets);
    index_restart(&seg->times);
    if (seg->txns_there) e = segment_open_txns(seg, pl->fs, pl->dir);
    if (!e && seg->txns.path) e = txnindex_clear(&seg->txns);
    seg->indexes_bad = false;
    seg->unsynced = seg->indexes_unsynced = seg->snapshot_unsynced = seg->max_time_known = true;
    seg->max_time = MAX_TIME_NONE;
    seg->first_timestamp = SEGMENT_TIME_NONE;
    seg->bytes_unindexed = 0;
    return e;
}

/* The file may be of before a truncation, and tell of epochs, this one too, that began elsewhere than here. */
static void note_epoch(struct plog *pl, const struct batch_info *b)
{
    if (epochs_of_offset(&pl->epochs, b->base_offset) != b->leader_epoch)
        epochs_truncate_end(&pl->epochs, b->base_offset);
    if (b->leader_epoch > epochs_latest(&pl->epochs)) epochs_assign(&pl->epochs, b->leader_epoch, b->base_offset);
}

/* Counts a sound batch in. */
static enum err take_batch(struct plog *pl, struct segment *seg, const struct batch_info *b, const uint8_t *data,
                           int64_t pos)
{
    segment_index_batch(seg, b, pos, pl->config.index_interval_bytes);
    note_epoch(pl, b);
    struct producers_result r;
    enum err e = OK;
    if (replay_batch(pl->producers, b, data, &r)) {
        atomic_store_explicit(&pl->txns_ended, true, memory_order_relaxed);
        if (r.aborted) e = plog_add_aborted(pl, seg, &r.txn);
    }
    if (!e && index_wants_write(&seg->offsets)) e = segment_save_indexes(seg);
    return e;
}

static enum err keep_going(const struct plog *pl, const struct batch_info *b)
{
    if (pl->recovered_bytes) atomic_fetch_add_explicit(pl->recovered_bytes, b->size, memory_order_relaxed);
    return pl->cancel && atomic_load_explicit(pl->cancel, memory_order_relaxed) ? ERR_CLOSED : OK;
}

struct recovery {
    int64_t log_start; /* as checkpointed: what lies below may be gone in part */
    int64_t next;      /* the first offset that may come */
    bool cut;          /* what stands here is torn, or lost: the log ends */
    bool gaps;         /* offsets are missing between batches of a segment, as after compaction */
};

/* Reads a segment from its first byte. */
static enum err recover_segment(struct plog *pl, struct segment *seg, struct recovery *rc, struct fault *f)
{
    enum err e = begin_segment(pl, seg);
    if (e) return recover_fault(pl, seg, 0, e, f);
    struct scan sc;
    struct batch_info b;
    const uint8_t *data;
    int64_t valid = 0;
    scan_init(&sc, seg->log, 0, seg->size, false);
    while (!(e = scan_batch(&sc, &b, &data))) {
        if (!batch_is_sound(seg, &b, data, rc->next))
            e = ERR_CORRUPT;
        else
            e = scan_work(take_batch(pl, seg, &b, data, valid));
        if (!e) e = keep_going(pl, &b);
        if (e) break;
        rc->gaps |= b.base_offset > rc->next;
        valid = sc.pos;
        rc->next = batch_last_offset(&b) + 1;
    }
    scan_fini(&sc);
    if (e != ERR_NOT_FOUND && e != ERR_CORRUPT) return recover_fault(pl, seg, valid, e, f);

    int64_t cut_bytes = seg->size - valid;
    if (cut_bytes > 0) {
        LOG_WARN("log_truncated",
                 "dir=%s segment=%" PRId64 " end=%" PRId64 " pos=%" PRId64 " cut_bytes=%" PRId64 " reason=torn_batch",
                 pl->dir, seg->base_offset, rc->next, valid, cut_bytes);
        rc->cut = true;
        pl->size -= cut_bytes;
        seg->size = valid;
    }
    segment_index_end(seg);
    e = segment_save_indexes(seg);
    if (!e) e = index_cut(&seg->offsets);
    if (!e) e = index_cut(&seg->times);
    return e ? recover_fault(pl, seg, valid, e, f) : OK;
}

/* Behind a cut nothing connects to the log any more. */
static enum err remove_behind(struct plog *pl, size_t from)
{
    while (pl->segment_count > from) {
        struct segment *seg = active_segment(pl);
        LOG_WARN("segment_removed", "dir=%s segment=%" PRId64 " bytes=%" PRId64 " reason=behind_torn_batch", pl->dir,
                 seg->base_offset, seg->size);
        enum err e = segment_remove_files(pl->fs, pl->dir, seg->base_offset, "");
        if (e) return e;
        pl->size -= seg->size;
        pl->segment_count--;
        segment_unref(seg);
    }
    return OK;
}

/* The torn segment, now the last one, loses its tail when those behind it are gone for sure: while it is torn, the next
 * recovery would find them out too.  And it is on the disk before anything is written in the tail's place, or a loss of
 * power could mix the two. */
static enum err cut_torn(struct plog *pl, struct fault *f)
{
    struct segment *seg = active_segment(pl);
    enum err e = fs_sync_dir(pl->fs, pl->dir);
    if (!e) e = file_truncate(seg->log, seg->size);
    if (!e) e = file_sync(seg->log);
    return e ? recover_fault(pl, seg, seg->size, e, f) : OK;
}

/* Whether a segment cannot follow what comes before it.  Its name may say what its batches could not mean.  Or the end
 * of the segment before it is lost, at a batch's end by chance: without compaction nothing else leaves a gap there, and
 * a log that went on behind it would differ from its other replicas for ever. */
static bool is_cut_off(const struct plog *pl, const struct segment *seg, const struct recovery *rc)
{
    if (seg->base_offset == rc->next) return false;
    if (seg->base_offset < rc->next) return true;
    bool was_compacted = pl->config.cleanup_compact || plog_cleaned(pl) >= 0 || rc->gaps; /* if only once */
    return seg->base_offset > rc->log_start && !was_compacted;
}

enum err recover_log(struct plog *pl, int64_t recovery_point, int64_t log_start, struct fault *f)
{
    size_t at = segment_floor(pl, recovery_point);
    struct recovery rc = {.log_start = log_start, .next = pl->segments[at]->base_offset};
    enum err e = plog_load_producers(pl, pl->producers, rc.next);
    for (; !e && at < pl->segment_count && !rc.cut; at++) {
        struct segment *seg = pl->segments[at];
        rc.cut = is_cut_off(pl, seg, &rc);
        if (rc.cut) break;
        rc.next = seg->base_offset;
        bool has_snapshot = pl->snapshot_offset >= rc.next || at == 0;
        if (!has_snapshot) e = plog_write_snapshot(pl, rc.next);
        if (!e) e = recover_segment(pl, seg, &rc, f);
    }
    if (!e && at < pl->segment_count) e = remove_behind(pl, at);
    if (!e && rc.cut) e = cut_torn(pl, f);
    atomic_store_explicit(&pl->end, rc.next, memory_order_relaxed);
    pl->files_made++; /* what was there before the crash may have been in memory only */
    return e;
}

enum err recover_epochs(struct plog *pl)
{
    enum err e = OK;
    epochs_clear(&pl->epochs);
    for (size_t i = 0; i < pl->segment_count && !e; i++) {
        struct segment *seg = pl->segments[i];
        struct scan sc;
        struct batch_info b;
        e = segment_open_log(seg, pl->fs, pl->dir);
        if (e) break;
        scan_init(&sc, seg->log, 0, seg->size, false);
        while (!(e = scan_header(&sc, &b)))
            if (b.leader_epoch > epochs_latest(&pl->epochs)) epochs_assign(&pl->epochs, b.leader_epoch, b.base_offset);
        scan_fini(&sc);
        /* Behind damage nothing more can be told; who reads there is told of it. */
        if (e == ERR_NOT_FOUND || e == ERR_CORRUPT) e = OK;
    }
    return e;
}
