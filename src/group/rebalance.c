/* rebalance.c: how a group gets from one generation to the next: it prepares, waits for its members to join, takes
 * stock.
 *
 * Answers go out when the entry point ends, so nothing here is entered anew; but members may be freed on the way, and
 * who calls group_rebalance() or group_complete_if_joined() holds none afterwards. */
#include "group/group_internal.h"

#define LOG_MODULE "group"
#include "base/log.h"

/* When nobody joins again and the members' rebalance timeout is shorter, we look again after this time. */
enum { REJOIN_WAIT_MIN_MS = 100 };

static void complete(struct group *grp);
static void join_timer_fire(struct timer *t);
static void sync_timer_fire(struct timer *t);

static void wait_for_joins(struct group *grp, int64_t wait_ms)
{
    grp->join_timer.fire = join_timer_fire;
    shard_timer_set(grp->shard, &grp->join_timer, grp->shard->mono_ms + wait_ms);
}

static void sync_is_not_due(struct group *grp)
{
    for (struct group_member *m = grp->members; m && grp->syncs_due > 0; m = m->by_id.next)
        group_member_set_sync_due(m, false);
}

void group_rebalance(struct group *grp, const struct group_cause *cause)
{
    if (grp->state != GROUP_STABLE && grp->state != GROUP_EMPTY && grp->state != GROUP_COMPLETING) return;
    if (grp->state == GROUP_COMPLETING) group_sync_fail(grp, KERR_REBALANCE_IN_PROGRESS);
    sync_is_not_due(grp);
    int32_t timeout_ms = group_rebalance_timeout_ms(grp);
    grp->initial_delay = grp->state == GROUP_EMPTY;
    if (grp->initial_delay) {
        grp->initial_left_ms = MAX(timeout_ms - grp->shard->opt.initial_delay_ms, 0);
        grp->joined_meanwhile = false;
    }
    wait_for_joins(grp, grp->initial_delay ? grp->shard->opt.initial_delay_ms : timeout_ms);
    group_enter(grp, GROUP_PREPARING);
    group_history_begin(grp, cause);
    group_complete_if_joined(grp);
}

void group_complete_if_joined(struct group *grp)
{
    if (grp->state != GROUP_PREPARING || grp->initial_delay) return;
    if (grp->pending || (unsigned)grp->joining < HASH_CNT(by_id, grp->members)) return;
    complete(grp);
}

/* The first members of a group come one after the other, and one rebalance for all of them is enough: each wait in
 * which some came is followed by another, as long as their rebalance timeout allows. */
static void join_timer_fire(struct timer *t)
{
    struct group *grp = CONTAINER_OF(t, struct group, join_timer);
    if (grp->initial_delay && grp->joined_meanwhile && grp->initial_left_ms > 0) {
        int64_t delay_ms = MIN(grp->shard->opt.initial_delay_ms, grp->initial_left_ms);
        grp->initial_left_ms -= delay_ms;
        grp->joined_meanwhile = false;
        wait_for_joins(grp, delay_ms);
        return;
    }
    complete(grp);
}

/* ---- The next generation */

/* Static members may come back under their old name; the others have had their time. */
static void remove_who_did_not_join(struct group *grp)
{
    struct group_member *m, *next;
    HASH_ITER(by_id, grp->members, m, next)
    {
        if (m->joining || m->instance_id) continue;
        group_history_dropped(grp);
        group_member_remove(m);
    }
}

/* False: there are members, and none of them has joined. */
static bool elect_leader(struct group *grp)
{
    struct group_member *m = grp->leader ? group_member_find(grp, str_of(grp->leader)) : NULL;
    if (m && m->joining) return true;
    for (m = grp->members; m && !m->joining;) m = m->by_id.next;
    if (!m) return grp->members == NULL;
    group_set_leader(grp, m);
    return true;
}

static void empty_written(struct group_shard *sh, struct group_write *w, enum kerr kerr)
{
    (void)sh;
    /* The generation before it stays in the log; members that are read from there will not be heard of. */
    if (kerr)
        LOG_LIMITED(LOG_LEVEL_WARN, "group_write_failed", "group=%s generation=%d error=%s what=empty", w->group->id,
                    w->group->generation, kerr_name((int16_t)kerr));
    group_drop_if_idle(w->group);
}

static struct bytes no_assignment(const struct group_member *m, void *arg)
{
    (void)m;
    (void)arg;
    return (struct bytes){0};
}

static void become_empty(struct group *grp)
{
    group_enter(grp, GROUP_EMPTY);
    mem_free(grp->protocol);
    grp->protocol = NULL;
    group_history_end(grp);
    struct group_write *w = group_write_new(grp, empty_written);
    group_write_metadata(w, grp, no_assignment, NULL);
    group_write_send(w);
}

static void begin_generation(struct group *grp)
{
    const char *protocol = group_elect_protocol(grp);
    mem_free(grp->protocol);
    grp->protocol = mem_strdup(protocol);
    group_enter(grp, GROUP_COMPLETING);
    for (struct group_member *m = grp->members; m; m = m->by_id.next) {
        group_answer_join(m);
        m->is_new = false;
        group_member_heard(m);
        group_member_set_sync_due(m, true);
    }
    grp->sync_timer.fire = sync_timer_fire;
    shard_timer_set(grp->shard, &grp->sync_timer, grp->shard->mono_ms + group_rebalance_timeout_ms(grp));
}

static void complete(struct group *grp)
{
    grp->initial_delay = false;
    remove_who_did_not_join(grp);
    if (!elect_leader(grp)) {
        /* Static members only: until one is back, or their sessions have ended. */
        wait_for_joins(grp, MAX(group_rebalance_timeout_ms(grp), REJOIN_WAIT_MIN_MS));
        return;
    }
    shard_timer_cancel(grp->shard, &grp->join_timer);
    grp->generation = grp->generation == INT32_MAX ? 1 : grp->generation + 1;
    group_history_joined(grp);
    if (grp->members)
        begin_generation(grp);
    else
        become_empty(grp);
}

/* ---- Losing members */

void group_member_lose(struct group_member *m, const struct group_cause *cause)
{
    struct group *grp = m->group;
    /* `cause` may name the member by its own strings. */
    char *member_id = mem_strndup(cause->member_id.data, cause->member_id.size);
    char *client_id = mem_strndup(cause->client_id.data, cause->client_id.size);
    struct group_cause kept = *cause;
    kept.member_id = str_of(member_id);
    kept.client_id = str_of(client_id);
    group_member_remove(m);
    if (grp->state == GROUP_STABLE || grp->state == GROUP_COMPLETING)
        group_rebalance(grp, &kept);
    else
        group_complete_if_joined(grp);
    mem_free(member_id);
    mem_free(client_id);
}

/* Who joined the generation and did not ask for its assignment is gone, and the rest begins anew. */
static void sync_timer_fire(struct timer *t)
{
    struct group *grp = CONTAINER_OF(t, struct group, sync_timer);
    if (grp->syncs_due == 0) return;
    struct group_cause cause = {.what = "a member did not ask for its assignment in time"};
    char *member_id = NULL, *client_id = NULL;
    struct group_member *m, *next;
    HASH_ITER(by_id, grp->members, m, next)
    {
        if (!m->sync_due) continue;
        if (!member_id) {
            member_id = mem_strdup(m->id);
            client_id = mem_strdup(m->client_id);
        }
        group_member_remove(m);
    }
    cause.member_id = str_of(member_id);
    cause.client_id = str_of(client_id);
    group_rebalance(grp, &cause);
    mem_free(member_id);
    mem_free(client_id);
}
