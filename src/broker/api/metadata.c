/* Metadata (key 3): the brokers' addresses, and topics by name, by id or all.
 *
 * The answer is made in one turn and encoded in the same, so it lends names and replica lists from broker/metadata.h
 * instead of copying them. */
#include "broker/api/common.h"
#include "broker/api/handlers.h"
#include "broker/api/named.h"
#include "broker/auto_create.h"
#include "broker/server.h"
#include "wire/gen/metadata.h"
#include "wire/topic_name.h"

typedef struct metadata_response_metadata_response_topic answer_topic;
typedef struct metadata_response_metadata_response_partition answer_partition;

enum { CREATED_MAX = 1000 }; /* by one request; what is beyond looks unknown and is asked for again */

enum { IDS_SINCE = 12 }; /* KIP-516: versions 10 and 11 have the field, but Kafka refuses ids in them */

struct metadata_op {
    enum { METADATA_CHECK, METADATA_CREATE } stage;
    struct named *wanted; /* names or ids, in order of the request; in->topics_count of them */
    bool by_id, all;
    struct auto_create create; /* names and verdicts in order of the request */
    bool created;
};

/* ---- Partitions */

/* Version 0 lists only replicas that can be reached, and says so with an error (below). */
static int32_t *reachable_ids(struct request *rq, const int32_t *ids, int32_t *count, struct str listener)
{
    const struct cluster_view *cluster = metadata_cluster(rq->broker->metadata);
    int32_t *out = arena_array(&rq->arena, int32_t, (size_t)*count);
    int32_t kept = 0;
    for (int32_t i = 0; i < *count; i++)
        if (api_endpoint(cluster, ids[i], listener)) out[kept++] = ids[i];
    *count = kept;
    return out;
}

static enum kerr leader_fault(const struct request *rq, int32_t leader)
{
    /* From version 6 on a leader without this listener is told apart, since it is a fault of configuration. */
    bool alive = cluster_node(metadata_cluster(rq->broker->metadata), leader) != NULL;
    return alive && rq->version >= 6 ? KERR_LISTENER_NOT_FOUND : KERR_LEADER_NOT_AVAILABLE;
}

static void fill_partition(struct request *rq, answer_partition *out, const struct partition_view *p, int32_t index,
                           struct str listener)
{
    *out = metadata_response_metadata_response_partition_default;
    out->partition_index = index;
    out->leader_epoch = p->leader_epoch;
    out->replica_nodes = api_lend_ids(p->replicas);
    out->replica_nodes_count = p->replica_count;
    out->isr_nodes = api_lend_ids(p->isr);
    out->isr_nodes_count = p->isr_count;
    out->offline_replicas = api_lend_ids(p->offline);
    out->offline_replicas_count = p->offline_count;
    if (rq->version == 0) {
        out->replica_nodes = reachable_ids(rq, p->replicas, &out->replica_nodes_count, listener);
        out->isr_nodes = reachable_ids(rq, p->isr, &out->isr_nodes_count, listener);
    }
    if (!api_endpoint(metadata_cluster(rq->broker->metadata), p->leader, listener)) {
        out->leader_id = -1;
        out->error_code = (int16_t)leader_fault(rq, p->leader);
        return;
    }
    out->leader_id = p->leader;
    if (out->replica_nodes_count < p->replica_count || out->isr_nodes_count < p->isr_count)
        out->error_code = KERR_REPLICA_NOT_AVAILABLE;
}

/* ---- Topics */

static void fill_topic(struct request *rq, answer_topic *out, const struct topic_view *t, struct str listener)
{
    out->name = t->name;
    out->topic_id = t->id;
    out->is_internal = t->internal;
    out->partitions = arena_array(&rq->arena, answer_partition, (size_t)t->partition_count);
    for (int32_t i = 0; i < t->partition_count; i++)
        if (t->partitions[i].known)
            fill_partition(rq, &out->partitions[out->partitions_count++], &t->partitions[i], i, listener);
}

static answer_topic *add_topic(struct request *rq)
{
    const struct metadata_request *in = rq->in;
    struct metadata_response *out = rq->out;
    answer_topic *t = &out->topics[out->topics_count++];
    *t = metadata_response_metadata_response_topic_default;
    if (in->include_topic_authorized_operations) t->topic_authorized_operations = ACL_ALL_OF_TOPIC;
    return t;
}

static enum kerr missing_fault(struct str name)
{
    return topic_name_is_valid(name) ? KERR_UNKNOWN_TOPIC_OR_PARTITION : KERR_INVALID_TOPIC_EXCEPTION;
}

static void answer_all(struct request *rq, struct str listener)
{
    struct metadata_response *out = rq->out;
    int32_t count;
    const struct topic_view **topics = api_all_topics(rq, &count);
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)count);
    for (int32_t i = 0; i < count; i++) fill_topic(rq, add_topic(rq), topics[i], listener);
}

static void answer_by_name(struct request *rq, const struct metadata_op *op, struct str listener)
{
    const struct metadata_request *in = rq->in;
    int32_t asked = 0; /* names that the controller was asked to create come in the same order */
    for (int32_t i = 0; i < in->topics_count; i++) {
        if (op->wanted[i].again) continue;
        struct str name = in->topics[i].name;
        bool created = asked < op->create.count && op->create.names[asked].data == name.data;
        enum kerr verdict = created ? op->create.kerr[asked++] : missing_fault(name);
        answer_topic *t = add_topic(rq);
        const struct topic_view *view = metadata_topic(rq->broker->metadata, name);
        if (view) {
            fill_topic(rq, t, view, listener);
        } else {
            t->name = name;
            t->error_code = (int16_t)verdict;
            t->is_internal = topic_is_internal(name);
        }
    }
}

static void answer_by_id(struct request *rq, const struct metadata_op *op, struct str listener)
{
    const struct metadata_request *in = rq->in;
    for (int32_t i = 0; i < in->topics_count; i++) {
        struct uuid id = in->topics[i].topic_id;
        /* One id makes it a request by ids: what is named beside it is passed over, as in Kafka. */
        if (op->wanted[i].again || uuid_is_zero(id)) continue;
        answer_topic *t = add_topic(rq);
        const struct topic_view *view = metadata_topic_by_id(rq->broker->metadata, id);
        if (view) {
            fill_topic(rq, t, view, listener);
        } else {
            t->name = STR_NULL;
            t->topic_id = id;
            t->error_code = KERR_UNKNOWN_TOPIC_ID;
            t->topic_authorized_operations = INT32_MIN;
        }
    }
}

/* ---- The whole answer */

/* No controller has spoken to us yet.  Clients that are told of no broker at all forget those that they knew, and some
 * never ask again (librdkafka 2.16, when it had to begin anew from its bootstrap list). */
static void answer_self(struct request *rq)
{
    struct metadata_response *out = rq->out;
    const struct listener_state *l = rq->conn->listener;
    out->brokers = arena_array(&rq->arena, struct metadata_response_metadata_response_broker, 1);
    out->brokers_count = 1;
    *out->brokers = metadata_response_metadata_response_broker_default;
    out->brokers->node_id = rq->broker->id;
    out->brokers->host = str_of(l->advertised_host);
    out->brokers->port = l->advertised_port;
}

static void answer_cluster(struct request *rq, struct str listener)
{
    const struct metadata_request *in = rq->in;
    struct metadata_response *out = rq->out;
    const struct cluster_view *cluster = metadata_cluster(rq->broker->metadata);
    out->cluster_id = str_of(rq->broker->cluster_id);
    out->controller_id = cluster->controller_id;
    if (in->include_cluster_authorized_operations) out->cluster_authorized_operations = ACL_ALL_OF_CLUSTER;
    out->brokers = arena_array(&rq->arena, struct metadata_response_metadata_response_broker, (size_t)cluster->count);
    for (int32_t i = 0; i < cluster->count; i++) {
        const struct node *n = &cluster->nodes[i];
        const struct node_endpoint *e = node_endpoint(n, listener);
        if (!e) continue;
        struct metadata_response_metadata_response_broker *b = &out->brokers[out->brokers_count++];
        *b = metadata_response_metadata_response_broker_default;
        b->node_id = n->id;
        b->host = e->host;
        b->port = e->port;
        b->rack = n->rack;
    }
    if (cluster->count == 0) answer_self(rq);
}

static void answer(struct request *rq, const struct metadata_op *op)
{
    const struct metadata_request *in = rq->in;
    struct metadata_response *out = rq->out;
    struct str listener = api_listener(rq);
    answer_cluster(rq, listener);
    if (op->all) {
        answer_all(rq, listener);
        return;
    }
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)in->topics_count);
    if (op->by_id)
        answer_by_id(rq, op, listener);
    else
        answer_by_name(rq, op, listener);
}

/* The request as a whole is refused. */
static void answer_refusal(struct request *rq, enum kerr kerr)
{
    const struct metadata_request *in = rq->in;
    struct metadata_response *out = rq->out;
    out->error_code = (int16_t)kerr;
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)in->topics_count);
    for (int32_t i = 0; i < in->topics_count; i++) {
        answer_topic *t = &out->topics[out->topics_count++];
        *t = metadata_response_metadata_response_topic_default;
        t->name = str_is_null(in->topics[i].name) ? STR_EMPTY : in->topics[i].name;
        t->topic_id = in->topics[i].topic_id;
        t->error_code = (int16_t)kerr;
    }
}

/* ---- Before it */

/* Null is all topics, an empty list none; but version 0 has no null, and there empty is all. */
static bool wants_all(const struct request *rq, const struct metadata_request *in)
{
    return in->topics_count < 0 || (in->topics_count == 0 && rq->version == 0);
}

/* False: malformed. */
static bool check_topics(struct request *rq, struct metadata_op *op)
{
    const struct metadata_request *in = rq->in;
    bool nameless = false;
    for (int32_t i = 0; i < in->topics_count; i++) {
        if (!uuid_is_zero(in->topics[i].topic_id))
            op->by_id = true;
        else if (str_is_null(in->topics[i].name))
            nameless = true;
    }
    if (rq->version < IDS_SINCE && op->by_id) return false;
    return !nameless || op->by_id;
}

static void find_repeats(struct request *rq, struct metadata_op *op)
{
    const struct metadata_request *in = rq->in;
    op->wanted = arena_array(&rq->arena, struct named, (size_t)in->topics_count);
    for (int32_t i = 0; i < in->topics_count; i++) {
        const struct uuid *id = &in->topics[i].topic_id;
        op->wanted[i].topic = op->by_id ? (struct str){(const char *)id->bytes, sizeof id->bytes} : in->topics[i].name;
    }
    named_find_repeats(op->wanted, (size_t)in->topics_count, &rq->arena);
}

static void on_created(struct auto_create *ac)
{
    CONTAINER_OF(ac, struct metadata_op, create)->created = true;
    request_wake(ac->rq);
}

/* Asks for the topics that are missing and may be created. */
static void start_creation(struct request *rq, struct metadata_op *op)
{
    const struct metadata_request *in = rq->in;
    if (op->all || op->by_id || !in->allow_auto_topic_creation) return;
    if (!config_bool(broker_config(rq->broker, rq->loop), CFG_AUTO_CREATE_TOPICS_ENABLE)) return;
    struct str *names = NULL;
    int32_t count = 0;
    for (int32_t i = 0; i < in->topics_count && count < CREATED_MAX; i++) {
        struct str name = in->topics[i].name;
        if (op->wanted[i].again || metadata_topic(rq->broker->metadata, name) || !topic_name_is_valid(name)) continue;
        if (!names) names = arena_array(&rq->arena, struct str, (size_t)in->topics_count);
        names[count++] = name;
    }
    if (!count) return;
    op->create = (struct auto_create){.names = names, .count = count, .done = on_created, .rq = rq};
    auto_create_topics(&op->create);
}

enum step metadata_handle(struct request *rq)
{
    const struct metadata_request *in = rq->in;
    struct metadata_op *op = REQUEST_OP(rq, struct metadata_op);
    switch (op->stage) {
    case METADATA_CHECK:
        op->all = wants_all(rq, in);
        if (!check_topics(rq, op)) {
            answer_refusal(rq, KERR_INVALID_REQUEST);
            return DONE;
        }
        if (!op->all) find_repeats(rq, op);
        start_creation(rq, op);
        op->stage = METADATA_CREATE;
        FALLTHROUGH;
    case METADATA_CREATE: /* woken by the controller's verdict; it uses our memory, so a cancelled one waits too */
        if (op->create.count > 0 && !op->created) return WAIT;
    }
    answer(rq, op);
    return DONE;
}
