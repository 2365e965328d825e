/* alter_partition.c: leaders that change their in-sync sets (KIP-497).
 *
 * Only the leader of the current epoch is heard, and only when it knows the partition's current epoch: so no change is
 * built on what is no longer true.  A follower is taken into a set only when it is alive as far as the controller
 * knows, and, since version 3, the very process that the leader has seen (KIP-903): one that came back with less than
 * it had is another one.  The others are told by UpdateMetadata; the leader learns from the answer. */
#define LOG_MODULE "controller"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

enum stage { ALTER_CHECK, ALTER_OVER };

typedef struct alter_partition_request_partition_data asked_partition;
typedef struct alter_partition_response_partition_data told_partition;

/* The in-sync set that is asked for, whichever form the version has. */
static int32_t *asked_isr(struct wire_op *wo, const asked_partition *ap, int32_t *count)
{
    if (wo->version < 3) {
        *count = ap->new_isr_count;
        return ap->new_isr;
    }
    int32_t *isr = arena_array(&wo->arena, int32_t, (size_t)ap->new_isr_with_epochs_count);
    for (int32_t i = 0; i < ap->new_isr_with_epochs_count; i++) isr[i] = ap->new_isr_with_epochs[i].broker_id;
    *count = ap->new_isr_with_epochs_count;
    return isr;
}

/* `set` has each member once; what is asked for may be anything. */
static bool same_members(const int32_t *asked, int32_t asked_count, const int32_t *set, int32_t set_count)
{
    for (int32_t i = 0; i < set_count && asked_count == set_count; i++)
        if (!ids_have(asked, asked_count, set[i])) return false;
    return asked_count == set_count;
}

/* Replicas, each once, the leader among them. */
static bool isr_is_sound(const struct controller_partition *p, const int32_t *isr, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (!ids_have(p->replicas, p->replica_count, isr[i]) || ids_have(isr, i, isr[i])) return false;
    return ids_have(isr, count, p->leader);
}

static bool isr_is_eligible(struct wire_op *wo, const struct controller_partition *p, const asked_partition *ap,
                            const int32_t *isr, int32_t count)
{
    enum { EPOCH_UNKNOWN = -1 };
    for (int32_t i = 0; i < count; i++) {
        if (!replica_is_electable(wo->c, p, isr[i])) return false;
        int64_t epoch = wo->version < 3 ? EPOCH_UNKNOWN : ap->new_isr_with_epochs[i].broker_epoch;
        if (epoch != EPOCH_UNKNOWN && epoch != broker_find(wo->c, isr[i])->epoch) return false;
    }
    return true;
}

/* In the order of Kafka's checks.  KERR_NONE and *same: it is so already, which a request that was sent twice is told
 * whatever partition epoch it names. */
static enum kerr check(struct wire_op *wo, const struct controller_partition *p, const asked_partition *ap,
                       const int32_t *isr, int32_t count, bool *same)
{
    enum { RECOVERED, RECOVERING };
    const struct alter_partition_request *in = wo->in;
    /* Whoever knows more than we do has heard of it from another controller. */
    if (ap->partition_epoch > p->state_version || ap->leader_epoch > p->leader_epoch) return KERR_NOT_CONTROLLER;
    if (ap->leader_epoch < p->leader_epoch) return KERR_FENCED_LEADER_EPOCH;
    *same = in->broker_id == p->leader && ap->leader_recovery_state == p->leader_recovery_state &&
            same_members(isr, count, p->isr, p->isr_count);
    if (*same) return KERR_NONE;
    if (ap->partition_epoch < p->state_version) return KERR_INVALID_UPDATE_VERSION;
    if (in->broker_id != p->leader || !isr_is_sound(p, isr, count)) return KERR_INVALID_REQUEST;
    /* What else stood in the store no controller of Kafka's could read. */
    if (ap->leader_recovery_state != RECOVERED && ap->leader_recovery_state != RECOVERING) return KERR_INVALID_REQUEST;
    if (ap->leader_recovery_state == RECOVERING && (count > 1 || p->leader_recovery_state == RECOVERED))
        return KERR_INVALID_REQUEST;
    if (!isr_is_eligible(wo, p, ap, isr, count))
        return wo->version > 1 ? KERR_INELIGIBLE_REPLICA : KERR_OPERATION_NOT_ATTEMPTED;
    return KERR_NONE;
}

static struct controller_partition *find(struct topic *t, int32_t partition)
{
    if (!t || t->deleting || partition < 0 || partition >= t->partition_count) return NULL;
    struct controller_partition *p = &t->partitions[partition];
    return p->replicas && p->state_version >= 0 ? p : NULL;
}

static void alter_one(struct wire_op *wo, struct topic *t, const asked_partition *ap, told_partition *tp)
{
    struct controller_partition *p = find(t, ap->partition_index);
    int32_t count;
    int32_t *isr = asked_isr(wo, ap, &count);
    bool same = false;
    if (!p) {
        tp->error_code = KERR_UNKNOWN_TOPIC_OR_PARTITION;
        return;
    }
    tp->error_code = (int16_t)check(wo, p, ap, isr, count, &same);
    if (!tp->error_code && !same && changes_have(&wo->changes, t, ap->partition_index))
        tp->error_code = KERR_INVALID_REQUEST; /* named twice */
    if (tp->error_code)
        LOG_LIMITED(LOG_LEVEL_INFO, "in_sync_set_refused",
                    "topic=%.*s partition=%d broker=%d code=%s leader_epoch=%d/%d partition_epoch=%d/%d",
                    STR_ARG(t->name), ap->partition_index, ((const struct alter_partition_request *)wo->in)->broker_id,
                    kerr_name(tp->error_code), ap->leader_epoch, p->leader_epoch, ap->partition_epoch,
                    p->state_version);
    if (tp->error_code || same) return;
    partition_set_isr(p, isr, count);
    p->leader_recovery_state = ap->leader_recovery_state;
    p->controller_epoch = wo->c->epoch;
    changes_add(&wo->changes, (struct change){t, ap->partition_index, false, p->leader, "in_sync_set"});
}

static void alter_topic(struct wire_op *wo, const struct alter_partition_request_topic_data *at,
                        struct alter_partition_response_topic_data *rt)
{
    struct topic *t = wo->version > 1 ? topic_find_id(wo->c, at->topic_id) : topic_find(wo->c, at->topic_name);
    *rt = alter_partition_response_topic_data_default;
    rt->topic_name = at->topic_name;
    rt->topic_id = at->topic_id;
    rt->partitions = arena_array(wo->rq.a, told_partition, (size_t)at->partitions_count);
    rt->partitions_count = at->partitions_count;
    for (int32_t i = 0; i < at->partitions_count; i++) {
        rt->partitions[i] = alter_partition_response_partition_data_default;
        rt->partitions[i].partition_index = at->partitions[i].partition_index;
        if (!t && wo->version > 1)
            rt->partitions[i].error_code = KERR_UNKNOWN_TOPIC_ID;
        else
            alter_one(wo, t, &at->partitions[i], &rt->partitions[i]);
    }
}

/* What the partitions are now that all is written. */
static void fill_states(struct wire_op *wo)
{
    const struct alter_partition_request *in = wo->in;
    struct alter_partition_response *out = wo->out;
    for (int32_t i = 0; i < out->topics_count; i++) {
        struct topic *t = wo->version > 1 ? topic_find_id(wo->c, in->topics[i].topic_id)
                                          : topic_find(wo->c, in->topics[i].topic_name);
        for (int32_t k = 0; k < out->topics[i].partitions_count; k++) {
            told_partition *tp = &out->topics[i].partitions[k];
            const struct controller_partition *p = tp->error_code ? NULL : find(t, tp->partition_index);
            if (!p) continue;
            tp->leader_id = p->leader;
            tp->leader_epoch = p->leader_epoch;
            tp->isr = arena_array(wo->rq.a, int32_t, (size_t)p->isr_count);
            memcpy(tp->isr, p->isr, (size_t)p->isr_count * sizeof *p->isr);
            tp->isr_count = p->isr_count;
            tp->leader_recovery_state = p->leader_recovery_state;
            tp->partition_epoch = p->state_version;
        }
    }
}

static enum step alter_run(struct wire_op *wo)
{
    const struct alter_partition_request *in = wo->in;
    struct alter_partition_response *out = wo->out;
    const struct broker *b = broker_find(wo->c, in->broker_id);
    switch ((enum stage)wo->ev.stage) {
    case ALTER_CHECK:
        wo->ev.stage = ALTER_OVER;
        if (!b || b->epoch != in->broker_epoch) {
            out->error_code = KERR_STALE_BROKER_EPOCH;
            return wire_op_over(wo);
        }
        out->topics = arena_array(wo->rq.a, struct alter_partition_response_topic_data, (size_t)in->topics_count);
        out->topics_count = in->topics_count;
        for (int32_t i = 0; i < in->topics_count; i++) alter_topic(wo, &in->topics[i], &out->topics[i]);
        changes_write(&wo->changes);
        if (wo->ev.pending) return STEP_WAIT;
        FALLTHROUGH;
    case ALTER_OVER: break;
    }
    fill_states(wo);
    changes_tell_in_sync_sets(&wo->changes);
    return wire_op_over(wo);
}

static void refuse(void *out, enum kerr kerr)
{
    *(struct alter_partition_response *)out = alter_partition_response_default;
    ((struct alter_partition_response *)out)->error_code = (int16_t)kerr;
}

void controller_alter_partition(struct controller *c, const struct alter_partition_request *in, int16_t version,
                                struct alter_partition_response *out, struct controller_request rq)
{
    static const struct wire_api api = {alter_run, refuse};
    wire_op_post(c, &api, in, version, out, rq);
}
