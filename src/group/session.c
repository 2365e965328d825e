/* session.c: who is alive and who leaves: sessions, heartbeats, LeaveGroup. */
#include "group/group_internal.h"
#include "wire/gen/heartbeat.h"
#include "wire/gen/leave_group.h"

/* ---- Sessions */

void group_member_live_for(struct group_member *m, int32_t timeout_ms)
{
    struct group_shard *sh = m->group->shard;
    m->session_ends_ms = sh->mono_ms + timeout_ms;
    /* A timer that fires early looks again: a heartbeat does not move it.  One that would fire late is set. */
    if (m->session.heap_index == 0 || m->session.due_us > m->session_ends_ms)
        shard_timer_set(sh, &m->session, m->session_ends_ms);
}

void group_member_heard(struct group_member *m)
{
    group_member_live_for(m, m->session_timeout_ms);
}

void group_member_session_fire(struct timer *t)
{
    struct group_member *m = CONTAINER_OF(t, struct group_member, session);
    struct group_shard *sh = m->group->shard;
    if (m->session_ends_ms > sh->mono_ms) {
        shard_timer_set(sh, t, m->session_ends_ms);
        return;
    }
    /* Who waits for us cannot heartbeat; the end of its wait begins a session.  A new member cannot either, but it may
     * have hung up, and we would not know. */
    if ((m->joining || m->syncing) && !m->is_new) return;
    struct group *grp = m->group;
    struct group_cause cause = {.what = m->is_new ? "a new member's join timed out" : "a member's session timed out",
                                .member_id = str_of(m->id),
                                .client_id = str_of(m->client_id)};
    group_member_lose(m, &cause);
    group_drop_if_idle(grp);
}

void group_pending_fire(struct timer *t)
{
    struct group_pending_member *p = CONTAINER_OF(t, struct group_pending_member, expiry);
    struct group *grp = p->group;
    group_pending_remove(grp, str_of(p->id));
    group_complete_if_joined(grp);
    group_drop_if_idle(grp);
}

/* ---- Heartbeat */

static enum kerr heartbeat(struct group_shard *sh, const struct heartbeat_request *in)
{
    struct group *grp = group_find(sh, in->group_id);
    if (!grp) return KERR_UNKNOWN_MEMBER_ID;
    struct group_member *m;
    enum kerr kerr = group_member_check(grp, in->member_id, in->group_instance_id, &m);
    if (kerr) return kerr;
    if (in->generation_id != grp->generation) return KERR_ILLEGAL_GENERATION;
    group_member_heard(m);
    /* Consumers begin with heartbeats when they have joined, so the leader's assignment may still be to come. */
    return grp->state == GROUP_PREPARING ? KERR_REBALANCE_IN_PROGRESS : KERR_NONE;
}

void group_heartbeat(struct group_shard *sh, struct group_call *call)
{
    struct heartbeat_response *out = call->out;
    out->error_code = (int16_t)heartbeat(sh, call->in);
    group_answer(sh, call);
}

/* ---- LeaveGroup */

static enum kerr leave_one(struct group *grp, const struct leave_group_request_member_identity *who)
{
    struct group_member *m = NULL;
    if (who->member_id.size == 0) {
        /* An administrator removes a static member whose id it need not know. */
        m = str_is_null(who->group_instance_id) ? NULL : group_member_find_static(grp, who->group_instance_id);
        if (!m) return KERR_UNKNOWN_MEMBER_ID;
    } else if (group_pending_remove(grp, who->member_id)) {
        group_complete_if_joined(grp);
        return KERR_NONE;
    } else {
        enum kerr kerr = group_member_check(grp, who->member_id, who->group_instance_id, &m);
        if (kerr) return kerr;
    }
    struct group_cause cause = {
        .what = "a member left", .reason = who->reason, .member_id = str_of(m->id), .client_id = str_of(m->client_id)};
    group_member_lose(m, &cause);
    return KERR_NONE;
}

/* Before version 3 there is one member and one error. */
static void leave_answer(struct group_shard *sh, struct group_call *call)
{
    struct leave_group_response *out = call->out;
    if (call->version < 3 && out->error_code == KERR_NONE && out->members_count == 1)
        out->error_code = out->members[0].error_code;
    group_answer(sh, call);
}

void group_leave(struct group_shard *sh, struct group_call *call)
{
    const struct leave_group_request *in = call->in;
    struct leave_group_response *out = call->out;
    struct group *grp = group_find(sh, in->group_id);
    out->error_code = KERR_NONE;
    out->members_count = in->members_count;
    out->members = arena_array(call->arena, struct leave_group_response_member_response, (size_t)in->members_count);
    for (int32_t i = 0; i < in->members_count; i++) {
        const struct leave_group_request_member_identity *who = &in->members[i];
        out->members[i] = (struct leave_group_response_member_response){
            .member_id = arena_str(call->arena, who->member_id),
            .group_instance_id = arena_str(call->arena, who->group_instance_id),
            .error_code = (int16_t)(grp ? leave_one(grp, who) : KERR_UNKNOWN_MEMBER_ID)};
    }
    leave_answer(sh, call);
    if (grp) group_drop_if_idle(grp);
}
