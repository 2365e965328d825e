/* coord/memory: several sessions on one store, and what only the simulator can do. */
#include "coord_world.h"

static struct world *second_session(struct world *w)
{
    struct world *other = mem_zalloc(1, sizeof *other);
    *other = (struct world){.loop = w->loop, .memory = w->memory};
    arena_init(&other->arena, SIZE_MAX);
    other->c = coord_memory_connect(w->memory, (struct coord_listener){w->loop, world_listen, other});
    return other;
}

static void second_session_end(struct world *other)
{
    if (other->c) world_close(other);
    arena_fini(&other->arena);
    mem_free(other);
}

static void an_expired_session_loses_its_nodes_and_others_see_it(void **state)
{
    struct world *w = *state, *other = second_session(w);
    call_create(w, "/brokers", "", 0);
    call_create(other, "/brokers/2", "", COORD_EPHEMERAL);
    call_create(other, "/kept", "", 0);
    call_exists(w, "/brokers/2", world_watcher(w));
    call_children(w, "/brokers", world_watcher(w));
    call_exists(other, "/brokers", world_watcher(other));

    coord_memory_expire(w->memory, coord_session_id(other->c));
    assert_int_equal(call_exists(w, "/brokers/2", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_int_equal(call_exists(w, "/kept", COORD_NO_WATCH).r.err, OK);
    assert_int_equal(w->event_count, 2);
    assert_string_equal(w->events[0], "deleted /brokers/2");
    assert_string_equal(w->events[1], "children /brokers");
    assert_int_equal(other->state, COORD_EXPIRED);
    assert_int_equal(call_create(other, "/late", "", 0).r.err, ERR_EXPIRED);
    call_delete(w, "/brokers", COORD_ANY_VERSION);
    assert_int_equal(other->event_count, 0);
    second_session_end(other);
}

static void a_closed_session_loses_its_nodes(void **state)
{
    struct world *w = *state, *other = second_session(w);
    call_create(other, "/controller", "", COORD_EPHEMERAL);
    assert_int_equal(call_create(w, "/controller", "", COORD_EPHEMERAL).r.err, ERR_EXISTS);
    call_exists(w, "/controller", world_watcher(w));
    second_session_end(other);
    assert_int_equal(call_create(w, "/controller", "", COORD_EPHEMERAL).r.err, OK);
    assert_string_equal(w->events[0], "deleted /controller");
}

static void held_events_come_later_in_order(void **state)
{
    struct world *w = *state;
    call_create(w, "/a", "", 0);
    call_get(w, "/a", world_watcher(w));
    coord_memory_hold(w->memory, true, false);
    call_set(w, "/a", "x", COORD_ANY_VERSION);
    assert_int_equal(w->event_count, 0);
    call_get(w, "/a", world_watcher(w));
    call_delete(w, "/a", COORD_ANY_VERSION);
    coord_memory_release(w->memory);
    call_exists(w, "/", COORD_NO_WATCH);
    assert_int_equal(w->event_count, 2);
    assert_string_equal(w->events[0], "changed /a");
    assert_string_equal(w->events[1], "deleted /a");
}

static void held_results_come_later(void **state)
{
    struct world *w = *state;
    coord_memory_hold(w->memory, true, true);
    struct answer a = {.w = w};
    coord_create(w->c, STR("/a"), (struct bytes){NULL, 0}, 0, (struct coord_to){w->loop, answer_done, &a});
    loop_turn(w->loop, 0);
    loop_turn(w->loop, 0);
    assert_false(a.done);
    coord_memory_release(w->memory);
    answer_wait(&a);
    assert_int_equal(a.r.err, OK);
}

/* A create that is not waited for. */
static void start_create(struct world *w, const char *path, struct answer *a)
{
    *a = (struct answer){.w = w};
    coord_create(w->c, str_of(path), (struct bytes){NULL, 0}, 0, (struct coord_to){w->loop, answer_done, a});
}

static void start_get(struct world *w, const char *path, struct answer *a)
{
    *a = (struct answer){.w = w};
    coord_get(w->c, str_of(path), COORD_NO_WATCH, (struct coord_to){w->loop, answer_done, a});
}

static void turn(struct world *w)
{
    for (int i = 0; i < 3; i++) loop_turn(w->loop, 0);
}

static void calls_wait_while_the_session_is_cut_off(void **state)
{
    struct world *w = *state, *other = second_session(w);
    int64_t session = coord_session_id(other->c);
    call_create(other, "/mine", "", COORD_EPHEMERAL);
    call_get(other, "/mine", world_watcher(other));
    coord_memory_disconnect(w->memory, session, 0);
    struct answer a;
    start_create(other, "/late", &a);
    assert_int_equal(call_set(w, "/mine", "x", COORD_ANY_VERSION).r.err, OK); /* the session lives */
    assert_int_equal(call_exists(w, "/late", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    turn(w);
    assert_int_equal(other->state, COORD_DISCONNECTED);
    assert_false(a.done);
    assert_int_equal(other->event_count, 0);

    coord_memory_reconnect(w->memory, session);
    answer_wait(&a);
    assert_int_equal(a.r.err, OK);
    assert_int_equal(other->state, COORD_CONNECTED);
    assert_int_equal(coord_session_id(other->c), session);
    assert_int_equal(other->event_count, 1);
    assert_string_equal(other->events[0], "changed /mine");
    second_session_end(other);
}

static void lost_writes_are_unsure_and_lost_reads_asked_again(void **state)
{
    struct world *w = *state, *other = second_session(w);
    int64_t session = coord_session_id(other->c);
    coord_memory_delay(w->memory, session, true);
    struct answer a[4];
    start_create(other, "/executed", &a[0]);
    start_get(other, "/executed", &a[1]);
    start_create(other, "/lost", &a[2]);
    start_create(other, "/lost/too", &a[3]);
    assert_int_equal(coord_memory_out(w->memory, session), 4);
    coord_memory_disconnect(w->memory, session, 2);
    turn(w);
    assert_true(a[0].done);
    assert_int_equal(a[0].r.err, ERR_UNSURE);
    assert_false(a[1].done);
    assert_false(a[2].done); /* not before what was asked before it */
    assert_int_equal(call_exists(w, "/executed", COORD_NO_WATCH).r.err, OK);
    assert_int_equal(call_exists(w, "/lost", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);

    call_set(w, "/executed", "new", COORD_ANY_VERSION);
    coord_memory_reconnect(w->memory, session);
    turn(w);
    assert_false(a[1].done);
    assert_int_equal(coord_memory_out(w->memory, session), 1);
    coord_memory_run(w->memory, session, 1);
    turn(w);
    assert_true(a[1].done && a[2].done && a[3].done);
    assert_int_equal(a[1].r.err, OK);
    assert_memory_equal(a[1].r.data.data, "new", 3);
    assert_int_equal(a[2].r.err, ERR_UNSURE);
    assert_int_equal(a[3].r.err, ERR_UNSURE);
    assert_int_equal(call_exists(w, "/lost", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    second_session_end(other);
}

static void a_session_that_expires_out_of_reach_hears_of_it_later(void **state)
{
    struct world *w = *state, *other = second_session(w);
    int64_t session = coord_session_id(other->c);
    call_create(other, "/mine", "", COORD_EPHEMERAL);
    call_get(other, "/mine", world_watcher(other));
    coord_memory_disconnect(w->memory, session, 0);
    struct answer a;
    start_create(other, "/late", &a);
    coord_memory_expire(w->memory, session);
    assert_int_equal(call_exists(w, "/mine", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    turn(w);
    assert_false(a.done);
    assert_int_equal(other->state, COORD_DISCONNECTED);
    coord_memory_reconnect(w->memory, session);
    turn(w);
    assert_true(a.done);
    assert_int_equal(a.r.err, ERR_EXPIRED);
    assert_int_equal(other->state, COORD_EXPIRED);
    assert_int_equal(other->event_count, 0); /* the watch has gone with the session */
    second_session_end(other);
}

static void an_expired_session_is_renewed_as_another(void **state)
{
    struct world *w = *state, *other = second_session(w);
    int64_t first = coord_session_id(other->c);
    call_create(w, "/a", "", 0);
    call_get(other, "/a", world_watcher(other));
    coord_memory_expire(w->memory, first);
    assert_int_equal(call_create(other, "/late", "", 0).r.err, ERR_EXPIRED);
    coord_renew(other->c);
    struct answer a = call_create(other, "/mine", "", COORD_EPHEMERAL);
    assert_int_equal(a.r.err, OK);
    assert_int_equal(other->state, COORD_CONNECTED);
    assert_true(coord_session_id(other->c) != first);
    assert_true(call_exists(w, "/mine", COORD_NO_WATCH).r.stat.ephemeral_owner == coord_session_id(other->c));
    call_set(w, "/a", "x", COORD_ANY_VERSION);
    turn(w);
    assert_int_equal(other->event_count, 0);
    coord_memory_expire(w->memory, first); /* is nobody any more */
    assert_int_equal(call_exists(w, "/mine", COORD_NO_WATCH).r.err, OK);
    second_session_end(other);
    assert_int_equal(call_exists(w, "/mine", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
}

static void closing_out_of_reach_leaves_the_nodes_until_expiry(void **state)
{
    struct world *w = *state, *other = second_session(w);
    int64_t session = coord_session_id(other->c);
    call_create(other, "/mine", "", COORD_EPHEMERAL);
    coord_memory_disconnect(w->memory, session, 0);
    struct answer a;
    start_create(other, "/late", &a);
    world_close(other);
    assert_true(a.done);
    assert_int_equal(a.r.err, ERR_CLOSED);
    assert_int_equal(call_exists(w, "/mine", world_watcher(w)).r.err, OK);
    coord_memory_expire(w->memory, session);
    assert_int_equal(call_exists(w, "/mine", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_string_equal(w->events[0], "deleted /mine");
    second_session_end(other);
}

static int setup(void **state)
{
    *state = world_new(false);
    return 0;
}

static int teardown(void **state)
{
    world_free(*state);
    return 0;
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_expired_session_loses_its_nodes_and_others_see_it),
        TEST(a_closed_session_loses_its_nodes),
        TEST(held_events_come_later_in_order),
        TEST(held_results_come_later),
        TEST(calls_wait_while_the_session_is_cut_off),
        TEST(lost_writes_are_unsure_and_lost_reads_asked_again),
        TEST(a_session_that_expires_out_of_reach_hears_of_it_later),
        TEST(an_expired_session_is_renewed_as_another),
        TEST(closing_out_of_reach_leaves_the_nodes_until_expiry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
