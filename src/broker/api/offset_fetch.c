/* OffsetFetch (key 9): how far groups have come.  Version 0 asks the coordination store, as in Kafka; up to version 7 a
 * request is about one group, later (KIP-709) about several, since version 10 of topics that are named by their ids
 * (KIP-848): the coordinator knows them by name. */
#include "broker/api/handlers.h"
#include "broker/api/store_offsets.h"
#include "broker/broker.h"
#include "broker/groups.h"
#include "wire/gen/offset_fetch.h"

typedef struct offset_fetch_request_offset_fetch_request_group asked_group;
typedef struct offset_fetch_request_offset_fetch_request_topics asked_topic;
typedef struct offset_fetch_response_offset_fetch_response_group answer_group;
typedef struct offset_fetch_response_offset_fetch_response_topic answer_topic;
typedef struct offset_fetch_response_offset_fetch_response_partition answer_partition;
typedef struct offset_fetch_response_offset_fetch_response_topics answer_topics;
typedef struct offset_fetch_response_offset_fetch_response_partitions answer_partitions;

enum { COORDINATOR_SINCE = 1, GROUP_ERROR_SINCE = 2, SEVERAL_SINCE = 8, IDS_SINCE = 10 };

struct offset_fetch_op {
    struct groups_asking asking; /* first: its rq says that this has begun */
    answer_group *group;         /* before SEVERAL_SINCE */
};

static void ask(struct offset_fetch_op *op, const asked_group *asked, answer_group *out)
{
    struct request *rq = op->asking.rq;
    const struct offset_fetch_request *in = rq->in;
    *out = offset_fetch_response_offset_fetch_response_group_default;
    out->group_id = asked->group_id;
    struct groups_ask *a = groups_ask(&op->asking, GROUP_FETCH, asked->group_id, asked, out);
    a->call.require_stable = in->require_stable;
    groups_ask_send(a);
}

/* ---- Topics by id */

/* What is asked, by name; without the topics that nobody knows. */
static const asked_group *by_names(struct request *rq, const asked_group *asked)
{
    asked_group *named = arena_alloc(&rq->arena, sizeof *named);
    *named = *asked;
    if (asked->topics_count <= 0) return named;
    named->topics = arena_array(&rq->arena, asked_topic, (size_t)asked->topics_count);
    named->topics_count = 0;
    for (int32_t i = 0; i < asked->topics_count; i++) {
        const struct topic_view *view = metadata_topic_by_id(rq->broker->metadata, asked->topics[i].topic_id);
        if (!view) continue;
        asked_topic *t = &named->topics[named->topics_count++];
        *t = asked->topics[i];
        t->name = asked->topics[i].name = arena_str(&rq->arena, view->name);
    }
    return named;
}

static void refuse_topic(struct request *rq, const asked_topic *asked, answer_topics *t)
{
    *t = offset_fetch_response_offset_fetch_response_topics_default;
    t->topic_id = asked->topic_id;
    t->partitions_count = asked->partition_indexes_count;
    t->partitions = arena_array(&rq->arena, answer_partitions, (size_t)t->partitions_count);
    for (int32_t k = 0; k < t->partitions_count; k++) {
        t->partitions[k] = offset_fetch_response_offset_fetch_response_partitions_default;
        t->partitions[k].partition_index = asked->partition_indexes[k];
        t->partitions[k].committed_offset = -1;
        t->partitions[k].metadata = STR_EMPTY;
        t->partitions[k].error_code = KERR_UNKNOWN_TOPIC_ID;
    }
}

/* The coordinator has told of those that it was asked about; those that have no name come behind them. */
static void add_unknown(struct request *rq, const asked_group *asked, answer_group *g)
{
    answer_topics *told = g->topics;
    if (g->topics_count == asked->topics_count) return;
    g->topics = arena_array(&rq->arena, answer_topics, (size_t)asked->topics_count);
    for (int32_t i = 0; i < g->topics_count; i++) g->topics[i] = told[i];
    for (int32_t i = 0; i < asked->topics_count; i++)
        if (!asked->topics[i].name.size) refuse_topic(rq, &asked->topics[i], &g->topics[g->topics_count++]);
}

/* Of all there are: those that exist no more have no id to be told by. */
static void ids_of_all(struct request *rq, answer_group *g)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < g->topics_count; i++) {
        const struct topic_view *view = metadata_topic(rq->broker->metadata, g->topics[i].name);
        if (!view) continue;
        g->topics[kept] = g->topics[i];
        g->topics[kept++].topic_id = view->id;
    }
    g->topics_count = kept;
}

static void answer_by_ids(struct request *rq)
{
    const struct offset_fetch_request *in = rq->in;
    struct offset_fetch_response *out = rq->out;
    for (int32_t i = 0; i < out->groups_count; i++) {
        if (out->groups[i].error_code) continue;
        if (in->groups[i].topics_count >= 0)
            add_unknown(rq, &in->groups[i], &out->groups[i]);
        else
            ids_of_all(rq, &out->groups[i]);
    }
}

/* ---- Groups */

static void ask_several(struct request *rq, struct offset_fetch_op *op)
{
    const struct offset_fetch_request *in = rq->in;
    struct offset_fetch_response *out = rq->out;
    groups_asking_begin(&op->asking, rq, (size_t)in->groups_count);
    out->groups = arena_array(&rq->arena, answer_group, (size_t)in->groups_count);
    out->groups_count = in->groups_count;
    for (int32_t i = 0; i < in->groups_count; i++) {
        const asked_group *asked = &in->groups[i];
        ask(op, rq->version >= IDS_SINCE ? by_names(rq, asked) : asked, &out->groups[i]);
    }
}

/* The one group in the form of the later versions; null topics are all of them in both. */
static void ask_one(struct request *rq, struct offset_fetch_op *op)
{
    const struct offset_fetch_request *in = rq->in;
    groups_asking_begin(&op->asking, rq, 1);
    asked_group *g = arena_alloc(&rq->arena, sizeof *g);
    *g = offset_fetch_request_offset_fetch_request_group_default;
    g->group_id = in->group_id;
    g->topics_count = in->topics_count;
    g->topics = in->topics_count < 0 ? NULL : arena_array(&rq->arena, asked_topic, (size_t)in->topics_count);
    for (int32_t i = 0; i < in->topics_count; i++)
        g->topics[i] = (asked_topic){.name = in->topics[i].name,
                                     .partition_indexes = in->topics[i].partition_indexes,
                                     .partition_indexes_count = in->topics[i].partition_indexes_count};
    op->group = arena_alloc(&rq->arena, sizeof *op->group);
    ask(op, g, op->group);
}

/* Version 1 has no place for the group's error but its partitions. */
static void refuse_partitions(struct request *rq, int16_t error_code)
{
    const struct offset_fetch_request *in = rq->in;
    struct offset_fetch_response *out = rq->out;
    int32_t count = MAX(in->topics_count, 0);
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)count);
    out->topics_count = count;
    for (int32_t i = 0; i < count; i++) {
        answer_topic *t = &out->topics[i];
        *t = offset_fetch_response_offset_fetch_response_topic_default;
        t->name = in->topics[i].name;
        t->partitions_count = in->topics[i].partition_indexes_count;
        t->partitions = arena_array(&rq->arena, answer_partition, (size_t)t->partitions_count);
        for (int32_t k = 0; k < t->partitions_count; k++) {
            t->partitions[k] = offset_fetch_response_offset_fetch_response_partition_default;
            t->partitions[k].partition_index = in->topics[i].partition_indexes[k];
            t->partitions[k].committed_offset = -1;
            t->partitions[k].metadata = STR_EMPTY;
            t->partitions[k].error_code = error_code;
        }
    }
}

/* The answer in the form of the earlier versions. */
static void answer_as_one(struct request *rq, const answer_group *g)
{
    struct offset_fetch_response *out = rq->out;
    out->error_code = g->error_code;
    if (g->error_code && rq->version < GROUP_ERROR_SINCE) {
        refuse_partitions(rq, g->error_code);
        return;
    }
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)g->topics_count);
    out->topics_count = g->topics_count;
    for (int32_t i = 0; i < g->topics_count; i++) {
        answer_topic *t = &out->topics[i];
        *t = offset_fetch_response_offset_fetch_response_topic_default;
        t->name = g->topics[i].name;
        t->partitions_count = g->topics[i].partitions_count;
        t->partitions = arena_array(&rq->arena, answer_partition, (size_t)t->partitions_count);
        for (int32_t k = 0; k < t->partitions_count; k++) {
            const struct offset_fetch_response_offset_fetch_response_partitions *from = &g->topics[i].partitions[k];
            t->partitions[k] = (answer_partition){.partition_index = from->partition_index,
                                                  .committed_offset = from->committed_offset,
                                                  .committed_leader_epoch = from->committed_leader_epoch,
                                                  .metadata = from->metadata,
                                                  .error_code = from->error_code};
        }
    }
}

enum step offset_fetch_handle(struct request *rq)
{
    const struct offset_fetch_request *in = rq->in;
    if (rq->version < COORDINATOR_SINCE) return store_offsets_fetch(rq);
    if (groups_too_many(rq, in->groups_count)) return DONE_CLOSE;
    struct offset_fetch_op *op = REQUEST_OP(rq, struct offset_fetch_op);
    if (!op->asking.rq) {
        if (rq->version >= SEVERAL_SINCE)
            ask_several(rq, op);
        else
            ask_one(rq, op);
    }
    if (groups_asking_wait(&op->asking) == WAIT) return WAIT;
    if (op->group) answer_as_one(rq, op->group);
    if (rq->version >= IDS_SINCE) answer_by_ids(rq);
    return DONE;
}
