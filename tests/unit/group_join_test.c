/* group_join_test.c: JoinGroup: who is let in, under which id, into which generation. */
#include "group_world.h"

#define WORLD(w)          \
    struct group_world w; \
    world_start(&w, &world_options)

/* ---- Ids */

static void a_new_member_is_told_its_id_first_since_version_4(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_join(&w, (struct world_join){.version = 4, .client_id = "cli"});
    assert_error(c, "MEMBER_ID_REQUIRED");
    assert_string_equal(world_member(c), "cli-00000000-0000-0000-0000-000000000001");
    assert_int_equal(c->join_out.generation_id, -1);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    c = world_join(&w, (struct world_join){.version = 4, .member = world_member(c)});
    assert_error(c, "waits");
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    world_stop(&w);
}

static void an_older_client_is_let_in_at_once(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_join(&w, (struct world_join){.version = 3});
    assert_error(c, "waits");
    world_advance(&w, 3000);
    assert_error(c, "NONE");
    assert_string_equal(world_member(c), "client-00000000-0000-0000-0000-000000000001");
    world_stop(&w);
}

static void a_static_member_is_let_in_at_once_under_its_own_name(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_join(&w, (struct world_join){.instance = "one"});
    world_advance(&w, 3000);
    assert_error(c, "NONE");
    assert_string_equal(world_member(c), "one-00000000-0000-0000-0000-000000000001");
    world_stop(&w);
}

/* Strings end at 32767 bytes, in answers and in the log. */
static void a_name_of_which_no_id_can_be_made_is_refused(void **state)
{
    (void)state;
    WORLD(w);
    char *name = mem_zalloc(1, INT16_MAX + 1);
    memset(name, 'x', INT16_MAX);
    assert_error(world_join(&w, (struct world_join){.client_id = name}), "INVALID_REQUEST");
    assert_error(world_join(&w, (struct world_join){.instance = name}), "INVALID_REQUEST");
    assert_int_equal(group_shard_count(w.sh), 0);
    name[INT16_MAX - 37] = '\0';
    struct world_call *c = world_join(&w, (struct world_join){.instance = name});
    world_advance(&w, 3000);
    assert_error(c, "NONE");
    assert_int_equal(c->join_out.member_id.size, INT16_MAX);
    assert_error(world_sync(&w, (struct world_sync){.member = world_member(c),
                                                    .type = "consumer",
                                                    .protocol = "range",
                                                    .generation = 1,
                                                    .assignments = ""}),
                 "waits");
    world_write_all(&w);
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    mem_free(name);
    world_stop(&w);
}

static void an_id_that_does_not_come_back_is_forgotten_after_a_session(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_join(&w, (struct world_join){.session_ms = 6000});
    assert_int_equal(group_shard_count(w.sh), 1);
    world_advance(&w, 5999);
    assert_int_equal(group_shard_count(w.sh), 1);
    world_advance(&w, 1);
    assert_int_equal(group_shard_count(w.sh), 0);
    c = world_join(&w, (struct world_join){.member = world_member(c)});
    assert_error(c, "UNKNOWN_MEMBER_ID");
    world_stop(&w);
}

static void a_rebalance_waits_for_ids_that_were_given_out(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){0}, 1, ids);
    struct world_call *pending = world_join(&w, (struct world_join){.session_ms = 6000});
    assert_error(pending, "MEMBER_ID_REQUIRED");
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    struct world_call *again = world_join(&w, (struct world_join){.member = ids[0]});
    assert_error(again, "waits");
    world_advance(&w, 5999);
    assert_error(again, "waits");
    world_advance(&w, 1);
    assert_error(again, "NONE");
    world_stop(&w);
}

static void an_id_of_nobody_is_unknown_with_or_without_the_group(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_join(&w, (struct world_join){.member = "nobody"});
    assert_error(c, "UNKNOWN_MEMBER_ID");
    assert_string_equal(world_member(c), "nobody");
    assert_int_equal(group_shard_count(w.sh), 0);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){0}, 1, ids);
    assert_error(world_join(&w, (struct world_join){.member = "nobody"}), "UNKNOWN_MEMBER_ID");
    world_stop(&w);
}

/* ---- What is refused */

static void a_session_timeout_outside_the_bounds_is_invalid(void **state)
{
    (void)state;
    WORLD(w);
    assert_error(world_join(&w, (struct world_join){.session_ms = 5999}), "INVALID_SESSION_TIMEOUT");
    assert_error(world_join(&w, (struct world_join){.session_ms = 1800001}), "INVALID_SESSION_TIMEOUT");
    assert_int_equal(group_shard_count(w.sh), 0);
    assert_error(world_join(&w, (struct world_join){.session_ms = 6000}), "MEMBER_ID_REQUIRED");
    assert_error(world_join(&w, (struct world_join){.session_ms = 1800000}), "MEMBER_ID_REQUIRED");
    world_stop(&w);
}

static void an_empty_group_id_is_invalid(void **state)
{
    (void)state;
    WORLD(w);
    assert_error(world_join(&w, (struct world_join){.group = ""}), "INVALID_GROUP_ID");
    world_stop(&w);
}

static void a_first_member_must_name_a_type_and_a_protocol_and_a_refused_one_leaves_no_group(void **state)
{
    (void)state;
    WORLD(w);
    assert_error(world_join(&w, (struct world_join){.type = ""}), "INCONSISTENT_GROUP_PROTOCOL");
    assert_error(world_join(&w, (struct world_join){.protocols = ""}), "INCONSISTENT_GROUP_PROTOCOL");
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void a_member_of_another_type_or_without_a_common_protocol_is_inconsistent(void **state)
{
    (void)state;
    WORLD(w);
    world_join_new(&w, (struct world_join){.protocols = "range=1,sticky=1"});
    struct world_call *c = world_join(&w, (struct world_join){.type = "connect"});
    assert_error(c, "INCONSISTENT_GROUP_PROTOCOL");
    assert_null(c->join_out.protocol_name.data);
    assert_error(world_join(&w, (struct world_join){.protocols = "other=1"}), "INCONSISTENT_GROUP_PROTOCOL");
    /* Each has one in common with the first, but no one is known to all three. */
    world_join_new(&w, (struct world_join){.protocols = "range=1"});
    assert_error(world_join(&w, (struct world_join){.protocols = "sticky=1"}), "INCONSISTENT_GROUP_PROTOCOL");
    assert_error(world_join(&w, (struct world_join){.protocols = "sticky=1,range=1"}), "MEMBER_ID_REQUIRED");
    world_stop(&w);
}

static void a_refused_join_before_version_7_has_an_empty_protocol_name(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_join(&w, (struct world_join){.version = 6, .type = ""});
    assert_error(c, "INCONSISTENT_GROUP_PROTOCOL");
    assert_non_null(c->join_out.protocol_name.data);
    assert_int_equal(c->join_out.protocol_name.size, 0);
    world_stop(&w);
}

static void names_with_a_zero_in_them_are_refused(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_call_new(&w, GROUP_JOIN, 9);
    c->join_in = (struct join_group_request){.group_id = STR("g"),
                                             .session_timeout_ms = 10000,
                                             .rebalance_timeout_ms = 10000,
                                             .member_id = STR_EMPTY,
                                             .group_instance_id = {"a\0b", 3},
                                             .protocol_type = STR("consumer")};
    world_set_protocols(c, "range=r");
    world_call(&w, c, &c->join_in, &c->join_out);
    assert_error(c, "INVALID_REQUEST");
    struct world_call *g = world_call_new(&w, GROUP_JOIN, 9);
    g->join_in = c->join_in;
    g->join_in.group_instance_id = STR_NULL;
    g->join_in.group_id = (struct str){"g\0", 2};
    world_call(&w, g, &g->join_in, &g->join_out);
    assert_error(g, "INVALID_GROUP_ID");
    world_stop(&w);
}

static void names_that_are_no_utf8_are_refused(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_call_new(&w, GROUP_JOIN, 9);
    c->join_in = (struct join_group_request){.group_id = STR("g"),
                                             .session_timeout_ms = 10000,
                                             .rebalance_timeout_ms = 10000,
                                             .member_id = STR_EMPTY,
                                             .group_instance_id = STR_NULL,
                                             .protocol_type = STR("consumer\xff")};
    world_set_protocols(c, "range=r");
    world_call(&w, c, &c->join_in, &c->join_out);
    assert_error(c, "INVALID_REQUEST");
    struct world_call *g = world_call_new(&w, GROUP_JOIN, 9);
    g->join_in = c->join_in;
    g->join_in.protocol_type = STR("consumer");
    g->join_in.group_id = STR("\xed\xa0\x80");
    world_call(&w, g, &g->join_in, &g->join_out);
    assert_error(g, "INVALID_GROUP_ID");
    struct world_call *fine = world_call_new(&w, GROUP_JOIN, 9);
    fine->join_in = g->join_in;
    fine->join_in.group_id = STR("gr\xc3\xbc\xc3\x9f");
    world_call(&w, fine, &fine->join_in, &fine->join_out);
    assert_error(fine, "MEMBER_ID_REQUIRED");
    world_stop(&w);
}

/* ---- Room */

static void options_of_size(struct group_options *opt, int32_t max)
{
    *opt = world_options;
    opt->size_max = max;
}

static void a_full_group_that_prepares_turns_away_who_does_not_wait_yet(void **state)
{
    (void)state;
    struct group_options opt;
    options_of_size(&opt, 2);
    struct group_world w;
    world_start(&w, &opt);
    world_join(&w, (struct world_join){.version = 3});
    struct world_call *second = world_join(&w, (struct world_join){.version = 3});
    struct world_call *third = world_join(&w, (struct world_join){.version = 3});
    assert_error(third, "GROUP_MAX_SIZE_REACHED");
    assert_string_equal(world_member(third), "");
    world_advance(&w, 6000);
    assert_error(second, "NONE");
    world_stop(&w);
}

static void a_full_stable_group_takes_its_members_back_and_no_others(void **state)
{
    (void)state;
    struct group_options opt;
    options_of_size(&opt, 2);
    struct group_world w;
    world_start(&w, &opt);
    const char *ids[2];
    world_make_stable(&w, (struct world_join){0}, 2, ids);
    assert_error(world_join(&w, (struct world_join){.version = 3}), "GROUP_MAX_SIZE_REACHED");
    assert_error(world_join(&w, (struct world_join){0}), "GROUP_MAX_SIZE_REACHED");
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    assert_error(world_join(&w, (struct world_join){.member = ids[1]}), "NONE");
    world_stop(&w);
}

static void of_a_group_larger_than_the_limit_the_last_to_come_back_are_removed(void **state)
{
    (void)state;
    struct group_options opt;
    options_of_size(&opt, 3);
    struct group_world w;
    world_start(&w, &opt);
    const char *ids[3];
    world_make_stable(&w, (struct world_join){0}, 3, ids);
    w.sh->opt.size_max = 2; /* as when a broker starts with another limit */
    struct world_call *a = world_join(&w, (struct world_join){.member = ids[0]});
    struct world_call *b = world_join(&w, (struct world_join){.member = ids[1]});
    assert_error(a, "waits");
    /* Whoever is refused is no member any more, so the group need not wait for it. */
    struct world_call *c = world_join(&w, (struct world_join){.member = ids[2]});
    assert_error(c, "GROUP_MAX_SIZE_REACHED");
    assert_error(a, "NONE");
    assert_error(b, "NONE");
    assert_int_equal(a->join_out.members_count, 2);
    world_stop(&w);
}

/* ---- Known members, by state */

static void a_follower_with_nothing_new_is_told_the_generation_of_a_stable_group(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    world_make_stable(&w, (struct world_join){0}, 2, ids);
    struct world_call *c = world_join(&w, (struct world_join){.member = ids[1]});
    assert_error(c, "NONE");
    assert_int_equal(c->join_out.generation_id, 1);
    assert_string_equal(c->join_out.leader.data, ids[0]);
    assert_string_equal(c->join_out.protocol_type.data, "consumer");
    assert_string_equal(c->join_out.protocol_name.data, "range");
    assert_int_equal(c->join_out.members_count, 0);
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    world_stop(&w);
}

static void a_follower_with_new_metadata_starts_a_rebalance(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    world_make_stable(&w, (struct world_join){0}, 2, ids);
    assert_error(world_join(&w, (struct world_join){.member = ids[1], .protocols = "range=other"}), "waits");
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    world_stop(&w);
}

static void the_leader_of_a_stable_group_starts_a_rebalance_with_nothing_new(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[2];
    world_make_stable(&w, (struct world_join){0}, 2, ids);
    struct world_call *leader = world_join(&w, (struct world_join){.member = ids[0]});
    assert_error(leader, "waits");
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    struct world_call *follower = world_join(&w, (struct world_join){.member = ids[1]});
    assert_error(leader, "NONE");
    assert_error(follower, "NONE");
    assert_int_equal(leader->join_out.generation_id, 2);
    assert_int_equal(leader->join_out.members_count, 2);
    assert_int_equal(follower->join_out.members_count, 0);
    world_stop(&w);
}

/* Both have joined generation 1; nobody has synced. */
static void two_complete(struct group_world *w, struct world_call **joined)
{
    for (int i = 0; i < 2; i++) joined[i] = world_join_new(w, (struct world_join){0});
    world_advance(w, 6000);
    assert_int_equal(world_state(w, "g"), GROUP_COMPLETING);
}

static void a_member_that_missed_its_answer_gets_it_again_while_the_group_completes(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    two_complete(&w, joined);
    struct world_call *leader = world_join(&w, (struct world_join){.member = world_member(joined[0])});
    assert_error(leader, "NONE");
    assert_int_equal(leader->join_out.generation_id, 1);
    assert_int_equal(leader->join_out.members_count, 2);
    struct world_call *follower = world_join(&w, (struct world_join){.member = world_member(joined[1])});
    assert_error(follower, "NONE");
    assert_int_equal(follower->join_out.members_count, 0);
    assert_int_equal(world_state(&w, "g"), GROUP_COMPLETING);
    world_stop(&w);
}

static void a_member_with_new_metadata_starts_over_while_the_group_completes(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *joined[2];
    two_complete(&w, joined);
    struct world_call *sync = world_sync(&w, (struct world_sync){.member = world_member(joined[1]), .generation = 1});
    assert_error(sync, "waits");
    struct world_call *c =
        world_join(&w, (struct world_join){.member = world_member(joined[1]), .protocols = "range=new"});
    assert_error(c, "waits");
    assert_error(sync, "REBALANCE_IN_PROGRESS");
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    world_stop(&w);
}

static void a_member_that_waits_already_waits_once_and_its_older_call_is_sent_away(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *first = world_join_new(&w, (struct world_join){0});
    struct world_call *again = world_join(&w, (struct world_join){.member = first->join_in.member_id.data});
    assert_error(first, "REBALANCE_IN_PROGRESS");
    assert_error(again, "waits");
    world_advance(&w, 3000);
    assert_error(again, "NONE");
    world_stop(&w);
}

static void a_new_member_of_a_stable_group_starts_a_rebalance(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){0}, 1, ids);
    struct world_call *c = world_join_new(&w, (struct world_join){0});
    assert_error(c, "waits");
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    struct world_call *leader = world_join(&w, (struct world_join){.member = ids[0]});
    assert_error(c, "NONE");
    assert_int_equal(c->join_out.generation_id, 2);
    assert_string_equal(c->join_out.leader.data, ids[0]);
    assert_int_equal(leader->join_out.members_count, 2);
    world_stop(&w);
}

/* ---- What the answer says */

static void the_first_member_leads_and_sees_all_with_the_metadata_of_the_chosen_protocol(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *a = world_join_new(&w, (struct world_join){.protocols = "range=A,sticky=x"});
    struct world_call *b = world_join(&w, (struct world_join){.instance = "two", .protocols = "range=B"});
    world_advance(&w, 6000);
    assert_error(a, "NONE");
    assert_error(b, "NONE");
    assert_string_equal(a->join_out.leader.data, world_member(a));
    assert_string_equal(b->join_out.leader.data, world_member(a));
    assert_int_equal(a->join_out.members_count, 2);
    assert_int_equal(b->join_out.members_count, 0);
    assert_string_equal(a->join_out.members[0].member_id.data, world_member(a));
    assert_null(a->join_out.members[0].group_instance_id.data);
    assert_memory_equal(a->join_out.members[0].metadata.data, "A", 1);
    assert_string_equal(a->join_out.members[1].member_id.data, world_member(b));
    assert_string_equal(a->join_out.members[1].group_instance_id.data, "two");
    assert_memory_equal(a->join_out.members[1].metadata.data, "B", 1);
    assert_false(a->join_out.skip_assignment);
    world_stop(&w);
}

static void the_protocol_that_most_prefer_among_those_that_all_know_is_chosen(void **state)
{
    (void)state;
    WORLD(w);
    /* "own" has the most first places, but the third does not know it. */
    struct world_call *a = world_join_new(&w, (struct world_join){.protocols = "own=1,range=1,sticky=1"});
    world_join_new(&w, (struct world_join){.protocols = "own=1,sticky=1,range=1"});
    world_join_new(&w, (struct world_join){.protocols = "sticky=1,range=1"});
    world_advance(&w, 6000);
    assert_error(a, "NONE");
    assert_string_equal(a->join_out.protocol_name.data, "sticky");
    world_stop(&w);
}

static void of_two_protocols_with_one_name_the_first_counts(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *a = world_join_new(&w, (struct world_join){.protocols = "range=first,range=second"});
    world_advance(&w, 3000);
    assert_error(a, "NONE");
    assert_memory_equal(a->join_out.members[0].metadata.data, "first", 5);
    /* And the same request again is the same. */
    struct world_call *again =
        world_join(&w, (struct world_join){.member = world_member(a), .protocols = "range=first,range=second"});
    assert_error(again, "NONE");
    assert_int_equal(again->join_out.generation_id, 1);
    world_stop(&w);
}

static void version_0_has_one_timeout_for_session_and_rebalance(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *a =
        world_join(&w, (struct world_join){.version_0 = true, .session_ms = 8000, .rebalance_ms = 1});
    world_join(&w, (struct world_join){.version = 3, .rebalance_ms = 1});
    assert_int_equal(group_rebalance_timeout_ms(world_group(&w)), 8000);
    world_advance(&w, 6000);
    assert_error(a, "NONE");
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_member_is_told_its_id_first_since_version_4),
        cmocka_unit_test(an_older_client_is_let_in_at_once),
        cmocka_unit_test(a_static_member_is_let_in_at_once_under_its_own_name),
        cmocka_unit_test(a_name_of_which_no_id_can_be_made_is_refused),
        cmocka_unit_test(an_id_that_does_not_come_back_is_forgotten_after_a_session),
        cmocka_unit_test(a_rebalance_waits_for_ids_that_were_given_out),
        cmocka_unit_test(an_id_of_nobody_is_unknown_with_or_without_the_group),
        cmocka_unit_test(a_session_timeout_outside_the_bounds_is_invalid),
        cmocka_unit_test(an_empty_group_id_is_invalid),
        cmocka_unit_test(a_first_member_must_name_a_type_and_a_protocol_and_a_refused_one_leaves_no_group),
        cmocka_unit_test(a_member_of_another_type_or_without_a_common_protocol_is_inconsistent),
        cmocka_unit_test(a_refused_join_before_version_7_has_an_empty_protocol_name),
        cmocka_unit_test(names_with_a_zero_in_them_are_refused),
        cmocka_unit_test(names_that_are_no_utf8_are_refused),
        cmocka_unit_test(a_full_group_that_prepares_turns_away_who_does_not_wait_yet),
        cmocka_unit_test(a_full_stable_group_takes_its_members_back_and_no_others),
        cmocka_unit_test(of_a_group_larger_than_the_limit_the_last_to_come_back_are_removed),
        cmocka_unit_test(a_follower_with_nothing_new_is_told_the_generation_of_a_stable_group),
        cmocka_unit_test(a_follower_with_new_metadata_starts_a_rebalance),
        cmocka_unit_test(the_leader_of_a_stable_group_starts_a_rebalance_with_nothing_new),
        cmocka_unit_test(a_member_that_missed_its_answer_gets_it_again_while_the_group_completes),
        cmocka_unit_test(a_member_with_new_metadata_starts_over_while_the_group_completes),
        cmocka_unit_test(a_member_that_waits_already_waits_once_and_its_older_call_is_sent_away),
        cmocka_unit_test(a_new_member_of_a_stable_group_starts_a_rebalance),
        cmocka_unit_test(the_first_member_leads_and_sees_all_with_the_metadata_of_the_chosen_protocol),
        cmocka_unit_test(the_protocol_that_most_prefer_among_those_that_all_know_is_chosen),
        cmocka_unit_test(of_two_protocols_with_one_name_the_first_counts),
        cmocka_unit_test(version_0_has_one_timeout_for_session_and_rebalance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
