/* shutdown.c: a broker that is about to stop asks to be relieved (ControlledShutdown).
 *
 * What it leads goes to another replica in sync, in assignment order: all of them have every record, since it still
 * lives and leads until it is told.  What it follows goes on without it.  It is given no leader any more until it comes
 * back as another process.  A partition that only it holds stays with it to the end. */
#define LOG_MODULE "controller"

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

enum stage { SHUTDOWN_MOVE, SHUTDOWN_OVER };

/* Takes the broker out of the in-sync set, and out of the lead if another one can have it; false: nothing to change. */
static bool relieve(struct wire_op *wo, struct controller_partition *p, int32_t id)
{
    struct controller *c = wo->c;
    int32_t leader = p->leader;
    if (leader == id) leader = replica_choose(c, p, p->replicas, p->replica_count);
    bool leaves = ids_have(p->isr, p->isr_count, id) && p->isr_count > 1;
    if (p->leader == id ? leader < 0 : !leaves) return false;
    int32_t kept = 0, *isr = arena_array(&wo->arena, int32_t, (size_t)p->isr_count);
    for (int32_t i = 0; i < p->isr_count; i++)
        if (p->isr[i] != id) isr[kept++] = p->isr[i];
    partition_set_isr(p, isr, kept);
    p->leader = leader;
    p->leader_epoch++;
    p->controller_epoch = c->epoch;
    return true;
}

static void move_all(struct wire_op *wo, int32_t id)
{
    for (struct topic *t = wo->c->topics; t; t = t->by_name.next) {
        for (int32_t i = 0; i < t->partition_count && !t->deleting; i++) {
            struct controller_partition *p = &t->partitions[i];
            struct change ch = {t, i, false, p->leader, "controlled_shutdown"};
            if (p->state_version < 0 || p->replica_count < 2 || !ids_have(p->replicas, p->replica_count, id)) continue;
            if (relieve(wo, p, id)) changes_add(&wo->changes, ch);
        }
    }
}

/* What it followed is stopped.  What it led it is told to follow, and does until it is gone. */
static void tell(struct wire_op *wo, int32_t id)
{
    struct sending *s = sending_new(wo->c);
    size_t next = 0; /* of the changes, which are in the order of this walk */
    changes_tell(&wo->changes, s);
    for (struct topic *t = wo->c->topics; t; t = t->by_name.next) {
        for (int32_t i = 0; i < t->partition_count && !t->deleting; i++) {
            const struct controller_partition *p = &t->partitions[i];
            const struct change *ch = next < wo->changes.count ? &wo->changes.list[next] : NULL;
            bool changed = ch && ch->topic == t && ch->partition == i;
            next += changed;
            if (p->replica_count < 2 || p->state_version < 0 || !ids_have(p->replicas, p->replica_count, id)) continue;
            if ((changed ? ch->old_leader : p->leader) != id) sending_add_stop(s, t, i, id, false);
        }
    }
    sending_send(s, NULL, NULL);
}

/* Whose other replicas may catch up: the broker asks again after a while.  Not those that nobody else holds. */
static void name_remaining(struct wire_op *wo, int32_t id)
{
    struct controlled_shutdown_response *out = wo->out;
    size_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            out->remaining_partitions =
                arena_array(wo->rq.a, struct controlled_shutdown_response_remaining_partition, count);
        for (const struct topic *t = wo->c->topics; t; t = t->by_name.next) {
            struct str name = STR_NULL;
            for (int32_t i = 0; i < t->partition_count && !t->deleting; i++) {
                if (t->partitions[i].leader != id || t->partitions[i].replica_count < 2) continue;
                count += !pass;
                if (!pass) continue;
                if (str_is_null(name)) name = arena_str(wo->rq.a, t->name);
                out->remaining_partitions[out->remaining_partitions_count++] =
                    (struct controlled_shutdown_response_remaining_partition){name, i};
            }
        }
    }
}

static enum kerr check(const struct controller *c, const struct controlled_shutdown_request *in)
{
    enum { EPOCH_UNKNOWN = -1 }; /* before version 2 */
    const struct broker *b = broker_find(c, in->broker_id);
    if (!b) return KERR_BROKER_NOT_AVAILABLE;
    return in->broker_epoch != EPOCH_UNKNOWN && in->broker_epoch < b->epoch ? KERR_STALE_BROKER_EPOCH : KERR_NONE;
}

static enum step shutdown_run(struct wire_op *wo)
{
    const struct controlled_shutdown_request *in = wo->in;
    struct controlled_shutdown_response *out = wo->out;
    switch ((enum stage)wo->ev.stage) {
    case SHUTDOWN_MOVE:
        wo->ev.stage = SHUTDOWN_OVER;
        out->error_code = (int16_t)check(wo->c, in);
        if (out->error_code) return wire_op_over(wo);
        LOG_INFO("broker_shutting_down", "broker=%d", in->broker_id);
        broker_find(wo->c, in->broker_id)->shutting_down = true;
        move_all(wo, in->broker_id);
        changes_write(&wo->changes);
        if (wo->ev.pending) return STEP_WAIT;
        FALLTHROUGH;
    case SHUTDOWN_OVER: break;
    }
    tell(wo, in->broker_id);
    name_remaining(wo, in->broker_id);
    return wire_op_over(wo);
}

static void refuse(void *out, enum kerr kerr)
{
    *(struct controlled_shutdown_response *)out = controlled_shutdown_response_default;
    ((struct controlled_shutdown_response *)out)->error_code = (int16_t)kerr;
}

void controller_controlled_shutdown(struct controller *c, const struct controlled_shutdown_request *in,
                                    struct controlled_shutdown_response *out, struct controller_request rq)
{
    static const struct wire_api api = {shutdown_run, refuse};
    wire_op_post(c, &api, in, 0, out, rq);
}
