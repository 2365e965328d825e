/* log_dump_batches.c: a .log file, batch by batch and record by record. */
#include <string.h>

#include "base/mem.h"
#include "cli/log_internal.h"
#include "plog/scan.h"

enum { DECODE_BYTES_MAX = 256 << 20 }; /* memory for one decoded record */

struct batches {
    struct log_out *out;
    const struct dump_options *opt;
    struct arena arena;
};

static void print_batch(struct batches *d, const struct batch_info *b, const uint8_t *data, int64_t pos)
{
    struct row row = row_begin(d->out, "batch");
    row_int(&row, "baseOffset", b->base_offset);
    row_int(&row, "lastOffset", batch_last_offset(b));
    row_int(&row, "count", b->count);
    row_int(&row, "position", pos);
    row_int(&row, "size", b->size);
    row_int(&row, "leaderEpoch", b->leader_epoch);
    row_text(&row, "codec", batch_codec(b) < CODEC_COUNT ? codec_name(batch_codec(b)) : "unknown");
    row_text(&row, "timestampType", b->attributes & BATCH_LOG_APPEND_TIME ? "LogAppendTime" : "CreateTime");
    row_int(&row, "baseTimestamp", b->base_timestamp);
    row_int(&row, "maxTimestamp", b->max_timestamp);
    if (b->producer_id >= 0) {
        row_int(&row, "producerId", b->producer_id);
        row_int(&row, "producerEpoch", b->producer_epoch);
        row_int(&row, "baseSequence", b->base_sequence);
    }
    if (b->attributes & BATCH_TRANSACTIONAL) row_bool(&row, "transactional", true);
    if (b->attributes & BATCH_CONTROL) row_bool(&row, "control", true);
    if (b->attributes & BATCH_DELETE_HORIZON) row_int(&row, "deleteHorizonMs", b->base_timestamp);
    row_int(&row, "crc", b->crc);
    row_bool(&row, "crcOk", batch_crc_ok(data, b));
    row_end(&row, "");
}

static void add_headers(struct batches *d, struct row *row, struct record *rec)
{
    json_t *headers = json_array();
    struct record_header h;
    enum err e;
    while (!(e = record_next_header(rec, &h))) {
        bool key_hex, value_hex;
        json_t *key = json_of_bytes((struct bytes){(const uint8_t *)h.key.data, h.key.size}, &key_hex);
        json_t *value = json_of_bytes(h.value, &value_hex);
        json_t *one = json_object();
        ASSERT(one && json_object_set_new(one, key_hex ? "keyHex" : "key", key) == 0);
        ASSERT(json_object_set_new(one, value_hex ? "valueHex" : "value", value) == 0);
        ASSERT(json_array_append_new(headers, one) == 0);
    }
    row_json(row, "headers", headers);
    if (e != ERR_NOT_FOUND)
        log_out_error(d->out, -1, "the headers of the record at offset %lld cannot be read: %s.",
                      (long long)rec->offset, err_text(e));
}

/* False: it is no record of that log, and is shown as what it is. */
static bool add_decoded(struct batches *d, struct row *row, const struct record *rec)
{
    struct coordinator_record cr;
    if (d->opt->decode == COORDINATOR_LOG_NONE) return false;
    arena_reset(&d->arena);
    enum err e = coordinator_record_decode(&cr, d->opt->decode, rec->key, rec->value, &d->arena);
    if (e) {
        log_out_error(d->out, -1, "the key at offset %lld cannot be decoded: %s.", (long long)rec->offset,
                      e == ERR_NOT_FOUND ? "its type is not known" : err_text(e));
        return false;
    }
    row_text(row, "recordType", cr.key_schema->name);
    row_json(row, "key", coordinator_key_json(&cr));
    if (cr.value_err) {
        log_out_error(d->out, -1, "the value at offset %lld cannot be decoded: %s.", (long long)rec->offset,
                      err_text(cr.value_err));
        row_bytes(row, "value", rec->value);
        return true;
    }
    json_t *value = coordinator_value_json(&cr);
    row_json(row, "value", value ? value : json_null());
    return true;
}

static void add_control(struct row *row, const struct record *rec)
{
    static const char *const names[] = {"ABORT",           "COMMIT",        "LEADER_CHANGE", "SNAPSHOT_HEADER",
                                        "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"};
    struct reader key = reader_of(rec->key.data, rec->key.size), value = reader_of(rec->value.data, rec->value.size);
    (void)reader_i16(&key);
    int16_t type = reader_i16(&key);
    bool known = !key.err && type >= 0 && (size_t)type < ARRAY_COUNT(names);
    row_text(row, "control", known ? names[type] : "UNKNOWN");
    (void)reader_i16(&value);
    int32_t epoch = reader_i32(&value);
    if (known && type <= CONTROL_COMMIT && !value.err) row_int(row, "coordinatorEpoch", epoch);
}

static void print_record(struct batches *d, const struct batch_info *b, struct record *rec)
{
    struct row row = row_begin(d->out, "record");
    row_int(&row, "offset", rec->offset);
    row_int(&row, "timestamp", rec->timestamp);
    row_int(&row, "keySize", rec->key.data ? (int64_t)rec->key.size : -1);
    row_int(&row, "valueSize", rec->value.data ? (int64_t)rec->value.size : -1);
    if (b->attributes & BATCH_CONTROL) {
        add_control(&row, rec);
    } else if (d->opt->records) {
        if (!add_decoded(d, &row, rec)) {
            row_bytes(&row, "key", rec->key);
            row_bytes(&row, "value", rec->value);
        }
        if (rec->header_count > 0) add_headers(d, &row, rec);
    }
    row_end(&row, "| ");
}

static void print_records(struct batches *d, const struct batch_info *b, const uint8_t *data, int64_t pos)
{
    struct record_iter it;
    enum err e = record_iter_init(&it, data, (size_t)b->size, LOG_DECOMPRESSED_MAX);
    if (!e) {
        struct record rec;
        while (!(e = record_iter_next(&it, &rec))) print_record(d, b, &rec);
        record_iter_fini(&it);
    }
    if (e != ERR_NOT_FOUND) log_out_error(d->out, pos, "the records of this batch cannot be read: %s.", err_text(e));
}

void dump_log(struct log_out *out, struct file *file, const struct dump_options *opt)
{
    struct batches d = {.out = out, .opt = opt};
    int64_t size, pos = 0;
    enum err e = file_size(file, &size);
    if (e) {
        log_out_error(out, -1, "its size cannot be told: %s.", err_text(e));
        return;
    }
    struct scan sc;
    struct batch_info b;
    const uint8_t *data;
    arena_init(&d.arena, DECODE_BYTES_MAX);
    scan_init(&sc, file, 0, size, false);
    while (!(e = scan_batch(&sc, &b, &data))) {
        print_batch(&d, &b, data, pos);
        if (!batch_crc_ok(data, &b)) log_out_error(out, pos, "the batch's CRC does not match its bytes.");
        if (opt->deep) print_records(&d, &b, data, pos);
        pos = sc.pos;
    }
    scan_fini(&sc);
    arena_fini(&d.arena);
    if (e == ERR_UNSUPPORTED)
        log_out_error(out, pos, "messages of format v0 or v1, which Kafka wrote before 0.11; only v2 can be read.");
    else if (e == ERR_CORRUPT)
        log_out_error(out, pos, "no whole batch stands here; %lld bytes up to the end of the file are not shown.",
                      (long long)(size - pos));
    else if (e != ERR_NOT_FOUND)
        log_out_error(out, pos, "it cannot be read on: %s.", err_text(e));
}
