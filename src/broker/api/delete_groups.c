/* DeleteGroups (key 42, KIP-229): groups without members go, with their offsets.  One that is named twice is answered
 * once, as in Kafka. */
#include "broker/api/handlers.h"
#include "broker/api/named.h"
#include "broker/groups.h"
#include "wire/gen/delete_groups.h"

static void ask(struct request *rq, struct groups_asking *as)
{
    const struct delete_groups_request *in = rq->in;
    struct delete_groups_response *out = rq->out;
    size_t count = (size_t)in->groups_names_count;
    struct named *named = arena_array(&rq->arena, struct named, count);
    for (size_t i = 0; i < count; i++) named[i].topic = in->groups_names[i];
    named_find_repeats(named, count, &rq->arena);
    groups_asking_begin(as, rq, count);
    out->results = arena_array(&rq->arena, struct delete_groups_response_deletable_group_result, count);
    for (size_t i = 0; i < count; i++) {
        if (named[i].again) continue;
        struct delete_groups_response_deletable_group_result *one = &out->results[out->results_count++];
        *one = delete_groups_response_deletable_group_result_default;
        one->group_id = in->groups_names[i];
        groups_ask_send(groups_ask(as, GROUP_DELETE, in->groups_names[i], &in->groups_names[i], one));
    }
}

enum step delete_groups_handle(struct request *rq)
{
    const struct delete_groups_request *in = rq->in;
    if (groups_too_many(rq, in->groups_names_count)) return DONE_CLOSE;
    struct groups_asking *as = REQUEST_OP(rq, struct groups_asking);
    if (!as->rq) ask(rq, as);
    return groups_asking_wait(as);
}
