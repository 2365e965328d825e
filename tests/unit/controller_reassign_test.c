/* controller: replicas that move, and elections that are asked for. */
#include "controller_trio.h"

typedef struct alter_partition_reassignments_request_reassignable_partition wanted_partition;

/* What became of a request for one partition; `count` -1 takes the reassignment back. */
static struct alter_partition_reassignments_response_reassignable_partition_response
reassign(struct trio *tr, const char *topic, int32_t partition, const int32_t *replicas, int32_t count)
{
    int32_t copy[8];
    if (count > 0) memcpy(copy, replicas, (size_t)count * sizeof *copy);
    wanted_partition wp = {.partition_index = partition, .replicas = copy, .replicas_count = count};
    struct alter_partition_reassignments_request_reassignable_topic wt = {str_of(topic), &wp, 1};
    struct alter_partition_reassignments_request in = alter_partition_reassignments_request_default;
    struct alter_partition_reassignments_response out = alter_partition_reassignments_response_default;
    in.topics = &wt;
    in.topics_count = 1;
    struct asked as = {.w = tr->cl->w};
    controller_alter_reassignments(tr->cl->c, &in, &out, asked_rq(&as));
    asked_wait(&as);
    settle(tr->cl->w);
    assert_int_equal(out.error_code, KERR_NONE);
    assert_int_equal(out.responses_count, 1);
    assert_int_equal(out.responses[0].partitions_count, 1);
    assert_int_equal(out.responses[0].partitions[0].partition_index, partition);
    return out.responses[0].partitions[0];
}

/* "t/0 3,2,1 adding 3 removing 2,1;" for each that is going on. */
static struct str listed(struct trio *tr)
{
    struct list_partition_reassignments_request in = list_partition_reassignments_request_default;
    struct list_partition_reassignments_response out = list_partition_reassignments_response_default;
    struct arena *a = &tr->cl->w->arena;
    struct asked as = {.w = tr->cl->w};
    struct str all = STR_EMPTY;
    in.topics_count = -1;
    controller_list_reassignments(tr->cl->c, &in, &out, asked_rq(&as));
    asked_wait(&as);
    assert_int_equal(out.error_code, KERR_NONE);
    for (int32_t i = 0; i < out.topics_count; i++) {
        for (int32_t k = 0; k < out.topics[i].partitions_count; k++) {
            const struct list_partition_reassignments_response_ongoing_partition_reassignment *lp =
                &out.topics[i].partitions[k];
            all = arena_printf(a, "%.*s%.*s/%d", STR_ARG(all), STR_ARG(out.topics[i].name), lp->partition_index);
            for (int32_t r = 0; r < lp->replicas_count; r++)
                all = arena_printf(a, "%.*s%s%d", STR_ARG(all), r ? "," : " ", lp->replicas[r]);
            for (int32_t r = 0; r < lp->adding_replicas_count; r++)
                all = arena_printf(a, "%.*s%s%d", STR_ARG(all), r ? "," : " adding ", lp->adding_replicas[r]);
            for (int32_t r = 0; r < lp->removing_replicas_count; r++)
                all = arena_printf(a, "%.*s%s%d", STR_ARG(all), r ? "," : " removing ", lp->removing_replicas[r]);
            all = arena_printf(a, "%.*s;", STR_ARG(all));
        }
    }
    return all;
}

/* "0:[2,1] adding 0:[3] removing ..." as the topic's node has it, without its id. */
static void assert_assignment(struct trio *tr, const char *topic, const char *partitions, const char *adding,
                              const char *removing)
{
    struct controller_topic t;
    char path[64], id[UUID_TEXT_SIZE + 1], expected[300];
    assert_true(controller_find_topic(tr->cl->c, str_of(topic), &t));
    uuid_format(t.topic_id, id);
    snprintf(path, sizeof path, "/brokers/topics/%s", topic);
    snprintf(expected, sizeof expected,
             "{\"partitions\":{%s},\"topic_id\":\"%s\",\"adding_replicas\":{%s},\"removing_replicas\":{%s},"
             "\"version\":3}",
             partitions, id, adding, removing);
    assert_str(node_text(tr->cl->w, path), expected);
}

static const int32_t to_three[] = {3}, three_one[] = {3, 1}, two_one[] = {2, 1}, one_alone[] = {1};

/* The leader takes a replica in. */
static void take_in(struct trio *tr, const char *topic, int32_t leader, int32_t leader_epoch, int32_t partition_epoch,
                    const int32_t *isr, int32_t count)
{
    struct alter al = {.broker = leader,
                       .topic = topic,
                       .leader_epoch = leader_epoch,
                       .partition_epoch = partition_epoch,
                       .isr_count = count,
                       .version = 3};
    memcpy(al.isr, isr, (size_t)count * sizeof *isr);
    assert_int_equal(alter(tr, &al).topics[0].partitions[0].error_code, KERR_NONE);
    settle(tr->cl->w);
}

static void replicas_move_when_the_new_ones_are_in_sync(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    tr->cl->told_count = 0;
    assert_int_equal(reassign(tr, "t", 0, to_three, 1).error_code, KERR_NONE);
    assert_assignment(tr, "t", "\"0\":[3,1,2]", "\"0\":[3]", "\"0\":[1,2]");
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1,2]}");
    assert_true(was_told(tr->cl, "L 1 t/0 leader=1/1 isr=1,2 replicas=3,1,2 v1;"));
    assert_true(was_told(tr->cl, "L 3 t/0 leader=1/1 isr=1,2 replicas=3,1,2 v1 new;"));
    assert_str(listed(tr), "t/0 3,1,2 adding 3 removing 1,2;");

    tr->cl->told_count = 0;
    static const int32_t all[] = {1, 2, 3};
    take_in(tr, "t", 1, 1, 1, all, 3);
    assert_assignment(tr, "t", "\"0\":[3]", "", "");
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":2,\"isr\":[3]}");
    assert_true(was_told(tr->cl, "L 3 t/0 leader=3/2 isr=3 replicas=3 v3;"));
    assert_true(was_told(tr->cl, "S 1 t/0 epoch=2 delete;"));
    assert_true(was_told(tr->cl, "S 2 t/0 epoch=2 delete;"));
    assert_str(listed(tr), "");
}

static void a_leader_that_stays_keeps_the_lead(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    assert_int_equal(reassign(tr, "t", 0, three_one, 2).error_code, KERR_NONE);
    static const int32_t all[] = {1, 2, 3};
    take_in(tr, "t", 1, 1, 1, all, 3);
    assert_assignment(tr, "t", "\"0\":[3,1]", "", "");
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":2,\"isr\":[1,3]}");
}

static void another_order_of_the_same_replicas_is_done_at_once(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    assert_int_equal(reassign(tr, "t", 0, two_one, 2).error_code, KERR_NONE);
    assert_assignment(tr, "t", "\"0\":[2,1]", "", "");
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1,2]}");
    assert_int_equal(reassign(tr, "t", 0, one_alone, 1).error_code, KERR_NONE);
    assert_assignment(tr, "t", "\"0\":[1]", "", "");
    assert_true(was_told(tr->cl, "S 2 t/0 epoch=2 delete;"));
}

static void a_reassignment_is_taken_back(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    reassign(tr, "t", 0, to_three, 1);
    tr->cl->told_count = 0;
    assert_int_equal(reassign(tr, "t", 0, NULL, -1).error_code, KERR_NONE);
    assert_assignment(tr, "t", "\"0\":[1,2]", "", "");
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":2,\"isr\":[1,2]}");
    assert_true(was_told(tr->cl, "S 3 t/0 epoch=2 delete;"));
    assert_int_equal(reassign(tr, "t", 0, NULL, -1).error_code, KERR_NO_REASSIGNMENT_IN_PROGRESS);
}

static void a_reassignment_is_replaced_by_another(void **state)
{
    struct trio *tr = *state;
    trio_join(tr, 4);
    make_topic(tr, "t", one_two, 2);
    static const int32_t to_four[] = {4};
    reassign(tr, "t", 0, to_three, 1);
    tr->cl->told_count = 0;
    assert_int_equal(reassign(tr, "t", 0, to_four, 1).error_code, KERR_NONE);
    assert_assignment(tr, "t", "\"0\":[4,1,2]", "\"0\":[4]", "\"0\":[1,2]");
    assert_true(was_told(tr->cl, "S 3 t/0 epoch=2 delete;"));
    assert_true(was_told(tr->cl, "L 4 t/0 leader=1/2 isr=1,2 replicas=4,1,2 v2 new;"));
}

static void bad_reassignments_are_refused_in_kafkas_words(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    static const int32_t twice[] = {1, 1}, negative[] = {-5}, dead[] = {1, 9}, fine[] = {1};
    const struct {
        const char *topic;
        int32_t partition;
        const int32_t *replicas;
        int32_t count;
        enum kerr kerr;
        const char *message;
    } rows[] = {
        {"t", 0, fine, 0, KERR_INVALID_REPLICA_ASSIGNMENT, "Empty replica list specified in partition reassignment."},
        {"t", 0, twice, 2, KERR_INVALID_REPLICA_ASSIGNMENT,
         "Duplicate replica ids in partition reassignment replica list: 1, 1"},
        {"t", 0, negative, 1, KERR_INVALID_REPLICA_ASSIGNMENT, "Invalid broker id in replica list: -5"},
        {"t", 0, dead, 2, KERR_INVALID_REPLICA_ASSIGNMENT,
         "Replica assignment has brokers that are not alive. Replica list: 9, broker 9 is not alive."},
        {"t", 1, fine, 1, KERR_UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."},
        {"u", 0, fine, 1, KERR_UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."},
        {"u", 0, fine, -1, KERR_NO_REASSIGNMENT_IN_PROGRESS, NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct alter_partition_reassignments_response_reassignable_partition_response r =
            reassign(tr, rows[i].topic, rows[i].partition, rows[i].replicas, rows[i].count);
        assert_int_equal(r.error_code, rows[i].kerr);
        if (rows[i].message)
            assert_str(r.error_message, rows[i].message);
        else
            assert_true(str_is_null(r.error_message));
    }
    assert_assignment(tr, "t", "\"0\":[1,2]", "", "");
}

/* Each is compared with each, and named in what is answered. */
static void more_replicas_than_any_cluster_has_brokers_are_refused_at_once(void **state)
{
    struct trio *tr = *state;
    enum { MANY = 1000 * 1000 };
    int32_t *ids = mem_alloc(MANY * sizeof *ids);
    for (int32_t i = 0; i < MANY; i++) ids[i] = i;
    make_topic(tr, "t", one_two, 2);
    wanted_partition wp = {.partition_index = 0, .replicas = ids, .replicas_count = MANY};
    struct alter_partition_reassignments_request_reassignable_topic wt = {STR("t"), &wp, 1};
    struct alter_partition_reassignments_request in = alter_partition_reassignments_request_default;
    struct alter_partition_reassignments_response out = alter_partition_reassignments_response_default;
    struct asked as = {.w = tr->cl->w};
    in.topics = &wt;
    in.topics_count = 1;
    controller_alter_reassignments(tr->cl->c, &in, &out, asked_rq(&as));
    asked_wait(&as);
    assert_int_equal(out.responses[0].partitions[0].error_code, KERR_INVALID_REPLICA_ASSIGNMENT);
    assert_str(out.responses[0].partitions[0].error_message, "A partition has at most 1024 replicas.");
    mem_free(ids);
    assert_assignment(tr, "t", "\"0\":[1,2]", "", "");
}

/* The first would take a replica away that the second gives back: its broker would hear of both at once. */
static void of_two_reassignments_of_one_partition_in_a_request_the_second_is_refused(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    int32_t alone[] = {1}, both[] = {1, 2};
    wanted_partition wp[] = {{.partition_index = 0, .replicas = alone, .replicas_count = 1},
                             {.partition_index = 0, .replicas = both, .replicas_count = 2}};
    struct alter_partition_reassignments_request_reassignable_topic wt = {STR("t"), wp, 2};
    struct alter_partition_reassignments_request in = alter_partition_reassignments_request_default;
    struct alter_partition_reassignments_response out = alter_partition_reassignments_response_default;
    struct asked as = {.w = tr->cl->w};
    in.topics = &wt;
    in.topics_count = 1;
    controller_alter_reassignments(tr->cl->c, &in, &out, asked_rq(&as));
    asked_wait(&as);
    assert_int_equal(out.responses[0].partitions[0].error_code, KERR_NONE);
    assert_int_equal(out.responses[0].partitions[1].error_code, KERR_INVALID_REQUEST);
    settle(tr->cl->w);
    assert_assignment(tr, "t", "\"0\":[1]", "", "");
    assert_str(listed(tr), "");
}

static void the_next_controller_goes_on(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    reassign(tr, "t", 0, to_three, 1);
    tr->cl->told_count = 0;
    call_delete(tr->sessions[2], "/controller", COORD_ANY_VERSION);
    settle(tr->cl->w);
    assert_int_equal(controller_epoch(tr->cl->c), 2);
    assert_str(listed(tr), "t/0 3,1,2 adding 3 removing 1,2;");
    /* The last one may not have come to tell of it: the leader hears of its new replica by a new epoch. */
    assert_true(was_told(tr->cl, "L 1 t/0 leader=1/2 isr=1,2 replicas=3,1,2 v2;"));
    assert_true(was_told(tr->cl, "L 3 t/0 leader=1/2 isr=1,2 replicas=3,1,2 v2 new;"));
    static const int32_t all[] = {1, 2, 3};
    take_in(tr, "t", 1, 2, 2, all, 3);
    assert_assignment(tr, "t", "\"0\":[3]", "", "");
}

/* The in-sync set grew, and the controller died before it could act on it. */
static void what_only_had_to_be_finished_is_finished_by_the_next_controller(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    reassign(tr, "t", 0, to_three, 1);
    call_set(tr->cl->w, "/brokers/topics/t/partitions/0/state",
             "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1,2,3]}",
             COORD_ANY_VERSION);
    call_delete(tr->sessions[2], "/controller", COORD_ANY_VERSION);
    settle(tr->cl->w);
    assert_assignment(tr, "t", "\"0\":[3]", "", "");
    assert_state(tr, "t", "{\"controller_epoch\":2,\"leader\":3,\"version\":1,\"leader_epoch\":2,\"isr\":[3]}");
}

static void a_topic_that_is_being_reassigned_can_be_deleted(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", one_two, 2);
    reassign(tr, "t", 0, to_three, 1);
    assert_int_equal(delete_topic(tr->cl, "t").kerr, KERR_NONE);
    settle(tr->cl->w);
    assert_true(was_told(tr->cl, "S 3 t/0 epoch=-2 delete;"));
    assert_int_equal(call_exists(tr->cl->w, "/brokers/topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_str(listed(tr), "");
}

/* --- elections --- */

enum { PREFERRED, UNCLEAN };

static struct elect_leaders_response elect(struct trio *tr, int8_t type, const char *topic, int32_t partition)
{
    struct elect_leaders_request_topic_partitions tp = {str_of(topic), &partition, 1};
    struct elect_leaders_request in = elect_leaders_request_default;
    struct elect_leaders_response out = elect_leaders_response_default;
    struct asked as = {.w = tr->cl->w};
    in.election_type = type;
    in.topic_partitions = &tp;
    in.topic_partitions_count = topic ? 1 : -1;
    controller_elect_leaders(tr->cl->c, &in, &out, asked_rq(&as));
    asked_wait(&as);
    assert_int_equal(out.error_code, KERR_NONE);
    return out;
}

static enum kerr elect_one(struct trio *tr, int8_t type, const char *topic, int32_t partition)
{
    struct elect_leaders_response r = elect(tr, type, topic, partition);
    assert_int_equal(r.replica_election_results_count, 1);
    assert_int_equal(r.replica_election_results[0].partition_result_count, 1);
    assert_int_equal(r.replica_election_results[0].partition_result[0].partition_id, partition);
    return (enum kerr)r.replica_election_results[0].partition_result[0].error_code;
}

static void the_preferred_leader_leads_when_it_is_asked_for_and_in_sync(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    make_topic(tr, "u", one_two, 2);
    assert_int_equal(elect_one(tr, PREFERRED, "t", 0), KERR_ELECTION_NOT_NEEDED);
    trio_lose(tr, 2);
    assert_int_equal(elect_one(tr, PREFERRED, "t", 0), KERR_PREFERRED_LEADER_NOT_AVAILABLE);
    trio_join(tr, 2);
    assert_int_equal(elect_one(tr, PREFERRED, "t", 0), KERR_PREFERRED_LEADER_NOT_AVAILABLE);
    static const int32_t all[] = {3, 1, 2};
    take_in(tr, "t", 3, 1, 1, all, 3);
    assert_int_equal(elect_one(tr, PREFERRED, "t", 7), KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(elect_one(tr, PREFERRED, "none", 0), KERR_UNKNOWN_TOPIC_OR_PARTITION);
    /* For all: those that need nothing are not named. */
    struct elect_leaders_response r = elect(tr, PREFERRED, NULL, 0);
    assert_int_equal(r.replica_election_results_count, 1);
    assert_str(r.replica_election_results[0].topic, "t");
    assert_int_equal(r.replica_election_results[0].partition_result[0].error_code, KERR_NONE);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":2,\"isr\":[3,1,2]}");
}

static void an_operator_may_let_a_replica_lead_that_is_not_in_sync(void **state)
{
    struct trio *tr = *state;
    static const int32_t two_three[] = {2, 3};
    make_topic(tr, "t", two_three, 2);
    assert_int_equal(elect_one(tr, UNCLEAN, "t", 0), KERR_ELECTION_NOT_NEEDED);
    trio_lose(tr, 3);
    trio_lose(tr, 2);
    assert_int_equal(elect_one(tr, UNCLEAN, "t", 0), KERR_ELIGIBLE_LEADERS_NOT_AVAILABLE);
    trio_join(tr, 3);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":-1,\"version\":1,\"leader_epoch\":2,\"isr\":[2]}");
    assert_int_equal(elect_one(tr, UNCLEAN, "t", 0), KERR_NONE);
    assert_state(tr, "t",
                 "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":3,\"isr\":[3],"
                 "\"leader_recovery_state\":1}");
}

/* Nothing that is not asked for by its name is the election that may lose records. */
static void an_election_of_a_type_that_there_is_not_is_refused(void **state)
{
    struct trio *tr = *state;
    static const int32_t two_three[] = {2, 3};
    make_topic(tr, "t", two_three, 2);
    trio_lose(tr, 3);
    trio_lose(tr, 2);
    trio_join(tr, 3);
    for (int type = INT8_MIN; type <= INT8_MAX; type++) {
        struct elect_leaders_request in = elect_leaders_request_default;
        struct elect_leaders_response out = elect_leaders_response_default;
        struct asked as = {.w = tr->cl->w};
        if (type == PREFERRED || type == UNCLEAN) continue;
        in.election_type = (int8_t)type;
        in.topic_partitions_count = -1;
        controller_elect_leaders(tr->cl->c, &in, &out, asked_rq(&as));
        asked_wait(&as);
        assert_int_equal(out.error_code, KERR_INVALID_REQUEST);
        assert_int_equal(out.replica_election_results_count, 0);
    }
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":-1,\"version\":1,\"leader_epoch\":2,\"isr\":[2]}");
}

static void leaders_are_balanced_where_too_many_are_elsewhere(void **state)
{
    struct trio *tr = *state;
    make_topic(tr, "t", two_three_one, 3);
    trio_lose(tr, 2);
    trio_join(tr, 2);
    static const int32_t all[] = {3, 1, 2};
    take_in(tr, "t", 3, 1, 1, all, 3);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":1,\"isr\":[3,1,2]}");
    controller_balance(tr->cl->c);
    settle(tr->cl->w);
    assert_state(tr, "t", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":2,\"isr\":[3,1,2]}");
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, trio_setup, trio_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(replicas_move_when_the_new_ones_are_in_sync),
        TEST(a_leader_that_stays_keeps_the_lead),
        TEST(another_order_of_the_same_replicas_is_done_at_once),
        TEST(a_reassignment_is_taken_back),
        TEST(a_reassignment_is_replaced_by_another),
        TEST(bad_reassignments_are_refused_in_kafkas_words),
        TEST(more_replicas_than_any_cluster_has_brokers_are_refused_at_once),
        TEST(of_two_reassignments_of_one_partition_in_a_request_the_second_is_refused),
        TEST(the_next_controller_goes_on),
        TEST(what_only_had_to_be_finished_is_finished_by_the_next_controller),
        TEST(a_topic_that_is_being_reassigned_can_be_deleted),
        TEST(the_preferred_leader_leads_when_it_is_asked_for_and_in_sync),
        TEST(an_operator_may_let_a_replica_lead_that_is_not_in_sync),
        TEST(an_election_of_a_type_that_there_is_not_is_refused),
        TEST(leaders_are_balanced_where_too_many_are_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
