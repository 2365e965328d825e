/* batch.h: record batches, format v2 (KIP-98): headers, checks, records.  Bytes <-> structs, no I/O.  Thread: any. */
#ifndef WIRE_BATCH_H
#define WIRE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/endian.h"
#include "base/err.h"
#include "base/reader.h"
#include "base/slice.h"
#include "base/writer.h"
#include "wire/compress.h"
#include "wire/kerr.h"

/* Where things are in a batch. */
enum {
    BATCH_AT_BASE_OFFSET = 0,
    BATCH_AT_LENGTH = 8, /* of what follows this field */
    BATCH_AT_LEADER_EPOCH = 12,
    BATCH_AT_MAGIC = 16,
    BATCH_AT_CRC = 17,
    BATCH_AT_ATTRIBUTES = 21, /* the CRC covers from here to the end */
    BATCH_AT_LAST_OFFSET_DELTA = 23,
    BATCH_AT_BASE_TIMESTAMP = 27,
    BATCH_AT_MAX_TIMESTAMP = 35,
    BATCH_AT_PRODUCER_ID = 43,
    BATCH_AT_PRODUCER_EPOCH = 51,
    BATCH_AT_BASE_SEQUENCE = 53,
    BATCH_AT_COUNT = 57,
    BATCH_HEADER_SIZE = 61,
    BATCH_LENGTH_OVERHEAD = 12, /* size of a batch = its length field + this */
    BATCH_MAGIC = 2
};

/* What a compressed batch may unfold to when it must be looked into: one that a client sends, and one that stands in a
 * log.  The latter has more room, since Kafka, which may have written it, has no bound. */
enum { BATCH_UNPACKED_SENT_MAX = 256 << 20, BATCH_UNPACKED_STORED_MAX = 512 << 20 };
_Static_assert(BATCH_AT_COUNT + sizeof(int32_t) == BATCH_HEADER_SIZE, "record batch v2 header");

enum batch_attributes {
    BATCH_CODEC_MASK = 0x07,
    BATCH_LOG_APPEND_TIME = 0x08,
    BATCH_TRANSACTIONAL = 0x10,
    BATCH_CONTROL = 0x20,
    BATCH_DELETE_HORIZON = 0x40
};

/* A batch's header. */
struct batch_info {
    int64_t base_offset;
    int32_t size; /* whole, header included */
    int32_t leader_epoch;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp, max_timestamp;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t count;
};

static inline enum codec batch_codec(const struct batch_info *b)
{
    return (enum codec)(b->attributes & BATCH_CODEC_MASK);
}
static inline int64_t batch_last_offset(const struct batch_info *b)
{
    return b->base_offset + b->last_offset_delta;
}

/* Reads a header of at least BATCH_HEADER_SIZE bytes.  Checks nothing but that the length field is sane
 * (ERR_CORRUPT: size below the header's or above `size_max`) and the magic is 2 (ERR_UNSUPPORTED for 0 and 1). */
MUST_USE enum err batch_parse_header(struct batch_info *out, const uint8_t *data, int64_t size_max);
/* CRC32C (Castagnoli), by CPU instruction where there is one. */
uint32_t crc32c(const uint8_t *data, size_t size);
/* CRC32C over the part of the batch that its CRC field covers. */
uint32_t batch_crc(const uint8_t *data, size_t size);
MUST_USE bool batch_crc_ok(const uint8_t *data, const struct batch_info *info);
/* Writes the header of a batch whose records stand behind it already, and sets info->crc.  Takes the size and all else
 * from *info. */
void batch_put_header(uint8_t *data, struct batch_info *info);
/* Patches what the broker decides; only _set_append_time needs a new CRC, and makes it. */
void batch_set_offset(uint8_t *data, int64_t base_offset);
void batch_set_leader_epoch(uint8_t *data, int32_t leader_epoch);
void batch_set_append_time(uint8_t *data, size_t size, int64_t time_ms);

/* ---- What a broker demands of a produced batch (KIP-98, KIP-467, LogValidator's rules) */

struct batch_rules {
    int32_t size_max; /* max.message.bytes */
    bool look_inside; /* the batch is to be packed anew: its records must be sound */
    bool compacted;   /* every record needs a key */
    bool log_append_time;
    int64_t now_ms;
    int64_t timestamp_before_max_ms, timestamp_after_max_ms; /* message.timestamp.{before,after}.max.ms */
    int32_t decompressed_max; /* bound for what a compressed batch may hold when it must be looked into */
};

/* What is wrong with single records (KIP-467). */
struct record_error {
    int32_t index;       /* in the batch */
    const char *message; /* static */
};

struct batch_verdict {
    enum kerr kerr;
    const char *message;         /* static, may be NULL */
    struct record_error *errors; /* in the arena */
    int32_t error_count;
};

/* Checks the one batch that a Produce carries for a partition: exactly one, v2, CRC, counts, no control bit, sane
 * producer fields, size, timestamps.  Uncompressed records are walked one by one; compressed ones only where the rules
 * need it (keys on compacted topics, per-record timestamps cannot be told from the header).  Fills *info on success.
 * Where the records were looked at and topic has CreateTime, a wrong max timestamp in the header is put right in place,
 * with a new CRC, as Kafka does: a lie there would spoil the time index. */
void batch_check(struct batch_verdict *out, struct batch_info *info, uint8_t *data, size_t size,
                 const struct batch_rules *rules, struct arena *arena);

/* Whether batch_check() would decompress this batch, which may take long: by a look at the header alone. */
bool batch_check_decompresses(const uint8_t *data, size_t size, const struct batch_rules *rules);

/* Writes the checked batch anew, in another codec, into an empty writer (compression.type).  Nothing else of it changes
 * but size, attributes and CRC.  ERR_CORRUPT: it cannot be decompressed; ERR_TOO_BIG: past `decompressed_max`. */
MUST_USE enum err batch_recompress(struct writer *out, const uint8_t *data, const struct batch_info *info,
                                   enum codec codec, int level, size_t decompressed_max);

/* ---- Records */

struct record_header {
    struct str key;
    struct bytes value; /* may be null */
};

struct record {
    int64_t offset, timestamp;
    struct bytes key, value; /* may be null */
    int32_t header_count;
    struct reader headers; /* record_next_header() reads from it */
};

/* Walks a batch's records; a compressed batch is decompressed as a whole, bounded by `decompressed_max`. */
struct record_iter {
    struct batch_info info;
    struct reader at;
    int32_t left;
    uint8_t *decompressed; /* freed by record_iter_fini() */
};
MUST_USE enum err record_iter_init(struct record_iter *it, const uint8_t *batch, size_t size, size_t decompressed_max);
/* ERR_NOT_FOUND at the end; ERR_CORRUPT. */
MUST_USE enum err record_iter_next(struct record_iter *it, struct record *out);
MUST_USE enum err record_next_header(struct record *rec, struct record_header *out);
void record_iter_fini(struct record_iter *it);

/* ---- Transaction markers: control batches with one record (KIP-98) */

struct txn_marker {
    bool commit; /* else abort */
    int32_t coordinator_epoch;
    int64_t timestamp;
};
/* Reads the marker of a control batch.  ERR_NOT_FOUND: no record left (cleaned away) or another kind of control record;
 * ERR_CORRUPT. */
MUST_USE enum err batch_read_marker(struct txn_marker *out, const uint8_t *data, size_t size);

/* ---- Building */

/* Builds one batch record by record: the coordinators' writes, tests, the client. */
struct batch_builder {
    struct writer records;
    struct batch_info info; /* attributes as given; set producer fields and base offset before finishing */
};
void batch_builder_init(struct batch_builder *bb, struct buf_pool *pool, int16_t attributes, int64_t base_timestamp);
void batch_builder_add(struct batch_builder *bb, int64_t timestamp, struct bytes key, struct bytes value,
                       const struct record_header *headers, int32_t header_count);
/* Appends the finished batch (compressed as the attributes say) to `out`; info's producer fields are taken as set. */
MUST_USE enum err batch_builder_finish(struct batch_builder *bb, struct writer *out);
/* Adds the record of a transaction marker; the attributes must say control and transactional. */
void batch_builder_add_marker(struct batch_builder *bb, const struct txn_marker *marker);
void batch_builder_fini(struct batch_builder *bb);

#endif
