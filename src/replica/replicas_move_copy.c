/* replicas_move_copy.c: what a worker does of a move between log directories.
 *
 * THE ORDER OF A TAKEOVER, which a crash may interrupt anywhere:
 *  (1) the future log has all but the last appends, and is on the disk; the checkpoints of its directory know it
 *  (2) the current log is held: appends wait.  The rest is copied, the future log is closed: it is on the disk whole
 *  (3) the current directory gets a mark (barnabas-moved)
 *  (4) the future directory gets its real name, durably, and is opened there
 *  (5) the current directory is renamed to be deleted; its log retires, and what has waited goes on in the new one
 * A start that finds the future directory goes on with the move, and removes the mark first.  A start that finds two
 * directories of one partition, one of them marked, drops the marked one: nothing was appended to it since (2).
 * When (4) fails everything goes back, the mark first of all. */
#include "replica/replicas_move.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "plog/checkpoint.h"
#include "replica/cleaner.h"
#include "wire/batch.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum {
    READ_BYTES = 1 << 20,
    TURN_BYTES = 8 << 20,       /* then other jobs of the pool have their turn */
    TURNS_A_SECOND = 4,         /* of a move that is throttled */
    NEVER_USED = 0,             /* a segment's turn (plog_files) in a log without them */
    FLUSH_BYTES = 32 << 20,     /* so that the last flush is a short one */
    SEGMENTS_UNFLUSHED_MAX = 4, /* small ones, which keep their files open until then */
    HELD_BYTES_MAX = 4 << 20,   /* that are copied while appends are held */
};

/* ---- The future log */

static void on_failed(void *arg, enum err e)
{
    const struct move *m = arg;
    replicas_dir_check(m->to, plog_error_passes(e) ? ERR_IO : e, "write of a moving log");
}

static void on_full(void *arg)
{
    const struct move *m = arg;
    replicas_dir_full(m->to);
}

/* `safe`: everything below it is on the disk and of this move. */
static enum err future_open(struct move *m, int64_t log_start, bool clean, int64_t safe)
{
    const struct replicas_options *opt = &m->r->opt;
    opt->settings_of(opt->settings_arg, str_of(m->from->topic), &m->settings);
    const struct plog_options po = {
        .fs = opt->fs,
        .clock = opt->clock,
        .jitter_seed = rng_below(opt->rng, UINT64_MAX),
        .dir = m->path,
        .recovery_point = safe,
        .log_start = log_start,
        .cleaned = -1,
        .clean = clean,
        .topic_id = m->from->topic_id,
        .config = m->settings.log,
        .events = {.arg = m, .failed = on_failed, .full = on_full},
    };
    return plog_open(&m->future, &po, &m->fault);
}

/* The first batch may start before the log does: DeleteRecords does not care for batches. */
static enum err first_base(struct plog *pl, int64_t *base)
{
    struct plog_slice s;
    int64_t start = plog_start(pl);
    enum err e = plog_read(pl, start, plog_end(pl), 1, true, false, &s);
    *base = !e && s.file ? MIN(s.start_offset, start) : start;
    if (!e) plog_slice_release(&s);
    return e;
}

static char *named_path(const struct move *m, const char *suffix)
{
    uint64_t id[2];
    rng_fill(m->r->opt.rng, id, sizeof id);
    return mem_printf("%s/%s-%d.%016llx%016llx-%s", m->to->path, m->from->topic, m->from->index,
                      (unsigned long long)id[0], (unsigned long long)id[1], suffix);
}

static enum err future_begin(struct move *m)
{
    int64_t base;
    enum err e = first_base(m->from->pl, &base);
    if (e) return e;
    if (!m->path) m->path = named_path(m, "future");
    return future_open(m, base, false, 0);
}

void move_close(struct move *m)
{
    if (m->future) plog_abandon(m->future);
    m->future = NULL;
    mem_free(m->buf);
    m->buf = NULL;
}

/* Retention was faster: what was copied lies below the start.  Or nobody knows what was copied. */
static enum err future_again(struct move *m)
{
    move_close(m);
    enum err e = fs_remove_all(m->r->opt.fs, m->path);
    if (e && e != ERR_NOT_FOUND) return e;
    return future_begin(m);
}

/* ---- How far the future log is on the disk
 *
 * No checkpoint has it; and after a loss of power not even a whole log proves much, since segments in its middle may be
 * missing, which looks like compaction. */

static enum err flush_future(struct move *m)
{
    enum err e = plog_flush(m->future);
    if (e) return e;
    m->unsynced = 0;
    plog_close_unused(m->future, PLOG_CLOSE_OLD, NEVER_USED + 1); /* nobody reads it yet, and it may have thousands */
    char *path = mem_printf("%s/" COPIED_FILE, m->path);
    char *text = mem_printf("%" PRId64 "\n", plog_recovery_start(m->future));
    e = fs_replace(m->r->opt.fs, path, text, strlen(text));
    mem_free(path);
    mem_free(text);
    return e;
}

/* -1: not known. */
static int64_t read_copied(const struct move *m)
{
    char *path = mem_printf("%s/" COPIED_FILE, m->path), *text = NULL;
    size_t size;
    enum err e = fs_read_whole(m->r->opt.fs, path, 64, &text, &size);
    int64_t copied = e ? -1 : strtoll(text, NULL, 10);
    mem_free(path);
    mem_free(text);
    return copied;
}

static enum err remove_copied(const struct move *m)
{
    char *path = mem_printf("%s/" COPIED_FILE, m->path);
    enum err e = fs_unlink(m->r->opt.fs, path);
    mem_free(path);
    return e == ERR_NOT_FOUND ? OK : e;
}

/* ---- Found at start */

static enum err cut_future(struct move *m, int64_t safe)
{
    if (plog_end(m->future) <= safe) return OK;
    enum err e = plog_truncate(m->future, safe);
    return e ? e : flush_future(m);
}

/* The current log may have lost what the future one had copied already; what is below its recovery point it cannot have
 * lost. */
static enum err open_unclean(struct move *m)
{
    struct plog *pl = m->from->pl;
    int64_t safe = MIN(read_copied(m), plog_recovery_point(pl));
    if (safe <= plog_start(pl)) return future_again(m);
    enum err e = future_open(m, 0, false, safe);
    return e ? e : cut_future(m, safe);
}

/* The log may have been cut, and have gone on in another way, since the move looked last: the mark of that cut
 * (partition.cut) went with the process.  What is appended after a cut is of a later epoch; so where the epochs are the
 * same, the records are. */
static enum err cut_diverging(struct move *m)
{
    enum err e = OK;
    while (!e && plog_end(m->future) > plog_start(m->future)) {
        int32_t epoch = plog_last_epoch(m->future), found;
        int64_t end;
        if (epoch < 0) return OK; /* of before there were epochs */
        plog_epoch_end(m->from->pl, epoch, &found, &end);
        if (found == epoch && end >= plog_end(m->future)) return OK;
        if (found >= 0 && found < epoch) plog_epoch_end(m->future, found, &found, &end);
        if (found < 0 || end <= plog_start(m->future)) return future_again(m);
        e = cut_future(m, end);
    }
    return e;
}

enum err move_open_found(struct move *m)
{
    const struct partition *p = m->from;
    bool clean = m->to->clean && p->dir->clean;
    char *mark = mem_printf("%s/%s-%d/" MOVED_MARK, p->dir->path, p->topic, p->index);
    enum err e = fs_unlink(m->r->opt.fs, mark);
    mem_free(mark);
    if (e == ERR_NOT_FOUND) e = OK;
    if (!e && clean) {
        e = future_open(m, 0, true, 0);
        if (!e) e = cut_future(m, plog_end(p->pl));
    } else if (!e) {
        e = open_unclean(m);
    }
    if (!e) e = cut_diverging(m);
    if (e) return e;
    atomic_store(&m->end, plog_end(m->future));
    atomic_store(&m->size, plog_size(m->future));
    return OK;
}

/* ---- Copying */

/* An append that is waited for: whoever flushes the future log may have it written. */
struct waited {
    struct append a;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
};

static void waited_done(struct append *a)
{
    struct waited *w = CONTAINER_OF(a, struct waited, a);
    pthread_mutex_lock(&w->lock);
    w->done = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static enum kerr append_waited(struct plog *pl, uint8_t *data, size_t size, int64_t now_ms)
{
    struct waited w = {.a = {.size = size, .origin = APPEND_REPLICA, .now_ms = now_ms, .done = waited_done}};
    w.a.data = data;
    ASSERT(pthread_mutex_init(&w.lock, NULL) == 0 && pthread_cond_init(&w.cond, NULL) == 0);
    plog_append(pl, &w.a);
    pthread_mutex_lock(&w.lock);
    while (!w.done) pthread_cond_wait(&w.cond, &w.lock);
    pthread_mutex_unlock(&w.lock);
    pthread_cond_destroy(&w.cond);
    pthread_mutex_destroy(&w.lock);
    return w.a.kerr;
}

static bool flush_is_due(const struct move *m)
{
    return m->unsynced >= FLUSH_BYTES || plog_unflushed_segments(m->future) >= SEGMENTS_UNFLUSHED_MAX;
}

/* A run of batches that fits into a segment, or a single one, whatever segment.bytes has come to be. */
static enum err append_run(struct move *m, uint8_t *data, size_t size)
{
    enum kerr kerr = append_waited(m->future, data, size, clock_wall_ms(m->r->opt.clock));
    replicas_dir_wrote(m->to, size);
    m->copied += (int64_t)size;
    m->unsynced += (int64_t)size;
    if (!kerr) return flush_is_due(m) ? flush_future(m) : OK;
    return fault_set(&m->fault, atomic_load(&m->to->full) ? ERR_FULL : ERR_IO, "The copy cannot be written: %s.",
                     kerr_name((int16_t)kerr));
}

/* Appends the whole batches in `data`; one whose checksum is wrong ends the move: a copy must not make good of bad. */
static enum err append_batches(struct move *m, uint8_t *data, size_t size)
{
    size_t from = 0, at = 0;
    enum err e = OK;
    while (!e && size - at >= BATCH_HEADER_SIZE) {
        struct batch_info b;
        e = batch_parse_header(&b, data + at, INT32_MAX);
        if (!e && (size_t)b.size > size - at) break;
        if (e || !batch_crc_ok(data + at, &b)) {
            m->hopeless = true;
            return fault_set(&m->fault, ERR_CORRUPT, "The batch at offset %lld is damaged.", (long long)b.base_offset);
        }
        if (at > from && (int64_t)(at - from) + b.size > m->settings.log.segment_bytes) {
            e = append_run(m, data + from, at - from);
            from = at;
        }
        at += (size_t)b.size;
    }
    return !e && at > from ? append_run(m, data + from, at - from) : e;
}

/* What the log has lost since the last look, as a follower's does, the copy loses too. */
static enum err follow_cut(struct move *m)
{
    int64_t at = atomic_exchange(&m->from->cut, INT64_MAX);
    if (at >= plog_end(m->future)) return OK;
    return at < plog_start(m->from->pl) ? future_again(m) : plog_truncate(m->future, at);
}

/* *caught_up: it has everything that was there a moment ago. */
static enum err copy_some(struct move *m, bool nowait, bool *caught_up)
{
    struct plog *pl = m->from->pl;
    struct plog_slice s = {0};
    *caught_up = false;
    enum err e = follow_cut(m);
    if (e) return e;
    int64_t at = plog_end(m->future), start = plog_start(pl), end = plog_end(pl);
    *caught_up = at == end;
    if (at > end) return plog_truncate(m->future, end); /* it has been cut, as a follower's is */
    if (at == end) return OK;
    e = plog_read(pl, MAX(at, start), end, READ_BYTES, true, nowait, &s);
    if (e == ERR_RANGE) return OK; /* the start has moved on: once more */
    if (e == ERR_IO || e == ERR_NOT_FILE) partition_failed(m->from, e, "read");
    if (e) return e;
    size_t got = 0;
    if (s.file && start > at && s.start_offset > at) {
        e = future_again(m);
    } else if (s.file) {
        m->buf = mem_realloc(m->buf, MAX(s.size, (size_t)READ_BYTES));
        e = file_pread(s.file, m->buf, s.size, s.pos, &got);
        if (!e && got < s.size) e = ERR_TRUNCATED;
        if (e == ERR_IO || e == ERR_NOT_FILE) partition_failed(m->from, e, "read");
        if (!e) e = append_batches(m, m->buf, s.size);
    } else {
        *caught_up = true; /* what is missing has been compacted away */
    }
    if (!e && m->future && plog_end(m->future) >= end) *caught_up = true;
    plog_slice_release(&s);
    return e;
}

static void tell_progress(struct move *m)
{
    atomic_store(&m->end, plog_end(m->future));
    atomic_store(&m->size, plog_size(m->future));
}

/* ---- Taking over */

static enum err copy_rest(struct move *m)
{
    bool caught_up = false;
    enum err e = OK;
    int64_t before = m->copied;
    while (!e && !caught_up && m->copied - before < HELD_BYTES_MAX) e = copy_some(m, true, &caught_up);
    if (!e && plog_end(m->future) < plog_end(m->from->pl)) e = ERR_AGAIN; /* too much, or a gap at the end */
    return e;
}

static char *final_path(const struct partition *p, const struct log_dir *d)
{
    return mem_printf("%s/%s-%d", d->path, p->topic, p->index);
}

/* The mark in the current directory, there or gone for good when this returns. */
static enum err set_mark(struct move *m, bool there)
{
    struct fs *fs = m->r->opt.fs;
    char *dir = final_path(m->from, m->from->dir), *mark = mem_printf("%s/" MOVED_MARK, dir);
    enum err e;
    if (there) {
        e = fs_replace(fs, mark, m->to->path, strlen(m->to->path));
    } else {
        e = fs_unlink(fs, mark);
        if (!e || e == ERR_NOT_FOUND) e = fs_sync_dir(fs, dir);
    }
    mem_free(mark);
    mem_free(dir);
    return e;
}

static enum err open_taken(struct move *m, const char *path, int64_t end)
{
    struct partition *q = m->taken;
    const struct replicas_options *opt = &m->r->opt;
    const struct plog_options po = {
        .fs = opt->fs,
        .clock = opt->clock,
        .jitter_seed = rng_below(opt->rng, UINT64_MAX),
        .dir = path,
        .recovery_point = end,
        .log_start = plog_start(m->from->pl),
        .cleaned = plog_cleaned(m->from->pl),
        .clean = true,
        .topic_id = m->from->topic_id,
        .config = m->settings.log,
        .files = &m->r->files,
        .events = partition_events(q),
    };
    struct plog *pl;
    enum err e = plog_open(&pl, &po, &m->fault);
    if (e) return e;
    int32_t epoch = plog_last_epoch(m->from->pl);
    if (plog_end(pl) != end) e = ERR_CORRUPT;
    if (!e && plog_last_epoch(pl) < epoch) e = plog_epoch_begin(pl, epoch);
    if (e)
        plog_abandon(pl);
    else
        partition_give_log(q, pl, partition_high_watermark(m->from));
    q->cleaning.filed = po.cleaned; /* see take_over() */
    return e;
}

/* Step 4; the future log is closed. */
static enum err rename_and_open(struct move *m, int64_t end)
{
    struct fs *fs = m->r->opt.fs;
    char *path = final_path(m->from, m->to);
    enum err e = fs_rename(fs, m->path, path);
    bool renamed = !e;
    if (!e) e = fs_sync_dir(fs, m->to->path);
    if (!e) e = open_taken(m, path, end);
    if (e && renamed) {
        enum err back = fs_rename(fs, path, m->path);
        if (!back) back = fs_sync_dir(fs, m->to->path);
        if (back) LOG_ERROR("move_not_undone", "dir=\"%s\" error=%s", path, err_name(back));
    }
    mem_free(path);
    return replicas_dir_check(m->to, e, "move");
}

/* Steps 3 to 5. */
static enum err switch_over(struct move *m, int64_t end)
{
    struct partition *p = m->from;
    enum err e = replicas_dir_check(p->dir, set_mark(m, true), MOVED_MARK);
    m->taken = partition_new(p->topic, p->index, m->to, p->services);
    if (!e) e = rename_and_open(m, end);
    if (e) {
        partition_unref(m->taken);
        m->taken = NULL;
        enum err undone = set_mark(m, false);
        if (undone) { /* a start would take the copy for the newer one: nothing may be appended here any more */
            LOG_ERROR("move_not_undone", "dir=\"%s\" error=%s", p->dir->path, err_name(undone));
            if (undone == ERR_NOT_FOUND)
                partition_failed(p, undone, MOVED_MARK); /* the log's own directory has been removed by hand */
            else
                replicas_dir_failed(m->r, p->dir, undone, MOVED_MARK);
        }
        return e;
    }
    partition_inherit_role(m->taken, p);
    partition_set_successor(p, m->taken);
    m->doomed_path = replicas_doomed_path(m->r, p);
    e = plog_retire_held(p->pl, m->doomed_path);
    if (e) LOG_ERROR("log_delete_failed", "topic=%s partition=%d error=%s", p->topic, p->index, err_name(e));
    return OK;
}

/* Steps 2 to 5.  ERR_AGAIN: something has to be read first. */
static enum err take_over_held(struct move *m)
{
    struct plog *pl = m->from->pl;
    enum err e = atomic_load(&m->from->deleted) ? ERR_CLOSED : copy_rest(m);
    if (e) return e;
    int64_t end = plog_end(pl);
    struct plog *future = m->future;
    m->future = NULL;
    e = plog_close(future);
    bool clean = !e;
    if (!e) e = plog_hand_producers(pl, m->path);
    if (!e) e = remove_copied(m);
    if (!e) e = switch_over(m, end);
    if (!e) return OK;
    enum err re = future_open(m, 0, clean, 0); /* the move goes on later */
    return re ? re : e;
}

static enum err take_over(struct move *m)
{
    enum err e = flush_future(m);
    if (e) return e;
    tell_progress(m);
    atomic_store(&m->start, plog_start(m->from->pl));
    atomic_store(&m->recovery, plog_recovery_start(m->future));
    atomic_store(&m->settled, true);
    static const enum chore_kind kinds[] = {CHORE_CHECKPOINT, CHORE_STARTS, CHORE_WATERMARKS, CHORE_CLEANED};
    for (size_t i = 0; i < ARRAY_COUNT(kinds) && !e; i++) e = replicas_write_checkpoints(m->r, kinds[i]);
    if (!e) e = plog_hold(m->from->pl);
    if (!e) {
        e = take_over_held(m);
        plog_release(m->from->pl);
    }
    if (!m->taken) atomic_store(&m->settled, false); /* else until the partition itself is in the list */
    return e == ERR_AGAIN ? OK : e;
}

void move_work(struct job *job)
{
    struct move *m = CONTAINER_OF(job, struct move, job);
    struct partition *p = m->from;
    m->copied = 0;
    m->fault = (struct fault){.code = OK};
    if (!m->held) cleaner_hold(m->r->cleaner, p);
    m->held = true;
    enum err e = m->future ? OK : m->path ? future_again(m) : future_begin(m);
    bool caught_up = false;
    int64_t rate = atomic_load(&m->r->move_bytes_per_s),
            bytes_max = MIN((int64_t)TURN_BYTES, rate / TURNS_A_SECOND + 1);
    while (!e && !caught_up && m->copied < bytes_max && atomic_load(&p->online)) e = copy_some(m, false, &caught_up);
    if (!e) tell_progress(m);
    if (!e && caught_up && atomic_load(&p->online)) e = take_over(m);
    m->e = e;
}
