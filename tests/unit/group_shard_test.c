/* group_shard_test.c: the shard itself: calls whose connection goes, closing, hosts that call from within an answer,
 * refusals by API, loading, and where a group lives. */
#include "group_world.h"
#include "wire/gen/delete_groups.h"
#include "wire/gen/describe_groups.h"
#include "wire/gen/list_groups.h"
#include "wire/gen/offset_commit.h"
#include "wire/gen/offset_delete.h"
#include "wire/gen/offset_fetch.h"

#define WORLD(w)          \
    struct group_world w; \
    world_start(&w, &world_options)

/* ---- Dropped calls */

static void a_member_whose_connection_goes_while_it_joins_is_in_the_generation_all_the_same(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *a = world_join_new(&w, (struct world_join){0});
    struct world_call *b = world_join_new(&w, (struct world_join){0});
    world_drop(&w, b);
    world_advance(&w, 6000);
    assert_error(a, "NONE");
    assert_int_equal(a->join_out.members_count, 2);
    assert_int_equal(b->answers, 0);
    /* Its client asks again over another connection. */
    struct world_call *again = world_join(&w, (struct world_join){.member = b->join_in.member_id.data});
    assert_error(again, "NONE");
    assert_int_equal(again->join_out.generation_id, 1);
    world_stop(&w);
}

static void a_member_whose_connection_goes_while_it_syncs_keeps_its_assignment(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *a = world_join_new(&w, (struct world_join){0});
    world_advance(&w, 3000);
    char text[128];
    snprintf(text, sizeof text, "%s=mine", world_member(a));
    struct world_call *sync =
        world_sync(&w, (struct world_sync){.member = world_member(a), .generation = 1, .assignments = text});
    world_drop(&w, sync);
    arena_reset(&sync->arena); /* what it asked with is gone */
    world_written(&w, KERR_NONE);
    assert_int_equal(sync->answers, 0);
    struct world_call *again = world_sync(&w, (struct world_sync){.member = world_member(a), .generation = 1});
    assert_error(again, "NONE");
    assert_memory_equal(again->sync_out.assignment.data, "mine", 4);
    world_stop(&w);
}

static void a_static_members_restart_whose_connection_goes_is_written_all_the_same(void **state)
{
    (void)state;
    static const enum kerr outcomes[] = {KERR_NONE, KERR_KAFKA_STORAGE_ERROR};
    for (size_t i = 0; i < ARRAY_COUNT(outcomes); i++) {
        WORLD(w);
        const char *ids[1];
        world_make_stable(&w, (struct world_join){.instance = "one"}, 1, ids);
        struct world_call *c = world_join(&w, (struct world_join){.instance = "one"});
        world_drop(&w, c);
        world_written(&w, outcomes[i]);
        const char *id = group_member_find_static(world_group(&w), STR("one"))->id;
        if (outcomes[i])
            assert_string_equal(id, ids[0]);
        else
            assert_string_not_equal(id, ids[0]);
        assert_int_equal(world_group(&w)->joining, 0);
        world_stop(&w);
    }
}

static void a_dropped_new_member_times_out_while_it_waits(void **state)
{
    (void)state;
    WORLD(w);
    const char *ids[1];
    world_make_stable(&w, (struct world_join){.rebalance_ms = 1000000, .session_ms = 1000000}, 1, ids);
    struct world_call *c = world_join_new(&w, (struct world_join){0});
    world_drop(&w, c);
    world_advance(&w, NEW_MEMBER_JOIN_MS);
    assert_int_equal(HASH_CNT(by_id, world_group(&w)->members), 1);
    world_stop(&w);
}

static void dropping_what_was_answered_or_never_given_is_nothing(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *c = world_heartbeat(&w, (struct world_heartbeat){.member = "x"});
    world_drop(&w, c);
    assert_int_equal(c->answers, 1);
    struct group_call never = {.api = GROUP_JOIN};
    group_shard_drop(w.sh, &never);
    world_stop(&w);
}

/* ---- Closing */

static void closing_answers_all_who_wait_and_forgets_all_members(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *synced = world_join_new(&w, (struct world_join){.group = "syncs"});
    struct world_call *one = world_join(&w, (struct world_join){.group = "static", .instance = "one"});
    world_advance(&w, 3000);
    world_sync_all(&w, &one, 1);
    world_written(&w, KERR_NONE);
    /* From here on there is one that waits for each thing that can be waited for. */
    struct world_call *joins = world_join_new(&w, (struct world_join){.group = "joins"});
    struct world_call *syncs =
        world_sync(&w, (struct world_sync){.group = "syncs", .member = world_member(synced), .generation = 1});
    one = world_join(&w, (struct world_join){.group = "static", .instance = "one"});
    struct world_call *pending = world_join(&w, (struct world_join){.group = "pending"});
    assert_error(pending, "MEMBER_ID_REQUIRED");
    struct world_call *const waiting[] = {joins, syncs, one};
    for (size_t i = 0; i < ARRAY_COUNT(waiting); i++) assert_error(waiting[i], "waits");
    group_shard_close(w.sh, KERR_NOT_COORDINATOR);
    for (size_t i = 0; i < ARRAY_COUNT(waiting); i++) assert_error(waiting[i], "NOT_COORDINATOR");
    assert_int_equal(group_shard_due_ms(w.sh), INT64_MAX);
    /* Outcomes that come later find nobody; one good, one bad. */
    world_written(&w, KERR_NONE);
    world_written(&w, KERR_NOT_LEADER_OR_FOLLOWER);
    world_stop(&w);
}

/* ---- Calls from within an answer */

static void rejoin_at_once(struct group_world *w, struct world_call *c)
{
    int *left = w->arg;
    if (c->call.api != GROUP_JOIN || c->join_out.error_code != KERR_NONE || --*left < 0) return;
    /* Two more requests on the same connection, while others of this rebalance are still to be answered. */
    world_leave(w, (struct world_leave){.who = {{.member = world_member(c)}}});
    world_join(w, (struct world_join){.version = 3});
}

static void a_host_may_call_from_within_an_answer(void **state)
{
    (void)state;
    WORLD(w);
    int left = 2;
    w.arg = &left;
    w.on_answer = rejoin_at_once;
    struct world_call *c[4];
    for (int i = 0; i < 4; i++) c[i] = world_join(&w, (struct world_join){.version = 3});
    world_advance(&w, 6000);
    assert_int_equal(left, -2);
    for (int i = 0; i < 4; i++) assert_error(c[i], "NONE");
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    assert_int_equal(HASH_CNT(by_id, world_group(&w)->members), 4);
    world_stop(&w);
}

static void drop_the_other(struct group_world *w, struct world_call *c)
{
    struct world_call **pair = w->arg;
    if (c == pair[0]) world_drop(w, pair[1]);
}

static void a_call_may_be_dropped_when_its_answer_is_about_to_be_given(void **state)
{
    (void)state;
    WORLD(w);
    struct world_call *pair[2];
    for (int i = 0; i < 2; i++) pair[i] = world_join(&w, (struct world_join){.version = 3});
    w.arg = pair;
    w.on_answer = drop_the_other;
    world_advance(&w, 6000);
    assert_error(pair[0], "NONE");
    assert_int_equal(pair[1]->answers, 0);
    world_stop(&w);
}

/* ---- Loading */

static struct group_metadata_value_member_metadata stored(const char *id, const char *instance)
{
    return (struct group_metadata_value_member_metadata){
        .member_id = str_of(id),
        .group_instance_id = str_of(instance),
        .client_id = STR("app"),
        .client_host = STR("/10.0.0.1"),
        .rebalance_timeout = 30000,
        .session_timeout = 10000,
        .subscription = {(const uint8_t *)"sub", 3},
        .assignment = {(const uint8_t *)"ass", 3},
    };
}

static void restore(struct group_world *w, struct group_metadata_value_member_metadata *members, int32_t count)
{
    struct group_metadata_value v = {.protocol_type = STR("consumer"),
                                     .generation = 5,
                                     .protocol = count ? STR("range") : STR_NULL,
                                     .leader = count ? members[0].member_id : STR_NULL,
                                     .current_state_timestamp = 77,
                                     .members = members,
                                     .members_count = count};
    struct group *grp = group_find(w->sh, STR("g"));
    group_restore(grp ? grp : group_make(w->sh, STR("g")), &v);
}

static void a_loaded_group_is_stable_with_its_assignments_and_goes_on(void **state)
{
    (void)state;
    struct group_world w;
    world_new(&w, &world_options);
    struct group_metadata_value_member_metadata members[] = {stored("a", NULL), stored("b", "one")};
    restore(&w, members, 2);
    world_load(&w);
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    assert_int_equal(world_group(&w)->state_since_ms, 77);
    assert_error(world_heartbeat(&w, (struct world_heartbeat){.member = "a", .generation = 5}), "NONE");
    struct world_call *sync = world_sync(&w, (struct world_sync){.member = "b", .instance = "one", .generation = 5});
    assert_error(sync, "NONE");
    assert_memory_equal(sync->sync_out.assignment.data, "ass", 3);
    /* The same metadata as in the record is nothing new. */
    assert_error(world_join(&w, (struct world_join){.member = "b", .instance = "one", .protocols = "range=sub"}),
                 "NONE");
    struct world_call *leader = world_join(&w, (struct world_join){.member = "a", .protocols = "range=sub"});
    assert_error(leader, "waits");
    world_stop(&w);
}

static void sessions_of_loaded_members_begin_when_the_log_has_been_read(void **state)
{
    (void)state;
    struct group_world w;
    world_new(&w, &world_options);
    struct group_metadata_value_member_metadata members[] = {stored("a", NULL)};
    restore(&w, members, 1);
    w.now_ms = 50000;
    world_load(&w);
    world_advance(&w, 9999);
    assert_int_equal(world_state(&w, "g"), GROUP_STABLE);
    world_advance(&w, 1);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    assert_int_equal(world_group(&w)->generation, 6);
    world_stop(&w);
}

static void a_later_record_replaces_an_earlier_one(void **state)
{
    (void)state;
    struct group_world w;
    world_new(&w, &world_options);
    struct group_metadata_value_member_metadata members[] = {stored("a", NULL), stored("b", "one")};
    restore(&w, members, 2);
    restore(&w, members + 1, 1);
    assert_int_equal(HASH_CNT(by_id, world_group(&w)->members), 1);
    assert_string_equal(world_group(&w)->leader, "b");
    restore(&w, NULL, 0);
    world_load(&w);
    assert_int_equal(world_state(&w, "g"), GROUP_EMPTY);
    assert_int_equal(world_group(&w)->generation, 5);
    assert_int_equal(group_shard_due_ms(w.sh), INT64_MAX);
    world_stop(&w);
}

static void a_record_with_a_member_twice_counts_it_once(void **state)
{
    (void)state;
    struct group_world w;
    world_new(&w, &world_options);
    struct group_metadata_value_member_metadata members[] = {stored("a", "one"), stored("a", NULL), stored("b", "one")};
    restore(&w, members, 3);
    world_load(&w);
    assert_int_equal(HASH_CNT(by_id, world_group(&w)->members), 1);
    world_stop(&w);
}

static void the_oldest_records_have_one_timeout(void **state)
{
    (void)state;
    struct group_world w;
    world_new(&w, &world_options);
    struct group_metadata_value_member_metadata members[] = {stored("a", NULL)};
    members[0].rebalance_timeout = -1;
    restore(&w, members, 1);
    assert_int_equal(group_rebalance_timeout_ms(world_group(&w)), 10000);
    world_load(&w);
    world_stop(&w);
}

static void a_loaded_group_that_is_larger_than_the_limit_rebalances(void **state)
{
    (void)state;
    struct group_options opt = world_options;
    opt.size_max = 1;
    struct group_world w;
    world_new(&w, &opt);
    struct group_metadata_value_member_metadata members[] = {stored("a", NULL), stored("b", NULL)};
    restore(&w, members, 2);
    world_load(&w);
    assert_int_equal(world_state(&w, "g"), GROUP_PREPARING);
    struct world_call *a = world_join(&w, (struct world_join){.member = "a", .protocols = "range=sub"});
    struct world_call *b = world_join(&w, (struct world_join){.member = "b", .protocols = "range=sub"});
    assert_error(b, "GROUP_MAX_SIZE_REACHED");
    assert_error(a, "NONE");
    world_stop(&w);
}

/* ---- Refusals */

static struct group_call refused(enum group_api api, int16_t version, const void *in, void *out, struct arena *a,
                                 enum kerr kerr)
{
    struct group_call call = {.api = api, .version = version, .in = in, .out = out, .arena = a};
    group_refuse(&call, kerr);
    return call;
}

static void refusals_of_membership_calls_look_as_kafkas(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct join_group_request join = {.group_id = STR("g"), .member_id = STR("m")};
    struct join_group_response join_out = {.generation_id = 3, .protocol_type = STR("x")};
    refused(GROUP_JOIN, 9, &join, &join_out, &a, KERR_NOT_COORDINATOR);
    assert_int_equal(join_out.error_code, KERR_NOT_COORDINATOR);
    assert_int_equal(join_out.generation_id, -1);
    assert_true(str_is(join_out.member_id, "m"));
    assert_null(join_out.protocol_type.data);
    assert_null(join_out.protocol_name.data);
    assert_true(str_is(join_out.leader, ""));

    struct sync_group_request sync = {.group_id = STR("g")};
    struct sync_group_response sync_out;
    refused(GROUP_SYNC, 5, &sync, &sync_out, &a, KERR_NOT_COORDINATOR);
    assert_int_equal(sync_out.error_code, KERR_NOT_COORDINATOR);
    assert_non_null(sync_out.assignment.data);
    assert_int_equal(sync_out.assignment.size, 0);

    struct heartbeat_request beat = {.group_id = STR("g")};
    struct heartbeat_response beat_out = {0};
    refused(GROUP_HEARTBEAT, 4, &beat, &beat_out, &a, KERR_GROUP_AUTHORIZATION_FAILED);
    assert_int_equal(beat_out.error_code, KERR_GROUP_AUTHORIZATION_FAILED);

    struct leave_group_request_member_identity who = {.member_id = STR("m")};
    struct leave_group_request leave = {.group_id = STR("g"), .members = &who, .members_count = 1};
    struct leave_group_response leave_out;
    refused(GROUP_LEAVE, 5, &leave, &leave_out, &a, KERR_NOT_COORDINATOR);
    assert_int_equal(leave_out.error_code, KERR_NOT_COORDINATOR);
    assert_int_equal(leave_out.members_count, 0);
    arena_fini(&a);
}

static void a_coordinator_that_loads_is_told_to_joiners_only(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct join_group_request join = {.group_id = STR("g"), .member_id = STR_EMPTY};
    struct join_group_response join_out;
    refused(GROUP_JOIN, 9, &join, &join_out, &a, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    assert_int_equal(join_out.error_code, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    struct sync_group_request sync = {.group_id = STR("g")};
    struct sync_group_response sync_out;
    refused(GROUP_SYNC, 5, &sync, &sync_out, &a, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    assert_int_equal(sync_out.error_code, KERR_REBALANCE_IN_PROGRESS);
    struct heartbeat_request beat = {.group_id = STR("g")};
    struct heartbeat_response beat_out = {0};
    refused(GROUP_HEARTBEAT, 4, &beat, &beat_out, &a, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    assert_int_equal(beat_out.error_code, KERR_NONE);
    arena_fini(&a);
}

static void a_refused_commit_keeps_the_errors_that_partitions_have_already(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct offset_commit_request in = {.group_id = STR("g")};
    struct offset_commit_response_offset_commit_response_partition parts[] = {
        {.partition_index = 0}, {.partition_index = 1, .error_code = KERR_UNKNOWN_TOPIC_OR_PARTITION}};
    struct offset_commit_response_offset_commit_response_topic topic = {
        .name = STR("t"), .partitions = parts, .partitions_count = 2};
    struct offset_commit_response out = {.topics = &topic, .topics_count = 1};
    refused(GROUP_COMMIT, 9, &in, &out, &a, KERR_NOT_COORDINATOR);
    assert_int_equal(parts[0].error_code, KERR_NOT_COORDINATOR);
    assert_int_equal(parts[1].error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    arena_fini(&a);
}

static void a_refused_fetch_has_the_error_at_the_group_and_before_version_2_at_each_partition(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    int32_t indexes[] = {3, 8};
    struct offset_fetch_request_offset_fetch_request_topics topic = {
        .name = STR("t"), .partition_indexes = indexes, .partition_indexes_count = 2};
    struct offset_fetch_request_offset_fetch_request_group in = {
        .group_id = STR("g"), .topics = &topic, .topics_count = 1};
    struct offset_fetch_response_offset_fetch_response_group out;
    refused(GROUP_FETCH, 8, &in, &out, &a, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    assert_int_equal(out.error_code, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    assert_true(str_is(out.group_id, "g"));
    assert_int_equal(out.topics_count, 0);
    refused(GROUP_FETCH, 1, &in, &out, &a, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    assert_int_equal(out.topics_count, 1);
    assert_int_equal(out.topics[0].partitions_count, 2);
    assert_int_equal(out.topics[0].partitions[1].partition_index, 8);
    assert_int_equal(out.topics[0].partitions[1].committed_offset, -1);
    assert_int_equal(out.topics[0].partitions[1].error_code, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    arena_fini(&a);
}

static void refusals_of_administration_calls_look_as_kafkas(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct offset_delete_request delete_in = {.group_id = STR("g")};
    struct offset_delete_response_offset_delete_response_topic topic = {.name = STR("t")};
    struct offset_delete_response delete_out = {.topics = &topic, .topics_count = 1};
    refused(GROUP_DELETE_OFFSET, 0, &delete_in, &delete_out, &a, KERR_NOT_COORDINATOR);
    assert_int_equal(delete_out.error_code, KERR_NOT_COORDINATOR);
    assert_int_equal(delete_out.topics_count, 0);
    struct str id = STR("g");
    struct describe_groups_response_described_group described;
    refused(GROUP_DESCRIBE, 5, &id, &described, &a, KERR_NOT_COORDINATOR);
    assert_int_equal(described.error_code, KERR_NOT_COORDINATOR);
    assert_true(str_is(described.group_id, "g"));
    assert_true(str_is(described.group_state, ""));
    struct list_groups_request list = {0};
    struct list_groups_response listed;
    refused(GROUP_LIST, 5, &list, &listed, &a, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    assert_int_equal(listed.error_code, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    struct delete_groups_response_deletable_group_result gone;
    refused(GROUP_DELETE, 2, &id, &gone, &a, KERR_NOT_COORDINATOR);
    assert_int_equal(gone.error_code, KERR_NOT_COORDINATOR);
    assert_true(str_is(gone.group_id, "g"));
    arena_fini(&a);
}

static void an_empty_group_id_is_for_offsets_and_administration_only(void **state)
{
    (void)state;
    static const bool allowed[GROUP_API_COUNT] = {
        [GROUP_COMMIT] = true, [GROUP_FETCH] = true, [GROUP_DESCRIBE] = true, [GROUP_DELETE] = true};
    for (int api = 0; api < GROUP_API_COUNT; api++) {
        if (api == GROUP_LIST) continue;
        assert_int_equal(group_id_is_valid(STR_EMPTY, (enum group_api)api), allowed[api]);
        assert_true(group_id_is_valid(STR("g"), (enum group_api)api));
        assert_false(group_id_is_valid(STR_NULL, (enum group_api)api));
    }
}

/* ---- Where a group lives: what java.lang.String.hashCode() says */

static void a_groups_partition_is_javas_hash_of_its_id(void **state)
{
    (void)state;
    assert_int_equal(group_partition_of(STR(""), 50), 0);
    assert_int_equal(group_partition_of(STR("g"), 50), 103 % 50);
    assert_int_equal(group_partition_of(STR("group"), INT32_MAX), 98629247);
    assert_int_equal(group_partition_of(STR("hello"), INT32_MAX), 99162322);
    /* U+00E4 is one unit, 228; U+20AC one, 8364; U+1F600 two, 0xd83d and 0xde00. */
    assert_int_equal(group_partition_of(STR("\xc3\xa4"), 1000), 228);
    assert_int_equal(group_partition_of(STR("\xe2\x82\xac"), 10000), 8364);
    assert_int_equal(group_partition_of(STR("\xf0\x9f\x98\x80"), INT32_MAX), 31 * 0xd83d + 0xde00);
}

static void a_negative_hash_loses_its_sign_and_the_smallest_one_is_0(void **state)
{
    (void)state;
    /* "hello world".hashCode() == 1794106052; "polygenelubricants".hashCode() == Integer.MIN_VALUE. */
    assert_int_equal(group_partition_of(STR("hello world"), INT32_MAX), 1794106052);
    assert_int_equal(group_partition_of(STR("polygenelubricants"), 50), 0);
    assert_int_equal(group_partition_of(STR("polygenelubricants"), INT32_MAX), 0);
    /* One less than MIN_VALUE's successor: "polygenelubricantt" is MIN_VALUE + 1, whose opposite is MAX_VALUE. */
    assert_int_equal(group_partition_of(STR("polygenelubricantt"), 50), INT32_MAX % 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_whose_connection_goes_while_it_joins_is_in_the_generation_all_the_same),
        cmocka_unit_test(a_member_whose_connection_goes_while_it_syncs_keeps_its_assignment),
        cmocka_unit_test(a_static_members_restart_whose_connection_goes_is_written_all_the_same),
        cmocka_unit_test(a_dropped_new_member_times_out_while_it_waits),
        cmocka_unit_test(dropping_what_was_answered_or_never_given_is_nothing),
        cmocka_unit_test(closing_answers_all_who_wait_and_forgets_all_members),
        cmocka_unit_test(a_host_may_call_from_within_an_answer),
        cmocka_unit_test(a_call_may_be_dropped_when_its_answer_is_about_to_be_given),
        cmocka_unit_test(a_loaded_group_is_stable_with_its_assignments_and_goes_on),
        cmocka_unit_test(sessions_of_loaded_members_begin_when_the_log_has_been_read),
        cmocka_unit_test(a_later_record_replaces_an_earlier_one),
        cmocka_unit_test(a_record_with_a_member_twice_counts_it_once),
        cmocka_unit_test(the_oldest_records_have_one_timeout),
        cmocka_unit_test(a_loaded_group_that_is_larger_than_the_limit_rebalances),
        cmocka_unit_test(refusals_of_membership_calls_look_as_kafkas),
        cmocka_unit_test(a_coordinator_that_loads_is_told_to_joiners_only),
        cmocka_unit_test(a_refused_commit_keeps_the_errors_that_partitions_have_already),
        cmocka_unit_test(a_refused_fetch_has_the_error_at_the_group_and_before_version_2_at_each_partition),
        cmocka_unit_test(refusals_of_administration_calls_look_as_kafkas),
        cmocka_unit_test(an_empty_group_id_is_for_offsets_and_administration_only),
        cmocka_unit_test(a_groups_partition_is_javas_hash_of_its_id),
        cmocka_unit_test(a_negative_hash_loses_its_sign_and_the_smallest_one_is_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
