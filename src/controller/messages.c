/* messages.c: what brokers are told, as Kafka 3.9's controller tells it.
 *
 * A sending gathers partitions, then makes one LeaderAndIsr and one StopReplica a broker and one UpdateMetadata for
 * all.  Brokers that are out of reach get nothing: they are told everything when they are back.  Each request has its
 * own arena and lives until its answer.  Order to each broker: LeaderAndIsr, UpdateMetadata, StopReplica. */
#define LOG_MODULE "controller"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

enum { LEADER_DURING_DELETE = -2, EPOCH_DURING_DELETE = -2 }; /* as in Kafka 3.9 */

/* One partition to tell about. */
struct item {
    struct topic *topic;
    int32_t partition;
    bool is_new;
    bool deletion;      /* of the topic */
    bool metadata_only; /* UpdateMetadata alone */
};

/* A broker that is to let go of a replica, without the topic's being deleted. */
struct stop {
    struct topic *topic;
    int32_t partition, broker_id;
    bool deletion; /* of the replica's log */
};

struct sending {
    struct controller *c;
    struct item *items; /* partitions of a topic stand together */
    size_t count, cap;
    struct stop *stops;
    size_t stop_count, stop_cap;
    uint64_t number; /* tells this sending's answers from those of others */
    bool one_broker;
    int32_t only_broker;
    size_t own_out; /* answers of the own broker still to come */
    bool sent;
    void (*own_done)(void *arg);
    void *own_arg;
};

enum message_kind { MESSAGE_LEADER_AND_ISR, MESSAGE_UPDATE_METADATA, MESSAGE_STOP_REPLICA };

struct message {
    struct controller *c;
    struct sending *sending; /* NULL: the answer is for nobody */
    enum message_kind kind;
    int32_t broker_id;
    int64_t broker_epoch;
    int32_t controller_epoch;
    uint64_t sending_number;
    struct arena arena;
    union {
        struct leader_and_isr_request leader_and_isr;
        struct update_metadata_request update_metadata;
        struct stop_replica_request stop_replica;
    };
};

struct sending *sending_new(struct controller *c)
{
    struct sending *s = mem_zalloc(1, sizeof *s);
    s->c = c;
    s->number = ++c->sendings;
    return s;
}

static void add(struct sending *s, struct item item)
{
    s->items = mem_grow(s->items, &s->cap, s->count + 1, sizeof *s->items);
    s->items[s->count++] = item;
}

void sending_add_partition(struct sending *s, struct topic *t, int32_t partition, bool is_new)
{
    add(s, (struct item){.topic = t, .partition = partition, .is_new = is_new});
}

void sending_add_metadata(struct sending *s, struct topic *t, int32_t partition)
{
    add(s, (struct item){.topic = t, .partition = partition, .metadata_only = true});
}

void sending_add_stop(struct sending *s, struct topic *t, int32_t partition, int32_t broker_id, bool deletion)
{
    s->stops = mem_grow(s->stops, &s->stop_cap, s->stop_count + 1, sizeof *s->stops);
    s->stops[s->stop_count++] = (struct stop){t, partition, broker_id, deletion};
}

void sending_add_everything(struct sending *s)
{
    for (struct topic *t = s->c->topics; t; t = t->by_name.next)
        for (int32_t i = 0; i < t->partition_count && !t->deleting; i++)
            if (t->partitions[i].replicas) sending_add_partition(s, t, i, false);
}

void sending_only_to(struct sending *s, int32_t broker_id)
{
    s->one_broker = true;
    s->only_broker = broker_id;
}

bool sending_add_deletion(struct sending *s, struct topic *t)
{
    bool all_alive = true;
    for (int32_t i = 0; i < t->partition_count; i++) {
        const struct controller_partition *p = &t->partitions[i];
        if (!p->replicas) continue;
        add(s, (struct item){.topic = t, .partition = i, .deletion = true});
        for (int32_t r = 0; r < p->replica_count; r++)
            if (!broker_is_alive(s->c, p->replicas[r])) all_alive = false;
    }
    t->deletion_sending = s->number;
    t->deletion_waits = 0;
    for (const struct broker *b = s->c->brokers; b; b = b->hh.next)
        for (int32_t i = 0; i < t->partition_count && broker_is_alive(s->c, b->id); i++)
            if (ids_have(t->partitions[i].replicas, t->partitions[i].replica_count, b->id)) {
                t->deletion_waits++;
                break;
            }
    return all_alive;
}

void sending_drop(struct sending *s)
{
    mem_free(s->items);
    mem_free(s->stops);
    mem_free(s);
}

static void sending_check(struct sending *s)
{
    if (!s->sent || s->own_out) return;
    if (s->own_done) s->own_done(s->own_arg);
    sending_drop(s);
}

/* --- answers --- */

static void message_end(struct message *m, enum err e, int16_t error_code)
{
    struct controller *c = m->c;
    struct sending *s = m->sending;
    static const char *const names[] = {"LeaderAndIsr", "UpdateMetadata", "StopReplica"};
    if (e)
        LOG_WARN("message_undelivered", "message=%s broker=%d error=%s", names[m->kind], m->broker_id, err_name(e));
    else if (error_code)
        LOG_WARN("message_refused", "message=%s broker=%d code=%s", names[m->kind], m->broker_id,
                 kerr_name(error_code));
    arena_fini(&m->arena);
    mem_free(m);
    c->messages_out--;
    if (s) {
        s->own_out--;
        sending_check(s);
    }
    controller_pump(c);
}

/* The office and the process that was told are still the same. */
static bool message_is_current(const struct message *m)
{
    const struct broker *b = broker_find(m->c, m->broker_id);
    return m->c->state == CONTROLLER_ACTIVE && m->controller_epoch == m->c->epoch && b && b->epoch == m->broker_epoch;
}

/* Kafka's brokers answer STALE_CONTROLLER_EPOCH to what they know already, as after each change of the controller. */
static bool is_refusal(int16_t code)
{
    return code != KERR_NONE && code != KERR_STALE_CONTROLLER_EPOCH;
}

static void leader_and_isr_answered(void *arg, enum err e, const struct leader_and_isr_response *r)
{
    struct message *m = arg;
    for (int32_t i = 0; !e && i < r->topics_count; i++)
        for (int32_t k = 0; k < r->topics[i].partition_errors_count; k++)
            if (is_refusal(r->topics[i].partition_errors[k].error_code))
                LOG_LIMITED(LOG_LEVEL_WARN, "partition_refused", "broker=%d partition=%d code=%s", m->broker_id,
                            r->topics[i].partition_errors[k].partition_index,
                            kerr_name(r->topics[i].partition_errors[k].error_code));
    if (!e && !r->error_code && message_is_current(m)) log_dirs_answered(m->c, m->broker_id, r);
    message_end(m, e, e ? 0 : r->error_code);
}

static void update_metadata_answered(void *arg, enum err e, const struct update_metadata_response *r)
{
    message_end(arg, e, e ? 0 : r->error_code);
}

/* Notes at each topic whether a replica of it could not be stopped.  One walk: thousands of topics may go at once. */
static void note_refused(const struct controller *c, const struct stop_replica_response *r)
{
    for (int32_t i = 0; i < r->partition_errors_count; i++) {
        if (!r->partition_errors[i].error_code) continue;
        struct topic *t = topic_find(c, r->partition_errors[i].topic_name);
        if (t) t->deletion_refused = true;
    }
}

static void stop_replica_answered(void *arg, enum err e, const struct stop_replica_response *r)
{
    struct message *m = arg;
    const struct stop_replica_request *rq = &m->stop_replica;
    bool taken = !e && r->error_code == KERR_NONE;
    if (taken) note_refused(m->c, r);
    for (int32_t i = 0; i < rq->topic_states_count && message_is_current(m); i++) {
        struct str name = rq->topic_states[i].topic_name;
        struct topic *t = topic_find(m->c, name);
        bool refused = t && t->deletion_refused;
        if (t) t->deletion_refused = false;
        deletion_stopped(m->c, name, m->sending_number, taken && !refused);
    }
    message_end(m, e, e ? 0 : r->error_code);
}

/* --- making --- */

static struct message *message_new(struct sending *s, enum message_kind kind, const struct broker *b)
{
    struct controller *c = s->c;
    struct message *m = mem_zalloc(1, sizeof *m);
    m->c = c;
    m->kind = kind;
    m->broker_id = b->id;
    m->broker_epoch = b->epoch;
    m->controller_epoch = c->epoch;
    m->sending_number = s->number;
    arena_init(&m->arena, SIZE_MAX);
    c->messages_out++;
    if (b->id == c->opt.broker_id) {
        m->sending = s;
        s->own_out++;
    }
    return m;
}

static int32_t *lend(struct arena *a, const int32_t *ids, int32_t count)
{
    int32_t *copy = arena_array(a, int32_t, (size_t)count);
    if (count) memcpy(copy, ids, (size_t)count * sizeof *copy);
    return copy;
}

/* Whether the broker is told of the partition: by StopReplica when it is being deleted, else by LeaderAndIsr, which
 * needs a state. */
static bool broker_gets(const struct item *it, int32_t broker_id, bool deletion)
{
    const struct controller_partition *p = &it->topic->partitions[it->partition];
    if (it->metadata_only || it->deletion != deletion || (!deletion && p->state_version < 0)) return false;
    return ids_have(p->replicas, p->replica_count, broker_id);
}

/* Counts how many items of the run of one topic that starts at `from` the broker gets; *end is behind the run. */
static size_t run_count(const struct sending *s, size_t from, int32_t broker_id, bool deletion, size_t *end)
{
    size_t n = 0, i = from;
    for (; i < s->count && s->items[i].topic == s->items[from].topic; i++)
        n += broker_gets(&s->items[i], broker_id, deletion);
    *end = i;
    return n;
}

/* A replica that is being added is new until it is in sync, also to a broker that is told again. */
static bool is_new_to(const struct item *it, int32_t broker_id)
{
    const struct controller_partition *p = &it->topic->partitions[it->partition];
    return it->is_new ||
           (ids_have(p->adding, p->adding_count, broker_id) && !ids_have(p->isr, p->isr_count, broker_id));
}

static void fill_leader_and_isr_partition(struct arena *a, const struct item *it, int32_t broker_id,
                                          struct leader_and_isr_request_leader_and_isr_partition_state *ps)
{
    const struct controller_partition *p = &it->topic->partitions[it->partition];
    *ps = leader_and_isr_request_leader_and_isr_partition_state_default;
    ps->topic_name = it->topic->name;
    ps->partition_index = it->partition;
    ps->controller_epoch = p->controller_epoch;
    ps->leader = p->leader;
    ps->leader_epoch = p->leader_epoch;
    ps->isr = lend(a, p->isr, p->isr_count);
    ps->isr_count = p->isr_count;
    ps->partition_epoch = p->state_version;
    ps->replicas = lend(a, p->replicas, p->replica_count);
    ps->replicas_count = p->replica_count;
    ps->adding_replicas = lend(a, p->adding, p->adding_count);
    ps->adding_replicas_count = p->adding_count;
    ps->removing_replicas = lend(a, p->removing, p->removing_count);
    ps->removing_replicas_count = p->removing_count;
    ps->is_new = is_new_to(it, broker_id);
    ps->leader_recovery_state = p->leader_recovery_state;
}

/* Where brokers reach the leaders: on the listener that they use among themselves. */
static void fill_live_leaders(struct message *m, struct leader_and_isr_request *rq)
{
    struct controller *c = m->c;
    rq->live_leaders =
        arena_array(&m->arena, struct leader_and_isr_request_leader_and_isr_live_leader, HASH_COUNT(c->brokers));
    for (const struct broker *b = c->brokers; b; b = b->hh.next) {
        const struct znode_endpoint *ep = broker_endpoint(c, b);
        if (!ep || !broker_is_alive(c, b->id)) continue;
        rq->live_leaders[rq->live_leaders_count++] = (struct leader_and_isr_request_leader_and_isr_live_leader){
            .broker_id = b->id, .host_name = arena_str(&m->arena, ep->host), .port = ep->port};
    }
}

static void send_leader_and_isr(struct sending *s, const struct broker *b)
{
    struct controller *c = s->c;
    size_t topics = 0, end;
    for (size_t i = 0; i < s->count; i = end) topics += run_count(s, i, b->id, false, &end) > 0;
    if (!topics) return;
    struct message *m = message_new(s, MESSAGE_LEADER_AND_ISR, b);
    struct leader_and_isr_request *rq = &m->leader_and_isr;
    *rq = leader_and_isr_request_default;
    rq->controller_id = c->opt.broker_id;
    rq->controller_epoch = c->epoch;
    rq->broker_epoch = b->epoch;
    rq->topic_states = arena_array(&m->arena, struct leader_and_isr_request_leader_and_isr_topic_state, topics);
    for (size_t i = 0; i < s->count; i = end) {
        size_t n = run_count(s, i, b->id, false, &end);
        if (!n) continue;
        struct leader_and_isr_request_leader_and_isr_topic_state *ts = &rq->topic_states[rq->topic_states_count++];
        ts->topic_name = arena_str(&m->arena, s->items[i].topic->name);
        ts->topic_id = s->items[i].topic->id;
        ts->partition_states = arena_array(&m->arena, struct leader_and_isr_request_leader_and_isr_partition_state, n);
        for (size_t k = i; k < end; k++) {
            if (!broker_gets(&s->items[k], b->id, false)) continue;
            struct leader_and_isr_request_leader_and_isr_partition_state *ps =
                &ts->partition_states[ts->partition_states_count++];
            fill_leader_and_isr_partition(&m->arena, &s->items[k], b->id, ps);
            ps->topic_name = ts->topic_name;
        }
    }
    fill_live_leaders(m, rq);
    c->opt.channel.leader_and_isr(c->opt.channel.arg, b->id, rq, leader_and_isr_answered, m);
}

static void fill_update_metadata_partition(struct message *m, const struct item *it,
                                           struct update_metadata_request_update_metadata_partition_state *ps)
{
    const struct controller_partition *p = &it->topic->partitions[it->partition];
    struct arena *a = &m->arena;
    *ps = update_metadata_request_update_metadata_partition_state_default;
    ps->partition_index = it->partition;
    ps->controller_epoch = p->controller_epoch;
    ps->leader = it->deletion ? LEADER_DURING_DELETE : p->leader;
    ps->leader_epoch = it->deletion ? 0 : p->leader_epoch;
    ps->zk_version = it->deletion ? 0 : p->state_version;
    ps->isr = lend(a, p->isr, p->isr_count);
    ps->isr_count = p->isr_count;
    ps->replicas = lend(a, p->replicas, p->replica_count);
    ps->replicas_count = p->replica_count;
    ps->offline_replicas = arena_array(a, int32_t, (size_t)p->replica_count);
    for (int32_t r = 0; r < p->replica_count; r++)
        if (!replica_is_alive(m->c, p, p->replicas[r]))
            ps->offline_replicas[ps->offline_replicas_count++] = p->replicas[r];
}

static void fill_live_brokers(struct message *m, struct update_metadata_request *rq)
{
    struct arena *a = &m->arena;
    rq->live_brokers = arena_array(a, struct update_metadata_request_update_metadata_broker, HASH_COUNT(m->c->brokers));
    for (const struct broker *b = m->c->brokers; b; b = b->hh.next) {
        if (!broker_is_alive(m->c, b->id)) continue;
        struct update_metadata_request_update_metadata_broker *lb = &rq->live_brokers[rq->live_brokers_count++];
        *lb = update_metadata_request_update_metadata_broker_default;
        lb->id = b->id;
        lb->rack = arena_str(a, b->info.rack);
        lb->endpoints = arena_array(a, struct update_metadata_request_update_metadata_endpoint, b->info.endpoint_count);
        lb->endpoints_count = (int32_t)b->info.endpoint_count;
        for (size_t i = 0; i < b->info.endpoint_count; i++)
            lb->endpoints[i] = (struct update_metadata_request_update_metadata_endpoint){
                .port = b->info.endpoints[i].port,
                .host = arena_str(a, b->info.endpoints[i].host),
                .listener = arena_str(a, b->info.endpoints[i].listener),
                .security_protocol = b->info.endpoints[i].security_protocol};
    }
}

static void send_update_metadata(struct sending *s, const struct broker *b)
{
    struct controller *c = s->c;
    struct message *m = message_new(s, MESSAGE_UPDATE_METADATA, b);
    struct update_metadata_request *rq = &m->update_metadata;
    *rq = update_metadata_request_default;
    rq->controller_id = c->opt.broker_id;
    rq->controller_epoch = c->epoch;
    rq->broker_epoch = b->epoch;
    size_t topics = 0;
    for (size_t i = 0; i < s->count; i++) topics += i == 0 || s->items[i].topic != s->items[i - 1].topic;
    rq->topic_states = arena_array(&m->arena, struct update_metadata_request_update_metadata_topic_state, topics);
    for (size_t i = 0; i < s->count;) {
        size_t end = i;
        while (end < s->count && s->items[end].topic == s->items[i].topic) end++;
        struct update_metadata_request_update_metadata_topic_state *ts = &rq->topic_states[rq->topic_states_count++];
        ts->topic_name = arena_str(&m->arena, s->items[i].topic->name);
        ts->topic_id = s->items[i].topic->id;
        ts->partition_states =
            arena_array(&m->arena, struct update_metadata_request_update_metadata_partition_state, end - i);
        for (; i < end; i++) {
            /* Nobody is told of a partition that has no state yet. */
            if (!s->items[i].deletion && s->items[i].topic->partitions[s->items[i].partition].state_version < 0)
                continue;
            struct update_metadata_request_update_metadata_partition_state *ps =
                &ts->partition_states[ts->partition_states_count++];
            fill_update_metadata_partition(m, &s->items[i], ps);
            ps->topic_name = ts->topic_name;
        }
    }
    fill_live_brokers(m, rq);
    c->opt.channel.update_metadata(c->opt.channel.arg, b->id, rq, update_metadata_answered, m);
}

static void fill_deletions(struct sending *s, int32_t broker_id, struct message *m)
{
    struct stop_replica_request *rq = &m->stop_replica;
    for (size_t i = 0, end; i < s->count; i = end) {
        size_t n = run_count(s, i, broker_id, true, &end);
        if (!n) continue;
        struct stop_replica_request_stop_replica_topic_state *ts = &rq->topic_states[rq->topic_states_count++];
        ts->topic_name = arena_str(&m->arena, s->items[i].topic->name);
        ts->partition_states = arena_array(&m->arena, struct stop_replica_request_stop_replica_partition_state, n);
        for (size_t k = i; k < end; k++)
            if (broker_gets(&s->items[k], broker_id, true))
                ts->partition_states[ts->partition_states_count++] =
                    (struct stop_replica_request_stop_replica_partition_state){.partition_index = s->items[k].partition,
                                                                               .leader_epoch = EPOCH_DURING_DELETE,
                                                                               .delete_partition = true};
    }
}

/* How many partitions of the topic at `from` the broker lets go; *end is behind the topic. */
static size_t stop_count(const struct sending *s, size_t from, int32_t broker_id, size_t *end)
{
    size_t n = 0, i = from;
    for (; i < s->stop_count && s->stops[i].topic == s->stops[from].topic; i++) n += s->stops[i].broker_id == broker_id;
    *end = i;
    return n;
}

static void fill_stops(struct sending *s, int32_t broker_id, struct message *m)
{
    struct stop_replica_request *rq = &m->stop_replica;
    for (size_t i = 0, end; i < s->stop_count; i = end) {
        size_t n = stop_count(s, i, broker_id, &end);
        if (!n) continue;
        struct stop_replica_request_stop_replica_topic_state *ts = &rq->topic_states[rq->topic_states_count++];
        ts->topic_name = arena_str(&m->arena, s->stops[i].topic->name);
        ts->partition_states = arena_array(&m->arena, struct stop_replica_request_stop_replica_partition_state, n);
        for (size_t k = i; k < end; k++)
            if (s->stops[k].broker_id == broker_id)
                ts->partition_states[ts->partition_states_count++] =
                    (struct stop_replica_request_stop_replica_partition_state){
                        .partition_index = s->stops[k].partition,
                        .leader_epoch = s->stops[k].topic->partitions[s->stops[k].partition].leader_epoch,
                        .delete_partition = s->stops[k].deletion};
    }
}

static void send_stop_replica(struct sending *s, const struct broker *b)
{
    struct controller *c = s->c;
    size_t topics = 0, end;
    for (size_t i = 0; i < s->count; i = end) topics += run_count(s, i, b->id, true, &end) > 0;
    for (size_t i = 0; i < s->stop_count; i = end) topics += stop_count(s, i, b->id, &end) > 0;
    if (!topics) return;
    struct message *m = message_new(s, MESSAGE_STOP_REPLICA, b);
    struct stop_replica_request *rq = &m->stop_replica;
    *rq = stop_replica_request_default;
    rq->controller_id = c->opt.broker_id;
    rq->controller_epoch = c->epoch;
    rq->broker_epoch = b->epoch;
    rq->topic_states = arena_array(&m->arena, struct stop_replica_request_stop_replica_topic_state, topics);
    fill_deletions(s, b->id, m);
    fill_stops(s, b->id, m);
    c->opt.channel.stop_replica(c->opt.channel.arg, b->id, rq, stop_replica_answered, m);
}

/* There is a way to it: our own broker, or one that the channel knows and reaches. */
static bool can_be_told(const struct controller *c, const struct broker *b)
{
    if (!broker_is_alive(c, b->id)) return false;
    return b->id == c->opt.broker_id || b->announced || !c->opt.channel.broker_came;
}

void sending_send(struct sending *s, void (*own_done)(void *arg), void *own_arg)
{
    s->own_done = own_done;
    s->own_arg = own_arg;
    for (const struct broker *b = s->c->brokers; b; b = b->hh.next) {
        if (!can_be_told(s->c, b) || (s->one_broker && b->id != s->only_broker)) continue;
        send_leader_and_isr(s, b);
        send_update_metadata(s, b);
        send_stop_replica(s, b);
    }
    s->sent = true;
    sending_check(s);
}
