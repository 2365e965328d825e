/* join.c: JoinGroup: new members, those that come back, and static ones that come back under another id. */
#include "group/group_internal.h"
#include "wire/gen/join_group.h"

#define LOG_MODULE "group"
#include "base/log.h"

enum {
    JOIN_MEMBER_ID_REQUIRED_SINCE = 4, /* KIP-394 */
    JOIN_NULL_PROTOCOL_SINCE = 7,
    JOIN_SKIP_ASSIGNMENT_SINCE = 9 /* KIP-814 */
};
/* Of what a member's id begins with; behind it come a dash and a UUID. */
enum { MEMBER_ID_PREFIX_MAX = INT16_MAX - 1 - 36 };

/* A JoinGroup while it is looked at. */
struct joining {
    struct group_shard *sh;
    struct group *grp;
    struct group_call *call;
    const struct join_group_request *in;
    struct group_protocol *protocols; /* in the call's arena; no name twice */
    int32_t protocol_count;
    int32_t rebalance_timeout_ms;
};

/* ---- Answers */

static void refuse(struct joining *j, struct str member_id, enum kerr kerr)
{
    struct join_group_response *out = j->call->out;
    group_refuse(j->call, kerr);
    out->member_id = arena_str(j->call->arena, member_id);
    group_answer(j->sh, j->call);
}

static void add_members(struct join_group_response *out, struct arena *a, const struct group *grp)
{
    out->members_count = (int32_t)HASH_CNT(by_id, grp->members);
    out->members = arena_array(a, struct join_group_response_join_group_response_member, (size_t)out->members_count);
    struct join_group_response_join_group_response_member *to = out->members;
    for (const struct group_member *m = grp->members; m; m = m->by_id.next)
        *to++ = (struct join_group_response_join_group_response_member){
            .member_id = arena_str(a, str_of(m->id)),
            .group_instance_id = arena_str(a, str_of(m->instance_id)),
            .metadata = group_copy_bytes(a, group_member_metadata(m))};
}

/* `leader` is whom the answer names; `with_members`: it is the member itself, and is to assign. */
static void fill(struct group_call *call, const struct group_member *m, const char *leader, bool with_members)
{
    const struct group *grp = m->group;
    struct join_group_response *out = call->out;
    *out = join_group_response_default;
    out->generation_id = grp->generation;
    out->protocol_type = arena_str(call->arena, str_of(grp->protocol_type));
    out->protocol_name = arena_str(call->arena, str_of(grp->protocol));
    if (str_is_null(out->protocol_name) && call->version < JOIN_NULL_PROTOCOL_SINCE) out->protocol_name = STR_EMPTY;
    out->leader = leader ? arena_str(call->arena, str_of(leader)) : STR_EMPTY;
    out->member_id = arena_str(call->arena, str_of(m->id));
    if (with_members) add_members(out, call->arena, grp);
}

static bool leads(const struct group_member *m)
{
    return m->group->leader && strcmp(m->group->leader, m->id) == 0;
}

void group_answer_join(struct group_member *m)
{
    struct group_call *call = m->join;
    m->join = NULL;
    group_member_set_joining(m, false);
    if (!call) return;
    fill(call, m, m->group->leader, leads(m));
    group_answer(m->group->shard, call);
}

/* ---- Adding */

static struct group_cause cause_of(const struct joining *j, const char *what, const char *member_id)
{
    return (struct group_cause){
        .what = what, .reason = j->in->reason, .member_id = str_of(member_id), .client_id = j->call->client_id};
}

/* Takes `id`. */
static void add(struct joining *j, char *id)
{
    struct group *grp = j->grp;
    if (!grp->members) {
        mem_free(grp->protocol_type);
        grp->protocol_type = mem_strndup(j->in->protocol_type.data, j->in->protocol_type.size);
    }
    if (grp->state == GROUP_PREPARING && grp->generation == 0) grp->joined_meanwhile = true;
    struct group_member *m =
        group_member_add(grp, &(struct group_member_spec){.id = str_of(id),
                                                          .instance_id = j->in->group_instance_id,
                                                          .client_id = j->call->client_id,
                                                          .client_host = j->call->client_host,
                                                          .session_timeout_ms = j->in->session_timeout_ms,
                                                          .rebalance_timeout_ms = j->rebalance_timeout_ms,
                                                          .protocols = j->protocols,
                                                          .protocol_count = j->protocol_count});
    m->is_new = true;
    group_member_wait_join(m, j->call);
    group_member_live_for(m, NEW_MEMBER_JOIN_MS);
    group_pending_remove(grp, str_of(id));
    struct group_cause cause = cause_of(j, "a member joined", id);
    group_rebalance(grp, &cause);
    group_complete_if_joined(grp);
    mem_free(id);
}

static void update(struct joining *j, struct group_member *m)
{
    group_member_set_protocols(m, j->protocols, j->protocol_count);
    m->rebalance_timeout_ms = j->rebalance_timeout_ms;
    m->session_timeout_ms = j->in->session_timeout_ms;
    group_member_wait_join(m, j->call);
}

/* ---- A static member under a new id, in a stable group: no rebalance, but a record */

/* What is undone if the record is not written: the member in the log goes by its old id. */
struct static_rejoin {
    char *id, *old_id, *old_leader;
    struct group_protocol *old_protocols; /* one allocation, as group_member.protocols */
    int32_t old_protocol_count, old_rebalance_timeout_ms, old_session_timeout_ms;
    bool skips_assignment; /* the client knows JoinGroup 9 */
};

static void static_rejoin_free(struct static_rejoin *sr)
{
    mem_free(sr->id);
    mem_free(sr->old_id);
    mem_free(sr->old_leader);
    mem_free(sr->old_protocols);
    mem_free(sr);
}

static void static_rejoin_undo(struct group_member *m, struct static_rejoin *sr, enum kerr kerr)
{
    struct group *grp = m->group;
    struct group_call *call = m->join;
    m->join = NULL;
    group_member_set_joining(m, false);
    group_member_set_protocols(m, sr->old_protocols, sr->old_protocol_count);
    m->rebalance_timeout_ms = sr->old_rebalance_timeout_ms;
    m->session_timeout_ms = sr->old_session_timeout_ms;
    group_member_rename(m, sr->old_id);
    sr->old_id = NULL;
    group_member_heard(m);
    if (!call) return;
    struct join_group_response *out = call->out;
    fill(call, m, sr->old_leader, false);
    out->error_code = (int16_t)kerr;
    out->member_id = STR_EMPTY;
    group_answer(grp->shard, call);
}

/* Before version 9 the answer names the old leader, whoever that was: one that took itself for the leader would assign,
 * and a stable group has no use for it.  Since then it is told that it leads and need not assign. */
static void static_rejoin_done(struct group_member *m, const struct static_rejoin *sr)
{
    struct group_call *call = m->join;
    m->join = NULL;
    group_member_set_joining(m, false);
    group_member_heard(m);
    if (!call) return;
    struct join_group_response *out = call->out;
    bool skip = sr->skips_assignment && leads(m);
    fill(call, m, sr->skips_assignment ? m->group->leader : sr->old_leader, skip);
    out->skip_assignment = skip;
    group_answer(m->group->shard, call);
}

/* Meanwhile it may have been replaced again, or gone; or a rebalance may have begun, which counts it as joined and will
 * answer it. */
static void static_rejoin_written(struct group_shard *sh, struct group_write *w, enum kerr kerr)
{
    (void)sh;
    struct static_rejoin *sr = w->arg;
    struct group *grp = w->group;
    if (kerr)
        LOG_LIMITED(LOG_LEVEL_WARN, "group_write_failed", "group=%s generation=%d error=%s what=static_member", grp->id,
                    grp->generation, kerr_name((int16_t)kerr));
    struct group_member *m = group_member_find(grp, str_of(sr->id));
    if (m && m->joining && grp->state == GROUP_STABLE) {
        if (kerr)
            static_rejoin_undo(m, sr, group_assignment_kerr(kerr));
        else
            static_rejoin_done(m, sr);
    }
    static_rejoin_free(sr);
}

static struct bytes current_assignment(const struct group_member *m, void *arg)
{
    (void)arg;
    return m->assignment;
}

static void static_rejoin_write(struct group *grp, struct static_rejoin *sr)
{
    struct group_write *w = group_write_new(grp, static_rejoin_written);
    w->arg = sr;
    group_write_metadata(w, grp, current_assignment, NULL);
    group_write_send(w);
}

/* The member's protocols leave it, so that they can be put back. */
static struct static_rejoin *static_rejoin_new(const struct joining *j, const struct group_member *m, const char *id)
{
    struct static_rejoin *sr = mem_zalloc(1, sizeof *sr);
    sr->id = mem_strdup(id);
    sr->old_id = mem_strdup(m->id);
    sr->old_leader = m->group->leader ? mem_strdup(m->group->leader) : NULL;
    sr->old_protocols = group_protocols_copy(m->protocols, m->protocol_count);
    sr->old_protocol_count = m->protocol_count;
    sr->old_rebalance_timeout_ms = m->rebalance_timeout_ms;
    sr->old_session_timeout_ms = m->session_timeout_ms;
    sr->skips_assignment = j->call->version >= JOIN_SKIP_ASSIGNMENT_SINCE;
    return sr;
}

/* Its process was started again, or has a twin: either way the older one is fenced. */
static void join_static_again(struct joining *j, struct group_member *m, char *id)
{
    struct group *grp = j->grp;
    struct static_rejoin *sr = static_rejoin_new(j, m, id);
    group_member_rename(m, id);
    update(j, m);
    group_member_heard(m);
    if (grp->state == GROUP_STABLE && strcmp(grp->protocol, group_elect_protocol(grp)) == 0) {
        static_rejoin_write(grp, sr);
        return;
    }
    static_rejoin_free(sr);
    /* Stable: all must learn of another protocol.  Completing: the leader may be assigning to the old id. */
    struct group_cause cause = cause_of(j, "a static member came back", m->id);
    group_rebalance(grp, &cause);
    group_complete_if_joined(grp);
}

/* ---- The kinds of members */

static void join_new(struct joining *j)
{
    struct group *grp = j->grp;
    struct str instance_id = j->in->group_instance_id;
    bool is_static = !str_is_null(instance_id);
    char *id = group_make_member_id(j->sh, is_static ? instance_id : j->call->client_id);
    struct group_member *m = is_static ? group_member_find_static(grp, instance_id) : NULL;
    if (m) {
        join_static_again(j, m, id);
    } else if (!is_static && j->call->version >= JOIN_MEMBER_ID_REQUIRED_SINCE) {
        refuse(j, str_of(id), KERR_MEMBER_ID_REQUIRED);
        group_pending_add(grp, id, j->in->session_timeout_ms);
    } else {
        add(j, id);
    }
}

/* Its JoinGroup has the same content, and for a follower nothing to say: it may have missed the answer. */
static bool changes_nothing(const struct joining *j, const struct group_member *m)
{
    if (!group_member_has_protocols(m, j->protocols, j->protocol_count)) return false;
    return j->grp->state == GROUP_COMPLETING || (j->grp->state == GROUP_STABLE && !leads(m));
}

static void join_again(struct joining *j, struct group_member *m)
{
    struct group *grp = j->grp;
    if (changes_nothing(j, m)) {
        fill(j->call, m, grp->leader, leads(m));
        group_answer(j->sh, j->call);
        return;
    }
    const char *what = grp->state == GROUP_STABLE && leads(m) ? "the leader joined again" : "a member changed";
    struct group_cause cause = cause_of(j, what, m->id);
    update(j, m);
    group_rebalance(grp, &cause);
    group_complete_if_joined(grp);
}

static void join_known(struct joining *j)
{
    struct group *grp = j->grp;
    struct str id = j->in->member_id;
    if (group_is_pending(grp, id) && str_is_null(j->in->group_instance_id)) {
        add(j, mem_strndup(id.data, id.size));
        return;
    }
    struct group_member *m;
    enum kerr kerr = group_member_check(grp, id, j->in->group_instance_id, &m);
    if (kerr)
        refuse(j, id, kerr);
    else
        join_again(j, m);
}

/* ---- Checks */

/* Members that wait count while a group prepares: the last to come are those that are turned away, when the limit has
 * become smaller. */
static bool has_room(const struct group *grp, const struct group_member *m)
{
    switch (grp->state) {
    case GROUP_EMPTY: return true;
    case GROUP_PREPARING: return (m && m->joining) || grp->joining < grp->shard->opt.size_max;
    case GROUP_COMPLETING:
    case GROUP_STABLE: return m || (int64_t)HASH_CNT(by_id, grp->members) < grp->shard->opt.size_max;
    case GROUP_DEAD:
    case GROUP_STATE_COUNT: break;
    }
    UNREACHABLE();
}

static int by_name(const void *a, const void *b)
{
    const struct join_group_request_join_group_request_protocol *const *pa = a, *const *pb = b;
    int c = str_compare((*pa)->name, (*pb)->name);
    return c ? c : (*pa < *pb ? -1 : 1);
}

/* Of two protocols with one name the first counts, as in Kafka, whose requests cannot hold both. */
static void take_protocols(struct joining *j)
{
    struct arena *a = j->call->arena;
    int32_t n = j->in->protocols_count;
    if (n <= 0) return;
    const struct join_group_request_join_group_request_protocol *all = j->in->protocols,
                                                                **sorted =
                                                                    arena_array_alloc(a, (size_t)n, sizeof *sorted);
    bool *again = arena_array(a, bool, (size_t)n);
    for (int32_t i = 0; i < n; i++) sorted[i] = &all[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int32_t i = 1; i < n; i++) again[sorted[i] - all] = str_equal(sorted[i]->name, sorted[i - 1]->name);
    j->protocols = arena_array(a, struct group_protocol, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        if (!again[i]) j->protocols[j->protocol_count++] = (struct group_protocol){all[i].name, all[i].metadata};
}

/* The id that is made of it could not be written to the log, nor be told to a client. */
static bool is_too_long(const struct joining *j)
{
    struct str prefix = str_is_null(j->in->group_instance_id) ? j->call->client_id : j->in->group_instance_id;
    return prefix.size > MEMBER_ID_PREFIX_MAX;
}

static bool is_odd(const struct joining *j)
{
    if (group_str_is_odd(j->in->group_instance_id) || group_str_is_odd(j->call->client_id) ||
        group_str_is_odd(j->call->client_host) || group_str_is_odd(j->in->protocol_type))
        return true;
    for (int32_t i = 0; i < j->protocol_count; i++)
        if (group_str_is_odd(j->protocols[i].name)) return true;
    return false;
}

static void join(struct joining *j)
{
    struct group *grp = j->grp;
    struct str id = j->in->member_id;
    struct group_member *m = group_member_find(grp, id);
    if (!has_room(grp, m)) {
        group_pending_remove(grp, id);
        if (m) group_member_remove(m);
        refuse(j, STR_EMPTY, KERR_GROUP_MAX_SIZE_REACHED);
        group_complete_if_joined(grp);
    } else if (!group_supports(grp, j->in->protocol_type, j->protocols, j->protocol_count)) {
        refuse(j, id, KERR_INCONSISTENT_GROUP_PROTOCOL);
    } else if (id.size == 0) {
        join_new(j);
    } else {
        join_known(j);
    }
}

void group_join(struct group_shard *sh, struct group_call *call)
{
    const struct join_group_request *in = call->in;
    struct joining j = {.sh = sh, .call = call, .in = in};
    /* Version 0 knows one timeout. */
    j.rebalance_timeout_ms = call->version == 0 ? in->session_timeout_ms : in->rebalance_timeout_ms;
    take_protocols(&j);
    if (in->session_timeout_ms < sh->opt.session_timeout_min_ms ||
        in->session_timeout_ms > sh->opt.session_timeout_max_ms) {
        refuse(&j, in->member_id, KERR_INVALID_SESSION_TIMEOUT);
        return;
    }
    if (is_odd(&j) || is_too_long(&j)) {
        refuse(&j, in->member_id, KERR_INVALID_REQUEST);
        return;
    }
    j.grp = group_find(sh, in->group_id);
    if (!j.grp && in->member_id.size > 0) {
        refuse(&j, in->member_id, KERR_UNKNOWN_MEMBER_ID);
        return;
    }
    if (!j.grp) j.grp = group_make(sh, in->group_id);
    join(&j);
    group_drop_if_idle(j.grp);
}
