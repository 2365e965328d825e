/* open.c: from a directory to a log and back.
 *
 * A clean directory is believed: one listing, the small files, and of the last segment the indexes' ends and the
 * batches behind the last index entry.  After an unclean stop recover.c reads what lies past the recovery point. */
#include "plog/recover.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "plog/checkpoint.h"
#include "plog/scan.h"

enum { FILES_MAX = 1000 * 1000 }; /* names that we remember of one directory */

/* What a partition's directory holds. */
struct listed {
    int64_t base_offset;
    unsigned has; /* bits of enum listed_has */
};

enum listed_has {
    HAS_LOG = 1,
    HAS_OFFSETS = 2,
    HAS_TIMES = 4,
    HAS_TXNS = 8,
    HAS_SNAPSHOT = 16,
    HAS_DELETED = 32,
    HAS_CLEANED = 64,
    HAS_SWAP = 128, /* of any file */
    HAS_SWAP_LOG = 256
};

struct listing {
    struct listed *files;
    size_t count, cap;
    bool has_epochs, too_many;
};

static const struct {
    const char *suffix;
    unsigned has;
} known_suffixes[] = {
    {SEGMENT_LOG, HAS_LOG},   {SEGMENT_OFFSETS, HAS_OFFSETS},   {SEGMENT_TIMES, HAS_TIMES},
    {SEGMENT_TXNS, HAS_TXNS}, {SEGMENT_SNAPSHOT, HAS_SNAPSHOT}, {SEGMENT_LOG SEGMENT_SWAP, HAS_SWAP | HAS_SWAP_LOG},
};

static unsigned has_of_suffix(const char *suffix)
{
    for (size_t i = 0; i < ARRAY_COUNT(known_suffixes); i++)
        if (strcmp(suffix, known_suffixes[i].suffix) == 0) return known_suffixes[i].has;
    if (str_ends_with(str_of(suffix), SEGMENT_DELETED)) return HAS_DELETED;
    if (str_ends_with(str_of(suffix), SEGMENT_CLEANED)) return HAS_CLEANED;
    if (str_ends_with(str_of(suffix), SEGMENT_SWAP)) return HAS_SWAP;
    return 0;
}

static void listing_add(void *arg, const char *name, bool is_dir)
{
    struct listing *ls = arg;
    int64_t base_offset;
    const char *suffix;
    if (is_dir) return;
    if (ls->count >= FILES_MAX) {
        ls->too_many = true;
        return;
    }
    if (strcmp(name, LEADER_EPOCHS) == 0) ls->has_epochs = true;
    unsigned has = segment_parse_name(name, &base_offset, &suffix) ? has_of_suffix(suffix) : 0;
    if (!has) return;
    ls->files = mem_grow(ls->files, &ls->cap, ls->count + 1, sizeof *ls->files);
    ls->files[ls->count++] = (struct listed){base_offset, has};
}

static int listed_compare(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    return x->base_offset < y->base_offset ? -1 : x->base_offset > y->base_offset;
}

/* Sorts by base offset and makes one entry of the files of one segment. */
static void listing_merge(struct listing *ls)
{
    if (ls->count == 0) return;
    qsort(ls->files, ls->count, sizeof *ls->files, listed_compare);
    size_t kept = 0;
    for (size_t i = 1; i < ls->count; i++) {
        if (ls->files[i].base_offset == ls->files[kept].base_offset)
            ls->files[kept].has |= ls->files[i].has;
        else
            ls->files[++kept] = ls->files[i];
    }
    ls->count = kept + 1;
}

static enum err listing_read(struct listing *ls, struct plog *pl)
{
    mem_free(ls->files);
    *ls = (struct listing){0};
    enum err e = fs_list(pl->fs, pl->dir, listing_add, ls);
    if (!e && ls->too_many) e = ERR_TOO_BIG;
    if (!e) listing_merge(ls);
    return e;
}

/* ---- What the cleaner and deletion left behind */

/* Kafka's rule: once a .cleaned file is there, swap files at or above the lowest of them belong to a split that did not
 * finish. */
static int64_t lowest_cleaned(const struct listing *ls)
{
    for (size_t i = 0; i < ls->count; i++)
        if (ls->files[i].has & HAS_CLEANED) return ls->files[i].base_offset;
    return INT64_MAX;
}

/* First offset after the batches of a .swap log. */
static enum err swap_log_end(struct plog *pl, int64_t base_offset, int64_t *end)
{
    char *path = segment_path(pl->dir, base_offset, SEGMENT_LOG SEGMENT_SWAP);
    struct file *f;
    enum err e = fs_open(pl->fs, path, FS_READ, &f);
    mem_free(path);
    if (e) return e;
    int64_t size;
    *end = base_offset;
    e = file_size(f, &size);
    if (!e) {
        struct scan sc;
        struct batch_info b;
        scan_init(&sc, f, 0, size, false);
        while (!(e = scan_header(&sc, &b))) *end = batch_last_offset(&b) + 1;
        scan_fini(&sc);
        if (e == ERR_NOT_FOUND) e = OK;
    }
    file_unref(f);
    return e;
}

/* Cleaned segments were complete and synced when they got the .swap suffix: what they replace goes, then they take its
 * place.  Done in this order, also on the disk, it can be done again after a crash in the midst of it: an original that
 * came back beside a segment that has its plain name already would have recovery cut the log there. */
static enum err finish_swaps(struct plog *pl, const struct listing *ls)
{
    int64_t from = INT64_MAX, to = -1;
    for (size_t i = 0; i < ls->count; i++) {
        if (!(ls->files[i].has & HAS_SWAP_LOG)) continue;
        int64_t end;
        enum err e = swap_log_end(pl, ls->files[i].base_offset, &end);
        if (e) return e;
        from = MIN(from, ls->files[i].base_offset);
        to = MAX(to, end);
    }
    for (size_t i = 0; i < ls->count; i++) {
        const struct listed *file = &ls->files[i];
        if (file->base_offset < from || file->base_offset >= to || !(file->has & HAS_LOG)) continue;
        enum err e = segment_remove_data(pl->fs, pl->dir, file->base_offset, ""); /* snapshots hold good */
        if (e) return e;
    }
    enum err e = fs_sync_dir(pl->fs, pl->dir);
    if (e) return e;
    for (size_t i = 0; i < ls->count; i++) {
        if (!(ls->files[i].has & HAS_SWAP)) continue;
        e = segment_rename_files(pl->fs, pl->dir, ls->files[i].base_offset, SEGMENT_SWAP, "");
        if (e) return e;
        LOG_INFO("swap_finished", "dir=%s segment=%" PRId64, pl->dir, ls->files[i].base_offset);
    }
    return fs_sync_dir(pl->fs, pl->dir);
}

static enum err tidy_up(struct plog *pl, struct listing *ls)
{
    unsigned all = 0;
    for (size_t i = 0; i < ls->count; i++) all |= ls->files[i].has;
    if (!(all & (HAS_DELETED | HAS_CLEANED | HAS_SWAP))) return OK;

    int64_t cleaned = lowest_cleaned(ls);
    enum err e = OK;
    for (size_t i = 0; i < ls->count && !e; i++) {
        const struct listed *file = &ls->files[i];
        if (file->has & HAS_DELETED) e = segment_remove_files(pl->fs, pl->dir, file->base_offset, SEGMENT_DELETED);
        if (!e && (file->has & HAS_SWAP) && file->base_offset >= cleaned)
            e = segment_remove_files(pl->fs, pl->dir, file->base_offset, SEGMENT_SWAP);
    }
    if (!e && (all & HAS_CLEANED) && (all & HAS_SWAP)) e = fs_sync_dir(pl->fs, pl->dir);
    for (size_t i = 0; i < ls->count && !e; i++) /* after the swap files that they condemn, also on the disk */
        if (ls->files[i].has & HAS_CLEANED)
            e = segment_remove_files(pl->fs, pl->dir, ls->files[i].base_offset, SEGMENT_CLEANED);
    if (!e) e = listing_read(ls, pl);
    if (!e && (all & HAS_SWAP)) {
        e = finish_swaps(pl, ls);
        if (!e) e = listing_read(ls, pl);
    }
    return e;
}

/* ---- The small files */

/* ERR_NOT_FOUND also when the file is what a loss of power left of one that had just been written: nothing of such a
 * log was ever flushed. */
static enum err read_topic_id(struct plog *pl, const char *path, const struct plog_options *opt, struct uuid *out,
                              struct fault *f)
{
    struct fs_stat st;
    enum err e = fs_stat(pl->fs, path, &st);
    if (e) return e;
    if (st.size == 0) return ERR_NOT_FOUND;
    e = partition_metadata_read(out, pl->fs, path, f);
    if (e != ERR_CORRUPT || opt->clean || opt->recovery_point > 0) return e;
    LOG_WARN("topic_id_lost", "file=%s reason=\"%s\"", path, f->text);
    *f = (struct fault){.code = OK};
    e = fs_unlink(pl->fs, path); /* or it would be taken for damage once something was flushed */
    return e ? e : ERR_NOT_FOUND;
}

static enum err check_topic_id(const char *path, struct uuid there, struct uuid ours, struct fault *f)
{
    if (uuid_is_zero(ours) || uuid_equal(there, ours)) return OK;
    char its_text[UUID_TEXT_SIZE + 1], our_text[UUID_TEXT_SIZE + 1];
    uuid_format(there, its_text);
    uuid_format(ours, our_text);
    return fault_set(f, ERR_VERSION, "%s belongs to the topic with id %s, but the topic's id is %s.", path, its_text,
                     our_text);
}

static enum err open_metadata(struct plog *pl, const struct plog_options *opt, struct fault *f)
{
    char *path = plog_path(pl, PARTITION_METADATA);
    pl->topic_id = opt->topic_id;
    struct uuid there;
    enum err e = read_topic_id(pl, path, opt, &there, f);
    if (!e) {
        e = check_topic_id(path, there, opt->topic_id, f);
        if (!e) pl->topic_id = there;
    } else if (e == ERR_NOT_FOUND && !uuid_is_zero(opt->topic_id)) {
        char id[UUID_TEXT_SIZE + 1];
        uuid_format(opt->topic_id, id);
        char *text = mem_printf("version: 0\ntopic_id: %s", id);
        e = plog_write_plain(pl, path, text, strlen(text)); /* as the first segment: synced with the first flush */
        mem_free(text);
    } else if (e == ERR_NOT_FOUND) {
        e = OK;
    }
    mem_free(path);
    return e;
}

/* *lost: the file cannot be read; the batches know what stood in it. */
static enum err open_epochs(struct plog *pl, const struct listing *ls, bool *lost, struct fault *f)
{
    *lost = false;
    pl->epochs_file = ls->has_epochs;
    if (!ls->has_epochs) return OK;
    char *path = plog_path(pl, LEADER_EPOCHS);
    enum err e = epochs_read(&pl->epochs, pl->fs, path, f);
    if (pl->epochs.count == 0) pl->epochs_file = false; /* nothing in it can get worse */
    *lost = e == ERR_CORRUPT || e == ERR_VERSION || e == ERR_TOO_BIG;
    if (*lost) {
        LOG_WARN("epochs_rebuilt", "file=%s reason=\"%s\"", path, f->text);
        *f = (struct fault){.code = OK};
        e = OK;
    }
    mem_free(path);
    return e;
}

/* ---- Segments */

static enum err open_segment(struct plog *pl, const struct listed *file, struct fault *f)
{
    if (file->base_offset > SEGMENT_BASE_MAX)
        return fault_set(f, ERR_INVALID, "%s/%020" PRId64 SEGMENT_LOG " is named after an offset that no log reaches.",
                         pl->dir, file->base_offset);
    struct segment *seg = segment_new(file->base_offset);
    plog_add_segment(pl, seg);
    seg->indexes_bad = !(file->has & HAS_OFFSETS) || !(file->has & HAS_TIMES);
    seg->txns_there = file->has & HAS_TXNS;
    seg->jitter_ms = plog_next_jitter(pl);
    struct fs_stat st;
    char *path = segment_path(pl->dir, seg->base_offset, SEGMENT_LOG);
    enum err e = fs_stat(pl->fs, path, &st);
    if (!e && st.size > INT32_MAX) e = fault_set(f, ERR_TOO_BIG, "%s is larger than a segment can be.", path);
    mem_free(path);
    if (e) return e;
    seg->size = st.size;
    seg->created_ms = seg->modified_ms = st.modified_ms;
    pl->size += st.size;
    return OK;
}

/* Files without a .log: indexes are of no use, snapshots are only where a segment starts or the log ends. */
static enum err remove_strays(struct plog *pl, const struct listing *ls)
{
    for (size_t i = 0; i < ls->count; i++) {
        const struct listed *file = &ls->files[i];
        if (file->has & HAS_LOG) continue;
        bool keep_snapshot = file->has & HAS_SNAPSHOT && file->base_offset == pl->snapshot_offset;
        if (keep_snapshot && file->has == HAS_SNAPSHOT) continue;
        /* A transaction index that stayed would be taken for that of the next segment there. */
        enum err e = keep_snapshot ? segment_remove_data(pl->fs, pl->dir, file->base_offset, "")
                                   : segment_remove_files(pl->fs, pl->dir, file->base_offset, "");
        if (e) return e;
    }
    return OK;
}

static enum err open_segments(struct plog *pl, const struct listing *ls, struct fault *f)
{
    for (size_t i = 0; i < ls->count; i++) {
        if (ls->files[i].has & HAS_SNAPSHOT) pl->snapshot_offset = ls->files[i].base_offset;
        if (!(ls->files[i].has & HAS_LOG)) continue;
        enum err e = open_segment(pl, &ls->files[i], f);
        if (e) return e;
    }
    return remove_strays(pl, ls);
}

static enum err create_first_segment(struct plog *pl, int64_t base_offset)
{
    struct segment *seg = segment_new(base_offset);
    plog_add_segment(pl, seg);
    seg->created_ms = seg->modified_ms = clock_wall_ms(pl->clock);
    seg->jitter_ms = plog_next_jitter(pl);
    pl->files_made++;
    return segment_create(seg, pl->fs, pl->dir);
}

/* Whose offsets lie below the file's name: the file is another segment's, given back or copied under a wrong name.
 * Going on at its end would give offsets that the log has already. */
static enum err misplaced_fault(const struct plog *pl, const struct segment *seg, int64_t first, struct fault *f)
{
    char *path = segment_path(pl->dir, seg->base_offset, SEGMENT_LOG);
    enum err e = fault_set(f, ERR_INVALID,
                           "%s begins with offset %" PRId64 ", below the one that it is named after: it is not what "
                           "belongs here. Put the right file in its place, or move it away.",
                           path, first);
    mem_free(path);
    return e;
}

/* A clean log's end: behind the last entry of the active segment's index there are a few batches at most. */
static enum err open_end(struct plog *pl, struct fault *f)
{
    struct segment *seg = active_segment(pl);
    int64_t end = seg->base_offset;
    atomic_store_explicit(&pl->end, end, memory_order_relaxed);
    if (seg->size == 0) return OK; /* as most partitions of a big cluster are: nothing to look for */
    enum err e = segment_open_log(seg, pl->fs, pl->dir);
    if (!e) e = segment_open_indexes(seg, pl->fs, pl->dir);
    if (!e && seg->indexes_bad) e = segment_rebuild_indexes(seg, pl->fs, pl->dir, pl->config.index_interval_bytes);
    if (e) return e;

    struct scan sc;
    struct batch_info b;
    int64_t from = index_count(&seg->offsets) ? seg->offsets.last.value : 0;
    scan_init(&sc, seg->log, 0, seg->size, false);
    e = scan_header(&sc, &b); /* the first batch: rolling by time goes by it */
    if (!e) seg->first_timestamp = b.max_timestamp;
    if (!e && b.base_offset < seg->base_offset) {
        scan_fini(&sc);
        return misplaced_fault(pl, seg, b.base_offset, f);
    }
    if (!e) sc.pos = from;
    while (!e && !(e = scan_header(&sc, &b))) {
        end = batch_last_offset(&b) + 1;
        if (b.max_timestamp > seg->max_time.timestamp)
            seg->max_time = (struct max_time){b.max_timestamp, batch_last_offset(&b)};
    }
    scan_fini(&sc);
    if (e == ERR_CORRUPT) return e;
    if (e != ERR_NOT_FOUND) return recover_fault(pl, seg, sc.pos, e, f);
    seg->bytes_unindexed = seg->size - from;
    atomic_store_explicit(&pl->end, end, memory_order_relaxed);
    return OK;
}

static enum err open_clean(struct plog *pl, int64_t log_start, struct fault *f)
{
    enum err e = open_end(pl, f);
    if (e == ERR_CORRUPT) { /* the clean mark says too much, or an index misleads */
        struct segment *seg = active_segment(pl);
        LOG_WARN("not_clean", "dir=%s segment=%" PRId64 " reason=unreadable_end", pl->dir, seg->base_offset);
        return recover_log(pl, seg->base_offset, log_start, f);
    }
    return e ? e : recover_producers_clean(pl);
}

/* The checkpointed start may lie behind all that is there, if files vanished: Kafka starts anew at it. */
static enum err open_start(struct plog *pl, int64_t log_start)
{
    int64_t end = plog_end(pl);
    if (log_start > end) {
        LOG_WARN("log_emptied", "dir=%s end=%" PRId64 " log_start=%" PRId64 " reason=start_behind_end", pl->dir, end,
                 log_start);
        while (pl->segment_count > 0) {
            struct segment *seg = active_segment(pl);
            pl->segment_count--;
            pl->size -= seg->size;
            enum err e = segment_remove_files(pl->fs, pl->dir, seg->base_offset, "");
            segment_unref(seg);
            if (e) return e;
        }
        epochs_clear(&pl->epochs);
        producers_clear(pl->producers);
        enum err e = create_first_segment(pl, log_start);
        if (e) return e;
        atomic_store_explicit(&pl->end, log_start, memory_order_relaxed);
    }
    int64_t start = MAX(log_start, pl->segments[0]->base_offset);
    atomic_store_explicit(&pl->start, start, memory_order_relaxed);
    epochs_truncate_end(&pl->epochs, plog_end(pl)); /* as Kafka does, also one that begins just there */
    epochs_truncate_start(&pl->epochs, start);
    /* What the file has behind the end can stay until there is something to write. */
    return epochs_lead_file(&pl->epochs) ? OK : plog_begin_epochs(pl);
}

/* ---- The whole */

static struct plog *plog_new(const struct plog_options *opt)
{
    struct plog *pl = mem_zalloc(1, sizeof *pl);
    ASSERT(pthread_mutex_init(&pl->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&pl->role_free, NULL) == 0);
    ASSERT(pthread_mutex_init(&pl->flush_lock, NULL) == 0);
    atomic_init(&pl->start, 0);
    atomic_init(&pl->end, 0);
    atomic_init(&pl->recovery_point, 0);
    atomic_init(&pl->cleaned, opt->cleaned);
    atomic_init(&pl->txns_ended, false);
    pl->queue_tail = &pl->queue;
    pl->snapshot_offset = -1;
    pl->jitter_state = opt->jitter_seed;
    plog_reconfigure(pl, &opt->config);
    pl->events = opt->events;
    pl->recovered_bytes = opt->recovered_bytes;
    pl->cancel = opt->cancel;
    pl->files = opt->files;
    pl->fs = opt->fs;
    pl->clock = opt->clock;
    pl->dir = mem_strdup(opt->dir);
    atomic_init(&pl->last_flush_ms, clock_wall_ms(pl->clock));
    hints_clear(pl);
    pl->producers = producers_new();
    epochs_init(&pl->epochs);
    return pl;
}

void plog_abandon(struct plog *pl)
{
    exclusive_last(pl);
    plog_exchange_drop(pl);
    for (size_t i = 0; i < pl->segment_count; i++) segment_unref(pl->segments[i]);
    mem_free(pl->segments);
    for (size_t i = 0; i < pl->leaving_count; i++) segment_unref(pl->leaving[i]);
    mem_free(pl->leaving);
    mem_free(pl->doomed);
    producers_free(pl->producers);
    epochs_fini(&pl->epochs);
    pthread_cond_destroy(&pl->role_free);
    pthread_mutex_destroy(&pl->flush_lock);
    pthread_mutex_destroy(&pl->lock);
    mem_free(pl->dir);
    mem_free(pl);
}

static enum err make_dir(struct plog *pl, struct listing *ls)
{
    enum err e = listing_read(ls, pl);
    if (e != ERR_NOT_FOUND) return e;
    e = fs_mkdir(pl->fs, pl->dir);
    pl->parent_unsynced = true;
    return e;
}

static enum err open_all(struct plog *pl, const struct plog_options *opt, struct listing *ls, struct fault *f)
{
    bool epochs_lost = false;
    enum err e = make_dir(pl, ls);
    if (!e) e = tidy_up(pl, ls);
    if (!e) e = open_metadata(pl, opt, f);
    if (!e) e = open_epochs(pl, ls, &epochs_lost, f);
    if (!e) e = open_segments(pl, ls, f);
    /* Kafka's file of a log without batches is empty; with batches a loss of power has emptied it. */
    if (!e && ls->has_epochs && pl->epochs.count == 0 && pl->size > 0) epochs_lost = true;
    if (!e && pl->segment_count == 0) {
        e = create_first_segment(pl, opt->log_start);
        atomic_store_explicit(&pl->end, opt->log_start, memory_order_relaxed);
    } else if (!e && opt->clean) {
        e = open_clean(pl, opt->log_start, f);
    } else if (!e) {
        e = recover_log(pl, opt->recovery_point, opt->log_start, f);
    }
    if (!e && epochs_lost) e = recover_epochs(pl);
    if (!e) e = open_start(pl, opt->log_start);
    if (!opt->clean) pl->parent_unsynced = true; /* who made it may have died before the first flush */
    int64_t known = opt->clean ? plog_end(pl) : MIN(opt->recovery_point, plog_end(pl));
    atomic_store_explicit(&pl->recovery_point, known, memory_order_relaxed);
    /* What recovery found counts as promised from now on. */
    if (!e && flush_is_due(pl, plog_end(pl))) e = plog_flush_segments(pl, FLUSH_ALL);
    /* Thousands of idle logs keep no files open; who appends or reads opens what it needs. */
    for (size_t i = 0; i < pl->segment_count && !e; i++) segment_close_files(pl->segments[i]);
    return e;
}

enum err plog_open(struct plog **out, const struct plog_options *opt, struct fault *f)
{
    struct fault own = {.code = OK};
    struct plog *pl = plog_new(opt);
    struct listing ls = {0};
    enum err e = open_all(pl, opt, &ls, &own);
    mem_free(ls.files);
    if (e) {
        if (own.code)
            fault_set(f, e, "%s", own.text);
        else
            fault_set(f, e, "The log in %s cannot be opened: %s.", opt->dir, err_text(e));
        plog_abandon(pl);
        return e;
    }
    pl->recovered_bytes = NULL;
    pl->cancel = NULL;
    *out = pl;
    return OK;
}

/* The last entry of the time index, and the producers' state, for who opens the log next. */
static enum err close_files(struct plog *pl)
{
    struct segment *seg = active_segment(pl);
    int64_t end = plog_end(pl);
    if (index_is_open(&seg->times)) segment_index_end(seg);
    seg->unsynced |= seg->indexes_unsynced;
    if (pl->snapshot_offset == end || end == 0) return OK; /* written already; nothing was ever here */
    return plog_write_snapshot(pl, end);
}

enum err plog_close(struct plog *pl)
{
    enum err e = exclusive_begin(pl);
    if (!e) {
        pl->closing = true;
        e = plog_cut_go_on(pl); /* an exchange of files can wait for the next opening */
        if (!e) e = close_files(pl);
        exclusive_end(pl);
    }
    if (!e) e = plog_flush(pl);
    plog_abandon(pl);
    return e;
}
