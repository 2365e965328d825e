/* auto_create.c: a Metadata request's wish, as a request to the controller. */
#include "broker/auto_create.h"

#include "broker/broker.h"
#include "controller/controller.h"

enum {
    /* Kafka does not wait, and every client comes back after its retry.backoff.ms.  Making a topic takes a few
     * milliseconds where nothing is wrong, so waiting a little mostly saves it the second round. */
    WAIT_MS_MAX = 100,
    CONTROLLER_WAIT_MS = 1000, /* for a controller that is just being elected, or does not answer */
    DEFAULTS_SINCE = 4,        /* the version of CreateTopics that can leave numbers to the controller (KIP-464) */
    SETTINGS_MAX = 5
};

static struct str number(struct arena *a, int64_t value)
{
    return arena_printf(a, "%lld", (long long)value);
}

static void add_setting(struct znode_setting *settings, size_t *count, struct str name, struct str value)
{
    ASSERT(*count < SETTINGS_MAX);
    settings[(*count)++] = (struct znode_setting){.name = name, .value = value};
}

/* __consumer_offsets and __transaction_state are kept compact, and their size is a setting of the broker. */
static void describe_offsets_topic(struct arena *a, const struct config *cfg, struct znode_setting *settings,
                                   struct controller_new_topic *t)
{
    t->partition_count = (int32_t)config_i64(cfg, CFG_OFFSETS_TOPIC_NUM_PARTITIONS);
    t->replication_factor = (int16_t)config_i64(cfg, CFG_OFFSETS_TOPIC_REPLICATION_FACTOR);
    struct str segment_bytes = number(a, config_i64(cfg, CFG_OFFSETS_TOPIC_SEGMENT_BYTES));
    add_setting(settings, &t->setting_count, STR("cleanup.policy"), STR("compact"));
    add_setting(settings, &t->setting_count, STR("segment.bytes"), segment_bytes);
    add_setting(settings, &t->setting_count, STR("compression.type"), STR("producer"));
}

static void describe_transaction_topic(struct arena *a, const struct config *cfg, struct znode_setting *settings,
                                       struct controller_new_topic *t)
{
    t->partition_count = (int32_t)config_i64(cfg, CFG_TRANSACTION_STATE_LOG_NUM_PARTITIONS);
    t->replication_factor = (int16_t)config_i64(cfg, CFG_TRANSACTION_STATE_LOG_REPLICATION_FACTOR);
    struct str min_isr = number(a, config_i64(cfg, CFG_TRANSACTION_STATE_LOG_MIN_ISR));
    struct str segment_bytes = number(a, config_i64(cfg, CFG_TRANSACTION_STATE_LOG_SEGMENT_BYTES));
    add_setting(settings, &t->setting_count, STR("unclean.leader.election.enable"), STR("false"));
    add_setting(settings, &t->setting_count, STR("compression.type"), STR("uncompressed"));
    add_setting(settings, &t->setting_count, STR("cleanup.policy"), STR("compact"));
    add_setting(settings, &t->setting_count, STR("min.insync.replicas"), min_isr);
    add_setting(settings, &t->setting_count, STR("segment.bytes"), segment_bytes);
}

void auto_create_describe(struct arena *a, const struct config *cfg, struct str name, struct controller_new_topic *t)
{
    *t = (struct controller_new_topic){.name = name, .partition_count = -1, .replication_factor = -1};
    if (!topic_is_internal(name)) return;
    struct znode_setting *settings = arena_array(a, struct znode_setting, SETTINGS_MAX);
    t->settings = settings;
    if (str_is(name, "__consumer_offsets"))
        describe_offsets_topic(a, cfg, settings, t);
    else
        describe_transaction_topic(a, cfg, settings, t);
}

static enum kerr told_to_client(enum kerr verdict)
{
    switch (verdict) {
    case KERR_NONE:
    case KERR_TOPIC_ALREADY_EXISTS: /* somebody else has just asked for it */
    case KERR_REQUEST_TIMED_OUT: /* it goes on without us */ return KERR_LEADER_NOT_AVAILABLE;
    case KERR_NOT_CONTROLLER:
    case KERR_THROTTLING_QUOTA_EXCEEDED: return KERR_UNKNOWN_TOPIC_OR_PARTITION;
    default: return verdict;
    }
}

/* Answers are in the order of the request, from every controller that we know of; but that is nobody's promise. */
static enum kerr verdict_of(const struct create_topics_response *res, struct str name, int32_t likely)
{
    for (int32_t i = 0; i < res->topics_count; i++) {
        const struct create_topics_response_creatable_topic_result *t = &res->topics[(likely + i) % res->topics_count];
        if (str_equal(t->name, name)) return (enum kerr)t->error_code;
    }
    return KERR_UNKNOWN_SERVER_ERROR;
}

static void on_created(struct controller_call *call)
{
    struct auto_create *ac = CONTAINER_OF(call, struct auto_create, call);
    for (int32_t i = 0; i < ac->count; i++)
        ac->kerr[i] = told_to_client(call->err ? KERR_NOT_CONTROLLER : verdict_of(call->response, ac->names[i], i));
    ac->done(ac);
}

static void describe_request(struct arena *a, const struct controller_new_topic *t,
                             struct create_topics_request_creatable_topic *out)
{
    *out = create_topics_request_creatable_topic_default;
    out->name = t->name;
    out->num_partitions = t->partition_count;
    out->replication_factor = t->replication_factor;
    out->configs = arena_array(a, struct create_topics_request_creatable_topic_config, t->setting_count);
    for (size_t i = 0; i < t->setting_count; i++)
        out->configs[out->configs_count++] =
            (struct create_topics_request_creatable_topic_config){t->settings[i].name, t->settings[i].value};
}

void auto_create_topics(struct auto_create *ac)
{
    struct request *rq = ac->rq;
    const struct config *cfg = broker_config(rq->broker, rq->loop);
    ac->kerr = arena_array(&rq->arena, enum kerr, (size_t)ac->count);
    ac->in = create_topics_request_default;
    ac->in.topics = arena_array(&rq->arena, struct create_topics_request_creatable_topic, (size_t)ac->count);
    ac->in.topics_count = ac->count;
    ac->in.timeout_ms = ac->wait_ms ? ac->wait_ms : WAIT_MS_MAX;
    for (int32_t i = 0; i < ac->count; i++) {
        struct controller_new_topic described;
        auto_create_describe(&rq->arena, cfg, ac->names[i], &described);
        describe_request(&rq->arena, &described, &ac->in.topics[i]);
    }
    ac->call = (struct controller_call){.api = API_CREATE_TOPICS,
                                        .version_min = DEFAULTS_SINCE,
                                        .version_max = INT16_MAX,
                                        .request = &ac->in,
                                        .timeout_ms = ac->in.timeout_ms + CONTROLLER_WAIT_MS,
                                        .loop = rq->loop,
                                        .done = on_created};
    to_controller_send(rq->broker->to_controller, &ac->call);
}
