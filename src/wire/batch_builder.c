/* batch_builder.c: record batches, built record by record and closed with their header and CRC. */
#include "wire/batch.h"

/* Control records (KIP-98): key = version, type; an end marker's value = version, coordinator epoch. */
enum { CONTROL_VERSION = 0, CONTROL_ABORT = 0, CONTROL_COMMIT = 1 };

void batch_builder_init(struct batch_builder *bb, struct buf_pool *pool, int16_t attributes, int64_t base_timestamp)
{
    *bb = (struct batch_builder){
        .info = {.leader_epoch = -1,
                 .attributes = attributes,
                 .base_timestamp = base_timestamp,
                 .max_timestamp = -1,
                 .producer_id = -1,
                 .producer_epoch = -1,
                 .base_sequence = -1},
    };
    writer_init(&bb->records, pool);
}

static size_t varint_size(int64_t v)
{
    uint64_t zigzagged = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    return zigzagged == 0 ? 1 : (size_t)(70 - __builtin_clzll(zigzagged)) / 7;
}

static int64_t length_of(struct bytes b)
{
    return b.data ? (int64_t)b.size : -1;
}

static void put_bytes(struct writer *w, struct bytes b)
{
    writer_varint(w, length_of(b));
    writer_bytes(w, b.data, b.data ? b.size : 0);
}

static size_t bytes_size(struct bytes b)
{
    return varint_size(length_of(b)) + (b.data ? b.size : 0);
}

static struct bytes header_key(const struct record_header *h)
{
    ASSERT(h->key.data);
    return (struct bytes){(const uint8_t *)h->key.data, h->key.size};
}

void batch_builder_add(struct batch_builder *bb, int64_t timestamp, struct bytes key, struct bytes value,
                       const struct record_header *headers, int32_t header_count)
{
    struct batch_info *b = &bb->info;
    int64_t timestamp_delta = (int64_t)((uint64_t)timestamp - (uint64_t)b->base_timestamp);
    size_t size = 1 + varint_size(timestamp_delta) + varint_size(b->count) + bytes_size(key) + bytes_size(value) +
                  varint_size(header_count);
    for (int32_t i = 0; i < header_count; i++)
        size += bytes_size(header_key(&headers[i])) + bytes_size(headers[i].value);

    struct writer *w = &bb->records;
    writer_varint(w, (int64_t)size);
    writer_i8(w, 0);
    writer_varint(w, timestamp_delta);
    writer_varint(w, b->count);
    put_bytes(w, key);
    put_bytes(w, value);
    writer_varint(w, header_count);
    for (int32_t i = 0; i < header_count; i++) {
        put_bytes(w, header_key(&headers[i]));
        put_bytes(w, headers[i].value);
    }
    b->last_offset_delta = b->count++;
    b->max_timestamp = MAX(b->max_timestamp, timestamp);
}

void batch_builder_add_marker(struct batch_builder *bb, const struct txn_marker *marker)
{
    ASSERT(bb->info.attributes & BATCH_CONTROL && bb->info.attributes & BATCH_TRANSACTIONAL);
    uint8_t key[4], value[6];
    put_be16(key, CONTROL_VERSION);
    put_be16(key + 2, marker->commit ? CONTROL_COMMIT : CONTROL_ABORT);
    put_be16(value, CONTROL_VERSION);
    put_be32(value + 2, (uint32_t)marker->coordinator_epoch);
    batch_builder_add(bb, marker->timestamp, (struct bytes){key, sizeof key}, (struct bytes){value, sizeof value}, NULL,
                      0);
}

enum err batch_builder_finish(struct batch_builder *bb, struct writer *out)
{
    struct batch_info *b = &bb->info;
    if (b->count == 0) return ERR_INVALID;
    size_t at = out->size;
    writer_extend(out, BATCH_HEADER_SIZE);
    enum err e = codec_compress(batch_codec(b), COMPRESS_LEVEL_DEFAULT, bb->records.buf->data, bb->records.size, out);
    if (!e && out->size - at > INT32_MAX) e = ERR_TOO_BIG;
    if (e) {
        out->size = at;
        return e;
    }
    b->size = (int32_t)(out->size - at);
    uint8_t *p = out->buf->data + at;
    batch_put_header(p, b);
    return OK;
}

void batch_builder_fini(struct batch_builder *bb)
{
    writer_fini(&bb->records);
}
