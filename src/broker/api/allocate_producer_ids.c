/* AllocateProducerIds (key 67, KIP-730): a block of producer ids for a broker to hand out.  The controller of this
 * broker gives it; where it is not in office, NOT_CONTROLLER. */
#include "broker/api/by_controller.h"
#include "broker/api/handlers.h"
#include "wire/gen/allocate_producer_ids.h"

static void on_block(void *arg, const struct controller_results *r)
{
    struct by_controller *bc = arg;
    struct allocate_producer_ids_response *out = bc->rq->out;
    out->error_code = (int16_t)r->results[0].kerr;
    if (!out->error_code) {
        out->producer_id_start = r->producer_id_start;
        out->producer_id_len = r->producer_id_count;
    }
    bc->over = true;
    request_wake(bc->rq);
}

enum step allocate_producer_ids_handle(struct request *rq)
{
    const struct allocate_producer_ids_request *in = rq->in;
    struct by_controller *bc = REQUEST_OP(rq, struct by_controller);
    if (!bc->sent) {
        *bc = (struct by_controller){.rq = rq, .sent = true};
        controller_allocate_producer_ids(rq->broker->controller, in->broker_id, in->broker_epoch,
                                         (struct controller_to){.loop = rq->loop, .done = on_block, .arg = bc});
    }
    return bc->over ? DONE : WAIT;
}
