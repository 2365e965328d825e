/* own_channel.c: the controller's messages to its own broker.
 *
 * Replies come in a later turn of the loop, as they would from the network: the controller relies on it.  LeaderAndIsr
 * waits until the settings of new topics are read.  It takes a while to apply, as StopReplica does, so each waits for
 * the one before: else the deletion of a topic could overtake its creation and leave replicas of no topic behind, and
 * two that name a new partition would open its directory twice. */
#include "broker/own_channel.h"

#include "base/mem.h"
#include "broker/dynamic_config.h"
#include "controller/controller.h"

#define LOG_MODULE "broker"
#include "base/log.h"

struct own_channel {
    struct broker_run *run;
    void (*first_metadata)(void *arg);
    void *first_metadata_arg;
    bool metadata_came;
    size_t leader_and_isr_out; /* not replied to yet */
    struct list calls;         /* sent and not handed over yet, in order */
    bool busy;                 /* one is handed over and not replied to */
};

/* ---- LeaderAndIsr and StopReplica, in the order in which they are sent */

struct call {
    struct list_node node;
    struct own_channel *ch;
    bool ready;
    const struct leader_and_isr_request *leader_and_isr; /* this */
    leader_and_isr_reply_fn leader_and_isr_reply;
    const struct stop_replica_request *stop_replica; /* or this */
    stop_replica_reply_fn stop_replica_reply;
    void *arg;
};

static void hand_over(struct own_channel *ch);

/* The broker knows the cluster and has taken its roles: now clients can be let in. */
static void tell_first(struct own_channel *ch)
{
    if (!ch->first_metadata || !ch->metadata_came || ch->leader_and_isr_out > 0) return;
    void (*tell)(void *arg) = ch->first_metadata;
    ch->first_metadata = NULL;
    tell(ch->first_metadata_arg);
}

static void on_applied(void *arg, const struct leader_and_isr_response *response)
{
    struct call call = *(struct call *)arg;
    mem_free(arg);
    call.ch->busy = false;
    call.ch->leader_and_isr_out--;
    call.leader_and_isr_reply(call.arg, OK, response);
    hand_over(call.ch);
    tell_first(call.ch);
}

static void on_stopped(void *arg, const struct stop_replica_response *response)
{
    struct call call = *(struct call *)arg;
    mem_free(arg);
    call.ch->busy = false;
    call.stop_replica_reply(call.arg, OK, response);
    hand_over(call.ch);
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
static void hand_over(struct own_channel *ch)
{
    struct broker *br = &ch->run->br;
    struct list_node *n = list_first(&ch->calls);
    if (ch->busy || !n) return;
    struct call *call = CONTAINER_OF(n, struct call, node);
    if (!call->ready) return;
    list_remove(n);
    ch->busy = true;
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
    hand_over(call->ch);
}

static void send_leader_and_isr(void *arg, int32_t broker_id, const struct leader_and_isr_request *rq,
                                leader_and_isr_reply_fn reply, void *reply_arg)
{
    struct own_channel *ch = arg;
    ASSERT(broker_id == ch->run->br.id);
    struct call *call = mem_zalloc(1, sizeof *call);
    *call = (struct call){.ch = ch, .leader_and_isr = rq, .leader_and_isr_reply = reply, .arg = reply_arg};
    list_push_back(&ch->calls, &call->node);
    ch->leader_and_isr_out++;
    dynamic_config_prepare(ch->run->br.dynamic_config, rq, on_prepared, call);
}

static void send_stop_replica(void *arg, int32_t broker_id, const struct stop_replica_request *rq,
                              stop_replica_reply_fn reply, void *reply_arg)
{
    struct own_channel *ch = arg;
    ASSERT(broker_id == ch->run->br.id);
    struct call *call = mem_zalloc(1, sizeof *call);
    *call = (struct call){.ch = ch, .ready = true, .stop_replica = rq, .stop_replica_reply = reply, .arg = reply_arg};
    list_push_back(&ch->calls, &call->node);
    hand_over(ch);
}

/* ---- UpdateMetadata */

struct update_metadata_call {
    struct loop_msg msg;
    struct own_channel *ch;
    update_metadata_reply_fn reply;
    void *arg;
};

static void reply_update_metadata(struct loop_msg *msg)
{
    struct update_metadata_call call = *CONTAINER_OF(msg, struct update_metadata_call, msg);
    mem_free(CONTAINER_OF(msg, struct update_metadata_call, msg));
    struct own_channel *ch = call.ch;
    call.reply(call.arg, OK, &update_metadata_response_default);
    ch->metadata_came = true;
    tell_first(ch);
}

static void send_update_metadata(void *arg, int32_t broker_id, const struct update_metadata_request *rq,
                                 update_metadata_reply_fn reply, void *reply_arg)
{
    struct own_channel *ch = arg;
    ASSERT(broker_id == ch->run->br.id);
    metadata_update(ch->run->br.metadata, rq);
    struct update_metadata_call *call = mem_zalloc(1, sizeof *call);
    *call = (struct update_metadata_call){.ch = ch, .reply = reply, .arg = reply_arg};
    call->msg.run = reply_update_metadata;
    loop_post(broker_home(&ch->run->br), &call->msg);
}

/* ---- The controller's own affairs */

static enum kerr validate_topic(void *arg, const struct znode_config *settings, struct arena *a, struct str *message)
{
    struct own_channel *ch = arg;
    struct config_map *map = config_map_new();
    for (size_t i = 0; i < settings->count; i++)
        config_map_set(map, settings->settings[i].name, settings->settings[i].value);
    struct fault f = {0};
    enum err e = topic_config_check(broker_config(&ch->run->br, broker_home(&ch->run->br)), map, &f);
    config_map_free(map);
    if (!e) return KERR_NONE;
    *message = arena_str(a, str_of(f.text));
    return KERR_INVALID_CONFIG;
}

static void controller_failed(void *arg, const struct fault *f)
{
    struct own_channel *ch = arg;
    LOG_ERROR("controller_failed", "reason=\"%s\"", f->text);
    run_fail(ch->run, f->code, f);
}

void own_channel_open(struct own_channel **out, struct broker_run *run, void (*first_metadata)(void *arg), void *arg)
{
    struct broker *br = &run->br;
    struct own_channel *ch = mem_zalloc(1, sizeof *ch);
    *ch = (struct own_channel){.run = run, .first_metadata = first_metadata, .first_metadata_arg = arg};
    list_init(&ch->calls);
    *out = ch;
    const struct config *cfg = broker_config(br, broker_home(br));
    const struct controller_options opt = {
        .coord = br->coord,
        .loop = broker_home(br),
        .rng = br->rng,
        .broker_id = br->id,
        .partitions_default = (int32_t)config_i64(cfg, CFG_NUM_PARTITIONS),
        .replication_factor_default = (int16_t)config_i64(cfg, CFG_DEFAULT_REPLICATION_FACTOR),
        .inter_broker_listener = str_of(config_str(cfg, CFG_INTER_BROKER_LISTENER_NAME)),
        .channel = {ch, send_leader_and_isr, send_update_metadata, send_stop_replica},
        .validate_topic = validate_topic,
        .failed = controller_failed,
        .arg = ch,
    };
    br->controller = controller_start(&opt);
}

void own_channel_free(struct own_channel *ch)
{
    if (!ch) return;
    ASSERT(list_is_empty(&ch->calls) && !ch->busy); /* the controller stops when it has its answers */
    mem_free(ch);
}
