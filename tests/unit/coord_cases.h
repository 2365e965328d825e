/* coord_cases.h: ZooKeeper's rules, the same suite for every store: unit/coord_store_test.c runs it on those of one
 * process, system/zookeeper_store.c on an ensemble. */
#ifndef TESTS_COORD_CASES_H
#define TESTS_COORD_CASES_H

#include "coord_world.h"

static void a_node_is_made_read_changed_and_deleted(void **state)
{
    struct world *w = *state;
    struct answer a = call_create(w, "/a", "one", 0);
    assert_int_equal(a.r.err, OK);
    assert_true(str_is(a.r.path, "/a"));
    assert_int_equal(a.r.stat.version, 0);
    assert_true(a.r.stat.czxid > 0);
    int64_t czxid = a.r.stat.czxid;

    a = call_get(w, "/a", COORD_NO_WATCH);
    assert_int_equal(a.r.err, OK);
    assert_int_equal(a.r.data.size, 3);
    assert_memory_equal(a.r.data.data, "one", 3);
    assert_int_equal(a.r.stat.ephemeral_owner, 0);

    a = call_set(w, "/a", "two", 0);
    assert_int_equal(a.r.err, OK);
    assert_int_equal(a.r.stat.version, 1);
    assert_true(a.r.stat.mzxid > czxid);
    assert_true(a.r.stat.czxid == czxid);
    assert_int_equal(call_set(w, "/a", "three", 0).r.err, ERR_VERSION);
    assert_int_equal(call_set(w, "/a", "three", COORD_ANY_VERSION).r.stat.version, 2);

    assert_int_equal(call_delete(w, "/a", 1).r.err, ERR_VERSION);
    assert_int_equal(call_delete(w, "/a", 2).r.err, OK);
    assert_int_equal(call_get(w, "/a", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_int_equal(call_delete(w, "/a", COORD_ANY_VERSION).r.err, ERR_NOT_FOUND);
    assert_int_equal(call_set(w, "/a", "x", COORD_ANY_VERSION).r.err, ERR_NOT_FOUND);
}

static void no_data_and_empty_data_differ(void **state)
{
    struct world *w = *state;
    call_create(w, "/null", NULL, 0);
    call_create(w, "/empty", "", 0);
    assert_null(call_get(w, "/null", COORD_NO_WATCH).r.data.data);
    struct answer a = call_get(w, "/empty", COORD_NO_WATCH);
    assert_non_null(a.r.data.data);
    assert_int_equal(a.r.data.size, 0);
}

static void a_create_needs_its_parent_and_a_free_name(void **state)
{
    struct world *w = *state;
    assert_int_equal(call_create(w, "/a/b", "", 0).r.err, ERR_NOT_FOUND);
    assert_int_equal(call_create(w, "/a", "", 0).r.err, OK);
    assert_int_equal(call_create(w, "/a/b", "", 0).r.err, OK);
    assert_int_equal(call_create(w, "/a/b", "", 0).r.err, ERR_EXISTS);
    assert_int_equal(call_create(w, "/", "", 0).r.err, ERR_EXISTS);
    assert_int_equal(call_delete(w, "/a", COORD_ANY_VERSION).r.err, ERR_NOT_EMPTY);
    assert_int_equal(call_delete(w, "/", COORD_ANY_VERSION).r.err, ERR_INVALID);
}

static void bad_paths_are_refused(void **state)
{
    struct world *w = *state;
    static const char *const bad[] = {"", "a", "/a/", "//a", "/a//b", "/.", "/a/..", "/a/./b", "/a\x01"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_int_equal(call_create(w, bad[i], "", 0).r.err, ERR_INVALID);
        assert_int_equal(call_get(w, bad[i], COORD_NO_WATCH).r.err, ERR_INVALID);
        assert_int_equal(call_set(w, bad[i], "", COORD_ANY_VERSION).r.err, ERR_INVALID);
        assert_int_equal(call_delete(w, bad[i], COORD_ANY_VERSION).r.err, ERR_INVALID);
        assert_int_equal(call_children(w, bad[i], COORD_NO_WATCH).r.err, ERR_INVALID);
    }
    assert_int_equal(call_create(w, "/...", "", 0).r.err, OK);
}

/* ZooKeeper 3.8: the number is the count of creates below the parent so far; cversion counts deletes too. */
static void sequential_names_count_the_parents_creates(void **state)
{
    struct world *w = *state;
    call_create(w, "/p", "", 0);
    struct answer a = call_create(w, "/p/n_", "", COORD_SEQUENTIAL);
    assert_true(str_is(a.r.path, "/p/n_0000000000"));
    call_create(w, "/p/other", "", 0);
    assert_int_equal(call_delete(w, "/p/other", COORD_ANY_VERSION).r.err, OK);
    a = call_create(w, "/p/n_", "", COORD_SEQUENTIAL);
    assert_true(str_is(a.r.path, "/p/n_0000000002"));
    a = call_create(w, "/p/", "", COORD_SEQUENTIAL);
    assert_true(str_is(a.r.path, "/p/0000000003"));
    a = call_get(w, "/p", COORD_NO_WATCH);
    assert_int_equal(a.r.stat.child_count, 3);
    assert_int_equal(a.r.stat.cversion, 5); /* four creates, one delete */
    assert_int_equal(a.r.stat.version, 0);
}

static void ephemeral_nodes_have_an_owner_and_no_children(void **state)
{
    struct world *w = *state;
    assert_int_equal(call_create(w, "/e", "", COORD_EPHEMERAL).r.err, OK);
    struct answer a = call_exists(w, "/e", COORD_NO_WATCH);
    assert_true(a.r.stat.ephemeral_owner == coord_session_id(w->c));
    assert_int_equal(call_create(w, "/e/child", "", 0).r.err, ERR_INVALID);
    a = call_create(w, "/s_", "", COORD_EPHEMERAL | COORD_SEQUENTIAL);
    assert_true(str_is(a.r.path, "/s_0000000001"));
}

static void children_are_listed_sorted(void **state)
{
    struct world *w = *state;
    const char *const made[] = {"/d", "/d/b", "/d/a-1", "/d/a", "/d/10", "/d/9", "/d/a/deep"};
    for (size_t i = 0; i < ARRAY_COUNT(made); i++) assert_int_equal(call_create(w, made[i], "", 0).r.err, OK);
    struct answer a = call_children(w, "/d", COORD_NO_WATCH);
    const char *const expected[] = {"10", "9", "a", "a-1", "b"};
    assert_int_equal(a.r.child_count, ARRAY_COUNT(expected));
    for (size_t i = 0; i < ARRAY_COUNT(expected); i++) assert_true(str_is(a.r.children[i], expected[i]));
    a = call_children(w, "/", COORD_NO_WATCH);
    assert_int_equal(a.r.child_count, 1);
    assert_int_equal(call_children(w, "/none", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
}

static void a_multi_does_all_as_one_change(void **state)
{
    struct world *w = *state;
    call_create(w, "/epoch", "1", 0);
    const struct coord_op ops[] = {
        {.kind = COORD_CHECK, .path = STR("/epoch"), .version = 0},
        {.kind = COORD_CREATE, .path = STR("/m")},
        {.kind = COORD_CREATE, .path = STR("/m/n_"), .flags = COORD_SEQUENTIAL},
        {.kind = COORD_SET, .path = STR("/m"), .data = {(const uint8_t *)"x", 1}, .version = 0},
        {.kind = COORD_DELETE, .path = STR("/m/n_0000000000"), .version = COORD_ANY_VERSION},
    };
    struct answer a = call_multi(w, ops, ARRAY_COUNT(ops));
    assert_int_equal(a.r.err, OK);
    assert_int_equal(a.r.result_count, ARRAY_COUNT(ops));
    assert_string_equal(a.step_paths[2], "/m/n_0000000000");
    a = call_get(w, "/m", COORD_NO_WATCH);
    assert_int_equal(a.r.stat.version, 1);
    assert_int_equal(a.r.stat.cversion, 2);
    assert_true(a.r.stat.mzxid == a.r.stat.czxid);
}

static void a_multi_that_fails_changes_nothing_and_says_where(void **state)
{
    struct world *w = *state;
    call_create(w, "/epoch", "1", 0);
    call_create(w, "/old", "data", 0);
    call_create(w, "/old/child", "", 0);
    int64_t pzxid = call_get(w, "/", COORD_NO_WATCH).r.stat.pzxid;
    call_exists(w, "/new", world_watcher(w));
    call_get(w, "/old", world_watcher(w));
    const struct coord_op ops[] = {
        {.kind = COORD_CREATE, .path = STR("/new")},
        {.kind = COORD_SET, .path = STR("/old"), .data = {(const uint8_t *)"changed", 7}, .version = 0},
        {.kind = COORD_DELETE, .path = STR("/old/child"), .version = 0},
        {.kind = COORD_CHECK, .path = STR("/epoch"), .version = 7},
        {.kind = COORD_CREATE, .path = STR("/later")},
    };
    struct answer a = call_multi(w, ops, ARRAY_COUNT(ops));
    assert_int_equal(a.r.err, ERR_VERSION);
    const enum err expected[] = {OK, OK, OK, ERR_VERSION, ERR_AGAIN};
    for (size_t i = 0; i < ARRAY_COUNT(expected); i++) assert_int_equal(a.steps[i], expected[i]);
    assert_int_equal(call_exists(w, "/new", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_int_equal(call_exists(w, "/old/child", COORD_NO_WATCH).r.err, OK);
    a = call_get(w, "/old", COORD_NO_WATCH);
    assert_memory_equal(a.r.data.data, "data", 4);
    assert_int_equal(a.r.stat.version, 0);
    assert_int_equal(a.r.stat.cversion, 1);
    a = call_get(w, "/", COORD_NO_WATCH);
    assert_true(a.r.stat.pzxid == pzxid);
    assert_int_equal(a.r.stat.child_count, 2);
    assert_int_equal(w->event_count, 0);
    assert_int_equal(call_multi(w, ops, 3).r.err, OK);
}

static void an_empty_multi_is_fine_and_only_writes_go_into_one(void **state)
{
    struct world *w = *state;
    assert_int_equal(call_multi(w, NULL, 0).r.err, OK);
    const struct coord_op get = {.kind = COORD_GET, .path = STR("/")};
    assert_int_equal(call_multi(w, &get, 1).r.err, ERR_INVALID);
}

static void watches_fire_once(void **state)
{
    struct world *w = *state;
    call_exists(w, "/a", world_watcher(w));
    call_children(w, "/", world_watcher(w));
    call_create(w, "/a", "", 0);
    assert_int_equal(w->event_count, 2);
    assert_string_equal(w->events[0], "created /a");
    assert_string_equal(w->events[1], "children /");
    call_set(w, "/a", "x", COORD_ANY_VERSION);
    call_create(w, "/b", "", 0);
    assert_int_equal(w->event_count, 2);

    call_get(w, "/a", world_watcher(w));
    call_get(w, "/a", world_watcher(w)); /* the same watch: set once */
    call_set(w, "/a", "y", COORD_ANY_VERSION);
    assert_int_equal(w->event_count, 3);
    assert_string_equal(w->events[2], "changed /a");

    call_get(w, "/a", world_watcher(w));
    call_children(w, "/a", world_watcher(w));
    call_children(w, "/", world_watcher(w));
    call_delete(w, "/a", COORD_ANY_VERSION);
    assert_int_equal(w->event_count, 6);
    assert_string_equal(w->events[3], "deleted /a");
    assert_string_equal(w->events[4], "deleted /a");
    assert_string_equal(w->events[5], "children /");
}

static void a_watch_on_what_is_not_there_is_set_by_exists_only(void **state)
{
    struct world *w = *state;
    assert_int_equal(call_get(w, "/a", world_watcher(w)).r.err, ERR_NOT_FOUND);
    assert_int_equal(call_children(w, "/a", world_watcher(w)).r.err, ERR_NOT_FOUND);
    call_create(w, "/a", "", 0);
    assert_int_equal(w->event_count, 0);
}

static void a_child_watch_does_not_see_data(void **state)
{
    struct world *w = *state;
    call_create(w, "/a", "", 0);
    call_create(w, "/a/b", "", 0);
    call_children(w, "/a", world_watcher(w));
    call_set(w, "/a", "x", COORD_ANY_VERSION);
    call_set(w, "/a/b", "x", COORD_ANY_VERSION);
    assert_int_equal(w->event_count, 0);
    call_delete(w, "/a/b", COORD_ANY_VERSION);
    assert_int_equal(w->event_count, 1);
    assert_string_equal(w->events[0], "children /a");
}

struct order {
    struct world *w;
    int seen_at_result;
};

static void order_done(void *arg, const struct coord_result *r)
{
    struct order *o = arg;
    assert_int_equal(r->err, OK);
    o->seen_at_result = o->w->event_count;
}

static void a_watch_fires_before_the_result_that_shows_the_change(void **state)
{
    struct world *w = *state;
    call_create(w, "/a", "", 0);
    call_get(w, "/a", world_watcher(w));
    struct order o = {w, -1};
    struct answer a = {.w = w};
    coord_set(w->c, STR("/a"), (struct bytes){NULL, 0}, COORD_ANY_VERSION, (struct coord_to){w->loop, NULL, NULL});
    coord_get(w->c, STR("/a"), COORD_NO_WATCH, (struct coord_to){w->loop, order_done, &o});
    coord_exists(w->c, STR("/a"), COORD_NO_WATCH, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
    assert_int_equal(o.seen_at_result, 1);
}

static void more_bytes_than_zookeeper_takes_are_refused(void **state)
{
    struct world *w = *state;
    char *big = mem_zalloc(1, COORD_BYTES_MAX + 1);
    memset(big, 'x', COORD_BYTES_MAX);
    assert_int_equal(call_create(w, "/big", big, 0).r.err, ERR_TOO_BIG);
    big[COORD_BYTES_MAX - 1000] = '\0';
    assert_int_equal(call_create(w, "/big", big, 0).r.err, OK);
    struct answer a = call_get(w, "/big", COORD_NO_WATCH);
    assert_int_equal(a.r.data.size, COORD_BYTES_MAX - 1000);
    assert_memory_equal(a.r.data.data, big, a.r.data.size);
    mem_free(big);
}

static void paths_are_made_with_their_parents(void **state)
{
    struct world *w = *state;
    const struct str paths[] = {STR("/x/y/z"), STR("/x/w"), STR("/v")};
    for (int round = 0; round < 2; round++) {
        struct answer a = {.w = w};
        coord_make_paths(w->c, paths, ARRAY_COUNT(paths), (struct coord_to){w->loop, answer_done, &a});
        answer_wait(&a);
        assert_int_equal(a.r.err, OK);
    }
    assert_int_equal(call_exists(w, "/x/y/z", COORD_NO_WATCH).r.err, OK);
    assert_int_equal(call_children(w, "/x", COORD_NO_WATCH).r.child_count, 2);
}

static void the_dump_has_one_line_a_node_depth_first(void **state)
{
    struct world *w = *state;
    call_create(w, "/b", "", 0);
    call_create(w, "/a", "{}", 0);
    call_set(w, "/a", "{\"v\":1}", 0);
    call_create(w, "/a/2", "", 0);
    call_create(w, "/a/1", NULL, 0);
    call_create(w, "/a-b", "e", COORD_EPHEMERAL);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    struct answer a = {.w = w};
    coord_dump(w->c, out, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
    fclose(out);
    assert_int_equal(a.r.err, OK);
    assert_string_equal(text, "/ [v0] \n"
                              "/a [v1] {\"v\":1}\n"
                              "/a/1 [v0] \n"
                              "/a/2 [v0] \n"
                              "/a-b [v0 ephemeral] e\n"
                              "/b [v0] \n");
    free(text);
}

static void closing_answers_every_call_first(void **state)
{
    struct world *w = *state;
    struct answer answers[100] = {{.w = w}};
    call_exists(w, "/", COORD_NO_WATCH); /* the store is in reach */
    for (int i = 0; i < 100; i++) {
        answers[i].w = w;
        char path[16];
        snprintf(path, sizeof path, "/%d", i);
        coord_create(w->c, str_of(path), (struct bytes){NULL, 0}, 0,
                     (struct coord_to){w->loop, answer_done, &answers[i]});
    }
    world_close(w);
    for (int i = 0; i < 100; i++) {
        assert_true(answers[i].done);
        assert_int_equal(answers[i].r.err, OK);
    }
}

/* A call whose result makes the next one. */
struct chained {
    struct world *w;
    struct answer next;
};

static void chain_done(void *arg, const struct coord_result *r)
{
    struct chained *ch = arg;
    assert_int_equal(r->err, OK);
    coord_exists(ch->w->c, STR("/"), COORD_NO_WATCH, (struct coord_to){ch->w->loop, answer_done, &ch->next});
}

static void a_call_that_a_result_makes_while_the_store_is_closed_is_refused(void **state)
{
    struct world *w = *state;
    struct chained ch = {.w = w, .next.w = w};
    call_exists(w, "/", COORD_NO_WATCH); /* the store is in reach */
    coord_exists(w->c, STR("/"), COORD_NO_WATCH, (struct coord_to){w->loop, chain_done, &ch});
    world_close(w);
    assert_true(ch.next.done);
    assert_int_equal(ch.next.r.err, ERR_CLOSED);
}

static void the_listener_hears_of_the_connection(void **state)
{
    struct world *w = *state;
    call_exists(w, "/", COORD_NO_WATCH);
    assert_int_equal(w->state_changes, 1);
    assert_int_equal(w->state, COORD_CONNECTED);
}

#define COORD_CASES(X)                                                 \
    X(a_node_is_made_read_changed_and_deleted)                         \
    X(no_data_and_empty_data_differ)                                   \
    X(a_create_needs_its_parent_and_a_free_name)                       \
    X(bad_paths_are_refused)                                           \
    X(sequential_names_count_the_parents_creates)                      \
    X(ephemeral_nodes_have_an_owner_and_no_children)                   \
    X(children_are_listed_sorted)                                      \
    X(a_multi_does_all_as_one_change)                                  \
    X(a_multi_that_fails_changes_nothing_and_says_where)               \
    X(an_empty_multi_is_fine_and_only_writes_go_into_one)              \
    X(watches_fire_once)                                               \
    X(a_watch_on_what_is_not_there_is_set_by_exists_only)              \
    X(a_child_watch_does_not_see_data)                                 \
    X(a_watch_fires_before_the_result_that_shows_the_change)           \
    X(more_bytes_than_zookeeper_takes_are_refused)                     \
    X(paths_are_made_with_their_parents)                               \
    X(the_dump_has_one_line_a_node_depth_first)                        \
    X(closing_answers_every_call_first)                                \
    X(a_call_that_a_result_makes_while_the_store_is_closed_is_refused) \
    X(the_listener_hears_of_the_connection)

#endif
