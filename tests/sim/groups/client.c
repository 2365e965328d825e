/* client.c: consumers that behave, as the Java client does: they join with the id that they were given, the leader
 * assigns, heartbeats tell them to join again, offsets are fetched and committed, and every error has its answer. */
#include <string.h>

#include "base/endian.h"
#include "base/writer.h"
#include "world.h"

enum {
    BACKOFF_MS = 100,
    FATAL_BACKOFF_MS = 1500, /* somebody starts it again */
    SILENCE_MS_MAX = 2500,   /* until a host sees that a peer is gone without having said so */
    USER_DATA_SIZE = 16,
    ASSIGNMENT_SIZE = 12,
};

/* ---- What clients tell each other through the coordinator */

struct subscription {
    bool good;
    uint32_t client, topics, owned;
    int32_t owned_generation;
};

static uint8_t *put_str(uint8_t *at, struct str s)
{
    put_be16(at, (uint16_t)s.size);
    memcpy(at + 2, s.data, s.size);
    return at + 2 + s.size;
}

/* ConsumerProtocolSubscription, version 1; what our assignor wants to know is its user data. */
static struct bytes subscription_bytes(struct arena *a, const struct client *c, bool cooperative)
{
    uint8_t *bytes = arena_alloc(a, 64 + USER_DATA_SIZE), *at = bytes;
    put_be16(at, 1);
    put_be32(at + 2, (uint32_t)__builtin_popcount(c->topics));
    at += 6;
    for (int t = 0; t < TOPICS; t++)
        if (c->topics & BIT(t)) at = put_str(at, topic_name(t));
    put_be32(at, USER_DATA_SIZE);
    put_be32(at + 4, (uint32_t)c->index);
    put_be32(at + 8, c->topics);
    put_be32(at + 12, cooperative ? c->owned : 0);
    put_be32(at + 16, cooperative ? (uint32_t)c->owned_generation : UINT32_MAX);
    put_be32(at + 20, 0); /* owned partitions: they are in the user data */
    return (struct bytes){bytes, (size_t)(at + 24 - bytes)};
}

static struct subscription subscription_read(struct bytes b)
{
    struct reader r = reader_of(b.data, b.size);
    reader_i16(&r);
    int32_t topics = reader_i32(&r);
    for (int32_t i = 0; i < topics && !r.err; i++) reader_take(&r, (uint16_t)reader_i16(&r));
    bool right_size = reader_i32(&r) == USER_DATA_SIZE;
    struct subscription s = {.client = (uint32_t)reader_i32(&r)};
    s.topics = (uint32_t)reader_i32(&r);
    s.owned = (uint32_t)reader_i32(&r);
    s.owned_generation = reader_i32(&r);
    s.good = right_size && !r.err;
    return s;
}

struct bytes assignment_bytes(struct arena *a, uint32_t serial, uint32_t positions)
{
    uint8_t *bytes = arena_alloc(a, ASSIGNMENT_SIZE);
    put_be32(bytes, UINT32_C(0xa551614e));
    put_be32(bytes + 4, serial);
    put_be32(bytes + 8, positions);
    return (struct bytes){bytes, ASSIGNMENT_SIZE};
}

bool assignment_read(struct bytes b, uint32_t *serial, uint32_t *positions)
{
    if (b.size != ASSIGNMENT_SIZE || get_be32(b.data) != UINT32_C(0xa551614e)) return false;
    *serial = get_be32(b.data + 4);
    *positions = get_be32(b.data + 8);
    return true;
}

/* ---- Sending */

void client_set_timer(struct world *w, struct client *c, enum client_timer timer, int64_t in_ms)
{
    world_event(w, (struct event){.kind = EVENT_CLIENT,
                                  .at_ms = w->now_ms + in_ms,
                                  .client = c->index,
                                  .timer = (int)timer,
                                  .mark = ++c->timer_marks[timer]});
}

static bool is_waiting(const struct client *c)
{
    return c->join || c->sync || c->heartbeat || c->commit || c->fetch || c->leave;
}

static void client_send(struct world *w, struct client *c, struct request *rq, uint64_t *slot)
{
    if (!is_waiting(c) || c->state == CLIENT_JOINING) {
        int64_t timeout_ms = c->state == CLIENT_JOINING ? c->rebalance_ms + 5000 : 5000;
        if (!w->calm && one_in(w, 12)) timeout_ms = draw_between(w, 200, 2000); /* it loses its patience */
        client_set_timer(w, c, TIMER_REQUEST, timeout_ms);
    }
    *slot = rq->id;
    rq->client = c->index;
    rq->process = c->process;
    rq->conn = c->conn;
    c->last_arrival_ms = MAX(c->last_arrival_ms, w->now_ms + world_latency(w));
    request_send(w, rq, c->last_arrival_ms);
}

void client_fill_join(struct world *w, struct client *c, struct request *rq)
{
    struct join_group_request *in = &rq->in.join;
    bool cooperative = w->config.cooperative[c->group];
    rq->call.version = c->join_version;
    in->group_id = group_name(c->group);
    in->session_timeout_ms = c->session_ms;
    in->rebalance_timeout_ms = c->rebalance_ms;
    in->member_id = arena_str(&rq->arena, str_of(c->id));
    in->group_instance_id = instance_name(c->instance);
    in->protocol_type = STR("consumer");
    in->protocols_count = c->two_protocols ? 2 : 1;
    in->protocols = arena_array(&rq->arena, struct join_group_request_join_group_request_protocol, 2);
    in->protocols[0].name = cooperative ? STR("cooperative") : STR("range");
    in->protocols[1].name = STR("backup");
    in->protocols[0].metadata = in->protocols[1].metadata = subscription_bytes(&rq->arena, c, cooperative);
    rq->metadata_hash = hash_of(in->protocols[0].metadata.data, in->protocols[0].metadata.size);
}

static void send_join(struct world *w, struct client *c)
{
    struct request *rq = request_new(w, GROUP_JOIN, c->group);
    client_fill_join(w, c, rq);
    c->state = CLIENT_JOINING;
    c->sync = c->heartbeat = 0;
    c->joined_topics = c->topics;
    say(w, "client %d joins as '%.20s' of generation %d", c->index, c->id, c->generation);
    client_send(w, c, rq, &c->join);
}

static struct request *new_sync(struct world *w, struct client *c)
{
    struct request *rq = request_new(w, GROUP_SYNC, c->group);
    struct sync_group_request *in = &rq->in.sync;
    in->group_id = group_name(c->group);
    in->generation_id = c->generation;
    in->member_id = arena_str(&rq->arena, str_of(c->id));
    in->group_instance_id = instance_name(c->instance);
    in->protocol_type = STR("consumer");
    return rq;
}

static void send_heartbeat(struct world *w, struct client *c)
{
    struct request *rq = request_new(w, GROUP_HEARTBEAT, c->group);
    struct heartbeat_request *in = &rq->in.heartbeat;
    in->group_id = group_name(c->group);
    in->generation_id = c->generation;
    in->member_id = arena_str(&rq->arena, str_of(c->id));
    in->group_instance_id = instance_name(c->instance);
    client_send(w, c, rq, &c->heartbeat);
}

static void send_commit(struct world *w, struct client *c, uint32_t positions, const int64_t *values)
{
    struct request *rq = request_new(w, GROUP_COMMIT, c->group);
    struct offset_commit_request *in = &rq->in.commit;
    request_fill_commit(w, rq, positions, values);
    in->group_id = group_name(c->group);
    in->generation_id_or_member_epoch = c->generation;
    in->member_id = arena_str(&rq->arena, str_of(c->id));
    in->group_instance_id = instance_name(c->instance);
    c->committing = positions;
    memcpy(c->committing_values, rq->values, sizeof rq->values);
    client_send(w, c, rq, &c->commit);
}

static void send_fetch(struct world *w, struct client *c)
{
    struct request *rq = request_new(w, GROUP_FETCH, c->group);
    request_fill_fetch(rq, c->owned, one_in(w, 4));
    rq->call.require_stable = one_in(w, 2);
    client_send(w, c, rq, &c->fetch);
}

/* ---- The leader */

/* Who gets a partition: of those who want it, each its share, in turn.  A cooperative group leaves a partition to
 * nobody while another than the one who shall get it has it. */
static int assign_one(int position, const struct subscription *subs, int count, bool cooperative)
{
    int wanting[2 * CLIENTS_MAX + 8], wanted = 0, owner = -1;
    int32_t owner_generation = -1;
    for (int i = 0; i < count; i++) {
        if (!subs[i].good) continue;
        if (subs[i].topics & BIT(position / TOPIC_PARTITIONS)) wanting[wanted++] = i;
        if (subs[i].owned & BIT(position) && subs[i].owned_generation > owner_generation) {
            owner = i;
            owner_generation = subs[i].owned_generation;
        }
    }
    if (wanted == 0) return -1;
    int target = wanting[position % wanted];
    return cooperative && owner >= 0 && owner != target ? -1 : target;
}

static void assign(struct world *w, struct client *c, const struct join_group_response *joined, struct request *rq)
{
    struct sync_group_request *in = &rq->in.sync;
    struct subscription subs[2 * CLIENTS_MAX + 8];
    uint32_t sets[2 * CLIENTS_MAX + 8] = {0};
    int count = (int)MIN((size_t)joined->members_count, ARRAY_COUNT(subs));
    for (int i = 0; i < count; i++) subs[i] = subscription_read(joined->members[i].metadata);
    for (int p = 0; p < POSITIONS; p++) {
        int who = assign_one(p, subs, count, w->config.cooperative[c->group]);
        if (who >= 0) sets[who] |= BIT(p);
    }
    rq->serial = assignment_new(w, c->group, c->generation, in->member_id);
    in->assignments = arena_array(&rq->arena, struct sync_group_request_sync_group_request_assignment, (size_t)count);
    in->assignments_count = count;
    for (int i = 0; i < count; i++) {
        in->assignments[i].member_id = arena_str(&rq->arena, joined->members[i].member_id);
        in->assignments[i].assignment = assignment_bytes(&rq->arena, rq->serial, sets[i]);
        assignment_add(w, rq->serial, joined->members[i].member_id,
                       instance_number(joined->members[i].group_instance_id), sets[i]);
    }
    say(w, "client %d leads generation %d of %d members, assignment %u", c->index, c->generation, count, rq->serial);
}

/* ---- Joining, and starting over */

static void client_rejoin(struct world *w, struct client *c, int64_t in_ms)
{
    if (c->state == CLIENT_DOWN) return;
    c->state = CLIENT_UNJOINED;
    c->join = c->sync = 0;
    if (!w->config.cooperative[c->group]) c->owned = 0; /* an eager one gives all up before it joins */
    client_set_timer(w, c, TIMER_ACT, in_ms);
}

/* It is no member of that generation any more. */
static void client_lost(struct client *c, bool id_too)
{
    c->generation = -1;
    c->owned = 0;
    c->owned_generation = -1;
    if (id_too) c->id[0] = 0;
}

static void client_hear_error(struct world *w, struct client *c, enum kerr kerr)
{
    say(w, "client %d hears %s", c->index, kerr_name((int16_t)kerr));
    switch (kerr) {
    case KERR_UNKNOWN_MEMBER_ID:
        client_lost(c, true);
        client_rejoin(w, c, 0);
        return;
    case KERR_ILLEGAL_GENERATION:
        client_lost(c, false);
        client_rejoin(w, c, 0);
        return;
    case KERR_REBALANCE_IN_PROGRESS:
        /* The application is busy, at times for long, before it polls again. */
        client_rejoin(w, c, w->calm ? 0 : one_in(w, 10) ? (int64_t)draw(w, 6000) : (int64_t)draw(w, 50));
        return;
    case KERR_FENCED_INSTANCE_ID:
        say(w, "client %d is fenced and ends", c->index);
        client_crash(w, c, false);
        return;
    case KERR_GROUP_MAX_SIZE_REACHED: client_crash(w, c, false); return;
    case KERR_COORDINATOR_LOAD_IN_PROGRESS:
    case KERR_COORDINATOR_NOT_AVAILABLE:
    case KERR_NOT_COORDINATOR:
    case KERR_REQUEST_TIMED_OUT:
    case KERR_UNKNOWN_SERVER_ERROR: client_rejoin(w, c, BACKOFF_MS); return;
    case KERR_INCONSISTENT_GROUP_PROTOCOL: /* a stranger is in the group */
        client_lost(c, true);
        client_rejoin(w, c, FATAL_BACKOFF_MS);
        return;
    default: wrong(w, "a client that behaves hears %s", kerr_name((int16_t)kerr));
    }
}

static void hear_join(struct world *w, struct client *c, const struct request *rq)
{
    const struct join_group_response *out = &rq->out.join;
    if (out->error_code == KERR_MEMBER_ID_REQUIRED || out->error_code == KERR_NONE) {
        if (out->member_id.size == 0 || out->member_id.size >= MEMBER_ID_MAX) {
            wrong(w, "a member id of %zu bytes", out->member_id.size);
            return;
        }
        memcpy(c->id, out->member_id.data, out->member_id.size);
        c->id[out->member_id.size] = 0;
    }
    if (out->error_code == KERR_MEMBER_ID_REQUIRED) {
        client_rejoin(w, c, 0);
    } else if (out->error_code) {
        client_hear_error(w, c, (enum kerr)out->error_code);
    } else {
        bool leads = str_equal(out->leader, out->member_id);
        c->generation = out->generation_id;
        c->state = CLIENT_SYNCING;
        struct request *sync = new_sync(w, c);
        sync->in.sync.protocol_name = arena_str(&sync->arena, out->protocol_name);
        if (leads && !out->skip_assignment) assign(w, c, out, sync);
        say(w, "client %d has joined generation %d as %.20s", c->index, c->generation, c->id);
        client_send(w, c, sync, &c->sync);
    }
}

static void check_owned_once(struct world *w, const struct client *c)
{
    for (int i = 0; i < w->config.clients; i++) {
        const struct client *other = &w->clients[i];
        if (other == c || other->group != c->group || other->owned_serial != c->owned_serial) continue;
        if (other->state == CLIENT_DOWN || other->owned_generation != c->owned_generation) continue;
        if (c->instance >= 0 && other->instance == c->instance) continue; /* the same member, fenced by now */
        if (other->owned & c->owned)
            wrong(w, "clients %d and %d both own partitions %x in generation %d", c->index, i, other->owned & c->owned,
                  c->generation);
    }
}

static void hear_sync(struct world *w, struct client *c, const struct request *rq)
{
    const struct sync_group_response *out = &rq->out.sync;
    uint32_t serial, positions;
    if (out->error_code) {
        client_hear_error(w, c, (enum kerr)out->error_code);
        return;
    }
    if (!assignment_read(out->assignment, &serial, &positions))
        serial = positions = 0; /* as check.c knows, of a stranger */
    bool cooperative = w->config.cooperative[c->group];
    uint32_t lost = c->owned & ~positions;
    c->owned = positions;
    c->owned_generation = c->generation;
    c->owned_serial = serial;
    c->state = CLIENT_STABLE;
    say(w, "client %d owns %02x in generation %d, by assignment %u", c->index, c->owned, c->generation, serial);
    if (serial && !w->assignments[serial - 1].hostile) check_owned_once(w, c);
    if (c->owned && !c->fetch) send_fetch(w, c);
    if ((cooperative && lost) || c->topics != c->joined_topics) client_rejoin(w, c, 0);
}

static void hear_commit(struct world *w, struct client *c, const struct request *rq)
{
    enum kerr kerr = request_kerr(rq);
    switch (kerr) {
    case KERR_NONE: return;
    case KERR_UNKNOWN_MEMBER_ID:
    case KERR_ILLEGAL_GENERATION:
    case KERR_FENCED_INSTANCE_ID:
        /* Of a generation that it has left meanwhile it says nothing. */
        if (c->state == CLIENT_STABLE && rq->in.commit.generation_id_or_member_epoch == c->generation)
            client_hear_error(w, c, kerr);
        return;
    case KERR_REBALANCE_IN_PROGRESS:
        if (c->state == CLIENT_STABLE) client_hear_error(w, c, kerr);
        return;
    case KERR_INVALID_COMMIT_OFFSET_SIZE:
    case KERR_COORDINATOR_LOAD_IN_PROGRESS:
    case KERR_COORDINATOR_NOT_AVAILABLE:
    case KERR_NOT_COORDINATOR:
    case KERR_REQUEST_TIMED_OUT:
    case KERR_UNKNOWN_SERVER_ERROR:
    case KERR_UNKNOWN_TOPIC_OR_PARTITION:
        if (c->state == CLIENT_STABLE && one_in(w, 2)) send_commit(w, c, rq->positions, rq->values); /* once more */
        return;
    default: wrong(w, "a commit of a client that behaves ends with %s", kerr_name((int16_t)kerr));
    }
}

static void hear_heartbeat(struct world *w, struct client *c, const struct request *rq)
{
    enum kerr kerr = request_kerr(rq);
    if (!kerr) return;
    if (kerr == KERR_NOT_COORDINATOR || kerr == KERR_COORDINATOR_NOT_AVAILABLE) return; /* the next one finds it */
    if (kerr == KERR_REBALANCE_IN_PROGRESS && c->state != CLIENT_STABLE) return;        /* it knows, and is busy */
    if (rq->in.heartbeat.generation_id != c->generation) return;
    client_hear_error(w, c, kerr);
}

void client_answered(struct world *w, struct client *c, struct request *rq)
{
    uint64_t *slots[GROUP_API_COUNT] = {
        [GROUP_JOIN] = &c->join,     [GROUP_SYNC] = &c->sync,   [GROUP_HEARTBEAT] = &c->heartbeat,
        [GROUP_COMMIT] = &c->commit, [GROUP_FETCH] = &c->fetch, [GROUP_LEAVE] = &c->leave};
    uint64_t *slot = slots[rq->call.api];
    if (*slot != rq->id) return; /* it has given that one up */
    *slot = 0;
    switch (rq->call.api) {
    case GROUP_JOIN: hear_join(w, c, rq); return;
    case GROUP_SYNC: hear_sync(w, c, rq); return;
    case GROUP_HEARTBEAT: hear_heartbeat(w, c, rq); return;
    case GROUP_COMMIT: hear_commit(w, c, rq); return;
    default: return; /* check_offsets.c has looked at what was fetched */
    }
}

/* ---- Timers */

static uint32_t some_of(struct world *w, uint32_t set)
{
    uint32_t some = set & (uint32_t)draw(w, POSITIONS_ALL + 1);
    return some ? some : set;
}

void client_timer_fired(struct world *w, struct client *c, enum client_timer timer)
{
    if (c->state == CLIENT_DOWN) return;
    switch (timer) {
    case TIMER_ACT:
        if (c->state == CLIENT_UNJOINED) send_join(w, c);
        return;
    case TIMER_HEARTBEAT:
        if (c->state != CLIENT_JOINING && c->generation >= 0 && !c->heartbeat) send_heartbeat(w, c);
        client_set_timer(w, c, TIMER_HEARTBEAT, c->heartbeat_ms);
        return;
    case TIMER_COMMIT:
        if (c->state == CLIENT_STABLE && c->owned && !c->commit) send_commit(w, c, some_of(w, c->owned), NULL);
        client_set_timer(w, c, TIMER_COMMIT, c->commit_ms / 2 + (int64_t)draw(w, (uint64_t)c->commit_ms));
        return;
    case TIMER_REQUEST:
        if (is_waiting(c)) {
            say(w, "client %d has waited for too long", c->index);
            client_disconnect(w, c);
        }
        return;
    case TIMER_DISCONNECT: client_disconnect(w, c); return;
    case CLIENT_TIMERS: UNREACHABLE();
    }
}

/* ---- Coming and going */

void client_init(struct world *w, struct client *c, int index)
{
    *c = (struct client){
        .index = index,
        .group = w->config.groups > 1 ? index % w->config.groups : 0,
        .instance = one_in(w, 3) ? index : -1,
        .generation = -1,
        .owned_generation = -1,
    };
}

void client_start(struct world *w, struct client *c)
{
    static const int16_t versions[] = {2, 5, 8, 9};
    ASSERT(c->state == CLIENT_DOWN);
    c->process++;
    c->conn++;
    c->join = c->sync = c->heartbeat = c->commit = c->fetch = c->leave = 0;
    c->last_arrival_ms = c->last_answer_ms = 0;
    c->committing = 0;
    c->paused_until_ms = 0;
    c->join_version = versions[c->instance >= 0 ? 1 + draw(w, 3) : draw(w, 4)];
    c->two_protocols = one_in(w, 3);
    c->session_ms = draw_between(w, 1000, 4000);
    c->rebalance_ms = draw_between(w, 1000, w->config.rebalance_max_ms);
    c->heartbeat_ms = c->session_ms / draw_between(w, 3, 6);
    c->commit_ms = draw_between(w, 300, 2500);
    /* A static member that comes back and wants others is not assigned anew, in Kafka neither: it always wants all. */
    c->topics = c->instance < 0 && one_in(w, 4) ? (uint32_t)BIT(draw(w, TOPICS)) : BIT(TOPICS) - 1;
    client_lost(c, true);
    c->state = CLIENT_UNJOINED;
    say(w, "client %d starts in %.*s, %s, JoinGroup version %d, session %d ms, rebalance %d ms", c->index,
        STR_ARG(group_name(c->group)), c->instance >= 0 ? "static" : "dynamic", c->join_version, c->session_ms,
        c->rebalance_ms);
    client_set_timer(w, c, TIMER_ACT, (int64_t)draw(w, 200));
    client_set_timer(w, c, TIMER_HEARTBEAT, c->heartbeat_ms);
    client_set_timer(w, c, TIMER_COMMIT, (int64_t)draw(w, (uint64_t)c->commit_ms));
}

/* The host sees it after all that was sent; by a reset what is on its way is lost. */
static void hang_up_later(struct world *w, struct client *c, bool silent)
{
    int64_t at_ms = w->now_ms + world_latency(w) + (silent ? (int64_t)draw(w, SILENCE_MS_MAX) : 0);
    if (!w->calm && one_in(w, 3)) {
        for (size_t i = 0; i < w->request_count; i++) {
            struct request *rq = w->requests[i];
            if (rq->state == REQUEST_SENT && rq->client == c->index && rq->process == c->process && rq->conn == c->conn)
                request_free(w, rq);
        }
    } else {
        at_ms = MAX(at_ms, c->last_arrival_ms);
    }
    world_event(w, (struct event){
                       .kind = EVENT_HANGUP, .at_ms = at_ms, .client = c->index, .mark = c->process, .conn = c->conn});
    c->conn++;
    c->last_arrival_ms = c->last_answer_ms = 0;
}

void client_crash(struct world *w, struct client *c, bool silent)
{
    if (c->state == CLIENT_DOWN) return;
    hang_up_later(w, c, silent);
    c->state = CLIENT_DOWN;
    c->owned = 0;
    for (int t = 0; t < CLIENT_TIMERS; t++) c->timer_marks[t]++;
}

void client_leave(struct world *w, struct client *c)
{
    if (c->state == CLIENT_DOWN) return;
    if (c->id[0]) {
        struct request *rq = request_new(w, GROUP_LEAVE, c->group);
        struct leave_group_request *in = &rq->in.leave;
        in->group_id = group_name(c->group);
        in->members = arena_array(&rq->arena, struct leave_group_request_member_identity, 1);
        in->members[0] = leave_group_request_member_identity_default;
        in->members[0].member_id = arena_str(&rq->arena, str_of(c->id));
        in->members[0].group_instance_id = instance_name(c->instance);
        in->members_count = 1;
        client_send(w, c, rq, &c->leave);
    }
    client_crash(w, c, false);
}

void client_disconnect(struct world *w, struct client *c)
{
    if (c->state == CLIENT_DOWN) return;
    say(w, "client %d loses its connection", c->index);
    hang_up_later(w, c, !w->calm && one_in(w, 3));
    bool commits = c->commit != 0;
    c->join = c->sync = c->heartbeat = c->commit = c->fetch = c->leave = 0;
    if (c->state == CLIENT_JOINING || c->state == CLIENT_SYNCING)
        client_rejoin(w, c, (int64_t)draw(w, BACKOFF_MS));
    else if (commits && c->state == CLIENT_STABLE && one_in(w, 2))
        send_commit(w, c, c->committing, c->committing_values); /* perhaps it has arrived before */
}

void client_subscribe(struct world *w, struct client *c, uint32_t topics)
{
    if (c->state == CLIENT_DOWN || c->topics == topics) return;
    c->topics = topics;
    say(w, "client %d subscribes to topics %x", c->index, topics);
    if (c->state == CLIENT_STABLE) client_rejoin(w, c, 0);
}
