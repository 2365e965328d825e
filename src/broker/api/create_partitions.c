/* CreatePartitions (key 37, KIP-195): topics grow. */
#include "broker/api/handlers.h"
#include "broker/api/named.h"
#include "broker/broker.h"
#include "controller/controller.h"
#include "wire/gen/create_partitions.h"

typedef struct create_partitions_request_create_partitions_topic topic_in;
typedef struct create_partitions_response_create_partitions_topic_result result_out;

struct create_partitions {
    bool sent, done;
    result_out **answers; /* of those that went to the controller */
    size_t count;
};

static struct controller_more_partitions more_partitions(struct request *rq, const topic_in *in)
{
    size_t count = (size_t)MAX(in->assignments_count, 0);
    struct controller_assignment *list = arena_array(&rq->arena, struct controller_assignment, count);
    for (size_t i = 0; i < count; i++)
        list[i] = (struct controller_assignment){.brokers = in->assignments[i].broker_ids,
                                                 .broker_count = (size_t)MAX(in->assignments[i].broker_ids_count, 0)};
    return (struct controller_more_partitions){
        .name = in->name,
        .partition_count = in->count,
        .assignments = list,
        .assignment_count = count,
        .has_assignments = in->assignments_count >= 0,
    };
}

/* The controller's answer; the request's loop. */
static void on_grown(void *arg, const struct controller_results *r)
{
    struct request *rq = arg;
    struct create_partitions *cp = rq->op;
    ASSERT(r->count == cp->count);
    for (size_t i = 0; i < r->count; i++) {
        cp->answers[i]->error_code = (int16_t)r->results[i].kerr;
        cp->answers[i]->error_message = arena_str(&rq->arena, r->results[i].message);
    }
    cp->done = true;
    request_wake(rq);
}

static void grow_all(struct request *rq, struct create_partitions *cp)
{
    const struct create_partitions_request *in = rq->in;
    struct create_partitions_response *out = rq->out;
    size_t count = (size_t)in->topics_count;
    struct named *names = arena_array(&rq->arena, struct named, count);
    for (size_t i = 0; i < count; i++) names[i].topic = in->topics[i].name;
    named_find_repeats(names, count, &rq->arena);
    struct controller_more_partitions *topics = arena_array(&rq->arena, struct controller_more_partitions, count);
    cp->answers = arena_array(&rq->arena, result_out *, count);
    out->results = arena_array(&rq->arena, result_out, count);
    for (size_t i = 0; i < count; i++) {
        if (names[i].again) continue; /* one answer a name, as in Kafka */
        result_out *to = &out->results[out->results_count++];
        *to = create_partitions_response_create_partitions_topic_result_default;
        to->name = in->topics[i].name;
        to->error_message = STR_NULL;
        if (!controller_is_active(rq->broker->controller)) {
            to->error_code = KERR_NOT_CONTROLLER;
            continue;
        }
        if (names[i].repeated) {
            to->error_code = KERR_INVALID_REQUEST;
            to->error_message = STR("Duplicate topic in request.");
            continue;
        }
        topics[cp->count] = more_partitions(rq, &in->topics[i]);
        cp->answers[cp->count++] = to;
    }
    cp->done = cp->count == 0;
    if (!cp->done)
        controller_create_partitions(rq->broker->controller, topics, cp->count, in->validate_only, in->timeout_ms,
                                     (struct controller_to){rq->loop, on_grown, rq});
}

enum step create_partitions_handle(struct request *rq)
{
    struct create_partitions *cp = REQUEST_OP(rq, struct create_partitions);
    if (!cp->sent) {
        cp->sent = true;
        grow_all(rq, cp);
    }
    return cp->done ? DONE : WAIT; /* also when cancelled: the controller answers by its own deadline */
}
