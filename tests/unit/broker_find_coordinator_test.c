/* broker_find_coordinator_test.c: which broker FindCoordinator names, at which address, and when it has the offsets
 * topic made.  Expected codes are those of Apache Kafka 3.9 (KafkaApis.getCoordinator). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/api/handlers.h"
#include "broker/auto_create.h"
#include "broker/broker.h"
#include "broker/groups.h"
#include "broker/server.h"
#include "replica/replicas_internal.h"
#include "wire/gen/find_coordinator.h"

typedef struct update_metadata_request_update_metadata_partition_state partition_state;

enum { SELF = 9, PARTITIONS = 4 };

/* By Java: |"a".hashCode()| % 4 == 1 and so on. */
#define GROUP_OF_PARTITION_0 STR("d")
#define GROUP_OF_PARTITION_1 STR("a")
#define GROUP_OF_PARTITION_2 STR("b")
#define GROUP_OF_PARTITION_3 STR("c")

static struct {
    struct loop *loop;
    struct broker br;
    struct replicas replicas; /* without any */
    struct listener_state listener;
    struct conn conn;
    struct request rq;
    struct find_coordinator_request in;
    struct find_coordinator_response out;
    struct auto_create *creating;
    unsigned creations;
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
}

void auto_create_topics(struct auto_create *ac)
{
    w.creating = ac;
    w.creations++;
}

int32_t groups_partition_count(const struct groups *g)
{
    (void)g;
    return PARTITIONS;
}

/* ---- Broker 1 has both listeners, broker 2 only INTERNAL, broker 3 is dead; the fourth partition is our own. */

static partition_state state_of(int32_t index, int32_t leader)
{
    partition_state s = update_metadata_request_update_metadata_partition_state_default;
    s.partition_index = index;
    s.leader = leader;
    return s;
}

static void publish_topic(struct str name, bool with_topic)
{
    struct update_metadata_request_update_metadata_endpoint both[] = {
        {.port = 9092, .host = STR("one"), .listener = STR("PLAINTEXT")},
        {.port = 9093, .host = STR("one.internal"), .listener = STR("INTERNAL")}};
    struct update_metadata_request_update_metadata_endpoint internal[] = {
        {.port = 9093, .host = STR("two.internal"), .listener = STR("INTERNAL")}};
    struct update_metadata_request_update_metadata_broker brokers[] = {
        {.id = 1, .endpoints = both, .endpoints_count = 2, .rack = STR_NULL},
        {.id = 2, .endpoints = internal, .endpoints_count = 1, .rack = STR_NULL},
        {.id = SELF, .endpoints = both, .endpoints_count = 2, .rack = STR_NULL}};
    partition_state ps[] = {state_of(0, 1), state_of(1, 2), state_of(2, 3), state_of(3, SELF)};
    struct update_metadata_request_update_metadata_topic_state topic = {
        .topic_name = name, .partition_states = ps, .partition_states_count = ARRAY_COUNT(ps)};
    struct update_metadata_request u = update_metadata_request_default;
    u.live_brokers = brokers;
    u.live_brokers_count = ARRAY_COUNT(brokers);
    u.topic_states = &topic;
    u.topic_states_count = with_topic;
    metadata_update(w.br.metadata, &u);
}

static void publish(bool with_topic)
{
    publish_topic(STR(OFFSETS_TOPIC), with_topic);
}

static struct bytes name_key(const void *value)
{
    const struct topic_replicas *t = value;
    return (struct bytes){(const uint8_t *)t->name, strlen(t->name)};
}

static void use_listener(char *name)
{
    w.listener.name = name;
}

static int setup(void **state)
{
    (void)state;
    static char plaintext[] = "PLAINTEXT";
    memset(&w, 0, sizeof w);
    assert_int_equal(loop_new(&w.loop, clock_system(), 0, NULL), OK);
    w.replicas.by_name = table_new(&(struct table_ops){name_key, table_retire_now, NULL});
    w.br.id = SELF;
    w.br.replicas = &w.replicas;
    w.br.grace = grace_new(&w.loop, 1);
    w.br.metadata = metadata_new(w.br.grace, w.loop);
    use_listener(plaintext);
    w.conn.listener = &w.listener;
    w.rq = (struct request){.broker = &w.br, .loop = w.loop, .conn = &w.conn, .in = &w.in, .out = &w.out};
    arena_init(&w.rq.arena, SIZE_MAX);
    w.in = find_coordinator_request_default;
    w.out = find_coordinator_response_default;
    publish(true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&w.rq.arena);
    grace_free(w.br.grace);
    metadata_free(w.br.metadata);
    table_free(w.replicas.by_name);
    loop_free(w.loop);
    return 0;
}

static void ask(int16_t version, int8_t type, struct str key)
{
    w.rq.version = version;
    w.rq.op = NULL;
    w.in.key = key;
    w.in.key_type = type;
    assert_int_equal(find_coordinator_handle(&w.rq), DONE);
}

static void check(enum kerr kerr, int32_t node, const char *host, int32_t port)
{
    assert_int_equal(w.out.error_code, kerr);
    assert_int_equal(w.out.node_id, node);
    assert_true(str_is(w.out.host, host));
    assert_int_equal(w.out.port, port);
}

/* ---- Groups */

static void a_group_is_where_its_partition_is_led(void **state)
{
    (void)state;
    ask(3, 0, GROUP_OF_PARTITION_0);
    check(KERR_NONE, 1, "one", 9092);
    assert_int_equal(w.creations, 0);
}

static void the_address_is_that_of_the_listener_asked_by(void **state)
{
    (void)state;
    static char internal[] = "INTERNAL";
    use_listener(internal);
    ask(3, 0, GROUP_OF_PARTITION_0);
    check(KERR_NONE, 1, "one.internal", 9093);
    ask(3, 0, GROUP_OF_PARTITION_1);
    check(KERR_NONE, 2, "two.internal", 9093);
}

static void a_leader_that_cannot_be_reached_is_none(void **state)
{
    (void)state;
    ask(3, 0, GROUP_OF_PARTITION_1); /* not on this listener */
    check(KERR_COORDINATOR_NOT_AVAILABLE, -1, "", -1);
    ask(3, 0, GROUP_OF_PARTITION_2); /* dead */
    check(KERR_COORDINATOR_NOT_AVAILABLE, -1, "", -1);
}

static void we_name_ourselves_only_when_we_lead_already(void **state)
{
    (void)state;
    ask(3, 0, GROUP_OF_PARTITION_3);
    check(KERR_COORDINATOR_NOT_AVAILABLE, -1, "", -1);
}

static void several_are_answered_one_by_one(void **state)
{
    (void)state;
    struct str keys[] = {GROUP_OF_PARTITION_2, GROUP_OF_PARTITION_0, STR("")};
    w.in.coordinator_keys = keys;
    w.in.coordinator_keys_count = ARRAY_COUNT(keys);
    ask(4, 0, STR_EMPTY);
    assert_int_equal(w.out.coordinators_count, 3);
    assert_int_equal(w.out.coordinators[0].error_code, KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(w.out.coordinators[0].node_id, -1);
    assert_int_equal(w.out.coordinators[1].error_code, KERR_NONE);
    assert_int_equal(w.out.coordinators[1].node_id, 1);
    assert_true(str_equal(w.out.coordinators[1].key, keys[1]));
    assert_int_equal(w.out.coordinators[2].error_code, KERR_NONE); /* "" hashes to 0 */
}

/* ---- What else can be asked for */

static void other_coordinators_are_refused(void **state)
{
    (void)state;
    ask(3, 1, STR("tx"));
    check(KERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, "", -1);
    ask(3, 2, STR("share"));
    check(KERR_INVALID_REQUEST, -1, "", -1);
    ask(3, 3, STR("?"));
    check(KERR_INVALID_REQUEST, -1, "", -1);
}

static void a_transactional_id_is_found_at_another_broker_but_never_here(void **state)
{
    (void)state;
    publish_topic(STR("__transaction_state"), true);
    ask(3, 1, GROUP_OF_PARTITION_0);
    check(KERR_NONE, 1, "one", 9092);
    ask(3, 1, GROUP_OF_PARTITION_1); /* not on this listener */
    check(KERR_COORDINATOR_NOT_AVAILABLE, -1, "", -1);
    ask(3, 1, GROUP_OF_PARTITION_2); /* dead */
    check(KERR_COORDINATOR_NOT_AVAILABLE, -1, "", -1);
    ask(3, 1, GROUP_OF_PARTITION_3); /* ours */
    check(KERR_COORDINATOR_NOT_AVAILABLE, -1, "", -1);
}

/* ---- The topic */

static void remove_topic(void)
{
    partition_state gone = state_of(0, -2); /* LeaderAndIsr.LeaderDuringDelete */
    struct update_metadata_request_update_metadata_topic_state topic = {
        .topic_name = STR(OFFSETS_TOPIC), .partition_states = &gone, .partition_states_count = 1};
    struct update_metadata_request u = update_metadata_request_default;
    u.topic_states = &topic;
    u.topic_states_count = 1;
    metadata_update(w.br.metadata, &u);
}

static void the_first_to_ask_has_the_topic_made(void **state)
{
    (void)state;
    remove_topic();
    w.rq.version = 3;
    w.in.key = GROUP_OF_PARTITION_0;
    assert_int_equal(find_coordinator_handle(&w.rq), WAIT);
    assert_int_equal(w.creations, 1);
    assert_int_equal(w.creating->count, 1);
    assert_true(str_is(w.creating->names[0], OFFSETS_TOPIC));
    w.rq.cancelled = true; /* the controller uses our memory */
    assert_int_equal(find_coordinator_handle(&w.rq), WAIT);
    publish(true);
    w.creating->done(w.creating);
    assert_int_equal(find_coordinator_handle(&w.rq), DONE);
    check(KERR_NONE, 1, "one", 9092);
    assert_int_equal(w.creations, 1);
}

static void a_topic_that_cannot_be_made_leaves_no_coordinator(void **state)
{
    (void)state;
    remove_topic();
    w.rq.version = 3;
    w.in.key = GROUP_OF_PARTITION_0;
    assert_int_equal(find_coordinator_handle(&w.rq), WAIT);
    w.creating->done(w.creating);
    assert_int_equal(find_coordinator_handle(&w.rq), DONE);
    check(KERR_COORDINATOR_NOT_AVAILABLE, -1, "", -1);
}

static void nobody_else_has_the_topic_made(void **state)
{
    (void)state;
    remove_topic();
    ask(3, 1, STR("tx"));
    ask(4, 0, STR_EMPTY); /* no keys */
    assert_int_equal(w.creations, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_group_is_where_its_partition_is_led),
        TEST(the_address_is_that_of_the_listener_asked_by),
        TEST(a_leader_that_cannot_be_reached_is_none),
        TEST(we_name_ourselves_only_when_we_lead_already),
        TEST(several_are_answered_one_by_one),
        TEST(other_coordinators_are_refused),
        TEST(the_first_to_ask_has_the_topic_made),
        TEST(a_topic_that_cannot_be_made_leaves_no_coordinator),
        TEST(nobody_else_has_the_topic_made),
        TEST(a_transactional_id_is_found_at_another_broker_but_never_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
