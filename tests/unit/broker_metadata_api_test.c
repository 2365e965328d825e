/* broker_metadata_api_test.c: what Metadata, DescribeCluster and DescribeTopicPartitions answer from a known cluster.
 * Expected codes are those of Apache Kafka 3.9 in ZooKeeper mode (KafkaApis, ZkMetadataCache). */
#include "broker_bed.h"

#include <stdio.h>

#include "broker/api/handlers.h"
#include "broker/auto_create.h"
#include "broker/server.h"
#include "wire/gen/describe_cluster.h"
#include "wire/gen/describe_topic_partitions.h"
#include "wire/gen/metadata.h"

typedef struct metadata_response_metadata_response_topic topic;
typedef struct update_metadata_request_update_metadata_partition_state partition_state;

static const struct uuid ID_A = {{1}}, ID_B = {{2}}, ID_NOBODYS = {{9}};

static struct {
    struct loop *loop;
    struct broker br;
    struct listener_state listener;
    struct conn conn;
    struct request rq;
    struct auto_create *creating; /* what was asked of the controller */
    unsigned creations, woken;
} w;

/* ---- What is not under test here */

void *request_op(struct request *rq, size_t size)
{
    if (!rq->op) rq->op = arena_alloc(&rq->arena, size);
    return rq->op;
}

void request_wake(struct request *rq)
{
    (void)rq;
    w.woken++;
}

void auto_create_topics(struct auto_create *ac)
{
    ac->kerr = arena_array(&ac->rq->arena, enum kerr, (size_t)ac->count);
    w.creating = ac;
    w.creations++;
}

/* ---- The cluster: broker 1 has both listeners, broker 2 only INTERNAL, broker 3 is dead. */

static partition_state state_of(int32_t index, int32_t leader, int32_t *replicas, int32_t count)
{
    partition_state s = update_metadata_request_update_metadata_partition_state_default;
    s.partition_index = index;
    s.leader = leader;
    s.leader_epoch = 5;
    s.replicas = s.isr = replicas;
    s.replicas_count = s.isr_count = count;
    return s;
}

static void publish_topic(const char *name)
{
    int32_t first[] = {1};
    partition_state p = state_of(0, 1, first, 1);
    struct update_metadata_request_update_metadata_topic_state t = {
        .topic_name = str_of(name), .topic_id = {{7}}, .partition_states = &p, .partition_states_count = 1};
    struct update_metadata_request u = update_metadata_request_default;
    u.topic_states = &t;
    u.topic_states_count = 1;
    metadata_update(w.br.metadata, &u);
}

static void publish(void)
{
    struct update_metadata_request_update_metadata_endpoint one[] = {
        {.port = 9092, .host = STR("one"), .listener = STR("PLAINTEXT")},
        {.port = 9093, .host = STR("one.internal"), .listener = STR("INTERNAL")}};
    struct update_metadata_request_update_metadata_endpoint two[] = {
        {.port = 9093, .host = STR("two.internal"), .listener = STR("INTERNAL")}};
    struct update_metadata_request_update_metadata_broker brokers[] = {
        {.id = 2, .endpoints = two, .endpoints_count = 1, .rack = STR_NULL},
        {.id = 1, .endpoints = one, .endpoints_count = 2, .rack = STR("r1")}};
    int32_t both[] = {1, 2}, first[] = {1}, dead[] = {3};
    partition_state a[] = {state_of(0, 1, both, 2), state_of(1, 2, both, 2), state_of(2, 3, dead, 1)};
    a[2].offline_replicas = dead;
    a[2].offline_replicas_count = 1;
    partition_state b[] = {state_of(0, 1, first, 1), state_of(1, 1, first, 1)};
    partition_state o[] = {state_of(0, 1, first, 1)};
    struct update_metadata_request_update_metadata_topic_state topics[] = {
        {.topic_name = STR("b"), .topic_id = ID_B, .partition_states = b, .partition_states_count = 2},
        {.topic_name = STR("a"), .topic_id = ID_A, .partition_states = a, .partition_states_count = 3},
        {.topic_name = STR("__consumer_offsets"), .partition_states = o, .partition_states_count = 1}};
    struct update_metadata_request u = update_metadata_request_default;
    u.controller_id = 1;
    u.live_brokers = brokers;
    u.live_brokers_count = 2;
    u.topic_states = topics;
    u.topic_states_count = 3;
    metadata_update(w.br.metadata, &u);
}

static int setup(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    broker_bed_begin(&w.br, 0, 1, "max.request.partition.size.limit=4");
    w.loop = w.br.loops[0];
    w.br.grace = grace_new(&w.loop, 1);
    w.br.metadata = metadata_new(w.br.grace, w.loop);
    memcpy(w.br.cluster_id, "cluster", sizeof "cluster");
    static char listener[] = "PLAINTEXT";
    w.listener.name = listener;
    w.conn.listener = &w.listener;
    w.rq = (struct request){.broker = &w.br, .loop = w.loop, .conn = &w.conn};
    arena_init(&w.rq.arena, SIZE_MAX);
    publish();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&w.rq.arena);
    broker_bed_turn(&w.br);
    grace_free(w.br.grace);
    metadata_free(w.br.metadata);
    broker_bed_end(&w.br);
    return 0;
}

/* Runs a handler and proves that its answer can be sent in this version. */
static void run(enum step (*handle)(struct request *), const struct wire_schema *schema, const void *in, void *out,
                int16_t version)
{
    w.rq.in = in;
    w.rq.out = out;
    w.rq.op = NULL;
    w.rq.version = version;
    assert_int_equal(handle(&w.rq), DONE);
    struct buf_pool *pool = buf_pool_new(0);
    struct writer writer;
    writer_init(&writer, pool);
    assert_int_equal(wire_encode(schema, out, version, &writer), OK);
    writer_fini(&writer);
    buf_pool_free(pool);
}

/* ---- Metadata */

static struct metadata_response ask_metadata(struct metadata_request in, int16_t version)
{
    struct metadata_response out = metadata_response_default;
    run(metadata_handle, &metadata_response_schema, &in, &out, version);
    return out;
}

static struct metadata_response ask_names(const char *const *names, int32_t count, int16_t version)
{
    struct metadata_request_metadata_request_topic t[8];
    for (int32_t i = 0; i < count; i++)
        t[i] = (struct metadata_request_metadata_request_topic){.name = str_of(names[i])};
    struct metadata_request in = metadata_request_default;
    in.topics = t;
    in.topics_count = count;
    in.allow_auto_topic_creation = false;
    return ask_metadata(in, version);
}

static const topic *topic_named(const struct metadata_response *r, const char *name)
{
    for (int32_t i = 0; i < r->topics_count; i++)
        if (str_is(r->topics[i].name, name)) return &r->topics[i];
    fail_msg("no topic %s in the answer", name);
    return NULL;
}

static void null_is_all_topics_and_empty_is_none_but_in_version_0(void **state)
{
    (void)state;
    struct metadata_request in = metadata_request_default;
    in.topics_count = -1;
    struct metadata_response all = ask_metadata(in, 12);
    assert_int_equal(all.topics_count, 3);
    assert_true(topic_named(&all, "__consumer_offsets")->is_internal);
    assert_false(topic_named(&all, "a")->is_internal);
    in.topics_count = 0;
    assert_int_equal(ask_metadata(in, 0).topics_count, 3);
    assert_int_equal(ask_metadata(in, 1).topics_count, 0);
    assert_int_equal(ask_metadata(in, 13).topics_count, 0);
}

/* What comes late, by a connection that the controller has given up, names leaders of before. */
static void an_older_leader_is_not_believed(void **state)
{
    (void)state;
    static const struct {
        int32_t leader, epoch, believed;
    } told[] = {{2, 6, 2}, {1, 5, 2}, {3, 7, 3}};
    for (size_t i = 0; i < ARRAY_COUNT(told); i++) {
        int32_t replicas[] = {1, 2, 3};
        partition_state p = state_of(0, told[i].leader, replicas, 3);
        p.leader_epoch = told[i].epoch;
        struct update_metadata_request_update_metadata_topic_state t = {
            .topic_name = STR("late"), .topic_id = {{8}}, .partition_states = &p, .partition_states_count = 1};
        struct update_metadata_request u = update_metadata_request_default;
        u.topic_states = &t;
        u.topic_states_count = 1;
        metadata_update(w.br.metadata, &u);
        assert_int_equal(metadata_topic(w.br.metadata, STR("late"))->partitions[0].leader, told[i].believed);
    }
}

static void every_version_can_carry_the_answer(void **state)
{
    (void)state;
    struct metadata_request all = metadata_request_default;
    all.topics_count = -1;
    const char *const names[] = {"a", "none"};
    for (int16_t v = 0; v <= 13; v++) {
        if (v > 0) assert_int_equal(ask_metadata(all, v).topics_count, 3);
        assert_int_equal(ask_names(names, 2, v).topics_count, 2);
    }
}

static void brokers_are_told_by_the_listener_of_the_connection(void **state)
{
    (void)state;
    struct metadata_response r = ask_names(NULL, 0, 12);
    assert_int_equal(r.brokers_count, 1);
    assert_int_equal(r.brokers[0].node_id, 1);
    assert_true(str_is(r.brokers[0].host, "one"));
    assert_int_equal(r.brokers[0].port, 9092);
    assert_true(str_is(r.brokers[0].rack, "r1"));
    assert_true(str_is(r.cluster_id, "cluster"));
    assert_int_equal(r.controller_id, 1);
    static char internal[] = "INTERNAL";
    w.listener.name = internal;
    r = ask_names(NULL, 0, 12);
    assert_int_equal(r.brokers_count, 2);
    assert_true(str_is(r.brokers[1].host, "two.internal"));
    assert_null(r.brokers[1].rack.data);
}

static void a_leader_that_cannot_be_reached_is_said_to_be_missing(void **state)
{
    (void)state;
    const char *const names[] = {"a"};
    struct metadata_response r = ask_names(names, 1, 12);
    const topic *a = topic_named(&r, "a");
    assert_int_equal(a->error_code, KERR_NONE);
    assert_true(uuid_equal(a->topic_id, ID_A));
    assert_int_equal(a->partitions_count, 3);
    assert_int_equal(a->partitions[0].error_code, KERR_NONE);
    assert_int_equal(a->partitions[0].leader_id, 1);
    assert_int_equal(a->partitions[0].leader_epoch, 5);
    assert_int_equal(a->partitions[0].replica_nodes_count, 2);
    assert_int_equal(a->partitions[1].error_code, KERR_LISTENER_NOT_FOUND);
    assert_int_equal(a->partitions[1].leader_id, -1);
    assert_int_equal(a->partitions[1].replica_nodes_count, 2);
    assert_int_equal(a->partitions[2].error_code, KERR_LEADER_NOT_AVAILABLE);
    assert_int_equal(a->partitions[2].leader_id, -1);
    assert_int_equal(a->partitions[2].offline_replicas_count, 1);
    r = ask_names(names, 1, 5);
    assert_int_equal(topic_named(&r, "a")->partitions[1].error_code, KERR_LEADER_NOT_AVAILABLE);
}

static void version_0_names_only_replicas_that_can_be_reached(void **state)
{
    (void)state;
    const char *const names[] = {"a"};
    struct metadata_response r = ask_names(names, 1, 0);
    const topic *a = topic_named(&r, "a");
    assert_int_equal(a->partitions[0].error_code, KERR_REPLICA_NOT_AVAILABLE);
    assert_int_equal(a->partitions[0].leader_id, 1);
    assert_int_equal(a->partitions[0].replica_nodes_count, 1);
    assert_int_equal(a->partitions[0].replica_nodes[0], 1);
    assert_int_equal(a->partitions[0].isr_nodes_count, 1);
}

static void names_that_are_unknown_or_invalid_or_repeated(void **state)
{
    (void)state;
    const char *const names[] = {"none", "b", "no/name", "b", "none"};
    struct metadata_response r = ask_names(names, 5, 12);
    assert_int_equal(r.topics_count, 3);
    assert_int_equal(topic_named(&r, "none")->error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(topic_named(&r, "no/name")->error_code, KERR_INVALID_TOPIC_EXCEPTION);
    assert_int_equal(topic_named(&r, "b")->partitions_count, 2);
}

static void topics_are_found_by_id_from_version_12_on(void **state)
{
    (void)state;
    struct metadata_request_metadata_request_topic t[] = {
        {.topic_id = ID_B}, {.topic_id = ID_NOBODYS}, {.topic_id = ID_B}, {.name = STR("a")}};
    struct metadata_request in = metadata_request_default;
    in.topics = t;
    in.topics_count = 4;
    struct metadata_response r = ask_metadata(in, 12);
    assert_int_equal(r.topics_count, 2);
    assert_int_equal(topic_named(&r, "b")->partitions_count, 2);
    assert_null(r.topics[1].name.data);
    assert_int_equal(r.topics[1].error_code, KERR_UNKNOWN_TOPIC_ID);
    assert_true(uuid_equal(r.topics[1].topic_id, ID_NOBODYS));
    r = ask_metadata(in, 10);
    assert_int_equal(r.topics_count, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(r.topics[i].error_code, KERR_INVALID_REQUEST);
}

static void a_topic_with_neither_name_nor_id_is_refused(void **state)
{
    (void)state;
    struct metadata_request_metadata_request_topic t[] = {{.name = STR("a")}, {.name = STR_NULL}};
    struct metadata_request in = metadata_request_default;
    in.topics = t;
    in.topics_count = 2;
    struct metadata_response r = ask_metadata(in, 13);
    assert_int_equal(r.error_code, KERR_INVALID_REQUEST);
    assert_int_equal(r.topics[1].error_code, KERR_INVALID_REQUEST);
}

static void operations_are_told_only_when_asked_for(void **state)
{
    (void)state;
    const char *const names[] = {"b", "none"};
    struct metadata_response r = ask_names(names, 2, 8);
    assert_int_equal(r.cluster_authorized_operations, INT32_MIN);
    assert_int_equal(r.topics[0].topic_authorized_operations, INT32_MIN);
    struct metadata_request in = metadata_request_default;
    in.topics_count = -1;
    in.include_cluster_authorized_operations = in.include_topic_authorized_operations = true;
    r = ask_metadata(in, 8);
    assert_int_equal(r.cluster_authorized_operations, 8096);
    assert_int_equal(r.topics[0].topic_authorized_operations, 3576);
}

/* ---- Creating topics */

struct creation {
    struct metadata_request_metadata_request_topic topics[1100];
    struct metadata_request in;
    struct metadata_response out;
};

static enum step start(struct creation *c, const char *const *names, int32_t count)
{
    for (int32_t i = 0; i < count; i++) c->topics[i].name = str_of(names[i]);
    c->in = metadata_request_default;
    c->in.topics = c->topics;
    c->in.topics_count = count;
    c->out = metadata_response_default;
    w.rq.in = &c->in;
    w.rq.out = &c->out;
    w.rq.op = NULL;
    w.rq.version = 12;
    return metadata_handle(&w.rq);
}

static void a_missing_topic_is_created_and_the_verdict_told(void **state)
{
    (void)state;
    static struct creation c;
    const char *const names[] = {"new", "b", "bad/name", "new", "refused", "quick"};
    assert_int_equal(start(&c, names, 6), WAIT);
    w.rq.cancelled = true; /* its memory is in use: it must wait all the same */
    assert_int_equal(metadata_handle(&w.rq), WAIT);
    assert_int_equal(w.creating->count, 3);
    assert_true(str_is(w.creating->names[0], "new"));
    assert_true(str_is(w.creating->names[1], "refused"));
    assert_true(str_is(w.creating->names[2], "quick"));
    w.creating->kerr[0] = w.creating->kerr[2] = KERR_LEADER_NOT_AVAILABLE;
    w.creating->kerr[1] = KERR_INVALID_REPLICATION_FACTOR;
    publish_topic("quick");
    w.creating->done(w.creating);
    assert_int_equal(w.woken, 1);
    assert_int_equal(metadata_handle(&w.rq), DONE);
    assert_int_equal(c.out.topics_count, 5);
    assert_int_equal(topic_named(&c.out, "new")->error_code, KERR_LEADER_NOT_AVAILABLE);
    assert_int_equal(topic_named(&c.out, "b")->error_code, KERR_NONE);
    assert_int_equal(topic_named(&c.out, "bad/name")->error_code, KERR_INVALID_TOPIC_EXCEPTION);
    assert_int_equal(topic_named(&c.out, "refused")->error_code, KERR_INVALID_REPLICATION_FACTOR);
    assert_int_equal(topic_named(&c.out, "quick")->error_code, KERR_NONE);
    assert_int_equal(topic_named(&c.out, "quick")->partitions_count, 1);
}

static void nothing_is_created_against_the_clients_or_the_brokers_will(void **state)
{
    (void)state;
    const char *const names[] = {"new"};
    struct metadata_response r = ask_names(names, 1, 12); /* the client does not want it */
    assert_int_equal(topic_named(&r, "new")->error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    static const char *const overrides[] = {"auto.create.topics.enable=false"};
    struct config *cfg;
    struct fault f;
    assert_int_equal(config_load(&cfg, &(struct config_input){.overrides = overrides, .override_count = 1}, &f), OK);
    config_live_give(w.br.config, cfg);
    static struct creation c;
    assert_int_equal(start(&c, names, 1), DONE);
    assert_int_equal(topic_named(&c.out, "new")->error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(w.creations, 0);
}

static void one_request_creates_a_thousand_topics_at_most(void **state)
{
    (void)state;
    static struct creation c;
    static char text[1100][16];
    static const char *names[1100];
    for (int i = 0; i < 1100; i++) {
        snprintf(text[i], sizeof text[i], "n%d", i);
        names[i] = text[i];
    }
    assert_int_equal(start(&c, names, 1100), WAIT);
    assert_int_equal(w.creating->count, 1000);
    for (int i = 0; i < 1000; i++) w.creating->kerr[i] = KERR_LEADER_NOT_AVAILABLE;
    w.creating->done(w.creating);
    assert_int_equal(metadata_handle(&w.rq), DONE);
    assert_int_equal(topic_named(&c.out, "n999")->error_code, KERR_LEADER_NOT_AVAILABLE);
    assert_int_equal(topic_named(&c.out, "n1000")->error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
}

/* ---- DescribeCluster */

static struct describe_cluster_response ask_cluster(struct describe_cluster_request in, int16_t version)
{
    struct describe_cluster_response out = describe_cluster_response_default;
    run(describe_cluster_handle, &describe_cluster_response_schema, &in, &out, version);
    return out;
}

static void the_cluster_is_described(void **state)
{
    (void)state;
    for (int16_t v = 0; v <= 2; v++) {
        struct describe_cluster_response r = ask_cluster(describe_cluster_request_default, v);
        assert_int_equal(r.error_code, KERR_NONE);
        assert_int_equal(r.brokers_count, 1);
        assert_int_equal(r.brokers[0].broker_id, 1);
        assert_int_equal(r.controller_id, 1);
        assert_int_equal(r.cluster_authorized_operations, INT32_MIN);
    }
}

static void a_controller_that_is_not_listed_is_not_named(void **state)
{
    (void)state;
    struct update_metadata_request u = update_metadata_request_default;
    u.controller_id = 7;
    metadata_update(w.br.metadata, &u);
    struct describe_cluster_response r = ask_cluster(describe_cluster_request_default, 0);
    assert_int_equal(r.controller_id, -1);
}

static void other_endpoint_types_are_refused(void **state)
{
    (void)state;
    struct describe_cluster_request in = describe_cluster_request_default;
    in.endpoint_type = 2;
    assert_int_equal(ask_cluster(in, 1).error_code, KERR_MISMATCHED_ENDPOINT_TYPE);
    in.endpoint_type = 3;
    assert_int_equal(ask_cluster(in, 1).error_code, KERR_UNSUPPORTED_ENDPOINT_TYPE);
}

/* ---- DescribeTopicPartitions */

static struct describe_topic_partitions_response ask_partitions(const char *const *names, int32_t count, int32_t limit,
                                                                struct describe_topic_partitions_request_cursor *from)
{
    struct describe_topic_partitions_request_topic_request t[8];
    for (int32_t i = 0; i < count; i++) t[i].name = str_of(names[i]);
    struct describe_topic_partitions_request in = describe_topic_partitions_request_default;
    in.topics = t;
    in.topics_count = count;
    in.response_partition_limit = limit;
    in.cursor = from;
    struct describe_topic_partitions_response out = describe_topic_partitions_response_default;
    run(describe_topic_partitions_handle, &describe_topic_partitions_response_schema, &in, &out, 0);
    return out;
}

static void a_cursor_leads_through_all_topics_in_order(void **state)
{
    (void)state;
    struct describe_topic_partitions_request_cursor cursor, *from = NULL;
    static const char *const names[] = {"__consumer_offsets", "a", "a", "a", "b", "b"};
    size_t seen = 0;
    for (int page = 0; page < 3; page++) {
        struct describe_topic_partitions_response r = ask_partitions(NULL, 0, 2, from);
        for (int32_t i = 0; i < r.topics_count; i++)
            for (int32_t k = 0; k < r.topics[i].partitions_count; k++)
                assert_true(seen < 6 && str_is(r.topics[i].name, names[seen++]));
        assert_true((r.next_cursor == NULL) == (page == 2));
        if (!r.next_cursor) break;
        cursor = (struct describe_topic_partitions_request_cursor){r.next_cursor->topic_name,
                                                                   r.next_cursor->partition_index};
        from = &cursor;
    }
    assert_int_equal(seen, 6);
}

static void the_brokers_limit_holds_too_and_at_least_one_partition_is_given(void **state)
{
    (void)state;
    struct describe_topic_partitions_response r = ask_partitions(NULL, 0, 2000, NULL);
    assert_int_equal(r.topics_count, 2); /* 1 + 3 of 4 allowed */
    assert_true(str_is(r.next_cursor->topic_name, "b"));
    assert_int_equal(r.next_cursor->partition_index, 0);
    r = ask_partitions(NULL, 0, -5, NULL);
    assert_int_equal(r.topics_count, 1);
    assert_int_equal(r.topics[0].partitions_count, 1);
}

static void named_topics_are_sorted_and_missing_ones_told(void **state)
{
    (void)state;
    const char *const names[] = {"none", "b", "b", "no/name"};
    struct describe_topic_partitions_response r = ask_partitions(names, 4, 10, NULL);
    assert_int_equal(r.topics_count, 3);
    assert_true(str_is(r.topics[0].name, "b"));
    assert_int_equal(r.topics[0].topic_authorized_operations, 3576);
    assert_int_equal(r.topics[0].partitions[1].partition_index, 1);
    assert_int_equal(r.topics[0].partitions[1].leader_id, 1);
    assert_int_equal(r.topics[1].error_code, KERR_INVALID_TOPIC_EXCEPTION);
    assert_int_equal(r.topics[2].error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_null(r.next_cursor);
}

static void a_cursor_outside_the_request_is_refused(void **state)
{
    (void)state;
    const char *const names[] = {"a", "b"};
    struct describe_topic_partitions_request_cursor cursor = {STR("aa"), 0};
    struct describe_topic_partitions_response r = ask_partitions(names, 2, 10, &cursor);
    assert_int_equal(r.topics_count, 2);
    assert_int_equal(r.topics[0].error_code, KERR_INVALID_REQUEST);
    cursor = (struct describe_topic_partitions_request_cursor){STR("a"), -1};
    assert_int_equal(ask_partitions(names, 2, 10, &cursor).topics[0].error_code, KERR_INVALID_REQUEST);
    cursor.partition_index = INT32_MAX;
    r = ask_partitions(names, 2, 10, &cursor);
    assert_int_equal(r.topics[0].error_code, KERR_NONE);
    assert_int_equal(r.topics[0].partitions_count, 0);
    assert_int_equal(r.topics[1].partitions_count, 2);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(null_is_all_topics_and_empty_is_none_but_in_version_0),
        CASE(every_version_can_carry_the_answer),
        CASE(an_older_leader_is_not_believed),
        CASE(brokers_are_told_by_the_listener_of_the_connection),
        CASE(a_leader_that_cannot_be_reached_is_said_to_be_missing),
        CASE(version_0_names_only_replicas_that_can_be_reached),
        CASE(names_that_are_unknown_or_invalid_or_repeated),
        CASE(topics_are_found_by_id_from_version_12_on),
        CASE(a_topic_with_neither_name_nor_id_is_refused),
        CASE(operations_are_told_only_when_asked_for),
        CASE(a_missing_topic_is_created_and_the_verdict_told),
        CASE(nothing_is_created_against_the_clients_or_the_brokers_will),
        CASE(one_request_creates_a_thousand_topics_at_most),
        CASE(the_cluster_is_described),
        CASE(a_controller_that_is_not_listed_is_not_named),
        CASE(other_endpoint_types_are_refused),
        CASE(a_cursor_leads_through_all_topics_in_order),
        CASE(the_brokers_limit_holds_too_and_at_least_one_partition_is_given),
        CASE(named_topics_are_sorted_and_missing_ones_told),
        CASE(a_cursor_outside_the_request_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
