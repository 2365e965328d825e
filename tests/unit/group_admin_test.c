/* group/admin: DescribeGroups, ListGroups, DeleteGroups. */
#include "group_log.h"

typedef struct describe_groups_response_described_group described;

static const struct member m1_and_m2[] = {
    {"m1", NULL, "c1", {(const uint8_t *)"sub1", 4}, {(const uint8_t *)"part1", 5}},
    {"m2", "i2", "c2", {(const uint8_t *)"sub2", 4}, {NULL, 0}},
    {.id = NULL},
};

static bool bytes_are(struct bytes b, const char *s)
{
    return b.data && b.size == strlen(s) && memcmp(b.data, s, b.size) == 0;
}

static const described *describe(struct world *w, const char *group)
{
    return &describe_as(w, group, 5, false)->out.describe;
}

/* ---- DescribeGroups */

static void test_a_stable_group_shows_what_its_members_sent_and_got(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS, m1_and_m2});
    const described *d = describe(&w, "g");
    assert_int_equal(d->error_code, KERR_NONE);
    assert_true(str_is(d->group_id, "g"));
    assert_true(str_is(d->group_state, "Stable"));
    assert_true(str_is(d->protocol_type, "consumer"));
    assert_true(str_is(d->protocol_data, "range"));
    assert_int_equal(d->members_count, 2);
    assert_true(str_is(d->members[0].member_id, "m1"));
    assert_true(str_is_null(d->members[0].group_instance_id));
    assert_true(str_is(d->members[0].client_id, "c1"));
    assert_true(str_is(d->members[0].client_host, "/127.0.0.1"));
    assert_true(bytes_are(d->members[0].member_metadata, "sub1"));
    assert_true(bytes_are(d->members[0].member_assignment, "part1"));
    assert_true(str_is(d->members[1].group_instance_id, "i2"));
    assert_true(bytes_are(d->members[1].member_assignment, ""));
    world_stop(&w);
}

static void test_a_group_on_its_way_shows_its_members_alone(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS, m1_and_m2});
    rejoin(&w, "g", "m1", "range");
    const described *d = describe(&w, "g");
    assert_true(str_is(d->group_state, "PreparingRebalance"));
    assert_true(str_is(d->protocol_type, "consumer"));
    assert_true(str_is(d->protocol_data, ""));
    assert_int_equal(d->members_count, 2);
    assert_true(bytes_are(d->members[0].member_metadata, ""));
    assert_true(bytes_are(d->members[0].member_assignment, ""));
    world_stop(&w);
}

static void test_a_group_of_offsets_alone_is_empty_and_of_no_type(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7}));
    log_safe(&w);
    const described *d = describe(&w, "g");
    assert_true(str_is(d->group_state, "Empty"));
    assert_true(str_is(d->protocol_type, ""));
    assert_true(str_is(d->protocol_data, ""));
    assert_int_equal(d->members_count, 0);
    world_stop(&w);
}

static void test_a_group_that_is_not_there_is_dead(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    const described *d = describe(&w, "nobody");
    assert_int_equal(d->error_code, KERR_NONE);
    assert_true(str_is_null(d->error_message));
    assert_true(str_is(d->group_id, "nobody"));
    assert_true(str_is(d->group_state, "Dead"));
    assert_true(str_is(d->protocol_type, ""));
    world_stop(&w);
}

static void test_from_version_6_on_it_is_an_error_that_says_so(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    const described *d = &describe_as(&w, "nobody", 6, false)->out.describe;
    assert_int_equal(d->error_code, KERR_GROUP_ID_NOT_FOUND);
    assert_true(str_is(d->error_message, "Group nobody not found."));
    assert_true(str_is(d->group_state, "Dead"));
    world_stop(&w);
}

/* "m1", which leads, gets its assignment. */
static void settle(struct world *w, int32_t generation)
{
    struct asked *a = ask_begin(w, GROUP_SYNC);
    a->in.sync = sync_group_request_default;
    a->out.sync = sync_group_response_default;
    a->in.sync.group_id = STR("g");
    a->in.sync.member_id = STR("m1");
    a->in.sync.generation_id = generation;
    ask(w, a);
    log_safe(w);
    assert_true(a->answered);
    assert_int_equal(a->out.sync.error_code, KERR_NONE);
}

static void test_the_last_rebalances_are_shown_to_who_wants_them(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS, MEMBERS({.id = "m1"})});
    for (int i = 0; i < REBALANCES_KEPT + 3; i++) {
        world_wait(&w, 10);
        rejoin(&w, "g", "m1", "range");
        world_wait(&w, 5);
        if (i < REBALANCES_KEPT + 2) settle(&w, 6 + i);
    }
    assert_int_equal(describe(&w, "g")->rebalances_count, 0);
    const described *d = &describe_as(&w, "g", 5, true)->out.describe;
    assert_int_equal(d->rebalances_count, REBALANCES_KEPT);
    for (int i = 0; i < REBALANCES_KEPT; i++) {
        assert_int_equal(d->rebalances[i].generation, 5 + 4 + i); /* the oldest three are forgotten */
        assert_int_equal(d->rebalances[i].started_ms, START_MS + 10 + 15 * (3 + i));
        assert_int_equal(d->rebalances[i].took_ms, i < REBALANCES_KEPT - 1 ? 5 : -1);
        assert_true(str_is(d->rebalances[i].member_id, "m1"));
        assert_true(d->rebalances[i].reason.size > 0);
    }
    world_stop(&w);
}

/* ---- ListGroups */

struct filter {
    struct str states[4], types[4];
};

/* The ids that are listed, each with a comma behind it. */
static const char *listed(struct world *w, const struct filter *f)
{
    struct asked *a = ask_begin(w, GROUP_LIST);
    a->in.list = list_groups_request_default;
    a->out.list = list_groups_response_default;
    while (f && f->states[a->in.list.states_filter_count].data) a->in.list.states_filter_count++;
    while (f && f->types[a->in.list.types_filter_count].data) a->in.list.types_filter_count++;
    a->in.list.states_filter = f ? (struct str *)(uintptr_t)f->states : NULL;
    a->in.list.types_filter = f ? (struct str *)(uintptr_t)f->types : NULL;
    ask(w, a);
    assert_true(a->answered);
    assert_int_equal(a->out.list.error_code, KERR_NONE);
    struct str all = STR_EMPTY;
    for (int32_t i = 0; i < a->out.list.groups_count; i++)
        all = arena_printf(&w->arena, "%.*s%.*s,", STR_ARG(all), STR_ARG(a->out.list.groups[i].group_id));
    return all.size ? all.data : "";
}

static void start_three(struct world *w)
{
    world_start(w);
    log_has_group(w, &(struct group_spec){"stable", "consumer", "range", 5, START_MS, MEMBERS({.id = "m1"})});
    log_has_group(w, &(struct group_spec){"empty", "connect", NULL, 5, START_MS, NULL});
    log_has_group(w, &(struct group_spec){"preparing", "consumer", "range", 5, START_MS, m1_and_m2});
    rejoin(w, "preparing", "m1", "range");
}

static void test_all_groups_are_listed_with_type_and_state(void **state)
{
    (void)state;
    struct world w;
    start_three(&w);
    assert_string_equal(listed(&w, NULL), "stable,empty,preparing,");
    struct asked *a = ask_begin(&w, GROUP_LIST);
    a->in.list = list_groups_request_default;
    a->out.list = list_groups_response_default;
    ask(&w, a);
    const struct list_groups_response_listed_group *g = &a->out.list.groups[1];
    assert_true(str_is(g->group_id, "empty"));
    assert_true(str_is(g->protocol_type, "connect"));
    assert_true(str_is(g->group_state, "Empty"));
    assert_true(str_is(g->group_type, "classic"));
    world_stop(&w);
}

static void test_states_are_filtered_whatever_their_case(void **state)
{
    (void)state;
    struct world w;
    start_three(&w);
    assert_string_equal(listed(&w, &(struct filter){.states = {STR("Stable")}}), "stable,");
    assert_string_equal(listed(&w, &(struct filter){.states = {STR("sTABLE"), STR("EMPTY")}}), "stable,empty,");
    assert_string_equal(listed(&w, &(struct filter){.states = {STR("preparingrebalance")}}), "preparing,");
    assert_string_equal(listed(&w, &(struct filter){.states = {STR("Dead")}}), "");
    assert_string_equal(listed(&w, &(struct filter){.states = {STR("Stabl"), STR("Stables"), STR("")}}), "");
    world_stop(&w);
}

static void test_types_are_filtered_and_all_groups_are_classic(void **state)
{
    (void)state;
    struct world w;
    start_three(&w);
    assert_string_equal(listed(&w, &(struct filter){.types = {STR("classic")}}), "stable,empty,preparing,");
    assert_string_equal(listed(&w, &(struct filter){.types = {STR("consumer"), STR("Classic")}}),
                        "stable,empty,preparing,");
    assert_string_equal(listed(&w, &(struct filter){.types = {STR("consumer")}}), "");
    assert_string_equal(listed(&w, &(struct filter){.types = {STR("no-such-type")}}), "");
    assert_string_equal(listed(&w, &(struct filter){.states = {STR("Empty")}, .types = {STR("classic")}}), "empty,");
    world_stop(&w);
}

/* ---- DeleteGroups */

static enum kerr deleted(struct world *w, const char *group)
{
    struct asked *a = delete_group(w, group);
    log_safe(w);
    assert_true(a->answered);
    assert_true(str_is(a->out.delete.group_id, group));
    return (enum kerr)a->out.delete.error_code;
}

static void test_an_empty_group_is_deleted_with_all_its_offsets(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
    commit(&w, "g", PARTS({"t", 0, 7}, {"u", 1, 7}));
    log_safe(&w);
    assert_int_equal(deleted(&w, "g"), KERR_NONE);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(group_shard_count(w.sh), 0);
        assert_int_equal(committed(&w, "g", "t", 0), -1);
        log_reload(&w);
    }
    assert_int_equal(deleted(&w, "g"), KERR_GROUP_ID_NOT_FOUND);
    world_stop(&w);
}

static void test_a_group_of_offsets_alone_is_deleted(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7}));
    log_safe(&w);
    struct asked *a = delete_group(&w, "g");
    assert_int_equal(w.pending[0]->count, 1); /* it has no record of its own */
    assert_false(a->answered);
    log_safe(&w);
    assert_true(a->answered);
    assert_int_equal(a->out.delete.error_code, KERR_NONE);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_a_group_with_members_is_not_deleted(void **state)
{
    (void)state;
    struct world w;
    start_three(&w);
    assert_int_equal(deleted(&w, "stable"), KERR_NON_EMPTY_GROUP);
    assert_int_equal(deleted(&w, "preparing"), KERR_NON_EMPTY_GROUP);
    assert_int_equal(group_shard_count(w.sh), 3);
    world_stop(&w);
}

static void test_a_deletion_that_is_lost_deletes_nothing(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
    commit(&w, "g", PARTS({"t", 0, 7}));
    log_safe(&w);
    struct asked *a = delete_group(&w, "g");
    log_fail_one(&w, KERR_NOT_ENOUGH_REPLICAS);
    assert_true(a->answered);
    assert_int_equal(a->out.delete.error_code, KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    assert_int_equal(deleted(&w, "g"), KERR_NONE);
    world_stop(&w);
}

static void test_the_id_of_a_group_that_is_being_deleted_can_be_used(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
    commit(&w, "g", PARTS({"t", 0, 7}));
    log_safe(&w);
    struct asked *d = delete_group(&w, "g");
    struct asked *c = commit(&w, "g", PARTS({"t", 1, 8}));
    log_safe(&w);
    assert_int_equal(d->out.delete.error_code, KERR_NONE);
    assert_int_equal(commit_error(c, 0), KERR_NONE);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(committed(&w, "g", "t", 0), -1);
        assert_int_equal(committed(&w, "g", "t", 1), 8);
        assert_true(str_is(describe(&w, "g")->protocol_type, ""));
        log_reload(&w);
    }
    world_stop(&w);
}

static void test_what_was_on_its_way_is_deleted_too(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct asked *c = commit(&w, "g", PARTS({"t", 0, 7}));
    struct asked *d = delete_group(&w, "g");
    log_safe(&w);
    assert_int_equal(commit_error(c, 0), KERR_NONE);
    assert_int_equal(d->out.delete.error_code, KERR_NONE);
    assert_int_equal(group_shard_count(w.sh), 0);
    log_reload(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_deletions_at_the_same_time_are_all_told(void **state)
{
    (void)state;
    for (int recorded = 0; recorded < 2; recorded++) {
        struct world w;
        world_start(&w);
        if (recorded) log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
        commit(&w, "g", PARTS({"t", 0, 7}));
        struct asked *a = delete_group(&w, "g"), *b = delete_group(&w, "g");
        log_safe(&w);
        assert_true(a->answered && b->answered);
        assert_int_equal(a->out.delete.error_code, KERR_NONE);
        assert_int_equal(b->out.delete.error_code, KERR_NONE);
        assert_int_equal(group_shard_count(w.sh), 0);
        world_stop(&w);
    }
}

static void test_a_deletion_whose_client_has_gone_goes_on(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    commit(&w, "g", PARTS({"t", 0, 7}));
    log_safe(&w);
    struct asked *a = delete_group(&w, "g");
    group_shard_drop(w.sh, &a->call);
    log_safe(&w);
    assert_false(a->answered);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

enum { MANY = 20000 };

static void start_large(struct world *w)
{
    world_start(w);
    log_has_group(w, &(struct group_spec){"g", "consumer", NULL, 5, START_MS, NULL});
    for (int i = 0; i < MANY; i++) commit(w, "g", PARTS({"a-topic", i, i})), log_safe(w);
}

static void test_a_large_group_goes_batch_by_batch(void **state)
{
    (void)state;
    struct world w;
    start_large(&w);
    struct asked *a = delete_group(&w, "g");
    int batches = 0;
    for (; w.pending_count > 0; batches++) {
        assert_false(a->answered);
        assert_int_equal(w.pending_count, 1);
        assert_true(w.pending[0]->bytes < 300 * 1024);
        log_safe_one(&w);
    }
    assert_true(batches > 1);
    assert_true(a->answered);
    assert_int_equal(a->out.delete.error_code, KERR_NONE);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(group_shard_count(w.sh), 0);
        log_reload(&w);
    }
    world_stop(&w);
}

/* Each finds positions that are there only because the other is removing them. */
static void test_deletions_of_a_large_group_do_not_keep_each_other_busy(void **state)
{
    (void)state;
    struct world w;
    start_large(&w);
    struct asked *a = delete_group(&w, "g"), *b = delete_group(&w, "g");
    for (int i = 0; i < 100 && w.pending_count > 0; i++) log_safe_one(&w);
    assert_true(a->answered && b->answered);
    assert_int_equal(a->out.delete.error_code, KERR_NONE);
    assert_int_equal(b->out.delete.error_code, KERR_NONE);
    assert_int_equal(w.pending_count, 0);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_who_joins_between_the_batches_keeps_what_is_left(void **state)
{
    (void)state;
    struct world w;
    start_large(&w);
    struct asked *a = delete_group(&w, "g");
    rejoin(&w, "g", "", "range");
    log_safe(&w);
    assert_true(a->answered);
    assert_int_equal(a->out.delete.error_code, KERR_NON_EMPTY_GROUP);
    assert_int_equal(committed(&w, "g", "a-topic", MANY - 1), MANY - 1);
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stable_group_shows_what_its_members_sent_and_got),
        cmocka_unit_test(test_a_group_on_its_way_shows_its_members_alone),
        cmocka_unit_test(test_a_group_of_offsets_alone_is_empty_and_of_no_type),
        cmocka_unit_test(test_a_group_that_is_not_there_is_dead),
        cmocka_unit_test(test_from_version_6_on_it_is_an_error_that_says_so),
        cmocka_unit_test(test_the_last_rebalances_are_shown_to_who_wants_them),
        cmocka_unit_test(test_all_groups_are_listed_with_type_and_state),
        cmocka_unit_test(test_states_are_filtered_whatever_their_case),
        cmocka_unit_test(test_types_are_filtered_and_all_groups_are_classic),
        cmocka_unit_test(test_an_empty_group_is_deleted_with_all_its_offsets),
        cmocka_unit_test(test_a_group_of_offsets_alone_is_deleted),
        cmocka_unit_test(test_a_group_with_members_is_not_deleted),
        cmocka_unit_test(test_a_deletion_that_is_lost_deletes_nothing),
        cmocka_unit_test(test_the_id_of_a_group_that_is_being_deleted_can_be_used),
        cmocka_unit_test(test_what_was_on_its_way_is_deleted_too),
        cmocka_unit_test(test_deletions_at_the_same_time_are_all_told),
        cmocka_unit_test(test_a_deletion_whose_client_has_gone_goes_on),
        cmocka_unit_test(test_a_large_group_goes_batch_by_batch),
        cmocka_unit_test(test_deletions_of_a_large_group_do_not_keep_each_other_busy),
        cmocka_unit_test(test_who_joins_between_the_batches_keeps_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
