/* group_rebalance_test.c: how long a group waits for whom, who leads, who is removed, and what is remembered of it. */
#include "group_world.h"

#define WORLD(w)          \
    struct group_world w; \
    world_start(&w, &world_options)

/* ---- The initial delay */

static void a_new_group_waits_the_initial_delay_to_the_millisecond(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_join_new(&w, (struct world_join){0});
    world_advance(&w, 2999);
    assert_error(c, "waits");
    world_advance(&w, 1);
    assert_error(c, "NONE");
    assert_int_equal(c->join_out.generation_id, 1);
    world_stop(&w);
}

static void the_initial_delay_is_added_again_while_members_come(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *a = world_join_new(&w, (struct world_join){0});
    world_advance(&w, 2000);
    world_join_new(&w, (struct world_join){0}); /* until 6000 */
    world_advance(&w, 3999);
    struct world_call *c = world_join_new(&w, (struct world_join){0}); /* until 9000 */
    world_advance(&w, 3000);
    assert_error(a, "waits");
    assert_int_equal(w.now_ms, 1000 + 8999);
    world_advance(&w, 1);
    assert_error(a, "NONE");
    assert_error(c, "NONE");
    assert_int_equal(a->join_out.members_count, 3);
    world_stop(&w);
}

static void the_initial_delay_ends_with_the_first_members_rebalance_timeout(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *a = world_join_new(&w, (struct world_join){.rebalance_ms = 7000});
    for (int second = 0; second < 6; second++) {
        world_advance(&w, 1000);
        world_join_new(&w, (struct world_join){0});
    }
    world_advance(&w, 999);
    assert_error(a, "waits");
    world_advance(&w, 1); /* 3000 + 3000 + what is left: 1000 */
    assert_error(a, "NONE");
    assert_int_equal(a->join_out.members_count, 7);
    world_stop(&w);
}

static void a_group_that_was_empty_waits_the_delay_once(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){0}, 1, ids);
    world_leave(&w, (struct world_leave){.who = {{.member = ids[0]}}});
    world_written(&w, KERR_NONE);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    struct world_call *a = world_join_new(&w, (struct world_join){0});
    world_advance(&w, 1000);
    struct world_call *b = world_join_new(&w, (struct world_join){0});
    world_advance(&w, 2000);
    assert_error(a, "NONE");
    assert_error(b, "NONE");
    assert_int_equal(a->join_out.generation_id, 3);
    world_stop(&w);
}

static void without_a_delay_the_next_tick_ends_the_wait(void **state)
{
    (void)state;
    struct group_options opt = world_options;
    opt.initial_delay_ms = 0;
    struct group_world w;
    world_start(&w, &opt);
    struct world_call *a = world_join_new(&w, (struct world_join){0});
    assert_int_equal(group_shard_due_ms(w.sh), w.now_ms);
    world_advance(&w, 0);
    assert_error(a, "NONE");
    world_stop(&w);
}

static void members_that_all_leave_within_the_delay_leave_an_empty_group_with_a_record(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *a = world_join_new(&w, (struct world_join){0});
    struct world_call *left = world_leave(&w, (struct world_leave){.who = {{.member = a->join_in.member_id.data}}});
    assert_error(left, "NONE");
    assert_error(a, "UNKNOWN_MEMBER_ID");
    assert_string_equal(world_member(a), "");
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    world_advance(&w, 3000);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    assert_int_equal(world_group(&w)->generation, 1);
    assert_int_equal(w.write_count, 1);
    world_stop(&w);
}

/* ---- The rebalance timeout */

static void a_rebalance_ends_when_all_have_joined(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[3];
    world_make_stable(&w, (struct world_join){0}, 3, ids);
    world_join(&w, (struct world_join){.member = ids[0]});
    struct world_call *b = world_join(&w, (struct world_join){.member = ids[1]});
    assert_error(b, "waits");
    world_join(&w, (struct world_join){.member = ids[2]});
    assert_error(b, "NONE");
    assert_int_equal(b->join_out.generation_id, 2);
    world_stop(&w);
}

static void members_that_did_not_join_by_the_longest_rebalance_timeout_are_removed(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    joined[0] = world_join_new(&w, (struct world_join){.rebalance_ms = 9000, .session_ms = 600000});
    joined[1] = world_join_new(&w, (struct world_join){.rebalance_ms = 20000, .session_ms = 600000});
    world_advance(&w, 6000);
    world_sync_all(&w, joined, 2);
    world_written(&w, KERR_NONE);
    struct world_call *a = world_join(
        &w, (struct world_join){.member = world_member(joined[0]), .rebalance_ms = 9000, .session_ms = 600000});
    world_advance(&w, 19999);
    assert_error(a, "waits");
    world_advance(&w, 1);
    assert_error(a, "NONE");
    assert_int_equal(a->join_out.members_count, 1);
    assert_error(world_heartbeat(&w, (struct world_heartbeat){.member = world_member(joined[1]), .generation = 2}),
                 "UNKNOWN_MEMBER_ID");
    assert_int_equal(world_group(&w)->rebalances[0].dropped, 0);
    assert_int_equal(world_group(&w)->rebalances[1].dropped, 1);
    world_stop(&w);
}

static void a_leader_that_did_not_join_again_is_followed_by_one_that_did(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[3];
    world_make_stable(&w, (struct world_join){.session_ms = 600000}, 3, ids);
    struct world_call *c =
        world_join(&w, (struct world_join){.member = ids[2], .session_ms = 600000, .protocols = "range=new"});
    world_advance(&w, 60000);
    assert_error(c, "NONE");
    assert_string_equal(c->join_out.leader.data, ids[2]);
    assert_int_equal(c->join_out.members_count, 1);
    world_stop(&w);
}

static void a_static_member_that_did_not_join_stays_and_another_leads(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    joined[0] = world_join(&w, (struct world_join){.instance = "one", .session_ms = 600000});
    joined[1] = world_join_new(&w, (struct world_join){.session_ms = 600000});
    world_advance(&w, 6000);
    world_sync_all(&w, joined, 2);
    world_written(&w, KERR_NONE);
    assert_string_equal(joined[1]->join_out.leader.data, world_member(joined[0]));
    struct world_call *c = world_join(
        &w, (struct world_join){.member = world_member(joined[1]), .session_ms = 600000, .protocols = "range=new"});
    world_advance(&w, 59999);
    assert_error(c, "waits");
    world_advance(&w, 1);
    assert_error(c, "NONE");
    assert_string_equal(c->join_out.leader.data, world_member(joined[1]));
    assert_int_equal(c->join_out.members_count, 2);
    world_stop(&w);
}

static void static_members_none_of_whom_joined_keep_the_group_waiting_until_one_is_back(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    joined[0] = world_join(&w, (struct world_join){.instance = "one", .session_ms = 600000});
    joined[1] = world_join(&w, (struct world_join){.instance = "two", .session_ms = 600000});
    world_advance(&w, 6000);
    world_sync_all(&w, joined, 2);
    world_written(&w, KERR_NONE);
    /* A third comes, which starts a rebalance, and leaves. */
    struct world_call *c = world_join_new(&w, (struct world_join){0});
    world_leave(&w, (struct world_leave){.who = {{.member = c->join_in.member_id.data}}});
    world_advance(&w, 60000);
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    world_advance(&w, 30000);
    struct world_call *back = world_join(&w, (struct world_join){.instance = "two", .session_ms = 600000});
    world_advance(&w, 29999);
    assert_error(back, "waits");
    world_advance(&w, 1);
    assert_error(back, "NONE");
    assert_string_equal(back->join_out.leader.data, world_member(back));
    world_stop(&w);
}

static void static_members_with_no_rebalance_timeout_do_not_make_us_spin(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *one =
        world_join(&w, (struct world_join){.instance = "one", .rebalance_ms = -1, .session_ms = 600000});
    world_advance(&w, 3000);
    world_sync_all(&w, &one, 1);
    world_written(&w, KERR_NONE);
    struct world_call *c = world_join_new(&w, (struct world_join){.rebalance_ms = -1});
    world_leave(&w, (struct world_leave){.who = {{.member = c->join_in.member_id.data}}});
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    for (int i = 0; i < 10; i++) {
        int64_t before_ms = w.now_ms;
        world_advance(&w, MAX(group_shard_due_ms(w.sh) - w.now_ms, 0));
        if (i > 0) assert_true(w.now_ms > before_ms);
    }
    world_stop(&w);
}

/* ---- The end of a group */

static void the_last_member_leaves_an_empty_generation_which_is_written(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){0}, 1, ids);
    assert_int_equal(w.write_count, 1);
    world_leave(&w, (struct world_leave){.who = {{.member = ids[0]}}});
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    assert_int_equal(w.write_count, 2);
    struct group *grp = world_group(&w);
    assert_int_equal(grp->generation, 2);
    assert_null(grp->protocol);
    assert_null(grp->leader);
    assert_string_equal(grp->protocol_type, "consumer");
    /* And if that is not written, the group is empty all the same. */
    world_written(&w, KERR_NOT_ENOUGH_REPLICAS);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    world_stop(&w);
}

/* ---- History */

static const struct group_rebalance *history(struct group_world *w, uint32_t at)
{
    return &world_group(w)->rebalances[at % REBALANCES_KEPT];
}

static void a_rebalance_is_remembered_with_reason_member_and_duration(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *a = world_join_new(&w, (struct world_join){.client_id = "app", .reason = "need to join"});
    world_advance(&w, 3000);
    assert_int_equal(world_group(&w)->rebalance_count, 1);
    const struct group_rebalance *r = history(&w, 0);
    assert_int_equal(r->started_ms, 1000);
    assert_int_equal(r->started_wall_ms, WORLD_WALL_MS + 1000);
    assert_int_equal(r->took_ms, -1);
    assert_int_equal(r->generation, 1);
    world_advance(&w, 500);
    world_sync_all(&w, &a, 1);
    assert_int_equal(r->took_ms, -1);
    world_written(&w, KERR_NONE);
    assert_int_equal(r->took_ms, 3500);
    assert_string_equal(r->reason, "a member joined: need to join");
    assert_string_equal(r->member_id, world_member(a));
    assert_string_equal(r->client_id, "app");
    world_leave(&w, (struct world_leave){.who = {{.member = world_member(a), .reason = "bye"}}});
    assert_int_equal(world_group(&w)->rebalance_count, 2);
    r = history(&w, 1);
    assert_string_equal(r->reason, "a member left: bye");
    assert_string_equal(r->client_id, "app");
    assert_int_equal(r->took_ms, 0);
    assert_int_equal(r->generation, 2);
    world_stop(&w);
}

static void the_last_sixteen_rebalances_are_kept(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){0}, 1, ids);
    for (int i = 2; i <= 20; i++) {
        struct world_call *c = world_join(&w, (struct world_join){.member = ids[0]});
        world_sync_all(&w, &c, 1);
        world_written(&w, KERR_NONE);
    }
    assert_int_equal(world_group(&w)->rebalance_count, 20);
    for (uint32_t i = 4; i < 20; i++) assert_int_equal(history(&w, i)->generation, i + 1);
    world_stop(&w);
}

static void a_long_reason_is_cut_between_characters(void **state)
{
    (void)state;
    WORLD(w);
    char reason[301];
    memset(reason, 'x', 254);
    for (int i = 254; i < 300; i += 2) memcpy(reason + i, "\xc3\xa4", 2);
    reason[300] = '\0';
    world_join_new(&w, (struct world_join){.reason = reason});
    const char *kept = history(&w, 0)->reason;
    assert_int_equal(strlen(kept), strlen("a member joined: ") + 254);
    world_stop(&w);
}

static void a_reason_that_is_no_text_is_not_kept(void **state)
{
    (void)state;
    WORLD(w);
    world_join_new(&w, (struct world_join){.reason = "x\xff"});
    assert_string_equal(history(&w, 0)->reason, "a member joined: its reason is no text");
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_group_waits_the_initial_delay_to_the_millisecond),
        cmocka_unit_test(the_initial_delay_is_added_again_while_members_come),
        cmocka_unit_test(the_initial_delay_ends_with_the_first_members_rebalance_timeout),
        cmocka_unit_test(a_group_that_was_empty_waits_the_delay_once),
        cmocka_unit_test(without_a_delay_the_next_tick_ends_the_wait),
        cmocka_unit_test(members_that_all_leave_within_the_delay_leave_an_empty_group_with_a_record),
        cmocka_unit_test(a_rebalance_ends_when_all_have_joined),
        cmocka_unit_test(members_that_did_not_join_by_the_longest_rebalance_timeout_are_removed),
        cmocka_unit_test(a_leader_that_did_not_join_again_is_followed_by_one_that_did),
        cmocka_unit_test(a_static_member_that_did_not_join_stays_and_another_leads),
        cmocka_unit_test(static_members_none_of_whom_joined_keep_the_group_waiting_until_one_is_back),
        cmocka_unit_test(static_members_with_no_rebalance_timeout_do_not_make_us_spin),
        cmocka_unit_test(the_last_member_leaves_an_empty_generation_which_is_written),
        cmocka_unit_test(a_rebalance_is_remembered_with_reason_member_and_duration),
        cmocka_unit_test(the_last_sixteen_rebalances_are_kept),
        cmocka_unit_test(a_long_reason_is_cut_between_characters),
        cmocka_unit_test(a_reason_that_is_no_text_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
