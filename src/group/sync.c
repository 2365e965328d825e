/* sync.c: SyncGroup: the leader's assignment is written, and then told to all who wait for theirs. */
#include "group/group_internal.h"
#include "wire/gen/sync_group.h"

#define LOG_MODULE "group"
#include "base/log.h"

enum { SYNC_PROTOCOL_SINCE = 5 }; /* KIP-559: protocol type and name must be there */

static void set_bytes(struct bytes *to, struct bytes from)
{
    mem_free((void *)to->data);
    *to = (struct bytes){0};
    if (from.size) *to = (struct bytes){(const uint8_t *)mem_strndup((const char *)from.data, from.size), from.size};
}

static void clear_proposed(struct group *grp)
{
    for (struct group_member *m = grp->members; m; m = m->by_id.next) set_bytes(&m->proposed, (struct bytes){0});
}

/* ---- Answers */

static void answer(struct group_member *m, struct group_call *call)
{
    const struct group *grp = m->group;
    struct sync_group_response *out = call->out;
    *out = sync_group_response_default;
    out->protocol_type = arena_str(call->arena, str_of(grp->protocol_type));
    out->protocol_name = arena_str(call->arena, str_of(grp->protocol));
    out->assignment = group_copy_bytes(call->arena, m->assignment);
    group_answer(grp->shard, call);
}

/* Who waits is told its assignment, or the error; a session begins, for none ended while it waited. */
static void answer_waiting(struct group *grp, enum kerr kerr)
{
    for (struct group_member *m = grp->members; m; m = m->by_id.next) {
        if (!m->syncing) continue;
        struct group_call *call = m->sync;
        m->sync = NULL;
        m->syncing = false;
        group_member_heard(m);
        if (!call) continue;
        if (kerr)
            group_answer_kerr(grp->shard, call, kerr);
        else
            answer(m, call);
    }
}

void group_sync_fail(struct group *grp, enum kerr kerr)
{
    for (struct group_member *m = grp->members; m; m = m->by_id.next) set_bytes(&m->assignment, (struct bytes){0});
    clear_proposed(grp);
    grp->assignment_write = NULL; /* its outcome is nobody's any more */
    answer_waiting(grp, kerr);
}

/* ---- The leader's assignment */

static struct bytes proposed(const struct group_member *m, void *arg)
{
    (void)arg;
    return m->proposed;
}

static void become_stable(struct group *grp)
{
    for (struct group_member *m = grp->members; m; m = m->by_id.next) {
        mem_free((void *)m->assignment.data);
        m->assignment = m->proposed;
        m->proposed = (struct bytes){0};
    }
    grp->assignment_write = NULL;
    group_enter(grp, GROUP_STABLE);
    group_history_end(grp);
    answer_waiting(grp, KERR_NONE);
}

static void assignment_written(struct group_shard *sh, struct group_write *w, enum kerr kerr)
{
    (void)sh;
    struct group *grp = w->group;
    if (kerr)
        LOG_LIMITED(LOG_LEVEL_WARN, "group_write_failed", "group=%s generation=%d error=%s what=assignment", grp->id,
                    grp->generation, kerr_name((int16_t)kerr));
    /* A rebalance that began meanwhile has given it up. */
    if (grp->assignment_write != w) {
        group_drop_if_idle(grp);
        return;
    }
    if (!kerr) {
        become_stable(grp);
        return;
    }
    group_sync_fail(grp, group_assignment_kerr(kerr));
    struct group_cause cause = {.what = "the assignment could not be written", .member_id = str_of(grp->leader)};
    group_rebalance(grp, &cause);
}

static void write_assignment(struct group *grp, const struct sync_group_request *in)
{
    clear_proposed(grp);
    for (int32_t i = 0; i < in->assignments_count; i++) {
        struct group_member *m = group_member_find(grp, in->assignments[i].member_id);
        if (m) set_bytes(&m->proposed, in->assignments[i].assignment);
    }
    struct group_write *w = group_write_new(grp, assignment_written);
    group_write_metadata(w, grp, proposed, NULL);
    grp->assignment_write = w;
    group_write_send(w);
}

/* ---- SyncGroup */

static enum kerr check(struct group *grp, const struct group_call *call, struct group_member **m)
{
    const struct sync_group_request *in = call->in;
    enum kerr kerr = group_member_check(grp, in->member_id, in->group_instance_id, m);
    if (kerr) return kerr;
    if (in->generation_id != grp->generation) return KERR_ILLEGAL_GENERATION;
    if (!str_is_null(in->protocol_type) && !str_equal(in->protocol_type, str_of(grp->protocol_type)))
        return KERR_INCONSISTENT_GROUP_PROTOCOL;
    if (!str_is_null(in->protocol_name) && !str_equal(in->protocol_name, str_of(grp->protocol)))
        return KERR_INCONSISTENT_GROUP_PROTOCOL;
    return grp->state == GROUP_PREPARING ? KERR_REBALANCE_IN_PROGRESS : KERR_NONE;
}

void group_sync(struct group_shard *sh, struct group_call *call)
{
    const struct sync_group_request *in = call->in;
    if (call->version >= SYNC_PROTOCOL_SINCE && (str_is_null(in->protocol_type) || str_is_null(in->protocol_name))) {
        group_answer_kerr(sh, call, KERR_INCONSISTENT_GROUP_PROTOCOL);
        return;
    }
    struct group *grp = group_find(sh, in->group_id);
    struct group_member *m = NULL;
    enum kerr kerr = grp ? check(grp, call, &m) : KERR_UNKNOWN_MEMBER_ID;
    if (kerr) {
        group_answer_kerr(sh, call, kerr);
        return;
    }
    group_member_set_sync_due(m, false);
    if (grp->state == GROUP_STABLE) {
        group_member_heard(m);
        answer(m, call);
        return;
    }
    ASSERT(grp->state == GROUP_COMPLETING);
    group_member_wait_sync(m, call);
    /* A second SyncGroup of the leader's changes nothing: what is being written is what all will be told. */
    if (strcmp(grp->leader, m->id) == 0 && !grp->assignment_write) write_assignment(grp, in);
}
