/* ControlledShutdown (key 7): a broker is about to stop; others are to lead.  The controller of this broker answers;
 * where it is not in office, NOT_CONTROLLER. */
#include "broker/api/by_controller.h"
#include "broker/api/handlers.h"

enum step controlled_shutdown_handle(struct request *rq)
{
    struct by_controller *bc = REQUEST_OP(rq, struct by_controller);
    if (!bc->sent) controller_controlled_shutdown(rq->broker->controller, rq->in, rq->out, by_controller(rq, bc));
    return bc->over ? DONE : WAIT;
}
