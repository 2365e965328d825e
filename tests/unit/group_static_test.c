/* group_static_test.c: static members (KIP-345): a process that is started again takes its place without a rebalance,
 * and its older self is fenced. */
#include "group_world.h"

#define WORLD(w)          \
    struct group_world w; \
    world_start(&w, &world_options)

/* A dynamic leader and the static member "one", stable. */
static void stable_with_one(struct group_world *w, const char **ids)
{
    struct world_call *joined[2];
    joined[0] = world_join_new(w, (struct world_join){0});
    joined[1] = world_join(w, (struct world_join){.instance = "one"});
    world_advance(w, 6000);
    world_sync_all(w, joined, 2);
    world_written(w, KERR_NONE);
    for (int i = 0; i < 2; i++) ids[i] = world_member(joined[i]);
}

/* The static member "one" leads, and a dynamic one follows. */
static void stable_led_by_one(struct group_world *w, const char **ids)
{
    struct world_call *joined[2];
    joined[0] = world_join(w, (struct world_join){.instance = "one"});
    joined[1] = world_join_new(w, (struct world_join){0});
    world_advance(w, 6000);
    world_sync_all(w, joined, 2);
    world_written(w, KERR_NONE);
    for (int i = 0; i < 2; i++) ids[i] = world_member(joined[i]);
}

static struct world_call *sync_one(struct group_world *w, const char *member)
{
    return world_sync(w, (struct world_sync){.member = member, .instance = "one", .generation = 1});
}

/* ---- A restart in a stable group */

static void a_static_follower_comes_back_without_a_rebalance_and_with_its_assignment(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    struct world_call *c = world_join(&w, (struct world_join){.instance = "one"});
    assert_error(c, "waits");
    assert_int_equal(w.write_count, 2);
    world_written(&w, KERR_NONE);
    assert_error(c, "NONE");
    assert_string_not_equal(world_member(c), ids[1]);
    assert_int_equal(c->join_out.generation_id, 1);
    assert_string_equal(c->join_out.leader.data, ids[0]);
    assert_int_equal(c->join_out.members_count, 0);
    assert_false(c->join_out.skip_assignment);
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    struct world_call *sync = sync_one(&w, world_member(c));
    assert_error(sync, "NONE");
    assert_memory_equal(sync->sync_out.assignment.data, "a1", 2);
    assert_error(world_heartbeat(&w, (struct world_heartbeat){.member = ids[0], .generation = 1}), "NONE");
    world_stop(&w);
}

static void the_record_of_a_restart_has_the_new_id_and_the_old_assignments(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    world_join(&w, (struct world_join){.instance = "one"});
    struct group_write *gw = CONTAINER_OF(list_first(&w.writes), struct group_write, node);
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct reader r = reader_of(gw->records[0].value.data, gw->records[0].value.size);
    struct group_metadata_value v;
    int16_t version;
    assert_int_equal(group_metadata_value_decode_prefixed(&v, &version, &r, &a), OK);
    assert_int_equal(v.generation, 1);
    assert_int_equal(v.members_count, 2);
    for (int i = 0; i < 2; i++) {
        bool one = str_is(v.members[i].group_instance_id, "one");
        assert_false(str_is(v.members[i].member_id, ids[1]));
        assert_memory_equal(v.members[i].assignment.data, one ? "a1" : "a0", 2);
    }
    arena_fini(&a);
    world_stop(&w);
}

static void a_static_leader_that_knows_version_9_is_told_to_skip_assigning(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_led_by_one(&w, ids);
    struct world_call *c = world_join(&w, (struct world_join){.instance = "one"});
    world_written(&w, KERR_NONE);
    assert_error(c, "NONE");
    assert_true(c->join_out.skip_assignment);
    assert_string_equal(c->join_out.leader.data, world_member(c));
    assert_int_equal(c->join_out.members_count, 2);
    assert_string_equal(world_group(&w)->leader, world_member(c));
    world_stop(&w);
}

static void an_older_static_leader_is_told_that_its_old_self_leads(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_led_by_one(&w, ids);
    struct world_call *c = world_join(&w, (struct world_join){.version = 8, .instance = "one"});
    world_written(&w, KERR_NONE);
    assert_error(c, "NONE");
    assert_false(c->join_out.skip_assignment);
    assert_string_equal(c->join_out.leader.data, ids[0]);
    assert_int_equal(c->join_out.members_count, 0);
    assert_string_equal(world_group(&w)->leader, world_member(c));
    world_stop(&w);
}

static void a_restart_that_changes_the_elected_protocol_is_a_rebalance(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    joined[0] = world_join(&w, (struct world_join){.instance = "one", .protocols = "range=r,sticky=s"});
    joined[1] = world_join_new(&w, (struct world_join){.protocols = "range=r,sticky=s"});
    world_advance(&w, 6000);
    world_sync_all(&w, joined, 2);
    world_written(&w, KERR_NONE);
    struct world_call *c = world_join(&w, (struct world_join){.instance = "one", .protocols = "sticky=s"});
    assert_error(c, "waits");
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    assert_int_equal(w.write_count, 1);
    world_join(&w, (struct world_join){.member = world_member(joined[1]), .protocols = "range=r,sticky=s"});
    assert_error(c, "NONE");
    assert_string_equal(c->join_out.protocol_name.data, "sticky");
    world_stop(&w);
}

static void a_restart_with_new_metadata_for_the_same_protocol_is_none_and_the_metadata_counts(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    struct world_call *c = world_join(&w, (struct world_join){.instance = "one", .protocols = "range=new"});
    world_written(&w, KERR_NONE);
    assert_error(c, "NONE");
    struct world_call *leader = world_join(&w, (struct world_join){.member = ids[0]});
    world_join(&w, (struct world_join){.member = world_member(c), .instance = "one", .protocols = "range=new"});
    assert_error(leader, "NONE");
    int found = 0;
    for (int i = 0; i < leader->join_out.members_count; i++) {
        if (!str_is(leader->join_out.members[i].group_instance_id, "one")) continue;
        assert_memory_equal(leader->join_out.members[i].metadata.data, "new", 3);
        found++;
    }
    assert_int_equal(found, 1);
    world_stop(&w);
}

/* ---- Its record fails, or something happens meanwhile */

static void a_restart_that_is_not_written_is_undone(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    struct world_call *c = world_join(
        &w, (struct world_join){.instance = "one", .protocols = "range=new", .session_ms = 20000, .rebalance_ms = 1});
    world_written(&w, KERR_NOT_ENOUGH_REPLICAS);
    assert_error(c, "COORDINATOR_NOT_AVAILABLE");
    assert_string_equal(world_member(c), "");
    assert_int_equal(c->join_out.generation_id, 1);
    assert_string_equal(c->join_out.leader.data, ids[0]);
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    const struct group_member *m = group_member_find_static(world_group(&w), STR("one"));
    assert_string_equal(m->id, ids[1]);
    assert_int_equal(m->session_timeout_ms, 10000);
    assert_int_equal(m->rebalance_timeout_ms, 60000);
    assert_memory_equal(m->protocols[0].metadata.data, "r", 1);
    /* The older self lives on, if it is there; and its session runs. */
    assert_error(sync_one(&w, ids[1]), "NONE");
    world_advance(&w, 10000);
    assert_null(group_member_find_static(world_group(&w), STR("one")));
    world_stop(&w);
}

static void a_leaders_restart_that_is_not_written_gives_the_lead_back(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_led_by_one(&w, ids);
    struct world_call *c = world_join(&w, (struct world_join){.instance = "one"});
    world_written(&w, KERR_KAFKA_STORAGE_ERROR);
    assert_error(c, "NOT_COORDINATOR");
    assert_string_equal(world_group(&w)->leader, ids[0]);
    world_stop(&w);
}

static void a_second_restart_fences_the_first_before_its_record_is_safe(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    struct world_call *first = world_join(&w, (struct world_join){.instance = "one"});
    struct world_call *second = world_join(&w, (struct world_join){.instance = "one"});
    assert_error(first, "FENCED_INSTANCE_ID");
    assert_error(second, "waits");
    world_written(&w, KERR_NONE); /* the first one's */
    assert_error(second, "waits");
    world_written(&w, KERR_NONE);
    assert_error(second, "NONE");
    assert_error(sync_one(&w, world_member(second)), "NONE");
    world_stop(&w);
}

/* Half a session, after which the leader is heard of. */
static void live_on(struct group_world *w, const char *leader)
{
    world_advance(w, 5000);
    assert_error(world_heartbeat(w, (struct world_heartbeat){.member = leader, .generation = 1}), "NONE");
}

/* Its session ended while it waited, which does not count; another begins with the answer. */
static void a_restart_that_is_written_late_begins_a_session(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    world_join(&w, (struct world_join){.instance = "one"});
    live_on(&w, ids[0]);
    live_on(&w, ids[0]);
    world_written(&w, KERR_NONE);
    live_on(&w, ids[0]);
    world_advance(&w, 4999);
    assert_non_null(group_member_find_static(world_group(&w), STR("one")));
    world_advance(&w, 1);
    assert_null(group_member_find_static(world_group(&w), STR("one")));
    world_stop(&w);
}

static void a_rebalance_that_begins_meanwhile_counts_the_restarted_member_as_joined(void **state)
{
    (void)state;
    static const enum kerr outcomes[] = {KERR_NONE, KERR_REQUEST_TIMED_OUT};
    for (size_t i = 0; i < ARRAY_COUNT(outcomes); i++) {
        WORLD(w);
        const char *ids[2];
        stable_with_one(&w, ids);
        struct world_call *c = world_join(&w, (struct world_join){.instance = "one"});
        world_leave(&w, (struct world_leave){.who = {{.member = ids[0]}}});
        assert_error(c, "NONE"); /* it is the only one left, and leads the next generation */
        assert_int_equal(c->join_out.generation_id, 2);
        world_written(&w, outcomes[i]);
        world_sync_all(&w, &c, 1);
        world_written(&w, KERR_NONE);
        assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
        world_stop(&w);
    }
}

static void a_restarted_member_waits_on_when_its_record_is_decided_during_a_rebalance(void **state)
{
    (void)state;
    static const enum kerr outcomes[] = {KERR_NONE, KERR_REQUEST_TIMED_OUT};
    for (size_t i = 0; i < ARRAY_COUNT(outcomes); i++) {
        WORLD(w);
        struct world_call *joined[3];
        joined[0] = world_join_new(&w, (struct world_join){0});
        joined[1] = world_join(&w, (struct world_join){.instance = "one"});
        joined[2] = world_join_new(&w, (struct world_join){0});
        world_advance(&w, 6000);
        world_sync_all(&w, joined, 3);
        world_written(&w, KERR_NONE);
        struct world_call *c = world_join(&w, (struct world_join){.instance = "one"});
        world_join(&w, (struct world_join){.member = world_member(joined[0])});
        assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
        world_written(&w, outcomes[i]);
        assert_error(c, "waits");
        world_join(&w, (struct world_join){.member = world_member(joined[2])});
        assert_error(c, "NONE");
        assert_int_equal(c->join_out.generation_id, 2);
        world_stop(&w);
    }
}

static void a_restarted_member_that_leaves_before_its_record_is_safe_is_told_so(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    struct world_call *c = world_join(&w, (struct world_join){.instance = "one"});
    world_leave(&w, (struct world_leave){.who = {{.instance = "one"}}});
    assert_error(c, "UNKNOWN_MEMBER_ID");
    world_written(&w, KERR_NONE);
    assert_null(group_member_find_static(world_group(&w), STR("one")));
    world_stop(&w);
}

/* ---- In other states */

static void a_restart_while_the_group_prepares_takes_the_waiting_ones_place(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *first = world_join(&w, (struct world_join){.instance = "one"});
    struct world_call *second = world_join(&w, (struct world_join){.instance = "one"});
    assert_error(first, "FENCED_INSTANCE_ID");
    world_advance(&w, 3000);
    assert_error(second, "NONE");
    assert_int_equal(second->join_out.members_count, 1);
    world_stop(&w);
}

static void a_restart_may_be_the_last_one_that_a_rebalance_waits_for(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    struct world_call *leader = world_join(&w, (struct world_join){.member = ids[0]});
    assert_error(leader, "waits");
    struct world_call *c = world_join(&w, (struct world_join){.instance = "one"});
    assert_error(leader, "NONE");
    assert_error(c, "NONE");
    assert_int_equal(c->join_out.generation_id, 2);
    world_stop(&w);
}

static void a_restart_while_the_group_completes_starts_over_and_fences_who_waits(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    joined[0] = world_join_new(&w, (struct world_join){0});
    joined[1] = world_join(&w, (struct world_join){.instance = "one"});
    world_advance(&w, 6000);
    struct world_call *old = sync_one(&w, world_member(joined[1]));
    assert_error(old, "waits");
    struct world_call *c = world_join(&w, (struct world_join){.instance = "one"});
    assert_error(old, "FENCED_INSTANCE_ID");
    assert_error(c, "waits");
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    world_stop(&w);
}

/* Nobody writes such a record, but it may be there. */
static void a_restart_in_a_group_whose_record_names_no_protocol(void **state)
{
    (void)state;
    struct group_world w;
    world_new(&w, &world_options);
    struct group_metadata_value_member_metadata m = group_metadata_value_member_metadata_default;
    m.member_id = STR("m");
    m.group_instance_id = STR("one");
    m.client_id = m.client_host = STR("c");
    m.session_timeout = m.rebalance_timeout = 10000;
    m.subscription = m.assignment = (struct bytes){(const uint8_t *)"", 0};
    struct group_metadata_value v = group_metadata_value_default;
    v.protocol_type = STR("consumer");
    v.generation = 1;
    v.protocol = STR_NULL;
    v.leader = STR("m");
    v.members = &m;
    v.members_count = 1;
    group_restore(group_make(w.sh, STR("g")), &v);
    world_load(&w);
    struct world_call *c = world_join(&w, (struct world_join){.instance = "one", .protocols = "=r"});
    world_written(&w, KERR_NONE);
    assert_error(c, "NONE");
    assert_int_equal(c->join_out.generation_id, 1);
    world_stop(&w);
}

/* ---- Fencing */

static void the_older_self_is_fenced_whatever_it_asks(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    world_join(&w, (struct world_join){.instance = "one"});
    world_written(&w, KERR_NONE);
    assert_error(world_join(&w, (struct world_join){.member = ids[1], .instance = "one"}), "FENCED_INSTANCE_ID");
    assert_error(sync_one(&w, ids[1]), "FENCED_INSTANCE_ID");
    assert_error(world_heartbeat(&w, (struct world_heartbeat){.member = ids[1], .instance = "one", .generation = 1}),
                 "FENCED_INSTANCE_ID");
    struct world_call *left = world_leave(&w, (struct world_leave){.who = {{.member = ids[1], .instance = "one"}}});
    assert_int_equal(left->leave_out.members[0].error_code, KERR_FENCED_INSTANCE_ID);
    /* Without its instance id it is nobody. */
    assert_error(world_heartbeat(&w, (struct world_heartbeat){.member = ids[1], .generation = 1}), "UNKNOWN_MEMBER_ID");
    world_stop(&w);
}

static void a_dynamic_member_cannot_take_a_static_ones_name(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    assert_error(world_join(&w, (struct world_join){.member = ids[0], .instance = "one"}), "FENCED_INSTANCE_ID");
    assert_error(world_join(&w, (struct world_join){.member = ids[0], .instance = "two"}), "UNKNOWN_MEMBER_ID");
    struct world_call *pending = world_join(&w, (struct world_join){0});
    assert_error(world_join(&w, (struct world_join){.member = world_member(pending), .instance = "two"}),
                 "UNKNOWN_MEMBER_ID");
    world_stop(&w);
}

static void a_static_member_that_is_away_is_removed_when_its_session_ends(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    stable_with_one(&w, ids);
    world_advance(&w, 9000);
    world_heartbeat(&w, (struct world_heartbeat){.member = ids[0], .generation = 1});
    world_advance(&w, 999);
    assert_non_null(group_member_find_static(world_group(&w), STR("one")));
    world_advance(&w, 1);
    assert_null(group_member_find_static(world_group(&w), STR("one")));
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_static_follower_comes_back_without_a_rebalance_and_with_its_assignment),
        cmocka_unit_test(the_record_of_a_restart_has_the_new_id_and_the_old_assignments),
        cmocka_unit_test(a_static_leader_that_knows_version_9_is_told_to_skip_assigning),
        cmocka_unit_test(an_older_static_leader_is_told_that_its_old_self_leads),
        cmocka_unit_test(a_restart_that_changes_the_elected_protocol_is_a_rebalance),
        cmocka_unit_test(a_restart_with_new_metadata_for_the_same_protocol_is_none_and_the_metadata_counts),
        cmocka_unit_test(a_restart_that_is_not_written_is_undone),
        cmocka_unit_test(a_leaders_restart_that_is_not_written_gives_the_lead_back),
        cmocka_unit_test(a_second_restart_fences_the_first_before_its_record_is_safe),
        cmocka_unit_test(a_restart_that_is_written_late_begins_a_session),
        cmocka_unit_test(a_rebalance_that_begins_meanwhile_counts_the_restarted_member_as_joined),
        cmocka_unit_test(a_restarted_member_waits_on_when_its_record_is_decided_during_a_rebalance),
        cmocka_unit_test(a_restarted_member_that_leaves_before_its_record_is_safe_is_told_so),
        cmocka_unit_test(a_restart_while_the_group_prepares_takes_the_waiting_ones_place),
        cmocka_unit_test(a_restart_may_be_the_last_one_that_a_rebalance_waits_for),
        cmocka_unit_test(a_restart_while_the_group_completes_starts_over_and_fences_who_waits),
        cmocka_unit_test(a_restart_in_a_group_whose_record_names_no_protocol),
        cmocka_unit_test(the_older_self_is_fenced_whatever_it_asks),
        cmocka_unit_test(a_dynamic_member_cannot_take_a_static_ones_name),
        cmocka_unit_test(a_static_member_that_is_away_is_removed_when_its_session_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
