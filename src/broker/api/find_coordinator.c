/* FindCoordinator (key 10): which broker has a group; before version 4 of one, later (KIP-699) of several.
 *
 * A group lives in a partition of __consumer_offsets, and that partition's leader is its coordinator.  The topic is
 * made when somebody asks for the first time.  Transactions live in __transaction_state likewise.  Our brokers have no
 * coordinator for them, but Apache Kafka's of the same cluster do: clients are sent there. */
#include "broker/api/common.h"
#include "broker/api/handlers.h"
#include "broker/auto_create.h"
#include "broker/groups.h"
#include "wire/gen/find_coordinator.h"

enum key_type { KEY_GROUP = 0, KEY_TRANSACTION = 1, KEY_SHARE = 2 };
enum { SEVERAL_SINCE = 4 };
/* For the offsets topic's fifty logs to be made: told too early, clients find nobody there, and some come back only
 * after seconds. */
enum { CREATE_WAIT_MS = 2000 };

static const struct str offsets_topic = {OFFSETS_TOPIC, sizeof OFFSETS_TOPIC - 1};
static const struct str transactions_topic = {"__transaction_state", sizeof "__transaction_state" - 1};

struct find_op {
    enum { FIND_CHECK, FIND_CREATE } stage;
    struct auto_create create;
    bool created;
};

struct found {
    enum kerr kerr;
    const char *message;
    int32_t node;
    const struct node_endpoint *endpoint;
};

static struct found nothing(enum kerr kerr, const char *message)
{
    return (struct found){.kerr = kerr, .message = message, .node = -1};
}

static bool is_led_here(struct broker *br, int32_t index)
{
    const struct partition *p = topic_partition(replicas_find(br->replicas, offsets_topic), index);
    return p && partition_check_leader(p, -1) == KERR_NONE;
}

static struct found find_group(struct request *rq, struct str group)
{
    struct broker *br = rq->broker;
    const struct topic_view *t = metadata_topic(br->metadata, offsets_topic);
    int32_t partitions = groups_partition_count(br->groups);
    int32_t index = partitions ? group_partition_of(group, partitions) : -1;
    const struct node_endpoint *at = NULL;
    bool ours = topic_has_partition(t, index) && t->partitions[index].leader == br->id;
    if (ours && !is_led_here(br, index)) /* its log is being made or opened */
        t = NULL;
    if (topic_has_partition(t, index))
        at = api_endpoint(metadata_cluster(br->metadata), t->partitions[index].leader, api_listener(rq));
    if (!at) return nothing(KERR_COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.");
    return (struct found){.node = t->partitions[index].leader, .endpoint = at};
}

static struct found find_transaction(struct request *rq, struct str transactional_id)
{
    struct broker *br = rq->broker;
    const struct topic_view *t = metadata_topic(br->metadata, transactions_topic);
    const struct cluster_view *cv = metadata_cluster(br->metadata);
    if (!t || cv->count < 2) /* as InitProducerId: what ends a producer, instead of having it try for ever */
        return nothing(KERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactions are not served by this broker.");
    int32_t index = group_partition_of(transactional_id, t->partition_count);
    int32_t leader = topic_has_partition(t, index) ? t->partitions[index].leader : -1;
    const struct node_endpoint *at = api_endpoint(cv, leader, api_listener(rq));
    if (leader == br->id) /* a retriable error: the partition can be moved to a broker of Kafka's */
        return nothing(KERR_COORDINATOR_NOT_AVAILABLE,
                       "A broker that serves no transactions leads this id's partition of __transaction_state.");
    if (!at) return nothing(KERR_COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.");
    return (struct found){.node = leader, .endpoint = at};
}

static struct found find(struct request *rq, int8_t type, struct str key)
{
    switch (type) {
    case KEY_GROUP: return find_group(rq, key);
    case KEY_TRANSACTION: return find_transaction(rq, key);
    case KEY_SHARE: return nothing(KERR_INVALID_REQUEST, "Share groups are not served by this broker.");
    default: return nothing(KERR_INVALID_REQUEST, "There is no coordinator of this type.");
    }
}

/* Only from its message can the old versions' clients tell more than the code. */
static void answer_one(struct request *rq)
{
    const struct find_coordinator_request *in = rq->in;
    struct find_coordinator_response *out = rq->out;
    const struct found f = find(rq, in->key_type, in->key);
    out->error_code = (int16_t)f.kerr;
    out->error_message = f.kerr ? str_of(f.message) : STR("NONE");
    out->node_id = f.node;
    out->host = f.endpoint ? f.endpoint->host : STR_EMPTY;
    out->port = f.endpoint ? f.endpoint->port : -1;
}

static void answer_several(struct request *rq)
{
    const struct find_coordinator_request *in = rq->in;
    struct find_coordinator_response *out = rq->out;
    out->coordinators =
        arena_array(&rq->arena, struct find_coordinator_response_coordinator, (size_t)in->coordinator_keys_count);
    out->coordinators_count = in->coordinator_keys_count;
    for (int32_t i = 0; i < in->coordinator_keys_count; i++) {
        struct find_coordinator_response_coordinator *c = &out->coordinators[i];
        const struct found f = find(rq, in->key_type, in->coordinator_keys[i]);
        *c = find_coordinator_response_coordinator_default;
        c->key = in->coordinator_keys[i];
        c->error_code = (int16_t)f.kerr;
        if (f.kerr) c->error_message = str_of(f.message);
        c->node_id = f.node;
        c->host = f.endpoint ? f.endpoint->host : STR_EMPTY;
        c->port = f.endpoint ? f.endpoint->port : -1;
    }
}

static void on_created(struct auto_create *ac)
{
    CONTAINER_OF(ac, struct find_op, create)->created = true;
    request_wake(ac->rq);
}

/* Whether clients may make topics by asking for them has no say here (Kafka). */
static bool must_create(struct request *rq)
{
    const struct find_coordinator_request *in = rq->in;
    bool asked = rq->version < SEVERAL_SINCE || in->coordinator_keys_count > 0;
    return asked && in->key_type == KEY_GROUP && !metadata_topic(rq->broker->metadata, offsets_topic);
}

enum step find_coordinator_handle(struct request *rq)
{
    struct find_op *op = REQUEST_OP(rq, struct find_op);
    switch (op->stage) {
    case FIND_CHECK:
        op->stage = FIND_CREATE;
        if (must_create(rq)) {
            op->create = (struct auto_create){
                .names = &offsets_topic, .count = 1, .wait_ms = CREATE_WAIT_MS, .done = on_created, .rq = rq};
            auto_create_topics(&op->create);
            return WAIT;
        }
        FALLTHROUGH;
    case FIND_CREATE: /* woken by the controller's verdict; it uses our memory, so a cancelled one waits too */
        if (op->create.count > 0 && !op->created) return WAIT;
    }
    if (rq->version < SEVERAL_SINCE)
        answer_one(rq);
    else
        answer_several(rq);
    return DONE;
}
