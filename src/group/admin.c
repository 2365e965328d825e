/* admin.c: DescribeGroups, ListGroups and DeleteGroups.
 *
 * All strings of an answer are copied: the group may change before it is encoded. */
#include "group/group_internal.h"

#include <strings.h>

#include "wire/gen/delete_groups.h"
#include "wire/gen/describe_groups.h"
#include "wire/gen/list_groups.h"

typedef struct describe_groups_response_described_group out_group;
typedef struct describe_groups_response_described_group_member out_member;
typedef struct describe_groups_response_group_rebalance out_rebalance;

/* ---------------------------------------------------------------- DescribeGroups */

enum { NOT_FOUND_SINCE = 6 }; /* before, a group that is not there is a dead one, and no error */

static struct str copy(const struct group_call *call, const char *s)
{
    return s ? arena_str(call->arena, str_of(s)) : STR_EMPTY;
}

static struct str copy_or_null(const struct group_call *call, const char *s)
{
    return s ? arena_str(call->arena, str_of(s)) : STR_NULL;
}

/* Only a stable group's members have an assignment that counts, and a protocol that their metadata is for. */
static out_member describe_member(const struct group_call *call, const struct group_member *m)
{
    bool stable = m->group->state == GROUP_STABLE;
    static const struct bytes nothing = {(const uint8_t *)"", 0};
    return (out_member){
        .member_id = copy(call, m->id),
        .group_instance_id = copy_or_null(call, m->instance_id),
        .client_id = copy(call, m->client_id),
        .client_host = copy(call, m->client_host),
        .member_metadata = stable ? group_copy_bytes(call->arena, group_member_metadata(m)) : nothing,
        .member_assignment = stable ? group_copy_bytes(call->arena, m->assignment) : nothing,
    };
}

static out_rebalance describe_rebalance(const struct group_call *call, const struct group_rebalance *rb)
{
    return (out_rebalance){
        .started_ms = rb->started_wall_ms,
        .took_ms = rb->took_ms,
        .generation = rb->generation,
        .reason = copy(call, rb->reason),
        .member_id = copy_or_null(call, rb->member_id),
        .client_id = copy(call, rb->client_id),
    };
}

/* The oldest first. */
static void describe_history(const struct group_call *call, const struct group *grp, out_group *out)
{
    uint32_t count = MIN(grp->rebalance_count, (uint32_t)REBALANCES_KEPT);
    out->rebalances = arena_array(call->arena, out_rebalance, count);
    for (uint32_t i = grp->rebalance_count - count; i != grp->rebalance_count; i++)
        out->rebalances[out->rebalances_count++] = describe_rebalance(call, &grp->rebalances[i % REBALANCES_KEPT]);
}

static void describe(const struct group_call *call, const struct group *grp, out_group *out)
{
    out->group_state = copy(call, group_state_name(grp->state));
    out->protocol_type = copy(call, grp->protocol_type);
    out->protocol_data = grp->state == GROUP_STABLE ? copy(call, grp->protocol) : STR_EMPTY;
    out->members = arena_array(call->arena, out_member, HASH_CNT(by_id, grp->members));
    for (const struct group_member *m = grp->members; m; m = m->by_id.next)
        out->members[out->members_count++] = describe_member(call, m);
    if (call->want_history) describe_history(call, grp, out);
}

static void describe_nobody(const struct group_call *call, struct str id, out_group *out)
{
    out->group_state = copy(call, group_state_name(GROUP_DEAD));
    if (call->version < NOT_FOUND_SINCE) return;
    out->error_code = KERR_GROUP_ID_NOT_FOUND;
    out->error_message = arena_printf(call->arena, "Group %.*s not found.", STR_ARG(id));
}

void group_describe(struct group_shard *sh, struct group_call *call)
{
    const struct str *id = call->in;
    out_group *out = call->out;
    const struct group *grp = group_find(sh, *id);
    out->group_id = arena_str(call->arena, *id);
    if (grp)
        describe(call, grp, out);
    else
        describe_nobody(call, *id, out);
    group_answer(sh, call);
}

/* ---------------------------------------------------------------- ListGroups */

static bool same_but_for_case(struct str s, const char *name)
{
    return s.size == strlen(name) && strncasecmp(s.data, name, s.size) == 0;
}

/* An empty filter, or none, lets everything through. */
static bool passes(const struct str *filter, int32_t count, const char *name)
{
    for (int32_t i = 0; i < count; i++)
        if (same_but_for_case(filter[i], name)) return true;
    return count <= 0;
}

void group_list(struct group_shard *sh, struct group_call *call)
{
    static const char type[] = "classic"; /* of all groups so far */
    const struct list_groups_request *rq = call->in;
    struct list_groups_response *out = call->out;
    bool wanted[GROUP_STATE_COUNT];
    for (int s = 0; s < GROUP_STATE_COUNT; s++)
        wanted[s] = passes(rq->states_filter, rq->states_filter_count, group_state_name((enum group_state)s)) &&
                    passes(rq->types_filter, rq->types_filter_count, type);

    out->groups = arena_array(call->arena, struct list_groups_response_listed_group, HASH_COUNT(sh->groups));
    for (const struct group *grp = sh->groups; grp; grp = grp->hh.next) {
        if (!wanted[grp->state]) continue;
        out->groups[out->groups_count++] = (struct list_groups_response_listed_group){
            .group_id = arena_str(call->arena, group_id(grp)),
            .protocol_type = copy(call, grp->protocol_type),
            .group_state = copy(call, group_state_name(grp->state)),
            .group_type = copy(call, type),
        };
    }
    group_answer(sh, call);
}

/* ---------------------------------------------------------------- DeleteGroups */

static void forget_pending(struct group *grp)
{
    struct group_pending_member *p, *next;
    HASH_ITER(by_id, grp->pending, p, next) group_pending_remove(grp, str_of(p->id));
}

/* Nothing is left of it but the wait for the outcome of another removal. */
static bool is_gone(const struct group_position *pos)
{
    return !pos->committed && !pos->in_transactions && pos->writing == pos->removing;
}

/* As many of its offsets as go into a batch; with the last ones the group itself. */
static bool delete_some(struct group *grp, struct group_call *call)
{
    struct group_removal rm = {.group = grp};
    for (struct group_topic *t = grp->topics; t; t = t->hh.next) {
        for (struct group_position *pos = t->positions; pos; pos = pos->hh.next) {
            if (is_gone(pos)) continue;
            if (group_removal_is_full(&rm)) return group_removal_send(&rm, call);
            group_removal_add(&rm, t, pos);
        }
    }
    group_removal_add_group(&rm);
    return group_removal_send(&rm, call);
}

/* Comes by again after each batch: call->pending counts them.  Who joins meanwhile has the group to itself, and the
 * rest of it stays. */
void group_delete(struct group_shard *sh, struct group_call *call)
{
    const struct str *id = call->in;
    struct delete_groups_response_deletable_group_result *out = call->out;
    struct group *grp = group_find(sh, *id);
    if (!out->group_id.size) out->group_id = arena_str(call->arena, *id);
    if (grp && grp->state == GROUP_EMPTY) {
        forget_pending(grp);
        call->pending++;
        if (delete_some(grp, call)) return;
        group_retire(grp);
    } else if (grp) {
        out->error_code = KERR_NON_EMPTY_GROUP;
    } else if (call->pending == 0) {
        out->error_code = KERR_GROUP_ID_NOT_FOUND;
    }
    group_answer(sh, call);
}
