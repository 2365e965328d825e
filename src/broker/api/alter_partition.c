/* AlterPartition (key 56, KIP-497): a leader's new in-sync sets.  The controller of this broker answers; where it is
 * not in office, NOT_CONTROLLER. */
#include "broker/api/by_controller.h"
#include "broker/api/handlers.h"

enum step alter_partition_handle(struct request *rq)
{
    struct by_controller *bc = REQUEST_OP(rq, struct by_controller);
    if (!bc->sent)
        controller_alter_partition(rq->broker->controller, rq->in, rq->version, rq->out, by_controller(rq, bc));
    return bc->over ? DONE : WAIT;
}
