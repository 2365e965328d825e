/* StopReplica (key 5): the controller takes replicas away; see control.h. */
#include "broker/api/at_home.h"
#include "broker/api/handlers.h"
#include "broker/broker.h"
#include "broker/control.h"
#include "broker/control_versions.h"

static void on_reply(void *arg, enum err e, const struct stop_replica_response *res)
{
    struct at_home *h = arg;
    ASSERT(!e);
    stop_replica_answer(h->rq->out, res, &h->rq->arena);
    at_home_answered(h);
}

static void ask(struct at_home *h)
{
    struct request *rq = h->rq;
    control_stop_replica(rq->broker->control, stop_replica_modern(rq->in, rq->version, &rq->arena), on_reply, h);
}

enum step stop_replica_handle(struct request *rq)
{
    return at_home(rq, REQUEST_OP(rq, struct at_home), ask);
}
