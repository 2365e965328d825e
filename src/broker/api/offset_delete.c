/* OffsetDelete (key 47, KIP-496): committed offsets of a group go, of topics that nobody in it is subscribed to. */
#include "broker/api/handlers.h"
#include "broker/broker.h"
#include "broker/groups.h"
#include "wire/gen/offset_delete.h"

typedef struct offset_delete_response_offset_delete_response_topic answer_topic;
typedef struct offset_delete_response_offset_delete_response_partition answer_partition;

/* The request's topics and partitions; those that do not exist with their error. */
static void prepare(struct request *rq)
{
    const struct offset_delete_request *in = rq->in;
    struct offset_delete_response *out = rq->out;
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)in->topics_count);
    out->topics_count = in->topics_count;
    for (int32_t i = 0; i < in->topics_count; i++) {
        answer_topic *t = &out->topics[i];
        *t = offset_delete_response_offset_delete_response_topic_default;
        t->name = in->topics[i].name;
        t->partitions_count = in->topics[i].partitions_count;
        t->partitions = arena_array(&rq->arena, answer_partition, (size_t)t->partitions_count);
        const struct topic_view *view = metadata_topic(rq->broker->metadata, t->name);
        for (int32_t k = 0; k < t->partitions_count; k++) {
            t->partitions[k] = offset_delete_response_offset_delete_response_partition_default;
            t->partitions[k].partition_index = in->topics[i].partitions[k].partition_index;
            if (!topic_has_partition(view, t->partitions[k].partition_index))
                t->partitions[k].error_code = KERR_UNKNOWN_TOPIC_OR_PARTITION;
        }
    }
}

enum step offset_delete_handle(struct request *rq)
{
    const struct offset_delete_request *in = rq->in;
    if (!rq->op) prepare(rq);
    return groups_ask_one(rq, GROUP_DELETE_OFFSET, in->group_id, false);
}
