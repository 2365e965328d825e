/* controller: what a store that is away, a session that ends and another controller do to the one in office. */
#include "controller_trio.h"

/* What the controller believes is what the store has. */
static void assert_tables_are_true(struct cluster *cl, const char *topic)
{
    struct controller_topic t;
    char path[96];
    assert_true(controller_find_topic(cl->c, str_of(topic), &t));
    for (int32_t i = 0; i < t.partition_count; i++) {
        struct arena a;
        struct znode_state zs;
        struct fault f = {0};
        arena_init(&a, SIZE_MAX);
        snprintf(path, sizeof path, "/brokers/topics/%s/partitions/%d/state", topic, i);
        struct answer an = call_get(cl->w, path, COORD_NO_WATCH);
        assert_int_equal(an.r.err, OK);
        assert_int_equal(znode_state_decode(&a, str_of(path), an.r.data, &zs, &f), OK);
        assert_int_equal(zs.leader, t.partitions[i].leader);
        assert_int_equal(zs.leader_epoch, t.partitions[i].leader_epoch);
        assert_int_equal(an.r.stat.version, t.partitions[i].state_version);
        assert_int_equal(zs.isr_count, t.partitions[i].isr_count);
        arena_fini(&a);
    }
}

static void session_ends_and_begins(struct trio *tr)
{
    struct cluster *cl = tr->cl;
    coord_memory_expire(cl->w->memory, coord_session_id(cl->w->c));
    settle(cl->w);
    controller_session_lost(cl->c);
    coord_renew(cl->w->c);
    settle(cl->w);
    register_broker(cl->w, 1, NULL);
    controller_session_renewed(cl->c);
    settle(cl->w);
}

static void a_new_session_runs_for_office_again(void **state)
{
    struct trio *tr = *state;
    create_topic(tr->cl, "t", 3, 3);
    session_ends_and_begins(tr);
    assert_int_equal(controller_state(tr->cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(tr->cl->c), 2);
    assert_int_equal(controller_broker_count(tr->cl->c), 3);
    assert_tables_are_true(tr->cl, "t");
    assert_int_equal(create_topic(tr->cl, "u", 1, 3).kerr, KERR_NONE);
}

/* The listener may be told before the results of calls that were out. */
static void an_event_that_is_under_way_when_the_session_ends_is_dropped(void **state)
{
    struct trio *tr = *state;
    struct cluster *cl = tr->cl;
    struct outcome o = {.w = cl->w};
    struct controller_new_topic t = {.name = STR("t"), .partition_count = 3, .replication_factor = 3};
    int64_t session = coord_session_id(cl->w->c);
    coord_memory_delay(cl->w->memory, session, true);
    controller_create_topics(cl->c, &t, 1, false, 60000, outcome_to(&o));
    for (int i = 0; i < 20; i++) loop_turn(cl->w->loop, 0);
    controller_session_lost(cl->c);
    coord_memory_expire(cl->w->memory, session);
    for (int i = 0; i < 20; i++) loop_turn(cl->w->loop, 0);
    coord_memory_delay(cl->w->memory, session, false);
    coord_renew(cl->w->c);
    settle(cl->w);
    register_broker(cl->w, 1, NULL);
    controller_session_renewed(cl->c);
    outcome_wait(&o);
    assert_int_equal(o.results[0].kerr, KERR_NOT_CONTROLLER);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(create_topic(cl, "t", 3, 3).kerr, KERR_NONE);
}

/* Broker 2 dies, and the connection to the store breaks at each moment of what follows: with none, one, or all of the
 * calls executed that are out then. */
static void a_connection_that_breaks_at_any_moment_leaves_tables_that_are_true(void **state)
{
    struct trio *tr = *state;
    struct cluster *cl = tr->cl;
    int64_t session = coord_session_id(cl->w->c);
    cl->endless = true;
    create_topic(cl, "t", 3, 3);
    bool over = false;
    for (size_t steps = 0; !over; steps++) {
        for (size_t executed = 0; executed < 3; executed++) {
            settle(cl->w);
            coord_memory_delay(cl->w->memory, session, true);
            coord_memory_expire(cl->w->memory, coord_session_id(tr->sessions[2]->c));
            for (size_t i = 0; i < steps; i++) {
                for (int k = 0; k < 10; k++) loop_turn(cl->w->loop, 0);
                coord_memory_run(cl->w->memory, session, 1);
            }
            for (int k = 0; k < 10; k++) loop_turn(cl->w->loop, 0);
            over = over || (steps > 5 && coord_memory_out(cl->w->memory, session) == 0);
            coord_memory_disconnect(cl->w->memory, session, executed == 2 ? 1000 : executed);
            coord_memory_delay(cl->w->memory, session, false);
            for (int k = 0; k < 10; k++) loop_turn(cl->w->loop, 0);
            coord_memory_reconnect(cl->w->memory, session);
            settle(cl->w);
            settle(cl->w);
            assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
            assert_tables_are_true(cl, "t");
            struct controller_topic t;
            assert_true(controller_find_topic(cl->c, STR("t"), &t));
            for (int32_t i = 0; i < 3; i++) assert_int_not_equal(t.partitions[i].leader, 2);
            session_free(tr->sessions[2]);
            tr->sessions[2] = NULL;
            trio_join(tr, 2);
        }
        assert_true(steps < 100);
    }
}

/* The same while it runs for office. */
static void an_election_whose_answer_is_lost_is_held_again(void **state)
{
    struct trio *tr = *state;
    struct cluster *cl = tr->cl;
    int64_t session = coord_session_id(cl->w->c);
    cl->endless = true;
    create_topic(cl, "t", 3, 3);
    for (size_t steps = 0; steps < 20; steps++) {
        for (size_t executed = 0; executed < 2; executed++) {
            settle(cl->w);
            int32_t epoch = controller_epoch(cl->c);
            call_delete(tr->sessions[2], "/controller", COORD_ANY_VERSION);
            coord_memory_delay(cl->w->memory, session, true);
            for (size_t i = 0; i < steps; i++) {
                for (int k = 0; k < 10; k++) loop_turn(cl->w->loop, 0);
                coord_memory_run(cl->w->memory, session, 1);
            }
            for (int k = 0; k < 10; k++) loop_turn(cl->w->loop, 0);
            coord_memory_disconnect(cl->w->memory, session, executed ? 1000 : 0);
            coord_memory_delay(cl->w->memory, session, false);
            coord_memory_reconnect(cl->w->memory, session);
            settle(cl->w);
            settle(cl->w);
            assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
            assert_true(controller_epoch(cl->c) > epoch);
            assert_int_equal(call_exists(cl->w, "/controller", COORD_NO_WATCH).r.stat.ephemeral_owner, session);
            assert_tables_are_true(cl, "t");
        }
    }
}

/* Another one removes /controller and takes the office at each moment of an election, and of reading what was won. */
static void an_office_that_is_taken_away_while_it_is_taken_over_is_lost(void **state)
{
    struct trio *tr = *state;
    struct cluster *cl = tr->cl;
    struct world *rival = tr->sessions[2];
    int64_t session = coord_session_id(cl->w->c);
    cl->endless = true;
    create_topic(cl, "t", 3, 3);
    bool over = false;
    for (size_t steps = 0; !over; steps++) {
        assert_true(steps < 100);
        coord_memory_delay(cl->w->memory, session, true);
        call_delete(rival, "/controller", COORD_ANY_VERSION);
        for (size_t i = 0; i < steps; i++) {
            for (int k = 0; k < 10; k++) loop_turn(cl->w->loop, 0);
            coord_memory_run(cl->w->memory, session, 1);
        }
        for (int k = 0; k < 10; k++) loop_turn(cl->w->loop, 0);
        over = controller_state(cl->c) == CONTROLLER_ACTIVE;
        call_delete(rival, "/controller", COORD_ANY_VERSION);
        char text[16];
        snprintf(text, sizeof text, "%.*s", STR_ARG(node_text(rival, "/controller_epoch")));
        int epoch = atoi(text) + 1;
        snprintf(text, sizeof text, "%d", epoch);
        call_set(rival, "/controller_epoch", text, COORD_ANY_VERSION);
        assert_int_equal(call_create(rival, "/controller", "{\"version\":2,\"brokerid\":2}", COORD_EPHEMERAL).r.err,
                         OK);
        coord_memory_delay(cl->w->memory, session, false);
        settle(cl->w);
        assert_int_equal(controller_state(cl->c), CONTROLLER_STANDBY);
        call_delete(rival, "/controller", COORD_ANY_VERSION);
        settle(cl->w);
        assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
        assert_int_equal(controller_epoch(cl->c), epoch + 1);
        assert_tables_are_true(cl, "t");
    }
    assert_true(over);
}

/* As the store may say after a lost connection. */
static void a_change_of_the_node_that_changes_nothing_costs_no_office(void **state)
{
    struct trio *tr = *state;
    struct cluster *cl = tr->cl;
    for (int i = 0; i < 2; i++) { /* it is watched again */
        char text[128];
        snprintf(text, sizeof text, "%.*s", STR_ARG(node_text(cl->w, "/controller")));
        call_set(tr->sessions[2], "/controller", text, COORD_ANY_VERSION);
        settle(cl->w);
        assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
        assert_int_equal(controller_epoch(cl->c), 1);
    }
    call_delete(tr->sessions[2], "/controller", COORD_ANY_VERSION);
    settle(cl->w);
    assert_int_equal(controller_epoch(cl->c), 2);
}

/* --- two controllers --- */

static int64_t last_change(struct world *w)
{
    return call_create(w, "/mark", NULL, 0).r.err == OK && call_delete(w, "/mark", COORD_ANY_VERSION).r.err == OK
               ? call_create(w, "/seq", NULL, COORD_SEQUENTIAL).r.stat.czxid
               : -1;
}

/* The first one sleeps past its session, with work in its queue, while the second one is elected; then it wakes up. */
static void a_deposed_controller_that_wakes_up_changes_nothing(void **state)
{
    struct trio *tr = *state;
    struct cluster *cl = tr->cl, *second = mem_zalloc(1, sizeof *second);
    int64_t session = coord_session_id(cl->w->c);
    create_topic(cl, "t", 3, 3);
    second->w = session_new(cl->w);
    cluster_start(second);
    assert_int_equal(controller_state(second->c), CONTROLLER_STANDBY);

    coord_memory_disconnect(cl->w->memory, session, 0); /* it hears of nothing */
    coord_memory_expire(cl->w->memory, session);
    settle(second->w);
    assert_int_equal(controller_state(second->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(second->c), 2);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE); /* so it believes */

    struct outcome created = {.w = cl->w}, deleted = {.w = cl->w};
    struct controller_new_topic nt = {.name = STR("u"), .partition_count = 2, .replication_factor = 2};
    struct controller_topic_ref ref = {.name = STR("t")};
    struct controlled_shutdown_request in = {2, -1};
    struct controlled_shutdown_response out = controlled_shutdown_response_default;
    struct asked as = {.w = cl->w};
    int64_t before = last_change(second->w);
    controller_create_topics(cl->c, &nt, 1, false, 60000, outcome_to(&created));
    controller_delete_topics(cl->c, &ref, 1, 60000, outcome_to(&deleted));
    controller_controlled_shutdown(cl->c, &in, &out, asked_rq(&as));
    cl->told_count = 0;
    coord_memory_reconnect(cl->w->memory, session);
    for (int i = 0; i < 20; i++) loop_turn(cl->w->loop, 0);
    controller_session_lost(cl->c);
    outcome_wait(&created);
    outcome_wait(&deleted);
    asked_wait(&as);
    assert_int_equal(created.results[0].kerr, KERR_NOT_CONTROLLER);
    assert_int_equal(deleted.results[0].kerr, KERR_NOT_CONTROLLER);
    assert_int_equal(out.error_code, KERR_NOT_CONTROLLER);
    assert_int_equal(cl->told_count, 0);
    settle(second->w);
    assert_int_equal(last_change(second->w), before + 3); /* our own three changes, and no other */
    assert_int_equal(controller_state(cl->c), CONTROLLER_STANDBY);
    assert_tables_are_true(second, "t");

    coord_renew(cl->w->c);
    controller_session_renewed(cl->c);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_STANDBY);
    cluster_stop(second);
    session_free(second->w);
    mem_free(second);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(cl->c), 3);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, trio_setup, trio_teardown)

enum { BACK_MS = 1000 };

static void wait_for_state(struct cluster *cl, enum controller_state state)
{
    for (int i = 0; i < 10000 && controller_state(cl->c) != state; i++) loop_turn(cl->w->loop, 10);
    assert_int_equal(controller_state(cl->c), state);
}

static void who_stands_back_leaves_the_office_to_another_and_takes_it_when_that_one_goes(void **state)
{
    struct trio *tr = *state;
    struct cluster *cl = tr->cl;
    create_topic(cl, "t", 3, 3);
    controller_stand_back(cl->c, BACK_MS);
    assert_int_equal(controller_state(cl->c), CONTROLLER_STANDBY);
    struct world *other = tr->sessions[2];
    call_set(other, "/controller_epoch", "2", COORD_ANY_VERSION);
    assert_int_equal(call_create(other, "/controller",
                                 "{\"version\":2,\"brokerid\":2,\"timestamp\":\"1\",\"kraftControllerEpoch\":-1}",
                                 COORD_EPHEMERAL)
                         .r.err,
                     OK); /* ours has gone */
    int64_t until_us = loop_now_us(cl->w->loop) + 3 * BACK_MS / 2 * 1000;
    while (loop_now_us(cl->w->loop) < until_us) loop_turn(cl->w->loop, 10);
    assert_int_equal(controller_state(cl->c), CONTROLLER_STANDBY);
    assert_int_equal(create_topic(cl, "u", 1, 1).kerr, KERR_NOT_CONTROLLER);
    call_delete(other, "/controller", COORD_ANY_VERSION);
    wait_for_state(cl, CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(cl->c), 3);
    assert_tables_are_true(cl, "t");
}

static void who_stands_back_takes_the_office_again_when_nobody_else_does(void **state)
{
    struct trio *tr = *state;
    struct cluster *cl = tr->cl;
    create_topic(cl, "t", 3, 3);
    controller_stand_back(cl->c, BACK_MS);
    settle(cl->w);
    controller_stand_back(cl->c, 1000 * BACK_MS); /* out of office: nothing to leave */
    assert_int_equal(call_exists(cl->w, "/controller", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    wait_for_state(cl, CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(cl->c), 2);
    assert_tables_are_true(cl, "t");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_session_runs_for_office_again),
        TEST(an_event_that_is_under_way_when_the_session_ends_is_dropped),
        TEST(a_connection_that_breaks_at_any_moment_leaves_tables_that_are_true),
        TEST(an_election_whose_answer_is_lost_is_held_again),
        TEST(an_office_that_is_taken_away_while_it_is_taken_over_is_lost),
        TEST(a_change_of_the_node_that_changes_nothing_costs_no_office),
        TEST(a_deposed_controller_that_wakes_up_changes_nothing),
        TEST(who_stands_back_leaves_the_office_to_another_and_takes_it_when_that_one_goes),
        TEST(who_stands_back_takes_the_office_again_when_nobody_else_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
