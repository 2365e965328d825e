/* check.c: what is promised to members, looked at where the shard answers.
 *
 *  - An assignment that is heard is the leader's of that generation, the same one for all, each member's own part of
 * it.
 *  - Generations do not fall: in one life of a shard not those that JoinGroup tells, across lives not those whose
 *    assignment has been heard.  Only a tombstone of the group lets them begin anew.
 *  - The leader is told all who join its generation, as they described themselves last.
 *  - Nobody is heard who has left, was fenced, or speaks of an older generation.
 *  - A member that was heard of is not forgotten before its session or a rebalance can have ended.
 *  - Every request is answered, once, within its bound. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "world.h"

/* ---- Members */

struct member_view *member_view_find(struct world *w, int group, struct str id)
{
    uint64_t hash = hash_str(id);
    for (size_t i = w->member_count; i-- > 0;)
        if (w->members[i]->hash == hash && w->members[i]->group == group) return w->members[i];
    return NULL;
}

static struct member_view *member_view_get(struct world *w, int group, struct str id, int instance)
{
    struct member_view *m = member_view_find(w, group, id);
    if (m) return m;
    m = mem_zalloc(1, sizeof *m);
    m->group = group;
    m->instance = instance;
    m->hash = hash_str(id);
    m->generation = -1;
    m->asked = -1;
    snprintf(m->id, sizeof m->id, "%.*s", STR_ARG(id));
    w->members = mem_grow(w->members, &w->member_cap, w->member_count + 1, sizeof *w->members);
    return w->members[w->member_count++] = m;
}

static bool is_surely_member(const struct world *w, const struct member_view *m)
{
    return !m->meddled && m->sure_until_ms > w->now_ms;
}

bool group_has_members_surely(struct world *w, int group)
{
    for (size_t i = 0; i < w->member_count; i++)
        if (w->members[i]->group == group && is_surely_member(w, w->members[i])) return true;
    return false;
}

static bool is_gone(const struct world *w, const struct member_view *m)
{
    return m->left_in == w->host.life || m->fenced_in == w->host.life;
}

/* ---- Generations */

static struct generation_view *generation_get(struct world *w, int group, int32_t generation)
{
    struct group_view *gv = &w->groups[group];
    struct generation_view *g = NULL;
    for (size_t i = gv->count; i-- > 0 && !g;)
        if (gv->generations[i].generation == generation) g = &gv->generations[i];
    if (!g) {
        gv->generations = mem_grow(gv->generations, &gv->cap, gv->count + 1, sizeof *gv->generations);
        g = &gv->generations[gv->count++];
        g->generation = generation;
        g->serial = 0;
        g->life = 0;
    }
    if (g->life != w->host.life) { /* what was not safe may have come to nothing, and be another generation now */
        g->life = w->host.life;
        g->leader = 0;
        g->static_moves = false;
        g->listed_count = g->joined_count = 0;
        g->protocol[0] = 0;
    }
    return g;
}

void check_group_ended(struct world *w, int group)
{
    struct group_view *gv = &w->groups[group];
    say(w, "host: a tombstone of %.*s", STR_ARG(group_name(group)));
    if (group_has_members_surely(w, group)) wrong(w, "%.*s ends, and has members", STR_ARG(group_name(group)));
    gv->heard = gv->told = gv->previous = 0;
    gv->count = 0;
    for (size_t i = 0; i < w->member_count; i++)
        if (w->members[i]->group == group) w->members[i]->sure_until_ms = 0;
}

void check_new_life(struct world *w)
{
    for (int g = 0; g < w->config.groups; g++) w->groups[g].told = w->groups[g].previous = 0;
}

/* ---- Assignments */

uint32_t assignment_new(struct world *w, int group, int32_t generation, struct str sender)
{
    w->assignments = mem_grow(w->assignments, &w->assignment_cap, w->assignment_count + 1, sizeof *w->assignments);
    struct assignment_view *av = &w->assignments[w->assignment_count++];
    av->group = group;
    av->generation = generation;
    av->sender = hash_str(sender);
    av->count = 0;
    av->led = av->hostile = false;
    return (uint32_t)w->assignment_count;
}

void assignment_add(struct world *w, uint32_t serial, struct str member, int instance, uint32_t positions)
{
    struct assignment_view *av = &w->assignments[serial - 1];
    if (av->count == (int)ARRAY_COUNT(av->parts)) return;
    av->parts[av->count].member = hash_str(member);
    av->parts[av->count].instance = instance;
    av->parts[av->count++].positions = positions;
}

/* The member's part; a static one may have been given another id since.  -1: none. */
static int assignment_part(const struct assignment_view *av, const struct member_view *m)
{
    for (int i = 0; i < av->count; i++)
        if (av->parts[i].member == m->hash) return i;
    for (int i = 0; i < av->count; i++)
        if (m->instance >= 0 && av->parts[i].instance == m->instance) return i;
    return -1;
}

/* `m` is told these bytes as its assignment in this generation. */
static void check_assignment(struct world *w, struct member_view *m, int32_t generation, struct bytes b)
{
    struct generation_view *g = generation_get(w, m->group, generation);
    uint32_t serial, positions;
    if (b.size == 0) { /* the leader has left it out */
        if (g->serial && assignment_part(&w->assignments[g->serial - 1], m) >= 0)
            wrong(w, "%s is told of no assignment in generation %d, but has one", m->id, generation);
        return;
    }
    if (!assignment_read(b, &serial, &positions) || serial == 0 || serial > w->assignment_count) {
        wrong(w, "%s is told an assignment that nobody made", m->id);
        return;
    }
    const struct assignment_view *av = &w->assignments[serial - 1];
    int part = assignment_part(av, m);
    if (av->group != m->group || av->generation != generation)
        wrong(w, "%s is told assignment %u of generation %d in generation %d", m->id, serial, av->generation,
              generation);
    else if (!av->led)
        wrong(w, "%s is told assignment %u, which was not the leader's", m->id, serial);
    else if (part < 0 || av->parts[part].positions != positions)
        wrong(w, "%s is told partitions %x of assignment %u, which has others for it", m->id, positions, serial);
    else if (g->serial && g->serial != serial)
        wrong(w, "%s is told assignment %u in generation %d, others have heard %u", m->id, serial, generation,
              g->serial);
    g->serial = serial;
}

/* ---- What is given */

/* From now on it may be gone. */
static void touch(struct member_view *m)
{
    m->sure_until_ms = 0;
    m->touched++;
}

/* Whoever is known by the instance id is not sure any more: another is about to take its place. */
static void unsure_instance(struct world *w, int group, int instance)
{
    for (size_t i = 0; i < w->member_count; i++)
        if (w->members[i]->group == group && w->members[i]->instance == instance) touch(w->members[i]);
}

static void given_leave(struct world *w, const struct request *rq)
{
    for (int i = 0; i < rq->in.leave.members_count; i++) {
        const struct leave_group_request_member_identity *id = &rq->in.leave.members[i];
        struct member_view *m = member_view_find(w, rq->group, id->member_id);
        if (m) touch(m);
        int instance = instance_number(id->group_instance_id);
        if (instance >= 0) unsure_instance(w, rq->group, instance);
    }
}

static void given_join(struct world *w, struct request *rq)
{
    int instance = instance_number(rq->in.join.group_instance_id);
    if (instance >= 0) unsure_instance(w, rq->group, instance);
    if (instance >= 0 && rq->in.join.member_id.size == 0)
        generation_get(w, rq->group, MAX(w->groups[rq->group].told, w->groups[rq->group].heard))->static_moves = true;
    if (!rq->member) return;
    rq->member->generation = -1;
    rq->member->sure_until_ms = 0;
    rq->member->asked = MAX(rq->member->asked, w->groups[rq->group].told);
    rq->member->session_ms = rq->in.join.session_timeout_ms;
    rq->member->rebalance_ms = rq->in.join.rebalance_timeout_ms;
}

static struct str speaks_for(const struct request *rq)
{
    switch (rq->call.api) {
    case GROUP_JOIN: return rq->in.join.member_id;
    case GROUP_SYNC: return rq->in.sync.member_id;
    case GROUP_HEARTBEAT: return rq->in.heartbeat.member_id;
    case GROUP_COMMIT: return rq->in.commit.member_id;
    default: return STR_NULL;
    }
}

static int32_t generation_of(const struct request *rq)
{
    switch (rq->call.api) {
    case GROUP_SYNC: return rq->in.sync.generation_id;
    case GROUP_HEARTBEAT: return rq->in.heartbeat.generation_id;
    case GROUP_COMMIT: return rq->in.commit.generation_id_or_member_epoch;
    default: return -1;
    }
}

void check_given(struct world *w, struct request *rq)
{
    offsets_given(w, rq);
    if (rq->group < 0) return;
    const struct group_view *gv = &w->groups[rq->group];
    struct str id = speaks_for(rq);
    rq->member = id.size ? member_view_find(w, rq->group, id) : NULL;
    if (rq->member) {
        if (rq->hostile) rq->member->meddled = true;
        rq->was_sure = is_surely_member(w, rq->member);
        rq->was_gone = is_gone(w, rq->member);
    }
    rq->had_members = group_has_members_surely(w, rq->group);
    rq->was_old = generation_of(rq) < MAX(gv->told, gv->heard);
    if (rq->call.api == GROUP_JOIN) given_join(w, rq);
    if (rq->call.api == GROUP_LEAVE) given_leave(w, rq);
    if (rq->member) rq->touched = rq->member->touched;
    if (rq->call.api == GROUP_SYNC && rq->serial) {
        struct generation_view *g = generation_get(w, rq->group, rq->in.sync.generation_id);
        w->assignments[rq->serial - 1].led = g->leader == hash_str(rq->in.sync.member_id);
    }
}

/* ---- What is answered */

/* The shard has taken what a member of this generation said. */
static void check_heard(struct world *w, const struct request *rq)
{
    const char *api = api_name(rq->call.api);
    if (!rq->member)
        wrong(w, "a %s of %.*s is taken, an id that was never given out", api, STR_ARG(speaks_for(rq)));
    else if (rq->was_gone)
        wrong(w, "a %s of %s is taken, which has left or been fenced", api, rq->member->id);
    else if (rq->was_old)
        wrong(w, "a %s of %s of generation %d is taken, but there has been a later one", api, rq->member->id,
              generation_of(rq));
}

static void member_is_sure(struct world *w, struct member_view *m)
{
    m->sure_until_ms = w->now_ms + MIN(m->session_ms, m->rebalance_ms);
    w->groups[m->group].members_seen_ms = w->now_ms;
}

static void check_listed(struct world *w, const struct generation_view *g, const struct listed_member *joined)
{
    for (int i = 0; i < g->listed_count; i++) {
        if (g->listed[i].key != joined->key) continue;
        if (!joined->is_static && g->listed[i].metadata_hash != joined->metadata_hash)
            wrong(w, "the leader of generation %d is told what a member has said before, not last", g->generation);
        return;
    }
    if (!g->static_moves) wrong(w, "the leader of generation %d is not told all of its members", g->generation);
}

static void leader_told(struct world *w, struct generation_view *g, const struct join_group_response *out)
{
    bool anew = g->listed_count == 0, leader_there = false;
    if (!anew && g->listed_count != out->members_count && !g->static_moves)
        wrong(w, "generation %d has had %d members and now has %d", g->generation, g->listed_count, out->members_count);
    g->listed_count = 0;
    for (int i = 0; i < out->members_count && i < (int)ARRAY_COUNT(g->listed); i++) {
        const struct join_group_response_join_group_response_member *m = &out->members[i];
        bool is_static = m->group_instance_id.data != NULL;
        struct listed_member one = {.key = hash_str(is_static ? m->group_instance_id : m->member_id),
                                    .metadata_hash = hash_of(m->metadata.data, m->metadata.size),
                                    .is_static = is_static};
        for (int k = 0; k < i; k++)
            if (g->listed[k].key == one.key) wrong(w, "the leader is told twice of %.*s", STR_ARG(m->member_id));
        leader_there |= str_equal(m->member_id, out->leader);
        g->listed[g->listed_count++] = one;
    }
    if (!leader_there) wrong(w, "the leader is not among the members that it is told of");
    for (int i = 0; i < g->joined_count; i++) check_listed(w, g, &g->joined[i]);
}

static void check_join_protocol(struct world *w, const struct request *rq, struct generation_view *g)
{
    struct str name = rq->out.join.protocol_name;
    bool known = false;
    for (int i = 0; i < rq->in.join.protocols_count; i++) known |= str_equal(rq->in.join.protocols[i].name, name);
    if (!known) wrong(w, "a member is told the protocol %.*s, which it does not know", STR_ARG(name));
    if (g->protocol[0] && !str_is(name, g->protocol))
        wrong(w, "generation %d has the protocols %s and %.*s", g->generation, g->protocol, STR_ARG(name));
    snprintf(g->protocol, sizeof g->protocol, "%.*s", STR_ARG(name));
}

/* The leader of a generation, and every dynamic member of it, has asked to join since the one before. */
static void check_asked(struct world *w, const struct group_view *gv, const struct member_view *m)
{
    if (m && m->asked < gv->previous) wrong(w, "%s is in generation %d and has not joined it", m->id, gv->told);
}

static void check_joined_group(struct world *w, const struct request *rq, const struct member_view *m)
{
    const struct join_group_response *out = &rq->out.join;
    struct group_view *gv = &w->groups[rq->group];
    if (out->generation_id < gv->told || out->generation_id < gv->heard)
        wrong(w, "JoinGroup tells generation %d after %d", out->generation_id, MAX(gv->told, gv->heard));
    if (out->generation_id > gv->told) {
        w->rebalances++;
        gv->previous = gv->told;
        gv->told = out->generation_id;
    }
    check_asked(w, gv, member_view_find(w, rq->group, out->leader));
    struct generation_view *g = generation_get(w, rq->group, out->generation_id);
    uint64_t leader = hash_str(out->leader);
    if (m->instance >= 0 && rq->in.join.member_id.size == 0) g->static_moves = true;
    if (g->leader && g->leader != leader && !g->static_moves)
        wrong(w, "generation %d has two leaders", out->generation_id);
    g->leader = leader;
    check_join_protocol(w, rq, g);
    bool leads = str_equal(out->leader, out->member_id);
    if (!leads && out->members_count > 0) wrong(w, "%s is told the members and does not lead", m->id);
    if (leads && !out->skip_assignment && out->members_count > 0) {
        if (out->generation_id <= gv->heard) wrong(w, "generation %d is to be assigned again", out->generation_id);
        leader_told(w, g, out);
        for (int i = 0; i < out->members_count; i++)
            if (!out->members[i].group_instance_id.data)
                check_asked(w, gv, member_view_find(w, rq->group, out->members[i].member_id));
    }
    struct listed_member joined = {.key = m->instance >= 0 ? hash_str(instance_name(m->instance)) : m->hash,
                                   .metadata_hash = rq->metadata_hash,
                                   .is_static = m->instance >= 0};
    if (g->joined_count < (int)ARRAY_COUNT(g->joined)) g->joined[g->joined_count++] = joined;
    if (g->listed_count) check_listed(w, g, &joined);
}

static void answered_join(struct world *w, struct request *rq)
{
    const struct join_group_request *in = &rq->in.join;
    const struct join_group_response *out = &rq->out.join;
    int instance = instance_number(in->group_instance_id);
    if (out->error_code == KERR_GROUP_MAX_SIZE_REACHED && rq->member) rq->member->left_in = w->host.life;
    if (out->error_code == KERR_MEMBER_ID_REQUIRED) {
        member_view_get(w, rq->group, out->member_id, -1);
        return;
    }
    if (out->error_code) return;
    if (out->member_id.size == 0 || out->leader.size == 0) {
        wrong(w, "JoinGroup ends well without a member id or a leader");
        return;
    }
    if (in->member_id.size && !str_equal(in->member_id, out->member_id))
        wrong(w, "%.*s joins and is called %.*s", STR_ARG(in->member_id), STR_ARG(out->member_id));
    if (rq->member && is_gone(w, rq->member)) wrong(w, "%s has joined, and has left or been fenced", rq->member->id);
    struct member_view *m = member_view_get(w, rq->group, out->member_id, instance);
    if (instance >= 0) m->instance = instance;
    m->session_ms = in->session_timeout_ms;
    m->rebalance_ms = in->rebalance_timeout_ms;
    m->generation = -1;
    m->asked = MAX(m->asked, w->groups[rq->group].told);
    m->meddled |= rq->hostile;
    for (size_t i = 0; i < w->member_count && instance >= 0; i++) {
        struct member_view *other = w->members[i];
        if (other != m && other->group == m->group && other->instance == instance) other->fenced_in = w->host.life;
    }
    check_joined_group(w, rq, m);
}

static void answered_sync(struct world *w, struct request *rq)
{
    const struct sync_group_response *out = &rq->out.sync;
    int32_t generation = rq->in.sync.generation_id;
    struct group_view *gv = &w->groups[rq->group];
    if (out->error_code) return;
    check_heard(w, rq);
    if (w->failed) return;
    if (is_gone(w, rq->member) || generation < MAX(gv->told, gv->heard)) {
        wrong(w, "%s gets its assignment in generation %d, which is over for it", rq->member->id, generation);
        return;
    }
    const struct generation_view *g = generation_get(w, rq->group, generation);
    if (g->protocol[0] && !str_is(out->protocol_name, g->protocol))
        wrong(w, "SyncGroup tells the protocol %.*s, JoinGroup told %s", STR_ARG(out->protocol_name), g->protocol);
    check_assignment(w, rq->member, generation, out->assignment);
    gv->heard = MAX(gv->heard, generation);
    rq->member->generation = generation;
    member_is_sure(w, rq->member);
}

static void answered_leave(struct world *w, const struct request *rq)
{
    const struct leave_group_response *out = &rq->out.leave;
    if (out->error_code) return;
    if (out->members_count != rq->in.leave.members_count) {
        wrong(w, "%d members leave, %d are answered", rq->in.leave.members_count, out->members_count);
        return;
    }
    for (int i = 0; i < out->members_count; i++) {
        const struct leave_group_request_member_identity *id = &rq->in.leave.members[i];
        if (out->members[i].error_code) continue;
        struct member_view *m = member_view_find(w, rq->group, id->member_id);
        if (m) m->left_in = w->host.life;
        int instance = m ? -1 : instance_number(id->group_instance_id);
        for (size_t k = 0; k < w->member_count && instance >= 0; k++)
            if (w->members[k]->group == rq->group && w->members[k]->instance == instance)
                w->members[k]->left_in = w->host.life;
    }
}

/* Of a stable group: what is written, and heard by who asks; of which generation, only the assignment itself tells. */
static void check_described_assignment(struct world *w, struct member_view *m, struct bytes b)
{
    uint32_t serial, positions;
    if (b.size == 0) return;
    if (!assignment_read(b, &serial, &positions) || serial == 0 || serial > w->assignment_count) {
        wrong(w, "%s is described with an assignment that nobody made", m->id);
        return;
    }
    int32_t generation = w->assignments[serial - 1].generation;
    if (generation < w->groups[m->group].heard)
        wrong(w, "%s is described with assignment %u, which is of an old generation", m->id, serial);
    check_assignment(w, m, generation, b);
}

static void check_described(struct world *w, const struct request *rq)
{
    const described_group *out = &rq->out.describe;
    if (out->error_code) {
        if (out->error_code != KERR_GROUP_ID_NOT_FOUND) wrong(w, "DescribeGroups ends with %d", out->error_code);
        if (rq->had_members) wrong(w, "a group with members is not found");
        return;
    }
    bool stable = str_is(out->group_state, "Stable");
    bool may_be_empty = str_is(out->group_state, "Empty") || str_is(out->group_state, "PreparingRebalance");
    if (out->members_count ? str_is(out->group_state, "Empty") : !may_be_empty)
        wrong(w, "a group in state %.*s has %d members", STR_ARG(out->group_state), out->members_count);
    for (int i = 0; i < out->members_count; i++) {
        struct member_view *m = member_view_find(w, rq->group, out->members[i].member_id);
        for (int k = 0; k < i; k++)
            if (str_equal(out->members[i].member_id, out->members[k].member_id))
                wrong(w, "a member is described twice");
        if (m && is_gone(w, m)) wrong(w, "%s is described, and has left or been fenced", m->id);
        if (m && stable) check_described_assignment(w, m, out->members[i].member_assignment);
    }
    for (size_t i = 0; i < w->member_count; i++) {
        const struct member_view *m = w->members[i];
        bool there = m->group != rq->group || !is_surely_member(w, m);
        for (int k = 0; k < out->members_count && !there; k++) there = str_is(out->members[k].member_id, m->id);
        if (!there) wrong(w, "%s is a member and is not described", m->id);
    }
}

void check_answered(struct world *w, struct request *rq)
{
    enum kerr kerr = request_kerr(rq);
    say(w, "shard: %s of client %d: %s", api_name(rq->call.api), rq->client, kerr_name((int16_t)kerr));
    offsets_answered(w, rq);
    if (kerr == KERR_UNKNOWN_MEMBER_ID && rq->at_once && rq->was_sure)
        wrong(w, "%s has been forgotten, though it was heard of in time", rq->member->id);
    if (kerr == KERR_UNKNOWN_MEMBER_ID && !rq->at_once && rq->member && !rq->member->meddled &&
        rq->touched == rq->member->touched)
        wrong(w, "%s has waited for its answer and has been forgotten meanwhile", rq->member->id);
    if (w->now_ms > rq->deadline_ms)
        wrong(w, "a %s is answered %" PRId64 " ms late", api_name(rq->call.api), w->now_ms - rq->deadline_ms);
    switch (rq->call.api) {
    case GROUP_JOIN: answered_join(w, rq); return;
    case GROUP_SYNC: answered_sync(w, rq); return;
    case GROUP_LEAVE: answered_leave(w, rq); return;
    case GROUP_HEARTBEAT:
        if (kerr == KERR_NONE || kerr == KERR_REBALANCE_IN_PROGRESS) check_heard(w, rq);
        if (kerr == KERR_NONE && rq->member && rq->member->generation == rq->in.heartbeat.generation_id)
            member_is_sure(w, rq->member);
        return;
    case GROUP_COMMIT:
        if (kerr) return;
        if (rq->in.commit.generation_id_or_member_epoch >= 0)
            check_heard(w, rq);
        else if (rq->had_members)
            wrong(w, "a commit of nobody is taken by a group that has members");
        return;
    case GROUP_DELETE:
        if (!kerr && rq->had_members) wrong(w, "a group with members is deleted");
        return;
    case GROUP_DESCRIBE: check_described(w, rq); return;
    default: return;
    }
}

void check_deadlines(struct world *w)
{
    for (size_t i = 0; i < w->request_count; i++) {
        const struct request *rq = w->requests[i];
        if (rq->state == REQUEST_GIVEN && rq->deadline_ms < w->now_ms)
            wrong(w, "a %s of client %d waits since %" PRId64, api_name(rq->call.api), rq->client, rq->given_ms);
    }
}
