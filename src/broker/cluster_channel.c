/* cluster_channel.c: see cluster_channel.h.
 *
 * A message stays in its peer's queue, in order, until it is answered; what is behind `out_count` has not been sent
 * over the present link.  The link's end sets that back to nothing, and its next beginning sends all anew.  A question
 * (ListOffsets) waits for a link that is being made, as all are when the office has just been taken, but for nothing
 * else, and it is not sent again: its asker would rather know soon.
 *
 * Who refuses connections is unreachable at once.  Who is silent (its packets are lost, or it is stopped) is so when
 * its session would be over if it were silent to ZooKeeper, too: a leader that cannot reach the controller cannot have
 * its in-sync sets changed, and writes to it may wait for a follower on the other side of the cut for as long as that
 * lasts. So a link with nothing to say is asked something now and then.  When all the others are silent it is rather
 * this broker that is cut off: nobody is given up, and the office is left to one of them, since leaders cannot reach
 * this controller either.  (Of two brokers neither knows; then the other one is given up, as ZooKeeper speaks to us.)
 * Whoever refuses is dead and counts for neither.  If none of them can take it, and their registrations stay, it is
 * taken again after a while, and left again: a little work, twice in a session. */
#include "broker/cluster_channel.h"

#include "base/hash.h"
#include "base/mem.h"
#include "broker/control.h"
#include "broker/link.h"
#include "controller/controller.h"
#include "wire/gen/api_versions.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum {
    OUT_MAX = 32, /* messages to one broker; the others wait */
    PROBES_PER_PATIENCE = 3,
    PROBE_VERSION_MAX = 2 /* from version 3 on the asker's name is to be given */
};

/* Versions that have what our controller says; 3.9's brokers know them all. */
enum { LEADER_AND_ISR_MIN = 2, UPDATE_METADATA_MIN = 5, STOP_REPLICA_MIN = 3, LIST_OFFSETS_MIN = 4 };

struct cluster_channel {
    struct broker_run *run;
    char *client_id;
    struct peer *peers;
    int64_t reached_us; /* when somebody else was reached last, or could first have been */
};

enum reach { REACH_UNKNOWN, REACH_REFUSED, REACH_SILENT };

/* Another broker, in one of its lives. */
struct peer {
    UT_hash_handle hh;
    struct cluster_channel *ch;
    int32_t id;
    int64_t epoch;
    struct link *ln;
    struct list messages;  /* in order */
    size_t out_count;      /* the first so many of them are out */
    struct list questions; /* that wait for the link */
    bool unreachable;      /* told */
    bool was_up;           /* the link that has just gone down */
    bool silent;           /*   and nothing but a probe was out on it */
    int64_t heard_us;      /* when it last answered */
    enum reach reach;      /* how the last try ended */
    struct timer next_probe;
    struct probe *probe; /* the one that is out; NULL: none is */
};

/* A question (ApiVersions, which every kind of broker answers at once) whose answer says that somebody is there. */
struct probe {
    struct peer *peer; /* NULL: the broker has gone */
    struct rpc_call call;
    struct api_versions_request request;
};

/* A message or a question to another broker. */
struct message {
    struct list_node node; /* in its peer's queue; a question in none when it is out */
    struct peer *peer;     /* NULL: the broker has gone */
    struct loop *loop;
    struct rpc_call call;
    bool is_out;
    bool answered;
    void (*reply)(struct message *m, enum err e, const void *response); /* calls this: */
    union {
        leader_and_isr_reply_fn leader_and_isr;
        update_metadata_reply_fn update_metadata;
        stop_replica_reply_fn stop_replica;
        list_offsets_reply_fn list_offsets;
    } fn;
    void *arg;
    struct timer deadline; /* of a question */
    struct loop_msg msg;   /* carries a failure */
};

static struct loop *home(const struct cluster_channel *ch)
{
    return broker_home(&ch->run->br);
}

static struct peer *peer_find(const struct cluster_channel *ch, int32_t id)
{
    struct peer *p;
    HASH_FIND_INT(ch->peers, &id, p);
    return p;
}

/* ---- replies */

static void reply_leader_and_isr(struct message *m, enum err e, const void *response)
{
    m->fn.leader_and_isr(m->arg, e, response);
}

static void reply_update_metadata(struct message *m, enum err e, const void *response)
{
    m->fn.update_metadata(m->arg, e, response);
}

static void reply_stop_replica(struct message *m, enum err e, const void *response)
{
    m->fn.stop_replica(m->arg, e, response);
}

static void reply_list_offsets(struct message *m, enum err e, const void *response)
{
    m->fn.list_offsets(m->arg, e, response);
}

static void fail_run(struct loop_msg *msg)
{
    struct message *m = CONTAINER_OF(msg, struct message, msg);
    m->reply(m, ERR_CLOSED, NULL);
    mem_free(m);
}

/* In a turn of its own. */
static void message_fail_later(struct message *m)
{
    m->msg.run = fail_run;
    loop_post(m->loop, &m->msg);
}

/* ---- sending to others */

static void peer_send(struct peer *p);

static void peer_heard(struct peer *p)
{
    p->heard_us = loop_now_us(home(p->ch));
}

static void on_answer(struct rpc_call *call)
{
    struct message *m = CONTAINER_OF(call, struct message, call);
    struct peer *p = m->peer;
    m->is_out = false;
    if (p) p->out_count--;
    if (p && !call->err) peer_heard(p);
    bool again = p && call->err && call->err != ERR_UNSUPPORTED;
    if (again) return; /* it is in the queue still, and the link goes down */
    struct cluster_channel *ch = p ? p->ch : NULL;
    int32_t id = p ? p->id : -1;
    list_remove(&m->node);
    m->reply(m, call->err, call->err ? NULL : call->response); /* may add to the queue, or end the peer */
    mem_free(m);
    p = ch ? peer_find(ch, id) : NULL;
    if (p) peer_send(p);
}

static void peer_send(struct peer *p)
{
    if (!link_is_up(p->ln)) return;
    size_t at = 0;
    LIST_EACH (&p->messages, n) {
        if (p->out_count == OUT_MAX) return;
        if (at++ < p->out_count) continue;
        struct message *m = CONTAINER_OF(n, struct message, node);
        m->is_out = true;
        p->out_count++;
        link_send(p->ln, &m->call);
    }
}

static struct message *message_new(struct cluster_channel *ch, enum api api, int16_t version_min, const void *request,
                                   void (*done)(struct rpc_call *call))
{
    struct message *m = mem_zalloc(1, sizeof *m);
    m->loop = home(ch);
    m->call = (struct rpc_call){
        .api = api, .version_min = version_min, .version_max = INT16_MAX, .request = request, .done = done};
    return m;
}

/* To a broker that is not registered any more nothing is sent, and the controller will learn why. */
static void message_give(struct cluster_channel *ch, int32_t broker_id, struct message *m)
{
    struct peer *p = peer_find(ch, broker_id);
    if (!p) {
        message_fail_later(m);
        return;
    }
    m->peer = p;
    list_push_back(&p->messages, &m->node);
    peer_send(p);
}

static void send_leader_and_isr(void *arg, int32_t broker_id, const struct leader_and_isr_request *rq,
                                leader_and_isr_reply_fn reply, void *reply_arg)
{
    struct cluster_channel *ch = arg;
    if (broker_id == ch->run->br.id) {
        control_leader_and_isr(ch->run->br.control, rq, reply, reply_arg);
        return;
    }
    struct message *m = message_new(ch, API_LEADER_AND_ISR, LEADER_AND_ISR_MIN, rq, on_answer);
    m->reply = reply_leader_and_isr;
    m->fn.leader_and_isr = reply;
    m->arg = reply_arg;
    message_give(ch, broker_id, m);
}

static void send_update_metadata(void *arg, int32_t broker_id, const struct update_metadata_request *rq,
                                 update_metadata_reply_fn reply, void *reply_arg)
{
    struct cluster_channel *ch = arg;
    if (broker_id == ch->run->br.id) {
        control_update_metadata(ch->run->br.control, rq, reply, reply_arg);
        return;
    }
    struct message *m = message_new(ch, API_UPDATE_METADATA, UPDATE_METADATA_MIN, rq, on_answer);
    m->reply = reply_update_metadata;
    m->fn.update_metadata = reply;
    m->arg = reply_arg;
    message_give(ch, broker_id, m);
}

static void send_stop_replica(void *arg, int32_t broker_id, const struct stop_replica_request *rq,
                              stop_replica_reply_fn reply, void *reply_arg)
{
    struct cluster_channel *ch = arg;
    if (broker_id == ch->run->br.id) {
        control_stop_replica(ch->run->br.control, rq, reply, reply_arg);
        return;
    }
    struct message *m = message_new(ch, API_STOP_REPLICA, STOP_REPLICA_MIN, rq, on_answer);
    m->reply = reply_stop_replica;
    m->fn.stop_replica = reply;
    m->arg = reply_arg;
    message_give(ch, broker_id, m);
}

/* ---- ListOffsets */

static void question_send(struct peer *p, struct message *m)
{
    m->is_out = true;
    link_send(p->ln, &m->call); /* written out before it returns: the request is not looked at again */
}

static void questions_send(struct peer *p)
{
    struct list_node *n;
    while ((n = list_pop_front(&p->questions))) question_send(p, CONTAINER_OF(n, struct message, node));
}

static void questions_fail(struct peer *p)
{
    struct list_node *n;
    while ((n = list_pop_front(&p->questions))) {
        struct message *m = CONTAINER_OF(n, struct message, node);
        loop_timer_cancel(m->loop, &m->deadline);
        message_fail_later(m);
    }
}

/* Its replies need not be waited for: when its time is up the asker is told, and the answer comes to nothing. */
static void on_question_answer(struct rpc_call *call)
{
    struct message *m = CONTAINER_OF(call, struct message, call);
    loop_timer_cancel(m->loop, &m->deadline);
    if (!m->answered) m->reply(m, call->err, call->err ? NULL : call->response);
    mem_free(m);
}

static void on_question_deadline(struct timer *t)
{
    struct message *m = CONTAINER_OF(t, struct message, deadline);
    m->answered = true;
    if (!m->is_out) list_remove(&m->node);
    m->reply(m, ERR_TIMEOUT, NULL);
    if (!m->is_out) mem_free(m);
}

/* The own broker's answer. */
struct own_ends {
    struct loop_msg msg;
    struct cluster_channel *ch;
    const struct list_offsets_request *rq;
    list_offsets_reply_fn reply;
    void *arg;
};

static void own_end(const struct replicas *r, struct str topic,
                    const struct list_offsets_request_list_offsets_partition *asked,
                    struct list_offsets_response_list_offsets_partition_response *out)
{
    const struct partition *p = topic_partition(replicas_find(r, topic), asked->partition_index);
    *out = list_offsets_response_list_offsets_partition_response_default;
    out->partition_index = asked->partition_index;
    if (!p && replicas_unclaimed_end(r, topic, asked->partition_index, &out->offset, &out->leader_epoch)) return;
    if (!p) {
        out->error_code = KERR_UNKNOWN_TOPIC_OR_PARTITION;
    } else if (!atomic_load(&p->online)) {
        out->error_code = KERR_KAFKA_STORAGE_ERROR;
    } else {
        out->offset = plog_end(p->pl);
        out->leader_epoch = plog_last_epoch(p->pl);
    }
}

static void own_ends_run(struct loop_msg *msg)
{
    struct own_ends *q = CONTAINER_OF(msg, struct own_ends, msg);
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct list_offsets_response res = list_offsets_response_default;
    res.topics_count = q->rq->topics_count;
    res.topics = arena_array(&a, struct list_offsets_response_list_offsets_topic_response, (size_t)res.topics_count);
    for (int32_t t = 0; t < res.topics_count; t++) {
        const struct list_offsets_request_list_offsets_topic *asked = &q->rq->topics[t];
        struct list_offsets_response_list_offsets_topic_response *to = &res.topics[t];
        to->name = asked->name;
        to->partitions_count = asked->partitions_count;
        to->partitions = arena_array(&a, struct list_offsets_response_list_offsets_partition_response,
                                     (size_t)asked->partitions_count);
        for (int32_t i = 0; i < asked->partitions_count; i++)
            own_end(q->ch->run->br.replicas, asked->name, &asked->partitions[i], &to->partitions[i]);
    }
    q->reply(q->arg, OK, &res);
    arena_fini(&a);
    mem_free(q);
}

static void send_list_offsets(void *arg, int32_t broker_id, const struct list_offsets_request *rq, int64_t timeout_ms,
                              list_offsets_reply_fn reply, void *reply_arg)
{
    struct cluster_channel *ch = arg;
    if (broker_id == ch->run->br.id) {
        struct own_ends *q = mem_zalloc(1, sizeof *q);
        *q = (struct own_ends){.ch = ch, .rq = rq, .reply = reply, .arg = reply_arg};
        q->msg.run = own_ends_run;
        loop_post(home(ch), &q->msg);
        return;
    }
    struct message *m = message_new(ch, API_LIST_OFFSETS, LIST_OFFSETS_MIN, rq, on_question_answer);
    m->reply = reply_list_offsets;
    m->fn.list_offsets = reply;
    m->arg = reply_arg;
    struct peer *p = peer_find(ch, broker_id);
    if (!p || p->unreachable) {
        message_fail_later(m);
        return;
    }
    m->deadline.fire = on_question_deadline;
    loop_timer_set(m->loop, &m->deadline, loop_now_us(m->loop) + timeout_ms * 1000);
    if (link_is_up(p->ln))
        question_send(p, m);
    else
        list_push_back(&p->questions, &m->node);
}

/* ---- who is there */

static int64_t patience_ms(const struct cluster_channel *ch)
{
    const struct config *cfg = broker_config(&ch->run->br, home(ch));
    return MIN(config_i64(cfg, CFG_ZOOKEEPER_SESSION_TIMEOUT_MS), config_i64(cfg, CFG_CONTROLLER_SOCKET_TIMEOUT_MS));
}

static void probe_later(struct peer *p)
{
    struct loop *loop = home(p->ch);
    loop_timer_set(loop, &p->next_probe, loop_now_us(loop) + patience_ms(p->ch) * 1000 / PROBES_PER_PATIENCE);
}

static void on_probe_answer(struct rpc_call *call)
{
    struct probe *pb = CONTAINER_OF(call, struct probe, call);
    if (pb->peer) {
        pb->peer->probe = NULL;
        if (!call->err) peer_heard(pb->peer);
        pb->peer->silent = call->err == ERR_TIMEOUT && pb->peer->out_count == 0;
    }
    mem_free(pb);
}

static void on_probe_timer(struct timer *t)
{
    struct peer *p = CONTAINER_OF(t, struct peer, next_probe);
    probe_later(p);
    if (p->probe || p->out_count > 0 || !link_is_up(p->ln)) return;
    struct probe *pb = mem_zalloc(1, sizeof *pb);
    pb->peer = p;
    pb->request = api_versions_request_default;
    pb->call = (struct rpc_call){.api = API_API_VERSIONS,
                                 .version_max = PROBE_VERSION_MAX,
                                 .request = &pb->request,
                                 .timeout_ms = patience_ms(p->ch),
                                 .done = on_probe_answer};
    p->probe = pb;
    link_send(p->ln, &pb->call);
}

static void on_up(void *arg)
{
    struct peer *p = arg;
    LOG_DEBUG("broker_reached", "broker=%d", p->id);
    struct cluster_channel *ch = p->ch;
    int32_t id = p->id;
    bool was_unreachable = p->unreachable;
    p->unreachable = p->silent = false;
    p->was_up = true;
    p->reach = REACH_UNKNOWN;
    peer_heard(p);
    ch->reached_us = p->heard_us;
    questions_send(p);
    if (was_unreachable) controller_broker_reachable(ch->run->br.controller, id, p->epoch); /* may end us */
    p = peer_find(ch, id);
    if (p) peer_send(p);
}

/* Somebody else has answered since this one became silent, or there is nobody else.  That a link is up says little: cut
 * off at the same time, they are found so one after the other.  Whoever is there answers a probe at least. */
static bool others_are_reached(const struct peer *p)
{
    int64_t since_us =
        loop_now_us(home(p->ch)) - patience_ms(p->ch) * 1000 * (PROBES_PER_PATIENCE - 1) / PROBES_PER_PATIENCE;
    for (const struct peer *other = p->ch->peers; other; other = other->hh.next)
        if (other != p && link_is_up(other->ln) && other->heard_us >= since_us) return true;
    return HASH_COUNT(p->ch->peers) == 1;
}

/* A link that was up and is over with messages out says nothing yet: to apply them may take long.  The next one does.
 */
static enum reach reach_of(const struct peer *p, enum rpc_end end)
{
    if (end == RPC_REFUSED) return REACH_REFUSED;
    bool silent = end == RPC_UNREACHABLE || (end == RPC_TIMED_OUT && (p->silent || !p->was_up));
    return silent ? REACH_SILENT : REACH_UNKNOWN;
}

static bool looks_dead(const struct peer *p)
{
    return p->reach == REACH_REFUSED || (p->reach == REACH_SILENT && others_are_reached(p));
}

/* Whoever else is registered and not dead is silent, and has been for as long as a session lasts. */
static bool is_cut_off(const struct cluster_channel *ch)
{
    bool silent = false;
    for (const struct peer *p = ch->peers; p; p = p->hh.next) {
        if (link_is_up(p->ln) || p->reach == REACH_UNKNOWN) return false;
        silent |= p->reach == REACH_SILENT;
    }
    return silent && HASH_COUNT(ch->peers) > 1 && loop_now_us(home(ch)) - ch->reached_us >= patience_ms(ch) * 1000;
}

static void on_down(void *arg, enum rpc_end end, const char *text)
{
    struct peer *p = arg;
    struct cluster_channel *ch = p->ch;
    LOG_LIMITED(LOG_LEVEL_WARN, "broker_not_reached", "broker=%d reason=\"%s\"", p->id, text);
    ASSERT(p->out_count == 0); /* each has come back */
    p->reach = reach_of(p, end);
    if (p->was_up) { /* until now, or until it became silent */
        int64_t heard_us = loop_now_us(home(ch)) - (end == RPC_TIMED_OUT ? patience_ms(ch) * 1000 : 0);
        ch->reached_us = MAX(ch->reached_us, heard_us);
    }
    p->was_up = false;
    questions_fail(p);
    bool dead = !p->unreachable && looks_dead(p);
    p->unreachable |= dead;
    if (dead)
        controller_broker_unreachable(ch->run->br.controller, p->id, p->epoch); /* may end us */
    else if (is_cut_off(ch))
        controller_stand_back(ch->run->br.controller, patience_ms(ch)); /* ends us */
}

static void broker_went(void *arg, int32_t broker_id)
{
    struct cluster_channel *ch = arg;
    struct peer *p = peer_find(ch, broker_id);
    if (!p) return;
    HASH_DEL(ch->peers, p);
    struct list_node *n;
    while ((n = list_pop_front(&p->messages))) {
        struct message *m = CONTAINER_OF(n, struct message, node);
        m->peer = NULL;
        if (!m->is_out) message_fail_later(m); /* the others fail with the link */
    }
    questions_fail(p);
    if (p->probe) p->probe->peer = NULL;
    loop_timer_cancel(home(ch), &p->next_probe);
    link_close(p->ln);
    mem_free(p);
}

static void broker_came(void *arg, int32_t broker_id, int64_t broker_epoch, struct str host, int32_t port)
{
    struct cluster_channel *ch = arg;
    struct broker *br = &ch->run->br;
    ASSERT(broker_id != br->id);
    broker_went(ch, broker_id); /* in its earlier life, or where it was reached before */
    struct peer *p = mem_zalloc(1, sizeof *p);
    p->ch = ch;
    p->id = broker_id;
    p->epoch = broker_epoch;
    list_init(&p->messages);
    list_init(&p->questions);
    if (!ch->peers) ch->reached_us = loop_now_us(home(ch));
    HASH_ADD_INT(ch->peers, id, p);
    const struct config *cfg = broker_config(br, home(ch));
    const struct link_options opt = {
        .rpc = {.net = br->net,
                .loop = home(ch),
                .workers = br->workers,
                .bufs = br->bufs,
                .client_id = str_of(ch->client_id),
                .connect_timeout_ms = MIN(config_i64(cfg, CFG_SOCKET_CONNECTION_SETUP_TIMEOUT_MS), patience_ms(ch)),
                .silence_ms = patience_ms(ch),
                .receive_buffer_bytes = -1},
        .up = on_up,
        .down = on_down,
        .arg = p,
    };
    p->ln = link_open(&opt, host, port);
    p->next_probe.fire = on_probe_timer;
    probe_later(p);
}

/* ---- The controller's own affairs */

static enum kerr validate_topic(void *arg, const struct znode_config *settings, struct arena *a, struct str *message)
{
    struct cluster_channel *ch = arg;
    struct config_map *map = config_map_new();
    for (size_t i = 0; i < settings->count; i++)
        config_map_set(map, settings->settings[i].name, settings->settings[i].value);
    struct fault f = {0};
    enum err e = topic_config_check(broker_config(&ch->run->br, home(ch)), map, &f);
    config_map_free(map);
    if (!e) return KERR_NONE;
    *message = arena_str(a, str_of(f.text));
    return KERR_INVALID_CONFIG;
}

static void controller_failed(void *arg, const struct fault *f)
{
    struct cluster_channel *ch = arg;
    LOG_ERROR("controller_failed", "reason=\"%s\"", f->text);
    if (ch->run->br.alone) run_fail(ch->run, f->code, f); /* in a cluster it serves on, and tries again */
}

void cluster_channel_open(struct cluster_channel **out, struct broker_run *run)
{
    struct broker *br = &run->br;
    struct cluster_channel *ch = mem_zalloc(1, sizeof *ch);
    ch->run = run;
    ch->client_id = mem_printf("%d", br->id); /* Kafka's controllers call themselves so */
    *out = ch;
    const struct config *cfg = broker_config(br, home(ch));
    const struct controller_options opt = {
        .coord = br->coord,
        .loop = home(ch),
        .rng = br->rng,
        .broker_id = br->id,
        .leaves_out_malformed = !br->alone,
        .inter_broker_listener = str_of(config_inter_broker(cfg)->name),
        .partitions_default = (int32_t)config_i64(cfg, CFG_NUM_PARTITIONS),
        .replication_factor_default = (int16_t)config_i64(cfg, CFG_DEFAULT_REPLICATION_FACTOR),
        .channel = {.arg = ch,
                    .leader_and_isr = send_leader_and_isr,
                    .update_metadata = send_update_metadata,
                    .stop_replica = send_stop_replica,
                    .list_offsets = send_list_offsets,
                    .broker_came = broker_came,
                    .broker_went = broker_went},
        .validate_topic = validate_topic,
        .fast_failure_detection = config_bool(cfg, CFG_CONTROLLER_FAST_FAILURE_DETECTION),
        .log_ends_wait_ms = config_i64(cfg, CFG_CONTROLLER_ELECTION_LOG_END_WAIT_MS),
        .unclean_election = config_bool(cfg, CFG_UNCLEAN_LEADER_ELECTION_ENABLE),
        .leader_rebalance = config_bool(cfg, CFG_AUTO_LEADER_REBALANCE_ENABLE),
        .imbalance_check_ms = MIN(config_i64(cfg, CFG_LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS), INT32_MAX) * 1000,
        .imbalance_percent = (int32_t)config_i64(cfg, CFG_LEADER_IMBALANCE_PER_BROKER_PERCENTAGE),
        .failed = controller_failed,
        .arg = ch,
    };
    br->controller = controller_start(&opt);
}

void cluster_channel_free(struct cluster_channel *ch)
{
    if (!ch) return;
    struct peer *p, *next;
    HASH_ITER(hh, ch->peers, p, next)
    {
        ASSERT(list_is_empty(&p->messages)); /* the controller stops when it has its answers */
        broker_went(ch, p->id);
    }
    mem_free(ch->client_id);
    mem_free(ch);
}
