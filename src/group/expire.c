/* expire.c: offsets that have outlived their retention (KIP-211), and offsets of topics that are gone.
 *
 * A sweep walks the shard's groups and stops after so much work; a timer that is due at once lets it go on in the next
 * turn.  Where much expires at once it also waits for what it has written.  A group is looked at in one go.  Topics
 * that are gone come first, a topic of a group at a time. */
#include "group/group_internal.h"

enum {
    SWEEP_STEPS_MAX = 4096, /* groups and positions looked at in a turn: a fraction of a millisecond */
    SWEEP_WRITES_MAX = 1024 /* on their way: a disk that is slow gets no more of them */
};

/* ---------------------------------------------------------------- which offsets */

/* What counts for all offsets of a group, GroupMetadata.removeExpiredOffsets() of Kafka 3.9. */
struct rule {
    bool none;                            /* expires */
    bool since_empty;                     /* retention counts from then, not from the commit */
    int64_t empty_at_ms;                  /*   when that was */
    struct group_subscription subscribed; /* these topics' do not expire */
};

static struct rule rule_of(const struct group *grp)
{
    struct rule rule = {.none = false};
    if (!grp->protocol_type) return rule; /* "simple" consumers: from the commit */
    if (grp->state == GROUP_EMPTY) {
        rule.since_empty = grp->state_since_ms != -1; /* old records do not tell */
        rule.empty_at_ms = grp->state_since_ms;
        return rule;
    }
    rule.none = true;
    if (grp->state != GROUP_STABLE) return rule;
    group_subscription_read(&rule.subscribed, grp);
    rule.none = !rule.subscribed.known;
    return rule;
}

/* Java's differences wrap. */
static int64_t age_ms(int64_t now_ms, int64_t since_ms)
{
    return (int64_t)((uint64_t)now_ms - (uint64_t)since_ms);
}

/* What is being written, or waits in a transaction, is in use. */
static bool is_expired(const struct group_shard *sh, const struct rule *rule, const struct group_position *pos)
{
    if (!pos->committed || pos->writing || pos->in_transactions) return false;
    if (pos->safe.expire_ms != -1) return sh->wall_ms >= pos->safe.expire_ms;
    int64_t since_ms = rule->since_empty ? rule->empty_at_ms : pos->safe.commit_ms;
    return age_ms(sh->wall_ms, since_ms) >= sh->opt.offsets_retention_ms;
}

/* ---------------------------------------------------------------- a group */

static void remove_one(struct group_removal *rm, struct group_topic *t, struct group_position *pos)
{
    group_removal_add(rm, t, pos);
    if (group_removal_is_full(rm)) group_removal_send(rm, NULL);
}

/* The number of positions looked at; `kept` counts those that do not go. */
static size_t expire_topic(struct group_removal *rm, const struct rule *rule, struct group_topic *t, size_t *kept)
{
    size_t steps = 0;
    bool consumed = group_subscription_has(&rule->subscribed, group_topic_name(t));
    for (struct group_position *pos = t->positions; pos; pos = pos->hh.next) {
        steps++;
        if (!consumed && is_expired(rm->group->shard, rule, pos))
            remove_one(rm, t, pos);
        else
            ++*kept;
    }
    return steps;
}

/* May free the group. */
static size_t expire_group(struct group *grp)
{
    struct rule rule = rule_of(grp);
    struct group_removal rm = {.group = grp};
    size_t steps = 1, kept = 0;
    for (struct group_topic *t = rule.none ? NULL : grp->topics; t; t = t->hh.next)
        steps += expire_topic(&rm, &rule, t, &kept);
    group_subscription_fini(&rule.subscribed);

    bool all = !rule.none && kept == 0 && grp->state == GROUP_EMPTY && !grp->pending;
    if (rm.write && all) group_removal_add_group(&rm);
    if (!group_removal_send(&rm, NULL)) group_retire(grp);
    return steps;
}

/* ---------------------------------------------------------------- a shard */

static void sweep(struct group_shard *sh);

static void sweep_fire(struct timer *t)
{
    struct group_shard *sh = CONTAINER_OF(t, struct group_shard, expiry);
    if (!sh->closed) sweep(sh);
}

static size_t forget_topic(struct group_topic *t)
{
    struct group_removal rm = {.group = t->group};
    list_remove(&t->forgetting);
    size_t steps = 1;
    for (struct group_position *pos = t->positions; pos; pos = pos->hh.next, steps++) remove_one(&rm, t, pos);
    group_removal_send(&rm, NULL);
    return steps;
}

void group_topic_forget(struct group_topic *t)
{
    if (list_has(&t->forgetting)) forget_topic(t);
}

static void sweep(struct group_shard *sh)
{
    size_t steps = 0;
    struct list_node *n;
    while ((n = list_first(&sh->forgetting)) && steps < SWEEP_STEPS_MAX && sh->writes < SWEEP_WRITES_MAX)
        steps += forget_topic(CONTAINER_OF(n, struct group_topic, forgetting));
    while (sh->expiry_next && steps < SWEEP_STEPS_MAX && sh->writes < SWEEP_WRITES_MAX) {
        struct group *grp = sh->expiry_next;
        sh->expiry_next = grp->hh.next;
        steps += expire_group(grp);
    }
    group_sweep_go_on(sh);
}

void group_sweep_go_on(struct group_shard *sh)
{
    bool more = sh->expiry_next || !list_is_empty(&sh->forgetting);
    if (!more || sh->closed || timer_is_set(&sh->expiry) || sh->writes > SWEEP_WRITES_MAX / 2) return;
    sh->expiry.fire = sweep_fire;
    shard_timer_set(sh, &sh->expiry, sh->mono_ms);
}

void group_shard_expire(struct group_shard *sh)
{
    ASSERT(!sh->closed);
    if (sh->expiry_next) return; /* the last sweep goes on */
    sh->expiry_next = sh->groups;
    sweep(sh);
}

void group_shard_forget_topic(struct group_shard *sh, struct str topic)
{
    ASSERT(!sh->closed);
    struct shard_topic *st;
    HASH_FIND(hh, sh->topics, topic.data, topic.size, st);
    if (!st) return;
    LIST_EACH (&st->of_groups, n) {
        struct group_topic *t = CONTAINER_OF(n, struct group_topic, node);
        if (!list_has(&t->forgetting)) list_push_back(&sh->forgetting, &t->forgetting);
    }
    if (!timer_is_set(&sh->expiry)) sweep(sh);
}
