/* group/records: the bytes of keys and values, against those that Apache Kafka's classes wrote (protocol/golden.tsv),
 * and what a commit makes of a request. */
#include "group_log.h"

#include "wire/gen/offset_commit_key.h"
#include "wire/gen/offset_commit_value.h"
#include "wire_golden.h"

/* ---- What the golden rows hold, written by us */

struct row {
    const char *name, *fill;
    int version;
    struct bytes data; /* copied */
    struct world *w;
};

static void row_visit(const struct golden *g, void *arg)
{
    struct row *row = arg;
    if (strcmp(g->name, row->name) != 0 || g->version != row->version || strcmp(g->fill, row->fill) != 0) return;
    if (strcmp(g->kind, "record") != 0) return;
    row->data = world_copy(row->w, (struct bytes){g->data, g->size});
}

/* The body that Kafka wrote, without the prefix. */
static struct bytes golden(struct world *w, const char *name, int version, const char *fill)
{
    struct row row = {name, fill, version, {NULL, 0}, w};
    golden_each(row_visit, &row);
    assert_non_null(row.data.data);
    return row.data;
}

static void check_prefixed(struct bytes got, int prefix, struct bytes body)
{
    assert_int_equal(got.size, 2 + body.size);
    assert_int_equal((int16_t)get_be16(got.data), prefix);
    assert_memory_equal(got.data + 2, body.data, body.size);
}

static void no_outcome(struct group_shard *sh, struct group_write *w, enum kerr kerr)
{
    (void)sh;
    (void)w;
    (void)kerr;
}

/* What is in `gw` comes to the test as the host would get it. */
static const struct group_record *sent(struct world *w, struct group_write *gw)
{
    group_write_send(gw);
    assert_int_equal(w->pending_count, 1);
    return gw->records;
}

static struct group_offset golden_offset(struct world *w, int version)
{
    struct bytes body = golden(w, "OffsetCommitValue", version, "filled");
    struct offset_commit_value v;
    struct reader r = reader_of(body.data, body.size);
    assert_int_equal(offset_commit_value_decode(&v, (int16_t)version, &r, &w->arena), OK);
    return (struct group_offset){.offset = v.offset,
                                 .leader_epoch = v.leader_epoch,
                                 .metadata = v.metadata,
                                 .commit_ms = v.commit_timestamp,
                                 .expire_ms = v.expire_timestamp};
}

static void check_offset_value(int version)
{
    struct world w;
    world_start(&w);
    struct group *grp = group_make(w.sh, STR("g"));
    struct group_write *gw = group_write_new(grp, no_outcome);
    struct group_offset offset = golden_offset(&w, version);
    group_write_offset(gw, grp, STR("t"), 3, &offset);
    check_prefixed(sent(&w, gw)[0].value, version, golden(&w, "OffsetCommitValue", version, "filled"));
    world_stop(&w);
}

static void test_an_offset_is_written_in_version_3(void **state)
{
    (void)state;
    check_offset_value(3);
}

static void test_an_offset_with_an_end_of_its_own_is_written_in_version_1(void **state)
{
    (void)state;
    check_offset_value(1);
}

static void test_an_offsets_key_is_kafkas(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct bytes body = golden(&w, "OffsetCommitKey", 0, "filled");
    struct offset_commit_key k;
    struct reader r = reader_of(body.data, body.size);
    assert_int_equal(offset_commit_key_decode(&k, 0, &r, &w.arena), OK);
    struct group *grp = group_make(w.sh, k.group);
    struct group_write *gw = group_write_new(grp, no_outcome);
    group_write_offset_tombstone(gw, grp, k.topic, k.partition);
    const struct group_record *rec = sent(&w, gw);
    check_prefixed(rec->key, 1, body);
    assert_null(rec->value.data);
    assert_int_equal(rec->value.size, 0);
    assert_int_equal(gw->bytes, rec->key.size);
    world_stop(&w);
}

static void test_a_groups_key_is_kafkas(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct bytes body = golden(&w, "GroupMetadataKey", 0, "filled");
    struct group_metadata_key k;
    struct reader r = reader_of(body.data, body.size);
    assert_int_equal(group_metadata_key_decode(&k, 0, &r, &w.arena), OK);
    struct group *grp = group_make(w.sh, k.group);
    struct group_write *gw = group_write_new(grp, no_outcome);
    group_write_tombstone(gw, grp);
    const struct group_record *rec = sent(&w, gw);
    check_prefixed(rec->key, 2, body);
    assert_null(rec->value.data);
    world_stop(&w);
}

static struct bytes own_assignment(const struct group_member *m, void *arg)
{
    (void)arg;
    return m->assignment;
}

/* Read by replaying, written again. */
static void test_a_group_is_written_in_version_3(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct bytes body = golden(&w, "GroupMetadataValue", 3, "filled");
    uint8_t *value = arena_alloc(&w.arena, 2 + body.size);
    put_be16(value, 3);
    memcpy(value + 2, body.data, body.size);
    struct group_metadata_key k = {STR("g")};
    struct bytes key = encoded(&w, &group_metadata_key_schema, &k, 0);
    log_append(&w, (struct entry){ENTRY_RECORD, -1, key, {value, 2 + body.size}});
    log_reload(&w);

    struct group *grp = group_find(w.sh, STR("g"));
    mem_free(grp->leader); /* Kafka's test data names one that is no member */
    grp->leader = mem_strdup("leader-4");
    struct group_write *gw = group_write_new(grp, no_outcome);
    group_write_metadata(gw, grp, own_assignment, NULL);
    check_prefixed(sent(&w, gw)[0].value, 3, body);
    world_stop(&w);
}

static void test_a_group_without_members_has_neither_protocol_nor_leader(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct group *grp = group_make(w.sh, STR("g"));
    grp->generation = 258;
    grp->state_since_ms = 1;
    struct group_write *gw = group_write_new(grp, no_outcome);
    group_write_metadata(gw, grp, own_assignment, NULL);
    static const uint8_t value[] = {0, 3, 0, 0, 0, 0, 1, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
    const struct group_record *rec = sent(&w, gw);
    assert_int_equal(rec->value.size, sizeof value);
    assert_memory_equal(rec->value.data, value, sizeof value);
    world_stop(&w);
}

/* ---- What a commit makes of a request */

static struct offset_commit_value committed_value(struct world *w, size_t record)
{
    assert_int_equal(w->pending_count, 1);
    struct bytes b = w->pending[0]->records[record].value;
    struct reader r = reader_of(b.data, b.size);
    struct offset_commit_value v;
    assert_int_equal(offset_commit_value_decode_prefixed(&v, NULL, &r, &w->arena), OK);
    assert_int_equal(reader_left(&r), 0);
    return v;
}

static int16_t value_version(const struct world *w, size_t record)
{
    return (int16_t)get_be16(w->pending[0]->records[record].value.data);
}

static void test_a_commit_is_one_write_of_a_record_a_partition(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7, "note", 3}, {"t", 1, 8}, {"u", 0, 9}, {"u", 1, 1, "far too long"}, {"v", 2, 3}));
    assert_int_equal(w.pending_count, 1);
    assert_int_equal(w.pending[0]->count, 4);
    size_t bytes = 0;
    for (size_t i = 0; i < 4; i++) {
        const struct group_record *rec = &w.pending[0]->records[i];
        bytes += rec->key.size + rec->value.size;
        assert_int_equal(value_version(&w, i), 3);
    }
    assert_int_equal(w.pending[0]->bytes, bytes);
    struct offset_commit_value v = committed_value(&w, 0);
    assert_int_equal(v.offset, 7);
    assert_int_equal(v.leader_epoch, 3);
    assert_true(str_is(v.metadata, "note"));
    assert_int_equal(v.commit_timestamp, START_MS);
    assert_true(str_is(committed_value(&w, 1).metadata, ""));
    assert_int_equal(committed_value(&w, 3).offset, 3);
    world_stop(&w);
}

static void test_a_retention_time_becomes_the_offsets_end(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit_as(&w, &(struct commit_spec){
                      .group = "g", .generation = -1, .retention_ms = 5000, .parts = PARTS({"t", 0, 7, "note", 3})});
    assert_int_equal(value_version(&w, 0), 1);
    struct offset_commit_value v = committed_value(&w, 0);
    assert_int_equal(v.commit_timestamp, START_MS);
    assert_int_equal(v.expire_timestamp, START_MS + 5000);
    world_stop(&w);
}

static void test_a_commit_may_bring_its_own_time(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7, .commit_ms = 12345}, {"t", 1, 7}));
    assert_int_equal(committed_value(&w, 0).commit_timestamp, 12345);
    assert_int_equal(committed_value(&w, 1).commit_timestamp, START_MS);
    world_stop(&w);
}

static void test_a_retention_past_the_end_of_time_is_taken_as_it_is(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit_as(&w, &(struct commit_spec){
                      .group = "g", .generation = -1, .retention_ms = INT64_MAX, .parts = PARTS({"t", 0, 7})});
    assert_int_equal(committed_value(&w, 0).expire_timestamp, INT64_MIN + START_MS - 1);
    world_stop(&w);
}

/* ---- What a failed write means, GroupMetadataManager's tables */

static void test_a_lost_commit_is_told_as_kafka_does(void **state)
{
    (void)state;
    static const enum kerr told[][2] = {
        {KERR_NONE, KERR_NONE},
        {KERR_NETWORK_EXCEPTION, KERR_COORDINATOR_LOAD_IN_PROGRESS},
        {KERR_UNKNOWN_TOPIC_OR_PARTITION, KERR_COORDINATOR_NOT_AVAILABLE},
        {KERR_NOT_ENOUGH_REPLICAS, KERR_COORDINATOR_NOT_AVAILABLE},
        {KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, KERR_COORDINATOR_NOT_AVAILABLE},
        {KERR_NOT_LEADER_OR_FOLLOWER, KERR_NOT_COORDINATOR},
        {KERR_KAFKA_STORAGE_ERROR, KERR_NOT_COORDINATOR},
        {KERR_MESSAGE_TOO_LARGE, KERR_INVALID_COMMIT_OFFSET_SIZE},
        {KERR_RECORD_LIST_TOO_LARGE, KERR_INVALID_COMMIT_OFFSET_SIZE},
        {KERR_INVALID_FETCH_SIZE, KERR_INVALID_COMMIT_OFFSET_SIZE},
        {KERR_REQUEST_TIMED_OUT, KERR_REQUEST_TIMED_OUT},
        {KERR_UNKNOWN_SERVER_ERROR, KERR_UNKNOWN_SERVER_ERROR},
    };
    for (size_t i = 0; i < ARRAY_COUNT(told); i++) assert_int_equal(group_commit_kerr(told[i][0]), told[i][1]);
}

static void test_a_lost_assignment_is_told_as_kafka_does(void **state)
{
    (void)state;
    static const enum kerr told[][2] = {
        {KERR_NONE, KERR_NONE},
        {KERR_UNKNOWN_TOPIC_OR_PARTITION, KERR_COORDINATOR_NOT_AVAILABLE},
        {KERR_NOT_ENOUGH_REPLICAS, KERR_COORDINATOR_NOT_AVAILABLE},
        {KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, KERR_COORDINATOR_NOT_AVAILABLE},
        {KERR_NOT_LEADER_OR_FOLLOWER, KERR_NOT_COORDINATOR},
        {KERR_KAFKA_STORAGE_ERROR, KERR_NOT_COORDINATOR},
        {KERR_REQUEST_TIMED_OUT, KERR_REBALANCE_IN_PROGRESS},
        {KERR_MESSAGE_TOO_LARGE, KERR_UNKNOWN_SERVER_ERROR},
        {KERR_RECORD_LIST_TOO_LARGE, KERR_UNKNOWN_SERVER_ERROR},
        {KERR_INVALID_FETCH_SIZE, KERR_UNKNOWN_SERVER_ERROR},
        {KERR_NETWORK_EXCEPTION, KERR_NETWORK_EXCEPTION},
    };
    for (size_t i = 0; i < ARRAY_COUNT(told); i++) assert_int_equal(group_assignment_kerr(told[i][0]), told[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_offset_is_written_in_version_3),
        cmocka_unit_test(test_an_offset_with_an_end_of_its_own_is_written_in_version_1),
        cmocka_unit_test(test_an_offsets_key_is_kafkas),
        cmocka_unit_test(test_a_groups_key_is_kafkas),
        cmocka_unit_test(test_a_group_is_written_in_version_3),
        cmocka_unit_test(test_a_group_without_members_has_neither_protocol_nor_leader),
        cmocka_unit_test(test_a_commit_is_one_write_of_a_record_a_partition),
        cmocka_unit_test(test_a_retention_time_becomes_the_offsets_end),
        cmocka_unit_test(test_a_commit_may_bring_its_own_time),
        cmocka_unit_test(test_a_retention_past_the_end_of_time_is_taken_as_it_is),
        cmocka_unit_test(test_a_lost_commit_is_told_as_kafka_does),
        cmocka_unit_test(test_a_lost_assignment_is_told_as_kafka_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
