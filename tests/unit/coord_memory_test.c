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
    assert_int_equal(call_create(other, "/late", "", 0).r.err, ERR_CLOSED);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
