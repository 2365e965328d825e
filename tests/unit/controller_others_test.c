/* controller: what others than the controller write into the store. */
#include "controller_trio.h"

static bool node_is_there(struct world *w, const char *path)
{
    return call_exists(w, path, COORD_NO_WATCH).r.err == OK;
}

static struct controller_topic topic_of(struct trio *tr, const char *name)
{
    struct controller_topic t;
    assert_true(controller_find_topic(tr->cl->c, str_of(name), &t));
    return t;
}

static void take_in_all(struct trio *tr, const char *topic, int32_t leader_epoch, int32_t partition_epoch)
{
    struct alter al = {.broker = 1,
                       .topic = topic,
                       .leader_epoch = leader_epoch,
                       .partition_epoch = partition_epoch,
                       .isr = {1, 2, 3},
                       .isr_count = 3,
                       .version = 3};
    assert_int_equal(alter(tr, &al).topics[0].partitions[0].error_code, KERR_NONE);
    settle(tr->cl->w);
}

static const char old_topic[] = "{\"version\":1,\"partitions\":{\"0\":[2,1]}}";

static void topics_of_before_ids_are_given_one_when_the_office_is_taken(void **state)
{
    struct trio *tr = *state;
    call_create(tr->cl->w, "/brokers/topics/old", old_topic, 0);
    call_delete(tr->sessions[2], "/controller", COORD_ANY_VERSION);
    settle(tr->cl->w);
    struct controller_topic t = topic_of(tr, "old");
    char id[UUID_TEXT_SIZE + 1], expected[200];
    assert_false(uuid_is_zero(t.topic_id));
    uuid_format(t.topic_id, id);
    snprintf(expected, sizeof expected,
             "{\"partitions\":{\"0\":[2,1]},\"topic_id\":\"%s\",\"adding_replicas\":{},\"removing_replicas\":{},"
             "\"version\":3}",
             id);
    assert_str(node_text(tr->cl->w, "/brokers/topics/old"), expected);
    assert_true(was_told(tr->cl, "L 2 old/0 leader=2/0 isr=2,1 replicas=2,1 v0 new;"));
    /* Changes of it go on from there. */
    call_create(tr->cl->w, "/admin/delete_topics/old", "", 0);
    settle(tr->cl->w);
    assert_false(node_is_there(tr->cl->w, "/brokers/topics/old"));
    assert_int_equal(controller_epoch(tr->cl->c), 2);
}

static void a_topic_that_another_makes_in_the_store_is_started(void **state)
{
    struct trio *tr = *state;
    call_create(tr->cl->w, "/brokers/topics/made", old_topic, 0);
    settle(tr->cl->w);
    assert_false(uuid_is_zero(topic_of(tr, "made").topic_id));
    assert_state(tr, "made", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2,1]}");
    assert_true(was_told(tr->cl, "L 2 made/0 leader=2/0 isr=2,1 replicas=2,1 v0 new;"));
    assert_true(was_told(tr->cl, "U 3 live=3 made/0 leader=2/0;"));
    assert_int_equal(controller_epoch(tr->cl->c), 1);
}

static void partitions_that_another_adds_in_the_store_are_started(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    char id[UUID_TEXT_SIZE + 1], grown[200];
    for (int more = 1; more <= 2; more++) { /* a second time too: it is watched again */
        uuid_format(topic_of(tr, "t").topic_id, id);
        snprintf(grown, sizeof grown,
                 "{\"partitions\":{\"0\":[1,2],\"1\":[2,3]%s},\"topic_id\":\"%s\",\"adding_replicas\":{},"
                 "\"removing_replicas\":{},\"version\":3}",
                 more == 2 ? ",\"2\":[3,1]" : "", id);
        call_set(tr->cl->w, "/brokers/topics/t", grown, COORD_ANY_VERSION);
        settle(tr->cl->w);
        assert_int_equal(topic_of(tr, "t").partition_count, 1 + more);
    }
    assert_true(was_told(tr->cl, "L 2 t/1 leader=2/0 isr=2,3 replicas=2,3 v0 new;"));
    assert_true(was_told(tr->cl, "L 3 t/2 leader=3/0 isr=3,1 replicas=3,1 v0 new;"));
    assert_int_equal(controller_epoch(tr->cl->c), 1);
}

static void a_topic_that_another_marks_is_deleted_and_a_marker_of_none_goes(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    call_create(tr->cl->w, "/admin/delete_topics/t", "", 0);
    call_create(tr->cl->w, "/admin/delete_topics/never", "", 0);
    settle(tr->cl->w);
    assert_true(was_told(tr->cl, "S 2 t/0 epoch=-2 delete;"));
    assert_false(node_is_there(tr->cl->w, "/brokers/topics/t"));
    assert_int_equal(call_children(tr->cl->w, "/admin/delete_topics", COORD_NO_WATCH).r.child_count, 0);
    struct controller_topic t;
    assert_false(controller_find_topic(tr->cl->c, STR("t"), &t));
}

static void listed_reassignments_are_done_and_leave_the_list_as_they_end(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    make_topic(tr, "u", one_two, 2);
    call_create(
        tr->cl->w, "/admin/reassign_partitions",
        "{\"version\":1,\"partitions\":["
        "{\"topic\":\"t\",\"partition\":0,\"replicas\":[3]},{\"topic\":\"u\",\"partition\":0,\"replicas\":[3,1]},"
        "{\"topic\":\"t\",\"partition\":7,\"replicas\":[3]},{\"topic\":\"none\",\"partition\":0,\"replicas\":[3]}]}",
        0);
    settle(tr->cl->w);
    assert_true(was_told(tr->cl, "L 3 t/0 leader=1/1 isr=1,2 replicas=3,1,2 v1 new; u/0 leader=1/1 isr=1,2"
                                 " replicas=3,1,2 v1 new;"));
    assert_str(node_text(tr->cl->w, "/admin/reassign_partitions"),
               "{\"version\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"replicas\":[3]},"
               "{\"topic\":\"u\",\"partition\":0,\"replicas\":[3,1]}]}");
    take_in_all(tr, "t", 1, 1);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":2,\"isr\":[3]}");
    assert_str(node_text(tr->cl->w, "/admin/reassign_partitions"),
               "{\"version\":1,\"partitions\":[{\"topic\":\"u\",\"partition\":0,\"replicas\":[3,1]}]}");
    take_in_all(tr, "u", 1, 1);
    assert_false(node_is_there(tr->cl->w, "/admin/reassign_partitions"));
    /* The next list is seen too. */
    call_create(tr->cl->w, "/admin/reassign_partitions",
                "{\"version\":1,\"partitions\":[{\"topic\":\"u\",\"partition\":0,\"replicas\":[9]}]}", 0);
    settle(tr->cl->w);
    assert_false(node_is_there(tr->cl->w, "/admin/reassign_partitions"));
    assert_int_equal(topic_of(tr, "u").partitions[0].replica_count, 2);
}

static void the_next_controller_goes_on_with_the_list(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    call_create(tr->cl->w, "/admin/reassign_partitions",
                "{\"version\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"replicas\":[3]}]}", 0);
    settle(tr->cl->w);
    call_delete(tr->sessions[2], "/controller", COORD_ANY_VERSION);
    settle(tr->cl->w);
    assert_int_equal(controller_epoch(tr->cl->c), 2);
    assert_true(node_is_there(tr->cl->w, "/admin/reassign_partitions"));
    const struct controller_partition *p = &topic_of(tr, "t").partitions[0];
    take_in_all(tr, "t", p->leader_epoch, p->state_version);
    assert_false(node_is_there(tr->cl->w, "/admin/reassign_partitions"));
    assert_int_equal(topic_of(tr, "t").partitions[0].leader, 3);
}

static void listed_leaders_are_preferred(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    trio_lose(tr, 2);
    trio_join(tr, 2);
    struct alter al = {.broker = 3,
                       .topic = "t",
                       .leader_epoch = 1,
                       .partition_epoch = 1,
                       .isr = {3, 1, 2},
                       .isr_count = 3,
                       .version = 3};
    assert_int_equal(alter(tr, &al).topics[0].partitions[0].error_code, KERR_NONE);
    call_create(tr->cl->w, "/admin/preferred_replica_election",
                "{\"version\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":0},{\"topic\":\"t\",\"partition\":5},"
                "{\"topic\":\"none\",\"partition\":0}]}",
                0);
    settle(tr->cl->w);
    assert_int_equal(topic_of(tr, "t").partitions[0].leader, 2);
    assert_false(node_is_there(tr->cl->w, "/admin/preferred_replica_election"));
}

static void a_list_that_cannot_be_understood_goes(void **state)
{
    struct trio *tr = *state;
    call_create(tr->cl->w, "/admin/preferred_replica_election", "{", 0);
    call_create(tr->cl->w, "/admin/reassign_partitions", "[]", 0);
    settle(tr->cl->w);
    assert_false(node_is_there(tr->cl->w, "/admin/preferred_replica_election"));
    assert_false(node_is_there(tr->cl->w, "/admin/reassign_partitions"));
    assert_int_equal(controller_state(tr->cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(tr->cl->c), 1);
}

/* By hand, say; what the tables hold is not true then. */
static void the_loss_of_a_topics_node_has_everything_read_anew(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    call_delete(tr->cl->w, "/brokers/topics/t/partitions/0/state", COORD_ANY_VERSION);
    call_delete(tr->cl->w, "/brokers/topics/t/partitions/0", COORD_ANY_VERSION);
    call_delete(tr->cl->w, "/brokers/topics/t/partitions", COORD_ANY_VERSION);
    call_delete(tr->cl->w, "/brokers/topics/t", COORD_ANY_VERSION);
    settle(tr->cl->w);
    while (controller_state(tr->cl->c) != CONTROLLER_ACTIVE || controller_epoch(tr->cl->c) < 2)
        loop_turn(tr->cl->w->loop, 10 * 1000 * 1000);
    assert_int_equal(controller_topic_count(tr->cl->c), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, trio_setup, trio_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(topics_of_before_ids_are_given_one_when_the_office_is_taken),
        TEST(a_topic_that_another_makes_in_the_store_is_started),
        TEST(partitions_that_another_adds_in_the_store_are_started),
        TEST(a_topic_that_another_marks_is_deleted_and_a_marker_of_none_goes),
        TEST(listed_reassignments_are_done_and_leave_the_list_as_they_end),
        TEST(the_next_controller_goes_on_with_the_list),
        TEST(listed_leaders_are_preferred),
        TEST(a_list_that_cannot_be_understood_goes),
        TEST(the_loss_of_a_topics_node_has_everything_read_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
