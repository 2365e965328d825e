/* OffsetForLeaderEpoch (key 23, KIP-101, KIP-320): where an epoch ends in the leader's log.  Followers cut their logs
 * by it, consumers find out with it whether records they have read are gone. */
#include "broker/api/handlers.h"
#include "broker/api/locate.h"
#include "wire/gen/offset_for_leader_epoch.h"

typedef struct offset_for_leader_epoch_request_offset_for_leader_topic asked_topic;
typedef struct offset_for_leader_epoch_response_epoch_end_offset answer_partition;
typedef struct offset_for_leader_epoch_response_offset_for_leader_topic_result answer_topic;

static void fill_topic(struct request *rq, answer_topic *out, const asked_topic *asked)
{
    *out = offset_for_leader_epoch_response_offset_for_leader_topic_result_default;
    out->topic = asked->topic;
    out->partitions = arena_array(&rq->arena, answer_partition, (size_t)asked->partitions_count);
    out->partitions_count = asked->partitions_count;
    for (int32_t i = 0; i < asked->partitions_count; i++) {
        const struct offset_for_leader_epoch_request_offset_for_leader_partition *a = &asked->partitions[i];
        answer_partition *p = &out->partitions[i];
        *p = offset_for_leader_epoch_response_epoch_end_offset_default;
        p->partition = a->partition;
        struct located at;
        enum kerr kerr = locate_leader(rq->broker, asked->topic, UUID_ZERO, a->partition, a->current_leader_epoch, &at);
        p->error_code = (int16_t)kerr;
        if (!kerr) plog_epoch_end(at.partition->pl, a->leader_epoch, &p->leader_epoch, &p->end_offset);
    }
}

enum step offset_for_leader_epoch_handle(struct request *rq)
{
    const struct offset_for_leader_epoch_request *in = rq->in;
    struct offset_for_leader_epoch_response *out = rq->out;
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)in->topics_count);
    out->topics_count = in->topics_count;
    for (int32_t i = 0; i < in->topics_count; i++) fill_topic(rq, &out->topics[i], &in->topics[i]);
    return DONE;
}
