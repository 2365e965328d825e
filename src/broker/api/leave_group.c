/* LeaveGroup (key 13): members leave; before version 3 one, later several. */
#include "broker/api/handlers.h"
#include "broker/groups.h"
#include "wire/gen/leave_group.h"

enum { SEVERAL_SINCE = 3 }; /* KIP-345 */

/* The request in the form of the later versions. */
static const struct leave_group_request *as_several(struct request *rq)
{
    const struct leave_group_request *in = rq->in;
    if (rq->version >= SEVERAL_SINCE) return in;
    struct leave_group_request *q = arena_alloc(&rq->arena, sizeof *q);
    *q = *in;
    q->members = arena_array(&rq->arena, struct leave_group_request_member_identity, 1);
    q->members[0] = leave_group_request_member_identity_default;
    q->members[0].member_id = in->member_id;
    q->members_count = 1;
    return q;
}

enum step leave_group_handle(struct request *rq)
{
    struct groups_asking *as = REQUEST_OP(rq, struct groups_asking);
    const struct leave_group_request *in = rq->in;
    if (!as->rq) {
        groups_asking_begin(as, rq, 1);
        groups_ask_send(groups_ask(as, GROUP_LEAVE, in->group_id, as_several(rq), rq->out));
    }
    enum step step = groups_asking_wait(as);
    /* The earlier versions have but one place for an error, which the shard has filled in. */
    if (step == DONE && rq->version < SEVERAL_SINCE) ((struct leave_group_response *)rq->out)->members_count = 0;
    return step;
}
