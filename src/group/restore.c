/* restore.c: a group from its record, when a partition is loaded; and its end, when the partition moves. */
#include "group/group_internal.h"

#define LOG_MODULE "group"
#include "base/log.h"

static char *copy_or_null(struct str s)
{
    return s.size == 0 ? NULL : mem_strndup(s.data, s.size);
}

static void forget_members(struct group *grp)
{
    struct group_member *m, *next;
    HASH_ITER(by_id, grp->members, m, next) group_member_remove(m);
}

static void restore_member(struct group *grp, const struct group_metadata_value_member_metadata *from)
{
    if (group_member_find(grp, from->member_id) ||
        (!str_is_null(from->group_instance_id) && group_member_find_static(grp, from->group_instance_id))) {
        LOG_LIMITED(LOG_LEVEL_WARN, "group_member_doubled", "group=%s member=%.*s did=skipped", grp->id,
                    STR_ARG(from->member_id));
        return;
    }
    struct group_protocol protocol = {str_of(grp->protocol), from->subscription};
    struct group_member *m = group_member_add(
        grp, &(struct group_member_spec){.id = from->member_id,
                                         .instance_id = from->group_instance_id,
                                         .client_id = from->client_id,
                                         .client_host = from->client_host,
                                         .session_timeout_ms = from->session_timeout,
                                         /* the oldest records have one timeout */
                                         .rebalance_timeout_ms = from->rebalance_timeout < 0 ? from->session_timeout
                                                                                             : from->rebalance_timeout,
                                         .protocols = &protocol,
                                         .protocol_count = 1});
    if (from->assignment.size == 0) return;
    m->assignment =
        (struct bytes){(const uint8_t *)mem_strndup((const char *)from->assignment.data, from->assignment.size),
                       from->assignment.size};
}

void group_restore(struct group *grp, const struct group_metadata_value *v)
{
    forget_members(grp);
    mem_free(grp->protocol_type);
    mem_free(grp->protocol);
    mem_free(grp->leader);
    grp->protocol_type = copy_or_null(v->protocol_type);
    grp->protocol = str_is_null(v->protocol) ? NULL : mem_strndup(v->protocol.data, v->protocol.size);
    if (!grp->protocol && v->members_count > 0) grp->protocol = mem_strdup(""); /* a stable group has one */
    grp->leader = NULL;
    grp->generation = v->generation;
    for (int32_t i = 0; i < v->members_count; i++) restore_member(grp, &v->members[i]);
    const struct group_member *leader = group_member_find(grp, v->leader);
    if (leader) group_set_leader(grp, leader);
    /* The one step that is none of (1): the log has only these two states. */
    grp->state = grp->members ? GROUP_STABLE : GROUP_EMPTY;
    grp->state_since_ms = v->current_state_timestamp;
}

void group_restored(struct group *grp)
{
    if ((int64_t)HASH_CNT(by_id, grp->members) > grp->shard->opt.size_max) {
        struct group_cause cause = {.what = "group.max.size is smaller than the group that was loaded"};
        group_rebalance(grp, &cause);
    }
    for (struct group_member *m = grp->members; m; m = m->by_id.next) group_member_heard(m);
}

void group_close(struct group *grp, enum kerr kerr)
{
    struct group_shard *sh = grp->shard;
    for (struct group_member *m = grp->members; m; m = m->by_id.next) {
        struct group_call *join = m->join, *sync = m->sync;
        m->join = m->sync = NULL;
        if (join) group_answer_kerr(sh, join, kerr);
        if (sync) group_answer_kerr(sh, sync, kerr);
    }
    forget_members(grp);
    struct group_pending_member *p, *next;
    HASH_ITER(by_id, grp->pending, p, next) group_pending_remove(grp, str_of(p->id));
    shard_timer_cancel(sh, &grp->join_timer);
    shard_timer_cancel(sh, &grp->sync_timer);
    grp->assignment_write = NULL;
    group_enter(grp, GROUP_DEAD);
}
