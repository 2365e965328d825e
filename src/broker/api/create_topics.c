/* CreateTopics (key 19, KIP-4, KIP-525): the controller creates; here the request is checked and the answer dressed. */
#include "base/mem.h"
#include "broker/api/handlers.h"
#include "broker/api/named.h"
#include "broker/broker.h"
#include "controller/controller.h"
#include "wire/gen/create_topics.h"

/* Of one request: an answer tells every topic's whole configuration. */
enum { TOPICS_MAX = 20 * 1000 };

typedef struct create_topics_request_creatable_topic topic_in;
typedef struct create_topics_response_creatable_topic_result result_out;
typedef struct create_topics_response_creatable_topic_configs config_out;

struct creation {
    result_out *out;
    struct config_map *settings; /* NULL: none */
};

struct create_topics {
    bool sent, done;
    struct creation *creations; /* those that went to the controller */
    size_t count;
};

static void fail(result_out *out, enum kerr kerr, struct str message)
{
    out->error_code = (int16_t)kerr;
    out->error_message = message;
}

/* ---- Checks */

/* "a,b": the settings that are given as null.  Null when there is none. */
static struct str null_settings(struct request *rq, const topic_in *in)
{
    struct str names = STR_NULL;
    for (int32_t i = 0; i < in->configs_count; i++) {
        if (!str_is_null(in->configs[i].value)) continue;
        /* A few names are enough to see what is wrong. */
        if (names.size > 256) break;
        names = names.size ? arena_printf(&rq->arena, "%.*s,%.*s", STR_ARG(names), STR_ARG(in->configs[i].name))
                           : arena_str(&rq->arena, in->configs[i].name);
    }
    return names;
}

/* The settings, checked; *settings stays NULL when there are none. */
static void check_settings(struct request *rq, const topic_in *in, result_out *out, struct config_map **settings)
{
    struct str nulls = null_settings(rq, in);
    if (!str_is_null(nulls)) {
        fail(out, KERR_INVALID_CONFIG,
             arena_printf(&rq->arena, "Null value not supported for topic configs: %.*s", STR_ARG(nulls)));
        return;
    }
    if (in->configs_count <= 0) return;
    size_t count = (size_t)in->configs_count;
    struct config_change *changes = arena_array(&rq->arena, struct config_change, count);
    for (size_t i = 0; i < count; i++)
        changes[i] = (struct config_change){in->configs[i].name, CONFIG_SET, in->configs[i].value};
    struct fault f = {0};
    const struct config *cfg = broker_config(rq->broker, rq->loop);
    enum config_verdict v = config_alter_topic(settings, cfg, NULL, changes, count, &f);
    if (v != CONFIG_ACCEPTED)
        fail(out, v == CONFIG_BAD_VALUE ? KERR_INVALID_CONFIG : KERR_INVALID_REQUEST,
             arena_str(&rq->arena, str_of(f.text)));
}

static void check_topic(struct request *rq, const topic_in *in, bool repeated, result_out *out,
                        struct config_map **settings)
{
    if (str_is(in->name, "__cluster_metadata")) {
        fail(out, KERR_INVALID_REQUEST, STR("Creation of internal topic __cluster_metadata is prohibited."));
        return;
    }
    if (repeated) {
        fail(out, KERR_INVALID_REQUEST, STR("Found multiple entries for this topic."));
        return;
    }
    check_settings(rq, in, out, settings);
    /* Whoever creates what exists is told so first, whatever else is wrong. */
    if (out->error_code && metadata_topic(rq->broker->metadata, in->name))
        fail(out, KERR_TOPIC_ALREADY_EXISTS,
             arena_printf(&rq->arena, "Topic '%.*s' already exists.", STR_ARG(in->name)));
}

/* ---- To the controller */

static const struct controller_assignment *assignments_of(struct request *rq, const topic_in *in)
{
    size_t count = (size_t)MAX(in->assignments_count, 0);
    struct controller_assignment *list = arena_array(&rq->arena, struct controller_assignment, count);
    for (size_t i = 0; i < count; i++)
        list[i] = (struct controller_assignment){.partition = in->assignments[i].partition_index,
                                                 .brokers = in->assignments[i].broker_ids,
                                                 .broker_count = (size_t)MAX(in->assignments[i].broker_ids_count, 0)};
    return list;
}

static struct controller_new_topic new_topic(struct request *rq, const topic_in *in, const struct config_map *settings)
{
    size_t count = settings ? config_map_count(settings) : 0;
    struct znode_setting *list = arena_array(&rq->arena, struct znode_setting, count);
    for (size_t i = 0; i < count; i++) {
        const struct config_pair *p = config_map_at(settings, i);
        list[i] = (struct znode_setting){str_of(p->name), str_of(p->value)};
    }
    return (struct controller_new_topic){
        .name = in->name,
        .partition_count = in->num_partitions,
        .replication_factor = in->replication_factor,
        .assignments = assignments_of(rq, in),
        .assignment_count = (size_t)MAX(in->assignments_count, 0),
        .settings = list,
        .setting_count = count,
    };
}

/* KIP-525: what the topic is configured to. */
static void put_configs(struct request *rq, result_out *out, const struct config_map *settings, struct arena *scratch)
{
    const struct config *cfg = broker_config(rq->broker, rq->loop);
    struct config_entries entries = config_describe_topic(cfg, settings, scratch);
    out->configs = arena_array(&rq->arena, config_out, entries.count);
    for (size_t i = 0; i < entries.count; i++) {
        const struct config_entry *e = &entries.items[i];
        out->configs[out->configs_count++] = (config_out){.name = arena_str(&rq->arena, str_of(e->name)),
                                                          .value = arena_str(&rq->arena, str_of(e->value)),
                                                          .read_only = e->read_only,
                                                          .config_source = (int8_t)e->source,
                                                          .is_sensitive = e->sensitive};
    }
}

/* The controller's answer; the request's loop. */
static void on_created(void *arg, const struct controller_results *r)
{
    struct request *rq = arg;
    struct create_topics *ct = rq->op;
    ASSERT(r->count == ct->count);
    struct arena scratch;
    arena_init(&scratch, SIZE_MAX);
    for (size_t i = 0; i < r->count; i++) {
        const struct controller_result *from = &r->results[i];
        struct creation *c = &ct->creations[i];
        fail(c->out, from->kerr, arena_str(&rq->arena, from->message));
        if (!from->kerr) {
            c->out->topic_id = from->topic_id;
            c->out->num_partitions = from->partition_count;
            c->out->replication_factor = from->replication_factor;
            put_configs(rq, c->out, c->settings, &scratch);
            arena_reset(&scratch);
        }
        config_map_free(c->settings);
    }
    arena_fini(&scratch);
    ct->done = true;
    request_wake(rq);
}

static void create_all(struct request *rq, struct create_topics *ct)
{
    const struct create_topics_request *in = rq->in;
    struct create_topics_response *out = rq->out;
    size_t count = (size_t)in->topics_count;
    struct named *names = arena_array(&rq->arena, struct named, count);
    for (size_t i = 0; i < count; i++) names[i].topic = in->topics[i].name;
    named_find_repeats(names, count, &rq->arena);
    struct controller_new_topic *topics = arena_array(&rq->arena, struct controller_new_topic, count);
    ct->creations = arena_array(&rq->arena, struct creation, count);
    out->topics = arena_array(&rq->arena, result_out, count);
    for (size_t i = 0; i < count; i++) {
        result_out *to = &out->topics[out->topics_count++];
        *to = create_topics_response_creatable_topic_result_default;
        to->name = in->topics[i].name;
        to->error_message = STR_NULL;
        struct config_map *settings = NULL;
        if (!controller_is_active(rq->broker->controller))
            fail(to, KERR_NOT_CONTROLLER,
                 STR_NULL); /* before anything else, as in Kafka: another one may think otherwise */
        else if (count > TOPICS_MAX)
            fail(to, KERR_INVALID_REQUEST, STR("Too many topics in one request."));
        else
            check_topic(rq, &in->topics[i], names[i].repeated, to, &settings);
        if (to->error_code) {
            config_map_free(settings);
            continue;
        }
        topics[ct->count] = new_topic(rq, &in->topics[i], settings);
        ct->creations[ct->count++] = (struct creation){to, settings};
    }
    ct->done = ct->count == 0;
    if (!ct->done)
        controller_create_topics(rq->broker->controller, topics, ct->count, in->validate_only, in->timeout_ms,
                                 (struct controller_to){rq->loop, on_created, rq});
}

enum step create_topics_handle(struct request *rq)
{
    struct create_topics *ct = REQUEST_OP(rq, struct create_topics);
    if (!ct->sent) {
        ct->sent = true;
        create_all(rq, ct);
    }
    return ct->done ? DONE : WAIT; /* also when cancelled: the controller answers by its own deadline */
}
