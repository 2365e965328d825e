/* ListGroups (key 16): the groups whose coordinator is this broker. */
#include "broker/api/handlers.h"
#include "broker/groups.h"

enum step list_groups_handle(struct request *rq)
{
    return groups_list_all(rq);
}
