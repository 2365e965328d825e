/* SyncGroup (key 14): the leader hands in what it has assigned, and everybody is given his part. */
#include "broker/api/handlers.h"
#include "broker/groups.h"
#include "wire/gen/sync_group.h"

enum step sync_group_handle(struct request *rq)
{
    const struct sync_group_request *in = rq->in;
    return groups_ask_one(rq, GROUP_SYNC, in->group_id, true);
}
