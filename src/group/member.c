/* member.c: the members of a group, static ones, ids that were given out, and the protocols that all of them know. */
#include "group/group_internal.h"

#include "wire/gen/join_group.h"

/* ---- Finding */

struct group_member *group_member_find(struct group *grp, struct str id)
{
    struct group_member *m;
    HASH_FIND(by_id, grp->members, id.data, id.size, m);
    return m;
}

struct group_member *group_member_find_static(struct group *grp, struct str instance_id)
{
    struct group_member *m;
    HASH_FIND(by_instance, grp->static_members, instance_id.data, instance_id.size, m);
    return m;
}

enum kerr group_member_check(struct group *grp, struct str member_id, struct str instance_id, struct group_member **out)
{
    struct group_member *m = group_member_find(grp, member_id);
    if (!str_is_null(instance_id)) {
        struct group_member *owner = group_member_find_static(grp, instance_id);
        if (!owner) return KERR_UNKNOWN_MEMBER_ID;
        if (owner != m) return KERR_FENCED_INSTANCE_ID;
    }
    if (!m) return KERR_UNKNOWN_MEMBER_ID;
    *out = m;
    return KERR_NONE;
}

/* ---- Protocols */

static struct group_vote *vote_find(const struct group *grp, struct str name)
{
    struct group_vote *v;
    HASH_FIND(hh, grp->votes, name.data, name.size, v);
    return v;
}

static void support(struct group *grp, struct str name)
{
    struct group_vote *v = vote_find(grp, name);
    if (!v) {
        v = mem_zalloc(1, sizeof *v);
        v->name = mem_strndup(name.data, name.size);
        HASH_ADD_KEYPTR(hh, grp->votes, v->name, name.size, v);
    }
    v->supporters++;
}

static void withdraw(struct group *grp, struct str name)
{
    struct group_vote *v = vote_find(grp, name);
    ASSERT(v && v->supporters > 0);
    if (--v->supporters > 0) return;
    HASH_DEL(grp->votes, v);
    mem_free(v->name);
    mem_free(v);
}

static void protocols_clear(struct group_member *m)
{
    for (int32_t i = 0; i < m->protocol_count; i++) withdraw(m->group, m->protocols[i].name);
    mem_free(m->protocols);
    m->protocols = NULL;
    m->protocol_count = 0;
}

struct group_protocol *group_protocols_copy(const struct group_protocol *protocols, int32_t count)
{
    size_t size = (size_t)count * sizeof *protocols;
    for (int32_t i = 0; i < count; i++) size += protocols[i].name.size + protocols[i].metadata.size;
    struct group_protocol *copies = mem_alloc(size);
    char *at = (char *)(copies + count);
    for (int32_t i = 0; i < count; i++) {
        struct str name = protocols[i].name;
        struct bytes metadata = protocols[i].metadata;
        if (name.size) memcpy(at, name.data, name.size);
        copies[i].name = (struct str){at, name.size};
        at += name.size;
        if (metadata.size) memcpy(at, metadata.data, metadata.size);
        copies[i].metadata = (struct bytes){(uint8_t *)at, metadata.size};
        at += metadata.size;
    }
    return copies;
}

void group_member_set_protocols(struct group_member *m, const struct group_protocol *protocols, int32_t count)
{
    struct group_protocol *copies = group_protocols_copy(protocols, count);
    protocols_clear(m);
    m->protocols = copies;
    m->protocol_count = count;
    for (int32_t i = 0; i < count; i++) support(m->group, copies[i].name);
}

bool group_member_has_protocols(const struct group_member *m, const struct group_protocol *protocols, int32_t count)
{
    if (count != m->protocol_count) return false;
    for (int32_t i = 0; i < count; i++) {
        const struct group_protocol *a = &protocols[i], *b = &m->protocols[i];
        if (!str_equal(a->name, b->name) || a->metadata.size != b->metadata.size) return false;
        if (a->metadata.size && memcmp(a->metadata.data, b->metadata.data, a->metadata.size) != 0) return false;
    }
    return true;
}

struct bytes group_member_metadata(const struct group_member *m)
{
    for (int32_t i = 0; m->group->protocol && i < m->protocol_count; i++)
        if (str_is(m->protocols[i].name, m->group->protocol)) return m->protocols[i].metadata;
    return (struct bytes){0};
}

bool group_supports(const struct group *grp, struct str protocol_type, const struct group_protocol *protocols,
                    int32_t count)
{
    if (grp->state == GROUP_EMPTY) return protocol_type.size > 0 && count > 0;
    if (!grp->protocol_type || !str_is(protocol_type, grp->protocol_type)) return false;
    for (int32_t i = 0; i < count; i++) {
        const struct group_vote *v = vote_find(grp, protocols[i].name);
        if ((v ? (unsigned)v->supporters : 0) == HASH_CNT(by_id, grp->members)) return true;
    }
    return false;
}

/* Equally many votes: the one that an older member prefers. */
const char *group_elect_protocol(struct group *grp)
{
    int32_t all = (int32_t)HASH_CNT(by_id, grp->members);
    for (struct group_vote *v = grp->votes; v; v = v->hh.next) v->ballots = 0;
    const struct group_vote *best = NULL;
    for (struct group_member *m = grp->members; m; m = m->by_id.next) {
        for (int32_t i = 0; i < m->protocol_count; i++) {
            struct group_vote *v = vote_find(grp, m->protocols[i].name);
            if (v->supporters < all) continue;
            v->ballots++;
            break;
        }
    }
    for (struct group_member *m = grp->members; m; m = m->by_id.next) {
        for (int32_t i = 0; i < m->protocol_count; i++) {
            const struct group_vote *v = vote_find(grp, m->protocols[i].name);
            if (v->ballots > (best ? best->ballots : 0)) best = v;
        }
    }
    ASSERT(best);
    return best->name;
}

/* ---- Members */

void group_set_leader(struct group *grp, const struct group_member *m)
{
    mem_free(grp->leader);
    grp->leader = m ? mem_strdup(m->id) : NULL;
}

int32_t group_rebalance_timeout_ms(const struct group *grp)
{
    int32_t longest = 0;
    for (const struct group_member *m = grp->members; m; m = m->by_id.next)
        longest = MAX(longest, m->rebalance_timeout_ms);
    return longest;
}

static char *copy_or_null(struct str s)
{
    return str_is_null(s) ? NULL : mem_strndup(s.data, s.size);
}

struct group_member *group_member_add(struct group *grp, const struct group_member_spec *spec)
{
    ASSERT(!group_member_find(grp, spec->id));
    struct group_member *m = mem_zalloc(1, sizeof *m);
    m->group = grp;
    m->id = mem_strndup(spec->id.data, spec->id.size);
    m->instance_id = copy_or_null(spec->instance_id);
    m->client_id = mem_strndup(spec->client_id.data, spec->client_id.size);
    m->client_host = mem_strndup(spec->client_host.data, spec->client_host.size);
    m->session_timeout_ms = spec->session_timeout_ms;
    m->rebalance_timeout_ms = spec->rebalance_timeout_ms;
    m->session.fire = group_member_session_fire;
    group_member_set_protocols(m, spec->protocols, spec->protocol_count);
    HASH_ADD_KEYPTR(by_id, grp->members, m->id, strlen(m->id), m);
    if (m->instance_id) {
        ASSERT(!group_member_find_static(grp, spec->instance_id));
        HASH_ADD_KEYPTR(by_instance, grp->static_members, m->instance_id, strlen(m->instance_id), m);
    }
    if (!grp->leader) group_set_leader(grp, m);
    return m;
}

/* What waits for the member is told `kerr`; it waits no more. */
static void refuse_waiting(struct group_member *m, enum kerr kerr)
{
    struct group_call *join = m->join, *sync = m->sync;
    m->join = m->sync = NULL;
    m->syncing = false;
    group_member_set_joining(m, false);
    if (sync) group_answer_kerr(m->group->shard, sync, kerr);
    if (!join) return;
    group_refuse(join, kerr);
    struct join_group_response *out = join->out;
    /* A client that is not known begins without an id. */
    out->member_id = kerr == KERR_UNKNOWN_MEMBER_ID ? STR_EMPTY : arena_str(join->arena, str_of(m->id));
    group_answer(m->group->shard, join);
}

void group_member_remove(struct group_member *m)
{
    struct group *grp = m->group;
    refuse_waiting(m, KERR_UNKNOWN_MEMBER_ID);
    group_member_set_sync_due(m, false);
    shard_timer_cancel(grp->shard, &m->session);
    HASH_DELETE(by_id, grp->members, m);
    if (m->instance_id) HASH_DELETE(by_instance, grp->static_members, m);
    if (grp->leader && strcmp(grp->leader, m->id) == 0) group_set_leader(grp, grp->members);
    protocols_clear(m);
    mem_free(m->id);
    mem_free(m->instance_id);
    mem_free(m->client_id);
    mem_free(m->client_host);
    mem_free((void *)m->assignment.data);
    mem_free((void *)m->proposed.data);
    mem_free(m);
}

void group_member_rename(struct group_member *m, char *id)
{
    struct group *grp = m->group;
    refuse_waiting(m, KERR_FENCED_INSTANCE_ID);
    bool leads = grp->leader && strcmp(grp->leader, m->id) == 0;
    HASH_DELETE(by_id, grp->members, m);
    mem_free(m->id);
    m->id = id;
    HASH_ADD_KEYPTR(by_id, grp->members, m->id, strlen(m->id), m);
    if (leads) group_set_leader(grp, m);
}

void group_member_set_joining(struct group_member *m, bool joining)
{
    m->group->joining += joining - m->joining;
    m->joining = joining;
}

void group_member_set_sync_due(struct group_member *m, bool due)
{
    struct group *grp = m->group;
    grp->syncs_due += due - m->sync_due;
    m->sync_due = due;
    if (grp->syncs_due == 0) shard_timer_cancel(grp->shard, &grp->sync_timer);
}

void group_member_wait_join(struct group_member *m, struct group_call *call)
{
    /* Kafka lets the older one wait for ever; it is a connection's that its client has given up. */
    if (m->join) group_answer_kerr(m->group->shard, m->join, KERR_REBALANCE_IN_PROGRESS);
    m->join = call;
    call->member = m;
    group_member_set_joining(m, true);
}

void group_member_wait_sync(struct group_member *m, struct group_call *call)
{
    if (m->sync) group_answer_kerr(m->group->shard, m->sync, KERR_REBALANCE_IN_PROGRESS);
    m->sync = call;
    call->member = m;
    m->syncing = true;
}

/* ---- Ids that were given out */

static struct group_pending_member *pending_find(const struct group *grp, struct str id)
{
    struct group_pending_member *p;
    HASH_FIND(by_id, grp->pending, id.data, id.size, p);
    return p;
}

bool group_is_pending(const struct group *grp, struct str id)
{
    return pending_find(grp, id) != NULL;
}

void group_pending_add(struct group *grp, char *id, int32_t timeout_ms)
{
    struct group_pending_member *p = mem_zalloc(1, sizeof *p);
    p->group = grp;
    p->id = id;
    p->expiry.fire = group_pending_fire;
    HASH_ADD_KEYPTR(by_id, grp->pending, p->id, strlen(p->id), p);
    shard_timer_set(grp->shard, &p->expiry, grp->shard->mono_ms + timeout_ms);
}

bool group_pending_remove(struct group *grp, struct str id)
{
    struct group_pending_member *p = pending_find(grp, id);
    if (!p) return false;
    shard_timer_cancel(grp->shard, &p->expiry);
    HASH_DELETE(by_id, grp->pending, p);
    mem_free(p->id);
    mem_free(p);
    return true;
}
