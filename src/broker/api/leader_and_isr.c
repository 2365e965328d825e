/* LeaderAndIsr (key 4): the controller gives roles; see control.h. */
#include "broker/api/at_home.h"
#include "broker/api/handlers.h"
#include "broker/broker.h"
#include "broker/control.h"
#include "broker/control_versions.h"

static void on_reply(void *arg, enum err e, const struct leader_and_isr_response *res)
{
    struct at_home *h = arg;
    ASSERT(!e);
    leader_and_isr_answer(h->rq->out, res, h->rq->version, &h->rq->arena);
    at_home_answered(h);
}

static void ask(struct at_home *h)
{
    struct request *rq = h->rq;
    control_leader_and_isr(rq->broker->control, leader_and_isr_modern(rq->in, rq->version, &rq->arena), on_reply, h);
}

enum step leader_and_isr_handle(struct request *rq)
{
    return at_home(rq, REQUEST_OP(rq, struct at_home), ask);
}
