/* controller: topics, settings and producer ids on a cluster of one. */
#include "controller_world.h"

#include <signal.h>
#include <sys/resource.h>

static void it_takes_office_and_raises_the_epoch(void **state)
{
    struct cluster *cl = *state;
    struct world *w = cl->w;
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
    assert_int_equal(controller_epoch(cl->c), 1);
    assert_str(node_text(w, "/controller_epoch"), "1");
    assert_str(node_text(w, "/feature"), "{\"features\":{},\"version\":2,\"status\":1}");
    struct answer a = call_exists(w, "/controller", COORD_NO_WATCH);
    assert_true(a.r.stat.ephemeral_owner == coord_session_id(w->c));
    assert_string_equal(cl->told[0].text, "U 1 live=1");
}

static void a_topic_is_written_told_and_then_answered(void **state)
{
    struct cluster *cl = *state;
    cl->told_count = 0;
    cl->hold = true;
    struct outcome o = {.w = cl->w};
    struct znode_setting setting = {STR("retention.ms"), STR("5")};
    struct controller_new_topic t = {
        .name = STR("t"), .partition_count = 2, .replication_factor = 1, .settings = &setting, .setting_count = 1};
    controller_create_topics(cl->c, &t, 1, false, 60000, outcome_to(&o));
    settle(cl->w);
    assert_false(o.done);
    assert_int_equal(cl->told_count, 2);
    assert_string_equal(cl->told[0].text,
                        "L 1 t/0 leader=1/0 isr=1 replicas=1 v0 new; t/1 leader=1/0 isr=1 replicas=1 v0 new;");
    assert_string_equal(cl->told[1].text, "U 1 live=1 t/0 leader=1/0; t/1 leader=1/0;");
    told_answer(&cl->told[0]);
    settle(cl->w);
    assert_false(o.done);
    cluster_answer(cl);
    outcome_wait(&o);
    assert_int_equal(o.results[0].kerr, KERR_NONE);
    assert_int_equal(o.results[0].partition_count, 2);
    assert_int_equal(o.results[0].replication_factor, 1);
    assert_false(uuid_is_zero(o.results[0].topic_id));

    char id[UUID_TEXT_SIZE + 1];
    uuid_format(o.results[0].topic_id, id);
    char expected[256];
    snprintf(
        expected, sizeof expected,
        "{\"partitions\":{\"0\":[1],\"1\":[1]},\"topic_id\":\"%s\",\"adding_replicas\":{},\"removing_replicas\":{},"
        "\"version\":3}",
        id);
    assert_str(node_text(cl->w, "/brokers/topics/t"), expected);
    assert_str(node_text(cl->w, "/brokers/topics/t/partitions/1/state"),
               "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":0,\"isr\":[1]}");
    assert_str(node_text(cl->w, "/config/topics/t"), "{\"version\":1,\"config\":{\"retention.ms\":\"5\"}}");
}

static void defaults_stand_in_for_minus_one(void **state)
{
    struct cluster *cl = *state;
    struct controller_result r = create_topic(cl, "t", -1, -1);
    assert_int_equal(r.kerr, KERR_NONE);
    assert_int_equal(r.partition_count, 1);
    assert_int_equal(r.replication_factor, 1);
}

static void bad_topics_are_refused_in_kafkas_words(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "a.b", 1, 1);
    int32_t one = 1, seven = 7, twice[] = {1, 1};
    struct controller_assignment good = {0, &one, 1}, gap = {1, &one, 1}, unknown = {0, &seven, 1},
                                 doubled = {0, twice, 2}, none = {0, NULL, 0};
    struct znode_setting null_setting = {STR("x"), STR_NULL};
    const struct {
        struct controller_new_topic t;
        enum kerr kerr;
        const char *message;
    } rows[] = {
        {{.name = STR("a.b"), .partition_count = 1, .replication_factor = 1},
         KERR_TOPIC_ALREADY_EXISTS,
         "Topic 'a.b' already exists."},
        {{.name = STR("a_b"), .partition_count = 1, .replication_factor = 1},
         KERR_INVALID_TOPIC_EXCEPTION,
         "Topic 'a_b' collides with existing topics: a.b"},
        {{.name = STR(".."), .partition_count = 1, .replication_factor = 1},
         KERR_INVALID_TOPIC_EXCEPTION,
         "Topic name is invalid: '..' is not allowed"},
        {{.name = STR("t"), .partition_count = 1, .replication_factor = 3},
         KERR_INVALID_REPLICATION_FACTOR,
         "Replication factor: 3 larger than available brokers: 1."},
        {{.name = STR("t"), .partition_count = 0, .replication_factor = 1},
         KERR_INVALID_PARTITIONS,
         "Number of partitions must be larger than 0."},
        {{.name = STR("t"), .partition_count = INT32_MAX, .replication_factor = 1},
         KERR_INVALID_PARTITIONS,
         "A topic has at most 50000 partitions."},
        {{.name = STR("t"), .partition_count = 1, .replication_factor = 0},
         KERR_INVALID_REPLICATION_FACTOR,
         "Replication factor must be larger than 0."},
        {{.name = STR("t"),
          .partition_count = 1,
          .replication_factor = -1,
          .assignments = &good,
          .assignment_count = 1},
         KERR_INVALID_REQUEST,
         "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same"
         " time."},
        {{.name = STR("t"),
          .partition_count = -1,
          .replication_factor = -1,
          .assignments = &gap,
          .assignment_count = 1},
         KERR_INVALID_REPLICA_ASSIGNMENT,
         "partitions should be a consecutive 0-based integer sequence"},
        {{.name = STR("t"),
          .partition_count = -1,
          .replication_factor = -1,
          .assignments = &unknown,
          .assignment_count = 1},
         KERR_INVALID_REPLICA_ASSIGNMENT,
         "The manual partition assignment includes broker 7, but no such broker is registered."},
        {{.name = STR("t"),
          .partition_count = -1,
          .replication_factor = -1,
          .assignments = &doubled,
          .assignment_count = 1},
         KERR_INVALID_REPLICA_ASSIGNMENT,
         "The manual partition assignment includes the broker 1 more than once."},
        {{.name = STR("t"),
          .partition_count = -1,
          .replication_factor = -1,
          .assignments = &none,
          .assignment_count = 1},
         KERR_INVALID_REPLICA_ASSIGNMENT,
         "The manual partition assignment includes an empty replica list."},
        {{.name = STR("t"),
          .partition_count = 1,
          .replication_factor = 1,
          .settings = &null_setting,
          .setting_count = 1},
         KERR_INVALID_CONFIG,
         "Null value not supported for topic configs: x"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct outcome o = create_topics(cl, &rows[i].t, 1, false);
        assert_int_equal(o.results[0].kerr, rows[i].kerr);
        assert_str(o.results[0].message, rows[i].message);
        assert_int_equal(o.results[0].partition_count, -1);
    }
    assert_int_equal(controller_topic_count(cl->c), 1);
    assert_int_equal(call_children(cl->w, "/brokers/topics", COORD_NO_WATCH).r.child_count, 1);
}

static void settings_are_checked_by_the_callback(void **state)
{
    struct cluster *cl = *state;
    struct znode_setting setting = {STR("x"), STR("y")};
    struct controller_new_topic t = {
        .name = STR("t"), .partition_count = 1, .replication_factor = 1, .settings = &setting, .setting_count = 1};
    cl->settings_kerr = KERR_INVALID_CONFIG;
    struct outcome o = create_topics(cl, &t, 1, false);
    assert_int_equal(o.results[0].kerr, KERR_INVALID_CONFIG);
    assert_str(o.results[0].message, "Unknown topic config name: x");
}

static void one_bad_topic_spoils_no_other(void **state)
{
    struct cluster *cl = *state;
    struct controller_new_topic ts[] = {
        {.name = STR("x.1"), .partition_count = 1, .replication_factor = 1},
        {.name = STR("x_1"), .partition_count = 1, .replication_factor = 1}, /* collides with the one before */
        {.name = STR("y"), .partition_count = 3, .replication_factor = 1},
    };
    struct outcome o = create_topics(cl, ts, ARRAY_COUNT(ts), false);
    assert_int_equal(o.results[0].kerr, KERR_NONE);
    assert_int_equal(o.results[1].kerr, KERR_INVALID_TOPIC_EXCEPTION);
    assert_int_equal(o.results[2].kerr, KERR_NONE);
    assert_int_equal(controller_topic_count(cl->c), 2);
}

static void validate_only_changes_nothing(void **state)
{
    struct cluster *cl = *state;
    cl->told_count = 0;
    struct controller_new_topic t = {.name = STR("t"), .partition_count = 4, .replication_factor = -1};
    struct outcome o = create_topics(cl, &t, 1, true);
    assert_int_equal(o.results[0].kerr, KERR_NONE);
    assert_int_equal(o.results[0].partition_count, 4);
    assert_int_equal(cl->told_count, 0);
    assert_int_equal(controller_topic_count(cl->c), 0);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
}

static void manual_assignment_is_taken_in_any_order(void **state)
{
    struct cluster *cl = *state;
    int32_t one = 1;
    struct controller_assignment as[] = {{1, &one, 1}, {0, &one, 1}};
    struct controller_new_topic t = {
        .name = STR("t"), .partition_count = -1, .replication_factor = -1, .assignments = as, .assignment_count = 2};
    struct outcome o = create_topics(cl, &t, 1, false);
    assert_int_equal(o.results[0].kerr, KERR_NONE);
    assert_int_equal(o.results[0].partition_count, 2);
}

static void a_large_topic_is_written_in_bounded_multis(void **state)
{
    struct cluster *cl = *state;
    struct controller_result r = create_topic(cl, "big", 5000, 1);
    assert_int_equal(r.kerr, KERR_NONE);
    assert_int_equal(call_children(cl->w, "/brokers/topics/big/partitions", COORD_NO_WATCH).r.child_count, 5000);
    assert_str(node_text(cl->w, "/brokers/topics/big/partitions/4999/state"),
               "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":0,\"isr\":[1]}");
    assert_int_equal(delete_topic(cl, "big").kerr, KERR_NONE);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/big", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
}

static void settings_that_an_old_topic_left_are_replaced(void **state)
{
    struct cluster *cl = *state;
    call_create(cl->w, "/config/topics/t", "{\"version\":1,\"config\":{\"old\":\"1\"}}", 0);
    assert_int_equal(create_topic(cl, "t", 1, 1).kerr, KERR_NONE);
    assert_str(node_text(cl->w, "/config/topics/t"), "{\"version\":1,\"config\":{}}");
}

static void a_client_that_waits_too_long_is_told_so_and_the_topic_is_made(void **state)
{
    struct cluster *cl = *state;
    cl->hold = true;
    struct controller_new_topic t = {.name = STR("t"), .partition_count = 1, .replication_factor = 1};
    struct outcome at_once = {.w = cl->w}, later = {.w = cl->w};
    controller_create_topics(cl->c, &t, 1, false, 0, outcome_to(&at_once));
    outcome_wait(&at_once);
    assert_int_equal(at_once.results[0].kerr, KERR_REQUEST_TIMED_OUT);
    t.name = STR("u");
    controller_create_topics(cl->c, &t, 1, false, 20, outcome_to(&later));
    outcome_wait(&later);
    assert_int_equal(later.results[0].kerr, KERR_REQUEST_TIMED_OUT);
    cluster_answer(cl);
    settle(cl->w);
    assert_int_equal(controller_topic_count(cl->c), 2);
}

/* --- deletion --- */

static void a_deleted_topic_is_stopped_and_leaves_no_node(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 2, 1);
    cl->told_count = 0;
    cl->hold = true;
    struct outcome o = {.w = cl->w};
    struct controller_topic_ref ref = {.name = STR("t")};
    controller_delete_topics(cl->c, &ref, 1, 60000, outcome_to(&o));
    settle(cl->w);
    assert_false(o.done);
    assert_int_equal(call_exists(cl->w, "/admin/delete_topics/t", COORD_NO_WATCH).r.err, OK);
    assert_int_equal(cl->told_count, 2);
    assert_string_equal(cl->told[0].text, "U 1 live=1 t/0 leader=-2/0; t/1 leader=-2/0;");
    assert_string_equal(cl->told[1].text, "S 1 t/0 epoch=-2 delete; t/1 epoch=-2 delete;");
    struct controller_new_topic again = {.name = STR("t"), .partition_count = 1, .replication_factor = 1};
    struct outcome refused = create_topics(cl, &again, 1, false);
    assert_int_equal(refused.results[0].kerr, KERR_TOPIC_ALREADY_EXISTS);
    assert_str(refused.results[0].message, "Topic 't' is marked for deletion.");
    cluster_answer(cl);
    outcome_wait(&o);
    assert_int_equal(o.results[0].kerr, KERR_NONE);
    static const char *const gone[] = {"/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"};
    for (size_t i = 0; i < ARRAY_COUNT(gone); i++)
        assert_int_equal(call_exists(cl->w, gone[i], COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_int_equal(create_topic(cl, "t", 1, 1).kerr, KERR_NONE);
}

static void topics_are_deleted_by_id_too_and_unknown_ones_refused(void **state)
{
    struct cluster *cl = *state;
    struct uuid id = create_topic(cl, "t", 1, 1).topic_id;
    struct controller_topic_ref refs[] = {
        {.name = STR_NULL, .topic_id = id}, {.name = STR_NULL, .topic_id = {{9}}}, {.name = STR("none")}};
    struct outcome o = {.w = cl->w};
    controller_delete_topics(cl->c, refs, 3, 60000, outcome_to(&o));
    outcome_wait(&o);
    assert_int_equal(o.results[0].kerr, KERR_NONE);
    assert_str(o.results[0].name, "t");
    assert_int_equal(o.results[1].kerr, KERR_UNKNOWN_TOPIC_ID);
    assert_true(str_is_null(o.results[1].name));
    assert_int_equal(o.results[2].kerr, KERR_UNKNOWN_TOPIC_OR_PARTITION);
}

static void a_deletion_cut_short_is_finished_by_the_next_controller(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 2, 1);
    create_topic(cl, "kept", 1, 1);
    cluster_stop(cl);
    /* What a crash half way leaves: the marker, and only some of the nodes. */
    cl->w->c = coord_memory_connect(cl->w->memory, (struct coord_listener){cl->w->loop, world_listen, cl->w});
    call_create(cl->w, "/admin/delete_topics/t", NULL, 0);
    call_create(cl->w, "/admin/delete_topics/ghost", NULL, 0);
    call_delete(cl->w, "/brokers/topics/t/partitions/1/state", COORD_ANY_VERSION);
    call_delete(cl->w, "/brokers/topics/t/partitions/1", COORD_ANY_VERSION);
    register_broker(cl->w, 1, NULL);
    cl->told_count = 0;
    cluster_start(cl);
    settle(cl->w);
    assert_int_equal(controller_epoch(cl->c), 2);
    assert_int_equal(controller_topic_count(cl->c), 1);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_int_equal(call_children(cl->w, "/admin/delete_topics", COORD_NO_WATCH).r.child_count, 0);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/kept", COORD_NO_WATCH).r.err, OK);
    bool stopped = false;
    for (int i = 0; i < cl->told_count; i++) stopped = stopped || strstr(cl->told[i].text, "S 1 t/0 epoch=-2 delete");
    assert_true(stopped);
}

/* --- partitions --- */

static struct controller_result more(struct cluster *cl, struct controller_more_partitions m, bool validate_only)
{
    struct outcome o = {.w = cl->w};
    controller_create_partitions(cl->c, &m, 1, validate_only, 60000, outcome_to(&o));
    outcome_wait(&o);
    return o.results[0];
}

static void partitions_are_added_behind_the_others(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    struct controller_more_partitions m = {.name = STR("t"), .partition_count = 3};
    assert_int_equal(more(cl, m, true).kerr, KERR_NONE);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/t/partitions/1", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    cl->told_count = 0;
    assert_int_equal(more(cl, m, false).kerr, KERR_NONE);
    assert_string_equal(cl->told[0].text,
                        "L 1 t/1 leader=1/0 isr=1 replicas=1 v0 new; t/2 leader=1/0 isr=1 replicas=1 v0 new;");
    assert_str(node_text(cl->w, "/brokers/topics/t/partitions/2/state"),
               "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":0,\"isr\":[1]}");
    m.partition_count = 4;
    assert_int_equal(more(cl, m, false).kerr, KERR_NONE); /* the version of the topic's node was kept */
    struct controller_topic t;
    assert_true(controller_find_topic(cl->c, STR("t"), &t));
    assert_int_equal(t.partition_count, 4);
}

static void bad_requests_for_partitions_are_refused_in_kafkas_words(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 2, 1);
    int32_t one = 1, seven = 7;
    struct controller_assignment good = {0, &one, 1}, unknown = {0, &seven, 1}, none = {0, NULL, 0};
    const struct {
        struct controller_more_partitions m;
        enum kerr kerr;
        const char *message;
    } rows[] = {
        {{.name = STR("none"), .partition_count = 3},
         KERR_UNKNOWN_TOPIC_OR_PARTITION,
         "The topic 'none' does not exist."},
        {{.name = STR("t"), .partition_count = 2}, KERR_INVALID_PARTITIONS, "Topic already has 2 partitions."},
        {{.name = STR("t"), .partition_count = 1},
         KERR_INVALID_PARTITIONS,
         "Topic currently has 2 partitions, which is higher than the requested 1."},
        {{.name = STR("t"), .partition_count = 4, .has_assignments = true, .assignments = &good, .assignment_count = 1},
         KERR_INVALID_REPLICA_ASSIGNMENT,
         "Increasing the number of partitions by 2 but 1 assignments provided."},
        {{.name = STR("t"),
          .partition_count = 3,
          .has_assignments = true,
          .assignments = &unknown,
          .assignment_count = 1},
         KERR_INVALID_REPLICA_ASSIGNMENT,
         "Unknown broker(s) in replica assignment: 7."},
        {{.name = STR("t"), .partition_count = 3, .has_assignments = true, .assignments = &none, .assignment_count = 1},
         KERR_INVALID_REPLICA_ASSIGNMENT,
         "Cannot have replication factor of 0 for partition id 2."},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct controller_result r = more(cl, rows[i].m, false);
        assert_int_equal(r.kerr, rows[i].kerr);
        assert_str(r.message, rows[i].message);
    }
}

/* --- settings and producer ids --- */

static enum kerr add_setting(void *arg, const struct znode_config *current, struct arena *a, struct znode_config *out,
                             struct str *message)
{
    const char *value = arg;
    if (!value) {
        *message = STR("no");
        return KERR_INVALID_CONFIG;
    }
    out->settings = arena_array(a, struct znode_setting, current->count + 1);
    for (size_t i = 0; i < current->count; i++) out->settings[i] = current->settings[i];
    out->settings[current->count] = (struct znode_setting){STR("s"), str_of(value)};
    out->count = current->count + 1;
    return KERR_NONE;
}

static struct controller_result alter(struct cluster *cl, struct str type, const char *name, const char *value)
{
    struct outcome o = {.w = cl->w};
    struct controller_config_change ch = {type, str_of(name), add_setting, (void *)(uintptr_t)value};
    controller_alter_configs(cl->c, &ch, 1, false, outcome_to(&o));
    outcome_wait(&o);
    return o.results[0];
}

static void altered_settings_are_written_and_announced(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    assert_int_equal(alter(cl, CONFIG_TOPICS, "t", "1").kerr, KERR_NONE);
    assert_str(node_text(cl->w, "/config/topics/t"), "{\"version\":1,\"config\":{\"s\":\"1\"}}");
    assert_str(node_text(cl->w, "/config/changes/config_change_0000000000"),
               "{\"version\":2,\"entity_path\":\"topics/t\"}");
    assert_int_equal(alter(cl, CONFIG_BROKERS, "<default>", "2").kerr, KERR_NONE);
    assert_str(node_text(cl->w, "/config/brokers/<default>"), "{\"version\":1,\"config\":{\"s\":\"2\"}}");
    assert_str(node_text(cl->w, "/config/changes/config_change_0000000001"),
               "{\"version\":2,\"entity_path\":\"brokers/<default>\"}");
}

static void settings_that_nobody_can_read_are_written_anew(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    assert_int_equal(call_create(cl->w, "/config/brokers/1", "{\"version\":1,\"conf", 0).r.err, OK);
    assert_int_equal(alter(cl, CONFIG_BROKERS, "1", "1").kerr, KERR_NONE);
    assert_str(node_text(cl->w, "/config/brokers/1"), "{\"version\":1,\"config\":{\"s\":\"1\"}}");
}

static void settings_are_not_altered_for_unknown_topics_or_against_the_callers_will(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 1, 1);
    struct controller_result r = alter(cl, CONFIG_TOPICS, "none", "1");
    assert_int_equal(r.kerr, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_str(r.message, "The topic 'none' does not exist.");
    r = alter(cl, CONFIG_TOPICS, "t", NULL);
    assert_int_equal(r.kerr, KERR_INVALID_CONFIG);
    assert_str(r.message, "no");
    assert_int_equal(call_children(cl->w, "/config/changes", COORD_NO_WATCH).r.child_count, 0);
}

static struct outcome allocate(struct cluster *cl, int32_t broker, int64_t epoch)
{
    struct outcome o = {.w = cl->w};
    controller_allocate_producer_ids(cl->c, broker, epoch, outcome_to(&o));
    outcome_wait(&o);
    return o;
}

static void producer_ids_are_given_once(void **state)
{
    struct cluster *cl = *state;
    int64_t epoch = call_exists(cl->w, "/brokers/ids/1", COORD_NO_WATCH).r.stat.czxid;
    assert_int_equal(allocate(cl, 1, epoch - 1).results[0].kerr, KERR_STALE_BROKER_EPOCH);
    assert_int_equal(allocate(cl, 1, epoch + 1).results[0].kerr, KERR_STALE_BROKER_EPOCH);
    assert_int_equal(allocate(cl, 2, epoch).results[0].kerr, KERR_BROKER_ID_NOT_REGISTERED);
    for (int i = 0; i < 3; i++) {
        struct outcome o = allocate(cl, 1, epoch);
        assert_int_equal(o.results[0].kerr, KERR_NONE);
        assert_true(o.producer_id_start == i * 1000);
        assert_int_equal(o.producer_id_count, 1000);
    }
    assert_str(node_text(cl->w, "/latest_producer_id_block"),
               "{\"version\":1,\"broker\":1,\"block_start\":\"2000\",\"block_end\":\"2999\"}");
}

/* --- a store that fails --- */

static void a_topic_that_cannot_be_written_is_refused_and_leaves_nothing(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "before", 1, 1);
    struct rlimit was, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    tight = was;
    tight.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    cl->told_count = 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    struct controller_result r = create_topic(cl, "t", 3, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(r.kerr, KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(strncmp(r.message.data, "The coordination store ", 23), 0);
    assert_int_equal(cl->told_count, 0);
    assert_int_equal(controller_topic_count(cl->c), 1);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_int_equal(create_topic(cl, "t", 3, 1).kerr, KERR_NONE);
    assert_int_equal(controller_state(cl->c), CONTROLLER_ACTIVE);
}

/* It can then neither finish the deletion nor give its office up. */
static void a_store_that_was_full_in_the_midst_of_a_deletion_has_a_controller_again_afterwards(void **state)
{
    struct cluster *cl = *state;
    create_topic(cl, "t", 3, 1);
    cl->hold = true;
    struct outcome o = {.w = cl->w};
    struct controller_topic_ref ref = {.name = STR("t")};
    controller_delete_topics(cl->c, &ref, 1, 60000, outcome_to(&o));
    while (cl->told[cl->told_count - 1].kind != 'S') loop_turn(cl->w->loop, 10 * 1000 * 1000);
    struct rlimit was, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    tight = was;
    tight.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    cluster_answer(cl);
    outcome_wait(&o);
    settle(cl->w);
    assert_int_equal(o.results[0].kerr, KERR_NOT_CONTROLLER);
    assert_int_equal(controller_state(cl->c), CONTROLLER_STANDBY);
    assert_int_equal(call_exists(cl->w, "/controller", COORD_NO_WATCH).r.err, OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    while (controller_state(cl->c) != CONTROLLER_ACTIVE || controller_topic_count(cl->c) > 0)
        loop_turn(cl->w->loop, 10 * 1000 * 1000);
    assert_int_equal(call_exists(cl->w, "/brokers/topics/t", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    assert_int_equal(create_topic(cl, "t", 3, 1).kerr, KERR_NONE);
}

static void what_was_answered_survives_a_restart_on_the_embedded_store(void **state)
{
    struct cluster *cl = *state;
    struct uuid id = create_topic(cl, "t", 300, 1).topic_id;
    assert_int_equal(alter(cl, CONFIG_TOPICS, "t", "1").kerr, KERR_NONE);
    assert_int_equal(create_topic(cl, "gone", 1, 1).kerr, KERR_NONE);
    assert_int_equal(delete_topic(cl, "gone").kerr, KERR_NONE);
    cluster_stop(cl);
    world_open(cl->w);
    register_broker(cl->w, 1, NULL);
    cl->told_count = 0;
    cluster_start(cl);
    while (cl->told_count < 2) loop_turn(cl->w->loop, 10 * 1000 * 1000);
    struct controller_topic t;
    assert_int_equal(controller_topic_count(cl->c), 1);
    assert_true(controller_find_topic(cl->c, STR("t"), &t));
    assert_true(uuid_equal(t.topic_id, id));
    assert_int_equal(t.partition_count, 300);
    assert_int_equal(t.partitions[299].leader, 1);
    assert_str(node_text(cl->w, "/config/topics/t"), "{\"version\":1,\"config\":{\"s\":\"1\"}}");
}

static int setup(void **state)
{
    *state = cluster_new(false);
    return 0;
}

static int setup_embedded(void **state)
{
    *state = cluster_new(true);
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
        TEST(it_takes_office_and_raises_the_epoch),
        TEST(a_topic_is_written_told_and_then_answered),
        TEST(defaults_stand_in_for_minus_one),
        TEST(bad_topics_are_refused_in_kafkas_words),
        TEST(settings_are_checked_by_the_callback),
        TEST(one_bad_topic_spoils_no_other),
        TEST(validate_only_changes_nothing),
        TEST(manual_assignment_is_taken_in_any_order),
        TEST(a_large_topic_is_written_in_bounded_multis),
        TEST(settings_that_an_old_topic_left_are_replaced),
        TEST(a_client_that_waits_too_long_is_told_so_and_the_topic_is_made),
        TEST(a_deleted_topic_is_stopped_and_leaves_no_node),
        TEST(topics_are_deleted_by_id_too_and_unknown_ones_refused),
        TEST(a_deletion_cut_short_is_finished_by_the_next_controller),
        TEST(partitions_are_added_behind_the_others),
        TEST(bad_requests_for_partitions_are_refused_in_kafkas_words),
        TEST(altered_settings_are_written_and_announced),
        TEST(settings_that_nobody_can_read_are_written_anew),
        TEST(settings_are_not_altered_for_unknown_topics_or_against_the_callers_will),
        TEST(producer_ids_are_given_once),
        cmocka_unit_test_setup_teardown(a_topic_that_cannot_be_written_is_refused_and_leaves_nothing, setup_embedded,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            a_store_that_was_full_in_the_midst_of_a_deletion_has_a_controller_again_afterwards, setup_embedded,
            teardown),
        cmocka_unit_test_setup_teardown(what_was_answered_survives_a_restart_on_the_embedded_store, setup_embedded,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
