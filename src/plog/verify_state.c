/* verify_state.c: what is derived from all batches together: leader epochs, producers' state and their snapshots,
 * aborted transactions.  The state is replayed as recovery does it, and compared with the files on the way. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plog/segment.h"
#include "plog/verify_internal.h"

/* ---- Epochs */

/* Reading passes over entries that contradict the others. */
static void epochs_compare(struct verify *v, const char *text, size_t size)
{
    size_t canonical_size;
    char *canonical = epochs_encode(&v->epochs, &canonical_size);
    if (canonical_size != size || memcmp(canonical, text, size) != 0) {
        v->epochs_told = true;
        verify_found(v, VERIFY_EPOCHS_FILE, v->epochs_path, -1, "its entries contradict each other");
    }
    mem_free(canonical);
}

/* Kafka leaves the file empty until there is an epoch: that is as good as none. */
static void epochs_open(struct verify *v)
{
    struct fault f = {.code = OK};
    char *text = NULL;
    size_t size = 0;
    v->epochs_path = mem_printf("%s/" LEADER_EPOCHS, v->opt->dir);
    enum err e = fs_read_whole(v->opt->fs, v->epochs_path, EPOCHS_FILE_SIZE_MAX, &text, &size);
    v->epochs_missing = e == ERR_NOT_FOUND || (!e && size == 0);
    if (!e && size > 0) e = epochs_decode(&v->epochs, v->epochs_path, text, size, &f);
    if (e && e != ERR_NOT_FOUND) {
        verify_found(v, VERIFY_EPOCHS_FILE, v->epochs_path, -1, "%s", f.code ? f.text : err_text(e));
    } else {
        v->epochs_known = true;
        if (size > 0) epochs_compare(v, text, size);
    }
    mem_free(text);
}

static void epochs_batch(struct verify *v, const struct batch_info *b, const char *file, int64_t pos)
{
    if (b->leader_epoch < v->epoch)
        verify_found(v, VERIFY_EPOCH_FALLS, file, pos, "offset %" PRId64 " has leader epoch %d after epoch %d",
                     b->base_offset, b->leader_epoch, v->epoch);
    v->epoch = MAX(v->epoch, b->leader_epoch);
    if (!v->epochs_known || v->epochs_told || b->leader_epoch < 0) return;
    if (batch_last_offset(b) < v->opt->log_start) return; /* what is below it is not kept */
    int32_t said = epochs_of_offset(&v->epochs, MAX(b->base_offset, v->opt->log_start));
    if (said == b->leader_epoch) return;
    v->epochs_told = true;
    if (v->epochs_missing)
        verify_found(v, VERIFY_EPOCHS_FILE, v->epochs_path, -1, "it is missing or empty");
    else
        verify_found(v, VERIFY_EPOCHS_FILE, v->epochs_path, -1,
                     "it gives offset %" PRId64 " to leader epoch %d, but the batch says %d", b->base_offset, said,
                     b->leader_epoch);
}

/* ---- Snapshots */

struct found_entry {
    struct producer_entry entry;
    size_t pos; /* in the file */
};

struct entry_list {
    struct found_entry *entries;
    size_t count, cap;
};

static void take_entry(void *arg, const struct producer_entry *entry, size_t pos)
{
    struct entry_list *list = arg;
    list->entries = mem_grow(list->entries, &list->cap, list->count + 1, sizeof *list->entries);
    list->entries[list->count++] = (struct found_entry){*entry, pos};
}

static int compare_producers(const struct producer_entry *a, const struct producer_entry *b)
{
    return (a->producer_id > b->producer_id) - (a->producer_id < b->producer_id);
}

static int compare_found(const void *a, const void *b)
{
    const struct found_entry *x = a, *y = b;
    int order = compare_producers(&x->entry, &y->entry);
    return order ? order : (x->pos > y->pos) - (x->pos < y->pos);
}

/* By producer, of each its last entry: the earlier ones are batches before that. */
static enum err entries_of(struct entry_list *list, const uint8_t *data, size_t size)
{
    enum err e = producers_snapshot_each(data, size, take_entry, list);
    if (list->count > 1) qsort(list->entries, list->count, sizeof *list->entries, compare_found);
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (kept > 0 && !compare_producers(&list->entries[kept - 1].entry, &list->entries[i].entry)) kept--;
        list->entries[kept++] = list->entries[i];
    }
    list->count = kept;
    return e;
}

static bool same_entry(const struct producer_entry *a, const struct producer_entry *b)
{
    return a->producer_epoch == b->producer_epoch && a->last_sequence == b->last_sequence &&
           a->last_offset == b->last_offset && a->txn_first_offset == b->txn_first_offset &&
           a->coordinator_epoch == b->coordinator_epoch;
}

/* Producers that have been idle for long are left out of a snapshot, unless a transaction is open. */
static void compare_lists(struct verify *v, const char *path, const struct entry_list *file,
                          const struct entry_list *replay)
{
    size_t f = 0, r = 0;
    while (f < file->count || r < replay->count) {
        const struct producer_entry *x = f < file->count ? &file->entries[f].entry : NULL;
        const struct producer_entry *y = r < replay->count ? &replay->entries[r].entry : NULL;
        int order = !x ? 1 : !y ? -1 : compare_producers(x, y);
        if (order < 0 && x && !v->incomplete) {
            verify_found(v, VERIFY_SNAPSHOT, path, -1, "it knows producer %" PRId64 ", of which the log has nothing",
                         x->producer_id);
            return;
        }
        if (order > 0 && y && y->txn_first_offset >= 0) {
            verify_found(v, VERIFY_SNAPSHOT, path, -1, "it lacks producer %" PRId64 ", whose transaction is open",
                         y->producer_id);
            return;
        }
        if (order == 0 && !v->incomplete && !same_entry(x, y)) {
            verify_found(v, VERIFY_SNAPSHOT, path, -1,
                         "of producer %" PRId64 " it says epoch %d, sequence %d, offset %" PRId64
                         "; the log says epoch %d, sequence %d, offset %" PRId64,
                         x->producer_id, x->producer_epoch, x->last_sequence, x->last_offset, y->producer_epoch,
                         y->last_sequence, y->last_offset);
            return;
        }
        f += order <= 0;
        r += order >= 0;
    }
}

static void snapshot_check(struct verify *v, int64_t offset)
{
    char *path = segment_path(v->opt->dir, offset, SEGMENT_SNAPSHOT), *data;
    struct entry_list file = {0}, replay = {0};
    size_t size, ours_size;
    uint8_t *ours;
    enum err e = fs_read_whole(v->opt->fs, path, PRODUCERS_SNAPSHOT_SIZE_MAX, &data, &size);
    if (e == ERR_NOT_FOUND && v->opt->live) {
        mem_free(path);
        return;
    }
    if (!e) {
        e = entries_of(&file, (const uint8_t *)data, size);
        mem_free(data);
    }
    if (e) {
        verify_found(v, VERIFY_SNAPSHOT, path, -1, "it cannot be read: %s", err_text(e));
    } else if (!v->broken && !v->gaps) {
        producers_snapshot_encode(&v->producers, offset, &ours, &ours_size);
        e = entries_of(&replay, ours, ours_size);
        ASSERT(!e);
        compare_lists(v, path, &file, &replay);
        mem_free(ours);
    }
    mem_free(file.entries);
    mem_free(replay.entries);
    mem_free(path);
}

/* Those that say how it was before `offset`. */
static void snapshots_up_to(struct verify *v, int64_t offset)
{
    while (v->snapshot_at < v->snapshots.count && v->snapshots.offsets[v->snapshot_at] <= offset)
        snapshot_check(v, v->snapshots.offsets[v->snapshot_at++]);
}

/* ---- Producers */

/* A log that does not begin at 0 goes on from a snapshot there. */
static void producers_open(struct verify *v)
{
    int64_t first = v->res->first;
    producers_init(&v->producers);
    if (first == 0) return;
    enum err e = producers_snapshot_read(&v->producers, v->opt->fs, v->opt->dir, first, 0, INT64_MAX);
    v->incomplete = e != OK;
}

void verify_state_open(struct verify *v)
{
    v->epoch = -1;
    epochs_init(&v->epochs);
    epochs_open(v);
    producers_open(v);
}

void verify_state_batch(struct verify *v, const struct batch_info *b, const uint8_t *data, const char *file,
                        int64_t pos)
{
    epochs_batch(v, b, file, pos);
    snapshots_up_to(v, b->base_offset);
    v->gaps |= b->base_offset != v->next || (int64_t)b->count != (int64_t)b->last_offset_delta + 1;
    if (b->producer_id < 0) return;
    struct txn_marker marker;
    struct producers_result r;
    bool is_marker = b->attributes & BATCH_CONTROL && batch_read_marker(&marker, data, (size_t)b->size) == OK;
    producers_queue(&v->producers, b, is_marker ? &marker : NULL, APPEND_REPLICA, &r);
    producers_publish(&v->producers, batch_last_offset(b) + 1);
    producers_replicated(&v->producers, batch_last_offset(b) + 1);
    if (!r.aborted) return;
    struct txn_list *list = &v->aborted;
    list->txns = mem_grow(list->txns, &list->cap, list->count + 1, sizeof *list->txns);
    list->txns[list->count++] = r.txn;
}

/* ---- Transaction indexes */

static bool take_txn(void *arg, const struct aborted_txn *txn, int64_t pos)
{
    struct txn_list *list = arg;
    (void)pos;
    list->txns = mem_grow(list->txns, &list->cap, list->count + 1, sizeof *list->txns);
    list->txns[list->count++] = *txn;
    return true;
}

static bool same_txn(const struct aborted_txn *a, const struct aborted_txn *b)
{
    return a->producer_id == b->producer_id && a->first_offset == b->first_offset && a->last_offset == b->last_offset &&
           a->last_stable_offset == b->last_stable_offset;
}

static void compare_txns(struct verify *v, const char *path, const struct txn_list *file)
{
    const struct txn_list *log = &v->aborted;
    for (size_t i = 0; i < file->count || i < log->count; i++) {
        int64_t pos = (int64_t)i * TXNINDEX_ENTRY_SIZE;
        if (i < file->count && i < log->count && same_txn(&file->txns[i], &log->txns[i])) continue;
        /* Readers of committed records go by it: what it lacks, they see. */
        if (i < log->count && (i >= file->count || file->txns[i].last_offset >= log->txns[i].last_offset))
            verify_found(v, VERIFY_TXN_INDEX, path, pos,
                         "producer %" PRId64 "'s transaction from offset %" PRId64 " on was aborted at %" PRId64
                         ", but it does not say so",
                         log->txns[i].producer_id, log->txns[i].first_offset, log->txns[i].last_offset);
        else
            verify_found(v, VERIFY_TXN_INDEX, path, pos,
                         "it says that producer %" PRId64 "'s transaction from offset %" PRId64
                         " on was aborted at %" PRId64 ", but it was not",
                         file->txns[i].producer_id, file->txns[i].first_offset, file->txns[i].last_offset);
        return;
    }
}

/* Ascending, and inside the segment. */
static void check_txns(struct verify *v, const char *path, const struct txn_list *list)
{
    int64_t before = v->base - 1;
    for (size_t i = 0; i < list->count; i++) {
        const struct aborted_txn *t = &list->txns[i];
        if (t->last_offset > before && t->first_offset <= t->last_offset && t->last_offset < v->next) {
            before = t->last_offset;
            continue;
        }
        verify_found(v, VERIFY_TXN_INDEX, path, (int64_t)i * TXNINDEX_ENTRY_SIZE,
                     "an entry from offset %" PRId64 " to %" PRId64 " cannot stand here", t->first_offset,
                     t->last_offset);
        return;
    }
}

static void read_txns(struct verify *v, const char *path, struct file *file)
{
    struct txn_list list = {0};
    int64_t size = 0;
    enum err e = file ? file_size(file, &size) : OK;
    if (!e && size > 0) e = txnindex_walk(file, size - size % TXNINDEX_ENTRY_SIZE, take_txn, &list);
    if (e)
        verify_found(v, VERIFY_TXN_INDEX, path, -1, "it cannot be read: %s", err_text(e));
    else if (size % TXNINDEX_ENTRY_SIZE)
        verify_found(v, VERIFY_TXN_INDEX, path, size - size % TXNINDEX_ENTRY_SIZE,
                     "%" PRId64 " bytes stand behind its last whole entry", size % TXNINDEX_ENTRY_SIZE);
    else if (v->broken || v->gaps || v->incomplete)
        check_txns(v, path, &list);
    else
        compare_txns(v, path, &list);
    mem_free(list.txns);
}

void verify_txns_end(struct verify *v)
{
    char *path = segment_path(v->opt->dir, v->base, SEGMENT_TXNS);
    struct file *file = NULL;
    enum err e = fs_open(v->opt->fs, path, FS_READ, &file);
    if (e && e != ERR_NOT_FOUND)
        verify_found(v, VERIFY_TXN_INDEX, path, -1, "it cannot be opened: %s", err_text(e));
    else
        read_txns(v, path, e ? NULL : file);
    if (!e) file_unref(file);
    v->aborted.count = 0;
    mem_free(path);
}

/* ---- The end */

void verify_state_end(struct verify *v)
{
    snapshots_up_to(v, v->next);
    if (!v->opt->live && !v->broken && v->snapshot_at < v->snapshots.count) {
        char *path = segment_path(v->opt->dir, v->snapshots.offsets[v->snapshot_at], SEGMENT_SNAPSHOT);
        verify_found(v, VERIFY_SNAPSHOT, path, -1,
                     "it tells of offsets that the log, which ends at %" PRId64 ", does not have", v->next);
        mem_free(path);
    }
    const struct epoch_entry *latest = v->epochs.count ? &v->epochs.entries[v->epochs.count - 1] : NULL;
    bool behind = latest && latest->start_offset > MAX(v->next, v->opt->log_start);
    if (!v->opt->live && !v->broken && behind && !v->epochs_told)
        verify_found(v, VERIFY_LEFTOVER, v->epochs_path, -1,
                     "leader epoch %d begins at offset %" PRId64 ", but the log ends at %" PRId64, latest->epoch,
                     latest->start_offset, v->next);
    producers_fini(&v->producers);
    epochs_fini(&v->epochs);
    mem_free(v->epochs_path);
    mem_free(v->snapshots.offsets);
    mem_free(v->aborted.txns);
}
