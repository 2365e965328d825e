/* disturb.c: what goes wrong, in whose weights seeds differ: clients die, leave, sleep, are cut off; the coordinator
 * moves; offsets expire, topics go, people delete and look; strangers send what they should not. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "world.h"

enum disturbance {
    DISTURB_CRASH,
    DISTURB_START,
    DISTURB_LEAVE,
    DISTURB_PAUSE,
    DISTURB_DISCONNECT,
    DISTURB_SUBSCRIBE,
    DISTURB_MOVE,
    DISTURB_DIE,
    DISTURB_LOOK,
    DISTURB_SIMPLE_COMMIT,
    DISTURB_EXPIRE,
    DISTURB_FORGET_TOPIC,
    DISTURB_DELETE_GROUP,
    DISTURB_DELETE_OFFSETS,
    DISTURB_USURP,
    DISTURB_REMOVE_STATIC,
    DISTURB_HOSTILE,
    DISTURBANCES
};

/* A third of them does not happen in a seed at all, so that what hides behind them shows. */
void disturb_init(struct world *w)
{
    static_assert(DISTURBANCES <= ARRAY_COUNT(w->config.weights), "a weight each");
    for (int i = 0; i < DISTURBANCES; i++) w->config.weights[i] = one_in(w, 3) ? 0 : draw_between(w, 1, 6);
    w->config.weights[DISTURB_START] = draw_between(w, 3, 8);
    w->config.weights[DISTURB_LOOK] = draw_between(w, 1, 3);
    if (!w->config.hostile) w->config.weights[DISTURB_HOSTILE] = 0;
}

static struct client *any_client(struct world *w, bool down)
{
    int from = (int)draw(w, (uint64_t)w->config.clients);
    for (int i = 0; i < w->config.clients; i++) {
        struct client *c = &w->clients[(from + i) % w->config.clients];
        if ((c->state == CLIENT_DOWN) == down) return c;
    }
    return NULL;
}

/* ---- People */

/* Once again in lower case: filters do not care. */
static struct str lower(struct arena *a, struct str s)
{
    char *bytes = arena_alloc(a, s.size + 1);
    for (size_t i = 0; i < s.size; i++) bytes[i] = (char)(s.data[i] | 0x20);
    return (struct str){bytes, s.size};
}

/* ListGroups must say what DescribeGroups says, and with a filter for just that state, too. */
static void look_at_list(struct world *w, int group, struct str state, bool filtered)
{
    struct request *rq = request_new(w, GROUP_LIST, -1);
    if (filtered) {
        rq->in.list.states_filter = arena_array(&rq->arena, struct str, 1);
        rq->in.list.states_filter[0] = lower(&rq->arena, state);
        rq->in.list.states_filter_count = 1;
    }
    request_ask(w, rq);
    if (w->failed) return;
    bool found = false;
    for (int i = 0; i < rq->out.list.groups_count; i++) {
        const struct list_groups_response_listed_group *g = &rq->out.list.groups[i];
        if (!str_equal(g->group_id, group_name(group))) continue;
        if (found) wrong(w, "a group is listed twice");
        found = true;
        if (!str_equal(g->group_state, state))
            wrong(w, "a group is %.*s and listed as %.*s", STR_ARG(state), STR_ARG(g->group_state));
    }
    if (found == str_is(state, "Dead"))
        wrong(w, "a group in state %.*s is %s", STR_ARG(state), found ? "listed" : "not listed");
    request_free(w, rq);
}

void disturb_look(struct world *w)
{
    for (int g = 0; g < w->config.groups && w->host.state == HOST_UP && !w->failed; g++) {
        struct request *rq = request_new(w, GROUP_DESCRIBE, g), *fetch = request_new(w, GROUP_FETCH, g);
        request_ask(w, rq);
        if (w->failed) return;
        look_at_list(w, g, rq->out.describe.error_code ? STR("Dead") : rq->out.describe.group_state, one_in(w, 2));
        request_free(w, rq);
        request_fill_fetch(fetch, POSITIONS_ALL, one_in(w, 2));
        request_ask(w, fetch);
        if (!w->failed) request_free(w, fetch);
    }
}

static void send_alone(struct world *w, struct request *rq)
{
    request_send(w, rq, w->now_ms + world_latency(w));
}

/* As reset-offsets does, and consumers without a group. */
static void simple_commit(struct world *w, int group)
{
    struct request *rq = request_new(w, GROUP_COMMIT, group);
    request_fill_commit(w, rq, 1 + (uint32_t)draw(w, POSITIONS_ALL), NULL);
    rq->in.commit.group_id = group_name(group);
    rq->in.commit.generation_id_or_member_epoch = -1;
    send_alone(w, rq);
}

static void delete_offsets(struct world *w, int group)
{
    struct request *rq = request_new(w, GROUP_DELETE_OFFSET, group);
    rq->in.delete_offset.group_id = group_name(group);
    request_fill_delete(rq, 1 + (uint32_t)draw(w, POSITIONS_ALL));
    send_alone(w, rq);
}

void disturb_static_members(struct world *w, int group, bool all)
{
    struct request *rq = request_new(w, GROUP_LEAVE, group);
    struct leave_group_request *in = &rq->in.leave;
    in->group_id = group_name(group);
    in->members = arena_array(&rq->arena, struct leave_group_request_member_identity, CLIENTS_MAX);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (!all && one_in(w, 2)) continue;
        in->members[in->members_count] = leave_group_request_member_identity_default;
        in->members[in->members_count++].group_instance_id = instance_name(i);
    }
    send_alone(w, rq);
}

/* ---- Strangers */

static struct str some_member_id(struct world *w, struct arena *a, int *group)
{
    if (w->member_count == 0 || one_in(w, 8)) return STR("nobody-knows-me");
    const struct member_view *m = w->members[draw(w, w->member_count)];
    *group = m->group;
    return arena_str(a, str_of(m->id));
}

static int32_t some_generation(struct world *w, int group)
{
    int32_t told = w->groups[group].told;
    return one_in(w, 2) ? told : told + draw_between(w, -2, 2);
}

static void garbage_join(struct world *w, struct request *rq, struct str id)
{
    static const int32_t timeouts[] = {-1, 0, 1, 600, 2000, 9000, INT32_MAX};
    struct join_group_request *in = &rq->in.join;
    struct client someone = w->clients[draw(w, (uint64_t)w->config.clients)];
    someone.group = rq->group;
    someone.topics = BIT(TOPICS) - 1;
    someone.session_ms = timeouts[draw(w, ARRAY_COUNT(timeouts))];
    someone.rebalance_ms = timeouts[3 + draw(w, 3)];
    if (someone.join_version == 0) someone.join_version = 9;
    client_fill_join(w, &someone, rq);
    in->member_id = id;
    if (one_in(w, 2)) in->group_instance_id = STR_NULL;
    if (one_in(w, 4)) in->protocols_count = 0;
    if (one_in(w, 4)) in->protocol_type = STR("connect");
    if (one_in(w, 3)) in->protocols[0].name = STR("mine");
    if (one_in(w, 2)) {
        uint8_t *bytes = arena_alloc(&rq->arena, 9);
        for (int i = 0; i < 9; i++) bytes[i] = (uint8_t)draw(w, 256);
        in->protocols[0].metadata = in->protocols[1].metadata = (struct bytes){bytes, draw(w, 10)};
        rq->metadata_hash = hash_of(bytes, in->protocols[0].metadata.size);
    }
}

static void garbage_sync(struct world *w, struct request *rq, struct str id)
{
    struct sync_group_request *in = &rq->in.sync;
    in->group_id = group_name(rq->group);
    in->member_id = id;
    in->generation_id = some_generation(w, rq->group);
    in->protocol_type = STR("consumer");
    in->protocol_name = w->config.cooperative[rq->group] ? STR("cooperative") : STR("range");
    rq->serial = assignment_new(w, rq->group, in->generation_id, id);
    w->assignments[rq->serial - 1].hostile = true;
    int count = (int)draw(w, 4);
    in->assignments = arena_array(&rq->arena, struct sync_group_request_sync_group_request_assignment, 4);
    for (int i = 0; i < count; i++) {
        int group = rq->group;
        struct str member = some_member_id(w, &rq->arena, &group);
        uint32_t positions = (uint32_t)draw(w, POSITIONS_ALL + 1);
        const struct member_view *m = member_view_find(w, group, member);
        int instance = m ? m->instance : -1;
        /* Which of two counts, for a member or for who is the same, is nobody's business. */
        const struct assignment_view *av = &w->assignments[rq->serial - 1];
        bool twice = false;
        for (int k = 0; k < av->count; k++)
            twice |= av->parts[k].member == hash_str(member) || (instance >= 0 && av->parts[k].instance == instance);
        if (twice) continue;
        struct sync_group_request_sync_group_request_assignment *one = &in->assignments[in->assignments_count++];
        one->member_id = member;
        one->assignment = assignment_bytes(&rq->arena, rq->serial, positions);
        assignment_add(w, rq->serial, member, instance, positions);
    }
}

static void hostile_request(struct world *w)
{
    static const enum group_api apis[] = {GROUP_JOIN,      GROUP_JOIN,  GROUP_SYNC,
                                          GROUP_HEARTBEAT, GROUP_LEAVE, GROUP_COMMIT};
    int group = (int)draw(w, (uint64_t)w->config.groups);
    struct request *rq = request_new(w, apis[draw(w, ARRAY_COUNT(apis))], group);
    struct str id = some_member_id(w, &rq->arena, &group);
    rq->group = group;
    rq->hostile = true;
    switch (rq->call.api) {
    case GROUP_JOIN: garbage_join(w, rq, one_in(w, 2) ? STR_EMPTY : id); break;
    case GROUP_SYNC: garbage_sync(w, rq, id); break;
    case GROUP_HEARTBEAT:
        rq->in.heartbeat.group_id = group_name(group);
        rq->in.heartbeat.member_id = id;
        rq->in.heartbeat.generation_id = some_generation(w, group);
        break;
    case GROUP_LEAVE:
        rq->in.leave.group_id = group_name(group);
        rq->in.leave.members_count = 1;
        rq->in.leave.members = arena_array(&rq->arena, struct leave_group_request_member_identity, 1);
        rq->in.leave.members[0] = leave_group_request_member_identity_default;
        rq->in.leave.members[0].member_id = id;
        break;
    default:
        request_fill_commit(w, rq, 1 + (uint32_t)draw(w, POSITIONS_ALL), NULL);
        rq->in.commit.group_id = group_name(group);
        rq->in.commit.member_id = id;
        rq->in.commit.generation_id_or_member_epoch = some_generation(w, group);
        break;
    }
    say(w, "a stranger sends a %s as '%.*s'", api_name(rq->call.api), STR_ARG(id));
    send_alone(w, rq);
}

/* ---- One of them */

static enum disturbance choose(struct world *w)
{
    int total = 0;
    for (int i = 0; i < DISTURBANCES; i++) total += w->config.weights[i];
    int at = (int)draw(w, (uint64_t)total), i = 0;
    while (at >= w->config.weights[i]) at -= w->config.weights[i++];
    return (enum disturbance)i;
}

/* Another process comes with the instance id of one that runs, or sleeps. */
static void usurp(struct world *w)
{
    struct client *heir = any_client(w, true), *c = any_client(w, false);
    if (!heir || !c || c->instance < 0 || heir->group != c->group) return;
    heir->instance = c->instance;
    say(w, "client %d takes the place of client %d", heir->index, c->index);
    client_start(w, heir);
}

static void disturb_client(struct world *w, enum disturbance what)
{
    struct client *c = any_client(w, what == DISTURB_START);
    if (!c) return;
    switch (what) {
    case DISTURB_START: client_start(w, c); return;
    case DISTURB_CRASH:
        say(w, "client %d crashes", c->index);
        client_crash(w, c, one_in(w, 3));
        return;
    case DISTURB_LEAVE:
        say(w, "client %d leaves", c->index);
        client_leave(w, c);
        return;
    case DISTURB_PAUSE:
        c->paused_until_ms = MAX(c->paused_until_ms, w->now_ms + draw_between(w, 100, one_in(w, 2) ? 1000 : 9000));
        say(w, "client %d sleeps until %" PRId64, c->index, c->paused_until_ms);
        return;
    case DISTURB_DISCONNECT: client_disconnect(w, c); return;
    default:
        if (c->instance < 0) client_subscribe(w, c, 1 + (uint32_t)draw(w, BIT(TOPICS) - 1));
        return;
    }
}

static void disturb_group(struct world *w, enum disturbance what)
{
    int group = (int)draw(w, (uint64_t)w->config.groups);
    switch (what) {
    case DISTURB_SIMPLE_COMMIT: simple_commit(w, group); return;
    case DISTURB_DELETE_OFFSETS: delete_offsets(w, group); return;
    case DISTURB_REMOVE_STATIC: disturb_static_members(w, group, false); return;
    default: send_alone(w, request_new(w, GROUP_DELETE, group)); return;
    }
}

static void disturb_shard(struct world *w, enum disturbance what)
{
    struct host *h = &w->host;
    if (h->state != HOST_UP) return;
    if (what == DISTURB_EXPIRE) {
        say(w, "host: offsets expire");
        offsets_may_expire(w);
        group_shard_expire(h->shard);
        return;
    }
    int topic = (int)draw(w, TOPICS);
    say(w, "host: %.*s is gone", STR_ARG(topic_name(topic)));
    for (int g = 0; g < w->config.groups; g++)
        offsets_may_go(w, g, (BIT(TOPIC_PARTITIONS) - 1) << (topic * TOPIC_PARTITIONS));
    group_shard_forget_topic(h->shard, topic_name(topic));
}

void disturb(struct world *w)
{
    check_deadlines(w);
    enum disturbance what = choose(w);
    switch (what) {
    case DISTURB_START:
    case DISTURB_CRASH:
    case DISTURB_LEAVE:
    case DISTURB_PAUSE:
    case DISTURB_DISCONNECT:
    case DISTURB_SUBSCRIBE: disturb_client(w, what); break;
    case DISTURB_USURP: usurp(w); break;
    case DISTURB_MOVE:
    case DISTURB_DIE: host_move(w, what == DISTURB_DIE); break;
    case DISTURB_LOOK: disturb_look(w); break;
    case DISTURB_SIMPLE_COMMIT:
    case DISTURB_DELETE_OFFSETS:
    case DISTURB_REMOVE_STATIC:
    case DISTURB_DELETE_GROUP: disturb_group(w, what); break;
    case DISTURB_EXPIRE:
    case DISTURB_FORGET_TOPIC: disturb_shard(w, what); break;
    case DISTURB_HOSTILE: hostile_request(w); break;
    case DISTURBANCES: UNREACHABLE();
    }
    world_event(w, (struct event){.kind = EVENT_DISTURB,
                                  .at_ms = w->now_ms + 1 + (int64_t)draw(w, (uint64_t)w->config.disturb_ms * 2)});
}
