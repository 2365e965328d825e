/* offset_fetch.c: OffsetFetch, one group of it: what is committed, never what is on its way.
 *
 * A group that is not there has committed nothing, which is no error: a consumer asks before anything is. */
#include "group/group_internal.h"
#include "wire/gen/offset_fetch.h"

typedef struct offset_fetch_request_offset_fetch_request_group rq_group;
typedef struct offset_fetch_response_offset_fetch_response_group out_group;
typedef struct offset_fetch_response_offset_fetch_response_topics out_topic;
typedef struct offset_fetch_response_offset_fetch_response_partitions out_part;

/* As in Kafka 3.9 a plain commit that is being written counts as unstable, too: who takes a partition over in the
 * middle of its last owner's commit had better wait for it. */
static bool is_unstable(const struct group_position *pos)
{
    return pos->writing > 0 || pos->in_transactions > 0;
}

/* `pos` may be NULL. */
static out_part tell(const struct group_call *call, int32_t partition, const struct group_position *pos)
{
    out_part part = {partition, -1, -1, STR_EMPTY, KERR_NONE};
    if (!pos) return part;
    if (call->require_stable && is_unstable(pos)) {
        part.error_code = KERR_UNSTABLE_OFFSET_COMMIT;
    } else if (pos->committed) {
        part.committed_offset = pos->safe.offset;
        part.committed_leader_epoch = pos->safe.leader_epoch;
        if (pos->safe.metadata.data) part.metadata = arena_str(call->arena, pos->safe.metadata);
    }
    return part;
}

static void fetch_listed(struct group_call *call, struct group *grp, const rq_group *rq, out_group *out)
{
    out->topics = arena_array(call->arena, out_topic, (size_t)rq->topics_count);
    out->topics_count = rq->topics_count;
    for (int32_t i = 0; i < rq->topics_count; i++) {
        const struct offset_fetch_request_offset_fetch_request_topics *from = &rq->topics[i];
        size_t count = (size_t)from->partition_indexes_count;
        out_topic *to = &out->topics[i];
        *to = (out_topic){.name = arena_str(call->arena, from->name), .topic_id = from->topic_id};
        to->partitions = arena_array(call->arena, out_part, count);
        to->partitions_count = from->partition_indexes_count;
        for (size_t j = 0; j < count; j++) {
            int32_t partition = from->partition_indexes[j];
            to->partitions[j] =
                tell(call, partition, grp ? group_position_find(grp, from->name, partition, NULL) : NULL);
        }
    }
}

/* What is not committed yet is not one of all, unstable or not. */
static void fetch_topic(const struct group_call *call, const struct group_topic *t, out_group *out)
{
    out_topic *to = &out->topics[out->topics_count];
    out_part *parts = arena_array(call->arena, out_part, HASH_COUNT(t->positions));
    int32_t count = 0;
    for (const struct group_position *pos = t->positions; pos; pos = pos->hh.next)
        if (pos->committed) parts[count++] = tell(call, pos->partition, pos);
    if (count == 0) return;
    *to = (out_topic){
        .name = arena_str(call->arena, group_topic_name(t)), .partitions = parts, .partitions_count = count};
    out->topics_count++;
}

static void fetch_all(struct group_call *call, const struct group *grp, out_group *out)
{
    out->topics_count = 0;
    if (!grp) return;
    out->topics = arena_array(call->arena, out_topic, HASH_COUNT(grp->topics));
    for (const struct group_topic *t = grp->topics; t; t = t->hh.next) fetch_topic(call, t, out);
}

void group_fetch(struct group_shard *sh, struct group_call *call)
{
    const rq_group *rq = call->in;
    out_group *out = call->out;
    struct group *grp = group_find(sh, rq->group_id);
    out->group_id = arena_str(call->arena, rq->group_id);
    if (rq->topics_count < 0)
        fetch_all(call, grp, out);
    else
        fetch_listed(call, grp, rq, out);
    group_answer(sh, call);
}
