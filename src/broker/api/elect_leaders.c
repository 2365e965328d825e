/* ElectLeaders (key 43, KIP-460).  The controller of this broker answers; where it is
 * not in office, NOT_CONTROLLER. */
#include "broker/api/by_controller.h"
#include "broker/api/handlers.h"

enum step elect_leaders_handle(struct request *rq)
{
    struct by_controller *bc = REQUEST_OP(rq, struct by_controller);
    if (!bc->sent) controller_elect_leaders(rq->broker->controller, rq->in, rq->out, by_controller(rq, bc));
    return bc->over ? DONE : WAIT;
}
