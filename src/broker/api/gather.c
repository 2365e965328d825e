/* gather.c: counting answers down. */
#include "broker/api/gather.h"

static void on_complete(struct loop_msg *msg)
{
    struct gather *g = CONTAINER_OF(msg, struct gather, msg);
    g->complete = true;
    request_wake(g->rq);
}

void gather_begin(struct gather *g, struct request *rq)
{
    g->rq = rq;
    g->complete = false;
    g->msg.run = on_complete;
    atomic_store(&g->pending, 1);
}

void gather_add(struct gather *g)
{
    atomic_fetch_add(&g->pending, 1);
}

bool gather_end(struct gather *g)
{
    g->complete = atomic_fetch_sub(&g->pending, 1) == 1;
    return g->complete;
}

void gather_arrived(void *gather)
{
    struct gather *g = gather;
    if (atomic_fetch_sub(&g->pending, 1) == 1) loop_post(g->rq->loop, &g->msg);
}
