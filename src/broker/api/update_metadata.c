/* UpdateMetadata (key 6): the controller tells of brokers and leaders; see control.h. */
#include "broker/api/at_home.h"
#include "broker/api/handlers.h"
#include "broker/broker.h"
#include "broker/control.h"
#include "broker/control_versions.h"

static void on_reply(void *arg, enum err e, const struct update_metadata_response *res)
{
    struct at_home *h = arg;
    ASSERT(!e);
    *(struct update_metadata_response *)h->rq->out = *res;
    at_home_answered(h);
}

static void ask(struct at_home *h)
{
    struct request *rq = h->rq;
    control_update_metadata(rq->broker->control, update_metadata_modern(rq->in, rq->version, &rq->arena), on_reply, h);
}

enum step update_metadata_handle(struct request *rq)
{
    return at_home(rq, REQUEST_OP(rq, struct at_home), ask);
}
