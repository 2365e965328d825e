/* broker/api: creating, growing and deleting topics, describing and altering configuration, with a controller that
 * notes what it is asked and answers when the test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/mem.h"
#include "broker/api/handlers.h"
#include "broker/broker.h"
#include "broker/config_write.h"
#include "broker/dynamic_config.h"
#include "broker/request.h"
#include "controller/controller.h"
#include "wire/gen/alter_configs.h"
#include "wire/gen/create_partitions.h"
#include "wire/gen/create_topics.h"
#include "wire/gen/delete_topics.h"
#include "wire/gen/describe_configs.h"
#include "wire/gen/incremental_alter_configs.h"

/* ---- What stands in for the rest of the broker */

enum { SENT_MAX = 8 };

static struct {
    struct config *cfg;
    struct config_map *overrides; /* of topic "t" */
    bool replica_here;
    int refreshes, refreshes_open;
    char refreshed[64];
    void (*refresh_done)(void *arg);
    void *refresh_arg;

    bool out_of_office;
    int calls; /* of the controller */
    int own_writes;
    size_t count;
    bool validate_only;
    char names[SENT_MAX][64];
    size_t setting_counts[SENT_MAX];
    bool has_assignments[SENT_MAX];
    struct controller_config_change changes[SENT_MAX];
    struct controller_to to;
} fake;

static struct topic_view topic_t = {.name = {"t", 1}, .id = {{7}}, .partition_count = 1};

const struct topic_view *metadata_topic(const struct metadata *m, struct str name)
{
    (void)m;
    return str_equal(name, topic_t.name) ? &topic_t : NULL;
}

const struct topic_view *metadata_topic_by_id(const struct metadata *m, struct uuid id)
{
    (void)m;
    return uuid_equal(id, topic_t.id) ? &topic_t : NULL;
}

struct topic_replicas *replicas_find(const struct replicas *r, struct str topic)
{
    (void)r, (void)topic;
    return fake.replica_here ? (struct topic_replicas *)&fake : NULL;
}

const struct config *broker_config(struct broker *br, const struct loop *l)
{
    (void)br, (void)l;
    return fake.cfg;
}

struct config_map *dynamic_config_topic(struct dynamic_config *dc, struct str topic)
{
    (void)dc;
    return fake.overrides && str_is(topic, "t") ? config_map_copy(fake.overrides) : NULL;
}

void dynamic_config_refresh(struct dynamic_config *dc, enum config_entity kind, struct str name,
                            void (*done)(void *arg), void *arg)
{
    (void)dc;
    snprintf(fake.refreshed, sizeof fake.refreshed, "%s %.*s", kind == CONFIG_ENTITY_TOPIC ? "topic" : "broker",
             STR_ARG(name));
    fake.refreshes++;
    fake.refreshes_open++;
    fake.refresh_done = done;
    fake.refresh_arg = arg;
}

void request_wake(struct request *rq)
{
    (void)rq;
}

void *request_op(struct request *rq, size_t size)
{
    if (!rq->op) rq->op = arena_alloc(&rq->arena, size);
    return rq->op;
}

static void note_call(size_t count, bool validate_only, struct controller_to to)
{
    assert_true(count > 0 && count <= SENT_MAX);
    fake.calls++;
    fake.count = count;
    fake.validate_only = validate_only;
    fake.to = to;
}

static void note_name(size_t i, struct str name)
{
    snprintf(fake.names[i], sizeof fake.names[i], "%.*s", STR_ARG(name));
}

void controller_create_topics(struct controller *c, const struct controller_new_topic *topics, size_t count,
                              bool validate_only, int32_t timeout_ms, struct controller_to to)
{
    (void)c, (void)timeout_ms;
    note_call(count, validate_only, to);
    for (size_t i = 0; i < count; i++) {
        note_name(i, topics[i].name);
        fake.setting_counts[i] = topics[i].setting_count;
    }
}

bool controller_is_active(const struct controller *c)
{
    (void)c;
    return !fake.out_of_office;
}

void controller_delete_topics(struct controller *c, const struct controller_topic_ref *topics, size_t count,
                              int32_t timeout_ms, struct controller_to to)
{
    (void)c, (void)timeout_ms;
    note_call(count, false, to);
    for (size_t i = 0; i < count; i++) note_name(i, topics[i].name);
}

void controller_create_partitions(struct controller *c, const struct controller_more_partitions *topics, size_t count,
                                  bool validate_only, int32_t timeout_ms, struct controller_to to)
{
    (void)c, (void)timeout_ms;
    note_call(count, validate_only, to);
    for (size_t i = 0; i < count; i++) {
        note_name(i, topics[i].name);
        fake.has_assignments[i] = topics[i].has_assignments;
    }
}

void controller_alter_configs(struct controller *c, const struct controller_config_change *changes, size_t count,
                              bool validate_only, struct controller_to to)
{
    (void)c;
    note_call(count, validate_only, to);
    for (size_t i = 0; i < count; i++) {
        note_name(i, changes[i].name);
        fake.changes[i] = changes[i];
    }
}

/* In the controller's place. */
void config_write_alter(struct broker *br, const struct controller_config_change *changes, size_t count,
                        bool validate_only, struct controller_to to)
{
    (void)br;
    fake.own_writes++;
    fake.count = count;
    fake.validate_only = validate_only;
    fake.to = to;
    for (size_t i = 0; i < count; i++) note_name(i, changes[i].name);
}

/* ---- The world */

struct bed {
    struct broker br;
    struct loop *loop;
    struct request rq;
};

static struct config *config_of(const char *override)
{
    const struct config_input in = {.overrides = &override, .override_count = override ? 1 : 0};
    struct config *cfg;
    assert_int_equal(config_load(&cfg, &in, NULL), OK);
    return cfg;
}

static int bed_new(void **state)
{
    memset(&fake, 0, sizeof fake);
    fake.cfg = config_of(NULL);
    fake.replica_here = true;
    struct bed *b = mem_zalloc(1, sizeof *b);
    assert_int_equal(loop_new(&b->loop, clock_system(), 0, NULL), OK);
    b->br = (struct broker){.id = 7, .loops = &b->loop, .loop_count = 1};
    b->rq = (struct request){.broker = &b->br, .loop = b->loop};
    arena_init(&b->rq.arena, SIZE_MAX);
    *state = b;
    return 0;
}

static int bed_free(void **state)
{
    struct bed *b = *state;
    arena_fini(&b->rq.arena);
    config_map_free(fake.overrides);
    config_unref(fake.cfg);
    loop_free(b->loop);
    mem_free(b);
    return 0;
}

#define BEGIN(b, version_, api, request, response)           \
    struct api##_response response = api##_response_default; \
    (b)->rq.version = (version_), (b)->rq.in = (request), (b)->rq.out = &(response)

static void answer(const struct controller_result *results)
{
    const struct controller_results r = {results, fake.count, 0, 0};
    fake.to.done(fake.to.arg, &r);
}

static void finish_refresh(struct bed *b)
{
    fake.refreshes_open--;
    fake.refresh_done(fake.refresh_arg);
    loop_turn(b->loop, 0);
}

static void assert_str(struct str s, const char *expected)
{
    assert_int_equal(s.size, strlen(expected));
    assert_memory_equal(s.data, expected, s.size);
}

/* ---- CreateTopics */

typedef struct create_topics_request_creatable_topic new_topic;
typedef struct create_topics_request_creatable_topic_config new_config;

static void one_bad_topic_spoils_no_other(void **state)
{
    struct bed *b = *state;
    new_config unknown = {STR("nope"), STR("1")}, null = {STR("retention.ms"), STR_NULL},
               good = {STR("retention.ms"), STR("5")};
    new_topic topics[] = {{.name = STR("twice")},
                          {.name = STR("fine"), .configs = &good, .configs_count = 1},
                          {.name = STR("twice")},
                          {.name = STR("odd"), .configs = &unknown, .configs_count = 1},
                          {.name = STR("null"), .configs = &null, .configs_count = 1},
                          {.name = STR("__cluster_metadata")},
                          {.name = STR("t"), .configs = &unknown, .configs_count = 1}};
    struct create_topics_request in = {.topics = topics, .topics_count = 7, .timeout_ms = 1000};
    BEGIN(b, 7, create_topics, &in, out);
    assert_int_equal(create_topics_handle(&b->rq), WAIT);
    assert_int_equal(fake.count, 1);
    assert_string_equal(fake.names[0], "fine");
    assert_int_equal(fake.setting_counts[0], 1);
    answer(&(struct controller_result){.topic_id = {{9}}, .partition_count = 4, .replication_factor = 1});
    assert_int_equal(create_topics_handle(&b->rq), DONE);
    assert_int_equal(out.topics_count, 7);
    assert_int_equal(out.topics[0].error_code, KERR_INVALID_REQUEST);
    assert_str(out.topics[0].error_message, "Found multiple entries for this topic.");
    assert_int_equal(out.topics[2].error_code, KERR_INVALID_REQUEST);
    assert_int_equal(out.topics[3].error_code, KERR_INVALID_CONFIG);
    assert_str(out.topics[3].error_message, "Unknown topic config name: nope");
    assert_int_equal(out.topics[4].error_code, KERR_INVALID_CONFIG);
    assert_str(out.topics[4].error_message, "Null value not supported for topic configs: retention.ms");
    assert_int_equal(out.topics[5].error_code, KERR_INVALID_REQUEST);
    assert_int_equal(out.topics[6].error_code, KERR_TOPIC_ALREADY_EXISTS);
    assert_str(out.topics[6].error_message, "Topic 't' already exists.");
    assert_int_equal(out.topics[6].num_partitions, -1);
    assert_int_equal(out.topics[6].configs_count, 0);
    assert_int_equal(out.topics[1].error_code, KERR_NONE);
    assert_null(out.topics[1].error_message.data);
    assert_int_equal(out.topics[1].num_partitions, 4);
    assert_int_equal(out.topics[1].replication_factor, 1);
    assert_int_equal(out.topics[1].topic_id.bytes[0], 9);
}

static void a_created_topic_is_told_with_its_configuration(void **state)
{
    struct bed *b = *state;
    new_config own = {STR("retention.ms"), STR("5")};
    new_topic topic = {.name = STR("n"), .configs = &own, .configs_count = 1};
    struct create_topics_request in = {.topics = &topic, .topics_count = 1, .validate_only = true};
    BEGIN(b, 5, create_topics, &in, out);
    assert_int_equal(create_topics_handle(&b->rq), WAIT);
    assert_true(fake.validate_only);
    answer(&(struct controller_result){.partition_count = 1, .replication_factor = 1});
    assert_int_equal(create_topics_handle(&b->rq), DONE);
    bool own_seen = false, default_seen = false;
    for (int32_t i = 0; i < out.topics[0].configs_count; i++) {
        const struct create_topics_response_creatable_topic_configs *c = &out.topics[0].configs[i];
        assert_false(c->read_only || c->is_sensitive);
        if (str_is(c->name, "retention.ms")) {
            own_seen = true;
            assert_str(c->value, "5");
            assert_int_equal(c->config_source, 1);
        } else if (str_is(c->name, "max.message.bytes")) {
            default_seen = true;
            assert_str(c->value, "1048588");
            assert_int_equal(c->config_source, 5);
        }
    }
    assert_true(own_seen && default_seen);
}

static void a_request_whose_peer_has_gone_stays_until_the_controller_answers(void **state)
{
    struct bed *b = *state;
    new_topic topic = {.name = STR("n")};
    struct create_topics_request in = {.topics = &topic, .topics_count = 1};
    BEGIN(b, 7, create_topics, &in, out);
    assert_int_equal(create_topics_handle(&b->rq), WAIT);
    b->rq.cancelled = true;
    assert_int_equal(create_topics_handle(&b->rq), WAIT);
    assert_int_equal(fake.calls, 1);
    answer(&(struct controller_result){.kerr = KERR_REQUEST_TIMED_OUT, .partition_count = -1});
    assert_int_equal(create_topics_handle(&b->rq), DONE);
    assert_int_equal(out.topics[0].error_code, KERR_REQUEST_TIMED_OUT);
}

/* ---- DeleteTopics */

typedef struct delete_topics_request_delete_topic_state gone;

static void names_and_ids_are_both_deleted_and_ids_get_their_names(void **state)
{
    struct bed *b = *state;
    gone topics[] = {{.name = STR("x")}, {.name = STR_NULL, .topic_id = {{7}}}, {.name = STR_NULL, .topic_id = {{8}}}};
    struct delete_topics_request in = {.topics = topics, .topics_count = 3};
    BEGIN(b, 6, delete_topics, &in, out);
    assert_int_equal(delete_topics_handle(&b->rq), WAIT);
    assert_int_equal(fake.count, 3);
    const struct controller_result results[] = {{.name = STR("x"), .kerr = KERR_UNKNOWN_TOPIC_OR_PARTITION},
                                                {.name = STR("t")},
                                                {.kerr = KERR_UNKNOWN_TOPIC_ID}};
    answer(results);
    assert_int_equal(delete_topics_handle(&b->rq), DONE);
    assert_str(out.responses[0].name, "x");
    assert_int_equal(out.responses[0].error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_str(out.responses[1].name, "t");
    assert_int_equal(out.responses[1].topic_id.bytes[0], 7);
    assert_int_equal(out.responses[1].error_code, KERR_NONE);
    assert_null(out.responses[2].name.data);
    assert_int_equal(out.responses[2].error_code, KERR_UNKNOWN_TOPIC_ID);
}

static void a_topic_named_by_name_and_by_id_is_not_deleted(void **state)
{
    struct bed *b = *state;
    gone topics[] = {{.name = STR("t")}, {.name = STR_NULL, .topic_id = {{7}}}};
    struct delete_topics_request in = {.topics = topics, .topics_count = 2};
    BEGIN(b, 6, delete_topics, &in, out);
    assert_int_equal(delete_topics_handle(&b->rq), DONE);
    assert_int_equal(fake.calls, 0);
    assert_int_equal(out.responses[0].error_code, KERR_INVALID_REQUEST);
    assert_int_equal(out.responses[1].error_code, KERR_INVALID_REQUEST);
}

static void a_name_with_an_id_refuses_the_whole_request(void **state)
{
    struct bed *b = *state;
    gone topics[] = {{.name = STR("x")}, {.name = STR("t"), .topic_id = {{7}}}};
    struct delete_topics_request in = {.topics = topics, .topics_count = 2};
    BEGIN(b, 6, delete_topics, &in, out);
    assert_int_equal(delete_topics_handle(&b->rq), DONE);
    assert_int_equal(fake.calls, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(out.responses[i].error_code, KERR_INVALID_REQUEST);
}

static void deletion_can_be_disabled_and_old_clients_understand(void **state)
{
    struct bed *b = *state;
    config_unref(fake.cfg);
    fake.cfg = config_of("delete.topic.enable=false");
    struct str name = STR("t");
    struct delete_topics_request in = {.topic_names = &name, .topic_names_count = 1};
    for (int16_t version = 1; version <= 5; version++) {
        b->rq.op = NULL;
        BEGIN(b, version, delete_topics, &in, out);
        assert_int_equal(delete_topics_handle(&b->rq), DONE);
        assert_int_equal(out.responses[0].error_code,
                         version < 3 ? KERR_INVALID_REQUEST : KERR_TOPIC_DELETION_DISABLED);
    }
    assert_int_equal(fake.calls, 0);
}

/* ---- CreatePartitions */

/* Whatever else is wrong, and although this controller is never asked: Kafka's clients look for the right one first. */
static void who_is_not_the_controller_says_so_first(void **state)
{
    struct bed *b = *state;
    fake.out_of_office = true;
    new_topic created[] = {{.name = STR("twice")}, {.name = STR("twice")}, {.name = STR("__cluster_metadata")}};
    struct create_topics_request create = {.topics = created, .topics_count = 3};
    BEGIN(b, 7, create_topics, &create, out);
    assert_int_equal(create_topics_handle(&b->rq), DONE);
    for (int i = 0; i < 3; i++) assert_int_equal(out.topics[i].error_code, KERR_NOT_CONTROLLER);
    b->rq.op = NULL;
    gone deleted[] = {{.name = STR("t")}, {.name = STR_NULL, .topic_id = {{7}}}};
    struct delete_topics_request delete = {.topics = deleted, .topics_count = 2};
    BEGIN(b, 6, delete_topics, &delete, out_deleted);
    assert_int_equal(delete_topics_handle(&b->rq), DONE);
    for (int i = 0; i < 2; i++) assert_int_equal(out_deleted.responses[i].error_code, KERR_NOT_CONTROLLER);
    b->rq.op = NULL;
    struct create_partitions_request_create_partitions_topic grown[] = {{.name = STR("x"), .count = 3},
                                                                        {.name = STR("x"), .count = 4}};
    struct create_partitions_request grow = {.topics = grown, .topics_count = 2};
    BEGIN(b, 3, create_partitions, &grow, out_grown);
    assert_int_equal(create_partitions_handle(&b->rq), DONE);
    assert_int_equal(out_grown.results_count, 1);
    assert_int_equal(out_grown.results[0].error_code, KERR_NOT_CONTROLLER);
    assert_int_equal(fake.calls, 0);
}

static void growing_a_topic_twice_is_refused_in_one_answer(void **state)
{
    struct bed *b = *state;
    struct create_partitions_request_create_partitions_topic topics[] = {
        {.name = STR("x"), .count = 3, .assignments_count = -1},
        {.name = STR("t"), .count = 3, .assignments_count = -1},
        {.name = STR("x"), .count = 4, .assignments_count = -1},
        {.name = STR("y"), .count = 4, .assignments_count = 0}};
    struct create_partitions_request in = {.topics = topics, .topics_count = 4};
    BEGIN(b, 3, create_partitions, &in, out);
    assert_int_equal(create_partitions_handle(&b->rq), WAIT);
    assert_int_equal(fake.count, 2);
    assert_string_equal(fake.names[0], "t");
    assert_false(fake.has_assignments[0]); /* null: the controller chooses */
    assert_true(fake.has_assignments[1]);  /* empty: none given */
    const struct controller_result results[] = {{.partition_count = 3},
                                                {.kerr = KERR_INVALID_REPLICA_ASSIGNMENT, .message = STR("why")}};
    answer(results);
    assert_int_equal(create_partitions_handle(&b->rq), DONE);
    assert_int_equal(out.results_count, 3);
    assert_str(out.results[0].error_message, "Duplicate topic in request.");
    assert_int_equal(out.results[1].error_code, KERR_NONE);
    assert_null(out.results[1].error_message.data);
    assert_int_equal(out.results[2].error_code, KERR_INVALID_REPLICA_ASSIGNMENT);
    assert_str(out.results[2].error_message, "why");
}

/* ---- AlterConfigs, IncrementalAlterConfigs */

typedef struct incremental_alter_configs_request_alter_configs_resource inc_resource;
typedef struct incremental_alter_configs_request_alterable_config inc_config;

static void resources_that_cannot_be_altered_are_told_why(void **state)
{
    struct bed *b = *state;
    inc_config set = {STR("x"), CONFIG_SET, STR("1")};
    inc_resource resources[] = {
        {4, STR("8"), &set, 1},  {4, STR("seven"), &set, 1}, {2, STR("unknown"), &set, 1}, {2, STR_EMPTY, &set, 1},
        {16, STR("m"), &set, 1}, {32, STR("g"), &set, 1},    {8, STR("7"), &set, 1},       {9, STR("z"), &set, 1},
        {2, STR("t"), &set, 1},  {2, STR("t"), &set, 1},
    };
    static const struct {
        enum kerr kerr;
        const char *message;
    } expected[] = {
        {KERR_INVALID_REQUEST, "Unexpected broker id, expected 7, but received 8"},
        {KERR_INVALID_REQUEST, "Node id must be an integer, but it is: seven"},
        {KERR_UNKNOWN_TOPIC_OR_PARTITION, "The topic 'unknown' does not exist."},
        {KERR_INVALID_REQUEST, "Default topic resources are not allowed."},
        {KERR_INVALID_REQUEST,
         "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS"},
        {KERR_INVALID_REQUEST, "AlterConfigs is only supported for topics and brokers, but resource type is GROUP"},
        {KERR_INVALID_CONFIG, "Logger x does not exist!"},
        {KERR_INVALID_REQUEST, "Unknown resource type 9"},
        {KERR_INVALID_REQUEST, "Each resource must appear at most once."},
        {KERR_INVALID_REQUEST, "Each resource must appear at most once."},
    };
    struct incremental_alter_configs_request in = {.resources = resources, .resources_count = 10};
    BEGIN(b, 1, incremental_alter_configs, &in, out);
    assert_int_equal(incremental_alter_configs_handle(&b->rq), DONE);
    assert_int_equal(fake.calls, 0);
    assert_int_equal(out.responses_count, 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(out.responses[i].error_code, expected[i].kerr);
        assert_str(out.responses[i].error_message, expected[i].message);
        assert_int_equal(out.responses[i].resource_type, resources[i].resource_type);
    }
}

/* What the controller would store when the entity has these settings. */
static enum kerr run_alter(struct bed *b, size_t i, struct znode_setting *stored, size_t count,
                           struct znode_config *next, struct str *message)
{
    const struct znode_config current = {.settings = stored, .count = count};
    return fake.changes[i].alter(fake.changes[i].arg, &current, &b->rq.arena, next, message);
}

static void increments_are_answered_when_they_are_in_effect(void **state)
{
    struct bed *b = *state;
    inc_config changes[] = {{STR("retention.ms"), CONFIG_SET, STR("5")},
                            {STR("cleanup.policy"), CONFIG_APPEND, STR("compact")},
                            {STR("max.message.bytes"), CONFIG_DELETE, STR_NULL}};
    inc_resource resource = {2, STR("t"), changes, 3};
    struct incremental_alter_configs_request in = {.resources = &resource, .resources_count = 1};
    BEGIN(b, 1, incremental_alter_configs, &in, out);
    assert_int_equal(incremental_alter_configs_handle(&b->rq), WAIT);
    assert_true(str_equal(fake.changes[0].type, CONFIG_TOPICS));
    struct znode_setting stored[] = {{STR("max.message.bytes"), STR("9")}, {STR("segment.bytes"), STR("1000")}};
    struct znode_config next;
    struct str message = STR_NULL;
    assert_int_equal(run_alter(b, 0, stored, 2, &next, &message), KERR_NONE);
    assert_int_equal(next.count, 3);
    assert_str(next.settings[0].name, "cleanup.policy");
    assert_str(next.settings[0].value, "delete,compact");
    assert_str(next.settings[1].name, "retention.ms");
    assert_str(next.settings[2].name, "segment.bytes");
    answer(&(struct controller_result){.kerr = KERR_NONE});
    assert_string_equal(fake.refreshed, "topic t");
    b->rq.cancelled = true; /* even then: the answer may still come */
    assert_int_equal(incremental_alter_configs_handle(&b->rq), WAIT);
    finish_refresh(b);
    assert_int_equal(incremental_alter_configs_handle(&b->rq), DONE);
    assert_int_equal(out.responses[0].error_code, KERR_NONE);
    assert_null(out.responses[0].error_message.data);
}

static void a_refused_value_or_a_validation_refreshes_nothing(void **state)
{
    struct bed *b = *state;
    inc_config bad = {STR("retention.ms"), CONFIG_SET, STR("long")};
    inc_resource resource = {2, STR("t"), &bad, 1};
    struct incremental_alter_configs_request in = {.resources = &resource, .resources_count = 1};
    BEGIN(b, 1, incremental_alter_configs, &in, out);
    assert_int_equal(incremental_alter_configs_handle(&b->rq), WAIT);
    struct znode_config next;
    struct str message = STR_NULL;
    assert_int_equal(run_alter(b, 0, NULL, 0, &next, &message), KERR_INVALID_CONFIG);
    answer(&(struct controller_result){.kerr = KERR_INVALID_CONFIG, .message = message});
    assert_int_equal(incremental_alter_configs_handle(&b->rq), DONE);
    assert_int_equal(out.responses[0].error_code, KERR_INVALID_CONFIG);
    assert_str(out.responses[0].error_message,
               "Invalid value long for configuration retention.ms: Not a number of type LONG");
    b->rq.op = NULL;
    in.validate_only = true;
    assert_int_equal(incremental_alter_configs_handle(&b->rq), WAIT);
    assert_true(fake.validate_only);
    answer(&(struct controller_result){.kerr = KERR_NONE});
    assert_int_equal(incremental_alter_configs_handle(&b->rq), DONE);
    assert_int_equal(fake.refreshes, 0);
}

static void where_the_controller_is_another_broker_the_change_is_ours(void **state)
{
    struct bed *b = *state;
    inc_config set = {STR("retention.ms"), CONFIG_SET, STR("5")};
    inc_resource resource = {2, STR("t"), &set, 1};
    struct incremental_alter_configs_request in = {.resources = &resource, .resources_count = 1};
    BEGIN(b, 1, incremental_alter_configs, &in, out);
    assert_int_equal(incremental_alter_configs_handle(&b->rq), WAIT);
    assert_int_equal(fake.own_writes, 0);
    answer(&(struct controller_result){.kerr = KERR_NOT_CONTROLLER});
    assert_int_equal(fake.own_writes, 1);
    assert_string_equal(fake.names[0], "t");
    assert_int_equal(incremental_alter_configs_handle(&b->rq), WAIT);
    answer(&(struct controller_result){.kerr = KERR_NONE});
    finish_refresh(b);
    assert_int_equal(incremental_alter_configs_handle(&b->rq), DONE);
    assert_int_equal(out.responses[0].error_code, KERR_NONE);
    assert_int_equal(fake.calls, 1);
}

static void the_older_request_replaces_all_settings(void **state)
{
    struct bed *b = *state;
    struct alter_configs_request_alterable_config set = {STR("message.max.bytes"), STR("500")};
    struct alter_configs_request_alter_configs_resource resources[] = {
        {4, STR("+7"), &set, 1}, {4, STR_EMPTY, &set, 1}, {8, STR("7"), &set, 1}};
    struct alter_configs_request in = {.resources = resources, .resources_count = 3};
    BEGIN(b, 2, alter_configs, &in, out);
    assert_int_equal(alter_configs_handle(&b->rq), WAIT);
    assert_int_equal(fake.count, 2);
    assert_string_equal(fake.names[0], "7");
    assert_string_equal(fake.names[1], "<default>");
    struct znode_setting stored[] = {{STR("log.retention.ms"), STR("9")}};
    struct znode_config next;
    struct str message = STR_NULL;
    assert_int_equal(run_alter(b, 0, stored, 1, &next, &message), KERR_NONE);
    assert_int_equal(next.count, 1);
    assert_str(next.settings[0].name, "message.max.bytes");
    const struct controller_result results[] = {{.kerr = KERR_NONE}, {.kerr = KERR_KAFKA_STORAGE_ERROR}};
    answer(results);
    assert_int_equal(fake.refreshes, 1);
    assert_string_equal(fake.refreshed, "broker 7");
    finish_refresh(b);
    assert_int_equal(alter_configs_handle(&b->rq), DONE);
    assert_int_equal(out.responses[0].error_code, KERR_NONE);
    assert_int_equal(out.responses[1].error_code, KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(out.responses[2].error_code, KERR_INVALID_REQUEST);
}

/* ---- DescribeConfigs */

typedef struct describe_configs_request_describe_configs_resource ask;
typedef struct describe_configs_response_describe_configs_result told;

static const struct describe_configs_response_describe_configs_resource_result *entry(const told *r, const char *name)
{
    for (int32_t i = 0; i < r->configs_count; i++)
        if (str_is(r->configs[i].name, name)) return &r->configs[i];
    return NULL;
}

static void a_topic_is_told_with_sources_synonyms_and_documentation(void **state)
{
    struct bed *b = *state;
    fake.overrides = config_map_new();
    config_map_set(fake.overrides, STR("max.message.bytes"), STR("700"));
    ask resource = {2, STR("t"), NULL, -1};
    struct describe_configs_request in = {
        .resources = &resource, .resources_count = 1, .include_synonyms = true, .include_documentation = true};
    BEGIN(b, 4, describe_configs, &in, out);
    assert_int_equal(describe_configs_handle(&b->rq), DONE);
    assert_int_equal(out.results[0].error_code, KERR_NONE);
    assert_true(out.results[0].configs_count > 30);
    const struct describe_configs_response_describe_configs_resource_result *e =
        entry(&out.results[0], "max.message.bytes");
    assert_str(e->value, "700");
    assert_int_equal(e->config_source, 1);
    assert_int_equal(e->config_type, CONFIG_INT);
    assert_false(e->read_only || e->is_sensitive || e->is_default);
    assert_true(e->documentation.size > 10);
    assert_int_equal(e->synonyms_count, 2);
    assert_str(e->synonyms[1].name, "message.max.bytes");
    assert_str(e->synonyms[1].value, "1048588");
    assert_int_equal(e->synonyms[1].source, 5);
}

static void only_the_keys_that_are_asked_for_are_told(void **state)
{
    struct bed *b = *state;
    struct str keys[] = {STR("segment.bytes"), STR("no.such.key"), STR("retention.ms"), STR("segment.bytes")};
    ask resources[] = {{2, STR("t"), keys, 4}, {2, STR("t"), NULL, 0}};
    struct describe_configs_request in = {.resources = resources, .resources_count = 2};
    BEGIN(b, 0, describe_configs, &in, out);
    assert_int_equal(describe_configs_handle(&b->rq), DONE);
    assert_int_equal(out.results[0].configs_count, 2);
    assert_non_null(entry(&out.results[0], "retention.ms"));
    assert_non_null(entry(&out.results[0], "segment.bytes"));
    assert_true(entry(&out.results[0], "segment.bytes")->is_default); /* version 0 has no source */
    assert_int_equal(entry(&out.results[0], "segment.bytes")->synonyms_count, 0);
    assert_null(entry(&out.results[0], "segment.bytes")->documentation.data);
    assert_true(out.results[1].configs_count > 30); /* an empty list asks for all */
}

static void resources_that_cannot_be_described_are_told_why(void **state)
{
    struct bed *b = *state;
    ask resources[] = {{2, STR("unknown"), NULL, -1}, {2, STR("a b"), NULL, -1}, {4, STR("8"), NULL, -1},
                       {8, STR_EMPTY, NULL, -1},      {8, STR("8"), NULL, -1},   {16, STR("m"), NULL, -1},
                       {32, STR("g"), NULL, -1},      {1, STR("x"), NULL, -1},   {4, STR("seven"), NULL, -1}};
    static const struct {
        enum kerr kerr;
        const char *message; /* NULL: none */
    } expected[] = {
        {KERR_UNKNOWN_TOPIC_OR_PARTITION, NULL},
        {KERR_INVALID_TOPIC_EXCEPTION,
         "The topic's name has characters other than ASCII letters, digits, '.', '_' and '-'."},
        {KERR_INVALID_REQUEST, "Unexpected broker id, expected 7 or empty string, but received 8"},
        {KERR_INVALID_REQUEST, "Broker id must not be empty"},
        {KERR_INVALID_REQUEST, "Unexpected broker id, expected 7 but received 8"},
        {KERR_INVALID_REQUEST, "Config type client-metrics is only supported on KRaft clusters"},
        {KERR_INVALID_REQUEST, "Config type groups is only supported on KRaft clusters"},
        {KERR_INVALID_REQUEST, "Unexpected resource type UNKNOWN for resource x"},
        {KERR_INVALID_REQUEST, "Broker id must be an integer, but it is: seven"},
    };
    struct describe_configs_request in = {.resources = resources, .resources_count = 9};
    BEGIN(b, 4, describe_configs, &in, out);
    assert_int_equal(describe_configs_handle(&b->rq), DONE);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(out.results[i].error_code, expected[i].kerr);
        assert_int_equal(out.results[i].configs_count, 0);
        assert_int_equal(out.results[i].resource_type, resources[i].resource_type);
        if (expected[i].message)
            assert_str(out.results[i].error_message, expected[i].message);
        else
            assert_null(out.results[i].error_message.data);
    }
}

static void a_broker_tells_no_secrets_and_the_cluster_only_what_is_dynamic(void **state)
{
    struct bed *b = *state;
    struct config_map *cluster = config_map_new();
    config_map_set(cluster, STR("log.retention.ms"), STR("5"));
    struct config *next;
    assert_int_equal(config_with_dynamic(&next, fake.cfg, cluster, NULL, NULL), OK);
    config_map_free(cluster);
    config_unref(fake.cfg);
    fake.cfg = next;
    ask resources[] = {{4, STR("7"), NULL, -1}, {4, STR_EMPTY, NULL, -1}, {8, STR("7"), NULL, -1}};
    struct describe_configs_request in = {.resources = resources, .resources_count = 3};
    BEGIN(b, 4, describe_configs, &in, out);
    assert_int_equal(describe_configs_handle(&b->rq), DONE);
    assert_true(entry(&out.results[0], "ssl.key.password")->is_sensitive);
    assert_null(entry(&out.results[0], "ssl.key.password")->value.data);
    assert_true(entry(&out.results[0], "log.dirs")->read_only);
    assert_false(entry(&out.results[0], "log.retention.ms")->read_only);
    assert_int_equal(entry(&out.results[0], "log.retention.ms")->config_source, 3);
    assert_int_equal(out.results[1].configs_count, 1);
    assert_str(entry(&out.results[1], "log.retention.ms")->value, "5");
    assert_int_equal(out.results[2].error_code, KERR_NONE);
    assert_int_equal(out.results[2].configs_count, 0); /* there are no loggers to set */
}

static void a_topic_without_a_replica_here_is_read_first_and_once(void **state)
{
    struct bed *b = *state;
    fake.replica_here = false;
    ask resources[] = {{2, STR("t"), NULL, -1}, {2, STR("t"), NULL, -1}, {2, STR("unknown"), NULL, -1}};
    struct describe_configs_request in = {.resources = resources, .resources_count = 3};
    BEGIN(b, 4, describe_configs, &in, out);
    assert_int_equal(describe_configs_handle(&b->rq), WAIT);
    assert_int_equal(fake.refreshes, 1);
    b->rq.cancelled = true;
    assert_int_equal(describe_configs_handle(&b->rq), WAIT);
    fake.overrides = config_map_new();
    config_map_set(fake.overrides, STR("retention.ms"), STR("4"));
    finish_refresh(b);
    assert_int_equal(describe_configs_handle(&b->rq), DONE);
    assert_str(entry(&out.results[0], "retention.ms")->value, "4");
}

#define WITH_BED(name) cmocka_unit_test_setup_teardown(name, bed_new, bed_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BED(one_bad_topic_spoils_no_other),
        WITH_BED(a_created_topic_is_told_with_its_configuration),
        WITH_BED(a_request_whose_peer_has_gone_stays_until_the_controller_answers),
        WITH_BED(names_and_ids_are_both_deleted_and_ids_get_their_names),
        WITH_BED(a_topic_named_by_name_and_by_id_is_not_deleted),
        WITH_BED(a_name_with_an_id_refuses_the_whole_request),
        WITH_BED(deletion_can_be_disabled_and_old_clients_understand),
        WITH_BED(who_is_not_the_controller_says_so_first),
        WITH_BED(growing_a_topic_twice_is_refused_in_one_answer),
        WITH_BED(resources_that_cannot_be_altered_are_told_why),
        WITH_BED(increments_are_answered_when_they_are_in_effect),
        WITH_BED(a_refused_value_or_a_validation_refreshes_nothing),
        WITH_BED(where_the_controller_is_another_broker_the_change_is_ours),
        WITH_BED(the_older_request_replaces_all_settings),
        WITH_BED(a_topic_is_told_with_sources_synonyms_and_documentation),
        WITH_BED(only_the_keys_that_are_asked_for_are_told),
        WITH_BED(resources_that_cannot_be_described_are_told_why),
        WITH_BED(a_broker_tells_no_secrets_and_the_cluster_only_what_is_dynamic),
        WITH_BED(a_topic_without_a_replica_here_is_read_first_and_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
