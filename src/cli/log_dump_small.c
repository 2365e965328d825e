/* log_dump_small.c: everything in a log directory but the batches: indexes, snapshots, and the small text files. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "cli/log_internal.h"
#include "plog/checkpoint.h"
#include "plog/epochs.h"
#include "plog/index.h"
#include "plog/producers.h"
#include "plog/txnindex.h"

struct small {
    struct log_out *out;
    struct fs *fs;
    const char *path;
    int64_t base_offset;
};

/* ---- Indexes */

static bool print_offset(void *arg, uint32_t at, struct index_entry entry)
{
    const struct small *s = arg;
    struct row row = row_begin(s->out, "offsetIndexEntry");
    (void)at;
    row_int(&row, "offset", s->base_offset + entry.key);
    row_int(&row, "position", entry.value);
    row_end(&row, "");
    return true;
}

static bool print_time(void *arg, uint32_t at, struct index_entry entry)
{
    const struct small *s = arg;
    struct row row = row_begin(s->out, "timeIndexEntry");
    (void)at;
    row_int(&row, "timestamp", entry.key);
    row_int(&row, "offset", s->base_offset + entry.value);
    row_end(&row, "");
    return true;
}

static enum err dump_index(struct small *s, struct file *file, enum index_kind kind)
{
    struct index_extent extent;
    enum err e = index_measure(file, kind, &extent);
    if (!e) e = index_walk(file, kind, extent.used, kind == INDEX_OFFSETS ? print_offset : print_time, s);
    if (e) return e;
    if (extent.zeros > 0) {
        struct row row = row_begin(s->out, "preallocated");
        row_int(&row, "zeroEntries", extent.zeros);
        row_end(&row, "");
    }
    int64_t size = extent.torn_bytes, entry = kind == INDEX_OFFSETS ? INDEX_OFFSETS_ENTRY_SIZE : INDEX_TIMES_ENTRY_SIZE;
    if (size > 0)
        log_out_error(s->out, (int64_t)(extent.used + extent.zeros) * entry,
                      "%" PRId64 " bytes behind the last whole entry.", size);
    return OK;
}

static bool print_txn(void *arg, const struct aborted_txn *txn, int64_t pos)
{
    const struct small *s = arg;
    struct row row = row_begin(s->out, "abortedTransaction");
    (void)pos;
    row_int(&row, "producerId", txn->producer_id);
    row_int(&row, "firstOffset", txn->first_offset);
    row_int(&row, "lastOffset", txn->last_offset);
    row_int(&row, "lastStableOffset", txn->last_stable_offset);
    row_end(&row, "");
    return true;
}

static enum err dump_txns(struct small *s, struct file *file)
{
    int64_t size;
    enum err e = file_size(file, &size);
    if (e) return e;
    int64_t torn = size % TXNINDEX_ENTRY_SIZE;
    e = txnindex_walk(file, size - torn, print_txn, s);
    if (!e && torn) log_out_error(s->out, size - torn, "%" PRId64 " bytes behind the last whole entry.", torn);
    return e;
}

static enum err dump_index_file(struct small *s, enum log_file_kind kind)
{
    struct file *file;
    enum err e = fs_open(s->fs, s->path, FS_READ, &file);
    if (e) return e;
    if (kind == LOG_FILE_TXNS)
        e = dump_txns(s, file);
    else
        e = dump_index(s, file, kind == LOG_FILE_OFFSETS ? INDEX_OFFSETS : INDEX_TIMES);
    file_unref(file);
    return e;
}

/* ---- Producers */

static void print_producer(void *arg, const struct producer_entry *p, size_t pos)
{
    const struct small *s = arg;
    struct row row = row_begin(s->out, "producer");
    (void)pos;
    row_int(&row, "producerId", p->producer_id);
    row_int(&row, "producerEpoch", p->producer_epoch);
    row_int(&row, "coordinatorEpoch", p->coordinator_epoch);
    if (p->txn_first_offset >= 0) row_int(&row, "currentTxnFirstOffset", p->txn_first_offset);
    row_int(&row, "lastSequence", p->last_sequence);
    row_int(&row, "lastOffset", p->last_offset);
    row_int(&row, "offsetDelta", p->offset_delta);
    row_int(&row, "timestamp", p->timestamp);
    row_end(&row, "");
}

static enum err dump_snapshot(struct small *s)
{
    char *data;
    size_t size;
    enum err e = fs_read_whole(s->fs, s->path, PRODUCERS_SNAPSHOT_SIZE_MAX, &data, &size);
    if (e) return e;
    e = producers_snapshot_each((const uint8_t *)data, size, print_producer, s);
    mem_free(data);
    return e;
}

/* ---- Text files */

/* Kafka leaves the file empty until there is an epoch. */
static enum err dump_epochs(struct small *s, struct fault *f)
{
    struct epochs ep;
    struct fs_stat st;
    enum err e = fs_stat(s->fs, s->path, &st);
    if (e || st.size == 0) return e;
    epochs_init(&ep);
    e = epochs_read(&ep, s->fs, s->path, f);
    for (size_t i = 0; i < ep.count && !e; i++) {
        struct row row = row_begin(s->out, "leaderEpoch");
        row_int(&row, "epoch", ep.entries[i].epoch);
        row_int(&row, "startOffset", ep.entries[i].start_offset);
        row_end(&row, "");
    }
    epochs_fini(&ep);
    return e;
}

static enum err dump_checkpoint(struct small *s, struct fault *f)
{
    struct checkpoint cp;
    checkpoint_init(&cp);
    enum err e = checkpoint_read(&cp, s->fs, s->path, f);
    for (size_t i = 0; i < cp.count && !e; i++) {
        struct row row = row_begin(s->out, "checkpoint");
        row_bytes(&row, "topic", (struct bytes){(const uint8_t *)cp.rows[i].topic.data, cp.rows[i].topic.size});
        row_int(&row, "partition", cp.rows[i].partition);
        row_int(&row, "offset", cp.rows[i].offset);
        row_end(&row, "");
    }
    checkpoint_fini(&cp);
    return e;
}

static enum err dump_partition(struct small *s, struct fault *f)
{
    struct uuid id;
    char text[UUID_TEXT_SIZE + 1];
    enum err e = partition_metadata_read(&id, s->fs, s->path, f);
    if (e) return e;
    uuid_format(id, text);
    struct row row = row_begin(s->out, "partitionMetadata");
    row_text(&row, "topicId", text);
    row_end(&row, "");
    return OK;
}

static enum err dump_meta(struct small *s, struct fault *f)
{
    struct meta_properties mp;
    meta_properties_init(&mp);
    enum err e = meta_properties_read(&mp, s->fs, s->path, f);
    if (!e) {
        struct row row = row_begin(s->out, "metaProperties");
        row_int(&row, "version", mp.version);
        if (mp.broker_id >= 0) row_int(&row, mp.version == 0 ? "broker.id" : "node.id", mp.broker_id);
        if (mp.cluster_id) row_text(&row, "cluster.id", mp.cluster_id);
        if (mp.directory_id) row_text(&row, "directory.id", mp.directory_id);
        for (size_t i = 0; i < mp.other_count; i++) row_text(&row, mp.other[i].key, mp.other[i].value);
        row_end(&row, "");
    }
    meta_properties_fini(&mp);
    return e;
}

static enum err dump_clean(struct small *s)
{
    int64_t broker_epoch;
    enum err e = clean_shutdown_read(&broker_epoch, s->fs, s->path);
    if (e) return e;
    struct row row = row_begin(s->out, "cleanShutdown");
    row_int(&row, "brokerEpoch", broker_epoch);
    row_end(&row, "");
    return OK;
}

void dump_small_file(struct log_out *out, struct fs *fs, enum log_file_kind kind, int64_t base_offset)
{
    struct small s = {.out = out, .fs = fs, .path = out->file, .base_offset = base_offset};
    struct fault f = {.code = OK};
    enum err e = OK;
    switch (kind) {
    case LOG_FILE_OFFSETS:
    case LOG_FILE_TIMES:
    case LOG_FILE_TXNS: e = dump_index_file(&s, kind); break;
    case LOG_FILE_SNAPSHOT: e = dump_snapshot(&s); break;
    case LOG_FILE_EPOCHS: e = dump_epochs(&s, &f); break;
    case LOG_FILE_CHECKPOINT: e = dump_checkpoint(&s, &f); break;
    case LOG_FILE_PARTITION: e = dump_partition(&s, &f); break;
    case LOG_FILE_META: e = dump_meta(&s, &f); break;
    case LOG_FILE_CLEAN: e = dump_clean(&s); break;
    case LOG_FILE_LOG:
    case LOG_FILE_UNKNOWN: UNREACHABLE();
    }
    if (e && f.code)
        log_out_error(out, -1, "%s", f.text);
    else if (e)
        log_out_error(out, -1, "it cannot be read: %s.", err_text(e));
}
