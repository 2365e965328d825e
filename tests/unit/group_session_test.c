/* group_session_test.c: sessions to the millisecond, heartbeats by state, LeaveGroup. */
#include "group_world.h"

#define WORLD(w)          \
    struct group_world w; \
    world_start(&w, &world_options)

static struct world_call *beat(struct group_world *w, const char *member, int32_t generation)
{
    return world_heartbeat(w, (struct world_heartbeat){.member = member, .generation = generation});
}

static unsigned members(struct group_world *w)
{
    return HASH_CNT(by_id, world_group(w)->members);
}

/* ---- Sessions */

static void a_member_that_is_not_heard_of_is_removed_when_its_session_ends(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    world_make_stable(&w, (struct world_join){0}, 2, ids);
    world_advance(&w, 5000);
    assert_error(beat(&w, ids[0], 1), "NONE");
    world_advance(&w, 4999);
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    world_advance(&w, 1);
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    assert_int_equal(members(&w), 1);
    const struct group_rebalance *r = &world_group(&w)->rebalances[1];
    assert_string_equal(r->reason, "a member's session timed out");
    assert_string_equal(r->member_id, ids[1]);
    world_stop(&w);
}

static void a_heartbeat_moves_the_end_of_a_session_and_touches_no_timer(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){0}, 1, ids);
    int64_t due_ms = group_shard_due_ms(w.sh);
    assert_int_equal(due_ms, w.now_ms + 10000);
    world_advance(&w, 9999);
    assert_error(beat(&w, ids[0], 1), "NONE");
    assert_int_equal(group_shard_due_ms(w.sh), due_ms);
    world_advance(&w, 9999);
    assert_int_equal(members(&w), 1);
    world_advance(&w, 1);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    world_stop(&w);
}

static void a_shorter_session_counts_from_the_generation_it_was_told_in(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){.session_ms = 60000}, 1, ids);
    struct world_call *c = world_join(&w, (struct world_join){.member = ids[0], .session_ms = 6000});
    world_sync_all(&w, &c, 1);
    world_written(&w, KERR_NONE);
    world_advance(&w, 5999);
    assert_int_equal(members(&w), 1);
    world_advance(&w, 1);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    world_stop(&w);
}

static void a_new_member_that_waits_for_its_first_generation_has_five_minutes(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){.rebalance_ms = 1000000, .session_ms = 1000000}, 1, ids);
    struct world_call *c = world_join_new(&w, (struct world_join){.session_ms = 6000});
    world_advance(&w, NEW_MEMBER_JOIN_MS - 1);
    assert_error(c, "waits");
    world_advance(&w, 1);
    assert_error(c, "UNKNOWN_MEMBER_ID");
    assert_int_equal(members(&w), 1);
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    world_stop(&w);
}

static void a_member_that_waits_to_join_again_does_not_time_out(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    for (int i = 0; i < 2; i++)
        joined[i] = world_join_new(&w, (struct world_join){.rebalance_ms = 100000, .session_ms = i ? 90000 : 6000});
    world_advance(&w, 6000);
    world_sync_all(&w, joined, 2);
    world_written(&w, KERR_NONE);
    struct world_call *c = world_join(
        &w, (struct world_join){.member = world_member(joined[0]), .rebalance_ms = 100000, .session_ms = 6000});
    world_advance(&w, 89999);
    assert_error(c, "waits");
    world_advance(&w, 1); /* the other's session */
    assert_error(c, "NONE");
    /* From here on it has a session again. */
    world_advance(&w, 5999);
    assert_int_equal(members(&w), 1);
    world_advance(&w, 1);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    world_stop(&w);
}

static void a_member_that_waits_for_its_assignment_does_not_time_out(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    for (int i = 0; i < 2; i++) joined[i] = world_join_new(&w, (struct world_join){.session_ms = i ? 6000 : 50000});
    world_advance(&w, 6000);
    struct world_call *sync = world_sync(&w, (struct world_sync){.member = world_member(joined[1]), .generation = 1});
    world_advance(&w, 49999);
    assert_error(sync, "waits");
    world_sync(&w, (struct world_sync){.member = world_member(joined[0]), .generation = 1});
    world_written(&w, KERR_NONE);
    assert_error(sync, "NONE");
    world_advance(&w, 5999);
    assert_int_equal(members(&w), 2);
    world_advance(&w, 1);
    assert_int_equal(members(&w), 1);
    world_stop(&w);
}

static void a_member_that_has_joined_and_does_not_sync_times_out(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_join_new(&w, (struct world_join){.session_ms = 6000});
    world_advance(&w, 3000);
    assert_error(c, "NONE");
    world_advance(&w, 5999);
    assert_int_equal(world_state(&w, "g"), GROUP_COMPLETING);
    world_advance(&w, 1);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    world_stop(&w);
}

/* ---- Heartbeats */

static void a_heartbeat_is_checked_for_group_member_instance_and_generation(void **state)
{
    (void)state;
    WORLD(w);
    assert_error(beat(&w, "x", 1), "UNKNOWN_MEMBER_ID");
    const char *ids[2];
    world_make_stable(&w, (struct world_join){0}, 2, ids);
    assert_error(beat(&w, "x", 1), "UNKNOWN_MEMBER_ID");
    assert_error(beat(&w, "", 1), "UNKNOWN_MEMBER_ID");
    assert_error(beat(&w, ids[0], 0), "ILLEGAL_GENERATION");
    assert_error(beat(&w, ids[0], 2), "ILLEGAL_GENERATION");
    assert_error(world_heartbeat(&w, (struct world_heartbeat){.member = ids[0], .instance = "i", .generation = 1}),
                 "UNKNOWN_MEMBER_ID");
    assert_error(world_heartbeat(&w, (struct world_heartbeat){.group = "", .member = ids[0], .generation = 1}),
                 "INVALID_GROUP_ID");
    /* An id that was given out is no member's yet. */
    struct world_call *pending = world_join(&w, (struct world_join){0});
    assert_error(beat(&w, world_member(pending), 1), "UNKNOWN_MEMBER_ID");
    world_stop(&w);
}

static void a_heartbeat_is_answered_by_the_groups_state(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_join_new(&w, (struct world_join){0});
    world_advance(&w, 3000);
    assert_int_equal(world_state(&w, "g"), GROUP_COMPLETING);
    assert_error(beat(&w, world_member(c), 1), "NONE");
    world_sync_all(&w, &c, 1);
    world_written(&w, KERR_NONE);
    assert_error(beat(&w, world_member(c), 1), "NONE");
    world_join_new(&w, (struct world_join){0});
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    assert_error(beat(&w, world_member(c), 1), "REBALANCE_IN_PROGRESS");
    world_stop(&w);
}

static void a_heartbeat_during_a_rebalance_keeps_the_session(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    world_make_stable(&w, (struct world_join){0}, 2, ids);
    world_join(&w, (struct world_join){.member = ids[0]});
    for (int i = 0; i < 5; i++) {
        world_advance(&w, 9999);
        assert_error(beat(&w, ids[1], 1), "REBALANCE_IN_PROGRESS");
    }
    assert_int_equal(members(&w), 2);
    world_stop(&w);
}

static void a_heartbeat_in_an_empty_group_is_of_nobody(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){0}, 1, ids);
    world_leave(&w, (struct world_leave){.who = {{.member = ids[0]}}});
    assert_error(beat(&w, ids[0], 1), "UNKNOWN_MEMBER_ID");
    world_stop(&w);
}

/* ---- Leaving */

static void a_member_that_leaves_a_stable_group_starts_a_rebalance(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    world_make_stable(&w, (struct world_join){0}, 2, ids);
    struct world_call *c = world_leave(&w, (struct world_leave){.who = {{.member = ids[0]}}});
    assert_error(c, "NONE");
    assert_int_equal(c->leave_out.members_count, 1);
    assert_string_equal(c->leave_out.members[0].member_id.data, ids[0]);
    assert_int_equal(c->leave_out.members[0].error_code, KERR_NONE);
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    assert_error(beat(&w, ids[0], 1), "UNKNOWN_MEMBER_ID");
    assert_error(beat(&w, ids[1], 1), "REBALANCE_IN_PROGRESS");
    /* The one that stays leads. */
    struct world_call *again = world_join(&w, (struct world_join){.member = ids[1]});
    assert_string_equal(again->join_out.leader.data, ids[1]);
    world_stop(&w);
}

static void a_member_that_leaves_a_group_that_prepares_may_be_the_last_one_waited_for(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    world_make_stable(&w, (struct world_join){0}, 2, ids);
    struct world_call *c = world_join(&w, (struct world_join){.member = ids[0]});
    assert_error(c, "waits");
    world_leave(&w, (struct world_leave){.who = {{.member = ids[1]}}});
    assert_error(c, "NONE");
    world_stop(&w);
}

static void a_member_that_leaves_while_the_group_completes_sends_those_who_wait_back(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[3];
    for (int i = 0; i < 3; i++) joined[i] = world_join_new(&w, (struct world_join){0});
    world_advance(&w, 6000);
    struct world_call *one = world_sync(&w, (struct world_sync){.member = world_member(joined[1]), .generation = 1});
    struct world_call *two = world_sync(&w, (struct world_sync){.member = world_member(joined[2]), .generation = 1});
    /* Over another connection: Kafka forgets to answer the one that leaves. */
    world_leave(&w, (struct world_leave){.who = {{.member = world_member(joined[2])}}});
    assert_error(two, "UNKNOWN_MEMBER_ID");
    assert_error(one, "REBALANCE_IN_PROGRESS");
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    world_stop(&w);
}

static void each_of_a_batch_has_an_answer_of_its_own(void **state)
{
    (void)state;
    WORLD(w);
    world_join_new(&w, (struct world_join){0});
    world_join(&w, (struct world_join){.instance = "one"});
    world_advance(&w, 6000);
    struct world_call *c = world_leave(&w, (struct world_leave){.who = {
                                                                    {.member = "x"},
                                                                    {.instance = "nobody"},
                                                                    {.member = "y", .instance = "one"},
                                                                    {.instance = "one"},
                                                                }});
    assert_error(c, "NONE");
    assert_int_equal(c->leave_out.members_count, 4);
    assert_int_equal(c->leave_out.members[0].error_code, KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(c->leave_out.members[1].error_code, KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(c->leave_out.members[2].error_code, KERR_FENCED_INSTANCE_ID);
    assert_int_equal(c->leave_out.members[3].error_code, KERR_NONE);
    assert_string_equal(c->leave_out.members[3].group_instance_id.data, "one");
    assert_null(c->leave_out.members[0].group_instance_id.data);
    assert_int_equal(members(&w), 1);
    world_stop(&w);
}

static void before_version_3_the_one_members_error_is_the_answers(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){0}, 1, ids);
    assert_error(world_leave(&w, (struct world_leave){.version = 2, .who = {{.member = "x"}}}), "UNKNOWN_MEMBER_ID");
    assert_error(world_leave(&w, (struct world_leave){.version = 2, .who = {{.member = ids[0]}}}), "NONE");
    world_stop(&w);
}

static void members_of_no_group_are_unknown_one_by_one(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_leave(&w, (struct world_leave){.who = {{.member = "x"}, {.member = "y"}}});
    assert_error(c, "NONE");
    assert_int_equal(c->leave_out.members_count, 2);
    assert_int_equal(c->leave_out.members[1].error_code, KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void an_id_that_was_given_out_may_leave_and_the_group_goes_with_it(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *pending = world_join(&w, (struct world_join){0});
    struct world_call *c = world_leave(&w, (struct world_leave){.who = {{.member = world_member(pending)}}});
    assert_int_equal(c->leave_out.members[0].error_code, KERR_NONE);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void an_id_that_was_given_out_and_leaves_is_not_waited_for(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){0}, 1, ids);
    struct world_call *pending = world_join(&w, (struct world_join){0});
    struct world_call *c = world_join(&w, (struct world_join){.member = ids[0]});
    assert_error(c, "waits");
    world_leave(&w, (struct world_leave){.who = {{.member = world_member(pending)}}});
    assert_error(c, "NONE");
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_is_not_heard_of_is_removed_when_its_session_ends),
        cmocka_unit_test(a_heartbeat_moves_the_end_of_a_session_and_touches_no_timer),
        cmocka_unit_test(a_shorter_session_counts_from_the_generation_it_was_told_in),
        cmocka_unit_test(a_new_member_that_waits_for_its_first_generation_has_five_minutes),
        cmocka_unit_test(a_member_that_waits_to_join_again_does_not_time_out),
        cmocka_unit_test(a_member_that_waits_for_its_assignment_does_not_time_out),
        cmocka_unit_test(a_member_that_has_joined_and_does_not_sync_times_out),
        cmocka_unit_test(a_heartbeat_is_checked_for_group_member_instance_and_generation),
        cmocka_unit_test(a_heartbeat_is_answered_by_the_groups_state),
        cmocka_unit_test(a_heartbeat_during_a_rebalance_keeps_the_session),
        cmocka_unit_test(a_heartbeat_in_an_empty_group_is_of_nobody),
        cmocka_unit_test(a_member_that_leaves_a_stable_group_starts_a_rebalance),
        cmocka_unit_test(a_member_that_leaves_a_group_that_prepares_may_be_the_last_one_waited_for),
        cmocka_unit_test(a_member_that_leaves_while_the_group_completes_sends_those_who_wait_back),
        cmocka_unit_test(each_of_a_batch_has_an_answer_of_its_own),
        cmocka_unit_test(before_version_3_the_one_members_error_is_the_answers),
        cmocka_unit_test(members_of_no_group_are_unknown_one_by_one),
        cmocka_unit_test(an_id_that_was_given_out_may_leave_and_the_group_goes_with_it),
        cmocka_unit_test(an_id_that_was_given_out_and_leaves_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
