/* group_sync_test.c: SyncGroup: the leader's assignment becomes a record, and then everybody's. */
#include "group_world.h"

#define WORLD(w)          \
    struct group_world w; \
    world_start(&w, &world_options)

/* Two members, both in generation 1, nobody has synced; the first leads. */
static void complete_two(struct group_world *w, const char **ids)
{
    struct world_call *joined[2];
    for (int i = 0; i < 2; i++) joined[i] = world_join_new(w, (struct world_join){0});
    world_advance(w, 6000);
    for (int i = 0; i < 2; i++) ids[i] = world_member(joined[i]);
    assert_int_equal(world_state(w, "g"), GROUP_COMPLETING);
}

static struct world_call *sync_as(struct group_world *w, const char *member, const char *assignments)
{
    return world_sync(w, (struct world_sync){.member = member, .generation = 1, .assignments = assignments});
}

static char *two(const char **ids, const char *a, const char *b)
{
    static char text[256];
    snprintf(text, sizeof text, "%s=%s,%s=%s", ids[0], a, ids[1], b);
    return text;
}

static void assert_assigned(const struct world_call *c, const char *expected)
{
    assert_error(c, "NONE");
    assert_int_equal(c->sync_out.assignment.size, strlen(expected));
    assert_memory_equal(c->sync_out.assignment.data, expected, strlen(expected));
}

/* The group's record in the newest write. */
static struct group_metadata_value record_of(struct group_world *w, struct arena *a)
{
    struct group_write *gw = CONTAINER_OF(w->writes.head.prev, struct group_write, node);
    assert_int_equal(gw->count, 1);
    struct reader r = reader_of(gw->records[0].value.data, gw->records[0].value.size);
    struct group_metadata_value v;
    int16_t version;
    assert_int_equal(group_metadata_value_decode_prefixed(&v, &version, &r, a), OK);
    return v;
}

/* ---- The assignment */

static void nobody_is_told_an_assignment_before_its_record_is_safe(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    complete_two(&w, ids);
    struct world_call *follower = sync_as(&w, ids[1], NULL);
    assert_error(follower, "waits");
    assert_int_equal(w.write_count, 0);
    struct world_call *leader = sync_as(&w, ids[0], two(ids, "A", "B"));
    assert_error(leader, "waits");
    assert_error(follower, "waits");
    assert_int_equal(w.write_count, 1);
    assert_int_equal(world_state(&w, "g"), GROUP_COMPLETING);
    world_written(&w, KERR_NONE);
    assert_assigned(leader, "A");
    assert_assigned(follower, "B");
    assert_string_equal(follower->sync_out.protocol_type.data, "consumer");
    assert_string_equal(follower->sync_out.protocol_name.data, "range");
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    world_stop(&w);
}

static void the_record_says_what_members_are_told(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    complete_two(&w, ids);
    sync_as(&w, ids[0], two(ids, "A", "B"));
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct group_metadata_value v = record_of(&w, &a);
    assert_int_equal(v.generation, 1);
    assert_true(str_is(v.protocol, "range"));
    assert_true(str_is(v.protocol_type, "consumer"));
    assert_true(str_is(v.leader, ids[0]));
    assert_int_equal(v.members_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(str_is(v.members[i].member_id, ids[i]));
        assert_int_equal(v.members[i].assignment.size, 1);
        assert_int_equal(v.members[i].assignment.data[0], i == 0 ? 'A' : 'B');
        assert_int_equal(v.members[i].subscription.data[0], 'r');
        assert_int_equal(v.members[i].session_timeout, 10000);
        assert_int_equal(v.members[i].rebalance_timeout, 60000);
        assert_true(str_is(v.members[i].client_host, "/127.0.0.1"));
    }
    arena_fini(&a);
    world_stop(&w);
}

static void a_follower_that_syncs_later_gets_its_assignment_at_once(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    complete_two(&w, ids);
    sync_as(&w, ids[0], two(ids, "A", "B"));
    world_written(&w, KERR_NONE);
    assert_assigned(sync_as(&w, ids[1], NULL), "B");
    /* And as often as it asks; what a leader says now changes nothing. */
    assert_assigned(sync_as(&w, ids[1], NULL), "B");
    assert_assigned(sync_as(&w, ids[0], two(ids, "X", "Y")), "A");
    assert_assigned(sync_as(&w, ids[1], NULL), "B");
    assert_int_equal(w.write_count, 1);
    world_stop(&w);
}

static void who_is_not_assigned_gets_nothing_and_who_is_no_member_does_no_harm(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    complete_two(&w, ids);
    struct world_call *follower = sync_as(&w, ids[1], NULL);
    char text[128];
    snprintf(text, sizeof text, "nobody=N,%s=first,%s=last", ids[0], ids[0]);
    struct world_call *leader = sync_as(&w, ids[0], text);
    world_written(&w, KERR_NONE);
    assert_assigned(leader, "last");
    assert_assigned(follower, "");
    world_stop(&w);
}

static void a_leader_that_syncs_twice_writes_once_and_its_older_call_is_sent_away(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    complete_two(&w, ids);
    struct world_call *first = sync_as(&w, ids[0], two(ids, "A", "B"));
    struct world_call *second = sync_as(&w, ids[0], two(ids, "X", "Y"));
    assert_error(first, "REBALANCE_IN_PROGRESS");
    assert_int_equal(w.write_count, 1);
    world_written(&w, KERR_NONE);
    assert_assigned(second, "A");
    world_stop(&w);
}

/* ---- Failures */

static void a_record_that_is_not_written_is_an_error_for_all_who_wait_and_a_new_rebalance(void **state)
{
    (void)state;
    static const struct {
        enum kerr write;
        const char *told;
    } cases[] = {
        {KERR_UNKNOWN_TOPIC_OR_PARTITION, "COORDINATOR_NOT_AVAILABLE"},
        {KERR_NOT_ENOUGH_REPLICAS, "COORDINATOR_NOT_AVAILABLE"},
        {KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, "COORDINATOR_NOT_AVAILABLE"},
        {KERR_NOT_LEADER_OR_FOLLOWER, "NOT_COORDINATOR"},
        {KERR_KAFKA_STORAGE_ERROR, "NOT_COORDINATOR"},
        {KERR_REQUEST_TIMED_OUT, "REBALANCE_IN_PROGRESS"},
        {KERR_MESSAGE_TOO_LARGE, "UNKNOWN_SERVER_ERROR"},
        {KERR_RECORD_LIST_TOO_LARGE, "UNKNOWN_SERVER_ERROR"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        WORLD(w);
        const char *ids[2];
        complete_two(&w, ids);
        struct world_call *follower = sync_as(&w, ids[1], NULL);
        struct world_call *leader = sync_as(&w, ids[0], two(ids, "A", "B"));
        world_written(&w, cases[i].write);
        assert_error(leader, cases[i].told);
        assert_error(follower, cases[i].told);
        assert_int_equal(leader->sync_out.assignment.size, 0);
        assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
        /* Both are members still and find the way back. */
        struct world_call *joined[2] = {world_join(&w, (struct world_join){.member = ids[0]}),
                                        world_join(&w, (struct world_join){.member = ids[1]})};
        assert_int_equal(joined[0]->join_out.generation_id, 2);
        world_sync_all(&w, joined, 2);
        world_written(&w, KERR_NONE);
        assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
        world_stop(&w);
    }
}

static void an_assignment_that_a_rebalance_overtakes_is_given_up_however_its_write_ends(void **state)
{
    (void)state;
    static const enum kerr outcomes[] = {KERR_NONE, KERR_KAFKA_STORAGE_ERROR};
    for (size_t i = 0; i < ARRAY_COUNT(outcomes); i++) {
        WORLD(w);
        const char *ids[2];
        complete_two(&w, ids);
        struct world_call *leader = sync_as(&w, ids[0], two(ids, "A", "B"));
        world_leave(&w, (struct world_leave){.who = {{.member = ids[1]}}});
        assert_error(leader, "REBALANCE_IN_PROGRESS");
        struct world_call *again = world_join(&w, (struct world_join){.member = ids[0]});
        assert_error(again, "NONE");
        assert_int_equal(world_state(&w, "g"), GROUP_COMPLETING);
        struct world_call *sync = world_sync(&w, (struct world_sync){.member = ids[0], .generation = 2});
        assert_error(sync, "waits");
        world_written(&w, outcomes[i]); /* of generation 1 */
        assert_error(sync, "waits");
        assert_int_equal(world_state(&w, "g"), GROUP_COMPLETING);
        world_written(&w, KERR_NONE);
        assert_assigned(sync, "");
        world_stop(&w);
    }
}

/* ---- Refusals */

static void a_sync_is_checked_for_member_generation_type_and_protocol(void **state)
{
    (void)state;
    WORLD(w);
    assert_error(sync_as(&w, "x", NULL), "UNKNOWN_MEMBER_ID"); /* no such group */
    const char *ids[2];
    complete_two(&w, ids);
    assert_error(sync_as(&w, "x", NULL), "UNKNOWN_MEMBER_ID");
    assert_error(world_sync(&w, (struct world_sync){.member = ids[1], .instance = "i", .generation = 1}),
                 "UNKNOWN_MEMBER_ID");
    assert_error(world_sync(&w, (struct world_sync){.member = ids[1], .generation = 0}), "ILLEGAL_GENERATION");
    assert_error(world_sync(&w, (struct world_sync){.member = ids[1], .generation = 2}), "ILLEGAL_GENERATION");
    assert_error(world_sync(&w, (struct world_sync){.member = ids[1], .generation = 1, .type = "connect"}),
                 "INCONSISTENT_GROUP_PROTOCOL");
    assert_error(world_sync(&w, (struct world_sync){.member = ids[1], .generation = 1, .protocol = "sticky"}),
                 "INCONSISTENT_GROUP_PROTOCOL");
    assert_error(world_sync(&w, (struct world_sync){.group = "", .member = ids[1], .generation = 1}),
                 "INVALID_GROUP_ID");
    world_stop(&w);
}

static void type_and_protocol_must_be_told_since_version_5(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    complete_two(&w, ids);
    struct world_call *c = world_call_new(&w, GROUP_SYNC, 5);
    c->sync_in = (struct sync_group_request){
        .group_id = STR("g"), .generation_id = 1, .member_id = world_str(c, ids[1]), .protocol_type = STR("consumer")};
    world_call(&w, c, &c->sync_in, &c->sync_out);
    assert_error(c, "INCONSISTENT_GROUP_PROTOCOL");
    assert_error(world_sync(&w, (struct world_sync){.version = 4, .member = ids[1], .generation = 1}), "waits");
    world_stop(&w);
}

static void a_sync_during_a_rebalance_or_of_an_empty_group_is_sent_away(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    world_make_stable(&w, (struct world_join){0}, 2, ids);
    world_join(&w, (struct world_join){.member = ids[0]});
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    assert_error(sync_as(&w, ids[1], NULL), "REBALANCE_IN_PROGRESS");
    world_leave(&w, (struct world_leave){.who = {{.member = ids[0]}, {.member = ids[1]}}});
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    assert_error(sync_as(&w, ids[1], NULL), "UNKNOWN_MEMBER_ID");
    world_stop(&w);
}

/* ---- Who does not sync */

static void members_that_do_not_sync_by_the_rebalance_timeout_are_removed(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    for (int i = 0; i < 2; i++)
        joined[i] = world_join_new(&w, (struct world_join){.rebalance_ms = 5000, .session_ms = 60000});
    world_advance(&w, 5000);
    const char *ids[2] = {world_member(joined[0]), world_member(joined[1])};
    struct world_call *leader = sync_as(&w, ids[0], two(ids, "A", "B"));
    world_written(&w, KERR_NONE);
    assert_assigned(leader, "A");
    world_advance(&w, 4999);
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    world_advance(&w, 1);
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    assert_error(world_heartbeat(&w, (struct world_heartbeat){.member = ids[1], .generation = 1}), "UNKNOWN_MEMBER_ID");
    assert_error(world_heartbeat(&w, (struct world_heartbeat){.member = ids[0], .generation = 1}),
                 "REBALANCE_IN_PROGRESS");
    world_stop(&w);
}

static void a_leader_that_never_syncs_is_replaced_and_its_followers_join_again(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    for (int i = 0; i < 2; i++)
        joined[i] = world_join_new(&w, (struct world_join){.rebalance_ms = 5000, .session_ms = 60000});
    world_advance(&w, 5000);
    struct world_call *follower = sync_as(&w, world_member(joined[1]), NULL);
    world_advance(&w, 4999);
    assert_error(follower, "waits");
    world_advance(&w, 1);
    assert_error(follower, "REBALANCE_IN_PROGRESS");
    struct world_call *again = world_join(
        &w, (struct world_join){.member = world_member(joined[1]), .rebalance_ms = 5000, .session_ms = 60000});
    assert_error(again, "NONE");
    assert_string_equal(again->join_out.leader.data, world_member(joined[1]));
    assert_int_equal(again->join_out.members_count, 1);
    world_stop(&w);
}

static void nobody_is_removed_when_all_have_synced(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    world_make_stable(&w, (struct world_join){.session_ms = 600000}, 2, ids);
    world_advance(&w, 120000);
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    assert_int_equal(HASH_CNT(by_id, world_group(&w)->members), 2);
    world_stop(&w);
}

static void a_generation_in_which_nobody_syncs_leaves_the_group_empty(void **state)
{
    (void)state;
    WORLD(w);
    for (int i = 0; i < 2; i++) world_join_new(&w, (struct world_join){.session_ms = 600000});
    world_advance(&w, 6000);
    world_advance(&w, 60000);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    assert_int_equal(world_group(&w)->generation, 2);
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_told_an_assignment_before_its_record_is_safe),
        cmocka_unit_test(the_record_says_what_members_are_told),
        cmocka_unit_test(a_follower_that_syncs_later_gets_its_assignment_at_once),
        cmocka_unit_test(who_is_not_assigned_gets_nothing_and_who_is_no_member_does_no_harm),
        cmocka_unit_test(a_leader_that_syncs_twice_writes_once_and_its_older_call_is_sent_away),
        cmocka_unit_test(a_record_that_is_not_written_is_an_error_for_all_who_wait_and_a_new_rebalance),
        cmocka_unit_test(an_assignment_that_a_rebalance_overtakes_is_given_up_however_its_write_ends),
        cmocka_unit_test(a_sync_is_checked_for_member_generation_type_and_protocol),
        cmocka_unit_test(type_and_protocol_must_be_told_since_version_5),
        cmocka_unit_test(a_sync_during_a_rebalance_or_of_an_empty_group_is_sent_away),
        cmocka_unit_test(members_that_do_not_sync_by_the_rebalance_timeout_are_removed),
        cmocka_unit_test(a_leader_that_never_syncs_is_replaced_and_its_followers_join_again),
        cmocka_unit_test(nobody_is_removed_when_all_have_synced),
        cmocka_unit_test(a_generation_in_which_nobody_syncs_leaves_the_group_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
