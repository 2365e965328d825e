/* group: OffsetCommit, OffsetFetch and OffsetDelete, by Kafka 3.9's rules. */
#include "group_log.h"

static const struct member two[] = {{.id = "m1"}, {.id = "m2", .instance_id = "i2"}, {.id = NULL}};

/* A stable group "g" of generation 5: "m1", and "m2" with the instance id "i2". */
static void start_stable(struct world *w)
{
    world_start(w);
    log_has_group(w, &(struct group_spec){"g", "consumer", "range", 5, START_MS, two});
    assert_string_equal(state_of(w, "g"), "Stable");
}

static enum kerr committed_by(struct world *w, int32_t generation, const char *member, const char *instance)
{
    struct asked *a = commit_as(w, &(struct commit_spec){.group = "g",
                                                         .generation = generation,
                                                         .member = member,
                                                         .instance = instance,
                                                         .parts = PARTS({"t", 0, 7})});
    log_safe(w);
    return commit_error(a, 0);
}

/* ---- Who may commit */

static void test_a_group_that_is_not_there_takes_commits_of_no_generation(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(committed_by(&w, -1, "", NULL), KERR_NONE);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    assert_string_equal(state_of(&w, "g"), "Empty");
    world_stop(&w);
}

static void test_a_group_that_is_not_there_has_had_no_generation(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(committed_by(&w, 0, "m1", NULL), KERR_ILLEGAL_GENERATION);
    assert_int_equal(committed_by(&w, 3, "", NULL), KERR_ILLEGAL_GENERATION);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_an_empty_group_takes_commits_without_generation_whoever_sends_them(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
    assert_int_equal(committed_by(&w, -1, "", NULL), KERR_NONE);
    assert_int_equal(committed_by(&w, -1, "somebody", NULL), KERR_NONE);
    assert_int_equal(committed_by(&w, -1, "", "an-instance"), KERR_NONE);
    assert_int_equal(committed_by(&w, 5, "somebody", NULL), KERR_UNKNOWN_MEMBER_ID);
    world_stop(&w);
}

static void test_a_member_of_the_generation_commits(void **state)
{
    (void)state;
    struct world w;
    start_stable(&w);
    assert_int_equal(committed_by(&w, 5, "m1", NULL), KERR_NONE);
    assert_int_equal(committed_by(&w, 5, "m2", "i2"), KERR_NONE);
    assert_int_equal(committed_by(&w, 5, "m2", NULL), KERR_NONE);
    world_stop(&w);
}

static void test_a_group_with_members_takes_commits_of_no_one_else(void **state)
{
    (void)state;
    struct world w;
    start_stable(&w);
    assert_int_equal(committed_by(&w, -1, "", NULL), KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(committed_by(&w, 5, "", NULL), KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(committed_by(&w, 5, "m3", NULL), KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(committed_by(&w, 5, "m1", "i9"), KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    world_stop(&w);
}

static void test_a_member_of_another_generation_is_refused(void **state)
{
    (void)state;
    struct world w;
    start_stable(&w);
    assert_int_equal(committed_by(&w, 4, "m1", NULL), KERR_ILLEGAL_GENERATION);
    assert_int_equal(committed_by(&w, 6, "m1", NULL), KERR_ILLEGAL_GENERATION);
    assert_int_equal(committed_by(&w, -1, "m1", NULL), KERR_ILLEGAL_GENERATION);
    world_stop(&w);
}

static void test_a_static_member_that_was_replaced_is_fenced(void **state)
{
    (void)state;
    struct world w;
    start_stable(&w);
    assert_int_equal(committed_by(&w, 5, "m1", "i2"), KERR_FENCED_INSTANCE_ID);
    assert_int_equal(committed_by(&w, 5, "old", "i2"), KERR_FENCED_INSTANCE_ID);
    world_stop(&w);
}

static void test_members_commit_while_the_next_generation_gathers(void **state)
{
    (void)state;
    struct world w;
    start_stable(&w);
    rejoin(&w, "g", "m1", "range");
    assert_string_equal(state_of(&w, "g"), "PreparingRebalance");
    assert_int_equal(committed_by(&w, 5, "m2", NULL), KERR_NONE);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    world_stop(&w);
}

static void test_a_generation_that_has_no_assignment_yet_does_not_commit(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS, MEMBERS({.id = "m1"})});
    rejoin(&w, "g", "m1", "range");
    assert_string_equal(state_of(&w, "g"), "CompletingRebalance");
    assert_int_equal(committed_by(&w, 6, "m1", NULL), KERR_REBALANCE_IN_PROGRESS);
    assert_int_equal(committed_by(&w, 5, "m1", NULL), KERR_ILLEGAL_GENERATION);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    world_stop(&w);
}

static void test_a_commit_is_a_sign_of_life(void **state)
{
    (void)state;
    struct world w;
    start_stable(&w);
    for (int i = 0; i < 3; i++) {
        world_wait(&w, MINUTE_MS - 1);
        assert_int_equal(committed_by(&w, 5, "m1", NULL), KERR_NONE);
        assert_int_equal(committed_by(&w, 5, "m2", NULL), KERR_NONE);
    }
    assert_string_equal(state_of(&w, "g"), "Stable");
    world_wait(&w, MINUTE_MS - 1);
    assert_int_equal(committed_by(&w, 4, "m1", NULL), KERR_ILLEGAL_GENERATION); /* this one is none */
    assert_int_equal(committed_by(&w, 5, "m2", NULL), KERR_NONE);
    world_wait(&w, 1);
    assert_string_equal(state_of(&w, "g"), "PreparingRebalance");
    assert_int_equal(committed_by(&w, 5, "m1", NULL), KERR_UNKNOWN_MEMBER_ID);
    world_stop(&w);
}

/* ---- What is committed */

static void test_a_commit_counts_when_its_record_is_safe_and_not_before(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct asked *a = commit(&w, "g", PARTS({"t", 0, 7, "note", 3}));
    assert_false(a->answered);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    log_safe(&w);
    assert_int_equal(commit_error(a, 0), KERR_NONE);
    fetched f = fetch(&w, "g", "t", 0);
    assert_int_equal(f.committed_offset, 7);
    assert_int_equal(f.committed_leader_epoch, 3);
    assert_true(str_is(f.metadata, "note"));
    world_stop(&w);
}

static void test_a_commit_whose_record_is_lost_changes_nothing(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7, "note"}));
    log_safe(&w);
    struct asked *a = commit(&w, "g", PARTS({"t", 0, 8}, {"t", 1, 8}));
    log_fail_one(&w, KERR_NOT_ENOUGH_REPLICAS);
    assert_int_equal(commit_error(a, 0), KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(commit_error(a, 1), KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    assert_true(str_is(fetch(&w, "g", "t", 0).metadata, "note"));
    assert_int_equal(committed(&w, "g", "t", 1), -1);
    world_stop(&w);
}

static void test_a_group_that_a_lost_commit_made_is_gone(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7}));
    assert_int_equal(group_shard_count(w.sh), 1);
    log_fail_one(&w, KERR_REQUEST_TIMED_OUT);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_of_several_commits_on_their_way_the_last_one_wins(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    for (int i = 1; i <= 4; i++) commit(&w, "g", PARTS({"t", 0, i * 10}));
    log_safe_one(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 10);
    log_fail_one(&w, KERR_REQUEST_TIMED_OUT);
    assert_int_equal(committed(&w, "g", "t", 0), 10);
    log_safe_one(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 30);
    log_fail_one(&w, KERR_REQUEST_TIMED_OUT);
    assert_int_equal(committed(&w, "g", "t", 0), 30);
    world_stop(&w);
}

static void test_a_partition_named_twice_has_what_was_said_last(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 1}, {"u", 0, 5}, {"t", 0, 2}));
    log_safe(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 2);
    log_reload(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 2);
    world_stop(&w);
}

static void test_offsets_may_go_back(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 100}));
    commit(&w, "g", PARTS({"t", 0, 0}));
    log_safe(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 0);
    world_stop(&w);
}

static void test_metadata_past_the_limit_is_refused_for_its_partition_alone(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct asked *a = commit(&w, "g", PARTS({"t", 0, 1, "12345678"}, {"t", 1, 2, "123456789"}, {"u", 0, 3, ""}));
    log_safe(&w);
    assert_int_equal(commit_error(a, 0), KERR_NONE);
    assert_int_equal(commit_error(a, 1), KERR_OFFSET_METADATA_TOO_LARGE);
    assert_int_equal(commit_error(a, 2), KERR_NONE);
    assert_int_equal(committed(&w, "g", "t", 0), 1);
    assert_int_equal(committed(&w, "g", "t", 1), -1);
    assert_int_equal(committed(&w, "g", "u", 0), 3);
    world_stop(&w);
}

/* Java's strings have a length of two for a character outside the BMP, of one for any other. */
static void test_the_metadata_limit_counts_as_java_does(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct asked *a =
        commit(&w, "g",
               PARTS({"t", 0, 1, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad"},
                     {"t", 1, 1, "\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80"},
                     {"t", 2, 1, "\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80-"}));
    log_safe(&w);
    assert_int_equal(commit_error(a, 0), KERR_NONE);
    assert_int_equal(commit_error(a, 1), KERR_NONE);
    assert_int_equal(commit_error(a, 2), KERR_OFFSET_METADATA_TOO_LARGE);
    world_stop(&w);
}

static void test_errors_that_the_broker_knows_of_are_left_alone(void **state)
{
    (void)state;
    struct world w;
    start_stable(&w);
    const struct part *parts = PARTS({"t", 0, 1, .preset = KERR_UNKNOWN_TOPIC_OR_PARTITION}, {"t", 1, 2});
    struct asked *a =
        commit_as(&w, &(struct commit_spec){.group = "g", .generation = 5, .member = "m1", .parts = parts});
    log_safe(&w);
    assert_int_equal(commit_error(a, 0), KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(commit_error(a, 1), KERR_NONE);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    a = commit_as(&w, &(struct commit_spec){.group = "g", .generation = 4, .member = "m1", .parts = parts});
    assert_int_equal(commit_error(a, 0), KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(commit_error(a, 1), KERR_ILLEGAL_GENERATION);
    a = commit_as(&w, &(struct commit_spec){.group = "g", .generation = 5, .member = "m1", .parts = parts});
    log_fail_one(&w, KERR_MESSAGE_TOO_LARGE);
    assert_int_equal(commit_error(a, 0), KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(commit_error(a, 1), KERR_INVALID_COMMIT_OFFSET_SIZE);
    world_stop(&w);
}

static void test_a_commit_of_which_nothing_is_left_writes_nothing(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct asked *a =
        commit(&w, "g", PARTS({"t", 0, 1, "far too long"}, {"u", 0, 1, .preset = KERR_UNKNOWN_TOPIC_OR_PARTITION}));
    assert_int_equal(commit_error(a, 0), KERR_OFFSET_METADATA_TOO_LARGE);
    assert_int_equal(commit_error(a, 1), KERR_UNKNOWN_TOPIC_OR_PARTITION);
    a = commit(&w, "g", PARTS({.topic = NULL}));
    assert_true(a->answered);
    assert_int_equal(w.pending_count, 0);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_a_commit_whose_client_has_gone_counts_all_the_same(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct asked *a = commit(&w, "g", PARTS({"t", 0, 7}));
    group_shard_drop(w.sh, &a->call);
    log_safe(&w);
    assert_false(a->answered);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    world_stop(&w);
}

static void test_a_shard_that_moves_answers_its_commits(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct asked *a = commit(&w, "g", PARTS({"t", 0, 7}));
    group_shard_close(w.sh, KERR_NOT_COORDINATOR);
    assert_int_equal(commit_error(a, 0), KERR_NOT_COORDINATOR);
    log_safe(&w); /* and its outcome finds nobody */
    world_stop(&w);
}

/* ---- Fetching */

static void test_what_was_never_committed_is_no_error(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7}));
    log_safe(&w);
    static const char *const groups[] = {"g", "nobody"};
    for (size_t i = 0; i < ARRAY_COUNT(groups); i++) {
        fetched f = fetch(&w, groups[i], "t", 1);
        assert_int_equal(f.committed_offset, -1);
        assert_int_equal(f.committed_leader_epoch, -1);
        assert_int_equal(f.error_code, KERR_NONE);
        assert_true(str_is(f.metadata, ""));
        assert_int_equal(committed(&w, groups[i], "u", 0), -1);
    }
    assert_int_equal(fetch_all_as(&w, "nobody", false)->out.fetch.topics_count, 0);
    world_stop(&w);
}

static void test_no_topics_asked_for_are_none(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7}));
    log_safe(&w);
    struct asked *a = ask_begin(&w, GROUP_FETCH);
    a->in.fetch = offset_fetch_request_offset_fetch_request_group_default;
    a->out.fetch = offset_fetch_response_offset_fetch_response_group_default;
    a->in.fetch.group_id = STR("g");
    ask(&w, a);
    assert_int_equal(a->out.fetch.topics_count, 0);
    world_stop(&w);
}

static void test_null_topics_are_all_that_is_committed(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7, "a"}, {"t", 3, 9, "b", 4}, {"u", 1, 5}));
    log_safe(&w);
    commit(&w, "g", PARTS({"t", 5, 1}, {"v", 0, 1})); /* not safe */
    struct asked *a = fetch_all_as(&w, "g", false);
    assert_int_equal(a->out.fetch.topics_count, 2);
    assert_true(str_is(a->out.fetch.topics[0].name, "t"));
    assert_int_equal(a->out.fetch.topics[0].partitions_count, 2);
    fetched f = a->out.fetch.topics[0].partitions[1];
    assert_int_equal(f.partition_index, 3);
    assert_int_equal(f.committed_offset, 9);
    assert_int_equal(f.committed_leader_epoch, 4);
    assert_true(str_is(f.metadata, "b"));
    assert_true(str_is(a->out.fetch.topics[1].name, "u"));
    assert_int_equal(a->out.fetch.topics[1].partitions[0].partition_index, 1);
    assert_int_equal(a->out.fetch.topics[1].partitions[0].committed_offset, 5);
    world_stop(&w);
}

static void test_an_answer_stays_true_when_the_group_moves_on(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7, "a note"}));
    log_safe(&w);
    fetched f = fetch(&w, "g", "t", 0);
    struct asked *all = fetch_all_as(&w, "g", false);
    delete_group(&w, "g");
    log_safe(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    assert_true(str_is(f.metadata, "a note"));
    assert_true(str_is(all->out.fetch.topics[0].name, "t"));
    world_stop(&w);
}

static void test_who_requires_stable_offsets_waits_for_a_commit_on_its_way(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7}, {"t", 1, 7}));
    log_safe(&w);
    commit(&w, "g", PARTS({"t", 0, 8}));
    fetched f = fetch_as(&w, "g", "t", 0, true);
    assert_int_equal(f.error_code, KERR_UNSTABLE_OFFSET_COMMIT);
    assert_int_equal(f.committed_offset, -1);
    assert_int_equal(fetch_as(&w, "g", "t", 1, true).committed_offset, 7);
    assert_int_equal(fetch(&w, "g", "t", 0).committed_offset, 7);
    assert_int_equal(fetch_all_as(&w, "g", true)->out.fetch.topics[0].partitions[0].error_code,
                     KERR_UNSTABLE_OFFSET_COMMIT);
    log_safe(&w);
    assert_int_equal(fetch_as(&w, "g", "t", 0, true).committed_offset, 8);
    world_stop(&w);
}

/* ---- OffsetDelete */

static void test_offsets_of_an_empty_group_are_deleted(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7}, {"t", 1, 8}));
    log_safe(&w);
    struct asked *a = delete_offsets(&w, "g", PARTS({"t", 0}, {"t", 9}, {"u", 0}));
    assert_false(a->answered);
    assert_int_equal(committed(&w, "g", "t", 0), 7); /* a deletion counts when it is safe, too */
    log_safe(&w);
    for (int i = 0; i < 3; i++) assert_int_equal(delete_offset_error(a, i), KERR_NONE);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    assert_int_equal(committed(&w, "g", "t", 1), 8);
    log_reload(&w);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    assert_int_equal(committed(&w, "g", "t", 1), 8);
    world_stop(&w);
}

static void test_a_deletion_that_is_lost_deletes_nothing(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7}));
    log_safe(&w);
    struct asked *a = delete_offsets(&w, "g", PARTS({"t", 0}));
    log_fail_one(&w, KERR_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(a->out.delete_offset.error_code, KERR_NOT_COORDINATOR);
    assert_int_equal(a->out.delete_offset.topics_count, 0);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    world_stop(&w);
}

static void test_a_commit_behind_a_deletion_stays(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7}));
    delete_offsets(&w, "g", PARTS({"t", 0})); /* of one that is not safe yet */
    commit(&w, "g", PARTS({"t", 0, 8}));
    log_safe_one(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    log_safe_one(&w);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    log_safe_one(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 8);
    log_reload(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 8);
    world_stop(&w);
}

static void test_topics_that_members_consume_keep_their_offsets(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS,
                                           MEMBERS({.id = "m1", .subscription = subscription(&w, 0, "t")},
                                                   {.id = "m2", .subscription = subscription(&w, 3, "u")})});
    commit_as(
        &w, &(struct commit_spec){
                .group = "g", .generation = 5, .member = "m1", .parts = PARTS({"t", 0, 1}, {"u", 0, 2}, {"v", 0, 3})});
    log_safe(&w);
    struct asked *a = delete_offsets(
        &w, "g", PARTS({"t", 0}, {"u", 0}, {"v", 0}, {"w", 0, .preset = KERR_UNKNOWN_TOPIC_OR_PARTITION}));
    log_safe(&w);
    assert_int_equal(delete_offset_error(a, 0), KERR_GROUP_SUBSCRIBED_TO_TOPIC);
    assert_int_equal(delete_offset_error(a, 1), KERR_GROUP_SUBSCRIBED_TO_TOPIC);
    assert_int_equal(delete_offset_error(a, 2), KERR_NONE);
    assert_int_equal(delete_offset_error(a, 3), KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(committed(&w, "g", "t", 0), 1);
    assert_int_equal(committed(&w, "g", "u", 0), 2);
    assert_int_equal(committed(&w, "g", "v", 0), -1);
    world_stop(&w);
}

static void test_members_whose_topics_nobody_can_read_may_consume_any(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS,
                                           MEMBERS({.id = "m1", .subscription = subscription(&w, 0, "t")},
                                                   {.id = "m2", .subscription = bytes_of("junk")})});
    struct asked *a = delete_offsets(&w, "g", PARTS({"v", 0}));
    assert_int_equal(delete_offset_error(a, 0), KERR_GROUP_SUBSCRIBED_TO_TOPIC);
    world_stop(&w);
}

static void test_groups_of_other_kinds_must_be_empty(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "connect", "sessioned", 5, START_MS, MEMBERS({.id = "m1"})});
    struct asked *a = delete_offsets(&w, "g", PARTS({"t", 0}));
    assert_true(a->answered);
    assert_int_equal(a->out.delete_offset.error_code, KERR_NON_EMPTY_GROUP);
    assert_int_equal(a->out.delete_offset.topics_count, 0);
    world_stop(&w);
}

static void test_a_group_that_is_not_there_has_no_offsets_to_delete(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct asked *a = delete_offsets(&w, "g", PARTS({"t", 0}));
    assert_true(a->answered);
    assert_int_equal(a->out.delete_offset.error_code, KERR_GROUP_ID_NOT_FOUND);
    assert_int_equal(a->out.delete_offset.topics_count, 0);
    world_stop(&w);
}

static void test_an_empty_group_goes_with_its_last_offset(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
    commit(&w, "g", PARTS({"t", 0, 7}));
    log_safe(&w);
    delete_offsets(&w, "g", PARTS({"t", 0}));
    log_safe(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    log_reload(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_group_that_is_not_there_takes_commits_of_no_generation),
        cmocka_unit_test(test_a_group_that_is_not_there_has_had_no_generation),
        cmocka_unit_test(test_an_empty_group_takes_commits_without_generation_whoever_sends_them),
        cmocka_unit_test(test_a_member_of_the_generation_commits),
        cmocka_unit_test(test_a_group_with_members_takes_commits_of_no_one_else),
        cmocka_unit_test(test_a_member_of_another_generation_is_refused),
        cmocka_unit_test(test_a_static_member_that_was_replaced_is_fenced),
        cmocka_unit_test(test_members_commit_while_the_next_generation_gathers),
        cmocka_unit_test(test_a_generation_that_has_no_assignment_yet_does_not_commit),
        cmocka_unit_test(test_a_commit_is_a_sign_of_life),
        cmocka_unit_test(test_a_commit_counts_when_its_record_is_safe_and_not_before),
        cmocka_unit_test(test_a_commit_whose_record_is_lost_changes_nothing),
        cmocka_unit_test(test_a_group_that_a_lost_commit_made_is_gone),
        cmocka_unit_test(test_of_several_commits_on_their_way_the_last_one_wins),
        cmocka_unit_test(test_a_partition_named_twice_has_what_was_said_last),
        cmocka_unit_test(test_offsets_may_go_back),
        cmocka_unit_test(test_metadata_past_the_limit_is_refused_for_its_partition_alone),
        cmocka_unit_test(test_the_metadata_limit_counts_as_java_does),
        cmocka_unit_test(test_errors_that_the_broker_knows_of_are_left_alone),
        cmocka_unit_test(test_a_commit_of_which_nothing_is_left_writes_nothing),
        cmocka_unit_test(test_a_commit_whose_client_has_gone_counts_all_the_same),
        cmocka_unit_test(test_a_shard_that_moves_answers_its_commits),
        cmocka_unit_test(test_what_was_never_committed_is_no_error),
        cmocka_unit_test(test_no_topics_asked_for_are_none),
        cmocka_unit_test(test_null_topics_are_all_that_is_committed),
        cmocka_unit_test(test_an_answer_stays_true_when_the_group_moves_on),
        cmocka_unit_test(test_who_requires_stable_offsets_waits_for_a_commit_on_its_way),
        cmocka_unit_test(test_offsets_of_an_empty_group_are_deleted),
        cmocka_unit_test(test_a_deletion_that_is_lost_deletes_nothing),
        cmocka_unit_test(test_a_commit_behind_a_deletion_stays),
        cmocka_unit_test(test_topics_that_members_consume_keep_their_offsets),
        cmocka_unit_test(test_members_whose_topics_nobody_can_read_may_consume_any),
        cmocka_unit_test(test_groups_of_other_kinds_must_be_empty),
        cmocka_unit_test(test_a_group_that_is_not_there_has_no_offsets_to_delete),
        cmocka_unit_test(test_an_empty_group_goes_with_its_last_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
