/* clean_batch.c: what becomes of one batch when its log is cleaned: Kafka's rules (LogCleaner, KIP-534).
 *
 * Records are walked in place, once to decide and, where some go, once more to copy the rest: their bytes stay as they
 * are, since offsets are relative to the batch's base, which stays.  Only a new delete horizon, which takes the place
 * of the base timestamp, changes what each record says of its time.  Look-ups go in small groups, so that the cache
 * lines they need are fetched side by side. */
#include "plog/clean_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/writer.h"

enum {
    LOOKAHEAD = 32,        /* records whose places in the table are fetched at once */
    VARINT_SIZE_MAX = 10,  /* bytes */
    RECORD_GROWTH_MAX = 14 /* of a record whose time is written anew: 9 bytes of it, and its length's own */
};

/* ---- Walking records */

struct cursor {
    const uint8_t *at, *end;
    int32_t left, last_offset_delta;
};

struct clean_record {
    const uint8_t *begin, *end; /* with its length */
    const uint8_t *offset_at;   /* from the offset delta on */
    int64_t timestamp_delta;
    int32_t offset_delta;
    struct bytes key; /* may be null */
    bool has_value;
};

static bool get_varint_slow(const uint8_t **at, const uint8_t *end, int64_t *out)
{
    uint64_t v = 0;
    const uint8_t *p = *at;
    for (unsigned shift = 0; shift < 64 && p < end; shift += 7) {
        v |= (uint64_t)(*p & 0x7f) << shift;
        if (!(*p++ & 0x80)) {
            *at = p;
            *out = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
            return true;
        }
    }
    return false;
}

static inline bool get_varint(const uint8_t **at, const uint8_t *end, int64_t *out)
{
    if (UNLIKELY(*at >= end || **at & 0x80)) return get_varint_slow(at, end, out);
    uint8_t v = *(*at)++;
    *out = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
    return true;
}

/* A length of -1 is null. */
static inline bool get_bytes(const uint8_t **at, const uint8_t *end, struct bytes *out)
{
    int64_t size;
    if (!get_varint(at, end, &size) || size < -1 || size > end - *at) return false;
    *out = (struct bytes){size < 0 ? NULL : *at, size < 0 ? 0 : (size_t)size};
    *at += out->size;
    return true;
}

/* False: the batch is not what it should be. */
static inline bool next_record(struct cursor *cur, struct clean_record *out)
{
    int64_t size, offset_delta, header_count;
    struct bytes value;
    out->begin = cur->at;
    if (!get_varint(&cur->at, cur->end, &size) || size < 1 || size > cur->end - cur->at) return false;
    const uint8_t *p = cur->at + 1; /* attributes, none defined */
    out->end = cur->at += size;
    if (!get_varint(&p, out->end, &out->timestamp_delta)) return false;
    out->offset_at = p;
    if (!get_varint(&p, out->end, &offset_delta)) return false;
    if (!get_bytes(&p, out->end, &out->key) || !get_bytes(&p, out->end, &value)) return false;
    if (!get_varint(&p, out->end, &header_count) || header_count < 0) return false;
    out->offset_delta = (int32_t)offset_delta;
    out->has_value = value.data != NULL;
    cur->left--;
    return offset_delta >= 0 && offset_delta <= cur->last_offset_delta;
}

/* The records of a batch, decompressed if need be: then *decompressed is to be freed. */
static enum err cursor_open(struct cursor *cur, const struct batch_info *b, const uint8_t *data, uint8_t **decompressed,
                            size_t *decompressed_size)
{
    const uint8_t *records = data + BATCH_HEADER_SIZE;
    size_t size = (size_t)b->size - BATCH_HEADER_SIZE;
    *decompressed = NULL;
    if (b->count < 0) return ERR_CORRUPT;
    if (b->count == 0) {
        size = 0; /* emptied before: whatever a compressed stream of nothing holds */
    } else if (batch_codec(b) != CODEC_NONE) {
        enum err e =
            codec_decompress(batch_codec(b), records, size, BATCH_UNPACKED_STORED_MAX, decompressed, decompressed_size);
        if (e) return e;
        records = *decompressed;
        size = *decompressed_size;
    }
    *cur = (struct cursor){records, records + size, b->count, b->last_offset_delta};
    return OK;
}

/* The next records, their hashes, and the places of these on their way into the cache.  0: no more, or corrupt: then
 * `at` is not `end`. */
static int next_records(struct cursor *cur, const struct clean_map *map, struct clean_record *records,
                        struct clean_hash *hashes)
{
    int n = 0;
    while (n < LOOKAHEAD && cur->left > 0) {
        if (!next_record(cur, &records[n])) {
            cur->left = -1;
            return 0;
        }
        if (records[n].key.data) {
            hashes[n] = clean_map_hash(map, records[n].key.data, records[n].key.size);
            clean_map_prefetch(map, hashes[n]);
        }
        n++;
    }
    return n;
}

static enum err cursor_close(const struct cursor *cur)
{
    return cur->left == 0 && cur->at == cur->end ? OK : ERR_CORRUPT;
}

/* ---- The table */

enum err clean_batch_keys(struct cleaning *c, const struct batch_info *b, const uint8_t *data, bool *full)
{
    struct cursor cur;
    uint8_t *decompressed;
    size_t decompressed_size;
    enum err e = cursor_open(&cur, b, data, &decompressed, &decompressed_size);
    if (e) return e;
    struct clean_record records[LOOKAHEAD];
    struct clean_hash hashes[LOOKAHEAD];
    struct clean_map *map = &c->tools->map;
    *full = false;
    for (int n; !*full && (n = next_records(&cur, map, records, hashes)) > 0;) {
        for (int i = 0; i < n && !*full; i++) {
            int64_t offset = b->base_offset + records[i].offset_delta;
            if (!records[i].key.data || offset < c->rq->plan.first_dirty) continue;
            *full = !clean_map_put(map, hashes[i], offset);
            if (!*full) c->map_end = offset + 1;
        }
    }
    if (!*full) e = cursor_close(&cur);
    mem_free(decompressed);
    return e;
}

/* ---- Judging */

static int last_compare(const void *key, const void *element)
{
    int64_t id = *(const int64_t *)key;
    const struct clean_last *last = element;
    return id < last->producer_id ? -1 : id > last->producer_id;
}

/* Whether a producer that is still known needs this batch: for its last sequence, or where it has none in its epoch,
 * for the epoch that a marker brought. */
static bool is_last_of_producer(const struct cleaning *c, const struct batch_info *b)
{
    if (b->producer_id < 0 || c->last_count == 0) return false;
    const struct clean_last *last = bsearch(&b->producer_id, c->last, c->last_count, sizeof *c->last, last_compare);
    if (!last) return false;
    if (last->last_offset >= 0) return batch_last_offset(b) == last->last_offset;
    return b->attributes & BATCH_CONTROL && b->producer_epoch == last->epoch;
}

/* What a walk over a batch has found. */
struct selection {
    int32_t kept;
    bool tombstones; /* among those kept */
    int64_t max_timestamp;
};

static bool record_stays(const struct cleaning *c, const struct batch_info *b, const struct clean_record *r,
                         const struct clean_hash *hash)
{
    int64_t offset = b->base_offset + r->offset_delta;
    if (offset >= c->map_end) return true;
    if (!r->key.data) return false; /* nobody could ever supersede it */
    if (offset < clean_map_get(&c->tools->map, *hash)) return false;
    bool expired = b->attributes & BATCH_DELETE_HORIZON && b->base_timestamp <= c->rq->now_ms;
    return r->has_value || !expired;
}

static int64_t record_timestamp(const struct batch_info *b, const struct clean_record *r)
{
    if (b->attributes & BATCH_LOG_APPEND_TIME) return b->max_timestamp;
    return (int64_t)((uint64_t)b->base_timestamp + (uint64_t)r->timestamp_delta);
}

static void kept_begin(struct clean_tools *t, int32_t count)
{
    size_t size = ((size_t)count + 7) / 8;
    if (size == 0) return;
    if (size > t->kept_cap) {
        mem_free(t->kept);
        t->kept = mem_alloc(size);
        t->kept_cap = size;
    }
    memset(t->kept, 0, size);
}

/* Decides record by record.  Of a control batch all stay. */
static enum err select_records(struct cleaning *c, const struct batch_info *b, struct cursor cur, struct selection *out)
{
    struct clean_record records[LOOKAHEAD];
    struct clean_hash hashes[LOOKAHEAD];
    bool control = b->attributes & BATCH_CONTROL;
    uint8_t *kept = c->tools->kept;
    int32_t index = 0;
    *out = (struct selection){.max_timestamp = -1};
    for (int n; (n = next_records(&cur, &c->tools->map, records, hashes)) > 0;) {
        for (int i = 0; i < n; i++, index++) {
            const struct clean_record *r = &records[i];
            if (!control && !record_stays(c, b, r, &hashes[i])) continue;
            kept[index >> 3] |= (uint8_t)(1u << (index & 7));
            out->kept++;
            out->tombstones |= !r->has_value;
            out->max_timestamp = MAX(out->max_timestamp, record_timestamp(b, r));
        }
    }
    return cursor_close(&cur);
}

/* Whether the batch's transaction lets its records go. */
static enum err is_discardable(struct cleaning *c, const struct batch_info *b, const uint8_t *data, bool *out)
{
    if (!(b->attributes & BATCH_CONTROL)) {
        *out = clean_txns_data(&c->txns, b);
        return OK;
    }
    struct txn_marker marker;
    enum err e = batch_read_marker(&marker, data, (size_t)b->size);
    if (e && e != ERR_NOT_FOUND) return e;
    struct aborted_txn aborted;
    bool is_aborted;
    *out = clean_txns_control(&c->txns, b, e ? NULL : &marker, &aborted, &is_aborted);
    struct clean_target *t = &c->target;
    if (!is_aborted) return OK;
    t->aborted = mem_grow(t->aborted, &t->aborted_cap, t->aborted_count + 1, sizeof *t->aborted);
    t->aborted[t->aborted_count++] = aborted;
    return OK;
}

static int64_t delete_horizon(const struct cleaning *c)
{
    int64_t horizon;
    if (__builtin_add_overflow(c->rq->now_ms, c->config.delete_retention_ms, &horizon)) return INT64_MAX;
    return horizon;
}

/* Looks at the records of a batch whose transaction does not decide. */
static enum err judge_records(struct cleaning *c, const struct batch_info *b, const uint8_t *data, bool empty_txn,
                              struct clean_verdict *v)
{
    struct cursor cur;
    struct selection s;
    enum err e = cursor_open(&cur, b, data, &v->decompressed, &v->decompressed_size);
    if (e) return e;
    kept_begin(c->tools, b->count);
    e = select_records(c, b, cur, &s);
    if (e) {
        mem_free(v->decompressed);
        v->decompressed = NULL;
        return e;
    }
    c->result->records_read += b->count;
    c->result->records_kept += s.kept;
    if (s.kept == 0) return OK;
    v->kept = s.kept;
    v->max_timestamp = b->attributes & BATCH_LOG_APPEND_TIME ? b->max_timestamp : s.max_timestamp;
    v->set_horizon = (s.tombstones || empty_txn) && !(b->attributes & BATCH_DELETE_HORIZON);
    v->horizon_ms = delete_horizon(c);
    v->fate = s.kept == b->count && !v->set_horizon ? CLEAN_KEEP : CLEAN_REWRITE;
    return OK;
}

enum err clean_batch_judge(struct cleaning *c, const struct batch_info *b, const uint8_t *data,
                           struct clean_verdict *out)
{
    bool discardable, control = b->attributes & BATCH_CONTROL;
    enum err e = is_discardable(c, b, data, &discardable);
    if (e) return e;
    bool retained_long_enough = b->attributes & BATCH_DELETE_HORIZON && b->base_timestamp <= c->rq->now_ms;
    bool drop = discardable && (!control || retained_long_enough);
    bool keep_place = is_last_of_producer(c, b) || batch_last_offset(b) + 1 == c->rq->plan.first_uncleanable;
    *out = (struct clean_verdict){.fate = keep_place ? CLEAN_EMPTY : CLEAN_DROP};
    if (drop)
        c->result->records_read += MAX(b->count, 0);
    else
        e = judge_records(c, b, data, control && discardable, out);
    bool empty_already = out->fate == CLEAN_EMPTY && b->count == 0 && b->size == BATCH_HEADER_SIZE;
    if (empty_already) out->fate = CLEAN_KEEP;
    return e;
}

/* ---- Writing */

uint8_t *clean_out_reserve(struct clean_tools *t, size_t size)
{
    if (t->out_size + size > t->out_cap) {
        t->out_cap = MAX(t->out_size + size, t->limits.io_bytes);
        t->out = mem_realloc(t->out, t->out_cap);
    }
    return t->out + t->out_size;
}

static size_t put_varint(uint8_t *p, int64_t value)
{
    uint64_t v = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) p[n++] = (uint8_t)(v | 0x80);
    p[n++] = (uint8_t)v;
    return n;
}

static bool is_kept(const uint8_t *kept, int32_t index)
{
    return kept[index >> 3] & (1u << (index & 7));
}

/* Copies the records that stay as they are, neighbours at once. */
static size_t copy_records(const struct clean_tools *t, struct cursor cur, uint8_t *out)
{
    uint8_t *to = out;
    const uint8_t *run = cur.at; /* [run, cur.at) stays and is not copied yet */
    for (int32_t i = 0; cur.left > 0; i++, cur.left--) {
        const uint8_t *begin = cur.at;
        int64_t size = 0;
        bool sound = get_varint(&cur.at, cur.end, &size); /* next_record() has read it */
        ASSERT(sound && size <= cur.end - cur.at);
        cur.at += size;
        if (is_kept(t->kept, i)) continue;
        memcpy(to, run, (size_t)(begin - run));
        to += begin - run;
        run = cur.at;
    }
    memcpy(to, run, (size_t)(cur.at - run));
    return (size_t)(to - out) + (size_t)(cur.at - run);
}

/* The same for a batch whose base timestamp becomes the delete horizon. */
static size_t shift_records(const struct clean_tools *t, struct cursor cur, const struct batch_info *b,
                            int64_t horizon_ms, uint8_t *out)
{
    uint8_t *to = out;
    struct clean_record r;
    for (int32_t i = 0; cur.left > 0; i++) {
        bool sound = next_record(&cur, &r);
        ASSERT(sound);
        if (!is_kept(t->kept, i)) continue;
        uint8_t time[VARINT_SIZE_MAX];
        size_t time_size = put_varint(time, (int64_t)((uint64_t)record_timestamp(b, &r) - (uint64_t)horizon_ms));
        size_t rest = (size_t)(r.end - r.offset_at);
        to += put_varint(to, (int64_t)(1 + time_size + rest));
        *to++ = 0; /* attributes */
        memcpy(to, time, time_size);
        memcpy(to + time_size, r.offset_at, rest);
        to += time_size + rest;
    }
    return (size_t)(to - out);
}

/* Fills in what stands before the records and counts the batch. */
static void put_header(struct clean_tools *t, struct batch_info *info)
{
    batch_put_header(t->out + t->out_size, info);
    t->out_size += (size_t)info->size;
}

/* Compresses tools->plain behind the header. */
static enum err put_compressed(struct clean_tools *t, enum codec codec, size_t size, size_t *packed)
{
    struct writer w;
    writer_init(&w, t->pool);
    enum err e = codec_compress(codec, COMPRESS_LEVEL_DEFAULT, t->plain, size, &w);
    if (!e && w.size > INT32_MAX - BATCH_HEADER_SIZE) e = ERR_TOO_BIG;
    if (!e) memcpy(clean_out_reserve(t, BATCH_HEADER_SIZE + w.size) + BATCH_HEADER_SIZE, w.buf->data, w.size);
    *packed = w.size;
    writer_fini(&w);
    return e;
}

static uint8_t *plain_reserve(struct clean_tools *t, size_t size)
{
    if (size > t->plain_cap) {
        mem_free(t->plain);
        t->plain = mem_alloc(size);
        t->plain_cap = size;
    }
    return t->plain;
}

enum err clean_batch_rewrite(struct cleaning *c, const struct batch_info *b, const uint8_t *data,
                             const struct clean_verdict *v, struct batch_info *info)
{
    struct clean_tools *t = c->tools;
    const uint8_t *records = v->decompressed ? v->decompressed : data + BATCH_HEADER_SIZE;
    size_t size = v->decompressed ? v->decompressed_size : (size_t)b->size - BATCH_HEADER_SIZE;
    struct cursor cur = {records, records + size, b->count, b->last_offset_delta};
    size_t room = size + (v->set_horizon ? (size_t)v->kept * RECORD_GROWTH_MAX : 0);
    enum codec codec = batch_codec(b);
    uint8_t *to = codec == CODEC_NONE ? clean_out_reserve(t, BATCH_HEADER_SIZE + room) + BATCH_HEADER_SIZE
                                      : plain_reserve(t, room);
    size = v->set_horizon ? shift_records(t, cur, b, v->horizon_ms, to) : copy_records(t, cur, to);
    enum err e = codec == CODEC_NONE ? OK : put_compressed(t, codec, size, &size);
    if (!e && size > INT32_MAX - BATCH_HEADER_SIZE) e = ERR_TOO_BIG;
    if (e) return e;
    *info = *b;
    info->size = (int32_t)(BATCH_HEADER_SIZE + size);
    info->count = v->kept;
    info->max_timestamp = v->max_timestamp;
    if (v->set_horizon) {
        info->attributes |= BATCH_DELETE_HORIZON;
        info->base_timestamp = v->horizon_ms;
    }
    put_header(t, info);
    return OK;
}

void clean_batch_empty(struct cleaning *c, const struct batch_info *b, struct batch_info *info)
{
    clean_out_reserve(c->tools, BATCH_HEADER_SIZE);
    *info = *b;
    info->size = BATCH_HEADER_SIZE;
    info->attributes &= BATCH_LOG_APPEND_TIME | BATCH_TRANSACTIONAL | BATCH_CONTROL;
    info->base_timestamp = -1;
    info->count = 0;
    put_header(c->tools, info);
}
