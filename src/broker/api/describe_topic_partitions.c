/* DescribeTopicPartitions (key 75, KIP-966): topics in order of their names, a bounded number of partitions an answer,
 * and a cursor to ask for the rest.  Answers are made and encoded in one turn, so they lend from broker/metadata.h. */
#include <stdlib.h>

#include "broker/api/common.h"
#include "broker/api/handlers.h"
#include "wire/gen/describe_topic_partitions.h"
#include "wire/topic_name.h"

typedef struct describe_topic_partitions_response_describe_topic_partitions_response_topic answer_topic;
typedef struct describe_topic_partitions_response_describe_topic_partitions_response_partition answer_partition;

/* Names to describe, sorted, each once, from the cursor on. */
struct name_list {
    struct str *names;
    int32_t count;
};

static int compare_names(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

static void sort_unique(struct name_list *list)
{
    if (list->count < 2) return;
    qsort(list->names, (size_t)list->count, sizeof *list->names, compare_names);
    int32_t kept = 1;
    for (int32_t i = 1; i < list->count; i++)
        if (!str_equal(list->names[i], list->names[kept - 1])) list->names[kept++] = list->names[i];
    list->count = kept;
}

static void add_from(struct name_list *list, struct str name, struct str first)
{
    if (str_compare(name, first) >= 0) list->names[list->count++] = name;
}

/* No names is all topics. */
static void collect_names(struct request *rq, struct str first, struct name_list *list)
{
    const struct describe_topic_partitions_request *in = rq->in;
    if (in->topics_count > 0) {
        list->names = arena_array(&rq->arena, struct str, (size_t)in->topics_count);
        for (int32_t i = 0; i < in->topics_count; i++) add_from(list, in->topics[i].name, first);
    } else {
        int32_t count;
        const struct topic_view **all = api_all_topics(rq, &count);
        list->names = arena_array(&rq->arena, struct str, (size_t)count);
        for (int32_t i = 0; i < count; i++) add_from(list, all[i]->name, first);
    }
    sort_unique(list);
}

/* The cursor must be at a partition that there can be, of a topic that is asked for. */
static bool cursor_ok(const struct describe_topic_partitions_request *in, const struct name_list *list)
{
    if (!in->cursor) return true;
    if (in->cursor->partition_index < 0) return false;
    if (in->topics_count == 0) return true;
    return list->count > 0 && str_equal(list->names[0], in->cursor->topic_name);
}

static void fill_partition(const struct request *rq, answer_partition *out, const struct partition_view *p,
                           int32_t index, struct str listener)
{
    *out = describe_topic_partitions_response_describe_topic_partitions_response_partition_default;
    out->partition_index = index;
    out->leader_id = api_endpoint(metadata_cluster(rq->broker->metadata), p->leader, listener) ? p->leader : -1;
    out->leader_epoch = p->leader_epoch;
    out->replica_nodes = api_lend_ids(p->replicas);
    out->replica_nodes_count = p->replica_count;
    out->isr_nodes = api_lend_ids(p->isr);
    out->isr_nodes_count = p->isr_count;
    out->offline_replicas = api_lend_ids(p->offline);
    out->offline_replicas_count = p->offline_count;
    /* Eligible leader replicas are KRaft's: an empty list, as where that feature is off. */
    out->eligible_leader_replicas_count = 0;
    out->last_known_elr_count = 0;
}

static void set_next(struct request *rq, struct str topic, int32_t partition)
{
    struct describe_topic_partitions_response *out = rq->out;
    out->next_cursor = arena_alloc(&rq->arena, sizeof *out->next_cursor);
    out->next_cursor->topic_name = topic;
    out->next_cursor->partition_index = partition;
}

/* Partitions of `view` from `first` on, up to `room`.  Returns how many; the cursor is set if some are left. */
static int32_t fill_topic(struct request *rq, answer_topic *out, const struct topic_view *view, int32_t first,
                          int32_t room)
{
    out->topic_id = view->id;
    out->is_internal = view->internal;
    int32_t left = first < view->partition_count ? view->partition_count - first : 0;
    int32_t count = MIN(left, room);
    out->partitions = arena_array(&rq->arena, answer_partition, (size_t)count);
    struct str listener = api_listener(rq);
    for (int32_t i = first; i < first + count; i++)
        if (view->partitions[i].known)
            fill_partition(rq, &out->partitions[out->partitions_count++], &view->partitions[i], i, listener);
    if (count < left) set_next(rq, view->name, first + count);
    return count;
}

static answer_topic *add_topic(struct describe_topic_partitions_response *out, struct str name)
{
    answer_topic *t = &out->topics[out->topics_count++];
    *t = describe_topic_partitions_response_describe_topic_partitions_response_topic_default;
    t->name = name;
    t->topic_authorized_operations = ACL_ALL_OF_TOPIC;
    return t;
}

static void describe(struct request *rq, const struct name_list *list, int32_t room)
{
    const struct describe_topic_partitions_request *in = rq->in;
    struct describe_topic_partitions_response *out = rq->out;
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)list->count);
    for (int32_t i = 0; i < list->count && !out->next_cursor; i++) {
        struct str name = list->names[i];
        if (room == 0) {
            set_next(rq, name, 0);
            return;
        }
        const struct topic_view *view = metadata_topic(rq->broker->metadata, name);
        if (!view) {
            if (in->topics_count == 0) continue; /* deleted since it was listed */
            answer_topic *t = add_topic(out, name);
            t->is_internal = topic_is_internal(name);
            t->error_code = topic_name_is_valid(name) ? KERR_UNKNOWN_TOPIC_OR_PARTITION : KERR_INVALID_TOPIC_EXCEPTION;
            continue;
        }
        bool at_cursor = in->cursor && str_equal(in->cursor->topic_name, name);
        room -= fill_topic(rq, add_topic(out, name), view, at_cursor ? in->cursor->partition_index : 0, room);
    }
}

static void refuse(struct request *rq, enum kerr kerr)
{
    const struct describe_topic_partitions_request *in = rq->in;
    struct describe_topic_partitions_response *out = rq->out;
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)in->topics_count);
    for (int32_t i = 0; i < in->topics_count; i++) {
        answer_topic *t = add_topic(out, in->topics[i].name);
        t->topic_authorized_operations = INT32_MIN;
        t->error_code = (int16_t)kerr;
    }
}

enum step describe_topic_partitions_handle(struct request *rq)
{
    const struct describe_topic_partitions_request *in = rq->in;
    struct name_list list = {0};
    collect_names(rq, in->cursor ? in->cursor->topic_name : STR_EMPTY, &list);
    if (!cursor_ok(in, &list)) {
        refuse(rq, KERR_INVALID_REQUEST);
        return DONE;
    }
    const struct config *cfg = broker_config(rq->broker, rq->loop);
    int64_t limit = config_i64(cfg, CFG_MAX_REQUEST_PARTITION_SIZE_LIMIT);
    int32_t room = (int32_t)MAX(MIN(limit, in->response_partition_limit), 1);
    describe(rq, &list, room);
    return DONE;
}
