/* DescribeConfigs (key 32, KIP-133, KIP-226, KIP-569): what topics and this broker are configured to, and why. */
#include <stdlib.h>

#include "broker/api/config_resource.h"
#include "broker/api/gather.h"
#include "broker/api/handlers.h"
#include "broker/api/named.h"
#include "broker/broker.h"
#include "broker/dynamic_config.h"
#include "wire/gen/describe_configs.h"
#include "wire/topic_name.h"

/* What one answer may take in memory: some 60,000 topics with all their keys. */
enum { ANSWER_BYTES_MAX = 256 << 20 };

typedef struct describe_configs_request_describe_configs_resource resource_in;
typedef struct describe_configs_response_describe_configs_result result_out;
typedef struct describe_configs_response_describe_configs_resource_result entry_out;
typedef struct describe_configs_response_describe_configs_synonym synonym_out;

struct describe {
    enum { DESCRIBE_READ, DESCRIBE_ANSWER } stage;
    struct gather reads;
};

static void fail(result_out *out, enum kerr kerr, struct str message)
{
    out->error_code = (int16_t)kerr;
    out->error_message = message;
}

/* ---- Entries */

/* Entries lend from a snapshot and from scratch memory: what goes into the answer is copied. */
static void put_synonyms(struct request *rq, entry_out *out, const struct config_entry *e)
{
    out->synonyms = arena_array(&rq->arena, synonym_out, e->synonym_count);
    for (size_t i = 0; i < e->synonym_count; i++)
        out->synonyms[out->synonyms_count++] =
            (synonym_out){.name = arena_str(&rq->arena, str_of(e->synonyms[i].name)),
                          .value = arena_str(&rq->arena, str_of(e->synonyms[i].value)),
                          .source = (int8_t)e->synonyms[i].source};
}

static void put_entry(struct request *rq, entry_out *out, const struct config_entry *e)
{
    const struct describe_configs_request *in = rq->in;
    *out = describe_configs_response_describe_configs_resource_result_default;
    out->name = arena_str(&rq->arena, str_of(e->name));
    out->value = arena_str(&rq->arena, str_of(e->value));
    out->read_only = e->read_only;
    out->is_sensitive = e->sensitive;
    out->config_source = (int8_t)e->source;
    out->config_type = (int8_t)e->type;
    out->documentation = in->include_documentation ? str_of(e->doc) : STR_NULL;
    out->is_default = rq->version == 0 && e->source == CONFIG_FROM_DEFAULT; /* later versions have the source instead */
    if (in->include_synonyms) put_synonyms(rq, out, e);
}

static int entry_compare(const void *a, const void *b)
{
    return strcmp((*(const struct config_entry *const *)a)->name, (*(const struct config_entry *const *)b)->name);
}

static int key_compare(const void *key, const void *entry)
{
    return str_compare(*(const struct str *)key, str_of((*(const struct config_entry *const *)entry)->name));
}

/* Which entries the resource asks for by name; NULL for all of them. */
static bool *wanted_entries(const resource_in *in, struct config_entries entries, struct arena *scratch)
{
    if (in->configuration_keys_count <= 0 || entries.count == 0) return NULL;
    const struct config_entry **sorted = arena_array(scratch, const struct config_entry *, entries.count);
    for (size_t i = 0; i < entries.count; i++) sorted[i] = &entries.items[i];
    qsort(sorted, entries.count, sizeof *sorted, entry_compare);
    bool *wanted = arena_array(scratch, bool, entries.count);
    for (int32_t k = 0; k < in->configuration_keys_count; k++) {
        const struct config_entry **found =
            bsearch(&in->configuration_keys[k], sorted, entries.count, sizeof *sorted, key_compare);
        if (found) wanted[*found - entries.items] = true;
    }
    return wanted;
}

static void put_entries(struct request *rq, result_out *out, const resource_in *in, struct config_entries entries,
                        struct arena *scratch)
{
    const bool *wanted = wanted_entries(in, entries, scratch);
    size_t count = 0;
    for (size_t i = 0; i < entries.count; i++) count += !wanted || wanted[i];
    out->configs = arena_array(&rq->arena, entry_out, count);
    for (size_t i = 0; i < entries.count; i++)
        if (!wanted || wanted[i]) put_entry(rq, &out->configs[out->configs_count++], &entries.items[i]);
}

/* ---- Resources */

static void describe_topic(struct request *rq, result_out *out, const resource_in *in, struct arena *scratch)
{
    const char *bad = topic_name_fault(in->resource_name);
    if (bad) {
        fail(out, KERR_INVALID_TOPIC_EXCEPTION, arena_printf(&rq->arena, "The topic's name %s.", bad));
        return;
    }
    if (!metadata_topic(rq->broker->metadata, in->resource_name)) {
        fail(out, KERR_UNKNOWN_TOPIC_OR_PARTITION, STR_NULL);
        return;
    }
    struct config_map *overrides = dynamic_config_topic(rq->broker->dynamic_config, in->resource_name);
    put_entries(rq, out, in, config_describe_topic(broker_config(rq->broker, rq->loop), overrides, scratch), scratch);
    config_map_free(overrides);
}

/* Whether the name is this broker's id; an error is set when it is not. */
static bool is_this_broker(struct request *rq, result_out *out, struct str name, const char *expected)
{
    int32_t id;
    if (!config_resource_broker_id(name, &id))
        fail(out, KERR_INVALID_REQUEST,
             arena_printf(&rq->arena, "Broker id must be an integer, but it is: %.*s", STR_ARG(name)));
    else if (id != rq->broker->id)
        fail(out, KERR_INVALID_REQUEST,
             arena_printf(&rq->arena, "Unexpected broker id, expected %d%s but received %.*s", rq->broker->id, expected,
                          STR_ARG(name)));
    else
        return true;
    return false;
}

static void describe_broker(struct request *rq, result_out *out, const resource_in *in, struct arena *scratch)
{
    const struct config *cfg = broker_config(rq->broker, rq->loop);
    if (in->resource_name.size == 0)
        put_entries(rq, out, in, config_describe_cluster(cfg, scratch), scratch);
    else if (is_this_broker(rq, out, in->resource_name, " or empty string,"))
        put_entries(rq, out, in, config_describe_broker(cfg, scratch), scratch);
}

static void describe_resource(struct request *rq, result_out *out, const resource_in *in, struct arena *scratch)
{
    bool unnamed = in->resource_name.size == 0;
    if (rq->arena.used > ANSWER_BYTES_MAX) {
        fail(out, KERR_INVALID_REQUEST, STR("The answer would be too large: ask for fewer resources in one request."));
        return;
    }
    switch (in->resource_type) {
    case RESOURCE_TOPIC: describe_topic(rq, out, in, scratch); break;
    case RESOURCE_BROKER: describe_broker(rq, out, in, scratch); break;
    case RESOURCE_BROKER_LOGGER: /* there are no loggers with levels of their own: the list is empty */
        if (unnamed)
            fail(out, KERR_INVALID_REQUEST, STR("Broker id must not be empty"));
        else
            (void)is_this_broker(rq, out, in->resource_name, "");
        break;
    case RESOURCE_CLIENT_METRICS:
        fail(out, KERR_INVALID_REQUEST,
             unnamed ? STR("Client metrics subscription name must not be empty")
                     : STR("Config type client-metrics is only supported on KRaft clusters"));
        break;
    case RESOURCE_GROUP:
        fail(out, KERR_INVALID_REQUEST,
             unnamed ? STR("Group name must not be empty")
                     : STR("Config type groups is only supported on KRaft clusters"));
        break;
    default:
        fail(out, KERR_INVALID_REQUEST,
             arena_printf(&rq->arena, "Unexpected resource type %s for resource %.*s",
                          config_resource_name(in->resource_type), STR_ARG(in->resource_name)));
    }
}

/* ---- The handler */

/* Settings of topics that have no replica here are not followed: they are read now.  True: there are none such. */
static bool read_others(struct request *rq, struct gather *g)
{
    const struct describe_configs_request *in = rq->in;
    struct named *names = arena_array(&rq->arena, struct named, (size_t)in->resources_count);
    size_t count = 0;
    for (int32_t i = 0; i < in->resources_count; i++) {
        struct str name = in->resources[i].resource_name;
        if (in->resources[i].resource_type != RESOURCE_TOPIC || replicas_find(rq->broker->replicas, name)) continue;
        if (metadata_topic(rq->broker->metadata, name)) names[count++].topic = name;
    }
    named_find_repeats(names, count, &rq->arena);
    gather_begin(g, rq);
    for (size_t i = 0; i < count; i++) {
        if (names[i].again) continue;
        gather_add(g);
        dynamic_config_refresh(rq->broker->dynamic_config, CONFIG_ENTITY_TOPIC, names[i].topic, gather_arrived, g);
    }
    return gather_end(g);
}

static void describe_all(struct request *rq)
{
    const struct describe_configs_request *in = rq->in;
    struct describe_configs_response *out = rq->out;
    struct arena scratch;
    arena_init(&scratch, SIZE_MAX);
    out->results = arena_array(&rq->arena, result_out, (size_t)in->resources_count);
    for (int32_t i = 0; i < in->resources_count; i++) {
        result_out *to = &out->results[out->results_count++];
        *to = describe_configs_response_describe_configs_result_default;
        to->resource_type = in->resources[i].resource_type;
        to->resource_name = in->resources[i].resource_name;
        describe_resource(rq, to, &in->resources[i], &scratch);
        arena_reset(&scratch);
    }
    arena_fini(&scratch);
}

enum step describe_configs_handle(struct request *rq)
{
    struct describe *d = REQUEST_OP(rq, struct describe);
    switch (d->stage) {
    case DESCRIBE_READ: /* what is not in memory */
        d->stage = DESCRIBE_ANSWER;
        if (!read_others(rq, &d->reads)) return WAIT;
        FALLTHROUGH;
    case DESCRIBE_ANSWER: /* woken when it is */
        if (!d->reads.complete) return WAIT;
        describe_all(rq);
        return DONE;
    }
    UNREACHABLE();
}
