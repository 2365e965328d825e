/* DescribeGroups (key 15): states, members and assignments of groups, and their last rebalances if asked for. */
#include "broker/api/common.h"
#include "broker/api/handlers.h"
#include "broker/groups.h"
#include "wire/gen/describe_groups.h"

typedef struct describe_groups_response_described_group described_group;

static void ask(struct request *rq, struct groups_asking *as)
{
    const struct describe_groups_request *in = rq->in;
    struct describe_groups_response *out = rq->out;
    groups_asking_begin(as, rq, (size_t)in->groups_count);
    out->groups = arena_array(&rq->arena, described_group, (size_t)in->groups_count);
    out->groups_count = in->groups_count;
    for (int32_t i = 0; i < in->groups_count; i++) {
        out->groups[i] = describe_groups_response_described_group_default;
        out->groups[i].group_id = in->groups[i];
        struct groups_ask *a = groups_ask(as, GROUP_DESCRIBE, in->groups[i], &in->groups[i], &out->groups[i]);
        a->call.want_history = in->include_rebalances;
        groups_ask_send(a);
    }
}

enum step describe_groups_handle(struct request *rq)
{
    const struct describe_groups_request *in = rq->in;
    struct describe_groups_response *out = rq->out;
    if (groups_too_many(rq, in->groups_count)) return DONE_CLOSE;
    struct groups_asking *as = REQUEST_OP(rq, struct groups_asking);
    if (!as->rq) ask(rq, as);
    if (groups_asking_wait(as) == WAIT) return WAIT;
    for (int32_t i = 0; i < out->groups_count && in->include_authorized_operations; i++)
        if (!out->groups[i].error_code) out->groups[i].authorized_operations = ACL_ALL_OF_GROUP;
    return DONE;
}
