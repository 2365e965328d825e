/* kafka_dump_log_file.c: .log files as Kafka's tool prints them. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "cli/kafka_dump.h"
#include "plog/scan.h"

static const char *bool_text(bool b)
{
    return b ? "true" : "false";
}

static const char *timestamp_type(const struct batch_info *b)
{
    return b->attributes & BATCH_LOG_APPEND_TIME ? "LogAppendTime" : "CreateTime";
}

/* 31 bits, 0 follows 2^31-1. */
static int32_t sequence_at(const struct batch_info *b, int64_t delta)
{
    return b->base_sequence < 0 ? -1 : (int32_t)((b->base_sequence + delta) & INT32_MAX);
}

static void print_batch(const struct batch_info *b, const uint8_t *data, int64_t pos)
{
    printf("baseOffset: %" PRId64 " lastOffset: %" PRId64 " count: %d baseSequence: %d lastSequence: %d",
           b->base_offset, batch_last_offset(b), b->count, b->base_sequence, sequence_at(b, b->last_offset_delta));
    printf(" producerId: %" PRId64 " producerEpoch: %d partitionLeaderEpoch: %d isTransactional: %s isControl: %s",
           b->producer_id, b->producer_epoch, b->leader_epoch, bool_text(b->attributes & BATCH_TRANSACTIONAL),
           bool_text(b->attributes & BATCH_CONTROL));
    if (b->attributes & BATCH_DELETE_HORIZON)
        printf(" deleteHorizonMs: OptionalLong[%" PRId64 "]", b->base_timestamp);
    else
        printf(" deleteHorizonMs: OptionalLong.empty");
    printf(" position: %" PRId64 " %s: %" PRId64 " size: %d magic: %d compresscodec: %s crc: %" PRIu32 " isvalid: %s\n",
           pos, timestamp_type(b), b->max_timestamp, b->size, BATCH_MAGIC,
           batch_codec(b) < CODEC_COUNT ? codec_name(batch_codec(b)) : "unknown", b->crc,
           bool_text(batch_crc_ok(data, b)));
}

static void print_header_keys(const struct record *rec)
{
    struct record walk = *rec;
    struct record_header h;
    printf(" headerKeys: [");
    for (const char *lead = ""; record_next_header(&walk, &h) == OK; lead = ",") {
        fputs(lead, stdout);
        kafka_print_text((struct bytes){(const uint8_t *)h.key.data, h.key.size});
    }
    putchar(']');
}

static void print_control(const struct record *rec)
{
    struct reader key = reader_of(rec->key.data, rec->key.size), value = reader_of(rec->value.data, rec->value.size);
    (void)reader_i16(&key);
    int16_t type = reader_i16(&key);
    (void)reader_i16(&value);
    int32_t epoch = reader_i32(&value);
    if (!key.err && !value.err && (type == CONTROL_ABORT || type == CONTROL_COMMIT))
        printf(" endTxnMarker: %s coordinatorEpoch: %d", type == CONTROL_COMMIT ? "COMMIT" : "ABORT", epoch);
    else
        printf(" controlType: %s(%d)", type == CONTROL_LEADER_CHANGE ? "LEADER_CHANGE" : "UNKNOWN", type);
}

static void print_content(struct kafka_dump *d, const struct record *rec, const char *lead)
{
    if (d->decode != COORDINATOR_LOG_NONE) {
        kafka_print_decoded(d, rec, lead);
        return;
    }
    if (rec->key.data) {
        printf("%skey: ", lead);
        kafka_print_text(rec->key);
    }
    if (rec->value.data) {
        printf(" payload: ");
        kafka_print_text(rec->value);
    }
}

static void print_record(struct kafka_dump *d, const struct batch_info *b, const struct record *rec)
{
    bool control = b->attributes & BATCH_CONTROL;
    if (!d->skip_metadata) {
        printf("| offset: %" PRId64 " %s: %" PRId64 " keySize: %d valueSize: %d sequence: %d", rec->offset,
               timestamp_type(b), rec->timestamp, rec->key.data ? (int)rec->key.size : -1,
               rec->value.data ? (int)rec->value.size : -1, sequence_at(b, rec->offset - b->base_offset));
        print_header_keys(rec);
        if (control) print_control(rec);
    }
    if (d->print_data && !control) print_content(d, rec, d->skip_metadata ? "| " : " ");
    putchar('\n');
}

static void print_records(struct kafka_dump *d, const char *path, const struct batch_info *b, const uint8_t *data,
                          int64_t *last_offset)
{
    struct record_iter it;
    struct record rec;
    enum err e = record_iter_init(&it, data, (size_t)b->size, LOG_DECOMPRESSED_MAX);
    if (!e) {
        while (!(e = record_iter_next(&it, &rec))) {
            if (*last_offset >= 0 && rec.offset != *last_offset + 1)
                mismatch_add(&d->gaps, path, *last_offset, rec.offset);
            *last_offset = rec.offset;
            print_record(d, b, &rec);
        }
        record_iter_fini(&it);
    }
    if (e != ERR_NOT_FOUND)
        kafka_dump_failed(d, path, "the records of the batch at offset %" PRId64 " cannot be read: %s", b->base_offset,
                          err_text(e));
}

static void print_batches(struct kafka_dump *d, const char *path, struct file *file, int64_t size)
{
    struct scan sc;
    struct batch_info b;
    const uint8_t *data;
    int64_t pos = 0, last_offset = -1;
    enum err e;
    scan_init(&sc, file, 0, size, false);
    while (!(e = scan_batch(&sc, &b, &data))) {
        print_batch(&b, data, pos);
        if (d->deep) print_records(d, path, &b, data, &last_offset);
        pos = sc.pos;
    }
    scan_fini(&sc);
    if (e == ERR_UNSUPPORTED)
        kafka_dump_failed(d, path, "at position %" PRId64 " stand messages of format v0 or v1, which cannot be read",
                          pos);
    else if (e != ERR_NOT_FOUND && e != ERR_CORRUPT)
        kafka_dump_failed(d, path, "it cannot be read at position %" PRId64 ": %s", pos, err_text(e));
    if (pos < size && d->bytes_max == INT32_MAX)
        printf("Found %" PRId64 " invalid bytes at the end of %s\n", size - pos, path_name(path));
}

void kafka_dump_log_file(struct kafka_dump *d, const char *path, int64_t base_offset)
{
    struct file *file;
    int64_t size;
    printf("Log starting offset: %" PRId64 "\n", base_offset);
    enum err e = fs_open(fs_system(), path, FS_READ, &file);
    if (e) {
        kafka_dump_failed(d, path, "it cannot be opened: %s", err_text(e));
        return;
    }
    e = file_size(file, &size);
    if (e)
        kafka_dump_failed(d, path, "its size cannot be told: %s", err_text(e));
    else
        print_batches(d, path, file, MIN(size, (int64_t)d->bytes_max));
    file_unref(file);
}
