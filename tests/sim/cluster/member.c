/* member.c: members of consumer groups, as the Java client's consumer, but that they read no records: they commit. What
 * a group's members commit for a partition grows with each commit, whoever sends it, so an offset tells when it was
 * sent.
 *
 * They fall asleep past their sessions, leave, and are started anew; whoever wakes up commits and heartbeats as if
 * nothing had happened. */
#include <string.h>

#include "base/endian.h"
#include "group/shard.h"
#include "wire/gen/find_coordinator.h"
#include "wire/gen/heartbeat.h"
#include "wire/gen/join_group.h"
#include "wire/gen/leave_group.h"
#include "wire/gen/offset_commit.h"
#include "wire/gen/offset_fetch.h"
#include "wire/gen/sync_group.h"
#include "wire/kerr.h"
#include "world.h"

enum {
    BACKOFF_US = 100 * 1000,
    HEARTBEAT_US = 300 * 1000,
    WORK_US = 100 * 1000,
    ASK_US = 3 * 1000 * 1000,
    JOIN_US = 6 * 1000 * 1000,
    SESSION_MS = 1500,
    REBALANCE_MS = 2000,
    TROUBLE_US = 3 * 1000 * 1000,
    LATE_ONE_IN = 20,
    ASSIGNMENT_SIZE = 8 /* generation, partitions as bits */
};

static struct world *world_of(const struct member *m)
{
    return m->client.w;
}

static struct group_model *group_of(const struct member *m)
{
    return &world_of(m)->groups[m->group];
}

static int partitions_of(const struct member *m)
{
    return world_of(m)->topics[GROUPS_TOPIC].partitions;
}

/* Now and then a request is as late as if it had taken another way: of the generation before. */
static int32_t some_generation(const struct member *m)
{
    return m->before >= 0 && m->before < m->generation && one_in(world_of(m), LATE_ONE_IN) ? m->before : m->generation;
}

static struct asked asked_now(const struct member *m, int node, int32_t generation)
{
    const struct group_model *g = group_of(m);
    int leader;
    int32_t epoch = last_leader(world_of(m), OFFSETS_TOPIC_INDEX, g->partition, &leader);
    return (struct asked){.node = node,
                          .generation = generation,
                          .lasting = g->lasting,
                          .leader_epoch = epoch,
                          .open = g->open_epoch == epoch};
}

/* The broker that has answered is the group's latest coordinator, and was when it was asked.  One that has been
 * replaced and does not know it tells what it remembers, as Apache Kafka's: what it says is not held against it, and
 * what it says is safe has to be so all the same. */
static bool by_coordinator(const struct member *m, const struct asked *asked)
{
    int leader;
    int32_t epoch = last_leader(world_of(m), OFFSETS_TOPIC_INDEX, group_of(m)->partition, &leader);
    return epoch == asked->leader_epoch && leader == asked->node;
}

/* ---- In and out of the group */

static void step(struct member *m);

static void step_later(struct member *m, int64_t in_us)
{
    world_timer(world_of(m), &m->step, in_us);
}

static void leave_generation(struct member *m)
{
    m->state = MEMBER_OUT;
    m->owned = 0;
    for (int p = 0; p < PARTITIONS_MAX; p++) m->parts[p].known = false;
}

static void forget_id(struct member *m)
{
    m->id[0] = '\0';
    m->generation = m->before = -1;
    leave_generation(m);
}

/* Errors that a client of a group that moves has to live with. */
static bool may_come(enum kerr kerr)
{
    switch (kerr) {
    case KERR_NETWORK_EXCEPTION:
    case KERR_NOT_COORDINATOR:
    case KERR_COORDINATOR_NOT_AVAILABLE:
    case KERR_COORDINATOR_LOAD_IN_PROGRESS:
    case KERR_UNKNOWN_MEMBER_ID:
    case KERR_ILLEGAL_GENERATION:
    case KERR_REBALANCE_IN_PROGRESS:
    case KERR_UNSTABLE_OFFSET_COMMIT: /* one of them is being written */
    case KERR_REQUEST_TIMED_OUT: return true;
    default: return false;
    }
}

static void take_error(struct member *m, enum kerr kerr)
{
    switch (kerr) {
    case KERR_NETWORK_EXCEPTION:
    case KERR_NOT_COORDINATOR:
    case KERR_COORDINATOR_NOT_AVAILABLE: m->coordinator = -1; return;
    case KERR_UNKNOWN_MEMBER_ID: forget_id(m); return;
    case KERR_ILLEGAL_GENERATION:
    case KERR_REBALANCE_IN_PROGRESS: leave_generation(m); return;
    default: return;
    }
}

static void check_error(struct member *m, const char *what, enum kerr kerr, int node)
{
    if (!may_come(kerr))
        wrong(world_of(m), "broker %d answers client %d, who %s in %s, with error %d", node + 1, m->client.index, what,
              group_of(m)->name, kerr);
}

static void refused(struct member *m, const char *what, enum kerr kerr)
{
    check_error(m, what, kerr, m->asked.node);
    take_error(m, kerr);
}

static void ask_as(struct member *m, int32_t generation, enum api api, int16_t version, int node, const void *request,
                   int64_t timeout_us, void (*done)(struct call *c, const void *response))
{
    m->busy = true;
    m->asked = asked_now(m, node, generation);
    m->call = (struct call){.api = api, .version = version, .done = done};
    peer_send(&m->client.peers[node], &m->call, request, timeout_us);
}

static void ask(struct member *m, enum api api, int16_t version, int node, const void *request, int64_t timeout_us,
                void (*done)(struct call *c, const void *response))
{
    ask_as(m, m->generation, api, version, node, request, timeout_us, done);
}

static struct member *answered(struct call *c)
{
    struct member *m = CONTAINER_OF(c, struct member, call);
    m->busy = false;
    return m;
}

static void on_found(struct call *call, const void *response)
{
    struct member *m = answered(call);
    const struct find_coordinator_response *r = response;
    bool found = r && !r->error_code && r->node_id > 0;
    if (found) m->coordinator = r->node_id - 1;
    step_later(m, found ? 0 : BACKOFF_US);
}

static void find(struct member *m)
{
    struct find_coordinator_request rq = find_coordinator_request_default;
    rq.key = str_of(group_of(m)->name);
    ask(m, API_FIND_COORDINATOR, 3, client_some_node(&m->client), &rq, ASK_US, on_found);
}

static void take_id(struct member *m, struct str id)
{
    snprintf(m->id, sizeof m->id, "%.*s", STR_ARG(id));
}

static void take_join(struct member *m, const struct join_group_response *r)
{
    take_id(m, r->member_id);
    m->before = m->generation;
    m->generation = r->generation_id;
    m->other_count = 0;
    m->leads = str_equal(r->leader, r->member_id);
    for (int32_t i = 0; i < r->members_count && m->other_count < MEMBERS_MAX; i++)
        snprintf(m->others[m->other_count++], MEMBER_ID_MAX, "%.*s", STR_ARG(r->members[i].member_id));
    m->state = MEMBER_SYNCS;
}

static void on_joined(struct call *call, const void *response)
{
    struct member *m = answered(call);
    const struct join_group_response *r = response;
    enum kerr kerr = r ? (enum kerr)r->error_code : KERR_NETWORK_EXCEPTION;
    if (kerr == KERR_NONE)
        take_join(m, r);
    else if (kerr == KERR_MEMBER_ID_REQUIRED)
        take_id(m, r->member_id);
    else
        refused(m, "joins", kerr);
    step_later(m, kerr && kerr != KERR_MEMBER_ID_REQUIRED ? BACKOFF_US : 0);
}

static void join(struct member *m)
{
    struct join_group_request_join_group_request_protocol protocol = {STR("simulated"), {(const uint8_t *)"-", 1}};
    struct join_group_request rq = join_group_request_default;
    rq.group_id = str_of(group_of(m)->name);
    rq.session_timeout_ms = SESSION_MS;
    rq.rebalance_timeout_ms = REBALANCE_MS;
    rq.member_id = str_of(m->id);
    rq.protocol_type = STR("consumer");
    rq.protocols = &protocol;
    rq.protocols_count = 1;
    ask(m, API_JOIN_GROUP, 5, m->coordinator, &rq, JOIN_US, on_joined);
}

static void take_assignment(struct member *m, struct bytes b)
{
    struct world *w = world_of(m);
    if (b.size != ASSIGNMENT_SIZE) { /* its leader knew nothing of it */
        wrong(w, "client %d is given no assignment in generation %d of %s", m->client.index, m->generation,
              group_of(m)->name);
        return;
    }
    if ((int32_t)get_be32(b.data) != m->generation)
        wrong(w, "client %d is given an assignment of generation %d in generation %d of %s", m->client.index,
              (int)get_be32(b.data), m->generation, group_of(m)->name);
    m->owned = get_be32(b.data + 4);
    m->state = MEMBER_IN;
    tell(w, "client %d has partitions %x of generation %d of %s", m->client.index, m->owned, m->generation,
         group_of(m)->name);
    if (m->generation < m->asked.lasting && by_coordinator(m, &m->asked))
        wrong(w, "client %d is in generation %d of %s, which was in generation %d", m->client.index, m->generation,
              group_of(m)->name, m->asked.lasting);
}

static void on_synced(struct call *call, const void *response)
{
    struct member *m = answered(call);
    const struct sync_group_response *r = response;
    enum kerr kerr = r ? (enum kerr)r->error_code : KERR_NETWORK_EXCEPTION;
    if (kerr) {
        refused(m, "syncs", kerr);
        if (m->state == MEMBER_SYNCS) leave_generation(m);
    } else if (m->state == MEMBER_SYNCS) {
        take_assignment(m, r->assignment);
    }
    step_later(m, kerr ? BACKOFF_US : HEARTBEAT_US);
}

/* The leader's: partition after partition to member after member. */
static void assign(const struct member *m, uint8_t (*bytes)[ASSIGNMENT_SIZE],
                   struct sync_group_request_sync_group_request_assignment *out)
{
    for (int i = 0; i < m->other_count; i++) {
        uint32_t owned = 0;
        for (int p = 0; p < partitions_of(m); p++)
            if (p % m->other_count == i) owned |= UINT32_C(1) << p;
        put_be32(bytes[i], (uint32_t)m->generation);
        put_be32(bytes[i] + 4, owned);
        out[i] = (struct sync_group_request_sync_group_request_assignment){str_of(m->others[i]),
                                                                           {bytes[i], ASSIGNMENT_SIZE}};
    }
}

static void sync_in(struct member *m)
{
    uint8_t bytes[MEMBERS_MAX][ASSIGNMENT_SIZE];
    struct sync_group_request_sync_group_request_assignment assignments[MEMBERS_MAX];
    struct sync_group_request rq = sync_group_request_default;
    rq.group_id = str_of(group_of(m)->name);
    rq.generation_id = m->generation;
    rq.member_id = str_of(m->id);
    if (m->leads) {
        assign(m, bytes, assignments);
        rq.assignments = assignments;
        rq.assignments_count = m->other_count;
    }
    ask(m, API_SYNC_GROUP, 3, m->coordinator, &rq, JOIN_US, on_synced);
}

/* While a coordinator reads what its partition has, it answers everybody well, as Apache Kafka's. */
static void on_heard(struct call *call, const void *response)
{
    struct member *m = answered(call);
    const struct heartbeat_response *r = response;
    enum kerr kerr = r ? (enum kerr)r->error_code : KERR_NETWORK_EXCEPTION;
    if (kerr && m->asked.generation != m->generation)
        check_error(m, "heartbeats", kerr, m->asked.node);
    else if (kerr)
        refused(m, "heartbeats", kerr);
    else if (m->asked.open && m->asked.generation < m->asked.lasting && by_coordinator(m, &m->asked))
        wrong(world_of(m), "broker %d hears client %d in generation %d of %s, which is in generation %d",
              m->asked.node + 1, m->client.index, m->asked.generation, group_of(m)->name, m->asked.lasting);
    step_later(m, m->state == MEMBER_IN && !kerr ? HEARTBEAT_US : BACKOFF_US);
}

static void heartbeat(struct member *m)
{
    struct heartbeat_request rq = heartbeat_request_default;
    rq.group_id = str_of(group_of(m)->name);
    rq.generation_id = some_generation(m);
    rq.member_id = str_of(m->id);
    ask_as(m, rq.generation_id, API_HEARTBEAT, 3, m->coordinator, &rq, ASK_US, on_heard);
}

static bool sleeps(const struct member *m)
{
    return world_of(m)->now_us < m->asleep_until_us;
}

static void step(struct member *m)
{
    if (m->busy) return;
    if (sleeps(m)) {
        step_later(m, m->asleep_until_us - world_of(m)->now_us);
        return;
    }
    if (m->coordinator < 0) {
        find(m);
        return;
    }
    switch (m->state) {
    case MEMBER_OUT: join(m); return;
    case MEMBER_SYNCS: sync_in(m); return;
    case MEMBER_IN: heartbeat(m); return;
    }
}

static void on_step(struct timer *t)
{
    step(CONTAINER_OF(t, struct member, step));
}

/* ---- Offsets */

static void own_ask(struct ownership *o, int32_t generation, enum api api, int16_t version, const void *request,
                    void (*done)(struct call *c, const void *response))
{
    struct member *m = o->member;
    o->under_way = true;
    o->asked = asked_now(m, m->coordinator, generation);
    o->asked.floor = group_of(m)->parts[o->partition].acked;
    o->call = (struct call){.api = api, .version = version, .done = done};
    peer_send(&m->client.peers[m->coordinator], &o->call, request, ASK_US);
}

/* An error is the member's affair only if it is still where it was when it asked. */
static void own_refused(struct ownership *o, const char *what, enum kerr kerr)
{
    struct member *m = o->member;
    if (kerr == KERR_UNKNOWN_TOPIC_OR_PARTITION) return; /* a coordinator that has just started */
    check_error(m, what, kerr, o->asked.node);
    if (m->state == MEMBER_IN && m->generation == o->asked.generation && m->coordinator == o->asked.node)
        take_error(m, kerr);
}

static void note_open(const struct ownership *o)
{
    if (by_coordinator(o->member, &o->asked)) group_of(o->member)->open_epoch = o->asked.leader_epoch;
}

static bool may_be_written(enum kerr kerr)
{
    return kerr != KERR_ILLEGAL_GENERATION && kerr != KERR_UNKNOWN_MEMBER_ID && kerr != KERR_REBALANCE_IN_PROGRESS &&
           kerr != KERR_UNKNOWN_TOPIC_OR_PARTITION;
}

static void on_committed(struct call *call, const void *response)
{
    struct ownership *o = CONTAINER_OF(call, struct ownership, call);
    struct world *w = world_of(o->member);
    const struct offset_commit_response *r = response;
    enum kerr kerr = r ? (enum kerr)r->topics[0].partitions[0].error_code : KERR_NETWORK_EXCEPTION;
    o->under_way = false;
    if (!kerr) {
        if (w->calm) o->committed = true;
        check_committed(w, o);
        note_open(o);
        return;
    }
    if (may_be_written(kerr)) check_in_doubt(w, o);
    own_refused(o, "commits", kerr);
}

static void commit(struct ownership *o)
{
    struct member *m = o->member;
    o->value = ++group_of(m)->parts[o->partition].sent;
    struct offset_commit_request_offset_commit_request_partition part =
        offset_commit_request_offset_commit_request_partition_default;
    part.partition_index = o->partition;
    part.committed_offset = o->value;
    struct offset_commit_request_offset_commit_request_topic topic =
        offset_commit_request_offset_commit_request_topic_default;
    topic.name = str_of(world_of(m)->topics[GROUPS_TOPIC].name);
    topic.partitions = &part;
    topic.partitions_count = 1;
    struct offset_commit_request rq = offset_commit_request_default;
    rq.group_id = str_of(group_of(m)->name);
    rq.generation_id_or_member_epoch = some_generation(m);
    rq.member_id = str_of(m->id);
    rq.topics = &topic;
    rq.topics_count = 1;
    own_ask(o, rq.generation_id_or_member_epoch, API_OFFSET_COMMIT, 8, &rq, on_committed);
}

static void on_read(struct call *call, const void *response)
{
    struct ownership *o = CONTAINER_OF(call, struct ownership, call);
    struct world *w = world_of(o->member);
    const struct offset_fetch_response *r = response;
    o->under_way = false;
    enum kerr kerr = r ? (enum kerr)r->error_code : KERR_NETWORK_EXCEPTION;
    if (!kerr) kerr = (enum kerr)r->topics[0].partitions[0].error_code;
    if (kerr) {
        own_refused(o, "reads what is committed", kerr);
        return;
    }
    note_open(o);
    if (by_coordinator(o->member, &o->asked)) check_read(w, o, r->topics[0].partitions[0].committed_offset);
    o->known = true;
    if (w->calm && o->committed) o->read = true;
}

static void read_committed(struct ownership *o)
{
    struct member *m = o->member;
    int32_t partition = o->partition;
    struct offset_fetch_request_offset_fetch_request_topic topic = {str_of(world_of(m)->topics[GROUPS_TOPIC].name),
                                                                    &partition, 1};
    struct offset_fetch_request rq = offset_fetch_request_default;
    rq.group_id = str_of(group_of(m)->name);
    rq.topics = &topic;
    rq.topics_count = 1;
    rq.require_stable = true;
    own_ask(o, m->generation, API_OFFSET_FETCH, 7, &rq, on_read);
}

static void own_work(struct ownership *o)
{
    struct world *w = world_of(o->member);
    if (o->under_way || (w->calm && o->read)) return;
    if (!o->known || (w->calm ? o->committed : one_in(w, 5)))
        read_committed(o);
    else
        commit(o);
}

static void on_work(struct timer *t)
{
    struct member *m = CONTAINER_OF(t, struct member, work);
    struct world *w = world_of(m);
    int partition = (int)draw(w, (uint64_t)partitions_of(m));
    world_timer(w, t, draw_between(w, 1, 2 * WORK_US));
    if (sleeps(m) || m->state != MEMBER_IN || m->coordinator < 0) return;
    if (m->owned & UINT32_C(1) << partition) own_work(&m->parts[partition]);
}

const char *members_lack(struct world *w)
{
    for (int g = 0; g < w->group_count; g++) {
        unsigned owned = 0;
        int32_t generation = -1;
        for (int i = 0; i < w->member_count; i++) {
            const struct member *m = &w->members[i];
            if (m->group != g) continue;
            if (m->state != MEMBER_IN || (generation >= 0 && m->generation != generation))
                return "a group is not stable";
            generation = m->generation;
            owned |= m->owned;
            for (int p = 0; p < partitions_of(m); p++)
                if (m->owned & UINT32_C(1) << p && !m->parts[p].read) return "a group has not committed and read";
        }
        if (owned != (UINT32_C(1) << w->topics[GROUPS_TOPIC].partitions) - 1) return "a group has partitions left";
    }
    return NULL;
}

/* ---- Trouble */

static void on_left(struct call *call, const void *response)
{
    struct member *m = answered(call);
    (void)response; /* one that was fenced already cannot leave */
    step_later(m, draw_between(world_of(m), 1, 10 * BACKOFF_US));
}

static void leave(struct member *m)
{
    struct leave_group_request_member_identity who = leave_group_request_member_identity_default;
    who.member_id = str_of(m->id);
    struct leave_group_request rq = leave_group_request_default;
    rq.group_id = str_of(group_of(m)->name);
    rq.members = &who;
    rq.members_count = 1;
    tell(world_of(m), "client %d leaves %s", m->client.index, group_of(m)->name);
    loop_timer_cancel(world_of(m)->loop, &m->step);
    ask(m, API_LEAVE_GROUP, 3, m->coordinator, &rq, ASK_US, on_left);
    forget_id(m);
}

/* Its process is killed, and another one started. */
static void start_anew(struct member *m)
{
    struct world *w = world_of(m);
    tell(w, "client %d of %s is started anew", m->client.index, group_of(m)->name);
    for (int i = 0; i < w->setup.nodes; i++)
        if (m->client.peers[i].sock) peer_break(&m->client.peers[i]);
    forget_id(m);
}

static void on_trouble(struct timer *t)
{
    struct member *m = CONTAINER_OF(t, struct member, trouble);
    struct world *w = world_of(m);
    if (w->calm) return;
    world_timer(w, t, draw_between(w, 1, 2 * TROUBLE_US));
    if (sleeps(m)) return;
    switch (draw(w, 4)) {
    case 0:
        if (!m->busy && m->state == MEMBER_IN && m->coordinator >= 0) leave(m);
        return;
    case 1: start_anew(m); return;
    default:
        m->asleep_until_us = w->now_us + draw_between(w, 200 * MS, 4 * S);
        tell(w, "client %d of %s sleeps for %" PRId64 " ms", m->client.index, group_of(m)->name,
             (m->asleep_until_us - w->now_us) / MS);
    }
}

static void member_start(struct world *w, struct member *m, int client, int group)
{
    client_init(w, &m->client, client);
    m->group = group;
    m->coordinator = -1;
    m->generation = m->before = -1;
    m->step.fire = on_step;
    m->work.fire = on_work;
    m->trouble.fire = on_trouble;
    for (int p = 0; p < PARTITIONS_MAX; p++) {
        m->parts[p].member = m;
        m->parts[p].partition = p;
    }
    step_later(m, draw_between(w, 0, BACKOFF_US));
    world_timer(w, &m->work, WORK_US);
    if (!w->opt.quiet) world_timer(w, &m->trouble, draw_between(w, 1, 2 * TROUBLE_US));
}

void groups_start(struct world *w)
{
    static const char *const names[GROUPS_MAX] = {"team-a", "team-b"}; /* in different partitions */
    w->group_count = (int)draw_between(w, 1, GROUPS_MAX);
    for (int g = 0; g < w->group_count; g++)
        w->groups[g] = (struct group_model){
            .name = names[g],
            .open_epoch = -1,
            .partition = group_partition_of(str_of(names[g]), w->topics[OFFSETS_TOPIC_INDEX].partitions)};
    for (int i = 0; i < MEMBERS_MAX && i / 2 < w->group_count; i++)
        member_start(w, &w->members[w->member_count++], CLIENTS_MAX - MEMBERS_MAX + i, i / 2);
}
