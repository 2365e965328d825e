/* SyncGroup (key 14): the leader hands in what it has assigned, and everybody is given his part. */
#include "broker/api/handlers.h"
#include "broker/groups.h"
#include "wire/gen/sync_group.h"

enum { NAMES_SINCE = 5 }; /* KIP-559: protocol type and name must be there */

enum step sync_group_handle(struct request *rq)
{
    const struct sync_group_request *in = rq->in;
    struct sync_group_response *out = rq->out;
    if (rq->version >= NAMES_SINCE && (str_is_null(in->protocol_type) || str_is_null(in->protocol_name))) {
        out->error_code = KERR_INCONSISTENT_GROUP_PROTOCOL;
        return DONE;
    }
    return groups_ask_one(rq, GROUP_SYNC, in->group_id, true);
}
