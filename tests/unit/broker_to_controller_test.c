/* broker/to_controller: what this broker asks of the controller, with controllers that say no, hang up, die and change.
 */
#include "broker_bed.h"

#include "broker/to_controller.h"
#include "controller/controller.h"
#include "rpc_world.h"
#include "wire/gen/allocate_producer_ids.h"
#include "wire/gen/create_topics.h"
#include "wire/kerr.h"

enum { SELF = 1, FIRST = 2, SECOND = 3, LOOPS = 2, ASKS_MAX = 8 };

struct ask {
    struct controller_call call;
    struct allocate_producer_ids_request ids;
    struct create_topics_request topics;
    bool told;
    enum err err;
    int16_t version;
    int64_t start;
    enum kerr topic_kerr;
    char topic[32];
};

static struct {
    struct broker br;
    struct peer_side peers[2]; /* of FIRST and SECOND */
    struct ask asks[ASKS_MAX];
    int told, dead;
    /* The controller of this process. */
    struct controller_to local;
    int local_calls;
    struct str local_topic;
} w;

/* ---- What stands in for the rest of the broker */

void controller_allocate_producer_ids(struct controller *c, int32_t broker_id, int64_t broker_epoch,
                                      struct controller_to to)
{
    (void)c;
    assert_int_equal(broker_id, SELF);
    assert_true(broker_epoch == 7);
    w.local = to;
    w.local_calls++;
}

void controller_create_topics(struct controller *c, const struct controller_new_topic *topics, size_t count,
                              bool validate_only, int32_t timeout_ms, struct controller_to to)
{
    (void)c;
    assert_int_equal(count, 1);
    assert_false(validate_only);
    assert_int_equal(timeout_ms, 4321);
    assert_int_equal(topics[0].setting_count, 1);
    assert_true(str_is(topics[0].settings[0].value, "compact"));
    w.local_topic = topics[0].name;
    w.local = to;
    w.local_calls++;
}

void controller_alter_partition(struct controller *c, const struct alter_partition_request *in, int16_t version,
                                struct alter_partition_response *out, struct controller_request rq)
{
    (void)c;
    (void)in;
    (void)version;
    (void)out;
    (void)rq;
    fail();
}

void controller_controlled_shutdown(struct controller *c, const struct controlled_shutdown_request *in,
                                    struct controlled_shutdown_response *out, struct controller_request rq)
{
    (void)c;
    (void)in;
    (void)out;
    (void)rq;
    fail();
}

static void answer_locally(enum kerr kerr, int64_t start)
{
    const struct controller_result result = {.kerr = kerr, .name = w.local_topic};
    const struct controller_results r = {&result, 1, start, PRODUCER_ID_BLOCK_SIZE};
    w.local.done(w.local.arg, &r);
}

/* ---- The world */

static struct loop *home(void)
{
    return w.br.loops[0];
}

static void on_dead(void *arg, int32_t controller_id)
{
    assert_ptr_equal(arg, &w);
    assert_int_equal(controller_id, FIRST);
    w.dead++;
}

static int setup(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    struct broker *br = &w.br;
    broker_bed_begin(br, SELF, LOOPS, NULL);
    br->grace = grace_new(br->loops, LOOPS);
    br->metadata = metadata_new(br->grace, home());
    br->controller = (struct controller *)&w; /* there is one; nothing here looks into it */
    br->to_controller = to_controller_new(br);
    to_controller_on_dead(br->to_controller, on_dead, &w);
    for (int i = 0; i < 2; i++) {
        w.peers[i].loop = home();
        peer_listen(&w.peers[i]);
    }
    return 0;
}

/* The other loop, on which answers arrive, is turned along. */
#define UNTIL_TOLD(condition)                                    \
    do {                                                         \
        UNTIL(home(), (loop_turn(w.br.loops[1], 0), condition)); \
    } while (0)

static int teardown(void **state)
{
    (void)state;
    struct broker *br = &w.br;
    to_controller_stop(br->to_controller);
    broker_bed_turn(br);
    to_controller_free(br->to_controller);
    for (int i = 0; i < 2; i++) peer_die(&w.peers[i]);
    broker_bed_turn(br);
    grace_free(br->grace);
    metadata_free(br->metadata);
    broker_bed_end(br);
    return 0;
}

static void name_controller(int32_t id)
{
    struct update_metadata_request_update_metadata_endpoint at[] = {
        {.port = w.peers[0].port, .host = STR("127.0.0.1"), .listener = STR("PLAINTEXT")},
        {.port = w.peers[1].port, .host = STR("127.0.0.1"), .listener = STR("PLAINTEXT")}};
    struct update_metadata_request_update_metadata_broker brokers[] = {
        {.id = SELF},
        {.id = FIRST, .endpoints = &at[0], .endpoints_count = 1},
        {.id = SECOND, .endpoints = &at[1], .endpoints_count = 1}};
    struct update_metadata_request u = update_metadata_request_default;
    u.controller_id = id;
    u.live_brokers = brokers;
    u.live_brokers_count = ARRAY_COUNT(brokers);
    metadata_update(w.br.metadata, &u);
    to_controller_changed(w.br.to_controller);
}

static void meet(int i)
{
    struct api_versions_response_api_version rows[] = {
        {.api_key = API_ALLOCATE_PRODUCER_IDS, .min_version = 0, .max_version = 0},
        {.api_key = API_CREATE_TOPICS, .min_version = 0, .max_version = 7},
    };
    peer_meet(&w.peers[i], rows, ARRAY_COUNT(rows));
}

static void on_done(struct controller_call *call)
{
    struct ask *a = CONTAINER_OF(call, struct ask, call);
    assert_true(loop_is_owner(w.br.loops[1]));
    assert_false(a->told);
    a->told = true;
    a->err = call->err;
    a->version = call->version;
    w.told++;
    if (call->err) return;
    if (call->api == API_ALLOCATE_PRODUCER_IDS) {
        const struct allocate_producer_ids_response *res = call->response;
        assert_int_equal(res->error_code, 0);
        a->start = res->producer_id_start;
    } else {
        const struct create_topics_response *res = call->response;
        a->topic_kerr = (enum kerr)res->topics[0].error_code;
        snprintf(a->topic, sizeof a->topic, "%.*s", STR_ARG(res->topics[0].name));
    }
}

static void ask_ids(int i, int64_t timeout_ms)
{
    struct ask *a = &w.asks[i];
    a->ids = (struct allocate_producer_ids_request){.broker_id = SELF, .broker_epoch = 7};
    a->call = (struct controller_call){.api = API_ALLOCATE_PRODUCER_IDS,
                                       .request = &a->ids,
                                       .timeout_ms = timeout_ms,
                                       .loop = w.br.loops[1],
                                       .done = on_done};
    to_controller_send(w.br.to_controller, &a->call);
}

static void ask_topic(int i)
{
    static struct create_topics_request_creatable_topic_config setting = {STR("cleanup.policy"), STR("compact")};
    static struct create_topics_request_creatable_topic topic;
    struct ask *a = &w.asks[i];
    topic = create_topics_request_creatable_topic_default;
    topic.name = STR("wanted");
    topic.num_partitions = topic.replication_factor = -1;
    topic.configs = &setting;
    topic.configs_count = 1;
    a->topics = (struct create_topics_request){.topics = &topic, .topics_count = 1, .timeout_ms = 4321};
    a->call = (struct controller_call){.api = API_CREATE_TOPICS,
                                       .version_min = 4,
                                       .version_max = INT16_MAX,
                                       .request = &a->topics,
                                       .timeout_ms = WAIT_MS_MAX,
                                       .loop = w.br.loops[1],
                                       .done = on_done};
    to_controller_send(w.br.to_controller, &a->call);
}

static struct asked take(int i, enum api api)
{
    struct asked q = peer_take(&w.peers[i]);
    assert_int_equal(q.api, api);
    return q;
}

static void answer_ids(int i, struct asked q, int16_t code, int64_t start)
{
    struct allocate_producer_ids_response res = allocate_producer_ids_response_default;
    res.error_code = code;
    res.producer_id_start = start;
    res.producer_id_len = PRODUCER_ID_BLOCK_SIZE;
    peer_answer(&w.peers[i], q, &res);
}

/* ---- Tests */

static void calls_wait_for_a_controller(void **state)
{
    (void)state;
    ask_ids(0, WAIT_MS_MAX);
    ask_ids(1, WAIT_MS_MAX);
    broker_bed_turn(&w.br);
    assert_int_equal(w.told, 0);
    name_controller(FIRST);
    meet(0);
    struct asked q[2] = {take(0, API_ALLOCATE_PRODUCER_IDS), take(0, API_ALLOCATE_PRODUCER_IDS)};
    answer_ids(0, q[0], 0, 1000);
    answer_ids(0, q[1], 0, 2000);
    UNTIL_TOLD(w.told == 2);
    assert_int_equal(w.asks[0].start, 1000);
    assert_int_equal(w.asks[1].start, 2000);
    assert_int_equal(w.local_calls, 0);
}

static void an_answer_lasts_until_it_was_taken_on_another_loop(void **state)
{
    (void)state;
    name_controller(FIRST);
    meet(0);
    ask_topic(0);
    ask_ids(1, WAIT_MS_MAX);
    struct asked q = take(0, API_CREATE_TOPICS), next = take(0, API_ALLOCATE_PRODUCER_IDS);
    struct create_topics_response_creatable_topic_result t = create_topics_response_creatable_topic_result_default;
    t.name = STR("wanted");
    t.error_code = KERR_INVALID_REPLICATION_FACTOR;
    struct create_topics_response res = {.topics = &t, .topics_count = 1};
    peer_answer(&w.peers[0], q, &res);
    answer_ids(0, next, 0, 5000); /* comes over the same buffer, before the other loop looks */
    for (int i = 0; i < 100; i++) loop_turn(home(), 1000);
    assert_int_equal(w.told, 0);
    UNTIL_TOLD(w.told == 2);
    assert_string_equal(w.asks[0].topic, "wanted");
    assert_int_equal(w.asks[0].topic_kerr, KERR_INVALID_REPLICATION_FACTOR);
    assert_int_equal(w.asks[0].version, 7);
}

static void whoever_is_not_the_controller_is_asked_again(void **state)
{
    (void)state;
    name_controller(FIRST);
    meet(0);
    ask_ids(0, WAIT_MS_MAX);
    for (int i = 0; i < 3; i++) answer_ids(0, take(0, API_ALLOCATE_PRODUCER_IDS), KERR_NOT_CONTROLLER, 0);
    answer_ids(0, take(0, API_ALLOCATE_PRODUCER_IDS), 0, 3000);
    UNTIL_TOLD(w.told == 1);
    assert_int_equal(w.asks[0].start, 3000);
}

static void the_next_controller_gets_what_the_first_did_not_answer(void **state)
{
    (void)state;
    name_controller(FIRST);
    meet(0);
    ask_ids(0, WAIT_MS_MAX);
    (void)take(0, API_ALLOCATE_PRODUCER_IDS);
    name_controller(SECOND);
    meet(1);
    answer_ids(1, take(1, API_ALLOCATE_PRODUCER_IDS), 0, 4000);
    UNTIL_TOLD(w.told == 1);
    assert_int_equal(w.asks[0].start, 4000);
    assert_int_equal(w.dead, 0);
}

static void a_lost_connection_is_no_answer(void **state)
{
    (void)state;
    name_controller(FIRST);
    meet(0);
    ask_ids(0, WAIT_MS_MAX);
    (void)take(0, API_ALLOCATE_PRODUCER_IDS);
    peer_close(&w.peers[0]);
    meet(0);
    answer_ids(0, take(0, API_ALLOCATE_PRODUCER_IDS), 0, 6000);
    UNTIL_TOLD(w.told == 1);
    assert_int_equal(w.asks[0].start, 6000);
    assert_int_equal(w.dead, 0);
}

static void the_own_controller_is_called_and_asked_again(void **state)
{
    (void)state;
    name_controller(SELF);
    ask_ids(0, WAIT_MS_MAX);
    UNTIL_TOLD(w.local_calls == 1);
    answer_locally(KERR_NOT_CONTROLLER, -1);
    UNTIL_TOLD(w.local_calls == 2);
    answer_locally(KERR_NONE, 7000);
    UNTIL_TOLD(w.told == 1);
    assert_int_equal(w.asks[0].start, 7000);
    ask_topic(1);
    UNTIL_TOLD(w.local_calls == 3);
    assert_true(str_is(w.local_topic, "wanted"));
    answer_locally(KERR_POLICY_VIOLATION, -1);
    UNTIL_TOLD(w.told == 2);
    assert_string_equal(w.asks[1].topic, "wanted");
    assert_int_equal(w.asks[1].topic_kerr, KERR_POLICY_VIOLATION);
}

static void nobody_answers_in_time(void **state)
{
    (void)state;
    ask_ids(0, 20); /* there is no controller */
    UNTIL_TOLD(w.told == 1);
    assert_int_equal(w.asks[0].err, ERR_TIMEOUT);
    name_controller(FIRST);
    meet(0);
    ask_ids(1, 20); /* it is silent */
    struct asked q = take(0, API_ALLOCATE_PRODUCER_IDS);
    UNTIL_TOLD(w.told == 2);
    assert_int_equal(w.asks[1].err, ERR_TIMEOUT);
    answer_ids(0, q, 0, 1); /* nobody waits for it any more */
    ask_ids(2, WAIT_MS_MAX);
    answer_ids(0, take(0, API_ALLOCATE_PRODUCER_IDS), 0, 8000);
    UNTIL_TOLD(w.told == 3);
    assert_int_equal(w.asks[2].start, 8000);
}

static void a_dead_controller_is_told_until_another_one_is_named(void **state)
{
    (void)state;
    name_controller(FIRST);
    meet(0);
    ask_ids(0, WAIT_MS_MAX);
    (void)take(0, API_ALLOCATE_PRODUCER_IDS);
    peer_die(&w.peers[0]);
    UNTIL(home(), w.dead >= 3); /* whoever is to remove it may have failed for a passing reason */
    peer_listen(&w.peers[0]);   /* it was not dead, or is back */
    meet(0);
    answer_ids(0, take(0, API_ALLOCATE_PRODUCER_IDS), 0, 9000);
    UNTIL_TOLD(w.told == 1);
    int told = w.dead;
    peer_die(&w.peers[0]);
    UNTIL(home(), w.dead > told);
    name_controller(SECOND);
    told = w.dead;
    meet(1);
    int64_t later_us = clock_mono_us(clock_system()) + 250 * 1000; /* some more tries there would have been */
    UNTIL(home(), clock_mono_us(clock_system()) > later_us);
    assert_int_equal(w.dead, told);
}

static void stopping_answers_all(void **state)
{
    (void)state;
    name_controller(FIRST);
    meet(0);
    ask_ids(0, WAIT_MS_MAX);
    (void)take(0, API_ALLOCATE_PRODUCER_IDS);
    name_controller(SECOND); /* not met */
    ask_ids(1, WAIT_MS_MAX);
    broker_bed_turn(&w.br);
    to_controller_stop(w.br.to_controller);
    ask_ids(2, WAIT_MS_MAX);
    UNTIL_TOLD(w.told == 3);
    for (int i = 0; i < 3; i++) assert_int_equal(w.asks[i].err, ERR_CLOSED);
}

/* As it stops, too. */
static void an_own_controller_that_says_no_after_the_end_is_not_asked_again(void **state)
{
    (void)state;
    name_controller(SELF);
    ask_ids(0, WAIT_MS_MAX);
    UNTIL_TOLD(w.local_calls == 1);
    to_controller_stop(w.br.to_controller);
    answer_locally(KERR_NOT_CONTROLLER, -1);
    UNTIL_TOLD(w.told == 1);
    assert_int_equal(w.asks[0].err, ERR_CLOSED);
    assert_int_equal(w.local_calls, 1);
    assert_int_equal(loop_due_us(home()), INT64_MAX); /* no timer is left, which would outlive its owner */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(calls_wait_for_a_controller),
        CASE(an_answer_lasts_until_it_was_taken_on_another_loop),
        CASE(whoever_is_not_the_controller_is_asked_again),
        CASE(the_next_controller_gets_what_the_first_did_not_answer),
        CASE(a_lost_connection_is_no_answer),
        CASE(the_own_controller_is_called_and_asked_again),
        CASE(nobody_answers_in_time),
        CASE(a_dead_controller_is_told_until_another_one_is_named),
        CASE(stopping_answers_all),
        CASE(an_own_controller_that_says_no_after_the_end_is_not_asked_again),
    };
    return cmocka_run_group_tests_name("broker_to_controller", tests, NULL, NULL);
}
