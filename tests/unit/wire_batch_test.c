/* wire/batch: headers and CRC of real batches, what a broker refuses, walking and building records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "wire/batch.h"

static const int64_t NOW = 1700000000000;

static struct buf_pool *pool;
static struct arena arena;

static int setup(void **state)
{
    (void)state;
    pool = buf_pool_new(1 << 20);
    arena_init(&arena, SIZE_MAX);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    buf_pool_free(pool);
    return 0;
}

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = mem_alloc(*size);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static struct bytes bytes_of(const char *s)
{
    return (struct bytes){(const uint8_t *)s, s ? strlen(s) : 0};
}

static struct batch_rules rules_default(void)
{
    return (struct batch_rules){
        .size_max = 1 << 20,
        .now_ms = NOW,
        .timestamp_before_max_ms = INT64_MAX,
        .timestamp_after_max_ms = 3600000,
        .decompressed_max = 1 << 20,
    };
}

/* Bytes of exactly their size on the heap, so that the sanitizer sees each step past the end. */
struct sample {
    uint8_t *data;
    size_t size;
};

static struct sample sample_take(struct batch_builder *bb)
{
    struct writer w;
    writer_init(&w, pool);
    assert_int_equal(batch_builder_finish(bb, &w), OK);
    struct sample s = {mem_alloc(w.size), w.size};
    memcpy(s.data, w.buf->data, w.size);
    writer_fini(&w);
    batch_builder_fini(bb);
    return s;
}

/* Three records: with key, with null key and header, with empty value. */
static struct sample sample_make(int16_t attributes)
{
    struct batch_builder bb;
    batch_builder_init(&bb, pool, attributes, NOW);
    struct record_header h[2] = {{STR("h1"), bytes_of("v1")}, {STR("h2"), {NULL, 0}}};
    batch_builder_add(&bb, NOW, bytes_of("key"), bytes_of("value"), NULL, 0);
    batch_builder_add(&bb, NOW + 7, bytes_of(NULL), bytes_of("other"), h, 2);
    batch_builder_add(&bb, NOW + 3, bytes_of("k3"), bytes_of(""), NULL, 0);
    return sample_take(&bb);
}

static void sample_fix_crc(struct sample *s)
{
    put_be32(s->data + BATCH_AT_CRC, batch_crc(s->data, s->size));
}

static struct batch_verdict check_with(struct sample *s, const struct batch_rules *rules)
{
    struct batch_verdict v;
    struct batch_info info;
    batch_check(&v, &info, s->data, s->size, rules, &arena);
    return v;
}

static enum kerr check(struct sample *s)
{
    struct batch_rules rules = rules_default();
    struct batch_verdict v = check_with(s, &rules);
    assert_true(v.kerr == KERR_NONE || v.message);
    return v.kerr;
}

/* ---- Real batches */

static void crc32c_has_the_standard_check_value(void **state)
{
    (void)state;
    assert_int_equal(crc32c((const uint8_t *)"123456789", 9), 0xe3069283);
    assert_int_equal(crc32c((const uint8_t *)"", 0), 0);
}

static void walk_log(const char *path, enum codec codec, int64_t *end_offset)
{
    size_t size, batches = 0;
    uint8_t *data = read_file(path, &size);
    int64_t next = 0;
    for (size_t at = 0; at < size;) {
        struct batch_info info;
        assert_true(size - at >= BATCH_HEADER_SIZE);
        assert_int_equal(batch_parse_header(&info, data + at, (int64_t)(size - at)), OK);
        assert_true(batch_crc_ok(data + at, &info));
        assert_int_equal(batch_codec(&info), codec);
        assert_int_equal(info.base_offset, next);

        struct record_iter it;
        struct record rec;
        int64_t max_timestamp = -1;
        assert_int_equal(record_iter_init(&it, data + at, size - at, 1 << 20), OK);
        for (int i = 0; i < info.count; i++) {
            assert_int_equal(record_iter_next(&it, &rec), OK);
            assert_int_equal(rec.offset, next + i);
            max_timestamp = MAX(max_timestamp, rec.timestamp);
            struct record_header h;
            while (rec.header_count > 0) assert_int_equal(record_next_header(&rec, &h), OK);
            assert_int_equal(record_next_header(&rec, &h), ERR_NOT_FOUND);
        }
        assert_int_equal(record_iter_next(&it, &rec), ERR_NOT_FOUND);
        record_iter_fini(&it);
        assert_int_equal(max_timestamp, info.max_timestamp);
        next = batch_last_offset(&info) + 1;
        at += (size_t)info.size;
        batches++;
    }
    assert_true(batches > 1);
    *end_offset = next;
    mem_free(data);
}

static void batches_written_by_kafka_are_read_whole_in_every_codec(void **state)
{
    (void)state;
    int64_t end;
    walk_log("tests/data/batches/codec-none.log", CODEC_NONE, &end);
    assert_int_equal(end, 113);
    walk_log("tests/data/batches/codec-gzip.log", CODEC_GZIP, &end);
    assert_int_equal(end, 152);
    walk_log("tests/data/batches/codec-snappy.log", CODEC_SNAPPY, &end);
    assert_int_equal(end, 142);
    walk_log("tests/data/batches/codec-lz4.log", CODEC_LZ4, &end);
    assert_int_equal(end, 105);
    walk_log("tests/data/batches/codec-zstd.log", CODEC_ZSTD, &end);
    assert_int_equal(end, 200);
}

static void log_append_time_replaces_each_records_timestamp(void **state)
{
    (void)state;
    int64_t end;
    walk_log("tests/data/batches/append-time.log", CODEC_NONE, &end);
    struct sample s = sample_make(0);
    batch_set_append_time(s.data, s.size, NOW + 5000);
    struct record_iter it;
    struct record rec;
    assert_int_equal(record_iter_init(&it, s.data, s.size, 0), OK);
    assert_true(batch_crc_ok(s.data, &it.info));
    while (it.left > 0) {
        assert_int_equal(record_iter_next(&it, &rec), OK);
        assert_int_equal(rec.timestamp, NOW + 5000);
    }
    record_iter_fini(&it);
    mem_free(s.data);
}

static void real_batches_pass_the_check_once_their_offset_is_0(void **state)
{
    (void)state;
    static const char *const paths[] = {"tests/data/batches/codec-none.log", "tests/data/batches/codec-gzip.log",
                                        "tests/data/batches/codec-snappy.log", "tests/data/batches/codec-lz4.log",
                                        "tests/data/batches/codec-zstd.log"};
    for (size_t i = 0; i < ARRAY_COUNT(paths); i++) {
        size_t size;
        uint8_t *data = read_file(paths[i], &size);
        for (size_t at = 0; at < size;) {
            struct batch_info info;
            assert_int_equal(batch_parse_header(&info, data + at, INT32_MAX), OK);
            batch_set_offset(data + at, 0);
            struct sample s = {mem_alloc((size_t)info.size), (size_t)info.size};
            memcpy(s.data, data + at, s.size);
            struct batch_rules rules = rules_default();
            rules.timestamp_before_max_ms = INT64_MAX - 1; /* looks inside */
            rules.timestamp_after_max_ms = INT64_MAX;
            assert_int_equal(check_with(&s, &rules).kerr, KERR_NONE);
            assert_memory_equal(s.data, data + at, s.size); /* nothing to put right */
            mem_free(s.data);
            at += (size_t)info.size;
        }
        mem_free(data);
    }
}

/* ---- What is refused */

static void a_good_batch_passes_with_its_header(void **state)
{
    (void)state;
    struct sample s = sample_make(0);
    struct batch_verdict v;
    struct batch_info info;
    struct batch_rules rules = rules_default();
    batch_check(&v, &info, s.data, s.size, &rules, &arena);
    assert_int_equal(v.kerr, KERR_NONE);
    assert_null(v.message);
    assert_int_equal(v.error_count, 0);
    assert_int_equal(info.count, 3);
    assert_int_equal(info.last_offset_delta, 2);
    assert_int_equal(info.size, s.size);
    assert_int_equal(info.max_timestamp, NOW + 7);
    assert_int_equal(info.producer_id, -1);
    mem_free(s.data);
}

static void no_whole_batch_is_an_invalid_record(void **state)
{
    (void)state;
    struct sample none = {NULL, 0};
    assert_int_equal(check(&none), KERR_INVALID_RECORD);
    struct sample whole = sample_make(0);
    for (size_t size = 0; size < whole.size; size++) {
        struct sample s = {mem_alloc(size), size};
        memcpy(s.data, whole.data, size);
        assert_int_equal(check(&s), KERR_INVALID_RECORD);
        mem_free(s.data);
    }
    mem_free(whole.data);
}

static void two_batches_or_bytes_behind_one_are_an_invalid_record(void **state)
{
    (void)state;
    struct sample one = sample_make(0);
    for (size_t more = 1; more <= one.size; more++) {
        struct sample s = {mem_alloc(one.size + more), one.size + more};
        memcpy(s.data, one.data, one.size);
        memcpy(s.data + one.size, one.data, more);
        assert_int_equal(check(&s), KERR_INVALID_RECORD);
        mem_free(s.data);
    }
    mem_free(one.data);
}

static void old_formats_are_unsupported_and_unknown_ones_corrupt(void **state)
{
    (void)state;
    struct sample s = sample_make(0);
    s.data[BATCH_AT_MAGIC] = 0;
    assert_int_equal(check(&s), KERR_UNSUPPORTED_FOR_MESSAGE_FORMAT);
    s.data[BATCH_AT_MAGIC] = 1;
    assert_int_equal(check(&s), KERR_UNSUPPORTED_FOR_MESSAGE_FORMAT);
    s.data[BATCH_AT_MAGIC] = 3;
    assert_int_equal(check(&s), KERR_CORRUPT_MESSAGE);
    s.data[BATCH_AT_MAGIC] = 0xff;
    assert_int_equal(check(&s), KERR_CORRUPT_MESSAGE);
    mem_free(s.data);
}

static void each_flipped_bit_under_the_crc_is_a_corrupt_message(void **state)
{
    (void)state;
    struct sample s = sample_make(0);
    for (size_t at = BATCH_AT_CRC; at < s.size; at++) {
        s.data[at] ^= 0x10;
        assert_int_equal(check(&s), KERR_CORRUPT_MESSAGE);
        s.data[at] ^= 0x10;
    }
    assert_int_equal(check(&s), KERR_NONE);
    mem_free(s.data);
}

static void absurd_lengths_are_refused(void **state)
{
    (void)state;
    struct sample s = sample_make(0);
    static const int32_t too_short[] = {0, 13, -1, -2, INT32_MIN};
    for (size_t i = 0; i < ARRAY_COUNT(too_short); i++) {
        put_be32(s.data + BATCH_AT_LENGTH, (uint32_t)too_short[i]);
        assert_int_equal(check(&s), KERR_CORRUPT_MESSAGE);
    }
    put_be32(s.data + BATCH_AT_LENGTH, 48); /* a v2 header takes 49 */
    assert_int_equal(check(&s), KERR_CORRUPT_MESSAGE);
    put_be32(s.data + BATCH_AT_LENGTH, INT32_MAX);
    assert_int_equal(check(&s), KERR_INVALID_RECORD);
    mem_free(s.data);
}

static void a_batch_above_max_message_bytes_is_too_large(void **state)
{
    (void)state;
    struct sample s = sample_make(0);
    struct batch_rules rules = rules_default();
    rules.size_max = (int32_t)s.size;
    assert_int_equal(check_with(&s, &rules).kerr, KERR_NONE);
    rules.size_max--;
    assert_int_equal(check_with(&s, &rules).kerr, KERR_MESSAGE_TOO_LARGE);
    mem_free(s.data);
}

static enum kerr check_field16(size_t at, int16_t v)
{
    struct sample s = sample_make(0);
    put_be16(s.data + at, (uint16_t)v);
    sample_fix_crc(&s);
    enum kerr kerr = check(&s);
    mem_free(s.data);
    return kerr;
}

static enum kerr check_field32(size_t at, int32_t v)
{
    struct sample s = sample_make(0);
    put_be32(s.data + at, (uint32_t)v);
    sample_fix_crc(&s);
    enum kerr kerr = check(&s);
    mem_free(s.data);
    return kerr;
}

static void header_fields_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    assert_int_equal(check_field32(BATCH_AT_COUNT, 0), KERR_INVALID_RECORD);
    assert_int_equal(check_field32(BATCH_AT_COUNT, -1), KERR_INVALID_RECORD);
    assert_int_equal(check_field32(BATCH_AT_COUNT, 2), KERR_INVALID_RECORD);
    assert_int_equal(check_field32(BATCH_AT_COUNT, 4), KERR_INVALID_RECORD);
    assert_int_equal(check_field32(BATCH_AT_COUNT, INT32_MAX), KERR_INVALID_RECORD);
    assert_int_equal(check_field32(BATCH_AT_LAST_OFFSET_DELTA, 3), KERR_INVALID_RECORD);
    assert_int_equal(check_field32(BATCH_AT_LAST_OFFSET_DELTA, -1), KERR_INVALID_RECORD);
    assert_int_equal(check_field16(BATCH_AT_ATTRIBUTES, BATCH_CONTROL), KERR_INVALID_RECORD);
    assert_int_equal(check_field16(BATCH_AT_ATTRIBUTES, BATCH_TRANSACTIONAL), KERR_INVALID_RECORD);
    assert_int_equal(check_field16(BATCH_AT_ATTRIBUTES, BATCH_DELETE_HORIZON), KERR_INVALID_RECORD);
    assert_int_equal(check_field16(BATCH_AT_ATTRIBUTES, BATCH_LOG_APPEND_TIME), KERR_INVALID_TIMESTAMP);
    for (int16_t codec = 5; codec <= 7; codec++)
        assert_int_equal(check_field16(BATCH_AT_ATTRIBUTES, codec), KERR_UNSUPPORTED_COMPRESSION_TYPE);
}

static void offsets_of_produced_batches_start_at_0(void **state)
{
    (void)state;
    struct sample s = sample_make(0);
    batch_set_offset(s.data, 5);
    assert_int_equal(check(&s), KERR_INVALID_RECORD);
    mem_free(s.data);
}

static enum kerr check_producer(int64_t id, int16_t epoch, int32_t sequence, int16_t attributes)
{
    struct batch_builder bb;
    batch_builder_init(&bb, pool, attributes, NOW);
    bb.info.producer_id = id;
    bb.info.producer_epoch = epoch;
    bb.info.base_sequence = sequence;
    batch_builder_add(&bb, NOW, bytes_of("k"), bytes_of("v"), NULL, 0);
    struct sample s = sample_take(&bb);
    enum kerr kerr = check(&s);
    mem_free(s.data);
    return kerr;
}

static void a_producer_id_needs_epoch_and_sequence(void **state)
{
    (void)state;
    assert_int_equal(check_producer(0, 0, 0, 0), KERR_NONE);
    assert_int_equal(check_producer(7, 3, INT32_MAX, BATCH_TRANSACTIONAL), KERR_NONE);
    assert_int_equal(check_producer(7, 3, -1, 0), KERR_INVALID_RECORD);
    assert_int_equal(check_producer(7, -1, 0, 0), KERR_INVALID_RECORD);
    assert_int_equal(check_producer(-1, -1, -1, BATCH_TRANSACTIONAL), KERR_INVALID_RECORD);
}

static void a_wrong_max_timestamp_is_put_right_with_a_new_crc(void **state)
{
    (void)state;
    for (int16_t codec = CODEC_NONE; codec < CODEC_COUNT; codec++) {
        struct sample s = sample_make(codec);
        put_be64(s.data + BATCH_AT_MAX_TIMESTAMP, (uint64_t)(NOW + 7200000)); /* too late to be allowed: looked into */
        sample_fix_crc(&s);
        struct batch_rules rules = rules_default();
        struct batch_verdict v;
        struct batch_info info;
        batch_check(&v, &info, s.data, s.size, &rules, &arena);
        assert_int_equal(v.kerr, KERR_NONE);
        assert_int_equal(info.max_timestamp, NOW + 7);
        assert_int_equal(get_be64(s.data + BATCH_AT_MAX_TIMESTAMP), NOW + 7);
        assert_true(batch_crc_ok(s.data, &info));
        mem_free(s.data);
    }
}

static void records_with_timestamps_out_of_range_are_named(void **state)
{
    (void)state;
    for (int16_t codec = CODEC_NONE; codec < CODEC_COUNT; codec++) {
        struct batch_builder bb;
        batch_builder_init(&bb, pool, codec, NOW);
        static const int64_t offsets[] = {0, 1001, 1000, -501, -500};
        for (size_t i = 0; i < ARRAY_COUNT(offsets); i++)
            batch_builder_add(&bb, NOW + offsets[i], bytes_of("k"), bytes_of("v"), NULL, 0);
        batch_builder_add(&bb, -1, bytes_of("k"), bytes_of("no timestamp is allowed"), NULL, 0);
        struct sample s = sample_take(&bb);
        struct batch_rules rules = rules_default();
        rules.timestamp_before_max_ms = 500;
        rules.timestamp_after_max_ms = 1000;
        struct batch_verdict v = check_with(&s, &rules);
        assert_int_equal(v.kerr, KERR_INVALID_TIMESTAMP);
        assert_int_equal(v.error_count, 2);
        assert_int_equal(v.errors[0].index, 1);
        assert_int_equal(v.errors[1].index, 3);
        rules.log_append_time = true; /* the broker sets them anyway */
        assert_int_equal(check_with(&s, &rules).kerr, KERR_NONE);
        mem_free(s.data);
    }
}

static void a_batch_without_timestamps_passes_any_range(void **state)
{
    (void)state;
    struct batch_builder bb;
    batch_builder_init(&bb, pool, 0, -1);
    batch_builder_add(&bb, -1, bytes_of("k"), bytes_of("v"), NULL, 0);
    struct sample s = sample_take(&bb);
    struct batch_rules rules = rules_default();
    rules.timestamp_before_max_ms = 1;
    assert_int_equal(check_with(&s, &rules).kerr, KERR_NONE);
    mem_free(s.data);
}

static void compacted_topics_name_records_without_key(void **state)
{
    (void)state;
    for (int16_t codec = CODEC_NONE; codec < CODEC_COUNT; codec++) {
        struct sample s = sample_make(codec);
        struct batch_rules rules = rules_default();
        rules.compacted = true;
        struct batch_verdict v = check_with(&s, &rules);
        assert_int_equal(v.kerr, KERR_INVALID_RECORD);
        assert_int_equal(v.error_count, 1);
        assert_int_equal(v.errors[0].index, 1);
        assert_non_null(v.errors[0].message);
        mem_free(s.data);
    }
}

static void record_errors_are_bounded(void **state)
{
    (void)state;
    struct batch_builder bb;
    batch_builder_init(&bb, pool, 0, NOW);
    for (int i = 0; i < 10000; i++) batch_builder_add(&bb, NOW, bytes_of(NULL), bytes_of("v"), NULL, 0);
    struct sample s = sample_take(&bb);
    struct batch_rules rules = rules_default();
    rules.compacted = true;
    struct batch_verdict v = check_with(&s, &rules);
    assert_int_equal(v.kerr, KERR_INVALID_RECORD);
    assert_int_equal(v.error_count, 4096);
    mem_free(s.data);
}

static void what_decompresses_past_the_limit_is_too_large(void **state)
{
    (void)state;
    for (int16_t codec = CODEC_GZIP; codec < CODEC_COUNT; codec++) {
        struct batch_builder bb;
        batch_builder_init(&bb, pool, codec, NOW);
        uint8_t *zeros = mem_zalloc(1, 200000);
        batch_builder_add(&bb, NOW, bytes_of("k"), (struct bytes){zeros, 200000}, NULL, 0);
        mem_free(zeros);
        struct sample s = sample_take(&bb);
        struct batch_rules rules = rules_default();
        rules.compacted = true;
        assert_int_equal(check_with(&s, &rules).kerr, KERR_NONE);
        rules.decompressed_max = 100000;
        assert_int_equal(check_with(&s, &rules).kerr, KERR_MESSAGE_TOO_LARGE);
        mem_free(s.data);
    }
}

static void the_header_tells_whether_a_check_decompresses(void **state)
{
    (void)state;
    for (int16_t codec = CODEC_NONE; codec < CODEC_COUNT; codec++) {
        struct sample s = sample_make(codec);
        struct batch_rules rules = rules_default();
        assert_false(batch_check_decompresses(s.data, s.size, &rules));
        rules.compacted = true;
        assert_int_equal(batch_check_decompresses(s.data, s.size, &rules), codec != CODEC_NONE);
        assert_false(batch_check_decompresses(s.data, BATCH_HEADER_SIZE - 1, &rules));
        rules.compacted = false;
        rules.look_inside = true;
        assert_int_equal(batch_check_decompresses(s.data, s.size, &rules), codec != CODEC_NONE);
        mem_free(s.data);
    }
}

/* ---- Malformed records */

/* A batch around the given bytes, with a right header and CRC. */
static struct sample sample_of_records(const uint8_t *records, size_t size, int32_t count)
{
    struct sample s = {mem_zalloc(1, BATCH_HEADER_SIZE + size), BATCH_HEADER_SIZE + size};
    put_be32(s.data + BATCH_AT_LENGTH, (uint32_t)(s.size - BATCH_LENGTH_OVERHEAD));
    s.data[BATCH_AT_MAGIC] = BATCH_MAGIC;
    put_be32(s.data + BATCH_AT_LAST_OFFSET_DELTA, (uint32_t)count - 1);
    put_be64(s.data + BATCH_AT_PRODUCER_ID, UINT64_MAX);
    put_be16(s.data + BATCH_AT_PRODUCER_EPOCH, UINT16_MAX);
    put_be32(s.data + BATCH_AT_BASE_SEQUENCE, UINT32_MAX);
    put_be32(s.data + BATCH_AT_COUNT, (uint32_t)count);
    memcpy(s.data + BATCH_HEADER_SIZE, records, size);
    sample_fix_crc(&s);
    return s;
}

static enum kerr check_records(const uint8_t *records, size_t size, int32_t count)
{
    struct sample s = sample_of_records(records, size, count);
    enum kerr kerr = check(&s);
    mem_free(s.data);
    return kerr;
}

#define CHECK_RECORDS(count, ...) check_records((const uint8_t[]){__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}), count)

static void the_walk_refuses_every_kind_of_malformed_record(void **state)
{
    (void)state;
    /* length 6, attributes, timestamp 0, offset 0, null key, null value, no headers */
    assert_int_equal(CHECK_RECORDS(1, 12, 0, 0, 0, 1, 1, 0), KERR_NONE);
    /* the same twice, offsets 0 and 1; then both 0; then more or fewer than the count says */
    assert_int_equal(CHECK_RECORDS(2, 12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0), KERR_NONE);
    assert_int_equal(CHECK_RECORDS(2, 12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 0, 1, 1, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(3, 12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 12, 0, 0, 0, 1, 1, 0, 0), KERR_INVALID_RECORD);
    /* lengths: too short, too long, negative, of six bytes */
    assert_int_equal(CHECK_RECORDS(1, 10, 0, 0, 0, 1, 1, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 14, 0, 0, 0, 1, 1, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 14, 0, 0, 0, 1, 1, 0, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 11, 0, 0, 0, 1, 1, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0), KERR_INVALID_RECORD);
    /* key and value: past the record, below -1, 2^31-1 */
    assert_int_equal(CHECK_RECORDS(1, 12, 0, 0, 0, 2, 1, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 12, 0, 0, 0, 3, 1, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 12, 0, 0, 0, 1, 2, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 12, 0, 0, 0, 1, 3, 0), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 20, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1, 0), KERR_INVALID_RECORD);
    /* with both as long as they say */
    assert_int_equal(CHECK_RECORDS(1, 18, 0, 0, 0, 2, 'k', 4, 'v', 'v', 0), KERR_NONE);
    /* headers: one right; null key; value past the end; more than there are; -1; 2^31-1; bytes left over */
    assert_int_equal(CHECK_RECORDS(1, 18, 0, 0, 0, 1, 1, 2, 2, 'h', 1), KERR_NONE);
    assert_int_equal(CHECK_RECORDS(1, 16, 0, 0, 0, 1, 1, 2, 1, 1), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 18, 0, 0, 0, 1, 1, 2, 2, 'h', 2), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 18, 0, 0, 0, 1, 1, 4, 2, 'h', 1), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 12, 0, 0, 0, 1, 1, 1), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f), KERR_INVALID_RECORD);
    assert_int_equal(CHECK_RECORDS(1, 14, 0, 0, 0, 1, 1, 0, 0), KERR_INVALID_RECORD);
}

static void the_walk_and_the_plain_iterator_agree_on_mutated_records(void **state)
{
    (void)state;
    struct sample good = sample_make(0);
    size_t size = good.size - BATCH_HEADER_SIZE;
    int accepted = 0;
    for (size_t at = 0; at < size; at++) {
        for (int v = 0; v < 256; v++) {
            struct sample s = sample_of_records(good.data + BATCH_HEADER_SIZE, size, 3);
            s.data[BATCH_HEADER_SIZE + at] = (uint8_t)v;
            sample_fix_crc(&s);
            struct batch_rules rules = rules_default();
            rules.log_append_time = true; /* changes no bytes */
            bool taken = check_with(&s, &rules).kerr == KERR_NONE;

            struct record_iter it;
            struct record rec;
            struct record_header h;
            enum err e = record_iter_init(&it, s.data, s.size, 0);
            for (int i = 0; !e && !(e = record_iter_next(&it, &rec)); i++) {
                if (rec.offset != i) e = ERR_CORRUPT;
                while (!e) e = record_next_header(&rec, &h);
                if (e == ERR_NOT_FOUND) e = OK;
            }
            record_iter_fini(&it);
            assert_int_equal(taken, e == ERR_NOT_FOUND);
            accepted += taken;
            mem_free(s.data);
        }
    }
    assert_true(accepted > 1000); /* bytes of keys, values and timestamps may be anything */
    mem_free(good.data);
}

static void long_varints_and_big_batches_take_the_same_walk(void **state)
{
    (void)state;
    struct batch_builder bb;
    batch_builder_init(&bb, pool, 0, 0);
    uint8_t *big = mem_zalloc(1, 300000);
    struct record_header h = {STR("header"), {big, 20000}};
    batch_builder_add(&bb, INT64_MAX, (struct bytes){big, 70000}, (struct bytes){big, 300000}, &h, 1);
    for (int i = 0; i < 40000; i++)
        batch_builder_add(&bb, NOW + i, (struct bytes){big, (size_t)(i % 150)}, bytes_of("v"), &h, i % 1000 == 0);
    struct sample s = sample_take(&bb);
    struct batch_rules rules = rules_default();
    rules.size_max = INT32_MAX;
    rules.timestamp_after_max_ms = INT64_MAX;
    struct batch_verdict v = check_with(&s, &rules);
    assert_int_equal(v.kerr, KERR_NONE);
    assert_int_equal(get_be64(s.data + BATCH_AT_MAX_TIMESTAMP), INT64_MAX);
    mem_free(big);
    mem_free(s.data);
}

/* ---- Building and reading */

static void what_is_built_is_read_back_in_every_codec(void **state)
{
    (void)state;
    for (int16_t codec = CODEC_NONE; codec < CODEC_COUNT; codec++) {
        struct sample s = sample_make(codec);
        struct record_iter it;
        struct record rec;
        struct record_header h;
        assert_int_equal(record_iter_init(&it, s.data, s.size, 1000), OK);
        assert_int_equal(record_iter_next(&it, &rec), OK);
        assert_int_equal(rec.offset, 0);
        assert_int_equal(rec.timestamp, NOW);
        assert_int_equal(rec.key.size, 3);
        assert_memory_equal(rec.key.data, "key", 3);
        assert_memory_equal(rec.value.data, "value", 5);
        assert_int_equal(record_iter_next(&it, &rec), OK);
        assert_int_equal(rec.timestamp, NOW + 7);
        assert_null(rec.key.data);
        assert_int_equal(rec.header_count, 2);
        assert_int_equal(record_next_header(&rec, &h), OK);
        assert_true(str_is(h.key, "h1"));
        assert_memory_equal(h.value.data, "v1", 2);
        assert_int_equal(record_next_header(&rec, &h), OK);
        assert_true(str_is(h.key, "h2"));
        assert_null(h.value.data);
        assert_int_equal(record_next_header(&rec, &h), ERR_NOT_FOUND);
        assert_int_equal(record_iter_next(&it, &rec), OK);
        assert_non_null(rec.value.data);
        assert_int_equal(rec.value.size, 0);
        assert_int_equal(record_iter_next(&it, &rec), ERR_NOT_FOUND);
        record_iter_fini(&it);
        mem_free(s.data);
    }
}

static void building_nothing_is_an_error(void **state)
{
    (void)state;
    struct batch_builder bb;
    struct writer w;
    batch_builder_init(&bb, pool, 0, NOW);
    writer_init(&w, pool);
    assert_int_equal(batch_builder_finish(&bb, &w), ERR_INVALID);
    assert_int_equal(writer_size(&w), 0);
    writer_fini(&w);
    batch_builder_fini(&bb);
}

static void transaction_markers_are_built_as_kafka_does_and_read_back(void **state)
{
    (void)state;
    static const uint8_t record[] = {0x20, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 0, 0, 0, 42, 0};
    struct batch_builder bb;
    batch_builder_init(&bb, pool, BATCH_CONTROL | BATCH_TRANSACTIONAL, NOW);
    batch_builder_add_marker(&bb, &(struct txn_marker){.commit = true, .coordinator_epoch = 42, .timestamp = NOW});
    struct sample s = sample_take(&bb);
    assert_int_equal(s.size, BATCH_HEADER_SIZE + sizeof record);
    assert_memory_equal(s.data + BATCH_HEADER_SIZE, record, sizeof record);
    struct txn_marker m;
    assert_int_equal(batch_read_marker(&m, s.data, s.size), OK);
    assert_true(m.commit);
    assert_int_equal(m.coordinator_epoch, 42);
    assert_int_equal(m.timestamp, NOW);
    assert_int_equal(check(&s), KERR_INVALID_RECORD); /* clients may not send it */
    mem_free(s.data);
}

static enum err read_marker(struct bytes key, struct bytes value)
{
    struct batch_builder bb;
    batch_builder_init(&bb, pool, BATCH_CONTROL | BATCH_TRANSACTIONAL, NOW);
    batch_builder_add(&bb, NOW, key, value, NULL, 0);
    struct sample s = sample_take(&bb);
    struct txn_marker m;
    enum err e = batch_read_marker(&m, s.data, s.size);
    mem_free(s.data);
    return e;
}

static void malformed_markers_are_corrupt_and_other_control_records_none(void **state)
{
    (void)state;
    static const uint8_t commit[] = {0, 0, 0, 1}, leader_change[] = {0, 0, 0, 2}, value[] = {0, 0, 0, 0, 0, 42};
    const struct bytes null = {NULL, 0};
    assert_int_equal(read_marker((struct bytes){commit, 4}, (struct bytes){value, 6}), OK);
    assert_int_equal(read_marker((struct bytes){leader_change, 4}, (struct bytes){value, 6}), ERR_NOT_FOUND);
    assert_int_equal(read_marker(null, (struct bytes){value, 6}), ERR_CORRUPT);
    assert_int_equal(read_marker((struct bytes){commit, 4}, null), ERR_CORRUPT);
    assert_int_equal(read_marker((struct bytes){commit, 3}, (struct bytes){value, 6}), ERR_CORRUPT);
    assert_int_equal(read_marker((struct bytes){commit, 4}, (struct bytes){value, 5}), ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_has_the_standard_check_value),
        cmocka_unit_test(batches_written_by_kafka_are_read_whole_in_every_codec),
        cmocka_unit_test(log_append_time_replaces_each_records_timestamp),
        cmocka_unit_test(real_batches_pass_the_check_once_their_offset_is_0),
        cmocka_unit_test(a_good_batch_passes_with_its_header),
        cmocka_unit_test(no_whole_batch_is_an_invalid_record),
        cmocka_unit_test(two_batches_or_bytes_behind_one_are_an_invalid_record),
        cmocka_unit_test(old_formats_are_unsupported_and_unknown_ones_corrupt),
        cmocka_unit_test(each_flipped_bit_under_the_crc_is_a_corrupt_message),
        cmocka_unit_test(absurd_lengths_are_refused),
        cmocka_unit_test(a_batch_above_max_message_bytes_is_too_large),
        cmocka_unit_test(header_fields_that_make_no_sense_are_refused),
        cmocka_unit_test(offsets_of_produced_batches_start_at_0),
        cmocka_unit_test(a_producer_id_needs_epoch_and_sequence),
        cmocka_unit_test(a_wrong_max_timestamp_is_put_right_with_a_new_crc),
        cmocka_unit_test(records_with_timestamps_out_of_range_are_named),
        cmocka_unit_test(a_batch_without_timestamps_passes_any_range),
        cmocka_unit_test(compacted_topics_name_records_without_key),
        cmocka_unit_test(record_errors_are_bounded),
        cmocka_unit_test(what_decompresses_past_the_limit_is_too_large),
        cmocka_unit_test(the_header_tells_whether_a_check_decompresses),
        cmocka_unit_test(the_walk_refuses_every_kind_of_malformed_record),
        cmocka_unit_test(the_walk_and_the_plain_iterator_agree_on_mutated_records),
        cmocka_unit_test(long_varints_and_big_batches_take_the_same_walk),
        cmocka_unit_test(what_is_built_is_read_back_in_every_codec),
        cmocka_unit_test(building_nothing_is_an_error),
        cmocka_unit_test(transaction_markers_are_built_as_kafka_does_and_read_back),
        cmocka_unit_test(malformed_markers_are_corrupt_and_other_control_records_none),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
