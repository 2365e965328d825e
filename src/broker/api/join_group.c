/* JoinGroup (key 11): a member asks to be in the next generation, and waits until all others have asked, too. */
#include "broker/api/handlers.h"
#include "broker/groups.h"
#include "wire/gen/join_group.h"

enum step join_group_handle(struct request *rq)
{
    const struct join_group_request *in = rq->in;
    return groups_ask_one(rq, GROUP_JOIN, in->group_id, true);
}
