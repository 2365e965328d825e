/* broker/claim and broker/controller_watch: over a store in memory, with the sessions of other processes. */
#include "coord_world.h"

#include "broker/claim.h"
#include "broker/controller_watch.h"
#include "coord/znodes.h"

struct bed {
    struct world *w;
    struct world *other; /* the session of another process, or of a dead one */
    struct znode_endpoint endpoints[2];
    struct znode_broker node;
    bool done;
    enum err err;
    struct fault fault;
    int64_t epoch, session_replaced;
};

static void on_claimed(void *arg, const struct claim_result *r)
{
    struct bed *b = arg;
    assert_false(b->done);
    b->done = true;
    b->err = r->err;
    b->fault = *r->fault;
    b->epoch = r->epoch;
    b->session_replaced = r->session_replaced;
}

static void begin(struct bed *b, bool starting, int64_t session_before)
{
    const struct claim_options opt = {
        .coord = b->w->c,
        .loop = b->w->loop,
        .broker_id = 7,
        .node = &b->node,
        .starting = starting,
        .session_before = session_before,
    };
    b->done = false;
    claim_begin(&opt, on_claimed, b);
}

static enum err claim(struct bed *b, bool starting, int64_t session_before)
{
    begin(b, starting, session_before);
    while (!b->done) loop_turn(b->w->loop, 0);
    return b->err;
}

/* The other process does. */
static struct answer other_creates(struct bed *b, const char *path, const char *data)
{
    struct answer a = call_create(b->other, path, data, COORD_EPHEMERAL);
    assert_int_equal(a.r.err, OK);
    return a;
}

static const char at_our_address[] =
    "{\"version\":5,\"jmx_port\":-1,\"listener_security_protocol_map\":{\"PLAINTEXT\":\"PLAINTEXT\"},"
    "\"endpoints\":[\"PLAINTEXT://here:9092\"]}";
static const char elsewhere[] =
    "{\"version\":5,\"jmx_port\":-1,\"listener_security_protocol_map\":{\"PLAINTEXT\":\"PLAINTEXT\"},"
    "\"endpoints\":[\"PLAINTEXT://there:9092\"]}";

static int bed_new(void **state)
{
    struct bed *b = mem_zalloc(1, sizeof *b);
    b->w = world_new(false);
    b->other = session_new(b->w);
    b->endpoints[0] = (struct znode_endpoint){STR("PLAINTEXT"), STR("here"), 9092, SECURITY_PLAINTEXT};
    b->endpoints[1] = (struct znode_endpoint){STR("INTERNAL"), STR("here"), 9093, SECURITY_PLAINTEXT};
    b->node = (struct znode_broker){.endpoints = b->endpoints, .endpoint_count = 2, .rack = STR_NULL, .jmx_port = -1};
    call_create(b->w, "/brokers", NULL, 0);
    call_create(b->w, "/brokers/ids", NULL, 0);
    *state = b;
    return 0;
}

static int bed_free(void **state)
{
    struct bed *b = *state;
    session_free(b->other);
    world_free(b->w);
    mem_free(b);
    return 0;
}

static int64_t own_session(const struct bed *b)
{
    return coord_session_id(b->w->c);
}

static void assert_ours(struct bed *b)
{
    struct answer a = call_get(b->w, "/brokers/ids/7", COORD_NO_WATCH);
    assert_int_equal(a.r.err, OK);
    assert_true(a.r.stat.ephemeral_owner == own_session(b));
    assert_true(a.r.stat.czxid == b->epoch);
    struct znode_broker got;
    assert_int_equal(znode_broker_decode(&b->w->arena, a.r.path, a.r.data, &got, NULL), OK);
    assert_int_equal(got.endpoint_count, 2);
}

static void a_free_id_is_taken(void **state)
{
    struct bed *b = *state;
    assert_int_equal(claim(b, true, 0), OK);
    assert_ours(b);
    assert_true(b->session_replaced == 0);
}

static void what_this_session_made_before_is_ours(void **state)
{
    struct bed *b = *state;
    assert_int_equal(claim(b, true, 0), OK);
    int64_t first = b->epoch;
    assert_int_equal(claim(b, true, 0), OK);
    assert_true(b->epoch == first);
    assert_ours(b);
}

static void a_dead_process_is_replaced_at_the_start(void **state)
{
    struct bed *b = *state;
    struct answer a = other_creates(b, "/brokers/ids/7", at_our_address);
    assert_int_equal(claim(b, true, 0), OK);
    assert_true(b->epoch > a.r.stat.czxid);
    assert_true(b->session_replaced == coord_session_id(b->other->c));
    assert_ours(b);
}

static void another_broker_keeps_its_id(void **state)
{
    struct bed *b = *state;
    struct answer a = other_creates(b, "/brokers/ids/7", elsewhere);
    assert_int_equal(claim(b, true, 0), ERR_EXISTS);
    assert_non_null(strstr(b->fault.text, "Broker id 7 "));
    assert_non_null(strstr(b->fault.text, "PLAINTEXT://there:9092"));
    assert_non_null(strstr(b->fault.text, "INTERNAL://here:9093"));
    assert_true(call_get(b->w, "/brokers/ids/7", COORD_NO_WATCH).r.stat.czxid == a.r.stat.czxid);
}

static void a_node_that_no_session_ends_is_left_alone(void **state)
{
    struct bed *b = *state;
    assert_int_equal(call_create(b->w, "/brokers/ids/7", at_our_address, 0).r.err, OK);
    assert_int_equal(claim(b, true, 0), ERR_EXISTS);
}

static void what_cannot_be_read_is_anothers(void **state)
{
    struct bed *b = *state;
    other_creates(b, "/brokers/ids/7", "{");
    assert_int_equal(claim(b, true, 0), ERR_EXISTS);
}

static void an_address_belongs_to_one_broker(void **state)
{
    struct bed *b = *state;
    other_creates(b, "/brokers/ids/8", at_our_address);
    assert_int_equal(claim(b, true, 0), ERR_EXISTS);
    assert_non_null(strstr(b->fault.text, "here:9092"));
    assert_non_null(strstr(b->fault.text, "broker 8"));
    assert_int_equal(call_get(b->w, "/brokers/ids/7", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
}

static void a_running_broker_replaces_its_own_old_session_alone(void **state)
{
    struct bed *b = *state;
    other_creates(b, "/brokers/ids/7", at_our_address);
    assert_int_equal(claim(b, false, 0), ERR_EXISTS); /* a second process at our address */
    assert_int_equal(claim(b, false, coord_session_id(b->other->c)), OK);
    assert_ours(b);
}

/* The dead process's session ends, and another broker takes the id, between the look and the change: both nodes have
 * version 0. */
static void who_comes_in_the_midst_of_a_replacement_is_not_ousted_in_silence(void **state)
{
    struct bed *b = *state;
    struct coord *third = coord_memory_connect(b->w->memory, (struct coord_listener){b->w->loop, NULL, NULL});
    other_creates(b, "/brokers/ids/7", at_our_address);
    begin(b, false, coord_session_id(b->other->c)); /* the create has failed, and its answer is on the way */
    coord_memory_hold(b->w->memory, false, true);
    for (int i = 0; i < 5; i++) loop_turn(b->w->loop, 0); /* the look has been made, and is held back */
    coord_memory_expire(b->w->memory, coord_session_id(b->other->c));
    coord_create(third, STR("/brokers/ids/7"), (struct bytes){(const uint8_t *)elsewhere, strlen(elsewhere)},
                 COORD_EPHEMERAL, (struct coord_to){b->w->loop, NULL, NULL});
    coord_memory_release(b->w->memory);
    while (!b->done) loop_turn(b->w->loop, 0);
    assert_int_equal(b->err, ERR_EXISTS);
    assert_int_equal(call_get(b->w, "/brokers/ids/7", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    struct coord *own = b->w->c;
    b->w->c = third;
    world_close(b->w);
    b->w->c = own;
}

/* The connection breaks while the change is out: whether it was made or not, the id is ours in the end, once. */
static void a_claim_of_which_nobody_knows_whether_it_was_made_is_made_once(void **state)
{
    struct bed *b = *state;
    struct coord_memory *m = b->w->memory;
    for (size_t executed = 0; executed < 2; executed++) {
        coord_memory_delay(m, own_session(b), true);
        begin(b, true, 0);
        for (int i = 0; i < 100 && !b->done; i++) {
            size_t out = coord_memory_out(m, own_session(b));
            coord_memory_disconnect(m, own_session(b), out && executed ? out : 0);
            world_turn(b->w);
            coord_memory_reconnect(m, own_session(b));
            if (i == 1) coord_memory_delay(m, own_session(b), false);
            world_turn(b->w);
        }
        assert_true(b->done);
        assert_int_equal(b->err, OK);
        assert_ours(b);
        call_delete(b->w, "/brokers/ids/7", COORD_ANY_VERSION);
    }
}

/* What is there after the break is another broker's, which took the id meanwhile. */
static void an_id_that_another_took_while_nobody_knew_is_not_claimed(void **state)
{
    struct bed *b = *state;
    struct coord_memory *m = b->w->memory;
    coord_memory_delay(m, own_session(b), true);
    begin(b, false, 0);
    while (coord_memory_out(m, own_session(b)) == 0) loop_turn(b->w->loop, 0);
    coord_memory_disconnect(m, own_session(b), 0);
    world_turn(b->w);
    struct answer a = other_creates(b, "/brokers/ids/7", elsewhere);
    coord_memory_delay(m, own_session(b), false);
    coord_memory_reconnect(m, own_session(b));
    while (!b->done) loop_turn(b->w->loop, 0);
    assert_int_equal(b->err, ERR_EXISTS);
    assert_true(call_get(b->w, "/brokers/ids/7", COORD_NO_WATCH).r.stat.czxid == a.r.stat.czxid);
}

/* ---- A dead controller */

static const char in_office[] = "{\"version\":2,\"brokerid\":3,\"timestamp\":\"1\",\"kraftControllerEpoch\":-1}";

static struct controller_watch *elect(struct bed *b, struct broker *br)
{
    call_create(b->w, "/controller_epoch", "5", 0);
    other_creates(b, "/brokers/ids/3", elsewhere);
    other_creates(b, "/controller", in_office);
    *br = (struct broker){.id = 7, .loop_count = 1, .loops = &b->w->loop, .coord = b->w->c};
    return controller_watch_new(br);
}

static void a_dead_controller_is_removed_once(void **state)
{
    struct bed *b = *state;
    struct broker br;
    struct controller_watch *cw = elect(b, &br);
    controller_watch_dead(cw, 4); /* who is not in office */
    world_turn(b->w);
    assert_int_equal(call_get(b->w, "/controller", COORD_NO_WATCH).r.err, OK);
    controller_watch_dead(cw, 3);
    world_turn(b->w);
    assert_int_equal(call_get(b->w, "/controller", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    other_creates(b, "/controller", in_office); /* it lived after all */
    call_set(b->w, "/controller_epoch", "6", COORD_ANY_VERSION);
    controller_watch_dead(cw, 3);
    world_turn(b->w);
    assert_int_equal(call_get(b->w, "/controller", COORD_NO_WATCH).r.err, OK);
    call_delete(b->w, "/brokers/ids/3", COORD_ANY_VERSION); /* another life of it */
    other_creates(b, "/brokers/ids/3", elsewhere);
    controller_watch_dead(cw, 3);
    world_turn(b->w);
    assert_int_equal(call_get(b->w, "/controller", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    controller_watch_free(cw);
}

/* Whoever tells of the dead one tells again: with each try to reach it. */
static void a_removal_that_fails_for_a_passing_reason_is_tried_again(void **state)
{
    struct bed *b = *state;
    struct broker br;
    struct controller_watch *cw = elect(b, &br);
    struct coord_memory *m = b->w->memory;
    coord_memory_delay(m, own_session(b), true);
    controller_watch_dead(cw, 3);
    coord_memory_run(m, own_session(b), 3); /* the reads */
    while (coord_memory_out(m, own_session(b)) == 0) loop_turn(b->w->loop, 0);
    coord_memory_disconnect(m, own_session(b), 0); /* the change is lost, and nobody can know */
    world_turn(b->w);
    controller_watch_dead(cw, 3); /* waits for the connection */
    controller_watch_dead(cw, 3);
    coord_memory_reconnect(m, own_session(b));
    coord_memory_delay(m, own_session(b), false);
    world_turn(b->w);
    assert_int_equal(call_get(b->w, "/controller", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    controller_watch_free(cw);
}

/* The removal has happened, though nobody was told; and the controller, which lived, is back in office. */
static void one_that_came_back_after_a_removal_in_the_dark_is_left_alone(void **state)
{
    struct bed *b = *state;
    struct broker br;
    struct controller_watch *cw = elect(b, &br);
    struct coord_memory *m = b->w->memory;
    coord_memory_delay(m, own_session(b), true);
    controller_watch_dead(cw, 3);
    coord_memory_run(m, own_session(b), 3);
    while (coord_memory_out(m, own_session(b)) == 0) loop_turn(b->w->loop, 0);
    coord_memory_disconnect(m, own_session(b), 1);
    world_turn(b->w);
    other_creates(b, "/controller", in_office);
    coord_memory_reconnect(m, own_session(b));
    coord_memory_delay(m, own_session(b), false);
    call_set(b->w, "/controller_epoch", "6", COORD_ANY_VERSION);
    controller_watch_dead(cw, 3);
    world_turn(b->w);
    assert_int_equal(call_get(b->w, "/controller", COORD_NO_WATCH).r.err, OK);
    controller_watch_free(cw);
}

static void a_controller_elected_meanwhile_stays(void **state)
{
    struct bed *b = *state;
    struct broker br;
    struct controller_watch *cw = elect(b, &br);
    controller_watch_dead(cw, 3); /* the store has answered; the answers are on their way */
    call_set(b->w, "/controller_epoch", "6", COORD_ANY_VERSION);
    world_turn(b->w);
    assert_int_equal(call_get(b->w, "/controller", COORD_NO_WATCH).r.err, OK);
    controller_watch_free(cw);
}

static void the_office_of_a_dead_process_of_ours_is_freed(void **state)
{
    struct bed *b = *state;
    struct broker br;
    struct controller_watch *cw = elect(b, &br);
    controller_watch_succeed(cw, own_session(b)); /* another session than the one in office */
    world_turn(b->w);
    assert_int_equal(call_get(b->w, "/controller", COORD_NO_WATCH).r.err, OK);
    controller_watch_succeed(cw, coord_session_id(b->other->c));
    world_turn(b->w);
    assert_int_equal(call_get(b->w, "/controller", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    controller_watch_free(cw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_free_id_is_taken, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(what_this_session_made_before_is_ours, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(a_dead_process_is_replaced_at_the_start, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(another_broker_keeps_its_id, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(a_node_that_no_session_ends_is_left_alone, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_anothers, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(an_address_belongs_to_one_broker, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(a_running_broker_replaces_its_own_old_session_alone, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(who_comes_in_the_midst_of_a_replacement_is_not_ousted_in_silence, bed_new,
                                        bed_free),
        cmocka_unit_test_setup_teardown(a_claim_of_which_nobody_knows_whether_it_was_made_is_made_once, bed_new,
                                        bed_free),
        cmocka_unit_test_setup_teardown(an_id_that_another_took_while_nobody_knew_is_not_claimed, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(a_dead_controller_is_removed_once, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(a_removal_that_fails_for_a_passing_reason_is_tried_again, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(one_that_came_back_after_a_removal_in_the_dark_is_left_alone, bed_new,
                                        bed_free),
        cmocka_unit_test_setup_teardown(a_controller_elected_meanwhile_stays, bed_new, bed_free),
        cmocka_unit_test_setup_teardown(the_office_of_a_dead_process_of_ours_is_freed, bed_new, bed_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
