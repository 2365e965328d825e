/* controller: brokers that come and go, controllers that lose their office, what a restart finds. */
#include "controller_world.h"

static void a_broker_that_comes_is_told_everything_and_everybody_of_it(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    struct world *two = session_new(cl->w);
    cl->told_count = 0;
    register_broker(two, 2, "r");
    settle(cl->w);
    assert_int_equal(controller_broker_count(cl->c), 2);
    assert_true(was_told(cl, "U 1 live=2"));
    assert_true(was_told(cl, "U 2 live=2 t/0 leader=1/0;"));
    struct controller_result r = create_topic(cl, "both", 1, 2);
    assert_int_equal(r.kerr, KERR_NONE);
    session_free(two);
}

static void leaders_move_to_the_first_live_replica_in_sync(void **state)
{
    struct cluster *cl = *state;
    struct world *two = session_new(cl->w);
    register_broker(two, 2, NULL);
    settle(cl->w);
    int32_t both[] = {2, 1}, alone[] = {2};
    struct controller_assignment as = {0, both, 2}, as_alone = {0, alone, 1};
    struct controller_new_topic ts[] = {
        {.name = STR("t"), .partition_count = -1, .replication_factor = -1, .assignments = &as, .assignment_count = 1},
        {.name = STR("u"),
         .partition_count = -1,
         .replication_factor = -1,
         .assignments = &as_alone,
         .assignment_count = 1},
    };
    create_topics(cl, ts, 2, false);
    assert_str(node_text(cl->w, "/brokers/topics/t/partitions/0/state"),
               "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2,1]}");

    cl->told_count = 0;
    coord_memory_expire(cl->w->memory, coord_session_id(two->c));
    settle(cl->w);
    assert_str(node_text(cl->w, "/brokers/topics/t/partitions/0/state"),
               "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1]}");
    assert_str(node_text(cl->w, "/brokers/topics/u/partitions/0/state"),
               "{\"controller_epoch\":1,\"leader\":-1,\"version\":1,\"leader_epoch\":1,\"isr\":[2]}");
    assert_true(was_told(cl, "L 1 t/0 leader=1/1 isr=1 replicas=2,1 v1;"));
    struct controller_topic t;
    assert_true(controller_find_topic(cl->c, STR("u"), &t));
    assert_int_equal(t.partitions[0].leader, -1);
    session_free(two);

    two = session_new(cl->w);
    cl->told_count = 0;
    register_broker(two, 2, NULL);
    settle(cl->w);
    assert_str(node_text(cl->w, "/brokers/topics/u/partitions/0/state"),
               "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":2,\"isr\":[2]}");
    assert_true(was_told(cl, "L 2 u/0 leader=2/2 isr=2 replicas=2 v2;"));
    session_free(two);
}

/* KIP-112: broker 2 lives, but the disk with its replicas does not. */
static void leaders_move_away_from_a_failed_log_directory(void **state)
{
    struct cluster *cl = *state;
    struct world *two = session_new(cl->w);
    register_broker(two, 2, NULL);
    settle(cl->w);
    int32_t both[] = {2, 1}, alone[] = {2};
    struct controller_assignment as = {0, both, 2}, as_alone = {0, alone, 1};
    struct controller_new_topic ts[] = {
        {.name = STR("t"), .partition_count = -1, .replication_factor = -1, .assignments = &as, .assignment_count = 1},
        {.name = STR("u"),
         .partition_count = -1,
         .replication_factor = -1,
         .assignments = &as_alone,
         .assignment_count = 1},
    };
    create_topics(cl, ts, 2, false);
    cl->told_count = 0;
    cl->disk_failed = 2;
    struct answer made = {.w = two};
    coord_create(two->c, ZNODE_LOG_DIR_EVENT, znode_log_dir_event_encode(&two->arena, 2), COORD_SEQUENTIAL,
                 (struct coord_to){two->loop, answer_done, &made});
    answer_wait(&made);
    settle(cl->w);
    settle(cl->w);
    assert_str(node_text(cl->w, "/brokers/topics/t/partitions/0/state"),
               "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1]}");
    assert_str(node_text(cl->w, "/brokers/topics/u/partitions/0/state"),
               "{\"controller_epoch\":1,\"leader\":-1,\"version\":1,\"leader_epoch\":1,\"isr\":[2]}");
    assert_true(was_told(cl, "U 1 live=2 t/0 leader=1/1 offline=2; u/0 leader=-1/1 offline=2;"));
    /* The note is removed, and what has been answered the same way is no news: it ends. */
    struct answer notes = {.w = cl->w};
    coord_children(cl->w->c, ZNODE_LOG_DIR_EVENTS, COORD_NO_WATCH, (struct coord_to){cl->w->loop, answer_done, &notes});
    answer_wait(&notes);
    assert_int_equal(notes.r.child_count, 0);
    int told = cl->told_count;
    settle(cl->w);
    assert_int_equal(cl->told_count, told);

    /* It comes back repaired. */
    cl->disk_failed = 0;
    coord_memory_expire(cl->w->memory, coord_session_id(two->c));
    settle(cl->w);
    session_free(two);
    two = session_new(cl->w);
    register_broker(two, 2, NULL);
    settle(cl->w);
    assert_str(node_text(cl->w, "/brokers/topics/u/partitions/0/state"),
               "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":2,\"isr\":[2]}");
    session_free(two);
}

static void the_deletion_of_replicas_waits_for_a_broker_that_is_away(void **state)
{
    struct cluster *cl = *state;
    struct world *two = session_new(cl->w);
    register_broker(two, 2, NULL);
    settle(cl->w);
    create_topic(cl, "t", 1, 2);
    coord_memory_expire(cl->w->memory, coord_session_id(two->c));
    settle(cl->w);
    session_free(two);
    assert_int_equal(delete_topic(cl, "t").kerr, KERR_NONE);
    settle(cl->w);
    assert_int_equal(call_exists(cl->w, "/admin/delete_topics/t", COORD_NO_WATCH).r.err, OK);
    two = session_new(cl->w);
    register_broker(two, 2, NULL);
    settle(cl->w);
    assert_true(was_told(cl, "S 2 t/0 epoch=-2 delete;"));
    assert_int_equal(call_exists(cl->w, "/admin/delete_topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    session_free(two);
}

static void a_replica_that_could_not_be_deleted_keeps_the_marker(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    cl->hold = true;
    struct outcome o = {.w = cl->w};
    struct controller_topic_ref ref = {.name = STR("t")};
    controller_delete_topics(cl->c, &ref, 1, 20, outcome_to(&o));
    settle(cl->w);
    for (int i = 0; i < cl->told_count; i++)
        if (cl->told[i].kind == 'S') cl->told[i].code = KERR_UNKNOWN_SERVER_ERROR;
    cluster_answer(cl);
    outcome_wait(&o);
    assert_int_equal(o.results[0].kerr, KERR_REQUEST_TIMED_OUT);
    assert_int_equal(call_exists(cl->w, "/admin/delete_topics/t", COORD_NO_WATCH).r.err, OK);
}

/* Of several topics in one message those go that could be deleted. */
static void a_replica_that_could_not_be_deleted_holds_up_its_own_topic_alone(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    create_topic(cl, "u", 1, 1);
    cl->hold = true;
    struct outcome o = {.w = cl->w};
    struct controller_topic_ref refs[] = {{.name = STR("t")}, {.name = STR("u")}};
    controller_delete_topics(cl->c, refs, 2, 20, outcome_to(&o));
    settle(cl->w);
    for (int i = 0; i < cl->told_count; i++)
        if (cl->told[i].kind == 'S') cl->told[i].refused = "t";
    cluster_answer(cl);
    outcome_wait(&o);
    settle(cl->w);
    assert_int_equal(o.results[0].kerr, KERR_REQUEST_TIMED_OUT);
    assert_int_equal(call_exists(cl->w, "/admin/delete_topics/t", COORD_NO_WATCH).r.err, OK);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/u", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    /* It is tried again, and the answer to that counts. */
    while (call_exists(cl->w, "/brokers/topics/t", COORD_NO_WATCH).r.err == OK)
        loop_turn(cl->w->loop, 10 * 1000 * 1000);
}

/* Another controller has taken over, and our watches have not told us yet. */
static void a_deposed_controller_changes_nothing(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "old", 1, 1);
    struct world *other = session_new(cl->w);
    coord_memory_hold(cl->w->memory, true, false);
    call_delete(other, "/controller", COORD_ANY_VERSION);
    call_create(other, "/controller", "{\"version\":2,\"brokerid\":2,\"timestamp\":\"1\",\"kraftControllerEpoch\":-1}",
                COORD_EPHEMERAL);
    call_set(other, "/controller_epoch", "2", COORD_ANY_VERSION);

    struct controller_result r = create_topic(cl, "t", 3, 1);
    assert_int_equal(r.kerr, KERR_NOT_CONTROLLER);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_int_equal(call_exists(cl->w, "/config/topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_STANDBY);
    assert_int_equal(controller_topic_count(cl->c), 0);
    assert_int_equal(delete_topic(cl, "old").kerr, KERR_NOT_CONTROLLER);
    assert_int_equal(call_exists(cl->w, "/controller", COORD_NO_WATCH).r.stat.ephemeral_owner,
                     coord_session_id(other->c));

    coord_memory_release(cl->w->memory);
    session_free(other); /* its /controller goes: ours runs again */
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(cl->c), 3);
    assert_int_equal(create_topic(cl, "t", 3, 1).kerr, KERR_NONE);
    assert_int_equal(controller_topic_count(cl->c), 2);
}

static void the_loss_of_its_node_is_the_loss_of_office(void **state)
{
    struct cluster *cl = *state;
    struct world *other = session_new(cl->w);
    call_delete(other, "/controller", COORD_ANY_VERSION);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE); /* it ran again, with another epoch */
    assert_int_equal(controller_epoch(cl->c), 2);
    session_free(other);
}

static void a_client_that_waits_for_a_deletion_is_told_of_the_loss_of_office(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    cl->hold = true;
    struct outcome o = {.w = cl->w};
    struct controller_topic_ref ref = {.name = STR("t")};
    controller_delete_topics(cl->c, &ref, 1, 60000, outcome_to(&o));
    settle(cl->w);
    struct world *other = session_new(cl->w);
    call_delete(other, "/controller", COORD_ANY_VERSION);
    settle(cl->w);
    cluster_answer(cl);
    outcome_wait(&o);
    assert_int_equal(o.results[0].kerr, KERR_NOT_CONTROLLER);
    settle(cl->w);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND); /* resumed */
    session_free(other);
}

static void a_standby_takes_over_when_the_controllers_session_ends(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 2, 1);
    struct cluster *second = mem_zalloc(1, sizeof *second);
    second->w = session_new(cl->w);
    cluster_start(second);
    assert_int_equal(controller_state(second->c), CONTROLLER_STANDBY);
    assert_int_equal(create_topic(second, "u", 1, 1).kerr, KERR_NOT_CONTROLLER);

    coord_memory_expire(cl->w->memory, coord_session_id(cl->w->c));
    settle(second->w);
    assert_int_equal(controller_state(second->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(second->c), 2);
    assert_int_equal(controller_topic_count(second->c), 1);
    assert_int_equal(create_topic(cl, "u", 1, 1).kerr, KERR_NOT_CONTROLLER);
    cluster_stop(second);
    session_free(second->w);
    mem_free(second);
}

/* --- what a restart finds --- */

static void stop_and_reconnect(struct cluster *cl)
{
    cluster_stop(cl);
    cl->w->c = coord_memory_connect(cl->w->memory, (struct coord_listener){cl->w->loop, world_listen, cl->w});
}

static void a_restart_tells_everything_again_with_the_same_leader_epochs(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 2, 1);
    stop_and_reconnect(cl);
    register_broker(cl->w, 1, NULL);
    cl->told_count = 0;
    cluster_start(cl);
    assert_int_equal(controller_epoch(cl->c), 2);
    assert_int_equal(cl->told_count, 2);
    assert_string_equal(cl->told[0].text,
                        "L 1 t/0 leader=1/0 isr=1 replicas=1 v0; t/1 leader=1/0 isr=1 replicas=1 v0;");
    assert_string_equal(cl->told[1].text, "U 1 live=1 t/0 leader=1/0; t/1 leader=1/0;");
}

static void a_controller_that_is_there_before_its_broker_waits_for_it(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    stop_and_reconnect(cl);
    cl->told_count = 0;
    cluster_start(cl);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(cl->told_count, 0);
    register_broker(cl->w, 1, NULL);
    settle(cl->w);
    assert_true(was_told(cl, "L 1 t/0 leader=1/0 isr=1 replicas=1 v0;"));
    assert_str(node_text(cl->w, "/brokers/topics/t/partitions/0/state"),
               "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":0,\"isr\":[1]}");
}

static void partitions_whose_state_was_never_written_get_one(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 3, 1);
    stop_and_reconnect(cl);
    call_delete(cl->w, "/brokers/topics/t/partitions/1/state", COORD_ANY_VERSION);
    call_delete(cl->w, "/brokers/topics/t/partitions/2/state", COORD_ANY_VERSION);
    call_delete(cl->w, "/brokers/topics/t/partitions/2", COORD_ANY_VERSION);
    register_broker(cl->w, 1, NULL);
    cl->told_count = 0;
    cluster_start(cl);
    settle(cl->w);
    assert_str(node_text(cl->w, "/brokers/topics/t/partitions/2/state"),
               "{\"controller_epoch\":2,\"leader\":1,\"version\":1,\"leader_epoch\":0,\"isr\":[1]}");
    assert_true(was_told(cl, "L 1 t/1 leader=1/0 isr=1 replicas=1 v0 new; t/2 leader=1/0 isr=1 replicas=1 v0 new;"));
}

static void the_nodes_of_a_real_kafka_cluster_are_loaded(void **state)
{
    struct cluster *cl = *state;
    cluster_stop(cl);
    world_free(cl->w);
    cl->w = world_new(false);
    FILE *in = fopen("tests/data/kafka39-znodes.txt", "r");
    assert_non_null(in);
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, in) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *path_end = strstr(line, " [v"), *data = strstr(path_end, "] ") + 2;
        if (strncmp(path_end, " [v0 ephemeral]", 15) == 0) continue; /* /controller: that one died */
        *path_end = '\0';
        if (strcmp(line, "/") != 0) assert_int_equal(call_create(cl->w, line, data, 0).r.err, OK);
    }
    free(line);
    fclose(in);
    cluster_start(cl);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(cl->c), 2);
    assert_int_equal(controller_topic_count(cl->c), 11);
    assert_int_equal(controller_broker_count(cl->c), 2);
    struct controller_topic t;
    assert_true(controller_find_topic(cl->c, STR("codec-none"), &t));
    assert_int_equal(t.partition_count, 3);
    assert_int_equal(t.partitions[0].leader, 2);
    assert_int_equal(t.partitions[0].isr_count, 2);
    struct outcome o = {.w = cl->w};
    int64_t epoch = call_exists(cl->w, "/brokers/ids/1", COORD_NO_WATCH).r.stat.czxid;
    controller_allocate_producer_ids(cl->c, 1, epoch, outcome_to(&o));
    outcome_wait(&o);
    assert_true(o.producer_id_start == 2000);
}

/* Dies after each number of changes in turn; the next controller must find the topic whole or not at all. */
static void a_topic_survives_a_crash_between_any_two_changes_of_its_making_whole_or_not_at_all(void **state)
{
    struct cluster *cl = *state;
    bool made_at_once = false;
    for (int changes = 0; !made_at_once; changes++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", changes);
        coord_memory_expire_after(cl->w->memory, coord_session_id(cl->w->c), changes);
        made_at_once = create_topic(cl, name, 5000, 1).kerr == KERR_NONE;
        stop_and_reconnect(cl);
        register_broker(cl->w, 1, NULL);
        cl->told_count = 0;
        cluster_start(cl);
        settle(cl->w);
        assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
        struct controller_topic t;
        bool there = controller_find_topic(cl->c, str_of(name), &t);
        assert_int_equal(there, changes > 0);
        if (!there) continue;
        assert_int_equal(t.partition_count, 5000);
        char path[64];
        snprintf(path, sizeof path, "/brokers/topics/%s/partitions", name);
        struct answer a = call_children(cl->w, path, COORD_NO_WATCH);
        assert_int_equal(a.r.child_count, 5000);
        for (int i = 0; i < 5000; i++) assert_int_equal(t.partitions[i].leader, 1);
        snprintf(path, sizeof path, "/brokers/topics/%s/partitions/4999/state", name);
        assert_int_equal(call_exists(cl->w, path, COORD_NO_WATCH).r.err, OK);
        assert_int_equal(delete_topic(cl, name).kerr, KERR_NONE);
    }
}

static void a_deletion_survives_a_crash_between_any_two_of_its_changes(void **state)
{
    struct cluster *cl = *state;
    bool deleted_at_once = false;
    for (int changes = 0; !deleted_at_once; changes++) {
        if (!controller_topic_count(cl->c)) create_topic(cl, "t", 5000, 1);
        coord_memory_expire_after(cl->w->memory, coord_session_id(cl->w->c), changes);
        deleted_at_once = delete_topic(cl, "t").kerr == KERR_NONE;
        stop_and_reconnect(cl);
        register_broker(cl->w, 1, NULL);
        cl->told_count = 0;
        cluster_start(cl);
        settle(cl->w);
        settle(cl->w);
        assert_int_equal(controller_topic_count(cl->c), changes == 0);
        static const char *const nodes[] = {"/brokers/topics/t", "/config/topics/t"};
        for (size_t i = 0; i < ARRAY_COUNT(nodes); i++)
            assert_int_equal(call_exists(cl->w, nodes[i], COORD_NO_WATCH).r.err, changes == 0 ? OK : ERR_NOT_FOUND);
        assert_int_equal(call_exists(cl->w, "/admin/delete_topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    }
}

static void a_malformed_node_keeps_it_out_of_office_and_is_named(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    stop_and_reconnect(cl);
    call_set(cl->w, "/brokers/topics/t/partitions/0/state", "{\"leader\":", COORD_ANY_VERSION);
    register_broker(cl->w, 1, NULL);
    cl->told_count = 0;
    cluster_start(cl);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_STANDBY);
    assert_int_equal(cl->fault.code, ERR_CORRUPT);
    assert_non_null(strstr(cl->fault.text, "/brokers/topics/t/partitions/0/state"));
    assert_int_equal(cl->told_count, 0);
}

static void what_is_malformed_is_left_out_and_the_rest_goes_on(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    create_topic(cl, "u", 1, 1);
    create_topic(cl, "v", 1, 1);
    stop_and_reconnect(cl);
    call_set(cl->w, "/brokers/topics/t/partitions/0/state", "{\"leader\":", COORD_ANY_VERSION);
    call_set(cl->w, "/brokers/topics/u", "\xff", COORD_ANY_VERSION);
    register_broker(cl->w, 1, NULL);
    register_broker(cl->w, 2, NULL);
    call_set(cl->w, "/brokers/ids/2", "[]", COORD_ANY_VERSION);
    cl->leaves_out_malformed = true;
    cluster_start(cl);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(cl->fault.code, OK);
    struct controller_topic found;
    assert_true(controller_find_topic(cl->c, STR("t"), &found));
    assert_int_equal(found.partition_count, 0);
    assert_false(controller_find_topic(cl->c, STR("u"), &found));
    assert_true(controller_find_topic(cl->c, STR("v"), &found));
    assert_int_equal(controller_broker_count(cl->c), 1);
    call_set(cl->w, "/brokers/ids/1", "7", COORD_ANY_VERSION); /* also while in office */
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_broker_count(cl->c), 0);
}

static int setup(void **state)
{
    *state = cluster_new(false);
    return 0;
}

static int teardown(void **state)
{
    cluster_free(*state);
    return 0;
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_broker_that_comes_is_told_everything_and_everybody_of_it),
        TEST(leaders_move_to_the_first_live_replica_in_sync),
        TEST(leaders_move_away_from_a_failed_log_directory),
        TEST(the_deletion_of_replicas_waits_for_a_broker_that_is_away),
        TEST(a_replica_that_could_not_be_deleted_keeps_the_marker),
        TEST(a_replica_that_could_not_be_deleted_holds_up_its_own_topic_alone),
        TEST(a_deposed_controller_changes_nothing),
        TEST(the_loss_of_its_node_is_the_loss_of_office),
        TEST(a_client_that_waits_for_a_deletion_is_told_of_the_loss_of_office),
        TEST(a_standby_takes_over_when_the_controllers_session_ends),
        TEST(a_restart_tells_everything_again_with_the_same_leader_epochs),
        TEST(a_controller_that_is_there_before_its_broker_waits_for_it),
        TEST(partitions_whose_state_was_never_written_get_one),
        TEST(the_nodes_of_a_real_kafka_cluster_are_loaded),
        TEST(a_topic_survives_a_crash_between_any_two_changes_of_its_making_whole_or_not_at_all),
        TEST(a_deletion_survives_a_crash_between_any_two_of_its_changes),
        TEST(a_malformed_node_keeps_it_out_of_office_and_is_named),
        TEST(what_is_malformed_is_left_out_and_the_rest_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
