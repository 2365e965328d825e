/* kafka_dump_text.c: the rest of what Kafka's tool prints: snapshots, transaction indexes, decoded records, and the
 * list of what did not agree. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/kafka_dump.h"
#include "plog/producers.h"
#include "plog/txnindex.h"
#include "wire/gen/transaction_log_key.h"
#include "wire/gen/transaction_log_value.h"

void kafka_dump_failed(struct kafka_dump *d, const char *path, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    d->failed = true;
    fflush(stdout);
    fprintf(stderr, "barnabas kafka-dump-log: %s: ", path);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, ".\n");
    va_end(args);
}

/* ---- What does not agree */

void mismatch_add(struct mismatch_list *list, const char *path, int64_t first, int64_t second)
{
    struct mismatches *m = NULL;
    for (size_t i = 0; i < list->count && !m; i++)
        if (strcmp(list->files[i].file, path) == 0) m = &list->files[i];
    if (!m) {
        list->files = mem_grow(list->files, &list->cap, list->count + 1, sizeof *list->files);
        m = &list->files[list->count++];
        *m = (struct mismatches){.file = mem_strdup(path)};
    }
    m->pairs = mem_grow(m->pairs, &m->cap, m->count + 1, sizeof *m->pairs);
    m->pairs[m->count++] = (struct mismatch){first, second};
}

/* `title` with the file's name, or alone where it has no %s; `newest_first`: Kafka puts each pair before the others. */
static void print_list(struct mismatch_list *list, const char *title, bool with_name, const char *line_a,
                       const char *line_b, bool newest_first)
{
    for (size_t i = 0; i < list->count; i++) {
        struct mismatches *m = &list->files[i];
        fprintf(stderr, "%s%s\n", title, with_name ? m->file : "");
        for (size_t k = 0; k < m->count; k++) {
            const struct mismatch *p = &m->pairs[newest_first ? m->count - 1 - k : k];
            fprintf(stderr, "%s%" PRId64 "%s%" PRId64 "\n", line_a, p->first, line_b, p->second);
        }
        mem_free(m->file);
        mem_free(m->pairs);
    }
    mem_free(list->files);
    *list = (struct mismatch_list){0};
}

void kafka_dump_print_errors(struct kafka_dump *d)
{
    fflush(stdout);
    print_list(&d->offsets, "Mismatches in :", true, "  Index offset: ", ", log offset: ", true);
    print_list(&d->times, "Found timestamp mismatch in :", true, "  Index timestamp: ", ", log timestamp: ", false);
    print_list(&d->unordered, "Found out of order timestamp in :", true,
               "  Index timestamp: ", ", Previously indexed timestamp: ", false);
    print_list(&d->nowhere, "The following indexed offsets are not found in the log.", false,
               "Indexed offset: ", ", found log offset: ", false);
    print_list(&d->gaps, "Non-consecutive offsets in ", true, "  ", " is followed by ", true);
}

/* ---- Text */

/* Bytes of the character at `s`, or of the longest start of one that cannot go on (then *good is false). */
static size_t utf8_step(const uint8_t *s, size_t left, bool *good)
{
    uint8_t c = s[0];
    *good = c < 0x80;
    if (c < 0xc2 || c > 0xf4) return 1;
    size_t n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4, i = 1;
    uint8_t low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    for (; i < n && i < left; i++, low = 0x80, high = 0xbf)
        if (s[i] < low || s[i] > high) break;
    *good = i == n;
    return i;
}

void kafka_print_text(struct bytes text)
{
    for (size_t i = 0; i < text.size;) {
        bool good;
        size_t n = utf8_step(text.data + i, text.size - i, &good);
        if (good)
            fwrite(text.data + i, 1, n, stdout);
        else
            fputs("\xef\xbf\xbd", stdout);
        i += n;
    }
}

/* ---- Decoders */

static void print_json(json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    fputs(text ? text : "?", stdout);
    free(text); /* Jansson's own */
    json_decref(json);
}

static void print_offsets_record(const struct coordinator_record *cr, const char *lead)
{
    printf("%skey: ", lead);
    print_json(coordinator_key_json(cr));
    json_t *value = coordinator_value_json(cr);
    printf(" payload: ");
    if (value)
        print_json(value);
    else
        printf("<DELETE>");
}

static void print_partitions(const struct transaction_log_value *v)
{
    const char *lead = "";
    putchar('[');
    /* Of a transaction that has none, Kafka does not read them. */
    for (int32_t i = 0; v->transaction_status != 0 && i < v->transaction_partitions_count; i++) {
        struct str topic = v->transaction_partitions[i].topic;
        for (int32_t k = 0; k < v->transaction_partitions[i].partition_ids_count; k++, lead = ",") {
            fputs(lead, stdout);
            kafka_print_text((struct bytes){(const uint8_t *)topic.data, topic.size});
            printf("-%d", v->transaction_partitions[i].partition_ids[k]);
        }
    }
    putchar(']');
}

static void print_transaction_record(const struct coordinator_record *cr, const char *lead)
{
    const struct transaction_log_key *key = cr->key;
    const struct transaction_log_value *v = cr->value;
    printf("%skey: transaction_metadata::transactionalId=", lead);
    kafka_print_text((struct bytes){(const uint8_t *)key->transactional_id.data, key->transactional_id.size});
    if (!v) {
        printf(" payload: <DELETE>");
        return;
    }
    printf(" payload: producerId:%" PRId64 ",producerEpoch:%d,state=%s,partitions=", v->producer_id, v->producer_epoch,
           txn_state_name(v->transaction_status));
    print_partitions(v);
    printf(",txnLastUpdateTimestamp=%" PRId64 ",txnTimeoutMs=%d", v->transaction_last_update_timestamp_ms,
           v->transaction_timeout_ms);
}

void kafka_print_decoded(struct kafka_dump *d, const struct record *rec, const char *lead)
{
    struct coordinator_record cr;
    bool offsets = d->decode == COORDINATOR_LOG_OFFSETS;
    arena_reset(&d->arena);
    enum err e = coordinator_record_decode(&cr, d->decode, rec->key, rec->value, &d->arena);
    if (e == ERR_NOT_FOUND && offsets)
        printf("%skey: Unknown record type %d at offset %" PRId64 ", skipping.", lead, cr.type, rec->offset);
    else if (e == ERR_NOT_FOUND)
        printf("%skey: unknown::version=%d", lead, cr.type);
    else if (e || cr.value_err)
        printf("%skey: Error at offset %" PRId64 ", skipping. Could not read record with version %d from %s's buffer "
               "due to: %s.",
               lead, rec->offset, cr.type, e ? "key" : "value", err_text(e ? e : cr.value_err));
    else if (offsets)
        print_offsets_record(&cr, lead);
    else
        print_transaction_record(&cr, lead);
}

/* ---- Snapshots and transaction indexes */

static void print_producer(void *arg, const struct producer_entry *p, size_t pos)
{
    (void)arg;
    (void)pos;
    printf("producerId: %" PRId64 " producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: ", p->producer_id,
           p->producer_epoch, p->coordinator_epoch);
    if (p->txn_first_offset >= 0)
        printf("OptionalLong[%" PRId64 "]", p->txn_first_offset);
    else
        printf("OptionalLong.empty");
    printf(" lastTimestamp: %" PRId64 " ", p->timestamp);
    if (p->last_offset >= 0) {
        int32_t first =
            p->last_sequence < 0 ? -1 : (int32_t)(((uint32_t)p->last_sequence - (uint32_t)p->offset_delta) & INT32_MAX);
        printf("firstSequence: %d lastSequence: %d lastOffset: %" PRId64 " offsetDelta: %d timestamp: %" PRId64, first,
               p->last_sequence, p->last_offset, p->offset_delta, p->timestamp);
    }
    putchar('\n');
}

static void dump_snapshot(struct kafka_dump *d, const char *path)
{
    char *data;
    size_t size;
    enum err e = fs_read_whole(fs_system(), path, PRODUCERS_SNAPSHOT_SIZE_MAX, &data, &size);
    if (!e) {
        e = producers_snapshot_each((const uint8_t *)data, size, print_producer, NULL);
        mem_free(data);
    }
    if (e) kafka_dump_failed(d, path, "the snapshot cannot be read: %s", err_text(e));
}

static bool print_txn(void *arg, const struct aborted_txn *txn, int64_t pos)
{
    (void)arg;
    (void)pos;
    printf("version: 0 producerId: %" PRId64 " firstOffset: %" PRId64 " lastOffset: %" PRId64
           " lastStableOffset: %" PRId64 "\n",
           txn->producer_id, txn->first_offset, txn->last_offset, txn->last_stable_offset);
    return true;
}

static void dump_txns(struct kafka_dump *d, const char *path)
{
    struct file *file;
    int64_t size;
    enum err e = fs_open(fs_system(), path, FS_READ, &file);
    if (!e) {
        e = file_size(file, &size);
        if (!e) e = txnindex_walk(file, size - size % TXNINDEX_ENTRY_SIZE, print_txn, NULL);
        file_unref(file);
    }
    if (e) kafka_dump_failed(d, path, "the transaction index cannot be read: %s", err_text(e));
}

void kafka_dump_file(struct kafka_dump *d, const char *path)
{
    int64_t base_offset;
    enum log_file_kind kind = log_file_kind(path_name(path), &base_offset);
    const char *dot = strchr(path_name(path), '.');
    bool pending = dot && strchr(dot + 1, '.'); /* .log.deleted and its like: Kafka's tool does not know them */
    printf("Dumping %s\n", path);
    switch (pending ? LOG_FILE_UNKNOWN : kind) {
    case LOG_FILE_LOG: kafka_dump_log_file(d, path, base_offset); break;
    case LOG_FILE_OFFSETS: kafka_dump_index(d, path, base_offset); break;
    case LOG_FILE_TIMES: kafka_dump_time_index(d, path, base_offset); break;
    case LOG_FILE_SNAPSHOT: dump_snapshot(d, path); break;
    case LOG_FILE_TXNS: dump_txns(d, path); break;
    default: fflush(stdout); fprintf(stderr, "Ignoring unknown file %s\n", path);
    }
}
