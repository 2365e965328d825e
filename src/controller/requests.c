/* requests.c: what all requests share that come as they are on the wire: the way to the controller's loop and back.
 *
 * The answer is filled in by the event, in the arena of the request.  Out of office, before the event or in its middle,
 * the whole request is refused with NOT_CONTROLLER: what was written by then is no secret, the caller asks the next
 * controller and finds it. */
#include "base/mem.h"
#include "controller/controller_internal.h"

static void answer_run(struct loop_msg *msg)
{
    struct wire_op *wo = CONTAINER_OF(msg, struct wire_op, msg);
    struct controller_request rq = wo->rq;
    mem_free(wo);
    rq.done(rq.arg);
}

enum step wire_op_over(struct wire_op *wo)
{
    if (wo->sending) sending_drop(wo->sending);
    elections_fini(&wo->elections);
    changes_fini(&wo->changes);
    arena_fini(&wo->arena);
    wo->c->queued_ops--;
    wo->msg.run = answer_run;
    loop_post(wo->rq.loop, &wo->msg);
    return STEP_DONE;
}

static enum step run(struct controller *c, struct event *ev)
{
    (void)c;
    struct wire_op *wo = CONTAINER_OF(ev, struct wire_op, ev);
    return wo->api->run(wo);
}

static void drop(struct controller *c, struct event *ev)
{
    (void)c;
    struct wire_op *wo = CONTAINER_OF(ev, struct wire_op, ev);
    wo->api->refuse(wo->out, KERR_NOT_CONTROLLER);
    wire_op_over(wo);
}

static void arrive(struct loop_msg *msg)
{
    struct wire_op *wo = CONTAINER_OF(msg, struct wire_op, msg);
    if (wo->c->queued_ops++ < CONTROLLER_OPS_MAX) {
        controller_queue(wo->c, &wo->ev);
        return;
    }
    wo->api->refuse(wo->out, KERR_THROTTLING_QUOTA_EXCEEDED);
    wire_op_over(wo);
}

void wire_op_post(struct controller *c, const struct wire_api *api, const void *in, int16_t version, void *out,
                  struct controller_request rq)
{
    struct wire_op *wo = mem_zalloc(1, sizeof *wo);
    *wo = (struct wire_op){.ev = {.run = run, .drop = drop},
                           .c = c,
                           .api = api,
                           .rq = rq,
                           .in = in,
                           .out = out,
                           .version = version,
                           .msg = {.run = arrive}};
    arena_init(&wo->arena, SIZE_MAX);
    elections_init(&wo->elections, c, &wo->ev, &wo->arena);
    changes_init(&wo->changes, c, &wo->ev, &wo->arena);
    loop_post(c->opt.loop, &wo->msg);
}
