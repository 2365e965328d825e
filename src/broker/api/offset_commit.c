/* OffsetCommit (key 8): how far a group has come.  Version 0 keeps it in the coordination store, as in Kafka. */
#include "broker/api/handlers.h"
#include "broker/api/store_offsets.h"
#include "broker/broker.h"
#include "broker/groups.h"
#include "wire/gen/offset_commit.h"

typedef struct offset_commit_response_offset_commit_response_topic answer_topic;
typedef struct offset_commit_response_offset_commit_response_partition answer_partition;

enum { COORDINATOR_SINCE = 1, IDS_SINCE = 10 };

/* The topic, which has its name from here on also where it came with its id (KIP-848).  NULL: there is none. */
static const struct topic_view *find_topic(struct request *rq,
                                           struct offset_commit_request_offset_commit_request_topic *asked)
{
    if (rq->version < IDS_SINCE) return metadata_topic(rq->broker->metadata, asked->name);
    const struct topic_view *view = metadata_topic_by_id(rq->broker->metadata, asked->topic_id);
    asked->name = view ? arena_str(&rq->arena, view->name) : STR_EMPTY;
    return view;
}

/* The request's topics and partitions; those that do not exist with their error.  False: none exists. */
static bool prepare(struct request *rq)
{
    const struct offset_commit_request *in = rq->in;
    struct offset_commit_response *out = rq->out;
    bool any = false;
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)in->topics_count);
    out->topics_count = in->topics_count;
    for (int32_t i = 0; i < in->topics_count; i++) {
        answer_topic *t = &out->topics[i];
        *t = offset_commit_response_offset_commit_response_topic_default;
        const struct topic_view *view = find_topic(rq, &in->topics[i]);
        enum kerr unknown = !view && rq->version >= IDS_SINCE ? KERR_UNKNOWN_TOPIC_ID : KERR_UNKNOWN_TOPIC_OR_PARTITION;
        t->name = in->topics[i].name;
        t->topic_id = in->topics[i].topic_id;
        t->partitions_count = in->topics[i].partitions_count;
        t->partitions = arena_array(&rq->arena, answer_partition, (size_t)t->partitions_count);
        for (int32_t k = 0; k < t->partitions_count; k++) {
            t->partitions[k] = offset_commit_response_offset_commit_response_partition_default;
            t->partitions[k].partition_index = in->topics[i].partitions[k].partition_index;
            if (topic_has_partition(view, t->partitions[k].partition_index))
                any = true;
            else
                t->partitions[k].error_code = (int16_t)unknown;
        }
    }
    return any;
}

/* A commit of nothing is the coordinator's no more than one of topics that do not exist (Kafka). */
enum step offset_commit_handle(struct request *rq)
{
    const struct offset_commit_request *in = rq->in;
    if (!rq->op && !prepare(rq)) return DONE;
    if (rq->version < COORDINATOR_SINCE) return store_offsets_commit(rq);
    return groups_ask_one(rq, GROUP_COMMIT, in->group_id, false);
}
