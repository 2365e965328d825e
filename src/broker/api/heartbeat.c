/* Heartbeat (key 12): a member is alive, and learns whether it has to join again. */
#include "broker/api/handlers.h"
#include "broker/groups.h"
#include "wire/gen/heartbeat.h"

enum step heartbeat_handle(struct request *rq)
{
    const struct heartbeat_request *in = rq->in;
    return groups_ask_one(rq, GROUP_HEARTBEAT, in->group_id, false);
}
