/* by_controller.c: see by_controller.h. */
#include "broker/api/by_controller.h"

static void on_answered(void *arg)
{
    struct by_controller *bc = arg;
    bc->over = true;
    request_wake(bc->rq); /* the answer may come while the handler runs */
}

struct controller_request by_controller(struct request *rq, struct by_controller *bc)
{
    *bc = (struct by_controller){.rq = rq, .sent = true};
    return (struct controller_request){.a = &rq->arena, .loop = rq->loop, .done = on_answered, .arg = bc};
}
