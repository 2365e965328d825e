/* elect.c: elections that somebody asks for: clients by ElectLeaders, and the controller itself when too many leaders
 * are not where they should be.
 *
 * The preferred leader is the first in the assignment.  It gets the lead only while it is alive and in sync, so nothing
 * is lost by it. */
#define LOG_MODULE "controller"

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

bool elect_preferred(struct changes *cs, struct topic *t, int32_t partition, const char *reason)
{
    struct controller_partition *p = &t->partitions[partition];
    struct change ch = {t, partition, false, p->leader, reason};
    if (p->leader == p->replicas[0] || replica_choose(cs->c, p, p->replicas, 1) < 0) return false;
    partition_lead(cs->c, p, p->replicas[0]);
    changes_add(cs, ch);
    return true;
}

/* --- asked for by clients --- */

enum elect_stage { ELECT_LOOK, ELECT_ASK, ELECT_WRITE, ELECT_TELL };
enum election_type { ELECTION_PREFERRED, ELECTION_UNCLEAN };

typedef struct elect_leaders_response_partition_result partition_result;

static void result_set(partition_result *pr, enum kerr kerr, struct str message)
{
    pr->error_code = (int16_t)kerr;
    pr->error_message = message;
}

/* What an election is not needed for, or not possible; KERR_NONE: it is to be held. */
static void look_at(struct wire_op *wo, struct topic *t, partition_result *pr)
{
    const struct elect_leaders_request *in = wo->in;
    int32_t i = pr->partition_id;
    const struct controller_partition *p = t && i >= 0 && i < t->partition_count ? &t->partitions[i] : NULL;
    if (!p || !p->replicas) {
        result_set(pr, KERR_UNKNOWN_TOPIC_OR_PARTITION, STR("The partition does not exist."));
    } else if (t->deleting) {
        result_set(pr, KERR_INVALID_TOPIC_EXCEPTION, STR("The topic is being deleted"));
    } else if (p->state_version < 0) {
        result_set(pr, KERR_ELIGIBLE_LEADERS_NOT_AVAILABLE, STR("None of its replicas has been alive yet."));
    } else if (in->election_type == ELECTION_PREFERRED) {
        if (p->leader == p->replicas[0]) result_set(pr, KERR_ELECTION_NOT_NEEDED, STR_NULL);
    } else if (p->leader >= 0 && replica_is_electable(wo->c, p, p->leader)) {
        result_set(pr, KERR_ELECTION_NOT_NEEDED, STR_NULL);
    } else {
        elections_add(&wo->elections, t, i, true);
    }
}

static struct elect_leaders_response_replica_election_result *result_add(struct wire_op *wo, struct str topic,
                                                                         int32_t partition_count)
{
    struct elect_leaders_response *out = wo->out;
    struct elect_leaders_response_replica_election_result *rr =
        &out->replica_election_results[out->replica_election_results_count++];
    *rr = elect_leaders_response_replica_election_result_default;
    rr->topic = topic;
    rr->partition_result = arena_array(wo->rq.a, partition_result, (size_t)partition_count);
    rr->partition_result_count = partition_count;
    return rr;
}

static void look_at_all(struct wire_op *wo)
{
    for (struct topic *t = wo->c->topics; t; t = t->by_name.next) {
        struct elect_leaders_response_replica_election_result *rr =
            result_add(wo, arena_str(wo->rq.a, t->name), t->partition_count);
        for (int32_t i = 0; i < t->partition_count; i++) {
            rr->partition_result[i].partition_id = i;
            look_at(wo, t, &rr->partition_result[i]);
        }
    }
}

static void look_at_named(struct wire_op *wo)
{
    const struct elect_leaders_request *in = wo->in;
    for (int32_t i = 0; i < in->topic_partitions_count; i++) {
        const struct elect_leaders_request_topic_partitions *tp = &in->topic_partitions[i];
        struct topic *t = topic_find(wo->c, tp->topic);
        struct elect_leaders_response_replica_election_result *rr = result_add(wo, tp->topic, tp->partitions_count);
        for (int32_t k = 0; k < tp->partitions_count; k++) {
            rr->partition_result[k].partition_id = tp->partitions[k];
            look_at(wo, t, &rr->partition_result[k]);
        }
    }
}

static void elect_look(struct wire_op *wo)
{
    const struct elect_leaders_request *in = wo->in;
    struct elect_leaders_response *out = wo->out;
    size_t topics =
        in->topic_partitions_count < 0 ? HASH_CNT(by_name, wo->c->topics) : (size_t)in->topic_partitions_count;
    out->replica_election_results =
        arena_array(wo->rq.a, struct elect_leaders_response_replica_election_result, topics);
    if (in->topic_partitions_count < 0)
        look_at_all(wo);
    else
        look_at_named(wo);
    elections_read_settings(&wo->elections);
}

static void hold(struct wire_op *wo, struct topic *t, partition_result *pr)
{
    const struct elect_leaders_request *in = wo->in;
    const char *strategy = "PreferredReplicaPartitionLeaderElectionStrategy";
    enum kerr kerr = KERR_PREFERRED_LEADER_NOT_AVAILABLE;
    const struct controller_partition *p = &t->partitions[pr->partition_id];
    if (in->election_type == ELECTION_PREFERRED) {
        if (p->leader == p->replicas[0]) return; /* named twice */
        if (elect_preferred(&wo->changes, t, pr->partition_id, "preferred_leader")) return;
    } else {
        struct change ch = {t, pr->partition_id, false, p->leader, "unclean_election"};
        if (p->leader >= 0 && replica_is_electable(wo->c, p, p->leader)) return;
        if (elections_give(&wo->elections, t, pr->partition_id)) {
            changes_add(&wo->changes, ch);
            return;
        }
        strategy = "OfflinePartitionLeaderElectionStrategy(true)";
        kerr = KERR_ELIGIBLE_LEADERS_NOT_AVAILABLE;
    }
    result_set(pr, kerr,
               arena_printf(wo->rq.a, "Failed to elect leader for partition %.*s-%d under strategy %s",
                            STR_ARG(t->name), pr->partition_id, strategy));
}

static void elect_write(struct wire_op *wo)
{
    struct elect_leaders_response *out = wo->out;
    for (int32_t i = 0; i < out->replica_election_results_count; i++) {
        struct elect_leaders_response_replica_election_result *rr = &out->replica_election_results[i];
        struct topic *t = topic_find(wo->c, rr->topic);
        for (int32_t k = 0; k < rr->partition_result_count; k++)
            if (rr->partition_result[k].error_code == KERR_NONE) hold(wo, t, &rr->partition_result[k]);
    }
    changes_write(&wo->changes);
}

/* Who asks for all partitions is not told of those that needed nothing. */
static void drop_not_needed(struct wire_op *wo)
{
    struct elect_leaders_response *out = wo->out;
    int32_t topics = 0;
    for (int32_t i = 0; i < out->replica_election_results_count; i++) {
        struct elect_leaders_response_replica_election_result rr = out->replica_election_results[i];
        int32_t kept = 0;
        for (int32_t k = 0; k < rr.partition_result_count; k++)
            if (rr.partition_result[k].error_code != KERR_ELECTION_NOT_NEEDED)
                rr.partition_result[kept++] = rr.partition_result[k];
        rr.partition_result_count = kept;
        if (kept) out->replica_election_results[topics++] = rr;
    }
    out->replica_election_results_count = topics;
}

static void told(void *arg)
{
    wire_op_over(arg);
}

/* Answered when the own broker knows the new leaders, so that who asked finds them there. */
static enum step elect_tell(struct wire_op *wo)
{
    const struct elect_leaders_request *in = wo->in;
    struct sending *s = sending_new(wo->c);
    if (in->topic_partitions_count < 0) drop_not_needed(wo);
    changes_tell(&wo->changes, s);
    if (wo->changes.count == 0) {
        sending_drop(s);
        return wire_op_over(wo);
    }
    sending_send(s, told, wo);
    return STEP_DONE;
}

static enum step elect_run(struct wire_op *wo)
{
    const struct elect_leaders_request *in = wo->in;
    switch ((enum elect_stage)wo->ev.stage) {
    case ELECT_LOOK:
        wo->ev.stage = ELECT_ASK;
        if (in->election_type != ELECTION_PREFERRED && in->election_type != ELECTION_UNCLEAN) {
            wo->api->refuse(wo->out, KERR_INVALID_REQUEST);
            return wire_op_over(wo);
        }
        elect_look(wo);
        if (wo->ev.pending) return STEP_WAIT;
        FALLTHROUGH;
    case ELECT_ASK:
        wo->ev.stage = ELECT_WRITE;
        elections_ask(&wo->elections);
        if (wo->ev.pending) return STEP_WAIT;
        FALLTHROUGH;
    case ELECT_WRITE:
        wo->ev.stage = ELECT_TELL;
        elect_write(wo);
        if (wo->ev.pending) return STEP_WAIT;
        FALLTHROUGH;
    case ELECT_TELL: break;
    }
    return elect_tell(wo);
}

/* Each partition as well: version 0 has no code for the whole. */
static void refuse(void *out, enum kerr kerr)
{
    struct elect_leaders_response *r = out;
    r->error_code = (int16_t)kerr;
    for (int32_t i = 0; i < r->replica_election_results_count; i++)
        for (int32_t k = 0; k < r->replica_election_results[i].partition_result_count; k++)
            result_set(&r->replica_election_results[i].partition_result[k], kerr, STR_NULL);
}

void controller_elect_leaders(struct controller *c, const struct elect_leaders_request *in,
                              struct elect_leaders_response *out, struct controller_request rq)
{
    static const struct wire_api api = {elect_run, refuse};
    wire_op_post(c, &api, in, 0, out, rq);
}

/* --- balance --- */

enum { BALANCE_FIRST_US = 5 * 1000 * 1000 }; /* Kafka's: brokers that start together are all there by then */

struct balance {
    struct event ev;
    struct arena arena;
    struct changes changes;
};

/* How many partitions prefer the broker, and how many of these another one leads. */
struct share {
    UT_hash_handle hh;
    int32_t broker_id;
    size_t preferred, elsewhere;
};

static bool counts(const struct topic *t, int32_t partition)
{
    const struct controller_partition *p = &t->partitions[partition];
    return !t->deleting && p->replicas && p->state_version >= 0;
}

static struct share *share_get(struct share **shares, struct arena *a, int32_t broker_id)
{
    struct share *sh;
    HASH_FIND(hh, *shares, &broker_id, sizeof broker_id, sh);
    if (sh) return sh;
    sh = arena_alloc(a, sizeof *sh);
    sh->broker_id = broker_id;
    HASH_ADD(hh, *shares, broker_id, sizeof sh->broker_id, sh);
    return sh;
}

static struct share *count_shares(const struct controller *c, struct arena *a)
{
    struct share *shares = NULL;
    for (const struct topic *t = c->topics; t; t = t->by_name.next) {
        for (int32_t i = 0; i < t->partition_count; i++) {
            if (!counts(t, i)) continue;
            struct share *sh = share_get(&shares, a, t->partitions[i].replicas[0]);
            sh->preferred++;
            sh->elsewhere += t->partitions[i].leader != sh->broker_id;
        }
    }
    return shares;
}

static void move_preferred(struct controller *c, struct balance *b)
{
    struct share *shares = count_shares(c, &b->arena);
    for (struct topic *t = c->topics; t; t = t->by_name.next) {
        for (int32_t i = 0; i < t->partition_count; i++) {
            if (!counts(t, i) || t->partitions[i].leader == t->partitions[i].replicas[0]) continue;
            const struct share *sh = share_get(&shares, &b->arena, t->partitions[i].replicas[0]);
            if (sh->elsewhere * 100 > sh->preferred * (size_t)MAX(c->opt.imbalance_percent, 0))
                elect_preferred(&b->changes, t, i, "balance");
        }
    }
    HASH_CLEAR(hh, shares);
}

static void balance_end(struct balance *b)
{
    changes_fini(&b->changes);
    arena_fini(&b->arena);
    mem_free(b);
}

static void balance_later(struct controller *c, int64_t wait_us)
{
    if (c->opt.leader_rebalance && !c->stopping)
        loop_timer_set(c->opt.loop, &c->balance, loop_now_us(c->opt.loop) + wait_us);
}

static enum step balance_run(struct controller *c, struct event *ev)
{
    struct balance *b = CONTAINER_OF(ev, struct balance, ev);
    if (ev->stage++ == 0) {
        move_preferred(c, b);
        changes_write(&b->changes);
        if (ev->pending) return STEP_WAIT;
    }
    if (b->changes.count) {
        struct sending *s = sending_new(c);
        changes_tell(&b->changes, s);
        sending_send(s, NULL, NULL);
    }
    balance_end(b);
    balance_later(c, MAX(c->opt.imbalance_check_ms, 1) * 1000);
    return STEP_DONE;
}

static void balance_drop(struct controller *c, struct event *ev)
{
    (void)c;
    balance_end(CONTAINER_OF(ev, struct balance, ev));
}

void balance_fire(struct timer *t)
{
    controller_balance(CONTAINER_OF(t, struct controller, balance));
}

void controller_balance(struct controller *c)
{
    ASSERT_OWNER(c->opt.loop);
    struct balance *b = mem_zalloc(1, sizeof *b);
    b->ev = (struct event){.run = balance_run, .drop = balance_drop};
    arena_init(&b->arena, SIZE_MAX);
    changes_init(&b->changes, c, &b->ev, &b->arena);
    controller_queue(c, &b->ev);
}

void balance_start(struct controller *c)
{
    balance_later(c, BALANCE_FIRST_US);
}

void balance_stop(struct controller *c)
{
    loop_timer_cancel(c->opt.loop, &c->balance);
}
