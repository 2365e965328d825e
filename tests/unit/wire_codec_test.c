/* wire_codec_test.c: bad bytes, limits, versions that cannot carry a value, splices, prefixes, printing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "wire/gen/api_versions.h"
#include "wire/gen/consumer_group_heartbeat.h"
#include "wire/gen/consumer_protocol_subscription.h"
#include "wire/gen/describe_client_quotas.h"
#include "wire/gen/fetch.h"
#include "wire/gen/group_metadata_key.h"
#include "wire/gen/metadata.h"
#include "wire/gen/offset_commit_key.h"
#include "wire/gen/offset_commit_value.h"
#include "wire/gen/partition_change_record.h"
#include "wire/gen/produce.h"
#include "wire/gen/sasl_authenticate.h"
#include "wire_golden.h"

/* What most tests need: an arena, and a writer over a pool. */
struct bench {
    struct arena arena;
    struct buf_pool *pool;
    struct writer w;
};

static struct bench *bench_new(void)
{
    struct bench *b = mem_zalloc(1, sizeof *b);
    arena_init(&b->arena, 1 << 20);
    b->pool = buf_pool_new(1 << 20);
    writer_init(&b->w, b->pool);
    return b;
}

static void bench_free(struct bench *b)
{
    arena_fini(&b->arena);
    writer_fini(&b->w);
    buf_pool_free(b->pool);
    mem_free(b);
}

/* Decodes from memory of exactly that size, so that ASan sees a read past it. */
static enum err decode_exact(const struct wire_schema *s, int16_t version, const void *data, size_t size,
                             struct arena *a)
{
    uint8_t *copy = mem_alloc(size);
    if (size) memcpy(copy, data, size);
    void *m = mem_alloc(s->size);
    struct reader r = reader_of(copy, size);
    enum err e = wire_decode(s, m, version, &r, a);
    if (e) assert_memory_equal(m, s->default_value, s->size);
    mem_free(m);
    mem_free(copy);
    return e;
}

#define DECODE(b, schema, version, ...) \
    decode_exact(&schema, version, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}), &(b)->arena)

static void truncate_row(const struct golden *g, void *arg)
{
    struct arena *a = arg;
    for (size_t size = 0; size < g->size; size++) {
        enum err e = decode_exact(g->schema, g->version, g->data, size, a);
        if (e != ERR_TRUNCATED && e != ERR_CORRUPT)
            fail_msg("line %d: the first %zu of %zu bytes give %s", g->line, size, g->size, err_name(e));
        arena_reset(a);
    }
}

static void a_message_cut_anywhere_is_refused_and_nothing_is_read_past_its_end(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    assert_int_equal(golden_each(truncate_row, &a), 2073);
    arena_fini(&a);
}

/* Damages each byte in turn.  What still decodes must encode, and then decode to something that prints the same. */
static void damage_row(const struct golden *g, void *arg)
{
    struct bench *b = arg;
    void *m = mem_alloc(g->schema->size);
    for (size_t i = 0; i < g->size; i++) {
        g->data[i] ^= 0xff;
        struct reader r = reader_of(g->data, g->size);
        if (!wire_decode(g->schema, m, g->version, &r, &b->arena)) {
            enum err e = wire_encode(g->schema, m, g->version, &b->w);
            if (e) fail_msg("line %d: byte %zu damaged: encodes with %s", g->line, i, err_name(e));
            struct reader again = reader_of(b->w.buf->data, b->w.size);
            assert_int_equal(wire_decode(g->schema, m, g->version, &again, &b->arena), OK);
            assert_int_equal(reader_left(&again), 0);
        }
        g->data[i] ^= 0xff;
        writer_fini(&b->w);
        arena_reset(&b->arena);
    }
    mem_free(m);
}

static void what_decodes_after_damage_encodes_and_decodes_again(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    golden_each(damage_row, b);
    bench_free(b);
}

static void absurd_counts_and_lengths_allocate_nothing(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    /* Produce v3: transactional id null, acks 1, timeout 1, then the count of topics. */
    assert_int_equal(DECODE(b, produce_request_schema, 3, 0xff, 0xff, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff),
                     ERR_CORRUPT);
    assert_int_equal(DECODE(b, produce_request_schema, 3, 0xff, 0xff, 0, 1, 0, 0, 0, 1, 0x80, 0, 0, 0), ERR_CORRUPT);
    /* One topic more than its six bytes of classic form leave room for. */
    assert_int_equal(
        DECODE(b, produce_request_schema, 3, 0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        ERR_CORRUPT);
    /* v9: a compact count of 2^32 - 1, and of 2^31 which is above what an array can hold. */
    assert_int_equal(DECODE(b, produce_request_schema, 9, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f),
                     ERR_CORRUPT);
    assert_int_equal(DECODE(b, produce_request_schema, 9, 0, 0, 1, 0, 0, 0, 1, 0x81, 0x80, 0x80, 0x80, 0x08),
                     ERR_CORRUPT);
    /* A string of 2^31 - 2 bytes. */
    assert_int_equal(DECODE(b, produce_request_schema, 9, 0xff, 0xff, 0xff, 0xff, 0x07), ERR_CORRUPT);
    assert_int_equal(b->arena.used, 0);
    bench_free(b);
}

static void negative_lengths_other_than_null_are_corrupt(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    assert_int_equal(DECODE(b, produce_request_schema, 3, 0xff, 0xfe, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0), ERR_CORRUPT);
    assert_int_equal(DECODE(b, produce_request_schema, 3, 0xff, 0xff, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe),
                     ERR_CORRUPT);
    assert_int_equal(DECODE(b, sasl_authenticate_request_schema, 0, 0xff, 0xff, 0xff, 0xfe), ERR_CORRUPT);
    bench_free(b);
}

static void null_is_corrupt_where_it_is_not_allowed(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    assert_int_equal(DECODE(b, sasl_authenticate_request_schema, 0, 0xff, 0xff, 0xff, 0xff), ERR_CORRUPT);
    assert_int_equal(DECODE(b, sasl_authenticate_request_schema, 2, 0, 0), ERR_CORRUPT);
    assert_int_equal(DECODE(b, produce_request_schema, 9, 0, 0, 1, 0, 0, 0, 1, 0, 0), ERR_CORRUPT);
    /* Metadata's topics may be null from version 1 on: all topics. */
    assert_int_equal(DECODE(b, metadata_request_schema, 0, 0xff, 0xff, 0xff, 0xff), ERR_CORRUPT);
    assert_int_equal(DECODE(b, metadata_request_schema, 1, 0xff, 0xff, 0xff, 0xff), OK);
    bench_free(b);
}

static void null_and_empty_arrays_differ(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct metadata_request m;
    struct reader r = reader_of("\xff\xff\xff\xff", 4);
    assert_int_equal(metadata_request_decode(&m, 1, &r, &b->arena), OK);
    assert_int_equal(m.topics_count, -1);
    assert_null(m.topics);
    r = reader_of("\0\0\0\0", 4);
    assert_int_equal(metadata_request_decode(&m, 1, &r, &b->arena), OK);
    assert_int_equal(m.topics_count, 0);
    bench_free(b);
}

static void strings_above_32767_bytes_are_refused_both_ways(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    uint8_t *data = mem_zalloc(1, 40000);
    data[0] = 0x81; /* compact length 32768 + 1 */
    data[1] = 0x80;
    data[2] = 0x02;
    assert_int_equal(decode_exact(&produce_request_schema, 9, data, 40000, &b->arena), ERR_CORRUPT);
    data[0] = 0x80; /* one less is a name; a version and no tagged fields follow it */
    data[3 + 32767] = 1;
    assert_int_equal(decode_exact(&api_versions_request_schema, 3, data, 3 + 32767 + 2, &b->arena), OK);

    struct produce_request p = produce_request_default;
    p.transactional_id = (struct str){(const char *)data, 32768};
    assert_int_equal(produce_request_encode(&p, 3, &b->w), ERR_TOO_BIG);
    assert_int_equal(produce_request_encode(&p, 9, &b->w), ERR_TOO_BIG);
    p.transactional_id.size--;
    assert_int_equal(produce_request_encode(&p, 9, &b->w), OK);
    mem_free(data);
    bench_free(b);
}

static void unknown_tagged_fields_are_skipped(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    /* ApiVersions v3: "a", "b"; tags 5 (3 bytes) and 1000 (none). */
    static const uint8_t data[] = {2, 'a', 2, 'b', 2, 5, 3, 'x', 'y', 'z', 0xe8, 0x07, 0, 99};
    struct api_versions_request m;
    struct reader r = reader_of(data, sizeof data);
    assert_int_equal(api_versions_request_decode(&m, 3, &r, &b->arena), OK);
    assert_true(str_is(m.client_software_name, "a"));
    assert_true(str_is(m.client_software_version, "b"));
    assert_int_equal(reader_left(&r), 1); /* what follows is the caller's */
    bench_free(b);
}

static void tags_must_rise(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    assert_int_equal(DECODE(b, api_versions_request_schema, 3, 1, 1, 2, 5, 0, 6, 0), OK);
    assert_int_equal(DECODE(b, api_versions_request_schema, 3, 1, 1, 2, 5, 0, 5, 0), ERR_CORRUPT);
    assert_int_equal(DECODE(b, api_versions_request_schema, 3, 1, 1, 2, 5, 0, 4, 0), ERR_CORRUPT);
    assert_int_equal(DECODE(b, api_versions_request_schema, 3, 1, 1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0), OK);
    assert_int_equal(DECODE(b, api_versions_request_schema, 3, 1, 1, 2, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0),
                     ERR_CORRUPT);
    bench_free(b);
}

static void a_known_tag_must_fill_its_size(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    /* ApiVersions response v3: error 0, no keys, throttle 0; tag 1 is FinalizedFeaturesEpoch, int64. */
    assert_int_equal(DECODE(b, api_versions_response_schema, 3, 0, 0, 1, 0, 0, 0, 0, 1, 1, 8, 0, 0, 0, 0, 0, 0, 0, 7),
                     OK);
    assert_int_equal(
        DECODE(b, api_versions_response_schema, 3, 0, 0, 1, 0, 0, 0, 0, 1, 1, 9, 0, 0, 0, 0, 0, 0, 0, 7, 0),
        ERR_CORRUPT);
    assert_int_equal(DECODE(b, api_versions_response_schema, 3, 0, 0, 1, 0, 0, 0, 0, 1, 1, 7, 0, 0, 0, 0, 0, 0, 0, 7),
                     ERR_TRUNCATED);
    /* A size that ends behind the message. */
    assert_int_equal(DECODE(b, api_versions_response_schema, 3, 0, 0, 1, 0, 0, 0, 0, 1, 9, 0x7f, 0), ERR_TRUNCATED);
    bench_free(b);
}

static void arrays_past_the_arenas_limit_are_too_big(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct metadata_request m = metadata_request_default;
    struct metadata_request_metadata_request_topic *topics = mem_zalloc(1000, sizeof *topics);
    for (int i = 0; i < 1000; i++) {
        topics[i] = metadata_request_metadata_request_topic_default;
        topics[i].name = STR("t");
    }
    m.topics = topics;
    m.topics_count = 1000;
    assert_int_equal(metadata_request_encode(&m, 12, &b->w), OK);
    arena_init(&b->arena, 1000);
    assert_int_equal(decode_exact(&metadata_request_schema, 12, b->w.buf->data, b->w.size, &b->arena), ERR_TOO_BIG);
    arena_init(&b->arena, 1000 * sizeof *topics);
    assert_int_equal(decode_exact(&metadata_request_schema, 12, b->w.buf->data, b->w.size, &b->arena), OK);
    mem_free(topics);
    bench_free(b);
}

static void versions_outside_the_schema_are_refused(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    assert_int_equal(DECODE(b, produce_request_schema, 14, 0), ERR_VERSION);
    assert_int_equal(DECODE(b, produce_request_schema, -1, 0), ERR_VERSION);
    assert_int_equal(DECODE(b, produce_request_schema, INT16_MAX, 0), ERR_VERSION);
    assert_int_equal(produce_request_encode(&produce_request_default, 14, &b->w), ERR_VERSION);
    assert_int_equal(writer_size(&b->w), 0);
    bench_free(b);
}

static void fields_a_version_lacks_get_their_defaults(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    static const uint8_t data[] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 100, 0, 0, 0, 1, 0, 0, 0, 0};
    struct fetch_request m;
    struct reader r = reader_of(data, sizeof data);
    assert_int_equal(fetch_request_decode(&m, 0, &r, &b->arena), OK);
    assert_int_equal(m.replica_id, -1);
    assert_int_equal(m.max_wait_ms, 100);
    assert_int_equal(m.max_bytes, INT32_MAX);
    assert_int_equal(m.session_epoch, -1);
    assert_int_equal(m.replica_state.replica_id, -1);
    assert_true(str_is_null(m.cluster_id));
    assert_true(str_is(m.rack_id, ""));
    bench_free(b);
}

static void a_value_that_a_version_lacks_is_dropped_only_if_ignorable(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct fetch_request f = fetch_request_default;
    f.max_bytes = 5; /* ignorable, from version 3 on */
    assert_int_equal(fetch_request_encode(&f, 0, &b->w), OK);
    struct fetch_request_fetch_partition part = fetch_request_fetch_partition_default;
    struct fetch_request_fetch_topic topic = fetch_request_fetch_topic_default;
    topic.partitions = &part;
    topic.partitions_count = 1;
    f.topics = &topic;
    f.topics_count = 1;
    part.last_fetched_epoch = 3; /* not ignorable, from version 12 on */
    assert_int_equal(fetch_request_encode(&f, 12, &b->w), OK);
    assert_int_equal(fetch_request_encode(&f, 11, &b->w), ERR_UNSUPPORTED);
    part.last_fetched_epoch = -1;
    assert_int_equal(fetch_request_encode(&f, 11, &b->w), OK);

    struct produce_request p = produce_request_default;
    p.transactional_id = STR("tx"); /* not ignorable, from version 3 on */
    assert_int_equal(produce_request_encode(&p, 2, &b->w), ERR_UNSUPPORTED);
    bench_free(b);
}

static void null_is_not_encoded_where_it_is_not_allowed(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct metadata_request m = metadata_request_default;
    m.topics_count = -1;
    assert_int_equal(metadata_request_encode(&m, 0, &b->w), ERR_UNSUPPORTED);
    assert_int_equal(metadata_request_encode(&m, 1, &b->w), OK);
    struct api_versions_request a = api_versions_request_default;
    a.client_software_name = STR_NULL;
    assert_int_equal(api_versions_request_encode(&a, 3, &b->w), ERR_UNSUPPORTED);
    bench_free(b);
}

static void nullable_structs_are_pointers(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct consumer_group_heartbeat_response m = consumer_group_heartbeat_response_default, back;
    assert_null(m.assignment);
    struct consumer_group_heartbeat_response_assignment assignment =
        consumer_group_heartbeat_response_assignment_default;
    m.assignment = &assignment;
    assert_int_equal(consumer_group_heartbeat_response_encode(&m, 0, &b->w), OK);
    struct reader r = reader_of(b->w.buf->data, b->w.size);
    assert_int_equal(consumer_group_heartbeat_response_decode(&back, 0, &r, &b->arena), OK);
    assert_non_null(back.assignment);
    assert_int_equal(back.assignment->topic_partitions_count, 0);
    bench_free(b);
}

static void a_tagged_array_that_is_not_at_its_default_survives_being_empty(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    /* PartitionChangeRecord: a null ISR is no change (the default), an empty one is an empty ISR. */
    struct partition_change_record m = partition_change_record_default, back;
    assert_int_equal(m.isr_count, -1);
    m.isr_count = 0;
    assert_int_equal(partition_change_record_encode(&m, 0, &b->w), OK);
    struct reader r = reader_of(b->w.buf->data, b->w.size);
    assert_int_equal(partition_change_record_decode(&back, 0, &r, &b->arena), OK);
    assert_int_equal(back.isr_count, 0);
    bench_free(b);
}

/* ---------------------------------------------------------------- records */

static int released;

static void count_release(void *owner)
{
    (void)owner;
    released++;
}

/* A Fetch answer of one partition. */
struct answer {
    struct fetch_response m;
    struct fetch_response_fetchable_topic_response topic;
    struct fetch_response_partition_data part;
};

static void answer_init(struct answer *a)
{
    a->part = fetch_response_partition_data_default;
    a->topic = fetch_response_fetchable_topic_response_default;
    a->topic.partitions = &a->part;
    a->topic.partitions_count = 1;
    a->m = fetch_response_default;
    a->m.responses = &a->topic;
    a->m.responses_count = 1;
}

static void splices_go_out_as_if_they_had_been_copied(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct fetch_response_node_endpoint nodes[40]; /* a tagged value of more than 127 bytes, behind the splices */
    for (int i = 0; i < 40; i++) {
        nodes[i] = fetch_response_node_endpoint_default;
        nodes[i].host = STR("a-host-with-a-name");
    }
    struct answer a;
    answer_init(&a);
    a.m.node_endpoints = nodes;
    a.m.node_endpoints_count = 40;
    a.part.records.bytes = (struct bytes){(const uint8_t *)"0123456789", 10};
    assert_int_equal(fetch_response_encode(&a.m, 16, &b->w), OK);

    released = 0;
    struct splice splices[] = {
        {.data = (const uint8_t *)"01234", .size = 5, .release = count_release},
        {.data = (const uint8_t *)"56789", .size = 5, .release = count_release},
    };
    a.part.records = (struct records){.splices = splices, .splice_count = 2};
    struct writer w;
    writer_init(&w, b->pool);
    assert_int_equal(fetch_response_encode(&a.m, 16, &w), OK);
    assert_int_equal(writer_size(&w), writer_size(&b->w));
    assert_int_equal(w.size, b->w.size - 10);
    uint8_t *flat = mem_alloc(writer_size(&w));
    writer_flatten(&w, flat);
    assert_memory_equal(flat, b->w.buf->data, b->w.size);

    struct fetch_response back;
    struct reader r = reader_of(flat, writer_size(&w));
    assert_int_equal(fetch_response_decode(&back, 16, &r, &b->arena), OK);
    assert_memory_equal(back.responses[0].partitions[0].records.bytes.data, "0123456789", 10);
    assert_int_equal(back.node_endpoints_count, 40);
    mem_free(flat);
    assert_int_equal(released, 0);
    writer_fini(&w);
    assert_int_equal(released, 2);
    bench_free(b);
}

static void splices_belong_to_the_writer_even_when_encoding_fails(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct answer a;
    answer_init(&a);
    struct splice splice = {.data = (const uint8_t *)"x", .size = 1, .release = count_release};
    a.part.records = (struct records){.splices = &splice, .splice_count = 1};
    a.part.aborted_transactions_count = -1;
    a.topic.topic = STR_NULL; /* before the splice, and not allowed */
    released = 0;
    assert_int_equal(fetch_response_encode(&a.m, 12, &b->w), ERR_UNSUPPORTED);
    writer_fini(&b->w);
    assert_int_equal(released, 1);
    bench_free(b);
}

static void null_and_empty_records_differ(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct answer a;
    answer_init(&a);
    for (int empty = 0; empty <= 1; empty++) {
        if (empty) a.part.records.bytes = (struct bytes){(const uint8_t *)"", 0};
        assert_int_equal(fetch_response_encode(&a.m, 4, &b->w), OK);
        struct fetch_response back;
        struct reader r = reader_of(b->w.buf->data, b->w.size);
        assert_int_equal(fetch_response_decode(&back, 4, &r, &b->arena), OK);
        struct bytes got = back.responses[0].partitions[0].records.bytes;
        assert_int_equal(got.data != NULL, empty);
        assert_int_equal(got.size, 0);
        writer_fini(&b->w);
    }
    bench_free(b);
}

/* ---------------------------------------------------------------- prefixes */

static void a_coordinators_key_starts_with_its_kind(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct offset_commit_key key = offset_commit_key_default, back;
    key.group = STR("g");
    key.topic = STR("t");
    key.partition = 7;
    assert_int_equal(offset_commit_key_encode_prefixed(&key, &b->w), OK);
    assert_memory_equal(b->w.buf->data, "\0\1\0\1g\0\1t\0\0\0\7", b->w.size);
    int16_t kind;
    assert_true(wire_prefix_peek((struct bytes){b->w.buf->data, b->w.size}, &kind));
    assert_int_equal(kind, OFFSET_COMMIT_KEY_ID);
    struct reader r = reader_of(b->w.buf->data, b->w.size);
    assert_int_equal(offset_commit_key_decode_prefixed(&back, &r, &b->arena), OK);
    assert_true(str_is(back.topic, "t"));
    struct group_metadata_key other;
    r = reader_of(b->w.buf->data, b->w.size);
    assert_int_equal(group_metadata_key_decode_prefixed(&other, &r, &b->arena), ERR_NOT_FOUND);
    assert_false(wire_prefix_peek((struct bytes){(const uint8_t *)"", 1}, &kind));
    bench_free(b);
}

static void a_coordinators_value_starts_with_its_version(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct offset_commit_value value = offset_commit_value_default, back;
    value.offset = 42;
    assert_int_equal(offset_commit_value_encode_prefixed(&value, 3, &b->w), OK);
    struct reader r = reader_of(b->w.buf->data, b->w.size);
    int16_t version = -1;
    assert_int_equal(offset_commit_value_decode_prefixed(&back, &version, &r, &b->arena), OK);
    assert_int_equal(version, 3);
    assert_int_equal(back.offset, 42);
    r = reader_of("\0\5", 2);
    assert_int_equal(offset_commit_value_decode_prefixed(&back, &version, &r, &b->arena), ERR_VERSION);
    r = reader_of("\0", 1);
    assert_int_equal(offset_commit_value_decode_prefixed(&back, &version, &r, &b->arena), ERR_TRUNCATED);
    bench_free(b);
}

static void a_newer_consumers_subscription_is_read_as_the_newest_we_know(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct consumer_protocol_subscription s = consumer_protocol_subscription_default, back;
    struct str topic = STR("t");
    s.topics = &topic;
    s.topics_count = 1;
    assert_int_equal(consumer_protocol_subscription_encode_prefixed(&s, 3, &b->w), OK);
    b->w.buf->data[1] = 9;
    struct reader r = reader_of(b->w.buf->data, b->w.size);
    int16_t version;
    assert_int_equal(consumer_protocol_subscription_decode_prefixed(&back, &version, &r, &b->arena), OK);
    assert_int_equal(version, 3);
    assert_true(str_is(back.topics[0], "t"));
    bench_free(b);
}

/* ---------------------------------------------------------------- printing */

static void assert_written(struct bench *b, const char *want)
{
    struct str got = {b->w.size ? (const char *)b->w.buf->data : "", b->w.size};
    if (!str_is(got, want)) fail_msg("want %s\n got %.*s", want, STR_ARG(got));
    writer_fini(&b->w);
}

static void text_prints_as_valid_json(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct api_versions_request m = api_versions_request_default;
    m.client_software_name = STR("a\"b\\c\n\x7f\xc3\xa9");
    /* A lone continuation, an overlong slash, a surrogate, a cut character. */
    m.client_software_version = STR("\x80|\xc0\xaf|\xed\xa0\x80|\xf0\x9f\x98");
    api_versions_request_print(&m, 3, &b->w, WIRE_PRINT_FULL);
    assert_written(b, "{\"clientSoftwareName\":\"a\\\"b\\\\c\\u000a\\u007f\xc3\xa9\",\"clientSoftwareVersion\":"
                      "\"\\ufffd|\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd\"}");
    api_versions_request_print(&m, 0, &b->w, WIRE_PRINT_FULL); /* no fields then */
    assert_written(b, "{}");
    bench_free(b);
}

static void logs_shorten_bytes_and_arrays(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct sasl_authenticate_request s = sasl_authenticate_request_default;
    s.auth_bytes = (struct bytes){(const uint8_t *)"\0user\0secret", 12};
    sasl_authenticate_request_print(&s, 2, &b->w, WIRE_PRINT_LOG);
    assert_written(b, "{\"authBytes\":\"<12 bytes>\"}");
    sasl_authenticate_request_print(&s, 2, &b->w, WIRE_PRINT_FULL);
    assert_written(b, "{\"authBytes\":\"AHVzZXIAc2VjcmV0\"}");

    int32_t partitions[18] = {0};
    struct fetch_request_forgotten_topic topic = fetch_request_forgotten_topic_default;
    topic.partitions = partitions;
    topic.partitions_count = 18;
    void *p = &topic;
    struct fetch_request f = fetch_request_default;
    f.forgotten_topics_data = p;
    f.forgotten_topics_data_count = 1;
    fetch_request_print(&f, 7, &b->w, WIRE_PRINT_LOG);
    struct str got = {(const char *)b->w.buf->data, b->w.size};
    static const char want[] = "\"partitions\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,\"<2 more>\"]}]}";
    assert_true(got.size > strlen(want));
    assert_memory_equal(got.data + got.size - strlen(want), want, strlen(want));
    bench_free(b);
}

static void records_print_by_size_when_they_are_splices(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct produce_request_partition_produce_data part = produce_request_partition_produce_data_default;
    struct splice splices[] = {{.fd = 3, .size = 100}, {.fd = 3, .size = 11}};
    part.records = (struct records){.splices = splices, .splice_count = 2};
    struct produce_request_topic_produce_data topic = produce_request_topic_produce_data_default;
    topic.partition_data = &part;
    topic.partition_data_count = 1;
    struct produce_request p = produce_request_default;
    p.topic_data = &topic;
    p.topic_data_count = 1;
    produce_request_print(&p, 0, &b->w, WIRE_PRINT_FULL);
    assert_written(b, "{\"acks\":0,\"timeoutMs\":0,\"topicData\":[{\"name\":\"\",\"partitionData\":[{\"index\":0,"
                      "\"records\":\"<111 bytes>\"}]}]}");
    bench_free(b);
}

static void numbers_that_json_lacks_print_as_text(void **state)
{
    (void)state;
    struct bench *b = bench_new();
    struct describe_client_quotas_response_value_data values[] = {
        {.key = STR_EMPTY, .value = 1.0}, {.key = STR_EMPTY, .value = 0.1}, {.key = STR_EMPTY, .value = 1e300}};
    values[0].value = 1.0 / 0.0;
    struct describe_client_quotas_response_entry_data entry = describe_client_quotas_response_entry_data_default;
    entry.values = values;
    entry.values_count = 3;
    struct describe_client_quotas_response m = describe_client_quotas_response_default;
    m.entries = &entry;
    m.entries_count = 1;
    describe_client_quotas_response_print(&m, 0, &b->w, WIRE_PRINT_FULL);
    assert_written(b, "{\"throttleTimeMs\":0,\"errorCode\":0,\"errorMessage\":\"\",\"entries\":[{\"entity\":[],"
                      "\"values\":[{\"key\":\"\",\"value\":\"Infinity\"},{\"key\":\"\",\"value\":0.10000000000000001},"
                      "{\"key\":\"\",\"value\":1.0000000000000001e+300}]}]}");
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_cut_anywhere_is_refused_and_nothing_is_read_past_its_end),
        cmocka_unit_test(what_decodes_after_damage_encodes_and_decodes_again),
        cmocka_unit_test(absurd_counts_and_lengths_allocate_nothing),
        cmocka_unit_test(negative_lengths_other_than_null_are_corrupt),
        cmocka_unit_test(null_is_corrupt_where_it_is_not_allowed),
        cmocka_unit_test(null_and_empty_arrays_differ),
        cmocka_unit_test(strings_above_32767_bytes_are_refused_both_ways),
        cmocka_unit_test(unknown_tagged_fields_are_skipped),
        cmocka_unit_test(tags_must_rise),
        cmocka_unit_test(a_known_tag_must_fill_its_size),
        cmocka_unit_test(arrays_past_the_arenas_limit_are_too_big),
        cmocka_unit_test(versions_outside_the_schema_are_refused),
        cmocka_unit_test(fields_a_version_lacks_get_their_defaults),
        cmocka_unit_test(a_value_that_a_version_lacks_is_dropped_only_if_ignorable),
        cmocka_unit_test(null_is_not_encoded_where_it_is_not_allowed),
        cmocka_unit_test(nullable_structs_are_pointers),
        cmocka_unit_test(a_tagged_array_that_is_not_at_its_default_survives_being_empty),
        cmocka_unit_test(splices_go_out_as_if_they_had_been_copied),
        cmocka_unit_test(splices_belong_to_the_writer_even_when_encoding_fails),
        cmocka_unit_test(null_and_empty_records_differ),
        cmocka_unit_test(a_coordinators_key_starts_with_its_kind),
        cmocka_unit_test(a_coordinators_value_starts_with_its_version),
        cmocka_unit_test(a_newer_consumers_subscription_is_read_as_the_newest_we_know),
        cmocka_unit_test(text_prints_as_valid_json),
        cmocka_unit_test(logs_shorten_bytes_and_arrays),
        cmocka_unit_test(records_print_by_size_when_they_are_splices),
        cmocka_unit_test(numbers_that_json_lacks_print_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
