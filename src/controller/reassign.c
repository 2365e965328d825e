/* reassign.c: replicas that move to other brokers (KIP-455).
 *
 * A partition that is being reassigned is held by its old and its new replicas together; `adding` and `removing` say
 * who is to come and to go, in the topic's node too, so that the next controller goes on.  When every replica that is
 * to stay is in sync the others go: a leader among them hands over, they leave the in-sync set and delete their logs.
 * Each step is one change of the store, the state before the assignment: a crash between leaves what can be gone on
 * from.  A reassignment that is taken back, or replaced by another, lets those go that it has added. */
#define LOG_MODULE "controller"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

bool partition_is_reassigned(const struct controller_partition *p)
{
    return p->adding_count || p->removing_count;
}

void reassign_note(struct controller *c, struct topic *t)
{
    if (!list_has(&t->reassigning)) list_push_back(&c->reassigning, &t->reassigning);
}

/* --- sets of replicas --- */

struct ids {
    int32_t *ids;
    int32_t count;
};

static struct ids ids_without(struct arena *a, struct ids from, struct ids without)
{
    struct ids left = {arena_array(a, int32_t, (size_t)from.count), 0};
    for (int32_t i = 0; i < from.count; i++)
        if (!ids_have(without.ids, without.count, from.ids[i])) left.ids[left.count++] = from.ids[i];
    return left;
}

static struct ids ids_within(struct arena *a, struct ids from, struct ids within)
{
    return ids_without(a, from, ids_without(a, from, within));
}

static struct ids ids_joined(struct arena *a, struct ids first, struct ids rest)
{
    struct ids more = ids_without(a, rest, first);
    struct ids all = {arena_array(a, int32_t, (size_t)(first.count + more.count)), first.count + more.count};
    if (first.count) memcpy(all.ids, first.ids, (size_t)first.count * sizeof *all.ids);
    if (more.count) memcpy(all.ids + first.count, more.ids, (size_t)more.count * sizeof *all.ids);
    return all;
}

static bool ids_equal(struct ids one, struct ids other)
{
    return one.count == other.count &&
           (one.count == 0 || memcmp(one.ids, other.ids, (size_t)one.count * sizeof *one.ids) == 0);
}

static struct ids replicas_of(const struct controller_partition *p)
{
    return (struct ids){p->replicas, p->replica_count};
}

static struct ids origin_of(struct arena *a, const struct controller_partition *p)
{
    return ids_without(a, replicas_of(p), (struct ids){p->adding, p->adding_count});
}

static struct ids target_of(struct arena *a, const struct controller_partition *p)
{
    return ids_without(a, replicas_of(p), (struct ids){p->removing, p->removing_count});
}

/* --- plans: what a partition is to become --- */

struct plan {
    struct ids replicas, adding, removing, isr;
    int32_t leader;
};

/* Who stays in sync, and who leads; false: nobody could. */
static bool plan_leads(struct plan *pn, const struct controller *c, const struct controller_partition *p,
                       struct arena *a)
{
    pn->isr = ids_within(a, (struct ids){p->isr, p->isr_count}, pn->replicas);
    pn->leader = p->leader;
    if (p->state_version < 0) return true;
    if (pn->isr.count == 0) return false;
    if (p->leader < 0 || ids_have(pn->replicas.ids, pn->replicas.count, p->leader)) return true;
    pn->leader = replica_choose(c, p, pn->replicas.ids, pn->replicas.count);
    return pn->leader >= 0;
}

/* Every replica that is to stay is in sync: the others can go. */
static bool plan_end(struct plan *pn, const struct controller *c, const struct controller_partition *p,
                     struct ids target, struct arena *a)
{
    *pn = (struct plan){.replicas = target};
    for (int32_t i = 0; i < target.count; i++)
        if (!ids_have(p->isr, p->isr_count, target.ids[i])) return false;
    return p->state_version >= 0 && plan_leads(pn, c, p, a);
}

/* The partition goes towards `target`; false: nobody could lead. */
static bool plan_begin(struct plan *pn, const struct controller *c, const struct controller_partition *p,
                       struct ids target, struct arena *a)
{
    if (plan_end(pn, c, p, target, a)) return true;
    struct ids origin = origin_of(a, p);
    *pn = (struct plan){.replicas = ids_joined(a, target, origin)};
    pn->adding = ids_without(a, pn->replicas, origin);
    pn->removing = ids_without(a, pn->replicas, target);
    return plan_leads(pn, c, p, a);
}

static void ids_replace(int32_t **ids, int32_t *count, struct ids by)
{
    int32_t *copy = ids_copy(by.ids, by.count);
    mem_free(*ids);
    *ids = copy;
    *count = by.count;
}

/* Makes the plan true in the tables.  Those who hold a replica no longer are to delete it. */
static void carry_out(const struct plan *pn, struct topic *t, int32_t partition, struct changes *cs, struct sending *s,
                      const char *reason)
{
    struct controller_partition *p = &t->partitions[partition];
    struct change ch = {t, partition, false, p->leader, reason};
    struct ids gone = ids_without(cs->a, replicas_of(p), pn->replicas);
    ids_replace(&p->replicas, &p->replica_count, pn->replicas);
    ids_replace(&p->adding, &p->adding_count, pn->adding);
    ids_replace(&p->removing, &p->removing_count, pn->removing);
    if (partition_is_reassigned(p)) reassign_note(cs->c, t);
    if (cs->topic_count == 0 || cs->topics[cs->topic_count - 1] != t) changes_add_topic(cs, t);
    if (p->state_version < 0) return; /* no broker has been told of it */
    for (int32_t i = 0; i < gone.count; i++) sending_add_stop(s, t, partition, gone.ids[i], true);
    partition_set_isr(p, pn->isr.ids, pn->isr.count);
    p->leader = pn->leader;
    p->leader_epoch++; /* the leader hears of its new replicas by it */
    p->controller_epoch = cs->c->epoch;
    changes_add(cs, ch);
}

/* --- going on --- */

struct reassigning {
    struct event ev;
    struct controller *c;
    struct arena arena;
    bool resume;
    struct changes changes;
    struct sending *sending;
};

static void end(struct reassigning *ra)
{
    if (ra->sending) sending_drop(ra->sending);
    changes_fini(&ra->changes);
    arena_fini(&ra->arena);
    mem_free(ra);
}

static void go_on(struct reassigning *ra, struct topic *t, int32_t partition)
{
    struct controller_partition *p = &t->partitions[partition];
    struct plan pn;
    if (plan_end(&pn, ra->c, p, target_of(&ra->arena, p), &ra->arena)) {
        carry_out(&pn, t, partition, &ra->changes, ra->sending, "reassigned");
    } else if (ra->resume && p->state_version >= 0) {
        /* The last controller may have died before the leader heard of the new replicas. */
        changes_add(&ra->changes, (struct change){t, partition, false, p->leader, "reassignment_resumed"});
        p->leader_epoch++;
        p->controller_epoch = ra->c->epoch;
    }
}

static void go_on_with_topic(struct reassigning *ra, struct topic *t)
{
    bool any = false;
    for (int32_t i = 0; i < t->partition_count && !t->deleting; i++) {
        if (!partition_is_reassigned(&t->partitions[i])) continue;
        go_on(ra, t, i);
        any = any || partition_is_reassigned(&t->partitions[i]);
    }
    if (!any) list_remove(&t->reassigning);
}

static enum step reassign_run(struct controller *c, struct event *ev)
{
    struct reassigning *ra = CONTAINER_OF(ev, struct reassigning, ev);
    if (ev->stage++ == 0) {
        c->reassign_queued = false;
        ra->sending = sending_new(c);
        LIST_EACH (&c->reassigning, n) go_on_with_topic(ra, CONTAINER_OF(n, struct topic, reassigning));
        changes_write(&ra->changes);
        if (ev->pending) return STEP_WAIT;
    }
    if (ra->changes.count) {
        changes_tell(&ra->changes, ra->sending);
        sending_send(ra->sending, NULL, NULL);
        ra->sending = NULL;
        if (c->listed) others_look(c); /* what is done leaves the list */
    }
    end(ra);
    return STEP_DONE;
}

static void reassign_drop(struct controller *c, struct event *ev)
{
    c->reassign_queued = false;
    end(CONTAINER_OF(ev, struct reassigning, ev));
}

void reassign_queue(struct controller *c, bool resume)
{
    if (c->reassign_queued && !resume) return;
    c->reassign_queued = true;
    struct reassigning *ra = mem_zalloc(1, sizeof *ra);
    ra->ev = (struct event){.run = reassign_run, .drop = reassign_drop};
    ra->c = c;
    ra->resume = resume;
    arena_init(&ra->arena, SIZE_MAX);
    changes_init(&ra->changes, c, &ra->ev, &ra->arena);
    controller_queue(c, &ra->ev);
}

/* --- asked for --- */

typedef struct alter_partition_reassignments_request_reassignable_partition asked_partition;
typedef struct alter_partition_reassignments_response_reassignable_partition_response told_partition;

static struct str text_of(struct arena *a, struct ids ids)
{
    return ids_text(a, ids.ids, (size_t)ids.count, ", ");
}

static enum kerr refuse_one(told_partition *tp, enum kerr kerr, struct str message)
{
    tp->error_code = (int16_t)kerr;
    tp->error_message = message;
    return kerr;
}

/* The replicas by themselves, in the order of Kafka's checks. */
static enum kerr check_replicas(const struct controller *c, const struct controller_partition *p, struct ids target,
                                struct arena *a, told_partition *tp)
{
    if (target.count == 0)
        return refuse_one(tp, KERR_INVALID_REPLICA_ASSIGNMENT,
                          STR("Empty replica list specified in partition reassignment."));
    if (target.count > CONTROLLER_REPLICAS_MAX)
        return refuse_one(tp, KERR_INVALID_REPLICA_ASSIGNMENT,
                          arena_printf(a, "A partition has at most %d replicas.", CONTROLLER_REPLICAS_MAX));
    for (int32_t i = 0; i < target.count; i++)
        if (ids_have(target.ids, i, target.ids[i]))
            return refuse_one(tp, KERR_INVALID_REPLICA_ASSIGNMENT,
                              arena_printf(a, "Duplicate replica ids in partition reassignment replica list: %.*s",
                                           STR_ARG(text_of(a, target))));
    for (int32_t i = 0; i < target.count; i++)
        if (target.ids[i] < 0)
            return refuse_one(tp, KERR_INVALID_REPLICA_ASSIGNMENT,
                              arena_printf(a, "Invalid broker id in replica list: %.*s", STR_ARG(text_of(a, target))));
    struct ids adding = p ? ids_without(a, target, origin_of(a, p)) : target;
    for (int32_t i = 0; i < adding.count; i++)
        if (!broker_is_assignable(c, adding.ids[i]))
            return refuse_one(tp, KERR_INVALID_REPLICA_ASSIGNMENT,
                              arena_printf(a,
                                           "Replica assignment has brokers that are not alive. Replica list: %.*s,"
                                           " broker %d is not alive.",
                                           STR_ARG(text_of(a, adding)), adding.ids[i]));
    return KERR_NONE;
}

/* Of the request's own: whether it may change how many replicas there are. */
static enum kerr check_factor(struct wire_op *wo, const struct controller_partition *p, struct ids target,
                              told_partition *tp)
{
    const struct alter_partition_reassignments_request *in = wo->in;
    int32_t before = target_of(&wo->arena, p).count;
    if (in->allow_replication_factor_change || target.count == before) return KERR_NONE;
    return refuse_one(tp, KERR_INVALID_REPLICATION_FACTOR,
                      arena_printf(wo->rq.a, "The replication factor is changed from %d to %d", before, target.count));
}

static void begin_one(struct wire_op *wo, struct topic *t, const asked_partition *ap, told_partition *tp)
{
    bool there = t && !t->deleting && ap->partition_index >= 0 && ap->partition_index < t->partition_count;
    struct controller_partition *p = there ? &t->partitions[ap->partition_index] : NULL;
    bool cancels = ap->replicas_count < 0;
    struct plan pn;
    if (p && !p->replicas) p = NULL;
    if (cancels && (!p || !partition_is_reassigned(p))) {
        refuse_one(tp, KERR_NO_REASSIGNMENT_IN_PROGRESS, STR_NULL);
        return;
    }
    struct ids target = {ap->replicas, ap->replicas_count};
    if (cancels) target = origin_of(&wo->arena, p);
    if (!cancels && check_replicas(wo->c, p, target, wo->rq.a, tp)) return;
    if (!cancels && p && check_factor(wo, p, target, tp)) return;
    if (!p) {
        refuse_one(tp, KERR_UNKNOWN_TOPIC_OR_PARTITION, STR("The partition does not exist."));
        return;
    }
    if (changes_have(&wo->changes, t, ap->partition_index)) {
        refuse_one(tp, KERR_INVALID_REQUEST, STR("The partition is named twice."));
        return;
    }
    if (!plan_begin(&pn, wo->c, p, target, &wo->arena)) {
        refuse_one(tp, KERR_ELIGIBLE_LEADERS_NOT_AVAILABLE,
                   STR("None of the replicas that would be left is alive and in sync."));
        return;
    }
    carry_out(&pn, t, ap->partition_index, &wo->changes, wo->sending,
              cancels ? "reassignment_cancelled" : "reassignment");
}

static void begin_all(struct wire_op *wo)
{
    const struct alter_partition_reassignments_request *in = wo->in;
    struct alter_partition_reassignments_response *out = wo->out;
    out->allow_replication_factor_change = in->allow_replication_factor_change;
    out->responses = arena_array(wo->rq.a, struct alter_partition_reassignments_response_reassignable_topic_response,
                                 (size_t)in->topics_count);
    out->responses_count = in->topics_count;
    for (int32_t i = 0; i < in->topics_count; i++) {
        const struct alter_partition_reassignments_request_reassignable_topic *at = &in->topics[i];
        struct alter_partition_reassignments_response_reassignable_topic_response *rt = &out->responses[i];
        struct topic *t = topic_find(wo->c, at->name);
        *rt = alter_partition_reassignments_response_reassignable_topic_response_default;
        rt->name = at->name;
        rt->partitions = arena_array(wo->rq.a, told_partition, (size_t)at->partitions_count);
        rt->partitions_count = at->partitions_count;
        for (int32_t k = 0; k < at->partitions_count; k++) {
            rt->partitions[k] = alter_partition_reassignments_response_reassignable_partition_response_default;
            rt->partitions[k].partition_index = at->partitions[k].partition_index;
            begin_one(wo, t, &at->partitions[k], &rt->partitions[k]);
        }
    }
}

static enum step begin_run(struct wire_op *wo)
{
    if (wo->ev.stage++ == 0) {
        wo->sending = sending_new(wo->c);
        begin_all(wo);
        changes_write(&wo->changes);
        if (wo->ev.pending) return STEP_WAIT;
    }
    if (wo->changes.count || wo->changes.topic_count) {
        changes_tell(&wo->changes, wo->sending);
        sending_send(wo->sending, NULL, NULL);
        wo->sending = NULL;
    }
    return wire_op_over(wo);
}

static void begin_refuse(void *out, enum kerr kerr)
{
    struct alter_partition_reassignments_response *r = out;
    *r = alter_partition_reassignments_response_default;
    r->error_code = (int16_t)kerr;
}

void controller_alter_reassignments(struct controller *c, const struct alter_partition_reassignments_request *in,
                                    struct alter_partition_reassignments_response *out, struct controller_request rq)
{
    static const struct wire_api api = {begin_run, begin_refuse};
    wire_op_post(c, &api, in, 0, out, rq);
}

/* --- asked for by way of the store --- */

/* False: there is nothing (more) to be done. */
static bool begin_listed(struct controller *c, const struct znode_listed *zl, struct changes *cs, struct sending *s)
{
    struct topic *t = topic_find(c, zl->topic);
    bool there = t && !t->deleting && zl->partition >= 0 && zl->partition < t->partition_count;
    struct controller_partition *p = there ? &t->partitions[zl->partition] : NULL;
    told_partition tp = alter_partition_reassignments_response_reassignable_partition_response_default;
    struct ids target = {zl->replicas, zl->replica_count};
    struct plan pn;
    if (!p || !p->replicas) {
        LOG_WARN("reassignment_refused", "topic=%.*s partition=%d reason=\"no such partition\"", STR_ARG(zl->topic),
                 zl->partition);
        return false;
    }
    if (p->listed || (partition_is_reassigned(p) && ids_equal(target_of(cs->a, p), target)))
        return p->listed = partition_is_reassigned(p); /* begun, be it by the last controller */
    enum kerr kerr;
    if (changes_have(cs, t, zl->partition))
        kerr = refuse_one(&tp, KERR_INVALID_REQUEST, STR("the partition is named twice"));
    else
        kerr = check_replicas(c, p, target, cs->a, &tp);
    if (!kerr && !plan_begin(&pn, c, p, target, cs->a))
        kerr =
            refuse_one(&tp, KERR_ELIGIBLE_LEADERS_NOT_AVAILABLE, STR("none of the replicas left is alive and in sync"));
    if (kerr) {
        LOG_WARN("reassignment_refused", "topic=%.*s partition=%d reason=\"%.*s\"", STR_ARG(zl->topic), zl->partition,
                 STR_ARG(tp.error_message));
        return false;
    }
    carry_out(&pn, t, zl->partition, cs, s, "reassignment");
    return p->listed = partition_is_reassigned(p);
}

void reassign_listed(struct controller *c, struct znode_partition_list *l, struct changes *cs, struct sending *s)
{
    size_t left = 0;
    for (size_t i = 0; i < l->count; i++)
        if (begin_listed(c, &l->partitions[i], cs, s)) l->partitions[left++] = l->partitions[i];
    l->count = left;
}

/* --- listed --- */

typedef struct list_partition_reassignments_response_ongoing_topic_reassignment listed_topic;
typedef struct list_partition_reassignments_response_ongoing_partition_reassignment listed_partition;

static void list_ids(struct arena *a, const int32_t *ids, int32_t count, int32_t **out, int32_t *out_count)
{
    *out = arena_array(a, int32_t, (size_t)count);
    if (count) memcpy(*out, ids, (size_t)count * sizeof *ids);
    *out_count = count;
}

static void list_partition(struct wire_op *wo, const struct topic *t, int32_t partition, listed_topic *lt)
{
    const struct controller_partition *p =
        partition >= 0 && partition < t->partition_count ? &t->partitions[partition] : NULL;
    if (!p || !partition_is_reassigned(p)) return;
    listed_partition *lp = &lt->partitions[lt->partitions_count++];
    *lp = list_partition_reassignments_response_ongoing_partition_reassignment_default;
    lp->partition_index = partition;
    list_ids(wo->rq.a, p->replicas, p->replica_count, &lp->replicas, &lp->replicas_count);
    list_ids(wo->rq.a, p->adding, p->adding_count, &lp->adding_replicas, &lp->adding_replicas_count);
    list_ids(wo->rq.a, p->removing, p->removing_count, &lp->removing_replicas, &lp->removing_replicas_count);
}

/* `partitions` NULL: all of them. */
static void list_topic(struct wire_op *wo, const struct topic *t, const int32_t *partitions, int32_t count)
{
    struct list_partition_reassignments_response *out = wo->out;
    listed_topic *lt = &out->topics[out->topics_count];
    *lt = list_partition_reassignments_response_ongoing_topic_reassignment_default;
    lt->partitions = arena_array(wo->rq.a, listed_partition, (size_t)count);
    for (int32_t i = 0; i < count; i++) list_partition(wo, t, partitions ? partitions[i] : i, lt);
    if (lt->partitions_count == 0) return;
    lt->name = arena_str(wo->rq.a, t->name);
    out->topics_count++;
}

static void list_all(struct wire_op *wo)
{
    struct list_partition_reassignments_response *out = wo->out;
    size_t count = 0;
    LIST_EACH (&wo->c->reassigning, n) count++;
    out->topics = arena_array(wo->rq.a, listed_topic, count);
    LIST_EACH (&wo->c->reassigning, n) {
        const struct topic *t = CONTAINER_OF(n, struct topic, reassigning);
        list_topic(wo, t, NULL, t->partition_count);
    }
}

static void list_named(struct wire_op *wo)
{
    const struct list_partition_reassignments_request *in = wo->in;
    struct list_partition_reassignments_response *out = wo->out;
    out->topics = arena_array(wo->rq.a, listed_topic, (size_t)in->topics_count);
    for (int32_t i = 0; i < in->topics_count; i++) {
        const struct topic *t = topic_find(wo->c, in->topics[i].name);
        if (t) list_topic(wo, t, in->topics[i].partition_indexes, in->topics[i].partition_indexes_count);
    }
}

static enum step list_run(struct wire_op *wo)
{
    const struct list_partition_reassignments_request *in = wo->in;
    ((struct list_partition_reassignments_response *)wo->out)->topics_count = 0;
    if (in->topics_count < 0)
        list_all(wo);
    else
        list_named(wo);
    return wire_op_over(wo);
}

static void list_refuse(void *out, enum kerr kerr)
{
    struct list_partition_reassignments_response *r = out;
    *r = list_partition_reassignments_response_default;
    r->error_code = (int16_t)kerr;
}

void controller_list_reassignments(struct controller *c, const struct list_partition_reassignments_request *in,
                                   struct list_partition_reassignments_response *out, struct controller_request rq)
{
    static const struct wire_api api = {list_run, list_refuse};
    wire_op_post(c, &api, in, 0, out, rq);
}
