/* batch.c: a batch's header, its CRC, what the broker patches, and walking its records.
 * The rules for what clients may send are in batch_check.c, building is in batch_builder.c. */
#include "wire/batch.h"

#include <isa-l/crc.h>

#include "base/mem.h"

/* Control records: key = version, type; an end marker's value = version, coordinator epoch. */
enum { CONTROL_ABORT = 0, CONTROL_COMMIT = 1, MARKER_VERSION = 0 };
/* A marker's batch holds one record of about 20 bytes, and nobody compresses it. */
enum { MARKER_BATCH_DECOMPRESSED_MAX = 4096 };

enum err batch_parse_header(struct batch_info *out, const uint8_t *data, int64_t size_max)
{
    int8_t magic = (int8_t)data[BATCH_AT_MAGIC];
    if (magic == 0 || magic == 1) return ERR_UNSUPPORTED;
    if (magic != BATCH_MAGIC) return ERR_CORRUPT;
    int64_t size = (int64_t)(int32_t)get_be32(data + BATCH_AT_LENGTH) + BATCH_LENGTH_OVERHEAD;
    if (size < BATCH_HEADER_SIZE || size > INT32_MAX || size > size_max) return ERR_CORRUPT;
    *out = (struct batch_info){
        .base_offset = (int64_t)get_be64(data + BATCH_AT_BASE_OFFSET),
        .size = (int32_t)size,
        .leader_epoch = (int32_t)get_be32(data + BATCH_AT_LEADER_EPOCH),
        .crc = get_be32(data + BATCH_AT_CRC),
        .attributes = (int16_t)get_be16(data + BATCH_AT_ATTRIBUTES),
        .last_offset_delta = (int32_t)get_be32(data + BATCH_AT_LAST_OFFSET_DELTA),
        .base_timestamp = (int64_t)get_be64(data + BATCH_AT_BASE_TIMESTAMP),
        .max_timestamp = (int64_t)get_be64(data + BATCH_AT_MAX_TIMESTAMP),
        .producer_id = (int64_t)get_be64(data + BATCH_AT_PRODUCER_ID),
        .producer_epoch = (int16_t)get_be16(data + BATCH_AT_PRODUCER_EPOCH),
        .base_sequence = (int32_t)get_be32(data + BATCH_AT_BASE_SEQUENCE),
        .count = (int32_t)get_be32(data + BATCH_AT_COUNT),
    };
    return OK;
}

uint32_t crc32c(const uint8_t *data, size_t size)
{
    ASSERT(size <= INT32_MAX);
    /* ISA-L leaves both inversions of the standard CRC to its caller, and lacks a const. */
    return ~crc32_iscsi((unsigned char *)(uintptr_t)data, (int)size, UINT32_MAX);
}

uint32_t batch_crc(const uint8_t *data, size_t size)
{
    ASSERT(size >= BATCH_HEADER_SIZE);
    return crc32c(data + BATCH_AT_ATTRIBUTES, size - BATCH_AT_ATTRIBUTES);
}

bool batch_crc_ok(const uint8_t *data, const struct batch_info *info)
{
    return batch_crc(data, (size_t)info->size) == info->crc;
}

void batch_put_header(uint8_t *data, struct batch_info *info)
{
    put_be64(data + BATCH_AT_BASE_OFFSET, (uint64_t)info->base_offset);
    put_be32(data + BATCH_AT_LENGTH, (uint32_t)(info->size - BATCH_LENGTH_OVERHEAD));
    put_be32(data + BATCH_AT_LEADER_EPOCH, (uint32_t)info->leader_epoch);
    data[BATCH_AT_MAGIC] = BATCH_MAGIC;
    put_be16(data + BATCH_AT_ATTRIBUTES, (uint16_t)info->attributes);
    put_be32(data + BATCH_AT_LAST_OFFSET_DELTA, (uint32_t)info->last_offset_delta);
    put_be64(data + BATCH_AT_BASE_TIMESTAMP, (uint64_t)info->base_timestamp);
    put_be64(data + BATCH_AT_MAX_TIMESTAMP, (uint64_t)info->max_timestamp);
    put_be64(data + BATCH_AT_PRODUCER_ID, (uint64_t)info->producer_id);
    put_be16(data + BATCH_AT_PRODUCER_EPOCH, (uint16_t)info->producer_epoch);
    put_be32(data + BATCH_AT_BASE_SEQUENCE, (uint32_t)info->base_sequence);
    put_be32(data + BATCH_AT_COUNT, (uint32_t)info->count);
    info->crc = batch_crc(data, (size_t)info->size);
    put_be32(data + BATCH_AT_CRC, info->crc);
}

void batch_set_offset(uint8_t *data, int64_t base_offset)
{
    put_be64(data + BATCH_AT_BASE_OFFSET, (uint64_t)base_offset);
}

void batch_set_leader_epoch(uint8_t *data, int32_t leader_epoch)
{
    put_be32(data + BATCH_AT_LEADER_EPOCH, (uint32_t)leader_epoch);
}

void batch_set_append_time(uint8_t *data, size_t size, int64_t time_ms)
{
    uint16_t attributes = (uint16_t)(get_be16(data + BATCH_AT_ATTRIBUTES) | BATCH_LOG_APPEND_TIME);
    put_be16(data + BATCH_AT_ATTRIBUTES, attributes);
    put_be64(data + BATCH_AT_MAX_TIMESTAMP, (uint64_t)time_ms);
    put_be32(data + BATCH_AT_CRC, batch_crc(data, size));
}

/* ---- Walking records */

enum err record_iter_init(struct record_iter *it, const uint8_t *batch, size_t size, size_t decompressed_max)
{
    struct record_iter r = {0};
    if (size < BATCH_HEADER_SIZE) return ERR_TRUNCATED;
    enum err e = batch_parse_header(&r.info, batch, INT32_MAX);
    if (e) return e;
    if ((size_t)r.info.size > size) return ERR_TRUNCATED;
    if (r.info.count < 0) return ERR_CORRUPT;
    r.left = r.info.count;
    const uint8_t *records = batch + BATCH_HEADER_SIZE;
    size_t records_size = (size_t)r.info.size - BATCH_HEADER_SIZE;
    if (r.left > 0 && batch_codec(&r.info) != CODEC_NONE) {
        size_t decompressed_size;
        e = codec_decompress(batch_codec(&r.info), records, records_size, decompressed_max, &r.decompressed,
                             &decompressed_size);
        if (e) return e;
        records = r.decompressed;
        records_size = decompressed_size;
    } else if (r.left == 0) {
        records_size = 0; /* cleaned: whatever an empty compressed stream holds */
    }
    r.at = reader_of(records, records_size);
    *it = r;
    return OK;
}

/* A length of -1 is null; below that is an error. */
static struct bytes read_nullable(struct reader *r)
{
    int32_t size = reader_varint(r);
    if (size < -1) reader_fail(r, ERR_CORRUPT);
    if (size < 0) return (struct bytes){NULL, 0};
    const uint8_t *p = reader_take(r, (size_t)size);
    return (struct bytes){p, p ? (size_t)size : 0};
}

enum err record_iter_next(struct record_iter *it, struct record *out)
{
    if (it->left == 0) return reader_left(&it->at) == 0 ? ERR_NOT_FOUND : ERR_CORRUPT;
    int32_t size = reader_varint(&it->at);
    if (size < 0) return ERR_CORRUPT;
    const uint8_t *body = reader_take(&it->at, (size_t)size);
    if (!body) return ERR_CORRUPT;

    struct reader r = reader_of(body, (size_t)size);
    struct record rec = {0};
    (void)reader_i8(&r); /* attributes, none defined */
    int64_t timestamp_delta = reader_varlong(&r);
    int32_t offset_delta = reader_varint(&r);
    rec.key = read_nullable(&r);
    rec.value = read_nullable(&r);
    rec.header_count = reader_varint(&r);
    if (r.err || offset_delta < 0 || offset_delta > it->info.last_offset_delta) return ERR_CORRUPT;
    if (rec.header_count < 0 || (size_t)rec.header_count > reader_left(&r)) return ERR_CORRUPT;
    if (rec.header_count == 0 && reader_left(&r) > 0) return ERR_CORRUPT;
    rec.headers = r;
    rec.offset = it->info.base_offset + offset_delta;
    rec.timestamp = it->info.attributes & BATCH_LOG_APPEND_TIME
                        ? it->info.max_timestamp
                        : (int64_t)((uint64_t)it->info.base_timestamp + (uint64_t)timestamp_delta);
    it->left--;
    *out = rec;
    return OK;
}

enum err record_next_header(struct record *rec, struct record_header *out)
{
    if (rec->header_count == 0) return reader_left(&rec->headers) == 0 ? ERR_NOT_FOUND : ERR_CORRUPT;
    struct bytes key = read_nullable(&rec->headers);
    struct bytes value = read_nullable(&rec->headers);
    if (rec->headers.err || !key.data) return ERR_CORRUPT;
    rec->header_count--;
    *out = (struct record_header){{(const char *)key.data, key.size}, value};
    return OK;
}

void record_iter_fini(struct record_iter *it)
{
    mem_free(it->decompressed);
    *it = (struct record_iter){0};
}

enum err batch_read_marker(struct txn_marker *out, const uint8_t *data, size_t size)
{
    struct record_iter it;
    struct record rec;
    enum err e = record_iter_init(&it, data, size, MARKER_BATCH_DECOMPRESSED_MAX);
    if (e) return e;
    e = record_iter_next(&it, &rec);
    if (e) goto out;

    if (!rec.key.data || !rec.value.data) {
        e = ERR_CORRUPT;
        goto out;
    }
    struct reader key = reader_of(rec.key.data, rec.key.size), value = reader_of(rec.value.data, rec.value.size);
    int16_t key_version = reader_i16(&key), type = reader_i16(&key);
    if (key.err || key_version < 0) {
        e = ERR_CORRUPT;
    } else if (type != CONTROL_ABORT && type != CONTROL_COMMIT) {
        e = ERR_NOT_FOUND;
    } else {
        /* Later versions may add fields; these two stay where they are. */
        int16_t value_version = reader_i16(&value);
        int32_t coordinator_epoch = reader_i32(&value);
        e = value.err || value_version < MARKER_VERSION ? ERR_CORRUPT : OK;
        if (!e) *out = (struct txn_marker){type == CONTROL_COMMIT, coordinator_epoch, rec.timestamp};
    }
out:
    record_iter_fini(&it);
    return e;
}
