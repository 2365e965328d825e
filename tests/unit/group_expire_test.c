/* group/expire: which offsets have outlived their retention (KIP-211, as Kafka 3.9 decides it), and what goes with
 * them. */
#include "group_log.h"

/* A sweep to its end, with all that it writes safe. */
static void expire(struct world *w)
{
    group_shard_expire(w->sh);
    do {
        log_safe(w);
        while (group_shard_due_ms(w->sh) <= w->mono_ms) group_shard_tick(w->sh, w->mono_ms, w->wall_ms);
    } while (w->pending_count > 0);
}

static void put(struct world *w, const char *group, const struct part *parts)
{
    struct asked *a = commit(w, group, parts);
    log_safe(w);
    assert_int_equal(commit_error(a, 0), KERR_NONE);
}

static void put_as(struct world *w, const char *member, const struct part *parts)
{
    struct asked *a = commit_as(w, &(struct commit_spec){"g", 5, member, .parts = parts});
    log_safe(w);
    assert_int_equal(commit_error(a, 0), KERR_NONE);
}

/* ---- Which offsets expire */

static void test_offsets_of_a_group_that_never_had_members_expire_from_their_commit_on(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    put(&w, "g", PARTS({"t", 0, 7}));
    world_age(&w, 10);
    put(&w, "g", PARTS({"t", 1, 7}));
    world_age(&w, RETENTION_MS - 11);
    expire(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    world_age(&w, 1);
    expire(&w);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    assert_int_equal(committed(&w, "g", "t", 1), 7);
    log_reload(&w);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    world_stop(&w);
}

static void test_offsets_of_an_empty_group_expire_from_when_it_became_empty(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
    put(&w, "g", PARTS({"old", 0, 7, .commit_ms = 1}));
    world_age(&w, RETENTION_MS - 1);
    put(&w, "g", PARTS({"new", 0, 7}));
    expire(&w);
    assert_int_equal(committed(&w, "g", "old", 0), 7);
    world_age(&w, 1);
    expire(&w);
    assert_int_equal(committed(&w, "g", "old", 0), -1);
    assert_int_equal(committed(&w, "g", "new", 0), -1);
    world_stop(&w);
}

/* Records of before Kafka 2.1 do not say since when. */
static void test_an_empty_group_that_does_not_know_since_when_goes_by_commits(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group_as(&w, &(struct group_spec){"g", "consumer", NULL, 5, -1, NULL}, 1);
    put(&w, "g", PARTS({"old", 0, 7, .commit_ms = START_MS - RETENTION_MS}, {"new", 0, 7}));
    expire(&w);
    assert_int_equal(committed(&w, "g", "old", 0), -1);
    assert_int_equal(committed(&w, "g", "new", 0), 7);
    world_stop(&w);
}

static void test_a_group_at_work_loses_what_it_no_longer_consumes(void **state)
{
    (void)state;
    for (int16_t version = 0; version <= 3; version++) {
        struct world w;
        world_start(&w);
        log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS,
                                               MEMBERS({.id = "m1", .subscription = subscription(&w, version, "t")},
                                                       {.id = "m2", .subscription = subscription(&w, 0, "u")})});
        put_as(&w, "m1", PARTS({"t", 0, 1}, {"u", 0, 2}, {"v", 0, 3}));
        world_age(&w, RETENTION_MS - 1);
        put_as(&w, "m1", PARTS({"v", 1, 4}));
        world_age(&w, 1);
        expire(&w);
        assert_int_equal(committed(&w, "g", "t", 0), 1);
        assert_int_equal(committed(&w, "g", "u", 0), 2);
        assert_int_equal(committed(&w, "g", "v", 0), -1);
        assert_int_equal(committed(&w, "g", "v", 1), 4);
        world_stop(&w);
    }
}

/* Kafka takes the first version's fields, which all others begin with, and so a newer one is no riddle. */
static void test_a_subscription_newer_than_we_know_is_read(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct bytes newer = subscription(&w, 3, "t");
    put_be16((uint8_t *)(uintptr_t)newer.data, 99);
    newer.size -= 7; /* and ends otherwise */
    log_has_group(
        &w, &(struct group_spec){"g", "consumer", "range", 5, START_MS, MEMBERS({.id = "m1", .subscription = newer})});
    put_as(&w, "m1", PARTS({"t", 0, 1}, {"v", 0, 3}));
    world_age(&w, RETENTION_MS);
    expire(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 1);
    assert_int_equal(committed(&w, "g", "v", 0), -1);
    world_stop(&w);
}

static void test_hostile_subscriptions_keep_all_offsets(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    const struct bytes hostile[] = {
        bytes_of(""),
        {(const uint8_t *)"\0", 1},
        {(const uint8_t *)"\0\0", 2},
        {(const uint8_t *)"\0\0\x7f\xff\xff\xff", 6},          /* two billion topics */
        {(const uint8_t *)"\0\0\xff\xff\xff\xff\0\0\0\0", 10}, /* null */
        {(const uint8_t *)"\0\0\0\0\0\1\x7f\xff"
                          "t",
         9},                                                           /* a name past the end */
        {(const uint8_t *)"\0\0\0\0\0\1\xff\xff\xff\xff\xff\xff", 12}, /* a null name */
        {(const uint8_t *)"\0\0\0\0\0\1\0\1"
                          "u\x7f\xff\xff\xff",
         13}, /* user data past the end */
        {(const uint8_t *)"\0\0\0\0\0\1\0\1"
                          "u",
         9}, /* none */
    };
    for (size_t i = 0; i < ARRAY_COUNT(hostile); i++) {
        log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS,
                                               MEMBERS({.id = "m1", .subscription = subscription(&w, 0, "u")},
                                                       {.id = "m2", .subscription = hostile[i]})});
        put_as(&w, "m1", PARTS({"t", 0, 1, .commit_ms = 1}));
        expire(&w);
        assert_int_equal(committed(&w, "g", "t", 0), 1);
    }
    world_stop(&w);
}

static void test_groups_of_other_kinds_lose_nothing_while_they_have_members(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "connect", "range", 5, START_MS,
                                           MEMBERS({.id = "m1", .subscription = subscription(&w, 0, "t")})});
    put_as(&w, "m1", PARTS({"v", 0, 3, .commit_ms = 1}));
    expire(&w);
    assert_int_equal(committed(&w, "g", "v", 0), 3);
    world_stop(&w);
}

static void test_a_group_loses_nothing_while_it_rebalances(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS,
                                           MEMBERS({.id = "m1", .subscription = subscription(&w, 0, "t")},
                                                   {.id = "m2", .subscription = subscription(&w, 0, "t")})});
    put_as(&w, "m1", PARTS({"v", 0, 3, .commit_ms = 1}));
    rejoin(&w, "g", "m1", "range");
    assert_string_equal(state_of(&w, "g"), "PreparingRebalance");
    expire(&w);
    assert_int_equal(committed(&w, "g", "v", 0), 3);
    world_stop(&w);
}

static void test_an_offset_with_an_end_of_its_own_expires_then(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    const struct part *early = PARTS({"t", 0, 7}), *late = PARTS({"t", 1, 7});
    commit_as(&w, &(struct commit_spec){.group = "g", .generation = -1, .retention_ms = 100, .parts = early});
    commit_as(&w,
              &(struct commit_spec){.group = "g", .generation = -1, .retention_ms = 3 * RETENTION_MS, .parts = late});
    log_safe(&w);
    world_age(&w, 99);
    expire(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    world_age(&w, 1);
    expire(&w);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    log_reload(&w);
    world_age(&w, 2 * RETENTION_MS);
    expire(&w);
    assert_int_equal(committed(&w, "g", "t", 1), 7);
    world_stop(&w);
}

static void test_an_offset_that_is_being_written_does_not_expire(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    put(&w, "g", PARTS({"t", 0, 7, .commit_ms = 1}, {"t", 1, 7, .commit_ms = 1}));
    commit(&w, "g", PARTS({"t", 0, 8}));
    expire(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 8);
    assert_int_equal(committed(&w, "g", "t", 1), -1);
    world_stop(&w);
}

static void test_an_offset_that_a_transaction_may_change_does_not_expire(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    put(&w, "g", PARTS({"t", 0, 7, .commit_ms = 1}));
    struct entry e = w.log[0];
    e.producer_id = 9;
    log_append(&w, e);
    log_reload(&w);
    expire(&w);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    log_append(&w, (struct entry){.kind = ENTRY_ABORT, .producer_id = 9});
    log_reload(&w);
    expire(&w);
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    world_stop(&w);
}

/* ---- What goes with them */

static void test_an_empty_group_goes_with_its_last_offset_in_one_batch(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
    put(&w, "g", PARTS({"t", 0, 7}, {"t", 1, 7}));
    world_age(&w, RETENTION_MS);
    group_shard_expire(w.sh);
    assert_int_equal(w.pending_count, 1);
    assert_int_equal(w.pending[0]->count, 3);
    assert_string_equal(state_of(&w, "g"), "Empty"); /* until that is safe */
    log_safe(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    log_reload(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_an_empty_group_without_offsets_goes(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "connect", NULL, 5, START_MS, NULL});
    expire(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    log_reload(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_what_a_lost_tombstone_was_for_stays_and_goes_next_time(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
    put(&w, "g", PARTS({"t", 0, 7}));
    world_age(&w, RETENTION_MS);
    group_shard_expire(w.sh);
    log_fail_one(&w, KERR_NOT_ENOUGH_REPLICAS);
    assert_int_equal(w.pending_count, 0);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    assert_true(str_is(describe_as(&w, "g", 5, false)->out.describe.protocol_type, "consumer"));
    expire(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

/* Its record is gone then, as it will be read. */
static void test_who_commits_behind_the_tombstones_keeps_the_group_as_a_new_one(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
    put(&w, "g", PARTS({"t", 0, 7}));
    world_age(&w, RETENTION_MS);
    group_shard_expire(w.sh);
    commit(&w, "g", PARTS({"t", 1, 8}));
    log_safe(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(committed(&w, "g", "t", 0), -1);
        assert_int_equal(committed(&w, "g", "t", 1), 8);
        assert_true(str_is(describe_as(&w, "g", 5, false)->out.describe.protocol_type, ""));
        log_reload(&w);
    }
    world_stop(&w);
}

/* ---- Large shards, large groups */

enum { MANY_GROUPS = 9000 };

static void many_groups(struct world *w)
{
    char name[16];
    for (int i = 0; i < MANY_GROUPS; i++) {
        snprintf(name, sizeof name, "g%d", i);
        put(w, name, PARTS({"t", 0, i, .commit_ms = 1}));
    }
}

static void test_a_sweep_of_a_large_shard_goes_on_in_later_turns(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    many_groups(&w);
    group_shard_expire(w.sh);
    assert_true(w.pending_count > 0 && w.pending_count < MANY_GROUPS / 2);
    log_safe(&w);
    int turns = 1;
    while (group_shard_due_ms(w.sh) <= w.mono_ms) {
        group_shard_tick(w.sh, w.mono_ms, w.wall_ms);
        log_safe(&w); /* frees groups that the sweep has behind it */
        turns++;
    }
    assert_true(turns > 2);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_a_sweep_waits_for_what_it_has_written(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    many_groups(&w);
    group_shard_expire(w.sh);
    while (group_shard_due_ms(w.sh) <= w.mono_ms) group_shard_tick(w.sh, w.mono_ms, w.wall_ms);
    assert_int_equal(w.pending_count, 1024);
    log_safe_one(&w);
    assert_true(group_shard_due_ms(w.sh) > w.mono_ms); /* one is not worth it */
    log_fail_one(&w, KERR_NOT_ENOUGH_REPLICAS);
    log_safe(&w);
    assert_true(group_shard_due_ms(w.sh) <= w.mono_ms);
    expire(&w);
    assert_int_equal(group_shard_count(w.sh), 1); /* its tombstone was lost, and the sweep is behind it */
    expire(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_a_sweep_survives_that_the_group_it_stands_at_goes(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    many_groups(&w);
    group_shard_expire(w.sh);
    char name[16];
    for (int i = 0; i < MANY_GROUPS; i += 2) {
        snprintf(name, sizeof name, "g%d", i);
        delete_group(&w, name);
        log_safe(&w);
    }
    expire(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_the_tombstones_of_a_large_group_come_in_batches(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    enum { PARTITIONS = 20000 };
    for (int i = 0; i < PARTITIONS; i++) put(&w, "g", PARTS({"a-topic", i, i, .commit_ms = 1}));
    group_shard_expire(w.sh);
    assert_true(w.pending_count > 1);
    size_t records = 0;
    for (size_t i = 0; i < w.pending_count; i++) {
        assert_true(w.pending[i]->bytes < 300 * 1024);
        records += w.pending[i]->count;
    }
    assert_int_equal(records, PARTITIONS);
    log_safe(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

/* ---- Deleted topics */

static void test_a_deleted_topics_offsets_go(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    put(&w, "g", PARTS({"t", 0, 7}, {"t", 1, 7}, {"u", 0, 7}));
    put(&w, "h", PARTS({"t", 0, 8}));
    commit(&w, "g", PARTS({"t", 2, 9})); /* not safe yet */
    group_shard_forget_topic(w.sh, STR("t"));
    log_safe(&w);
    for (int i = 0; i < 2; i++) {
        for (int32_t p = 0; p < 3; p++) assert_int_equal(committed(&w, "g", "t", p), -1);
        assert_int_equal(committed(&w, "g", "u", 0), 7);
        assert_int_equal(group_shard_count(w.sh), 1); /* "h" had nothing else */
        assert_int_equal(HASH_COUNT(w.sh->topics), 1);
        log_reload(&w);
    }
    world_stop(&w);
}

/* Until there is nothing left to do. */
static void go_on(struct world *w)
{
    for (log_safe(w); group_shard_due_ms(w->sh) <= w->mono_ms; log_safe(w)) {
        group_shard_tick(w->sh, w->mono_ms, w->wall_ms);
        assert_true(w->pending_count <= 1024);
    }
}

static void test_the_offsets_of_a_large_topic_go_in_several_turns(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    many_groups(&w);
    group_shard_forget_topic(w.sh, STR("t"));
    size_t first = w.pending_count;
    assert_true(first > 0 && first < MANY_GROUPS / 2);
    group_shard_forget_topic(w.sh, STR("t")); /* once more changes nothing */
    assert_int_equal(w.pending_count, first);
    go_on(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_what_is_committed_of_a_topic_of_the_same_name_stays(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    many_groups(&w);
    char last[16];
    snprintf(last, sizeof last, "g%d", MANY_GROUPS - 1);
    group_shard_forget_topic(w.sh, STR("t"));
    assert_int_equal(committed(&w, last, "t", 0), MANY_GROUPS - 1); /* has not had its turn */
    commit(&w, last, PARTS({"t", 1, 5}));
    go_on(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(group_shard_count(w.sh), 1);
        assert_int_equal(committed(&w, last, "t", 0), -1);
        assert_int_equal(committed(&w, last, "t", 1), 5);
        log_reload(&w);
    }
    group_shard_forget_topic(w.sh, STR("no-such-topic"));
    assert_int_equal(w.pending_count, 0);
    world_stop(&w);
}

/* ---- Groups that are a record and nothing else */

static void test_a_record_that_says_nothing_gets_its_tombstone(void **state)
{
    (void)state;
    for (int32_t generation = -1; generation <= 0; generation++) {
        struct world w;
        world_start(&w);
        log_has_group(&w, &(struct group_spec){"g", "", "", generation, START_MS, NULL});
        log_reload(&w);
        assert_int_equal(group_shard_count(w.sh), 1);
        expire(&w);
        assert_int_equal(group_shard_count(w.sh), 0);
        assert_null(w.log[w.log_count - 1].value.data);
        log_reload(&w);
        assert_int_equal(group_shard_count(w.sh), 0);
        world_stop(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offsets_of_a_group_that_never_had_members_expire_from_their_commit_on),
        cmocka_unit_test(test_offsets_of_an_empty_group_expire_from_when_it_became_empty),
        cmocka_unit_test(test_an_empty_group_that_does_not_know_since_when_goes_by_commits),
        cmocka_unit_test(test_a_group_at_work_loses_what_it_no_longer_consumes),
        cmocka_unit_test(test_a_subscription_newer_than_we_know_is_read),
        cmocka_unit_test(test_hostile_subscriptions_keep_all_offsets),
        cmocka_unit_test(test_groups_of_other_kinds_lose_nothing_while_they_have_members),
        cmocka_unit_test(test_a_group_loses_nothing_while_it_rebalances),
        cmocka_unit_test(test_an_offset_with_an_end_of_its_own_expires_then),
        cmocka_unit_test(test_an_offset_that_is_being_written_does_not_expire),
        cmocka_unit_test(test_an_offset_that_a_transaction_may_change_does_not_expire),
        cmocka_unit_test(test_an_empty_group_goes_with_its_last_offset_in_one_batch),
        cmocka_unit_test(test_an_empty_group_without_offsets_goes),
        cmocka_unit_test(test_what_a_lost_tombstone_was_for_stays_and_goes_next_time),
        cmocka_unit_test(test_who_commits_behind_the_tombstones_keeps_the_group_as_a_new_one),
        cmocka_unit_test(test_a_sweep_of_a_large_shard_goes_on_in_later_turns),
        cmocka_unit_test(test_a_sweep_waits_for_what_it_has_written),
        cmocka_unit_test(test_a_sweep_survives_that_the_group_it_stands_at_goes),
        cmocka_unit_test(test_the_tombstones_of_a_large_group_come_in_batches),
        cmocka_unit_test(test_a_deleted_topics_offsets_go),
        cmocka_unit_test(test_the_offsets_of_a_large_topic_go_in_several_turns),
        cmocka_unit_test(test_what_is_committed_of_a_topic_of_the_same_name_stays),
        cmocka_unit_test(test_a_record_that_says_nothing_gets_its_tombstone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
