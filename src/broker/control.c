/* control.c: see control.h.
 *
 * Replies come in a later turn of the loop, as they would from the network: the controller relies on it.  LeaderAndIsr
 * waits until the settings of new topics are read.  It takes a while to apply, as StopReplica does, so each waits for
 * the one before: else the deletion of a topic could overtake its creation and leave replicas of no topic behind, and
 * two that name a new partition would open its directory twice.  UpdateMetadata waits for nobody: nothing in it depends
 * on what is here. */
#include "broker/control.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "broker/broker.h"
#include "broker/dynamic_config.h"
#include "broker/to_controller.h"
#include "wire/topic_name.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum {
    /* The tables of a topic's partitions reach up to its highest number.  A request may make them grow by as much as
     * any real one does, and a lie by no more than we can bear. */
    GROWTH_ALLOWED = 1 << 20,
    GROWTH_EACH = 16 /* and this for each partition that it names */
};

struct control {
    struct broker *br;
    int32_t controller_epoch; /* the highest seen */
    bool metadata_came;
    size_t leader_and_isr_out; /* not replied to yet */
    struct list calls;         /* taken and not handed over yet, in order */
    bool busy;                 /* one is handed over and not replied to */
    void (*first)(void *arg);
    void *first_arg;
    void (*broker_changed)(void *arg, int32_t broker_id);
    void *broker_changed_arg;
};

struct control *control_new(struct broker *br)
{
    struct control *ct = mem_zalloc(1, sizeof *ct);
    ct->br = br;
    list_init(&ct->calls);
    return ct;
}

void control_free(struct control *ct)
{
    if (!ct) return;
    ASSERT(list_is_empty(&ct->calls) && !ct->busy);
    mem_free(ct);
}

void control_on_first(struct control *ct, void (*first)(void *arg), void *arg)
{
    ct->first = first;
    ct->first_arg = arg;
}

void control_on_broker_changed(struct control *ct, void (*changed)(void *arg, int32_t broker_id), void *arg)
{
    ct->broker_changed = changed;
    ct->broker_changed_arg = arg;
}

/* ---- Who may tell us anything */

struct sender {
    const char *message;
    int32_t controller_id, controller_epoch;
    int64_t broker_epoch;
};

/* An epoch above ours is no mistake: the controller may hear of our registration before we do.  -1: an old version does
 * not tell. */
static enum kerr check_sender(struct control *ct, const struct sender *from)
{
    enum { UNKNOWN_EPOCH = -1 };
    int64_t own_epoch = ct->br->epoch;
    if (from->broker_epoch != UNKNOWN_EPOCH && from->broker_epoch < own_epoch) {
        LOG_LIMITED(LOG_LEVEL_WARN, "stale_broker_epoch",
                    "message=%s controller=%d broker_epoch=%" PRId64 " own=%" PRId64 "; refused", from->message,
                    from->controller_id, from->broker_epoch, own_epoch);
        return KERR_STALE_BROKER_EPOCH;
    }
    if (from->controller_epoch < ct->controller_epoch) {
        LOG_LIMITED(LOG_LEVEL_WARN, "stale_controller_epoch", "message=%s controller=%d epoch=%d seen=%d; refused",
                    from->message, from->controller_id, from->controller_epoch, ct->controller_epoch);
        return KERR_STALE_CONTROLLER_EPOCH;
    }
    ct->controller_epoch = from->controller_epoch;
    return KERR_NONE;
}

/* What the tables of partitions would grow to. */
struct growth {
    int64_t tables, partitions;
    int32_t index_max; /* of the topic at hand */
    bool bad;
};

static void growth_topic(struct growth *g, struct str topic)
{
    if (g->index_max >= 0) g->tables += (int64_t)g->index_max + 1;
    g->index_max = -1;
    if (!topic_name_is_valid(topic)) g->bad = true;
}

static void growth_partition(struct growth *g, int32_t index)
{
    g->partitions++;
    g->index_max = MAX(g->index_max, index);
    if (index < 0) g->bad = true;
}

static void check_role(struct growth *g, const struct leader_and_isr_request_leader_and_isr_partition_state *ps)
{
    growth_partition(g, ps->partition_index);
    if (ps->leader_epoch < 0 || ps->replicas_count > CONTROLLER_REPLICAS_MAX || ps->isr_count > CONTROLLER_REPLICAS_MAX)
        g->bad = true;
}

static enum kerr growth_verdict(struct growth *g, const char *message)
{
    if (g->index_max >= 0) g->tables += (int64_t)g->index_max + 1;
    if (!g->bad && g->tables <= GROWTH_ALLOWED + GROWTH_EACH * g->partitions) return KERR_NONE;
    LOG_LIMITED(LOG_LEVEL_WARN, "control_request_refused",
                "message=%s reason=\"a topic's name or a partition's number or role that cannot be\"", message);
    return KERR_INVALID_REQUEST;
}

/* ---- LeaderAndIsr and StopReplica, in the order in which they come */

struct call {
    struct list_node node;
    struct loop_msg msg; /* carries a refusal */
    struct control *ct;
    bool ready;
    const struct leader_and_isr_request *leader_and_isr; /* this */
    leader_and_isr_reply_fn leader_and_isr_reply;
    const struct stop_replica_request *stop_replica; /* or this */
    stop_replica_reply_fn stop_replica_reply;
    void *arg;
    enum kerr refused;
};

static void hand_over(struct control *ct);

static void tell_first(struct control *ct)
{
    if (!ct->first || !ct->metadata_came || ct->leader_and_isr_out > 0) return;
    void (*tell)(void *arg) = ct->first;
    ct->first = NULL;
    tell(ct->first_arg);
}

static void on_applied(void *arg, const struct leader_and_isr_response *response)
{
    struct call call = *(struct call *)arg;
    mem_free(arg);
    call.ct->busy = false;
    call.ct->leader_and_isr_out--;
    call.leader_and_isr_reply(call.arg, OK, response);
    hand_over(call.ct);
    tell_first(call.ct);
}

static void on_stopped(void *arg, const struct stop_replica_response *response)
{
    struct call call = *(struct call *)arg;
    mem_free(arg);
    call.ct->busy = false;
    call.stop_replica_reply(call.arg, OK, response);
    hand_over(call.ct);
}

/* LeaderAndIsr.EpochDuringDelete: the whole topic goes, not only our replica (KIP-570). */
static bool topic_is_deleted(const struct stop_replica_request_stop_replica_topic_state *ts)
{
    enum { EPOCH_DURING_DELETE = -2 };
    return ts->partition_states_count > 0 && ts->partition_states[0].leader_epoch == EPOCH_DURING_DELETE;
}

static void forget_deleted(struct broker *br, const struct stop_replica_request *rq)
{
    for (int32_t i = 0; i < rq->topic_states_count; i++)
        if (topic_is_deleted(&rq->topic_states[i]))
            dynamic_config_forget(br->dynamic_config, rq->topic_states[i].topic_name);
}

/* Hands over the next one if it is ready and none is under way. */
static void hand_over(struct control *ct)
{
    struct broker *br = ct->br;
    struct list_node *n = list_first(&ct->calls);
    if (ct->busy || !n) return;
    struct call *call = CONTAINER_OF(n, struct call, node);
    if (!call->ready) return;
    list_remove(n);
    ct->busy = true;
    if (call->leader_and_isr) {
        replicas_apply(br->replicas, br->id, call->leader_and_isr, on_applied, call);
    } else {
        forget_deleted(br, call->stop_replica);
        replicas_stop(br->replicas, call->stop_replica, on_stopped, call);
    }
}

static void on_prepared(void *arg)
{
    struct call *call = arg;
    call->ready = true;
    hand_over(call->ct);
}

static void reply_refused(struct loop_msg *msg)
{
    struct call call = *CONTAINER_OF(msg, struct call, msg);
    mem_free(CONTAINER_OF(msg, struct call, msg));
    if (call.leader_and_isr) {
        struct leader_and_isr_response res = leader_and_isr_response_default;
        res.error_code = (int16_t)call.refused;
        call.leader_and_isr_reply(call.arg, OK, &res);
    } else {
        struct stop_replica_response res = stop_replica_response_default;
        res.error_code = (int16_t)call.refused;
        call.stop_replica_reply(call.arg, OK, &res);
    }
}

/* Whether it is to be carried out; else the refusal is on its way. */
static bool call_is_taken(struct call *call, enum kerr kerr)
{
    struct control *ct = call->ct;
    if (!kerr) {
        list_push_back(&ct->calls, &call->node);
        return true;
    }
    call->refused = kerr;
    call->msg.run = reply_refused;
    loop_post(broker_home(ct->br), &call->msg);
    return false;
}

static int by_name(const void *a, const void *b)
{
    const struct leader_and_isr_request_leader_and_isr_topic_state *const *x = a, *const *y = b;
    return str_compare((*x)->topic_name, (*y)->topic_name);
}

static bool partition_is_named_twice(const struct leader_and_isr_request_leader_and_isr_topic_state *ts,
                                     struct arena *a)
{
    int32_t index_max = -1;
    for (int32_t i = 0; i < ts->partition_states_count; i++)
        index_max = MAX(index_max, ts->partition_states[i].partition_index);
    bool *named = arena_array(a, bool, (size_t)index_max + 1);
    for (int32_t i = 0; i < ts->partition_states_count; i++) {
        bool *it = &named[ts->partition_states[i].partition_index];
        if (*it) return true;
        *it = true;
    }
    return false;
}

/* One request must not open one log twice. */
static bool names_twice(const struct leader_and_isr_request *rq)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    size_t count = (size_t)rq->topic_states_count;
    const struct leader_and_isr_request_leader_and_isr_topic_state **topics =
        arena_array(&a, const struct leader_and_isr_request_leader_and_isr_topic_state *, count);
    bool twice = false;
    for (size_t i = 0; i < count; i++) {
        topics[i] = &rq->topic_states[i];
        twice |= partition_is_named_twice(topics[i], &a);
    }
    qsort(topics, count, sizeof(const struct leader_and_isr_request_leader_and_isr_topic_state *), by_name);
    for (size_t i = 1; i < count; i++) twice |= by_name(&topics[i - 1], &topics[i]) == 0;
    arena_fini(&a);
    return twice;
}

static enum kerr check_leader_and_isr(struct control *ct, const struct leader_and_isr_request *rq)
{
    static const char message[] = "LeaderAndIsr";
    struct growth g = {.index_max = -1};
    for (int32_t t = 0; t < rq->topic_states_count; t++) {
        const struct leader_and_isr_request_leader_and_isr_topic_state *ts = &rq->topic_states[t];
        growth_topic(&g, ts->topic_name);
        for (int32_t i = 0; i < ts->partition_states_count; i++) check_role(&g, &ts->partition_states[i]);
    }
    enum kerr kerr = growth_verdict(&g, message);
    if (kerr) return kerr;
    if (names_twice(rq)) return KERR_INVALID_REQUEST;
    return check_sender(ct, &(struct sender){message, rq->controller_id, rq->controller_epoch, rq->broker_epoch});
}

void control_leader_and_isr(struct control *ct, const struct leader_and_isr_request *rq, leader_and_isr_reply_fn reply,
                            void *arg)
{
    struct call *call = mem_zalloc(1, sizeof *call);
    *call = (struct call){.ct = ct, .leader_and_isr = rq, .leader_and_isr_reply = reply, .arg = arg};
    if (!call_is_taken(call, check_leader_and_isr(ct, rq))) return;
    ct->leader_and_isr_out++;
    dynamic_config_prepare(ct->br->dynamic_config, rq, on_prepared, call);
}

static enum kerr check_stop_replica(struct control *ct, const struct stop_replica_request *rq)
{
    static const char message[] = "StopReplica";
    struct growth g = {.index_max = -1};
    for (int32_t t = 0; t < rq->topic_states_count; t++) {
        growth_topic(&g, rq->topic_states[t].topic_name);
        for (int32_t i = 0; i < rq->topic_states[t].partition_states_count; i++)
            if (rq->topic_states[t].partition_states[i].partition_index < 0) g.bad = true; /* nothing grows */
    }
    enum kerr kerr = growth_verdict(&g, message);
    if (kerr) return kerr;
    return check_sender(ct, &(struct sender){message, rq->controller_id, rq->controller_epoch, rq->broker_epoch});
}

void control_stop_replica(struct control *ct, const struct stop_replica_request *rq, stop_replica_reply_fn reply,
                          void *arg)
{
    struct call *call = mem_zalloc(1, sizeof *call);
    *call = (struct call){.ct = ct, .ready = true, .stop_replica = rq, .stop_replica_reply = reply, .arg = arg};
    if (call_is_taken(call, check_stop_replica(ct, rq))) hand_over(ct);
}

/* ---- UpdateMetadata */

struct update_metadata_call {
    struct loop_msg msg;
    struct control *ct;
    update_metadata_reply_fn reply;
    void *arg;
    enum kerr kerr;
};

static void reply_update_metadata(struct loop_msg *msg)
{
    struct update_metadata_call call = *CONTAINER_OF(msg, struct update_metadata_call, msg);
    mem_free(CONTAINER_OF(msg, struct update_metadata_call, msg));
    struct update_metadata_response res = update_metadata_response_default;
    res.error_code = (int16_t)call.kerr;
    call.reply(call.arg, OK, &res);
    if (call.kerr) return;
    call.ct->metadata_came = true;
    tell_first(call.ct);
}

static bool same_endpoints(const struct node *a, const struct node *b)
{
    if (a->endpoint_count != b->endpoint_count) return false;
    for (int32_t i = 0; i < a->endpoint_count; i++) {
        const struct node_endpoint *x = &a->endpoints[i], *y = &b->endpoints[i];
        if (x->port != y->port || !str_equal(x->host, y->host) || !str_equal(x->listener, y->listener)) return false;
    }
    return true;
}

/* Both are sorted by id. */
static void tell_changed_brokers(struct control *ct, const struct cluster_view *before, const struct cluster_view *now)
{
    int32_t i = 0, k = 0;
    while (ct->broker_changed && (i < before->count || k < now->count)) {
        const struct node *a = &before->nodes[i], *b = &now->nodes[k]; /* maybe behind the last one */
        bool all_gone = i == before->count, all_came = k == now->count;
        /* Below 0: it is gone; above: it came. */
        int32_t order = all_gone ? 1 : all_came ? -1 : (a->id > b->id) - (a->id < b->id);
        if (order != 0 || !same_endpoints(a, b)) ct->broker_changed(ct->broker_changed_arg, order < 0 ? a->id : b->id);
        i += order <= 0;
        k += order >= 0;
    }
}

static enum kerr check_update_metadata(struct control *ct, const struct update_metadata_request *rq)
{
    static const char message[] = "UpdateMetadata";
    struct growth g = {.index_max = -1};
    for (int32_t t = 0; t < rq->topic_states_count; t++) {
        const struct update_metadata_request_update_metadata_topic_state *ts = &rq->topic_states[t];
        growth_topic(&g, ts->topic_name);
        for (int32_t i = 0; i < ts->partition_states_count; i++)
            growth_partition(&g, ts->partition_states[i].partition_index);
    }
    enum kerr kerr = growth_verdict(&g, message);
    if (kerr) return kerr;
    return check_sender(ct, &(struct sender){message, rq->controller_id, rq->controller_epoch, rq->broker_epoch});
}

void control_update_metadata(struct control *ct, const struct update_metadata_request *rq,
                             update_metadata_reply_fn reply, void *arg)
{
    struct broker *br = ct->br;
    struct update_metadata_call *call = mem_zalloc(1, sizeof *call);
    *call = (struct update_metadata_call){.ct = ct, .reply = reply, .arg = arg};
    call->kerr = check_update_metadata(ct, rq);
    if (!call->kerr) {
        const struct cluster_view *before = metadata_cluster(br->metadata); /* good for this turn */
        metadata_update(br->metadata, rq);
        tell_changed_brokers(ct, before, metadata_cluster(br->metadata));
        to_controller_changed(br->to_controller);
    }
    call->msg.run = reply_update_metadata;
    loop_post(broker_home(br), &call->msg);
}
