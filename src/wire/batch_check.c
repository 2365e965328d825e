/* batch_check.c: what a broker demands of a batch that a client produces.
 *
 * The order of the checks and the codes are those of Kafka 3.9 (ProduceRequest, UnifiedLog, LogValidator), but where
 * Kafka is lenient with what no client sends (bytes behind the batch, offset deltas that do not count up) we refuse:
 * what is in the log must be readable by everybody.
 *
 * The walk over uncompressed records is the broker's one cost per record, so it is written for speed: varints of one
 * and two bytes inline, everything in registers, and of what the rules ask about only a minimum, a maximum and one bit
 * kept.  Only when these break a rule does a second walk find out which records they were. */
#include "wire/batch.h"

#include "base/mem.h"

enum {
    RECORD_SIZE_MIN = 6,      /* attributes and five one-byte varints */
    FAST_ROOM = 8,            /* enough for two bytes of length, attributes, two of timestamp, two of offset */
    RECORD_ERRORS_MAX = 4096, /* told in one answer */
    NO_TIMESTAMP = -1,
    LENGTH_MIN = 14,       /* of the oldest format; a smaller length field is garbage */
    SIZE_UP_TO_MAGIC = 17, /* fewer bytes are no batch at all */
};

struct varint {
    const uint8_t *next; /* NULL: malformed, or not all there */
    uint64_t value;
};

static __attribute__((noinline)) struct varint varint_slow(const uint8_t *p, const uint8_t *end, unsigned bits)
{
    struct reader r = {p, end, OK};
    uint64_t value = reader_uvarint_bits(&r, bits);
    return (struct varint){r.err ? NULL : r.at, value};
}

/* A varint of one or two bytes inline; the caller knows that two can be read. */
static inline __attribute__((always_inline)) struct varint varint_get(const uint8_t *p, const uint8_t *end,
                                                                      unsigned bits)
{
    uint32_t low = p[0], high = p[1];
    if (LIKELY(low < 0x80)) return (struct varint){p + 1, low};
    if (LIKELY(high < 0x80)) return (struct varint){p + 2, (low & 0x7f) | high << 7};
    return varint_slow(p, end, bits);
}

static inline int64_t zigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* What the rules want to know of a record. */
struct seen {
    int64_t timestamp_delta;
    bool key_null;
};

/* The form of the record at `p` in the plain way, for what the fast one below leaves over.  NULL: malformed. */
static __attribute__((noinline)) const uint8_t *walk_record_slow(const uint8_t *p, const uint8_t *end, int32_t index,
                                                                 struct seen *seen)
{
    struct record_iter it = {.info = {.last_offset_delta = index}, .at = reader_of(p, (size_t)(end - p)), .left = 1};
    struct record rec;
    struct record_header header;
    if (record_iter_next(&it, &rec) || rec.offset != index) return NULL;
    enum err e;
    while (!(e = record_next_header(&rec, &header))) continue;
    if (e != ERR_NOT_FOUND) return NULL;
    seen->timestamp_delta = rec.timestamp;
    seen->key_null = !rec.key.data;
    return it.at.at;
}

/* A length and as many bytes, all before `limit`; -1 (null) only if `nullable`.  NULL: malformed. */
static inline const uint8_t *skip_bytes(const uint8_t *p, const uint8_t *limit, bool nullable)
{
    if (p >= limit) return NULL;
    struct varint v = *p < 0x80 ? (struct varint){p + 1, *p} : varint_slow(p, limit, 32);
    if (!v.next) return NULL;
    int64_t size = zigzag(v.value);
    if (size > limit - v.next || size < (nullable ? -1 : 0)) return NULL;
    return v.next + MAX(size, 0);
}

/* A record's headers from their count at `p` on, which must end at `record_end`. */
static __attribute__((noinline)) bool headers_ok(const uint8_t *p, const uint8_t *record_end)
{
    struct varint v = varint_slow(p, record_end, 32);
    if (!v.next) return false;
    p = v.next;
    for (int64_t left = zigzag(v.value); left != 0; left--) {
        if (left < 0) return false;
        p = skip_bytes(p, record_end, false);
        if (p) p = skip_bytes(p, record_end, true);
        if (!p) return false;
    }
    return p == record_end;
}

/* Checks the form of the record at `p`, which should be number `index`, and returns where the next one starts; NULL
 * when it is malformed.  The next record's place comes from this one's length alone, so that the processor can go on
 * with it while this one is still being checked.  Numbers before the key may be read past the record's own end, never
 * past `end`; the comparison with `record_end` settles it. */
static inline __attribute__((always_inline)) const uint8_t *walk_record(const uint8_t *p, const uint8_t *end,
                                                                        int32_t index, struct seen *seen)
{
    const uint8_t *start = p;
    if (UNLIKELY(end - p < FAST_ROOM)) return walk_record_slow(start, end, index, seen);
    struct varint v = varint_get(p, end, 32);
    if (UNLIKELY(!v.next)) return NULL;
    int64_t size = zigzag(v.value);
    if (UNLIKELY(size < RECORD_SIZE_MIN || size > end - v.next)) return NULL;
    const uint8_t *record_end = v.next + size;

    v = varint_get(v.next + 1, end, 64); /* attributes: one byte without meaning */
    if (UNLIKELY(!v.next || end - v.next < 4)) return walk_record_slow(start, end, index, seen);
    seen->timestamp_delta = zigzag(v.value);
    v = varint_get(v.next, end, 32);
    if (UNLIKELY(!v.next || zigzag(v.value) != index || end - v.next < 2))
        return walk_record_slow(start, end, index, seen);

    v = varint_get(v.next, end, 32);
    int64_t size_or_null = zigzag(v.value);
    seen->key_null = size_or_null < 0;
    size = MAX(size_or_null, 0);
    if (UNLIKELY(!v.next || size > record_end - v.next - 2 || size_or_null < -1))
        return walk_record_slow(start, end, index, seen);
    v = varint_get(v.next + size, end, 32);
    size_or_null = zigzag(v.value);
    size = MAX(size_or_null, 0);
    if (UNLIKELY(!v.next || size > record_end - v.next - 1 || size_or_null < -1))
        return walk_record_slow(start, end, index, seen);
    p = v.next + size;
    if ((p + 1 != record_end || *p != 0) && !headers_ok(p, record_end)) return NULL;
    return record_end;
}

/* Java's additions wrap; so must ours, or a header could make us undefined. */
static inline int64_t wrapping_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* What is allowed, and what a walk found. */
struct walk {
    const struct batch_info *info;
    const uint8_t *records, *end;
    int64_t timestamp_min, timestamp_max; /* allowed */
    bool keys_needed;
    int64_t seen_min, seen_max; /* timestamps */
    bool seen_null_key;
};

static bool walk_records(struct walk *w)
{
    const uint8_t *p = w->records, *end = w->end;
    int64_t base = w->info->base_timestamp, lowest = INT64_MAX, highest = NO_TIMESTAMP;
    int32_t count = w->info->count;
    bool null_key = false;
    for (int32_t i = 0; i < count; i++) {
        struct seen seen;
        p = walk_record(p, end, i, &seen);
        if (UNLIKELY(!p)) return false;
        int64_t timestamp = wrapping_add(base, seen.timestamp_delta);
        lowest = MIN(lowest, timestamp);
        highest = MAX(highest, timestamp);
        null_key |= seen.key_null;
    }
    w->seen_min = lowest;
    w->seen_max = highest;
    w->seen_null_key = null_key;
    return p == end;
}

static bool timestamp_allowed(const struct walk *w, int64_t timestamp)
{
    return timestamp == NO_TIMESTAMP || (timestamp >= w->timestamp_min && timestamp <= w->timestamp_max);
}

/* The second walk: which records break the rules.  Their form is known to be right. */
static void collect_errors(struct batch_verdict *out, const struct walk *w, struct arena *arena)
{
    int32_t error_max = MIN(w->info->count, (int32_t)RECORD_ERRORS_MAX), error_count = 0;
    struct record_error *errors = arena_array(arena, struct record_error, (size_t)error_max);
    bool bad_timestamp = false;
    const uint8_t *p = w->records;
    for (int32_t i = 0; i < w->info->count && error_count < error_max; i++) {
        struct seen seen;
        p = walk_record(p, w->end, i, &seen);
        ASSERT(p);
        if (w->keys_needed && seen.key_null) {
            errors[error_count++] = (struct record_error){i, "Compacted topic cannot accept message without key."};
        } else if (!timestamp_allowed(w, wrapping_add(w->info->base_timestamp, seen.timestamp_delta))) {
            bad_timestamp = true;
            errors[error_count++] = (struct record_error){i, "Timestamp of message is out of range."};
        }
    }
    if (error_count == 0) return; /* only timestamps of -1, which are always allowed */
    out->errors = errors;
    out->error_count = error_count;
    out->kerr = bad_timestamp ? KERR_INVALID_TIMESTAMP : KERR_INVALID_RECORD;
    out->message = bad_timestamp ? "One or more records have been rejected due to invalid timestamp"
                                 : "One or more records have been rejected due to missing keys";
}

static void refuse(struct batch_verdict *out, enum kerr kerr, const char *message)
{
    out->kerr = kerr;
    out->message = message;
}

/* Exactly one whole batch, of the right format? */
static bool check_frame(struct batch_verdict *out, struct batch_info *info, const uint8_t *data, size_t size,
                        int32_t size_max)
{
    bool length_there = data && size >= BATCH_LENGTH_OVERHEAD;
    int32_t length = length_there ? (int32_t)get_be32(data + BATCH_AT_LENGTH) : 0;
    if (length_there && length < LENGTH_MIN) {
        refuse(out, KERR_CORRUPT_MESSAGE, "Record size is less than the minimum record overhead");
    } else if (!length_there || size < SIZE_UP_TO_MAGIC || size - BATCH_LENGTH_OVERHEAD < (size_t)length) {
        refuse(out, KERR_INVALID_RECORD, "Produce requests must have at least one whole record batch per partition");
    } else {
        enum err e = size < BATCH_HEADER_SIZE && data[BATCH_AT_MAGIC] == BATCH_MAGIC
                         ? ERR_CORRUPT
                         : batch_parse_header(info, data, INT32_MAX);
        if (e == ERR_UNSUPPORTED)
            refuse(out, KERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, "Only record batches with magic version 2 are supported");
        else if (e)
            refuse(out, KERR_CORRUPT_MESSAGE, "Record batch header is corrupt");
        else if ((size_t)info->size < size)
            refuse(out, KERR_INVALID_RECORD, "Produce requests must have exactly one record batch per partition");
        else if (info->base_offset != 0)
            refuse(out, KERR_INVALID_RECORD, "The base offset of a produced record batch should be 0");
        else if (info->size > size_max)
            refuse(out, KERR_MESSAGE_TOO_LARGE, "The record batch is larger than max.message.bytes allows");
        else if (!batch_crc_ok(data, info))
            refuse(out, KERR_CORRUPT_MESSAGE, "Record is corrupt (CRC does not match)");
    }
    return out->kerr == KERR_NONE;
}

/* Do the header's fields make sense? */
static bool check_header(struct batch_verdict *out, const struct batch_info *info)
{
    bool has_producer = info->producer_id >= 0;
    if (batch_codec(info) >= CODEC_COUNT)
        refuse(out, KERR_UNSUPPORTED_COMPRESSION_TYPE, "Unknown compression type");
    else if (info->last_offset_delta < 0)
        refuse(out, KERR_INVALID_RECORD, "Batch has an invalid offset range");
    else if (info->count <= 0)
        refuse(out, KERR_INVALID_RECORD, "Invalid reported count for record batch");
    else if (info->count - 1 != info->last_offset_delta)
        refuse(out, KERR_INVALID_RECORD, "Inconsistent batch offset range and count of records");
    else if (info->attributes & BATCH_CONTROL)
        refuse(out, KERR_INVALID_RECORD, "Clients are not allowed to write control records");
    else if (has_producer && info->base_sequence < 0)
        refuse(out, KERR_INVALID_RECORD, "Invalid sequence number in record batch with producer id");
    /* Kafka's clients cannot build the next ones, its broker lets them pass, and they would put nonsense into the
     * producer state or the log. */
    else if (has_producer && info->producer_epoch < 0)
        refuse(out, KERR_INVALID_RECORD, "Invalid producer epoch in record batch with producer id");
    else if (!has_producer && info->attributes & BATCH_TRANSACTIONAL)
        refuse(out, KERR_INVALID_RECORD, "Transactional record batch without producer id");
    else if (info->attributes & BATCH_DELETE_HORIZON)
        refuse(out, KERR_INVALID_RECORD, "Clients are not allowed to set a delete horizon");
    else if (info->attributes & BATCH_LOG_APPEND_TIME)
        refuse(out, KERR_INVALID_TIMESTAMP, "Producer should not set timestamp type to LogAppendTime");
    return out->kerr == KERR_NONE;
}

/* now - before and now + after, where the configured "no limit" is INT64_MAX. */
static void allow_timestamps(struct walk *w, const struct batch_rules *rules)
{
    w->timestamp_min = INT64_MIN;
    w->timestamp_max = INT64_MAX;
    if (rules->log_append_time) return;
    if (rules->timestamp_before_max_ms != INT64_MAX &&
        __builtin_sub_overflow(rules->now_ms, rules->timestamp_before_max_ms, &w->timestamp_min))
        w->timestamp_min = INT64_MIN;
    if (__builtin_add_overflow(rules->now_ms, rules->timestamp_after_max_ms, &w->timestamp_max))
        w->timestamp_max = INT64_MAX;
}

/* Decompresses when the rules cannot be answered from the header.  False: refused. */
static bool open_records(struct batch_verdict *out, struct walk *w, const uint8_t *data,
                         const struct batch_rules *rules, uint8_t **decompressed)
{
    const struct batch_info *info = w->info;
    w->records = data + BATCH_HEADER_SIZE;
    w->end = data + info->size;
    if (batch_codec(info) == CODEC_NONE) return true;
    size_t size;
    enum err e = codec_decompress(batch_codec(info), w->records, (size_t)(w->end - w->records),
                                  (size_t)rules->decompressed_max, decompressed, &size);
    if (e == ERR_TOO_BIG) /* a client that gets this code splits the batch and sends the halves */
        refuse(out, KERR_MESSAGE_TOO_LARGE, "The record batch is too large when decompressed");
    else if (e)
        refuse(out, KERR_INVALID_RECORD, "The record batch cannot be decompressed");
    if (e) return false;
    w->records = *decompressed;
    w->end = *decompressed + size;
    return true;
}

static void correct_max_timestamp(struct batch_info *info, uint8_t *data, int64_t max_timestamp)
{
    put_be64(data + BATCH_AT_MAX_TIMESTAMP, (uint64_t)max_timestamp);
    info->max_timestamp = max_timestamp;
    info->crc = batch_crc(data, (size_t)info->size);
    put_be32(data + BATCH_AT_CRC, info->crc);
}

static bool must_look_inside(const struct walk *w, const struct batch_rules *rules)
{
    return rules->look_inside || batch_codec(w->info) == CODEC_NONE || w->keys_needed ||
           w->timestamp_min != INT64_MIN || (!rules->log_append_time && w->info->max_timestamp > w->timestamp_max);
}

bool batch_check_decompresses(const uint8_t *data, size_t size, const struct batch_rules *rules)
{
    struct batch_info b;
    if (size < BATCH_HEADER_SIZE || batch_parse_header(&b, data, rules->size_max)) return false;
    if (batch_codec(&b) == CODEC_NONE) return false;
    struct walk w = {.info = &b, .keys_needed = rules->compacted};
    allow_timestamps(&w, rules);
    return must_look_inside(&w, rules);
}

void batch_check(struct batch_verdict *out, struct batch_info *info, uint8_t *data, size_t size,
                 const struct batch_rules *rules, struct arena *arena)
{
    *out = (struct batch_verdict){.kerr = KERR_NONE};
    struct batch_info b;
    if (!check_frame(out, &b, data, size, rules->size_max) || !check_header(out, &b)) return;

    struct walk w = {.info = &b, .keys_needed = rules->compacted};
    allow_timestamps(&w, rules);
    if (must_look_inside(&w, rules)) {
        uint8_t *decompressed = NULL;
        if (!open_records(out, &w, data, rules, &decompressed)) return;
        if (!walk_records(&w))
            refuse(out, KERR_INVALID_RECORD, "Malformed records, or not as many as the batch's header says");
        else if ((w.keys_needed && w.seen_null_key) || w.seen_min < w.timestamp_min || w.seen_max > w.timestamp_max)
            collect_errors(out, &w, arena);
        if (out->kerr == KERR_NONE && !rules->log_append_time && w.seen_max != b.max_timestamp)
            correct_max_timestamp(&b, data, w.seen_max);
        mem_free(decompressed);
    }
    if (out->kerr == KERR_NONE) *info = b;
}
