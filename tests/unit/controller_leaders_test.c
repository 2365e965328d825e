/* controller: who leads when brokers die, look dead, restart or stop, and what leaders may make of their in-sync sets.
 */
#include "controller_trio.h"

static const int32_t two_one[] = {2, 1}, three_one[] = {3, 1}, two_alone[] = {2};

/* --- who leads --- */

static void the_replica_with_the_most_records_leads(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    make_topic(tr, "u", two_three_one, 3);
    make_topic(tr, "v", two_three_one, 3);
    ends_set(tr->cl, "t", 0, 3, 4, 100);
    ends_set(tr->cl, "t", 0, 1, 4, 101); /* more records */
    ends_set(tr->cl, "u", 0, 3, 5, 7);   /* fewer, but of a later leader */
    ends_set(tr->cl, "u", 0, 1, 4, 900);
    ends_set(tr->cl, "v", 0, 1, 4, 10); /* as many: the order of the assignment decides */
    ends_set(tr->cl, "v", 0, 3, 4, 10);
    trio_lose(tr, 2);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
    assert_state(tr, "u", "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
    assert_state(tr, "v", "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
    /* One question a broker. */
    assert_true(was_noted(tr->cl, "asked 3 t/0 u/0 v/0"));
    assert_true(was_noted(tr->cl, "asked 1 t/0 u/0 v/0"));
    assert_true(was_told(tr->cl, "L 3 t/0 leader=1/1 isr=3,1 replicas=2,3,1 v1; u/0 leader=3/1 isr=3,1 replicas=2,3,1"
                                 " v1; v/0 leader=3/1 isr=3,1 replicas=2,3,1 v1;"));
}

static void whoever_does_not_answer_is_passed_over_and_the_first_leads_when_nobody_does(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    ends_set(tr->cl, "t", 0, 3, 9, 1000);
    ends_set(tr->cl, "t", 0, 1, 4, 10);
    tr->cl->mute[3] = true;
    trio_lose(tr, 2);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
    trio_join(tr, 2);
    make_topic(tr, "u", two_three_one, 3);
    tr->cl->mute[1] = true;
    trio_lose(tr, 2);
    assert_state(tr, "u", "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
}

static void a_single_candidate_is_not_asked(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_one, 2);
    tr->cl->note_count = 0;
    trio_lose(tr, 2);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1]}");
    assert_int_equal(tr->cl->note_count, 1);
    assert_true(was_noted(tr->cl, "went 2"));
}

static void a_dead_follower_leaves_the_in_sync_set_at_once(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    tr->cl->told_count = 0;
    trio_lose(tr, 2);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1]}");
    assert_true(was_told(tr->cl, "L 1 t/0 leader=1/1 isr=1 replicas=1,2 v1;"));
}

static void replicas_out_of_sync_lead_only_where_that_is_allowed(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    make_topic(tr, "u", two_three_one, 3);
    call_set(tr->cl->w, "/config/topics/u", "{\"version\":1,\"config\":{\"unclean.leader.election.enable\":\"True\"}}",
             COORD_ANY_VERSION);
    ends_set(tr->cl, "u", 0, 1, 0, 50);
    ends_set(tr->cl, "u", 0, 3, 0, 40);
    ends_set(tr->cl, "t", 0, 1, 0, 50);
    ends_set(tr->cl, "t", 0, 3, 0, 40);
    trio_lose(tr, 3);
    trio_join(tr, 3); /* no longer in sync */
    struct alter_partition_request_partition_data ap = alter_partition_request_partition_data_default;
    struct alter_partition_request_topic_data at[2] = {alter_partition_request_topic_data_default,
                                                       alter_partition_request_topic_data_default};
    int32_t alone = 2;
    ap.leader_epoch = ap.partition_epoch = 1;
    ap.new_isr = &alone;
    ap.new_isr_count = 1;
    at[0].topic_name = STR("t");
    at[1].topic_name = STR("u");
    at[0].partitions = at[1].partitions = &ap;
    at[0].partitions_count = at[1].partitions_count = 1;
    struct alter_partition_request in = {2, epoch_of(tr, 2), at, 2};
    struct alter_partition_response out = alter_partition_response_default;
    struct asked as = {.w = tr->cl->w};
    controller_alter_partition(tr->cl->c, &in, 1, &out, asked_rq(&as));
    asked_wait(&as);
    assert_int_equal(out.error_code, KERR_NONE);
    assert_state(tr, "u", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":1,\"isr\":[2]}");
    trio_lose(tr, 2);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":-1,\"version\":1,\"leader_epoch\":2,\"isr\":[2]}");
    assert_state(tr, "u",
                 "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":2,\"isr\":[1],"
                 "\"leader_recovery_state\":1}");
}

static void leaders_are_looked_for_again_when_unclean_elections_are_allowed(void **state)
{
    struct trio *tr = *state;
    static const int32_t two_three[] = {2, 3};
    make_topic(tr, "t", two_three, 2);
    make_topic(tr, "u", two_three, 2);
    trio_lose(tr, 3);
    trio_lose(tr, 2);
    trio_join(tr, 3);
    call_set(tr->cl->w, "/config/topics/t", "{\"version\":1,\"config\":{\"unclean.leader.election.enable\":\"true\"}}",
             COORD_ANY_VERSION);
    controller_unclean_changed(tr->cl->c, false);
    settle(tr->cl->w);
    assert_state(tr, "t",
                 "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":3,\"isr\":[3],"
                 "\"leader_recovery_state\":1}");
    assert_state(tr, "u", "{\"controller_epoch\":1,\"leader\":-1,\"version\":1,\"leader_epoch\":2,\"isr\":[2]}");
    assert_true(was_told(tr->cl, "L 3 t/0 leader=3/3 isr=3 replicas=2,3 v3;"));
    controller_unclean_changed(tr->cl->c, true);
    settle(tr->cl->w);
    assert_state(tr, "u",
                 "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":3,\"isr\":[3],"
                 "\"leader_recovery_state\":1}");
}

/* It may live, and hold what nobody else does. */
static void no_unclean_election_is_held_for_a_broker_that_only_looks_dead(void **state)
{
    struct trio *tr = *state;
    static const int32_t two_three[] = {2, 3};
    make_topic(tr, "t", two_three, 2);
    call_set(tr->cl->w, "/config/topics/t", "{\"version\":1,\"config\":{\"unclean.leader.election.enable\":\"true\"}}",
             COORD_ANY_VERSION);
    trio_lose(tr, 3);
    trio_join(tr, 3);
    controller_broker_unreachable(tr->cl->c, 2, epoch_of(tr, 2));
    settle(tr->cl->w);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":1,\"isr\":[2]}");
    trio_lose(tr, 2);
    assert_state(tr, "t",
                 "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":2,\"isr\":[3],"
                 "\"leader_recovery_state\":1}");
}

static void all_that_were_in_sync_may_come_back_and_lead(void **state)
{
    struct trio *tr = *state;
    static const int32_t two_three[] = {2, 3};
    make_topic(tr, "t", two_three, 2);
    coord_memory_hold(tr->cl->w->memory, true, false);
    coord_memory_expire(tr->cl->w->memory, coord_session_id(tr->sessions[2]->c));
    coord_memory_expire(tr->cl->w->memory, coord_session_id(tr->sessions[3]->c));
    coord_memory_release(tr->cl->w->memory);
    settle(tr->cl->w);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":-1,\"version\":1,\"leader_epoch\":1,\"isr\":[2,3]}");
    session_free(tr->sessions[3]);
    tr->sessions[3] = NULL;
    trio_join(tr, 3);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":2,\"isr\":[3]}");
}

/* --- brokers that look dead, and come back --- */

static void a_broker_that_looks_dead_loses_its_leaders_and_is_back_when_it_is_reached(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    make_topic(tr, "alone", two_alone, 1);
    tr->cl->told_count = 0;
    controller_broker_unreachable(tr->cl->c, 2, epoch_of(tr, 2));
    settle(tr->cl->w);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
    /* Nobody else could lead this one: it may live. */
    assert_state(tr, "alone", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2]}");
    assert_true(was_told(tr->cl, "U 1 live=2"));
    for (int i = 0; i < tr->cl->told_count; i++) assert_int_not_equal(tr->cl->told[i].broker, 2);

    tr->cl->told_count = 0;
    controller_broker_reachable(tr->cl->c, 2, epoch_of(tr, 2));
    settle(tr->cl->w);
    assert_true(was_told(tr->cl, "U 1 live=3"));
    assert_true(
        was_told(tr->cl, "L 2 t/0 leader=3/1 isr=3,1 replicas=2,3,1 v1; alone/0 leader=2/0 isr=2 replicas=2 v0;"));
}

static void set_endpoint(struct trio *tr, const char *endpoint, const char *legacy)
{
    char node[512];
    snprintf(node, sizeof node,
             "{\"version\":5,%s,\"jmx_port\":-1,\"timestamp\":\"1\",\"endpoints\":[\"%s\"],"
             "\"listener_security_protocol_map\":{\"PLAINTEXT\":\"PLAINTEXT\",\"OTHER\":\"SSL\"}}",
             legacy, endpoint);
    tr->cl->told_count = tr->cl->note_count = 0;
    call_set(tr->cl->w, "/brokers/ids/2", node, COORD_ANY_VERSION);
    settle(tr->cl->w);
}

/* Endpoints are what counts; the node's own host and port are for clients of old, and may be anything. */
static void a_broker_registered_without_an_address_leads_nothing_until_it_has_one(void **state)
{
    struct trio *tr = *state;
    static const char *const nowhere[] = {"PLAINTEXT://:9094", "PLAINTEXT://127.0.0.1:-1", "PLAINTEXT://127.0.0.1:0",
                                          "OTHER://127.0.0.1:9094"};
    static const char *const names[] = {"a", "b", "c", "d"};
    make_topic(tr, "alone", two_alone, 1);
    for (size_t i = 0; i < ARRAY_COUNT(nowhere); i++) {
        make_topic(tr, names[i], two_three_one, 3);
        set_endpoint(tr, nowhere[i], "\"host\":\"127.0.0.1\",\"port\":9094");
        assert_true(was_noted(tr->cl, "went 2"));
        assert_true(was_told(tr->cl, "U 1 live=2"));
        assert_state(tr, names[i],
                     "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
        /* Nobody else could lead this one. */
        assert_state(tr, "alone", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2]}");
        for (int k = 0; k < tr->cl->told_count; k++) assert_int_not_equal(tr->cl->told[k].broker, 2);
        set_endpoint(tr, "PLAINTEXT://127.0.0.1:9094", "\"host\":null,\"port\":-1");
        assert_true(was_noted(tr->cl, "came 2 127.0.0.1:9094"));
        assert_true(was_told(tr->cl, "U 1 live=3"));
        if (i == 0) /* it is told everything */
            assert_true(was_told(
                tr->cl, "L 2 alone/0 leader=2/0 isr=2 replicas=2 v0; a/0 leader=3/1 isr=3,1 replicas=2,3,1 v1;"));
    }
}

static void what_is_said_of_an_old_process_or_of_the_own_broker_changes_nothing(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    make_topic(tr, "u", one_two, 2);
    tr->cl->told_count = 0;
    controller_broker_unreachable(tr->cl->c, 2, epoch_of(tr, 2) - 1);
    controller_broker_unreachable(tr->cl->c, 1, epoch_of(tr, 1));
    controller_broker_unreachable(tr->cl->c, 7, 7);
    controller_broker_reachable(tr->cl->c, 2, epoch_of(tr, 2));
    settle(tr->cl->w);
    assert_int_equal(tr->cl->told_count, 0);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2,3,1]}");
}

static void a_broker_that_is_gone_for_good_after_it_looked_dead_is_gone(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "alone", two_alone, 1);
    controller_broker_unreachable(tr->cl->c, 2, epoch_of(tr, 2));
    settle(tr->cl->w);
    trio_lose(tr, 2);
    assert_state(tr, "alone", "{\"controller_epoch\":1,\"leader\":-1,\"version\":1,\"leader_epoch\":1,\"isr\":[2]}");
    assert_int_equal(controller_broker_count(tr->cl->c), 2);
}

/* Between two looks: the controller sees another epoch only. */
static void a_broker_that_restarts_quickly_is_lost_and_comes_again(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    make_topic(tr, "u", one_two, 2);
    make_topic(tr, "alone", two_alone, 1);
    tr->cl->note_count = 0;
    coord_memory_hold(tr->cl->w->memory, true, false);
    call_delete(tr->cl->w, "/brokers/ids/2", COORD_ANY_VERSION);
    register_broker(tr->sessions[2], 2, NULL);
    coord_memory_release(tr->cl->w->memory);
    settle(tr->cl->w);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
    assert_state(tr, "u", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1]}");
    assert_state(tr, "alone", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":1,\"isr\":[2]}");
    assert_true(was_noted(tr->cl, "came 2 127.0.0.1:9094"));
    assert_true(was_told(tr->cl, "L 2 t/0 leader=3/1 isr=3,1 replicas=2,3,1 v1; u/0 leader=1/1 isr=1 replicas=1,2 v1;"
                                 " alone/0 leader=2/1 isr=2 replicas=2 v1;"));
}

/* The controller goes, these brokers restart, and only then is there another controller. */
static void restart_unseen(struct trio *tr, const int32_t *ids, size_t count)
{
    coord_memory_hold(tr->cl->w->memory, true, false);
    call_delete(tr->cl->w, "/controller", COORD_ANY_VERSION);
    for (size_t i = 0; i < count; i++) {
        char path[32];
        snprintf(path, sizeof path, "/brokers/ids/%d", ids[i]);
        call_delete(tr->cl->w, path, COORD_ANY_VERSION);
        register_broker(tr->sessions[ids[i]], ids[i], NULL);
    }
    coord_memory_release(tr->cl->w->memory);
    settle(tr->cl->w);
}

static void a_new_controller_finds_who_has_restarted_while_there_was_none(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "led", two_three_one, 3);
    make_topic(tr, "followed", one_two, 2);
    make_topic(tr, "alone", two_alone, 1);
    ends_set(tr->cl, "led", 0, 2, 4, 100); /* may be less than it had */
    ends_set(tr->cl, "led", 0, 3, 4, 90);
    ends_set(tr->cl, "led", 0, 1, 4, 91);
    restart_unseen(tr, (const int32_t[]){2}, 1);
    assert_int_equal(controller_epoch(tr->cl->c), 2);
    assert_state(tr, "led", "{\"controller_epoch\":2,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
    assert_state(tr, "followed", "{\"controller_epoch\":2,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1]}");
    /* Nobody else has a record of it that could differ. */
    assert_state(tr, "alone", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2]}");
    /* What was written since then is newer than its registration. */
    restart_unseen(tr, NULL, 0);
    assert_int_equal(controller_epoch(tr->cl->c), 3);
    assert_state(tr, "led", "{\"controller_epoch\":2,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
}

static void when_all_in_sync_have_restarted_the_one_with_the_most_records_leads_and_the_set_stays(void **state)
{
    static const int32_t two_three[] = {2, 3};
    struct trio *tr = *state;
    make_topic(tr, "t", two_three, 2);
    ends_set(tr->cl, "t", 0, 2, 4, 90);
    ends_set(tr->cl, "t", 0, 3, 4, 91);
    restart_unseen(tr, two_three, 2);
    assert_state(tr, "t", "{\"controller_epoch\":2,\"leader\":3,\"version\":1,\"leader_epoch\":1,\"isr\":[2,3]}");
}

/* What was on its way to the old address is lost, and whether it looked dead there says nothing any more. */
static void new_addresses_of_a_running_broker_are_told_to_everybody_and_everything_there(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_one, 2);
    make_topic(tr, "alone", two_alone, 1);
    controller_broker_unreachable(tr->cl->c, 2, epoch_of(tr, 2));
    settle(tr->cl->w);
    struct znode_endpoint ep = {STR("PLAINTEXT"), STR("127.0.0.9"), 9999, SECURITY_PLAINTEXT};
    struct znode_broker b = {.endpoints = &ep, .endpoint_count = 1, .jmx_port = -1};
    struct bytes data = znode_broker_encode(&tr->cl->w->arena, &b);
    struct answer an = {.w = tr->cl->w};
    tr->cl->told_count = 0;
    coord_set(tr->cl->w->c, STR("/brokers/ids/2"), data, COORD_ANY_VERSION,
              (struct coord_to){tr->cl->w->loop, answer_done, &an});
    answer_wait(&an);
    settle(tr->cl->w);
    assert_true(was_noted(tr->cl, "came 2 127.0.0.9:9999"));
    assert_true(was_told(tr->cl, "U 1 live=3"));
    assert_true(was_told(tr->cl, "U 3 live=3"));
    assert_true(was_told(tr->cl, "L 2 t/0 leader=1/1 isr=1 replicas=2,1 v1; alone/0 leader=2/0 isr=2 replicas=2 v0;"));
}

/* Somebody deletes a topic's node while its replica comes, for which its partition has waited. */
static void a_partition_that_starts_does_not_bring_its_topics_node_back(void **state)
{
    struct trio *tr = *state;
    trio_lose(tr, 3);
    call_create(tr->cl->w, "/brokers/topics/t",
                "{\"version\":3,\"topic_id\":\"AAAAAAAAAAAAAAAAAAAAAg\",\"partitions\":{\"0\":[3]}}", 0);
    settle(tr->cl->w);
    assert_int_equal(controller_topic_count(tr->cl->c), 1);
    tr->sessions[3] = session_new(tr->cl->w);
    register_broker(tr->sessions[3], 3, NULL);
    assert_int_equal(call_delete(tr->cl->w, "/brokers/topics/t", COORD_ANY_VERSION).r.err, OK);
    settle(tr->cl->w);
    assert_int_equal(call_exists(tr->cl->w, "/brokers/topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_int_equal(controller_state(tr->cl->c), CONTROLLER_STANDBY); /* reads everything anew, after a while */
}

static void a_new_controller_takes_the_dead_out_of_the_in_sync_sets(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    call_delete(tr->cl->w, "/controller", COORD_ANY_VERSION);
    coord_memory_expire(tr->cl->w->memory, coord_session_id(tr->sessions[2]->c));
    settle(tr->cl->w);
    assert_int_equal(controller_epoch(tr->cl->c), 2);
    assert_state(tr, "t", "{\"controller_epoch\":2,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1]}");
}

/* --- AlterPartition --- */

static void a_leader_changes_its_in_sync_set(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    tr->cl->told_count = 0;
    struct alter al = {.broker = 2, .topic = "t", .isr = {2, 1}, .isr_count = 2, .version = 3};
    struct alter_partition_response r = alter(tr, &al);
    assert_int_equal(r.error_code, KERR_NONE);
    assert_int_equal(r.topics_count, 1);
    assert_false(uuid_is_zero(r.topics[0].topic_id));
    const struct alter_partition_response_partition_data *p = &r.topics[0].partitions[0];
    assert_int_equal(p->error_code, KERR_NONE);
    assert_int_equal(p->leader_id, 2);
    assert_int_equal(p->leader_epoch, 0);
    assert_int_equal(p->partition_epoch, 1);
    assert_int_equal(p->isr_count, 2);
    assert_int_equal(p->isr[0], 2);
    assert_int_equal(p->isr[1], 1);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2,1]}");
    /* The others learn by UpdateMetadata; nobody is sent LeaderAndIsr. */
    settle(tr->cl->w);
    assert_int_equal(tr->cl->told_count, 3);
    assert_true(was_told(tr->cl, "U 3 live=3 t/0 leader=2/0;"));
    /* Sent again, it is answered as before, though it names an old partition epoch. */
    r = alter(tr, &al);
    assert_int_equal(r.topics[0].partitions[0].error_code, KERR_NONE);
    assert_int_equal(r.topics[0].partitions[0].partition_epoch, 1);
}

static void of_two_changes_of_one_partition_in_a_request_the_second_is_refused(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    int32_t without_three[] = {2, 1}, alone[] = {2};
    struct alter_partition_request_partition_data ap[2] = {alter_partition_request_partition_data_default,
                                                           alter_partition_request_partition_data_default};
    struct alter_partition_request_topic_data at = alter_partition_request_topic_data_default;
    ap[0].new_isr = without_three;
    ap[0].new_isr_count = 2;
    ap[1].new_isr = alone;
    ap[1].new_isr_count = 1;
    at.topic_name = STR("t");
    at.partitions = ap;
    at.partitions_count = 2;
    struct alter_partition_request in = {2, epoch_of(tr, 2), &at, 1};
    struct alter_partition_response out = alter_partition_response_default;
    struct asked as = {.w = tr->cl->w};
    controller_alter_partition(tr->cl->c, &in, 1, &out, asked_rq(&as));
    asked_wait(&as);
    assert_int_equal(out.topics[0].partitions[0].error_code, KERR_NONE);
    assert_int_equal(out.topics[0].partitions[1].error_code, KERR_INVALID_REQUEST);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2,1]}");
}

/* Brokers of Kafka with an old inter.broker.protocol.version. */
static void in_sync_sets_that_brokers_change_in_the_store_are_taken_over(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    make_topic(tr, "u", three_one, 2);
    tr->cl->told_count = 0;
    call_set(tr->cl->w, "/brokers/topics/t/partitions/0/state",
             "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2,1]}", 0);
    call_set(tr->cl->w, "/brokers/topics/u/partitions/0/state",
             "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":0,\"isr\":[3,3]}", 0); /* cannot be */
    call_create(tr->cl->w, "/isr_change_notification/isr_change_",
                "{\"version\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":0},"
                "{\"topic\":\"u\",\"partition\":0},{\"topic\":\"gone\",\"partition\":5}]}",
                COORD_SEQUENTIAL);
    call_create(tr->cl->w, "/isr_change_notification/isr_change_", "{\"version\":1,\"partitions\":3}",
                COORD_SEQUENTIAL);
    settle(tr->cl->w);
    assert_int_equal(tr->cl->told_count, 3);
    assert_true(was_told(tr->cl, "U 3 live=3 t/0 leader=2/0;"));
    struct controller_topic t;
    assert_true(controller_find_topic(tr->cl->c, STR("t"), &t));
    assert_int_equal(t.partitions[0].isr_count, 2);
    assert_int_equal(t.partitions[0].state_version, 1);
    assert_true(controller_find_topic(tr->cl->c, STR("u"), &t));
    assert_int_equal(t.partitions[0].isr[1], 1);
    assert_int_equal(call_children(tr->cl->w, "/isr_change_notification", COORD_NO_WATCH).r.child_count, 0);
    trio_lose(tr, 2);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1]}");
}

static void what_does_not_stand_in_an_in_sync_change_is_refused(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    trio_lose(tr, 3);
    trio_join(tr, 3);
    /* Led by 2 with leader epoch 1, partition epoch 1, in sync: 2 and 1. */
    const struct {
        struct alter al;
        enum kerr kerr;
    } rows[] = {
        {{.broker = 2, .topic = "t", .leader_epoch = 2, .partition_epoch = 1, .version = 3}, KERR_NOT_CONTROLLER},
        {{.broker = 2, .topic = "t", .leader_epoch = 1, .partition_epoch = 2, .version = 3}, KERR_NOT_CONTROLLER},
        {{.broker = 2, .topic = "t", .leader_epoch = 0, .partition_epoch = 1, .version = 3}, KERR_FENCED_LEADER_EPOCH},
        {{.broker = 2, .topic = "t", .leader_epoch = 1, .partition_epoch = 0, .version = 3},
         KERR_INVALID_UPDATE_VERSION},
        {{.broker = 1, .topic = "t", .leader_epoch = 1, .partition_epoch = 1, .version = 3}, KERR_INVALID_REQUEST},
        {{.broker = 2, .topic = "t", .leader_epoch = 1, .partition_epoch = 1, .recovery = 1, .version = 3},
         KERR_INVALID_REQUEST},
        {{.broker = 2, .topic = "t", .leader_epoch = 1, .partition_epoch = 1, .recovery = 2, .version = 3},
         KERR_INVALID_REQUEST},
        {{.broker = 2, .topic = "t", .leader_epoch = 1, .partition_epoch = 1, .recovery = -1, .version = 3},
         KERR_INVALID_REQUEST},
        {{.broker = 2, .topic = "t", .partition = 1, .version = 3}, KERR_UNKNOWN_TOPIC_OR_PARTITION},
        {{.broker = 2, .topic = "none", .version = 1}, KERR_UNKNOWN_TOPIC_OR_PARTITION},
        {{.broker = 2, .topic = NULL, .id = {{1}}, .version = 2}, KERR_UNKNOWN_TOPIC_ID},
        /* 3 as it was before it restarted. */
        {{.broker = 2, .topic = "t", .leader_epoch = 1, .partition_epoch = 1, .epochs = {0, 0, 1}, .version = 3},
         KERR_INELIGIBLE_REPLICA},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct alter al = rows[i].al;
        memcpy(al.isr, two_three_one, sizeof two_three_one);
        al.isr[1] = 1;
        al.isr[2] = 3;
        al.isr_count = 3;
        struct alter_partition_response r = alter(tr, &al);
        assert_int_equal(r.error_code, KERR_NONE);
        if (r.topics[0].partitions[0].error_code != rows[i].kerr) print_message("row %zu\n", i);
        assert_int_equal(r.topics[0].partitions[0].error_code, rows[i].kerr);
    }
    struct alter stranger = {.broker = 2,
                             .topic = "t",
                             .leader_epoch = 1,
                             .partition_epoch = 1,
                             .isr = {2, 7},
                             .epochs = {0, 9},
                             .isr_count = 2,
                             .version = 3};
    assert_int_equal(alter(tr, &stranger).topics[0].partitions[0].error_code, KERR_INVALID_REQUEST);
    /* As many as are in it, but not the same. */
    struct alter twice = {.broker = 2,
                          .topic = "t",
                          .leader_epoch = 1,
                          .partition_epoch = 1,
                          .isr = {2, 2},
                          .isr_count = 2,
                          .version = 3};
    assert_int_equal(alter(tr, &twice).topics[0].partitions[0].error_code, KERR_INVALID_REQUEST);
    struct alter stale = {.broker = 2, .broker_epoch = 1, .topic = "t", .isr = {2}, .isr_count = 1, .version = 3};
    assert_int_equal(alter(tr, &stale).error_code, KERR_STALE_BROKER_EPOCH);
    struct alter unknown = {
        .broker = 8, .broker_epoch = 1, .topic = "t", .isr = {8}, .isr_count = 1, .epochs = {1}, .version = 3};
    assert_int_equal(alter(tr, &unknown).error_code, KERR_STALE_BROKER_EPOCH);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":1,\"isr\":[2,1]}");

    /* One that looks dead is not taken in, whatever its leader says; before version 2 there was another word for it. */
    controller_broker_unreachable(tr->cl->c, 3, epoch_of(tr, 3));
    settle(tr->cl->w);
    struct alter dead = {.broker = 2,
                         .topic = "t",
                         .leader_epoch = 1,
                         .partition_epoch = 1,
                         .isr = {2, 1, 3},
                         .isr_count = 3,
                         .version = 3};
    assert_int_equal(alter(tr, &dead).topics[0].partitions[0].error_code, KERR_INELIGIBLE_REPLICA);
    dead.version = 1;
    assert_int_equal(alter(tr, &dead).topics[0].partitions[0].error_code, KERR_OPERATION_NOT_ATTEMPTED);
    controller_broker_reachable(tr->cl->c, 3, epoch_of(tr, 3));
    settle(tr->cl->w);
    assert_int_equal(alter(tr, &dead).topics[0].partitions[0].error_code, KERR_NONE);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":1,\"isr\":[2,1,3]}");
}

static void out_of_office_requests_are_refused(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    controller_session_lost(tr->cl->c);
    settle(tr->cl->w);
    struct alter al = {.broker = 2, .topic = "t", .isr = {2, 1}, .isr_count = 2, .version = 1};
    assert_int_equal(alter(tr, &al).error_code, KERR_NOT_CONTROLLER);
    struct controlled_shutdown_request in = {2, epoch_of(tr, 2)};
    struct controlled_shutdown_response out = controlled_shutdown_response_default;
    struct asked as = {.w = tr->cl->w};
    controller_controlled_shutdown(tr->cl->c, &in, &out, asked_rq(&as));
    asked_wait(&as);
    assert_int_equal(out.error_code, KERR_NOT_CONTROLLER);
}

/* --- ControlledShutdown --- */

static struct controlled_shutdown_response shut_down(struct trio *tr, int32_t id, int64_t epoch)
{
    struct controlled_shutdown_request in = {id, epoch};
    struct controlled_shutdown_response out = controlled_shutdown_response_default;
    struct asked as = {.w = tr->cl->w};
    controller_controlled_shutdown(tr->cl->c, &in, &out, asked_rq(&as));
    asked_wait(&as);
    return out;
}

static void a_broker_that_stops_is_relieved_of_what_others_can_do(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "leads", two_three_one, 3);
    make_topic(tr, "follows", one_two, 2);
    make_topic(tr, "alone", two_alone, 1);
    make_topic(tr, "behind", two_three_one, 2);
    struct alter lags = {.broker = 2, .topic = "behind", .isr = {2}, .isr_count = 1, .version = 3};
    assert_int_equal(alter(tr, &lags).topics[0].partitions[0].error_code, KERR_NONE);
    settle(tr->cl->w);
    tr->cl->told_count = tr->cl->note_count = 0;
    struct controlled_shutdown_response r = shut_down(tr, 2, epoch_of(tr, 2));
    assert_int_equal(r.error_code, KERR_NONE);
    /* Worth another try is what others hold too: they may catch up. */
    assert_int_equal(r.remaining_partitions_count, 1);
    assert_str(r.remaining_partitions[0].topic_name, "behind");
    assert_int_equal(r.remaining_partitions[0].partition_index, 0);
    assert_state(tr, "leads", "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1]}");
    assert_state(tr, "follows", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1]}");
    assert_state(tr, "alone", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2]}");
    settle(tr->cl->w);
    assert_true(was_told(tr->cl, "L 2 leads/0 leader=3/1 isr=3,1 replicas=2,3,1 v1; follows/0 leader=1/1 isr=1"
                                 " replicas=1,2 v1;"));
    assert_true(was_told(tr->cl, "S 2 follows/0 epoch=1;"));
    assert_int_equal(tr->cl->note_count, 0); /* nobody had to be asked */

    /* It gets nothing any more: no leader, no place in an in-sync set, no new replica. */
    trio_lose(tr, 3);
    struct alter al = {.broker = 1,
                       .topic = "leads",
                       .leader_epoch = 2,
                       .partition_epoch = 2,
                       .isr = {1, 2},
                       .isr_count = 2,
                       .version = 3};
    assert_int_equal(alter(tr, &al).topics[0].partitions[0].error_code, KERR_INELIGIBLE_REPLICA);
    assert_int_equal(create_topic(tr->cl, "new", 1, 2).kerr, KERR_INVALID_REPLICATION_FACTOR);
    /* Another process of it does. */
    trio_lose(tr, 2);
    trio_join(tr, 2);
    al.epochs[1] = 0;
    assert_int_equal(alter(tr, &al).topics[0].partitions[0].error_code, KERR_NONE);
}

static void a_stranger_or_an_old_process_is_not_shut_down(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    assert_int_equal(shut_down(tr, 9, 1).error_code, KERR_BROKER_NOT_AVAILABLE);
    assert_int_equal(shut_down(tr, 2, epoch_of(tr, 2) - 1).error_code, KERR_STALE_BROKER_EPOCH);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2,3,1]}");
}

/* --- sessions --- */

static void office_is_left_with_the_session_and_run_for_with_the_next(void **state)
{
    struct trio *tr = *state;
    struct cluster *cl = tr->cl;
    make_topic(tr, "t", two_three_one, 3);
    cl->note_count = 0;
    controller_session_lost(cl->c);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_STANDBY);
    assert_int_equal(controller_topic_count(cl->c), 0);
    assert_true(was_noted(cl, "went 2"));
    assert_true(was_noted(cl, "went 3"));
    /* The store is not touched: the node is there until the session's end removes it. */
    assert_int_equal(call_exists(cl->w, "/controller", COORD_NO_WATCH).r.err, OK);
    call_delete(tr->sessions[2], "/controller", COORD_ANY_VERSION);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_STANDBY);
    controller_session_renewed(cl->c);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(cl->c), 2);
    assert_int_equal(controller_topic_count(cl->c), 1);
    assert_true(was_noted(cl, "came 3 127.0.0.1:9095"));
}

/* What an election leaves whose answer was lost. */
static void a_node_of_the_own_session_is_no_other_controller(void **state)
{
    struct trio *tr = *state;
    struct cluster *cl = tr->cl;
    controller_session_lost(cl->c);
    settle(cl->w);
    assert_int_equal(call_exists(cl->w, "/controller", COORD_NO_WATCH).r.stat.ephemeral_owner,
                     coord_session_id(cl->w->c));
    controller_session_renewed(cl->c);
    settle(cl->w);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(cl->c), 2);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, trio_setup, trio_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_replica_with_the_most_records_leads),
        TEST(whoever_does_not_answer_is_passed_over_and_the_first_leads_when_nobody_does),
        TEST(a_single_candidate_is_not_asked),
        TEST(a_dead_follower_leaves_the_in_sync_set_at_once),
        TEST(replicas_out_of_sync_lead_only_where_that_is_allowed),
        TEST(leaders_are_looked_for_again_when_unclean_elections_are_allowed),
        TEST(no_unclean_election_is_held_for_a_broker_that_only_looks_dead),
        TEST(all_that_were_in_sync_may_come_back_and_lead),
        TEST(a_broker_that_looks_dead_loses_its_leaders_and_is_back_when_it_is_reached),
        TEST(a_broker_registered_without_an_address_leads_nothing_until_it_has_one),
        TEST(what_is_said_of_an_old_process_or_of_the_own_broker_changes_nothing),
        TEST(a_broker_that_is_gone_for_good_after_it_looked_dead_is_gone),
        TEST(a_broker_that_restarts_quickly_is_lost_and_comes_again),
        TEST(a_new_controller_finds_who_has_restarted_while_there_was_none),
        TEST(when_all_in_sync_have_restarted_the_one_with_the_most_records_leads_and_the_set_stays),
        TEST(new_addresses_of_a_running_broker_are_told_to_everybody_and_everything_there),
        TEST(a_partition_that_starts_does_not_bring_its_topics_node_back),
        TEST(a_new_controller_takes_the_dead_out_of_the_in_sync_sets),
        TEST(a_leader_changes_its_in_sync_set),
        TEST(in_sync_sets_that_brokers_change_in_the_store_are_taken_over),
        TEST(what_does_not_stand_in_an_in_sync_change_is_refused),
        TEST(of_two_changes_of_one_partition_in_a_request_the_second_is_refused),
        TEST(out_of_office_requests_are_refused),
        TEST(a_broker_that_stops_is_relieved_of_what_others_can_do),
        TEST(a_stranger_or_an_old_process_is_not_shut_down),
        TEST(office_is_left_with_the_session_and_run_for_with_the_next),
        TEST(a_node_of_the_own_session_is_no_other_controller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
